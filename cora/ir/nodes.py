"""The IR: a program is its declarations and one acyclic control-flow graph of typed, single-assignment blocks.

A packet enters at the entry block and leaves through a `Forward`, `Drop`, `Reject` or `Hold`. Everything that can go
two ways is a terminator with named outcomes: branches, header extraction, table look-ups, inserts, policing. So a
path through the graph says everything about what happened to a packet, and its cost is the sum of its blocks.

All nodes are immutable and carry the span of the source they came from. `docs/semantics.md` states what each node does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import ClassVar, Literal

from cora.ir.span import Span
from cora.ir.types import Type


@dataclass(frozen=True)
class Value:
    """A single-assignment value; ``name`` is unique in the program and ``%name`` in the text form."""

    name: str
    type: Type


# --- declarations ---


@dataclass(frozen=True)
class Port:
    """A port of the network function and what it may face: any of ``wire``, ``host``, ``vf``."""

    name: str
    faces: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class Config:
    """A configuration value: constant within an epoch, read by `LoadConfig`."""

    name: str
    type: Type
    value: int
    span: Span
    shown: str = ""


@dataclass(frozen=True)
class FieldDecl:
    """A field of a table entry.

    ``shown_as`` is the name of its type in the language (``ipv4``, ``mac``, ``duration``), for people only: it is no
    part of the program's meaning, its text form or its hash.
    """

    name: str
    type: Type
    span: Span
    shown_as: str = field(default="", compare=False)


@dataclass(frozen=True)
class KeyDecl:
    """A key of a map: the entry fields that make it up, in order. A pair map has two keys onto one entry."""

    name: str
    fields: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class Timeout:
    """A time-out class: an entry in it is removed once it was idle for more than ``nanoseconds``."""

    name: str
    nanoseconds: int
    span: Span


@dataclass(frozen=True)
class AllocDecl:
    """The entry fields that an insert fills with one value of a pool, in the order of the pool's dimensions."""

    pool: str
    fields: tuple[str, ...]
    span: Span


Full = Literal["reject", "evict_lru", "pass"]


@dataclass(frozen=True)
class MapState:
    """A hash table. One key: a plain map; two keys: a pair map, both leading to the same entry.

    Attributes:
        fields: all fields of an entry, key fields first; key fields are never stored to after the insert.
        keys: first the primary key, then (pair map) the reverse key.
        allocs: fields filled from pools inside the atomic insert.
        capacity: entries; timeouts: empty means entries never expire; slack: nanoseconds an expiry may come late.
    """

    name: str
    fields: tuple[FieldDecl, ...]
    keys: tuple[KeyDecl, ...]
    allocs: tuple[AllocDecl, ...]
    capacity: int
    timeouts: tuple[Timeout, ...]
    slack: int
    full: Full
    exact: bool
    strict_order: bool
    per_shard: bool
    span: Span

    def field(self, name: str) -> FieldDecl | None:
        return next((f for f in self.fields if f.name == name), None)

    def key(self, name: str) -> KeyDecl | None:
        return next((k for k in self.keys if k.name == name), None)


@dataclass(frozen=True)
class PoolRange:
    """One dimension of a pool: the values ``low`` to ``high``, both included."""

    name: str
    type: Type
    low: int
    high: int
    span: Span


@dataclass(frozen=True)
class PoolState:
    """A set of values, each held by at most one entry at a time. The last dimension varies fastest.

    ``preserve``: the last dimension is a port number, searched in the order RFC 4787 REQ-3 and REQ-4 ask for.
    """

    name: str
    ranges: tuple[PoolRange, ...]
    preserve: bool
    per_shard: bool
    span: Span

    @property
    def size(self) -> int:
        product = 1
        for r in self.ranges:
            product *= r.high - r.low + 1
        return product


Algorithm = Literal["token_bucket", "srtcm", "trtcm"]


@dataclass(frozen=True)
class MeterState:
    """Keyed token buckets, colour-blind. Rates in octets/s, bursts in octets.

    token_bucket: rate, burst -> green or red. srtcm: RFC 2697 (rate, burst, excess burst). trtcm: RFC 2698 (committed
    rate and burst, peak rate and burst). An entry is removed once idle for more than ``timeout`` nanoseconds.
    """

    name: str
    fields: tuple[FieldDecl, ...]
    capacity: int
    algorithm: Algorithm
    rate: int
    burst: int
    excess_burst: int
    peak_rate: int
    peak_burst: int
    timeout: int
    slack: int
    full: Full
    exact: bool
    strict_order: bool
    per_shard: bool
    span: Span


@dataclass(frozen=True)
class CounterState:
    """``size`` pairs of 64-bit packet and octet counters."""

    name: str
    size: int
    span: Span


MatchKind = Literal["exact", "ternary", "range"]


@dataclass(frozen=True)
class AclEntry:
    """One rule: per key field (value, mask) for exact and ternary, (low, high) for range; the values it gives."""

    match: tuple[tuple[int, int], ...]
    values: tuple[int, ...]
    priority: int
    span: Span


@dataclass(frozen=True)
class AclState:
    """A ternary table, read-only in the data plane: of the matching entries the one with the largest priority hits."""

    name: str
    keys: tuple[FieldDecl, ...]
    kinds: tuple[MatchKind, ...]
    values: tuple[FieldDecl, ...]
    entries: tuple[AclEntry, ...]
    capacity: int
    span: Span


@dataclass(frozen=True)
class LpmEntry:
    """One prefix: ``value`` has no bits set beyond ``length``."""

    value: int
    length: int
    values: tuple[int, ...]
    span: Span


@dataclass(frozen=True)
class LpmState:
    """A longest-prefix-match table over one key, read-only in the data plane."""

    name: str
    key: FieldDecl
    values: tuple[FieldDecl, ...]
    entries: tuple[LpmEntry, ...]
    capacity: int
    span: Span


@dataclass(frozen=True)
class FragmentState:
    """The tracker of virtual reassembly; keys are the datagram's identity (F1 of the behaviour reference).

    Attributes:
        capacity: datagrams; timeout: nanoseconds from a datagram's first seen fragment; max_held: fragments kept per
        datagram until the one with offset 0 arrives.
    """

    name: str
    capacity: int
    timeout: int
    max_held: int
    span: Span


State = MapState | PoolState | MeterState | CounterState | AclState | LpmState | FragmentState


# --- instructions ---


@dataclass(frozen=True)
class Const:
    mnemonic: ClassVar[str] = "const"
    result: Value
    value: int
    span: Span


UnaryOp = Literal["not", "invert"]
BinaryOp = Literal["add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr", "min", "max"]
CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True)
class Unary:
    """``not`` of a bool, bitwise ``invert`` of an integer."""

    mnemonic: ClassVar[str] = "unary"
    result: Value
    op: UnaryOp
    operand: Value
    span: Span


@dataclass(frozen=True)
class Binary:
    """Unsigned, wrapping arithmetic on two operands of the result's type; bools take and, or, xor.

    x div 0 = 0 and x mod 0 = x, shifts by the width or more give 0 (the rules of BPF for division).
    """

    mnemonic: ClassVar[str] = "binary"
    result: Value
    op: BinaryOp
    left: Value
    right: Value
    span: Span


@dataclass(frozen=True)
class Compare:
    """Unsigned comparison of two values of one type; bools take eq and ne."""

    mnemonic: ClassVar[str] = "compare"
    result: Value
    op: CompareOp
    left: Value
    right: Value
    span: Span


@dataclass(frozen=True)
class Cast:
    """Zero-extends or truncates an integer; a bool becomes 0 or 1, an integer becomes (value != 0)."""

    mnemonic: ClassVar[str] = "cast"
    result: Value
    operand: Value
    span: Span


@dataclass(frozen=True)
class Select:
    mnemonic: ClassVar[str] = "select"
    result: Value
    condition: Value
    if_true: Value
    if_false: Value
    span: Span


@dataclass(frozen=True)
class LoadConfig:
    mnemonic: ClassVar[str] = "config"
    result: Value
    config: str
    span: Span


MetaWhat = Literal["time", "size", "port"]


@dataclass(frozen=True)
class Meta:
    """``time`` (u64, clamped ingress ns), ``size`` (u32, original frame length), ``port`` (u16, arrival port index)."""

    mnemonic: ClassVar[str] = "meta"
    result: Value
    what: MetaWhat
    span: Span


@dataclass(frozen=True)
class Load:
    """Reads a header field; the header must have been extracted on every way here."""

    mnemonic: ClassVar[str] = "load"
    result: Value
    header: str
    field: str
    span: Span


@dataclass(frozen=True)
class Store:
    """Writes a header field and updates every checksum that covers it."""

    mnemonic: ClassVar[str] = "store"
    header: str
    field: str
    value: Value
    span: Span


@dataclass(frozen=True)
class LoadEntry:
    mnemonic: ClassVar[str] = "load_entry"
    result: Value
    entry: Value
    field: str
    span: Span


@dataclass(frozen=True)
class StoreEntry:
    """Writes a field of a map entry that is part of no key."""

    mnemonic: ClassVar[str] = "store_entry"
    entry: Value
    field: str
    value: Value
    span: Span


@dataclass(frozen=True)
class Touch:
    """Refreshes an entry (last use := now) and puts it in a time-out class."""

    mnemonic: ClassVar[str] = "touch"
    entry: Value
    timeout: str
    span: Span


@dataclass(frozen=True)
class Delete:
    """Removes an entry with all its keys and gives its pool values back. The reference is dead afterwards."""

    mnemonic: ClassVar[str] = "delete"
    entry: Value
    span: Span


@dataclass(frozen=True)
class Count:
    """Adds one packet and ``amount`` octets (None: the frame length); an index beyond the counter counts nothing."""

    mnemonic: ClassVar[str] = "count"
    counter: str
    index: Value | None
    amount: Value | None
    span: Span


Instruction = (Const | Unary | Binary | Compare | Cast | Select | LoadConfig | Meta | Load | Store | LoadEntry
               | StoreEntry | Touch | Delete | Count)


# --- terminators ---


@dataclass(frozen=True)
class Jump:
    """Goes to a block, passing values for its parameters. The only terminator that passes values."""

    mnemonic: ClassVar[str] = "jump"
    target: str
    args: tuple[Value, ...]
    span: Span


@dataclass(frozen=True)
class Branch:
    mnemonic: ClassVar[str] = "branch"
    condition: Value
    if_true: str
    if_false: str
    span: Span


@dataclass(frozen=True)
class Switch:
    mnemonic: ClassVar[str] = "switch"
    value: Value
    cases: tuple[tuple[int, str], ...]
    default: str
    span: Span


@dataclass(frozen=True)
class HasHeader:
    """Goes to ``if_present`` when the header was extracted on the way here, and makes it readable there."""

    mnemonic: ClassVar[str] = "has"
    header: str
    if_present: str
    if_absent: str
    span: Span


@dataclass(frozen=True)
class Extract:
    """Checks and locates a header. Outcomes: ``ok``, ``malformed``, ``unparsed``; see `EXTRACT_OUTCOMES` for the rest.

    Attributes:
        limit: for eth the number of VLAN tags read, for ipv6 the number of extension headers walked; else 0.
        verify: for ipv4: check the header checksum. ``source_route``: for ipv4: look for source-route options.
    """

    mnemonic: ClassVar[str] = "extract"
    header: str
    limit: int
    verify: bool
    source_route: bool
    outcomes: tuple[tuple[str, str], ...]
    span: Span


def extract_outcomes(header: str, *, verify: bool, source_route: bool) -> tuple[str, ...]:
    """The outcome names of extracting a header, in order."""
    names = ["ok", "malformed", "unparsed"]
    if header == "vlan":
        return ("ok", "absent")
    if header == "ipv4":
        names += ["bad_checksum"] if verify else []
        names += ["source_route"] if source_route else []
    return tuple(names)


FRAGMENT_OUTCOMES = ("ok", "hold", "malformed", "tiny", "overlap", "duplicate", "too_many", "dead", "full")


@dataclass(frozen=True)
class TrackFragment:
    """Virtual reassembly of the packet's datagram; ``header`` is ipv4 or ipv6. Outcomes: `FRAGMENT_OUTCOMES`."""

    mnemonic: ClassVar[str] = "track_fragment"
    state: str
    header: str
    outcomes: tuple[tuple[str, str], ...]
    span: Span


@dataclass(frozen=True)
class IsFragment:
    """Goes to ``if_fragment`` for an IPv4 fragment or a non-atomic IPv6 one."""

    mnemonic: ClassVar[str] = "is_fragment"
    header: str
    if_fragment: str
    if_whole: str
    span: Span


@dataclass(frozen=True)
class Lookup:
    """Looks a key up in a map, ACL or LPM table; ``entry`` is defined in the hit target, which no other edge enters.

    ``key``: the key's name in a map; empty for ACL and LPM tables.
    """

    mnemonic: ClassVar[str] = "lookup"
    state: str
    key: str
    operands: tuple[Value, ...]
    entry: Value
    hit: str
    miss: str
    span: Span


@dataclass(frozen=True)
class Insert:
    """Adds an entry in one atomic step: room, pool values, all keys. ``full`` when any of them is not to be had.

    ``full`` is also taken when a key is already present: an insert never changes an existing entry.

    Attributes:
        values: one per entry field that is not allocated, in field order.
        prefer: per alloc of the map, the preferred value of each dimension, or empty for no preference.
        timeout: the class the entry starts in, empty when the map has none.
    """

    mnemonic: ClassVar[str] = "insert"
    state: str
    values: tuple[Value, ...]
    prefer: tuple[tuple[Value, ...], ...]
    timeout: str
    entry: Value
    ok: str
    full: str
    span: Span


@dataclass(frozen=True)
class Police:
    """Charges ``size`` octets to the bucket of a key. ``yellow`` is None for a plain token bucket."""

    mnemonic: ClassVar[str] = "police"
    state: str
    operands: tuple[Value, ...]
    size: Value
    green: str
    yellow: str | None
    red: str
    full: str
    span: Span


@dataclass(frozen=True)
class Forward:
    """Sends the packet, as it now is, out of a port."""

    mnemonic: ClassVar[str] = "forward"
    port: str
    span: Span


@dataclass(frozen=True)
class Drop:
    mnemonic: ClassVar[str] = "drop"
    reason: str
    span: Span


@dataclass(frozen=True)
class Reject:
    """Drops the packet and sends an ICMP error about it, quoting it as it arrived, out of its arrival port.

    ``header`` is ipv4 or ipv6 and must be extracted; ``source`` is the address the error comes from.
    """

    mnemonic: ClassVar[str] = "reject"
    reason: str
    header: str
    icmp_type: int
    icmp_code: int
    source: Value
    span: Span


@dataclass(frozen=True)
class Hold:
    """The packet stays with the fragment tracker; only reached through `TrackFragment`'s ``hold``."""

    mnemonic: ClassVar[str] = "hold"
    span: Span


@dataclass(frozen=True)
class Punt:
    """Hands the packet to a later place, which goes on at its entry ``entry`` with these values.

    Only the parts of a split program have it (`cora.ir.parts`).
    """

    mnemonic: ClassVar[str] = "punt"
    place: str
    entry: int
    values: tuple[Value, ...]
    span: Span


Terminator = (Jump | Branch | Switch | HasHeader | Extract | TrackFragment | IsFragment | Lookup | Insert | Police
              | Forward | Drop | Reject | Hold | Punt)


@dataclass(frozen=True)
class Block:
    """Straight-line code with one terminator; ``params`` are set by the jumps that enter it."""

    label: str
    params: tuple[Value, ...]
    instructions: tuple[Instruction, ...]
    terminator: Terminator
    span: Span


@dataclass(frozen=True)
class Program:
    """A network function. Every block stands before its successors; the first is the entry."""

    name: str
    ports: tuple[Port, ...]
    configs: tuple[Config, ...]
    states: tuple[State, ...]
    blocks: tuple[Block, ...]
    span: Span

    def __repr__(self) -> str:
        """What it is in a line; `cora.ir.text.print_program` prints it whole."""
        states = ", ".join(s.name for s in self.states) or "none"
        return f"<Program {self.name}: {len(self.blocks)} blocks; states: {states}>"

    def block(self, label: str) -> Block:
        """The block of that label.

        Raises:
            KeyError: there is none.
        """
        for b in self.blocks:
            if b.label == label:
                return b
        raise KeyError(label)

    def state(self, name: str) -> State:
        """The state of that name.

        Raises:
            KeyError: there is none.
        """
        for s in self.states:
            if s.name == name:
                return s
        raise KeyError(name)

    def port_index(self, name: str) -> int:
        return next(i for i, p in enumerate(self.ports) if p.name == name)


def successors(terminator: Terminator) -> tuple[tuple[str, str], ...]:
    """The (outcome, target label) edges of a terminator, in a fixed order; empty where the packet leaves."""
    match terminator:
        case Jump(target=target):
            return (("next", target),)
        case Branch():
            return (("true", terminator.if_true), ("false", terminator.if_false))
        case Switch():
            return (*((str(v), t) for v, t in terminator.cases), ("default", terminator.default))
        case HasHeader():
            return (("present", terminator.if_present), ("absent", terminator.if_absent))
        case IsFragment():
            return (("fragment", terminator.if_fragment), ("whole", terminator.if_whole))
        case Extract() | TrackFragment():
            return terminator.outcomes
        case Lookup():
            return (("hit", terminator.hit), ("miss", terminator.miss))
        case Insert():
            return (("ok", terminator.ok), ("full", terminator.full))
        case Police():
            yellow = (("yellow", terminator.yellow),) if terminator.yellow is not None else ()
            return (("green", terminator.green), *yellow, ("red", terminator.red), ("full", terminator.full))
        case Forward() | Drop() | Reject() | Hold() | Punt():
            return ()


def result_of(instruction: Instruction) -> Value | None:
    """The value an instruction defines."""
    return getattr(instruction, "result", None)


def operands_of(node: Instruction | Terminator) -> tuple[Value, ...]:
    """The values a node reads, in the order of its fields."""
    found: list[Value] = []
    kind: type = type(node)
    for name in read_fields(kind):
        item = getattr(node, name)
        if isinstance(item, Value):
            found.append(item)
        elif isinstance(item, tuple):
            found += _values_in(item)
    return tuple(found)


@lru_cache(maxsize=64)
def read_fields(kind: type) -> tuple[str, ...]:
    """The fields of a node type that may hold values it reads; `str` and `int` fields never do."""
    skipped = {"result", "entry"} if kind in (Lookup, Insert) else {"result"}
    return tuple(f.name for f in fields(kind) if f.name not in skipped and f.type not in ("str", "int", "bool", "Span"))


def _values_in(item: object) -> Iterator[Value]:
    if isinstance(item, Value):
        yield item
    elif isinstance(item, tuple):
        for inner in item:
            yield from _values_in(inner)


def reasons_of(program: Program) -> tuple[str, ...]:
    """Every drop reason of a program in a stable order: those of its blocks, then those of the fragment tracker.

    A reason's index in this list is its number in every engine.
    """
    named = dict.fromkeys(
        b.terminator.reason for b in program.blocks if isinstance(b.terminator, Drop | Reject)
    )
    tracked = dict.fromkeys(TRACKER_REASONS) if any(isinstance(s, FragmentState) for s in program.states) else {}
    return tuple({**named, **tracked})


# Drops of fragments that were held when their datagram was given up.
TRACKER_REASONS = ("fragment time-out", "first fragment was dropped", "fragment of a condemned datagram")

Nodes = Mapping[str, Block]
