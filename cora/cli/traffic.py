"""``cora traffic``: synthetic traffic as a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cora.cli.common import json_option, print_json, progress
from cora.frontends.traffic.synthetic import FIELDS


def _with_fields(function: Any) -> Any:
    for name, (default, text) in reversed(list(FIELDS.items())):
        shown = f" [default: {default}]" if default else ""
        function = click.option(f"--{name}", default=None, metavar=name.upper(), help=text + shown)(function)
    return function


@click.command("traffic")
@_with_fields
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FILE",
              help="The capture (.pcap or .pcap.gz), or a specification (.traffic.json) that stands for it.")
@json_option
def command(output: str, as_json: bool, **values: str | None) -> None:
    """Make synthetic traffic: the same values give the same bytes on every machine."""
    from cora.frontends.traffic.synthetic import TrafficSpec, is_spec_file, save, write

    spec = TrafficSpec.parse({k: v for k, v in values.items() if v is not None})
    target = Path(output)
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
