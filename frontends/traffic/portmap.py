"""Which port of the network function each packet of one capture arrives on: by rules, or by who started its flow."""

from __future__ import annotations

import ctypes
import heapq
import ipaddress
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cora.errors import CoraError, Kind, fail
from cora.frontends.traffic.capture import (
    DEFAULT_BATCH,
    Batch,
    Link,
    Packet,
    SourceWrapper,
    TrafficSource,
    packets_of,
)
from cora.frontends.traffic.native import library

MAX_ENTRIES = 8_000_000
"""Flows, fragmented datagrams and address pairs remembered at most: 16 bytes each for IPv4, 40 for IPv6, in tables
between one and two thirds full (at worst about 1 GB, and only for a capture with that many flows)."""

_NO_PORT = 0xFFFF
# A rule's rank shares a 32-bit word with its port.
_MAX_RULES = 65_000
_NO_INTERFACE_RULE = 0xFFFFFFFF

_RANGE = np.dtype([
    ("first_high", np.uint64), ("first_low", np.uint64), ("last_high", np.uint64), ("last_low", np.uint64),
    ("rank", np.uint32), ("port", np.uint16), ("reserved", np.uint16),
])

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Rule:
    """One item of a port map: ``value`` matches packets, which arrive on port number ``port``.

    ``what`` is ``from`` or ``to`` (value: a network), ``mac`` (value: the address as a number), ``if`` (value: the
    interface's number or name), or ``*`` (every packet that no other rule matches).
    """

    what: str
    value: _Network | int | str | None
    port: int
    text: str

    def phrase(self) -> str:
        """The packets it matches, in words."""
        if self.what == "mac":
            return f"sent by {self.text.removeprefix('mac:')}"
        if self.what == "if":
            return f"of interface {self.value}"
        if self.what == "*":
            return "all others"
        return f"{self.what} {self.value}"


@dataclass(frozen=True, slots=True)
class PortMap:
    """An assignment of packets to ports; build it with parse().

    ``initiator``: number of the port that faces the hosts that start flows, None when rules decide. ``assumed``: the
    user did not say (all of) it.
    """

    ports: tuple[str, ...]
    rules: tuple[Rule, ...]
    initiator: int | None
    assumed: bool

    @classmethod
    def parse(cls, specs: Sequence[str], ports: Sequence[str]) -> PortMap:
        """The map that the ``--port-map`` flags ``specs`` give for a program with ``ports``, in declared order.

        Each flag is ``PORT=ITEM[,ITEM...]`` with items ``10.0.0.0/8`` (source), ``to:198.51.100.1`` (destination),
        ``mac:02:00:00:00:00:01`` (source), ``if:0`` or ``if:eth0``, ``*`` (all others); or ``initiator[=PORT]``. The
        first item that matches, in the order given, decides. Without flags a two-port program gets ``initiator``.
        Raises CoraError PORT_MAP.
        """
        names = tuple(ports)
        if not specs:
            return cls._default(names)
        if any(spec.split("=")[0].strip() == "initiator" and "initiator" not in names for spec in specs):
            return cls._by_initiator(specs, names)
        rules = tuple(rule for spec in specs for rule in _parse_spec(spec, names))
        others = [rule for rule in rules if rule.what == "*"]
        if len({rule.port for rule in others}) > 1:
            raise _bad(" ".join(specs), "'*' (all other packets) is given to two ports", names)
        if len(rules) > _MAX_RULES:
            raise _bad("...", f"{len(rules)} items are too many, the limit is {_MAX_RULES}", names)
        _tables(rules, names)  # refuses overlaps before any packet is read
        silent = [number for number in range(len(names)) if all(rule.port != number for rule in rules)]
        if others or len(silent) != 1:
            return cls(names, rules, None, assumed=False)
        return cls(names, (*rules, Rule("*", None, silent[0], "*")), None, assumed=True)

    @classmethod
    def _default(cls, names: tuple[str, ...]) -> PortMap:
        if len(names) == 1:
            return cls(names, (Rule("*", None, 0, "*"),), None, assumed=True)
        if len(names) == 2:
            return cls(names, (), 0, assumed=True)
        raise fail(
            Kind.PORT_MAP, f"the program has {len(names)} ports ({', '.join(names)}): which packets arrive on which "
            "cannot be guessed", where="--port-map", hint=_example(names),
        )

    @classmethod
    def _by_initiator(cls, specs: Sequence[str], names: tuple[str, ...]) -> PortMap:
        if len(specs) > 1:
            raise _bad(" ".join(specs), "'initiator' cannot be combined with other items", names)
        if len(names) != 2:
            raise _bad(specs[0], f"'initiator' needs a program with two ports, this one has {len(names)}", names)
        _, equals, port = specs[0].partition("=")
        number = _port_number(specs[0], port.strip(), names) if equals else 0
        return cls(names, (), number, assumed=False)

    def describe(self) -> str:
        """The assignment as a sentence for people."""
        if self.initiator is not None:
            first, second = self.ports[self.initiator], self.ports[1 - self.initiator]
            return (
                f"the initiator of each flow is behind port {first}, answers arrive on port {second} (initiator: who "
                "sent the TCP SYN or the echo request, else the first packet seen)"
            )
        if len(self.rules) == 1 and self.rules[0].what == "*":
            return f"all packets arrive on port {self.ports[self.rules[0].port]}"
        # '*' counts last wherever it was written.
        ordered = sorted(self.rules, key=lambda rule: rule.what == "*")
        phrases = ", ".join(f"{rule.phrase()} on port {self.ports[rule.port]}" for rule in ordered)
        return f"packets arrive by the first match: {phrases}"

    def assign(self, source: TrafficSource, *, max_entries: int = MAX_ENTRIES) -> Assigned:
        """``source`` with ports assigned; a source of its own."""
        return Assigned(source, self, max_entries)


class Assigned(SourceWrapper):
    """A traffic source whose packets carry ports. Each pass starts with an empty memory of flows."""

    def __init__(self, source: TrafficSource, portmap: PortMap, max_entries: int) -> None:
        """Use PortMap.assign."""
        super().__init__(source)
        self.portmap = portmap
        self.counts = [0] * len(portmap.ports)
        """Packets per port of the most recent pass."""
        self._max_entries = max_entries
        self._own_warnings: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """Those of the source behind, then those about ports, which are complete after a whole pass."""
        return [*super().warnings, *self._own_warnings]

    def batches(self, size: int = DEFAULT_BATCH) -> Iterator[Batch]:
        """The batches of the source with ``port`` set; packets that match no rule are left out.

        Raises CoraError PORT_MAP at the end when a rule names an interface that the capture does not have.
        """
        native = _Native(self.portmap, self._max_entries)
        self.counts = [0] * len(self.portmap.ports)
        self._own_warnings = []
        for batch in self._source.batches(size):
            if native.has_interface_rules:
                native.update_interfaces(self._source.links)
            kept = batch[:native.assign(batch)]
            self.counts = native.counts()
            if kept.size:
                yield kept
        native.check_interfaces(self._source)
        self._own_warnings = native.warnings(self._max_entries)

    def packets(self) -> Iterator[Packet]:
        """The packets one by one, with their ports."""
        return packets_of(self.batches())


# ---- parsing ----


def _parse_spec(spec: str, names: tuple[str, ...]) -> Iterator[Rule]:
    port, equals, items = spec.partition("=")
    if not equals or not items.strip():
        raise _bad(spec, "expected PORT=ITEM or 'initiator'", names)
    number = _port_number(spec, port.strip(), names)
    for item in items.split(","):
        yield _parse_item(spec, item.strip(), number, names)


def _port_number(spec: str, port: str, names: tuple[str, ...]) -> int:
    if port in names:
        return names.index(port)
    raise _bad(spec, f"the program has no port {port!r}; its ports are {', '.join(names)}", names)


def _parse_item(spec: str, item: str, port: int, names: tuple[str, ...]) -> Rule:
    if item == "*":
        return Rule("*", None, port, item)
    kind, _, value = item.partition(":")
    if kind == "mac":
        return Rule("mac", _mac(spec, value, names), port, item)
    if kind == "if":
        if not value:
            raise _bad(spec, "'if:' needs the number or name of an interface", names)
        return Rule("if", int(value) if value.isascii() and value.isdigit() else value, port, item)
    if kind == "to":
        return Rule("to", _network(spec, value, names), port, item)
    return Rule("from", _network(spec, item, names), port, item)


def _mac(spec: str, text: str, names: tuple[str, ...]) -> int:
    if not re.fullmatch(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", text):
        raise _bad(spec, f"{text!r} is not a MAC address", names)
    return int(re.sub("[:-]", "", text), 16)


def _network(spec: str, text: str, names: tuple[str, ...]) -> _Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        reason = str(error)
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _bad(spec, f"{text!r} is not an IPv4 or IPv6 address or subnet", names) from None
    raise _bad(spec, f"{reason}; the subnet is {meant}", names)


def _example(names: tuple[str, ...]) -> str:
    rules = [f"--port-map {name}={network}" for name, network in
             zip(names[:-1], ("10.0.0.0/8", "192.168.0.0/16", "if:eth2", "mac:02:00:00:00:00:01"), strict=False)]
    return "for example: " + " ".join([*rules, f"--port-map '{names[-1]}=*'"])


def _bad(spec: str, message: str, names: tuple[str, ...]) -> CoraError:
    return fail(Kind.PORT_MAP, message, where=f"--port-map {spec}", hint=_example(names) if names else None)


# ---- rules as sorted, disjoint ranges ----


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """Numbers first..last, both included, and the rule they come from."""

    first: int
    last: int
    rank: int
    rule: Rule = field(compare=False)


_TABLES = ("source4", "source6", "target4", "target6", "mac")


def _tables(rules: Sequence[Rule], names: tuple[str, ...]) -> Mapping[str, NDArray[np.void]]:
    """The range tables of struct cora_portmap_rules; raises CoraError PORT_MAP where two ports overlap."""
    spans: dict[str, list[_Span]] = {name: [] for name in _TABLES}
    seen: dict[int | str, Rule] = {}
    for rank, rule in enumerate(rules):
        value = rule.value
        if rule.what == "mac" and isinstance(value, int):
            spans["mac"].append(_Span(value, value, rank, rule))
        elif isinstance(value, ipaddress.IPv4Network | ipaddress.IPv6Network):
            name = ("source" if rule.what == "from" else "target") + str(value.version)
            spans[name].append(_Span(int(value.network_address), int(value.broadcast_address), rank, rule))
        elif rule.what == "if" and isinstance(value, int | str):
            _refuse_overlap(seen.setdefault(value, rule), rule, names)
    return {name: _disjoint(sorted(items), names) for name, items in spans.items()}


def _refuse_overlap(one: Rule, other: Rule, names: tuple[str, ...]) -> None:
    if one.port != other.port:
        message = f"{one.text} (port {names[one.port]}) and {other.text} (port {names[other.port]}) overlap"
        raise _bad(f"{names[other.port]}={other.text}", message, names)


def _disjoint(spans: Sequence[_Span], names: tuple[str, ...]) -> NDArray[np.void]:
    """Cut sorted spans so that every number is in one range at most, which carries the lowest rank over it."""
    widest: dict[int, _Span] = {}
    for span in spans:
        for other in widest.values():
            if other.last >= span.first:
                _refuse_overlap(other.rule, span.rule, names)
        reach = widest.setdefault(span.rule.port, span)
        if span.last > reach.last:
            widest[span.rule.port] = span
    edges = sorted({edge for span in spans for edge in (span.first, span.last + 1)})
    active: list[tuple[int, _Span]] = []
    ranges: list[tuple[int, int, int, int, int, int, int]] = []
    upcoming = iter(spans)
    following = next(upcoming, None)
    for edge, end in itertools.pairwise(edges):
        while following is not None and following.first == edge:
            heapq.heappush(active, (following.rank, following))
            following = next(upcoming, None)
        while active and active[0][1].last < edge:
            heapq.heappop(active)
        if active:
            rank, span = active[0]
            ranges.append((*_halves(edge), *_halves(end - 1), rank, span.rule.port, 0))
    return np.array(ranges, _RANGE)


def _halves(number: int) -> tuple[int, int]:
    return number >> 64, number & (1 << 64) - 1


# ---- the native side ----


class _Table(ctypes.Structure):
    _fields_ = [("ranges", ctypes.c_uint64), ("count", ctypes.c_uint64)]


class _Rules(ctypes.Structure):
    _fields_ = [
        *((name, _Table) for name in _TABLES), ("interfaces", ctypes.c_uint64), ("interface_count", ctypes.c_uint64),
        ("other", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]


class _Statistics(ctypes.Structure):
    _fields_ = [
        ("unmatched", ctypes.c_uint64), ("entries", ctypes.c_uint64), ("untracked", ctypes.c_uint64),
        ("counts", ctypes.POINTER(ctypes.c_uint64)),
    ]


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    lib = library()
    pointer, u16, u32, u64 = ctypes.c_void_p, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
    lib.cora_portmap_initiator.argtypes = [u32, u16, u16, u64, ctypes.c_char_p]
    lib.cora_portmap_initiator.restype = pointer
    lib.cora_portmap_by_rules.argtypes = [u32, ctypes.POINTER(_Rules)]
    lib.cora_portmap_by_rules.restype = pointer
    lib.cora_portmap_close.argtypes = [pointer]
    lib.cora_portmap_close.restype = None
    lib.cora_portmap_assign.argtypes = [pointer, pointer, u64]
    lib.cora_portmap_assign.restype = u64
    lib.cora_portmap_interfaces.argtypes = [pointer, pointer, u64]
    lib.cora_portmap_interfaces.restype = None
    lib.cora_portmap_statistics.argtypes = [pointer]
    lib.cora_portmap_statistics.restype = ctypes.POINTER(_Statistics)
    return lib


class _Native:
    """One pass of the native port map."""

    def __init__(self, portmap: PortMap, max_entries: int) -> None:
        self._lib = _library()
        self._portmap = portmap
        self._interface_rules = [(rank, rule) for rank, rule in enumerate(portmap.rules) if rule.what == "if"]
        self._found: set[int | str] = set()
        self._tables = _tables(portmap.rules, portmap.ports)
        self._interfaces = np.empty(0, np.uint32)
        self._handle = self._by_rules() if portmap.initiator is None else self._lib.cora_portmap_initiator(
            len(portmap.ports), portmap.initiator, 1 - portmap.initiator, max_entries, os.urandom(16))
        if not self._handle:
            raise fail(Kind.ENGINE_LIMIT, "out of memory for the port map")

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.cora_portmap_close(self._handle)

    def _by_rules(self) -> int | None:
        rules = _Rules(*(_Table(table.ctypes.data, table.size) for table in self._tables.values()))
        rules.other = next((rule.port for rule in self._portmap.rules if rule.what == "*"), _NO_PORT)
        handle: int | None = self._lib.cora_portmap_by_rules(len(self._portmap.ports), ctypes.byref(rules))
        return handle

    @property
    def has_interface_rules(self) -> bool:
        """Whether update_interfaces() must be called when interfaces are met."""
        return bool(self._interface_rules)

    def update_interfaces(self, links: Sequence[Link]) -> None:
        """Tell the port of every interface met so far."""
        if len(links) == self._interfaces.size:
            return
        self._interfaces = np.full(len(links), _NO_INTERFACE_RULE, np.uint32)
        for rank, rule in reversed(self._interface_rules):
            for link in links:
                if rule.value in (link.index, link.name):
                    self._interfaces[link.index] = rank << 16 | rule.port
                    self._found.add(rule.text)
        self._lib.cora_portmap_interfaces(self._handle, self._interfaces.ctypes.data, self._interfaces.size)

    def assign(self, batch: Batch) -> int:
        """Set the ports of a batch; returns how many records are left at its front."""
        return int(self._lib.cora_portmap_assign(self._handle, batch.ctypes.data, batch.size))

    def counts(self) -> list[int]:
        """Packets per port so far."""
        counts = self._lib.cora_portmap_statistics(self._handle).contents.counts
        return [int(count) for count in counts[:len(self._portmap.ports)]]

    def check_interfaces(self, source: TrafficSource) -> None:
        """Refuse a rule whose interface the whole capture did not have."""
        self.update_interfaces(source.links)
        for _, rule in self._interface_rules:
            if rule.text not in self._found:
                known = ", ".join(f"{link.index} ({link.name})" if link.name else str(link.index)
                                  for link in source.links)
                raise fail(Kind.PORT_MAP, f"the capture has no interface {rule.value!r}; it has {known or 'none'}",
                           where=f"--port-map {self._portmap.ports[rule.port]}={rule.text}",
                           hint="name one of these interfaces, or use a subnet")

    def warnings(self, max_entries: int) -> list[str]:
        """What to tell about the ports after a whole pass."""
        stats = self._lib.cora_portmap_statistics(self._handle).contents
        texts = []
        if stats.unmatched:
            texts.append(f"port map: {stats.unmatched} packets match no rule and are left out; "
                         "add --port-map 'PORT=*' to give all others a port")
        if stats.untracked:
            texts.append(f"port map: memory is full at {stats.entries} flows (limit {max_entries}); "
                         f"{stats.untracked} packets of later flows were assigned by themselves")
        return texts
