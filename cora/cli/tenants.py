"""Several programs on one NIC: the part of ``cora plan`` for more than one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cora.cli.common import check_inputs, print_json, profile_of, table, write_text
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.engine.results import Options
    from cora.models.target import Target
    from cora.partition.tenants import Asked, Together


def plan_several(files: Sequence[str], traffic: Sequence[str], profiles: Sequence[str], rates: Sequence[str],
                 target: Target, options: Options, *, cores: int | None, solver: str, time_limit: float,
                 max_nic_memory: str | None, output: str | None, as_json: bool) -> None:
    """Plan programs together, show what they share, and write a plan for each into a folder.

    Raises:
        CoraError: `Kind.BAD_FLAG` where a program lacks traffic or a rate; all that `plan_together` raises.
    """
    from cora.partition.tenants import plan_together
    from cora.runtime.requests import check_request

    given = traffic or profiles
    if (traffic and profiles) or len(given) != len(files):
        raise fail(Kind.BAD_FLAG, f"{len(files)} programs need as many captures or profiles, in the same order; there "
                                  f"are {len(given)}", where="--trace, --profile",
                   hint="cora plan a.nf b.nf --profile a.json --profile b.json --rate 5Mpps --rate 1Mpps --nic NIC")
    if len(rates) != len(files):
        raise fail(Kind.BAD_FLAG, f"{len(files)} programs need as many rates, in the same order; there are "
                                  f"{len(rates)}", where="--rate", hint="--rate 5Mpps --rate 1Mpps")
    for rate in rates:
        check_request(rate, cores, solver, time_limit)
    if output is not None and not os.path.isdir(output):
        raise fail(Kind.CANNOT_WRITE, "with several programs this is a folder, and it has to be there",
                   where=f"-o {output}", hint=f"mkdir {output}")
    asked = [_asked(nf, given[i], bool(traffic), rates[i], options, (cores, solver, time_limit, max_nic_memory))
             for i, nf in enumerate(files)]
    found = plan_together(asked, target, cores=cores, solver=solver, time_limit=time_limit)
    written = _write(found, output)
    if as_json:
        print_json({"cores": found.cores, "host_work": found.host_work, "proven": found.proven, "gap": found.gap,
                    "combinations": found.combinations, "resources": [asdict(r) for r in found.resources],
                    "memories": [{"memory": m, "used": u, "capacity": c, "unit": unit}
                                 for m, u, c, unit in found.memories],
                    "shared_caches": [asdict(s) for s in found.shared],
                    "plans": [{"program": p.program, "rate_pps": p.request.rate_pps, "digest": p.digest()}
                              for p in found.plans]})
        return
    click.echo(summary(found, target.name))
    for path in written:
        click.echo(f"written: {path}")


def _asked(nf: str, traffic: str, is_capture: bool, rate: str, options: Options,
           given: tuple[int | None, str, float, str | None]) -> Asked:
    import cora
    from cora.partition.tenants import Asked
    from cora.plan.document import Request
    from cora.runtime.requests import asked_rate, terms_of

    cores, solver, time_limit, memory = given
    check_inputs(nf, traffic if is_capture else None)
    program = cora.load(nf)
    profile = profile_of(program, traffic if is_capture else None, None if is_capture else traffic, (), None, options)
    wanted = asked_rate(rate, profile)
    assert wanted is not None, "a rate was given"
    pps = -int(-wanted.pps // 1)
    return Asked(program, profile, Request(pps, wanted.line_bps, cores, solver, time_limit,
                                           max_nic_memory=terms_of(max_nic_memory=memory).max_nic_memory))


def _write(found: Together, folder: str | None) -> list[str]:
    from cora.partition.tenants import names_of

    if folder is None:
        return []
    names = names_of([p.program for p in found.plans])
    paths = [str(Path(folder, f"{name}.plan.json")) for name in names]
    for path, plan in zip(paths, found.plans, strict=True):
        write_text(path, plan.to_json())
    return paths


def summary(found: Together, target: str) -> str:
    """What all programs use together, and where each keeps its states."""
    from cora.partition.tenants import names_of
    from cora.plan.quantities import available, mpps
    from cora.plan.quantities import cores as host_cores

    proof = "optimal" if found.proven else "feasible"
    gap = "unknown" if found.gap is None else f"{100 * found.gap:.3f} %"
    compared = "1 combination" if found.combinations == 1 else f"{found.combinations} combinations"
    out = [f"{len(found.plans)} programs on {target}: {host_cores(found.cores)} for all, {found.host_work:.2f} cores' "
           f"host work predicted ({proof} over {compared} of splits, gap {gap}, in {found.seconds:.2f} s; exact check "
           "passed)", ""]
    rows = []
    for plan in found.plans:
        kept: dict[str, list[str]] = {}
        for s in plan.states:
            where = " + ".join(c.place for c in s.copies) or s.place
            kept.setdefault(where + (f", lent to {s.lent.place}" if s.lent else ""), []).append(s.name)
        rows.append([plan.program, mpps(plan.request.rate_pps), f"{plan.figure('host work').value or 0.0:.2f} cores",
                     "; ".join(f"{', '.join(names)}: {where}" for where, names in kept.items())])
    out += [table(rows, ["program", "rate", "host work", "states"]), ""]
    used = sorted((r for r in found.resources if r.per_packet), key=lambda r: -r.utilisation)
    out += [table([[r.name, r.place, available(r.name, r.rate, r.unit), f"{100 * r.utilisation:.1f} %"] for r in used],
                  ["resource", "place", "available", "used by all"]), ""]
    out += [table([[m, f"{u:,}", f"{c:,} {unit}"] for m, u, c, unit in found.memories], ["memory", "used", "of"])]
    for shared in found.shared:
        parts = ", ".join(f"{name} {part:,} of {used:,}" for name, part, used in
                          zip(names_of([p.program for p in found.plans]), shared.parts, shared.used, strict=True))
        out += ["", f"{shared.name}: {shared.capacity:,} bytes for tables of {sum(shared.used):,} in use; priced with "
                    f"each program's part: {parts}"]
    return "\n".join(out)
