"""Runs a packet sequence through a split program and compares it with the unsplit one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.engine.results import Event, Options
from cora.engine.split import SplitEngine, Statistics
from cora.ir.parts import Split
from cora.testing.compare import Outcome, batch_of
from cora.testing.frames import Packet


@dataclass(frozen=True)
class SplitOutcome:
    """What a split execution reports: events by packet, totals, merged state; and what happened between the places."""

    outcome: Outcome
    statistics: Statistics
    overtaken: int | None


def by_packet(events: Sequence[Event]) -> list[Event]:
    """Events in the order of the packets that caused them: the places finish packets in an order of their own."""
    return sorted(events, key=lambda e: e.index)


def run_split(split: Split, packets: Sequence[Packet], options: Options = Options(), *, chance: int = 0,  # noqa: B008
              fault: str = "sound") -> SplitOutcome:
    """The parts from empty state, all packets in one batch; ``chance`` seeds the scheduler.

    Raises:
        CoraError: the parts cannot be compiled.
    """
    with SplitEngine(split, options, chance=chance, fault=fault, march_native=False) as engine:
        records, store = batch_of(packets)
        events = list(engine.run_events([records])) if packets else []
        events += engine.finish("events")
        del store  # the records pointed into it until here
        return SplitOutcome(Outcome(by_packet(events), engine.summary(), engine.state()), engine.statistics(),
                            engine.overtaken())
