"""From a file to the program that engines and planner work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cora.frontends.nf import load
from cora.ir.nodes import Program
from cora.ir.passes.base import Pass
from cora.ir.passes.pipeline import STANDARD, run_pipeline


def compile_file(path: Path, settings: Mapping[str, str], passes: Sequence[Pass] = STANDARD) -> Program:
    """Load an NF program and run passes over it; without passes it is the program as the language lowers it.

    Raises:
        CoraError: everything that is wrong with the program.
    """
    return run_pipeline(load(path, settings), passes)
