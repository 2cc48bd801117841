"""Public captures through a rewriting program: by full recomputation, every checksum is off by what it was off before.

A right one is off by 0; some of the captures were taken before the card filled checksums in. Datagrams are put together
again by the code here (first come, first kept), so that a checksum that spans fragments counts.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, TypeAlias

import dpkt
import pytest
from reference_kit import program
from scapy.utils import checksum

from cora.engine.reference import Reference
from cora.engine.results import Held, Options, Output
from cora.ir.nodes import FRAGMENT_OUTCOMES, Program

HEAD = """fragments f capacity 64 timeout 30000000000 held 8
block start ()
 extract eth limit 5 - - {ok -> kind, malformed -> bad, unparsed -> bad}
block kind ()
 %kind : u16 = load eth type
 switch %kind {2048 -> ipv4, 34525 -> ipv6} else bad
"""
FAMILY = """block IP ()
 extract IP limit 8 - - {ok -> IP_track, malformed -> bad, unparsed -> bad}
block IP_track ()
 track_fragment f IP {ok -> IP_go, hold -> wait, OTHERS}
block IP_go ()
 %IP_new : TYPE = const ADDRESS
 store IP src %IP_new
 %IP_proto : u8 = load IP proto
 switch %IP_proto {6 -> IP_tcp, 17 -> IP_udp} else send
block IP_tcp ()
 extract tcp limit 0 - - {ok -> IP_port, malformed -> bad, unparsed -> bad}
block IP_udp ()
 extract udp limit 0 - - {ok -> IP_port, malformed -> bad, unparsed -> bad}
block IP_port ()
 %IP_number : u16 = const 4321
 store l4 sport %IP_number
 jump send ()
"""
TAIL = """block send ()
 forward out
block wait ()
 hold
block bad ()
 drop "bad"
"""


def family(name: str, type_: str, address: int) -> str:
    others = ", ".join(f"{o} -> bad" for o in FRAGMENT_OUTCOMES[2:])
    text = FAMILY.replace("IP", name).replace("TYPE", type_)
    return text.replace("ADDRESS", str(address)).replace("OTHERS", others)


@pytest.fixture(scope="module")
def rewrite() -> Program:
    """Tracks fragments and rewrites source address and source port of both families."""
    new6 = 0x20010DB8FFFF << 80 | 0x77
    return program(HEAD + family("ipv4", "u32", 0xCB00714D) + family("ipv6", "u128", new6) + TAIL)


def packets(path: Path) -> list[tuple[int, bytes]]:
    """(nanoseconds, frame) of the first 3,000 packets, by dpkt."""
    with path.open("rb") as file:
        return [(int(stamp * 10**9), frame) for stamp, frame in list(dpkt.pcap.Reader(file))[:3000]]


IpPacket: TypeAlias = dpkt.ip.IP | dpkt.ip6.IP6


def ip_of(frame: bytes) -> tuple[IpPacket, bytes]:
    """The IP header as dpkt reads it, and the datagram's own bytes (dpkt's ``bytes()`` would correct checksums)."""
    ethernet = dpkt.ethernet.Ethernet(frame)
    ip = ethernet.data
    assert isinstance(ip, IpPacket), "forwarded, so there is an IP packet"
    start = 14 + 4 * len(getattr(ethernet, "vlan_tags", ()))
    return ip, frame[start:start + (ip.len if isinstance(ip, dpkt.ip.IP) else 40 + ip.plen)]


def place_of(ip: IpPacket, raw: bytes) -> tuple[object, int, bool, int, bytes]:
    """(datagram identity, offset, more, upper protocol, data) of a packet."""
    if isinstance(ip, dpkt.ip.IP):
        return (ip.src, ip.dst, ip.p, ip.id), 8 * ip.offset, bool(ip.mf), ip.p, raw[4 * ip.hl:]
    if ip.nxt != 44:
        return (ip.src, ip.dst), 0, False, ip.p, raw[40:]
    word = int.from_bytes(raw[42:44], "big")
    return (ip.src, ip.dst, raw[44:48]), word & 0xFFF8, bool(word & 1), raw[40], raw[48:]


def upper_sum(ip: IpPacket, proto: int, data: bytes) -> int | None:
    """What the UDP or TCP checksum of a whole datagram is off by; None when it has none."""
    if len(data) < {6: 20, 17: 8}.get(proto, 1 << 16) or (proto == 17 and data[6:8] == b"\0\0"):
        return None
    pseudo = ip.src + ip.dst + len(data).to_bytes(4, "big") + bytes((0, 0, 0, proto))
    value: int = checksum(pseudo + data)
    return value


def sums(frames: dict[int, bytes], groups: list[list[int]]) -> list[int | None]:
    """The checksum of every datagram, given as the packets it is made of."""
    found = []
    for group in groups:
        pieces: dict[int, tuple[Any, int, bytes]] = {}
        for index in group:
            ip, raw = ip_of(frames[index])
            _, offset, _, proto, data = place_of(ip, raw)
            pieces.setdefault(offset, (ip, proto, data))
        ip, proto, _ = pieces[min(pieces)]
        found.append(upper_sum(ip, proto, b"".join(data for _, (_, _, data) in sorted(pieces.items()))))
    return found


@pytest.mark.needs("traces")
@pytest.mark.parametrize("name", [
    "tcpdump_afs_frags.pcap", "ndpi_dnscrypt_frags.pcap", "pcpp_ip6_fragments.pcap", "zeek_v6_atomic_frag.pcap",
    "zeek_vlan_collisions.pcap", "mercury_quic_vlan.pcap", "nfstream_skype.pcap", "ndpi_reddit_v6.pcap",
    "ndpi_fuzz_be.pcap"])
def test_checksums_are_off_by_what_they_were(name: str, traces: Path, rewrite: Program) -> None:
    nf = Reference(rewrite, Options(headers_only=True))
    sent: dict[int, bytes] = {}
    came: dict[int, bytes] = {}
    ended = 0
    for i, (stamp, frame) in enumerate(packets(traces / name)):
        came[i] = frame
        events = nf.process(0, stamp, frame)
        ended += sum(not isinstance(e, Held) for e in events)
        sent |= {e.index: e.frame for e in events if isinstance(e, Output)}
    assert ended + nf.summary().held == len(came)

    open_: dict[object, list[int]] = defaultdict(list)
    groups = []
    for i in sent:
        identity, offset, more, _, _ = place_of(*ip_of(came[i]))
        if offset == 0 and not more:
            groups.append([i])
        else:
            open_[identity].append(i)
    groups += open_.values()
    before, after = sums(came, groups), sums(sent, groups)
    assert [b is None for b in before] == [a is None for a in after]
    known = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    assert known, "the capture has no checksum to compare"
    assert all((b - a) % 0xFFFF == 0 for b, a in known)
