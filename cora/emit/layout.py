"""Packed rows: how configuration values and table entries cross the border between Python and compiled engines.

A row is a packed C structure in native byte order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cora.ir.nodes import MapState, MeterState, Program
from cora.ir.types import Type, bytes_of


@dataclass(frozen=True)
class RowField:
    """A field of a row: the IR's name, its place and size in bytes (1, 2, 4, 8 or 16)."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Row:
    """The fields of a row, without holes."""

    fields: tuple[RowField, ...]

    @property
    def size(self) -> int:
        return self.fields[-1].offset + self.fields[-1].size if self.fields else 0

    def pack(self, values: Mapping[str, int]) -> bytes:
        """The row of these values.

        Raises:
            KeyError: a field has no value. OverflowError: a value does not fit its field.
        """
        return b"".join(values[f.name].to_bytes(f.size, sys.byteorder) for f in self.fields)

    def unpack(self, data: bytes | memoryview, offset: int = 0) -> dict[str, int]:
        """The values of the row that starts at ``offset``."""
        return {f.name: int.from_bytes(data[offset + f.offset:offset + f.offset + f.size], sys.byteorder)
                for f in self.fields}


def row_of(fields: Iterable[tuple[str, int]]) -> Row:
    """A row of fields given by name and size."""
    out: list[RowField] = []
    offset = 0
    for name, size in fields:
        out.append(RowField(name, offset, size))
        offset += size
    return Row(tuple(out))


# Names no declared field can have: the bookkeeping of an entry.
LAST, CLASS, FIRST_CREDIT, SECOND_CREDIT = "#last", "#class", "#first", "#second"


def map_row(state: MapState) -> Row:
    """Rows of a map's dump: last use, number of the time-out class, then the fields in their order."""
    return row_of([(LAST, 8), (CLASS, 1), *_fields((f.name, f.type) for f in state.fields)])


def meter_row(state: MeterState) -> Row:
    """Rows of a meter's dump: last use, credits, then the key."""
    credits = [(FIRST_CREDIT, 16), (SECOND_CREDIT, 16)]
    return row_of([(LAST, 8), *credits, *_fields((f.name, f.type) for f in state.fields)])


def config_row(program: Program) -> Row:
    """The configuration values of a program in their order."""
    return row_of(_fields((c.name, c.type) for c in program.configs))


def _fields(declared: Iterable[tuple[str, Type]]) -> list[tuple[str, int]]:
    return [(name, bytes_of(type_)) for name, type_ in declared]
