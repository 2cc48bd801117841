"""``cora profile``: what a traffic does to a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cora.cli.common import json_option, nf_argument, note, progress, settings_of, table, traffic_options, write_text

if TYPE_CHECKING:
    from cora.analysis.profile import Profile


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

    program = cora.load(nf, settings_of(settings))
    window_ns = None if window is None else parse_duration(window, where="--window")
    with progress("packets", None) as tell:
        found = cora.profile(program, traffic, port_map=port_map, captured_at=captured_at,
                             options=Options(ignore_checksums, headers_only), window_ns=window_ns, progress=tell)
    if output is not None:
        write_text(output, found.to_json())
    for warning in found.source["warnings"]:
        note(f"warning: {warning}")
    if as_json:
        click.echo(found.to_json(), nl=False)
    elif output != "-":
        _print(found, output)


def _print(profile: Profile, output: str | None) -> None:
    if profile.source["ports_assumed"]:
        click.echo(f"assumed: {profile.source['ports']} (say it with --port-map)")
    if profile.source["captured_at"] is not None:
        click.echo(f"captured at {profile.source['captured_at']}: {profile.source['translated']:,} packets of other "
                   "ports translated as the program translates")
    seconds = profile.duration_ns / 1e9
    click.echo(f"{profile.packets:,} packets in {seconds:.3f} s: {profile.packet_rate:,.0f} packets/s, mean frame "
               f"{profile.mean_frame:.0f} octets, {len(profile.windows)} windows")
    rows = []
    for name, use in profile.states.items():
        if use.kind in ("pool", "counter", "fragment"):
            continue
        hits = sum(h for h, _ in use.lookups.values())
        lookups = hits + sum(m for _, m in use.lookups.values())
        rows.append([name, use.kind, f"{lookups:,}", f"{100 * hits / lookups:.1f}%" if lookups else "",
                     f"{use.inserts[0]:,}", f"{use.entries_peak:,}", f"{max(use.working_set, default=0):,}"])
    if rows:
        click.echo(table(rows, ["state", "kind", "look-ups", "hits", "inserts", "peak entries", "working set"]))
    click.echo("the most used paths:")
    for path in sorted(profile.paths, key=lambda p: -p.packets)[:5]:
        click.echo(f"  {100 * path.packets / profile.packets:5.1f}%  {path.verdict}")
    if output:
        click.echo(f"written: {output}")
