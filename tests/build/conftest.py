"""Commands run in this process, and a plan that every target can have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The kit is used by the tests of backends too.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "testing"))

from build_kit import LITTLE, planned
from command_kit import Run, runner


@pytest.fixture
def cora(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process and returns what it printed and its exit code."""
    return runner(capsys)


@pytest.fixture
def little(tmp_path: Path) -> tuple[Path, Path]:
    """`LITTLE` and a plan of it for the host."""
    return planned(tmp_path, LITTLE, "host")
