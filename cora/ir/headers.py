"""The built-in headers: fields, sizes, and which checksum covers them.

Field positions follow the defining documents: IEEE 802.3 and 802.1Q (eth, vlan), RFC 826 (arp), RFC 791 (ipv4),
RFC 8200 (ipv6), RFC 9293 (tcp), RFC 768 (udp), RFC 792 (icmp), RFC 4443 (icmp6).
"""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir.types import BOOL, Type, UInt

QUOTED = "quoted."


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A field: its first bit from the start of the header (network order), its width, whether it may be stored.

    ``computed`` fields are results of parsing and have no fixed place in the header.
    """

    name: str
    bit: int
    bits: int
    writable: bool = True
    computed: bool = False

    @property
    def type(self) -> Type:
        return BOOL if self.bits == 1 else UInt(self.bits)


@dataclass(frozen=True, slots=True)
class HeaderType:
    """A header format: ``size`` is its fixed part in bytes."""

    name: str
    size: int
    fields: tuple[HeaderField, ...]

    def field(self, name: str) -> HeaderField | None:
        """The field of that name, if there is one."""
        return next((f for f in self.fields if f.name == name), None)


def _fields(*rows: tuple[str, int, int] | tuple[str, int, int, str]) -> tuple[HeaderField, ...]:
    return tuple(
        HeaderField(r[0], r[1], r[2], writable="ro" not in r[3:], computed="computed" in r[3:]) for r in rows
    )


def _computed(name: str, bits: int) -> HeaderField:
    return HeaderField(name, 0, bits, writable=False, computed=True)


# Fields that decide where other headers are (lengths, types, next headers) and the checksums themselves are
# read-only: the language keeps them right.
_ICMP = _fields(("type", 0, 8), ("code", 8, 8), ("checksum", 16, 16, "ro"), ("id", 32, 16), ("seq", 48, 16),
                ("rest", 32, 32))

HEADERS: dict[str, HeaderType] = {
    h.name: h
    for h in (
        HeaderType("eth", 14, (*_fields(("dst", 0, 48), ("src", 48, 48)), _computed("type", 16), _computed("tags", 8))),
        HeaderType("vlan", 4, _fields(("pcp", 0, 3), ("dei", 3, 1), ("vid", 4, 12))),
        HeaderType("arp", 28, _fields(("htype", 0, 16), ("ptype", 16, 16), ("hlen", 32, 8), ("plen", 40, 8),
                                      ("op", 48, 16), ("sha", 64, 48), ("spa", 112, 32), ("tha", 144, 48),
                                      ("tpa", 192, 32))),
        HeaderType("ipv4", 20, _fields(("version", 0, 4, "ro"), ("ihl", 4, 4, "ro"), ("dscp", 8, 6), ("ecn", 14, 2),
                                       ("length", 16, 16, "ro"), ("id", 32, 16), ("df", 49, 1), ("mf", 50, 1, "ro"),
                                       ("offset", 51, 13, "ro"), ("ttl", 64, 8), ("proto", 72, 8, "ro"),
                                       ("checksum", 80, 16, "ro"), ("src", 96, 32), ("dst", 128, 32))),
        HeaderType("ipv6", 40, (*_fields(("version", 0, 4, "ro"), ("dscp", 4, 6), ("ecn", 10, 2), ("flow", 12, 20),
                                         ("length", 32, 16, "ro"), ("next", 48, 8, "ro"), ("hop_limit", 56, 8),
                                         ("src", 64, 128), ("dst", 192, 128)), _computed("proto", 8))),
        HeaderType("tcp", 20, _fields(("sport", 0, 16), ("dport", 16, 16), ("seq", 32, 32), ("ack_seq", 64, 32),
                                      ("data_offset", 96, 4, "ro"), ("flags", 104, 8), ("cwr", 104, 1), ("ece", 105, 1),
                                      ("urg", 106, 1), ("ack", 107, 1), ("psh", 108, 1), ("rst", 109, 1),
                                      ("syn", 110, 1), ("fin", 111, 1), ("window", 112, 16),
                                      ("checksum", 128, 16, "ro"), ("urgent", 144, 16))),
        HeaderType("udp", 8, _fields(("sport", 0, 16), ("dport", 16, 16), ("length", 32, 16, "ro"),
                                     ("checksum", 48, 16, "ro"))),
        HeaderType("icmp", 8, _ICMP),
        HeaderType("icmp6", 8, _ICMP),
        # The common view of TCP and UDP.
        HeaderType("l4", 4, _fields(("sport", 0, 16), ("dport", 16, 16))),
    )
}

# A quoted packet is only guaranteed its IP header and 8 octets (RFC 792): only these fields of its upper layer exist.
_QUOTED_L4 = {"tcp": ("sport", "dport", "seq"), "udp": ("sport", "dport"), "icmp": ("type", "code", "id", "seq"),
              "icmp6": ("type", "code", "id", "seq"), "l4": ("sport", "dport")}


def header_type(instance: str) -> HeaderType | None:
    """The format of a header instance such as ``ipv4`` or ``quoted.tcp``; None when there is no such header."""
    return HEADERS.get(instance.removeprefix(QUOTED))


def field_of(instance: str, name: str) -> HeaderField | None:
    """The field ``name`` of a header instance, or None when it has none (or a quoted packet cannot promise it)."""
    kind = header_type(instance)
    if kind is None:
        return None
    if instance.startswith(QUOTED) and kind.name in _QUOTED_L4 and name not in _QUOTED_L4[kind.name]:
        return None
    return kind.field(name)


# EtherType, IP protocol and ICMP type numbers that select a header (IANA registries).
ETHERTYPE = {"arp": 0x0806, "ipv4": 0x0800, "ipv6": 0x86DD}
PROTOCOL = {"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58}
ICMP_ERRORS = (3, 4, 5, 11, 12)
ICMP6_ERRORS = (1, 2, 3, 4)

# What extracting a header makes readable beside the header itself.
ALSO_PROVIDES = {"tcp": ("l4",), "udp": ("l4",), "quoted.tcp": ("quoted.l4",), "quoted.udp": ("quoted.l4",)}
