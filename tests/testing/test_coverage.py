"""The search takes ways that random packets would not, and says which it missed."""

from __future__ import annotations

from cora.frontends import nf
from cora.ir.nodes import HasHeader
from cora.testing import coverage_of, covering_packets, generate, random_packets
from cora.testing.coverage import edges_of

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
