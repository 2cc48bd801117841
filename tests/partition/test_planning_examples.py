"""The example NFs, planned for the NICs that ship, on the capture that ships."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from placement_oracle import summed_baselines

import cora
from cora.analysis.profile import Profile
from cora.ir.nodes import Program
from cora.models.registry import get
from cora.partition import plan, verify_plan
from cora.partition.instance import build
from cora.plan.document import plan_from_json
from cora.plan.render import explain, summary

ROOT = Path(__file__).resolve().parent.parent.parent
NFS = ("nat", "firewall", "policer")
NICS = ("agilio-cx", "bluefield2", "host")


@lru_cache(maxsize=4)
def case(nf: str) -> tuple[Program, Profile]:
    program = cora.load(ROOT / "examples" / f"{nf}.nf")
    return program, cora.profile(program, ROOT / "examples" / "captures" / "office.pcap")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nic", NICS)
@pytest.mark.parametrize("nf", NFS)
def test_planned_and_checked(nf: str, nic: str) -> None:
    program, profile = case(nf)
    target = get(nic)
    for rate, cores in ((5e6, None), (None, 2)):
        # Long enough for a busy machine: what is tested is the proof, not its speed.
        made = plan(program, profile, target, rate_pps=rate, cores=cores, time_limit=120)
        verify_plan(made, program, profile, target)
        assert made.evidence.status == "optimal"
        assert made.evidence.gap is not None and made.evidence.gap <= 1e-3
        assert plan_from_json(made.to_json()) == made
        best = (made.cores, 0.0) if rate else (0, -made.throughput_pps)
        for other in made.alternatives:
            if other.legal and rate:
                assert other.cores is None or other.cores >= best[0]
            elif other.legal:
                assert -(other.throughput_pps or 0) >= best[1] * (1 + 1e-3)
        for state in made.states:
            for move in state.moves:
                there = [a for a in made.alternatives if a.states.get(state.name, "").startswith(f"{move.place}/")]
                assert all((move.throughput_pps or 0) >= (a.throughput_pps or 0) * (1 - 1e-6) for a in there)
        assert program.name in summary(made)
        assert "%" not in "".join(c.verdict for c in made.classes)
        for state in made.states:
            assert state.name in explain(made, state.name)
            assert state.source.text


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nic", NICS)
def test_both_solvers_reach_the_same(nic: str) -> None:
    program, profile = case("nat")
    highs, cbc = (plan(program, profile, get(nic), rate_pps=8e6, solver=s) for s in ("highs", "cbc"))
    assert highs.cores == cbc.cores
    assert highs.throughput_pps == pytest.approx(cbc.throughput_pps, rel=1e-3)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nic", NICS)
@pytest.mark.parametrize("nf", NFS)
def test_uses_add_up_to_the_demand(nf: str, nic: str) -> None:
    program, profile = case(nf)
    instance = build(program, profile, get(nic))
    for placement, total in summed_baselines(instance):
        np.testing.assert_allclose(total, placement.demand, rtol=1e-9, atol=1e-9)


@pytest.mark.needs("gcc")
def test_a_higher_rate_never_takes_fewer_cores() -> None:
    program, profile = case("nat")
    cores = [plan(program, profile, get("host"), rate_pps=r * 1e6).cores for r in (1, 5, 12, 20, 30)]
    assert cores == sorted(cores)
    assert cores[0] == 1 < cores[-1]


@pytest.mark.needs("gcc")
def test_whole_numbers_in_a_request_are_read_back() -> None:
    program, profile = case("policer")
    made = plan(program, profile, get("host"), cores=2, time_limit=20, headroom=0, max_latency_ns=10**9)
    assert plan_from_json(made.to_json()) == made


@lru_cache(maxsize=2)
def long_flows(nf: str) -> tuple[Program, Profile]:
    """Traffic of few, long flows."""
    program = cora.load(ROOT / "examples" / f"{nf}.nf")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "long.pcap"
        cora.traffic({"packets": "20000", "flows": "200"}, trace)
        return program, cora.profile(program, trace, captured_at="inside")


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("nic", ["agilio-cx", "bluefield2"])
def test_flows_are_lent_where_the_card_is_too_small_for_the_table(nic: str) -> None:
    program, profile = long_flows("nat")
    target = get(nic, host_model="published")
    made = plan(program, profile, target, rate_pps=5e6, max_nic_memory=200_000)
    verify_plan(made, program, profile, target)
    conns = made.state("conns")
    assert conns.decision == "split" and conns.place == "host"
    assert conns.lent is not None and conns.lent.share > 0.5
    assert made.state("translated_out").decision == "partial"
    others = {a.name: a for a in made.alternatives}
    assert (others["no split"].host_work or 0) > 1.5 * (made.figure("host work").value or 0)
    assert plan_from_json(made.to_json()) == made
    assert "of packets find their entry lent" in summary(made)
    again = plan(program, profile, target, rate_pps=5e6, max_nic_memory=200_000)
    assert replace(again, evidence=made.evidence) == made
    # The parts of the plan do what the program does.
    assert cora.verify(made, program, packets=1000, seeds=1).equal
