"""Split plans recounted from the profile and its admission points alone, with nothing of the planner's own graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from cora.analysis.profile import AdmissionPoint, Profile
from cora.analysis.sharding import sharding_of
from cora.ir.nodes import Lookup, Program, TrackFragment
from cora.models.registry import get
from cora.plan.document import Plan

ROOT = Path(__file__).resolve().parents[2]


def split_plan(folder: Path) -> tuple[Program, Profile, Plan]:
    program = cora.load(ROOT / "examples" / "firewall.nf")
    cora.traffic({"packets": 30_000, "flows": 300, "zipf": "1.2", "size": "imix", "rate": "10Mpps", "churn": "20000"},
                 folder / "t.pcap")
    profile = cora.profile(program, folder / "t.pcap")
    return program, profile, cora.plan(program, profile, "bluefield2", cores=1, time_limit=60)


def point_of(plan: Plan, profile: Profile) -> AdmissionPoint:
    """The admission point whose budget the plan lends by."""
    lent = plan.state("conns4").lent
    assert lent is not None, "this traffic is worth splitting for; another one is needed if the models change that"
    for admission in profile.admission:
        for point in admission.points:
            budget = point.budgets.get("conns4")
            if admission.mode == lent.mode and len(point.budgets) == 1 and budget is not None and (
                    budget.capacity, budget.threshold) == (lent.entries, lent.threshold):
                return point
    raise AssertionError("the plan lends by no point of the profile")


@pytest.mark.needs("gcc")
def test_a_split_plan_says_what_its_admission_point_does(tmp_path: Path) -> None:
    program, profile, plan = split_plan(tmp_path)
    point, state = point_of(plan, profile), plan.state("conns4")
    lent, packets = state.lent, profile.packets
    assert lent is not None and state.decision == "split" and state.place == "host"
    fast = sum(n for _, n in point.lent) / packets
    assert lent.share == pytest.approx(fast, rel=1e-4)
    assert lent.installs_per_packet == pytest.approx(point.installs / packets, rel=1e-4)
    assert lent.recalls_per_packet == pytest.approx(point.recalls / packets, rel=1e-4, abs=1e-9)
    # Every packet that looks for a connection looks in the near table; who finds nothing lent looks again at the owner.
    anchors = {a.block for a in sharding_of(program)["conns4"].anchors}
    ends = {b.label: b.terminator for b in program.blocks}
    looking = sum(p.packets for p in profile.paths if anchors & set(p.blocks)
                  and not any(isinstance(ends[label], TrackFragment) for label in p.blocks)) / packets
    tables = {label: end.state for label, end in ends.items() if isinstance(end, Lookup)}
    lookups = sum(p.packets * sum(tables.get(label) == "conns4" for label in p.blocks) for p in profile.paths) / packets
    assert state.accesses["lookup"] == pytest.approx(looking + lookups - fast, rel=1e-4)
    # And goes there: nothing else takes packets from the card to the host in the middle of the program.
    moved = sum(c.share for c in plan.crossings if c.from_place == "arm" and c.to_place == "host")
    assert moved == pytest.approx(looking - fast, rel=1e-4)
    at_host = sum(c.share for c in plan.classes if c.ends == "host")
    assert at_host == pytest.approx(looking - fast, rel=1e-4)
    assert sum(c.share for c in plan.classes) == pytest.approx(
        sum(p.packets for p in profile.paths) / packets, rel=1e-4)


@pytest.mark.needs("gcc")
def test_the_host_does_the_work_of_the_packets_that_come_to_it(tmp_path: Path) -> None:
    """Between bounds that need no graph: visits and the cheapest look-up below, all the program's work above."""
    program, profile, plan = split_plan(tmp_path)
    point, target = point_of(plan, profile), get("bluefield2")
    fast = sum(n for _, n in point.lent) / profile.packets
    host = next(r for r in plan.resources if r.name == "host-cores")
    visit = target.per_packet(2)["host-cores"]
    assert host.per_packet > (1 - fast) * visit
    everything = cora.plan(program, profile, "bluefield2", cores=1, pin=[f"{s.name}=host" for s in program.states],
                           time_limit=60)
    whole = next(r for r in everything.resources if r.name == "host-cores").per_packet
    installs = point.installs / profile.packets
    lending = target.install(program, [program.state("conns4")], 1, 2, "dram", 256)
    assert isinstance(lending, dict)
    assert host.per_packet < (1 - fast) * whole * 1.35 + installs * lending.get("host-cores", 0.0)
    assert plan.throughput_pps > everything.throughput_pps
