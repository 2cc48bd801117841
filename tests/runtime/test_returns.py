"""Captures taken on one side of a translating program: the rules of docs/profile.md, "Where the capture was taken"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet as Layers
from scapy.packet import Raw

import cora
from cora.cli import main
from cora.engine.native import NativeEngine, run_sanitized
from cora.engine.reference import Reference
from cora.engine.results import (
    RETURN_FLOWS,
    Dropped,
    Event,
    Options,
    Output,
    ReturnCounts,
    StateDump,
    first_difference,
)
from cora.errors import CoraError, Kind
from cora.frontends.nf import loads
from cora.frontends.traffic import open_traffic
from cora.frontends.traffic.capture import Packet
from cora.frontends.traffic.portmap import PortMap
from cora.frontends.traffic.synthetic import TrafficSpec, write
from cora.ir.nodes import Program
from cora.runtime.returns import Returns
from cora.runtime.viewpoint import forgetting, port_number, suspicion

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
OFFICE_MAP = ("inside=10.0.0.0/24,2001:db8:1::/64",)
INSIDE, OUTSIDE = 0, 1

# Stateless, for both IP versions, and its own inverse: whatever it translates must come back as it was captured.
FLIP = """
nf flip {
  port inside: wire;
  port outside: wire;

  fragments track { capacity 4096; timeout 30s; held 3; }
  unparsed drop;

  fn other4(a: ipv4) -> ipv4 { return ipv4(u32(a) ^ 0x01020304); }
  fn other6(a: ipv6) -> ipv6 { return ipv6(u128(a) ^ 0x00010203040506070809); }
  fn other(port: u16) -> u16 { return port ^ 0x0810; }

  on inside(p: eth/ipv4/(tcp|udp)) {
    p.ip.src = other4(p.ip.src); p.l4.sport = other(p.l4.sport); forward outside;
  }
  on outside(p: eth/ipv4/(tcp|udp)) {
    p.ip.dst = other4(p.ip.dst); p.l4.dport = other(p.l4.dport); forward inside;
  }
  on inside(p: eth/ipv4/icmp) {
    p.ip.src = other4(p.ip.src);
    if p.icmp.type == 8 || p.icmp.type == 13 { p.icmp.id = other(p.icmp.id); }
    forward outside;
  }
  on outside(p: eth/ipv4/icmp) {
    p.ip.dst = other4(p.ip.dst);
    if p.icmp.type == 0 || p.icmp.type == 14 { p.icmp.id = other(p.icmp.id); }
    forward inside;
  }
  on outside(p: eth/ipv4/icmp/quoted/ipv4/(tcp|udp)) {
    p.quoted.ip.src = other4(p.quoted.ip.src); p.quoted.l4.sport = other(p.quoted.l4.sport);
    p.ip.dst = other4(p.ip.dst); forward inside;
  }
  on outside(p: eth/ipv4/icmp/quoted/ipv4/icmp) {
    p.quoted.ip.src = other4(p.quoted.ip.src); p.quoted.icmp.id = other(p.quoted.icmp.id);
    p.ip.dst = other4(p.ip.dst); forward inside;
  }
  on inside(p: eth/ipv6/(tcp|udp)) {
    p.ip.src = other6(p.ip.src); p.l4.sport = other(p.l4.sport); forward outside;
  }
  on outside(p: eth/ipv6/(tcp|udp)) {
    p.ip.dst = other6(p.ip.dst); p.l4.dport = other(p.l4.dport); forward inside;
  }
  on inside(p: eth/ipv6/icmp6) {
    p.ip.src = other6(p.ip.src); if p.icmp6.type == 128 { p.icmp6.id = other(p.icmp6.id); } forward outside;
  }
  on outside(p: eth/ipv6/icmp6) {
    p.ip.dst = other6(p.ip.dst); if p.icmp6.type == 129 { p.icmp6.id = other(p.icmp6.id); } forward inside;
  }
  on outside(p: eth/ipv6/icmp6/quoted/ipv6/(tcp|udp)) {
    p.quoted.ip.src = other6(p.quoted.ip.src); p.quoted.l4.sport = other(p.quoted.l4.sport);
    p.ip.dst = other6(p.ip.dst); forward inside;
  }
  on outside(p: eth/ipv6/icmp6/quoted/ipv6/icmp6) {
    p.quoted.ip.src = other6(p.quoted.ip.src); p.quoted.icmp6.id = other(p.quoted.icmp6.id);
    p.ip.dst = other6(p.ip.dst); forward inside;
  }
  on inside(p: eth) { forward outside; }
  on outside(p: eth) { forward inside; }
}
"""


@lru_cache(maxsize=8)
def program(name: str) -> Program:
    return loads(FLIP, "flip.nf") if name == "flip" else cora.load(ROOT / "examples" / f"{name}.nf")


class Outcome:
    """A run: events, state, what `Returns` did, and (interpreter only) each packet with the frame the program saw."""

    def __init__(self, events: list[Event], state: StateDump, counts: ReturnCounts,
                 seen: Sequence[tuple[Packet, bytes]] = ()) -> None:
        self.events, self.state, self.counts, self.seen = events, state, counts, seen

    def outputs(self) -> dict[int, Output]:
        return {e.index: e for e in self.events if isinstance(e, Output) and not e.is_error}

    def drops(self) -> dict[int, str]:
        return {e.index: e.reason for e in self.events if isinstance(e, Dropped)}


def interpret(nf: Program, packets: Sequence[Packet], flow_limit: int = RETURN_FLOWS) -> Outcome:
    engine = Reference(nf)
    returns = Returns(INSIDE, Options(), flow_limit)
    events: list[Event] = []
    seen = []
    for packet in packets:
        frame = returns.before(packet)
        caused = engine.process(packet.port, packet.time_ns, frame, packet.wirelen)
        returns.after(packet, caused)
        events += caused
        seen.append((packet, frame))
    return Outcome(events, engine.state(), returns.counts(), seen)


def both(nf: Program, packets: Sequence[Packet], flow_limit: int = RETURN_FLOWS) -> Outcome:
    """What the interpreter does, after a comparison with the native engine."""
    outcome = interpret(nf, packets, flow_limit)
    with NativeEngine(nf, captured_at=INSIDE, flow_limit=flow_limit) as engine:
        events = [e for p in packets for e in engine.process(p.port, p.time_ns, p.frame, p.wirelen)]
        assert_same(outcome, Outcome(events, engine.state(), engine.returns()))
    return outcome


def native_capture(nf: Program, capture: Path, port_map: Sequence[str]) -> Outcome:
    mapping = PortMap.parse(port_map, [p.name for p in nf.ports])
    with open_traffic(capture) as traffic, NativeEngine(nf, captured_at=INSIDE) as engine:
        events = list(engine.run_events(mapping.assign(traffic).batches()))
        return Outcome(events, engine.state(), engine.returns())


def packets_of(capture: Path, port_map: Sequence[str], ports: Sequence[str] = ("inside", "outside")) -> list[Packet]:
    with open_traffic(capture) as traffic:
        return list(PortMap.parse(port_map, ports).assign(traffic).packets())


def assert_same(left: Outcome, right: Outcome) -> None:
    assert left.events == right.events
    assert first_difference(left.state, right.state) is None
    assert left.counts == right.counts


@pytest.fixture(scope="module")
def office() -> Outcome:
    return interpret(program("nat"), packets_of(OFFICE, OFFICE_MAP))


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synthetic") / "short.pcap"
    write(TrafficSpec.parse({"packets": 6000, "flows": 300, "churn": "20k", "rate": "1Mpps"}), path)
    return path


# --- the two engines ---


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", ["nat", "nat.ref", "firewall", "flip"])
def test_engines_agree_on_the_shipped_capture(name: str) -> None:
    nf = program(name)
    flags = [f"{nf.ports[0].name}={OFFICE_MAP[0].partition('=')[2]}"]
    packets = packets_of(OFFICE, flags, [p.name for p in nf.ports])
    assert_same(interpret(nf, packets), native_capture(nf, OFFICE, flags))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("family", [4, 6])
def test_engines_agree_on_synthetic_traffic(family: int, tmp_path: Path) -> None:
    path = tmp_path / "s.pcap"
    write(TrafficSpec.parse({"packets": 3000, "flows": 200, "family": family, "churn": "20k"}), path)
    for name in ("nat", "flip"):
        assert_same(interpret(program(name), packets_of(path, ())), native_capture(program(name), path, ()))


TRACES = ("ndpi_tiny_frags.pcap", "tcpdump_afs_frags.pcap", "pcpp_ip6_fragments.pcap", "zeek_v6_atomic_frag.pcap",
          "zeek_vlan_collisions.pcap", "zeek_snaplen68.pcap", "tcpdump_kday4_cut.pcap", "ndpi_fuzz_be.pcap",
          "ndpi_kakao_sll.pcap", "zeek_mpls_broken.pcap.gz", "ndpi_reddit_v6.pcap", "tcpreplay_test.pcap",
          "mercury_pppoe_qinq.pcap")


@pytest.mark.needs("gcc")
@pytest.mark.needs("traces")
@pytest.mark.parametrize("trace", TRACES)
def test_engines_agree_on_public_captures(trace: str, traces: Path) -> None:
    packets = packets_of(traces / trace, ())
    for name in ("nat", "flip"):
        assert_same(interpret(program(name), packets), native_capture(program(name), traces / trace, ()))


@pytest.mark.needs("sanitizers")
@pytest.mark.needs("traces")
def test_sanitizers_find_nothing(traces: Path) -> None:
    names = ("ndpi_fuzz_be.pcap", "ndpi_tiny_frags.pcap", "tcpdump_kday4_cut.pcap", "zeek_snaplen68.pcap",
             "pcpp_ip6_fragments.pcap")
    found = [*packets_of(OFFICE, OFFICE_MAP), *(p for n in names for p in packets_of(traces / n, ())), *cut_short()]
    packets = [Packet(i, p.time_ns, p.frame, p.wirelen, p.port) for i, p in enumerate(found)]
    expected = interpret(program("flip"), packets)
    run = run_sanitized(program("flip"), [(p.port, p.time_ns, p.frame, p.wirelen) for p in packets],
                        captured_at=INSIDE)
    assert run.events == expected.events
    assert first_difference(run.state, expected.state) is None


def cut_short() -> Iterator[Packet]:
    """Every kind of packet that is translated, cut at every byte."""
    for out, *_, back in KINDS.values():
        yield Packet(0, 0, raw(out), len(raw(out)), INSIDE)
        whole = raw(back)
        for kept in range(len(whole)):
            yield Packet(0, 0, whole[:kept], len(whole), OUTSIDE)


# --- what the program sees ---

A4, B4, X4 = "10.0.0.5", "198.51.100.9", "11.2.3.1"  # an inside host, a server, what the inside host becomes
A6, B6, X6 = "2001:db8:1::5", "2001:db8:2::9", "2001:db8:1:1:203:405:607:80c"
P, Q, Y = 40000, 443, 40000 ^ 0x0810
DATA = Raw(b"some payload of an odd length")


def eth(*tags: int) -> Layers:
    head: Layers = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for tag in tags:
        head /= Dot1Q(vlan=tag)
    return head


def quoted(packet: Layers) -> Raw:
    """The packet as an ICMP error quotes it: with its checksums, computed by scapy from the whole of it."""
    return Raw(raw(packet))


def unreachable(source: str, client: str, port: int, layer: type[Layers]) -> Layers:
    inner = IP(src=client, dst=B4, id=7, ttl=3) / layer(sport=port, dport=Q) / DATA
    return eth() / IP(src=source, dst=client) / ICMP(type=3, code=1) / quoted(inner)


def unreachable_echo(client: str, ident: int) -> Layers:
    inner = IP(src=client, dst=B4, id=7) / ICMP(type=8, id=ident, seq=3) / DATA
    return eth() / IP(src="192.0.2.1", dst=client) / ICMP(type=11) / quoted(inner)


def unreachable6(source: str, client: str, port: int) -> Layers:
    inner = IPv6(src=client, dst=B6) / UDP(sport=port, dport=Q) / DATA
    return eth() / IPv6(src=source, dst=client) / ICMPv6DestUnreach(code=4) / quoted(inner)


def too_big6(client: str, ident: int) -> Layers:
    inner = IPv6(src=client, dst=B6) / IPv6ExtHdrDestOpt() / ICMPv6EchoRequest(id=ident, data=b"abc")
    return eth() / IPv6(src="2001:db8:ff::2", dst=client) / ICMPv6PacketTooBig(mtu=1280) / quoted(inner)


# Per kind: a packet of the inside; a packet of the outside as the capture shows it, and as the program must see it.
KINDS: dict[str, tuple[Layers, Layers, Layers]] = {
    "tcp": (eth() / IP(src=A4, dst=B4) / TCP(sport=P, dport=Q, flags="S"),
            eth() / IP(src=B4, dst=A4) / TCP(sport=Q, dport=P, flags="SA") / DATA,
            eth() / IP(src=B4, dst=X4) / TCP(sport=Q, dport=Y, flags="SA") / DATA),
    "udp with options and tags": (
        eth(5) / IP(src=A4, dst=B4) / UDP(sport=P, dport=Q) / DATA,
        eth(5, 6) / IP(src=B4, dst=A4, options=[IPOption_NOP()] * 4) / UDP(sport=Q, dport=P) / DATA,
        eth(5, 6) / IP(src=B4, dst=X4, options=[IPOption_NOP()] * 4) / UDP(sport=Q, dport=Y) / DATA),
    "udp without checksum": (
        eth() / IP(src=A4, dst=B4) / UDP(sport=P, dport=Q) / DATA,
        eth() / IP(src=B4, dst=A4) / UDP(sport=Q, dport=P, chksum=0) / DATA,
        eth() / IP(src=B4, dst=X4) / UDP(sport=Q, dport=Y, chksum=0) / DATA),
    "echo": (eth() / IP(src=A4, dst=B4) / ICMP(type=8, id=P) / DATA,
             eth() / IP(src=B4, dst=A4) / ICMP(type=0, id=P) / DATA,
             eth() / IP(src=B4, dst=X4) / ICMP(type=0, id=Y) / DATA),
    "time stamp": (eth() / IP(src=A4, dst=B4) / ICMP(type=13, id=P, ts_ori=5),
                   eth() / IP(src=B4, dst=A4) / ICMP(type=14, id=P, ts_ori=5, ts_rx=7, ts_tx=8),
                   eth() / IP(src=B4, dst=X4) / ICMP(type=14, id=Y, ts_ori=5, ts_rx=7, ts_tx=8)),
    "error about tcp from a router": (
        eth() / IP(src=A4, dst=B4) / TCP(sport=P, dport=Q), unreachable("192.0.2.1", A4, P, TCP),
        unreachable("192.0.2.1", X4, Y, TCP)),
    "error about udp from the server": (
        eth() / IP(src=A4, dst=B4) / UDP(sport=P, dport=Q), unreachable(B4, A4, P, UDP), unreachable(B4, X4, Y, UDP)),
    "error about an echo": (
        eth() / IP(src=A4, dst=B4) / ICMP(type=8, id=P), unreachable_echo(A4, P), unreachable_echo(X4, Y)),
    "tcp over ipv6": (
        eth() / IPv6(src=A6, dst=B6) / TCP(sport=P, dport=Q),
        eth() / IPv6(src=B6, dst=A6) / IPv6ExtHdrDestOpt() / TCP(sport=Q, dport=P, flags="SA") / DATA,
        eth() / IPv6(src=B6, dst=X6) / IPv6ExtHdrDestOpt() / TCP(sport=Q, dport=Y, flags="SA") / DATA),
    "udp over ipv6": (
        eth() / IPv6(src=A6, dst=B6) / UDP(sport=P, dport=Q) / DATA,
        eth(9) / IPv6(src=B6, dst=A6) / UDP(sport=Q, dport=P) / DATA,
        eth(9) / IPv6(src=B6, dst=X6) / UDP(sport=Q, dport=Y) / DATA),
    "echo over ipv6": (
        eth() / IPv6(src=A6, dst=B6) / ICMPv6EchoRequest(id=P, data=b"abc"),
        eth() / IPv6(src=B6, dst=A6) / ICMPv6EchoReply(id=P, data=b"abc"),
        eth() / IPv6(src=B6, dst=X6) / ICMPv6EchoReply(id=Y, data=b"abc")),
    "error about udp over ipv6": (
        eth() / IPv6(src=A6, dst=B6) / UDP(sport=P, dport=Q) / DATA,
        unreachable6("2001:db8:ff::2", A6, P), unreachable6("2001:db8:ff::2", X6, Y)),
    "error about an echo over ipv6": (
        eth() / IPv6(src=A6, dst=B6) / ICMPv6EchoRequest(id=P, data=b"abc"), too_big6(A6, P), too_big6(X6, Y)),
}


def arrivals(*packets: tuple[int, bytes]) -> list[Packet]:
    return [Packet(i, 10**9 + i, frame, len(frame), port) for i, (port, frame) in enumerate(packets)]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_answer_is_translated(kind: str) -> None:
    sent, captured, expected = (raw(layers) for layers in KINDS[kind])
    outcome = both(program("flip"), arrivals((INSIDE, sent), (OUTSIDE, captured)))
    assert outcome.seen[1][1] == expected
    assert outcome.counts == ReturnCounts(1, 0)
    # The program undoes what it did to the other direction.
    assert outcome.outputs()[1].frame == captured


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_translated_before_it_was_learned(kind: str) -> None:
    _, captured, _ = (raw(layers) for layers in KINDS[kind])
    outcome = both(program("flip"), arrivals((OUTSIDE, captured), (INSIDE, captured)))
    assert [frame for _, frame in outcome.seen] == [captured, captured]
    assert outcome.counts == ReturnCounts(0, 0)


@pytest.mark.needs("gcc")
def test_an_error_from_a_translated_host_comes_from_where_the_program_has_sent_to() -> None:
    # A balancer that turns the server's address into another: its error must come from that other one.
    text = """
    nf balancer {
      port clients: wire; port servers: wire;
      fragments ignore; unparsed drop;
      on clients(p: eth/ipv4/udp) { p.ip.dst = 192.0.2.77; p.udp.dport = 8443; forward servers; }
      on clients(p: eth) { drop "other"; }
      on servers(p: eth) { forward clients; }
    }"""
    def error(server: str, port: int) -> bytes:
        inner = IP(src=A4, dst=server) / UDP(sport=P, dport=port) / DATA
        return raw(eth() / IP(src=server, dst=A4) / ICMP(type=3, code=3) / quoted(inner))

    out = raw(eth() / IP(src=A4, dst=B4) / UDP(sport=P, dport=Q) / DATA)
    outcome = both(loads(text, "b.nf"), arrivals((INSIDE, out), (OUTSIDE, error(B4, Q))))
    assert outcome.seen[1][1] == error("192.0.2.77", 8443)


def pieces4(target: str, port: int, ident: int) -> list[bytes]:
    whole = raw(IP(src=B4, dst=target, id=ident) / UDP(sport=Q, dport=port) / Raw(bytes(range(200)) * 2))[20:]
    cut = [whole[:160], whole[160:320], whole[320:]]
    return [raw(eth() / IP(src=B4, dst=target, id=ident, proto=17, frag=20 * i, flags="MF" if i < 2 else 0) / Raw(part))
            for i, part in enumerate(cut)]


def pieces6(target: str, port: int, ident: int) -> list[bytes]:
    whole = raw(IPv6(src=B6, dst=target) / UDP(sport=Q, dport=port) / Raw(bytes(range(200)) * 2))[40:]
    cut = [whole[:160], whole[160:320], whole[320:]]
    return [raw(eth() / IPv6(src=B6, dst=target) / IPv6ExtHdrFragment(nh=17 + i, id=ident, offset=20 * i, m=int(i < 2))
                / Raw(part)) for i, part in enumerate(cut)]


@pytest.mark.needs("gcc")
def test_fragments_follow_their_first_one() -> None:
    for pieces, inside, x, ip, a in ((pieces4, A4, X4, IP, B4), (pieces6, A6, X6, IPv6, B6)):
        out = raw(eth() / ip(src=inside, dst=a) / UDP(sport=P, dport=Q) / DATA)
        captured = pieces(inside, P, 77)
        outcome = both(program("flip"), arrivals((INSIDE, out), *((OUTSIDE, f) for f in captured)))
        assert [frame for _, frame in outcome.seen[1:]] == pieces(x, Y, 77)
        if ip is IP:  # the later pieces of the other one do not name UDP, so the program does not know them
            assert [outcome.outputs()[i + 1].frame for i in range(3)] == captured


@pytest.mark.needs("gcc")
def test_fragments_of_another_datagram_are_left_alone() -> None:
    out = raw(eth() / IP(src=A4, dst=B4) / UDP(sport=P, dport=Q) / DATA)
    first, *_ = pieces4(A4, P, 77)
    _, other, _ = pieces4(A4, P, 78)
    # The first fragment of 79 goes to a port that nothing was sent from, so nothing of it is translated, although its
    # identification was used before.
    reused = pieces4(A4, P + 1, 77)
    outcome = both(program("flip"), arrivals((INSIDE, out), (OUTSIDE, first), (OUTSIDE, other),
                                                  *((OUTSIDE, f) for f in reused)))
    assert [frame for _, frame in outcome.seen[2:]] == [other, *reused]


def out(ttl: int) -> tuple[int, bytes]:
    return INSIDE, raw(eth() / IP(src=A4, dst=B4, ttl=ttl) / UDP(sport=P, dport=Q) / DATA)


def back(port: int) -> bytes:
    return raw(eth() / IP(src=B4, dst=A4) / UDP(sport=Q, dport=port) / DATA)


@pytest.mark.needs("gcc")
def test_each_port_has_translations_of_its_own() -> None:
    text = """
    nf three {
      port inside: wire; port left: wire; port right: wire;
      fragments ignore; unparsed drop;
      on inside(p: eth/ipv4/udp) {
        if p.ip.ttl > 100 { p.udp.sport = 7; forward left; } else { p.udp.sport = 8; forward right; }
      }
      on inside(p: eth) { drop "other"; }
      on left(p: eth) { forward inside; }
      on right(p: eth) { forward inside; }
    }"""
    answer = back(P)
    answers = (1, answer), (2, answer)
    outcome = both(loads(text, "three.nf"), arrivals(out(200), *answers, out(9), *answers))
    assert [frame for p, frame in outcome.seen if p.port] == [back(7), answer, back(7), back(8)]


@pytest.mark.needs("gcc")
def test_a_later_translation_replaces_an_earlier_one() -> None:
    text = """
    nf turns {
      port inside: wire; port outside: wire;
      fragments ignore; unparsed drop;
      on inside(p: eth/ipv4/udp) {
        if p.ip.ttl > 100 { p.udp.sport = 7; } else { if p.ip.ttl > 50 { p.udp.sport = 8; } }
        forward outside;
      }
      on inside(p: eth) { drop "other"; }
      on outside(p: eth) { forward inside; }
    }"""
    answer = (OUTSIDE, back(P))
    outcome = both(loads(text, "t.nf"), arrivals(out(200), answer, out(60), answer, out(9), answer))
    assert [outcome.seen[i][1] for i in (1, 3, 5)] == [back(7), back(8), back(P)]


@pytest.mark.needs("gcc")
def test_the_oldest_flows_are_forgotten() -> None:
    flows = [raw(eth() / IP(src=A4, dst=B4) / UDP(sport=1000 + i, dport=Q) / DATA) for i in range(9)]
    answers = [raw(eth() / IP(src=B4, dst=A4) / UDP(sport=Q, dport=1000 + i) / DATA) for i in range(9)]
    # Room for 8: the ninth flow makes the first four old ones go, except the one that was used again.
    packets = arrivals(*((INSIDE, f) for f in (*flows[:8], flows[0], flows[8])), *((OUTSIDE, f) for f in answers))
    for limit, lost in ((8, {1, 2, 3}), (18, set())):
        outcome = both(program("flip"), packets, flow_limit=limit)
        untouched = {i for i, (_, frame) in enumerate(outcome.seen[10:]) if frame == answers[i]}
        assert untouched == lost
        assert outcome.counts == ReturnCounts(9 - len(lost), int(limit == 8))
        assert len(forgetting(outcome.counts)) == int(limit == 8)


# --- whole captures ---


def sums_are_right(frame: bytes) -> bool:
    """Whether every checksum of an IP packet over Ethernet is right, computed anew by scapy; other packets are."""
    layers = Ether(frame)
    fresh = layers.copy()
    for layer in (IP, TCP, UDP, ICMP):
        found = fresh.getlayer(layer)
        # An unset UDP checksum is right over IPv4.
        if found is not None and not (layer is UDP and found.chksum == 0):
            del found.chksum
    return bool(raw(fresh) == raw(layers))


def has_right_sums(packet: Packet) -> bool:
    return len(packet.frame) == packet.wirelen and sums_are_right(packet.frame)


def test_right_checksums_stay_right(office: Outcome) -> None:
    translated = [(p, frame) for p, frame in office.seen if frame != p.frame]
    assert len(translated) == office.counts.translated > 3000
    checked = 0
    for packet, frame in translated[::3]:
        if IP in Ether(packet.frame) and not Ether(packet.frame)[IP].frag and has_right_sums(packet):
            assert sums_are_right(frame)
            checked += 1
    assert checked > 300


def test_the_office_gets_its_answers(office: Outcome) -> None:
    drops, outputs = office.drops(), office.outputs()
    outside = [p for p, _ in office.seen if p.port == OUTSIDE and p.frame[12:14] == b"\x08\0"]
    refused = [p for p in outside if p.index in drops]
    # Two packets died inside at a TTL that the recorded gateway had already lowered; the errors about them come back.
    assert [drops[p.index] for p in refused] == ["ICMP error without mapping"] * 2
    assert list(drops.values()).count("TTL expired") == 2
    for packet in outside:
        if packet.index not in drops:
            assert outputs[packet.index].port == INSIDE
            assert outputs[packet.index].frame == one_hop_on(packet.frame)


def one_hop_on(frame: bytes) -> bytes:
    """The IPv4 packet with its TTL one lower and its header checksum computed anew."""
    head = bytearray(frame[14:14 + 4 * (frame[14] & 15)])
    head[8] -= 1
    head[10:12] = b"\0\0"
    head[10:12] = dpkt.in_cksum(bytes(head)).to_bytes(2, "big")
    return frame[:14] + bytes(head) + frame[14 + len(head):]


def test_errors_and_fragments_of_the_office_are_among_them(office: Outcome) -> None:
    outputs = office.outputs()
    arrived = [p for p, _ in office.seen if p.port == OUTSIDE and p.frame[12:14] == b"\x08\0"]
    fragments = [p for p in arrived if int.from_bytes(p.frame[20:22]) & 0x3FFF]
    errors = [p for p in arrived if p not in fragments and p.frame[23] == 1 and p.frame[34] in (3, 11)]
    assert (len(errors), len(fragments)) == (18, 44)
    # The two that are not delivered are explained above.
    assert len([p for p in errors if p.index in outputs]) == 16
    assert all(p.index in outputs for p in fragments)


def test_every_synthetic_connection_completes(synthetic: Path) -> None:
    packets = packets_of(synthetic, ())
    outcome = interpret(program("nat"), packets)
    assert outcome.drops() == {}
    assert outcome.outputs().keys() == set(range(6000))
    fins: list[set[tuple[bytes, ...]]] = [set(), set()]
    for p in packets:
        if p.frame[23] == 6 and p.frame[47] & 1:
            ends = p.frame[26:30] + p.frame[34:36], p.frame[30:34] + p.frame[36:38]
            fins[p.port].add(ends if p.port == INSIDE else ends[::-1])
    closed = fins[INSIDE] & fins[OUTSIDE]
    assert len(closed) > 50
    entries: Any = outcome.state["conns"]["entries"]
    flows = [e["fields"] for e in entries if e["fields"]["seen"] & 12 == 12]
    assert closed == {tuple(f[f"flow.{a}"].to_bytes(4) + f[f"flow.{b}"].to_bytes(2)
                            for a, b in (("src", "sp"), ("dst", "dp"))) for f in flows}


@pytest.mark.needs("gcc")
def test_a_program_that_rewrites_nothing_is_not_affected() -> None:
    nf = program("firewall")
    flags = [f"{nf.ports[0].name}={OFFICE_MAP[0].partition('=')[2]}"]
    plain = cora.replay(nf, OFFICE, port_map=flags)
    sided = cora.replay(nf, OFFICE, port_map=flags, captured_at=nf.ports[0].name)
    assert (plain.summary, plain.state) == (sided.summary, sided.state)
    assert (plain.translated, sided.translated) == (0, 0)
    assert not [w for w in plain.warnings if "--captured-at" in w]


# --- wiring ---


@pytest.mark.needs("gcc")
def test_replay_of_both_engines(tmp_path: Path) -> None:
    written = []
    engines: tuple[Any, ...] = ("native", "reference")
    for engine in engines:
        result = cora.replay(program("nat"), OFFICE, engine=engine, port_map=OFFICE_MAP, captured_at="inside",
                             write=tmp_path / engine)
        written.append((result.summary, result.translated, result.warnings, (tmp_path / engine).read_bytes()))
    assert written[0] == written[1]
    assert written[0][1] == 3111


@pytest.mark.needs("gcc")
def test_profile_records_where_it_was_taken() -> None:
    plain = cora.profile(program("nat"), OFFICE, port_map=OFFICE_MAP)
    sided = cora.profile(program("nat"), OFFICE, port_map=OFFICE_MAP, captured_at="inside")
    assert (plain.source["captured_at"], plain.source["translated"]) == (None, 0)
    assert (sided.source["captured_at"], sided.source["translated"]) == ("inside", 3111)

    def missing(profile: Any) -> int:
        return sum(p.packets for p in profile.paths if "no mapping" in p.verdict)

    assert missing(plain) > 3000
    assert missing(sided) == 0
    assert [w for w in plain.source["warnings"] if "--captured-at inside" in w]
    assert not [w for w in sided.source["warnings"] if "--captured-at" in w]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("engine", ["native", "reference"])
def test_the_hint(engine: Any) -> None:
    result = cora.replay(program("nat"), OFFICE, engine=engine, port_map=OFFICE_MAP)
    (hint,) = [w for w in result.warnings if "--captured-at" in w]
    assert hint.startswith("100% of the packets that arrived on outside were dropped")


def test_the_hint_needs_many_drops_on_another_port() -> None:
    nat = program("nat")
    assert suspicion(nat, [100, 100], [100, 20]) == []
    assert len(suspicion(nat, [100, 100], [0, 21])) == 1
    assert suspicion(nat, [100, 0], [0, 0]) == []
    assert suspicion(program("firewall"), [100, 100], [0, 100]) == []


def test_trace_shows_the_packet_as_the_program_saw_it(office: Outcome) -> None:
    packet, frame = next((p, f) for p, f in office.seen if f != p.frame)
    found = cora.trace(program("nat"), OFFICE, packet.index, port_map=OFFICE_MAP, captured_at="inside")
    assert found.translated
    assert found.packet.frame == frame
    assert next(e for e in found.events if isinstance(e, Output)).port == INSIDE
    assert not cora.trace(program("nat"), OFFICE, packet.index, port_map=OFFICE_MAP).translated


def test_an_unknown_port_is_refused() -> None:
    with pytest.raises(CoraError) as caught:
        port_number(program("nat"), "insid")
    assert caught.value.diagnostics[0].kind is Kind.PORT_MAP
    assert caught.value.render() == ("--captured-at insid: error[E204 bad-port-map]: the program has no port 'insid'\n"
                                     "help: did you mean 'inside'?")
    with pytest.raises(CoraError, match="no port 'x'") as caught:
        port_number(program("nat"), "x")
    assert caught.value.diagnostics[0].hint == "its ports are inside, outside"


@pytest.mark.needs("gcc")
def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    nat = str(ROOT / "examples" / "nat.nf")
    flags = ["--port-map", OFFICE_MAP[0], "--captured-at", "inside"]
    main(["replay", nat, str(OFFICE), *flags, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert (facts["captured_at"], facts["translated"]) == ("inside", 3111)
    assert "no mapping" not in facts["dropped"]
    said = "captured at inside: 3,111 packets of other ports translated as the program translates"
    for command in ("replay", "profile"):
        main([command, nat, str(OFFICE), *flags])
        assert said in capsys.readouterr().out
    for words in (["replay"], ["profile"], ["trace", "--packet", "3"]):
        with pytest.raises(SystemExit, match="2"):
            main([*words, nat, str(OFFICE), "--captured-at", "nowhere"])
        assert "the program has no port 'nowhere'" in capsys.readouterr().err
