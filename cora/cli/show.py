"""``cora show``: a saved plan."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cora.cli.common import json_option


@click.command("show")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("--all", "everything", is_flag=True, help="Show all reasons why something is not elsewhere.")
@json_option
def command(plan: str, everything: bool, as_json: bool) -> None:
    """Print the saved plan PLAN. `cora explain` says why it is so, `cora diff` what another plan does else."""
    from cora.plan.document import load_plan
    from cora.plan.render import render

    found = load_plan(Path(plan))
    click.echo(found.to_json() if as_json else render(found, sys.stdout.isatty(), everything), nl=not as_json)
