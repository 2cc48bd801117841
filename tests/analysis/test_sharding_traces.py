"""What the analysis of splitting claims, against the entries that packets really touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from sharding_kit import SHIPPED, both_sides, office, random_program, shipped
from sharding_oracle import Claims, Watched, violations

from cora.analysis.sharding import align, sharding_of
from cora.engine.results import Options
from cora.ir.nodes import Program
from cora.testing import Packet, covering_packets, exercising_packets

LENIENT = Options(ignore_checksums=True, headers_only=True)
CAPTURES = ("snort_100conn.pcap", "ndpi_gnutella.pcap", "ndpi_tiny_frags.pcap", "tcpdump_afs_frags.pcap",
            "pcpp_ip6_fragments.pcap", "ndpi_reddit_v6.pcap", "zeek_vlan_collisions.pcap", "ndpi_synscan.pcap")


def claims_hold(program: Program, packets: Sequence[Packet], planting: int | None,
                options: Options = Options()) -> None:  # noqa: B008 (immutable)
    for name, sharding in sharding_of(program).items():
        if sharding.anchors:
            claims = Claims(sharding.anchors, partial(align, program, name))
            assert list(violations(program, name, claims, packets, options, planting)) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_programs_on_packets_for_every_way(name: str) -> None:
    program = shipped(name)
    claims_hold(program, covering_packets(program, 5, 800).packets, None)
    claims_hold(program, exercising_packets(program, 6, 500), planting=6)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_programs_on_the_shipped_capture(name: str) -> None:
    claims_hold(shipped(name), office(name, 2000), None)


@pytest.mark.needs("traces")
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("name", ["nat", "firewall"])
def test_shipped_programs_on_public_captures(name: str, capture: str, traces: Path) -> None:
    claims_hold(shipped(name), both_sides(traces / capture)[:600], planting=7, options=LENIENT)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    program = random_program(seed)
    claims_hold(program, exercising_packets(program, seed, 200), planting=seed)


def test_packets_use_what_is_claimed() -> None:
    """The tests above see every kind of path: with a lent entry to the end, handed over behind it, and not at all."""
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(20):
        program = random_program(seed)
        watched = Watched(program, Options(), planting=seed)
        passages = [p for packet in exercising_packets(program, seed, 100) for p in watched.process(packet)]
        for name in (n for n, s in sharding_of(program).items() if s.anchors):
            for passage in passages:
                found = align(program, name, passage.blocks, passage.outcomes)
                seen[found.anchor is not None, found.owner_from is not None] += 1
    assert all(seen[kind] >= 50 for kind in [(True, False), (True, True), (False, True), (False, False)]), seen
