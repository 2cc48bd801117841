"""Sizes of state: bytes of keys, and of whole tables as hash tables, bitmaps or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cora.analysis.accesses import entry_bytes
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

# A lock with the time-out class, or a rule's priority: what a table keeps beside an entry's own bytes.
HEAD_BYTES = 8


Writer = Insert | Delete | Touch | StoreEntry | Police


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


def table_bytes(state: State, layout: Layout) -> int:
    """Bytes of a state of its declared capacity.

    Hash tables: rounded entries and one index per key; pools: a bitmap and a ring of the values of the last dimension's
    positions; counters: arrays.
    """
    entry = _round_up(entry_bytes(state) + HEAD_BYTES, layout.align)
    match state:
        case MapState():
            return state.capacity * entry + len(state.keys) * _index(state.capacity, layout)
        case MeterState() | LpmState() | FragmentState():
            return state.capacity * entry + _index(state.capacity, layout)
        case AclState():
            return state.capacity * entry
        case CounterState():
            return state.size * entry_bytes(state)
        case PoolState():
            return -(-state.size // 8) + 4 * state.size


# Beside a lent entry: how many of its packets were handed to the owner and how many of those are done.
PUNT_COUNTS = 8


def lent_bytes(state: State, layout: Layout, entries: int) -> int:
    """Bytes of a near table for so many lent entries of a map or meter; a pool's values stay with its owner."""
    if not isinstance(state, MapState | MeterState):
        return 0
    return table_bytes(replace(state, capacity=entries), layout) + entries * PUNT_COUNTS


def _index(capacity: int, layout: Layout) -> int:
    return layout.index_bytes * (int(capacity / layout.load) + 1)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def writers(program: Program, state: State) -> tuple[Writer, ...]:
    """The nodes that write a map or a meter in the data path, in program order."""
    return _writers_by_state(program).get(state.name, ())


def is_read_only(program: Program, state: State) -> bool:
    """Whether packets never change a state: nothing writes it and its entries do not time out."""
    if isinstance(state, AclState | LpmState):
        return True
    return isinstance(state, MapState) and not state.timeouts and not writers(program, state)


# The program asked about last: targets ask about the states of one program many times.
_latest: list[tuple[Program, dict[str, tuple[Writer, ...]]]] = []


def _writers_by_state(program: Program) -> dict[str, tuple[Writer, ...]]:
    if not _latest or _latest[0][0] is not program:
        found: dict[str, list[Writer]] = {}
        for block in program.blocks:
            for node in (*block.instructions, block.terminator):
                if isinstance(node, Insert | Police):
                    found.setdefault(node.state, []).append(node)
                elif isinstance(node, Delete | Touch | StoreEntry) and isinstance(node.entry.type, EntryRef):
                    found.setdefault(node.entry.type.state, []).append(node)
        _latest[:] = [(program, {name: tuple(nodes) for name, nodes in found.items()})]
    return _latest[0][1]
