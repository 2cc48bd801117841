"""Sizes of state: bytes of keys and entries, and of whole tables as hash tables, bitmaps or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.ir.nodes import (
    AclState,
    CounterState,
    Delete,
    FieldDecl,
    FragmentState,
    Insert,
    LpmState,
    MapState,
    MeterState,
    Police,
    PoolState,
    Program,
    State,
    StoreEntry,
    Touch,
)
from cora.ir.types import EntryRef, bytes_of

# Time of last use, and a lock with the time-out class: what any implementation keeps beside the fields.
STAMP_BYTES = 8
LOCK_BYTES = 8
# Two 64-bit buckets.
BUCKET_BYTES = 16
# A packet and an octet counter.
COUNTER_BYTES = 16
# Identity, received ranges, first eight L4 octets, times (docs/semantics.md, section 4).
FRAGMENT_BYTES = 192


@dataclass(frozen=True)
class Layout:
    """How a place lays out hash tables.

    Attributes:
        align: entries are rounded up to a multiple of this many bytes.
        index_bytes: bytes of one slot of a key's hash index; load: share of slots in use in a full table.
    """

    align: int
    index_bytes: int
    load: float


def fields_bytes(fields: Sequence[FieldDecl]) -> int:
    """Bytes of the fields, each in the smallest power of two that holds it."""
    return sum(bytes_of(f.type) for f in fields)


def key_bytes(state: State, key: str = "") -> int:
    """Bytes of one key; of the longest one when the state has several and none is named."""
    match state:
        case MapState():
            chosen = [k for k in state.keys if not key or k.name == key]
            return max(fields_bytes([f for f in state.fields if f.name in k.fields]) for k in chosen)
        case MeterState():
            return fields_bytes(state.fields)
        case AclState():
            return fields_bytes(state.keys)
        case LpmState():
            return bytes_of(state.key.type)
        case FragmentState():
            return 40
        case CounterState() | PoolState():
            return 4


def entry_bytes(state: State) -> int:
    """Bytes of one entry with its keys and what is kept beside them, unrounded."""
    match state:
        case MapState():
            return fields_bytes(state.fields) + STAMP_BYTES + LOCK_BYTES
        case MeterState():
            return fields_bytes(state.fields) + BUCKET_BYTES + STAMP_BYTES + LOCK_BYTES
        case AclState():
            # Value and mask, or low and high, per key field.
            return 2 * fields_bytes(state.keys) + fields_bytes(state.values) + 4
        case LpmState():
            return bytes_of(state.key.type) + fields_bytes(state.values) + 1
        case FragmentState():
            return FRAGMENT_BYTES
        case CounterState():
            return COUNTER_BYTES
        case PoolState():
            return 4


def table_bytes(state: State, layout: Layout) -> int:
    """Bytes of a state of its declared capacity.

    Hash tables: rounded entries and one index per key; pools: a bitmap and a ring of the values of the last dimension's
    positions; counters: arrays.
    """
    entry = _round_up(entry_bytes(state), layout.align)
    match state:
        case MapState():
            return state.capacity * entry + len(state.keys) * _index(state.capacity, layout)
        case MeterState() | LpmState():
            return state.capacity * entry + _index(state.capacity, layout)
        case FragmentState():
            return state.capacity * entry + _index(state.capacity, layout)
        case AclState():
            return state.capacity * entry
        case CounterState():
            return state.size * COUNTER_BYTES
        case PoolState():
            return -(-state.size // 8) + 4 * state.size


def _index(capacity: int, layout: Layout) -> int:
    return layout.index_bytes * (int(capacity / layout.load) + 1)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def capacity_of(state: State) -> int:
    """Entries a state is declared for."""
    return state.size if isinstance(state, PoolState | CounterState) else state.capacity


def writers(program: Program, state: State) -> tuple[Insert | Delete | Touch | StoreEntry | Police, ...]:
    """The nodes that write a map or a meter in the data path, in program order."""
    found: list[Insert | Delete | Touch | StoreEntry | Police] = []
    for block in program.blocks:
        for node in (*block.instructions, block.terminator):
            if isinstance(node, Insert | Police):
                found += [node] if node.state == state.name else []
            elif isinstance(node, Delete | Touch | StoreEntry):
                kind = node.entry.type
                found += [node] if isinstance(kind, EntryRef) and kind.state == state.name else []
    return tuple(found)
