"""Plans that lend entries: against trying every split and every placement, and what makes them worth it or not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from lending_cases import Mode, lending_target, tracked, traffic
from placement_oracle import best_for_cores, best_for_rate, demand_by_paths, every_placement, is_legal

from cora.analysis.prefixes import Lent, expand
from cora.errors import CoraError
from cora.ir.nodes import successors
from cora.partition import plan, verify_plan
from cora.partition.instance import Instance, build
from cora.partition.prices import Prices
from cora.partition.splits import splits_of
from cora.partition.uncertainty import uses_of
from cora.partition.units import units_of
from cora.partition.variants import WHOLE, Variant
from cora.plan.document import plan_from_json
from cora.plan.parts import parts_of

POINTS = ((8, 1, 0.5, 0.01), (30, 1, 0.9, 0.05), (30, 4, 0.8, 0.01))


def instances(seed: int, mode: Mode = "resume", **changes: object) -> list[Instance]:
    """All variants of a random case; the first has no split."""
    rng = random.Random(seed)
    program = tracked("strict" if seed % 2 else "weak")
    figures = {n: v * rng.choice((0.5, 1.0, 2.0)) for n, v in
               {"host_rate": 3e9, "install": 2000.0, "recall": 500.0, "cross": 30.0, "access_fast": 1.0}.items()}
    target = lending_target(mode, figures, **changes)
    prices = Prices(program, traffic(program, rng, POINTS, mode), target)
    variants = [WHOLE, *(Variant(s) for s in splits_of(prices))]
    return [build(program, prices.profile, target, v, prices) for v in variants]


def planned_for(seed: int, mode: Mode = "resume", **wanted: object) -> tuple[list[Instance], object]:
    found = instances(seed, mode)
    first = found[0]
    return found, plan(first.program, first.profile, first.target, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["resume", "restart"])
def test_the_best_of_all_splits_is_found_for_a_rate(seed: int, mode: Mode) -> None:
    found = instances(seed, mode)
    first = found[0]
    rate = random.Random(seed).choice((2e6, 6e6, 1.2e7))
    tried = [best for i in found if (best := best_for_rate(i, units_of(i), rate, 6)) is not None]
    try:
        made = plan(first.program, first.profile, first.target, rate_pps=rate, cores=6)
    except CoraError:
        assert not tried
        return
    verify_plan(made, first.program, first.profile, first.target)
    cores, work = min(tried)
    assert made.cores == cores
    assert made.figure("host work").value == pytest.approx(work, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_all_splits_is_found_for_cores(seed: int) -> None:
    found = instances(seed)
    first = found[0]
    made = plan(first.program, first.profile, first.target, cores=1)
    best = max(b for i in found if (b := best_for_cores(i, units_of(i), 1)) is not None)
    assert made.throughput_pps == pytest.approx(best, rel=2e-3)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("mode", ["resume", "restart"])
def test_three_accounts_of_a_split_agree(seed: int, mode: Mode) -> None:
    rng = random.Random(seed)
    for instance in instances(seed, mode)[1:]:
        placements = list(every_placement(instance, units_of(instance)))
        for placement in rng.sample(placements, min(3, len(placements))):
            walked = demand_by_paths(placement)
            names = [r.name for r in instance.resources]
            expected = [walked.get(n, 0.0) for n in names] + [walked["latency"]]
            np.testing.assert_allclose(placement.demand, expected, rtol=1e-9)
            total = np.zeros(len(expected))
            for often, _, ask in uses_of(placement):
                demand, latency = ask(instance.target)
                total += often * np.array([*(demand.get(n, 0.0) for n in names), latency])
            np.testing.assert_allclose(placement.demand, total, rtol=1e-9)
            assert is_legal(placement)


@pytest.mark.parametrize("mode", ["resume", "restart"])
def test_every_packet_is_on_one_way_through_the_graph(mode: Mode) -> None:
    """Packets that enter a node leave it, and each path's packets end where the path does."""
    for instance in instances(3, mode):
        graph = instance.graph
        came, went = [0] * len(graph.nodes), [0] * len(graph.nodes)
        for edge in graph.edges:
            assert edge.source < edge.target
            went[edge.source] += edge.packets
            came[edge.target] += edge.packets
        assert graph.nodes[0].packets == graph.packets
        for number, node in enumerate(graph.nodes):
            assert number == 0 or came[number] == node.packets
            if not (node.piece.last and not successors(node.piece.block.terminator)):
                assert went[number] == node.packets
        ends = sum(n.packets for n in graph.nodes
                   if n.piece.last and not successors(n.piece.block.terminator))
        assert ends == graph.packets


def test_a_lent_packet_that_deletes_its_entry_goes_to_the_owner_just_before() -> None:
    instance = instances(3)[1]
    graph = instance.graph
    left = [(graph.nodes[e.source], graph.nodes[e.target], e) for e in graph.edges
            if graph.nodes[e.source].lent and not graph.nodes[e.target].lent]
    assert left
    for source, target, edge in left:
        assert source.accesses == () or all(name in ("conns lent", "hits") for name, _ in source.accesses)
        assert edge.live_bytes >= 4 or target.history is None  # the number of the entry travels along
    observed = [t for _, t, e in left if e.packets or t.history is not None]
    assert any(("conns", "delete") in t.accesses for t in observed)
    assert all(("conns", "delete") not in n.accesses for n in graph.nodes if n.lent)


@pytest.mark.parametrize("mode", ["resume", "restart"])
def test_the_document_stands_for_the_split(mode: Mode) -> None:
    """A plan that splits is read back, checked, cut into parts, and found to be tampered with."""
    program = tracked()
    rng = random.Random(1)
    profile = traffic(program, rng, POINTS, mode)
    target = lending_target(mode, {"install": 10.0, "recall": 10.0, "nic_rate": 1e10})
    made = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",))
    assert made.state("conns").decision == "split"
    verify_plan(made, program, profile, target)
    assert plan_from_json(made.to_json()) == made
    way = next(s for s in made.steering if s.chosen is not None)
    assert way.chosen is not None and way.mode == mode
    assert "left: ipv4.src -> conns" in way.keys[0]
    lent = made.state("conns").lent
    assert lent is not None and lent.entries == way.points[way.chosen].capacities[0]
    assert {b.place for b in made.blocks if b.lent} == {"nic"}
    split = parts_of(made, program)
    assert [p.place for p in split.parts] == ["nic", "host"]
    other = replace(way, points=(replace(way.points[0], capacities=(7,)), *way.points[1:]), chosen=0)
    with pytest.raises(CoraError, match="no admission point"):
        verify_plan(replace(made, steering=(other,)), program, profile, target)
    moved = tuple(replace(b, place="host") if b.lent else b for b in made.blocks)
    with pytest.raises(CoraError):
        verify_plan(replace(made, blocks=moved), program, profile, target)


def test_flows_too_short_to_pay_for_their_entry_stay_with_the_owner() -> None:
    """The dearer it is to lend, the fewer entries are: first all, then those of longer flows, then none."""
    program = tracked()
    profile = traffic(program, random.Random(5), ((30, 1, 0.95, 0.2), (30, 8, 0.7, 0.01)))
    chosen = []
    for install in (1.0, 300.0, 1e5):
        target = lending_target("resume", {"install": install, "recall": 0.0, "nic_rate": 1e11})
        made = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",))
        lent = made.state("conns").lent
        chosen.append(math.inf if lent is None else lent.threshold)
    assert chosen == [1, 8, math.inf]


def test_more_room_for_lent_entries_never_makes_a_plan_worse() -> None:
    program = tracked()
    profile = traffic(program, random.Random(2), POINTS)
    target = lending_target("resume", {"install": 10.0})
    work: list[float] = []
    for count in range(len(POINTS) + 1):
        (admission,) = profile.admission
        some = replace(profile, admission=(replace(admission, points=admission.points[:count]),))
        made = plan(program, some, target, rate_pps=4e6, pins=("conns=host",))
        work.append(made.figure("host work").value or 0.0)
    assert all(b <= a + 1e-9 for a, b in pairwise(work))
    assert work[-1] < work[0]


def test_copies_are_kept_where_both_sides_count() -> None:
    program = tracked()
    profile = traffic(program, random.Random(1), POINTS)
    target = lending_target("resume", {"install": 10.0, "nic_rate": 1e10})
    made = plan(program, profile, target, rate_pps=4e6, pins=("conns=host",))
    hits = made.state("hits")
    assert hits.decision == "partial"
    assert [c.place for c in hits.copies] == ["nic", "host"]
    assert "packets only add to it" in hits.reason
    conns = made.state("conns")
    assert "of packets find their entry lent and stay at nic" in conns.reason
    assert "because" in conns.reason
    assert any(a.name == "no split" for a in made.alternatives)


def test_what_a_target_does_not_lend_is_refused_in_the_programs_lines() -> None:
    from planning_fakes import target_of

    program = tracked()
    made = plan(program, traffic(program, random.Random(1), POINTS), target_of(), rate_pps=1e6)
    refused = [r for r in made.refusals if r.place == "nic by flow"]
    assert refused and refused[0].subject == "conns"
    assert refused[0].source is not None and refused[0].source.line == 4
    assert made.steering == ()


def test_without_packets_that_are_lent_the_graph_is_that_of_no_split() -> None:
    program = tracked()
    profile = traffic(program, random.Random(1), POINTS)
    plain = expand(program, profile)
    none = expand(program, profile, lent=Lent("resume", frozenset({"conns"}), frozenset(), {}))
    assert [(n.label, n.history, n.packets) for n in plain.nodes] == [(n.label, n.history, n.packets)
                                                                       for n in none.nodes]
