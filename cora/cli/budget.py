"""``cora budget``: what each path costs, as a file that a later plan is checked against."""

from __future__ import annotations

from pathlib import Path

import click

from cora.cli.common import json_option, keep_inputs, print_json, write_text
from cora.errors import Kind, fail

EXIT_OVER = 1


@click.command("budget")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write the budget (JSON).")
@click.option("--check", "budget", type=click.Path(), metavar="FILE",
              help="Hold the plan against this budget; exit code 1 when a cost grew by more than the tolerance.")
@click.option("--tolerance", default=None, metavar="SHARE", help="What a cost may grow by.  [default: 2%]")
@json_option
def command(plan: str, output: str | None, budget: str | None, tolerance: str | None, as_json: bool) -> None:
    """Print what one packet of each path costs under the plan PLAN: nanoseconds of cores, cycles of engines.

    With -o it becomes a budget file with the source lines that cost most; with --check the plan of a changed program is
    held against such a file, and a cost that grew too much is named with its lines.
    """
    from dataclasses import asdict

    from cora.explain.budget import budget_of, check_budget, load_budget, report, summary
    from cora.plan.document import load_plan
    from cora.units import parse_share

    if tolerance is not None and budget is None:
        raise fail(Kind.BAD_FLAG, "there is nothing to be tolerant about", where="--tolerance",
                   hint="give the budget to check: --check FILE")
    keep_inputs({"-o": output}, [plan, budget])
    share = float(parse_share(tolerance or "2%", where="--tolerance"))
    now = budget_of(load_plan(Path(plan)))
    checked = None if budget is None else check_budget(load_budget(Path(budget)), now, share)
    if output is not None:
        write_text(output, now.to_json())
    if checked is not None:
        print_json({"over": checked.over, **asdict(checked)}) if as_json else \
            click.echo(report(checked, share), nl=False)
        if checked.over:
            raise click.exceptions.Exit(EXIT_OVER)
        return
    if output == "-":
        return
    click.echo(now.to_json() if as_json else summary(now), nl=False)
    if output is not None and not as_json:
        click.echo(f"written: {output}")
