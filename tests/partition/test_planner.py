"""Plans as a user gets them: monotone in what is asked, explained when refused, checked when tampered with."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from planning_fakes import (
    FIGURES,
    NAT_LIKE,
    nat_like,
    nat_profile,
    random_profile,
    random_program,
    random_target,
    target_of,
)

from cora.analysis.profile import StateUse
from cora.errors import CoraError, Kind
from cora.ir.text import parse_program
from cora.ir.verify import verify
from cora.models.target import Tier
from cora.partition import plan, verify_plan
from cora.partition.optimise import Optimiser, OutOfTime
from cora.partition.planner import placement_of
from cora.partition.telling import Teller
from cora.plan.document import Plan


def planned(**wanted: Any) -> Plan:
    figures = wanted.pop("figures", {})
    changes = wanted.pop("changes", {})
    program = nat_like()
    made = plan(program, nat_profile(program), target_of(figures, **changes), **wanted)
    verify_plan(made, program, nat_profile(program), target_of(figures, **changes))
    return made


def refused(**wanted: Any) -> CoraError:
    with pytest.raises(CoraError) as caught:
        planned(**wanted)
    return caught.value


def test_a_rate_that_the_card_carries_alone_takes_no_core() -> None:
    made = planned(rate_pps=5e6)
    assert made.cores == 0
    assert {s.place for s in made.states} == {"nic"}
    assert made.throughput_pps >= 5_000_000
    assert all(b.place == "nic" for b in made.blocks)
    assert made.evidence.status == "optimal"
    assert made.evidence.gap == 0.0


def test_a_higher_rate_never_takes_fewer_cores() -> None:
    cores = [planned(rate_pps=r * 1e6).cores for r in (1, 5, 10, 14, 16, 18, 20)]
    assert cores == sorted(cores)
    assert cores[0] == 0
    assert cores[-1] > 1


def test_more_cores_never_carry_less() -> None:
    rates = [planned(cores=c).throughput_pps for c in range(5)]
    assert all(b >= a * (1 - 1e-3) for a, b in pairwise(rates))
    assert rates[-1] > rates[0]


def test_the_core_count_of_a_rate_is_enough_and_one_less_is_not() -> None:
    for rate in (16_000_000, 18_000_000, 20_000_000):
        made = planned(rate_pps=rate)
        assert planned(cores=made.cores).throughput_pps >= rate * (1 - 1e-3)
        assert planned(cores=made.cores - 1).throughput_pps < rate


def test_dear_memory_near_the_wire_moves_the_state_away() -> None:
    near = planned(rate_pps=8e6)
    far = planned(rate_pps=8e6, figures={"access_fast": 200.0, "access_slow": 200.0})
    assert near.state("conns").place == "nic"
    assert far.state("conns").place == "host"


def test_a_small_memory_moves_the_state_to_a_larger_one() -> None:
    # Both tables take 60; the fast memory holds 100.
    small = planned(rate_pps=1e6, changes={"tiers": {"nic": (Tier("fast", 70), Tier("slow", 10_000)),
                                                     "host": (Tier("dram", 10**9),)}})
    kept = {s.name: s.tier for s in small.states}
    assert sorted((kept["conns"], kept["peers"])) == ["fast", "slow"]
    assert kept["conns"] == "fast"  # it is used twenty times as often


def test_a_code_store_too_small_moves_code_to_the_host() -> None:
    made = planned(rate_pps=1e6, changes={"code": {"nic": 10, "host": None}})
    assert planned(rate_pps=1e6).cores == 0
    assert made.cores == 1
    # `order strict` keeps the ends of a flow together, so both of them move.
    assert {b.place for b in made.blocks if b.block in ("known", "done")} == {"host"}


def test_a_plan_that_lets_packets_overtake_is_refused() -> None:
    """New packets are forwarded at the host, known ones on the card."""
    program, target = nat_like(), target_of(code={"nic": 10, "host": None})
    made = plan(program, nat_profile(program), target, rate_pps=1e6)
    near = replace(made, blocks=tuple(replace(b, place="nic") if b.block in ("entry", "known") else b
                                      for b in made.blocks))
    with pytest.raises(CoraError) as refused:
        verify_plan(near, program, nat_profile(program), target)
    assert any(d.message == "`order strict` of 'conns' (line 3) and 'peers' (line 4) keeps all packets of a flow that "
                            "are forwarded at one place: block known ends at nic, block done at host"
               for d in refused.value.diagnostics)
    weak = verify(parse_program(NAT_LIKE.replace("exact strict_order -", "exact - -")))
    free = plan(weak, nat_profile(weak), target, rate_pps=1e6)
    assert {b.place for b in free.blocks if b.block in ("known", "done")} == {"nic", "host"}


def test_three_places_use_the_middle_one() -> None:
    made = planned(rate_pps=5e6, changes={"chain": ("nic", "arm", "host"), "refused": frozenset({("conns", "nic")})},
                   figures={"arm_rate": 4e9})
    assert made.cores == 0
    assert made.state("conns").place == "arm"
    assert made.state("peers").place == "arm"
    assert any(c.from_place == "nic" and c.to_place == "arm" for c in made.crossings) \
        or {b.place for b in made.blocks} == {"arm"}


def test_expiries_are_charged_as_deletes() -> None:
    program = nat_like()
    quiet = nat_profile(program)
    dying = replace(quiet, states={"conns": StateUse("map", expiries=100)})
    without, with_expiry = (plan(program, p, target_of(), cores=0) for p in (quiet, dying))
    engine = [next(r.per_packet for r in p.resources if r.name == "engine") for p in (without, with_expiry)]
    assert engine[1] > engine[0]


def test_an_infinite_demand_means_impossible() -> None:
    made = planned(rate_pps=1e6, figures={"access_fast": float("inf"), "access_slow": float("inf")})
    assert {s.place for s in made.states} == {"host"}
    assert any("it has no lookup" in r.reason for r in made.refusals)


def test_a_rate_out_of_reach_says_how_much_there_is_and_what_runs_out() -> None:
    error = refused(rate_pps=500e6)
    first = error.diagnostics[0]
    assert first.kind is Kind.NO_PLAN
    assert first.message == ("fake cannot carry 500.00 Mpps of this traffic even with 64 host cores; the most is "
                             "25.24 Mpps")
    assert first.notes[0][0] == "what runs out is link: a packet takes 198 bytes, available: 5 GB/s"
    assert first.hint is not None
    promised = float(first.hint.split("--rate ")[1].split("Mpps")[0]) * 1e6
    assert planned(rate_pps=promised).throughput_pps >= promised


def test_a_line_rate_out_of_reach_is_answered_in_line_rates() -> None:
    # Frames of 100 octets take 124 on the line.
    error = refused(rate_pps=100e9 / (8 * 124), line_bps=100 * 10**9, cores=64)
    first = error.diagnostics[0]
    assert first.message == ("fake cannot carry 100 Gbps on the line (100.81 Mpps) of this traffic even with 64 host "
                             "cores; the most is 25.04 Gbps on the line (25.24 Mpps)")
    assert first.hint == "ask for --rate 25.03Gbps or less"


def test_a_state_elsewhere_is_never_said_to_carry_less_than_a_placement_that_is_shown() -> None:
    for wanted in ({"rate_pps": 5e6}, {"rate_pps": 18e6}, {"cores": 0}, {"cores": 2}, {"cores": 4},
                   {"rate_pps": 14e6, "changes": {"chain": ("nic", "arm", "host")}},
                   {"cores": 1, "changes": {"chain": ("nic", "arm", "host")}}):
        contradictions(planned(**wanted))


@pytest.mark.parametrize("seed", range(20))
def test_random_plans_do_not_contradict_themselves(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    profile, target = random_profile(rng, program), random_target(rng, program)
    for wanted in ({"rate_pps": rng.choice((1e6, 3e6, 8e6))}, {"cores": rng.choice((1, 2, 4))}):
        try:
            made = plan(program, profile, target, **wanted)
        except CoraError as error:
            assert error.diagnostics[0].kind is Kind.NO_PLAN
            continue
        verify_plan(made, program, profile, target)
        contradictions(made)


def contradictions(made: Plan) -> None:
    """No move is worse than a placement beside the plan that has the state at that place."""
    for state in made.states:
        for move in state.moves:
            for other in made.alternatives:
                if not other.legal or not other.states[state.name].startswith(f"{move.place}/"):
                    continue
                assert move.possible
                assert (move.throughput_pps or math.inf) >= (other.throughput_pps or 0) * (1 - 1e-6)
                if other.cores is not None:
                    assert move.cores is not None and move.cores <= other.cores


def test_a_table_that_is_too_large_is_told_the_largest_memory() -> None:
    made = planned(rate_pps=1e6, changes={"tiers": {"nic": (Tier("fast", 40), Tier("slow", 50)),
                                                    "host": (Tier("dram", 10**9),)}})
    told = [r.reason for r in made.refusals if r.subject == "conns" and r.place == "nic"]
    assert told == ["no memory of nic holds 'conns': the largest that could, slow, has 50 B, with its declared "
                    "capacity it needs 60 B; the largest capacity that fits is 50"]
    assert told[0] in made.state("conns").reason


def test_no_move_is_known_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Teller, "elsewhere", lambda *_: ([], False))
    made = planned(cores=2)
    contradictions(made)
    assert all(m.possible or "time limit" in m.reason for s in made.states for m in s.moves)


def test_latency_is_told_where_queues_are_finite() -> None:
    made = planned(cores=2)
    figure = made.figure("latency at 90 % of the throughput")
    assert figure.value is not None and figure.high is not None
    assert figure.value > (made.figure("unloaded latency").value or 0)
    assert planned(rate_pps=5e6).figure("latency at the asked rate").value is not None


def test_too_few_cores_says_how_many_it_takes() -> None:
    error = refused(rate_pps=18e6, cores=1)
    hint = error.diagnostics[0].hint or ""
    needed = int(hint.split("--cores ")[1])
    assert planned(rate_pps=18e6, cores=needed).cores == needed
    refused(rate_pps=18e6, cores=needed - 1)


def test_a_state_nobody_takes_is_named_with_the_reasons() -> None:
    error = refused(rate_pps=1e6, changes={"refused": frozenset({("conns", "nic"), ("conns", "host")})})
    first = error.diagnostics[0]
    assert first.kind is Kind.NO_PLAN
    assert first.message == "no place of fake can keep conns"
    assert str(first.span) == "case.nf:3:1"
    assert [n[0] for n in first.notes] == ["nic: it may not be here", "host: it may not be here"]


def test_code_nobody_takes_is_named() -> None:
    error = refused(rate_pps=1e6, changes={"refused": frozenset({("deny", "nic"), ("deny", "host")})})
    assert error.diagnostics[0].message == "no place of fake can take block deny together"


def test_states_that_do_not_fit_together() -> None:
    tiers = {"nic": (Tier("fast", 70),), "host": (Tier("dram", 70),)}
    error = refused(rate_pps=1e6, changes={"tiers": tiers})
    message = error.diagnostics[0].message
    assert "states and code do not fit into fake together: conns needs 60; peers needs 60" in message


def test_paths_that_would_go_back_towards_the_wire() -> None:
    # conns (asked first and last) near the wire only, peers in between at the host only.
    changes = {"refused": frozenset({("conns", "host"), ("peers", "nic")})}
    error = refused(rate_pps=1e6, changes=changes)
    assert error.diagnostics[0].kind is Kind.NO_PLAN
    assert "conns, peers, hits and the code that uses them together" in error.diagnostics[0].message


def test_without_a_core_something_has_to_give() -> None:
    error = refused(cores=0, changes={"refused": frozenset({("peers", "nic")})})
    assert "without a host core there is no plan" in error.diagnostics[0].message
    assert error.diagnostics[0].hint == "give it one: --cores 1"


@pytest.mark.parametrize(("wanted", "where"), [
    ({}, "--rate, --cores"), ({"rate_pps": 0.0}, "--rate"), ({"rate_pps": float("inf")}, "--rate"),
    ({"rate_pps": float("nan")}, "--rate"), ({"cores": -1}, "--cores"), ({"cores": 1, "solver": "glpk"}, "--solver"),
    ({"cores": 1, "time_limit": 0.0}, "--time-limit"),
])
def test_senseless_requests(wanted: dict[str, Any], where: str) -> None:
    error = refused(**wanted)
    assert (error.diagnostics[0].kind, error.diagnostics[0].where) == (Kind.BAD_FLAG, where)


def test_a_profile_of_another_program_is_refused() -> None:
    program = nat_like()
    other = replace(nat_profile(program), program_hash="0" * 64)
    with pytest.raises(CoraError, match="of another program or another version") as caught:
        plan(program, other, target_of(), cores=1)
    assert caught.value.diagnostics[0].kind is Kind.PROFILE_MISMATCH


def test_out_of_time_falls_back_on_the_simple_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_time(*_: object) -> None:
        raise OutOfTime

    monkeypatch.setattr(Optimiser, "least_host", no_time)
    made = planned(rate_pps=5e6)
    assert made.evidence.status == "feasible: the time limit ended the search"
    assert made.evidence.bound is None
    assert made.throughput_pps >= 5_000_000


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_out_of_time_later_keeps_what_was_found(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first goals' results stand when the time ends before the later ones."""
    calls = 0
    whole = Optimiser.best

    def some(self: Optimiser, *args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > kept:
            raise OutOfTime
        return whole(self, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Optimiser, "best", some)
        made = planned(rate_pps=18e6)
    full = planned(rate_pps=18e6)
    assert made.cores == full.cores
    assert made.figure("host work").value == pytest.approx(full.figure("host work").value, rel=1e-3)


def test_a_target_that_uses_what_it_does_not_have() -> None:
    program = nat_like()
    target = target_of()
    target.wire = lambda mean_frame: {"nonsense": 1.0}  # type: ignore[method-assign]
    with pytest.raises(CoraError, match="uses nonsense") as caught:
        plan(program, nat_profile(program), target, cores=1)
    assert caught.value.diagnostics[0].kind is Kind.BAD_TARGET


# Tampering: each change breaks one rule, and the message names it.

def tampered(change: Any, **wanted: Any) -> str:
    program = nat_like()
    profile, target = nat_profile(program), target_of()
    made = plan(program, profile, target, **(wanted or {"cores": 2}))
    with pytest.raises(CoraError) as caught:
        verify_plan(change(made), program, profile, target)
    assert all(d.kind is Kind.PLAN_CHECK for d in caught.value.diagnostics)
    return caught.value.render()


def moved_block(made: Plan, label: str, place: str) -> Plan:
    return replace(made, blocks=tuple(replace(b, place=place) if b.block == label else b for b in made.blocks))


def moved_state(made: Plan, name: str, **where: Any) -> Plan:
    return replace(made, states=tuple(replace(s, **where) if s.name == name else s for s in made.states))


def test_tampering_is_found() -> None:
    assert "would go back from host to nic" in tampered(lambda p: moved_block(p, "entry", "host"))
    assert "uses conns, which is at nic" in tampered(lambda p: moved_block(p, "entry", "host"))
    assert "uses conns, which is at host" in tampered(lambda p: moved_state(p, "conns", place="host", tier="dram"))
    assert "state conns cannot be kept in dram of nic" in tampered(lambda p: moved_state(p, "conns", tier="dram"))
    assert "fast of nic would hold 124 bytes, it has 100" in tampered(
        lambda p: moved_state(moved_state(p, "conns", tier="fast"), "peers", tier="fast"))
    assert "times the capacity there is" in tampered(lambda p: replace(p, throughput_pps=p.throughput_pps + 2000))
    assert "capacity there is" in tampered(lambda p: replace(p, cores=1), rate_pps=18e6)
    assert "no host core, but something is at the host" in tampered(lambda p: replace(p, cores=0))
    assert "state peers has no place" in tampered(
        lambda p: replace(p, states=tuple(s for s in p.states if s.name != "peers")))
    assert "at a place the target does not have" in tampered(lambda p: replace(p, blocks=p.blocks[:-1]))
    assert "in a class the program does not have" in tampered(
        lambda p: replace(p, blocks=(*p.blocks, replace(p.blocks[0], block="nowhere"))))
    assert "the plan is for another profile" in tampered(lambda p: replace(p, profile_digest="0"))
    assert "the plan is for another model" in tampered(lambda p: replace(p, model_digest="0"))
    assert "the plan is for another program" in tampered(lambda p: replace(p, program_hash="0"))
    assert "the plan says 0.1 of port is used" in tampered(
        lambda p: replace(p, resources=(replace(p.resources[0], utilisation=0.1), *p.resources[1:])))
    assert "asked were 5000000" in tampered(lambda p: replace(p, throughput_pps=4_000_000), rate_pps=5e6)


def test_the_document_stands_for_the_placement_it_was_made_of() -> None:
    from cora.partition.instance import build

    program = nat_like()
    made = plan(program, nat_profile(program), target_of(), cores=2)
    instance = build(program, nat_profile(program), target_of())
    placement = placement_of(made, instance)
    assert [instance.target.places[p].name for p in placement.nodes] == [b.place for b in made.blocks]


def test_same_input_same_plan() -> None:
    a, b = planned(cores=2), planned(cores=2)
    assert replace(a, evidence=b.evidence) == b


def test_both_solvers_make_the_same_plan() -> None:
    a, b = planned(rate_pps=18e6), planned(rate_pps=18e6, solver="cbc")
    assert (a.cores, a.states, a.blocks) == (b.cores, b.states, b.blocks)
    assert "CBC" in b.evidence.solver


def test_alternatives_are_never_said_to_be_better() -> None:
    for wanted in ({"rate_pps": 5e6}, {"rate_pps": 18e6}, {"cores": 0}, {"cores": 2}):
        made = planned(**wanted)
        assert [a.name for a in made.alternatives][:4] == ["host-only", "traffic-only", "state-only", "greedy"]
        for other in made.alternatives:
            if not other.legal:
                continue
            if made.request.rate_pps is not None:
                assert other.cores is None or other.cores >= made.cores
            elif made.cores or all("host" not in where for where in other.states.values()):
                assert (other.throughput_pps or 0) <= made.throughput_pps * (1 + 1e-3)


def test_bands_of_ratios_compare_sample_by_sample() -> None:
    made = planned(cores=2)
    for other in made.alternatives:
        if not other.legal:
            assert other.ratio_low is None and other.ratio_high is None
            continue
        assert other.throughput_pps and other.ratio_low and other.ratio_high and other.low and other.high
        ratio = made.throughput_pps / other.throughput_pps
        assert other.ratio_low * 0.999 <= ratio <= other.ratio_high * 1.001
        # Both placements get faster and slower with the same samples: the ratio is surer than its two throughputs.
        reach = made.figure("throughput")
        assert reach.low and reach.high
        assert other.ratio_low >= reach.low / other.high * 0.99 and other.ratio_high <= reach.high / other.low * 1.01
        if other.note == "the plan itself":
            assert (other.ratio_low, other.ratio_high) == (1.0, 1.0)
    asked = planned(rate_pps=18e6)
    host = next(a for a in asked.alternatives if a.name == "host-only")
    assert host.cores is not None and host.cores_low is not None and host.cores_high is not None
    assert host.cores_low <= host.cores <= host.cores_high


def test_figures_are_in_their_bands_and_follow_the_soft_minimum() -> None:
    made = planned(cores=2)
    for figure in made.figures:
        assert figure.kind == "predicted"
        assert figure.value is not None and figure.low is not None
        assert figure.low <= figure.value
        assert figure.high is None or figure.value <= figure.high
    total = sum((r.per_packet * made.throughput_pps / r.rate) ** 8 for r in made.resources if r.per_packet)
    assert total == pytest.approx(1.0, rel=1e-4)
    assert made.binding == max(made.resources, key=lambda r: r.utilisation).name


def test_a_certain_model_has_no_band() -> None:
    from cora.models.parameters import Model

    program = nat_like()
    target = target_of()
    certain: Model = target.model.pinned({n: target.model[n] for n in (*FIGURES, "softmin_exponent")})
    made = plan(program, nat_profile(program), type(target)(certain), cores=2)
    figure = made.figure("throughput")
    assert figure.low == figure.high == pytest.approx(figure.value, rel=1e-5)
    asked = plan(program, nat_profile(program), type(target)(certain), rate_pps=5e6)
    assert asked.samples_met == asked.samples
