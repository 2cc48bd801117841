"""The ICMP errors that `Reject` sends (docs/semantics.md section 6)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from cora.engine.reference.checksums import checksum
from cora.engine.reference.fragments import ICMP, ICMP6
from cora.engine.reference.packet import Packet
from cora.ir.nodes import Reject

# Types that are no errors: echo, router discovery, time stamp, information, address mask (RFC 792, 950, 1256).
QUERIES = frozenset((0, 8, 13, 14, 15, 16, 17, 18))
FIRST_QUERY_V6 = 128  # RFC 4443 2.1
MOST_V4, MOST_V6 = 576, 1280  # RFC 1812 4.3.2.3, RFC 4443 2.4

_NO_SOURCE_V4 = tuple(IPv4Network(n) for n in ("0.0.0.0/32", "224.0.0.0/4", "127.0.0.0/8", "240.0.0.0/4"))
_NO_DESTINATION_V4 = tuple(IPv4Network(n) for n in ("224.0.0.0/4", "255.255.255.255/32"))
_NO_SOURCE_V6 = tuple(IPv6Network(n) for n in ("::/128", "ff00::/8", "::1/128"))
_NO_DESTINATION_V6 = (IPv6Network("ff00::/8"),)


def icmp_error(packet: Packet, node: Reject, source: int) -> bytes | None:
    """The frame of the error about a packet as it arrived, or None when none may be sent."""
    if packet.fragment_offset or packet.frame[0] & 1 or _is_icmp_error(packet):
        return None
    l3 = packet.l3
    quoted = packet.frame[l3:packet.end]
    ethernet = packet.frame[6:12] + packet.frame[:6] + packet.frame[12:l3]
    head = bytes((node.icmp_type, node.icmp_code)) + bytes(6)
    if node.header == "ipv4":
        came_from, went_to = IPv4Address(packet.frame[l3 + 12:l3 + 16]), IPv4Address(packet.frame[l3 + 16:l3 + 20])
        if any(came_from in n for n in _NO_SOURCE_V4) or any(went_to in n for n in _NO_DESTINATION_V4):
            return None
        return ethernet + _ipv4(source.to_bytes(4, "big"), came_from.packed, head + quoted[:MOST_V4 - 28])
    asker, asked = IPv6Address(packet.frame[l3 + 8:l3 + 24]), IPv6Address(packet.frame[l3 + 24:l3 + 40])
    if any(asker in n for n in _NO_SOURCE_V6) or any(asked in n for n in _NO_DESTINATION_V6):
        return None
    return ethernet + _ipv6(source.to_bytes(16, "big"), asker.packed, head + quoted[:MOST_V6 - 48])


def _is_icmp_error(packet: Packet) -> bool:
    """Whether the packet is an ICMP error, or an ICMP packet whose type cannot be read."""
    number = ICMP if packet.family == 4 else ICMP6
    if packet.upper != number:
        return False
    if packet.l4 >= min(packet.end, packet.caplen):
        return True
    kind = packet.frame[packet.l4]
    return kind not in QUERIES if number == ICMP else kind < FIRST_QUERY_V6


def _ipv4(source: bytes, destination: bytes, message: bytes) -> bytes:
    message = _with_sum(message, b"")
    header = (b"\x45\xc0" + (20 + len(message)).to_bytes(2, "big") + b"\0\0\x40\0" + bytes((64, ICMP)) + b"\0\0"
              + source + destination)
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + message


def _ipv6(source: bytes, destination: bytes, message: bytes) -> bytes:
    length = len(message).to_bytes(2, "big")
    pseudo = source + destination + b"\0\0" + length + b"\0\0\0" + bytes((ICMP6,))
    return (b"\x6c\0\0\0" + length + bytes((ICMP6, 64)) + source + destination + _with_sum(message, pseudo))


def _with_sum(message: bytes, pseudo: bytes) -> bytes:
    return message[:2] + checksum(pseudo + message).to_bytes(2, "big") + message[4:]
