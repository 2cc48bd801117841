"""``cora size``: how full tables get, and what size or time-out would do."""

from __future__ import annotations

import click

from cora.cli.common import (
    check_inputs,
    json_option,
    nf_argument,
    print_json,
    profile_of,
    settings_of,
    traffic_options,
)
from cora.errors import Kind, fail


@click.command("size")
@nf_argument
@click.option("--trace", "traffic", type=click.Path(), metavar="FILE", help="Size for the traffic of this capture.")
@click.option("--profile", "profile_file", type=click.Path(), metavar="FILE", help="Size for this profile.")
@click.option("--rate", default=None, metavar="RATE",
              help="As in `cora plan`: 10Mpps, 40Gbps. Default: the traffic's own.")
@traffic_options
@json_option
def command(nf: str, settings: tuple[str, ...], traffic: str | None, profile_file: str | None, rate: str | None,
            port_map: tuple[str, ...], captured_at: str | None, ignore_checksums: bool, headers_only: bool,
            as_json: bool) -> None:
    """Tell how full the tables and pools of the program NF get, when they are exhausted, and what would be enough."""
    from dataclasses import asdict

    import cora
    from cora.engine.results import Options
    from cora.explain.sizing import sizes, sizing
    from cora.runtime.requests import asked_rate

    check_inputs(nf, traffic)
    program = cora.load(nf, settings_of(settings))
    profile = profile_of(program, traffic, profile_file, port_map, captured_at, Options(ignore_checksums, headers_only))
    asked = asked_rate(rate, profile)
    pps = profile.packet_rate if asked is None else float(asked.pps)
    if not pps:
        raise fail(Kind.BAD_FLAG, "the traffic has no duration, so it has no rate of its own", where="--rate",
                   hint="say for which rate: --rate 10Mpps")
    rows = sizes(program, profile, pps)
    if as_json:
        print_json({"rate_pps": pps, "states": [{**asdict(r), "recommended": r.recommended, "fills": r.fills}
                                                for r in rows]})
        return
    click.echo(sizing(rows, profile, pps) if rows else f"packets add entries to no table of {program.name}\n", nl=False)
