"""``cora replay``: a program on a capture."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import (
    assumption,
    check_inputs,
    json_option,
    keep_inputs,
    nf_argument,
    note,
    plural,
    print_json,
    progress,
    settings_of,
    traffic_options,
    write_text,
)
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.runtime.replay import ReplayResult

# Of a counter array so many indices are printed.
MAX_COUNTERS = 10


@click.command("replay")
@nf_argument
@click.argument("traffic", metavar="TRACE", type=click.Path())
@click.option("--engine", type=click.Choice(["native", "reference"]), default="native", show_default=True,
              help="The compiled engine, or the interpreter that defines what programs mean.")
@click.option("--write", "write", type=click.Path(), metavar="FILE",
              help="Write everything the program sends: a pcap, or with .pcapng an interface per port.")
@click.option("--state", "state", type=click.Path(), metavar="FILE",
              help="Write the state it leaves (JSON; - for the screen).")
@traffic_options
@json_option
def command(nf: str, settings: tuple[str, ...], traffic: str, engine: str, write: str | None, state: str | None,
            port_map: tuple[str, ...], captured_at: str | None, ignore_checksums: bool, headers_only: bool,
            as_json: bool) -> None:
    """Run the program NF on the packets of TRACE, in the capture's own time."""
    import cora
    from cora.engine.results import Options

    check_inputs(nf, traffic)
    keep_inputs({"--write": write, "--state": state}, (nf, traffic))
    if write == "-":
        raise fail(Kind.BAD_FLAG, "packets are no text for the screen", where="--write -",
                   hint="give the name of a file or of a pipe")
    program = cora.load(nf, settings_of(settings))
    with progress("packets", None) as tell:
        result = cora.replay(program, traffic, engine="native" if engine == "native" else "reference",
                             port_map=port_map, captured_at=captured_at,
                             options=Options(ignore_checksums, headers_only), write=write, progress=tell)
    if state is not None:
        write_text(state, json.dumps(result.state, indent=1) + "\n")
    for warning in result.warnings:
        note(f"warning: {warning}")
    if as_json and state != "-":
        print_json(_facts(result))
    elif state != "-":
        _print(result, assumption(program, port_map))
        for what in filter(None, (write, state)):
            click.echo(f"written: {what}")


def _facts(result: ReplayResult) -> dict[str, Any]:
    return {"capture": result.capture, "ports": result.assumed, "ports_assumed": result.was_assumed,
            "captured_at": result.captured_at, "translated": result.translated,
            "warnings": list(result.warnings), **asdict(result.summary),
            "first_dropped": {reason: {"packet": packet, "frame_number": frame}
                              for reason, (packet, frame) in result.first_dropped.items()}}


def _print(result: ReplayResult, assumed: str | None) -> None:
    summary = result.summary
    if assumed is not None:
        click.echo(assumed)
    if result.captured_at is not None:
        click.echo(f"captured at {result.captured_at}: {result.translated:,} packets of other ports translated as the "
                   "program translates")
    click.echo(f"{summary.packets:,} packets, {summary.octets:,} octets in")
    for port, (packets, octets) in summary.forwarded.items():
        click.echo(f"  {packets:>10,}  sent out of {port} ({octets:,} octets)")
    if summary.errors_sent:
        click.echo(f"  {summary.errors_sent:>10,}  ICMP errors sent")
    for reason, packets in sorted(summary.dropped.items(), key=lambda item: -item[1]):
        click.echo(f"  {packets:>10,}  dropped: {reason}{_first(result, reason)}")
    if summary.held:
        click.echo(f"  {summary.held:>10,}  fragments still held")
    for name, dump in result.state.items():
        _print_state(name, dump)


def _first(result: ReplayResult, reason: str) -> str:
    if reason not in result.first_dropped:
        return ""
    packet, frame = result.first_dropped[reason]
    return f" (first: packet {packet}{'' if frame is None else f', frame {frame}'})"


def _print_state(name: str, dump: dict[str, Any]) -> None:
    if "entries" in dump:
        click.echo(f"{name}: {plural(len(dump['entries']), 'entry', 'entries')} at the end")
    elif "values" in dump:
        used = [(i, *v) for i, v in enumerate(dump["values"]) if v[0]]
        for index, packets, octets in used[:MAX_COUNTERS] or [(0, 0, 0)]:
            label = name if len(dump["values"]) == 1 else f"{name}[{index}]"
            click.echo(f"{label}: {plural(packets, 'packet', 'packets')}, {octets:,} octets")
        if len(used) > MAX_COUNTERS:
            click.echo(f"{name}: {len(used) - MAX_COUNTERS:,} more that counted packets (--state shows all)")
