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
# The bands of the alternatives are for comparison only.
FEW_SAMPLES = 50
SEED = 20
# Uses that together make up less than this share of every telling resource's demand keep their central value; a
# resource tells nothing when its utilisation is below this share of the highest one.
_NEGLIGIBLE = 1e-2
_IDLE = 0.1

# What a use is, for any placement: two uses of one key cost the same.
Key = tuple[object, ...]
Use = tuple[float, Key, Callable[[Target], tuple[Demand, float]]]


@dataclass(frozen=True)
class Sampled:
    """One sample: mean demand of a packet [K], rate of each resource (of one core where it scales), exponent."""

    demand: Vector
    rates: Vector
    exponent: float


def uses_of(instance: Instance, placement: Placement) -> list[Use]:
    """What one packet uses under a placement: (how often, key, what), ``what(target)`` a demand and ns of latency.

    An account of its own beside `cora.partition.placement.demand_of`, which reads the instance's tables; the two agree.
    """
    program, frame = instance.program, instance.profile.mean_frame
    total = instance.graph.packets
    found: list[Use] = [(1.0, ("wire",), lambda t: (t.wire(frame), 0.0))]
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
        found.append((share, ("block", label, part, place), _block(instance, pieces[label, part].block, place)))
    for (name, kind), count in instance.access_counts.items():
        where = placement.states[name]
        found.append((count, ("access", name, kind, *where), _access(instance, name, kind, *where)))
    found += [(share, ("visit", place), _visit(place)) for place, share in visits.items()]
    found += [(share, ("crossing", start, stop, live), _crossing(start, stop, frame, live))
              for (start, stop, live), share in crossings.items()]
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


class Sampler:
    """Samples of the parameter box, and what each use costs under each of them: asked once for all placements."""

    def __init__(self, instance: Instance, count: int = SAMPLES, seed: int = SEED) -> None:
        """Draw ``count`` samples, the same for the same seed."""
        kind = type(instance.target)
        self._instance = instance
        self._column = {r.name: i for i, r in enumerate(instance.resources)}
        self._targets = [kind(model) for model in samples(instance.target.model, count, seed)]
        self._rates = [self._rates_of(t) for t in self._targets]
        self._costs: dict[Key, Vector] = {}

    def _rates_of(self, target: Target) -> Vector:
        rates = {r.name: r.rate for r in target.resources(self._instance.profile.mean_frame)}
        return np.array([rates[r.name] for r in self._instance.resources])

    def sampled(self, placement: Placement, count: int | None = None) -> list[Sampled]:
        """The demand of a placement under every sample, or the first ``count``."""
        instance, targets = self._instance, self._targets[:count]
        uses = uses_of(instance, placement)
        nominal = np.array([self._cost(ask, instance.target) for _, _, ask in uses])
        nominal *= np.array([[often] for often, _, _ in uses])
        varied = _telling(nominal, utilisation(instance, nominal.sum(axis=0), 1, 1.0))
        demand = np.tile(nominal[~varied].sum(axis=0), (len(targets), 1))
        for (often, key, ask), kept in zip(uses, varied, strict=True):
            if kept:
                demand += often * self._costs_of(key, ask, targets)
        return [Sampled(d, r, t.exponent) for d, r, t in zip(demand, self._rates[:count], targets, strict=True)]

    def _costs_of(self, key: Key, ask: Callable[[Target], tuple[Demand, float]], targets: Sequence[Target]) -> Vector:
        """Shape (targets, resources + 1); the last column is latency."""
        known = self._costs.get(key)
        if known is None or len(known) < len(targets):
            known = self._costs[key] = np.array([self._cost(ask, target) for target in targets])
        return known[:len(targets)]

    def _cost(self, ask: Callable[[Target], tuple[Demand, float]], target: Target) -> list[float]:
        demand, latency = ask(target)
        cost = [0.0] * (len(self._column) + 1)
        for name, amount in demand.items():
            cost[self._column[name]] += amount
        cost[-1] = latency
        return cost


def sampled(instance: Instance, placement: Placement, count: int = SAMPLES, seed: int = SEED) -> list[Sampled]:
    """The demand of a placement under ``count`` samples of the parameter box, the same for the same seed."""
    return Sampler(instance, count, seed).sampled(placement)


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
