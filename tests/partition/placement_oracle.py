"""The best plan by trying every placement, with costs summed packet path by packet path straight from the target."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import accesses_of
from cora.ir.nodes import Forward
from cora.partition.baselines import Aim, Rules, baseline
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.partition.uncertainty import uses_of
from cora.partition.units import Units, units_of


def walks(instance: Instance) -> Iterator[tuple[list[int], int]]:
    """Per path of the profile its nodes and packets."""
    edges = {(e.source, e.outcome): e.target for e in instance.graph.edges}
    for path in instance.profile.paths:
        at = 0
        nodes = [0]
        outcomes = list(path.outcomes)
        while True:
            node = instance.graph.nodes[at]
            if node.piece.last and not outcomes:
                break
            at = edges[at, outcomes.pop(0) if node.piece.last else "next"]
            nodes.append(at)
        yield nodes, path.packets


def demand_by_paths(instance: Instance, placement: Placement) -> dict[str, float]:
    """Mean demand of a packet per resource, plus ``latency``; every packet's way is followed from the wire and back."""
    target, program, frame = instance.target, instance.program, instance.profile.mean_frame
    total: dict[str, float] = defaultdict(float)

    def charge(weight: float, demand: object, latency: float = 0.0) -> None:
        assert isinstance(demand, dict)
        for name, amount in demand.items():
            total[name] += weight * amount
        total["latency"] += weight * latency

    def move(weight: float, start: int, stop: int, live: int) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            charge(weight, target.crossing(place, place + step, frame, live),
                   target.crossing_latency(place, place + step, frame))

    live = {(e.source, e.target): e.live_bytes for e in instance.graph.edges}
    for nodes, packets in walks(instance):
        weight = packets / instance.profile.packets
        charge(weight, target.wire(frame))
        here = placement.nodes[0]
        move(weight, 0, here, 0)
        charge(weight, target.per_packet(here), target.latency(here))
        for before, number in zip([None, *nodes], nodes, strict=False):
            node, place = instance.graph.nodes[number], placement.nodes[number]
            if before is not None and place != here:
                move(weight, here, place, live[before, number])
                charge(weight, target.per_packet(place), target.latency(place))
                here = place
            charge(weight, target.block(program, node.piece.block, place))
            body = node.piece.block
            for item in (*body.instructions, body.terminator):
                for state, kind in accesses_of(program, item):
                    charge(weight, target.access(program, program.state(state), kind, *placement.states[state],
                                                 instance.rates[state]))
        if isinstance(instance.graph.nodes[nodes[-1]].piece.block.terminator, Forward):
            move(weight, here, 0, 0)
    return total


def is_legal(instance: Instance, placement: Placement) -> bool:
    """Rules of placement, from the target's own answers."""
    return _states_are_legal(instance, placement) and _code_is_legal(instance, placement)


def _states_are_legal(instance: Instance, placement: Placement) -> bool:
    target, program = instance.target, instance.program
    filled: dict[tuple[int, str], int] = defaultdict(int)
    for name, (place, tier) in placement.states.items():
        amount = target.holds(program, program.state(name), place, tier)
        if not isinstance(amount, int):
            return False
        filled[place, tier] += amount
        for node in instance.graph.nodes:
            for state, kind in node.piece.accesses:
                if state == name and not isinstance(
                        target.access(program, program.state(name), kind, place, tier, instance.rates[name]), dict):
                    return False
    return all(filled[p, t.name] <= t.capacity for p, place in enumerate(target.places) for t in place.tiers)


def _code_is_legal(instance: Instance, placement: Placement) -> bool:
    target, program = instance.target, instance.program
    for node, place in zip(instance.graph.nodes, placement.nodes, strict=True):
        if not isinstance(target.block(program, node.piece.block, place), dict):
            return False
        if any(placement.states[s][0] != place for s, _ in node.piece.accesses):
            return False
    frame = instance.profile.mean_frame
    for e in instance.graph.edges:
        start, stop = placement.nodes[e.source], placement.nodes[e.target]
        steps = [target.crossing(p, p + 1, frame, e.live_bytes) for p in range(start, stop)]
        if stop < start or any(math.isinf(amount) for step in steps for amount in step.values()):
            return False
    for number, where in enumerate(target.places):
        stored = {(n.label, n.piece.part): target.code_size(program, n.piece.block, number)
                  for n, p in zip(instance.graph.nodes, placement.nodes, strict=True) if p == number}
        if where.code_capacity is not None and sum(stored.values()) > where.code_capacity:
            return False
    return True


def every_placement(instance: Instance, units: Units) -> Iterator[Placement]:
    """All legal placements in which each unit is at one place."""
    places = range(len(instance.target.places))
    names = list(instance.options)
    for chosen in itertools.product(places, repeat=len(units.allowed)):
        nodes = tuple(chosen[u] for u in units.of_node)
        tiers = [[t.name for t in instance.target.places[chosen[units.of_state[n]]].tiers] for n in names]
        for kept in itertools.product(*tiers):
            placement = Placement({n: (chosen[units.of_state[n]], t) for n, t in zip(names, kept, strict=True)}, nodes)
            if is_legal(instance, placement):
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
        demand = demand_by_paths(instance, placement)
        least = 1 if placement.uses(instance.last) else 0
        cores = next((c for c in range(least, most + 1) if capacity(instance, demand, c) >= rate), None)
        if cores is not None:
            found = (cores, host_work(instance, demand, rate))
            best = found if best is None else min(best, found)
    return best


def best_for_cores(instance: Instance, units: Units, cores: int) -> float | None:
    """Largest throughput with a number of cores."""
    rates = [capacity(instance, demand_by_paths(instance, p), cores) for p in every_placement(instance, units)
             if cores or not p.uses(instance.last)]
    return max(rates, default=None)


def summed_baselines(instance: Instance) -> Iterator[tuple[Placement, NDArray[np.float64]]]:
    """The simple placements that are possible, each with its demand summed use by use; latency is the last entry."""
    rules = Rules(instance, units_of(instance), Aim(1e6, None, 8))
    for name in ("host-only", "state-only"):
        placement = baseline(rules, name)
        if placement is None:
            continue
        total = np.zeros(len(instance.base))
        for often, _, ask in uses_of(instance, placement):
            demand, latency = ask(instance.target)
            total += often * np.array([*(demand.get(r.name, 0.0) for r in instance.resources), latency])
        yield placement, total
