"""What more and what else would bring, held against plans of targets and programs that really are so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_fakes import FIGURES, FakeTarget, nat_like, nat_profile, target_of

from cora.analysis.profile import StateUse
from cora.errors import CoraError, Kind
from cora.explain import changes, sensitivity
from cora.explain.questions import Questions
from cora.explain.subject import Subject, subject_of
from cora.explain.variants import enough_for, variants_of
from cora.explain.why import changes_text, gain_text, more_text, why
from cora.ir.nodes import MapState
from cora.models import registry
from cora.models.target import Refusal, Tier
from cora.models.variation import varied
from cora.partition import plan
from cora.plan.document import Plan


def asked(target: FakeTarget, cores: int | None = None, rate: float | None = None) -> Subject:
    program = nat_like()
    profile = replace(nat_profile(program), states={"conns": StateUse("map", entries_peak=10)})
    return Subject(plan(program, profile, target, cores=cores, rate_pps=rate), program, profile, target)


def reached(figures: dict[str, float], cores: int) -> int:
    program = nat_like()
    return plan(program, nat_profile(program), target_of(figures), cores=cores).throughput_pps


def test_more_of_a_resource_is_planned_as_a_target_that_has_more() -> None:
    questions = Questions(asked(target_of(), cores=2))
    rows = sensitivity.sensitivity(questions)
    found = {m.what: m.gain for m in rows}
    now = reached({}, 2)
    figures = {"port": "port", "nic-cycles": "nic_rate", "engine": "engine", "link": "link"}
    asked_about = [n for n in figures if f"10 % more {n}" in found]
    assert len(asked_about) >= 2 and set(sensitivity.unasked(questions)) == set(figures) - set(asked_about)
    assert sensitivity.count(questions) == len(rows)
    for name, figure in ((n, figures[n]) for n in asked_about):
        gain = found[f"10 % more {name}"]
        then = reached({figure: FIGURES[figure] * 1.1}, 2)
        assert gain.throughput_pps == pytest.approx(then, rel=2e-3)
        assert gain.ratio == pytest.approx(then / now, rel=2e-3)
        assert gain.low <= gain.ratio * 1.001 and gain.ratio <= gain.high * 1.001
    assert found["1 host core more"].throughput_pps == pytest.approx(reached({}, 3), rel=2e-3)
    assert not found["10 % more nic-cycles"].nothing
    ratios = [m.gain.ratio for m in rows if not m.gain.nothing]
    assert ratios == sorted(ratios, reverse=True)


def test_more_memory_lets_a_table_into_the_faster_one() -> None:
    # The engine is the narrow place, and 'fast' has no room for a table beside the counter.
    target = target_of({"engine": 5e7}, tiers={**FakeTarget.tiers, "nic": (Tier("fast", 50), Tier("slow", 10_000))})
    found = {m.what: m.gain for m in sensitivity.sensitivity(Questions(asked(target, cores=0)))}
    assert found["1 MB more fast"].ratio > 1.5
    assert "1 MB more slow" not in found and "1 MB more dram" not in found


def test_memories_counted_in_what_they_are_named_after_are_named_once() -> None:
    tiers = {**FakeTarget.tiers, "nic": (Tier("rules", 50, "rules"), Tier("slow", 10_000))}
    target = target_of({"access_rules": FIGURES["access_fast"]}, tiers=tiers)
    assert "5 more rules" in [m.what for m in sensitivity.sensitivity(Questions(asked(target, cores=0)))]


def test_fewer_cores_are_told_where_a_rate_was_asked_for() -> None:
    subject = asked(target_of(), rate=18e6)
    assert subject.plan.cores >= 1
    questions = Questions(subject)
    assert questions.now.fewest == subject.plan.cores
    gain = questions.gain(target=varied(subject.target, faster={"nic-cycles": 3.0, "engine": 3.0}))
    assert (gain.cores, gain.cores_now) == (0, subject.plan.cores)
    assert f"0 instead of {subject.plan.cores} host cores" in gain_text(gain)


def test_a_target_is_varied_in_what_was_asked_and_can_be_made_again() -> None:
    target = target_of(refused=frozenset({("deny", "nic")}))
    other = varied(target, faster={"engine": 2.0}, room={("nic", "fast"): 7}, lifted=lambda r: r.subject == "deny")
    for made in (other, type(other)(target.model)):
        rates = {r.name: r.rate for r in made.resources(100)}
        before = {r.name: r.rate for r in target.resources(100)}
        assert rates == {**before, "engine": 2 * before["engine"]}
        assert [t.capacity for t in made.places[0].tiers] == [107, 10_000]
        program = nat_like()
        assert isinstance(target.block(program, program.block("deny"), 0), Refusal)
        assert made.block(program, program.block("deny"), 0) == {}
        assert made.block(program, program.block("known"), 0) == target.block(program, program.block("known"), 0)


def test_an_obstacle_is_lifted_and_told_with_its_line() -> None:
    subject = asked(target_of(refused=frozenset({("known", "nic")})), cores=1)
    found = changes.changes_of(Questions(subject))
    (obstacle,) = [c for c in found.helpful if c.obstacles]
    free = plan(subject.program, subject.profile, target_of(), cores=1)
    assert obstacle.bound and obstacle.gain.throughput_pps is not None
    # The block costs nothing where it was refused, so it is no less than where it is allowed at its price.
    assert obstacle.gain.throughput_pps >= free.throughput_pps * 0.999
    assert obstacle.share == pytest.approx(0.9)
    text = changes_text(found)
    assert "this place cannot run it" in text and "case.nf:11:1" in text and "at most +" in text
    assert "keeps 90.0 % of the packets from going on there" in text


def test_what_uses_a_state_that_cannot_be_there_is_no_obstacle() -> None:
    refused = frozenset({("conns", "nic"), ("known", "nic"), ("deny", "nic")})
    questions = Questions(asked(target_of(refused=refused), cores=1))
    assert all(not c.obstacles for c in changes.changes_of(questions).helpful)
    assert changes.count(questions) == len(variants_of(questions.subject.program, questions.subject.profile))


def test_a_smaller_capacity_is_a_change_of_the_program() -> None:
    target = target_of({"engine": 5e7}, tiers={**FakeTarget.tiers, "nic": (Tier("fast", 30), Tier("slow", 10_000))})
    subject = asked(target, cores=0)
    found = changes.changes_of(Questions(subject))
    change = next(c for c in found.helpful if "conns" in c.change)
    assert "`capacity 16;`" in change.change and "this traffic has 10 at most" in change.price
    smaller = replace(subject.program, states=tuple(
        replace(s, capacity=16) if s.name == "conns" and isinstance(s, MapState) else s
        for s in subject.program.states))
    true = plan(smaller, nat_profile(smaller), target, cores=0)
    assert change.gain.throughput_pps == pytest.approx(true.throughput_pps, rel=2e-3)
    assert "case.nf:3:1" in changes_text(found)


def test_room_is_the_next_power_of_two_above_the_peak_with_reserve() -> None:
    program = nat_like()
    conns = program.state("conns")
    assert isinstance(conns, MapState)
    for peak, enough in ((0, 16), (12, 16), (13, 16), (52, 128), (1000, 2048), (26, 32)):
        profile = replace(nat_profile(program), states={"conns": StateUse("map", entries_peak=peak)})
        assert enough_for(profile, conns) == enough, peak


def test_plans_of_other_inputs_are_refused() -> None:
    host = registry.get("host")
    program = nat_like()
    profile = nat_profile(program)
    made = plan(program, profile, host, cores=1)
    assert subject_of(made, program, profile).target.name == "host"
    other = replace(program, name="other")

    def refused(plan: Plan, *inputs: object) -> str:
        with pytest.raises(CoraError) as caught:
            subject_of(plan, *inputs)  # type: ignore[arg-type]  # pairs of a program and a profile
        assert caught.value.diagnostics[0].kind is Kind.PLAN_INPUTS
        return str(caught.value)

    assert "another program" in refused(made, other, nat_profile(other))
    assert "another profile" in refused(made, program, nat_profile(program, known=89))
    assert "other figures of host" in refused(replace(made, model_digest="0" * 64), program, profile)


def test_the_text_names_what_binds_and_who_uses_it() -> None:
    subject = asked(target_of(), cores=2)
    text = why(subject.plan)
    assert f"{subject.plan.binding} at nic" in text and "the binding resource" in text
    assert "conns: accesses at nic" in text and "case.nf:10" in text and "by path: " in text
    assert all(s.name in text for s in subject.plan.states)
    rows = sensitivity.sensitivity(Questions(subject))
    assert "not asked, mostly free: link" in more_text(rows, ("link",)) and "P10 to P90" in more_text(rows)
