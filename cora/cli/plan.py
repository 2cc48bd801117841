"""``cora plan``: what runs on the NIC and what on the host."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cora.cli.common import (
    check_inputs,
    complete_nic,
    complete_solver,
    json_option,
    keep_inputs,
    nf_argument,
    profile_of,
    settings_of,
    traffic_options,
    write_text,
)
from cora.errors import Kind, fail


@click.command("plan")
@nf_argument
@click.argument("more", metavar="[NF]...", nargs=-1, type=click.Path())
@click.option("--trace", "traffic", type=click.Path(), multiple=True, metavar="FILE",
              help="Plan for the traffic of this capture. With several programs one for each, in order.")
@click.option("--profile", "profile_file", type=click.Path(), multiple=True, metavar="FILE",
              help="Plan for this profile. With several programs one for each, in order.")
@click.option("--nic", required=True, metavar="NAME", shell_complete=complete_nic,
              help="The target: a name that `cora nics` prints.")
@click.option("--instance", default=None, metavar="NAME", help="One card of the family; `cora nics NAME` lists them.")
@click.option("--reserve", "reserved", multiple=True, metavar="WHAT=AMOUNT",
              help="What others on the card use, such as emem=512MiB or rules=100k (may be repeated).")
@click.option("--host-model", default=None, metavar="WHICH",
              help="Figures of host cores: published, measured (by `cora calibrate`, the default when it was run), or "
                   "a file it wrote.")
@click.option("--rate", "rates", multiple=True, metavar="RATE",
              help="The fewest host cores for this rate: 10Mpps, or 40Gbps on the line (with the 24 octets a frame "
                   "takes there besides its own: preamble, check sequence, gap). With several programs one for each.")
@click.option("--cores", default=None, type=click.IntRange(0), metavar="N",
              help="The highest rate with these host cores; with --rate, at most these.")
@click.option("--solver", default="highs", show_default=True, metavar="NAME", shell_complete=complete_solver,
              help="highs or cbc.")
@click.option("--time-limit", default=10.0, show_default=True, metavar="SECONDS", help="Stop the solver after this.")
@click.option("--pin", multiple=True, metavar="STATE=PLACE[/MEMORY]",
              help="Keep a state there: conns=host. Repeatable.")
@click.option("--forbid", multiple=True, metavar="STATE=PLACE[/MEMORY]", help="Keep a state away. Repeatable.")
@click.option("--max-latency", default=None, metavar="TIME", help="Of the mean packet, queueing included: 50us.")
@click.option("--max-nic-memory", default=None, metavar="BYTES", help="For all states on the card together: 2MB.")
@click.option("--headroom", default=None, metavar="SHARE", help="Keep this share of every resource free: 20%.")
@click.option("--window", default=None, metavar="PNN",
              help="Plan for a window of the traffic: P99 is the one whose load 99 % of the windows do not exceed.")
@click.option("--search", default="exact", show_default=True, metavar="KIND",
              help="exact, or fast for programs of thousands of blocks.")
@click.option("--warm", type=click.Path(), default=None, metavar="FILE",
              help="Begin the search with this plan, made before.")
@click.option("--robust", is_flag=True,
              help="Take the plan that is least to regret under other figures and traffic, not the best for these.")
@click.option("--pareto", is_flag=True,
              help="Also show the plans that no other beats in cores, throughput, latency and memory of the card.")
@click.option("--all", "everything", is_flag=True, help="Show all reasons why something is not elsewhere.")
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write the plan document (JSON).")
@traffic_options
@json_option
def command(nf: str, more: tuple[str, ...], settings: tuple[str, ...], traffic: tuple[str, ...],
            profile_file: tuple[str, ...], nic: str, instance: str | None, reserved: tuple[str, ...],
            host_model: str | None, rates: tuple[str, ...], cores: int | None, solver: str, time_limit: float,
            pin: tuple[str, ...], forbid: tuple[str, ...], max_latency: str | None, max_nic_memory: str | None,
            headroom: str | None, window: str | None, search: str, warm: str | None, robust: bool, pareto: bool,
            everything: bool, output: str | None, port_map: tuple[str, ...], captured_at: str | None,
            ignore_checksums: bool, headers_only: bool, as_json: bool) -> None:
    """Plan the program NF for a NIC and for real traffic: a capture, or a profile made of one.

    Several programs are planned together for one NIC, each with its own --trace or --profile and its own --rate; -o is
    then a folder, which gets a plan for each.
    """
    import cora
    from cora.engine.results import Options
    from cora.models import registry
    from cora.plan.document import load_plan
    from cora.plan.render import render
    from cora.runtime.requests import check_request, check_terms, terms_of

    options = Options(ignore_checksums, headers_only)
    if more:
        from cora.cli.tenants import plan_several

        only = {"--set": settings, "--pin": pin, "--forbid": forbid, "--max-latency": max_latency,
                "--headroom": headroom, "--window": window, "--warm": warm, "--robust": robust, "--pareto": pareto,
                "--port-map": port_map, "--captured-at": captured_at, "--search": search != "exact",
                "--all": everything}
        refused = [flag for flag, value in only.items() if value]
        if refused:
            raise fail(Kind.BAD_FLAG, "this is said of one program, and there are several", where=", ".join(refused),
                       hint=_SEVERAL)
        plan_several((nf, *more), traffic, profile_file, rates, registry.get(nic, instance, reserved, host_model),
                     options, cores=cores, solver=solver, time_limit=time_limit, max_nic_memory=max_nic_memory,
                     output=output, as_json=as_json)
        return
    one_traffic, one_profile = _only(traffic, "--trace"), _only(profile_file, "--profile")
    rate = _only(rates, "--rate")
    if rate is None and cores is None:
        raise fail(Kind.BAD_FLAG, "say what to plan for", where="--rate, --cores",
                   hint="--rate 40Gbps asks for the fewest cores, --cores 2 for the highest rate")
    check_inputs(nf, one_traffic)
    keep_inputs({"-o": output}, [nf, one_traffic, one_profile, host_model, warm])
    program = cora.load(nf, settings_of(settings))
    # What can be refused at once is, before the traffic is run.
    target = registry.get(nic, instance, reserved, host_model)
    check_request(rate, cores, solver, time_limit)
    check_terms(program, target, terms_of(pin=pin, forbid=forbid, max_latency=max_latency,
                                          max_nic_memory=max_nic_memory, headroom=headroom, window=window,
                                          search=search))
    before = None if warm is None else load_plan(Path(warm))
    profile = profile_of(program, one_traffic, one_profile, port_map, captured_at, options)
    found = cora.plan(program, profile, nic, rate=rate, cores=cores, solver=solver, time_limit=time_limit,
                      instance=instance, reserved=reserved, host_model=host_model, pin=pin, forbid=forbid,
                      max_latency=max_latency, max_nic_memory=max_nic_memory, headroom=headroom, window=window,
                      search=search, warm=before, robust=robust, pareto=pareto)
    if output is not None:
        write_text(output, found.to_json())
    if output == "-":
        return
    if as_json:
        click.echo(found.to_json(), nl=False)
        return
    click.echo(render(found, sys.stdout.isatty(), everything))
    if output is not None:
        click.echo(f"written: {output}")


# What can be said of several programs, and how the rest is said.
_SEVERAL = ("several programs take --trace or --profile and --rate, one for each, and --nic, --instance, --reserve, "
            "--host-model, --cores (at most, for all together), --solver, --time-limit, --max-nic-memory, -o and "
            "--json; --set, --port-map and --captured-at are for `cora profile`, and `cora show PLAN --all` shows all "
            "reasons")


def _only(values: tuple[str, ...], flag: str) -> str | None:
    """The value of a flag that one program takes once."""
    if len(values) > 1:
        raise fail(Kind.BAD_FLAG, f"{len(values)} values for one program", where=flag,
                   hint="give it once; several programs are given one after the other: cora plan a.nf b.nf")
    return values[0] if values else None
