"""``cora check``: is the program right, and what does the compiler make of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import check_inputs, json_option, nf_argument, note, print_json, settings_of, table

if TYPE_CHECKING:
    from cora.analysis.lints import Remark
    from cora.ir.nodes import Program, State


@click.command("check")
@nf_argument
@click.option("--emit-ir", is_flag=True, help="Print the IR after the passes.")
@click.option("--passes", default=None, metavar="LIST", help="Run these passes instead of the standard ones.")
@click.option("--stop-after", default=None, metavar="PASS", help="Stop after this pass; 'lower' is before the first.")
@click.option("--list-passes", is_flag=True, help="Print the pipeline and what each pass does.")
@click.option("--verify", "verify_each", is_flag=True, help="Run the IR verifier after every pass.")
@click.option("--paths", is_flag=True, help="Print every path through the program with its verdict.")
@click.option("--sharding", is_flag=True, help="Print how each state may be split by flow, copied or divided.")
@click.option("--max-paths", default=100_000, show_default=True, type=click.IntRange(1), help="Refuse more paths.")
@json_option
def command(nf: str, settings: tuple[str, ...], emit_ir: bool, passes: str | None, stop_after: str | None,
            list_passes: bool, verify_each: bool, paths: bool, sharding: bool, max_paths: int, as_json: bool) -> None:
    """Check the program NF and show what the compiler makes of it.

    Prints every error of the program, or a summary. Exit code 2 when there are errors.
    """
    from cora.analysis.lints import remarks_on
    from cora.frontends.nf import load
    from cora.ir.passes import pipeline

    chosen = pipeline.STANDARD if passes is None else pipeline.parse_pipeline(passes)
    if list_passes:
        click.echo(pipeline.list_passes(chosen))
        return
    check_inputs(nf)
    raw = load(nf, settings_of(settings))
    remarks = remarks_on(raw)
    program = raw if stop_after == "lower" else pipeline.run_pipeline(raw, chosen, stop_after=stop_after,
                                                                      verify=verify_each)
    for remark in remarks:
        note(f"{remark.span}: warning[{remark.name}]: {remark.text}")
    if paths:
        _print_paths(program, max_paths, as_json)
    elif sharding:
        from cora.cli import sharding as shown

        print_json(shown.facts(program, max_paths)) if as_json else click.echo(shown.report(program, max_paths))
    elif emit_ir:
        from cora.ir.text import print_program

        text = print_program(program)
        print_json({"ir": text}) if as_json else click.echo(text, nl=False)
    elif as_json:
        print_json(_facts(program, remarks))
    else:
        _print_summary(program)


def _print_paths(program: Program, bound: int, as_json: bool) -> None:
    from cora.analysis.paths import enumerate_paths, verdict_of

    found = enumerate_paths(program, bound)
    if as_json:
        print_json([{"id": p.id, "blocks": p.blocks, "outcomes": p.outcomes, "verdict": verdict_of(program, p)}
                    for p in found])
        return
    for path in found:
        edges = zip(path.blocks, (*path.outcomes, "next"), strict=True)
        steps = [block if outcome == "next" else f"{block}[{outcome}]" for block, outcome in edges]
        click.echo(f"{path.id}: {' > '.join(steps)}: {verdict_of(program, path)}")


def _facts(program: Program, remarks: tuple[Remark, ...]) -> dict[str, Any]:
    from cora.analysis.paths import number_paths
    from cora.ir.hashing import program_hash

    return {
        "name": program.name, "hash": program_hash(program),
        "ports": {p.name: list(p.faces) for p in program.ports},
        "configs": {c.name: c.shown or c.value for c in program.configs},
        "states": [{"name": s.name, "kind": _kind(s), "capacity": _capacity(s), "entry_bytes": _entry_bytes(s)}
                   for s in program.states],
        "blocks": len(program.blocks), "paths": number_paths(program).count,
        "warnings": [{"name": r.name, "text": r.text, "place": str(r.span)} for r in remarks],
    }


def _print_summary(program: Program) -> None:
    from cora.analysis.paths import number_paths

    ports = ", ".join(f"{p.name} ({' | '.join(p.faces)})" for p in program.ports)
    click.echo(f"{program.name}: no errors; {len(program.blocks)} blocks, {number_paths(program).count} paths")
    click.echo(f"ports: {ports}")
    rows = [[s.name, _kind(s), f"{_capacity(s):,}", str(_entry_bytes(s) or "")] for s in program.states]
    if rows:
        click.echo(table(rows, ["state", "kind", "capacity", "entry bytes"]))


def _kind(state: State) -> str:
    from cora.ir import nodes

    if isinstance(state, nodes.MapState):
        return "pair map" if len(state.keys) > 1 else "map"
    return type(state).__name__.removesuffix("State").lower()


def _capacity(state: State) -> int:
    from cora.ir import nodes

    if isinstance(state, nodes.PoolState | nodes.CounterState):
        return state.size
    return state.capacity


def _entry_bytes(state: State) -> int:
    """Bytes of an entry's fields; 0 for what has none."""
    from cora.ir import nodes
    from cora.ir.types import bytes_of

    if isinstance(state, nodes.MapState | nodes.MeterState):
        return sum(bytes_of(f.type) for f in state.fields)
    return 0
