"""How sure a plan's figures are: the same placement under samples of the model's parameter box."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cora.analysis.demand import expiries_per_packet
from cora.analysis.prefixes import Edge, Node, Piece, lent_name, state_of
from cora.ir.nodes import Block, Forward, Program, Reject
from cora.models.parameters import samples
from cora.models.target import Demand, Refusal, Target
from cora.partition.evaluate import utilisation
from cora.partition.instance import Instance, rules_of
from cora.partition.placement import Placement, Spot
from cora.partition.prices import identity
from cora.partition.problem import Vector
from cora.partition.variants import Split

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


def uses_of(placement: Placement) -> list[Use]:
    """What one packet uses under a placement: (how often, key, what), ``what(target)`` a demand and ns of latency.

    An account of its own beside `cora.partition.evaluate.demand_of`, which reads the instance's tables; the two agree.
    """
    return [use for use in _Uses(placement).found() if use[0] > 0]


class _Uses:
    def __init__(self, placement: Placement) -> None:
        self.placement, self.instance = placement, placement.instance
        self.split = self.instance.variant.split
        self.ruled = self.split is not None and self.split.mode == "restart"
        self.pieces: dict[tuple[str, int, int, bool], Piece] = {}
        self.code: dict[tuple[tuple[str, int, int, bool], int], float] = defaultdict(float)
        self.visits: dict[int, float] = defaultdict(float)
        self.crossings: dict[tuple[int, int, int], float] = defaultdict(float)
        self.accesses: dict[tuple[str, str, Spot], float] = defaultdict(float)

    def found(self) -> Iterator[Use]:
        instance, frame = self.instance, self.instance.profile.mean_frame
        self.enter()
        for number, node in enumerate(instance.graph.nodes):
            self.run(number, node)
        for edge in instance.graph.edges:
            self.move(edge)
        for state in instance.program.states:
            dying = expiries_per_packet(instance.program, instance.profile, state)
            if dying:
                self.accesses[state.name, "delete", self.placement.states[state.name]] += dying
        yield 1.0, ("wire",), lambda t: (t.wire(frame), 0.0)
        for (key, place), share in self.code.items():
            yield share, ("block", *key, place), _block(instance, self.pieces[key].block, place)
        for (table, kind, spot), count in self.accesses.items():
            yield count, ("access", table, kind, *spot, instance.rates[table]), _access(instance, table, kind, spot)
        for place, share in self.visits.items():
            yield share, ("visit", place), _visit(place)
        for (start, stop, live), share in self.crossings.items():
            yield share, ("crossing", start, stop, live), _crossing(start, stop, frame, live)
        if self.split is not None:
            yield from _lending(self.placement, self.split)
            yield from _rules(instance, self.split) if self.ruled else ()

    def travel(self, start: int, stop: int, share: float) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            self.crossings[place, place + step, 0] += share

    def enter(self) -> None:
        entry, last = self.placement.nodes[0], self.instance.last
        self.visits[entry] += 1.0
        hosted = _hosted_share(self.instance)
        self.travel(0, entry, 1 - hosted)
        self.travel(last, entry, hosted)

    def run(self, number: int, node: Node) -> None:
        """A node's code and accesses, and the way out where packets end."""
        place, share = self.placement.nodes[number], node.packets / self.instance.graph.packets
        key = identity(node.piece)
        if not (node.lent and self.ruled):
            self.pieces[key] = node.piece
            self.code[key, place] += share
        for table, kind in node.accesses:
            self.accesses[table, kind, self.placement.spot_of(table, number)] += share
        end = node.piece.block.terminator
        if node.piece.last and isinstance(end, Forward | Reject):
            ports = self.instance.program.ports
            faces = next((p.faces for p in ports if isinstance(end, Forward) and p.name == end.port), ("wire",))
            self.travel(place, 0 if "wire" in faces else self.instance.last, share)

    def move(self, edge: Edge) -> None:
        places, physical = self.placement.assignment.places, self.instance.problem.physical
        start, stop = places[edge.source], places[edge.target]
        share = edge.packets / self.instance.graph.packets
        for step in range(start, stop):
            self.crossings[physical[step], physical[step + 1], edge.live_bytes] += share
        if stop > start:
            self.visits[physical[stop]] += share


def _lending(placement: Placement, split: Split) -> Iterator[Use]:
    """Entries lent, taken back, and taken back because a packet needs them."""
    program = placement.instance.program
    for lend in split.lends:
        tier = placement.states[lent_name(lend.anchored)][1]
        states = [program.state(s) for s in lend.states]
        given = (program, states, split.near, split.owner, tier, lend.capacity)
        key = (lend.component, split.near, split.owner, tier, lend.capacity)
        yield lend.installs, ("install", *key), _asked("install", given)
        yield lend.recalls, ("recall", *key), _asked("recall", given)


def _asked(what: str, given: tuple[Any, ...]) -> Callable[[Target], tuple[Demand, float]]:
    return lambda t: (_demand(getattr(t, what)(*given)), 0.0)


def _rules(instance: Instance, split: Split) -> Iterator[Use]:
    """Packets served by rules of decided flows, and those that find none."""
    rules, missing = rules_of(instance.program, instance.target, split), 1.0
    for ends in instance.graph.rules.values():
        for path, packets in ends:
            share = packets / instance.graph.packets
            missing -= share
            yield share, ("rule", path, split.near, rules), _rule(instance.program, split, path, rules)
    cheapest = instance.cheapest_rule
    if cheapest is not None:
        yield missing, ("rule", cheapest, split.near, rules), _rule(instance.program, split, cheapest, rules)


def _rule(program: Program, split: Split, path: int, rules: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda t: (_demand(t.rule(program, split.templates[path], split.near, rules)), 0.0)


def _demand(answer: Demand | Refusal) -> Demand:
    assert not isinstance(answer, Refusal), "what may be done where does not depend on a sample"
    return answer


def _hosted_share(instance: Instance) -> float:
    counts = {p.name: instance.profile.ports.get(p.name, (0, 0))[0] for p in instance.program.ports}
    hosted = sum(counts[p.name] for p in instance.program.ports if "wire" not in p.faces)
    return hosted / sum(counts.values()) if sum(counts.values()) else 0.0


def _block(instance: Instance, block: Block, place: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda t: (_demand(t.block(instance.program, block, place)), 0.0)


def _access(instance: Instance, table: str, kind: str, spot: Spot) -> Callable[[Target], tuple[Demand, float]]:
    state, rates = instance.program.state(state_of(table)), instance.rates[table]
    return lambda t: (_demand(t.access(instance.program, state, kind, *spot, rates)), 0.0)


def _visit(place: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda target: (target.per_packet(place), target.latency(place))


def _crossing(start: int, stop: int, frame: float, live: int) -> Callable[[Target], tuple[Demand, float]]:
    return lambda target: (target.crossing(start, stop, frame, live), target.crossing_latency(start, stop, frame))


class Sampler:
    """Samples of the parameter box, and what each use costs under each of them: asked once for all placements."""

    def __init__(self, instance: Instance, count: int = SAMPLES, seed: int = SEED, like: Sampler | None = None) -> None:
        """Draw ``count`` samples, the same for the same seed.

        ``like``: one with as many of them, of the same program and profile, for a target that differs in the rates of
        its resources alone.
        """
        kind = type(instance.target)
        self._frame = instance.profile.mean_frame
        self._resources = instance.problem.resources
        self._column = {r.name: i for i, r in enumerate(self._resources)}
        self._targets = [kind(model) for model in samples(instance.target.model, count, seed)]
        self._rates = [self._rates_of(t) for t in self._targets]
        self._costs: dict[Key, Vector] = {} if like is None else like._costs

    def _rates_of(self, target: Target) -> Vector:
        rates = {r.name: r.rate for r in target.resources(self._frame)}
        return np.array([rates[r.name] for r in self._resources])

    def sampled(self, placement: Placement, count: int | None = None) -> list[Sampled]:
        """The demand of a placement, of any variant, under every sample, or the first ``count``."""
        instance, targets = placement.instance, self._targets[:count]
        uses = uses_of(placement)
        nominal = np.array([self._cost(ask, instance.target) for _, _, ask in uses])
        nominal *= np.array([[often] for often, _, _ in uses])
        varied = _telling(nominal, utilisation(instance.problem, nominal.sum(axis=0), 1, 1.0))
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


def sampled(placement: Placement, count: int = SAMPLES, seed: int = SEED) -> list[Sampled]:
    """The demand of a placement under ``count`` samples of the parameter box, the same for the same seed."""
    return Sampler(placement.instance, count, seed).sampled(placement)


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
