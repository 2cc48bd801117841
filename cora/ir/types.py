"""Types of IR values: booleans, unsigned integers of 1 to 128 bits, and references to table entries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bool:
    """True or false."""

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class UInt:
    """An unsigned integer of ``bits`` bits, 1 to 128; arithmetic wraps modulo 2**bits."""

    bits: int

    def __str__(self) -> str:
        return f"u{self.bits}"


@dataclass(frozen=True, slots=True)
class EntryRef:
    """A live entry of the named map, ACL or LPM table."""

    state: str

    def __str__(self) -> str:
        return f"ref {self.state}"


Type = Bool | UInt | EntryRef

BOOL = Bool()
U8 = UInt(8)
U16 = UInt(16)
U32 = UInt(32)
U48 = UInt(48)
U64 = UInt(64)
U128 = UInt(128)


def bits_of(type_: Type) -> int:
    """Width in bits of a value in a table entry or a punt header; references have none.

    Raises:
        TypeError: for an entry reference.
    """
    if isinstance(type_, EntryRef):
        raise TypeError("an entry reference has no width")
    return 1 if isinstance(type_, Bool) else type_.bits


def bytes_of(type_: Type) -> int:
    """Bytes that hold a value of this type: 1, 2, 4, 8 or 16."""
    width = bits_of(type_)
    for size in (1, 2, 4, 8):
        if width <= 8 * size:
            return size
    return 16
