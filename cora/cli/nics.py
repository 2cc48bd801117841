"""``cora nics``: the targets, their figures with sources, and how well they reproduce published measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cora.cli.common import complete_nic, json_option, keep_inputs, print_json, table, write_text

if TYPE_CHECKING:
    from cora.models.target import Target
    from cora.models.validation import ValidationRow


@click.command("nics")
@click.argument("name", required=False, metavar="[NAME]", shell_complete=complete_nic)
@click.option("--instance", metavar="CARD", help="One card of the family, as `cora nics NAME` lists them.")
@click.option("--reserve", "reserved", multiple=True, metavar="WHAT=AMOUNT",
              help="What others on the card use, such as emem=512MiB or rules=100k (may be repeated).")
@click.option("--operations", is_flag=True, help="The operations that rows of calibration files count, with prices.")
@click.option("--validate", is_flag=True, help="Predict every published calibration row and show the error.")
@click.option("--rows", type=click.Path(dir_okay=False), metavar="FILE",
              help="With --validate: rows of a file of yours instead (docs/models.md).")
@click.option("--plot", type=click.Path(dir_okay=False), metavar="FILE.svg", help="With --validate: also as a picture.")
@json_option
def command(name: str | None, instance: str | None, reserved: tuple[str, ...], operations: bool, validate: bool,
            rows: str | None, plot: str | None, as_json: bool) -> None:
    """List the NICs; with NAME, every figure of its model with unit, range, kind and source."""
    from cora.models import registry

    _check(name, instance, reserved, operations, validate, rows, plot)
    if validate:
        _validate(name, rows, plot, as_json)
        return
    if name is not None and operations:
        _operations(registry.get(name, instance, reserved), as_json)
        return
    if name is not None:
        _print_one(registry.get(name, instance, reserved), as_json)
        return
    known = registry.names()
    listed = [[n, " > ".join(p.name for p in registry.get(n).places), registry.description(n)] for n in known]
    if as_json:
        print_json([{"name": r[0], "places": r[1].split(" > "), "description": r[2]} for r in listed])
    else:
        click.echo(table(listed, ["name", "places", "what it is"]))


def _check(name: str | None, instance: str | None, reserved: tuple[str, ...], operations: bool, validate: bool,
           rows: str | None, plot: str | None) -> None:
    """Refuse flags that do nothing together.

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    from cora.errors import Kind, fail

    alone = {"--instance": instance, "--reserve": reserved, "--operations": operations}
    without = next((flag for flag, given in alone.items() if given and (name is None or validate)), None)
    if without:
        why = "rows of --validate name their instance" if validate else "it is about one NIC"
        raise fail(Kind.BAD_FLAG, f"{without} is no flag of this: {why}", hint=f"cora nics NAME {without} ...")
    unused = next((flag for flag, given in (("--rows", rows), ("--plot", plot)) if given and not validate), None)
    if unused:
        raise fail(Kind.BAD_FLAG, f"{unused} goes with --validate", hint=f"cora nics --validate {unused} ...")


def _print_one(target: Target, as_json: bool) -> None:
    if as_json:
        print_json({"name": target.name, "version": target.model.version, "places": [asdict(p) for p in target.places],
                    "instances": {i.name: i.description for i in target.model.instances.values()},
                    "parameters": [asdict(p) for p in target.model]})
        return
    click.echo(f"{target.name}, model version {target.model.version}")
    for place in target.places:
        tiers = ", ".join(f"{t.name} ({t.capacity:,} {t.unit})" for t in place.tiers) or "no memory for state"
        click.echo(f"  {place.name}: {place.description}; {tiers}")
    rows = [[p.name, _number(p.value), "" if p.unit == "1" else p.unit, f"{_number(p.low)} to {_number(p.high)}",
             p.kind, p.source] for p in target.model]
    click.echo(table(rows, ["parameter", "value", "unit", "P10 to P90", "kind", "source"]))
    if target.model.instances:
        click.echo("\ninstances (--instance):")
        for card in target.model.instances.values():
            click.echo(f"  {card.name}: {card.description}")
    click.echo("\nsources:")
    cited = {p.source.partition(":")[0].strip() for p in target.model}
    for key, reference in target.model.sources.items():
        if key in cited:
            click.echo(f"  {key}: {reference}")


def _number(value: float) -> str:
    """Six digits, large ones with separators."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10_000 else f"{value:,.6g}"


def _validate(name: str | None, rows_file: str | None, plot: str | None, as_json: bool) -> None:
    from cora.models import registry
    from cora.models.left_out import left_out
    from cora.models.validation import document, render, validate

    keep_inputs({"--plot": plot}, [rows_file])
    without: list[ValidationRow] = []
    if rows_file is not None:
        rows = validate(name, Path(rows_file))
    else:
        nics = (name,) if name is not None else tuple(registry.names())
        rows = [row for n in nics for row in validate(n)]
        without = [row for n in nics for row in left_out(n)]
    if plot is not None:
        from cora.models.plots import validation_svg

        write_text(plot, validation_svg(rows))
    if as_json:
        print_json(document(rows, without))
    else:
        click.echo(render(rows, without))


def _operations(target: Target, as_json: bool) -> None:
    from cora.models.validation import priced_operations

    found = priced_operations(target)
    if as_json:
        print_json(found)
        return
    units = {r.name: r.unit for r in target.resources(64)}
    rows = [[place, name, ", ".join(f"{_number(n)} {units[r]} of {r}" for r, n in price.items())]
            for place, prices in found.items() for name, price in prices.items()]
    click.echo(table(rows, ["place", "operation", "price"]))
