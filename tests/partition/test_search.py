"""The search over all variants finds what trying every placement finds."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import numpy as np
import pytest
from placement_oracle import (
    assignments,
    best_for_cores,
    best_for_rate,
    demand_by_paths,
    every_placement,
    is_legal,
)
from planning_fakes import random_profile, random_program, random_target

from cora.errors import CoraError
from cora.partition.baselines import NAMES, Aim, Rules, baseline
from cora.partition.choosing import Asked, Chooser, Chosen
from cora.partition.exact import Promise
from cora.partition.instance import Instance, build
from cora.partition.placement import Placement, check
from cora.partition.planner import settled
from cora.partition.units import Units, units_of

MOST = 6


def case(seed: int) -> tuple[random.Random, Instance, Units]:
    """A random case with few enough placements to try them all."""
    while True:
        rng = random.Random(seed)
        program = random_program(rng)
        instance = build(program, random_profile(rng, program), random_target(rng, program))
        units = units_of(instance)
        if len(instance.target.places) ** len(units.problem.units) <= 1500:
            return rng, instance, units
        seed += 10_000


def chooser(instance: Instance, rate: float | None, most: int, solver: str = "highs", scale: float = 5e6) -> Chooser:
    aim = Aim(rate, None if rate else most, most)
    return Chooser(instance.prices, Asked(aim, solver, time.perf_counter() + 20), scale)


def for_rate(instance: Instance, rate: float, most: int, solver: str = "highs") -> Chosen | None:
    return chooser(instance, rate, most, solver).best()


@pytest.mark.parametrize("seed", range(60))
def test_fewest_cores_then_least_host_work(seed: int) -> None:
    rng, instance, units = case(seed)
    rate = rng.choice((1e6, 3e6, 8e6, 2e7))
    best = best_for_rate(instance, units, rate, MOST)
    found = for_rate(instance, rate, MOST)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    check(found.placement, Promise(Fraction(rate), found.cores))
    assert is_legal(found.placement)
    assert found.cores == best[0]
    assert found.placement.host_work(rate) == pytest.approx(best[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("seed", "cores"), [(41, 1), (41, 2)])
def test_least_host_work_may_take_more_cores(seed: int, cores: int) -> None:
    """Close to the most that some cores carry, the placement with the least host work needs one more than another."""
    _, instance, units = case(seed)
    most = best_for_cores(instance, units, cores)
    assert most is not None
    rate = 0.998 * most
    found = for_rate(instance, rate, MOST)
    best = best_for_rate(instance, units, rate, MOST)
    assert found is not None and best is not None
    assert found.cores == best[0] == cores
    assert found.placement.host_work(rate) == pytest.approx(best[1], rel=1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_most_throughput_with_given_cores(seed: int) -> None:
    rng, instance, units = case(seed)
    cores = rng.choice((0, 1, 3))
    best = best_for_cores(instance, units, cores)
    found = chooser(instance, None, cores).best()
    if found is None:
        assert not best
        return
    assert found.placement.throughput(cores) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_both_solvers_agree(seed: int) -> None:
    _, instance, _ = case(seed)
    found = [for_rate(instance, 3e6, MOST, solver) for solver in ("highs", "cbc")]
    figures = {(f.cores, round(f.placement.host_work(3e6), 5)) if f else None for f in found}
    assert len(figures) == 1


@pytest.mark.parametrize("seed", range(30))
def test_demand_is_the_sum_over_packet_paths(seed: int) -> None:
    rng, instance, units = case(seed)
    placements = list(every_placement(instance, units))
    for placement in rng.sample(placements, min(5, len(placements))):
        walked = demand_by_paths(placement)
        expected = [walked.get(r.name, 0.0) for r in instance.resources] + [walked["latency"]]
        np.testing.assert_allclose(placement.demand, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_exact_check_agrees_with_the_rules_on_any_placement(seed: int) -> None:
    """Random placements, legal or not: the check accepts exactly those the target's answers allow."""
    rng, instance, units = case(seed)
    accepted = 0
    for _ in range(30):
        places = [rng.randrange(instance.last + 1) for _ in units.problem.units]
        kept = list(assignments(instance, tuple(places[u] for u in units.of_node)))
        if not kept:
            continue
        placement = Placement(instance, rng.choice(kept))
        try:
            check(placement, Promise(Fraction(0), 1))
            accepted += 1
            assert is_legal(placement)
        except CoraError:
            assert not is_legal(placement)


@pytest.mark.parametrize("seed", range(30))
def test_baselines_are_legal_and_never_better_than_the_plan(seed: int) -> None:
    _, instance, units = case(seed)
    aim = Aim(3e6, None, MOST)
    rules = Rules(instance, units, aim)
    found = for_rate(instance, 3e6, MOST)
    for name in NAMES:
        placement = baseline(rules, name)
        if placement is None:
            continue
        assert is_legal(placement)
        cores, work, _ = aim.key(placement)
        if cores <= MOST:
            assert found is not None
            assert (found.cores, found.placement.host_work(3e6)) <= (cores, work * (1 + 1e-4) + 1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_unseen_code_is_settled_the_same_way_whatever_the_solver(seed: int) -> None:
    _, instance, _ = case(seed)
    found = for_rate(instance, 1e6, MOST)
    if found is None:
        return
    once = settled(found.placement)
    assert is_legal(once)
    np.testing.assert_allclose(once.demand, found.placement.demand, rtol=1e-9)
    assert settled(once).assignment == once.assignment
