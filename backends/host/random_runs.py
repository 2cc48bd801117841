"""Runs packets through the host program of a program, as every other execution of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cora.backends.host.execute import CoreCounts, compiled, run_records
from cora.engine.results import Options
from cora.ir.nodes import Program
from cora.testing.compare import Outcome, batch_of
from cora.testing.frames import Packet
from cora.testing.splits import by_packet


@dataclass(frozen=True)
class HostOutcome:
    """What the host program reports, events in the order of packets, and what each core did."""

    outcome: Outcome
    cores: list[CoreCounts]


@lru_cache(maxsize=16)
def _binary(program: Program) -> Path:
    return compiled(program, {})


def run_host(program: Program, packets: Sequence[Packet], options: Options = Options(), *,  # noqa: B008
             cores: int = 1) -> HostOutcome:
    """The host program from empty state; with several cores a packet begins when the one before it is done.

    Raises:
        CoraError: it cannot be compiled, or does not end as it should.
    """
    records, store = batch_of(packets)
    found, counts = run_records(program, _binary(program), [records] if packets else [], options, cores=cores)
    del store  # the records pointed into it until here
    return HostOutcome(Outcome(by_packet(found.events), found.summary, found.state), counts)
