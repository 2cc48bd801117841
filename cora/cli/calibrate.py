"""``cora calibrate``: measures what packets cost on this machine, for plans that are about its cores or its kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cora.cli.common import complete_nic, json_option, note, progress, table

if TYPE_CHECKING:
    from cora.models.calibration import HostCalibration


@click.command("calibrate")
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE",
              help="Write the calibration there, not where `cora plan` finds it.")
@click.option("--show", is_flag=True, help="Measure nothing; print the calibration that is kept for this machine.")
@click.option("--nic", default="host", show_default=True, shell_complete=complete_nic, metavar="NAME",
              help="Whose figures: host (its cores), or a target that can be measured here (xdp: packets between veth "
                   "pairs, through the kernel half and the user half; needs root).")
@json_option
def command(output: str | None, show: bool, nic: str, as_json: bool) -> None:
    """Measure this machine's cores: table look-ups, records, field work, checksums, clock (about half a minute)."""
    from cora.models import calibration, registry

    registry.calibrator(nic)
    before = calibration.stored(_own(nic))
    found = _kept(before, nic) if show else _measured(output, nic)
    if as_json:
        click.echo(found.to_json(), nl=False)
        return
    click.echo(_shown(found, None if show else before))


def _own(nic: str) -> str:
    return "" if nic == "host" else nic


def _kept(found: HostCalibration | None, nic: str) -> HostCalibration:
    from cora.errors import Kind, fail

    if found is None:
        flag = "" if nic == "host" else f" --nic {nic}"
        raise fail(Kind.BAD_CALIBRATION, f"this machine was not calibrated{flag and f' for {nic}'}",
                   hint=f"measure it with `cora calibrate{flag}`")
    return found


def _measured(output: str | None, nic: str) -> HostCalibration:
    from cora import api
    from cora.models import registry
    from cora.models.calibration import stored_path

    with progress("steps", registry.module(nic).CALIBRATION_STEPS, least=0) as tell:
        found = api.calibrate(output, nic=nic, progress=tell)
    note(f"written: {output or stored_path(found.machine.identity, _own(nic))}")
    if found.load > 0.5:
        note(f"warning: {found.load:.1f} programs a core wanted to run: these are figures of a busy machine")
    return found


def _shown(found: HostCalibration, before: HostCalibration | None) -> str:
    where = found.machine
    cache = f"{where.llc_bytes / 2**20:g} MiB last-level cache" if where.llc_bytes else "last-level cache unknown"
    clock = f" at {found.clock_ghz:g} GHz" if found.clock_ghz else ""
    lines = [f"measured {found.made} by `{found.command}` in {found.seconds:g} s, medians of {found.repeats}",
             f"{where.cpu}: {where.cores} cores{clock}, {cache}, "
             f"{where.memory_bytes / 2**30:.0f} GiB memory, {where.system}", ""]
    old = {} if before is None else {f.name: f.value for f in before.figures}
    rows = [[f.name, f"{f.value:g}", f.unit, f"{f.low:g} to {f.high:g}",
             f"{f.value / old[f.name] - 1:+.1%}" if old.get(f.name) else ""] for f in found.figures]
    header = ["figure", "median", "unit", "P10 to P90", f"since {before.made}" if before else ""]
    lines.append(table(rows, header))
    for c in found.checks:
        lines.append(f"check: {c.program}, {c.flows:,} flows, on the native engine: {c.measured:g} ns a packet "
                     f"measured ({c.low:g} to {c.high:g}), the model adds up {c.predicted:g} ns")
    return "\n".join([*lines, *(f"not measured: {what}" for what in found.not_measured)])
