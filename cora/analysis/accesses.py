"""State accesses of IR nodes: which tables a node touches, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir.nodes import (
    AclState,
    Count,
    CounterState,
    Delete,
    FragmentState,
    Insert,
    Instruction,
    LoadEntry,
    Lookup,
    LpmState,
    MapState,
    MeterState,
    Police,
    PoolState,
    Program,
    State,
    StoreEntry,
    Terminator,
    Touch,
    TrackFragment,
    Value,
)
from cora.ir.types import EntryRef, bytes_of

# (state, kind); the kinds are those of `cora.models.target.Target.access`.
Access = tuple[str, str]
_ENTRY_KINDS: Mapping[type, str] = {LoadEntry: "load", StoreEntry: "store", Touch: "touch", Delete: "delete"}


@dataclass(frozen=True)
class AccessRates:
    """How a state is used, per second at the planned packet rate, and how many bytes of it are hot.

    Attributes:
        entry_bytes: bytes of one entry with its keys; entries: peak number of entries.
        working_set: bytes touched within a window.
        hottest: share of all accesses that go to the most used entry (0..1).
        updates: inserts + deletes + expiries per packet.
        popularity: (share of entries, share of accesses) points from the most used entry down, as in a profile; empty:
            all entries are used alike.
    """

    entry_bytes: int
    entries: int
    working_set: int
    hottest: float
    updates: float
    popularity: tuple[tuple[float, float], ...] = ()

    def head(self, share: float) -> float:
        """Share of the accesses that go to this share of the entries, the most used ones.

        Linear between the points of the curve, which makes it the share itself where all are used alike. It never
        falls, even where a scenario has raised the share of the hottest entry above the next point.
        """
        x0 = y0 = 0.0
        for x, told in (*self.popularity, (1.0, 1.0)):
            y = max(told, y0)
            if share <= x:
                return y0 + (y - y0) * (share - x0) / (x - x0) if x > x0 else y
            x0, y0 = x, y
        return 1.0


def accesses_of(program: Program, node: Instruction | Terminator) -> tuple[Access, ...]:
    """The accesses of one node. An insert or delete of a map also takes from or gives back to its pools."""
    match node:
        case LoadEntry() | StoreEntry() | Touch() | Delete():
            name = _state_of(node.entry)
            kind = _ENTRY_KINDS[type(node)]
            pools = _pools_of(program, name) if kind == "delete" else ()
            return ((name, kind), *((pool, "delete") for pool in pools))
        case Count():
            return ((node.counter, "count"),)
        case Lookup():
            return ((node.state, "lookup"),)
        case Insert():
            return ((node.state, "insert"), *((pool, "insert") for pool in _pools_of(program, node.state)))
        case Police():
            return ((node.state, "police"),)
        case TrackFragment():
            return ((node.state, "track"),)
        case _:
            return ()


def _state_of(entry: Value) -> str:
    assert isinstance(entry.type, EntryRef), "the verifier lets entry instructions take references only"
    return entry.type.state


def _pools_of(program: Program, name: str) -> tuple[str, ...]:
    state = program.state(name)
    return tuple(a.pool for a in state.allocs) if isinstance(state, MapState) else ()


def components_of(program: Program) -> dict[str, str]:
    """Per state the name of its component: maps and the pools they draw from are one, since an insert is atomic."""
    leader = {s.name: s.name for s in program.states}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for state in program.states:
        for pool in _pools_of(program, state.name):
            leader[find(pool)] = find(state.name)
    return {s.name: find(s.name) for s in program.states}


# Bytes beside the declared fields that the language's meaning needs; what a target's table adds is its own affair.
_LAST_USE = 8
_BUCKETS = {"token_bucket": 8, "srtcm": 16, "trtcm": 16}
_COUNTER = 16
_POOL_INDEX = 4
# Identity of an IPv6 datagram, 16 ranges of two 16-bit bounds, first 8 octets, known end and state, age.
_DATAGRAM = 40 + 64 + 8 + 4 + 8


def entry_bytes(state: State) -> int:
    """Bytes of one entry with its keys: a pair map stores its second key again, a ternary rule value and mask."""
    match state:
        case MapState():
            fields = {f.name: bytes_of(f.type) for f in state.fields}
            return sum(fields.values()) + sum(fields[n] for k in state.keys[1:] for n in k.fields) + _LAST_USE
        case MeterState():
            return sum(bytes_of(f.type) for f in state.fields) + _BUCKETS[state.algorithm] + _LAST_USE
        case AclState():
            return 2 * sum(bytes_of(f.type) for f in state.keys) + sum(bytes_of(f.type) for f in state.values)
        case LpmState():
            return bytes_of(state.key.type) + 1 + sum(bytes_of(f.type) for f in state.values)
        case CounterState():
            return _COUNTER
        case PoolState():
            return _POOL_INDEX
        case FragmentState():
            return _DATAGRAM


def capacity_of(state: State) -> int:
    """Declared number of entries."""
    match state:
        case CounterState() | PoolState():
            return state.size
        case _:
            return state.capacity


STATE_KINDS: Mapping[type, str] = {MapState: "map", PoolState: "pool", MeterState: "meter", CounterState: "counter",
                                   AclState: "acl", LpmState: "lpm", FragmentState: "fragments"}
