"""How sure a plan's figures are: the same placement under samples of the model's parameter box."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cora.ir.nodes import Forward, Reject
from cora.models.parameters import samples
from cora.models.target import Demand, Target
from cora.partition.instance import Instance, Vector
from cora.partition.placement import Placement, utilisation

SAMPLES = 200
SEED = 20
# Uses that together make up less than this share of every telling resource's demand keep their central value; a
# resource tells nothing when its utilisation is below this share of the highest one.
_NEGLIGIBLE = 1e-2
_IDLE = 0.1

Use = tuple[float, Callable[[Target], tuple[Demand, float]]]


@dataclass(frozen=True)
class Sampled:
    """One sample: mean demand of a packet [K], rate of each resource (of one core where it scales), exponent."""

    demand: Vector
    rates: Vector
    exponent: float


def uses_of(instance: Instance, placement: Placement) -> list[Use]:
    """What one packet uses under a placement: (how often, what), ``what(target)`` a demand and nanoseconds of latency.

    An account of its own beside `cora.partition.placement.demand_of`, which reads the instance's tables; the two agree.
    """
    program, frame = instance.program, instance.profile.mean_frame
    total = instance.graph.packets
    found: list[Use] = [(1.0, lambda t: (t.wire(frame), 0.0))]
    code: dict[tuple[str, int, int], float] = defaultdict(float)
    visits: dict[int, float] = defaultdict(float)
    crossings: dict[tuple[int, int, int], float] = defaultdict(float)
    pieces = {(n.label, n.piece.part): n.piece for n in instance.graph.nodes}

    def travel(start: int, stop: int, live: int, share: float) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            crossings[place, place + step, live] += share

    entry = placement.nodes[0]
    visits[entry] += 1.0
    hosted = _hosted_share(instance)
    travel(0, entry, 0, 1 - hosted)
    travel(instance.last, entry, 0, hosted)
    for node, place in zip(instance.graph.nodes, placement.nodes, strict=True):
        share = node.packets / total
        code[node.label, node.piece.part, place] += share
        end = node.piece.block.terminator
        if node.piece.last and isinstance(end, Forward | Reject):
            faces = next((p.faces for p in program.ports if isinstance(end, Forward) and p.name == end.port), ("wire",))
            travel(place, 0 if "wire" in faces else instance.last, 0, share)
    for edge in instance.graph.edges:
        start, stop = placement.nodes[edge.source], placement.nodes[edge.target]
        if stop > start:
            travel(start, stop, edge.live_bytes, edge.packets / total)
            visits[stop] += edge.packets / total
    for (label, part, place), share in code.items():
        found.append((share, _block(instance, pieces[label, part].block, place)))
    for (name, kind), count in instance.access_counts.items():
        found.append((count, _access(instance, name, kind, *placement.states[name])))
    found += [(share, _visit(place)) for place, share in visits.items()]
    found += [(share, _crossing(start, stop, frame, live)) for (start, stop, live), share in crossings.items()]
    return [use for use in found if use[0] > 0]


def _hosted_share(instance: Instance) -> float:
    counts = {p.name: instance.profile.ports.get(p.name, (0, 0))[0] for p in instance.program.ports}
    hosted = sum(counts[p.name] for p in instance.program.ports if "wire" not in p.faces)
    return hosted / sum(counts.values()) if sum(counts.values()) else 0.0


def _block(instance: Instance, block: object, place: int) -> Callable[[Target], tuple[Demand, float]]:
    def ask(target: Target) -> tuple[Demand, float]:
        answer = target.block(instance.program, block, place)  # type: ignore[arg-type]
        assert isinstance(answer, Mapping), "what may run where does not depend on a sample"
        return answer, 0.0
    return ask


def _access(instance: Instance, name: str, kind: str, place: int,
            tier: str) -> Callable[[Target], tuple[Demand, float]]:
    state = instance.program.state(name)

    def ask(target: Target) -> tuple[Demand, float]:
        answer = target.access(instance.program, state, kind, place, tier, instance.rates[name])
        assert isinstance(answer, Mapping), "what may be kept where does not depend on a sample"
        return answer, 0.0
    return ask


def _visit(place: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda target: (target.per_packet(place), target.latency(place))


def _crossing(start: int, stop: int, frame: float, live: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda target: (target.crossing(start, stop, frame, live), target.crossing_latency(start, stop, frame))


def sampled(instance: Instance, placement: Placement, count: int = SAMPLES, seed: int = SEED) -> list[Sampled]:
    """The demand of a placement under ``count`` samples of the parameter box, the same for the same seed."""
    uses = uses_of(instance, placement)
    column = {r.name: i for i, r in enumerate(instance.resources)}
    nominal = np.array([_total(column, [use], instance.target) for use in uses])
    varied = _telling(nominal, utilisation(instance, nominal.sum(axis=0), 1, 1.0))
    constant = nominal[~varied].sum(axis=0)
    chosen = [use for use, kept in zip(uses, varied, strict=True) if kept]
    found = []
    kind = type(instance.target)
    for model in samples(instance.target.model, count, seed):
        target = kind(model)
        demand = constant + _total(column, chosen, target)
        rates = {r.name: r.rate for r in target.resources(instance.profile.mean_frame)}
        found.append(Sampled(demand, np.array([rates[r.name] for r in instance.resources]), target.exponent))
    return found


def _total(column: Mapping[str, int], uses: Sequence[Use], target: Target) -> Vector:
    total = [0.0] * (len(column) + 1)
    for often, ask in uses:
        demand, latency = ask(target)
        for name, amount in demand.items():
            total[column[name]] += often * amount
        total[-1] += often * latency
    return np.array(total)


def _telling(nominal: Vector, loads: Vector) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which uses to sample: the largest of each column that is not idle, until what is left of it is negligible."""
    keep = np.zeros(len(nominal), np.bool_)
    busy = [*(loads >= _IDLE * loads.max(initial=0.0)), True]
    for column in nominal.T[np.array(busy)]:
        if not column.any():
            continue
        order = np.argsort(-column)
        rest = column.sum() - column[order].cumsum()
        keep[order[: int(np.argmax(rest <= _NEGLIGIBLE * column.sum())) + 1]] = True
    return keep


def load_of(sample: Sampled, scales: Sequence[bool], cores: int, rate: float) -> float:
    """The soft maximum of utilisations under a sample."""
    available = np.where(scales, sample.rates * cores, sample.rates)
    with np.errstate(divide="ignore", invalid="ignore"):
        loads = np.where(sample.demand[:-1] > 0, sample.demand[:-1] * rate / available, 0.0)
    top = float(loads.max(initial=0.0))
    if top == 0 or math.isinf(top):
        return top
    return top * math.pow(float(((loads / top) ** sample.exponent).sum()), 1 / sample.exponent)


def band(values: Sequence[float]) -> tuple[float, float]:
    """P10 and P90; infinite values count as the largest."""
    ordered = sorted(values)
    return ordered[math.floor(0.1 * (len(ordered) - 1))], ordered[math.ceil(0.9 * (len(ordered) - 1))]
