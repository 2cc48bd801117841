"""Rules of decided flows: a path with the fields of its one entry fixed, for engines that match and act.

`decide` evaluates an aligned path symbolically. What the path asks of the packet becomes matches, what it asks of the
entry becomes guards (the rule is there only while they hold), what it stores into the packet becomes rewrites. A store
into the entry must leave it as it is: where that depends on single bits of the packet (TCP flags), the rule is narrowed
to those values of the bits for which it does. `evaluate` (`cora.analysis.rules`) runs a rule on a packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, repeat

from cora.analysis.accesses import components_of
from cora.analysis.rules import (
    TIMEOUT_CLASS,
    Counting,
    Entry,
    Guard,
    Interval,
    Match,
    Metering,
    Rewrite,
    RuleTemplate,
    Served,
    evaluate,
    holds,
)
from cora.analysis.sharding import Reason, align, key_fields, part_of, sharding_of
from cora.analysis.symbolic import Environment, Evaluator, Expr, Expressions, along, nodes_in, number_of, shown
from cora.ir import nodes
from cora.ir.nodes import Block, Instruction, Program
from cora.ir.span import Span
from cora.ir.types import EntryRef, bits_of

__all__ = ["TIMEOUT_CLASS", "Counting", "Entry", "Guard", "Match", "Metering", "Rewrite", "RuleTemplate", "Served",
           "decide", "evaluate", "holds"]

# A rule may be narrowed by this many single bits of the packet at most.
_MOST_BITS = 6
# Guards on one entry field of so many bits at most are tried out, to find those that never hold.
_TRIED_BITS = 8

# Longer conditions are not repeated in reasons.
_SHOWN = 80

def decide(program: Program, component: str, blocks: Sequence[str], outcomes: Sequence[str]) -> RuleTemplate | Reason:
    """The rule that serves the packets of a path whose entry in a component is known, or why there is none.

    Raises:
        KeyError: the program has no such component or block.
    """
    known = _known_of(program)
    path = component, tuple(blocks), tuple(outcomes)
    if path not in known.answers:
        known.answers[path] = _decided(known, *path)
    return known.answers[path]


@dataclass
class _Known:
    """What the paths of a program have in common, and what was found of those asked about.

    Attributes:
        tables: numbers of expressions over one small entry field, for all its values.
        narrowed: of conditions (with what they have to be) and values (None) whether some values of single bits decide
            them.
        chosen: of conditions and values together the bits that are narrowed for them, None for none.
    """

    program: Program
    make: Expressions = field(default_factory=Expressions)
    tables: dict[Expr, list[int]] = field(default_factory=dict)
    narrowed: dict[tuple[Expr, bool | None], bool] = field(default_factory=dict)
    chosen: dict[tuple[tuple[tuple[Expr, bool], ...], tuple[Expr, ...]], dict[Expr, Expr] | None] = field(
        default_factory=dict)
    answers: dict[tuple[str, tuple[str, ...], tuple[str, ...]], RuleTemplate | Reason] = field(default_factory=dict)


# The programs asked about last: planners ask about the same paths again and again.
_latest: list[_Known] = []
_KEPT = 4


def _known_of(program: Program) -> _Known:
    for known in _latest:
        if known.program is program:
            return known
    _latest.insert(0, _Known(program))
    del _latest[_KEPT:]
    return _latest[0]


def _decided(known: _Known, component: str, blocks: tuple[str, ...], outcomes: tuple[str, ...]
             ) -> RuleTemplate | Reason:
    program = known.program
    alignment = align(program, component, blocks, outcomes)
    if alignment.anchor is None or alignment.owner_from is not None:
        at = blocks[alignment.owner_from[0]] if alignment.owner_from else blocks[-1]
        reason = alignment.reason or f"it meets no entry of '{component}'"
        return Reason(reason, program.block(at).terminator.span)
    try:
        return _Decision(known, component, blocks, outcomes, alignment.anchor).template()
    except _Undecided as undecided:
        return undecided.reason


class _Undecided(Exception):
    def __init__(self, text: str, span: Span) -> None:
        super().__init__(text)
        self.reason = Reason(text, span)


@dataclass(frozen=True)
class _Condition:
    """The path needs ``expr`` to be ``truth``."""

    expr: Expr
    truth: bool
    span: Span


@dataclass
class _Resolved:
    """What conditions and stores came to under one choice of narrowing bits."""

    matches: list[Match] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    # Conditions and values that still depend on the packet in a way no rule can ask for.
    open: list[_Condition] = field(default_factory=list)
    impossible: _Condition | None = None
    # Conditions dealt with, as parts of several come again.
    seen: set[tuple[Expr, bool]] = field(default_factory=set)


class _Path(Evaluator):
    """Evaluates one path with the component's entry as it is when the packet comes; collects what the path does."""

    def __init__(self, program: Program, component: str, anchor: int, expressions: Expressions) -> None:
        super().__init__(program, expressions)
        self.component = component
        self.anchor = anchor
        self.component_of = components_of(program)
        self.extracts: list[tuple[nodes.Extract, str]] = []
        self.whole: list[str] = []
        self.conditions: list[_Condition] = []
        self.entry_now: dict[str, Expr] = {}
        self.entry_span: dict[str, Span] = {}
        self.touch: nodes.Touch | None = None
        self.counted: list[nodes.Count] = []
        self.stores: dict[tuple[str, str], Span] = {}
        self.key: tuple[Expr, ...] = ()
        self.headers: set[str] = set()

    def run(self, instructions: Iterable[Instruction], env: Environment) -> None:
        """As the base class, and notes what changes the entry, counters and headers."""
        for node in instructions:
            if isinstance(node, nodes.StoreEntry):
                self.entry_now[node.field] = self.values[node.value.name]
                self.entry_span[node.field] = node.span
            elif isinstance(node, nodes.Touch):
                self.touch = node
            elif isinstance(node, nodes.Count):
                self.counted.append(node)
            else:
                if isinstance(node, nodes.Store):
                    self.stores[node.header, node.field] = node.span
                super().run((node,), env)

    def load_entry(self, node: nodes.LoadEntry, bits: int) -> Expr:
        assert isinstance(node.entry.type, EntryRef), "the verifier lets entry instructions take references only"
        state = node.entry.type.state
        if self.component_of[state] != self.component:
            return super().load_entry(node, bits)
        now = self.entry_now.get(node.field)
        return now if now is not None else self.make.leaf("entry", ("", state, node.field), bits)

    def edge(self, position: int, block: Block, outcome: str) -> None:
        """Note what a terminator's outcome asks for."""
        node = block.terminator
        match node:
            case nodes.Extract():
                self._extract(node, outcome)
            case nodes.HasHeader():
                if (node.header in self.headers) != (outcome == "present"):
                    raise _Undecided("no packet takes this way", node.span)
            case nodes.IsFragment():
                if outcome == "fragment":
                    raise _Undecided("a fragment is not served by rules: later ones carry no ports", node.span)
                self.whole.append(node.header)
            case nodes.Branch():
                self.conditions.append(_Condition(self.values[node.condition.name], outcome == "true", node.span))
            case nodes.Switch():
                self._case(node, outcome)
            case nodes.Lookup() | nodes.Police() | nodes.Insert() | nodes.TrackFragment():
                self._table(position, node, outcome)

    def _extract(self, node: nodes.Extract, outcome: str) -> None:
        self.extracts.append((node, outcome))
        if outcome == "ok":
            self.headers.add(node.header)
            if node.header in ("tcp", "udp"):
                self.headers.add("l4")

    def _case(self, node: nodes.Switch, outcome: str) -> None:
        value = self.values[node.value.name]
        for number, _ in node.cases:
            equal = self.make.compare("eq", value, self.make.const(number, value.bits))
            if outcome == "default" or outcome == str(number):
                self.conditions.append(_Condition(equal, outcome != "default", node.span))

    def _table(self, position: int, node: nodes.Lookup | nodes.Police | nodes.Insert | nodes.TrackFragment,
               outcome: str) -> None:
        if self.component_of[node.state] == self.component:
            if position == self.anchor and isinstance(node, nodes.Lookup | nodes.Police):
                self.key = self.key_of(node)
            return
        if not isinstance(node, nodes.Lookup) or node.state not in self._static:
            raise _Undecided(f"the path also depends on '{node.state}', which packets change: a rule holds what one "
                             f"entry of '{self.component}' says and nothing else", node.span)
        hits = self.make.table("hits", self.key_of(node), (node.state,), 1)
        self.conditions.append(_Condition(hits, outcome == "hit", node.span))


class _Decision:
    """The making of one template."""

    def __init__(self, known: _Known, component: str, blocks: tuple[str, ...], outcomes: tuple[str, ...],
                 at: int) -> None:
        self.program = program = known.program
        self.component = component
        self.blocks, self.outcomes = blocks, outcomes
        self.make = known.make
        self.path = _Path(program, component, at, self.make)
        self.anchor = next(a for a in sharding_of(program)[component].anchors if a.block == blocks[at])
        node = program.block(blocks[at]).terminator
        assert isinstance(node, nodes.Lookup | nodes.Police), "anchors are look-ups and charges"
        self.looked_up = node
        self.by_label = {b.label: b for b in program.blocks}
        self.env = self.path.start()
        # Packet fields that the key makes equal to entry fields, and entry fields that it makes constants.
        self.known: dict[Expr, Expr] = {}
        # Packet fields that the path asks to be one number.
        self.learnt: dict[Expr, Expr] = {}
        self.needs: tuple[_Condition, ...] = ()
        # Values that go into headers and counters.
        self.values: tuple[Expr, ...] = ()
        self.tables, self.narrowed, self.chosen = known.tables, known.narrowed, known.chosen

    def template(self) -> RuleTemplate:
        """The rule.

        Raises:
            _Undecided: there is none.
        """
        along(self.path, self.by_label, self.blocks, self.outcomes, self._visit)
        end = self.by_label[self.blocks[-1]].terminator
        if not isinstance(end, nodes.Forward | nodes.Drop):
            raise _Undecided("it sends an ICMP error: rules make no packets" if isinstance(end, nodes.Reject)
                             else "it holds the packet", end.span)
        keyed, guards = self._key()
        self._learn()
        self.needs = tuple(self._wanted())
        self.values = tuple(self._written())
        meter = self._meter()
        bits = self._narrowing()
        found = self._resolve(bits)
        narrowed = [Match(str(f.detail[0]), str(f.detail[1]), 1, ((v.constant or 0, v.constant or 0),), "", True,
                          self.looked_up.span) for f, v in bits.items()]
        rewrites = tuple(self._rewrites(bits))
        counts = tuple(self._counts(bits))
        matches = _merged((*keyed, *found.matches, *narrowed))
        for match in matches:
            if not match.entry and not match.ranges:
                raise _Undecided(f"no packet takes this way: it asks '{match.header}.{match.field}' for two values",
                                 match.span)
        guards = tuple(dict.fromkeys((*guards, *found.guards)))
        return RuleTemplate(
            self.component, self.blocks, self.outcomes, self.anchor, tuple(self.path.extracts),
            tuple(dict.fromkeys(self.path.whole)), matches, guards, rewrites, counts, self._touches(), meter,
            end.port if isinstance(end, nodes.Forward) else "", end.reason if isinstance(end, nodes.Drop) else "",
            self._invalidated_by(matches, guards, rewrites, counts))

    def _visit(self, position: int, block: Block, env: Environment) -> None:
        if position == len(self.outcomes):
            self.env = env
        else:
            self.path.edge(position, block, self.outcomes[position])

    def _entry(self, name: str, bits: int) -> Expr:
        return self.make.leaf("entry", ("", self.anchor.state, name), bits)

    def _key(self) -> tuple[list[Match], tuple[Guard, ...]]:
        """Matches of the key's fields against the entry's; guards where the key has constants."""
        state = self.program.state(self.anchor.state)
        assert isinstance(state, nodes.MapState | nodes.MeterState), "anchors are in maps and meters"
        widths = {f.name: bits_of(f.type) for f in state.fields}
        matches: list[Match] = []
        guards: list[Guard] = []
        span = self.looked_up.span
        for name, expr in zip(key_fields(self.program, self.looked_up), self.path.key, strict=True):
            part = part_of(expr)
            entry = self._entry(name, widths[name])
            if part.value is not None:
                equal = self.make.compare("eq", entry, self.make.const(part.value, widths[name]))
                guards.append(Guard(equal, True, span))
                self.known[entry] = self.make.const(part.value, widths[name])
            elif not part.header or (part.header == "meta" and part.field != "port"):
                raise _Undecided(f"the key has a computed value for '{name}' ({part.text or part.field}): rules match "
                                 "fields", span)
            else:
                while expr.op == "cast":
                    expr = expr.operands[0]
                matches.append(Match(part.header, part.field, (1 << expr.bits) - 1, (), name, False, span))
                self.known.setdefault(expr, self.make.cast(entry, expr.bits))
        return matches, tuple(guards)

    def _learn(self) -> None:
        """Take over what the path asks single fields to be: the rest of the path may be decided by it."""
        for need in self.path.conditions:
            expr = need.expr
            if (expr.op, need.truth) in (("eq", True), ("ne", False)) and _is_field(expr.operands[0]) \
                    and expr.operands[1].constant is not None:
                self.learnt.setdefault(expr.operands[0], expr.operands[1])

    def _meter(self) -> Metering | None:
        node = self.looked_up
        if not isinstance(node, nodes.Police):
            return None
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MeterState), "meters are policed"
        if state.exact:
            raise _Undecided(f"'{node.state}' is exact: meters of match-action engines are not; write 'approx' where "
                             "that will do", state.span)
        size = self.path.values[node.size.name]
        if not _is_size(size):
            raise _Undecided(f"'{node.state}' is charged by an amount of the program's: meters of match-action engines "
                             "charge the frame's length", node.span)
        return Metering(node.state, self.outcomes[self.blocks.index(self.anchor.block)], node.span)

    # Conditions and stores into the entry.

    def _wanted(self) -> Iterator[_Condition]:
        """What has to hold: the path's conditions, and that what is stored into the entry is there already."""
        for need in self.path.conditions:
            asked = need.expr.op in ("eq", "ne") and need.expr.operands[0] in self.learnt
            # What was learnt from a condition does not make the condition itself go away.
            if asked and self.learnt[need.expr.operands[0]] is need.expr.operands[1]:
                yield _Condition(self.make.substitute(need.expr, self.known), need.truth, need.span)
            else:
                yield _Condition(self._simple(need.expr), need.truth, need.span)
        for name, value in self.path.entry_now.items():
            same = self.make.compare("eq", self._simple(value), self._simple(self._entry(name, value.bits)))
            yield _Condition(same, True, self.path.entry_span[name])

    def _narrowing(self) -> dict[Expr, Expr]:
        """The fewest single bits of the packet, and their values, under which everything comes out.

        Raises:
            _Undecided: there are none.
        """
        plain = self._resolve({})
        if plain.impossible is not None:
            raise self._never(plain.impossible)
        dependent = [c.expr for c in plain.open] + self._dependent_values({})
        if not dependent:
            return {}
        leaves = {leaf for e in dependent for leaf in e.leaves}
        bits = sorted((leaf for leaf in leaves if leaf.op == "field" and leaf.bits == 1), key=shown)
        key = tuple((n.expr, n.truth) for n in self.needs), self.values
        if key not in self.chosen:
            self.chosen[key] = self._choice(bits) if len(bits) <= _MOST_BITS and all(
                self._can_be(c.expr, c.truth, c) for c in plain.open) and all(
                self._can_be(v, None, None) for v in self._dependent_values({})) else None
        chosen = self.chosen[key]
        if chosen is None:
            raise self._open(plain)
        return chosen

    def _choice(self, bits: Sequence[Expr]) -> dict[Expr, Expr] | None:
        for size in range(1, len(bits) + 1):
            for chosen in combinations(bits, size):
                for ones in range(1 << size):
                    known = {b: self.make.const(ones >> i & 1, 1) for i, b in enumerate(chosen)}
                    if self._works(known):
                        return known
        return None

    def _can_be(self, expr: Expr, truth: bool | None, need: _Condition | None) -> bool:
        """Whether a condition or value that depends on the packet is decided by some values of its single bits: if not
        by all of its own together, then by none of them and not together with others either.
        """
        known = self.narrowed
        if (expr, truth) not in known:
            bits = sorted((leaf for leaf in expr.leaves if leaf.op == "field" and leaf.bits == 1), key=shown)
            known[expr, truth] = any(self._is_decided(self.make.substitute(expr, {
                b: self.make.const(ones >> i & 1, 1) for i, b in enumerate(bits)}), need)
                for ones in range(1 << len(bits)))
        return known[expr, truth]

    def _is_decided(self, expr: Expr, need: _Condition | None) -> bool:
        if need is None:
            return _fixed(expr) or _moved(expr) is not None
        found = _Resolved()
        self._settle(replace(need, expr=expr), found)
        return found.impossible is None and not found.open

    def _works(self, bits: Mapping[Expr, Expr]) -> bool:
        found = _Resolved()
        # Those that the bits change come first: most choices fail there.
        for need in sorted(self.needs, key=lambda n: bits.keys().isdisjoint(n.expr.leaves)):
            self._settle(self._under(need, bits), found)
            if found.impossible is not None or found.open:
                return False
        return not self._dependent_values(bits) and _satisfiable(found.guards, self.tables)

    def _under(self, need: _Condition, bits: Mapping[Expr, Expr]) -> _Condition:
        """A condition with single bits known."""
        touched = not bits.keys().isdisjoint(need.expr.leaves)
        return replace(need, expr=self.make.substitute(need.expr, bits)) if touched else need

    def _never(self, condition: _Condition) -> _Undecided:
        return _Undecided("no packet takes this way: with this entry and configuration its condition is never met",
                          condition.span)

    def _open(self, found: _Resolved) -> _Undecided:
        changed = set(self.path.entry_span.values())
        for condition in found.open:
            if condition.span in changed:
                name = next(n for n, s in self.path.entry_span.items() if s is condition.span)
                return _Undecided(f"it changes '{name}' of its entry in '{self.component}': rules change nothing but "
                                  "packets and counters", condition.span)
            asked = shown(condition.expr)
            what = f" ({asked})" if len(asked) <= _SHOWN else ""
            return _Undecided(f"no rule can ask for this condition{what}: rules compare fields with fixed values",
                              condition.span)
        return _Undecided("a value it writes depends on more of the packet than rules can take from it",
                          self.by_label[self.blocks[-1]].terminator.span)

    def _simple(self, expr: Expr, bits: Mapping[Expr, Expr] | None = None) -> Expr:
        return self.make.substitute(expr, {**self.learnt, **self.known, **(bits or {})})

    def _resolve(self, bits: Mapping[Expr, Expr]) -> _Resolved:
        found = _Resolved()
        for need in self.needs:
            self._settle(self._under(need, bits), found)
        if found.impossible is None and not _satisfiable(found.guards, self.tables):
            found.impossible = _Condition(found.guards[-1].condition, True, found.guards[-1].span)
        return found

    def _settle(self, need: _Condition, found: _Resolved) -> None:
        expr, truth = need.expr, need.truth
        if (expr, truth) in found.seen:
            return
        found.seen.add((expr, truth))
        if expr.constant is not None:
            if bool(expr.constant) != truth:
                found.impossible = found.impossible or need
        elif expr.op == "invert" and expr.bits == 1:
            self._settle(_Condition(expr.operands[0], not truth, need.span), found)
        elif (expr.op, truth) in (("and", True), ("or", False)):
            for operand in expr.operands:
                self._settle(_Condition(operand, truth, need.span), found)
        elif all(leaf.op == "entry" for leaf in expr.leaves):
            found.guards.append(Guard(expr, truth, need.span))
        else:
            match = _match(need)
            found.matches.append(match) if match is not None else found.open.append(need)

    def _written(self) -> Iterator[Expr]:
        """Values that go into headers, and into counters unless they are the frame's length."""
        yield from (self._simple(value) for value in self.env.stored.values())
        for node in self.path.counted:
            used = (self._simple(self.path.values[v.name]) for v in (node.index, node.amount) if v is not None)
            yield from (v for v in used if not _is_size(v))

    def _dependent_values(self, bits: Mapping[Expr, Expr]) -> list[Expr]:
        """Those of the values written that no rule can make."""
        values = (self.make.substitute(v, bits) for v in self.values)
        return [v for v in values if not _fixed(v) and _moved(v) is None]

    # Actions.

    def _rewrites(self, bits: Mapping[Expr, Expr]) -> Iterator[Rewrite]:
        for spot, stored in self.env.stored.items():
            header, name = self.env.names[spot]
            value = self._simple(stored, bits)
            span = self.path.stores[header, name]
            if _fixed(value):
                yield Rewrite(header, name, value, None, 0, span)
                continue
            moved = _moved(value)
            if moved is None:
                raise _Undecided(f"'{header}.{name}' gets a computed value ({shown(value)})", span)
            yield Rewrite(header, name, None, moved[0], moved[1], span)

    def _counts(self, bits: Mapping[Expr, Expr]) -> Iterator[Counting]:
        for node in self.path.counted:
            index, amount = (None if v is None else self._simple(self.path.values[v.name], bits)
                             for v in (node.index, node.amount))
            if index is not None and not _fixed(index):
                raise _Undecided(f"the index into '{node.counter}' depends on the packet", node.span)
            whole = amount is not None and _is_size(amount)
            if amount is not None and not whole and not _fixed(amount):
                raise _Undecided(f"'{node.counter}' is counted by an amount of the packet's", node.span)
            yield Counting(node.counter, index, None if whole else amount, node.span)

    def _touches(self) -> tuple[tuple[str, str], ...]:
        touch = self.path.touch
        if touch is None:
            return ()
        state = self.program.state(self.anchor.state)
        if isinstance(state, nodes.MapState) and state.timeouts and state.slack == 0:
            raise _Undecided(f"entries of '{state.name}' go exactly when their time is over, and engines that match "
                             "and act tell the last use late: give it slack", state.span)
        return ((self.anchor.state, touch.timeout),)

    def _invalidated_by(self, matches: Iterable[Match], guards: Iterable[Guard], rewrites: Iterable[Rewrite],
                        counts: Iterable[Counting]) -> frozenset[str]:
        used = {m.entry for m in matches if m.entry}
        exprs = [g.condition for g in guards] + [r.value for r in rewrites if r.value is not None]
        exprs += [e for c in counts for e in (c.index, c.octets) if e is not None]
        used.update(str(leaf.detail[2]) for e in exprs for leaf in e.leaves if leaf.op == "entry")
        state = self.program.state(self.anchor.state)
        fixed: set[str] = set()
        if isinstance(state, nodes.MapState):
            fixed.update(f for k in state.keys for f in k.fields)
            fixed.update(f for a in state.allocs for f in a.fields)
        elif isinstance(state, nodes.MeterState):
            fixed.update(f.name for f in state.fields)
        return frozenset(used - fixed) | ({TIMEOUT_CLASS} if self._touches() else frozenset())


def _is_size(expr: Expr) -> bool:
    """Whether a value is the frame's length."""
    return expr.op == "meta" and expr.detail == ("size",)


def _has(expr: Expr, op: str) -> bool:
    return any(part.op == op for part in nodes_in(expr))


def _fixed(expr: Expr) -> bool:
    """Whether a value is known once the entry is."""
    return all(leaf.op == "entry" for leaf in expr.leaves) and not _has(expr, "overlay")


def _moved(expr: Expr) -> tuple[tuple[str, str], int] | None:
    """(header, field) and what is added to it, when a value is a field as it arrived plus a constant."""
    amount = 0
    if expr.op in ("add", "sub") and expr.operands[1].constant is not None:
        amount = expr.operands[1].constant if expr.op == "add" else -expr.operands[1].constant
        expr = expr.operands[0]
    if expr.op != "field":
        return None
    return (str(expr.detail[0]), str(expr.detail[1])), amount


def _match(need: _Condition) -> Match | None:
    """The match that asks for a condition on one field, or None when there is none."""
    expr, truth = need.expr, need.truth
    if expr.op in ("and", "or") and expr.bits == 1 and len(expr.leaves) == 1:
        return _match_either(need)
    if expr.op == "field" and expr.bits == 1:
        number = int(truth)
        return Match(str(expr.detail[0]), str(expr.detail[1]), 1, ((number, number),), "", False, need.span)
    if expr.op not in ("eq", "ne", "lt", "le", "gt", "ge"):
        return None
    left, right = expr.operands
    equal = (expr.op == "eq") == truth and expr.op in ("eq", "ne")
    if equal and left.op == "entry" and _is_field(right):
        left, right = right, left
    if equal and right.op == "entry" and _is_field(left):
        return Match(str(left.detail[0]), str(left.detail[1]), (1 << left.bits) - 1, (), str(right.detail[2]), False,
                     need.span)
    if right.constant is None:
        return None
    mask = (1 << left.bits) - 1
    if left.op == "and" and left.operands[1].constant is not None and expr.op in ("eq", "ne"):
        mask, left = left.operands[1].constant, left.operands[0]
    if not _is_field(left):
        return None
    header, name = ("meta", "port") if left.op == "meta" else left.detail
    ranges = _ranges(expr.op, truth, right.constant, mask)
    return Match(str(header), str(name), mask, ranges, "", False, need.span)


def _match_either(need: _Condition) -> Match | None:
    """The match for a condition made of several on one whole field, such as one of two values."""
    (leaf,) = need.expr.leaves
    if not _is_field(leaf):
        return None
    most = (1 << leaf.bits) - 1
    ranges = _set_of(need.expr, leaf, most, {})
    if ranges is None:
        return None
    header, name = ("meta", "port") if leaf.op == "meta" else leaf.detail
    if not need.truth:
        ranges = _complement(ranges, most)
    return Match(str(header), str(name), most, ranges, "", False, need.span)


_Ranges = tuple[Interval, ...] | None


def _set_of(expr: Expr, leaf: Expr, most: int, known: dict[Expr, _Ranges]) -> _Ranges:
    """The values of a field that meet a condition, None where they are no ranges of the whole field.

    ``known``: what was found of parts that come several times.
    """
    if expr not in known:
        known[expr] = _worked_out(expr, leaf, most, known)
    return known[expr]


def _worked_out(expr: Expr, leaf: Expr, most: int, known: dict[Expr, _Ranges]) -> _Ranges:
    if expr.op in ("and", "or"):
        one, other = (_set_of(o, leaf, most, known) for o in expr.operands)
        if one is None or other is None:
            return None
        if expr.op == "and":
            return _cut(one, other)
        return _complement(_cut(_complement(one, most), _complement(other, most)), most)
    if expr.op == "invert" and expr.bits == 1:
        inner = _set_of(expr.operands[0], leaf, most, known)
        return None if inner is None else _complement(inner, most)
    if expr.op in ("eq", "ne", "lt", "le", "gt", "ge") and expr.operands[0] is leaf:
        number = expr.operands[1].constant
        return None if number is None else _ranges(expr.op, True, number, most)
    return None


def _complement(ranges: Iterable[Interval], most: int) -> tuple[Interval, ...]:
    """The values 0 to ``most`` that lie in none of the ranges."""
    left: tuple[Interval, ...] = ((0, most),)
    for low, high in ranges:
        left = _cut(left, tuple((a, b) for a, b in ((0, low - 1), (high + 1, most)) if a <= b))
    return left


def _is_field(expr: Expr) -> bool:
    return expr.op == "field" or (expr.op == "meta" and expr.detail == ("port",))


def _ranges(op: str, truth: bool, number: int, most: int) -> tuple[Interval, ...]:
    """Where ``value op number`` is ``truth``, for values 0 to ``most``."""
    if not truth:
        op = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}[op]
    low, high = {"eq": (number, number), "ne": (0, most), "lt": (0, number - 1), "le": (0, number),
                 "gt": (number + 1, most), "ge": (number, most)}[op]
    if op == "ne":
        return tuple((a, b) for a, b in ((0, number - 1), (number + 1, most)) if a <= b)
    return ((low, min(high, most)),) if low <= high else ()


def _merged(matches: Iterable[Match]) -> tuple[Match, ...]:
    """One match per field and mask: ranges asked for twice are cut with each other."""
    found: dict[tuple[str, str, int, str], Match] = {}
    for match in matches:
        key = (match.header, match.field, match.mask, match.entry)
        before = found.get(key)
        if before is None:
            found[key] = match
        elif not match.entry:
            found[key] = Match(match.header, match.field, match.mask, _cut(before.ranges, match.ranges), "",
                               before.narrowing and match.narrowing, before.span)
    return tuple(found.values())


def _cut(one: Iterable[Interval], other: Sequence[Interval]) -> tuple[Interval, ...]:
    return tuple((max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d))


def _satisfiable(guards: Sequence[Guard], tables: dict[Expr, list[int]]) -> bool:
    """Whether some entry meets all guards, as far as trying out every value of single small fields tells."""
    by_field: dict[Expr, list[Guard]] = {}
    for guard in guards:
        if len(guard.condition.leaves) == 1:
            (leaf,) = guard.condition.leaves
            if leaf.bits <= _TRIED_BITS and not _has(guard.condition, "table"):
                by_field.setdefault(leaf, []).append(guard)
    for leaf, some in by_field.items():
        wanted = [(_table(g.condition, leaf, tables), g.holds) for g in some]
        if not any(all(bool(t[i]) == holds for t, holds in wanted) for i in range(1 << leaf.bits)):
            return False
    return True


def _table(expr: Expr, leaf: Expr, tables: dict[Expr, list[int]]) -> list[int]:
    """An expression's number for every value of its only leaf; parts that were worked out before are kept."""
    size = 1 << leaf.bits
    tables.setdefault(leaf, list(range(size)))
    pending = [expr]
    while pending:
        node = pending[-1]
        missing = [o for o in node.operands if o not in tables]
        if node in tables or missing:
            pending.pop() if node in tables else pending.extend(missing)
            continue
        pending.pop()
        rows = zip(*(tables[o] for o in node.operands), strict=True) if node.operands else repeat((), size)
        tables[node] = [number_of(node, row) for row in rows]
    return tables[expr]
