"""C names, types and literals for the things of a program."""

from __future__ import annotations

import re

from cora.ir.nodes import Program, Value
from cora.ir.types import Bool, EntryRef, Type, bits_of, bytes_of

_UNSIGNED = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "cora_u128"}


def value_type(type_: Type) -> str:
    """The C type that holds a value; entry references are left to the dialect.

    Raises:
        TypeError: for an entry reference.
    """
    return "bool" if isinstance(type_, Bool) else _UNSIGNED[bytes_of(type_)]


def mask_of(type_: Type) -> int:
    """The largest value of an integer or bool type."""
    return (1 << bits_of(type_)) - 1


def fills_container(type_: Type) -> bool:
    """Whether the C type has no more bits than the value, so that it wraps by itself."""
    return not isinstance(type_, Bool | EntryRef) and bits_of(type_) == 8 * bytes_of(type_)


def literal(value: int, type_: Type) -> str:
    """A C constant of a type at least as wide as ``type_``, so that arithmetic on it does not lose bits."""
    if isinstance(type_, Bool):
        return "true" if value else "false"
    size = bytes_of(type_)
    if size == 16:
        low, high = value & (1 << 64) - 1, value >> 64
        return f"((cora_u128){high:#x}u << 64 | {low:#x}u)" if high else f"(cora_u128){low}u"
    suffix = "ull" if size == 8 else "u"
    return f"{value:#x}{suffix}" if value > 0xFFFF else f"{value}{suffix}"


class Names:
    """Gives every block, value, field, state and configuration value of a program a C identifier of its own.

    Names keep the IR's spelling behind a prefix by kind, so they meet neither keywords nor the runtime's names.
    """

    def __init__(self, program: Program) -> None:
        """Take the names of states first: generated functions are built from them."""
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        for state in program.states:
            self.state(state.name)

    def _name(self, prefix: str, name: str) -> str:
        found = self._given.get((prefix, name))
        if found is None:
            base = candidate = prefix + re.sub(r"\W", "_", name, flags=re.ASCII)
            number = 2
            while candidate in self._taken:
                candidate, number = f"{base}_{number}", number + 1
            self._taken.add(candidate)
            found = self._given[prefix, name] = candidate
        return found

    def state(self, name: str) -> str:
        return self._name("t_", name)

    def config(self, name: str) -> str:
        return self._name("c_", name)

    def value(self, value: Value) -> str:
        return self._name("v_", value.name)

    def block(self, label: str) -> str:
        return self._name("b_", label)

    def field(self, name: str) -> str:
        """A field's name; the same wherever the field's name is the same."""
        return self._name("f_", name)


def comment(text: str) -> str:
    """Text that is safe inside a C comment and on one line."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\n", " ")
