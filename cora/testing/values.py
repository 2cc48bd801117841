"""Values that programs compare with and packets carry, so that both meet.

The addresses are from the documentation and private ranges (RFC 5737, RFC 3849, RFC 1918) beside the special ones
that NFs treat apart; the MAC addresses from the range for documentation (RFC 7042).
"""

from __future__ import annotations

import ipaddress

from cora.frontends.nf.types import BOOLEAN, FIELD_TYPES, Scalar, uint
from cora.ir.headers import HEADERS, QUOTED, field_of
from cora.testing.choices import Choices

V4 = tuple(int(ipaddress.IPv4Address(a)) for a in (
    "10.0.0.1", "10.0.0.2", "192.0.2.7", "198.51.100.9", "203.0.113.1", "10.0.0.3"))
V4_SPECIAL = tuple(int(ipaddress.IPv4Address(a)) for a in (
    "255.255.255.255", "224.0.0.1", "127.0.0.1", "0.0.0.0", "240.0.0.1"))
V6 = tuple(int(ipaddress.IPv6Address(a)) for a in ("2001:db8::1", "2001:db8::2", "2001:db8:1::9", "fe80::1"))
V6_SPECIAL = tuple(int(ipaddress.IPv6Address(a)) for a in ("ff02::1", "::1", "::"))
MACS = (0x00005E005301, 0x00005E005302, 0x00005E0053FF)
MACS_SPECIAL = (0xFFFFFFFFFFFF, 0x01005E000001)
PORTS = (53, 80, 1023, 1024, 5000, 65535, 0, 443, 40001)
IDS = (1, 2, 7, 0xFFFF)
DURATIONS = (1, 1000, 10**6, 5 * 10**6, 10**9, 30 * 10**9, 300 * 10**9)

# What headers usually hold, and the edges of it.
FIELD_VALUES: dict[tuple[str, str], tuple[int, ...]] = {
    ("eth", "type"): (0x0800, 0x86DD, 0x0806, 0x88CC, 0x8100), ("eth", "tags"): (0, 1, 2, 3),
    ("vlan", "pcp"): (0, 5, 7), ("vlan", "vid"): (1, 100, 4095, 0),
    ("arp", "htype"): (1,), ("arp", "ptype"): (0x0800,), ("arp", "hlen"): (6,), ("arp", "plen"): (4,),
    ("arp", "op"): (1, 2),
    ("ipv4", "ttl"): (64, 1, 2, 255, 0), ("ipv4", "proto"): (6, 17, 1, 47), ("ipv4", "id"): IDS,
    ("ipv4", "version"): (4,), ("ipv4", "ihl"): (5, 6, 15), ("ipv4", "dscp"): (0, 46, 63), ("ipv4", "ecn"): (0, 1, 3),
    ("ipv4", "length"): (28, 40, 60), ("ipv4", "offset"): (0, 1, 185),
    ("ipv6", "hop_limit"): (64, 1, 255, 0), ("ipv6", "proto"): (6, 17, 58, 59), ("ipv6", "next"): (6, 17, 58, 44, 0),
    ("ipv6", "flow"): (0, 0x12345, 0xFFFFF), ("ipv6", "dscp"): (0, 46), ("ipv6", "ecn"): (0, 3),
    ("tcp", "flags"): (0x02, 0x10, 0x12, 0x11, 0x04, 0x18, 0xFF, 0), ("tcp", "data_offset"): (5, 6, 15),
    ("tcp", "window"): (0, 65535, 1000), ("tcp", "seq"): (0, 1, 0xFFFFFFFF), ("tcp", "urgent"): (0, 1),
    ("udp", "length"): (8, 9, 20), ("icmp", "type"): (8, 0, 3, 11, 13, 5, 4, 12, 9, 30),
    ("icmp", "code"): (0, 1, 4, 13),
    ("icmp", "id"): IDS, ("icmp", "seq"): (0, 1, 0xFFFF), ("icmp6", "type"): (128, 129, 1, 2, 3, 4, 135),
    ("icmp6", "code"): (0, 1, 4), ("icmp6", "id"): IDS, ("icmp6", "seq"): (0, 1, 0xFFFF),
}


def field_type(header: str, name: str) -> Scalar:
    """The language type of a field that exists."""
    kind = header.removeprefix(QUOTED)
    found = field_of(header, name)
    assert found is not None, "only fields that exist are asked for"
    return FIELD_TYPES.get((kind, name)) or (BOOLEAN if found.bits == 1 else uint(found.bits))


def _fields_by_type() -> dict[Scalar, list[tuple[str, str]]]:
    found: dict[Scalar, list[tuple[str, str]]] = {}
    for header in (*HEADERS, *(QUOTED + h for h in HEADERS)):
        for f in HEADERS[header.removeprefix(QUOTED)].fields:
            if field_of(header, f.name) is not None:
                found.setdefault(field_type(header, f.name), []).append((header, f.name))
    return found


# Language type -> (header, field) that have it.
FIELDS_BY_TYPE = _fields_by_type()


def field_value(choices: Choices, header: str, name: str) -> int:
    """A value that such a field may well hold."""
    kind = header.removeprefix(QUOTED)
    known = FIELD_VALUES.get((kind, name))
    if known and not choices.chance(10):
        return choices.pick(known)
    if name in ("sport", "dport"):
        return choices.pick(PORTS)
    return value_of(choices, field_type(header, name))


def value_of(choices: Choices, type_: Scalar) -> int:
    """A value of a type: usual ones first, then its edges, then anything."""
    usual: dict[str, tuple[int, ...]] = {"ipv4": V4, "ipv6": V6, "mac": MACS, "duration": DURATIONS}
    special = {"ipv4": V4_SPECIAL, "ipv6": V6_SPECIAL, "mac": MACS_SPECIAL, "duration": (0,)}
    known = usual.get(type_.name) or tuple(v for v in (0, 1, 2, 3, *PORTS) if v < type_.limit)
    kind = choices.integer(0, 9)
    if kind < 6:
        return choices.pick(known)
    if kind < 9:
        edges = [v for v in (type_.limit - 1, type_.limit // 2, type_.limit - 2, 7, 8, 255, 256, 0xFFFF)
                 if 0 <= v < type_.limit]
        return choices.pick([*special.get(type_.name, ()), *edges])
    return choices.integer(0, type_.limit - 1)

