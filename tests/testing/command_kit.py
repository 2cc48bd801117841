"""Commands run in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from cora.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
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
