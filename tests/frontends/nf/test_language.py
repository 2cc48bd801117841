"""What programs mean, shown by packets: each test runs a small program through the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from cora.engine.reference import Reference
from cora.engine.results import Dropped, Output
from cora.frontends.nf import loads
from cora.ir import nodes
from cora.testing.frames import ARP, IPV6, Spec, build

SECOND = 10**9
PORTS = "nf t {\n  port a: wire;\n  port b: host;\n  port v: vf;\n"


@dataclass
class Running:
    """A program and its state; `send` gives the verdict of a packet."""

    engine: Reference
    frame: bytes = b""
    time: int = 0
    outputs: list[Output] = field(default_factory=list)

    def state(self) -> Any:
        """The dump of all state."""
        return self.engine.state()

    def send(self, spec: Spec | None = None, at: float = 0, **fields: int) -> str:
        """``forward a`` or the drop reason; fields are of the L4 header, or of ip with ``ip_`` in front."""
        made = spec or Spec()
        name = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6"}.get(made.upper, "udp")
        for key, value in fields.items():
            place = (made.ip, key[3:]) if key.startswith("ip_") else (name, key)
            made.fields[place] = value
        frame, wirelen = build(made)
        (event, *rest) = self.engine.process(made.port, int(at * SECOND), frame, wirelen)
        self.outputs += [e for e in (event, *rest) if isinstance(e, Output)]
        if isinstance(event, Dropped):
            return event.reason
        assert isinstance(event, Output)
        self.frame = event.frame
        return f"forward {self.engine.program.ports[event.port].name}"


def run(items: str) -> Running:
    """A program with the ports a, b and v and these items."""
    return Running(Reference(loads(PORTS + items + "\n}\n", "t.nf")))


def handler(body: str, items: str = "", pattern: str = "eth/ipv4/udp") -> Running:
    """A program with one handler, of port a."""
    return run(f"fragments drop;\n{items}\n  on a(p: {pattern}) {{\n{body}\n  }}")


def value(expression: str, items: str = "", fields: Mapping[str, int] = MappingProxyType({})) -> int:
    """The value of an expression of type u64 in a handler of UDP packets: sent out in the IPv6-free MAC fields."""
    running = handler(f"""
    let it: u64 = {expression};
    p.eth.dst = mac(it >> 32);
    p.eth.src = mac(it & 0xffffffff);
    forward b;""", items)
    assert running.send(None, 0, **fields) == "forward b"
    return int.from_bytes(running.frame[:6], "big") << 32 | int.from_bytes(running.frame[6:12], "big")


# Expressions.


@pytest.mark.parametrize(("expression", "expected"), [
    ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("10 - 3 - 2", 5), ("100 / 10 / 2", 5), ("7 % 4", 3), ("1 << 2 + 3", 32),
    ("6 & 3 | 8", 10), ("6 ^ 3 & 1", 7), ("1 | 2 ^ 3", 1), ("0xff & 0x0f", 15), ("0b1010", 10), ("1_000", 1000),
    ("min(3, 5) + max(3, 5)", 8), ("true ? 1 : 2", 1), ("1 < 2 ? 1 : 2", 1), ("false ? 1 : true ? 2 : 3", 2),
    ("1500B", 1500), ("2kB", 2000), ("2KiB", 2048), ("1MiB", 1 << 20), ("8bps", 1), ("10Mbps", 1_250_000),
    ("u64(10.0.0.1)", 0x0A000001), ("u64(02:00:00:00:00:07)", 0x020000000007), ("u64(true)", 1), ("u64(u8(200))", 200),
    ("u64(1s)", SECOND), ("u64(2min)", 120 * SECOND), ("u64(1h) / u64(1ms)", 3_600_000), ("u64(5us - 2us)", 3000),
    ("u64(3s * 2)", 6 * SECOND), ("u64(~u8(1))", 254), ("u64(bool(7))", 1), ("u64(u128(::5))", 5),
    # On values that are known to the packet only.
    ("u64(p.udp.sport) + 1", 1001), ("u64(p.udp.sport - 1001)", 65535), ("u64(p.udp.sport * 100)", 100_000 % 65536),
    ("u64(u8(p.udp.sport))", 1000 % 256), ("u64(p.udp.sport / 0)", 0), ("u64(p.udp.sport % 0)", 1000),
    ("u64(p.udp.sport << 16)", 0), ("u64(p.udp.sport >> 3)", 125), ("u64(p.udp.sport << u8(2))", 4000),
    ("u64(~p.udp.sport)", 65535 - 1000), ("u64(bool(p.udp.sport))", 1), ("u64(p.udp.sport == 1000)", 1),
    ("u64(p.udp.sport != 1000)", 0), ("u64(p.udp.sport < 1001 && !(p.udp.sport <= 999))", 1),
    ("u64(p.udp.sport > 1000 || p.udp.sport >= 1000)", 1),
    ("u64(min(p.udp.sport, 5)) + u64(max(p.udp.sport, 5))", 1005),
    ("p.udp.sport == 1000 ? 5 : 6", 5), ("u64(p.ip.src)", 0x0A000001), ("u64(p.ip.src & 255.255.255.0)", 0x0A000000),
    ("u64(p.ip.src == 10.0.0.1 && p.ip.dst != 10.0.0.1)", 1), ("u64(p.ip.df ? p.ip.ttl : p.ip.proto)", 17),
    ("u64(p.size)", 42), ("u64(now)", 0), ("u64(p.udp.sport & 0x0f | 0x10)", 0x18),
])
def test_expressions(expression: str, expected: int) -> None:
    fields = {"sport": 1000, "ip_src": 0x0A000001, "ip_dst": 0x0A000002, "ip_df": 0}
    assert value(expression, "", fields) == expected


def test_constants_and_configs() -> None:
    items = "const A: u16 = 2 * B2; config c: u64 = 7; const D = A + 1;"
    assert value("u64(A) * 100 + c * 10 + u64(u16(D))", "const B2 = 21;" + items) == 42 * 100 + 70 + 43
    program = loads(PORTS + "config c: u64 = 7; on a(p: eth) { p.eth.dst = mac(c); forward b; } }", "t.nf", {"c": "9"})
    running = Running(Reference(program))
    running.send()
    assert running.frame[:6] == bytes([0, 0, 0, 0, 0, 9])


def test_structs() -> None:
    items = """struct In { x: u16, y: u16 } struct Out { i: In, z: u16 }
    fn f(o: Out) -> u64 { return u64(o.i.x) * 10000 + u64(o.i.y) * 100 + u64(o.z); }
    fn swapped(o: Out) -> u64 { return f(Out(In(o.i.y, o.i.x), o.z)); }"""
    assert value("swapped(Out(In(1, 2), 3))", items) == 20103
    assert value("Out(In(1, p.udp.sport), 3) == Out(In(1, 1000), 3) ? 1 : 0", items, {"sport": 1000}) == 1
    assert value("Out(In(1, p.udp.sport), 3) != Out(In(1, 1000), 3) ? 1 : 0", items, {"sport": 1001}) == 1
    assert value("In(1, 2) == In(1, 2) ? 1 : 0", items) == 1


# Variables, branches, loops.


def test_variables_join() -> None:
    running = handler("""
    var x: u16 = 1;
    var y: u16 = 0;
    if p.udp.sport == 1 { x = 2; } else if p.udp.sport == 2 { x = 3; y = x; } else { y = 7; }
    x = x * 10;
    p.udp.sport = x + y;
    forward b;""")
    for sport, expected in ((1, 20), (2, 33), (3, 17)):
        running.send(sport=sport)
        assert int.from_bytes(running.frame[34:36], "big") == expected
    joins = [b for b in running.engine.program.blocks if b.params]
    assert [len(b.params) for b in joins] == [2, 2], "x and y differ at both joins"


def test_scopes_end_with_their_block() -> None:
    running = handler("""
    if p.udp.sport == 1 { let x = u16(5); p.udp.dport = x; } else { let x = u16(6); p.udp.dport = x; }
    let x = u16(7);
    p.udp.sport = x;
    forward b;""")
    running.send(sport=1)
    assert running.frame[34:38] == bytes([0, 7, 0, 5])


def test_match() -> None:
    running = handler("""
    match p.udp.dport {
      53, 853 => { drop "name"; }
      80 => { p.udp.sport = 8; }
      _ => { p.udp.sport = 9; }
    }
    forward b;""")
    assert [running.send(dport=d) for d in (53, 853, 80, 81)] == ["name", "name", "forward b", "forward b"]
    assert running.frame[34:36] == bytes([0, 9])
    without = handler('match p.udp.dport { 53 => { drop "name"; } } forward b;')
    assert [without.send(dport=d) for d in (53, 54)] == ["name", "forward b"]
    addresses = handler('match p.ip.src { 10.0.0.1 => { drop "one"; } _ => { forward b; } }')
    assert [addresses.send(ip_src=s) for s in (0x0A000001, 0x0A000002)] == ["one", "forward b"]


def test_loops_are_repeated() -> None:
    running = handler("""
    const_loop(p);
    var sum: u16 = 0;
    for i in 1 .. 4 { for j in i .. 4 { if p.udp.sport == j { sum = sum + u16(10) * i; } } }
    p.udp.dport = sum;
    forward b;""", """counter c; const N = 3;
    fn const_loop(p) { for i in 0 .. N { count c; } for i in 2 .. 2 { count c; } }""")
    running.send(sport=3)
    assert running.frame[36:38] == bytes([0, 60])
    assert running.state()["c"]["values"] == [[3, 126]]


# Headers.


def test_header_tests() -> None:
    running = handler("""
    var t: u8 = 0;
    if p is tcp { t = 1; if p.tcp.syn { t = 2; } } else { if p is udp { p.udp.sport = 7; } t = 3; }
    if p is not udp { if p is tcp { p.tcp.urgent = 5; } } else { if p is l4 { t = t + 10; } }
    if p is ipv6 { t = 99; }
    p.ip.ttl = t;
    p.l4.dport = 9;
    forward b;""", pattern="eth/ipv4/(tcp|udp)")
    for spec, flags, ttl in ((Spec(upper=6), 2, 2), (Spec(upper=6), 16, 1), (Spec(upper=17), None, 13)):
        assert running.send(spec, **({} if flags is None else {"flags": flags})) == "forward b"
        assert running.frame[22] == ttl
        assert running.frame[36:38] == bytes([0, 9])


def test_what_every_way_has_stays_known() -> None:
    running = handler("""
    if p is not tcp { drop "udp"; }
    let w = p.tcp.window;
    lookup_it(p);
    p.tcp.urgent = w;
    forward b;""", "fn lookup_it(p) { if p.tcp.syn { drop \"syn\"; } }", "eth/ipv4/(tcp|udp)")
    assert running.send(Spec(upper=17)) == "udp"
    assert running.send(Spec(upper=6), flags=2) == "syn"
    assert running.send(Spec(upper=6), flags=16, window=77) == "forward b"
    assert running.frame[52:54] == bytes([0, 77])


def test_ip_is_the_one_that_is_present() -> None:
    running = run("""fragments drop;
    fn go(p) { p.l4.dport = u16(p.ip.proto); forward b; }
    on a(p: eth/ipv4/udp) { go(p); }
    on a(p: eth/ipv6/udp) { p.ip.hop_limit = 5; go(p); }""")
    assert running.send() == "forward b"
    assert running.send(Spec(ethertype=IPV6)) == "forward b"
    assert running.frame[21] == 5
    assert running.frame[56:58] == bytes([0, 17])


# Dispatch.


def test_the_longest_pattern_wins() -> None:
    running = run("""fragments drop;
    on a(p: eth) { drop "eth"; }
    on a(p: eth/ipv4) { drop "ipv4"; }
    on a(p: eth/ipv4/tcp) { drop "tcp"; }
    on a(p: eth/ipv4/icmp) { drop "icmp"; }
    on a(p: eth/ipv4/icmp/quoted/ipv4) { drop "quoted"; }
    on a(p: eth/ipv4/icmp/quoted/ipv4/udp) { drop "quoted udp"; }
    on b(p: eth/ipv6/udp) { drop "v6 udp"; }
    on b, v(p: eth/arp) { drop "arp"; }""")
    error = {("icmp", "type"): 3}
    assert running.send(Spec(ethertype=ARP)) == "eth"
    assert running.send(Spec(ethertype=IPV6)) == "eth"
    assert running.send(Spec(upper=17)) == "ipv4"
    assert running.send(Spec(upper=6)) == "tcp"
    assert running.send(Spec(upper=1), type=8) == "icmp"
    assert running.send(Spec(upper=1, fields=dict(error), quoted=Spec(upper=6))) == "quoted"
    assert running.send(Spec(upper=1, fields=dict(error), quoted=Spec(upper=17))) == "quoted udp"
    assert running.send(Spec(port=1, ethertype=IPV6)) == "v6 udp"
    assert running.send(Spec(port=1, ethertype=IPV6, upper=6)) == "no handler"
    assert running.send(Spec(port=1)) == "no handler"
    assert running.send(Spec(port=1, ethertype=ARP)) == "arp"
    assert running.send(Spec(port=2, ethertype=ARP)) == "arp"


def test_malformed_packets_do_not_fall_to_shorter_patterns() -> None:
    running = run("""fragments drop; on a(p: eth) { drop "eth"; } on a(p: eth/ipv4/udp) { drop "udp"; }""")
    assert running.send(length=7) == "malformed"
    assert running.send(ip_version=5) == "malformed"
    assert running.send(Spec(raw=b"123")) == "malformed"
    assert running.send(ip_checksum=1) == "bad IPv4 checksum"
    assert running.send(Spec(options=b"\x83\x03\x04\x00")) == "source route"
    assert running.send(Spec(fragment=(0, True, 1), payload=bytes(24))) == "fragment"
    assert running.send(Spec(fragment=(8, False, 1))) == "fragment"
    assert running.send(Spec(fragment=(8, False, 1), upper=6)) == "eth", "only protocols with handlers"


def test_policies_loosen_the_checks() -> None:
    running = run("""fragments ignore; verify none; source_routes pass; unparsed drop; limit vlan_tags 1;
    on a(p: eth/ipv4/udp) { drop "udp"; }""")
    assert running.send(ip_checksum=1) == "udp"
    assert running.send(Spec(options=b"\x83\x03\x04\x00")) == "udp"
    assert running.send(Spec(tags=((0x8100, 1),))) == "udp"
    assert running.send(Spec(tags=((0x88A8, 1), (0x8100, 2)))) == "unparsed"
    assert running.send(Spec(fragment=(0, True, 1), payload=bytes(24))) == "udp"


def test_unparsed_pass() -> None:
    running = Running(Reference(loads("""nf t { port a: wire; port b: host; unparsed pass; limit vlan_tags 1;
    on a(p: eth/ipv4) { drop "ipv4"; } on b(p: eth/ipv4) { drop "ipv4"; } }""")))
    assert running.send(Spec(tags=((0x88A8, 1), (0x8100, 2)))) == "forward b"
    assert running.send(Spec(port=1, tags=((0x88A8, 1), (0x8100, 2)))) == "forward a"


def test_tags_and_their_handlers() -> None:
    running = run("""
    on a(p: eth/ipv4) { drop "plain"; }
    on a(p: eth/vlan/ipv4) { p.vlan.vid = p.vlan.vid + 1; forward b; }
    on a(p: eth/vlan) { drop "tagged"; }
    on b(p: eth/ipv4) { drop "either"; }
    on v(p: eth/vlan) { drop "tagged only"; }
    on v(p: eth/ipv4) { drop "ipv4"; }""")
    tagged = ((0x8100, 0x2005),)
    assert running.send() == "plain"
    assert running.send(Spec(tags=tagged)) == "forward b"
    assert running.frame[14:16] == bytes([0x20, 6])
    assert running.send(Spec(tags=tagged, ethertype=IPV6)) == "tagged"
    assert running.send(Spec(ethertype=IPV6)) == "no handler"
    assert running.send(Spec(port=1, tags=tagged)) == "either"
    assert running.send(Spec(port=2, tags=tagged)) == "ipv4", "the longer pattern, of those that do not name the tag"
    assert running.send(Spec(port=2, tags=tagged, ethertype=IPV6)) == "tagged only"


def test_quoted_packets() -> None:
    running = run("""fragments drop;
    on a(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
      p.quoted.l4.sport = p.quoted.l4.sport + 1;
      p.quoted.ip.src = 192.0.2.9;
      forward b;
    }
    on a(p: eth/ipv4/icmp/quoted/ipv4/icmp) { p.quoted.icmp.id = 77; forward v; }
    on a(p: eth/ipv4/icmp) { drop "other"; }""")
    error = {("icmp", "type"): 3}
    quoted = Spec(upper=17, fields={("udp", "sport"): 500})
    assert running.send(Spec(upper=1, fields=dict(error), quoted=quoted)) == "forward b"
    assert running.frame[54:58] == bytes([192, 0, 2, 9])
    assert running.frame[62:64] == (501).to_bytes(2, "big")
    assert running.send(Spec(upper=1, fields=dict(error), quoted=Spec(upper=1))) == "forward v"
    assert running.send(Spec(upper=1, fields=dict(error), quoted=Spec(upper=47, raw=bytes(8)))) == "other"
    assert running.send(Spec(upper=1, fields={("icmp", "type"): 0})) == "other"


# Functions.


def test_functions_return_early() -> None:
    running = handler("""
    let kind = classify(p);
    if kind == 9 { drop "nine"; }
    p.ip.ttl = kind;
    mark(p, kind);
    p.ip.dscp = 5;
    forward b;""", """
    fn classify(p) -> u8 {
      if p.udp.dport == 1 { return 1; }
      if p.udp.dport == 2 { drop "two"; }
      for i in 3 .. 6 { if p.udp.dport == i { return u8(i) * 10; } }
      return 9;
    }
    fn mark(p, kind: u8) {
      if kind == 1 { return; }
      p.udp.sport = 1234;
    }""")
    assert [running.send(dport=d) for d in (2, 9)] == ["two", "nine"]
    for dport, ttl, sport in ((1, 1, 1000), (4, 40, 1234), (5, 50, 1234)):
        assert running.send(dport=dport, sport=1000) == "forward b"
        assert (running.frame[22], int.from_bytes(running.frame[34:36], "big")) == (ttl, sport)
        assert running.frame[15] >> 2 == 5


def test_functions_take_what_they_are_given() -> None:
    running = handler("""
    lookup m[p.ip.src] { hit e { bump(e, p); forward b; } miss { insert m { k: p.ip.src, n: 1 } {
      ok e { bump(e, p); forward b; } full { drop "full"; } } } }""", """
    map m { entry { k: ipv4, n: u16 } key = k; capacity 4; }
    fn twice(x) -> u16 { return x + x; }
    fn bump(e, p) { e.n = twice(e.n); p.udp.dport = e.n; }""")
    for expected in (2, 4, 8):
        running.send()
        assert int.from_bytes(running.frame[36:38], "big") == expected


def test_function_arguments_are_computed_once() -> None:
    running = handler("twice(p, touched(p)); forward b;", """counter c;
    fn touched(p) -> u8 { count c; return p.ip.ttl; }
    fn twice(p, x: u8) { p.ip.ttl = x; p.ip.dscp = u6(x); }""")
    running.send(ip_ttl=7)
    assert running.state()["c"]["values"][0][0] == 1
    assert (running.frame[22], running.frame[15] >> 2) == (7, 7)


# State.

MAP = "map m { entry { k: u16, n: u16 } key = k; capacity 2; timeout 10s; full %s; }"
COUNT = """
    lookup m[p.udp.sport] {
      hit e { e.n = e.n + 1; touch e; p.udp.dport = e.n; forward b; }
      miss { insert m { k: p.udp.sport, n: 1 } { ok { forward b; } full { drop "full"; } } }
    }"""


def test_maps() -> None:
    running = handler(COUNT, MAP % "reject")
    assert [running.send(sport=s) for s in (1, 2, 3, 1)] == ["forward b", "forward b", "full", "forward b"]
    assert running.frame[36:38] == bytes([0, 2])
    assert running.send(sport=1, at=10) == "forward b", "idle for exactly the time-out is alive"
    assert running.send(sport=3, at=10) == "full"
    assert running.send(sport=3, at=10.5) == "forward b", "2 has gone"
    entries = running.state()["m"]["entries"]
    assert [e["fields"] for e in entries] == [{"k": 1, "n": 3}, {"k": 3, "n": 1}]


def test_eviction() -> None:
    running = handler(COUNT, MAP % "evict_lru")
    assert [running.send(sport=s, at=i) for i, s in enumerate((1, 2, 1, 3))] == ["forward b"] * 4
    assert [e["fields"]["k"] for e in running.state()["m"]["entries"]] == [1, 3]


def test_time_out_classes_and_delete() -> None:
    running = handler("""
    lookup m[p.udp.sport] {
      hit e { if p.udp.dport == 1 { touch e as long; } if p.udp.dport == 2 { delete e; drop "deleted"; } drop "hit"; }
      miss { insert m { k: p.udp.sport } as short { ok { drop "new"; } full { drop "full"; } } }
    }""", "map m { entry { k: u16 } key = k; capacity 9; timeout { short 1s, long 100s } slack 1s; }")
    assert running.send(sport=5, dport=0) == "new"
    assert running.send(sport=5, dport=1, at=1) == "hit"
    assert running.send(sport=5, dport=0, at=90) == "hit", "no touch, but of the long class"
    assert running.send(sport=5, dport=2, at=101) == "deleted"
    assert running.send(sport=5, dport=0, at=101) == "new"
    assert running.send(sport=5, dport=0, at=102.5) == "new"


def test_pair_maps_and_pools() -> None:
    running = run("""fragments drop;
    struct F { addr: ipv4, port: u16 }
    pool ext { addr: ipv4 in 1.0.0.1 .. 1.0.0.2; port: u16 in 5 .. 6; }
    pair map m { entry { f: F, x: F = alloc ext } key out = f; key back = x; capacity 9; timeout 5s; }
    on a(p: eth/ipv4/udp) {
      lookup m.out[(p.ip.src, p.udp.sport)] {
        hit e { p.ip.src = e.x.addr; p.udp.sport = e.x.port; forward b; }
        miss {
          insert m { f: F(p.ip.src, p.udp.sport) } prefer addr = 1.0.0.2, port = p.udp.sport {
            ok e { p.ip.src = e.x.addr; p.udp.sport = e.x.port; forward b; }
            full { drop "no port"; }
          }
        }
      }
    }
    on b(p: eth/ipv4/udp) {
      lookup m.back[F(p.ip.dst, p.udp.dport)] {
        hit e { p.ip.dst = e.f.addr; p.udp.dport = e.f.port; forward a; }
        miss { drop "unknown"; }
      }
    }""")
    seen = []
    for sport in (5, 6, 7, 8, 9):
        verdict = running.send(sport=sport, ip_src=0x0A000001)
        seen.append(running.frame[26:30][-1] * 100 + running.frame[35] if verdict == "forward b" else verdict)
    assert seen == [205, 206, 105, 106, "no port"], "the wish, then upward over the whole pool, wrapping around"
    back = Spec(port=1, fields={("ipv4", "dst"): 0x01000002, ("udp", "dport"): 5})
    assert running.send(back) == "forward a"
    assert (running.frame[30:34], running.frame[36:38]) == (bytes([10, 0, 0, 1]), bytes([0, 5]))
    assert running.send(Spec(port=1, fields={("ipv4", "dst"): 0x01000003, ("udp", "dport"): 5})) == "unknown"


def test_acl_priorities_and_patterns() -> None:
    body = "lookup t[(p.ip.src, p.udp.dport, p.ip.proto)] { hit r { if r.n == 1 { drop \"one\"; } if r.n == 2 { drop " \
           "\"two\"; } drop \"three\"; } miss { drop \"none\"; } }"
    shape = "acl t { key (s: ipv4 ternary, d: u16 range, proto: u8); value { n: u8 } entries { %s } }"
    ordered = handler(body, shape % """
      (10.0.0.0/8, 80 .. 90, 17) -> { n: 1 };
      (10.0.0.0 &&& 255.0.0.1, any, 17) -> { n: 2 };
      (any, 53, 17) -> { n: 3 };""")
    by_number = handler(body, shape % """
      (10.0.0.0/8, 80 .. 90, 17) -> { n: 1 } priority 1;
      (10.0.0.0 &&& 255.0.0.1, any, 17) -> { n: 2 } priority 3;
      (any, 53, 17) -> { n: 3 } priority 2;""")
    packets = [(0x0A000002, 80), (0x0A000001, 90), (0x0A000001, 91), (0x0A000002, 91), (0x0B000001, 53),
               (0x0A000002, 53)]
    assert [ordered.send(ip_src=s, dport=d) for s, d in packets] == ["one", "one", "none", "two", "three", "two"]
    assert [by_number.send(ip_src=s, dport=d) for s, d in packets] == ["two", "one", "none", "two", "three", "two"]


def test_lpm() -> None:
    running = handler("""lookup t[p.ip.src] { hit r { p.udp.dport = r.hop; forward b; } miss { drop "none"; } }""", """
    lpm t { key s: ipv4; value { hop: u16 } entries {
      10.0.0.0/8 -> { hop: 1 }; 10.1.0.0/16 -> { hop: 2 }; 10.1.2.3 -> { hop: 3 }; } }""")
    for source, hop in ((0x0A000001, 1), (0x0A010001, 2), (0x0A010203, 3)):
        running.send(ip_src=source)
        assert running.frame[36:38] == bytes([0, hop])
    assert running.send(ip_src=0x0B000000) == "none"


def test_meters() -> None:
    running = handler("""
    police m[p.ip.src] by u32(p.udp.dport) {
      green { drop "green"; } red { drop "red"; } full { drop "full"; }
    }""", "meter m { key s: ipv4; rate 8kbps; burst 1000B; capacity 1; }")
    send = running.send
    assert [send(dport=600), send(dport=600), send(dport=400), send(dport=1)] == ["green", "red", "green", "red"]
    assert [send(dport=500, at=0.5), send(dport=1, at=0.5), send(ip_src=9, at=0.6)] == ["green", "red", "full"]
    assert send(ip_src=9, dport=1, at=1.6) == "green", "the first entry is full again and has gone"
    colours = handler("""
    police m[p.ip.src] by 600 { green { drop "g"; } yellow { drop "y"; } red { drop "r"; } full { drop "f"; } }""",
                      "meter m { key s: ipv4; rate 8bps; burst 1000B; excess 700B; capacity 1; }")
    assert [colours.send(), colours.send(), colours.send()] == ["g", "y", "r"]


def test_counters() -> None:
    running = handler("count c; count c by 7; count d[p.udp.dport]; count d[1] by u32(p.udp.dport); forward b;",
                      "counter c; counter d[3];")
    running.send(dport=2)
    running.send(dport=5)
    state = running.state()
    assert state["c"]["values"] == [[4, 2 * 42 + 14]]
    assert state["d"]["values"] == [[0, 0], [2, 7], [1, 42]], "an index beyond the counter counts nothing"


def test_reject() -> None:
    running = handler('reject "no way" with icmp(3, 13) from 192.0.2.1;')
    assert running.send() == "no way"
    (error,) = running.outputs
    assert (error.port, error.is_error) == (0, True)
    assert error.frame[26:30] == bytes([192, 0, 2, 1])
    assert error.frame[34:36] == bytes([3, 13])


def test_fragments_are_tracked() -> None:
    running = run("""fragments track { capacity 2; timeout 1s; held 1; }
    on a(p: eth/ipv4/udp) { if p.udp.dport == 53 { drop "name"; } p.udp.sport = 9; forward b; }""")
    first = Spec(raw=bytes([0, 1, 0, 80, 0, 24, 0, 0]) + bytes(8), fragment=(0, True, 5))
    assert running.send(first) == "forward b"
    assert running.frame[34:36] == bytes([0, 9])
    assert running.send(Spec(raw=b"12345678", fragment=(16, False, 5))) == "forward b"
    assert running.frame[34:] == b"12345678", "a follower's own bytes stay"
    tracker = next(s for s in running.engine.program.states if isinstance(s, nodes.FragmentState))
    assert (tracker.capacity, tracker.timeout, tracker.max_held) == (2, SECOND, 1)


def test_every_port_may_face_several_sides() -> None:
    program = loads("nf t { port a: wire | host | vf; on a(p: eth) { forward a; } }")
    assert program.ports[0].faces == ("wire", "host", "vf")
