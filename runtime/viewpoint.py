"""Where a capture was taken: the port that ``--captured-at`` names, and what to tell the user about it.

The translation itself is in `cora.runtime.returns`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cora.engine.results import RETURN_FLOWS, ReturnCounts, RunSummary
from cora.errors import CoraError, Kind, fail
from cora.ir import nodes
from cora.ir.nodes import Program

if TYPE_CHECKING:
    from cora.frontends.traffic.capture import TrafficSource

# From this share of dropped packets on, a port of a translating program suggests that the capture shows another side.
SUSPICIOUS = 0.2


def port_number(program: Program, name: str | None) -> int | None:
    """The number of the port that ``--captured-at`` names.

    Raises:
        CoraError: `Kind.PORT_MAP`, the program has no such port.
    """
    names = [p.name for p in program.ports]
    if name is None or name in names:
        return None if name is None else names.index(name)
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(name, names, 1)
    raise fail(Kind.PORT_MAP, f"the program has no port {name!r}", where=f"--captured-at {name}",
               hint=f"did you mean {near[0]!r}?" if near else f"its ports are {', '.join(names)}")


def forgetting(counts: ReturnCounts, flow_limit: int = RETURN_FLOWS) -> list[str]:
    """A warning when flows were forgotten."""
    if not counts.forgotten:
        return []
    times = "once" if counts.forgotten == 1 else f"{counts.forgotten} times"
    return [f"more than {flow_limit // 2:,} flows are translated: the older half of the remembered ones was forgotten "
            f"{times}, answers to them are taken as they were captured"]


def suspicion(program: Program, arrived: Sequence[int], dropped: Sequence[int]) -> list[str]:
    """A hint that the capture may show the packets of one side only, judged by packets arrived and dropped per port."""
    if not _translates(program):
        return []
    first, *others = (p.name for p in program.ports)
    return [f"{100 * lost / came:.0f}% of the packets that arrived on {name} were dropped, and {program.name} rewrites "
            f"addresses. If the capture was taken on one link, its packets carry the addresses of that side: say where "
            f"with --captured-at {first}"
            for name, came, lost in zip(others, arrived[1:], dropped[1:], strict=True) if lost > SUSPICIOUS * came]


def need_file(traffic: str | os.PathLike[str], why: str) -> None:
    """Refuse a pipe where the traffic is read more than once; ``why`` says what for.

    Raises:
        CoraError: `Kind.FILE_UNREADABLE`.
    """
    if os.path.exists(traffic) and stat.S_ISFIFO(os.stat(traffic).st_mode):
        raise fail(Kind.FILE_UNREADABLE, f"a pipe can be read only once, and {why}", where=str(traffic),
                   hint="save the packets in a file first")


def nothing_arrives(where: str, source: TrafficSource) -> CoraError:
    """The error for traffic of which no packet reaches the program, with what its reader met."""
    hint = "is it empty, or does the port map leave everything out?"
    if source.stats.skipped:
        hint = f"its {source.stats.skipped:,} packets cannot be used: see the notes"
    return fail(Kind.EMPTY_CAPTURE, "no packet of the capture reaches the program", where=where, hint=hint,
                notes=[(text, None) for text in source.warnings])


def silent_ports(program: Program, arrived: Sequence[int], port_map: Sequence[str]) -> list[str]:
    """A warning for each port that the user gave packets to and that none arrived on."""
    given = {spec.partition("=")[0].strip() for spec in port_map}
    return [f"no packet arrives on {port.name}: nothing of the capture matches its --port-map"
            for port, came in zip(program.ports, arrived, strict=True) if not came and port.name in given]


def checksum_hint(summary: RunSummary) -> list[str]:
    """A hint when many IPv4 checksums are wrong, as in captures taken before the NIC filled them in."""
    wrong = summary.dropped.get("bad IPv4 checksum", 0)
    if wrong <= SUSPICIOUS * summary.packets:
        return []
    return [f"{100 * wrong / summary.packets:.0f}% of the packets were dropped for a bad IPv4 checksum: captured "
            "before checksum offload? --ignore-checksums takes them as right"]


def _translates(program: Program) -> bool:
    return any(isinstance(node, nodes.Store) and node.header in ("ipv4", "ipv6") and node.field in ("src", "dst")
               for block in program.blocks for node in block.instructions)
