"""The worst traffic: costs of paths against sums made otherwise, and floods found for the shipped functions."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

import cora
from cora.analysis.paths import enumerate_paths
from cora.analysis.profile import Profile
from cora.ir.nodes import Program
from cora.models.registry import get
from cora.partition.instance import build
from cora.partition.planner import instance_of, placement_of
from cora.partition.ways import Traffic
from cora.partition.worst import Costs, all_entries, ranked, states_met
from cora.plan.document import Plan
from cora.runtime.worst import SHARES, Found, story, worst_traffic, write_flood

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"


@lru_cache(maxsize=4)
def planned(name: str, nic: str) -> tuple[Program, Profile, Plan]:
    program = cora.load(ROOT / "examples" / f"{name}.nf")
    profile = cora.profile(program, OFFICE)
    return program, profile, cora.plan(program, profile, nic, cores=2)


@lru_cache(maxsize=4)
def found(name: str, nic: str) -> Found:
    program, profile, made = planned(name, nic)
    instance = build(program, profile, get(nic))
    flood = worst_traffic(instance, placement_of(made, instance), made.cores)
    assert flood is not None
    return flood


@pytest.mark.needs("gcc")
def test_paths_weighted_by_the_profile_cost_what_the_plan_does() -> None:
    program, profile, made = planned("nat", "agilio-cx")
    instance = build(program, profile, get("agilio-cx"))
    placement = placement_of(made, instance)
    costs = Costs(instance, placement, profile.paths, made.cores)
    demands = costs.demands(Traffic(profile.mean_frame, instance.rates))
    total = sum(p.packets / profile.packets * row for p, row in zip(profile.paths, demands, strict=True))
    dying = sum(u.expiries for u in profile.states.values())
    assert dying == 0, "the capture is shorter than any time-out, so that no entry dies"
    assert total == pytest.approx(placement.demand, rel=1e-9)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nic", ["agilio-cx", "bluefield2"])
def test_no_mix_of_paths_is_worse_than_the_worst_path(nic: str) -> None:
    program, profile, made = planned("nat.ref", nic)
    instance = build(program, profile, get(nic))
    paths = list(enumerate_paths(program))
    costs = Costs(instance, placement_of(made, instance), paths, made.cores)
    demands = costs.demands(Traffic(60.0, all_entries(instance)))
    worst = min(costs.reach(d) for d in demands)
    rng = random.Random(3)
    for _ in range(200):
        weights = [rng.expovariate(1.0) ** 3 for _ in paths]
        mix = sum(w / sum(weights) * d for w, d in zip(weights, demands, strict=True))
        assert costs.reach(mix) >= worst * (1 - 1e-9)
    order = ranked(costs, costs)
    assert [r for r, _ in order] == sorted(r for r, _ in order)
    assert order[0][0] <= worst


def test_which_entries_a_path_meets() -> None:
    program = cora.load(ROOT / "examples" / "nat.ref.nf")
    met = {story(program, p): states_met(program, p) for p in enumerate_paths(program)}
    assert "conns" in met["conns.fwd hit, forward outside"]
    assert "conns" in met["conns.fwd miss, conns insert ok, forward outside"]
    assert "conns" not in met['conns.rev miss, drop "no mapping"']


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("name", "nic"), [("nat.ref", "agilio-cx"), ("policer.ref", "bluefield2")])
def test_the_flood_takes_its_path_when_profiled_and_the_plan_carries_what_is_said(name: str, nic: str,
                                                                                  tmp_path: Path) -> None:
    program, profile, made = planned(name, nic)
    flood, report = found(name, nic), found(name, nic).report
    file = tmp_path / "worst.pcap"
    count = write_flood(flood.flood, file)
    traffic = cora.profile(program, file, port_map=flood.port_map)
    assert traffic.packets == count
    main = next(p for p in traffic.paths if p.id == report.id)
    assert main.packets / count == pytest.approx(report.measured_share, abs=0.05)
    assert traffic.ports[report.port][0] == count - sum(
        n for name, (n, _) in traffic.ports.items() if name != report.port)
    # Planning the same placement for the flood itself gives the figure, summed by the planner's own tables.
    instance = build(program, profile, get(nic))
    rates = build(program, traffic, get(nic)).rates
    if flood.flood.varied:
        # A flood of new flows that lasts uses the whole table.
        whole = all_entries(instance)
        rates = {n: replace(r, entries=whole[n].entries, working_set=whole[n].working_set) for n, r in rates.items()}
    other = replace(instance, profile=traffic, rates=rates)
    costs = Costs(other, placement_of(made, instance), traffic.paths, made.cores)
    weights = [p.packets / count for p in traffic.paths]
    demands = costs.demands(Traffic(traffic.mean_frame, other.rates))
    mix = sum(w * d for w, d in zip(weights, demands, strict=True))
    assert costs.reach(mix, traffic.mean_frame) == pytest.approx(report.throughput_pps, rel=0.1)
    assert report.low_pps <= report.throughput_pps <= report.high_pps
    assert report.bound_pps is not None and report.bound_pps <= report.throughput_pps * (1 + 1e-6)


@pytest.mark.needs("gcc")
def test_the_report_tells_what_a_packet_costs_and_what_shares_of_it_leave() -> None:
    report = found("nat.ref", "agilio-cx").report
    assert [s for s, _ in report.shares] == list(SHARES)
    assert report.shares[-1][1] == pytest.approx(report.throughput_pps, rel=0.01)
    assert report.costs and sum(c.amount for c in report.costs) <= report.per_packet * (1 + 1e-5)
    lines = (ROOT / "examples" / "nat.ref.nf").read_text().splitlines()
    for cost in report.costs:
        what, _, state = cost.what.partition(" ")
        if what in ("insert", "lookup") and cost.line and state == "conns":
            assert what in lines[cost.line - 1]


@pytest.mark.needs("gcc")
def test_the_same_seed_finds_the_same() -> None:
    one = found("policer.ref", "bluefield2")
    found.cache_clear()
    assert found("policer.ref", "bluefield2").report == one.report


@pytest.mark.needs("gcc")
def test_a_flood_of_new_flows_finds_no_entry_lent(tmp_path: Path) -> None:
    """Under a plan that splits: what the plan carries of it is what a plan for that very traffic says it would."""
    program = cora.load(ROOT / "examples" / "nat.ref.nf")
    spec = {"packets": 30_000, "flows": 300, "zipf": "1.3", "size": "imix", "rate": "10Mpps"}
    cora.traffic(spec, tmp_path / "t.pcap")
    profile = cora.profile(program, tmp_path / "t.pcap", captured_at="inside")
    made = cora.plan(program, profile, "bluefield2", cores=1, time_limit=60)
    lent = made.state("conns").lent
    assert lent is not None, "this traffic is worth splitting for; another one is needed if the models change that"
    instance = instance_of(made, program, profile, get("bluefield2"))
    placement = placement_of(made, instance)
    usual = Costs(instance, placement, profile.paths, made.cores)
    demand = usual.demands(Traffic(profile.mean_frame, instance.rates))
    mean = sum(p.packets / profile.packets * row for p, row in zip(profile.paths, demand, strict=True))
    assert usual.reach(mean, profile.mean_frame) == pytest.approx(placement.throughput(made.cores), rel=1e-6)
    flood = worst_traffic(instance, placement, made.cores)
    assert flood is not None
    assert flood.report.throughput_pps < made.throughput_pps
    if flood.flood.varied:
        file = tmp_path / "worst.pcap"
        write_flood(flood.flood, file)
        traffic = cora.profile(program, file, port_map=flood.port_map)
        # No budget lends any of these flows: each has one packet.
        assert all(not point.lent for a in traffic.admission for point in a.points
                   if all(b.threshold > 1 for b in point.budgets.values()))
