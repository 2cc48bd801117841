"""Virtual reassembly: the fragment tracker of docs/semantics.md section 4."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from cora.engine.reference.packet import TCP, UDP, Packet
from cora.ir.nodes import FragmentState

ICMP, ICMP6 = 1, 58
MAX_RANGES = 16
KEPT = 8  # octets of the first upper-layer header
Range = tuple[int, int]
Key = tuple[int, int, int, int, int]  # family, source, destination, protocol (ipv6: 0), identification

# The least a first fragment holds behind its IP header, by (family, protocol).
_LEAST = {(4, TCP): 16, (6, TCP): 20, **{(f, p): 8 for f in (4, 6) for p in (UDP, ICMP, ICMP6)}}


@dataclass(frozen=True, slots=True)
class Arrival:
    """An input packet as it came: its number, arrival port, captured bytes, original length."""

    index: int
    port: int
    frame: bytes
    wirelen: int


@dataclass(eq=False, slots=True)
class Datagram:
    """What is known of one datagram: ``state`` is waiting, open or condemned; ``end`` is -1 while unknown."""

    key: Key
    made: int
    state: str = "waiting"
    ranges: list[Range] = field(default_factory=list)  # merged, ascending, [first, past the last)
    arrived: deque[Range] = field(default_factory=lambda: deque(maxlen=MAX_RANGES))
    end: int = -1
    held: list[Arrival] = field(default_factory=list)
    first: bytes = bytes(KEPT)

    @property
    def complete(self) -> bool:
        return self.ranges == [(0, self.end)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of tracking a packet.

    ``datagram`` is the entry it belongs to after ``ok`` and ``hold``; ``given_up`` are fragments dropped just now
    because the datagram was condemned.
    """

    outcome: str
    datagram: Datagram | None = None
    given_up: tuple[Arrival, ...] = ()


class Tracker:
    """The datagrams one `FragmentState` knows."""

    def __init__(self, decl: FragmentState) -> None:
        self.decl = decl
        self.datagrams: OrderedDict[Key, Datagram] = OrderedDict()  # oldest first

    def expire(self, now: int) -> list[Arrival]:
        """Remove datagrams that are too old; returns the fragments they held."""
        given_up: list[Arrival] = []
        while self.datagrams:
            key, datagram = next(iter(self.datagrams.items()))
            if now <= datagram.made + self.decl.timeout:
                break
            given_up += datagram.held
            del self.datagrams[key]
        return given_up

    def track(self, packet: Packet, header: str, now: int) -> Verdict:
        """Decide about a fragment (a packet that is none, or was released, never comes here)."""
        fragment = packet.fragment
        assert fragment is not None
        first, past = fragment.offset, fragment.offset + packet.end - fragment.start
        if first == past or past > 65535 or (fragment.more and (past - first) % 8):
            return Verdict("malformed")
        if _is_tiny(packet, first):
            return Verdict("tiny")
        key = _key_of(packet, header, fragment.ident)
        datagram = self.datagrams.get(key)
        if datagram is None:
            if len(self.datagrams) >= self.decl.capacity:
                return Verdict("full")
            datagram = self.datagrams[key] = Datagram(key, now)
        if datagram.state == "condemned":
            return Verdict("dead")
        return self._add(datagram, packet, (first, past), last=not fragment.more)

    def _add(self, datagram: Datagram, packet: Packet, span: Range, *, last: bool) -> Verdict:
        if span in datagram.arrived:
            return Verdict("duplicate")
        merged = _merged(datagram.ranges, span)
        if merged is None or _contradicts(datagram, span, last=last):
            return Verdict("overlap", given_up=self.condemn(datagram))
        datagram.ranges = merged
        datagram.arrived.append(span)
        if last:
            datagram.end = span[1]
        if span[0] == 0:
            datagram.first = bytes(packet.data[packet.l4:packet.l4 + KEPT]).ljust(KEPT, b"\0")
            return Verdict("ok", datagram)
        if datagram.state == "open":
            return Verdict("ok", datagram)
        if len(datagram.held) < self.decl.max_held:
            return Verdict("hold", datagram)
        return Verdict("too_many", given_up=self.condemn(datagram))

    def condemn(self, datagram: Datagram) -> tuple[Arrival, ...]:
        """Give a datagram up; returns the fragments it held, in arrival order."""
        given_up = tuple(datagram.held)
        datagram.held = []
        datagram.state = "condemned"
        return given_up

    def forget_if_complete(self, datagram: Datagram) -> None:
        """Remove an open datagram all of whose bytes were received."""
        if datagram.state == "open" and datagram.complete and self.datagrams.get(datagram.key) is datagram:
            del self.datagrams[datagram.key]

    @property
    def held(self) -> int:
        return sum(len(d.held) for d in self.datagrams.values())

    def dump(self) -> dict[str, object]:
        return {"kind": "fragment", "datagrams": [
            {"key": list(d.key), "state": d.state, "made": d.made, "ranges": [list(r) for r in d.ranges],
             "end": d.end, "held": [a.index for a in d.held]}
            for d in sorted(self.datagrams.values(), key=lambda d: d.key)]}


def _is_tiny(packet: Packet, first: int) -> bool:
    if first == 0:
        return packet.end - packet.l4 < _LEAST.get((packet.family, packet.upper), 0)
    return first == 8 and packet.upper == TCP


def _key_of(packet: Packet, header: str, ident: int) -> Key:
    source, destination = packet.load(header, "src"), packet.load(header, "dst")
    if header == "ipv4":
        return 4, source, destination, packet.upper, ident
    return 6, source, destination, 0, ident


def _merged(ranges: list[Range], span: Range) -> list[Range] | None:
    """``ranges`` with ``span`` added and neighbours joined; None when it overlaps or would be a 17th range."""
    first, past = span
    if any(first < b and a < past for a, b in ranges):
        return None
    found: list[Range] = []
    for a, b in sorted([*ranges, span]):
        if found and found[-1][1] == a:
            found[-1] = (found[-1][0], b)
        else:
            found.append((a, b))
    return found if len(found) <= MAX_RANGES else None


def _contradicts(datagram: Datagram, span: Range, *, last: bool) -> bool:
    """Whether the fragment does not fit the datagram's known end, or as its end does not fit what was received."""
    past = span[1]
    if datagram.end >= 0 and (past > datagram.end or (last and past != datagram.end)):
        return True
    return last and any(b > past for _, b in datagram.ranges)
