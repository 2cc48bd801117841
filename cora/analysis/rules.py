"""Rules of decided flows as data, and what one of them does to a packet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cora.analysis.sharding import Anchor
from cora.analysis.symbolic import Expr, shown, value_of
from cora.ir import nodes
from cora.ir.headers import field_of
from cora.ir.nodes import Program
from cora.ir.span import Span
from cora.ir.types import bits_of

# Stands among the entry fields of `RuleTemplate.invalidated_by` for the time-out class of the entry.
TIMEOUT_CLASS = "(time-out class)"

Interval = tuple[int, int]


@dataclass(frozen=True)
class Match:
    """A condition on a header field as it arrived: ``field & mask`` lies in one of ``ranges`` (both ends included).

    ``entry``: instead, the field equals this field of the entry. ``header`` ``meta`` with field ``port`` is the number
    of the arrival port. ``narrowing``: the path itself does not ask for it; packets of the path that fail it are not
    served by the rule.
    """

    header: str
    field: str
    mask: int
    ranges: tuple[Interval, ...]
    entry: str
    narrowing: bool
    span: Span


@dataclass(frozen=True)
class Guard:
    """A condition on the entry alone: the rule exists only while ``condition`` is ``holds``."""

    condition: Expr
    holds: bool
    span: Span

    @property
    def text(self) -> str:
        """The condition for people."""
        return shown(self.condition) if self.holds else f"not {shown(self.condition)}"


@dataclass(frozen=True)
class Rewrite:
    """A header field gets a value that is fixed when the rule is made, or a field as it arrived plus ``amount``.

    ``value``: an expression over entry fields and constants, None when ``source`` (header, field) is given; sums wrap
    in the width of the field.
    """

    header: str
    field: str
    value: Expr | None
    source: tuple[str, str] | None
    amount: int
    span: Span

    @property
    def constant(self) -> int | None:
        return None if self.value is None else self.value.constant

    @property
    def entry_field(self) -> str:
        """The entry field it is, empty when it is something else."""
        return str(self.value.detail[2]) if self.value is not None and self.value.op == "entry" else ""


@dataclass(frozen=True)
class Counting:
    """One packet and its frame's length (or ``octets``) are added to ``counter`` at ``index``."""

    counter: str
    index: Expr | None
    octets: Expr | None
    span: Span


@dataclass(frozen=True)
class Metering:
    """The packet is charged to the entry's bucket and is of this colour."""

    state: str
    colour: str
    span: Span


@dataclass(frozen=True)
class RuleTemplate:
    """What a match-action engine does with a packet of one path, given its entry.

    Attributes:
        blocks, outcomes: the path; anchor: its look-up or charge.
        extracts: headers the packet must have, each with the outcome its extraction must give, in order.
        whole: IP headers by which the packet must be no fragment.
        matches, guards, rewrites (in order), counts; meter: None without one.
        touches: (state, time-out class): the entry is refreshed. It is in this class already while the rule exists, so
            that the time of the last packet is all an engine has to report.
        port: the port it leaves by; reason: or the reason it is dropped for.
        invalidated_by: entry fields whose change removes the rule, `TIMEOUT_CLASS` among them. All other fields that
            the rule uses never change while the entry lives.
    """

    component: str
    blocks: tuple[str, ...]
    outcomes: tuple[str, ...]
    anchor: Anchor
    extracts: tuple[tuple[nodes.Extract, str], ...]
    whole: tuple[str, ...]
    matches: tuple[Match, ...]
    guards: tuple[Guard, ...]
    rewrites: tuple[Rewrite, ...]
    counts: tuple[Counting, ...]
    touches: tuple[tuple[str, str], ...]
    meter: Metering | None
    port: str
    reason: str
    invalidated_by: frozenset[str]

    @property
    def narrowed(self) -> bool:
        """Whether it serves only some packets of the path."""
        return any(m.narrowing for m in self.matches)


class Packet(Protocol):
    """What `evaluate` needs of a packet: an untouched one, whose headers it looks for itself.

    ``fragment`` is None for a packet that is none.
    """

    @property
    def fragment(self) -> object | None: ...

    def extract(self, node: nodes.Extract) -> str:
        """Find a header and return the outcome."""

    def load(self, header: str, field: str) -> int:
        """A field of a header that was found."""

    def store(self, header: str, field: str, value: int) -> None:
        """Set a field, with every checksum that covers it."""


@dataclass(frozen=True)
class Entry:
    """An entry of a map or meter: its fields (for a meter those of the key) and its time-out class."""

    fields: Mapping[str, int]
    timeout: str


@dataclass(frozen=True)
class Served:
    """What a rule did with a packet beside rewriting it: counter, index and octets of every count."""

    port: str
    reason: str
    counts: tuple[tuple[str, int, int], ...]


def holds(program: Program, template: RuleTemplate, entry: Entry) -> bool:
    """Whether the rule exists for an entry as it is: all guards hold, and its class is the one the rule refreshes."""
    if any(timeout != entry.timeout for _, timeout in template.touches):
        return False
    return all(bool(_number(program, g.condition, entry)) == g.holds for g in template.guards)


def evaluate(program: Program, template: RuleTemplate, entry: Entry, packet: Packet, port: int, size: int
             ) -> Served | None:
    """Run a rule on a packet that arrived at ``port`` with a frame of ``size`` octets; rewrites it in place.

    Returns None, with the packet unchanged, when the entry has no such rule now or the packet does not match. A rule
    with a meter is taken to find its colour.
    """
    if not holds(program, template, entry) or not _fits(template, entry, packet, port):
        return None
    # All values are those of the packet as it arrived, so none is stored before the last is known.
    values = [_written(program, r, entry, packet) for r in template.rewrites]
    for rewrite, value in zip(template.rewrites, values, strict=True):
        packet.store(rewrite.header, rewrite.field, value)
    counts = []
    for count in template.counts:
        index = 0 if count.index is None else _number(program, count.index, entry)
        octets = size if count.octets is None else _number(program, count.octets, entry)
        counts.append((count.counter, index, octets))
    return Served(template.port, template.reason, tuple(counts))


def _fits(template: RuleTemplate, entry: Entry, packet: Packet, port: int) -> bool:
    if any(packet.extract(node) != outcome for node, outcome in template.extracts):
        return False
    if template.whole and packet.fragment is not None:
        return False
    return all(_matches(m, entry, packet, port) for m in template.matches)


def _matches(match: Match, entry: Entry, packet: Packet, port: int) -> bool:
    value = port if match.header == "meta" else packet.load(match.header, match.field)
    if match.entry:
        return value == entry.fields[match.entry]
    return any(low <= value & match.mask <= high for low, high in match.ranges)


def _written(program: Program, rewrite: Rewrite, entry: Entry, packet: Packet) -> int:
    if rewrite.value is not None:
        return _number(program, rewrite.value, entry)
    assert rewrite.source is not None, "a rewrite has a value or a source"
    kind = field_of(*rewrite.source)
    assert kind is not None, "sources are fields"
    return (packet.load(*rewrite.source) + rewrite.amount) % (1 << kind.bits)


def _number(program: Program, expr: Expr, entry: Entry) -> int:
    """A value that depends on the entry (and read-only tables) alone."""

    def leaf(node: Expr) -> int:
        if node.op == "entry":
            return entry.fields[str(node.detail[2])]
        state = program.state(str(node.detail[0]))
        found = _row(state, tuple(value_of(o, leaf) for o in node.operands))
        if node.op == "hits":
            return int(found is not None)
        # A value is only read behind a hit, which is a guard of its own.
        return 0 if found is None else found[str(node.detail[1])]

    return value_of(expr, leaf)


def _row(state: nodes.State, key: tuple[int, ...]) -> Mapping[str, int] | None:
    """What a read-only table gives for a key."""
    if isinstance(state, nodes.LpmState):
        width = bits_of(state.key.type)
        fits = [e for e in state.entries if key[0] >> (width - e.length) == e.value >> (width - e.length)]
        best = max(fits, key=lambda e: e.length, default=None)
        return None if best is None else {f.name: v for f, v in zip(state.values, best.values, strict=True)}
    assert isinstance(state, nodes.AclState), "read-only tables are ACL and LPM tables"
    rules = [e for e in state.entries if all(map(_within, state.kinds, e.match, key))]
    first = max(rules, key=lambda e: e.priority, default=None)
    return None if first is None else {f.name: v for f, v in zip(state.values, first.values, strict=True)}


def _within(kind: nodes.MatchKind, match: tuple[int, int], operand: int) -> bool:
    first, second = match
    return first <= operand <= second if kind == "range" else operand & second == first
