"""Profiles against an independent count: the reference interpreter's trace of every packet."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cora
from cora.analysis.profile import Profile, load_profile
from cora.engine.native import USES
from cora.engine.reference import Reference, TraceStep
from cora.errors import CoraError
from cora.frontends.traffic import open_traffic
from cora.frontends.traffic.portmap import PortMap
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.runtime.profiling import popularity, timeouts

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
INSIDE = "inside=10.0.0.0/24,2001:db8:1::/64"
LAN = "lan=10.0.0.0/24,2001:db8:1::/64"


@dataclass
class Counted:
    paths: Counter[tuple[str, ...]] = field(default_factory=Counter)
    lookups: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    inserts: Counter[tuple[str, str]] = field(default_factory=Counter)
    police: Counter[tuple[str, str]] = field(default_factory=Counter)
    windows: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    packets: int = 0
    octets: int = 0


def counted(program: Program, flag: str, profile: Profile) -> Counted:
    engine = Reference(program)
    found = Counted()
    mapping = PortMap.parse([flag], [p.name for p in program.ports])
    with open_traffic(OFFICE) as capture:
        for packet in mapping.assign(capture).packets():
            steps: list[TraceStep] = []
            engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, steps)
            found.packets += 1
            found.octets += packet.wirelen
            window = found.windows[(engine.now - profile.first_ns) // profile.window_ns]
            window[0] += 1
            window[1] += packet.wirelen
            note(found, steps)
    return found


def note(found: Counted, steps: list[TraceStep]) -> None:
    passage: list[str] = []
    for step in steps:
        if not passage or passage[-1] != step.block:
            passage.append(step.block)
        match step.node:
            case nodes.Lookup():
                found.lookups[step.node.state, step.node.key, step.outcome] += 1
            case nodes.Insert():
                found.inserts[step.node.state, step.outcome] += 1
            case nodes.Police():
                found.police[step.node.state, step.outcome] += 1
            case nodes.Forward() | nodes.Drop() | nodes.Reject() | nodes.Hold():
                found.paths[tuple(passage)] += 1
                passage = []
            case _:
                pass


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("name", "flag"), [("nat", INSIDE), ("firewall", INSIDE), ("policer", LAN),
                                            ("nat.ref", INSIDE)])
def test_a_profile_counts_what_the_reference_does(name: str, flag: str) -> None:
    program = cora.load(ROOT / "examples" / f"{name}.nf")
    profile = cora.profile(program, OFFICE, port_map=[flag])
    found = counted(program, flag, profile)
    assert (profile.packets, profile.octets) == (found.packets, found.octets)
    by_blocks: Counter[tuple[str, ...]] = Counter()
    for path in profile.paths:  # paths may differ in outcomes only
        by_blocks[path.blocks] += path.packets
    assert by_blocks == found.paths
    for state, use in profile.states.items():
        for key, (hits, misses) in use.lookups.items():
            assert (hits, misses) == (found.lookups[state, key, "hit"], found.lookups[state, key, "miss"]), (state, key)
        if use.kind == "map":
            assert use.inserts == (found.inserts[state, "ok"], found.inserts[state, "full"])
        if use.kind == "meter":
            colours = ("green", "yellow", "red", "full")
            assert use.police == tuple(found.police[state, c] for c in colours)
        if use.kind == "pool":  # one map draws from each
            owner = next(s.name for s in program.states if isinstance(s, nodes.MapState)
                         and state in [a.pool for a in s.allocs])
            assert use.entries_peak == profile.states[owner].entries_peak > 0
            assert use.window_peaks == profile.states[owner].window_peaks
    assert [(w.packets, w.octets) for w in profile.windows] == [
        tuple(found.windows.get(i, [0, 0])) for i in range(len(profile.windows))]
    assert sum(n for _, n in profile.sizes) == profile.packets
    assert sum(p for p, _ in profile.ports.values()) == profile.packets
    assert sum(o for _, o in profile.ports.values()) == profile.octets


@pytest.mark.needs("gcc")
def test_a_profile_document_round_trips(tmp_path: Path) -> None:
    program = cora.load(ROOT / "examples" / "nat.nf")
    profile = cora.profile(program, OFFICE, port_map=[INSIDE])
    file = tmp_path / "p.json"
    file.write_text(profile.to_json())
    again = load_profile(file)
    assert again == profile or again.to_json() == profile.to_json()


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("broken", [
    "", "{", "[]", '{"format": "cora-plan"}', '{"format": "cora-profile", "version": 99}',
    '{"format": "cora-profile", "version": 1}', "\x00\xff",
])
def test_a_broken_profile_is_refused_with_its_name(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(broken.encode("latin-1"))
    with pytest.raises(CoraError) as caught:
        load_profile(file)
    assert caught.value.diagnostics[0].kind.number == 301
    assert str(file) in caught.value.render()


@pytest.mark.needs("gcc")
def test_every_field_of_a_profile_is_checked(tmp_path: Path) -> None:
    import json

    program = cora.load(ROOT / "examples" / "policer.nf")
    whole = json.loads(cora.profile(program, OFFICE, port_map=[LAN]).to_json())
    file = tmp_path / "p.json"
    values: tuple[Any, ...] = (None, [], "x", -1, {"a": 1})
    for name in whole:
        for value in values:
            if value == whole[name]:
                continue
            file.write_text(json.dumps({**whole, name: value}))
            try:
                load_profile(file)
            except CoraError as error:
                assert str(file) in error.render()


def test_a_profile_of_an_older_version_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text('{"format": "cora-profile", "version": 1, "program": "nat"}')
    with pytest.raises(CoraError) as caught:
        load_profile(file)
    assert "version 1 of the profile format is not 2" in caught.value.render()
    assert "make the profile again with this version of cora" in caught.value.render()


def slow_timeout(lives: list[list[int]], timeout: int) -> tuple[int, int]:
    """Most entries live at once, and entries cut off, by looking at every moment; an entry is its times of access."""
    moments = {t for life in lives for t in life}
    peak = max(sum(life[0] <= t <= life[-1] + timeout for life in lives) for t in moments)
    return peak, sum(any(b - a > timeout for a, b in pairwise(life)) for life in lives)


def test_timeouts_against_looking_at_every_moment() -> None:
    draw = random.Random(3)
    for _ in range(50):
        counts = [draw.choice((1, 2, 5, 9)) for _ in range(draw.randrange(1, 30))]
        lives = [sorted(draw.randrange(1000) for _ in range(count)) for count in counts]
        uses = np.zeros(len(lives), USES)
        for row, life in zip(uses, lives, strict=True):
            row["first_ns"], row["last_ns"], row["accesses"] = life[0], life[-1], len(life)
            row["pause_ns"] = max((b - a for a, b in pairwise(life)), default=0)
        found = timeouts(uses)
        assert bool(found) == any(len(life) > 1 for life in lives)
        for use in found:
            assert (use.peak, use.cut) == slow_timeout(lives, use.timeout_ns)
        if found:
            assert found[-1].cut == 0


def test_popularity_of_known_counts() -> None:
    curve = popularity(np.array([1, 7, 0, 2], dtype=np.uint64))
    assert curve == ((1 / 3, 0.7), (2 / 3, 0.9), (1.0, 1.0))
    assert popularity(np.array([], dtype=np.uint64)) == ()
