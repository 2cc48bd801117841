"""Constant expressions: sizes, time-outs, ranges and table entries are known when the program is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cora.errors import CoraError, Diagnostic, Kind
from cora.frontends.nf import ast
from cora.frontends.nf.types import BOOLEAN, DURATION, INTEGER, IPV4, IPV6, MAC, Number, Scalar, scalar_named
from cora.ir.span import Span

if TYPE_CHECKING:
    from cora.frontends.nf.declare import Errors, Symbols

LITERAL_TYPES = {"int": INTEGER, "bool": BOOLEAN, "ipv4": IPV4, "ipv6": IPV6, "mac": MAC, "duration": DURATION,
                 "quantity": INTEGER}


class Constants:
    """Evaluates constant expressions over the names declared so far."""

    def __init__(self, symbols: Symbols, errors: Errors) -> None:
        self.symbols = symbols
        self.errors = errors
        # Names whose declaration was wrong: uses of them are not reported again.
        self.failed: set[str] = set()

    def of_type(self, expr: ast.Expr, type_: Scalar) -> int | None:
        """The value of an expression that must be of a type, or None after an error."""
        found = self.number(expr)
        if found is None:
            return None
        assert found.const is not None, "constants are known"
        if found.type not in (type_, INTEGER):
            self.errors.add(Kind.TYPE_MISMATCH, f"expected {type_}, found {found.type}", expr.span)
            return None
        if found.type == INTEGER and not type_.number:
            self.errors.add(Kind.TYPE_MISMATCH, f"expected {type_}, found a number", expr.span)
            return None
        if found.type == INTEGER and type_ == DURATION and found.const:
            self.errors.add(Kind.TYPE_MISMATCH, "a duration needs a unit", expr.span, "for example 30s or 10ms")
            return None
        if not 0 <= found.const < type_.limit:
            self.errors.add(Kind.VALUE_RANGE, f"{found.const} does not fit in {type_}", expr.span)
            return None
        return found.const

    def plain(self, expr: ast.Expr, what: str) -> int | None:
        """The value of a count, size or rate."""
        found = self.number(expr)
        if found is None:
            return None
        if not found.type.number or found.type == DURATION:
            self.errors.add(Kind.TYPE_MISMATCH, f"{what} is a number, found {found.type}", expr.span)
            return None
        return found.const

    def number(self, expr: ast.Expr) -> Number | None:
        """The typed value of an expression, or None after an error."""
        match expr:
            case ast.LiteralExpr(kind=kind) if kind in LITERAL_TYPES:
                return Number(LITERAL_TYPES[kind], expr.value)
            case ast.Name():
                return self.name(expr)
            case ast.UnaryExpr():
                inner = self.number(expr.operand)
                return None if inner is None else self.unary(expr, inner)
            case ast.BinaryExpr():
                left, right = self.number(expr.left), self.number(expr.right)
                return None if left is None or right is None else self.binary(expr, left, right)
            case ast.Choose():
                return self.choose(expr)
            case ast.Call():
                return self.call(expr)
            case _:
                self.errors.add(Kind.NOT_CONSTANT, "this must be a constant", expr.span,
                                "use a literal, a const or a config")
                return None

    def name(self, expr: ast.Name) -> Number | None:
        if expr.text in self.symbols.consts:
            return self.symbols.consts[expr.text]
        if expr.text in self.symbols.configs:
            return Number(self.symbols.config_types[expr.text], self.symbols.configs[expr.text].value)
        if expr.text in self.failed:
            return None
        if expr.text in self.symbols.spans:
            self.errors.add(Kind.NOT_CONSTANT, f"'{expr.text}' is no constant", expr.span,
                            "use a literal, a const or a config")
        else:
            self.errors.unknown("const or config", expr.text, expr.span, [*self.symbols.consts, *self.symbols.configs])
        return None

    def unary(self, expr: ast.UnaryExpr, inner: Number) -> Number | None:
        assert inner.const is not None, "constants are known"
        if expr.op == "!" and inner.type == BOOLEAN:
            return Number(BOOLEAN, 1 - inner.const)
        if expr.op == "~" and inner.type not in (BOOLEAN, INTEGER):
            return Number(inner.type, inner.type.limit - 1 - inner.const)
        self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.op}' does not take {inner.type}", expr.span)
        return None

    def binary(self, expr: ast.BinaryExpr, left: Number, right: Number) -> Number | None:
        shift = expr.op in ("<<", ">>") and left.type.number and right.type.number and right.type != DURATION
        type_ = left.type if shift else common_type(left, right, expr.op)
        if type_ is None:
            self.errors.add(*mismatch(expr.op, left, right, expr.span))
            return None
        assert left.const is not None and right.const is not None, "constants are known"
        value, is_bool = fold(expr.op, left.const, right.const, type_)
        if value is None:
            self.errors.add(Kind.TYPE_MISMATCH, f"'{expr.op}' does not take {type_}", expr.span)
            return None
        if abs(value) >= INTEGER.limit:
            self.errors.add(Kind.VALUE_RANGE, "this value does not fit in 128 bits", expr.span)
            return None
        return Number(BOOLEAN if is_bool else type_, value)

    def choose(self, expr: ast.Choose) -> Number | None:
        parts = [self.number(e) for e in (expr.condition, expr.if_true, expr.if_false)]
        if any(p is None for p in parts):
            return None
        condition, yes, no = (p for p in parts if p is not None)
        if condition.type != BOOLEAN or common_type(yes, no) is None:
            self.errors.add(Kind.TYPE_MISMATCH, "a choice needs a bool and two values of one type", expr.span)
            return None
        return yes if condition.const else no

    def call(self, expr: ast.Call) -> Number | None:
        args = [self.number(a) for a in expr.args]
        if any(a is None for a in args):
            return None
        known = [a for a in args if a is not None]
        cast = scalar_named(expr.name)
        if cast is not None and len(known) == 1:
            assert known[0].const is not None, "constants are known"
            return Number(cast, int(known[0].const != 0) if cast == BOOLEAN else known[0].const % cast.limit)
        if expr.name in ("min", "max") and len(known) == 2:
            return self.binary(ast.BinaryExpr(expr.name, expr.args[0], expr.args[1], expr.span), known[0], known[1])
        self.errors.add(Kind.NOT_CONSTANT, "this must be a constant, calls are not", expr.span)
        return None

    def override(self, item: ast.ConfigDecl, type_: Scalar, text: str) -> int | None:
        """A config's value given from outside as text."""
        from cora.frontends.nf.parser import parse_expression

        before = len(self.errors.found)
        try:
            value = self.of_type(parse_expression(text, "--set"), type_)
        except CoraError:
            value = None
        if value is None:
            del self.errors.found[before:]
            self.errors.found.append(Diagnostic(
                Kind.BAD_OVERRIDE, f"'{text}' is no value of config '{item.name}', which is {type_}",
                where=f"--set {item.name}", notes=(("the config", item.span),)))
        return value


def common_type(left: Number, right: Number, op: str = "") -> Scalar | None:
    """The type two operands agree on; a literal takes the other's type, a duration's only to scale it or as 0."""
    if left.type == right.type:
        return left.type
    if left.type == INTEGER and right.type.number and fits(left, right.type, op):
        return right.type
    if right.type == INTEGER and left.type.number and fits(right, left.type, op):
        return left.type
    return None


def fits(number: Number, type_: Scalar, op: str = "") -> bool:
    """Whether a literal can be an operand of a type; a duration is scaled by any and takes only 0 without a unit."""
    assert number.const is not None, "a literal is known"
    if type_ == DURATION and number.const and op not in ("*", "/", "%"):
        return False
    return 0 <= number.const < type_.limit


def mismatch(op: str, left: Number, right: Number, span: Span) -> tuple[Kind, str, Span, str | None]:
    """The error of an operator between two operands that do not fit: kind, message, place, hint."""
    for literal, other in ((left, right), (right, left)):
        if literal.type == INTEGER and other.type.number and literal.const is not None:
            if other.type == DURATION:
                return Kind.TYPE_MISMATCH, "a duration needs a unit", span, "for example 30s or 10ms"
            return Kind.VALUE_RANGE, f"{literal.const} does not fit in {other.type}", span, None
    message = f"'{op}' between {left.type} and {right.type}"
    hint = None
    if left.type.number and right.type.number:
        hint = f"convert one side, for example {left.type}(...)"
    elif op in ("&&", "||"):
        hint = "it takes two bools: compare numbers first, for example x != 0"
    elif left.type.number or right.type.number:
        convert = right.type if left.type.number else left.type
        hint = f"convert the {convert} first, for example u{getattr(convert.ir, 'bits', 8)}(...)"
    return Kind.TYPE_MISMATCH, message, span, hint


def fold(op: str, a: int, b: int, type_: Scalar) -> tuple[int | None, bool]:
    """The value of an operator on constants (None when the type does not take it), and whether it is a bool."""
    comparisons = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    if op in comparisons:
        return (None, True) if type_ == BOOLEAN and op not in ("==", "!=") else (int(comparisons[op]), True)
    if op in ("&&", "||"):
        value = (a and b) if op == "&&" else (a or b)
        return (int(bool(value)), True) if type_ == BOOLEAN else (None, True)
    if op in ("min", "max") and type_ == BOOLEAN:
        return None, False
    bitwise = {"&": a & b, "|": a | b, "^": a ^ b, "min": min(a, b), "max": max(a, b)}
    if op in bitwise:
        return bitwise[op], False
    if not type_.number:
        return None, False
    value = _arithmetic(op, a, b)
    # A literal is only wrapped once it has a type; a negative one never fits.
    return (value if type_ == INTEGER else value % type_.limit), False


def _arithmetic(op: str, a: int, b: int) -> int:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // b if b else 0
        case "%":
            return a % b if b else a
        case "<<":
            return a << min(b, 256)
        case _:
            return a >> min(b, 256)
