"""`order strict`: which packets must leave in the order in which they came, so that they have to end at one place.

Two packets of one flow (arrival port, addresses, protocol, ports, type of ICMP message) take the same way at every
decision that depends on these alone. Where they may part at another decision, each may end somewhere else, and the one
that ends nearer to the wire overtakes the other. So all blocks that forward packets of a flow have to be at one place
as soon as any of these packets uses a map or meter with `order strict`. Drops and ICMP errors do not count.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

from cora.analysis.accesses import accesses_of, components_of
from cora.ir.nodes import (
    AclState,
    Binary,
    Branch,
    Cast,
    Compare,
    Const,
    Forward,
    HasHeader,
    Instruction,
    Load,
    LoadConfig,
    LoadEntry,
    Lookup,
    LpmState,
    MapState,
    Meta,
    MeterState,
    Program,
    Select,
    State,
    Store,
    Switch,
    Terminator,
    Unary,
    Value,
    operands_of,
    result_of,
    successors,
)
from cora.ir.span import Span
from cora.ir.types import Bool
from cora.text import lines_of

# Header fields that all packets of a flow share, by header; `l4` are the ports of TCP and UDP.
_OF_FLOW: Mapping[str, frozenset[str]] = {
    "eth": frozenset({"type"}), "ipv4": frozenset({"src", "dst", "proto"}), "ipv6": frozenset({"src", "dst", "proto"}),
    "l4": frozenset({"sport", "dport"}), "icmp": frozenset({"type"}), "icmp6": frozenset({"type"}),
}
_PORTS = ("tcp", "udp")
_HEADERS = frozenset({"arp", "ipv4", "ipv6", "tcp", "udp", "l4", "icmp", "icmp6"})
# Beyond so many ways decisions are not told apart any more: then more packets are taken for ones of the same flow.
_MOST_WAYS = 20_000
_MOST_ENDS = 200

# A value that all packets of a flow share, as an expression of constants, header fields and the arrival port.
_Shared = tuple[Any, ...]
# What is decided by a shared value; of a switch also the values of its cases.
_Decision = tuple[_Shared, tuple[int, ...] | None]
# Outcomes of decisions, by decision.
_Facts = frozenset[tuple[_Decision, str]]
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@dataclass(frozen=True)
class OrderedEnds:
    """Blocks that forward packets of one flow.

    Attributes:
        blocks: their labels. states: maps and meters that such packets use and that ask for the order.
        passed: components that some packets of a flow use while others of the same flow pass them by.
    """

    blocks: frozenset[str]
    states: tuple[str, ...]
    passed: frozenset[str]


@dataclass(frozen=True)
class _End:
    """A way to a block that forwards: what was decided for the whole flow, and the components used."""

    facts: _Facts
    used: frozenset[str]


def ordered_ends(program: Program, *, weak: bool = False) -> tuple[OrderedEnds, ...]:
    """Groups of blocks that have to be at one place. ``weak``: those of `order weak` states instead of strict ones."""
    return _Ways(program).groups(weak)


def order_clause(states: Iterable[State]) -> str:
    """What asks for order, in the user's words: ``order strict of 'conns' (line 54)``."""
    return "`order strict` of " + " and ".join(f"'{s.name}' (line {_order_line(s.span)})" for s in states)


def _order_line(span: Span) -> int:
    """The line that says so in the declaration of a map or meter; its first one where none does."""
    lines = lines_of(span.file)[span.line - 1 : span.end_line]
    return next((span.line + i for i, text in enumerate(lines) if re.search(r"\border\s+strict\b", text)), span.line)


class _Ways:
    """Follows all ways through a program."""

    def __init__(self, program: Program) -> None:
        self.blocks = {b.label: b for b in program.blocks}
        self.first = program.blocks[0].label
        self.states = {s.name: s for s in program.states}
        self.components = components_of(program)
        nodes = [n for b in program.blocks for n in (*b.instructions, b.terminator)]
        self.stored = {_field(n) for n in nodes if isinstance(n, Store)}
        self.defined: dict[Value, Instruction | Terminator] = {
            n.entry: n for n in nodes if isinstance(n, Lookup)}
        self.defined |= {v: i for b in program.blocks for i in b.instructions if (v := result_of(i)) is not None}
        self.decided = {b.label: self.decision(b.terminator) for b in program.blocks}
        self.used = {b.label: frozenset(
            self.components[name] for n in (*b.instructions, b.terminator) for name, _ in accesses_of(program, n)
            if isinstance(self.states[name], MapState | MeterState)) for b in program.blocks}

    def groups(self, weak: bool) -> tuple[OrderedEnds, ...]:
        ends = self.ends()
        meant = [s.name for s in self.states.values()
                 if isinstance(s, MapState | MeterState) and s.strict_order != weak]
        ordered = {self.components[name] for name in meant}
        pairs = [(a, b) for a, b in combinations_with_replacement(ends, 2)
                 if (a.used | b.used) & ordered and _of_one_flow(a.facts, b.facts)]
        leader = {label: label for labels in ends.values() for label in labels}
        for a, b in pairs:
            first, *rest = sorted(ends[a] | ends[b])
            for label in rest:
                leader[_root(leader, label)] = _root(leader, first)
        used: dict[str, set[str]] = defaultdict(set)
        passed: dict[str, set[str]] = defaultdict(set)
        for a, b in pairs:
            root = _root(leader, min(ends[a]))
            used[root] |= a.used | b.used
            passed[root] |= a.used ^ b.used
        return tuple(OrderedEnds(frozenset(x for x in leader if _root(leader, x) == root),
                                 tuple(n for n in meant if self.components[n] in used[root]), frozenset(passed[root]))
                     for root in sorted(used))

    def ends(self) -> dict[_End, frozenset[str]]:
        """Labels of blocks that forward, by how packets come to them."""
        found = self.walk(self.decided)
        if found is None or len(found) > _MOST_ENDS:
            found = self.walk({})
        assert found is not None, "where no decision is told apart there are few ways"
        return found

    def walk(self, decided: Mapping[str, _Decision | None]) -> dict[_End, frozenset[str]] | None:
        """The same with these decisions told apart; None: there are too many ways."""
        start: tuple[str, _End] = self.first, _End(frozenset(), frozenset())
        waiting, seen = [start], {start}
        found: dict[_End, set[str]] = defaultdict(set)
        while waiting:
            if decided and len(seen) > _MOST_WAYS:
                return None
            label, way = waiting.pop()
            way = _End(way.facts, way.used | self.used[label])
            if isinstance(self.blocks[label].terminator, Forward):
                found[way].add(label)
            for step in self.steps(label, way, decided.get(label)):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return {end: frozenset(labels) for end, labels in found.items()}

    def steps(self, label: str, way: _End, decision: _Decision | None) -> Iterator[tuple[str, _End]]:
        facts = dict(way.facts)
        taken = None if decision is None else facts.get(decision, _taken(decision, _known(facts)))
        for outcome, target in successors(self.blocks[label].terminator):
            if decision is None:
                yield target, way
            elif taken in (None, outcome):
                yield target, _End(way.facts | {(decision, outcome)}, way.used)

    def decision(self, terminator: Terminator) -> _Decision | None:
        """What is decided, equal where the same is decided again; None: not by what a flow's packets share."""
        cases = None
        match terminator:
            case HasHeader(header=header):
                shared: _Shared | None = ("has", header) if header in _HEADERS else None
            case Branch(condition=condition):
                shared = self.shared(condition)
            case Switch(value=value):
                shared, cases = self.shared(value), tuple(v for v, _ in terminator.cases)
            case Lookup(entry=entry):
                shared = self.shared(entry)
            case _:
                shared = None
        return None if shared is None else (shared, cases)

    def shared(self, value: Value) -> _Shared | None:
        """None: packets of a flow may differ in it."""
        node = self.defined.get(value)
        match node:
            case Const():
                return ("const", node.value)
            case LoadConfig():
                return ("config", node.config)
            case Meta():
                return ("port",) if node.what == "port" else None
            case Load():
                header, name = _field(node)
                known = name in _OF_FLOW.get(header, ()) and (header, name) not in self.stored
                return ("field", header, name) if known else None
            case Unary() | Binary() | Compare() | Cast() | Select() | LoadEntry():
                what = (node.mnemonic, getattr(node, "op", getattr(node, "field", "")), node.result.type)
                return self.of(what, operands_of(node))
            case Lookup():
                static = isinstance(self.states[node.state], AclState | LpmState)
                return self.of(("lookup", node.state), node.operands) if static else None
        return None

    def of(self, what: tuple[object, ...], operands: Sequence[Value]) -> _Shared | None:
        shared = tuple(self.shared(v) for v in operands)
        return None if None in shared else (*what, shared)


def _field(node: Load | Store) -> tuple[str, str]:
    """Header and field, where the ports of TCP and UDP are those of their common view."""
    return "l4" if node.header in _PORTS and node.field in _OF_FLOW["l4"] else node.header, node.field


def _of_one_flow(one: _Facts, other: _Facts) -> bool:
    """Whether nothing is decided in two ways, nor otherwise than a value says that a switch has told."""
    known, mine = _known(dict(one | other)), dict(one)
    return all(mine.get(decision, outcome) == outcome for decision, outcome in other) and all(
        _taken(decision, known) in (None, outcome) for decision, outcome in one | other)


def _known(facts: Mapping[_Decision, str]) -> dict[_Shared, int]:
    """Values that cases of switches tell."""
    return {value: int(outcome) for (value, cases), outcome in facts.items()
            if cases is not None and outcome != "default"}


def _taken(decision: _Decision, known: Mapping[_Shared, int]) -> str | None:
    """The outcome that known values decide."""
    shared, cases = decision
    value = _value(shared, known)
    if value is None:
        return None
    if cases is None:
        return "true" if value else "false"
    return str(value) if value in cases else "default"


def _value(shared: _Shared, known: Mapping[_Shared, int]) -> int | None:
    """What a constant, a known value, a comparison of them, or a conjunction of such is."""
    match shared:
        case _ if shared in known:
            return known[shared]
        case ("const", value):
            return int(value)
        case ("compare", op, _, (left, right)):
            a, b = _value(left, known), _value(right, known)
            return None if a is None or b is None else int(_COMPARE[op](a, b))
        case ("binary", "and" | "or" as op, Bool(), (left, right)):
            values = {_value(left, known), _value(right, known)}
            decisive = int(op == "or")
            return decisive if decisive in values else None if None in values else 1 - decisive
    return None


def _root(leader: Mapping[str, str], label: str) -> str:
    while leader[label] != label:
        label = leader[label]
    return label
