"""A plan beside the simple placements: cores and throughput, ratios and bands."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cora.plan.document import Alternative, Plan
from cora.plan.quantities import cores, mpps
from cora.plan.render import columns, headline

BASELINES = ("host-only", "traffic-only", "state-only", "greedy")


@dataclass(frozen=True)
class Against:
    """A simple placement beside the plan; every figure is predicted, bands are P10 to P90 over the model's samples.

    Attributes:
        cores: for the asked rate; None where none was asked for or it is out of reach.
        throughput_pps: with the plan's host cores (those given, where no rate was asked for; at least one where the
            placement uses the host).
        ratio: the plan's throughput divided by it; its band is formed sample by sample.
        saved: share of the placement's cores that the plan does without.
    """

    name: str
    legal: bool
    note: str
    cores: int | None
    cores_low: float | None
    cores_high: float | None
    host_work: float | None
    throughput_pps: float | None
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    saved: float | None


def against(plan: Plan) -> tuple[Against, ...]:
    """The simple placements the plan has beside it, in the order of the document."""
    return tuple(_against(plan, a) for a in plan.alternatives if a.name in BASELINES)


def _against(plan: Plan, other: Alternative) -> Against:
    ratio = plan.throughput_pps / other.throughput_pps if other.throughput_pps else None
    saved = (other.cores - plan.cores) / other.cores if other.cores else None
    return Against(other.name, other.legal, other.note, other.cores, other.cores_low, other.cores_high,
                   other.host_work, other.throughput_pps, other.low, other.high, ratio, other.ratio_low,
                   other.ratio_high, saved)


def best_baseline(plan: Plan) -> Against | None:
    """The best of them as the request judges: the fewest cores, then the least host work; or the most throughput."""
    rows = [a for a in against(plan) if a.legal]
    if plan.request.rate_pps is None:
        return max(rows, key=lambda a: a.throughput_pps or 0.0, default=None)
    able = [a for a in rows if a.cores is not None]
    if able:
        return min(able, key=lambda a: (a.cores, a.host_work))
    return max(rows, key=lambda a: a.throughput_pps or 0.0, default=None)


def comparison(plan: Plan) -> dict[str, Any]:
    """What `compared` says, as JSON's types."""
    best = best_baseline(plan)
    figure = plan.figure("throughput")
    return {"program": plan.program, "target": plan.target, "kind": "predicted", "cores": plan.cores,
            "throughput_pps": plan.throughput_pps, "low": figure.low, "high": figure.high,
            "baselines": [asdict(a) for a in against(plan)], "best_baseline": None if best is None else best.name}


def compared(plan: Plan) -> str:
    """The comparison as text."""
    asked = plan.request.rate_pps is not None
    band = "P10 to P90"
    head = ("placement", "cores", band, "throughput", band, "plan is faster by", band, "host work")
    rows = [_own(plan), *(_row(plan, a) for a in against(plan))]
    kept = range(len(head)) if asked else [i for i in range(len(head)) if i not in (1, 2)]
    lines = columns(tuple(head[i] for i in kept), [tuple(row[i] for i in kept) for row in rows])
    given = plan.cores if asked else plan.request.cores
    with_cores = cores(given) if given else "a host core where needed"
    notes = [f"  throughput with {with_cores}; every figure is predicted by the model, bands over its samples"]
    return "\n".join([headline(plan), "", *lines, "", *notes, f"  {verdict(plan)}"]) + "\n"


def _own(plan: Plan) -> tuple[str, ...]:
    found = {f.name: f for f in plan.figures}
    reach, work = found["throughput"], found["host work"]
    needed = found.get("host cores")
    band = "-" if needed is None else _band(needed.low, needed.high)
    return ("this plan", str(plan.cores), band, mpps(plan.throughput_pps), _rates(reach.low, reach.high), "", "",
            "-" if work.value is None else f"{work.value:.2f} cores")


def _row(plan: Plan, a: Against) -> tuple[str, ...]:
    if not a.legal:
        return (a.name, "-", "", a.note, "", "", "", "")
    needed = "out of reach" if a.cores is None else str(a.cores)
    return (a.name, needed, _band(a.cores_low, a.cores_high), mpps(a.throughput_pps), _rates(a.low, a.high),
            "-" if a.ratio is None else f"{a.ratio:.2f}x", _ratios(a),
            "-" if a.host_work is None else f"{a.host_work:.2f} cores")


def _band(low: float | None, high: float | None) -> str:
    shown = ["out of reach" if x is None else f"{x:.0f}" for x in (low, high)]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _rates(low: float | None, high: float | None) -> str:
    return f"{mpps(low)} to {mpps(high)}"


def _ratios(a: Against) -> str:
    return "" if a.ratio_low is None or a.ratio_high is None else f"{a.ratio_low:.2f}x to {a.ratio_high:.2f}x"


def verdict(plan: Plan) -> str:
    """How the plan does against the best of the simple placements, as a sentence."""
    best = best_baseline(plan)
    if best is None:
        return f"none of the simple placements is possible on {plan.target}"
    parts = []
    if best.cores is not None and best.cores != plan.cores:
        parts.append(f"{cores(plan.cores)} instead of {best.cores}")
    work = plan.figure("host work").value
    if plan.request.rate_pps is not None and work is not None and best.host_work is not None and best.cores is not None:
        parts.append(f"{work:.2f} instead of {best.host_work:.2f} cores' work")
    if best.ratio is not None:
        band = f" (P10 to P90: {_ratios(best)})" if _ratios(best) else ""
        parts.append(f"{best.ratio:.2f} times its throughput{band}")
    return f"best simple placement: {best.name}; the plan has {', '.join(parts)}"

