"""Symbolic values: simplified expressions have the number that the IR's operators give, whatever the leaves are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cora.analysis.symbolic import Environment, Expr, Expressions, canonical, nodes_in, shown, spot_of, value_of

OPERATORS = ("add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr", "min", "max")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
WIDTH = 4

# Written here once more, from docs/language.md: wrapping, x / 0 = 0, x % 0 = x, long shifts give 0.
PLAIN: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: (a + b) % 16, "sub": lambda a, b: (a - b) % 16, "mul": lambda a, b: a * b % 16,
    "div": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else a,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: (a << b) % 16 if b < WIDTH else 0, "shr": lambda a, b: a >> b if b < WIDTH else 0,
    "min": min, "max": max,
    "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b), "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b), "gt": lambda a, b: int(a > b), "ge": lambda a, b: int(a >= b),
}


class Drawn:
    """An expression built twice: simplified, and as a function of the leaves' numbers."""

    def __init__(self, expr: Expr, plain: Callable[[dict[str, int]], int]) -> None:
        self.expr = expr
        self.plain = plain


def numbers(draw: st.DrawFn, make: Expressions, depth: int) -> Drawn:
    """A 4-bit value."""
    kind = draw(st.sampled_from(("const", "leaf") if depth == 0 else ("const", "leaf", "op", "op", "select", "invert")))
    if kind == "const":
        number = draw(st.integers(0, 15))
        return Drawn(make.const(number, WIDTH), lambda _: number)
    if kind == "leaf":
        name = draw(st.sampled_from("ab"))
        return Drawn(make.leaf("field", ("t", name), WIDTH), lambda v: v[name])
    left = numbers(draw, make, depth - 1)
    if kind == "invert":
        return Drawn(make.unary("invert", left.expr), lambda v: 15 - left.plain(v))
    right = numbers(draw, make, depth - 1)
    if kind == "select":
        condition = truths(draw, make, depth - 1)
        return Drawn(make.select(condition.expr, left.expr, right.expr),
                     lambda v: left.plain(v) if condition.plain(v) else right.plain(v))
    op = draw(st.sampled_from(OPERATORS))
    return Drawn(make.binary(op, left.expr, right.expr, WIDTH), lambda v: PLAIN[op](left.plain(v), right.plain(v)))


def truths(draw: st.DrawFn, make: Expressions, depth: int) -> Drawn:
    """A truth value."""
    kind = draw(st.sampled_from(("leaf", "compare") if depth == 0 else ("leaf", "compare", "and", "or", "xor", "not",
                                                                        "cast")))
    if kind == "leaf":
        return Drawn(make.leaf("field", ("t", "flag"), 1), lambda v: v["flag"])
    if kind == "compare":
        op = draw(st.sampled_from(COMPARISONS))
        left, right = (numbers(draw, make, max(0, depth - 1)) for _ in "12")
        return Drawn(make.compare(op, left.expr, right.expr), lambda v: PLAIN[op](left.plain(v), right.plain(v)))
    if kind == "cast":
        number = numbers(draw, make, depth - 1)
        return Drawn(make.cast(number.expr, 1, to_bool=True), lambda v: int(number.plain(v) != 0))
    first = truths(draw, make, depth - 1)
    if kind == "not":
        return Drawn(make.unary("not", first.expr), lambda v: 1 - first.plain(v))
    second = truths(draw, make, depth - 1)
    return Drawn(make.binary(kind, first.expr, second.expr, 1), lambda v: PLAIN[kind](first.plain(v), second.plain(v)))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_simplified_expressions_keep_their_number(data: st.DataObject) -> None:
    make = Expressions()
    drawn = data.draw(st.composite(lambda draw: numbers(draw, make, 4))())
    for a, b, flag in ((0, 0, 0), (15, 1, 1), (3, 12, 0), (7, 7, 1), (8, 2, 1)):
        values = {"a": a, "b": b, "flag": flag}
        found = value_of(drawn.expr, partial(lambda known, leaf: known[str(leaf.detail[1])], values))
        assert found == drawn.plain(values), shown(drawn.expr)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_substituting_numbers_gives_the_number(data: st.DataObject) -> None:
    make = Expressions()
    drawn = data.draw(st.composite(lambda draw: numbers(draw, make, 4))())
    values = {"a": 9, "b": 6, "flag": 1}
    known = {make.leaf("field", ("t", n), 1 if n == "flag" else WIDTH): make.const(v, 1 if n == "flag" else WIDTH)
             for n, v in values.items()}
    assert make.substitute(drawn.expr, known).constant == drawn.plain(values)


def test_equal_expressions_are_one() -> None:
    make = Expressions()
    a, b = (make.leaf("field", ("ipv4", n), 32) for n in ("src", "dst"))
    assert make.binary("add", a, b, 32) is make.binary("add", a, b, 32)
    assert make.binary("and", make.binary("and", a, make.const(0xFF, 32), 32), make.const(0x0F, 32), 32) \
        is make.binary("and", a, make.const(0x0F, 32), 32)


def test_shared_parts_do_not_multiply() -> None:
    """x + x, sixty times over: as a tree it would have 2^60 leaves."""
    make = Expressions()
    leaf = make.leaf("field", ("ipv4", "src"), 32)
    value = leaf
    for _ in range(60):
        value = make.binary("add", value, value, 32)
    assert value.leaves == {leaf}
    assert value_of(value, lambda _: 1) == 2**60 % 2**32
    assert make.substitute(value, {leaf: make.const(0, 32)}).constant == 0
    assert shown(value) == "a value computed from ipv4.src"
    assert len(list(nodes_in(value))) == 61


@pytest.mark.parametrize(("one", "other", "overlap"), [
    (("tcp", "sport"), ("udp", "sport"), True), (("tcp", "flags"), ("tcp", "syn"), True),
    (("tcp", "syn"), ("tcp", "fin"), False), (("icmp", "rest"), ("icmp", "id"), True),
    (("quoted.tcp", "sport"), ("tcp", "sport"), False), (("ipv4", "src"), ("ipv4", "dst"), False)])
def test_fields_that_lie_on_each_other(one: tuple[str, str], other: tuple[str, str], overlap: bool) -> None:
    first, second = spot_of(*one), spot_of(*other)
    assert first is not None
    assert second is not None
    assert first.overlaps(second) == overlap


def test_ports_have_one_name() -> None:
    assert canonical("tcp", "dport") == canonical("udp", "dport") == ("l4", "dport")
    assert canonical("quoted.udp", "sport") == ("quoted.l4", "sport")
    assert canonical("tcp", "seq") == ("tcp", "seq")


def test_two_headers_at_one_place_make_fields_uncertain() -> None:
    env = Environment(frozenset({0}))
    for header in ("eth", "ipv4", "tcp"):
        env.extracted(header)
    assert not env.confused
    env.extracted("udp")
    assert env.confused
