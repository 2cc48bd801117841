"""From a file to the program that engines and planner work on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cora.frontends.nf import load
from cora.ir.nodes import Program


def compile_file(path: Path, settings: Mapping[str, str]) -> Program:
    """Load an NF program.

    Raises:
        CoraError: everything that is wrong with the program.
    """
    return load(path, settings)
