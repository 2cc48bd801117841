"""How robust a plan is: the report against what its scenarios say when asked one by one."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from planning_fakes import nat_like, nat_profile, target_of

import cora
from cora.models.registry import get
from cora.partition.instance import build
from cora.partition.planner import instance_of, placement_of, plan, verify_plan
from cora.partition.robust import Judgement, judge, least_regret
from cora.partition.scenarios import NO_SPREAD, USUAL, Scenarios
from cora.plan.document import Plan, plan_from_json

COUNT = 60
ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"


@lru_cache(maxsize=8)
def judged(rate: float | None, cores: int | None, *, certain: bool = False) -> tuple[Plan, Judgement, Scenarios]:
    program = nat_like()
    profile, target = nat_profile(program), target_of()
    if certain:
        target = type(target)(target.model.pinned({p.name: p.value for p in target.model}))
    made = plan(program, profile, target, rate_pps=rate, cores=cores)
    instance = build(program, profile, target)
    spread = NO_SPREAD if certain else USUAL
    found = judge(instance, placement_of(made, instance), made.request, made.cores, count=COUNT, seed=4, spread=spread)
    return made, found, Scenarios(instance, COUNT + 1, 4, spread)


def test_a_plan_that_is_certain_is_always_best() -> None:
    for rate, cores in ((8e6, None), (None, 2)):
        made, found, _ = judged(rate, cores, certain=True)
        first = found.report.rivals[0]
        assert first.name == "the plan" == found.report.least_regret
        assert first.best == 1.0
        assert first.regret == pytest.approx((0.0, 0.0, 0.0), abs=1e-3)
        expected = made.throughput_pps if rate is None else made.figure("host work").value
        assert first.low == first.high
        assert first.value == pytest.approx(expected, rel=0.02)


def test_regret_is_the_loss_against_the_best_of_all_in_each_scenario() -> None:
    _, found, scenarios = judged(None, 2)
    reached = {name: scenarios.throughput(scenarios.demand(p), 2)[1:] for name, p in found.placements.items()}
    best = np.max(list(reached.values()), axis=0)
    for rival in found.report.rivals:
        loss = [1 - x / y for x, y in zip(reached[rival.name], best, strict=True)]
        assert rival.regret[0] == pytest.approx(sum(loss) / COUNT, rel=1e-4, abs=1e-9)
        assert rival.regret[1] == pytest.approx(sorted(loss)[math.ceil(0.9 * (COUNT - 1))], rel=1e-4, abs=1e-9)
        assert rival.regret[2] == pytest.approx(max(loss), rel=1e-4, abs=1e-9)
        assert rival.best == pytest.approx(sum(x <= 1e-3 for x in loss) / COUNT)
        assert rival.low is not None and rival.high is not None and rival.low <= rival.high
    assert sum(found.report.binding.values()) == pytest.approx(1.0)
    least = found.report.rival(found.report.least_regret)
    assert all((least.regret[1] or 0) <= (r.regret[1] or 0) + 1e-3 for r in found.report.rivals)


def test_at_a_rate_the_loss_is_counted_in_cores_and_in_scenarios_not_carried() -> None:
    made, found, scenarios = judged(8e6, None)
    cores = {name: scenarios.cores(scenarios.demand(p), 8e6)[1:] for name, p in found.placements.items()}
    cores = {name: np.where(c <= 64, c, math.inf) for name, c in cores.items()}
    best = np.min(list(cores.values()), axis=0)
    assert found.report.measure == "host cores"
    assert found.report.unreachable == pytest.approx(np.isinf(best).mean())
    for rival in found.report.rivals:
        kept = cores[rival.name][np.isfinite(best)]
        assert rival.lost == pytest.approx(np.isinf(kept).mean())
        given = max(made.cores, int(found.placements[rival.name].uses_host))
        carried = scenarios.throughput(scenarios.demand(found.placements[rival.name]), given)[1:] >= 8e6
        assert rival.met == pytest.approx(carried.mean())


def test_what_nothing_carries_is_told() -> None:
    # The port takes 50 million packets a second, give or take: at 48 million some samples have too little.
    _, found, _ = judged(None, 64)
    fastest = found.report.rivals[0].middle
    assert fastest is not None
    made, found, _ = judged(0.9 * fastest, None)
    assert 0 < found.report.unreachable < 1
    assert found.report.rivals[0].met is not None
    assert found.report.rivals[0].met <= 1 - found.report.unreachable + 1e-9
    assert made.request.rate_pps is not None


def test_the_same_seed_gives_the_same_report() -> None:
    _, one, _ = judged(None, 2)
    judged.cache_clear()
    _, two, _ = judged(None, 2)
    assert one.report == two.report


@pytest.mark.needs("gcc")
def test_the_plan_that_is_least_to_regret_is_a_plan_like_any_other() -> None:
    """On a port that is nearly full the fastest placement is not the one to take when its lock may be slower."""
    program = cora.load(ROOT / "examples" / "policer.nf")
    profile, target = cora.profile(program, OFFICE, captured_at="lan"), get("agilio-cx")
    for rate in (None, 5e6):
        best = plan(program, profile, target, rate_pps=rate, cores=2, time_limit=60)
        taken = least_regret(best, program, profile, target)
        verify_plan(taken, program, profile, target)
        assert plan_from_json(taken.to_json()) == taken
        instance = instance_of(best, program, profile, target)
        report = judge(instance, placement_of(best, instance), best.request, best.cores).report
        assert {s.name: f"{s.place}/{s.tier}" for s in taken.states if not s.copies}.items() <= dict(
            report.rival(report.least_regret).states).items() or taken == best
        assert report.least_regret != "the plan" or taken == best
        assert rate is None or (taken.samples_met or 0) >= (best.samples_met or 0)


@pytest.mark.parametrize("rate", [6e6, 12e6, 15e6])
def test_what_carries_the_rate_less_often_is_not_taken(rate: float) -> None:
    made, found, scenarios = judged(rate, None)
    report = found.report
    taken, first = report.rival(report.least_regret), report.rivals[0]
    carried = {n: [(scenarios.throughput(scenarios.demand(p), max(c, int(p.uses_host)))[1:] >= rate).mean()
                   for c in (made.cores, 64)] for n, p in found.placements.items() if n in (taken.name, first.name)}
    assert all(a >= b for a, b in zip(carried[taken.name], carried[first.name], strict=True))


@pytest.mark.needs("gcc")
def test_rivals_keep_to_what_was_asked() -> None:
    program = cora.load(ROOT / "examples" / "policer.nf")
    profile, target = cora.profile(program, OFFICE, captured_at="lan"), get("agilio-cx")
    best = plan(program, profile, target, cores=2, pins=("limits4=host",), time_limit=60)
    instance = instance_of(best, program, profile, target)
    found = judge(instance, placement_of(best, instance), best.request, best.cores, count=40)
    assert len(found.report.rivals) > 1
    assert all(r.states["limits4"].startswith("host/") for r in found.report.rivals)
