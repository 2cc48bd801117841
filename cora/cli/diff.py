"""``cora diff``: what two plans do differently."""

from __future__ import annotations

from pathlib import Path

import click

from cora.cli.common import json_option, print_json


@click.command("diff")
@click.argument("before", metavar="PLAN", type=click.Path())
@click.argument("after", metavar="OTHER", type=click.Path())
@json_option
def command(before: str, after: str, as_json: bool) -> None:
    """Print what the plan OTHER does differently from PLAN: figures, states, blocks."""
    from cora.plan.document import load_plan
    from cora.plan.render import diff, differences

    one, other = load_plan(Path(before)), load_plan(Path(after))
    if as_json:
        print_json(differences(one, other))
        return
    click.echo(diff(one, other) or "both plans place everything alike\n", nl=False)
