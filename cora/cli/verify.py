"""``cora verify``: a plan's parts, run in one process, against the unsplit program."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import (
    check_inputs,
    json_option,
    keep_inputs,
    note,
    plural,
    print_json,
    program_of,
    settings_of,
    traffic_options,
)

if TYPE_CHECKING:
    from cora.engine.split import Statistics
    from cora.ir.nodes import Program
    from cora.plan.document import Plan
    from cora.runtime.verify import Compared, Difference, Verification

EXIT_DIFFERENT = 1
# Of the outcomes that no packet takes so many are printed.
MAX_UNCOVERED = 10


@click.command("verify")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.argument("traffic", metavar="[TRACE]...", nargs=-1, type=click.Path())
@click.option("--set", "settings", multiple=True, metavar="CONFIG=VALUE",
              help="The config values the plan was made with. Repeatable.")
@click.option("--program", "nf", type=click.Path(), metavar="NF",
              help="The program of the plan; default: the file the plan names.")
@click.option("--on", default="split", show_default=True, metavar="NAME",
              help="What runs: split, the parts in one process; or the plan's programs: xdp (the kernel half in this "
                   "machine's kernel), veth (both halves on interfaces made for it), host (DPDK, capture in and out).")
@click.option("--seeds", default=4, show_default=True, type=click.IntRange(1, 10_000), metavar="N",
              help="Schedules tried on each traffic: who of the places goes on when.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**31), metavar="N",
              help="The first of them; also chooses other random traffic.")
@click.option("--packets", default=20_000, show_default=True, type=click.IntRange(0, 10_000_000), metavar="N",
              help="Packets of random traffic.")
@click.option("--time-limit", default=120.0, show_default=True, type=click.FloatRange(0, min_open=True),
              metavar="SECONDS", help="Begin no further run after this.")
@click.option("-o", "--output", type=click.Path(), metavar="FILE",
              help="Write the plan with what was verified, when all was equal.")
@traffic_options
@json_option
def command(plan: str, traffic: tuple[str, ...], settings: tuple[str, ...], nf: str | None, on: str, seeds: int,
            seed: int, packets: int, time_limit: float, output: str | None, port_map: tuple[str, ...],
            captured_at: str | None, ignore_checksums: bool, headers_only: bool, as_json: bool) -> None:
    """Run the parts of PLAN's places and compare them with the unsplit program, packet by packet.

    They are compared on the captures TRACE (the one of the examples without any), on packets that take every outcome
    of the program which a search finds, and on random traffic with adversarial timing, each under several schedules of
    the places. Exit code 0: all was equal; 1: something differed.
    """
    import cora
    from cora.engine.results import Options
    from cora.plan.document import load_plan, save

    keep_inputs({"-o": None if output == plan else output}, [plan, nf, *traffic])
    found = load_plan(Path(plan))
    file = program_of(found, nf)
    for path in traffic or (None,):
        check_inputs(file, path)
    program = cora.load(file, settings_of(settings))
    if not traffic:
        traffic, captured_at = _shipped(program, captured_at)
    result = cora.verify(found, program, traffic, port_map=port_map, captured_at=captured_at,
                         options=Options(ignore_checksums, headers_only), seeds=seeds, packets=packets,
                         time_limit=time_limit, seed=seed, on=on)
    for warning in result.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(facts(result))
    else:
        _print(result, found)
    if result.difference is not None:
        raise click.exceptions.Exit(EXIT_DIFFERENT)
    if output is not None:
        save(with_evidence(found, result), Path(output))
        if not as_json:
            click.echo(f"written: {output}")


def _shipped(program: Program, captured_at: str | None) -> tuple[tuple[str, ...], str | None]:
    """The capture of the examples, as if it was taken at the program's first port, where the sources are at hand."""
    import cora

    path = Path(cora.__file__).resolve().parents[1] / "examples" / "captures" / "office.pcap"
    if not path.is_file():
        note("no TRACE was given, and the examples' capture is not here: compared is on generated packets alone")
        return (), captured_at
    side = captured_at or (program.ports[0].name if len(program.ports) > 1 else None)
    note(f"no TRACE was given: {path.name} of the examples is used{f', as captured at {side}' if side else ''}")
    return (str(path),), side


def with_evidence(plan: Plan, result: Verification) -> Plan:
    """The plan with what was compared and found equal; of each execution the last time counts."""
    from cora.plan.document import Verified

    total = result.statistics
    verified = Verified(result.on, result.digest, tuple(c.source for c in result.compared), result.packets,
                        max(c.seeds for c in result.compared), round(result.coverage, 6), total.fast, total.punted,
                        total.recalled, *(result.gaps or (None, None)))
    others = [v for v in plan.evidence.verified if v.on != result.on]
    return replace(plan, evidence=replace(plan.evidence, verified=(*others, verified)))


def facts(result: Verification) -> dict[str, Any]:
    """What was found, as JSON."""
    return {"on": result.on, "equal": result.equal, "stopped": result.stopped, "digest": result.digest,
            "compared": [asdict(c) for c in result.compared], "coverage": result.coverage,
            "uncovered": list(result.uncovered), "ruled_out": list(result.ruled_out),
            "warnings": list(result.warnings),
            "difference": None if result.difference is None else asdict(result.difference)}


def _print(result: Verification, plan: Plan) -> None:
    for number, item in enumerate(result.compared):
        click.echo(f"{item.source}: {plural(item.packets, 'packet', 'packets')}, "
                   f"{plural(item.seeds, 'schedule', 'schedules')}, {item.seconds:.1f} s")
        for line in _told(item.statistics):
            click.echo(f"  {line}")
        for line in _gaps(item):
            click.echo(f"  {line}")
        for line in _prompt(item, plan, predicted=number < len(result.compared) - result.made):
            click.echo(f"  {line}")
    if result.stopped:
        note("warning: the time limit came before everything was compared")
    if result.difference is not None:
        _print_difference(result.difference)
        return
    click.echo(f"outcomes of the program taken by the packets that cover it: {100 * result.coverage:.1f} %")
    for text in result.uncovered[:MAX_UNCOVERED]:
        click.echo(f"  not taken: {text}")
    if len(result.uncovered) > MAX_UNCOVERED:
        click.echo(f"  and {len(result.uncovered) - MAX_UNCOVERED} more (--json lists all)")
    if result.ruled_out:
        click.echo(f"  {plural(len(result.ruled_out), 'outcome', 'outcomes')} cannot be taken with these config values "
                   "and table entries (--json lists them)")
    click.echo("equal: what leaves, what is dropped, totals, state, and the order within flows")


def _gaps(item: Compared) -> list[str]:
    """What runs with rules in gaps let overtake."""
    if item.gaps is None:
        return []
    total = item.packets * item.gap_seeds
    return [f"rules installed in gaps ({plural(item.gap_seeds, 'schedule', 'schedules')}): {item.gaps.overtaken:,} of "
            f"{total:,} packets overtaken within their flow, {item.gaps.fast:,} on the fast path; equal to the unsplit "
            "program on the packets in that order"]


def _prompt(item: Compared, plan: Plan, *, predicted: bool) -> list[str]:
    """The prompt schedule, on captures beside what the plan predicts of it."""
    if item.prompt is None:
        return []
    found, most = item.prompt, max(item.packets, 1)
    lent = {s.lent.place: s.lent for s in plan.states if s.lent is not None}
    measured = (found.fast / most, (found.lent - found.refused) / most, found.recalled / most)
    lines = [f"every message at once: {100 * measured[0]:.2f} % of the packets on the fast path, {measured[1]:.6f} "
             f"installs and {measured[2]:.6f} recalls a packet"]
    if predicted and len(lent) == 1:
        (said,) = lent.values()
        lines.append(f"     the plan predicts {100 * said.share:.2f} %, {said.installs_per_packet:.6f} and "
                     f"{said.recalls_per_packet:.6f} for its own traffic")
    return lines


def _told(total: Statistics) -> list[str]:
    lines = ["counted over all schedules:", f"{total.punted:>10,}  handed over between places"]
    if total.lent:
        lines += [
            f"{total.fast:>10,}  on the fast path",
            f"{total.lent:>10,}  entries lent (at most {total.peak:,} at a time), {total.used:,} used, "
            f"{total.recalled:,} taken back for a packet, {total.evicted:,} for another entry, "
            f"{total.refused:,} refused",
            f"{total.waited:>10,}  packets that met a lent entry but followed others on their way to the owner",
            f"{total.asked:>10,}  questions for an entry's last use",
        ]
    if total.stalled:
        lines.append(f"{total.stalled:>10,}  waits for the verdict on a first fragment")
    lines.append(f"{total.overtaken:>10,}  packets overtaken within their flow")
    return lines


def _print_difference(found: Difference) -> None:
    where = "" if found.packet is None else f", packet {found.packet}"
    schedule = "every message at once" if found.seed < 0 else f"schedule {found.seed}"
    click.echo(f"DIFFERENT: {found.what} ({found.source}{where}, {schedule})")
    click.echo(f"  split:   {found.split}")
    if found.unsplit:
        click.echo(f"  unsplit: {found.unsplit}")
    for line in found.lines:
        click.echo(f"    {line}")
