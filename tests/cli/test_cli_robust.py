"""``cora robust`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cora.cli import main

ROOT = Path(__file__).resolve().parents[2]
NF = str(ROOT / "examples" / "nat.ref.nf")
OFFICE = str(ROOT / "examples" / "captures" / "office.pcap")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(list(args))
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    profile, made = str(tmp_path / "profile.json"), str(tmp_path / "plan.json")
    assert run(capsys, "profile", NF, OFFICE, "--captured-at", "inside", "-o", profile)[0] == 0
    assert run(capsys, "plan", NF, "--profile", profile, "--nic", "agilio-cx", "--rate", "20Mpps", "-o", made)[0] == 0
    return made, profile


@pytest.mark.needs("gcc")
def test_rivals_and_the_worst_traffic_are_told_and_written(plan: tuple[str, str], tmp_path: Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    made, profile = plan
    capture = tmp_path / "worst.pcap"
    code, out, err = run(capsys, "robust", made, "--profile", profile, "--samples", "40", "--write", str(capture))
    assert code == 0
    for words in ("40 scenarios", "the plan", "host-only", "best in", "least to regret", "what limits the plan",
                  "The traffic that would hurt it most", "take this path (measured)"):
        assert words in out
    flags = [w for w in err.split() if "=mac:" in w]
    maps = [x for flag in flags for x in ("--port-map", flag.rstrip(")"))]
    code, out, _ = run(capsys, "profile", NF, str(capture), *maps)
    assert code == 0 and "insert ok" in out


@pytest.mark.needs("gcc")
def test_json_has_both_answers_and_spreads_are_taken(plan: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    made, profile = plan
    code, out, _ = run(capsys, "robust", made, "--profile", profile, "--samples", "30", "--spread", "working-set=1",
                       "--spread", "churn=8", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["robustness"]["spread"]["churn"] == 8 and data["robustness"]["spread"]["working_set"] == 1
    assert data["robustness"]["rivals"][0]["name"] == "the plan"
    assert data["worst"]["throughput_pps"] > 0


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("flags", "words"), [
    ([], "--profile FILE"), (["--profile", "PROFILE", "--spread", "churn"], "churn=4"),
    (["--profile", "PROFILE", "--spread", "weather=2"], "working-set"),
    (["--profile", "PROFILE", "--spread", "size=0.5"], "from 1 to 1000"),
    (["--profile", "PROFILE", "--write", "PROFILE"], "choose another name"),
    (["--profile", "PLAN"], "cora show"), (["--profile", "PROFILE", "--samples", "3"], "range"),
])
def test_bad_input_is_one_message(plan: tuple[str, str], flags: list[str], words: str,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    made, profile = plan
    given = [{"PROFILE": profile, "PLAN": made}.get(f, f) for f in flags]
    code, out, err = run(capsys, "robust", made, *given)
    assert code == 2 and not out
    assert words in err
