"""Solvers on numeric problems against trying every assignment."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from problem_cases import RATE, Judged, all_judged, demand_by_hand, every_assignment, judged, random_problem

from cora.errors import CoraError
from cora.models.latency import waiting
from cora.models.target import Resource
from cora.partition import branching
from cora.partition.evaluate import demand_of
from cora.partition.exact import Promise, broken_rules, check, exact_demand
from cora.partition.integer import Goal, Limits, Model, Setting, queue_and_slope
from cora.partition.optimise import Found, Optimiser, OutOfTime, Wishes
from cora.partition.problem import Assignment, Problem

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


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_both_solvers_agree_with_headroom_and_latency(solver: str) -> None:
    """The latency is the queueing one; what is asked lies between the least and the greatest there is."""
    met = 0
    for seed in range(4000, 4040 if solver == "highs" else 4015):
        problem = random_problem(seed)
        all_of_them = {cores: all_judged(problem, cores, queueing=True) for cores in range(MOST + 1)}
        times = sorted(j.latency for j in all_of_them[MOST] if j.load <= 0.8)
        if len(times) < 2:
            continue
        limit = (times[0] + times[-1]) / 2
        fine = {cores: [j.host for j in found if j.load <= 0.8 and j.latency <= limit]
                for cores, found in all_of_them.items()}
        best = next(((cores, min(hosts)) for cores, hosts in fine.items() if hosts), None)
        found = Optimiser([problem], solver, 60, Wishes(0.2, limit, RATE)).for_rate(RATE, MOST)
        assert found is not None and best is not None, seed
        assert found.cores == best[0], seed
        true = of(problem, found, found.cores, queueing=True)
        assert true.host <= best[1] * (1 + 3e-5) + 1e-6 and true.load <= 0.8 and true.latency <= limit, seed
        check(problem, found.assignment, Promise(Fraction(RATE), found.cores, Fraction(1, 5), limit, RATE))
        met += 1
    assert met >= 5


def test_the_best_variant_is_found_and_proven_against_all() -> None:
    for seed in range(5000, 5015):
        problems = [random_problem(seed * 7 + i) for i in range(6)]
        bests = [best_for_rate(p) for p in problems]
        search = Optimiser(problems, "highs", 60)
        found = search.for_rate(RATE, MOST)
        if not any(bests):
            assert found is None
            continue
        assert found is not None and found.proven
        best = min(b for b in bests if b is not None)
        assert found.cores == best[0], seed
        assert of(problems[found.variant], found, found.cores).host <= best[1] * (1 + 3e-5) + 1e-6, seed


def test_an_assignment_at_hand_is_taken_and_illegal_ones_are_not() -> None:
    solved = 0
    for seed in range(6000, 6020):
        problem = random_problem(seed)
        cold = Optimiser([problem], "highs", 60).for_rate(RATE, MOST)
        if cold is None:
            continue
        nowhere = replace(cold.assignment, places=tuple(len(problem.physical) for _ in problem.units))
        warm = Optimiser([problem], "highs", 60, known=[(0, nowhere), (0, cold.assignment)])
        found = warm.for_rate(RATE, MOST)
        assert found is not None and found.cores == cold.cores
        solved += 1
    assert solved >= 8


def test_no_time_is_told_and_the_assignment_at_hand_is_kept_without_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(p for p in map(random_problem, range(100)) if best_for_rate(p) is not None)
    cold = Optimiser([problem], "highs", 60).for_rate(RATE, MOST)
    assert cold is not None
    monkeypatch.setattr(branching, "_LATE", -1.0)
    with pytest.raises(OutOfTime):
        Optimiser([problem], "highs", 0.0).for_rate(RATE, MOST)
    late = Optimiser([problem], "highs", 0.0, known=[(0, cold.assignment)]).for_rate(RATE, MOST)
    assert late is not None and late.assignment == cold.assignment and not late.proven


@pytest.mark.parametrize("late", [-1.0, 0.5])
def test_without_time_there_is_a_bound_all_the_same(late: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what everything uses least, or of relaxations, which take a little time of their own."""
    monkeypatch.setattr(branching, "_LATE", late)
    met = 0
    for seed in range(7000, 7030):
        problems = [random_problem(seed * 3 + i) for i in range(3)]
        hand = Optimiser(problems, "highs", 60).best("load", Setting(RATE, 2), Limits(), "load")
        if hand is None:
            continue
        search = Optimiser(problems, "highs", 0.0, known=[(hand.variant, hand.assignment)])
        found = search.best("load", Setting(RATE, 2), Limits(), "load")
        least = min((j.load for p in problems for j in all_judged(p, 2)), default=math.inf)
        assert found is not None and search.stages[0].bound is not None, seed
        assert 0 <= search.stages[0].bound <= least * (1 + 1e-6) + 1e-9, seed
        met += search.stages[0].bound > 0.1 * least
    assert met >= (3 if late < 0 else 20)


@pytest.mark.parametrize("goal", ["host", "load", "latency"])
def test_prices_of_one_problem_prove_true_bounds_of_others_with_its_structure(goal: Goal) -> None:
    """The same problem with other costs: what is proven of it without solving lies below its true optimum."""
    compared = tight = 0
    for seed in range(8000, 8040):
        problem = random_problem(seed)
        limits = Limits(load=1.0) if goal != "load" else Limits()
        search = Optimiser([problem], "highs", 60)
        if search.best(goal, Setting(RATE, 2), limits, goal) is None:
            continue
        for factor in (1.0, 1.02, 1.5):
            other = replace(problem, cost=problem.cost * factor, edges=tuple(
                replace(e, cross=e.cross / factor) for e in problem.edges))
            model = Model(other, Setting(RATE, 2), "highs", search.shared.structure(other, Setting(RATE, 2)))
            bound = search.shared.bound(model, goal, limits)
            values = [getattr(j, goal) for j in all_judged(other, 2) if j.load <= 1 or goal == "load"]
            least = min(values, default=math.inf)
            assert bound <= least * (1 + 1e-6) + 1e-7, (seed, factor)
            compared += 1
            tight += factor == 1.0 and bound > 0.9 * least - 1e-6
    assert compared >= 40 and tight >= 15


def test_queues_and_their_slopes_are_those_of_the_queueing_formula() -> None:
    resource = Resource("engine", 1.0, "access", "nic", servers=7)
    for offered in (0.3, 2.0, 5.5, 6.9):
        queue, slope = queue_and_slope(resource, 1, offered)
        # Little: mean queue = rate * mean wait, here with a service time of one.
        assert queue == pytest.approx(offered * waiting(7, 1.0, offered), rel=1e-12)
        step = 1e-5
        above, below = (queue_and_slope(resource, 1, offered + s)[0] for s in (step, -step))
        assert slope == pytest.approx((above - below) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("rule", ["place", "option", "copy", "length"])
def test_the_exact_check_names_what_is_broken(rule: str) -> None:
    problem, assignment = next((p, a) for p in map(random_problem, range(300)) if p.whole and p.copied
                               for a in every_assignment(p) if p.whole[0].units and a.copies[0])
    broken = {
        "place": replace(assignment, places=(len(problem.physical) + 1, *assignment.places[1:])),
        "option": replace(assignment, whole=(99, *assignment.whole[1:])),
        "copy": replace(assignment, copies=({}, *assignment.copies[1:])),
        "length": replace(assignment, places=assignment.places[:-1]),
    }[rule]
    text = {"place": "a place the target does not have", "option": "a way the target does not have",
            "copy": f"{problem.copied[0].name} has no copy", "length": "units of code have a place"}[rule]
    with pytest.raises(CoraError, match=text):
        check(problem, broken, Promise(Fraction(1), MOST))


def test_the_exact_check_is_the_same_rules_as_trying_everything() -> None:
    compared = 0
    for seed in range(7000, 7060):
        problem = random_problem(seed)
        if len(problem.units) > 3 or len(problem.whole) > 2 or problem.copied:
            continue
        legal = {(a.places, a.whole) for a in every_assignment(problem)}
        for places in itertools.product(range(len(problem.physical)), repeat=len(problem.units)):
            for whole in itertools.product(*(range(len(s.options)) for s in problem.whole)):
                assignment = Assignment(places, whole, ())
                assert ((places, whole) in legal) == (not broken_rules(problem, assignment)), seed
                compared += 1
    assert compared > 300


def test_exact_demands_are_what_is_summed_by_hand() -> None:
    for seed in range(7100, 7130):
        problem = random_problem(seed)
        for assignment in list(every_assignment(problem))[:20]:
            by_hand = demand_by_hand(problem, assignment)
            assert [float(x) for x in exact_demand(problem, assignment)] == pytest.approx(by_hand, rel=1e-13)
            assert demand_of(problem, assignment).tolist() == pytest.approx(by_hand, rel=1e-9)
