"""Solvers on numeric problems against trying every assignment."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from problem_cases import RATE, Judged, all_judged, demand_by_hand, judged, random_problem

from cora.partition.exact import Promise, check
from cora.partition.optimise import Found, Optimiser
from cora.partition.problem import Problem

MOST = 4
# What the tangents leave open, and a little for float solvers.
CLOSE = 1.001


def best_for_rate(problem: Problem, load: float = 1.0) -> tuple[int, float] | None:
    """Fewest cores and least host work with them."""
    for cores in range(MOST + 1):
        fine = [j.host for j in all_judged(problem, cores) if j.load <= load]
        if fine:
            return cores, min(fine)
    return None


def of(problem: Problem, found: Found, cores: int, queueing: bool = False) -> Judged:
    return judged(problem, found.assignment, demand_by_hand(problem, found.assignment), cores, queueing)


@pytest.mark.parametrize("block", range(8))
def test_fewest_cores_then_least_host_work(block: int) -> None:
    solved = 0
    for seed in range(40 * block, 40 * block + 40):
        problem = random_problem(seed)
        best = best_for_rate(problem)
        search = Optimiser([problem], "highs", 60)
        found = search.for_rate(RATE, MOST)
        assert (found is None) == (best is None), seed
        if found is None or best is None:
            continue
        solved += 1
        check(problem, found.assignment, Promise(Fraction(RATE), found.cores))
        assert found.proven and found.cores == best[0], seed
        assert of(problem, found, found.cores).host <= best[1] * (1 + 3e-5) + 1e-6, seed
        for stage in search.stages:
            assert stage.bound is not None and stage.bound <= stage.objective * (1 + 1e-6) + 1e-9
        first = search.stages[0]
        least = min(j.host for j in all_judged(problem, MOST) if j.load <= 1)
        assert first.bound is not None and first.bound <= least * (1 + 1e-6) + 1e-7, seed
    assert solved >= 10


@pytest.mark.parametrize("block", range(4))
def test_most_throughput_with_given_cores(block: int) -> None:
    for seed in range(1000 + 25 * block, 1000 + 25 * block + 25):
        problem = random_problem(seed)
        for cores in (0, 2):
            best = min((j.load for j in all_judged(problem, cores)), default=math.inf)
            found = Optimiser([problem], "highs", 60).for_cores(cores, RATE)
            if found is None:
                assert math.isinf(best), seed
                continue
            assert of(problem, found, found.cores if found.cores else cores).load <= best * CLOSE, seed
