"""One packet's way through a program: which lines ran, what tables said, why it ended as it did."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cora.engine.results import Event, Options
from cora.errors import Kind, fail
from cora.ir.nodes import Program

if TYPE_CHECKING:
    from cora.engine.reference import TraceStep
    from cora.frontends.traffic.capture import Packet


@dataclass(frozen=True)
class PacketTrace:
    """The steps of one packet (those of held fragments it released included) and the events it caused.

    ``packet`` is as the program saw it; ``translated``: the capture, taken at another port, shows it otherwise.
    """

    packet: Packet
    now: int
    steps: tuple[TraceStep, ...]
    events: tuple[Event, ...]
    assumed: str
    was_assumed: bool
    translated: bool = False


def trace(program: Program, traffic: str | os.PathLike[str], packet: int, *, port_map: Sequence[str] = (),
          captured_at: str | None = None, options: Options | None = None,
          progress: Callable[[int], None] | None = None) -> PacketTrace:
    """Run the capture up to packet number ``packet`` (counted from 0 over those that reach the program) and trace it.

    ``captured_at``: the port whose link the capture was taken on; None: packets are taken as they are.

    Raises:
        CoraError: `Kind.NO_SUCH_PACKET` when the capture has fewer packets, and everything `replay` raises.
    """
    from cora.engine.reference import Reference
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap
    from cora.runtime.returns import Returns
    from cora.runtime.viewpoint import port_number

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    side = port_number(program, captured_at)
    engine = Reference(program, options or Options())
    returns = None if side is None else Returns(side, engine.options)
    count = 0
    with open_traffic(traffic) as capture:
        for count, found in enumerate(mapping.assign(capture).packets()):
            frame = found.frame if returns is None else returns.before(found)
            if count == packet:
                steps: list[TraceStep] = []
                events = engine.process(found.port, found.time_ns, frame, found.wirelen, steps)
                return PacketTrace(replace(found, frame=frame), engine.now, tuple(steps), tuple(events),
                                   mapping.describe(), mapping.assumed, frame != found.frame)
            events = engine.process(found.port, found.time_ns, frame, found.wirelen)
            if returns is not None:
                returns.after(found, events)
            if progress is not None:
                progress(count)
    raise fail(Kind.NO_SUCH_PACKET, f"there is no packet {packet}: {count + 1} packets reach the program",
               where=str(traffic), hint=f"packets are counted from 0; the last one is {count}")
