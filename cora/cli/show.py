"""``cora show``: a saved plan, one state's reasons, or what two plans differ in."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cora.cli.common import json_option, print_json
from cora.errors import Kind, fail


@click.command("show")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("--explain", default=None, metavar="STATE", help="Why a state is where it is, and what would move it.")
@click.option("--diff", "other", default=None, type=click.Path(), metavar="PLAN", help="What another plan does else.")
@click.option("--all", "everything", is_flag=True, help="Show all reasons why something is not elsewhere.")
@json_option
def command(plan: str, explain: str | None, other: str | None, everything: bool, as_json: bool) -> None:
    """Print the saved plan PLAN, explain the place of a state, or compare it with another plan."""
    from cora.plan.document import load_plan
    from cora.plan.render import diff, differences, explained, render
    from cora.plan.render import explain as reasons

    if explain is not None and other is not None:
        raise fail(Kind.BAD_FLAG, "one question at a time", where="--explain, --diff",
                   hint="leave out one of the two")
    found = load_plan(Path(plan))
    if explain is not None and as_json:
        print_json(explained(found, explain))
    elif explain is not None:
        click.echo(reasons(found, explain), nl=False)
    elif other is not None and as_json:
        print_json(differences(found, load_plan(Path(other))))
    elif other is not None:
        click.echo(diff(found, load_plan(Path(other))) or "both plans place everything alike\n", nl=False)
    elif as_json:
        click.echo(found.to_json(), nl=False)
    else:
        click.echo(render(found, sys.stdout.isatty(), everything))
