"""Statements, functions and handlers to IR: typing, flow typing of headers, and inlining in one walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cora.errors import Kind
from cora.frontends.nf import ast
from cora.frontends.nf.builder import Builder, Place
from cora.frontends.nf.declare import Errors, Symbols, Table
from cora.frontends.nf.expressions import Expressions
from cora.frontends.nf.types import (
    BOOLEAN,
    DURATION,
    INTEGER,
    IPV4,
    IPV6,
    POISON,
    Entry,
    Number,
    Packet,
    Poison,
    Record,
    Scalar,
    Typed,
    flatten,
    scalar_named,
    type_name,
    uint,
)
from cora.frontends.nf.words import refused_name
from cora.ir import nodes
from cora.ir.headers import ICMP6_ERRORS, ICMP_ERRORS, field_of
from cora.ir.nodes import Terminator, Value
from cora.ir.span import Span
from cora.ir.types import EntryRef

MAX_UNROLL = 64
MAX_BLOCKS = 20_000
MAX_STATEMENTS = 100_000
MAX_CALLS = 32


@dataclass(frozen=True)
class Local:
    """A name in scope: a fixed value, or a mutable variable found in the builder's place by number."""

    typed: Typed
    variable: int | None = None
    type: Scalar | None = None


@dataclass
class Returning:
    """The function being inlined: where its returns lead."""

    name: str
    wants_value: bool
    result: Any
    places: list[Place] = field(default_factory=list)
    variable: int = 0
    returned: bool = False


class TooLarge(Exception):
    """The program grew past `MAX_BLOCKS` or `MAX_STATEMENTS`; reported where it happened."""


class Lowering:
    """Walks handler bodies and emits blocks through a `Builder`."""

    def __init__(self, symbols: Symbols, errors: Errors, failed: set[str]) -> None:
        self.symbols = symbols
        self.errors = errors
        self.failed = failed
        self.builder = Builder()
        self.scope: dict[str, Local] = {}
        self.expressions = Expressions(self)
        self.calls: list[Returning] = []
        self._statements = 0
        self._errors_before = 0
        self._variables = 0

    # Handlers.

    def handler(self, item: ast.HandlerDecl) -> None:
        """Lower one handler's body at the builder's place."""
        self._errors_before = len(self.errors.found)
        self.scope = {}
        self.define(item.packet, Local(Packet()), item.path_span)
        self.body(item.body)
        if self.builder.here is not None and self.sound():
            end = Span(item.span.file, item.span.end_line, max(1, item.span.end_column - 1), item.span.end_line,
                       item.span.end_column)
            self.errors.add(Kind.MISSING_RETURN, "a packet can reach the end of this handler without a verdict", end,
                            "end every way with forward, drop or reject")
        self.builder.here = None

    def sound(self) -> bool:
        """Whether neither this handler nor a declaration is wrong so far; else which ways go on is not known."""
        return len(self.errors.found) == self._errors_before and not self.failed

    def body(self, body: ast.Body) -> None:
        """Statements in a scope of their own."""
        outer = dict(self.scope)
        for statement in body.statements:
            if self.builder.here is None:
                if self.sound():
                    self.errors.add(Kind.UNREACHABLE, "no packet gets here", statement.span,
                                    "the statement before ends every way: remove this or move it up")
                break
            self.statement(statement)
        self.scope = outer

    def statement(self, statement: ast.Statement) -> None:
        self._statements += 1
        blocks, statements = len(self.builder.blocks) > MAX_BLOCKS, self._statements > MAX_STATEMENTS
        if blocks or statements:
            size = f"{MAX_BLOCKS} blocks" if blocks else f"{MAX_STATEMENTS} statements"
            self.errors.add(Kind.TOO_MANY_PATHS, f"the program grows past {size} here", _head(statement.span),
                            "functions are copied into every call and loops are unrolled: call them less often")
            raise TooLarge
        _STATEMENTS[type(statement)](self, statement)

    def define(self, name: str, local: Local, span: Span) -> None:
        before = self.symbols.spans.get(name)
        refused = refused_name(name)
        if refused is not None:
            self.errors.add(Kind.DUPLICATE_NAME, refused, span, "choose another name")
        elif name in self.scope or before is not None:
            notes = [("declared here", before)] if before else []
            self.errors.add(Kind.DUPLICATE_NAME, f"'{name}' is already declared", span, "choose another name", notes)
        self.scope[name] = local

    def read_local(self, local: Local, span: Span) -> Typed:
        if local.variable is None:
            return local.typed
        here = self.builder.here
        assert here is not None, "expressions are lowered where a way leads"
        return here.variables[local.variable]

    # Variables.

    def let(self, item: ast.Let) -> None:
        found = self.let_value(item)
        if isinstance(found, Entry | Packet):
            what = "the packet" if isinstance(found, Packet) else f"an {type_name(found)}"
            self.errors.add(Kind.REFERENCE_ESCAPES, f"{what} cannot be kept in a variable", item.span,
                            "use it by its name, or pass it to a function")
            found = POISON
        if item.type is not None and not isinstance(found, Poison):
            wanted = self.type(item.type)
            found = POISON if wanted is None else self.expressions.to_language(found, wanted, item.value.span)
        if not item.mutable:
            self.define(item.name, Local(found), item.span)
            return
        if isinstance(found, Record):
            self.errors.add(Kind.TYPE_MISMATCH, "a variable that changes holds a scalar", item.span,
                            "use 'let', or one 'var' for each field")
            found = POISON
        if isinstance(found, Number) and found.type == INTEGER:
            self.errors.add(Kind.TYPE_MISMATCH, "the type of this number is not known", item.value.span,
                            f"say it: var {item.name}: u32 = ...")
            found = POISON
        if not isinstance(found, Number):
            self.define(item.name, Local(POISON), item.span)
            return
        self._variables += 1
        assert self.builder.here is not None, "statements are lowered where a way leads"
        self.builder.here.variables[self._variables] = found
        self.define(item.name, Local(found, self._variables, found.type), item.span)

    def let_value(self, item: ast.Let) -> Typed:
        declared = scalar_named(item.type.text) if item.type is not None else None
        if declared is not None and isinstance(item.value, ast.Choose):
            return self.expressions.of_type(item.value, declared) or POISON
        return self.expressions.typed(item.value)

    def type(self, name: ast.Name) -> Any:
        found = scalar_named(name.text) or self.symbols.structs.get(name.text)
        if found is None and name.text not in self.failed:
            self.errors.unknown("type", name.text, name.span, ["bool", "u8", "u16", "u32", "u64", "ipv4", "ipv6", "mac",
                                                              *self.symbols.structs])
        return found

    def assign(self, item: ast.Assign) -> None:
        name, *rest = item.place
        local = self.scope.get(name)
        if local is None:
            if name in self.symbols.configs or name in self.symbols.consts:
                self.errors.add(Kind.READ_ONLY, f"'{name}' is constant and cannot be set", item.span,
                                "keep what changes in a 'var' (for this packet) or in a map entry")
            elif name not in self.failed:
                names = [n for n, v in self.scope.items()
                         if v.variable is not None or isinstance(v.typed, Packet | Entry)]
                self.errors.unknown("variable", name, item.span, names)
            return
        if isinstance(local.typed, Packet) and rest in ([], ["size"]):
            self.errors.add(Kind.READ_ONLY, f"'{'.'.join(item.place)}' cannot be set", item.span,
                            f"set a field, for example {name}.ip.ttl")
        elif not rest:
            self.assign_variable(item, local)
        elif isinstance(local.typed, Packet):
            self.store(item, rest)
        elif isinstance(local.typed, Entry):
            self.store_entry(item, local.typed, rest)
        elif not isinstance(local.typed, Poison):
            self.errors.add(Kind.READ_ONLY, f"'{name}' is a value: its fields cannot be set", item.span)

    def assign_variable(self, item: ast.Assign, local: Local) -> None:
        if local.variable is None or local.type is None:
            if not isinstance(local.typed, Poison):
                self.errors.add(Kind.READ_ONLY, f"'{item.place[0]}' keeps its value: it is no 'var'", item.span,
                                f"declare it with 'var {item.place[0]} = ...'")
            return
        found = self.expressions.of_type(item.value, local.type)
        if found is not None and self.builder.here is not None:
            self.builder.here.variables[local.variable] = found

    def store(self, item: ast.Assign, names: list[str]) -> None:
        place = self.expressions.header_field(names, item.span)
        if place is None:
            return
        header, name, type_ = place
        declared = field_of(header, name)
        if declared is None or not declared.writable:
            self.errors.add(Kind.READ_ONLY, f"{header}.{name} is kept right by the language and cannot be set",
                            item.span)
            return
        found = self.expressions.of_type(item.value, type_)
        if found is not None:
            self.builder.emit(nodes.Store(header, name, self.builder.materialise(found, item.span), item.span))

    def store_entry(self, item: ast.Assign, entry: Entry, names: list[str]) -> None:
        if entry.table.kind != "map":
            self.errors.add(Kind.READ_ONLY, f"{entry.table.name} is filled by the control plane and read-only here",
                            item.span)
            return
        path = ".".join(names)
        state: nodes.MapState = entry.table.state
        declared = state.field(path)
        if declared is None:
            self.errors.unknown(f"field of {entry.table.name} called", path, item.span, [f.name for f in state.fields])
            return
        fixed = [k.name for k in state.keys if path in k.fields] + [a.pool for a in state.allocs if path in a.fields]
        if fixed:
            self.errors.add(Kind.READ_ONLY, f"{path} belongs to '{fixed[0]}' and is fixed while the entry lives",
                            item.span, "delete the entry and insert it again")
            return
        if self.alive(entry, item.span):
            current = self.expressions.entry_type(entry, names)
            found = self.expressions.of_type(item.value, current)
            if found is not None:
                value = self.builder.materialise(found, item.span)
                self.builder.emit(nodes.StoreEntry(entry.value, path, value, item.span))

    def alive(self, entry: Entry, span: Span) -> bool:
        here = self.builder.here
        if here is not None and entry.value.name in here.dead:
            self.errors.add(Kind.REFERENCE_ESCAPES, "this entry may have been deleted", span,
                            "a reference ends with its 'delete': do this before it")
            return False
        return True

    # Branches.

    def branch(self, terminator: Terminator, outcome_bodies: Sequence[tuple[str, str, Callable[[], None] | None]],
               span: Span) -> None:
        """Close the block with a terminator, lower each (outcome, label) arm, and join what is still open."""
        before = self.builder.finish(terminator)
        variables = set(before.variables)
        open_places = []
        for outcome, label, lower in outcome_bodies:
            self.builder.open(label, span, before, terminator, outcome)
            if lower is not None:
                lower()
            if self.builder.here is not None:
                place = self.builder.here
                place.variables = {k: v for k, v in place.variables.items() if k in variables}
                open_places.append(place)
        self.builder.join(open_places, span)

    def lowered(self, body: ast.Body | None) -> Callable[[], None] | None:
        return None if body is None else lambda: self.body(body)

    def if_(self, item: ast.If) -> None:
        if isinstance(item.condition, ast.IsHeader):
            self.if_header(item, item.condition)
            return
        found = self.expressions.of_type(item.condition, BOOLEAN, "the condition")
        if found is None:
            self.both(item)
            return
        if found.const is not None:
            chosen, other = (item.then, item.otherwise) if found.const else (item.otherwise, item.then)
            if other is not None:
                self.checked_only(other)
            if chosen is not None:
                self.body(chosen)
            return
        yes, no = self.builder.label("then"), self.builder.label("else")
        condition = self.builder.materialise(found, item.condition.span)
        self.branch(nodes.Branch(condition, yes, no, item.condition.span),
                    [("true", yes, self.lowered(item.then)), ("false", no, self.lowered(item.otherwise))], item.span)

    def checked_only(self, body: ast.Body) -> None:
        """Check statements that are never executed: lower them where nothing leads, and forget what was emitted."""
        here = self.builder.here
        assert here is not None, "statements are lowered where a way leads"
        returns = [len(c.places) for c in self.calls]
        self.builder.here = Place(self.builder.label("never"), body.span, (), [], here.headers, dict(here.variables),
                                  here.dead)
        self.body(body)
        for call, known in zip(self.calls, returns, strict=True):
            del call.places[known:]
        self.builder.here = here

    def both(self, item: ast.If) -> None:
        """Check both arms of a condition that could not be typed."""
        here = self.builder.here
        self.body(item.then)
        self.builder.here = here
        if item.otherwise is not None:
            self.body(item.otherwise)
        self.builder.here = here

    def if_header(self, item: ast.If, test: ast.IsHeader) -> None:
        if not isinstance(self.scope.get(test.packet, Local(POISON)).typed, Packet):
            self.errors.add(Kind.TYPE_MISMATCH, f"'{test.packet}' is no packet", test.span)
            return
        header = self.expressions.header_named(list(test.header), test.span)
        if header is None:
            return
        yes, no = self.builder.label(f"is_{header.replace('.', '_')}"), self.builder.label("is_not")
        then, other = (item.otherwise, item.then) if test.negated else (item.then, item.otherwise)
        self.branch(nodes.HasHeader(header, yes, no, test.span),
                    [("present", yes, self.lowered(then)), ("absent", no, self.lowered(other))], item.span)

    def match(self, item: ast.Match) -> None:
        subject = self.expressions.number(item.subject, "what is matched")
        if subject is None:
            return
        if subject.type == BOOLEAN or subject.type == INTEGER:
            hint = "use 'if'" if subject.type == BOOLEAN else "say its type, for example u8(...)"
            self.errors.add(Kind.TYPE_MISMATCH, f"'match' does not take {subject.type}", item.subject.span, hint)
            return
        cases: dict[int, str] = {}
        arms: list[tuple[str, str, Callable[[], None] | None]] = []
        for values, body in item.arms:
            label = self.builder.label("case")
            arms.append((label, label, self.lowered(body)))
            for value in values:
                self.case(value, subject.type, cases, label)
        default = self.builder.label("default")
        arms.append(("default", default, self.lowered(item.otherwise)))
        used = set(cases.values())
        terminator = nodes.Switch(self.builder.materialise(subject, item.subject.span), tuple(cases.items()), default,
                                  item.span)
        self.branch(terminator, [a for a in arms if a[1] in used or a[0] == "default"], item.span)

    def case(self, value: ast.Expr, type_: Scalar, cases: dict[int, str], label: str) -> None:
        found = self.expressions.of_type(value, type_, "a case")
        if found is None:
            return
        if found.const is None:
            self.errors.add(Kind.NOT_CONSTANT, "a case must be a constant", value.span, "compare with 'if' instead")
        elif found.const in cases:
            self.errors.add(Kind.DUPLICATE_NAME, f"the case {found.const} stands twice", value.span)
        else:
            cases[found.const] = label

    def for_(self, item: ast.For) -> None:
        first, past = (self.expressions.number(e, "a bound") for e in (item.first, item.past))
        if first is None or past is None:
            return
        if first.const is None or past.const is None:
            self.errors.add(Kind.NOT_CONSTANT, "the bounds of a loop must be constants", item.span,
                            "loops are unrolled; use literals or consts")
            return
        if past.const < first.const:
            self.errors.add(Kind.VALUE_RANGE, f"the loop starts at {first.const}, above its end {past.const}",
                            item.span, "for i in 0 .. 4 runs for 0, 1, 2 and 3")
            return
        if past.const - first.const > MAX_UNROLL:
            self.errors.add(Kind.VALUE_RANGE, f"the loop runs {past.const - first.const} times, at most {MAX_UNROLL} "
                                              "are unrolled", item.span)
            return
        type_ = past.type if first.type == INTEGER else first.type
        outer = dict(self.scope)
        for i in range(first.const, past.const):
            if self.builder.here is None:
                break
            self.scope = dict(outer)
            self.define(item.name, Local(Number(type_, i)), item.span)
            self.body(item.body)
        self.scope = outer

    # Tables.

    def table(self, name: str, kinds: tuple[str, ...], span: Span) -> Table | None:
        found = self.symbols.tables.get(name)
        if found is not None and found.kind in kinds:
            return found
        if found is not None:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{name}' is a {found.kind}, not a {_either(kinds)}", span, None,
                            [("declared here", found.span)])
        elif name not in self.failed:
            known = [t.name for t in self.symbols.tables.values() if t.kind in kinds]
            self.errors.unknown(_either(kinds), name, span, known)
        return None

    def key(self, table: Table, key: str, expr: ast.Expr) -> tuple[Value, ...] | None:
        wanted = table.keys[key]
        found = self.expressions.typed(expr)
        if isinstance(found, Poison):
            return None
        scalars = flatten(found)
        if len(scalars) != len(wanted) or isinstance(found, Entry | Packet):
            shape = ", ".join(f"{n}: {t}" for n, t in wanted)
            self.errors.add(Kind.TYPE_MISMATCH, f"the key of '{table.name}' is ({shape}), found {type_name(found)}",
                            expr.span, None, [("declared here", table.span)])
            return None
        values = []
        for (name, type_), number in zip(wanted, scalars, strict=True):
            coerced = number if number.type == type_ else self.key_part(number, type_, name, expr)
            if coerced is None:
                return None
            values.append(self.builder.materialise(coerced, expr.span))
        return tuple(values)

    def key_part(self, number: Number, type_: Scalar, name: str, expr: ast.Expr) -> Number | None:
        if number.type == INTEGER:
            return self.expressions.coerce(number, type_, expr.span)
        self.errors.add(Kind.TYPE_MISMATCH, f"key field '{name}' is {type_}, found {number.type}", expr.span)
        return None

    def entry_arm(self, name: str | None, table: Table, value: Value, body: ast.Body | None, span: Span
                  ) -> Callable[[], None]:
        def lower() -> None:
            outer = dict(self.scope)
            if name is not None:
                self.define(name, Local(Entry(table, value)), span)
            if body is not None:
                self.body(body)
            self.scope = outer
        return lower

    def lookup(self, item: ast.LookupStmt) -> None:
        table = self.table(item.table, ("map", "acl", "lpm"), item.span)
        if table is None:
            return
        key = self.key_name(table, item)
        operands = None if key is None else self.key(table, key, item.operand)
        if operands is None or key is None:
            return
        entry = self.builder.value(EntryRef(table.name), item.entry or "entry")
        hit, miss = self.builder.label(f"{table.name}_hit"), self.builder.label(f"{table.name}_miss")
        terminator = nodes.Lookup(table.name, key, operands, entry, hit, miss, _head(item.span))
        self.branch(terminator, [("hit", hit, self.entry_arm(item.entry, table, entry, item.hit, item.span)),
                                 ("miss", miss, self.lowered(item.miss))], item.span)

    def key_name(self, table: Table, item: ast.LookupStmt) -> str | None:
        names = list(table.keys)
        if item.key in names:
            return item.key
        if not item.key and len(names) == 1:
            return names[0]
        if not item.key:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{table.name}' has the keys {' and '.join(names)}: say which",
                            _head(item.span), f"lookup {table.name}.{names[0]}[...]")
        else:
            self.errors.unknown(f"key of {table.name} called", item.key, _head(item.span), names)
        return None

    def insert(self, item: ast.InsertStmt) -> None:
        table = self.table(item.table, ("map",), item.span)
        if table is None:
            return
        state = table.state
        assert isinstance(state, nodes.MapState), "the table's kind was checked"
        self.not_evicting(table, state, item)
        values = self.insert_values(table, state, item)
        prefer = self.preferences(state, item)
        timeout = self.timeout_class(state, item.timeout, _head(item.span))
        if values is None or prefer is None or timeout is None:
            return
        if item.full is None:
            self.errors.add(Kind.MISSING_ARM, f"this insert does not say what happens when '{table.name}' is full",
                            _head(item.span), "add: full { ... }")
            return
        entry = self.builder.value(EntryRef(table.name), item.entry or "entry")
        ok, full = self.builder.label(f"{table.name}_ok"), self.builder.label(f"{table.name}_full")
        terminator = nodes.Insert(table.name, values, prefer, timeout, entry, ok, full, _head(item.span))
        self.branch(terminator, [("ok", ok, self.entry_arm(item.entry, table, entry, item.ok, item.span)),
                                 ("full", full, self.lowered(item.full))], item.span)

    def not_evicting(self, table: Table, state: nodes.MapState, item: ast.InsertStmt) -> None:
        if state.full != "evict_lru":
            return
        here = self.builder.here
        for name, local in self.scope.items():
            if isinstance(local.typed, Entry) and local.typed.table is table and (
                    here is None or local.typed.value.name not in here.dead):
                self.errors.add(Kind.REFERENCE_ESCAPES, f"this insert may evict the entry that '{name}' refers to",
                                _head(item.span), "insert outside its arm")

    def insert_values(self, table: Table, state: nodes.MapState, item: ast.InsertStmt) -> tuple[Value, ...] | None:
        given = dict(item.fields)
        allocated = {n.split(".")[0] for a in state.allocs for n in a.fields}
        for name, expr in item.fields:
            if name in allocated:
                self.errors.add(Kind.READ_ONLY, f"'{name}' comes from a pool", expr.span,
                                "write a wish with 'prefer', or leave it out")
                return None
            if name not in dict(table.fields):
                self.errors.unknown(f"field of {table.name} called", name, expr.span, dict(table.fields))
                return None
        values: list[Value] = []
        for name, type_ in table.fields:
            if name in allocated:
                continue
            if name not in given:
                self.errors.add(Kind.BAD_DECLARATION, f"this insert gives no '{name}'", _head(item.span),
                                f"add {name}: ... of type {type_}")
                return None
            found = self.expressions.to_language(self.expressions.typed(given[name]), type_, given[name].span)
            if isinstance(found, Poison):
                return None
            values += [self.builder.materialise(n, given[name].span) for n in flatten(found)]
        return tuple(values)

    def preferences(self, state: nodes.MapState, item: ast.InsertStmt) -> tuple[tuple[Value, ...], ...] | None:
        wishes = dict(item.prefer)
        found: list[tuple[Value, ...]] = []
        for alloc in state.allocs:
            pool = self.symbols.pools[alloc.pool]
            types = self.symbols.pool_types[alloc.pool]
            names = [r.name for r in pool.ranges]
            given = [n for n in names if n in wishes]
            if not given:
                found.append(())
                continue
            if len(given) != len(names):
                missing = next(n for n in names if n not in wishes)
                self.errors.add(Kind.BAD_DECLARATION, f"a preference names every dimension of '{pool.name}'; "
                                                      f"'{missing}' is missing", _head(item.span))
                return None
            values = [self.expressions.of_type(wishes.pop(n), t) for n, t in zip(names, types, strict=True)]
            if any(v is None for v in values):
                return None
            found.append(tuple(self.builder.materialise(v, item.span) for v in values if v is not None))
        for name, expr in wishes.items():
            known = [r.name for a in state.allocs for r in self.symbols.pools[a.pool].ranges]
            self.errors.unknown("pool dimension", name, expr.span, known)
            return None
        return tuple(found)

    def timeout_class(self, state: nodes.MapState, name: str | None, span: Span) -> str | None:
        names = [t.name for t in state.timeouts]
        if name is None:
            if len(names) > 1:
                self.errors.add(Kind.BAD_DECLARATION, f"'{state.name}' has the time-out classes {', '.join(names)}: "
                                                      "say which", span, f"add: as {names[0]}")
                return None
            return names[0] if names else ""
        if name not in names:
            self.errors.unknown(f"time-out class of {state.name} called", name, span, names)
            return None
        return name

    def entry_of(self, name: str, span: Span) -> Entry | None:
        local = self.scope.get(name)
        if local is not None and isinstance(local.typed, Entry):
            if local.typed.table.kind != "map":
                self.errors.add(Kind.READ_ONLY, f"{local.typed.table.name} is read-only here", span)
                return None
            return local.typed if self.alive(local.typed, span) else None
        if local is None or not isinstance(local.typed, Poison):
            entries = [n for n, v in self.scope.items() if isinstance(v.typed, Entry)]
            self.errors.unknown("entry", name, span, entries)
        return None

    def touch(self, item: ast.TouchStmt) -> None:
        entry = self.entry_of(item.entry, item.span)
        if entry is None:
            return
        timeout = self.timeout_class(entry.table.state, item.timeout, item.span)
        if timeout is not None:
            self.builder.emit(nodes.Touch(entry.value, timeout, item.span))

    def delete(self, item: ast.DeleteStmt) -> None:
        entry = self.entry_of(item.entry, item.span)
        if entry is not None and self.builder.here is not None:
            self.builder.emit(nodes.Delete(entry.value, item.span))
            self.builder.here.dead |= {entry.value.name}

    def police(self, item: ast.PoliceStmt) -> None:
        table = self.table(item.meter, ("meter",), item.span)
        if table is None:
            return
        state = table.state
        assert isinstance(state, nodes.MeterState), "the table's kind was checked"
        operands = self.key(table, "", item.key)
        size = self.size(item)
        colours = ["green", "red", "full"] if state.algorithm == "token_bucket" else ["green", "yellow", "red", "full"]
        given = dict(item.arms)
        for name, body in item.arms:
            if name not in colours:
                self.errors.unknown(f"arm of a {_METERS[state.algorithm]} called", name, body.span, colours)
                return
        for name in colours:
            if name not in given:
                self.errors.add(Kind.MISSING_ARM, f"this 'police' has no arm '{name}'", _head(item.span),
                                f"add: {name} {{ ... }}")
                return
        if operands is None or size is None:
            return
        labels = {c: self.builder.label(f"{table.name}_{c}") for c in colours}
        terminator = nodes.Police(table.name, operands, size, labels["green"], labels.get("yellow"), labels["red"],
                                  labels["full"], _head(item.span))
        self.branch(terminator, [(c, labels[c], self.lowered(given[c])) for c in colours], item.span)

    def size(self, item: ast.PoliceStmt) -> Value | None:
        if item.size is not None:
            found = self.expressions.of_type(item.size, uint(32), "the size")
            return None if found is None else self.builder.materialise(found, item.size.span)
        result = self.builder.value(uint(32).ir, "size")
        self.builder.emit(nodes.Meta(result, "size", item.span))
        return result

    def count(self, item: ast.CountStmt) -> None:
        counter = self.symbols.counters.get(item.counter)
        if counter is None:
            if item.counter not in self.failed:
                self.errors.unknown("counter", item.counter, item.span, self.symbols.counters)
            return
        if (item.index is None) != (counter.size == 1) and item.index is None:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{counter.name}' has {counter.size} counters: say which", item.span,
                            f"count {counter.name}[...];")
            return
        index = None if item.index is None else self.expressions.number(item.index, "the index")
        if index is not None and (not index.type.number or index.type == DURATION):
            self.errors.add(Kind.TYPE_MISMATCH, f"the index must be a number, it is {index.type}", item.span)
            return
        if index is not None and index.type == INTEGER:
            index = self.expressions.coerce(index, uint(32), item.span)
        amount = None if item.amount is None else self.expressions.of_type(item.amount, uint(32), "the amount")
        if (item.index is not None and index is None) or (item.amount is not None and amount is None):
            return
        if index is not None and index.const is not None and index.const >= counter.size:
            self.errors.add(Kind.VALUE_RANGE, f"'{counter.name}' has {counter.size} counters, there is no number "
                                              f"{index.const}", item.span)
            return
        self.builder.emit(nodes.Count(
            counter.name, None if index is None else self.builder.materialise(index, item.span),
            None if amount is None else self.builder.materialise(amount, item.span), item.span))

    # Verdicts.

    def forward(self, item: ast.ForwardStmt) -> None:
        if item.port not in self.symbols.ports:
            self.errors.unknown("port", item.port, item.span, self.symbols.ports)
            self.builder.here = None
            return
        self.builder.finish(nodes.Forward(item.port, item.span))

    def drop(self, item: ast.DropStmt) -> None:
        self.reason(item.reason, item.span)
        self.builder.finish(nodes.Drop(item.reason, item.span))

    def reason(self, text: str, span: Span) -> None:
        if not text.strip():
            self.errors.add(Kind.BAD_DECLARATION, "a drop needs a reason", span, 'for example drop "not ours";')
        elif not text.isprintable():
            self.errors.add(Kind.BAD_DECLARATION, "a reason is shown to people: it has a control character", span)

    def reject(self, item: ast.RejectStmt) -> None:
        headers = {"icmp": ("ipv4", IPV4, ICMP_ERRORS), "icmp6": ("ipv6", IPV6, ICMP6_ERRORS)}
        if item.protocol not in headers:
            self.errors.unknown("error message", item.protocol, item.span, headers)
            self.builder.here = None
            return
        self.reason(item.reason, item.span)
        header, address, types = headers[item.protocol]
        here = self.builder.here
        if here is not None and header not in here.headers:
            self.errors.add(Kind.HEADER_ABSENT, f"an {item.protocol} error needs '{header}', which is not known to be "
                                                "present here", item.span)
            self.builder.here = None
            return
        type_ = self.expressions.of_type(item.type, uint(8), "the type")
        code = self.expressions.of_type(item.code, uint(8), "the code")
        source = self.expressions.of_type(item.source, address, "the source address")
        if type_ is None or code is None or source is None:
            self.builder.here = None
            return
        if type_.const is None or code.const is None:
            self.errors.add(Kind.NOT_CONSTANT, "the type and code of an error message are constants", item.span)
        elif type_.const not in types or type_.const == 5:
            self.errors.add(Kind.VALUE_RANGE, f"{item.protocol} type {type_.const} is no error that can be sent",
                            item.type.span, f"one of {', '.join(str(t) for t in types if t != 5)}")
        self.builder.finish(nodes.Reject(item.reason, header, type_.const or 0, code.const or 0,
                                         self.builder.materialise(source, item.span), item.span))

    # Functions.

    def call_statement(self, item: ast.CallStmt) -> None:
        if item.name not in self.symbols.functions:
            self.errors.unknown("function", item.name, item.span, self.symbols.functions)
            return
        self.call(item.name, item.args, item.span, wants_value=False)

    def call(self, name: str, args: Sequence[ast.Expr], span: Span, *, wants_value: bool) -> Typed:
        """Inline a function at the builder's place; its value, or `POISON` when it has none."""
        function = self.symbols.functions[name]
        if any(c.name == name for c in self.calls):
            chain = " -> ".join([*(c.name for c in self.calls), name])
            self.errors.add(Kind.RECURSION, f"'{name}' calls itself ({chain})", span,
                            "functions are inlined and cannot recurse", [("the function", _head(function.span))])
            return POISON
        if len(self.calls) >= MAX_CALLS:
            self.errors.add(Kind.VALUE_RANGE, f"calls nest more than {MAX_CALLS} deep here", span,
                            "functions are copied into their callers: merge some of them")
            raise TooLarge
        if wants_value and function.result is None:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{name}' gives no value", span,
                            f"declare what it returns: fn {name}(...) -> u32")
            return POISON
        bound = self.arguments(function, args, span)
        if bound is None:
            return POISON
        return self.inline(function, bound, span, wants_value)

    def arguments(self, function: ast.FunctionDecl, args: Sequence[ast.Expr], span: Span) -> dict[str, Local] | None:
        if len(args) != len(function.params):
            plural = "" if len(function.params) == 1 else "s"
            self.errors.add(Kind.TYPE_MISMATCH, f"'{function.name}' takes {len(function.params)} argument{plural}, "
                                                f"given: {len(args)}", span, None, [("declared here",
                                                                                    _head(function.span))])
            return None
        bound: dict[str, Local] = {}
        failed = False
        for param, arg in zip(function.params, args, strict=True):
            found = self.expressions.typed(arg)
            if param.type is not None:
                wanted = self.type(param.type)
                found = POISON if wanted is None else self.expressions.to_language(found, wanted, arg.span)
            failed = failed or isinstance(found, Poison)
            bound[param.name] = Local(found)
        return None if failed else bound

    def inline(self, function: ast.FunctionDecl, bound: dict[str, Local], span: Span, wants_value: bool) -> Typed:
        result = self.type(function.result) if function.result is not None else None
        if result is None and function.result is not None:
            return POISON
        if result is not None and not isinstance(result, Scalar):
            self.errors.add(Kind.NOT_YET, "functions return scalars in this version", function.result.span
                            if function.result else span)
            return POISON
        self._variables += 1
        frame = Returning(function.name, wants_value, result, variable=self._variables)
        outer, self.scope = self.scope, bound
        variables = set(self.builder.here.variables) if self.builder.here else set()
        self.calls.append(frame)
        self.body(function.body)
        self.calls.pop()
        self.scope = outer
        if result is not None and self.builder.here is not None:
            self.errors.add(Kind.MISSING_RETURN, f"'{function.name}' can end without returning a value",
                            _tail(function.span), "end every way with return, forward, drop or reject")
        places = [*frame.places, *([self.builder.here] if self.builder.here is not None else [])]
        for place in places:
            keep = variables | {frame.variable}
            place.variables = {k: v for k, v in place.variables.items() if k in keep}
        self.builder.join(places, span, f"after_{function.name}")
        if result is None:
            return POISON
        if self.builder.here is None:
            return self.no_way(function, span)
        return self.builder.here.variables.pop(frame.variable, POISON)

    def no_way(self, function: ast.FunctionDecl, span: Span) -> Typed:
        """A value is needed but no call of the function returns: go on in a dead block to keep the walk simple."""
        if self.sound():
            self.errors.add(Kind.UNREACHABLE, f"'{function.name}' never returns, so this value is never used", span,
                            "call it as a statement")
        self.builder.here = Place(self.builder.label("dead"), span)
        return POISON

    def return_(self, item: ast.Return) -> None:
        if not self.calls:
            self.errors.add(Kind.SYNTAX, "'return' stands outside a function", item.span,
                            "a handler ends with forward, drop or reject")
            self.builder.here = None
            return
        frame = self.calls[-1]
        if (item.value is None) != (frame.result is None):
            message = f"'{frame.name}' returns no value" if frame.result is None else f"'{frame.name}' returns a value"
            self.errors.add(Kind.TYPE_MISMATCH, message, item.span)
            self.builder.here = None
            return
        if item.value is not None:
            found = self.expressions.of_type(item.value, frame.result, "what is returned")
            here = self.builder.here
            if here is not None:
                here.variables[frame.variable] = found or Number(frame.result, 0)
        if self.builder.here is not None:
            frame.places.append(self.builder.here)
        self.builder.here = None


def _head(span: Span) -> Span:
    """The first line of a statement that spans several."""
    if span.line == span.end_line:
        return span
    return Span(span.file, span.line, span.column, span.line, span.column + 6)


def _tail(span: Span) -> Span:
    return Span(span.file, span.end_line, max(1, span.end_column - 1), span.end_line, span.end_column)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


_METERS = {"token_bucket": "token bucket", "srtcm": "meter with an excess burst", "trtcm": "meter with a peak rate"}

_STATEMENTS: dict[type, Callable[[Lowering, Any], None]] = {
    ast.Let: Lowering.let, ast.Assign: Lowering.assign, ast.If: Lowering.if_, ast.Match: Lowering.match,
    ast.For: Lowering.for_, ast.LookupStmt: Lowering.lookup, ast.InsertStmt: Lowering.insert,
    ast.TouchStmt: Lowering.touch, ast.DeleteStmt: Lowering.delete, ast.PoliceStmt: Lowering.police,
    ast.CountStmt: Lowering.count, ast.ForwardStmt: Lowering.forward, ast.DropStmt: Lowering.drop,
    ast.RejectStmt: Lowering.reject, ast.Return: Lowering.return_, ast.CallStmt: Lowering.call_statement,
}
