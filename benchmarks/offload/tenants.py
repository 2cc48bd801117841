"""Rows of several functions that share one card."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matrix import Matrix
from rows import Row

MISSING = "the planner takes one program at a time in this version: tenants are not planned yet"


def tenant_rows(matrix: Matrix, folder: Path, done: frozenset[str]) -> Iterator[Row]:
    """The rows of tenants, at the middle traffic."""
    for programs in matrix.tenants:
        for nic in matrix.nics:
            for request in matrix.requests:
                row = Row(" + ".join(programs), nic, matrix.middle, request, MISSING, 0.0)
                if row.key not in done:
                    yield row
