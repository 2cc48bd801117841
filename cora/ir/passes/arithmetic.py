"""The operators of the IR on known numbers."""

from __future__ import annotations

from collections.abc import Callable

from cora.ir.types import BOOL, Type, bits_of

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}

_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else a,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "min": min, "max": max}


def binary(op: str, left: int, right: int, type_: Type) -> int:
    """Wrapping arithmetic in the width of ``type_``; division by 0 gives 0, x mod 0 = x, long shifts give 0."""
    bits = bits_of(type_)
    if op in ("shl", "shr"):
        if right >= bits:
            return 0
        return (left << right if op == "shl" else left >> right) & ((1 << bits) - 1)
    return _BINARY[op](left, right) & ((1 << bits) - 1)


def compare(op: str, left: int, right: int) -> int:
    """1 when the unsigned comparison holds, else 0."""
    return int(_COMPARE[op](left, right))


def invert(operand: int, type_: Type) -> int:
    """All bits flipped."""
    return operand ^ ((1 << bits_of(type_)) - 1)


def cast(operand: int, type_: Type) -> int:
    """Cut or extended with zeros; to a bool: whether it is not 0."""
    return int(operand != 0) if type_ == BOOL else operand & ((1 << bits_of(type_)) - 1)
