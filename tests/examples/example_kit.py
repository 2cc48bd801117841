"""What the oracle tests of the example network functions share: running one, and packets made by scapy.

Expected packets are always built whole by scapy, which computes every checksum from the finished packet. Nothing here
takes a checksum, a port or an address over from what an engine sent.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption, IPOption_LSRR, IPOption_NOP, IPOption_RR
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import RawPcapReader

from cora.engine.reference import Reference
from cora.engine.results import Dropped, Event, Held, Options, Output, RunSummary
from cora.frontends.nf import load, loads
from cora.ir.nodes import Program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECOND = 10**9
AS_CAPTURED = Options()
ENGINES = (pytest.param("reference"), pytest.param("native", marks=pytest.mark.needs("gcc")))

__all__ = [
    "ARP", "AS_CAPTURED", "ENGINES", "EXAMPLES", "ICMP", "IP", "SECOND", "TCP", "UDP", "Box", "Ether", "IPOption",
    "IPOption_LSRR", "IPOption_NOP", "IPOption_RR", "IPv6", "Packet", "Raw", "Result", "arp", "capture", "changed",
    "cut", "echo", "echo_reply", "icmp_error", "ip_bytes", "joined", "ones_sum", "raw", "reasons", "sums_are_right",
    "tcp", "udp", "wire",
]


# --- running ---


@lru_cache(maxsize=64)
def _program(file: str, overrides: tuple[tuple[str, str], ...]) -> Program:
    return load(EXAMPLES / file, overrides=dict(overrides))


@lru_cache(maxsize=16)
def _program_of_text(text: str, overrides: tuple[tuple[str, str], ...]) -> Program:
    return loads(text, "changed.nf", overrides=dict(overrides))


class Result:
    """What one packet caused."""

    def __init__(self, events: Sequence[Event], ports: Sequence[str], index: int) -> None:
        self.events = list(events)
        self.ports = ports
        self.index = index

    def out(self, port: str) -> bytes:
        """The frame, when the packet was forwarded to ``port`` and nothing else happened."""
        (event,) = self.events
        assert isinstance(event, Output), f"expected a packet on {port}, got {event}"
        assert self.ports[event.port] == port, f"expected a packet on {port}, got {event}"
        assert not event.is_error
        assert event.index == self.index
        return event.frame

    def reason(self) -> str:
        """The drop reason, when the packet was dropped and nothing else happened."""
        (event,) = self.events
        assert isinstance(event, Dropped), f"expected a drop, got {event}"
        assert event.index == self.index
        return event.reason

    def refused(self, port: str) -> tuple[str, bytes]:
        """Drop reason and ICMP error frame, when the packet was dropped and an error left by ``port``."""
        drop, error = self.events
        assert isinstance(drop, Dropped), self.events
        assert isinstance(error, Output), self.events
        assert error.is_error
        assert self.ports[error.port] == port
        assert error.wirelen == len(error.frame)
        return drop.reason, error.frame

    def is_held(self) -> bool:
        return [type(e) for e in self.events] == [Held]

    def sent(self) -> list[tuple[str, bytes]]:
        """Every packet that left, in order, with its port."""
        return [(self.ports[e.port], e.frame) for e in self.events if isinstance(e, Output)]

    def drops(self) -> list[tuple[int, str]]:
        """Every drop, in order: packet number and reason."""
        return [(e.index, e.reason) for e in self.events if isinstance(e, Dropped)]


class Box:
    """A network function that runs on one of the engines; time in nanoseconds, kept from the latest packet."""

    def __init__(self, engine: str, file: str, overrides: Mapping[str, str] | None = None,
                 options: Options = AS_CAPTURED, text: str = "") -> None:
        """Start with empty state; ``text`` is a program to run instead of the file."""
        given = tuple(sorted((overrides or {}).items()))
        self.program = _program_of_text(text, given) if text else _program(file, given)
        self.ports = [p.name for p in self.program.ports]
        self.engine: Any = _engine(engine, self.program, options)
        self.time = 0
        self.count = 0

    def send(self, port: str, frame: bytes | Packet, at: int | None = None, wirelen: int | None = None) -> Result:
        """Process a packet; ``frame`` without an Ethernet header gets one."""
        data = frame if isinstance(frame, bytes) else wire(frame)
        self.time = self.time if at is None else at
        events = self.engine.process(self.ports.index(port), self.time, data, wirelen)
        self.count += 1
        return Result(events, self.ports, self.count - 1)

    def entries(self, state: str) -> list[dict[str, Any]]:
        found = self.engine.state()[state]["entries"]
        assert isinstance(found, list)
        return found

    def counter(self, state: str) -> tuple[int, int]:
        packets, octets = self.engine.state()[state]["values"][0]
        return packets, octets

    def summary(self) -> RunSummary:
        found = self.engine.summary()
        assert isinstance(found, RunSummary)
        return found


def _engine(name: str, program: Program, options: Options) -> Any:
    if name == "reference":
        return Reference(program, options)
    if importlib.util.find_spec("cora.engine.native") is None:
        pytest.skip("this tree has no native engine")
    from cora.engine.native import NativeEngine

    return NativeEngine(program, options)


# --- packets ---


def raw(packet: Packet | bytes) -> bytes:
    """The octets of a packet, all lengths and checksums filled in."""
    return bytes(packet)


def wire(packet: Packet | bytes, tags: Iterable[int] = (), kind: int | None = None, padding: int = 0) -> bytes:
    """An Ethernet frame around a packet, with VLAN tags (0x8100) of the given numbers, outermost first.

    ``kind`` is the EtherType where it is not that of the scapy layer; ``padding`` zero octets follow the packet.
    """
    body = raw(packet)
    if kind is None:
        kind = 0x86DD if isinstance(packet, IPv6) else 0x0806 if isinstance(packet, ARP) else 0x0800
    head = bytes.fromhex("020000000002" "020000000001")
    for tag in tags:
        head += b"\x81\x00" + tag.to_bytes(2, "big")
    return head + kind.to_bytes(2, "big") + body + bytes(padding)


def ip_bytes(frame: bytes) -> bytes:
    """The IP packet of an untagged frame without padding."""
    return frame[14:14 + int.from_bytes(frame[16:18], "big")]


def udp(src: str, sport: int, dst: str, dport: int, data: bytes = b"data", ttl: int = 64, zero: bool = False,
        **ip: Any) -> Packet:
    """``zero``: without a checksum."""
    return _network(src, dst, ttl, ip) / UDP(sport=sport, dport=dport, chksum=0 if zero else None) / Raw(data)


def tcp(src: str, sport: int, dst: str, dport: int, flags: str = "A", data: bytes = b"", ttl: int = 64, seq: int = 1000,
        **ip: Any) -> Packet:
    return _network(src, dst, ttl, ip) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=2000) / Raw(data)


def echo(src: str, ident: int, dst: str, data: bytes = b"ping", ttl: int = 64, kind: int = 8, **ip: Any) -> Packet:
    return _network(src, dst, ttl, ip) / ICMP(type=kind, id=ident, seq=3) / Raw(data)


def echo_reply(src: str, ident: int, dst: str, data: bytes = b"ping", ttl: int = 64, **ip: Any) -> Packet:
    return echo(src, ident, dst, data, ttl, 0, **ip)


def _network(src: str, dst: str, ttl: int, ip: dict[str, Any]) -> Packet:
    if ":" in src:
        return IPv6(src=src, dst=dst, hlim=ttl, **ip)
    return IP(src=src, dst=dst, ttl=ttl, **{"id": 0x1234, **ip})


def icmp_error(src: str, dst: str, quoted: bytes | Packet, kind: int = 3, code: int = 3, ttl: int = 64, **ip: Any
               ) -> Packet:
    """An ICMP error from a router or host: ``quoted`` is the quoted IP packet, whole or cut."""
    return _network(src, dst, ttl, ip) / ICMP(type=kind, code=code) / Raw(raw(quoted))


def arp() -> bytes:
    return wire(ARP(op=1, hwsrc="02:00:00:00:00:01", psrc="10.0.0.5", hwdst="00:00:00:00:00:00", pdst="10.0.0.1"))


def cut(packet: Packet, *at: int) -> list[Packet]:
    """An IPv4 packet as fragments; ``at`` are the octets of IP payload where it is cut (multiples of 8)."""
    whole = IP(raw(packet))
    data = raw(packet)[4 * whole.ihl:]
    bounds = [0, *at, len(data)]
    pieces: list[Packet] = []
    for first, past in pairwise(bounds):
        more = "MF" if past < len(data) else 0
        head = IP(src=whole.src, dst=whole.dst, ttl=whole.ttl, id=whole.id, proto=whole.proto, tos=whole.tos,
                  flags=more, frag=first // 8)
        pieces.append(head / Raw(data[first:past]))
    return pieces


def joined(frames: Iterable[bytes]) -> bytes:
    """The IP packet that untagged frames with all its fragments make up, as a receiver would put it together."""
    parts = sorted((IP(ip_bytes(f)) for f in frames), key=lambda p: p.frag)
    assert all(ones_sum(raw(p)[:4 * p.ihl]) == 0xFFFF for p in parts)
    data = b""
    for part in parts:
        assert part.frag * 8 == len(data), "a hole or an overlap"
        data += raw(part)[4 * part.ihl:part.len]
    assert not parts[-1].flags.MF
    first = parts[0]
    head = IP(src=first.src, dst=first.dst, ttl=first.ttl, id=first.id, proto=first.proto, tos=first.tos)
    return raw(head / Raw(data))


def ones_sum(data: bytes) -> int:
    """The one's-complement sum of RFC 1071 over big-endian words."""
    if len(data) % 2:
        data += b"\0"
    total = sum(int.from_bytes(data[i:i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def sums_are_right(packet: bytes) -> bool:
    """Whether an unfragmented IPv4 packet's header and TCP, UDP or ICMP checksums are right (RFC 1071 from scratch)."""
    head = 4 * (packet[0] & 15)
    length = int.from_bytes(packet[2:4], "big")
    body, proto = packet[head:length], packet[9]
    if ones_sum(packet[:head]) != 0xFFFF:
        return False
    if proto == 1:
        return ones_sum(body) == 0xFFFF
    if proto == 17 and body[6:8] == b"\0\0":
        return True
    pseudo = packet[12:20] + bytes((0, proto)) + len(body).to_bytes(2, "big")
    return ones_sum(pseudo + body) == 0xFFFF


def capture(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """Time in nanoseconds, captured bytes and original length of every record, read by scapy."""
    with RawPcapReader(str(path)) as reader:
        scale = 1 if reader.nano else 1000
        for data, meta in reader:
            yield meta.sec * SECOND + meta.usec * scale, data, meta.wirelen


def changed(file: str, *changes: tuple[str, str]) -> str:
    """An example's text with passages replaced, each of which must be there once."""
    text = (EXAMPLES / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def reasons(results: Iterable[Result]) -> Counter[str]:
    return Counter(reason for r in results for _, reason in r.drops())
