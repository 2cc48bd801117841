"""Random well-typed expressions."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cora.frontends.nf.types import BOOLEAN, DURATION, IPV4, IPV6, MAC, LanguageType, Scalar, Struct, uint
from cora.ir.headers import QUOTED
from cora.testing.values import FIELDS_BY_TYPE, field_value, value_of
from cora.testing.world import Function, Scope, Table, World

# Binding strength, as in grammar.lark.
TERNARY, OR, AND, COMPARE, BITOR, BITXOR, BITAND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(12)
_STRENGTH = {"||": OR, "&&": AND, "|": BITOR, "^": BITXOR, "&": BITAND, "<<": SHIFT, ">>": SHIFT, "+": SUM, "-": SUM,
             "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}
WIDTHS = (8, 16, 32, 64, 1, 2, 3, 4, 5, 6, 7, 12, 13, 20, 24, 31, 33, 48, 63, 65, 96, 127, 128)
_UNITS = ((3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (1000, "us"), (1, "ns"))


@dataclass(frozen=True)
class Expr:
    """Text with its binding strength.

    ``dynamic``: known not to be a constant; ``typed``: has a type of its own (a bare number takes its neighbour's).
    """

    text: str
    strength: int = ATOM
    dynamic: bool = False
    typed: bool = True

    def at(self, strength: int) -> str:
        """The text where at least this strength is needed."""
        return self.text if self.strength >= strength else f"({self.text})"


def literal(world: World, type_: Scalar, value: int) -> Expr:
    """A constant of a type; numbers come out without a type."""
    if type_ == BOOLEAN:
        return Expr("true" if value else "false")
    if type_ == DURATION:
        return Expr(duration(value))
    if type_ in (IPV4, IPV6, MAC):
        return Expr(address(type_, value))
    forms = [str(value), hex(value), bin(value) if value < 256 else hex(value).upper().replace("X", "x")]
    if value >= 1000:
        forms.append(f"{value:_}")
    return Expr(world.choices.pick(forms), ATOM, False, False)


def duration(value: int) -> str:
    """Nanoseconds with the largest unit that divides them."""
    size, unit = next((s, u) for s, u in _UNITS if value % s == 0 and (value or u == "ns"))
    return f"{value // size}{unit}"


def address(type_: Scalar, value: int) -> str:
    """An ipv4, ipv6 or mac value as written in programs."""
    if type_ == IPV4:
        return ".".join(str(b) for b in value.to_bytes(4, "big"))
    if type_ == MAC:
        return ":".join(f"{b:02x}" for b in value.to_bytes(6, "big"))
    return str(ipaddress.IPv6Address(value))


class ExpressionWriter:
    """Writes expressions of wanted types. ``call`` is given by the statement writer: it may spend budget."""

    def __init__(self, world: World, allowed: Callable[[Scope, Function], bool]) -> None:
        self.world = world
        self.choices = world.choices
        self.allowed = allowed

    # Leaves.

    def constant(self, type_: Scalar, *, typed: bool = False) -> Expr:
        """A literal, const, or (for numbers where no type is needed) a bare number."""
        named = [n for n, t, _ in self.world.consts if t == type_]
        if named and self.choices.chance(25):
            return Expr(self.choices.pick(named))
        found = literal(self.world, type_, value_of(self.choices, type_))
        return Expr(f"{type_}({found.text})") if typed and not found.typed else found

    def fields(self, scope: Scope, type_: Scalar) -> list[tuple[str, str]]:
        """(header, field) of a type that are present."""
        return [(h, f) for h, f in FIELDS_BY_TYPE.get(type_, ()) if h in scope.headers]

    def field(self, scope: Scope, header: str, name: str) -> Expr:
        """How a program writes a header field; ``ip`` stands for the version that is present."""
        prefix = QUOTED if header.startswith(QUOTED) else ""
        kind = header.removeprefix(QUOTED)
        # `ip` means ipv6 as soon as both are known to be present, which a function's caller may know.
        six = f"{prefix}ipv6" in scope.headers | scope.possible
        sure = kind == "ipv6" or (kind == "ipv4" and scope.function is None and not six)
        written = f"{prefix}ip" if sure and self.choices.chance(50) else header
        return Expr(f"{self.world.packet}.{written}.{name}", ATOM, True)

    def named(self, scope: Scope, type_: Scalar) -> list[Expr]:
        """Locals, entry fields, configs and the like of a type."""
        found = [Expr(n, ATOM, v.dynamic) for n, v in scope.locals.items()
                 if v.kind in ("value", "var") and v.type == type_]
        for name, local in scope.locals.items():
            if local.kind == "record":
                found += [Expr(f"{name}{p}", ATOM, local.dynamic) for p, t in _paths(local.type) if t == type_]
        for name, table in scope.entries():
            found += [Expr(f"{name}.{p}", ATOM, True) for p, t in table.scalars() if t == type_]
        found += [Expr(n, ATOM, True) for n, t, _ in self.world.configs if t == type_]
        if type_ == uint(32) and scope.has_packet:
            found.append(Expr(f"{self.world.packet}.size", ATOM, True))
        if type_ == DURATION:
            found.append(Expr("now", ATOM, True))
        return found

    def leaf(self, scope: Scope, type_: Scalar, *, typed: bool = False) -> Expr:
        """Something that is not made of other expressions."""
        kind = self.choices.integer(0, 19)
        fields = self.fields(scope, type_) if kind >= 9 else []
        if fields:
            return self.field(scope, *self.choices.pick(fields))
        named = self.named(scope, type_) if kind >= 3 else []
        if named:
            return self.choices.pick(named)
        loose = [n for n, v in scope.locals.items() if v.kind == "literal" and v.value < type_.limit]
        loose += [n for n, value in self.world.numbers if value < type_.limit]
        if loose and type_.number and type_ != DURATION and not typed and self.choices.chance(30):
            return Expr(self.choices.pick(loose), ATOM, False, False)
        return self.constant(type_, typed=typed)

    # Composite expressions.

    def of(self, scope: Scope, type_: Scalar, depth: int = 2, *, typed: bool = False) -> Expr:
        """An expression of a type; ``typed`` where a bare number would have none."""
        if depth <= 0 or self.choices.chance(45):
            return self.leaf(scope, type_, typed=typed)
        kinds = self.kinds(scope, type_)
        return self.choices.pick(kinds)(scope, type_, depth)

    def kinds(self, scope: Scope, type_: Scalar) -> list[Callable[[Scope, Scalar, int], Expr]]:
        found: list[Callable[[Scope, Scalar, int], Expr]] = [self.bitwise, self.choose]
        if type_ == BOOLEAN:
            found += [self.comparison, self.comparison, self.logic, self.negation, self.cast]
        else:
            found += [self.extremum, self.inverted, self.cast]
        if type_.number:
            found += [self.arithmetic, self.arithmetic, self.arithmetic, self.shift]
        if any(f.result == type_ and self.allowed(scope, f) for f in self.world.functions):
            found += [self.call, self.call]
        return found

    def pair(self, scope: Scope, type_: Scalar, depth: int) -> tuple[Expr, Expr]:
        """Two operands, at least one of them with a type of its own."""
        right_typed = self.choices.chance(30)
        left = self.of(scope, type_, depth - 1, typed=not right_typed)
        right = self.of(scope, type_, depth - 1, typed=not left.typed)
        return left, right

    def infix(self, op: str, left: Expr, right: Expr) -> Expr:
        strength = _STRENGTH[op]
        return Expr(f"{left.at(strength)} {op} {right.at(strength + 1)}", strength, left.dynamic or right.dynamic)

    def arithmetic(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        return self.infix(self.choices.pick(("+", "-", "*", "/", "%")), *self.pair(scope, type_, depth))

    def bitwise(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        return self.infix(self.choices.pick(("&", "|", "^")), *self.pair(scope, type_, depth))

    def logic(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        return self.infix(self.choices.pick(("&&", "||")), *self.pair(scope, type_, depth))

    def shift(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        left = self.of(scope, type_, depth - 1, typed=True)
        right = self.of(scope, self.number_type(), depth - 1)
        return self.infix(self.choices.pick(("<<", ">>")), left, right)

    def number_type(self) -> Scalar:
        """A type for indices and shift amounts."""
        return uint(self.choices.pick(WIDTHS))

    def any_type(self, scope: Scope) -> Scalar:
        """A scalar type, mostly one that the headers present have fields of."""
        present = [t for t in FIELDS_BY_TYPE if self.fields(scope, t)]
        if present and not self.choices.chance(25):
            return self.choices.pick(present)
        return self.choices.pick([uint(self.choices.pick(WIDTHS)), BOOLEAN, IPV4, IPV6, MAC, DURATION])

    def extremum(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        left, right = self.pair(scope, type_, depth)
        return Expr(f"{self.choices.pick(('min', 'max'))}({left.text}, {right.text})", ATOM,
                    left.dynamic or right.dynamic)

    def inverted(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        inner = self.of(scope, type_, depth - 1, typed=True)
        return Expr(f"~{inner.at(UNARY)}", UNARY, inner.dynamic)

    def negation(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        inner = self.of(scope, BOOLEAN, depth - 1)
        return Expr(f"!{inner.at(UNARY)}", UNARY, inner.dynamic)

    def cast(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        inner = self.of(scope, self.any_type(scope), depth - 1, typed=True)
        return Expr(f"{type_}({inner.text})", ATOM, inner.dynamic)

    def choose(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        condition = self.of(scope, BOOLEAN, depth - 1)
        yes, no = self.pair(scope, type_, depth)
        dynamic = condition.dynamic or (yes.dynamic and no.dynamic)
        return Expr(f"{condition.at(OR)} ? {yes.at(TERNARY)} : {no.at(TERNARY)}", TERNARY, dynamic)

    def comparison(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        if self.choices.chance(35):
            tested = self.tested_field(scope)
            if tested is not None:
                return tested
        structs = [s for s in self.world.structs if self.choices.chance(10)]
        if structs:
            return self.record_comparison(scope, self.choices.pick(structs))
        compared = self.any_type(scope)
        ops = ("==", "!=") if compared == BOOLEAN else ("==", "!=", "<", "<=", ">", ">=")
        left, right = self.pair(scope, compared, depth)
        return Expr(f"{left.at(BITOR)} {self.choices.pick(ops)} {right.at(BITOR)}", COMPARE,
                    left.dynamic or right.dynamic)

    def tested_field(self, scope: Scope) -> Expr | None:
        """A header field against a value that it usually has."""
        present = [(t, h, f) for t in FIELDS_BY_TYPE for h, f in self.fields(scope, t)]
        if not present:
            return None
        type_, header, name = self.choices.pick(present)
        field = self.field(scope, header, name)
        if type_ == BOOLEAN:
            return field
        value = literal(self.world, type_, field_value(self.choices, header, name))
        op = self.choices.pick(("==", "!=", "<", "<=", ">", ">="))
        return Expr(f"{field.text} {op} {value.text}", COMPARE, True)

    def record_comparison(self, scope: Scope, type_: Struct) -> Expr:
        left, right = self.record(scope, type_, 1), self.record(scope, type_, 1)
        return Expr(f"{left.text} {self.choices.pick(('==', '!='))} {right.text}", COMPARE, False)

    # Structs and keys.

    def record(self, scope: Scope, type_: Struct, depth: int) -> Expr:
        """A value of a struct type."""
        known = [Expr(n, ATOM, v.dynamic) for n, v in scope.locals.items() if v.kind == "record" and v.type == type_]
        for name, table in scope.entries():
            known += [Expr(f"{name}.{f}", ATOM, True) for f, t, _ in table.fields if t == type_]
        if known and self.choices.chance(60):
            return self.choices.pick(known)
        parts = [self.any(scope, t, depth - 1) for _, t in type_.fields]
        return Expr(f"{type_}({', '.join(p.text for p in parts)})", ATOM, all(p.dynamic for p in parts))

    def any(self, scope: Scope, type_: LanguageType, depth: int) -> Expr:
        """A value of any declared type."""
        return self.record(scope, type_, depth) if isinstance(type_, Struct) else self.of(scope, type_, depth)

    def components(self, scope: Scope, table: Table, key: str) -> tuple[str, ...]:
        """The scalars of a key, mostly ones that other statements use for the same key too."""
        recipes = self.world.recipes.setdefault((table.name, key), [])
        usable = [parts for headers, parts in recipes if headers <= scope.headers]
        if usable and self.choices.chance(75):
            return self.choices.pick(usable)
        needed: set[str] = set()
        parts = tuple(self.component(scope, type_, needed) for _, type_ in table.keys[key])
        recipes.append((frozenset(needed), parts))
        return parts

    def component(self, scope: Scope, type_: Scalar, needed: set[str]) -> str:
        """One scalar of a key that only reads the packet, so that it can stand elsewhere too."""
        fields = self.fields(scope, type_)
        if fields and self.choices.chance(90):
            header, name = self.choices.pick(fields)
            needed.add(header)
            return f"{self.world.packet}.{header}.{name}"
        others = [(h, f) for t in FIELDS_BY_TYPE for h, f in self.fields(scope, t)]
        if others and self.choices.chance(70):
            header, name = self.choices.pick(others)
            needed.add(header)
            return f"{type_}({self.world.packet}.{header}.{name})"
        return self.constant(type_).text

    def compose(self, type_: LanguageType, parts: Iterator[str]) -> str:
        """A value of a type from its scalars in order."""
        if isinstance(type_, Scalar):
            return next(parts)
        return f"{type_}({', '.join(self.compose(t, parts) for _, t in type_.fields)})"

    def key(self, scope: Scope, table: Table, key: str) -> str:
        """The operand of a look-up or of policing."""
        wanted = [t for _, t in table.keys[key]]
        records = [n for n, v in scope.locals.items()
                   if v.kind == "record" and isinstance(v.type, Struct) and [t for _, t in _paths(v.type)] == wanted]
        if records and self.choices.chance(50):
            return self.choices.pick(records)
        for struct in self.world.structs:
            if [t for _, t in _paths(struct)] == wanted and self.choices.chance(50):
                return self.compose(struct, iter(self.components(scope, table, key)))
        if self.choices.chance(15):
            parts = tuple(self.of(scope, t, 1).text for t in wanted)
        else:
            parts = self.components(scope, table, key)
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    # Calls.

    def call(self, scope: Scope, type_: Scalar, depth: int) -> Expr:
        usable = [f for f in self.world.functions if f.result == type_ and self.allowed(scope, f)]
        return Expr(self.call_text(scope, self.choices.pick(usable)))

    def call_text(self, scope: Scope, function: Function) -> str:
        """A call; the caller has checked that it is allowed here."""
        self.world.budget -= function.cost * scope.factor
        self.note_call(scope, function)
        used: set[str] = set()
        args = []
        for param in function.params:
            if param.kind == "packet":
                args.append(self.world.packet)
            elif param.kind == "entry":
                name = self.choices.pick([n for n, _ in scope.entries(param.table) if n not in used])
                used.add(name)
                args.append(name)
            else:
                assert param.type is not None, "values have types"
                args.append(self.any(scope, param.type, 1).text)
        for name in used:
            if function.params[args.index(name)].name in function.deletes:
                scope.dead = scope.dead | {name}
        return f"{function.name}({', '.join(args)})"

    def note_call(self, scope: Scope, function: Function) -> None:
        """Remember in a function being written what its callees may do."""
        if scope.function is not None:
            scope.function.verdicts |= function.verdicts
        scope.forbid = scope.forbid | function.forbids


def _paths(type_: LanguageType | None, prefix: str = "") -> list[tuple[str, Scalar]]:
    """The scalars of a type by dotted path, each with a leading dot."""
    if isinstance(type_, Struct):
        return [pair for name, inner in type_.fields for pair in _paths(inner, f"{prefix}.{name}")]
    return [(prefix, type_)] if isinstance(type_, Scalar) else []

