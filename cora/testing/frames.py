"""Frames from a description: every field, length and checksum can be set, or set wrongly, one by one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cora.ir.headers import HEADERS, QUOTED, HeaderField

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
NAMES = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp6"}
NUMBERS = {name: number for number, name in NAMES.items()}
HOP, ROUTING, FRAGMENT, DESTINATION, AH = 0, 43, 44, 60, 51
ERROR_TYPES = {"icmp": (3, 4, 5, 11, 12), "icmp6": (1, 2, 3, 4)}
MAX_FRAME = 2000


@dataclass(frozen=True)
class Packet:
    """What arrives: ``frame`` are the captured bytes, ``wirelen`` the length the frame had."""

    port: int
    time_ns: int
    frame: bytes
    wirelen: int


@dataclass
class Spec:
    """A packet to build.

    Attributes:
        tags: VLAN tags as (type, control); ethertype: what follows them.
        fields: (header, field) -> value; ``l4`` names the ports of tcp and udp; fields that are not given are usual.
        options: of IPv4, padded to 4 bytes; tcp_options alike. extensions: IPv6 headers as (number, body from byte 2).
        fragment: (offset in bytes, more, identification). upper: protocol number. payload: behind the L4 header.
        raw: stands for L4 header and payload; raw_above: for everything behind the EtherType.
        quoted: the packet an ICMP error quotes; quoted_raw: its bytes.
        flaws: what is wrong with it: see `_damage` and `_l4`.
    """

    port: int = 0
    tags: tuple[tuple[int, int], ...] = ()
    ethertype: int = IPV4
    fields: dict[tuple[str, str], int] = field(default_factory=dict)
    options: bytes = b""
    tcp_options: bytes = b""
    extensions: tuple[tuple[int, bytes], ...] = ()
    fragment: tuple[int, bool, int] | None = None
    upper: int = 17
    payload: bytes = b""
    raw: bytes | None = None
    raw_above: bytes | None = None
    quoted: Spec | None = None
    quoted_raw: bytes | None = None
    flaws: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Spec:
        """An independent copy."""
        inner = None if self.quoted is None else self.quoted.copy()
        return replace(self, fields=dict(self.fields), flaws=dict(self.flaws), quoted=inner)

    @property
    def ip(self) -> str:
        return "ipv6" if self.ethertype == IPV6 else "ipv4"


def write_field(buffer: bytearray, place: HeaderField, value: int) -> None:
    """Set a field of a header that starts the buffer."""
    past = place.bit + place.bits
    low, high = place.bit // 8, (past + 7) // 8
    shift = high * 8 - past
    mask = ((1 << place.bits) - 1) << shift
    word = int.from_bytes(buffer[low:high], "big")
    word = (word & ~mask) | ((value << shift) & mask)
    buffer[low:high] = word.to_bytes(high - low, "big")


def internet_checksum(data: bytes) -> int:
    """RFC 1071."""
    # A sum of 16-bit words whose carries come in again is the whole number modulo 0xFFFF, but that only nothing is 0.
    number = int.from_bytes(data + b"\0" * (len(data) % 2), "big")
    return ~(number % 0xFFFF or (number and 0xFFFF)) & 0xFFFF


def build(spec: Spec) -> tuple[bytes, int]:
    """The captured bytes and the original length of a packet."""
    ethernet = bytearray(14)
    _apply(ethernet, "eth", {("eth", "dst"): 0x00005E005302, ("eth", "src"): 0x00005E005301, **spec.fields})
    frame = bytes(ethernet[:12])
    for i, (kind, control) in enumerate(spec.tags):
        tag = bytearray(kind.to_bytes(2, "big") + control.to_bytes(2, "big"))
        if i == 0:
            inside = bytearray(tag[2:])
            _apply(inside, "vlan", spec.fields)
            tag[2:] = inside
        frame += bytes(tag)
    frame += spec.ethertype.to_bytes(2, "big")
    frame += _above_ethernet(spec)
    return _damage(spec, frame)


def _above_ethernet(spec: Spec) -> bytes:
    if spec.raw_above is not None:
        return spec.raw_above
    if spec.ethertype in (IPV4, IPV6):
        return datagram(spec)
    if spec.ethertype == ARP:
        arp = bytearray(28)
        usual = {("arp", "htype"): 1, ("arp", "ptype"): IPV4, ("arp", "hlen"): 6, ("arp", "plen"): 4, ("arp", "op"): 1}
        _apply(arp, "arp", {**usual, **spec.fields})
        return bytes(arp) + spec.payload
    return spec.payload


def datagram(spec: Spec) -> bytes:
    """The packet from its IP header on."""
    return _ipv6(spec) if spec.ethertype == IPV6 else _ipv4(spec)


def upper_bytes(spec: Spec) -> bytes:
    """What the IP header carries: L4 header and payload; the checksum is right unless the description spoils it."""
    if spec.raw is not None:
        return spec.raw
    name = NAMES.get(spec.upper)
    return spec.payload if name is None else _l4(spec, name)


def _l4(spec: Spec, name: str) -> bytes:
    header = bytearray(HEADERS[name].size)
    behind = (spec.tcp_options if name == "tcp" else b"") + spec.payload
    if spec.quoted is not None or spec.quoted_raw is not None:
        behind += spec.quoted_raw if spec.quoted_raw is not None else datagram(spec.quoted or Spec())
    usual = {("tcp", "data_offset"): 5 + len(spec.tcp_options) // 4, ("tcp", "flags"): 0x10, ("tcp", "window"): 1000,
             ("udp", "length"): 8 + len(behind) + spec.flaws.get("udp_length", 0), ("icmp", "type"): 8,
             ("icmp6", "type"): 128}
    ports = {(name, f): v for (h, f), v in spec.fields.items() if h == "l4"} if name in ("tcp", "udp") else {}
    _apply(header, name, {**usual, **ports, **spec.fields})
    if (name, "checksum") in spec.fields:
        return bytes(header) + behind
    place = {"tcp": 16, "udp": 6, "icmp": 2, "icmp6": 2}[name]
    whole = bytes(header) + behind
    found = internet_checksum(_pseudo(spec, name, len(whole)) + whole)
    if name == "udp":
        found = 0 if spec.flaws.get("udp_zero") else found or 0xFFFF
    found ^= spec.flaws.get("l4_sum", 0)
    header[place:place + 2] = found.to_bytes(2, "big")
    return bytes(header) + behind


def _pseudo(spec: Spec, name: str, length: int) -> bytes:
    if name == "icmp":
        return b""
    size = 16 if spec.ethertype == IPV6 else 4
    ends = b"".join(_address(spec, f).to_bytes(size, "big") for f in ("src", "dst"))
    return ends + length.to_bytes(4, "big") + spec.upper.to_bytes(4, "big")


def _address(spec: Spec, name: str) -> int:
    usual = {("ipv4", "src"): 0x0A000001, ("ipv4", "dst"): 0xC0000207,
             ("ipv6", "src"): 0x20010DB8 << 96 | 1, ("ipv6", "dst"): 0x20010DB8 << 96 | 2}
    return spec.fields.get((spec.ip, name), usual[spec.ip, name])


def _ipv4(spec: Spec) -> bytes:
    carried = upper_bytes(spec)
    options = spec.options + b"\0" * (-len(spec.options) % 4)
    header = bytearray(20)
    offset, more, ident = spec.fragment or (0, False, 1)
    length = 20 + len(options) + len(carried) + spec.flaws.get("length", 0)
    usual = {("ipv4", "version"): 4, ("ipv4", "ihl"): 5 + len(options) // 4, ("ipv4", "length"): length & 0xFFFF,
             ("ipv4", "id"): ident & 0xFFFF, ("ipv4", "mf"): int(more), ("ipv4", "offset"): offset // 8,
             ("ipv4", "ttl"): 64, ("ipv4", "proto"): spec.upper, ("ipv4", "src"): _address(spec, "src"),
             ("ipv4", "dst"): _address(spec, "dst")}
    _apply(header, "ipv4", {**usual, **spec.fields})
    if ("ipv4", "checksum") not in spec.fields:
        total = internet_checksum(bytes(header) + options) ^ spec.flaws.get("ip_sum", 0)
        header[10:12] = total.to_bytes(2, "big")
    return bytes(header) + options + carried


def _ipv6(spec: Spec) -> bytes:
    carried = upper_bytes(spec)
    chain = list(spec.extensions)
    if spec.fragment is not None:
        offset, more, ident = spec.fragment
        chain.append((FRAGMENT, ((offset & 0xFFF8) | int(more)).to_bytes(2, "big") + ident.to_bytes(4, "big")))
    following = [number for number, _ in chain[1:]] + [spec.upper]
    middle = b"".join(_extension(number, body, then) for (number, body), then in zip(chain, following, strict=False))
    header = bytearray(40)
    length = len(middle) + len(carried) + spec.flaws.get("length", 0)
    usual = {("ipv6", "version"): 6, ("ipv6", "length"): length & 0xFFFF,
             ("ipv6", "next"): chain[0][0] if chain else spec.upper, ("ipv6", "hop_limit"): 64,
             ("ipv6", "src"): _address(spec, "src"), ("ipv6", "dst"): _address(spec, "dst")}
    _apply(header, "ipv6", {**usual, **spec.fields})
    return bytes(header) + middle + carried


def _extension(number: int, body: bytes, then: int) -> bytes:
    """An extension header of the smallest size that holds the body."""
    if number == FRAGMENT:
        return bytes((then, 0)) + body.ljust(6, b"\0")[:6]
    unit = 4 if number == AH else 8
    padded = body + b"\0" * (-(len(body) + 2) % unit)
    padded += b"\0" * (8 - min(8, len(padded) + 2))
    size = len(padded) + 2
    return bytes((then, size // 4 - 2 if number == AH else size // 8 - 1)) + padded


def _apply(header: bytearray, name: str, fields: dict[tuple[str, str], int]) -> None:
    """Set those fields of a header that have a place in it; later ones win where they overlap."""
    for (owner, which), value in fields.items():
        place = HEADERS[name].field(which) if owner == name else None
        if place is not None and not place.computed and place.bit + place.bits <= 8 * len(header):
            write_field(header, place, value)


def _damage(spec: Spec, frame: bytes) -> tuple[bytes, int]:
    """Flaws of the frame: ``pad`` bytes behind it, ``flip`` a bit, ``wirelen``, ``cut`` to so many captured bytes."""
    flaws = spec.flaws
    frame += bytes(flaws.get("pad", 0))
    if "flip" in flaws and frame:
        at = flaws["flip"] % (8 * len(frame))
        changed = bytearray(frame)
        changed[at // 8] ^= 1 << (at % 8)
        frame = bytes(changed)
    wirelen = len(frame)
    if "wirelen" in flaws:
        wirelen = flaws["wirelen"]
        frame = frame[:wirelen] + bytes(max(0, min(wirelen, MAX_FRAME) - len(frame)))
    if "cut" in flaws:
        frame = frame[:flaws["cut"]]
    return frame, wirelen


def retarget(spec: Spec, header: str, name: str, value: int) -> None:
    """Change a description so that the built packet has a value in a field, its other parts fitting where they can."""
    if header.startswith(QUOTED):
        inner = spec.quoted or Spec(ethertype=spec.ethertype, payload=bytes(8))
        spec.quoted, spec.quoted_raw = inner, None
        retarget(inner, header.removeprefix(QUOTED), name, value)
    elif (header, name) == ("eth", "type"):
        spec.ethertype = value
    elif (header, name) == ("eth", "tags"):
        spec.tags = (*spec.tags, *((0x8100, 1),) * 16)[:min(value, 16)]
    elif name in ("proto", "next"):
        spec.upper, spec.raw = value & 0xFF, None
        spec.fields.pop((header, name), None)
        if name == "next":
            spec.extensions = ()
    elif name == "length" and header in ("ipv4", "ipv6", "udp"):
        spec.payload = bytes(max(0, min(MAX_FRAME, value) - _fixed(spec, header)))
    elif (header, name) == ("ipv4", "ihl") and value >= 5:
        spec.options = b"\1" * (4 * (value - 5))
    elif (header, name) == ("tcp", "data_offset") and value >= 5:
        spec.tcp_options = b"\1" * (4 * (value - 5))
    else:
        for owner in ("tcp", "udp", "l4") if header == "l4" else (header,):
            spec.fields.pop((owner, name), None)
        spec.fields[header, name] = value


def resize(spec: Spec, size: int) -> None:
    """Give the frame an original length, by its payload where that can be, else by leaving bytes out."""
    whole, _ = build(replace(spec, flaws={}))
    wanted = len(spec.payload) + size - len(whole)
    if wanted >= 0 and size <= MAX_FRAME:
        spec.payload = spec.payload[:wanted].ljust(wanted, b"\0")
    else:
        spec.flaws["wirelen"] = size


def _fixed(spec: Spec, header: str) -> int:
    """What a header's length field counts beside the payload."""
    bare = replace(spec, payload=b"")
    above = len(upper_bytes(bare))
    if header == "udp":
        return above
    return len(datagram(bare)) - (40 if header == "ipv6" else 0)
