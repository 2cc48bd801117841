"""Programs for the tests of how state is split: the shipped ones and small texts, after the standard passes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cora.frontends.nf import load, loads
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import STANDARD, run_pipeline

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHIPPED = ("nat", "nat.ref", "firewall", "firewall.ref", "policer", "policer.ref")


@lru_cache(maxsize=16)
def shipped(name: str) -> Program:
    """An example program as planners see it."""
    return run_pipeline(load(EXAMPLES / f"{name}.nf"), STANDARD)


@lru_cache(maxsize=64)
def written(text: str) -> Program:
    """A program from its text."""
    return run_pipeline(loads(text, "test.nf"), STANDARD)
