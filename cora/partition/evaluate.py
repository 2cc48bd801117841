"""What an assignment of a placement problem uses, in floats and vectorised: for searching, not for proving."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from cora.models.latency import Latency, latency
from cora.models.target import Resource
from cora.partition.problem import Assignment, Problem, Vector

# The soft maximum in floats has to stay this much below its limit so that the rational check agrees.
ROOM = 1 - 1e-12
# A rate form without --cores plans with at most this many host cores unless the model says how many the host has.
DEFAULT_HOST_CORES = 64


def demand_of(problem: Problem, assignment: Assignment) -> Vector:
    """[K + 1] mean demand of one packet, the last column its unloaded latency."""
    places = np.array(assignment.places, np.intp)
    total = problem.base + problem.cost[np.arange(len(places)), places].sum(axis=0)
    source, target = places[problem.ends]
    rows = np.arange(len(source))
    total = total + (problem.reach[rows, target] - problem.reach[rows, source]).sum(axis=0)
    moved = target > source
    total = total + problem.visit[rows[moved], target[moved]].sum(axis=0)
    for state, number in zip(problem.whole, assignment.whole, strict=True):
        total = total + state.options[number].cost
    for row in copy_costs(problem, assignment):
        total = total + row
    result: Vector = total
    return result


def copy_costs(problem: Problem, assignment: Assignment) -> Iterator[Vector]:
    """[K + 1] rows: what each user of each copied state uses by its accesses."""
    for state, chosen in zip(problem.copied, assignment.copies, strict=True):
        for i, user in enumerate(state.users):
            yield state.options[chosen[problem.physical[assignment.places[user]]]].cost[i]


def least_demand(problem: Problem) -> Vector:
    """[K + 1] of which no assignment uses less: every unit and state where it uses least of each resource by itself."""
    cost = np.where(problem.allowed[:, :, None], problem.cost, np.inf).min(axis=1)
    total = problem.base + np.where(np.isfinite(cost), cost, 0.0).sum(axis=0)
    for state in problem.whole:
        if state.options:
            total = total + np.array([o.cost for o in state.options]).min(axis=0)
    result: Vector = np.maximum(total, 0.0)
    return result


def rates_of(resources: Sequence[Resource], cores: int) -> Vector:
    """Units a second of each resource with ``cores`` host cores."""
    return np.array([r.rate * cores if r.scales else r.rate for r in resources])


def utilisation(problem: Problem, demand: Vector, cores: int, rate: float) -> Vector:
    """[K] rate * D / R; infinite where something is used of which there is nothing."""
    used = demand[:-1] * rate
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used > 0, used / rates_of(problem.resources, cores), 0.0)


def norm(problem: Problem, loads: Vector) -> float:
    """The soft maximum of utilisations: a rate is carried when this is at most 1."""
    top = float(loads.max(initial=0.0))
    if top == 0 or math.isinf(top):
        return top
    return top * math.pow(((loads / top) ** problem.exponent).sum(), 1.0 / problem.exponent)


def load_of(problem: Problem, demand: Vector, cores: int, rate: float) -> float:
    """The soft maximum of utilisations at a rate."""
    return norm(problem, utilisation(problem, demand, cores, rate))


def throughput(problem: Problem, demand: Vector, cores: int) -> float:
    """Packets a second by the soft minimum over all resources."""
    load = load_of(problem, demand, cores, 1.0)
    return math.inf if load == 0 else 1.0 / load


def host_cycles(problem: Problem, demand: Vector, rate: float) -> float:
    """Host cores' worth of work at a rate, fractional: the most used of the resources that grow with cores."""
    loads = utilisation(problem, demand, 1, rate)
    return max((float(u) for u, r in zip(loads, problem.resources, strict=True) if r.scales), default=0.0)


def latency_of(problem: Problem, demand: Vector, cores: int, rate: float) -> Latency:
    """Mean latency of a packet at a rate with ``cores`` host cores."""
    used = {r.name: float(d) for r, d in zip(problem.resources, demand, strict=False)}
    return latency(float(demand[-1]), used, problem.resources, rate, cores)


def uses_host(problem: Problem, assignment: Assignment) -> bool:
    """Whether any code or whole state is at the host."""
    return any(problem.physical[p] == problem.host for p in assignment.places) or any(
        s.options[o].place == problem.host for s, o in zip(problem.whole, assignment.whole, strict=True))


def amounts(problem: Problem, assignment: Assignment) -> list[int]:
    """Units used of each store."""
    total: dict[int, int] = defaultdict(int)
    for whole, number in zip(problem.whole, assignment.whole, strict=True):
        option = whole.options[number]
        total[option.store] += option.amount
    for copied, chosen in zip(problem.copied, assignment.copies, strict=True):
        for number in chosen.values():
            copy = copied.options[number]
            total[copy.store] += copy.amount
    return [total[i] for i in range(len(problem.stores))]
