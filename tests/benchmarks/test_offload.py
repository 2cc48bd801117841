"""The evaluation suite: its matrix, and the small part of it that runs here, row by row against the product."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import cora

ROOT = Path(__file__).resolve().parents[2]
OFFLOAD = ROOT / "benchmarks" / "offload"


def started(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(OFFLOAD / "run.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@lru_cache(maxsize=1)
def evaluated(folder: Path) -> list[dict[str, str]]:
    done = started("--subset", "--jobs", "1", "--work", str(folder))
    assert done.returncode == 0, done.stderr
    assert "planned (all figures predicted)" in done.stdout
    with (folder / "evaluation.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("offload")


def test_the_matrix_covers_what_the_evaluation_promises() -> None:
    data: dict[str, Any] = tomllib.loads((OFFLOAD / "matrix.toml").read_text(encoding="utf-8"))
    shipped = {f.name.removesuffix(".nf") for f in (ROOT / "examples").glob("*.nf")}
    assert set(data["programs"]) == shipped
    assert set(data["nics"]) == {"agilio-cx", "bluefield2"}
    assert set(data["baselines"]) == {"host-only", "traffic-only", "state-only", "greedy"}
    zipf = [float(z) for z in data["factorial"]["zipf"]]
    assert zipf[0] == 0 and zipf[-1] == 1.3 and len(data["factorial"]["churn"]) >= 3
    assert len(data["rates"]) >= 3 and data["cores"]
    assert data["published"]["cores_saved_percent"] == "up to 94.0"
    assert set(data["subset"]["programs"]) <= shipped


@pytest.mark.needs("gcc")
def test_rows_are_what_the_planner_says(folder: Path, tmp_path: Path) -> None:
    rows = evaluated(folder)
    traffics, requests = 2 * 2, 2
    assert len(rows) == traffics * requests * (2 * 2 + 1)
    assert {r["status"] for r in rows} == {"planned"}
    row = next(r for r in rows if (r["program"], r["nic"], r["zipf"], r["churn"]) == ("nat", "agilio-cx", "1.3", "0")
               and r["request"] == "cores 1")
    data = tomllib.loads((OFFLOAD / "matrix.toml").read_text(encoding="utf-8"))
    spec = {**data["traffic"], "packets": data["subset"]["packets"], "zipf": "1.3", "churn": "0"}
    cora.traffic(spec, tmp_path / "t.pcap")
    program = cora.load(ROOT / "examples" / "nat.nf")
    plan = cora.plan(program, cora.profile(program, tmp_path / "t.pcap", captured_at="inside"), "agilio-cx", cores=1)
    assert float(row["throughput_pps"]) == pytest.approx(plan.throughput_pps, rel=1e-5)
    host = next(a for a in plan.alternatives if a.name == "host-only")
    assert host.throughput_pps is not None
    assert float(row["host-only.speedup"]) == pytest.approx(plan.throughput_pps / host.throughput_pps, rel=1e-5)


@pytest.mark.needs("gcc")
def test_a_plan_is_never_worse_than_a_simple_placement(folder: Path) -> None:
    for row in evaluated(folder):
        for name in ("host-only", "traffic-only", "state-only", "greedy"):
            if row["request"].startswith("cores") and row[f"{name}.speedup"]:
                assert float(row[f"{name}.speedup"]) >= 1 - 1e-3
            elif row[f"{name}.cores"]:
                assert int(row["cores"]) <= int(row[f"{name}.cores"])


@pytest.mark.needs("gcc")
def test_a_second_run_makes_nothing_again_and_a_part_can_be_chosen(folder: Path) -> None:
    evaluated(folder)
    before = (folder / "rows.jsonl").read_text()
    done = started("--subset", "--jobs", "1", "--work", str(folder), "--program", "nat")
    assert done.returncode == 0, done.stderr
    assert (folder / "rows.jsonl").read_text() == before
    assert not list(folder.glob("*.pcap"))
    for picture in folder.glob("*.svg"):
        assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert len(list(folder.glob("*.svg"))) == 4
    assert json.loads((folder / "evaluation.json").read_text())["kind"] == "predicted"


def test_a_choice_without_rows_is_refused(tmp_path: Path) -> None:
    done = started("--program", "nosuch", "--work", str(tmp_path))
    assert done.returncode == 1 and "matrix.toml" in done.stderr and "Traceback" not in done.stderr
    done = started("--page", "--subset", "--work", str(tmp_path))
    assert done.returncode == 1 and "whole matrix" in done.stderr


def test_rows_with_weak_order_are_of_the_shipped_functions_on_cards_with_a_switch() -> None:
    data: dict[str, Any] = tomllib.loads((OFFLOAD / "matrix.toml").read_text(encoding="utf-8"))
    assert data["weak"] == {"programs": ["nat", "firewall", "policer"], "nics": ["bluefield2"]}
    done = started("--program", "nat with order weak", "--nic", "agilio-cx")
    assert done.returncode == 1 and "no row of the matrix is chosen" in done.stderr


@pytest.mark.needs("gcc")
def test_with_weak_order_the_switch_takes_flows_of_the_nat(folder: Path) -> None:
    rows = [r for r in evaluated(folder) if r["nic"] == "bluefield2" and r["program"].startswith("nat")]
    split = {r["program"] for r in rows if "conns split switch" in r["states"]}
    assert split == {"nat with order weak"}
    assert not list(folder.glob("*.weak.nf"))
