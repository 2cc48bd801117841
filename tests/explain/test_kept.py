"""What keeps packets at the owner of a state, held against what the profile's paths say themselves."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

import cora
from cora.analysis.profile import PathUse, Profile
from cora.explain.budget import budget_of
from cora.explain.kept import as_if_lent, kept_at_owner, not_lent
from cora.explain.questions import Questions
from cora.explain.sensitivity import count, rates_of_change
from cora.explain.subject import Subject
from cora.explain.variants import until_lent, without_fragments
from cora.explain.why import kept_text, why
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.verify import verify
from cora.models import registry
from cora.models.target import Refusal
from cora.models.variation import varied
from cora.partition import plan
from cora.plan.costs import mean_amounts
from cora.report.page import Beside, page

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
MAP = ["inside=10.0.0.0/24,2001:db8:1::/64", "outside=*"]


@lru_cache(maxsize=2)
def nat() -> tuple[Program, Profile]:
    program = cora.load(ROOT / "examples" / "nat.nf")
    return program, cora.profile(program, OFFICE, port_map=MAP, captured_at="inside")


def subject(nic: str) -> Subject:
    program, profile = nat()
    return Subject(cora.plan(program, profile, nic, cores=1), program, profile, registry.get(nic))


def taken(program: Program, path: PathUse, kind: type, outcome: str) -> bool:
    """Whether a path leaves a terminator of a kind by an outcome."""
    return any(isinstance(program.block(label).terminator, kind) and o == outcome
               for label, o in zip(path.blocks, path.outcomes, strict=False))


@pytest.mark.needs("gcc")
def test_shares_are_those_of_the_paths() -> None:
    program, profile = nat()
    rows = [k for k in kept_at_owner(subject("agilio-cx")) if k.component == "conns"]
    total = sum(p.packets for p in profile.paths)
    fragments = sum(p.packets for p in profile.paths if taken(program, p, nodes.IsFragment, "fragment"))
    missed = sum(p.packets for p in profile.paths if taken(program, p, nodes.Lookup, "miss")
                 and not taken(program, p, nodes.IsFragment, "fragment"))
    found = {("fragment" if "fragment" in k.reason else "miss"): 0.0 for k in rows}
    for k in rows:
        found["fragment" if "fragment" in k.reason else "miss"] += k.share
    assert found == {"fragment": pytest.approx(fragments / total), "miss": pytest.approx(missed / total)}
    assert fragments and missed and {(k.near, k.owner, k.mode) for k in rows} == {("nic", "host", "resume")}
    like = {k.like for k in rows}
    assert len(like) == 1
    best = next(p for p in profile.paths if p.id in like)
    assert not taken(program, best, nodes.Lookup, "miss") and best.packets == max(
        p.packets for p in profile.paths if any(program.block(b).terminator.mnemonic == "lookup" for b in p.blocks))


@pytest.mark.needs("gcc")
def test_what_is_not_lent_has_its_reason_and_its_line() -> None:
    rows = {(n.component, n.near): n for n in not_lent(subject("bluefield2"))}
    assert "order weak" in rows["conns", "switch"].reason and rows["conns", "switch"].span.line == 46
    assert ("conns", "arm") not in rows and not any(c.startswith("translated") for c, _ in rows)
    text = kept_text(kept_at_owner(subject("bluefield2")), tuple(rows.values()))
    assert "nothing of conns is lent to switch" in text and "nat.nf:46: pair map conns {" in text


@pytest.mark.needs("gcc")
def test_traffic_without_a_reason_keeps_its_packets() -> None:
    _, profile = nat()
    for kept in kept_at_owner(subject("agilio-cx")):
        other = as_if_lent(profile, kept)
        assert other is not None
        moved = {p.id for p in profile.paths} - {p.id for p in other.paths}
        assert moved == set(kept.paths)
        assert sum(p.packets for p in other.paths) == sum(p.packets for p in profile.paths)
        assert sum(p.octets for p in other.paths) == sum(p.octets for p in profile.paths)
        before = {p.id: p.packets for p in profile.paths}
        after = {p.id: p.packets for p in other.paths}
        for one, point in zip(profile.admission[0].points, other.admission[0].points, strict=True):
            then, now = dict(one.lent), dict(point.lent)
            assert set(now) <= set(after) and all(n <= after[i] for i, n in now.items())
            if kept.like in then:
                # As much of the path as before runs on lent entries.
                assert now[kept.like] / after[kept.like] == pytest.approx(then[kept.like] / before[kept.like], abs=1e-3)
    assert as_if_lent(profile, replace(kept, like=None)) is None


@pytest.mark.needs("gcc")
def test_attributes_that_a_place_demands_together_are_tried_together() -> None:
    program, profile = nat()
    target = registry.get("bluefield2")
    strict = replace(program, states=tuple(
        replace(s, slack=0) if isinstance(s, nodes.MapState) else s for s in program.states))
    (made,) = [v for v in until_lent(strict, profile, target) if v.state.name == "conns"]
    assert made.change == "`order weak;` and `slack 1s`"
    states = [made.program.state("conns"), made.program.state("ext")]
    assert not isinstance(target.lends(made.program, states, 0, 2), Refusal)
    for change in ({"strict_order": True}, {"slack": 0}):
        less = [replace(s, **change) if isinstance(s, nodes.MapState) else s for s in states]
        assert isinstance(target.lends(made.program, less, 0, 2), Refusal)
    assert until_lent(strict, profile, registry.get("agilio-cx")) == []


@pytest.mark.needs("gcc")
def test_a_program_without_fragments_is_sound_and_drops_them() -> None:
    program, profile = nat()
    made, seen = without_fragments(program, profile)
    verify(made)
    assert not any(isinstance(s, nodes.FragmentState) for s in made.states) and len(made.blocks) < len(program.blocks)
    fragments = sum(p.packets for p in profile.paths if taken(program, p, nodes.IsFragment, "fragment"))
    assert sum(p.packets for p in seen.paths if p.verdict == 'drop "fragment"') == fragments
    assert sum(p.packets for p in seen.paths) == sum(p.packets for p in profile.paths)
    assert cora.plan(made, seen, "agilio-cx", cores=1).throughput_pps > 0


@lru_cache(maxsize=1)
def split() -> Subject:
    """The NAT on a card whose memories are taken by others: its table is split by flow."""
    program, profile = nat()
    target = registry.get("agilio-cx", None, ("emem=1.61GB", "imem=2.9MB"))
    return Subject(plan(program, profile, target, rate_pps=15e6), program, profile, target)


@pytest.mark.needs("gcc")
def test_a_split_plan_is_accounted_for_and_explained() -> None:
    found = split().plan
    conns = found.state("conns")
    assert conns.decision == "split" and conns.lent is not None
    total = mean_amounts(found)
    for r in found.resources:
        assert total.get(r.name, 0.0) == pytest.approx(r.per_packet, rel=1e-4, abs=1e-9), r.name
    text = why(found)
    assert "conns: lending entries and taking them back" in text and "% lending of conns" in text
    budget = budget_of(found)
    lent = sum(p.share for p in budget.paths if any("lent" in h for h in p.history))
    assert lent == pytest.approx(conns.lent.share, rel=1e-3)
    assert all(not p.costs.get("host-cores") for p in budget.paths if any("lent" in h for h in p.history))
    shown = page(found, Beside(split().target.places, split().profile))
    assert f"conns (lent, {conns.lent.entries:,} entries)" in shown and "What is split by flow" in shown
    for r in found.resources:
        assert not r.per_packet or f'aria-label="{r.name} is ' in shown


@pytest.mark.needs("gcc")
def test_the_rate_of_changes_is_asked_about_where_entries_are_lent() -> None:
    assert rates_of_change(split().plan) == {"lending"}
    assert rates_of_change(subject("agilio-cx").plan) == frozenset()
    questions = Questions(split())
    twice = questions.gain(target=varied(split().target, faster={"lending": 2.0}))
    assert twice.ratio > 1.05 or (twice.cores or 0) < (twice.cores_now or 0)
    # One host core, the changes, resources used a fifth or more, and the card's memories, which were too small.
    busier = split().plan.throughput_pps / 15e6
    busy = [r.name for r in split().plan.resources if r.utilisation * busier >= 0.2 and r.place == "nic"]
    assert count(questions) == 2 + len(busy) + 5
