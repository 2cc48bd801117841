"""The account path by path, and scenarios: against the planner's own sums, the soft minimum, and brute force."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from placement_oracle import demand_by_paths
from planning_fakes import nat_like, nat_profile, profile_of, random_profile, random_program, random_target, target_of

from cora.analysis.profile import StateUse, WindowUse
from cora.models.softmin import softmin
from cora.partition.baselines import NAMES, Aim, Rules, baseline
from cora.partition.instance import Instance, build
from cora.partition.placement import Placement
from cora.partition.scenarios import NO_SPREAD, Scenarios, Spread
from cora.partition.units import units_of
from cora.partition.ways import AccessUse, account_of, makes_entries, port_of


def placements(instance: Instance) -> list[Placement]:
    rules = Rules(instance, units_of(instance), Aim(1e6, None, 8))
    return [p for p in (baseline(rules, name) for name in NAMES) if p is not None]


@pytest.mark.parametrize("seed", range(40))
def test_the_centre_is_the_demand_summed_two_other_ways(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    instance = build(program, random_profile(rng, program), random_target(rng, program))
    scenarios = Scenarios(instance, 3, seed)
    for placement in placements(instance):
        centre = scenarios.demand(placement)[0]
        np.testing.assert_allclose(centre, placement.demand, rtol=1e-9)
        walked = demand_by_paths(placement)
        for column, resource in enumerate(instance.resources):
            assert centre[column] == pytest.approx(walked[resource.name], rel=1e-9)


def test_one_packet_of_a_path_is_charged_for_what_the_path_does() -> None:
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    placement = next(p for p in placements(instance) if 0 not in p.nodes)
    account = account_of(placement, instance.profile.paths)
    kinds = [{(u.state, u.kind): n for u, n in zip(account.uses, row, strict=True) if n and isinstance(u, AccessUse)}
             for row in account.counts]
    assert kinds == [
        {("conns", "lookup"): 1, ("conns", "touch"): 1, ("hits", "count"): 1},
        {("conns", "lookup"): 1, ("peers", "lookup"): 1, ("conns", "insert"): 1},
        {("conns", "lookup"): 1, ("peers", "lookup"): 1},
    ]
    assert [makes_entries(program, p) for p in instance.profile.paths] == [False, True, False]
    assert [port_of(program, p) for p in instance.profile.paths] == ["wire"] * 3


def exact(instance: Instance) -> Instance:
    """The instance on a target whose figures are certain."""
    model = instance.target.model
    target = type(instance.target)(model.pinned({p.name: p.value for p in model}))
    return build(instance.program, instance.profile, target)


def test_without_any_spread_every_scenario_is_the_centre() -> None:
    program = nat_like()
    instance = exact(build(program, nat_profile(program), target_of()))
    scenarios = Scenarios(instance, 20, 3, NO_SPREAD)
    for placement in placements(instance):
        demand = scenarios.demand(placement)
        np.testing.assert_allclose(demand, np.tile(demand[0], (20, 1)), rtol=1e-5)


def test_the_same_seed_draws_the_same_and_another_one_others() -> None:
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    host = placements(instance)[0]
    one, two, other = (Scenarios(instance, 10, seed).demand(host) for seed in (1, 1, 2))
    assert (one == two).all()
    assert not np.allclose(one[1:], other[1:])


@pytest.mark.parametrize("cores", [1, 3])
def test_throughput_and_cores_are_those_of_the_soft_minimum(cores: int) -> None:
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    scenarios = Scenarios(instance, 12, 5)
    names = [r.name for r in instance.resources]
    for placement in placements(instance):
        demand = scenarios.demand(placement)
        reached = scenarios.throughput(demand, cores)
        for i in range(len(scenarios)):
            rates = scenarios.rates[i] * np.where(scenarios.scales, cores, 1)
            expected = softmin(dict(zip(names, demand[i], strict=False)), dict(zip(names, rates, strict=True)),
                               scenarios.exponents[i])
            assert reached[i] == pytest.approx(expected.rate, rel=1e-9)
            assert scenarios.binding(demand, cores)[i] == expected.binding
        if placement.uses_host:
            np.testing.assert_allclose(scenarios.cores(demand, reached), cores, rtol=1e-6)
        assert np.isinf(scenarios.cores(demand, 1e12)).all()


def with_windows() -> Instance:
    """A quiet and a busy window of one path mix; ``conns`` (60 entries at most) holds 50 of them."""
    program = nat_like()
    profile = profile_of(program, {("entry", "known"): 900, ("entry", "fresh", "allow", "done"): 100},
                         states={"conns": StateUse("map", inserts=(100, 0), entries_peak=50, working_set=(40,),
                                                   popularity=((0.02, 0.3), (1.0, 1.0)))})
    quiet = WindowUse(0, 500, 32_000, 0, 0, ((0, 500),))
    busy = WindowUse(1, 500, 500_000, 100, 0, ((0, 400), (1, 100)))
    return build(program, replace(profile, windows=(quiet, busy)), target_of())


def test_stretches_of_time_give_path_mix_and_frame() -> None:
    instance = with_windows()
    scenarios = Scenarios(instance, 60, 1, Spread(1, 1, 1, 1, stretch=0.01))
    seen = {(round(float(mix[1]), 4), round(float(frame), 3))
            for mix, frame in zip(scenarios.mix[1:], scenarios.frames[1:], strict=True)}
    # The quiet window keeps its one packet of the other path: a path that was seen stays possible.
    assert seen == {(0.0, 64.0), (0.2, 1000.0), (0.1, 532.0)}


def test_traffic_factors_change_what_they_say() -> None:
    instance = with_windows()
    for name in ("churn", "popularity", "working_set", "size"):
        changed: dict[str, float] = {name: 3.0}
        spread = replace(NO_SPREAD, **changed)
        scenarios = Scenarios(instance, 40, 2, spread)
        for i in range(1, 40):
            factors, state = scenarios.drawn[i].factors, scenarios.traffic[i].rates["conns"]
            assert all(value == 1 for key, value in factors.items() if key != name)
            factor = factors[name]
            churn, head, touched, size = (factor if name == n else 1.0 for n in factors)
            assert scenarios.mix[i][1] == pytest.approx(min(0.1 * churn, 0.5), rel=1e-3)
            assert scenarios.mix[i].sum() == pytest.approx(1.0, rel=1e-5)
            assert state.hottest == pytest.approx(min(1.0, max(0.3 * head, 1 / max(state.entries, 1))), rel=1e-6)
            assert state.entries == min(max(1, round(50 * touched)), 60)
            assert scenarios.frames[i] == pytest.approx(min(max(532 * size, 60), 9216), rel=1e-3)
