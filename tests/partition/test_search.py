"""The search finds what trying every placement finds."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from placement_oracle import best_for_cores, best_for_rate, demand_by_paths, every_placement, is_legal
from planning_fakes import random_profile, random_program, random_target

from cora.errors import CoraError
from cora.partition.baselines import NAMES, Aim, Rules, baseline
from cora.partition.instance import Instance, build
from cora.partition.placement import Demands, Placement, check, demand_of, host_cycles, throughput
from cora.partition.search import Search, settle
from cora.partition.units import Units, units_of

MOST = 6


def case(seed: int) -> tuple[random.Random, Instance, Units]:
    """A random case with few enough placements to try them all."""
    while True:
        rng = random.Random(seed)
        program = random_program(rng)
        instance = build(program, random_profile(rng, program), random_target(rng, program))
        units = units_of(instance)
        if len(instance.target.places) ** len(units.allowed) <= 3000:
            return rng, instance, units
        seed += 10_000


@pytest.mark.parametrize("seed", range(60))
def test_fewest_cores_then_least_host_work(seed: int) -> None:
    rng, instance, units = case(seed)
    rate = rng.choice((1e6, 3e6, 8e6, 2e7))
    best = best_for_rate(instance, units, rate, MOST)
    found = Search(instance, units, "highs", 20).for_rate(rate, MOST)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    check(instance, found.placement, Demands(Fraction(rate), found.cores))
    assert is_legal(instance, found.placement)
    assert found.cores == best[0]
    assert host_cycles(instance, found.demand, rate) == pytest.approx(best[1], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_with_a_unit_at_a_place(seed: int) -> None:
    _, instance, units = case(seed)
    everything = list(every_placement(instance, units))
    search = Search(instance, units, "highs", 20)
    for unit in set(units.of_state.values()):
        node = units.of_node.index(unit) if unit in units.of_node else None
        for place in range(len(instance.target.places)):
            there = [p for p in everything if node is not None and p.nodes[node] == place]
            found, in_time = search.elsewhere(unit, place, Aim(None, 2, 2), 2, 3e6)
            assert in_time
            if node is None:
                continue
            best = max((throughput(instance, demand_of(instance, p), 2) for p in there), default=0.0)
            reached = max((throughput(instance, demand_of(instance, p), 2) for p in found), default=0.0)
            assert all(p.nodes[node] == place for p in found)
            assert reached == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(("seed", "cores"), [(1, 2), (9, 2), (41, 1), (41, 2)])
def test_least_host_work_may_take_more_cores(seed: int, cores: int) -> None:
    """Close to the most that some cores carry, the placement with the least host work needs one more than another."""
    _, instance, units = case(seed)
    most = best_for_cores(instance, units, cores)
    assert most is not None
    rate = 0.998 * most
    found = Search(instance, units, "highs", 20).for_rate(rate, MOST)
    best = best_for_rate(instance, units, rate, MOST)
    assert found is not None and best is not None
    assert found.cores == best[0] == cores
    assert host_cycles(instance, found.demand, rate) == pytest.approx(best[1], rel=1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_most_throughput_with_given_cores(seed: int) -> None:
    rng, instance, units = case(seed)
    cores = rng.choice((0, 1, 3))
    best = best_for_cores(instance, units, cores)
    found = Search(instance, units, "highs", 20).for_cores(cores, 5e6)
    if found is None:
        assert not best
        return
    assert throughput(instance, found.demand, cores) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_both_solvers_agree(seed: int) -> None:
    _, instance, units = case(seed)
    found = [Search(instance, units, solver, 20).for_rate(3e6, MOST) for solver in ("highs", "cbc")]
    figures = {(f.cores, round(host_cycles(instance, f.demand, 3e6), 5)) if f else None for f in found}
    assert len(figures) == 1


@pytest.mark.parametrize("seed", range(30))
def test_demand_is_the_sum_over_packet_paths(seed: int) -> None:
    rng, instance, units = case(seed)
    placements = list(every_placement(instance, units))
    for placement in rng.sample(placements, min(5, len(placements))):
        walked = demand_by_paths(instance, placement)
        expected = [walked.get(r.name, 0.0) for r in instance.resources] + [walked["latency"]]
        np.testing.assert_allclose(demand_of(instance, placement), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_exact_check_agrees_with_the_rules_on_any_placement(seed: int) -> None:
    """Random placements, legal or not: the check accepts exactly those the target's answers allow."""
    rng, instance, units = case(seed)
    for _ in range(30):
        places = [rng.randrange(instance.last + 1) for _ in units.allowed]
        nodes = tuple(places[u] for u in units.of_node)
        states = {}
        for name in instance.options:
            place = places[units.of_state[name]]
            states[name] = (place, rng.choice(instance.target.places[place].tiers).name)
        placement = Placement(states, nodes)
        try:
            check(instance, placement, Demands(Fraction(0), 1))
            accepted = True
        except CoraError:
            accepted = False
        assert accepted == is_legal(instance, placement)


@pytest.mark.parametrize("seed", range(30))
def test_baselines_are_legal_and_never_better_than_the_plan(seed: int) -> None:
    _, instance, units = case(seed)
    aim = Aim(3e6, None, MOST)
    rules = Rules(instance, units, aim)
    found = Search(instance, units, "highs", 20).for_rate(3e6, MOST)
    for name in NAMES:
        placement = baseline(rules, name)
        if placement is None:
            continue
        assert is_legal(instance, placement)
        cores, work, _ = rules.key(placement)
        if cores <= MOST:
            assert found is not None
            assert (found.cores, host_cycles(instance, found.demand, 3e6)) <= (cores, work * (1 + 1e-4) + 1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_unseen_code_is_settled_the_same_way_whatever_the_solver(seed: int) -> None:
    _, instance, units = case(seed)
    found = Search(instance, units, "highs", 20).for_rate(1e6, MOST)
    if found is None:
        return
    settled = settle(instance, found)
    assert is_legal(instance, settled.placement)
    np.testing.assert_allclose(settled.demand, found.demand, rtol=1e-9)
    assert settle(instance, settled).placement == settled.placement
