"""Replay: a program on the packets of a capture, in the capture's own time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cora.engine.results import Event, Options, Output, RunSummary, StateDump
from cora.errors import Kind, fail
from cora.ir.nodes import Program

if TYPE_CHECKING:
    from cora.frontends.traffic.capture import Batch
    from cora.frontends.traffic.portmap import Assigned

Engine = Literal["native", "reference"]


@dataclass(frozen=True)
class ReplayResult:
    """What a replay did.

    Attributes:
        summary: totals; state: what the program remembers at the end; warnings: about the capture and the port map.
        assumed: how packets were assigned to ports; ``was_assumed``: the user did not say so.
        capture: packets and octets of the capture, by its original lengths, and how many were cut or unreadable.
    """

    summary: RunSummary
    state: StateDump
    warnings: tuple[str, ...]
    assumed: str
    was_assumed: bool
    capture: dict[str, int]


class Sink(Protocol):
    """Takes the packets a program sends, in order."""

    def write(self, time_ns: int, frame: bytes, wirelen: int | None = None) -> None:
        """Take one packet; ``wirelen`` is its original length where the frame was cut."""


class Clock:
    """The program's clock as seen from outside: the latest time stamp so far (docs/semantics.md section 1)."""

    def __init__(self) -> None:
        """Start before all packets."""
        self.now = 0
        self._base = 0
        self._times: Any = ()

    def take(self, batch: Batch) -> Batch:
        """Remember the times of a batch that is about to run."""
        self._base += len(self._times)
        self._times = batch["time_ns"]
        return batch

    def at(self, index: int) -> int:
        """The clock when packet ``index`` caused an event; events come in order."""
        if index >= self._base:
            self.now = max(self.now, int(self._times[index - self._base]))
        return self.now


def replay(program: Program, traffic: str | os.PathLike[str], *, engine: Engine = "native",
           port_map: Sequence[str] = (), options: Options | None = None, write: str | os.PathLike[str] | None = None,
           progress: Callable[[int], None] | None = None) -> ReplayResult:
    """Run a program on a capture and report totals and final state.

    Args:
        write: a capture file for everything the program sends, nanosecond pcap, in order of emission.
        progress: called with the number of packets done so far.

    Raises:
        CoraError: for everything wrong with the input; nothing is written then.
    """
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap
    from cora.frontends.traffic.writer import PcapWriter

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    with ExitStack() as stack:
        source = mapping.assign(stack.enter_context(open_traffic(traffic)))
        sink = stack.enter_context(PcapWriter(write)) if write is not None else None
        run = _native if engine == "native" else _reference
        summary, state = run(program, options or Options(), source, sink, progress or (lambda _: None))
        if not summary.packets:
            raise fail(Kind.EMPTY_CAPTURE, "no packet of the capture reaches the program", where=str(traffic),
                       hint="is it empty, or does the port map leave everything out?")
        stats = source.stats
        return ReplayResult(summary, state, tuple(source.warnings), mapping.describe(), mapping.assumed,
                            {"packets": stats.packets, "octets": stats.bytes, "truncated": stats.truncated,
                             "skipped": stats.skipped, "errors": stats.errors})


def _counted(source: Assigned, clock: Clock, progress: Callable[[int], None]) -> Iterator[Batch]:
    done = 0
    for batch in source.batches():
        yield clock.take(batch)
        done += len(batch)
        progress(done)


def _native(program: Program, options: Options, source: Assigned, sink: Sink | None,
            progress: Callable[[int], None]) -> tuple[RunSummary, StateDump]:
    from cora.engine.native import NativeEngine

    clock = Clock()
    with NativeEngine(program, options) as engine:
        batches = _counted(source, clock, progress)
        if sink is None:
            engine.run(batches)
        else:
            _write(engine.run_events(batches), clock, sink)
        return engine.summary(), engine.state()


def _reference(program: Program, options: Options, source: Assigned, sink: Sink | None,
               progress: Callable[[int], None]) -> tuple[RunSummary, StateDump]:
    from cora.engine.reference import Reference

    engine = Reference(program, options)
    for packet in source.packets():
        events = engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen)
        if sink is not None:
            for event in events:
                if isinstance(event, Output):
                    sink.write(engine.now, event.frame, event.wirelen)
        progress(packet.index + 1)
    return engine.summary(), engine.state()


def _write(events: Iterable[Event], clock: Clock, sink: Sink) -> None:
    for event in events:
        now = clock.at(event.index)
        if isinstance(event, Output):
            sink.write(now, event.frame, event.wirelen)
