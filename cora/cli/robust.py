"""``cora robust``: how sure a plan is to be the right one, and the traffic that would hurt it most."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cora.cli.common import inputs_options, json_option, keep_inputs, note, print_json, subject_of_plan
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.partition.scenarios import Spread


@click.command("robust")
@click.argument("plan", metavar="PLAN", type=click.Path())
@inputs_options
@click.option("--samples", default=200, show_default=True, type=click.IntRange(20, 100_000), metavar="N",
              help="How many scenarios of model and traffic.")
@click.option("--spread", "spreads", multiple=True, metavar="WHAT=FACTOR",
              help="How far traffic may differ from the profile (P90; P10 is the inverse): churn, popularity, "
                   "working-set or size. 1 is not at all. Repeatable.")
@click.option("--seed", default=20, show_default=True, type=click.IntRange(0, 2**32 - 1), metavar="N",
              help="Chooses other scenarios.")
@click.option("--write", "capture", type=click.Path(), metavar="FILE",
              help="Write the traffic that would hurt most as a capture.")
@json_option
def command(plan: str, nf: str | None, settings: tuple[str, ...], profile_file: str | None, samples: int,
            spreads: tuple[str, ...], seed: int, capture: str | None, as_json: bool) -> None:
    """Try the plan PLAN under samples of its model's figures and of its traffic, and search the worst traffic for it.

    Told are the bands of what it reaches, how often no other placement is better, what is lost where one is (regret),
    and which placement is least to regret.
    """
    from cora.cli.robust_text import robust_text, worst_text
    from cora.partition.planner import instance_of, placement_of
    from cora.partition.robust import judge
    from cora.plan.document import load_plan
    from cora.runtime.worst import worst_traffic, write_flood

    spread = _spread(spreads)
    if profile_file is None:
        raise fail(Kind.BAD_FLAG, "scenarios are drawn around the traffic of the plan's profile", where="--profile",
                   hint="give the profile the plan was made from: --profile FILE")
    keep_inputs({"--write": capture}, [plan, profile_file, nf])
    found = load_plan(Path(plan))
    subject = subject_of_plan(found, nf, settings, profile_file)
    made = instance_of(found, subject.program, subject.profile, subject.target)
    placement = placement_of(found, made)
    report = judge(made, placement, found.request, found.cores, count=samples, seed=seed, spread=spread).report
    worst = worst_traffic(made, placement, found.cores)
    if as_json:
        print_json({"robustness": asdict(report), "worst": None if worst is None else
                    {**asdict(worst.report), "port_map": list(worst.port_map)}})
    else:
        click.echo(robust_text(found, report))
        click.echo(worst_text(found, worst), nl=False)
    if capture is None:
        return
    if worst is None:
        raise fail(Kind.CANNOT_WRITE, "no traffic was found that can be sent again and again", where="--write")
    count = write_flood(worst.flood, capture)
    flags = " ".join(f"--port-map {flag}" for flag in worst.port_map)
    note(f"written: {capture} ({count:,} packets; its ports are told apart by {flags})")


def _spread(pairs: tuple[str, ...]) -> Spread:
    from cora.partition.scenarios import FACTORS, USUAL

    values: dict[str, float] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        field = name.strip().replace("-", "_")
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if field not in FACTORS or not 1 <= factor <= 1000:
            raise fail(Kind.BAD_FLAG, f"'{pair}' is no spread", where="--spread",
                       hint=f"write for example --spread churn=4; {', '.join(f.replace('_', '-') for f in FACTORS)} "
                            "take a factor from 1 to 1000")
        values[field] = factor
    return replace(USUAL, **values)
