"""``cora trace``: one packet's way through a program, or the next ones of a program that runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import (
    PROGRESS_FROM,
    assumption,
    check_inputs,
    json_option,
    note,
    print_json,
    progress,
    settings_of,
    traffic_options,
)
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.engine.reference import TraceStep
    from cora.engine.results import Event
    from cora.ir.nodes import Program
    from cora.runtime.showing import Shower
    from cora.runtime.tracing import PacketTrace


@click.command("trace")
@click.argument("nf", metavar="NF", type=click.Path(), required=False)
@click.option("--set", "settings", multiple=True, metavar="CONFIG=VALUE",
              help="Give a config of the program another value. Repeatable.")
@click.argument("traffic", metavar="TRACE", type=click.Path(), required=False)
@click.option("--live", metavar="NAME", default=None,
              help="Follow packets of this run instead (a name of `cora status`, or the path of a control socket).")
@click.option("-n", "--number", default=10, show_default=True, type=click.IntRange(1), metavar="N",
              help="With --live: so many packets.")
@click.option("--packet", type=click.IntRange(0), metavar="N",
              help="Number of the packet, counted from 0 over those that reach the program.")
@click.option("--dropped", metavar="REASON", help="The first packet that is dropped for this reason.")
@click.option("--all", "everything", is_flag=True, help="Every step: headers read, values computed, jumps.")
@traffic_options
@json_option
def command(nf: str | None, settings: tuple[str, ...], traffic: str | None, live: str | None, number: int,
            packet: int | None, dropped: str | None, everything: bool, port_map: tuple[str, ...],
            captured_at: str | None, ignore_checksums: bool, headers_only: bool, as_json: bool) -> None:
    """Follow one packet of TRACE through the program NF: lines, look-ups, entries, and why it ended as it did.

    With --live: the next packets that a running program takes in hand, what it sends and why it drops. Packets that a
    place nearer to the wire ends by itself are not seen; `cora status` counts them.
    """
    import cora
    from cora.engine.results import Options
    from cora.runtime.tracing import first_dropped

    if live is not None:
        if nf is not None or packet is not None or dropped is not None or settings or everything:
            raise fail(Kind.BAD_FLAG, "a live trace has its program and its packets", where="--live",
                       hint="cora trace --live NAME -n 10")
        _follow(live, number, as_json)
        return
    if nf is None or traffic is None:
        raise fail(Kind.BAD_FLAG, "say which program and which capture", where="NF TRACE",
                   hint="cora trace nat.nf capture.pcap --packet 300, or cora trace --live NAME")
    if (packet is None) == (dropped is None):
        raise fail(Kind.BAD_FLAG, "say which packet, once", where="--packet, --dropped",
                   hint='--packet 300, or --dropped "no mapping" for the first packet dropped for that; `cora replay` '
                        "prints both")
    check_inputs(nf, traffic)
    program = cora.load(nf, settings_of(settings))
    options = Options(ignore_checksums, headers_only)
    if packet is None:
        assert dropped is not None, "one of the two is given"
        with progress("packets", None) as tell:
            packet = first_dropped(program, traffic, dropped, port_map=port_map, captured_at=captured_at,
                                   options=options, progress=tell)
    with progress("packets before", packet, least=PROGRESS_FROM // 50) as tell:
        found = cora.trace(program, traffic, packet, port_map=port_map, captured_at=captured_at, options=options,
                           progress=tell)
    if as_json:
        print_json(_facts(program, found))
        return
    if (assumed := assumption(program, port_map)) is not None:
        click.echo(assumed)
    _print(program, found, everything)


def _follow(name: str, packets: int, as_json: bool) -> None:
    """Print the next packets of a run as they come; Ctrl-C ends it."""
    from cora.cli.live import control_of
    from cora.runtime.live import event_lines, followed

    def tell(events: list[dict[str, Any]]) -> None:
        if as_json:
            click.echo(json.dumps(events))
            return
        for line in event_lines(events):
            click.echo(line)

    def quiet() -> None:
        note("no packet has come to this place for some seconds; those that a place nearer to the wire ends by itself "
             "are counted by `cora status`. Ctrl-C ends this")

    with control_of(name) as control:
        followed(control, packets, tell, quiet)


def _facts(program: Program, found: PacketTrace) -> dict[str, Any]:
    from cora.ir.text import print_node
    from cora.runtime.showing import Shower

    packet, shower = found.packet, Shower(program)
    return {
        "packet": packet.index, "frame_number": found.frame_number, "port": program.ports[packet.port].name,
        "time_ns": packet.time_ns, "now_ns": found.now,
        "captured": len(packet.frame), "length": packet.wirelen, "ports": found.assumed,
        "ports_assumed": found.was_assumed, "translated": found.translated,
        "steps": [{"place": str(s.span), "block": s.block, "node": print_node(s.node), "outcome": s.outcome,
                   "text": shower.step(s), "packet": s.index,
                   "detail": {k: _plain(v) for k, v in s.detail.items()}} for s in found.steps],
        "events": [_event(program, e) for e in found.events],
    }


def _plain(item: Any) -> Any:
    if isinstance(item, bytes):
        return item.hex()
    if isinstance(item, dict):
        return {str(k): _plain(v) for k, v in item.items()}
    if isinstance(item, list | tuple):
        return [_plain(i) for i in item]
    return item if isinstance(item, int | str | bool | None) else str(item)


def _event(program: Program, event: Event) -> dict[str, Any]:
    from cora.engine.results import Dropped, Output

    if isinstance(event, Output):
        return {"packet": event.index, "sent": program.ports[event.port].name, "length": event.wirelen,
                "icmp_error": event.is_error, "frame": event.frame.hex()}
    return asdict(event) if isinstance(event, Dropped) else {"packet": event.index, "held": True}


def _print(program: Program, found: PacketTrace, everything: bool) -> None:
    from cora.runtime.showing import Shower

    packet, shower = found.packet, Shower(program)
    frame = "" if found.frame_number is None else f" (frame {found.frame_number})"
    seconds, rest = divmod(found.now, 10**9)
    click.echo(f"packet {packet.index}{frame}: {packet.wirelen} octets arrive on {program.ports[packet.port].name} at "
               f"{seconds}.{rest:09d}")
    if found.translated:
        click.echo("  its addresses and ports are those that the program has chosen, not those of the capture")
    current = packet.index
    for step, text in _shown(shower, found.steps, everything):
        if step.index != current:
            click.echo(f"  held packet {step.index} goes on:")
        current = step.index
        click.echo(f"  {_place(step)}  {text}")
    for event in found.events:
        click.echo(f"=> {_verdict(program, event)}")


def _shown(shower: Shower, steps: Iterable[TraceStep], everything: bool) -> Iterator[tuple[TraceStep, str]]:
    """The steps to print with their texts; steps that find headers become one."""
    if everything:
        yield from ((step, shower.step(step)) for step in steps)
        return
    for (parses, _), group in groupby(filter(_matters, steps), lambda s: (shower.parses(s), s.index)):
        together = list(group)
        if not parses:
            yield from ((step, shower.step(step)) for step in together)
        elif text := shower.headers(together):
            yield together[-1], text


def _matters(step: TraceStep) -> bool:
    from cora.ir import nodes

    if isinstance(step.node, nodes.Terminator):
        return not isinstance(step.node, nodes.Jump)
    return isinstance(step.node, nodes.Store | nodes.StoreEntry | nodes.Touch | nodes.Delete | nodes.Count)


def _place(step: TraceStep) -> str:
    from cora.text import lines_of, visible

    lines = lines_of(step.span.file)
    text = visible(lines[step.span.line - 1].strip()) if 0 < step.span.line <= len(lines) else step.block
    if len(text) > 58:
        text = text[:55] + "..."
    return f"{step.span.line:>4} | {text:<58}"


def _verdict(program: Program, event: Event) -> str:
    from cora.engine.results import Dropped, Output

    if isinstance(event, Output):
        what = "an ICMP error is sent" if event.is_error else f"packet {event.index} is sent"
        return f"{what} out of {program.ports[event.port].name}, {event.wirelen} octets"
    if isinstance(event, Dropped):
        return f"packet {event.index} is dropped: {event.reason}"
    return f"packet {event.index} is held until the first fragment of its datagram arrives"
