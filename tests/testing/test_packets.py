"""Built frames are right where they should be, checked against scapy; traffic meets a program's tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from kit import steady
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket

from cora.engine.reference import Reference
from cora.engine.results import Output
from cora.frontends import nf
from cora.testing import Packet, generate, packet_sequences, random_packets
from cora.testing.choices import RandomChoices
from cora.testing.frames import IPV4, IPV6, Spec, build, datagram, retarget, upper_bytes
from cora.testing.packets import Traffic

NAT = """nf nat {
  port inside: wire; port outside: wire;
  struct Flow { src: ipv4, sp: u16, dst: ipv4, dp: u16 }
  pool ext: u16 in 1024 .. 2000;
  pair map conns {
    entry { flow: Flow, x: u16 = alloc ext }
    key fwd = flow; key rev = x;
    timeout 60s; capacity 900; full reject;
  }
  fragments drop;
  on inside(p: eth/ipv4/(tcp|udp)) {
    let k = Flow(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport);
    lookup conns.fwd[k] {
      hit e { touch e; p.l4.sport = e.x; forward outside; }
      miss { insert conns { flow: k } { ok e { p.l4.sport = e.x; forward outside; } full { drop "full"; } } }
    }
  }
  on outside(p: eth/ipv4/(tcp|udp)) {
    lookup conns.rev[p.l4.dport] { hit e { p.l4.dport = e.flow.sp; forward inside; } miss { drop "no mapping"; } }
  }
}"""


def recomputed(frame: bytes) -> bytes:
    """The frame with every length and checksum worked out by scapy."""
    packet: ScapyPacket = Ether(frame)
    for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len", "chksum")), (TCP, ("chksum",)),
                         (ICMP, ("chksum",))):
        if packet.haslayer(layer):
            for name in names:
                delattr(packet[layer], name)
    return bytes(packet)


@pytest.mark.parametrize(("ethertype", "upper"), [(IPV4, 1), (IPV4, 6), (IPV4, 17), (IPV6, 6), (IPV6, 17)])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(57))])
def test_lengths_and_checksums_are_those_of_scapy(ethertype: int, upper: int, payload: bytes) -> None:
    spec = Spec(ethertype=ethertype, upper=upper, payload=payload,
                fields={("l4", "sport"): 1000, ("l4", "dport"): 53, ("ipv4", "ttl"): 7, ("tcp", "seq"): 0xFFFFFFFF})
    frame, wirelen = build(spec)
    assert wirelen == len(frame)
    assert frame == recomputed(frame)


def test_flaws_do_what_they_say() -> None:
    whole, _ = build(Spec(payload=bytes(20)))
    cut, wirelen = build(Spec(payload=bytes(20), flaws={"cut": 30}))
    assert (cut, wirelen) == (whole[:30], len(whole))
    padded, wirelen = build(Spec(payload=bytes(20), flaws={"pad": 9}))
    assert (padded, wirelen) == (whole + bytes(9), len(whole) + 9)
    wrong, _ = build(Spec(payload=bytes(20), flaws={"ip_sum": 1}))
    assert [i for i in range(len(whole)) if whole[i] != wrong[i]] == [25]
    long, wirelen = build(Spec(payload=bytes(20), flaws={"wirelen": 9000}))
    assert (len(long), wirelen) == (2000, 9000)


@pytest.mark.parametrize(("header", "name", "value"), [
    ("ipv4", "ttl", 1), ("ipv4", "ihl", 8), ("tcp", "data_offset", 7), ("ipv4", "length", 100), ("ipv4", "proto", 47),
    ("eth", "tags", 3), ("eth", "type", 0x0806), ("tcp", "flags", 0x12)])
def test_retargeting_gives_the_wanted_field(header: str, name: str, value: int) -> None:
    spec = Spec(upper=6, payload=bytes(10))
    retarget(spec, header, name, value)
    packet = Ether(build(spec)[0])
    if (header, name) == ("eth", "tags"):
        assert len([layer for layer in packet.layers() if layer.__name__ == "Dot1Q"]) == value
        return
    places = {"ttl": (IP, "ttl"), "ihl": (IP, "ihl"), "length": (IP, "len"), "proto": (IP, "proto"),
              "type": (Ether, "type"), "data_offset": (TCP, "dataofs"), "flags": (TCP, "flags")}
    layer, field = places[name]
    assert int(getattr(packet[layer], field)) == value


@pytest.mark.parametrize("seed", range(30))
def test_fragments_are_parts_of_one_datagram(seed: int) -> None:
    traffic = Traffic(nf.loads(NAT), RandomChoices(seed))
    whole = Spec(ethertype=IPV4 if seed % 2 else IPV6, payload=bytes(range(100)))
    octets = upper_bytes(whole) + bytes(320)  # a few datagrams are longer, to have many fragments
    wrong_ends = 0
    pieces = traffic.pieces(whole)
    length = max(p.fragment[0] + len(p.raw) for p in pieces if p.fragment is not None and p.raw is not None)
    for piece in pieces:
        assert piece.fragment is not None
        assert piece.raw is not None
        at, more, _ = piece.fragment
        assert octets[at:at + len(piece.raw)] == piece.raw
        assert datagram(piece).endswith(piece.raw)
        wrong_ends += not more and at + len(piece.raw) < length
    assert wrong_ends <= 1


def test_a_seed_always_gives_the_same_packets() -> None:
    program = nf.loads(NAT)
    assert random_packets(program, 5, 80) == random_packets(program, 5, 80)
    assert random_packets(program, 5, 80) != random_packets(program, 6, 80)


def test_packets_keep_the_contract_of_engines() -> None:
    for seed in range(8):
        program = generate(seed).program
        for p in random_packets(program, seed, 60):
            assert len(p.frame) <= p.wirelen
            assert 0 <= p.time_ns < 1 << 63
            assert 0 <= p.port < len(program.ports)


def test_replies_come_back_through_a_nat() -> None:
    program = nf.loads(NAT)
    engine = Reference(program)
    back = 0
    for p in random_packets(program, 1, 400):
        events = engine.process(p.port, p.time_ns, p.frame, p.wirelen)
        back += sum(isinstance(e, Output) and e.port == 0 for e in events)
    assert back >= 5


PROGRAM = nf.loads(NAT)


@given(packet_sequences(PROGRAM, 15))
@steady(15)
def test_sequences_that_hypothesis_draws_run(packets: list[Packet]) -> None:
    engine = Reference(PROGRAM)
    for p in packets:
        assert engine.process(p.port, p.time_ns, p.frame, p.wirelen)
    assert engine.summary().packets == len(packets)
