"""Several tenants on one card, and the front of plans."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from problem_cases import RATE, all_judged, demand_by_hand, every_assignment, random_problem

from cora.partition.combine import Tenant, combine, exact_norm_power, split
from cora.partition.evaluate import amounts
from cora.partition.exact import Promise, broken_rules, check
from cora.partition.optimise import Optimiser
from cora.partition.pareto import Point, card_memory, pareto, with_card_memory
from cora.partition.problem import Assignment, Problem

MOST = 4


def two_tenants(seed: int) -> list[Tenant]:
    """Two problems on one card; the second's link has another rate, as a port has for other frames."""
    first = random_problem(seed)
    second = next(p for p in map(random_problem, itertools.count(seed + 1)) if p.physical == first.physical)
    link = replace(first.resources[-1], rate=first.resources[-1].rate * 1.25)
    second = replace(second, resources=(*first.resources[:-1], link), stores=first.stores, ceilings=first.ceilings,
                     code=first.code if len(first.units) <= len(second.units) else ())
    return [Tenant("a", first, 0.5 * RATE), Tenant("b", second, 0.25 * RATE)]


def loads_by_hand(tenants: list[Tenant], demands: list[list[float]], cores: int) -> tuple[float, float]:
    """Soft maximum and host work of both at their own rates."""
    total = 0.0
    work = 0.0
    for column in range(len(tenants[0].problem.resources)):
        share = used = 0.0
        for tenant, demand in zip(tenants, demands, strict=True):
            resource = tenant.problem.resources[column]
            available = resource.rate * (cores if resource.scales else 1)
            if demand[column]:
                share += tenant.rate * demand[column] / available if available else math.inf
                used += tenant.rate * demand[column] / resource.rate
        total += share**8
        work = max(work, used if tenants[0].problem.resources[column].scales else 0.0)
    return total ** (1 / 8), work


@pytest.mark.parametrize("seed", range(8000, 8024))
def test_tenants_together_are_what_trying_every_pair_finds(seed: int) -> None:
    tenants = two_tenants(seed)
    combined, rate = combine(tenants)
    assert rate == 0.75 * RATE
    best = math.inf
    alone = [[(a, demand_by_hand(t.problem, a)) for a in every_assignment(t.problem)] for t in tenants]
    if len(alone[0]) * len(alone[1]) > 4000:
        pytest.skip("too many pairs to try")
    capacities = [s.capacity for s in combined.stores]
    for (one, d1), (two, d2) in itertools.product(*alone):
        used = [a + b for a, b in zip(amounts(tenants[0].problem, one), amounts(tenants[1].problem, two), strict=True)]
        if any(u > c for u, c in zip(used, capacities, strict=True)) or _code_is_full(tenants, one.places, two.places):
            continue
        if any(sum(used[i] for i in c.stores) > c.capacity for c in combined.ceilings):
            continue
        load, work = loads_by_hand(tenants, [d1, d2], MOST)
        best = min(best, work) if load <= 1 else best
    search = Optimiser([combined], "highs", 60)
    found = search.best("host", search.setting(rate, MOST), search.limits, "host")
    assert (found is None) == math.isinf(best)
    if found is None:
        return
    parts = split(tenants, found.assignment)
    for tenant, part in zip(tenants, parts, strict=True):
        assert not broken_rules(tenant.problem, part)
    total = exact_norm_power(tenants, parts, MOST)
    assert total is not None and total <= 1
    check(combined, found.assignment, Promise(Fraction(rate), MOST))
    demands = [demand_by_hand(t.problem, p) for t, p in zip(tenants, parts, strict=True)]
    assert loads_by_hand(tenants, demands, MOST)[1] <= best * (1 + 3e-5) + 1e-6


def _code_is_full(tenants: list[Tenant], one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    for place, capacity in {(c.place, c.capacity) for t in tenants for c in t.problem.code}:
        used = 0
        for tenant, places in zip(tenants, (one, two), strict=True):
            where = [tenant.problem.physical[p] for p in places]
            used += sum(size for c in tenant.problem.code if c.place == place
                        for units, size in c.pieces if any(where[u] == place for u in units))
        if used > capacity:
            return True
    return False


def test_tenants_of_two_cards_are_refused() -> None:
    tenants = two_tenants(8000)
    other = replace(tenants[1].problem, stores=tenants[1].problem.stores[:-1])
    with pytest.raises(ValueError, match="b is not planned for the same card as a"):
        combine([tenants[0], Tenant("b", other, 1.0)])


def _reached(problem: Problem, cores: int) -> list[tuple[float, float, int]]:
    """(packets a second, latency, card memory) of every assignment with some cores."""
    return [(RATE / j.load, j.latency, card_memory(problem, j.assignment))
            for j in all_judged(problem, cores) if 0 < j.load < math.inf]


@pytest.mark.parametrize("seed", range(9000, 9012))
def test_points_of_the_front_are_beaten_by_nothing(seed: int) -> None:
    problem = random_problem(seed)
    front = pareto([problem], RATE, (1, 2), "highs", 60)
    assert front.complete
    points = front.points
    assert bool(points) == any(_reached(problem, c) for c in (1, 2))
    for point in points:
        assert point.proven and not broken_rules(problem, point.assignment)
        assert not any(q.beats(point) for q in points)
        rivals = [r for c in (1, 2) if c <= point.cores for r in _reached(problem, c)]
        for throughput, latency, memory in rivals:
            faster = throughput > point.throughput * 1.002 and latency < point.latency * 0.998
            assert not (faster and memory <= point.memory), seed
    for cores in {p.cores for p in points}:
        most = max(p.throughput for p in points if p.cores <= cores)
        assert most >= max(r[0] for r in _reached(problem, cores)) * 0.998


def test_a_core_that_brings_next_to_nothing_is_no_point_of_the_front() -> None:
    # 29,496,545 and 29,501,428 packets/s read alike: 0.017 % is no reason for a core.
    one = Point(0, Assignment((), (), ()), 0, 29_496_545.0, 17_604.3, 5_372_528, True)
    other = replace(one, cores=1, throughput=29_501_428.0, latency=17_606.2)
    assert one.beats(other) and not other.beats(one)
    assert not one.beats(replace(other, throughput=29_600_000.0))


def test_memory_of_the_card_can_be_limited() -> None:
    problem = next(p for p in map(random_problem, range(500)) if p.whole and
                   any(card_memory(p, a) > 10 for a in every_assignment(p)))
    most = max(card_memory(problem, a) for a in every_assignment(problem))
    less = with_card_memory(problem, most - 1)
    assert max((card_memory(less, a) for a in every_assignment(less)), default=0) < most
