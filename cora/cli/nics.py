"""``cora nics``: the targets, their figures with sources, and how well they reproduce published measurements."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import complete_nic, json_option, print_json, table

if TYPE_CHECKING:
    from cora.models.target import Target


@click.command("nics")
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_nic)
@click.option("--validate", is_flag=True, help="Predict every published calibration row and show the error.")
@json_option
def command(name: str | None, validate: bool, as_json: bool) -> None:
    """List the NICs; with NAME, every figure of its model with unit, range, kind and source."""
    from cora.models import registry

    chosen = (name,) if name is not None else registry.names()
    if validate:
        _validate(chosen, as_json)
        return
    if name is not None:
        _print_one(registry.get(name), as_json)
        return
    rows = [[n, " > ".join(p.name for p in registry.get(n).places), registry.description(n)] for n in chosen]
    if as_json:
        print_json([{"name": r[0], "places": r[1].split(" > "), "description": r[2]} for r in rows])
    else:
        click.echo(table(rows, ["name", "places", "what it is"]))


def _print_one(target: Target, as_json: bool) -> None:
    if as_json:
        print_json({"name": target.name, "version": target.model.version, "places": [asdict(p) for p in target.places],
                    "parameters": [asdict(p) for p in target.model]})
        return
    click.echo(f"{target.name}, model version {target.model.version}")
    for place in target.places:
        tiers = ", ".join(f"{t.name} ({t.capacity:,} {t.unit})" for t in place.tiers) or "no memory for state"
        click.echo(f"  {place.name}: {place.description}; {tiers}")
    rows = [[p.name, _number(p.value), "" if p.unit == "1" else p.unit, f"{_number(p.low)} to {_number(p.high)}",
             p.kind, p.source] for p in target.model]
    click.echo(table(rows, ["parameter", "value", "unit", "P10 to P90", "kind", "source"]))
    click.echo("\nsources:")
    cited = {p.source.partition(":")[0].strip() for p in target.model}
    for key, reference in target.model.sources.items():
        if key in cited:
            click.echo(f"  {key}: {reference}")


def _number(value: float) -> str:
    """Six digits, large ones with separators."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10_000 else f"{value:,.6g}"


def _validate(names: tuple[str, ...], as_json: bool) -> None:
    from cora.models.validation import render, validate

    rows = [row for name in names for row in validate(name)]
    if as_json:
        data: list[Any] = [asdict(row) for row in rows]
        print_json(data)
    else:
        click.echo(render(rows))
