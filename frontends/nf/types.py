"""Types of the language, and the typed values that lowering works with.

Scalar types are nominal: an ``ipv4`` is 32 bits wide in the IR but only compares with and assigns to another ``ipv4``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cora.ir.nodes import Value
from cora.ir.types import BOOL, Type, UInt


@dataclass(frozen=True)
class Scalar:
    """A named scalar type and its IR type. ``number`` types take arithmetic."""

    name: str
    ir: Type
    number: bool

    @property
    def limit(self) -> int:
        """One more than the largest value."""
        return 2 if self.ir == BOOL else 1 << getattr(self.ir, "bits", 0)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Struct:
    """A struct type: fields in order."""

    name: str
    fields: tuple[tuple[str, LanguageType], ...]

    def __str__(self) -> str:
        return self.name


LanguageType = Scalar | Struct

BOOLEAN = Scalar("bool", BOOL, number=False)
IPV4 = Scalar("ipv4", UInt(32), number=False)
IPV6 = Scalar("ipv6", UInt(128), number=False)
MAC = Scalar("mac", UInt(48), number=False)
DURATION = Scalar("duration", UInt(64), number=True)
# A literal whose width is not known yet: it takes the type of what it meets.
INTEGER = Scalar("integer", UInt(128), number=True)

_NAMED = {t.name: t for t in (BOOLEAN, IPV4, IPV6, MAC, DURATION)}


def uint(bits: int) -> Scalar:
    """The type ``u<bits>``."""
    return Scalar(f"u{bits}", UInt(bits), number=True)


def scalar_named(name: str) -> Scalar | None:
    """The built-in type of that name, if there is one: bool, u1 to u128, ipv4, ipv6, mac, duration."""
    if name in _NAMED:
        return _NAMED[name]
    if name[:1] == "u" and name[1:].isdigit() and 1 <= int(name[1:]) <= 128 and name == f"u{int(name[1:])}":
        return uint(int(name[1:]))
    return None


# What each header field is in the language, where it is more than a number.
FIELD_TYPES: dict[tuple[str, str], Scalar] = {
    ("eth", "dst"): MAC, ("eth", "src"): MAC, ("arp", "sha"): MAC, ("arp", "tha"): MAC, ("arp", "spa"): IPV4,
    ("arp", "tpa"): IPV4, ("ipv4", "src"): IPV4, ("ipv4", "dst"): IPV4, ("ipv6", "src"): IPV6, ("ipv6", "dst"): IPV6,
}


@dataclass(frozen=True)
class Number:
    """A scalar: a constant known now, or an IR value."""

    type: Scalar
    const: int | None = None
    value: Value | None = None


@dataclass(frozen=True)
class Record:
    """A struct value, field by field, or (``type`` None) a tuple."""

    type: Struct | None
    items: tuple[tuple[str, Typed], ...]

    def item(self, name: str) -> Typed | None:
        return next((v for n, v in self.items if n == name), None)


@dataclass(frozen=True)
class Entry:
    """A reference to a table entry; ``table`` is the table's symbol."""

    table: Any
    value: Value


@dataclass(frozen=True)
class Packet:
    """The packet being handled."""


@dataclass(frozen=True)
class Poison:
    """Stands for what could not be typed; everything made from it is silent."""


Typed = Number | Record | Entry | Packet | Poison
POISON = Poison()


def type_name(item: Typed) -> str:
    """How to call a value's type in a message."""
    match item:
        case Number():
            return str(item.type)
        case Record(type=None):
            return f"tuple of {len(item.items)}"
        case Record():
            return str(item.type)
        case Entry():
            return f"entry of {item.table.name}"
        case Packet():
            return "packet"
        case _:
            return "unknown"


def flatten(item: Typed) -> list[Number]:
    """The scalars of a value in order; poison and references have none."""
    if isinstance(item, Number):
        return [item]
    if isinstance(item, Record):
        return [n for _, v in item.items for n in flatten(v)]
    return []


def flatten_type(type_: LanguageType, prefix: str) -> list[tuple[str, Scalar]]:
    """The scalar fields of a type with dotted names below ``prefix``."""
    if isinstance(type_, Scalar):
        return [(prefix, type_)]
    return [pair for name, inner in type_.fields for pair in flatten_type(inner, f"{prefix}.{name}")]
