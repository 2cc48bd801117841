"""Traffic captured on one side of a program that translates addresses.

Such a capture shows both directions as they look at one port: answers carry the addresses of the hosts there, while the
program expects on its other ports the addresses that it has chosen itself. `Returns` gives each packet of another port
what it would carry there, as learned from the packets that the program has sent. The rules are in docs/profile.md,
"Where the capture was taken". The native engine does the same (cora/emit/runtime/returns.h); this is its oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from cora.engine.reference.packet import Packet as Parsed
from cora.engine.results import RETURN_FLOWS, Event, Options, Output, ReturnCounts
from cora.frontends.traffic.capture import Packet
from cora.ir import nodes
from cora.ir.headers import QUOTED
from cora.ir.span import Span

TAGS, EXTENSIONS = 8, 16
# Fragmented datagrams remembered: far more than are in flight at a time.
DATAGRAMS = 1 << 17

_K = TypeVar("_K")
_V = TypeVar("_V")


class Flow(NamedTuple):
    """Who writes to whom. The identifier of an ICMP query is the port of the one who asks, the other's is 0."""

    family: int
    proto: int
    source: int
    sport: int
    destination: int
    dport: int

    def reversed(self) -> Flow:
        """The flow of the answers."""
        return Flow(self.family, self.proto, self.destination, self.dport, self.source, self.sport)


class _Datagram(NamedTuple):
    """A fragmented datagram; the protocol of IPv6 is 0, as its fragments may name different ones (RFC 8200 4.5)."""

    port: int
    family: int
    source: int
    destination: int
    proto: int
    ident: int


class _Memory(Generic[_K, _V]):
    """A bounded table: when the young half is full it becomes the old one, and what only the old one held is lost."""

    def __init__(self, limit: int) -> None:
        """Remember ``limit`` entries at most."""
        self._half = limit // 2
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}
        self.forgotten = 0

    def get(self, key: _K) -> _V | None:
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def put(self, key: _K, value: _V) -> None:
        if key not in self._young and len(self._young) >= self._half:
            self.forgotten += bool(self._old)
            self._young, self._old = {}, self._young
        self._young[key] = value


def _extract(header: str, limit: int = 0) -> nodes.Extract:
    return nodes.Extract(header, limit, False, False, (), Span("", 1, 1, 1, 1))


_ETH = _extract("eth", TAGS)
_IP = {0x0800: _extract("ipv4"), 0x86DD: _extract("ipv6", EXTENSIONS)}
_QUOTED_IP = {4: _extract("quoted.ipv4"), 6: _extract("quoted.ipv6", EXTENSIONS)}
_UPPER = {4: {6: _extract("tcp"), 17: _extract("udp"), 1: _extract("icmp")},
          6: {6: _extract("tcp"), 17: _extract("udp"), 58: _extract("icmp6")}}
_QUOTED_UPPER = {f: {proto: _extract(QUOTED + node.header) for proto, node in known.items()}
                 for f, known in _UPPER.items()}
# ICMP types. Queries with an identifier: echo and time stamp (RFC 792), echo (RFC 4443 section 4).
_ASKS = {4: (8, 13), 6: (128,)}
_ANSWERS = {4: (0, 14), 6: (129,)}
# Errors, which quote the packet they are about (RFC 792; RFC 4443 section 2.1).
_ERRORS = {4: (3, 4, 5, 11, 12), 6: range(128)}


class Returns:
    """Translates what arrives on the ports where the capture was not taken.

    Call `before` and `after` for every packet in order.
    """

    def __init__(self, captured_at: int, options: Options, flow_limit: int = RETURN_FLOWS) -> None:
        """Start with nothing learned; ``captured_at`` is a port number."""
        self._port = captured_at
        self._options = options
        self._flows: _Memory[tuple[int, Flow], Flow] = _Memory(flow_limit)
        self._datagrams: _Memory[_Datagram, tuple[int, int]] = _Memory(DATAGRAMS)
        self._translated = 0

    def counts(self) -> ReturnCounts:
        """What was done so far."""
        return ReturnCounts(self._translated, self._flows.forgotten)

    def before(self, packet: Packet) -> bytes:
        """The frame as it would be on the packet's port."""
        if packet.port == self._port:
            return packet.frame
        found = self._read(packet.frame, packet.wirelen)
        if found is None:
            return packet.frame
        if found.fragment is None:
            self._translated += self._translate(found, packet.port)
        else:
            self._translated += self._translate_fragment(found, packet.port)
        return bytes(found.data)

    def after(self, packet: Packet, events: Sequence[Event]) -> None:
        """Learn from what became of the packet, whose frame `before` has returned."""
        if packet.port != self._port:
            return
        for event in events:
            if isinstance(event, Output) and event.index == packet.index and not event.is_error:
                self._learn(packet, event)

    def _learn(self, packet: Packet, sent: Output) -> None:
        before = self._flow_of(packet.frame, packet.wirelen)
        after = self._flow_of(sent.frame, sent.wirelen)
        if sent.port == self._port or before is None or after is None or before[:2] != after[:2]:
            return
        key = sent.port, before.reversed()
        if before != after or self._flows.get(key) is not None:
            self._flows.put(key, after.reversed())

    def _read(self, frame: bytes, wirelen: int) -> Parsed | None:
        """The packet with its link and IP headers found; None when it passes as it is."""
        found = Parsed(frame, wirelen, self._options)
        if found.extract(_ETH) != "ok":
            return None
        ip = _IP.get(found.eth_type)
        return None if ip is None or found.extract(ip) != "ok" else found

    def _flow_of(self, frame: bytes, wirelen: int) -> Flow | None:
        found = self._read(frame, wirelen)
        return _flow(found) if found is not None and _has_upper(found) else None

    def _translate_fragment(self, found: Parsed, port: int) -> bool:
        """A fragment gets the addresses that the first one of its datagram got."""
        ip = f"ipv{found.family}"
        key = _datagram(found, port)
        if not found.fragment_offset:
            translated = self._translate(found, port)
            self._datagrams.put(key, (found.load(ip, "src"), found.load(ip, "dst")))
            return translated
        known = self._datagrams.get(key)
        if known is None or known == (key.source, key.destination):
            return False
        _store(found, ip, "src", known[0])
        _store(found, ip, "dst", known[1])
        return True

    def _translate(self, found: Parsed, port: int) -> bool:
        if not _has_upper(found):
            return False
        flow = _flow(found)
        if flow is None:
            return self._translate_error(found, port)
        known = self._flows.get((port, flow))
        if known is None:
            return False
        _rewrite(found, known)
        return True

    def _translate_error(self, found: Parsed, port: int) -> bool:
        """An ICMP error about a packet that the program has sent translated."""
        quoted = _quoted_flow(found)
        known = None if quoted is None else self._flows.get((port, quoted.reversed()))
        if quoted is None or known is None:
            return False
        sent, ip = known.reversed(), f"ipv{found.family}"
        _rewrite(found, sent, QUOTED)
        if found.load(ip, "src") == quoted.destination:
            _store(found, ip, "src", sent.destination)
        if found.load(ip, "dst") == quoted.source:
            _store(found, ip, "dst", sent.source)
        return True


def _has_upper(found: Parsed) -> bool:
    """Find the upper-layer header that names a flow."""
    node = None if found.fragment_offset else _UPPER[found.family].get(found.upper)
    return node is not None and found.extract(node) == "ok"


def _port_fields(found: Parsed, prefix: str) -> tuple[tuple[str, str] | None, tuple[str, str] | None] | None:
    """Header and field of source and destination port, None for a port that is always 0; None without a flow."""
    upper = found.quoted_upper if prefix else found.upper
    if upper in (6, 17):
        return (f"{prefix}l4", "sport"), (f"{prefix}l4", "dport")
    icmp = f"{prefix}icmp" if found.family == 4 else f"{prefix}icmp6"
    kind = found.load(icmp, "type")
    if kind in _ASKS[found.family]:
        return (icmp, "id"), None
    return (None, (icmp, "id")) if kind in _ANSWERS[found.family] else None


def _flow(found: Parsed, prefix: str = "") -> Flow | None:
    """The flow of the packet, or of the one it quotes; None when it is neither TCP nor UDP nor an ICMP query."""
    fields = _port_fields(found, prefix)
    if fields is None:
        return None
    sport, dport = (0 if at is None else found.load(*at) for at in fields)
    ip = f"{prefix}ipv{found.family}"
    upper = found.quoted_upper if prefix else found.upper
    return Flow(found.family, upper, found.load(ip, "src"), sport, found.load(ip, "dst"), dport)


def _quoted_flow(found: Parsed) -> Flow | None:
    """The flow of the packet that an ICMP error quotes."""
    icmp = "icmp" if found.family == 4 else "icmp6"
    if icmp not in found.at or found.load(icmp, "type") not in _ERRORS[found.family]:
        return None
    if found.extract(_QUOTED_IP[found.family]) != "ok":
        return None
    node = _QUOTED_UPPER[found.family].get(found.quoted_upper)
    return None if node is None or found.extract(node) != "ok" else _flow(found, QUOTED)


def _datagram(found: Parsed, port: int) -> _Datagram:
    assert found.fragment is not None
    ip = f"ipv{found.family}"
    return _Datagram(port, found.family, found.load(ip, "src"), found.load(ip, "dst"),
                     found.upper if found.family == 4 else 0, found.fragment.ident)


def _rewrite(found: Parsed, flow: Flow, prefix: str = "") -> None:
    """Give the packet, or the one it quotes, the addresses and ports of a flow; stores keep all checksums."""
    fields = _port_fields(found, prefix)
    assert fields is not None
    _store(found, f"{prefix}ipv{found.family}", "src", flow.source)
    _store(found, f"{prefix}ipv{found.family}", "dst", flow.destination)
    for at, value in zip(fields, (flow.sport, flow.dport), strict=True):
        if at is not None:
            _store(found, *at, value)


def _store(found: Parsed, header: str, field: str, value: int) -> None:
    # A store of the same value may turn a checksum of 0xffff into 0x0000.
    if found.load(header, field) != value:
        found.store(header, field, value)
