"""`order strict`: which blocks that forward packets have to be at one place."""

from __future__ import annotations

from pathlib import Path

import cora
from cora.analysis.order import OrderedEnds, ordered_ends
from cora.ir.nodes import Forward, Program

ROOT = Path(__file__).resolve().parents[2]
HEAD = """nf case {
  port left: wire;
  port right: wire;
  map conns { entry { a: ipv4, n: u8 } key = a; timeout 60s; capacity 60; full pass; ORDER }
  map other { entry { a: ipv4 } key = a; timeout 60s; capacity 60; full pass; order weak; }
  unparsed drop; fragments drop;
"""


def groups(tmp_path: Path, handlers: str, order: str = "order strict;") -> tuple[Program, tuple[OrderedEnds, ...]]:
    path = tmp_path / "case.nf"
    path.write_text(HEAD.replace("ORDER", order) + handlers + "}\n", encoding="utf-8")
    program = cora.load(path)
    return program, ordered_ends(program)


def lines(program: Program, group: OrderedEnds) -> list[int]:
    """Lines of a group's `forward` statements."""
    return sorted(program.block(label).terminator.span.line for label in group.blocks)


def test_hits_and_misses_of_one_flow_end_together(tmp_path: Path) -> None:
    program, found = groups(tmp_path, """
  on left(p: eth/ipv4) {
    lookup conns[p.ip.src] {
      hit e { touch e; forward right; }
      miss { insert conns { a: p.ip.src, n: 0 } { ok e { forward right; } full { forward right; } } }
    }
  }
  on right(p: eth/ipv4) {
    lookup conns[p.ip.dst] { hit e { forward left; } miss { drop "unknown"; } }
  }
""")
    # Packets of the two directions leave by different ports.
    assert sorted(lines(program, g) for g in found) == [[10, 11, 11], [15]]
    assert all(g.states == ("conns",) and not g.passed for g in found)
    assert all(isinstance(program.block(x).terminator, Forward) for g in found for x in g.blocks)


def test_weak_order_ties_nothing(tmp_path: Path) -> None:
    text = """
  on left(p: eth/ipv4) { lookup conns[p.ip.src] { hit e { forward right; } miss { forward right; } } }
  on right(p: eth) { drop "no"; }
"""
    program, found = groups(tmp_path, text, "order weak;")
    assert found == ()
    (told,) = ordered_ends(program, weak=True)
    assert told.states == ("conns",)
    program, found = groups(tmp_path, text)
    assert len(found) == 1
    assert ordered_ends(program, weak=True) == ()


def test_packets_that_pass_the_table_by_are_of_the_flow(tmp_path: Path) -> None:
    """Whether a packet is large is no matter of its flow: it must not be overtaken by a small one."""
    program, (found,) = groups(tmp_path, """
  on left(p: eth/ipv4) {
    if p.ip.length > 1000 { forward right; }
    lookup conns[p.ip.src] { hit e { forward right; } miss { drop "unknown"; } }
  }
  on right(p: eth) { drop "no"; }
""")
    assert lines(program, found) == [9, 10]
    assert found.passed == {"conns"}


def test_what_a_flow_shares_tells_flows_apart(tmp_path: Path) -> None:
    """DNS never meets the table, by its port; messages of the router by their type."""
    program, found = groups(tmp_path, """
  on left(p: eth/ipv4/udp) {
    if p.udp.dport == 53 { forward right; }
    lookup conns[p.ip.src] { hit e { forward right; } miss { drop "unknown"; } }
  }
  on left(p: eth/ipv4/icmp) {
    if p.icmp.type >= 9 && p.icmp.type <= 10 { forward right; }
    if p.icmp.type == 8 { lookup conns[p.ip.src] { hit e { forward right; } miss { drop "unknown"; } } }
    drop "other";
  }
  on right(p: eth) { drop "no"; }
""")
    assert sorted(lines(program, g) for g in found) == [[10], [14]]
    assert not any(g.passed for g in found)


def test_a_field_that_is_rewritten_tells_nothing(tmp_path: Path) -> None:
    program, (found,) = groups(tmp_path, """
  on left(p: eth/ipv4/udp) {
    if p.ip.ttl < 5 { p.l4.dport = 53; }
    if p.udp.dport == 53 { forward right; }
    lookup conns[p.ip.src] { hit e { forward right; } miss { drop "unknown"; } }
  }
  on right(p: eth) { drop "no"; }
""")
    assert lines(program, found) == [10, 11]


def test_the_firewall_keeps_families_and_directions_apart() -> None:
    program = cora.load(ROOT / "examples" / "firewall.nf")
    found = ordered_ends(program)
    assert {g.states for g in found} == {("conns4",), ("conns6",)}
    assert not any(g.passed for g in found)
    ways = {(g.states, tuple({port.port for label in g.blocks
                              if isinstance(port := program.block(label).terminator, Forward)})) for g in found}
    assert ways == {((s,), (p,)) for s in ("conns4", "conns6") for p in ("inside", "outside")}
