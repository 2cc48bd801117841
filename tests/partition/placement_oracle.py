"""The best plan by trying every placement, with costs summed packet path by packet path straight from the target."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cora.analysis.prefixes import lent_name, state_of
from cora.analysis.profile import PathUse
from cora.ir.nodes import Forward, Switch
from cora.partition.baselines import Aim, Rules, baseline
from cora.partition.instance import Instance, rules_of
from cora.partition.placement import Placement
from cora.partition.problem import Assignment
from cora.partition.uncertainty import uses_of
from cora.partition.units import Units, units_of
from cora.partition.walks import Walk, Walks


class _Sum:
    """Adds up what packets use, step by step, asking the target each time."""

    def __init__(self, placement: Placement) -> None:
        self.placement, self.instance = placement, placement.instance
        self.target, self.program = self.instance.target, self.instance.program
        self.frame = self.instance.profile.mean_frame
        self.split = self.instance.variant.split
        self.ruled = self.split is not None and self.split.mode == "restart"
        self.total: dict[str, float] = defaultdict(float)

    def charge(self, weight: float, demand: object, latency: float = 0.0) -> None:
        assert isinstance(demand, dict)
        for name, amount in demand.items():
            self.total[name] += weight * amount
        self.total["latency"] += weight * latency

    def move(self, weight: float, start: int, stop: int, live: int) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            self.charge(weight, self.target.crossing(place, place + step, self.frame, live),
                        self.target.crossing_latency(place, place + step, self.frame))

    def arrive(self, weight: float, place: int) -> None:
        self.charge(weight, self.target.per_packet(place), self.target.latency(place))

    def packet(self, weight: float, path: PathUse, walk: Walk) -> None:
        """One packet of a path, from the wire and back."""
        virtual, physical = self.placement.assignment.places, self.instance.problem.physical
        self.charge(weight, self.target.wire(self.frame))
        self.move(weight, 0, self.placement.nodes[0], 0)
        self.arrive(weight, self.placement.nodes[0])
        self.rule(weight, path, self.instance.graph.nodes[walk[-1][0]].lent)
        for number, edge in walk:
            if edge is not None and virtual[number] > virtual[edge.source]:
                for step in range(virtual[edge.source], virtual[number]):
                    self.move(weight, physical[step], physical[step + 1], edge.live_bytes)
                self.arrive(weight, self.placement.nodes[number])
            self.run(weight, number)
        last = walk[-1][0]
        if isinstance(self.instance.graph.nodes[last].piece.block.terminator, Forward):
            self.move(weight, self.placement.nodes[last], 0, 0)

    def rule(self, weight: float, path: PathUse, served: bool) -> None:
        if not self.ruled:
            return
        assert self.split is not None and self.instance.cheapest_rule is not None
        template = self.split.templates[path.id if served else self.instance.cheapest_rule]
        rules = rules_of(self.program, self.target, self.split)
        self.charge(weight, self.target.rule(self.program, template, self.split.near, rules))

    def run(self, weight: float, number: int) -> None:
        node = self.instance.graph.nodes[number]
        if self.ruled and node.lent:
            return
        self.charge(weight, self.target.block(self.program, node.piece.block, self.placement.nodes[number]))
        for table, kind in node.accesses:
            self.charge(weight, self.target.access(self.program, self.program.state(state_of(table)), kind,
                                                   *self.placement.spot_of(table, number), self.instance.rates[table]))

    def lending(self) -> None:
        for lend in () if self.split is None else self.split.lends:
            assert self.split is not None
            tier = self.placement.states[lent_name(lend.anchored)][1]
            states = [self.program.state(s) for s in lend.states]
            given = (self.program, states, self.split.near, self.split.owner, tier, lend.capacity)
            self.charge(lend.installs, self.target.install(*given))
            self.charge(lend.recalls, self.target.recall(*given))


def demand_by_paths(placement: Placement) -> dict[str, float]:
    """Mean demand of a packet per resource, plus ``latency``; every packet's way is followed from the wire and back."""
    found, profile = _Sum(placement), placement.instance.profile
    walks = Walks(placement.instance)
    for path in profile.paths:
        for packets, walk in walks.of(path):
            found.packet(packets / profile.packets, path, walk)
    found.lending()
    return found.total


def is_legal(placement: Placement) -> bool:
    """Rules of placement, from the target's own answers."""
    return _states_are_legal(placement) and _code_is_legal(placement) and _order_is_kept(placement)


@dataclass(frozen=True)
class _Way:
    """A way through the graph to a node that forwards; ``turns``: what its switches chose, alike for a whole flow."""

    end: int
    tables: frozenset[str]
    turns: frozenset[tuple[str, str]]


_ways: dict[int, tuple[Instance, list[_Way]]] = {}


def _ways_of(instance: Instance) -> list[_Way]:
    """All of them, one step after the other; kept, with the instance, for the next placement of it."""
    if id(instance) in _ways:
        return _ways[id(instance)][1]
    graph = instance.graph
    onward: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for edge in graph.edges:
        onward[edge.source].append((edge.outcome, edge.target))
    found: set[_Way] = set()
    waiting: list[tuple[int, frozenset[str], frozenset[tuple[str, str]]]] = [(0, frozenset(), frozenset())]
    while waiting:
        at, tables, turns = waiting.pop()
        node = graph.nodes[at]
        tables |= {table for table, _ in node.accesses} | ({node.home} if node.lent and node.home else set())
        terminator = node.piece.block.terminator
        if isinstance(terminator, Forward):
            found.add(_Way(at, tables, turns))
        for outcome, target in onward[at]:
            turn = {(node.label, outcome)} if isinstance(terminator, Switch) and node.piece.last else set()
            waiting.append((target, tables, turns | turn))
    _ways[id(instance)] = instance, list(found)
    return _ways[id(instance)][1]


def _order_is_kept(placement: Placement) -> bool:
    """Of two packets of a flow, one of which uses a table in strict order, none ends nearer to the wire.

    A packet on a lent entry may, if the other one meets the entry too, and so makes it wait.
    """
    instance = placement.instance
    strict = {s.name for s in instance.program.states if getattr(s, "strict_order", False)}
    split = instance.variant.split
    lent = {lent_name(s) for lend in (split.lends if split else ()) for s in lend.states}
    places = placement.assignment.places
    ways = _ways_of(instance)
    for one, other in itertools.product(ways, repeat=2):
        if places[one.end] >= places[other.end] or dict(one.turns) | dict(other.turns) != dict(other.turns) | dict(
                one.turns) or not strict & {state_of(t) for t in one.tables | other.tables}:
            continue
        met = one.tables & lent
        both = {state_of(t) for t in met} <= {state_of(t) for t in other.tables}
        waits = met and both and split is not None and places[one.end] == split.near
        if not waits:
            return False
    return True


def _amounts(placement: Placement) -> Iterator[tuple[tuple[int, str], object]]:
    """What each table takes of its memory, as the target says."""
    instance = placement.instance
    target, program, split = instance.target, instance.program, instance.variant.split
    for table, spot in placement.states.items():
        state = program.state(state_of(table))
        if table == state.name:
            yield spot, target.holds(program, state, *spot)
        else:
            assert split is not None
            lend = next(x for x in split.lends if state.name in x.states)
            yield spot, target.lent_holds(program, state, *spot, lend.capacity)
    for name, copies in placement.copies.items():
        for spot in copies.items():
            yield spot, target.holds(program, program.state(name), *spot)


def _states_are_legal(placement: Placement) -> bool:
    instance = placement.instance
    target, program = instance.target, instance.program
    filled: dict[tuple[int, str], int] = defaultdict(int)
    for spot, amount in _amounts(placement):
        if not isinstance(amount, int):
            return False
        filled[spot] += amount
    stretches: dict[str, set[int]] = defaultdict(set)
    for number, node in enumerate(instance.graph.nodes):
        for table, kind in node.accesses:
            if table not in placement.copies:
                # Packets that came back from the host would meet it after later ones.
                stretches[table].add(placement.assignment.places[number])
            spot = placement.spot_of(table, number)
            if not isinstance(target.access(program, program.state(state_of(table)), kind, *spot,
                                            instance.rates[table]), dict):
                return False
    if any(len(places) > 1 for places in stretches.values()):
        return False
    return all(filled[p, t.name] <= t.capacity for p, place in enumerate(target.places) for t in place.tiers)


def _code_is_legal(placement: Placement) -> bool:
    instance = placement.instance
    target, program, virtual = instance.target, instance.program, placement.assignment.places
    split = instance.variant.split
    ruled = split is not None and split.mode == "restart"
    for number, (node, place) in enumerate(zip(instance.graph.nodes, placement.nodes, strict=True)):
        if ruled and split is not None and (place == split.near) != node.lent:
            return False  # rules are there and code is not
        if ruled and node.lent:
            continue
        if not isinstance(target.block(program, node.piece.block, place), dict):
            return False
        if any(placement.spot_of(table, number)[0] != place for table, _ in node.accesses):
            return False
    frame, physical = instance.profile.mean_frame, instance.problem.physical
    for e in instance.graph.edges:
        start, stop = virtual[e.source], virtual[e.target]
        steps = [target.crossing(physical[p], physical[p + 1], frame, e.live_bytes) for p in range(start, stop)]
        if stop < start or any(math.isinf(amount) for step in steps for amount in step.values()):
            return False
    for place, where in enumerate(target.places):
        stored = {(n.label, n.piece.part): target.code_size(program, n.piece.block, place)
                  for n, p in zip(instance.graph.nodes, placement.nodes, strict=True)
                  if p == place and not (ruled and n.lent)}
        if where.code_capacity is not None and sum(stored.values()) > where.code_capacity:
            return False
    return True


def assignments(instance: Instance, nodes: tuple[int, ...]) -> Iterator[Assignment]:
    """All ways to keep the states with these (virtual) places of the nodes, legal or not."""
    problem = instance.problem
    whole: list[list[int]] = []
    for state in problem.whole:
        there = {problem.physical[nodes[u]] for u in state.units}
        whole.append([i for i, o in enumerate(state.options) if not there or o.place in there])
    copies: list[list[dict[int, int]]] = []
    for copied in problem.copied:
        spots = sorted({problem.physical[nodes[u]] for u in copied.users})
        ways = [[(p, i) for i, o in enumerate(copied.options) if o.place == p] for p in spots]
        copies.append([dict(way) for way in itertools.product(*ways)])
    for kept, copied_to in itertools.product(itertools.product(*whole), itertools.product(*copies)):
        yield Assignment(nodes, kept, copied_to)


def every_placement(instance: Instance, units: Units) -> Iterator[Placement]:
    """All legal placements in which each unit is at one place."""
    places = range(len(instance.problem.physical))
    for chosen in itertools.product(places, repeat=len(units.problem.units)):
        for assignment in assignments(instance, tuple(chosen[u] for u in units.of_node)):
            placement = Placement(instance, assignment)
            if is_legal(placement):
                yield placement


def capacity(instance: Instance, demand: dict[str, float], cores: int) -> float:
    """Packets a second by the soft minimum."""
    exponent = instance.target.model["softmin_exponent"]
    total = 0.0
    for resource in instance.target.resources(instance.profile.mean_frame):
        used = demand.get(resource.name, 0.0)
        if used:
            available = resource.rate * (cores if resource.scales else 1)
            if not available:
                return 0.0
            total += (used / available) ** exponent
    return math.inf if total == 0 else total ** (-1 / exponent)


def host_work(instance: Instance, demand: dict[str, float], rate: float) -> float:
    """Cores' worth of host work at a rate."""
    return max((demand.get(r.name, 0.0) * rate / r.rate
                for r in instance.target.resources(instance.profile.mean_frame) if r.scales), default=0.0)


def best_for_rate(instance: Instance, units: Units, rate: float, most: int) -> tuple[int, float] | None:
    """(fewest cores, least host work with them), None when no placement carries the rate."""
    best: tuple[int, float] | None = None
    for placement in every_placement(instance, units):
        demand = demand_by_paths(placement)
        least = 1 if placement.uses_host else 0
        cores = next((c for c in range(least, most + 1) if capacity(instance, demand, c) >= rate), None)
        if cores is not None:
            found = (cores, host_work(instance, demand, rate))
            best = found if best is None else min(best, found)
    return best


def best_for_cores(instance: Instance, units: Units, cores: int) -> float | None:
    """Largest throughput with a number of cores."""
    rates = [capacity(instance, demand_by_paths(p), cores) for p in every_placement(instance, units)
             if cores or not p.uses_host]
    return max(rates, default=None)


def summed_baselines(instance: Instance) -> Iterator[tuple[Placement, NDArray[np.float64]]]:
    """The simple placements that are possible, each with its demand summed use by use; latency is the last entry."""
    rules = Rules(instance, units_of(instance), Aim(1e6, None, 8))
    for name in ("host-only", "state-only"):
        placement = baseline(rules, name)
        if placement is None:
            continue
        total = np.zeros(len(instance.problem.base))
        for often, _, ask in uses_of(placement):
            demand, latency = ask(instance.target)
            total += often * np.array([*(demand.get(r.name, 0.0) for r in instance.resources), latency])
        yield placement, total
