"""``cora profile``: what a traffic does to a program."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from cora.cli.common import (
    assumption,
    check_inputs,
    json_option,
    keep_inputs,
    nf_argument,
    note,
    plural,
    progress,
    settings_of,
    table,
    traffic_options,
    write_text,
)

if TYPE_CHECKING:
    from cora.analysis.profile import AdmissionPoint, Profile, StateUse
    from cora.ir import nodes
    from cora.ir.nodes import Program

MAX_PATHS = 8
WORKING_SET = "working set (entries, mean per window)"


@click.command("profile")
@nf_argument
@click.argument("traffic", metavar="TRACE", type=click.Path())
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write the profile (JSON; - for the screen).")
@click.option("--window", default=None, metavar="TIME",
              help="Length of the windows, such as 100ms [default: 100 windows].")
@traffic_options
@json_option
def command(nf: str, settings: tuple[str, ...], traffic: str, output: str | None, window: str | None,
            port_map: tuple[str, ...], captured_at: str | None, ignore_checksums: bool, headers_only: bool,
            as_json: bool) -> None:
    """Run the program NF on TRACE natively and describe what happens: rates, paths, use of state, over time."""
    import cora
    from cora.engine.results import Options
    from cora.units import parse_duration

    check_inputs(nf, traffic)
    keep_inputs({"--output": output}, (nf, traffic))
    program = cora.load(nf, settings_of(settings))
    window_ns = None if window is None else parse_duration(window, where="--window")
    with progress("packets", None) as tell:
        found = cora.profile(program, traffic, port_map=port_map, captured_at=captured_at,
                             options=Options(ignore_checksums, headers_only), window_ns=window_ns, progress=tell)
    if output is not None:
        write_text(output, found.to_json())
    for warning in found.source["warnings"]:
        note(f"warning: {warning}")
    if as_json and output != "-":
        click.echo(found.to_json(), nl=False)
    elif output != "-":
        _print(program, found, assumption(program, port_map), output)


def _print(program: Program, profile: Profile, assumed: str | None, output: str | None) -> None:
    if assumed is not None:
        click.echo(assumed)
    if profile.source["captured_at"] is not None:
        click.echo(f"captured at {profile.source['captured_at']}: {profile.source['translated']:,} packets of other "
                   "ports translated as the program translates")
    seconds = profile.duration_ns / 1e9
    click.echo(f"{plural(profile.packets, 'packet', 'packets')} in {seconds:.3f} s: {profile.packet_rate:,.0f} "
               f"packets/s, mean frame {profile.mean_frame:.0f} octets, "
               f"{plural(len(profile.windows), 'window', 'windows')} of {profile.window_ns / 1e6:,.6g} ms")
    _print_tables(profile)
    _print_meters(profile)
    _print_lending(profile)
    click.echo("the most used paths, by state outcomes:")
    paths = _by_outcomes(program, profile).most_common()
    for (outcomes, verdict), packets in paths[:MAX_PATHS]:
        click.echo(f"  {_share(packets, profile.packets)}  {', '.join((*outcomes, verdict))}")
    if len(paths) > MAX_PATHS:
        left = sum(packets for _, packets in paths[MAX_PATHS:])
        click.echo(f"  {_share(left, profile.packets)}  {plural(len(paths) - MAX_PATHS, 'other', 'others')}")
    click.echo(f"written: {output}" if output else "nothing saved: -o FILE keeps the profile for `cora plan --profile`")


def _print_tables(profile: Profile) -> None:
    rows = []
    for name, use in profile.states.items():
        if use.kind in ("pool", "counter", "fragment", "meter"):
            continue
        hits = sum(h for h, _ in use.lookups.values())
        lookups = hits + sum(m for _, m in use.lookups.values())
        rows.append([name, use.kind, f"{lookups:,}", f"{100 * hits / lookups:.1f}%" if lookups else "",
                     f"{use.inserts[0]:,}", f"{use.inserts[1]:,}", f"{use.entries_peak:,}", _working_set(use)])
    if rows:
        click.echo(table(rows, ["state", "kind", "look-ups", "hits", "inserts", "full", "peak entries", WORKING_SET]))


def _print_meters(profile: Profile) -> None:
    rows = [[name, "meter", *(f"{n:,}" for n in use.police), f"{use.entries_peak:,}", _working_set(use)]
            for name, use in profile.states.items() if use.kind == "meter"]
    if rows:
        click.echo(table(rows, ["state", "kind", "green", "yellow", "red", "full", "peak entries", WORKING_SET]))


def _print_lending(profile: Profile) -> None:
    """Per component and way of lending the point with most packets on the fast path, for few, more and all entries."""
    rows = []
    for admission in profile.admission:
        by_component: dict[tuple[str, ...], list[AdmissionPoint]] = {}
        for point in admission.points:
            by_component.setdefault(tuple(point.budgets), []).append(point)
        for names, points in by_component.items():
            rows += [_lending_row(admission.mode, names, point, profile.packets) for point in _spread(points)]
    if rows:
        click.echo("lending entries to a nearer place, as simulated (all points: --json):")
        header = ["state", "mode", "entries", "after packets", "fast path", "installs/1000", "recalls/1000"]
        click.echo(table(rows, header))


def _spread(points: list[AdmissionPoint]) -> list[AdmissionPoint]:
    """For the least, the middle and the largest number of entries the point with the largest share."""
    best: dict[int, AdmissionPoint] = {}
    for point in points:
        entries = sum(b.capacity for b in point.budgets.values())
        if entries not in best or _fast(best[entries]) < _fast(point):
            best[entries] = point
    # More entries that serve no more packets are not worth a line.
    useful: list[AdmissionPoint] = []
    for _, point in sorted(best.items()):
        if not useful or _fast(point) > _fast(useful[-1]):
            useful.append(point)
    chosen = dict.fromkeys((0, len(useful) // 2, len(useful) - 1))
    return [useful[i] for i in chosen if _fast(useful[i])]


def _fast(point: AdmissionPoint) -> int:
    return sum(packets for _, packets in point.lent)


def _lending_row(mode: str, names: tuple[str, ...], point: AdmissionPoint, packets: int) -> list[str]:
    entries = "+".join(f"{point.budgets[n].capacity:,}" for n in names)
    after = "+".join(str(point.budgets[n].threshold) for n in names)
    return [", ".join(names), mode, entries, after, f"{100 * _fast(point) / packets:.1f}%",
            f"{1000 * point.installs / packets:.1f}", f"{1000 * point.recalls / packets:.1f}"]


def _working_set(use: StateUse) -> str:
    return f"{sum(use.working_set) / len(use.working_set):,.1f}" if use.working_set else ""


def _by_outcomes(program: Program, profile: Profile) -> Counter[tuple[tuple[str, ...], str]]:
    """Packets by what the states said on their way and how they ended."""
    from cora.ir import nodes

    named = {b.label: _state_of(b.terminator) for b in program.blocks
             if isinstance(b.terminator, nodes.Lookup | nodes.Insert | nodes.Police | nodes.TrackFragment)}
    found: Counter[tuple[tuple[str, ...], str]] = Counter()
    for path in profile.paths:
        outcomes = tuple(f"{named[label]} {outcome}"
                         for label, outcome in zip(path.blocks[:-1], path.outcomes, strict=True) if label in named)
        # Of a reject only the reason: the rest is in the program.
        reason, quote, _ = path.verdict.rpartition('" ')
        found[outcomes, reason + '"' if quote else path.verdict] += path.packets
    return found


def _share(packets: int, total: int) -> str:
    return f"{100 * packets / total:5.1f}%" if 2000 * packets >= total else " <0.1%"


def _state_of(node: nodes.Terminator) -> str:
    """The table and key that a node asks."""
    key = getattr(node, "key", "")
    return f"{getattr(node, 'state', '')}{'.' + key if key else ''}{' insert' if node.mnemonic == 'insert' else ''}"
