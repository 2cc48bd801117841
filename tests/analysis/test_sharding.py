"""What the analysis of splitting finds in the shipped programs, against what a reader of their sources finds."""

from __future__ import annotations

from sharding_kit import shipped

from cora.analysis.sharding import sharding_of

FORWARD = ("ipv4.src", "l4.sport", "ipv4.dst", "l4.dport", "ipv4.proto")
BACKWARD = ("ipv4.dst", "l4.dport", "ipv4.src", "l4.sport", "ipv4.proto")
QUOTED = tuple(f"quoted.{f}" for f in FORWARD)
QUOTED_BACK = tuple(f"quoted.{f}" for f in BACKWARD)


def anchors(name: str, component: str) -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    found = sharding_of(shipped(name))[component].anchors
    return {(a.key, a.ports, tuple(str(p) for p in a.parts)) for a in found}


def test_nat_meets_its_connections_by_both_keys() -> None:
    assert anchors("nat", "conns") == {
        ("fwd", ("inside",), FORWARD),
        ("fwd", ("inside",), ("ipv4.src", "icmp.id", "ipv4.dst", "0", "1")),
        ("fwd", ("inside",), QUOTED_BACK),
        ("fwd", ("inside",), ("quoted.ipv4.dst", "quoted.icmp.id", "quoted.ipv4.src", "0", "1")),
        ("rev", ("outside",), ("ipv4.dst", "l4.dport")),
        ("rev", ("outside",), ("ipv4.dst", "icmp.id")),
        ("rev", ("outside",), ("quoted.ipv4.src", "quoted.l4.sport")),
        ("rev", ("outside",), ("quoted.ipv4.src", "quoted.icmp.id")),
    }
