"""Floods take the path they are made for: in the reference, and in the native engine with the program's real tables."""

from __future__ import annotations

import itertools
from functools import lru_cache
from pathlib import Path

import pytest

import cora
from cora.analysis.paths import Path as ProgramPath
from cora.engine.reference import Reference, TraceStep
from cora.ir.nodes import Program
from cora.runtime.worst import describe, story, write_flood
from cora.testing.compare import run_native, run_reference
from cora.testing.floods import Flood, Floods, PathKey, Witnesses, key_of, mac_of, numbered, packet_of

ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=4)
def searched(name: str) -> tuple[Program, Witnesses]:
    program = cora.load(ROOT / "examples" / f"{name}.nf")
    witnesses = Witnesses(program, 1)
    witnesses.run(1500)
    return program, witnesses


def floods(name: str, ending: str) -> list[tuple[PathKey, Flood]]:
    program, witnesses = searched(name)
    maker = Floods(program, witnesses)
    return [(key, flood) for key in witnesses.found
            if story(program, ProgramPath(0, *key)) == ending for flood in maker.of(key)]


def taken(program: Program, flood: Flood, count: int) -> list[PathKey | None]:
    engine, found = Reference(program), []
    for i, p in enumerate(itertools.islice(flood.packets(), count)):
        trace: list[TraceStep] = []
        engine.process(p.port, p.time_ns, p.frame, p.wirelen, trace)
        found.append(key_of([s for s in trace if s.index == i]))
    return found


@pytest.mark.parametrize("ending", [
    "conns.fwd miss, conns insert ok, forward outside", 'conns.rev miss, drop "no mapping"',
    "conns.fwd hit, forward outside", "conns.rev hit, forward inside",
])
def test_a_flood_takes_its_path_and_goes_on(ending: str) -> None:
    program, _ = searched("nat.ref")
    made = floods("nat.ref", ending)
    assert made
    for key, flood in made:
        before = len(flood.opening)
        share = flood.mix.get(key, 0.0)
        found = taken(program, flood, before + 60)[before + 20:]
        assert found.count(key) / len(found) == pytest.approx(share, abs=0.2)
    assert max(flood.mix.get(key, 0.0) for key, flood in made) == 1.0
    if "insert ok" in ending:
        assert all(flood.varied for key, flood in made if flood.mix.get(key) == 1.0)


def test_a_table_is_filled_before_packets_find_it_full() -> None:
    program, _ = searched("nat.ref")
    made = [(key, flood) for key, flood in everything("nat.ref") if flood.fills]
    assert made
    capacity = getattr(program.state("conns"), "capacity")  # noqa: B009 - a map's
    assert all(flood.fills >= capacity for _, flood in made)
    assert any("conns insert full" in story(program, ProgramPath(0, *key)) and flood.mix.get(key) == 1.0
               for key, flood in made)


def everything(name: str) -> list[tuple[PathKey, Flood]]:
    program, witnesses = searched(name)
    maker = Floods(program, witnesses)
    return [(key, flood) for key in witnesses.found for flood in maker.of(key)]


def test_new_flows_differ_in_what_is_varied_only() -> None:
    _, flood = next((k, f) for k, f in everything("nat.ref") if f.varied == (("l4", "sport"), ("ipv4", "src")))
    specs = [numbered(flood.body, flood.varied, i) for i in (0, 1, 64511, 64512, 130_000)]
    keys = [tuple(s.fields.get(f) for f in flood.varied) for s in specs]
    assert len(set(keys)) == len(keys)
    for spec in specs:
        kept = {k: v for k, v in spec.fields.items() if k not in (*flood.varied, ("udp", "sport"), ("tcp", "sport"))}
        assert kept.items() <= flood.body.fields.items()


@pytest.mark.needs("gcc")
def test_both_engines_say_the_same_of_floods() -> None:
    program, _ = searched("nat.ref")
    for _, flood in everything("nat.ref")[:12]:
        packets = list(itertools.islice(flood.packets(), len(flood.opening) + 40))
        one, two = run_reference(program, packets), run_native(program, packets)
        assert one.events == two.events and one.summary == two.summary


@pytest.mark.needs("gcc")
def test_a_written_flood_comes_back_on_its_ports(tmp_path: Path) -> None:
    program, _ = searched("nat.ref")
    key, flood = floods("nat.ref", "conns.rev hit, forward inside")[0]
    file = tmp_path / "flood.pcap"
    flags = tuple(f"{p.name}=mac:{mac_of(i)}" for i, p in enumerate(program.ports))
    count = write_flood(flood, file, body=500)
    profile = cora.profile(program, file, port_map=flags)
    assert profile.packets == count == len(flood.opening) + 500
    assert profile.ports["outside"][0] >= 500
    share = next(p.packets for p in profile.paths if (p.blocks, p.outcomes) == key) / profile.packets
    assert share > 0.9
    assert "on outside" in describe(flood, program)


def test_frames_made_at_once_are_those_made_one_by_one() -> None:
    tried = 0
    for name in ("nat.ref", "policer"):
        for _, flood in everything(name):
            if not flood.varied:
                continue
            start = len(flood.opening)
            packets = list(itertools.islice(flood.packets(), start, start + 4200))
            filling = flood.filling or flood.body
            for i in (0, 1, 77, 4095, 4096, 4199):
                spec = filling if i < flood.fills else flood.body
                expected = packet_of(numbered(spec, flood.varied, i))
                assert (packets[i].frame, packets[i].wirelen) == (expected.frame, expected.wirelen)
            tried += 1
    assert tried > 20
