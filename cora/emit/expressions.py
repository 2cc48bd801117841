"""C for the pure instructions: unsigned wrapping arithmetic without undefined behaviour and without warnings."""

from __future__ import annotations

import operator
from collections.abc import Callable

from cora.emit.names import fills_container, literal, mask_of, value_type
from cora.ir.nodes import Binary, Cast, Compare, Select, Unary, Value
from cora.ir.types import BOOL, Bool, bits_of, bytes_of

Render = Callable[[Value], str]
Known = Callable[[Value], int | None]

_C_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_C_BINARY = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
_PYTHON_COMPARE = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
                   "ge": operator.ge}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def unary(node: Unary, render: Render) -> str:
    operand = render(node.operand)
    if node.op == "not":
        return f"!{operand}"
    return _wrapped(f"~{operand}", node.result)


def binary(node: Binary, render: Render, known: Known) -> str:
    """The result, wrapped to its type."""
    if isinstance(node.result.type, Bool):
        return f"{render(node.left)} {_C_BINARY[node.op]} {render(node.right)}"
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, render, known)
    left = _widened(node.left, render) if node.op == "mul" else render(node.left)
    text = f"{left} {_C_BINARY[node.op]} {render(node.right)}"
    return text if node.op in ("and", "or", "xor") else _wrapped(text, node.result)


def compare(node: Compare, render: Render, known: Known) -> str:
    """A comparison, decided here where the C compiler would warn that it never changes."""
    decided = _decided(node, known)
    if render(node.left) == render(node.right):
        decided = int(node.op in ("eq", "le", "ge"))
    if decided is not None:
        return literal(decided, BOOL)
    return f"{render(node.left)} {_C_COMPARE[node.op]} {render(node.right)}"


def cast(node: Cast, render: Render) -> str:
    source, target = node.operand.type, node.result.type
    if isinstance(target, Bool):
        return render(node.operand) if isinstance(source, Bool) else f"{render(node.operand)} != 0"
    if isinstance(source, Bool) or bits_of(target) >= bits_of(source):
        return render(node.operand)
    kept = _wrapped(render(node.operand), node.result)
    return f"({value_type(target)})({kept})" if bytes_of(source) > bytes_of(target) >= 4 else kept


def select(node: Select, render: Render) -> str:
    return f"{render(node.condition)} ? {render(node.if_true)} : {render(node.if_false)}"


def _wrapped(text: str, result: Value) -> str:
    """Reduces a C expression to the bits of the result's type."""
    if not fills_container(result.type):
        return f"({text}) & {literal(mask_of(result.type), result.type)}"
    return f"({value_type(result.type)})({text})" if bytes_of(result.type) < 4 else text


def _widened(value: Value, render: Render) -> str:
    """A left operand whose C arithmetic is unsigned: the integer promotions would make a short one signed."""
    size = bytes_of(value.type)
    return f"(uint32_t){render(value)}" if size < 4 else render(value)


def _decided(node: Compare, known: Known) -> int | None:
    """The result where it does not depend on what the operands are at run time."""
    left, right = known(node.left), known(node.right)
    if left is not None and right is not None:
        return int(_PYTHON_COMPARE[node.op](left, right))
    if right is not None:
        return _at_the_edge(node.op, right, mask_of(node.left.type))
    if left is not None:
        return _at_the_edge(_MIRRORED[node.op], left, mask_of(node.right.type))
    return None


def _at_the_edge(op: str, right: int, largest: int) -> int | None:
    if right == 0 and op in ("lt", "ge"):
        return int(op == "ge")
    if right == largest and op in ("gt", "le"):
        return int(op == "le")
    return None


def _divide(node: Binary, render: Render, known: Known) -> str:
    left, right, divisor = render(node.left), render(node.right), known(node.right)
    sign, otherwise = ("/", literal(0, node.result.type)) if node.op == "div" else ("%", left)
    if divisor is not None:
        return f"{left} {sign} {right}" if divisor else otherwise
    return f"{right} ? {left} {sign} {right} : {otherwise}"


def _shift(node: Binary, render: Render, known: Known) -> str:
    width, count = bits_of(node.result.type), known(node.right)
    sign = "<<" if node.op == "shl" else ">>"
    shifted = f"{_widened(node.left, render)} {sign} {render(node.right)}"
    shifted = _wrapped(shifted, node.result) if node.op == "shl" else shifted
    zero = literal(0, node.result.type)
    if count is not None:
        return shifted if count < width else zero
    if mask_of(node.right.type) < width:
        return shifted
    return f"{render(node.right)} < {literal(width, node.right.type)} ? {shifted} : {zero}"


def _extreme(node: Binary, render: Render, known: Known) -> str:
    left, right = render(node.left), render(node.right)
    limit = {"min": (0, mask_of(node.result.type)), "max": (mask_of(node.result.type), 0)}[node.op]
    for value, other in ((node.left, right), (node.right, left)):
        if known(value) == limit[0]:
            return render(value)
        if known(value) == limit[1] or left == right:
            return other
    return f"{left} {'<' if node.op == 'min' else '>'} {right} ? {left} : {right}"


_SPECIAL: dict[str, Callable[[Binary, Render, Known], str]] = {
    "div": _divide, "mod": _divide, "shl": _shift, "shr": _shift, "min": _extreme, "max": _extreme,
}
