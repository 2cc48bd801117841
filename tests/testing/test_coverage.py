"""The search takes ways that random packets would not, and says which it missed."""

from __future__ import annotations

from cora.frontends import nf
from cora.ir.nodes import HasHeader
from cora.testing import coverage_of, covering_packets, generate, random_packets
from cora.testing.coverage import covering_rounds, edges_of, small_tables
from cora.testing.ruled_out import ruled_out

NARROW = """nf narrow {
  port a: wire; port b: wire;
  config door: u16 = 31337;
  acl gates { key (dst: ipv4 exact, dport: u16 exact); value { open: bool }
    entries { (198.18.7.7, 4242) -> { open: true }; } }
  lpm nets { key dst: ipv4; value { n: u8 } entries { 172.16.99.0/24 -> { n: 1 }; } }
  map seen { entry { src: ipv4, id: u16 } key = (src, id); timeout 5s; capacity 3; full reject; }
  meter pace { key src: ipv4; rate 1000; burst 500; capacity 2; full reject; }
  fragments track;
  on a(p: eth/ipv4/udp) {
    if p.ipv4.id == 48879 && p.udp.sport == door {
      if (p.ipv4.ttl ^ 0x55) + 3 == 20 { drop "arithmetic"; }
      if u32(p.udp.dport) << 4 == 0x12340 { drop "shift"; }
      if p.size == 1111 { drop "size"; }
      drop "two fields";
    }
    lookup gates[(p.ipv4.dst, p.udp.dport)] { hit g { drop "gate"; } }
    lookup nets[p.ipv4.dst] { hit n { drop "net"; } }
    lookup seen[(p.ipv4.src, p.ipv4.id)] {
      hit e { touch e; drop "again"; }
      miss { insert seen { src: p.ipv4.src, id: p.ipv4.id } { ok { forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth/vlan/ipv6/tcp) {
    match p.tcp.window {
      7, 9 => { drop "small"; }
      65000 => { drop "large"; }
    }
    forward a;
  }
  on b(p: eth/ipv4) {
    police pace[p.ipv4.src] { green { forward a; } red { drop "fast"; } full { drop "many"; } }
  }
  on b(p: eth) { drop "rest"; }
}"""


def test_the_search_takes_every_narrow_way() -> None:
    program = nf.loads(NARROW)
    found = covering_packets(program, seed=1, budget=1500)
    # A UDP first fragment that is `tiny` cannot be made over IPv4, and 4096 datagrams are more than the budget.
    assert {outcome for block, outcome in found.missed} <= {"tiny", "full"}
    assert {block for block, _ in found.missed} <= {"track", "track_2"}
    assert found.coverage.fraction > coverage_of(program, random_packets(program, 1, 1500)).fraction


def test_the_packets_take_what_the_search_says() -> None:
    for seed in range(6):
        program = generate(seed).program
        found = covering_packets(program, seed, 120)
        assert len(found.packets) <= 120
        assert coverage_of(program, found.packets).taken == found.coverage.taken


def test_a_seed_always_gives_the_same_search() -> None:
    program = nf.loads(NARROW)
    assert covering_packets(program, 3, 200).packets == covering_packets(program, 3, 200).packets


def test_several_searches_take_what_one_does_not() -> None:
    """Full tables are out of reach of a search with the tables as they are, and entries of TCP of one that met UDP."""
    program = nf.loads("""nf y { port a: wire; port b: wire; fragments drop;
        map seen { entry { src: ipv4, proto: u8 } key k = src; timeout 5s; capacity 100000; full reject; }
        on a(p: eth/ipv4/(tcp|udp)) {
          lookup seen.k[p.ip.src] {
            hit e { if p is tcp { if e.proto == 6 && p.tcp.fin { drop "end"; } } forward b; }
            miss { insert seen { src: p.ip.src, proto: p.ip.proto } { ok e { forward b; } full { drop "full"; } } } } }
        on b(p: eth) { forward a; } }""")
    one = covering_packets(program, 2, 400)
    assert "full" in [outcome for _, outcome in one.missed]
    found = list(covering_rounds(program, 2, 400))
    assert {e for r in found for e in r.taken} == set(edges_of(program)) and any(r.small for r in found)
    for item in found:
        assert item.taken <= coverage_of(small_tables(program) if item.small else program, item.packets).taken
    assert not any(r.small for r in covering_rounds(program, 2, 400, small=False))


def test_outcomes_that_configs_and_tables_rule_out_are_told_with_the_reason() -> None:
    program = nf.loads("""nf z { port a: wire; config open: bool = true; config least: u8 = 5;
        acl rules { key (src: ipv4 ternary); value { permit: bool, tag: u8 }
          entries { (10.0.0.1) -> { permit: true, tag: 1 }; (any) -> { permit: true, tag: 2 }; } }
        lpm none { key dst: ipv4; value { n: u8 } entries { } }
        on a(p: eth/ipv4) {
          if !open { drop "closed"; }
          if least > 9 { drop "behind"; }
          lookup none[p.ip.dst] { hit n { drop "hit"; } }
          lookup rules[(p.ip.src)] { hit r { if !r.permit { drop "denied"; } if r.tag == 1 { drop "one"; } } }
          forward a; } }""")
    told = set(ruled_out(program).values())
    assert told == {"config 'open' is 1", "config 'least' is 5", "table 'none' has no entry",
                    "'permit' is the same in all entries of 'rules'", "table 'rules' has an entry for every key"}
    assert covering_packets(program, 1, 400).missed == ()
    assert not set(ruled_out(program)) & set(edges_of(program))


def test_what_cannot_be_taken_is_listed() -> None:
    program = nf.loads("""nf x { port a: wire; on a(p: eth/ipv4) {
        if p.ipv4.ttl < 10 { if p.ipv4.ttl > 20 { drop "never"; } }
        forward a; } }""")
    missed = covering_packets(program, 1, 300).missed
    assert [outcome for _, outcome in missed] == ["true"]


def test_outcomes_that_no_packet_has_are_left_out() -> None:
    program = nf.loads("""nf x { port a: wire; fragments drop; on a(p: eth/ipv4/udp) {
        if p is udp { forward a; } else { drop "impossible"; } } on a(p: eth/ipv4) {
        if p is tcp { drop "not looked for"; } forward a; } }""")
    edges = edges_of(program)
    tests = [b.label for b in program.blocks if isinstance(b.terminator, HasHeader)]
    assert [outcome for label, outcome in edges if label in tests] == ["present", "absent"]
    # Behind the test for fragments the protocol is known to be UDP.
    assert "default" not in [outcome for label, outcome in edges if label.startswith("whole")]
