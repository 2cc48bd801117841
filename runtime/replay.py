"""Replay: a program on the packets of a capture, in the capture's own time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cora.engine.results import Dropped, Event, Options, Output, ReturnCounts, RunSummary, StateDump
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
        captured_at: the port the capture was taken at, None when that was not said; ``translated``: packets of other
            ports that were given what the program had chosen.
        capture: packets and octets of the capture, by its original lengths, and how many were cut or unreadable.
    """

    summary: RunSummary
    state: StateDump
    warnings: tuple[str, ...]
    assumed: str
    was_assumed: bool
    capture: dict[str, int]
    captured_at: str | None = None
    translated: int = 0


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
           port_map: Sequence[str] = (), captured_at: str | None = None, options: Options | None = None,
           write: str | os.PathLike[str] | None = None, progress: Callable[[int], None] | None = None
           ) -> ReplayResult:
    """Run a program on a capture and report totals and final state.

    Args:
        captured_at: the port whose link the capture was taken on (docs/profile.md); None: packets are taken as they
            are.
        write: a capture file for everything the program sends, nanosecond pcap, in order of emission.
        progress: called with the number of packets done so far.

    Raises:
        CoraError: for everything wrong with the input; nothing is written then.
    """
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap
    from cora.frontends.traffic.writer import PcapWriter
    from cora.runtime.viewpoint import forgetting, port_number, suspicion

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    side = port_number(program, captured_at)
    with ExitStack() as stack:
        source = mapping.assign(stack.enter_context(open_traffic(traffic)))
        sink = stack.enter_context(PcapWriter(write)) if write is not None else None
        run = _native if engine == "native" else _reference
        done = run(program, options or Options(), side, source, sink, progress or (lambda _: None))
        if not done.summary.packets:
            raise fail(Kind.EMPTY_CAPTURE, "no packet of the capture reaches the program", where=str(traffic),
                       hint="is it empty, or does the port map leave everything out?")
        stats = source.stats
        warnings = [*source.warnings, *forgetting(done.returns)]
        if side is None:
            warnings += suspicion(program, source.counts, done.dropped_at)
        return ReplayResult(done.summary, done.state, tuple(warnings), mapping.describe(), mapping.assumed,
                            {"packets": stats.packets, "octets": stats.bytes, "truncated": stats.truncated,
                             "skipped": stats.skipped, "errors": stats.errors}, captured_at,
                            done.returns.translated)


@dataclass(frozen=True)
class _Done:
    """What an engine leaves: totals, state, drops by arrival port, and what was done to returning packets."""

    summary: RunSummary
    state: StateDump
    dropped_at: Sequence[int]
    returns: ReturnCounts


def _counted(source: Assigned, clock: Clock, progress: Callable[[int], None]) -> Iterator[Batch]:
    done = 0
    for batch in source.batches():
        yield clock.take(batch)
        done += len(batch)
        progress(done)


def _native(program: Program, options: Options, side: int | None, source: Assigned, sink: Sink | None,
            progress: Callable[[int], None]) -> _Done:
    from cora.engine.native import NativeEngine

    clock = Clock()
    with NativeEngine(program, options, captured_at=side) as engine:
        batches = _counted(source, clock, progress)
        if sink is None:
            engine.run(batches)
        else:
            _write(engine.run_events(batches), clock, sink)
        return _Done(engine.summary(), engine.state(), engine.dropped_at(), engine.returns())


def _reference(program: Program, options: Options, side: int | None, source: Assigned, sink: Sink | None,
               progress: Callable[[int], None]) -> _Done:
    from cora.engine.reference import Reference
    from cora.runtime.returns import Returns

    engine = Reference(program, options)
    returns = None if side is None else Returns(side, engine.options)
    dropped_at = [0] * len(program.ports)
    for packet in source.packets():
        frame = packet.frame if returns is None else returns.before(packet)
        events = engine.process(packet.port, packet.time_ns, frame, packet.wirelen)
        if returns is not None:
            returns.after(packet, events)
        if sink is not None:
            for event in events:
                if isinstance(event, Output):
                    sink.write(engine.now, event.frame, event.wirelen)
        dropped_at[packet.port] += any(isinstance(e, Dropped) and e.index == packet.index for e in events)
        progress(packet.index + 1)
    counts = ReturnCounts(0, 0) if returns is None else returns.counts()
    return _Done(engine.summary(), engine.state(), dropped_at, counts)


def _write(events: Iterable[Event], clock: Clock, sink: Sink) -> None:
    for event in events:
        now = clock.at(event.index)
        if isinstance(event, Output):
            sink.write(now, event.frame, event.wirelen)
