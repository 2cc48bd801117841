"""Placements and what they use: the float evaluator of the search, and the exact one every plan has to pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cora.errors import CoraError, Diagnostic, Kind
from cora.models.latency import Latency, latency
from cora.partition.instance import Instance, Vector

# The soft maximum in floats has to stay this much below 1 so that the rational check agrees.
ROOM = 1 - 1e-12
# A rate form without --cores plans with at most this many host cores unless the model says how many the host has.
DEFAULT_HOST_CORES = 64


@dataclass(frozen=True)
class Placement:
    """Per state its (place, tier), per node of the prefix graph its place; places by number."""

    states: Mapping[str, tuple[int, str]]
    nodes: tuple[int, ...]

    def uses(self, place: int) -> bool:
        """Whether anything, be it code that was never seen to run, is at a place."""
        return place in self.nodes or any(p == place for p, _ in self.states.values())


def demand_of(instance: Instance, placement: Placement) -> Vector:
    """[K] mean demand of one packet, the last column its unloaded latency."""
    places = np.array(placement.nodes)
    total = instance.base + instance.node_cost[np.arange(len(places)), places].sum(axis=0)
    source, target = places[instance.edge_ends]
    rows = np.arange(len(source))
    total = total + (instance.edge_reach[rows, target] - instance.edge_reach[rows, source]).sum(axis=0)
    moved = target > source
    total = total + (instance.edge_share[moved, None] * instance.visit[target[moved]]).sum(axis=0)
    for name, (place, tier) in placement.states.items():
        option = instance.option(name, place, tier)
        assert option is not None, f"{name} may not be in {tier}"
        total = total + option.cost
    result: Vector = total
    return result


def rates_of_resources(instance: Instance, cores: int) -> Vector:
    """Units a second of each resource with ``cores`` host cores."""
    return np.array([r.rate * cores if r.scales else r.rate for r in instance.resources])


def utilisation(instance: Instance, demand: Vector, cores: int, rate: float) -> Vector:
    """Per resource rate * D / R; infinite where something is used of which there is nothing."""
    used = demand[:-1] * rate
    available = rates_of_resources(instance, cores)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used > 0, used / available, 0.0)


def norm(instance: Instance, loads: Vector) -> float:
    """The soft maximum of utilisations: a plan carries its rate when this is at most 1."""
    top = float(loads.max(initial=0.0))
    if top == 0 or math.isinf(top):
        return top
    return top * math.pow(((loads / top) ** instance.exponent).sum(), 1.0 / instance.exponent)


def throughput(instance: Instance, demand: Vector, cores: int) -> float:
    """Packets a second by the soft minimum over all resources; there is no other throughput figure in a plan."""
    loads = norm(instance, utilisation(instance, demand, cores, 1.0))
    return math.inf if loads == 0 else 1.0 / loads


def host_cycles(instance: Instance, demand: Vector, rate: float) -> float:
    """Host cores' worth of work at a rate, fractional: the most used of the resources that grow with cores."""
    loads = utilisation(instance, demand, 1, rate)
    return max((float(u) for u, r in zip(loads, instance.resources, strict=True) if r.scales), default=0.0)


def cores_needed(instance: Instance, demand: Vector, rate: float, at_least: int, at_most: int) -> int | None:
    """The fewest host cores in a range that carry a rate, or None when the most do not."""
    if norm(instance, utilisation(instance, demand, at_most, rate)) > ROOM:
        return None
    low, high = at_least, at_most
    while low < high:
        middle = (low + high) // 2
        if norm(instance, utilisation(instance, demand, middle, rate)) <= ROOM:
            high = middle
        else:
            low = middle + 1
    return low


def latency_of(instance: Instance, demand: Vector, cores: int, rate: float) -> Latency:
    """Mean latency of a packet at a rate with ``cores`` host cores."""
    used = {r.name: float(d) for r, d in zip(instance.resources, demand, strict=False)}
    return latency(float(demand[-1]), used, instance.resources, rate, cores)


@dataclass(frozen=True)
class Demands:
    """What a plan promises and the check holds it to: ``rate`` packets a second with ``cores`` host cores."""

    rate: Fraction
    cores: int


def check(instance: Instance, placement: Placement, promised: Demands) -> None:
    """Check a placement in exact arithmetic: legality, monotony, capacities, code stores, and the soft minimum.

    Raises:
        CoraError: `Kind.PLAN_CHECK`, one diagnostic per broken rule.
    """
    found = [*_placed(instance, placement)]
    if not found:
        found = [*_states(instance, placement), *_nodes(instance, placement), *_edges(instance, placement),
                 *_stores(instance, placement), *_capacity(instance, placement, promised)]
    if found:
        raise CoraError([Diagnostic(Kind.PLAN_CHECK, message, hint="this plan cannot be used: make it again")
                         for message in dict.fromkeys(found)])


def _placed(instance: Instance, placement: Placement) -> list[str]:
    found = [f"state {s.name} has no place" for s in instance.program.states if s.name not in placement.states]
    if len(placement.nodes) != len(instance.graph.nodes):
        found.append(f"{len(placement.nodes)} classes of blocks have a place, the program has "
                     f"{len(instance.graph.nodes)}")
    if any(not 0 <= p <= instance.last for p in placement.nodes):
        found.append("a class of blocks is at a place the target does not have")
    return found


def _name(instance: Instance, place: int) -> str:
    return instance.target.places[place].name


def _states(instance: Instance, placement: Placement) -> list[str]:
    found = []
    filled: dict[tuple[int, str], int] = {}
    for name, (place, tier) in placement.states.items():
        option = instance.option(name, place, tier) if name in instance.options else None
        if option is None:
            where = _name(instance, place) if 0 <= place <= instance.last else place
            found.append(f"state {name} cannot be kept in {tier} of {where}")
            continue
        filled[place, tier] = filled.get((place, tier), 0) + option.amount
    for (place, name), amount in filled.items():
        tier_of = next(t for t in instance.target.places[place].tiers if t.name == name)
        if amount > tier_of.capacity:
            found.append(f"{name} of {_name(instance, place)} would hold {amount} {tier_of.unit}, it has "
                         f"{tier_of.capacity}")
    return found


def _nodes(instance: Instance, placement: Placement) -> list[str]:
    found = []
    for number, (node, place) in enumerate(zip(instance.graph.nodes, placement.nodes, strict=True)):
        if not instance.allowed[number, place]:
            found.append(f"block {node.label} may not run at {_name(instance, place)}")
        for state in dict.fromkeys(s for s, _ in node.piece.accesses):
            if placement.states[state][0] != place:
                found.append(f"block {node.label} runs at {_name(instance, place)} and uses {state}, which is "
                             "elsewhere")
    return found


def _edges(instance: Instance, placement: Placement) -> list[str]:
    found = []
    for number, edge in enumerate(instance.graph.edges):
        start, stop = placement.nodes[edge.source], placement.nodes[edge.target]
        names = f"{instance.graph.nodes[edge.source].label} to {instance.graph.nodes[edge.target].label}"
        if stop < start:
            found.append(f"from block {names} a packet would go back from {_name(instance, start)} to "
                         f"{_name(instance, stop)} in the middle of the program")
        found += [f"from block {names} no packet can move on to {_name(instance, p)}"
                  for p in range(start + 1, stop + 1) if not instance.crossable[number, p]]
    return found


def code_used(instance: Instance, placement: Placement, place: int) -> int:
    """Code at a place: every piece once, whatever the number of classes that run it there."""
    there = {(n.label, n.piece.part) for n, p in zip(instance.graph.nodes, placement.nodes, strict=True) if p == place}
    return sum(instance.code[key][place] for key in there)


def _stores(instance: Instance, placement: Placement) -> list[str]:
    found = []
    for place, declared in enumerate(instance.target.places):
        used = code_used(instance, placement, place)
        if declared.code_capacity is not None and used > declared.code_capacity:
            found.append(f"the code at {declared.name} takes {used} instructions, its store has "
                         f"{declared.code_capacity}")
    return found


def _capacity(instance: Instance, placement: Placement, promised: Demands) -> list[str]:
    if _states(instance, placement):
        return []
    if promised.cores == 0 and placement.uses(instance.last):
        return ["the plan has no host core, but something is at the host"]
    total = exact_norm_power(instance, exact_demand(instance, placement), promised)
    if total is None or total > 1:
        shown = "no" if total is None else f"{float(total) ** (1 / int(instance.exponent)):.4f} times the"
        return [f"at {float(promised.rate):.6g} packets/s with {promised.cores} host cores the plan needs {shown} "
                f"capacity there is"]
    return []


def exact_demand(instance: Instance, placement: Placement) -> list[Fraction]:
    """[K] the same as `demand_of` without rounding, from the nodes one by one."""
    rows: list[Vector] = [instance.base]
    rows += [instance.node_cost[i, p] for i, p in enumerate(placement.nodes) if instance.node_cost[i, p].any()]
    total = _sum(rows, len(instance.base))
    for number, edge in enumerate(instance.graph.edges):
        start, stop = placement.nodes[edge.source], placement.nodes[edge.target]
        if stop <= start or not edge.packets:
            continue
        crossed = _sum([instance.edge_cross[number, p] for p in range(start + 1, stop + 1)], len(total))
        share = Fraction(float(instance.edge_share[number]))
        arrived = [share * Fraction(float(v)) for v in instance.visit[stop]]
        total = [t + c + a for t, c, a in zip(total, crossed, arrived, strict=True)]
    kept = [instance.option(name, place, tier) for name, (place, tier) in placement.states.items()]
    states = _sum([o.cost for o in kept if o is not None], len(total))
    return [t + s for t, s in zip(total, states, strict=True)]


def _sum(rows: Sequence[Vector], width: int) -> list[Fraction]:
    total = [Fraction(0)] * width
    for row in rows:
        total = [t + Fraction(float(x)) if x else t for t, x in zip(total, row, strict=True)]
    return total


def exact_norm_power(instance: Instance, demand: Sequence[Fraction], promised: Demands) -> Fraction | None:
    """sum_r (X D_r / R_r)^s as a rational, or None when something is used of which there is nothing.

    An exponent that is no integer is taken down to one: that never understates the soft maximum.
    """
    total = Fraction(0)
    for used, resource in zip(demand, instance.resources, strict=False):
        if used == 0:
            continue
        available = Fraction(resource.rate) * (promised.cores if resource.scales else 1)
        if available == 0:
            return None
        total += (promised.rate * used / available) ** int(instance.exponent)
    return total
