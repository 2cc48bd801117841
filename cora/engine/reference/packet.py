"""Packets as a program sees them: finding headers, reading fields, storing fields with their checksums.

Sections 2 and 3 of docs/semantics.md, rule by rule. Offsets are bytes from the start of the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cora.engine.reference.checksums import Changes, ones_sum, updated
from cora.engine.results import Options
from cora.ir.headers import ALSO_PROVIDES, HEADERS, QUOTED, field_of
from cora.ir.nodes import Extract

TAG_TYPES = frozenset((0x8100, 0x88A8, 0x9100))
EXTENSIONS = frozenset((0, 43, 44, 51, 60, 135, 139, 140))
FRAGMENT, AUTHENTICATION = 44, 51
SOURCE_ROUTES = frozenset((131, 137))
TCP, UDP = 6, 17

# Upper-layer headers; a follower reads all of them from its 20 bytes of their own.
_UPPER = frozenset(("tcp", "udp", "icmp", "icmp6", "l4"))
_ADDRESSES = frozenset(("src", "dst"))

# Where an upper-layer checksum stands in its header, and whether it follows the UDP rule for zero.
_SUM_OF_PROTOCOL = {4: {6: (16, False), 17: (6, True), 33: (6, False), 136: (6, False)}}
_SUM_OF_PROTOCOL[6] = {**_SUM_OF_PROTOCOL[4], 58: (2, False)}
_SUM_OF_HEADER = {"tcp": (16, False), "udp": (6, True), "icmp": (2, False), "icmp6": (2, False)}


@dataclass(frozen=True, slots=True)
class Spot:
    """Bytes ``low`` to ``high`` (exclusive) of a header hold the field, ``shift`` bits above their end."""

    low: int
    high: int
    shift: int
    mask: int


def _spots() -> dict[tuple[str, str], Spot]:
    found = {}
    for header in (*HEADERS, *(QUOTED + name for name in HEADERS)):
        for name in (f.name for f in HEADERS[header.removeprefix(QUOTED)].fields):
            field = field_of(header, name)
            if field is None or field.computed:
                continue
            past = field.bit + field.bits
            high = (past + 7) // 8
            found[header, name] = Spot(field.bit // 8, high, high * 8 - past, (1 << field.bits) - 1)
    return found


_SPOTS = _spots()


@dataclass(frozen=True, slots=True)
class Sum:
    """One checksum that a store updated, for traces: which one, where it stands, old and new value."""

    name: str
    place: int
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """What the IP header says about a fragment: offset and ``start`` of its data in bytes."""

    offset: int
    more: bool
    ident: int
    start: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Where an IPv6 header chain ends: the upper-layer protocol, its offset, the Fragment header if any."""

    upper: int
    end: int
    fragment: Fragment | None


class Packet:
    """One packet during one run of the program.

    ``frame`` is what arrived and never changes, ``data`` what the stores make of it.
    """

    __slots__ = ("at", "caplen", "data", "end", "eth_type", "family", "fragment", "frame", "l3", "l4", "options", "q",
                 "q4", "quoted_family", "quoted_upper", "shadow", "sums", "tags", "upper", "wirelen")

    def __init__(self, frame: bytes, wirelen: int, options: Options) -> None:
        self.frame = frame
        self.data = bytearray(frame)
        self.caplen = len(frame)
        self.wirelen = wirelen
        self.options = options
        self.at: dict[str, int] = {}  # extracted header -> its offset
        self.eth_type = self.tags = self.l3 = 0
        self.family = self.upper = self.end = self.l4 = 0
        self.fragment: Fragment | None = None  # None also for an atomic IPv6 fragment
        self.q = self.q4 = self.quoted_family = self.quoted_upper = 0
        self.shadow: bytearray | None = None
        self.sums: list[Sum] | None = None

    @property
    def fragment_offset(self) -> int:
        return self.fragment.offset if self.fragment is not None else 0

    def follow(self, first: bytes) -> None:
        """Become a follower of a fragment whose upper-layer header starts with these 8 bytes."""
        self.shadow = bytearray(first + bytes(12))
        self.shadow[12] = 5 << 4

    # Section 2.

    def extract(self, node: Extract) -> str:
        """Find a header and return the outcome's name; only ``ok`` leaves anything noted."""
        return _EXTRACT[node.header](self, node)

    def _u16(self, offset: int) -> int:
        return self.data[offset] << 8 | self.data[offset + 1]

    def _lacks(self, n: int) -> str | None:
        if n > self.wirelen:
            return "malformed"
        return "unparsed" if n > self.caplen else None

    def _lacks_before(self, end: int, n: int) -> str | None:
        if n > end:
            return "malformed"
        return "unparsed" if n > self.caplen else None

    def _found(self, header: str, offset: int) -> str:
        self.at[header] = offset
        for other in ALSO_PROVIDES.get(header, ()):
            self.at[other] = offset
        return "ok"

    def _eth(self, node: Extract) -> str:
        if lack := self._lacks(14):
            return lack
        offset, tags = 12, 0
        while self._u16(offset) in TAG_TYPES:
            tags += 1
            if tags > node.limit:
                return "unparsed"
            if lack := self._lacks(offset + 6):
                return lack
            offset += 4
        self.eth_type, self.tags, self.l3 = self._u16(offset), tags, offset + 2
        return self._found("eth", 0)

    def _vlan(self, node: Extract) -> str:
        return self._found("vlan", 14) if self.tags else "absent"

    def _arp(self, node: Extract) -> str:
        return self._lacks(self.l3 + 28) or self._found("arp", self.l3)

    def _ipv4(self, node: Extract) -> str:
        l3 = self.l3
        if lack := self._lacks(l3 + 20):
            return lack
        version, header = self.data[l3] >> 4, 4 * (self.data[l3] & 15)
        total = self._u16(l3 + 2)
        if version != 4 or header < 20 or header > total:
            return "malformed"
        if l3 + total > self.wirelen and not self.options.headers_only:
            return "malformed"
        if lack := self._lacks(l3 + header):
            return lack
        if node.verify and not self.options.ignore_checksums and ones_sum(self.data[l3:l3 + header]) != 0xFFFF:
            return "bad_checksum"
        if node.source_route and self._is_source_routed(l3 + 20, l3 + header):
            return "source_route"
        self.family, self.upper, self.end, self.l4 = 4, self.data[l3 + 9], l3 + total, l3 + header
        flags = self._u16(l3 + 6)
        offset, more = 8 * (flags & 0x1FFF), bool(flags & 0x2000)
        self.fragment = Fragment(offset, more, self._u16(l3 + 4), self.l4) if offset or more else None
        return self._found("ipv4", l3)

    def _is_source_routed(self, at: int, past: int) -> bool:
        while at < past and self.data[at] != 0:
            if self.data[at] in SOURCE_ROUTES:
                return True
            if self.data[at] == 1:
                at += 1
                continue
            if at + 1 >= past or self.data[at + 1] < 2 or at + self.data[at + 1] > past:
                return False
            at += self.data[at + 1]
        return False

    def _ipv6(self, node: Extract) -> str:
        l3 = self.l3
        if lack := self._lacks(l3 + 40):
            return lack
        if self.data[l3] >> 4 != 6:
            return "malformed"
        end = l3 + 40 + self._u16(l3 + 4)
        if end > self.wirelen and not self.options.headers_only:
            return "malformed"
        chain = self._chain(self.data[l3 + 6], l3 + 40, end, node.limit)
        if chain is None:
            return "unparsed"
        self.family, self.upper, self.end, self.l4 = 6, chain.upper, end, chain.end
        self.fragment = chain.fragment
        return self._found("ipv6", l3)

    def _chain(self, following: int, at: int, end: int, limit: int) -> Chain | None:
        """Walk extension headers from ``at``; None is `unparsed`."""
        fragment: Fragment | None = None
        walked, seen_fragment = 0, False
        while following in EXTENSIONS:
            walked += 1
            if walked > limit or at + 8 > end or at + 8 > self.caplen:
                return None
            kind, following = following, self.data[at]
            length = 8 * (self.data[at + 1] + 1)
            if kind == AUTHENTICATION:
                length = 4 * (self.data[at + 1] + 2)
            if kind == FRAGMENT:
                if seen_fragment:
                    return None
                seen_fragment, length = True, 8
                fragment = self._fragment_header(at)
                if fragment is not None and fragment.offset:
                    return Chain(following, at + 8, fragment)
            if at + length > end:
                return None
            at += length
        return Chain(following, at, fragment)

    def _fragment_header(self, at: int) -> Fragment | None:
        word = self._u16(at + 2)
        offset, more = word & 0xFFF8, bool(word & 1)
        ident = int.from_bytes(self.data[at + 4:at + 8], "big")
        return Fragment(offset, more, ident, at + 8) if offset or more else None

    def _tcp(self, node: Extract) -> str:
        if self.shadow is not None:
            return self._found("tcp", 0)
        if lack := self._lacks_before(self.end, self.l4 + 20):
            return lack
        header = 4 * (self.data[self.l4 + 12] >> 4)
        if header < 20:
            return "malformed"
        if self.fragment is None and not self.options.headers_only and self.l4 + header > self.end:
            return "malformed"
        return self._found("tcp", self.l4)

    def _udp(self, node: Extract) -> str:
        if self.shadow is not None:
            return self._found("udp", 0)
        if lack := self._lacks_before(self.end, self.l4 + 8):
            return lack
        length = self._u16(self.l4 + 4)
        if length < 8:
            return "malformed"
        if self.fragment is None and not self.options.headers_only and self.l4 + length > self.end:
            return "malformed"
        if self.family == 6 and self._u16(self.l4 + 6) == 0:
            return "malformed"
        return self._found("udp", self.l4)

    def _icmp(self, node: Extract) -> str:
        if self.shadow is not None:
            return self._found(node.header, 0)
        return self._lacks_before(self.end, self.l4 + 8) or self._found(node.header, self.l4)

    def _quoted_ipv4(self, node: Extract) -> str:
        if self.shadow is not None:
            return "unparsed"
        q = self.l4 + 8
        if lack := self._lacks_before(self.end, q + 20):
            return lack
        version, header = self.data[q] >> 4, 4 * (self.data[q] & 15)
        if version != 4 or header < 20:
            return "malformed"
        if lack := self._lacks_before(self.end, q + header):
            return lack
        if self._u16(q + 6) & 0x1FFF:
            return "malformed"
        self.q, self.q4, self.quoted_family, self.quoted_upper = q, q + header, 4, self.data[q + 9]
        return self._found("quoted.ipv4", q)

    def _quoted_ipv6(self, node: Extract) -> str:
        if self.shadow is not None:
            return "unparsed"
        q = self.l4 + 8
        if lack := self._lacks_before(self.end, q + 40):
            return lack
        if self.data[q] >> 4 != 6:
            return "malformed"
        chain = self._chain(self.data[q + 6], q + 40, self.end, node.limit)
        if chain is None:
            return "unparsed"
        if chain.fragment is not None and chain.fragment.offset:
            return "malformed"
        self.q, self.q4, self.quoted_family, self.quoted_upper = q, chain.end, 6, chain.upper
        return self._found("quoted.ipv6", q)

    def _quoted_l4(self, node: Extract) -> str:
        return self._lacks_before(self.end, self.q4 + 8) or self._found(node.header, self.q4)

    # Reading.

    def load(self, header: str, field: str) -> int:
        """The value of a field of an extracted header."""
        spot = _SPOTS.get((header, field))
        if spot is None:
            return self._computed(header, field)
        buffer, base = self._where(header)
        return int.from_bytes(buffer[base + spot.low:base + spot.high], "big") >> spot.shift & spot.mask

    def _computed(self, header: str, field: str) -> int:
        if header == "eth":
            return self.eth_type if field == "type" else self.tags
        return self.quoted_upper if header == "quoted.ipv6" else self.upper

    def _where(self, header: str) -> tuple[bytearray, int]:
        if self.shadow is not None and header in _UPPER:
            return self.shadow, 0
        return self.data, self.at[header]

    # Section 3.

    def store(self, header: str, field: str, value: int) -> None:
        """Write a field, then update every checksum that covers it."""
        spot = _SPOTS[header, field]
        buffer, base = self._where(header)
        low, high = base + spot.low, base + spot.high
        # Every header starts at an even offset, so words counted from there and from the frame's start are the same.
        first, past = low - low % 2, high + high % 2
        before = bytes(buffer[first:past])
        rest = int.from_bytes(buffer[low:high], "big") & ~(spot.mask << spot.shift)
        buffer[low:high] = (rest | (value & spot.mask) << spot.shift).to_bytes(high - low, "big")
        keep = _KEEP_SUMS.get(header)
        if keep is None or buffer is self.shadow:
            return
        after = buffer[first:past]
        keep(self, header, field, [
            (before[i] << 8 | before[i + 1], after[i] << 8 | after[i + 1]) for i in range(0, past - first, 2)])

    def _update(self, name: str, place: int, changes: Changes, *, udp: bool = False) -> Changes:
        """Update the checksum at ``place``; return its own change (nothing when a UDP zero stays)."""
        old = self._u16(place)
        if udp and old == 0:
            return []
        new = updated(old, changes)
        if udp and new == 0:
            new = 0xFFFF
        self.data[place:place + 2] = new.to_bytes(2, "big")
        if self.sums is not None:
            self.sums.append(Sum(name, place, old, new))
        return [(old, new)]

    def _update_upper(self, name: str, base: int, rule: tuple[int, bool] | None, changes: Changes) -> Changes:
        """Update the upper-layer checksum of the header at ``base``, where there is one and it is there to update."""
        if rule is None:
            return []
        place = base + rule[0]
        if place + 2 > self.end or place + 2 > self.caplen:
            return []
        return self._update(name, place, changes, udp=rule[1])

    def _keep_ip(self, header: str, field: str, changes: Changes) -> None:
        if header == "ipv4":
            self._update("ipv4.checksum", self.at["ipv4"] + 10, changes)
        if field in _ADDRESSES and self.fragment_offset == 0:
            rule = _SUM_OF_PROTOCOL[4 if header == "ipv4" else 6].get(self.upper)
            self._update_upper("upper checksum", self.l4, rule, changes)

    def _keep_upper(self, header: str, field: str, changes: Changes) -> None:
        rule = _SUM_OF_HEADER.get(header) or _SUM_OF_PROTOCOL[self.family].get(self.upper)
        self._update_upper(f"{header} checksum", self.l4, rule, changes)

    def _keep_icmp(self, header: str, field: str, changes: Changes) -> None:
        self._update(f"{header}.checksum", self.l4 + 2, changes)

    def _keep_quoted_ip(self, header: str, field: str, changes: Changes) -> None:
        inside = list(changes)
        if header == "quoted.ipv4":
            inside += self._update("quoted.ipv4.checksum", self.q + 10, changes)
        if field in _ADDRESSES:
            rule = _SUM_OF_PROTOCOL[4 if header == "quoted.ipv4" else 6].get(self.quoted_upper)
            inside += self._update_upper("quoted upper checksum", self.q4, rule, changes)
        self._update("icmp checksum", self.l4 + 2, inside)

    def _keep_quoted_upper(self, header: str, field: str, changes: Changes) -> None:
        rule = _SUM_OF_HEADER.get(header.removeprefix(QUOTED))
        if rule is None:
            rule = _SUM_OF_PROTOCOL[self.quoted_family].get(self.quoted_upper)
        inside = [*changes, *self._update_upper(f"{header} checksum", self.q4, rule, changes)]
        self._update("icmp checksum", self.l4 + 2, inside)


_EXTRACT: dict[str, Callable[[Packet, Extract], str]] = {
    "eth": Packet._eth, "vlan": Packet._vlan, "arp": Packet._arp, "ipv4": Packet._ipv4, "ipv6": Packet._ipv6,
    "tcp": Packet._tcp, "udp": Packet._udp, "icmp": Packet._icmp, "icmp6": Packet._icmp,
    "quoted.ipv4": Packet._quoted_ipv4, "quoted.ipv6": Packet._quoted_ipv6,
    "quoted.tcp": Packet._quoted_l4, "quoted.udp": Packet._quoted_l4,
    "quoted.icmp": Packet._quoted_l4, "quoted.icmp6": Packet._quoted_l4,
}
# Headers not named here (eth, vlan, arp) are covered by no checksum.
_KEEP_SUMS: dict[str, Callable[[Packet, str, str, Changes], None]] = {
    "ipv4": Packet._keep_ip, "ipv6": Packet._keep_ip,
    "tcp": Packet._keep_upper, "udp": Packet._keep_upper, "l4": Packet._keep_upper,
    "icmp": Packet._keep_icmp, "icmp6": Packet._keep_icmp,
    "quoted.ipv4": Packet._keep_quoted_ip, "quoted.ipv6": Packet._keep_quoted_ip,
    **{QUOTED + name: Packet._keep_quoted_upper for name in ("tcp", "udp", "icmp", "icmp6", "l4")},
}
