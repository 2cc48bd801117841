"""Typing and lowering of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cora.errors import Kind
from cora.frontends.nf import ast
from cora.frontends.nf.constants import LITERAL_TYPES, common_type, fold, mismatch
from cora.frontends.nf.types import (
    BOOLEAN,
    DURATION,
    FIELD_TYPES,
    INTEGER,
    POISON,
    Entry,
    LanguageType,
    Number,
    Packet,
    Poison,
    Record,
    Scalar,
    Struct,
    Typed,
    scalar_named,
    type_name,
    uint,
)
from cora.ir import nodes
from cora.ir.headers import HEADERS, QUOTED, field_of, header_type
from cora.ir.span import Span

if TYPE_CHECKING:
    from cora.frontends.nf.lower import Lowering

_BINARY: dict[str, nodes.BinaryOp] = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and",
                                      "|": "or", "^": "xor", "<<": "shl", ">>": "shr", "&&": "and", "||": "or",
                                      "min": "min", "max": "max"}
_COMPARE: dict[str, nodes.CompareOp] = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Expressions:
    """Lowers expressions at the builder's current place. Every method returns `POISON` after reporting an error."""

    def __init__(self, lowering: Lowering) -> None:
        self.low = lowering
        self.errors = lowering.errors
        self.symbols = lowering.symbols

    def typed(self, expr: ast.Expr) -> Typed:
        return _EXPRESSIONS[type(expr)](self, expr)

    def number(self, expr: ast.Expr, what: str, wanted: Scalar | None = None) -> Number | None:
        """A scalar value, or None after an error. Literals that stand for a choice take the wanted type."""
        found = self.choose(expr, wanted) if isinstance(expr, ast.Choose) else self.typed(expr)
        if isinstance(found, Number):
            return found
        if not isinstance(found, Poison):
            self.errors.add(Kind.TYPE_MISMATCH, f"{what} is a scalar, found {type_name(found)}", expr.span)
        return None

    def of_type(self, expr: ast.Expr, type_: Scalar, what: str = "this") -> Number | None:
        """A scalar of a given type, literals taking it, or None after an error."""
        found = self.number(expr, what, type_)
        return None if found is None else self.coerce(found, type_, expr.span, what)

    def coerce(self, found: Number, type_: Scalar, span: Span, what: str = "this") -> Number | None:
        if found.type == type_:
            return found
        if found.type == INTEGER and type_ == DURATION and found.const:
            self.errors.add(Kind.TYPE_MISMATCH, "a duration needs a unit", span, "for example 30s or 10ms")
            return None
        if found.type == INTEGER and type_.number:
            assert found.const is not None, "literals are known"
            if 0 <= found.const < type_.limit:
                return Number(type_, found.const)
            self.errors.add(Kind.VALUE_RANGE, f"{found.const} does not fit in {type_}", span)
            return None
        hint = f"convert it: {type_}(...)" if found.type.number and type_.number else None
        message = f"{what} must be {type_}, it is {found.type}"
        if what == "this":
            message = f"expected {type_}, found {found.type}"
        self.errors.add(Kind.TYPE_MISMATCH, message, span, hint)
        return None

    def to_language(self, found: Typed, type_: LanguageType, span: Span) -> Typed:
        """A value as a declared type: scalars are coerced, structs must be that struct."""
        if isinstance(found, Poison):
            return POISON
        if isinstance(type_, Scalar):
            if isinstance(found, Number):
                return self.coerce(found, type_, span) or POISON
        elif isinstance(found, Record) and found.type == type_:
            return found
        self.errors.add(Kind.TYPE_MISMATCH, f"expected {type_}, found {type_name(found)}", span)
        return POISON

    # Leaves.

    def literal(self, expr: ast.LiteralExpr) -> Typed:
        if expr.kind in LITERAL_TYPES:
            return Number(LITERAL_TYPES[expr.kind], expr.value)
        what = "a text" if expr.kind == "string" else "a prefix"
        self.errors.add(Kind.TYPE_MISMATCH, f"{what} is no value here", expr.span)
        return POISON

    def name(self, expr: ast.Name) -> Typed:
        local = self.low.scope.get(expr.text)
        if local is not None:
            return self.low.read_local(local, expr.span)
        if expr.text in self.symbols.consts:
            return self.symbols.consts[expr.text]
        if expr.text in self.symbols.configs:
            type_ = self.symbols.config_types[expr.text]
            result = self.low.builder.value(type_.ir, expr.text)
            self.low.builder.emit(nodes.LoadConfig(result, expr.text, expr.span))
            return Number(type_, None, result)
        if expr.text == "now":
            result = self.low.builder.value(DURATION.ir, "now")
            self.low.builder.emit(nodes.Meta(result, "time", expr.span))
            return Number(DURATION, None, result)
        if expr.text in self.low.failed:
            return POISON
        if expr.text in self.symbols.spans:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.text}' is no value", expr.span, None,
                            [("declared here", self.symbols.spans[expr.text])])
        else:
            self.errors.unknown("value", expr.text, expr.span,
                                [*self.low.scope, *self.symbols.consts, *self.symbols.configs, "now"])
        return POISON

    def tuple_(self, expr: ast.TupleExpr) -> Typed:
        items = tuple((str(i), self.typed(e)) for i, e in enumerate(expr.items))
        return POISON if any(isinstance(v, Poison) for _, v in items) else Record(None, items)

    def member(self, expr: ast.Member) -> Typed:
        names: list[str] = []
        inner: ast.Expr = expr
        while isinstance(inner, ast.Member):
            names.insert(0, inner.name)
            inner = inner.base
        base = self.typed(inner)
        if isinstance(base, Packet):
            return self.packet_field(names, expr.span)
        if isinstance(base, Entry):
            return self.entry_field(base, names, expr.span)
        for name in names:
            if isinstance(base, Poison):
                return POISON
            found = base.item(name) if isinstance(base, Record) and base.type else None
            if found is None:
                self.no_field(base, name, expr.span)
                return POISON
            base = found
        return base

    def no_field(self, base: Typed, name: str, span: Span) -> None:
        if isinstance(base, Record) and base.type:
            self.errors.unknown(f"field of {base.type} called", name, span, [n for n, _ in base.type.fields])
        else:
            self.errors.add(Kind.TYPE_MISMATCH, f"a {type_name(base)} has no fields", span)

    # Packets.

    def packet_field(self, names: list[str], span: Span) -> Typed:
        if names == ["size"]:
            result = self.low.builder.value(uint(32).ir, "size")
            self.low.builder.emit(nodes.Meta(result, "size", span))
            return Number(uint(32), None, result)
        place = self.header_field(names, span)
        if place is None:
            return POISON
        header, name, type_ = place
        result = self.low.builder.value(type_.ir, name)
        self.low.builder.emit(nodes.Load(result, header, name, span))
        return Number(type_, None, result)

    def header_field(self, names: list[str], span: Span) -> tuple[str, str, Scalar] | None:
        """Resolve ``ip.src`` or ``quoted.l4.sport`` to a header instance that is known to be present, and a field."""
        if len(names) == 1:
            what = "a header" if names[0] in ("ip", "quoted", *HEADERS) else "no part of a packet"
            self.errors.add(Kind.TYPE_MISMATCH, f"'{names[0]}' is {what}, a field is needed here", span,
                            "write for example p.ipv4.src, p.l4.sport or p.quoted.ipv4.dst")
            return None
        header = self.header_named(names[:-1], span)
        if header is None:
            return None
        name = names[-1]
        found = field_of(header, name)
        if found is None:
            kind = header_type(header)
            known = [f.name for f in kind.fields if field_of(header, f.name)] if kind else []
            self.errors.unknown(f"field of {header} called", name, span, known)
            return None
        here = self.low.builder.here
        assert here is not None, "expressions are lowered where a way leads"
        if header not in here.headers:
            present = ", ".join(sorted(here.headers)) or "none"
            self.errors.add(Kind.HEADER_ABSENT, f"'{header}' is not known to be present here", span,
                            f"present: {present}; name it in the handler's pattern or test it with "
                            f"'if p is {header} {{ ... }}'")
            return None
        kind = header_type(header)
        assert kind is not None, "a field was found"
        type_ = FIELD_TYPES.get((kind.name, name)) or (BOOLEAN if found.bits == 1 else uint(found.bits))
        return header, name, type_

    def header_named(self, names: list[str], span: Span) -> str | None:
        """The header instance for written names; ``ip`` stands for the ipv4 or ipv6 that is present."""
        prefix = QUOTED if names[:1] == ["quoted"] else ""
        rest = names[1:] if prefix else names
        if len(rest) != 1:
            written = ".".join(names) or "this"
            self.errors.add(Kind.TYPE_MISMATCH, f"'{written}' is no header", span,
                            "write for example p.ipv4.src, p.l4.sport or p.quoted.ipv4.dst")
            return None
        name = rest[0]
        if name == "ip":
            here = self.low.builder.here
            known = here.headers if here else frozenset()
            name = "ipv6" if prefix + "ipv6" in known else "ipv4"
        if name not in HEADERS:
            self.errors.unknown("header", name, span, ["ip", *HEADERS])
            return None
        return prefix + name

    # Entries.

    def entry_field(self, entry: Entry, names: list[str], span: Span) -> Typed:
        here = self.low.builder.here
        assert here is not None, "expressions are lowered where a way leads"
        if entry.value.name in here.dead:
            self.errors.add(Kind.REFERENCE_ESCAPES, "this entry may have been deleted", span,
                            "read what you need before 'delete'")
            return POISON
        type_: LanguageType | None = dict(entry.table.fields).get(names[0])
        for name in names[1:]:
            type_ = dict(type_.fields).get(name) if isinstance(type_, Struct) else None
        if type_ is None:
            self.errors.unknown(f"field of {entry.table.name} called", ".".join(names), span,
                                [n for n, _ in entry.table.fields])
            return POISON
        return self.load_entry(entry, ".".join(names), type_, span)

    def entry_type(self, entry: Entry, names: list[str]) -> Scalar:
        """The language type of an entry's scalar field that is known to exist."""
        type_: LanguageType = dict(entry.table.fields)[names[0]]
        for name in names[1:]:
            assert isinstance(type_, Struct), "the flattened field exists"
            type_ = dict(type_.fields)[name]
        assert isinstance(type_, Scalar), "the flattened field exists"
        return type_

    def load_entry(self, entry: Entry, path: str, type_: LanguageType, span: Span) -> Typed:
        if isinstance(type_, Struct):
            return Record(type_, tuple((n, self.load_entry(entry, f"{path}.{n}", t, span)) for n, t in type_.fields))
        result = self.low.builder.value(type_.ir, path)
        self.low.builder.emit(nodes.LoadEntry(result, entry.value, path, span))
        return Number(type_, None, result)

    # Operators.

    def unary(self, expr: ast.UnaryExpr) -> Typed:
        inner = self.number(expr.operand, "the operand")
        if inner is None:
            return POISON
        bad = inner.type != BOOLEAN if expr.op == "!" else inner.type in (BOOLEAN, INTEGER)
        if bad:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.op}' does not take {inner.type}", expr.span)
            return POISON
        if inner.const is not None:
            return Number(inner.type, inner.type.limit - 1 - inner.const)
        result = self.low.builder.value(inner.type.ir)
        operand = self.low.builder.materialise(inner, expr.span)
        self.low.builder.emit(nodes.Unary(result, "not" if expr.op == "!" else "invert", operand, expr.span))
        return Number(inner.type, None, result)

    def binary(self, expr: ast.BinaryExpr) -> Typed:
        left, right = self.typed(expr.left), self.typed(expr.right)
        if isinstance(left, Poison) or isinstance(right, Poison):
            return POISON
        if isinstance(left, Record) and isinstance(right, Record) and expr.op in ("==", "!="):
            return self.compare_records(expr, left, right)
        if not isinstance(left, Number) or not isinstance(right, Number):
            self.errors.add(Kind.TYPE_MISMATCH,
                            f"'{expr.op}' between {type_name(left)} and {type_name(right)}", expr.span)
            return POISON
        return self.operate(expr.op, left, right, expr.span)

    def operate(self, op: str, left: Number, right: Number, span: Span) -> Typed:
        shift = op in ("<<", ">>") and left.type.number and right.type.number and right.type != DURATION
        type_ = left.type if shift else common_type(left, right, op)
        if type_ is None:
            self.mismatch(op, left, right, span)
            return POISON
        if left.const is not None and right.const is not None:
            return self.folded(op, left.const, right.const, type_, span)
        if fold(op, 0, 0, type_)[0] is None:
            hint = "convert it to a number first, for example u32(...)" if not type_.number else None
            self.errors.add(Kind.TYPE_MISMATCH, f"'{op}' does not take {type_}", span, hint)
            return POISON
        if type_ == INTEGER:
            type_ = left.type if right.type == INTEGER else right.type
        return self.emit_operator(op, left, right, type_, span)

    def emit_operator(self, op: str, left: Number, right: Number, type_: Scalar, span: Span) -> Number:
        build = self.low.builder
        a = build.materialise(Number(type_, left.const, left.value), span)
        b = build.materialise(self.shift_amount(right, type_, span), span)
        if op in _COMPARE:
            result = build.value(BOOLEAN.ir)
            build.emit(nodes.Compare(result, _COMPARE[op], a, b, span))
            return Number(BOOLEAN, None, result)
        result = build.value(type_.ir)
        build.emit(nodes.Binary(result, _BINARY[op], a, b, span))
        return Number(type_, None, result)

    def shift_amount(self, right: Number, type_: Scalar, span: Span) -> Number:
        """The right operand in the type of the left one (shift amounts may be of any width)."""
        if right.const is not None:
            return Number(type_, min(right.const, type_.limit - 1))
        if right.type == type_:
            return right
        result = self.low.builder.value(type_.ir)
        self.low.builder.emit(nodes.Cast(result, self.low.builder.materialise(right, span), span))
        return Number(type_, None, result)

    def folded(self, op: str, a: int, b: int, type_: Scalar, span: Span) -> Typed:
        value, is_bool = fold(op, a, b, type_)
        if value is None:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{op}' does not take {type_}", span)
            return POISON
        if abs(value) >= INTEGER.limit:
            self.errors.add(Kind.VALUE_RANGE, "this value does not fit in 128 bits", span)
            return POISON
        return Number(BOOLEAN if is_bool else type_, value)

    def mismatch(self, op: str, left: Number, right: Number, span: Span) -> None:
        self.errors.add(*mismatch(op, left, right, span))

    def compare_records(self, expr: ast.BinaryExpr, left: Record, right: Record) -> Typed:
        if left.type != right.type or len(left.items) != len(right.items):
            self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.op}' between {type_name(left)} and {type_name(right)}",
                            expr.span)
            return POISON
        result: Typed = Number(BOOLEAN, 1)
        for (_, a), (_, b) in zip(left.items, right.items, strict=True):
            if isinstance(a, Record) and isinstance(b, Record):
                part = self.compare_records(ast.BinaryExpr("==", expr.left, expr.right, expr.span), a, b)
            elif isinstance(a, Number) and isinstance(b, Number):
                part = self.operate("==", a, b, expr.span)
            else:
                return POISON
            if isinstance(part, Poison) or not isinstance(result, Number) or not isinstance(part, Number):
                return POISON
            result = part if result.const == 1 else self.operate("&&", result, part, expr.span)
        if expr.op == "==" or not isinstance(result, Number):
            return result
        negated = self.low.builder.value(BOOLEAN.ir)
        self.low.builder.emit(nodes.Unary(negated, "not", self.low.builder.materialise(result, expr.span), expr.span))
        return Number(BOOLEAN, None, negated)

    def choose(self, expr: ast.Choose, wanted: Scalar | None = None) -> Typed:
        condition = self.of_type(expr.condition, BOOLEAN, "the condition")
        yes, no = (self.number(e, "a choice", wanted) for e in (expr.if_true, expr.if_false))
        if wanted is not None and wanted.number and yes is not None and no is not None:
            yes, no = (self.coerce(n, wanted, e.span) if n.type == INTEGER else n
                       for n, e in ((yes, expr.if_true), (no, expr.if_false)))
        if condition is None or yes is None or no is None:
            return POISON
        type_ = common_type(yes, no)
        if type_ is None:
            self.mismatch("?:", yes, no, expr.span)
            return POISON
        if condition.const is not None:
            chosen = yes if condition.const else no
            return Number(type_, chosen.const, chosen.value)
        if type_ == INTEGER:
            if yes.const == no.const:
                return yes
            self.errors.add(Kind.TYPE_MISMATCH, "the type of these numbers is not known", expr.span,
                            "say it, for example u8(1)")
            return POISON
        build = self.low.builder
        if_true = build.materialise(Number(type_, yes.const, yes.value), expr.span)
        if_false = build.materialise(Number(type_, no.const, no.value), expr.span)
        result = build.value(type_.ir)
        build.emit(nodes.Select(result, build.materialise(condition, expr.span), if_true, if_false, expr.span))
        return Number(type_, None, result)

    # Calls: casts, min and max, structs, functions.

    def call(self, expr: ast.Call) -> Typed:
        cast = scalar_named(expr.name)
        if cast is not None:
            return self.cast(expr, cast)
        if expr.name in ("min", "max"):
            return self.extremum(expr)
        if expr.name in self.symbols.structs:
            return self.struct(expr, self.symbols.structs[expr.name])
        if expr.name in self.symbols.functions:
            return self.low.call(expr.name, expr.args, expr.span, wants_value=True)
        if expr.name not in self.low.failed:
            self.errors.unknown("function, struct or type", expr.name, expr.span,
                                [*self.symbols.functions, *self.symbols.structs, "min", "max"])
        return POISON

    def cast(self, expr: ast.Call, type_: Scalar) -> Typed:
        if len(expr.args) != 1:
            self.errors.add(Kind.TYPE_MISMATCH, f"a conversion to {type_} takes one value", expr.span)
            return POISON
        found = self.number(expr.args[0], "what is converted")
        if found is None:
            return POISON
        if found.const is not None:
            if found.type == INTEGER and type_ != BOOLEAN and found.const >= type_.limit:
                self.errors.add(Kind.VALUE_RANGE, f"{found.const} does not fit in {type_}", expr.span)
                return POISON
            return Number(type_, int(found.const != 0) if type_ == BOOLEAN else found.const % type_.limit)
        if found.type.ir == type_.ir:
            return Number(type_, None, found.value)
        result = self.low.builder.value(type_.ir)
        self.low.builder.emit(nodes.Cast(result, self.low.builder.materialise(found, expr.span), expr.span))
        return Number(type_, None, result)

    def extremum(self, expr: ast.Call) -> Typed:
        if len(expr.args) != 2:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.name}' takes two values", expr.span)
            return POISON
        return self.binary(ast.BinaryExpr(expr.name, expr.args[0], expr.args[1], expr.span))

    def struct(self, expr: ast.Call, type_: Struct) -> Typed:
        if len(expr.args) != len(type_.fields):
            names = ", ".join(f"{n}: {t}" for n, t in type_.fields)
            self.errors.add(Kind.TYPE_MISMATCH,
                            f"{type_} has {len(type_.fields)} fields, values given: {len(expr.args)}", expr.span,
                            f"{type_}({names})")
            return POISON
        items = []
        for arg, (name, wanted) in zip(expr.args, type_.fields, strict=True):
            items.append((name, self.to_language(self.typed(arg), wanted, arg.span)))
        return POISON if any(isinstance(v, Poison) for _, v in items) else Record(type_, tuple(items))


_EXPRESSIONS: dict[type, Callable[[Expressions, Any], Typed]] = {
    ast.LiteralExpr: Expressions.literal, ast.Name: Expressions.name, ast.TupleExpr: Expressions.tuple_,
    ast.Member: Expressions.member, ast.UnaryExpr: Expressions.unary, ast.BinaryExpr: Expressions.binary,
    ast.Choose: Expressions.choose, ast.Call: Expressions.call,
}
