"""`cora build`: whole trees, the same bytes for the same plan, clear refusals."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from build_kit import LITTLE, install, planned
from command_kit import Run

import cora as api
from cora.build.compose import build
from cora.build.manifest import MANIFEST, load_manifest
from cora.build.request import request_of
from cora.plan.document import load_plan

pytestmark = pytest.mark.needs("gcc")


def test_a_tree_is_whole_and_makes_anywhere(little: tuple[Path, Path], tmp_path: Path, cora: Run,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host")
    nf, plan = little
    out = tmp_path / "out"
    done = cora("build", str(plan), "-o", str(out), "--program", str(nf), "--check")
    assert done.code == 0 and "compiles" in done.out, done.err
    found = load_manifest(out / MANIFEST)
    for item in found.files:
        data = (out / item.path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (item.bytes, item.sha256)
    listed = {f.path for f in found.files} | {MANIFEST}
    assert {"Makefile", "README.md", "plan.json", "host/Makefile", "host/part.c", "host/README.md"} < listed
    written = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert written - listed == {"host/build/part.o"}
    assert (found.ports, found.target, found.program) == (("a", "b"), "host", "little")
    states = {s.name: s for s in found.states}
    assert states["hosts"].capacity == 1000 and states["hosts"].places == ("host: whole",)
    # A row has the two fields, the class and the time of the last use.
    assert states["hosts"].row_bytes is not None and states["hosts"].row_bytes >= 4 + 2 + 8
    assert load_plan(out / "plan.json") == load_plan(plan)

    away = tmp_path / "elsewhere"
    shutil.copytree(out, away)
    subprocess.run(["make", "-C", str(away), "clean", "all"], check=True, capture_output=True)
    assert (away / "host" / "build" / "part.o").is_file()


def test_the_same_plan_gives_the_same_bytes(little: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host")
    nf, plan = little
    one = build(request_of(load_plan(plan), api.load(nf)))
    moved = nf.with_name("moved.nf")
    moved.write_text(nf.read_text())
    other = build(request_of(load_plan(plan), api.load(moved)))
    assert one.files == other.files
    assert str(nf.parent) not in "".join(t for p, t in one.files.items() if p != "plan.json")


def test_what_was_built_is_told_as_data(little: tuple[Path, Path], tmp_path: Path, cora: Run,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host")
    nf, plan = little
    done = cora("build", str(plan), "-o", str(tmp_path / "out"), "--json")
    told = json.loads(done.out)
    assert told["places"] == ["host"] and told["target"] == "host" and not told["checked"]
    assert told["digest"] == build(request_of(load_plan(plan), api.load(nf))).digest()


def test_a_card_that_cannot_be_built_for_is_refused_before_writing(tmp_path: Path, cora: Run,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host")
    _, plan = planned(tmp_path, LITTLE, "agilio-cx")
    done = cora("build", str(plan), "-o", str(tmp_path / "out"))
    assert done.code == 2 and "agilio-cx cannot be built yet" in done.err
    assert done.err.startswith(f"{plan}: error[E505 ")
    assert "host" in done.err.partition("help:")[2] and not (tmp_path / "out").exists()


def test_a_tree_that_does_not_compile_says_so(tmp_path: Path, cora: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host")
    _, plan = planned(tmp_path, LITTLE.replace("nf little", "nf broken"), "host")
    done = cora("build", str(plan), "-o", str(tmp_path / "out"), "--check")
    assert done.code == 2 and "E607" in done.err and "broken on purpose" in done.err


def test_a_missing_tool_is_named(little: tuple[Path, Path], tmp_path: Path, cora: Run,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "host", TOOLS={"build": ("make", "clang")})
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    done = cora("build", str(little[1]), "-o", str(tmp_path / "out"), "--check")
    assert done.code == 2 and done.err.count("E606") == 2 and "apt-get install clang" in done.err


@pytest.mark.parametrize("wrong", ["program", "settings", "plan", "folder"])
def test_wrong_inputs_are_told(little: tuple[Path, Path], tmp_path: Path, cora: Run, monkeypatch: pytest.MonkeyPatch,
                               wrong: str) -> None:
    install(monkeypatch, "host")
    nf, plan = little
    out, more = tmp_path / "out", []
    if wrong == "program":
        nf.write_text(LITTLE.replace("60s", "61s"))
    if wrong == "settings":
        more = ["--set", "limit=3"]
    if wrong == "plan":
        plan.write_text("{}")
    if wrong == "folder":
        out.mkdir()
        (out / "mine").write_text("x")
    done = cora("build", str(plan), "-o", str(out), *more)
    number = {"program": "E501", "settings": "E117", "plan": "E501", "folder": "E702"}[wrong]
    assert done.code == 2 and number in done.err
    assert not out.exists() or [f.name for f in out.iterdir()] == ["mine"]


@pytest.mark.needs("dpdk")
def test_a_host_plans_tree_compiles_away_from_the_repository(little: tuple[Path, Path], tmp_path: Path,
                                                             cora: Run) -> None:
    out, away = tmp_path / "out", tmp_path / "elsewhere"
    done = cora("build", str(little[1]), "-o", str(out))
    assert done.code == 0, done.err
    shutil.move(out, away)
    subprocess.run(["make", "-C", str(away), "check"], check=True, capture_output=True)
    # Every line with a statement that does something is told.
    text = (away / "host" / "little.c").read_text()
    assert all(f"little.nf:{n} */" in text for n, line in enumerate(LITTLE.splitlines(), 1)
               if line.strip().startswith(("count ", "lookup ", "hit ", "miss ")))
