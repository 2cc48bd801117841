"""What a plan may be asked to keep beside its rate, against placements tried one by one; the return leg."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from lending_cases import lending_target, tracked, traffic
from placement_oracle import every_placement
from planning_fakes import nat_like, nat_profile, profile_of, target_of

from cora.analysis.profile import Profile, WindowUse
from cora.errors import CoraError, Kind
from cora.ir.nodes import Program
from cora.ir.text import parse_program
from cora.ir.verify import verify
from cora.partition import plan, verify_plan
from cora.partition.instance import build
from cora.partition.placement import Placement
from cora.partition.units import units_of
from cora.partition.variants import WHOLE, Variant
from cora.plan.document import Plan, plan_from_json

POINTS = ((8, 1, 0.5, 0.01), (30, 4, 0.9, 0.01))


def planned(**wanted: Any) -> Plan:
    program = nat_like()
    made = plan(program, nat_profile(program), target_of(), **wanted)
    verify_plan(made, program, nat_profile(program), target_of())
    assert plan_from_json(made.to_json()) == made
    return made


def tried() -> list[Placement]:
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    return list(every_placement(instance, units_of(instance)))


def refusal(**wanted: Any) -> str:
    with pytest.raises(CoraError) as caught:
        planned(**wanted)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.kind in (Kind.NO_PLAN, Kind.BAD_FLAG)
    return f"{diagnostic.message} {diagnostic.hint} {[n for n, _ in diagnostic.notes]}"


def test_pinned_and_forbidden_states_are_where_they_may_be() -> None:
    free = planned(cores=2)
    assert free.state("conns").place == "nic"
    away = planned(cores=2, pins=("conns=host",))
    assert away.state("conns").place == "host"
    assert (away.state("conns").place, away.request.pins) == ("host", ("conns=host",))
    tier = planned(cores=2, pins=("conns=nic/slow",))
    assert (tier.state("conns").place, tier.state("conns").tier) == ("nic", "slow")
    other = planned(cores=2, forbids=("conns=nic/fast",))
    assert other.state("conns").tier != "fast"
    best = max(p.throughput(2) for p in tried() if p.states["conns"][0] == 1)
    assert away.throughput_pps == pytest.approx(best, rel=1e-3)


def test_a_plan_that_breaks_its_own_pins_is_found() -> None:
    program = nat_like()
    made = planned(cores=2)
    changed = replace(made, request=replace(made.request, pins=("conns=host",)))
    with pytest.raises(CoraError, match="cannot be kept"):
        verify_plan(changed, program, nat_profile(program), target_of())


def test_pins_that_cannot_be_are_answered_with_the_reason() -> None:
    program, target = nat_like(), target_of(refused=frozenset({("conns", "nic")}))
    with pytest.raises(CoraError, match="conns cannot be pinned to nic") as caught:
        plan(program, nat_profile(program), target, cores=1, pins=("conns=nic",))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.notes[0][0] == "nic: it may not be here"
    assert diagnostic.span is not None and diagnostic.span.line == 3
    assert "'conns=nic' and 'conns=host' contradict" in refusal(cores=1, pins=("conns=nic", "conns=host"))
    assert "contradict each other" in refusal(cores=1, pins=("conns=nic/fast",), forbids=("conns=nic",))
    forbids = ("conns=nic", "peers=host", "conns=host")
    assert "--forbid conns=nic and --forbid conns=host leave conns no place" in refusal(cores=1, forbids=forbids)


def test_reasons_name_what_was_asked_and_not_the_memory() -> None:
    made = planned(cores=2, pins=("conns=host",))
    (move,) = made.state("conns").moves
    assert (move.possible, move.reason) == (False, "--pin conns=host keeps it away")
    (move,) = planned(cores=2, forbids=("conns=host",)).state("conns").moves
    assert move.reason == "--forbid conns=host keeps it away"
    (move,) = planned(cores=2, max_nic_memory=10).state("conns").moves
    assert (move.where, move.reason) == ("nic", "--max-nic-memory 10 keeps it away")


def test_contradicting_restrictions_are_named_and_no_others() -> None:
    said = refusal(cores=2, pins=("hits=host", "conns=nic", "peers=host"))
    assert "--pin conns=nic and --pin peers=host contradict each other: conns, peers" in said and "hits=" not in said
    said = refusal(cores=2, pins=("conns=nic",), forbids=("conns=nic/fast",), max_nic_memory=10)
    assert "--pin conns=nic and --max-nic-memory 10 leave no plan" in said


@pytest.mark.parametrize("limit", [0, 60, 64, 119, 124, 200])
def test_memory_of_the_card_is_not_exceeded(limit: int) -> None:
    made = planned(cores=1, max_nic_memory=limit)

    def used(placement: Placement) -> int:
        whole = [placement.option(s) for s in placement.states]
        copies = [o for s in placement.copies for o in placement.copy_options(s)]
        return sum(o.amount for o in whole if o.place == 0) + sum(o.amount for o in copies if o.place == 0)

    best = max(p.throughput(1) for p in tried() if used(p) <= limit)
    assert made.throughput_pps == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35])
def test_headroom_stays_free(share: float) -> None:
    made = planned(cores=2, headroom=share)
    full = planned(cores=2)
    assert made.throughput_pps == pytest.approx(full.throughput_pps * (1 - share), rel=1e-3)
    asked = planned(rate_pps=5e6, headroom=share)
    assert sum(r.utilisation**8 for r in asked.resources) ** (1 / 8) <= (1 - share) * (1 + 1e-6)


def test_latency_is_kept_and_the_least_is_told() -> None:
    rate = 5e6
    latencies = [p.latency(max(64, int(p.uses_host)), rate).total for p in tried() if p.load(64, rate) <= 1]
    least = min(latencies)
    made = planned(rate_pps=rate, max_latency_ns=least * 1.01)
    told = made.figure("latency at the asked rate").value
    assert told is not None and told <= least * 1.01 * (1 + 1e-5)
    told_least = refusal(rate_pps=rate, max_latency_ns=least * 0.9)
    assert f"the least for the mean packet is {least / 1000:.2f} us" in told_least


def test_a_limit_of_latency_gives_the_highest_rate_that_keeps_it() -> None:
    free = planned(cores=1)
    unloaded = free.figure("unloaded latency").value
    assert unloaded is not None
    limit = 2 * unloaded
    made = planned(cores=1, max_latency_ns=limit)
    assert made.throughput_pps <= free.throughput_pps
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    for placement in every_placement(instance, units_of(instance)):
        faster = made.throughput_pps * 1.01
        assert placement.load(1, faster) > 1 or placement.latency(1, faster).total > limit


def test_the_window_of_a_quantile_is_planned_for() -> None:
    program = nat_like()
    profile = nat_profile(program)
    ids = [p.id for p in profile.paths]
    windows = tuple(WindowUse(i * 10**8, n, n * 100, 0, 0, ((ids[0], n - fresh), (ids[1], fresh)) if fresh else
                              ((ids[0], n),)) for i, (n, fresh) in enumerate(((10, 0), (20, 2), (70, 35))))
    profile = replace(profile, windows=windows, packets=100, octets=10_000)
    busy = plan(program, profile, target_of(), cores=1, window=1.0)
    verify_plan(busy, program, profile, target_of())
    assert busy.profile_packets == 70
    assert next(c.share for c in busy.classes if "conns.main miss" in c.history) == pytest.approx(0.5)


def test_a_warm_start_changes_nothing_but_the_way() -> None:
    for wanted in ({"rate_pps": 5e6}, {"cores": 2}, {"rate_pps": 18e6}):
        cold = planned(**wanted)
        warm = planned(**wanted, warm=cold)
        assert (warm.cores, warm.throughput_pps, warm.states) == (cold.cores, cold.throughput_pps, cold.states)
        assert "another program: it is of other" in refusal(**wanted, warm=replace(cold, program="other"))
        assert "another NIC: it is of other" in refusal(**wanted, warm=replace(cold, target="other"))


def test_the_fast_search_says_that_nothing_is_proven() -> None:
    quick, exact = planned(rate_pps=18e6, search="fast"), planned(rate_pps=18e6)
    assert quick.evidence.status == "feasible: found by the fast search"
    assert quick.cores >= exact.cores
    assert quick.figure("host work").value == pytest.approx(exact.figure("host work").value, rel=0.01)


def test_no_plan_of_the_front_is_beaten_by_any_placement() -> None:
    made = planned(rate_pps=5e6, cores=2, pareto=True)
    assert made.pareto
    keys = [(p.cores, -p.throughput_pps, p.latency_ns or float("inf"), p.nic_memory) for p in made.pareto]
    for i, one in enumerate(keys):
        assert not any(all(a <= b for a, b in zip(other, one, strict=True)) and other != one
                       for j, other in enumerate(keys) if j != i)
    for cores in {p.cores for p in made.pareto}:
        best = max(p.throughput(cores) for p in tried() if cores or not p.uses_host)
        assert max(p.throughput_pps for p in made.pareto if p.cores <= cores) == pytest.approx(best, rel=2e-3)
    assert planned(rate_pps=5e6).pareto == ()


def test_a_forbidden_place_gets_no_lent_entries() -> None:
    program = tracked()
    profile = traffic(program, random.Random(1), POINTS)
    target = lending_target("resume", {"install": 10.0, "nic_rate": 1e10})
    lent = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",))
    kept = plan(program, profile, target, rate_pps=4e6, forbids=("conns=nic",))
    assert lent.state("conns").decision == "split"
    assert kept.state("conns").decision == "whole"
    verify_plan(kept, program, profile, target)


def test_a_warm_start_of_a_split_is_a_split() -> None:
    program = tracked()
    profile = traffic(program, random.Random(1), POINTS)
    target = lending_target("resume", {"install": 10.0, "nic_rate": 1e10})
    cold = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",))
    warm = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",), warm=cold)
    assert (warm.states, warm.blocks) == (cold.states, cold.blocks)


CHECKED_FIRST = """
program small file "case.nf" @1:1-30:2
port wire faces (wire) @2:1-2:10
map conns capacity 60 slack 0 full reject exact strict_order - @3:1-3:10
  field k : u32 @3:2-3:3
  key main (k) @3:6-3:7
  timeout idle 1000 @3:8-3:9
map peers capacity 60 slack 0 full reject exact strict_order - @4:1-4:10
  field k : u32 @4:2-4:3
  key main (k) @4:6-4:7
  timeout idle 1000 @4:8-4:9
block entry () @10:1-10:2
  %size : u32 = meta size @10:3-10:4
  lookup peers "main" (%size) hit %p : ref<peers> allow miss deny @10:5-10:6
block allow () @11:1-11:2
  lookup conns "main" (%size) hit %e : ref<conns> known miss fresh @11:3-11:4
block known () @12:1-12:2
  touch %e "idle" @12:3-12:4
  forward wire @12:5-12:6
block fresh () @13:1-13:2
  insert conns (%size) [] "idle" ok %n : ref<conns> done full deny @13:3-13:4
block done () @14:1-14:2
  forward wire @14:3-14:4
block deny () @15:1-15:2
  drop "denied" @15:3-15:4
"""


def checked_first() -> Program:
    """Every packet is checked in one table, then looked up in another one, where new ones are inserted."""
    return verify(parse_program(CHECKED_FIRST))


def checked_profile(program: Program) -> Profile:
    return profile_of(program, {("entry", "allow", "known"): 90, ("entry", "allow", "fresh", "done"): 8,
                                ("entry", "deny"): 2})


RETURNING = {"refused": frozenset({("peers", "nic")}), "returns": True}


@pytest.mark.parametrize("figures", [{}, {"link": 5e10, "host_base": 10.0}, {"access_dram": 2000.0, "link": 5e10}])
def test_packets_come_back_from_the_host_where_that_is_best(figures: dict[str, float]) -> None:
    """All packets need the host before they use a table that may be on the card."""
    program = checked_first()
    profile, target = checked_profile(program), target_of(figures, **RETURNING)
    made = plan(program, profile, target, cores=1)
    verify_plan(made, program, profile, target)
    assert plan_from_json(made.to_json()) == made
    best = 0.0
    for variant in (WHOLE, Variant(returns=True)):
        instance = build(program, profile, target, variant)
        reached = [p.throughput(1) for p in every_placement(instance, units_of(instance))]
        best = max([best, *reached])
    assert made.throughput_pps == pytest.approx(best, rel=1e-3)


def test_a_return_is_told_and_charged_both_ways() -> None:
    program = checked_first()
    # The host is slow with tables, so that the second one is better on the card.
    figures = {"access_dram": 3000.0, "link": 5e10}
    profile = checked_profile(program)
    made = plan(program, profile, target_of(figures, **RETURNING), cores=1)
    legs = {b.block: (b.place, b.leg) for b in made.blocks if b.share}
    assert legs["entry"] == ("host", 0) and legs["allow"] == ("nic", 1) and legs["fresh"] == ("nic", 1)
    ways = {(c.from_place, c.to_place) for c in made.crossings if c.share}
    assert ("host", "nic") in ways
    assert made.state("conns").place == "nic"
    without = plan(program, profile, target_of(figures, refused=RETURNING["refused"]), cores=1)
    assert made.throughput_pps > without.throughput_pps
    changed = replace(made, blocks=tuple(replace(b, leg=0) for b in made.blocks))
    with pytest.raises(CoraError):
        verify_plan(changed, program, profile, target_of(figures, **RETURNING))
