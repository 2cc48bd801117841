"""The port map by initiator once more, in plain Python with dictionaries: the oracle of the native one.

Written from the rules of docs and of PortMap.describe(): the sender of a TCP SYN or of an ICMP query, the receiver of
a SYN+ACK or of an answer, else the sender of the first packet, is the initiator of a flow and on side 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

TAGS = (0x8100, 0x88A8, 0x9100)
WITH_PORTS = (6, 17, 33, 132, 136)


@dataclass(frozen=True)
class Parsed:
    """``what``: flow, query, fragment, pair, mac or error; ends are hashable and comparable."""

    what: str
    source: bytes = b""
    target: bytes = b""
    proto: int = 0
    ports: tuple[int, int] = (0, 0)
    hint: str = ""
    fragment: tuple[object, ...] | None = None
    first_fragment: bool = False
    quoted: bytes = b""


def parse_frame(frame: bytes) -> Parsed:
    """What a frame is to the port map."""
    macs = Parsed("mac", frame[6:12].ljust(6, b"\0"), frame[:6].ljust(6, b"\0"))
    if len(frame) < 14:
        return macs
    kind, rest, tags = int.from_bytes(frame[12:14], "big"), frame[14:], 0
    while kind in TAGS:
        if tags == 8 or len(rest) < 4:
            return macs
        kind, rest, tags = int.from_bytes(rest[2:4], "big"), rest[4:], tags + 1
    if kind == 0x0806 and len(rest) >= 28 and rest[2:6] == b"\x08\x00\x06\x04":
        return Parsed("pair", rest[14:18], rest[24:28])
    if kind == 0x0800:
        return parse_ipv4(rest) or macs
    if kind == 0x86DD:
        return parse_ipv6(rest) or macs
    return macs


def parse_ipv4(data: bytes) -> Parsed | None:
    """An IPv4 packet, None when its header is unusable."""
    if len(data) < 20 or data[0] >> 4 != 4:
        return None
    header, total = (data[0] & 15) * 4, int.from_bytes(data[2:4], "big")
    if header < 20 or (total and total < header):
        return None
    payload = data[header:total] if total else data[header:]
    base = Parsed("flow", data[12:16], data[16:20], data[9])
    offset = int.from_bytes(data[6:8], "big") & 0x3FFF
    base = replace(base, fragment=(data[12:16], data[16:20], data[9], data[4:6]) if offset else None)
    if offset & 0x1FFF:
        return replace(base, what="fragment")
    return upper(replace(base, first_fragment=bool(offset)), payload)


def parse_ipv6(data: bytes) -> Parsed | None:
    """An IPv6 packet, None when its header is unusable."""
    if len(data) < 40 or data[0] >> 4 != 6:
        return None
    length = int.from_bytes(data[4:6], "big")
    rest, proto = data[40:40 + length] if length else data[40:], data[6]
    base = Parsed("flow", data[8:24], data[24:40])
    for _ in range(9):
        if proto not in (0, 43, 44, 51, 60, 135, 139, 140):
            return upper(replace(base, proto=proto), rest)
        if len(rest) < 2:
            break
        size = {44: 8, 51: 4 * rest[1] + 8}.get(proto, 8 * rest[1] + 8)
        if len(rest) < size or _ == 8:
            break
        if proto == 44:
            field = int.from_bytes(rest[2:4], "big")
            key = (data[8:24], data[24:40], rest[4:8])
            if field >> 3:
                return replace(base, what="fragment", fragment=key)
            if field & 1:
                base = replace(base, fragment=key, first_fragment=True)
        proto, rest = rest[0], rest[size:]
    return replace(base, what="pair")


def upper(base: Parsed, data: bytes) -> Parsed:
    """Ports, identifiers and hints."""
    pair = replace(base, what="pair")
    if base.proto in WITH_PORTS:
        if len(data) < 4:
            return pair
        hint = ""
        if base.proto == 6 and len(data) >= 14 and data[13] & 2:
            hint = "receiver" if data[13] & 16 else "sender"
        return replace(base, ports=(int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")), hint=hint)
    four, six = len(base.source) == 4 and base.proto == 1, len(base.source) == 16 and base.proto == 58
    if not four and not six:
        return base
    kind = data[0] if data else -1
    if kind in ((8, 13, 15, 17, 0, 14, 16, 18) if four else (128, 129)):
        if len(data) < 6:
            return pair
        identifier = int.from_bytes(data[4:6], "big")
        hint = "sender" if kind in ((8, 13, 15, 17) if four else (128,)) else "receiver"
        return replace(base, what="query", ports=(identifier, identifier), hint=hint)
    if kind in ((3, 4, 5, 11, 12) if four else (1, 2, 3, 4)) and len(data) >= 8:
        return replace(base, what="error", quoted=data[8:])
    return pair


class SlowInitiator:
    """``side(frame)`` for the frames of a capture in order: 0 from the initiator, 1 an answer."""

    def __init__(self) -> None:
        self.starter: dict[object, tuple[tuple[bytes, int], bool]] = {}
        self.fragments: dict[object, int] = {}

    def side(self, frame: bytes) -> int:
        """0 or 1 for the next frame."""
        parsed = parse_frame(frame)
        side = self._side(parsed)
        if parsed.first_fragment:
            self.fragments[parsed.fragment] = side
        return side

    def _side(self, parsed: Parsed) -> int:
        if parsed.what == "error":
            quoted = parse_ipv4(parsed.quoted) if len(parsed.source) == 4 else parse_ipv6(parsed.quoted)
            if quoted is None:
                return self._look_up(replace(parsed, what="pair"))
            return 1 - self._side(replace(quoted, what="pair") if quoted.what == "error" else quoted)
        if parsed.what == "fragment":
            if parsed.fragment in self.fragments:
                return self.fragments[parsed.fragment]
            return self._look_up(replace(parsed, what="pair"))
        return self._look_up(parsed)

    def _look_up(self, parsed: Parsed) -> int:
        ported = parsed.what in ("flow", "query")
        ends = ((parsed.source, parsed.ports[0] if ported else 0), (parsed.target, parsed.ports[1] if ported else 0))
        key = (parsed.what, parsed.proto if ported else 0, frozenset(ends))
        told = {"sender": ends[0], "receiver": ends[1], "": None}[parsed.hint]
        new = key not in self.starter
        if new or (told is not None and not self.starter[key][1]):
            self.starter[key] = (told or ends[0], told is not None)
        side = int(self.starter[key][0] != ends[0])
        if new and ported:
            pair = ("pair", 0, frozenset(((parsed.source, 0), (parsed.target, 0))))
            self.starter.setdefault(pair, ((parsed.target if side else parsed.source, 0), False))
        return side
