"""``cora trace``: one packet's way through a program."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import json_option, nf_argument, print_json, progress, settings_of, traffic_options

if TYPE_CHECKING:
    from cora.engine.reference import TraceStep
    from cora.engine.results import Event
    from cora.ir.nodes import Program
    from cora.runtime.tracing import PacketTrace


@click.command("trace")
@nf_argument
@click.argument("traffic", metavar="TRACE", type=click.Path())
@click.option("--packet", required=True, type=click.IntRange(0), metavar="N",
              help="Number of the packet, counted from 0 over those that reach the program.")
@click.option("--all", "everything", is_flag=True, help="Also show steps that neither read state nor decide.")
@traffic_options
@json_option
def command(nf: str, settings: tuple[str, ...], traffic: str, packet: int, everything: bool, port_map: tuple[str, ...],
            captured_at: str | None, ignore_checksums: bool, headers_only: bool, as_json: bool) -> None:
    """Follow one packet of TRACE through the program NF: lines, look-ups, entries, and why it ended as it did."""
    import cora
    from cora.engine.results import Options

    program = cora.load(nf, settings_of(settings))
    with progress("packets before", packet) as tell:
        found = cora.trace(program, traffic, packet, port_map=port_map, captured_at=captured_at,
                           options=Options(ignore_checksums, headers_only), progress=tell)
    if as_json:
        print_json(_facts(program, found))
    else:
        _print(program, found, everything)


def _facts(program: Program, found: PacketTrace) -> dict[str, Any]:
    from cora.ir.text import print_node

    packet = found.packet
    return {
        "packet": packet.index, "port": program.ports[packet.port].name, "time_ns": packet.time_ns, "now_ns": found.now,
        "captured": len(packet.frame), "length": packet.wirelen, "ports": found.assumed,
        "ports_assumed": found.was_assumed, "translated": found.translated,
        "steps": [{"place": str(s.span), "block": s.block, "node": print_node(s.node), "outcome": s.outcome,
                   "packet": s.index, "detail": {k: _plain(v) for k, v in s.detail.items()}} for s in found.steps],
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


@lru_cache(maxsize=8)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def _print(program: Program, found: PacketTrace, everything: bool) -> None:
    packet = found.packet
    if found.was_assumed:
        click.echo(f"assumed: {found.assumed} (say it with --port-map)")
    seconds, rest = divmod(found.now, 10**9)
    click.echo(f"packet {packet.index}: {packet.wirelen} octets arrive on {program.ports[packet.port].name} at "
               f"{seconds}.{rest:09d}")
    if found.translated:
        click.echo("  its addresses and ports are those that the program has chosen, not those of the capture")
    current = None
    for step in found.steps:
        if not everything and not _matters(step):
            continue
        if step.index != packet.index and step.index != current:
            click.echo(f"  held packet {step.index} goes on:")
        current = step.index
        click.echo(f"  {_place(step)}  {_text(step)}")
    for event in found.events:
        click.echo(f"=> {_verdict(program, event)}")


def _matters(step: TraceStep) -> bool:
    from cora.ir import nodes

    if isinstance(step.node, nodes.Terminator):
        return not isinstance(step.node, nodes.Jump)
    return isinstance(step.node, nodes.Store | nodes.StoreEntry | nodes.Touch | nodes.Delete | nodes.Count)


def _place(step: TraceStep) -> str:
    lines = _lines(step.span.file)
    text = lines[step.span.line - 1].strip() if 0 < step.span.line <= len(lines) else step.block
    if len(text) > 58:
        text = text[:55] + "..."
    return f"{step.span.line:>4} | {text:<58}"


def _text(step: TraceStep) -> str:
    words = " ".join(f"{k}={_short(v)}" for k, v in step.detail.items())
    outcome = f"-> {step.outcome}" if step.outcome else ""
    return " ".join(w for w in (step.node.mnemonic, words, outcome) if w)


def _short(item: Any) -> str:
    from cora.engine.reference import Sum

    if isinstance(item, dict):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in item.items()) + "}"
    if isinstance(item, list | tuple):
        return "(" + ", ".join(_short(i) for i in item) + ")"
    if isinstance(item, Sum):
        return f"{item.name} {item.old:#06x} to {item.new:#06x}"
    if isinstance(item, int) and not isinstance(item, bool) and item > 0xFFFF:
        return hex(item)
    return str(item)


def _verdict(program: Program, event: Event) -> str:
    from cora.engine.results import Dropped, Output

    if isinstance(event, Output):
        what = "an ICMP error is sent" if event.is_error else f"packet {event.index} is sent"
        return f"{what} out of {program.ports[event.port].name}, {event.wirelen} octets"
    if isinstance(event, Dropped):
        return f"packet {event.index} is dropped: {event.reason}"
    return f"packet {event.index} is held until the first fragment of its datagram arrives"
