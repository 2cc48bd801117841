"""Rows of the evaluation: a plan of one program for one traffic, card and request, beside the simple placements."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matrix import WEAK, Matrix, Request, Traffic

import cora
from cora.analysis.profile import Profile, load_profile
from cora.errors import CoraError
from cora.explain.compare import Against, against
from cora.frontends.traffic.synthetic import TrafficSpec
from cora.ir.nodes import Program
from cora.plan.document import Plan

# Seconds: what is evaluated is the best plan, not how fast a busy machine finds it.
TIME_LIMIT = 60.0
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Baseline:
    """A simple placement of a row: cores for the rate, host work at it, throughput, and how the plan compares.

    ``speedup``: the plan's throughput divided by it at equal cores, its band formed sample by sample. ``saved``: share
    of its host work that the plan does without (its band: that of the plan's work, against this one's predicted),
    ``cores_saved`` of its whole cores; None where it has none or does not reach the rate.
    """

    name: str
    legal: bool
    cores: int | None
    host_work: float | None
    throughput_pps: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    saved: float | None
    saved_low: float | None
    saved_high: float | None
    cores_saved: float | None


@dataclass(frozen=True)
class Row:
    """One row; ``status`` is ``planned``, or why there is no plan. Figures are predicted, bands P10 to P90."""

    program: str
    nic: str
    traffic: Traffic
    request: Request
    status: str
    new_flows: float
    cores: int | None = None
    cores_low: float | None = None
    cores_high: float | None = None
    host_work: float | None = None
    throughput_pps: float | None = None
    throughput_low: float | None = None
    throughput_high: float | None = None
    gap: float | None = None
    decisions: str = ""
    fast: float | None = None
    binding: str = ""
    limit: str = ""
    seconds: float = 0.0
    baselines: tuple[Baseline, ...] = ()

    @property
    def key(self) -> str:
        """What tells a row apart."""
        return f"{self.program} | {self.nic} | {self.traffic.name} | {self.request.name}"

    def baseline(self, name: str) -> Baseline | None:
        """The simple placement of that name, where the row has it."""
        return next((b for b in self.baselines if b.name == name and b.legal), None)

    @property
    def best(self) -> Baseline | None:
        """The best simple placement beside host-only, as the request judges."""
        rows = [b for b in self.baselines if b.legal and b.name != "host-only"]
        if self.request.rate is None:
            return max(rows, key=lambda b: b.throughput_pps or 0.0, default=None)
        reached = [b for b in rows if b.cores is not None]
        return min(reached, key=lambda b: (b.cores or 0, b.host_work or 0.0), default=None)


def row_of(data: Mapping[str, Any]) -> Row:
    """A row as `asdict` wrote it."""
    return Row(**{**data, "traffic": Traffic(**data["traffic"]), "request": Request(**data["request"]),
                  "baselines": tuple(Baseline(**b) for b in data["baselines"])})


def capture_of(traffic: Traffic, folder: Path) -> Path:
    """The capture of a traffic, made once."""
    spec = TrafficSpec.parse(traffic.spec())
    file = folder / f"{spec.digest()[:16]}.pcap"
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}.pcap")
        cora.traffic(spec, temporary)
        temporary.replace(file)
    return file


def profile_of(program: Program, traffic: Traffic, capture: Path, folder: Path) -> Profile:
    """The profile of a program on a traffic, made once; what arrives outside is translated as the program does."""
    file = folder / f"{program.name}-{cora.__version__}-{capture.stem}-{_hash(program)}.json"
    if file.exists():
        return load_profile(file)
    profile = cora.profile(program, capture, captured_at=program.ports[0].name)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(profile.to_json())
    temporary.replace(file)
    return profile


def _hash(program: Program) -> str:
    from cora.ir.hashing import program_hash

    return program_hash(program)[:12]


def source_of(name: str, folder: Path) -> Path:
    """The file of an example; with `WEAK` in its name, a copy of it in which packets of a flow may change order."""
    if not name.endswith(WEAK):
        return EXAMPLES / f"{name}.nf"
    plain_name = name.removesuffix(WEAK)
    text = (EXAMPLES / f"{plain_name}.nf").read_text(encoding="utf-8")
    if "order strict;" not in text:
        raise ValueError(f"{plain_name} asks for no order: there is nothing to weaken")
    file = folder / f"{plain_name}.weak.nf"
    temporary = file.with_suffix(f".{os.getpid()}.nf")
    temporary.write_text(text.replace("order strict;", "order weak;"), encoding="utf-8")
    temporary.replace(file)
    return file


def rows_of(matrix: Matrix, name: str, traffic: Traffic, folder: Path, done: frozenset[str]) -> Iterator[Row]:
    """The rows of one program and traffic that are not done yet."""
    wanted = [(nic, request) for nic in matrix.nics_of(name) for request in matrix.requests
              if Row(name, nic, traffic, request, "", 0.0).key not in done]
    if not wanted:
        return
    program = cora.load(source_of(name, folder))
    profile = profile_of(program, traffic, capture_of(traffic, folder), folder)
    inserted = max((u.inserts[0] for u in profile.states.values()), default=0) / profile.packets
    for nic, request in wanted:
        start = time.perf_counter()
        try:
            plan = cora.plan(program, profile, nic, rate=request.rate, cores=request.cores, time_limit=TIME_LIMIT)
        except CoraError as error:
            yield Row(name, nic, traffic, request, error.diagnostics[0].message, inserted,
                      seconds=time.perf_counter() - start)
            continue
        yield _row(plan, name, nic, traffic, request, inserted, time.perf_counter() - start)


def _row(plan: Plan, name: str, nic: str, traffic: Traffic, request: Request, inserted: float, seconds: float) -> Row:
    work = next((f for f in plan.figures if f.name == "host work"), None)
    cores = next((f for f in plan.figures if f.name == "host cores"), None)
    reach = plan.figure("throughput")
    lent = [s.lent.share for s in plan.states if s.lent is not None]
    return Row(
        name, nic, traffic, request, "planned", inserted, plan.cores, cores and cores.low, cores and cores.high,
        work and work.value, reach.value, reach.low, reach.high, plan.evidence.gap, decisions(plan),
        max(lent, default=None), plan.binding, limit_of(plan), seconds,
        tuple(_baseline(a, plan) for a in against(plan)))


def _baseline(other: Against, plan: Plan) -> Baseline:
    asked = plan.request.rate_pps is not None
    work = next(f for f in plan.figures if f.name == "host work")
    saved = low = high = None
    if asked and other.cores is not None and other.host_work and work.value is not None:
        saved = 1 - work.value / other.host_work
        low = None if work.high is None else 1 - work.high / other.host_work
        high = None if work.low is None else 1 - work.low / other.host_work
    return Baseline(other.name, other.legal, other.cores, other.host_work, other.throughput_pps, other.ratio,
                    other.ratio_low, other.ratio_high, saved, low, high, other.saved)


def decisions(plan: Plan) -> str:
    """Where the states are: ``conns split nic/emem + host, hits at nic``."""
    told = []
    for s in plan.states:
        near = f"{s.lent.place} + " if s.lent is not None else ""
        copies = "+".join(c.place for c in s.copies)
        told.append(f"{s.name} {s.decision if s.decision != 'whole' else 'at'} {near}{copies or s.place}")
    return ", ".join(told)


def limit_of(plan: Plan) -> str:
    """What keeps the plan from more: what binds, and why the state that the host uses most is not nearer to the wire.

    The digits of figures are left out, so that rows with the same reason can be counted.
    """
    host = plan.places[-1]
    there = [s for s in plan.states if s.place == host and s.accesses_per_packet > 0]
    if not there:
        return f"{plan.binding} binds"
    busiest = max(there, key=lambda s: s.accesses_per_packet)
    by_flow = next((r.reason for r in plan.refusals if r.subject == busiest.name and r.place.endswith("by flow")), None)
    nearer = next((m.reason for m in busiest.moves if m.place != host and m.possible), None)
    near = next((m.place for m in busiest.moves if m.place != host and m.possible), "")
    why = f"at {near}, {nearer}" if nearer else by_flow or busiest.reason
    how = "split" if busiest.lent is not None else "whole"
    return f"{plan.binding} binds; '{busiest.name}' is {how} at {host}: {re.sub('[0-9][0-9.,]*', '…', why)}"


def plain(row: Row) -> dict[str, Any]:
    """A row as JSON's own types."""
    return asdict(row)
