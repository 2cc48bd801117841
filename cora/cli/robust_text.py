"""What scenarios and the worst traffic say of a plan, as text."""

from __future__ import annotations

from cora.cli.common import table
from cora.partition.robust import Rival, Robustness
from cora.partition.scenarios import FACTORS
from cora.plan.document import Plan
from cora.plan.quantities import cores as host_cores
from cora.plan.quantities import mpps, number, used
from cora.runtime.worst import Found

# Rivals that are listed beside the plan and the least to regret.
_SHOWN = 6


def robust_text(plan: Plan, found: Robustness) -> str:
    """The table of rivals and the sentences below it."""
    listed = [r for i, r in enumerate(found.rivals) if i <= _SHOWN or r.name in ("the plan", found.least_regret)]
    rows = [_row(r, found) for r in listed]
    asked = found.measure == "host cores"
    figure = "cores for the rate" if asked else "throughput"
    header = ["placement", figure, "P10 to P90", "best in", "regret P90", "mean", "max"]
    if asked:
        header.append(f"carries it with {host_cores(plan.cores)}")
        rows = [[*row, _share(r.met or 0.0)] for row, r in zip(rows, listed, strict=True)]
    spread = ", ".join(f"{name.replace('_', ' ')} {getattr(found.spread, name):g}" for name in FACTORS)
    lines = [f"{plan.program} on {plan.target}: {found.scenarios:,} scenarios of the model's figures and of the "
             "traffic (predicted)",
             f"traffic differs from the profile by up to these factors (P90): {spread}", "", table(rows, header), ""]
    if len(found.rivals) > len(listed):
        lines.append(f"and {len(found.rivals) - len(listed)} more placements that are more to regret")
    if found.unreachable:
        lines.append(f"no placement carries the rate in {_share(found.unreachable)} of the scenarios")
    first = found.rivals[0]
    lines.append(f"none is better than the plan in {_share(first.best)} of the scenarios")
    lines.append("least to regret: the plan" if found.least_regret == "the plan" else
                 f"least to regret: {found.least_regret} ({_kept(plan, found.rival(found.least_regret))})")
    binding = ", ".join(f"{name} {_share(share)}" for name, share in found.binding.items() if name)
    lines.append(f"what limits the plan: {binding or 'nothing'}")
    if found.drivers:
        told = ", ".join(f"{d.name} ({d.correlation:+.2f})" for d in found.drivers)
        lines.append(f"what its figure depends on most (rank correlation): {told}")
    return "\n".join(lines) + "\n"


def _row(rival: Rival, found: Robustness) -> list[str]:
    asked = found.measure == "host cores"
    regret = ["-" if x is None else f"{x:.2f}" if asked else _share(x)
              for x in (rival.regret[1], rival.regret[0], rival.regret[2])]

    def shown(value: float | None) -> str:
        return ("-" if value is None else f"{value:.2f}") if asked else mpps(value)

    return [rival.name, shown(rival.value), f"{shown(rival.low)} to {shown(rival.high)}", _share(rival.best), *regret]


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.1 or value == 0 else f"{100 * value:.1f} %"


def _kept(plan: Plan, rival: Rival) -> str:
    """Where a rival keeps what the plan keeps elsewhere."""
    ours = {s.name: f"{s.place}/{s.tier}" for s in plan.states}
    moved: dict[str, list[str]] = {}
    for name, spot in rival.states.items():
        if ours.get(name) != spot:
            moved.setdefault(spot, []).append(name)
    return "; ".join(f"in {spot}: {', '.join(names)}" for spot, names in moved.items()) or "other code at other places"


def worst_text(plan: Plan, found: Found | None) -> str:
    """The worst traffic in a user's words."""
    lines = ["The traffic that would hurt it most"]
    if found is None:
        return "\n".join([*lines, "  no packets were found that can be sent again and again"]) + "\n"
    worst = found.report
    spent = ", ".join(f"{number(c.amount)} {c.what}{f' (line {c.line})' if c.line else ''}" for c in worst.costs)
    lines += [
        f"  {worst.packets}",
        f"  each: {worst.path}",
        f"  all traffic like this: {mpps(worst.throughput_pps)} (P10 to P90: {mpps(worst.low_pps)} to "
        f"{mpps(worst.high_pps)}) with {host_cores(plan.cores)}; the plan is for {_asked(plan)}",
        f"  each takes {used(worst.per_packet, worst.unit)} of {worst.binding}: {spent}",
        "  as a part of the traffic: " + ", ".join(f"{100 * s:g} %: {mpps(x)}" for s, x in worst.shares),
        f"  run natively, {100 * worst.measured_share:.1f} % of them take this path (measured)",
    ]
    if worst.bound_pps is not None:
        lines.append(f"  no path of the program leaves less than {mpps(worst.bound_pps)}; packets were found for "
                     f"{worst.paths_with_packets:,} of its {worst.paths:,} paths")
    return "\n".join(lines) + "\n"


def _asked(plan: Plan) -> str:
    rate = plan.request.rate_pps
    return mpps(plan.throughput_pps) if rate is None else mpps(rate)
