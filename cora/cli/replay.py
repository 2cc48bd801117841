"""``cora replay``: a program on a capture."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import (
    json_option,
    nf_argument,
    note,
    print_json,
    progress,
    settings_of,
    traffic_options,
    write_text,
)

if TYPE_CHECKING:
    from cora.runtime.replay import ReplayResult


@click.command("replay")
@nf_argument
@click.argument("traffic", metavar="TRACE", type=click.Path())
@click.option("--engine", type=click.Choice(["native", "reference"]), default="native", show_default=True,
              help="The compiled engine, or the interpreter that defines what programs mean.")
@click.option("--write", "write", type=click.Path(), metavar="FILE", help="Write everything the program sends (pcap).")
@click.option("--state", "state", type=click.Path(), metavar="FILE", help="Write the state it leaves (JSON).")
@traffic_options
@json_option
def command(nf: str, settings: tuple[str, ...], traffic: str, engine: str, write: str | None, state: str | None,
            port_map: tuple[str, ...], captured_at: str | None, ignore_checksums: bool, headers_only: bool,
            as_json: bool) -> None:
    """Run the program NF on the packets of TRACE, in the capture's own time."""
    import cora
    from cora.engine.results import Options

    program = cora.load(nf, settings_of(settings))
    with progress("packets", None) as tell:
        result = cora.replay(program, traffic, engine="native" if engine == "native" else "reference",
                             port_map=port_map, captured_at=captured_at,
                             options=Options(ignore_checksums, headers_only), write=write, progress=tell)
    if state is not None:
        write_text(state, json.dumps(result.state, indent=1) + "\n")
    for warning in result.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(_facts(result))
    else:
        _print(result)


def _facts(result: ReplayResult) -> dict[str, Any]:
    return {"capture": result.capture, "ports": result.assumed, "ports_assumed": result.was_assumed,
            "captured_at": result.captured_at, "translated": result.translated,
            "warnings": list(result.warnings), **asdict(result.summary)}


def _print(result: ReplayResult) -> None:
    summary = result.summary
    if result.was_assumed:
        click.echo(f"assumed: {result.assumed} (say it with --port-map)")
    if result.captured_at is not None:
        click.echo(f"captured at {result.captured_at}: {result.translated:,} packets of other ports translated as the "
                   "program translates")
    click.echo(f"{summary.packets:,} packets, {summary.octets:,} octets in")
    for port, (packets, octets) in summary.forwarded.items():
        click.echo(f"  {packets:>10,}  sent out of {port} ({octets:,} octets)")
    if summary.errors_sent:
        click.echo(f"  {summary.errors_sent:>10,}  ICMP errors sent")
    for reason, packets in sorted(summary.dropped.items(), key=lambda item: -item[1]):
        click.echo(f"  {packets:>10,}  dropped: {reason}")
    if summary.held:
        click.echo(f"  {summary.held:>10,}  fragments still held")
    for name, dump in result.state.items():
        rows: Any = dump.get("entries")
        if rows is not None:
            click.echo(f"{name}: {len(rows):,} entries at the end")
