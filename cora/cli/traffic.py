"""``cora traffic``: synthetic traffic as a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cora.cli.common import json_option, print_json, progress
from cora.errors import Kind, fail
from cora.frontends.traffic.synthetic import FIELDS
from cora.units import parse_count


def _with_fields(function: Any) -> Any:
    for name, (default, text) in reversed(list(FIELDS.items())):
        shown = f" [default: {default}]" if default else ""
        function = click.option(f"--{name}", default=None, metavar=name.upper(), help=text + shown)(function)
    return function


SUFFIXES = (".pcap", ".cap", ".pcap.gz", ".cap.gz", ".traffic.json")


def _check_name(target: Path) -> None:
    """Refuse a name that would say something else than what is in the file."""
    special = target.exists() and not target.is_file()
    if not special and not target.name.endswith(SUFFIXES):
        raise fail(Kind.BAD_FLAG, f"'{target.name}' does not say what to write", where="--output",
                   hint="end it in .pcap or .pcap.gz for a capture, in .traffic.json for a specification")


def _with_flows(values: dict[str, str]) -> dict[str, str]:
    """The values, with so few flows that few packets are enough, where none are asked for."""
    if "packets" not in values or "flows" in values:
        return values
    packets = parse_count(values["packets"], where="--packets", kind=Kind.TRAFFIC_SPEC)
    default = parse_count(FIELDS["flows"][0])
    return values if packets >= 10 * default else {**values, "flows": str(max(1, packets // 10))}


@click.command("traffic")
@_with_fields
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FILE",
              help="The capture (.pcap or .pcap.gz), or a specification (.traffic.json) that stands for it.")
@json_option
def command(output: str, as_json: bool, **values: str | None) -> None:
    """Make synthetic traffic: the same values give the same bytes on every machine.

    With fewer packets than the default flows need, and no flows given, there is a flow per ten packets.
    """
    from cora.frontends.traffic.synthetic import TrafficSpec, is_spec_file, save, write

    target = Path(output)
    _check_name(target)
    spec = TrafficSpec.parse(_with_flows({k: v for k, v in values.items() if v is not None}))
    if is_spec_file(target):
        save(spec, target)
    else:
        with progress("packets", spec.packets) as tell:
            done = 0

            def more(count: int) -> None:
                nonlocal done
                done += count
                tell(done)

            write(spec, target, more)
    if as_json:
        print_json({"file": output, "packets": spec.packets, "flows": spec.flows + spec.new_flows,
                    "digest": spec.digest()})
    else:
        click.echo(f"{output}: {spec.packets:,} packets of {spec.flows + spec.new_flows:,} flows")
