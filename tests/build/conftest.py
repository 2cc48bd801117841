"""Commands run in this process, and a plan that every target can have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cora.cli import main

# The kit is used by the tests of backends too.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testing"))

from build_kit import LITTLE, Ran, Run, planned


@pytest.fixture
def cora(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process and returns what it printed and its exit code."""

    def run(*args: str) -> Ran:
        code = 0
        try:
            main(list(args))
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def little(tmp_path: Path) -> tuple[Path, Path]:
    """`LITTLE` and a plan of it for the host."""
    return planned(tmp_path, LITTLE, "host")
