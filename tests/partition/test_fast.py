"""The fast search is honest: what it finds is legal, never better than the optimum, and its bounds are below it."""

from __future__ import annotations

import math

import pytest
from problem_cases import RATE, all_judged, demand_by_hand, judged, random_problem

from cora.partition.coarse import contract, expand, forced, paired
from cora.partition.evaluate import demand_of
from cora.partition.exact import broken_rules
from cora.partition.fast import Task, quick
from cora.partition.integer import Goal, Limits, Setting

CORES = 3


@pytest.mark.parametrize("goal", ["host", "load", "latency"])
def test_found_is_legal_and_bounds_hold(goal: Goal) -> None:
    solved = close = 0
    for seed in range(2000, 2080):
        problem = random_problem(seed)
        limit = None if goal == "load" else 1.0
        values = [(j.host, j.load, j.latency)[("host", "load", "latency").index(goal)]
                  for j in all_judged(problem, CORES) if limit is None or j.load <= limit]
        best = min(values, default=math.inf)
        found = quick(problem, Task(Setting(RATE, CORES), goal, Limits(load=limit)), 0.05)
        if found.bound is not None:
            assert found.bound <= best * (1 + 1e-6) + 1e-9, seed
        if found.assignment is None:
            continue
        solved += 1
        assert not broken_rules(problem, found.assignment)
        true = judged(problem, found.assignment, demand_by_hand(problem, found.assignment), CORES, False)
        assert limit is None or true.load <= limit
        value = {"host": true.host, "load": true.load, "latency": true.latency}[goal]
        assert math.isclose(value, found.value, rel_tol=1e-9, abs_tol=1e-12)
        assert value >= best * (1 - 1e-9), seed
        close += value <= best * 1.05 + 1e-9
    assert solved >= 30 and close >= 0.8 * solved, (solved, close)


@pytest.mark.parametrize("seed", range(3000, 3020))
def test_groups_cost_what_their_units_cost(seed: int) -> None:
    problem = random_problem(seed)
    for groups in (forced(problem), paired(problem)):
        smaller = contract(problem, groups)
        for judged_one in all_judged(smaller, CORES):
            wide = expand(judged_one.assignment, groups)
            assert not broken_rules(problem, wide)
            assert demand_of(problem, wide) == pytest.approx(demand_of(smaller, judged_one.assignment))


@pytest.mark.parametrize("seed", range(3100, 3130))
def test_joining_what_is_forced_loses_nothing(seed: int) -> None:
    problem = random_problem(seed)
    smaller = contract(problem, forced(problem))
    assert len(all_judged(smaller, CORES)) == len(all_judged(problem, CORES))
