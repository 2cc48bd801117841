"""Rows of several functions that share one card, each with an equal part of the rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from matrix import Matrix, Request
from rows import EXAMPLES, TIME_LIMIT, Baseline, Row, capture_of, profile_of

import cora
from cora.errors import CoraError
from cora.models.registry import get
from cora.partition.tenants import Asked, Together, plan_together
from cora.plan.document import Plan
from cora.plan.document import Request as Terms
from cora.runtime.requests import asked_rate

ONLY_RATES = "several programs are planned for rates only, not for the most throughput with given cores"


def tenant_rows(matrix: Matrix, folder: Path, done: frozenset[str]) -> Iterator[Row]:
    """The rows of tenants that are not done yet, at the middle traffic."""
    for programs in matrix.tenants:
        for nic in matrix.nics:
            for request in matrix.requests:
                row = Row(" + ".join(programs), nic, matrix.middle, request, ONLY_RATES, 0.0)
                if row.key in done:
                    continue
                yield row if request.rate is None else _planned(row, programs, folder)


def _planned(row: Row, programs: Sequence[str], folder: Path) -> Row:
    tenants = [_asked(name, row.request, len(programs), row, folder) for name in programs]
    start = time.perf_counter()
    try:
        found = plan_together(tenants, get(row.nic), time_limit=TIME_LIMIT)
    except CoraError as error:
        return replace(row, status=error.diagnostics[0].message, seconds=time.perf_counter() - start)
    host = sum(_work(p, "host-only") for p in found.plans)
    saved = 1 - found.host_work / host if host else None
    binding = max(found.resources, key=lambda r: r.utilisation)
    return replace(
        row, status="planned", cores=found.cores, host_work=found.host_work, decisions=_decisions(found),
        throughput_pps=float(sum(p.request.rate_pps or 0 for p in found.plans)), binding=binding.name,
        limit=f"{binding.name} binds", seconds=time.perf_counter() - start,
        gap=0.0 if found.proven else None,
        baselines=(Baseline("host-only", True, None, host, None, None, None, None, saved, None, None, None),))


def _asked(name: str, request: Request, count: int, row: Row, folder: Path) -> Asked:
    program = cora.load(EXAMPLES / f"{name}.nf")
    profile = profile_of(program, row.traffic, capture_of(row.traffic, folder), folder)
    asked = asked_rate(request.rate, profile)
    assert asked is not None, "a row of tenants asks for a rate"
    line = None if asked.line_bps is None else asked.line_bps // count
    terms = Terms(math.ceil(asked.pps / count), line, None, "highs", TIME_LIMIT, "exact", (), (), None, None, 0.0, None)
    return Asked(program, profile, terms)


def _work(plan: Plan, name: str) -> float:
    return next((a.host_work or 0.0 for a in plan.alternatives if a.name == name), 0.0)


def _decisions(found: Together) -> str:
    from rows import decisions

    return "; ".join(f"{p.program}: {decisions(p)}" for p in found.plans)
