"""One packet's way through a program: which lines ran, what tables said, why it ended as it did."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cora.engine.reference import Reference
from cora.engine.results import Event, Options, StateDump
from cora.errors import CoraError, Kind, fail
from cora.ir import nodes
from cora.ir.nodes import Program, reasons_of
from cora.runtime.frames import FrameNumbers, Numbered

if TYPE_CHECKING:
    from cora.engine.reference import TraceStep
    from cora.frontends.traffic.capture import Batch, Packet
    from cora.frontends.traffic.portmap import Assigned
    from cora.runtime.returns import Returns

NATIVE_FROM = 20_000
"""From this packet number on it pays to compile the program and run the packets before natively."""


@dataclass(frozen=True)
class PacketTrace:
    """The steps of one packet (those of held fragments it released included) and the events it caused.

    ``packet`` is as the program saw it; ``translated``: the capture, taken at another port, shows it otherwise.
    ``frame_number``: its place in the file, counted from 1; None when the reader left packets of the file out.
    """

    packet: Packet
    now: int
    steps: tuple[TraceStep, ...]
    events: tuple[Event, ...]
    assumed: str
    was_assumed: bool
    translated: bool = False
    frame_number: int | None = None


def trace(program: Program, traffic: str | os.PathLike[str], packet: int, *, port_map: Sequence[str] = (),
          captured_at: str | None = None, options: Options | None = None,
          progress: Callable[[int], None] | None = None) -> PacketTrace:
    """Run the capture up to packet number ``packet`` (counted from 0 over those that reach the program) and trace it.

    ``captured_at``: the port whose link the capture was taken on; None: packets are taken as they are.

    Many packets before it run in the native engine, where that leaves everything the interpreter needs to go on.

    Raises:
        CoraError: `Kind.NO_SUCH_PACKET` when the capture has fewer packets, before any is run, and everything `replay`
            raises.
    """
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap
    from cora.runtime.returns import Returns
    from cora.runtime.viewpoint import port_number

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    side = port_number(program, captured_at)
    chosen, tell = options or Options(), progress or (lambda _: None)
    with open_traffic(traffic) as capture:
        source = mapping.assign(Numbered(capture))
        number = _frame_number(source, packet, str(traffic))
        ready = _natively(program, chosen, source, packet, tell) if side is None and packet >= NATIVE_FROM else None
        returns = None if side is None else Returns(side, chosen)
        if ready is None:
            ready = _interpreted(program, chosen, source, packet, returns, tell)
        return replace(_traced(ready, source, packet, returns), assumed=mapping.describe(),
                       was_assumed=mapping.assumed, frame_number=number)


def first_dropped(program: Program, traffic: str | os.PathLike[str], reason: str, *, port_map: Sequence[str] = (),
                  captured_at: str | None = None, options: Options | None = None,
                  progress: Callable[[int], None] | None = None) -> int:
    """The number of the first packet that is dropped for ``reason``.

    Raises:
        CoraError: `Kind.BAD_FLAG` when the program never drops for it, `Kind.NO_SUCH_PACKET` when it does not here.
    """
    from cora.runtime.replay import replay
    from cora.runtime.viewpoint import need_file

    need_file(traffic, "the packet is looked for before it is traced")
    known = reasons_of(program)
    if reason not in known:
        near = difflib.get_close_matches(reason, known, 1)
        raise fail(Kind.BAD_FLAG, f"{program.name} never drops a packet for '{reason}'", where="--dropped",
                   hint=f"did you mean '{near[0]}'?" if near else f"its reasons: {', '.join(known)}")
    found = replay(program, traffic, port_map=port_map, captured_at=captured_at, options=options, progress=progress)
    if reason not in found.first_dropped:
        raise fail(Kind.NO_SUCH_PACKET, f"no packet is dropped for '{reason}'", where=str(traffic),
                   hint=f"packets are dropped for: {', '.join(found.first_dropped) or 'nothing'}")
    return found.first_dropped[reason][0]


def _frame_number(source: Assigned, packet: int, where: str) -> int | None:
    """The packet's place in the file; refuses a number the capture does not have."""
    from cora.runtime.viewpoint import nothing_arrives

    frames = FrameNumbers()
    for batch in source.batches():
        frames.take(batch)
    if packet >= frames.packets:
        if not frames.packets:
            raise nothing_arrives(where, source)
        raise fail(Kind.NO_SUCH_PACKET, f"there is no packet {packet}: {frames.packets} packets reach the program",
                   where=where, hint=f"packets are counted from 0; the last one is {frames.packets - 1}")
    return None if source.stats.skipped else frames.of(packet)


@dataclass(frozen=True)
class _Ready:
    """An interpreter that has run all packets before the one to trace; its numbers start at ``base``."""

    engine: Reference
    base: int


def _interpreted(program: Program, options: Options, source: Assigned, packet: int, returns: Returns | None,
                 progress: Callable[[int], None]) -> _Ready:
    engine = Reference(program, options)
    for found in _packets(source, 0, packet):
        frame = found.frame if returns is None else returns.before(found)
        events = engine.process(found.port, found.time_ns, frame, found.wirelen)
        if returns is not None:
            returns.after(found, events)
        progress(found.index + 1)
    return _Ready(engine, 0)


def _natively(program: Program, options: Options, source: Assigned, packet: int, progress: Callable[[int], None]
              ) -> _Ready | None:
    """Run the packets before natively; None when there is no compiler, or the state does not say all that matters."""
    from cora.engine.native import NativeEngine

    clock = done = 0
    try:
        with NativeEngine(program, options) as native:
            for batch in _batches(source, 0, packet):
                native.run([batch])
                clock, done = max(clock, int(batch["time_ns"].max())), done + len(batch)
                progress(done)
            state = native.state()
    except CoraError as error:
        if error.diagnostics[0].kind in (Kind.NO_COMPILER, Kind.COMPILER_FAILED, Kind.CACHE_UNWRITABLE):
            return None
        raise
    if not _complete(program, state):
        return None
    engine = Reference(program, options)
    engine.load_state(state)
    engine.now = max(engine.now, clock)
    return _Ready(engine, packet)


def _complete(program: Program, state: StateDump) -> bool:
    """Whether a dump holds all that later packets depend on: no datagram under way, no ties in the order of use."""
    for declared in program.states:
        dump = state.get(declared.name, {})
        datagrams = dump.get("datagrams", [])
        assert isinstance(datagrams, list), "as StateDump says"
        if any(d["state"] != "condemned" for d in datagrams):
            return False
        if isinstance(declared, nodes.MapState | nodes.MeterState) and declared.full == "evict_lru":
            entries = dump["entries"]
            assert isinstance(entries, list), "as StateDump says"
            if len({e["last"] for e in entries}) < len(entries):
                return False
    return True


def _traced(ready: _Ready, source: Assigned, packet: int, returns: Returns | None) -> PacketTrace:
    found = next(_packets(source, packet, packet + 1))
    frame = found.frame if returns is None else returns.before(found)
    steps: list[TraceStep] = []
    events = ready.engine.process(found.port, found.time_ns, frame, found.wirelen, steps)
    return PacketTrace(replace(found, frame=frame), ready.engine.now,
                       tuple(replace(s, index=s.index + ready.base) for s in steps),
                       tuple(replace(e, index=e.index + ready.base) for e in events), "", False, frame != found.frame)


def _batches(source: Assigned, first: int, past: int) -> Iterator[Batch]:
    """The packets from number ``first`` to before ``past``."""
    done = 0
    for batch in source.batches():
        piece = batch[max(0, first - done):max(0, past - done)]
        if len(piece):
            yield piece
        done += len(batch)
        if done >= past:
            return


def _packets(source: Assigned, first: int, past: int) -> Iterator[Packet]:
    from cora.frontends.traffic.capture import packets_of

    for number, found in enumerate(packets_of(_batches(source, first, past)), start=first):
        yield replace(found, index=number)
