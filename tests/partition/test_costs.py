"""What packets cost, held against the plan's resources and against costs added up by hand."""

from __future__ import annotations

import random

import pytest
from placement_oracle import demand_by_paths
from planning_fakes import nat_like, nat_profile, random_profile, random_program, random_target, target_of

from cora.errors import CoraError
from cora.partition import plan
from cora.partition.instance import build
from cora.partition.planner import placement_of
from cora.plan.costs import amounts_of, latency_of, mean_amounts, of_class, shares_of_classes, users
from cora.plan.document import LATENCY, Plan, plan_from_json


def same(plan: Plan) -> None:
    """The costs add up to the plan's resources and latency (documents keep six digits)."""
    total = mean_amounts(plan)
    for r in plan.resources:
        assert total.get(r.name, 0.0) == pytest.approx(r.per_packet, rel=1e-4, abs=1e-9), r.name
    assert total.get(LATENCY, 0.0) == pytest.approx(plan.figure("unloaded latency").value, rel=1e-4)


def test_costs_add_up_to_the_resources() -> None:
    program = nat_like()
    for wanted in ({"cores": 0}, {"cores": 2}, {"rate_pps": 5e6}, {"rate_pps": 18e6}):
        for refused in (frozenset(), frozenset({("conns", "nic")}), frozenset({("deny", "nic")})):
            try:
                made = plan(program, nat_profile(program), target_of(refused=refused), **wanted)
            except CoraError:
                continue
            same(made)
            assert plan_from_json(made.to_json()) == made


def test_costs_of_random_plans_are_those_of_every_packets_way() -> None:
    seen = 0
    for seed in range(40):
        rng = random.Random(seed)
        program = random_program(rng)
        profile, target = random_profile(rng, program), random_target(rng, program)
        try:
            made = plan(program, profile, target, cores=2)
        except CoraError:
            continue
        seen += 1
        same(made)
        true = demand_by_paths(placement_of(made, build(program, profile, target)))
        for name, amount in mean_amounts(made).items():
            assert amount == pytest.approx(true[name], rel=1e-4), (seed, name)
    assert seen > 20


def test_a_class_costs_what_its_blocks_cost() -> None:
    # Everything at the nic; figures of the fake target: 20 cycles a packet, 5 a step, accesses 1 or 8 of the engine.
    program = nat_like()
    made = plan(program, nat_profile(program), target_of(), rate_pps=5e6)
    assert {s.place for s in made.states} == {"nic"}
    number = next(i for i, c in enumerate(made.classes) if c.history == ("conns.main hit",))
    got = amounts_of(of_class(made, number))
    # entry: meta, then the look-up (5 * 2); known: touch, constant, count, forward (5 * 4); three accesses of 5 cycles.
    assert got["nic-cycles"] == pytest.approx(20 + 5 * 2 + 5 * 4 + 3 * 5)
    tiers = {s.name: {"fast": 1.0, "slow": 8.0}[s.tier] for s in made.states}
    assert got["engine"] == pytest.approx(2 * tiers["conns"] + tiers["hits"])
    assert latency_of(made, number) == 100.0


def test_users_of_a_resource_have_lines_and_shares() -> None:
    program = nat_like()
    made = plan(program, nat_profile(program), target_of(), rate_pps=5e6)
    found = users(made, "engine")
    assert sum(u.share for u in found) == pytest.approx(1.0)
    assert all(u.what == "access" and u.source is not None and u.source.line in range(10, 16) for u in found)
    assert [u.amount for u in found] == sorted((u.amount for u in found), reverse=True)
    first = found[0]
    lookups = 8.0 if made.state("conns").tier == "slow" else 1.0
    assert first.subject == "conns" and first.amount == pytest.approx(lookups)
    shares = shares_of_classes(made, "engine")
    assert sum(s for _, s in shares) == pytest.approx(1.0)
    assert made.classes[shares[0][0]].history == ("conns.main hit",)
    assert users(made, "host-cycles") == () and shares_of_classes(made, "host-cycles") == ()
