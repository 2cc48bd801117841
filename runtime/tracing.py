"""One packet's way through a program: which lines ran, what tables said, why it ended as it did."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cora.engine.results import Event, Options
from cora.errors import Kind, fail
from cora.ir.nodes import Program

if TYPE_CHECKING:
    from cora.engine.reference import TraceStep
    from cora.frontends.traffic.capture import Packet


@dataclass(frozen=True)
class PacketTrace:
    """The steps of one packet (those of held fragments it released included) and the events it caused."""

    packet: Packet
    now: int
    steps: tuple[TraceStep, ...]
    events: tuple[Event, ...]
    assumed: str
    was_assumed: bool


def trace(program: Program, traffic: str | os.PathLike[str], packet: int, *, port_map: Sequence[str] = (),
          options: Options | None = None, progress: Callable[[int], None] | None = None) -> PacketTrace:
    """Run the capture up to packet number ``packet`` (counted from 0 over those that reach the program) and trace it.

    Raises:
        CoraError: `Kind.NO_SUCH_PACKET` when the capture has fewer packets, and everything `replay` raises.
    """
    from cora.engine.reference import Reference
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    engine = Reference(program, options or Options())
    count = 0
    with open_traffic(traffic) as capture:
        for count, found in enumerate(mapping.assign(capture).packets()):
            if count == packet:
                steps: list[TraceStep] = []
                events = engine.process(found.port, found.time_ns, found.frame, found.wirelen, steps)
                return PacketTrace(found, engine.now, tuple(steps), tuple(events), mapping.describe(), mapping.assumed)
            engine.process(found.port, found.time_ns, found.frame, found.wirelen)
            if progress is not None:
                progress(count)
    raise fail(Kind.NO_SUCH_PACKET, f"there is no packet {packet}: {count + 1} packets reach the program",
               where=str(traffic), hint=f"packets are counted from 0; the last one is {count}")
