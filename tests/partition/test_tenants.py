"""Programs planned together: what they share is counted once, and each plan stands alone."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from lending_cases import lending_target, tracked, traffic
from placement_oracle import every_placement
from planning_fakes import nat_like, nat_profile, target_of

import cora
from cora.errors import CoraError, Kind
from cora.models import registry
from cora.models.target import Target
from cora.partition import plan, verify_plan
from cora.partition.instance import build
from cora.partition.placement import Placement
from cora.partition.tenants import Asked, Together, names_of, plan_together
from cora.partition.units import units_of
from cora.plan.document import Request

ROOT = Path(__file__).parents[2]
RATES = (4e6, 2e6)


def asked(rate: float, **profile: int) -> Asked:
    program = nat_like()
    return Asked(program, nat_profile(program, **profile), Request(int(rate), None, None, "highs", 20.0))


def together(target: Target, rates: tuple[float, ...] = RATES, **wanted: Any) -> tuple[list[Asked], Together]:
    tenants = [asked(rates[0]), asked(rates[1], known=50, fresh=45, denied=5)]
    return tenants, plan_together(tenants, target, **wanted)


def loads(placements: tuple[Placement, ...], cores: int) -> float:
    """Soft maximum of what all use at their rates, by hand."""
    columns = [sum(p.utilisation(cores, rate)[i] for p, rate in zip(placements, RATES, strict=True))
               for i in range(len(placements[0].instance.resources))]
    return float(sum(c**8 for c in columns) ** (1 / 8))


def fits(placements: tuple[Placement, ...], target: Target) -> bool:
    filled: dict[tuple[int, str], int] = {}
    for p in placements:
        used = [(o.place, p.store(o).name, o.amount) for o in map(p.option, p.states)]
        used += [(o.place, p.store(o).name, o.amount) for s in p.copies for o in p.copy_options(s)]
        for place, tier, amount in used:
            filled[place, tier] = filled.get((place, tier), 0) + amount
    return all(filled.get((i, t.name), 0) <= t.capacity for i, place in enumerate(target.places) for t in place.tiers)


@pytest.mark.parametrize("figures", [{}, {"nic_rate": 2e8}, {"engine": 6e7}])
def test_the_fewest_cores_for_both_are_found(figures: dict[str, float]) -> None:
    target = target_of(figures, code={"nic": None, "host": None})
    tenants, found = together(target)
    every = []
    for tenant in tenants:
        instance = build(tenant.program, tenant.profile, target)
        every.append(list(every_placement(instance, units_of(instance))))
    best = (99, 0.0)
    for pair in itertools.product(*every):
        if not fits(pair, target):
            continue
        least = int(any(p.uses_host for p in pair))
        cores = next((c for c in range(least, 9) if loads(pair, c) <= 1), 99)
        best = min(best, (cores, sum(p.host_work(r) for p, r in zip(pair, RATES, strict=True)))) if best[0] != 99 \
            else (cores, sum(p.host_work(r) for p, r in zip(pair, RATES, strict=True)))
    assert found.cores == best[0]
    assert found.host_work == pytest.approx(best[1], rel=1e-3, abs=1e-6)
    assert found.proven


def test_each_plan_is_checked_and_says_what_it_was_made_with() -> None:
    target = target_of(code={"nic": None, "host": None})
    tenants, found = together(target)
    for tenant, made in zip(tenants, found.plans, strict=True):
        verify_plan(made, tenant.program, tenant.profile, target)
        assert made.cores <= found.cores
        assert "placed together with small-" in made.evidence.status
    # The small fast memory has room for one of the tables.
    kept = [(s.place, s.tier) for p in found.plans for s in p.states if s.name in ("conns", "peers")]
    assert kept.count(("nic", "fast")) <= 1
    for use in found.resources:
        alone = sum(r.per_packet * p.request.rate_pps / r.rate for p in found.plans for r in p.resources
                    if r.name == use.name and r.rate and p.request.rate_pps)
        if use.name != "host-cycles":
            assert use.utilisation == pytest.approx(alone, rel=1e-3, abs=1e-6)


def test_rates_that_are_too_much_together_say_how_much_is_not() -> None:
    target = target_of({"port": 5e6}, code={"nic": None, "host": None})
    with pytest.raises(CoraError, match="cannot carry small-1, small-2 together at these rates") as caught:
        together(target, (4e6, 4e6))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.kind is Kind.NO_PLAN
    assert "at most 62." in diagnostic.message
    assert diagnostic.notes == (("what runs out is port", None),)
    with pytest.raises(CoraError, match="cannot carry 9\\.00 Mpps") as caught:
        together(target, (1e6, 9e6))
    assert "this is of small-2, before the others have taken anything" in caught.value.render()


def test_tenants_may_split() -> None:
    program = tracked()
    target = lending_target("resume", {"install": 10.0, "nic_rate": 1e10})
    tenants = [Asked(program, traffic(program, random.Random(seed), ((8, 1, 0.5, 0.01), (30, 4, 0.9, 0.01))),
                     Request(2_000_000, None, None, "highs", 20.0, pins=("conns=host",))) for seed in (1, 2)]
    found = plan_together(tenants, target)
    assert found.combinations > 1
    assert [p.state("conns").decision for p in found.plans] == ["split", "split"]
    for tenant, made in zip(tenants, found.plans, strict=True):
        verify_plan(made, tenant.program, tenant.profile, target)


def test_names_are_told_apart() -> None:
    assert names_of(["nat", "firewall", "nat"]) == ["nat-1", "firewall", "nat-2"]


@pytest.mark.needs("gcc")
def test_programs_share_a_cache_by_what_their_tables_use_of_it(tmp_path: Path) -> None:
    """Two functions behind 6 kB of cache: each is priced with its part, and its plan can be made and checked alone."""
    program = cora.load(ROOT / "examples" / "nat.ref.nf")
    tenants = []
    for seed in (1, 2):
        capture = tmp_path / f"{seed}.pcap"
        cora.traffic({"packets": "40k", "flows": "4000", "zipf": "0.8", "seed": str(seed)}, capture)
        profile = cora.profile(program, capture, captured_at="inside")
        tenants.append(Asked(program, profile, Request(3_000_000, None, None, "highs", 10.0)))
    card = registry.get("agilio-cx", None, ["emem-cache=6285kB", "imem=3000kB"])
    found = plan_together(tenants, card)
    (shared,) = found.shared
    assert shared.capacity == 6_291_456 - 6_285_000 < sum(shared.used)
    for used, part in zip(shared.used, shared.parts, strict=True):
        assert part == pytest.approx(shared.capacity * used / sum(shared.used), abs=1)
    alone = plan(program, tenants[0].profile, card, rate_pps=3e6)

    # More of its look-ups go to the memory behind the cache than where it has the cache for itself.
    together, apart = (next(r.per_packet for r in p.resources if r.name == "thread-wait")
                       for p in (found.plans[0], alone))
    assert together > apart * 1.05
    for tenant, made, part in zip(tenants, found.plans, shared.parts, strict=True):
        assert made.card.reserved == ("imem=3000kB", f"emem-cache={6_285_000 + shared.capacity - part}")
        verify_plan(made, program, tenant.profile, registry.get("agilio-cx", None, made.card.reserved))
    # Where there is room for all, nothing is reserved.
    assert plan_together(tenants, registry.get("agilio-cx")).shared == ()
