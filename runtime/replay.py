"""Replay: a program on the packets of a capture, in the capture's own time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from cora.engine.results import Dropped, Event, Options, Output, ReturnCounts, RunSummary, StateDump
from cora.frontends.traffic.capture import packets_of
from cora.ir.nodes import Program, reasons_of
from cora.runtime.frames import FrameNumbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        first_dropped: per drop reason the first packet (from 0, of those that reach the program) dropped for it and its
            frame number in the file (from 1), None where the reader left packets of the file out.
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
    first_dropped: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)


class Sink(Protocol):
    """Takes the packets a program sends, in order."""

    def write(self, time_ns: int, frame: bytes, wirelen: int | None = None, interface: int = 0) -> None:
        """Take one packet; ``wirelen`` is its original length where the frame was cut, ``interface`` its port."""


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
        write: a capture file for everything the program sends, in order of emission: nanosecond pcap, or pcapng with
            an interface per port when the name ends in ``.pcapng``.
        progress: called with the number of packets done so far.

    Raises:
        CoraError: for everything wrong with the input; nothing is written then.
    """
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap
    from cora.runtime.frames import Numbered
    from cora.runtime.viewpoint import checksum_hint, forgetting, nothing_arrives, port_number, silent_ports, suspicion

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    side = port_number(program, captured_at)
    with ExitStack() as stack:
        source = mapping.assign(Numbered(stack.enter_context(open_traffic(traffic))))
        sink = _sink(program, write, stack)
        run = _native if engine == "native" else _reference
        done = run(program, options or Options(), side, source, sink, progress or (lambda _: None))
        if not done.summary.packets:
            raise nothing_arrives(str(traffic), source)
        stats = source.stats
        warnings = [*source.warnings, *forgetting(done.returns), *silent_ports(program, source.counts, port_map),
                    *checksum_hint(done.summary)]
        if side is None:
            warnings += suspicion(program, source.counts, done.dropped_at)
        first = {r: (packet, None if stats.skipped else frame) for r, (packet, frame) in done.first_dropped.items()}
        return ReplayResult(done.summary, done.state, tuple(warnings), mapping.describe(), mapping.assumed,
                            {"packets": stats.packets, "octets": stats.bytes, "truncated": stats.truncated,
                             "skipped": stats.skipped, "errors": stats.errors}, captured_at,
                            done.returns.translated, first)


def _sink(program: Program, write: str | os.PathLike[str] | None, stack: ExitStack) -> Sink | None:
    from cora.frontends.traffic.writer import PcapngWriter, PcapWriter

    if write is None:
        return None
    if os.fspath(write).endswith(".pcapng"):
        return stack.enter_context(PcapngWriter(write, [p.name for p in program.ports]))
    return stack.enter_context(PcapWriter(write))


@dataclass(frozen=True)
class _Done:
    """What an engine leaves: totals, state, drops by arrival port, what was done to returning packets, first drops."""

    summary: RunSummary
    state: StateDump
    dropped_at: Sequence[int]
    returns: ReturnCounts
    first_dropped: Mapping[str, tuple[int, int]]


class _FirstDrops:
    """Per drop reason the first packet dropped for it, and its frame number."""

    def __init__(self, reasons: Sequence[str] = ()) -> None:
        self.frames = FrameNumbers()
        self.found: dict[str, tuple[int, int]] = {}
        self._reasons = reasons
        self._next = 0
        # Verdicts from 0x8000 on are drop reasons, except the one of held packets.
        self._known = np.ones(1 << 16, np.bool_)
        self._known[0x8000:0x8000 + len(reasons)] = False

    def event(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, Dropped):
            self._keep(event.reason, event.index)

    def verdicts(self, pairs: Iterable[tuple[int, NDArray[np.uint16]]]) -> None:
        """Take verdicts of consecutive packets, each array with the number of its first packet."""
        for base, codes in pairs:
            if base < self._next:  # it had been held, and may come before the first one known
                self._take_resolved(base, int(codes[0]))
                continue
            self._next = base + len(codes)
            while (fresh := ~self._known[codes]).any():
                at = int(fresh.argmax())
                self._known[codes[at]] = True
                self._keep(self._reasons[int(codes[at]) - 0x8000], base + at)

    def _take_resolved(self, packet: int, code: int) -> None:
        if 0 <= code - 0x8000 < len(self._reasons):
            self._keep(self._reasons[code - 0x8000], packet)

    def _keep(self, reason: str, packet: int) -> None:
        if packet < self.found.get(reason, (packet + 1, 0))[0]:
            self.found[reason] = (packet, self.frames.of(packet))


def _counted(source: Assigned, clock: Clock, frames: FrameNumbers, progress: Callable[[int], None]) -> Iterator[Batch]:
    for batch in source.batches():
        yield frames.take(clock.take(batch))
        progress(frames.packets)


def _native(program: Program, options: Options, side: int | None, source: Assigned, sink: Sink | None,
            progress: Callable[[int], None]) -> _Done:
    from cora.engine.native import NativeEngine

    clock, first = Clock(), _FirstDrops(reasons_of(program))
    with NativeEngine(program, options, captured_at=side) as engine:
        batches = _counted(source, clock, first.frames, progress)
        if sink is None:
            for batch in batches:
                engine.run([batch], keep_verdicts=True)
                first.verdicts(engine.take_verdicts())
        else:
            _write(engine.run_events(batches), clock, first, sink)
        return _Done(engine.summary(), engine.state(), engine.dropped_at(), engine.returns(), first.found)


def _reference(program: Program, options: Options, side: int | None, source: Assigned, sink: Sink | None,
               progress: Callable[[int], None]) -> _Done:
    from cora.engine.reference import Reference
    from cora.runtime.returns import Returns

    engine, first = Reference(program, options), _FirstDrops()
    returns = None if side is None else Returns(side, engine.options)
    dropped_at = [0] * len(program.ports)
    for packet in packets_of(map(first.frames.take, source.batches())):
        frame = packet.frame if returns is None else returns.before(packet)
        events = engine.process(packet.port, packet.time_ns, frame, packet.wirelen)
        if returns is not None:
            returns.after(packet, events)
        for event in events:
            first.event(event)
            if sink is not None and isinstance(event, Output):
                sink.write(engine.now, event.frame, event.wirelen, event.port)
        dropped_at[packet.port] += any(isinstance(e, Dropped) and e.index == packet.index for e in events)
        progress(packet.index + 1)
    counts = ReturnCounts(0, 0) if returns is None else returns.counts()
    return _Done(engine.summary(), engine.state(), dropped_at, counts, first.found)


def _write(events: Iterable[Event], clock: Clock, first: _FirstDrops, sink: Sink) -> None:
    for event in events:
        now = clock.at(event.index)
        first.event(event)
        if isinstance(event, Output):
            sink.write(now, event.frame, event.wirelen, event.port)
