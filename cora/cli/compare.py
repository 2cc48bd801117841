"""``cora compare``: a plan beside the simple placements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cora.cli.common import (
    check_inputs,
    complete_nic,
    json_option,
    kind_of_file,
    nf_argument,
    print_json,
    profile_of,
    settings_of,
    traffic_options,
)
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.engine.results import Options
    from cora.plan.document import Plan


@click.command("compare")
@nf_argument
@click.argument("plans", nargs=-1, metavar="[PLAN]...", type=click.Path())
@click.option("--trace", "traffic", type=click.Path(), metavar="FILE", help="Plan for the traffic of this capture.")
@click.option("--profile", "profile_file", type=click.Path(), metavar="FILE", help="Plan for this profile.")
@click.option("--nic", "nics", multiple=True, metavar="NAME", shell_complete=complete_nic,
              help="A target; repeatable. Default: all there are.")
@click.option("--rate", default=None, metavar="RATE", help="The fewest host cores for this rate, as in `cora plan`.")
@click.option("--cores", default=None, type=click.IntRange(0), metavar="N",
              help="The highest rate with these host cores.")
@traffic_options
@json_option
def command(nf: str, plans: tuple[str, ...], settings: tuple[str, ...], traffic: str | None, profile_file: str | None,
            nics: tuple[str, ...], rate: str | None, cores: int | None, port_map: tuple[str, ...],
            captured_at: str | None, ignore_checksums: bool, headers_only: bool, as_json: bool) -> None:
    """Compare plans with the simple placements: host-only, traffic-only, state-only, greedy.

    NF is a program, which is planned for each NIC; or a saved plan, and then other plans may follow.
    """
    from cora.engine.results import Options
    from cora.explain.compare import compared, comparison
    from cora.plan.document import load_plan

    if kind_of_file(nf) == "plan" or plans:
        if settings or traffic or profile_file or nics or rate or cores is not None or port_map or captured_at:
            raise fail(Kind.BAD_FLAG, "a saved plan has its traffic, NIC and rate already", where=nf,
                       hint="leave out the options, or give a program instead of plans")
        found = [load_plan(Path(p)) for p in (nf, *plans)]
    else:
        if rate is None and cores is None:
            raise fail(Kind.BAD_FLAG, "say what to plan for", where="--rate, --cores",
                       hint="--rate 40Gbps asks for the fewest cores, --cores 2 for the highest rate")
        found = _planned(nf, settings, traffic, profile_file, nics, rate, cores, port_map, captured_at,
                         Options(ignore_checksums, headers_only))
    if as_json:
        print_json([comparison(p) for p in found])
        return
    click.echo("\n".join(compared(p) for p in found), nl=False)


def _planned(nf: str, settings: tuple[str, ...], traffic: str | None, profile_file: str | None, nics: tuple[str, ...],
             rate: str | None, cores: int | None, port_map: tuple[str, ...], captured_at: str | None,
             options: Options) -> list[Plan]:
    import cora
    from cora.models import registry

    check_inputs(nf, traffic)
    program = cora.load(nf, settings_of(settings))
    chosen = nics or tuple(n for n in registry.names())
    for name in chosen:
        registry.get(name)
    profile = profile_of(program, traffic, profile_file, port_map, captured_at, options)
    return [cora.plan(program, profile, name, rate=rate, cores=cores) for name in chosen]
