"""State dumps from the packed rows of a compiled engine, and back."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from cora.emit.layout import CLASS, FIRST_CREDIT, LAST, SECOND_CREDIT, Row, map_row, meter_row
from cora.engine.results import StateDump
from cora.errors import Kind, fail
from cora.ir.nodes import CounterState, FragmentState, MapState, MeterState, PoolState, Program, State

# struct cora_datagram_row of fragment.h: source, destination, id, family, proto, state, range count, made, end, held
# count, then 16 ranges.
_DATAGRAM = struct.Struct("=16s16sIBBBBQiI32I")
_DATAGRAM_STATES = ("waiting", "open", "condemned")


def dump_of_rows(program: Program, rows: list[bytes]) -> StateDump:
    """The canonical dump; ``rows`` has one item for each state of the program, in order."""
    out: StateDump = {}
    for state, data in zip(program.states, rows, strict=True):
        decode = _DECODERS.get(type(state))
        if decode is not None:
            out[state.name] = decode(state, data)
    return out


def _row_values(row: Row, data: bytes) -> list[dict[str, int]]:
    return [row.unpack(data, offset) for offset in range(0, len(data), row.size)]


def _map(state: MapState, data: bytes) -> dict[str, object]:
    primary = state.keys[0].fields
    rows = sorted(_row_values(map_row(state), data), key=lambda r: [r[f] for f in primary])
    names = [f.name for f in state.fields]
    classes = [t.name for t in state.timeouts] or [""]
    return {"kind": "map", "entries": [
        {"fields": {n: r[n] for n in names}, "timeout": classes[r[CLASS]], "last": r[LAST]} for r in rows]}


def _meter(state: MeterState, data: bytes) -> dict[str, object]:
    names = [f.name for f in state.fields]
    rows = sorted(_row_values(meter_row(state), data), key=lambda r: [r[n] for n in names])
    credits = [FIRST_CREDIT] if state.algorithm == "token_bucket" else [FIRST_CREDIT, SECOND_CREDIT]
    return {"kind": "meter", "entries": [
        {"key": {n: r[n] for n in names}, "credits": [r[c] for c in credits], "last": r[LAST]} for r in rows]}


def _pool(state: PoolState, data: bytes) -> dict[str, object]:
    (position,) = struct.unpack_from("=Q", data)
    used: list[int] = []
    for offset in range(8, len(data), 8):
        (word,) = struct.unpack_from("=Q", data, offset)
        while word:
            bit = (word & -word).bit_length() - 1
            used.append((offset - 8) * 8 + bit)
            word &= word - 1
    return {"kind": "pool", "used": used, "next": position}


def _counter(state: CounterState, data: bytes) -> dict[str, object]:
    numbers = struct.unpack(f"={2 * state.size}Q", data)
    return {"kind": "counter", "values": [[numbers[i], numbers[i + 1]] for i in range(0, len(numbers), 2)]}


def _fragments(state: FragmentState, data: bytes) -> dict[str, object]:
    """Rows, then the packet numbers of all held fragments; the number of rows follows from what they hold."""
    rows, offset, held_total = [], 0, 0
    while offset + 8 * held_total < len(data):
        rows.append(_DATAGRAM.unpack_from(data, offset))
        offset += _DATAGRAM.size
        held_total += rows[-1][9]
    numbers = struct.unpack_from(f"={held_total}Q", data, offset)
    datagrams, first = [], 0
    for row in rows:
        datagrams.append(_datagram(row, list(numbers[first:first + row[9]])))
        first += row[9]
    return {"kind": "fragment", "datagrams": sorted(datagrams, key=lambda d: cast(list[int], d["key"]))}


def _datagram(row: tuple[Any, ...], held: list[int]) -> dict[str, object]:
    source, destination, id_, family, proto, state, count, made, end = row[:9]
    size = 4 if family == 4 else 16
    key = [family, int.from_bytes(source[:size], "big"), int.from_bytes(destination[:size], "big"), proto, id_]
    ranges = [[row[10 + 2 * i], row[11 + 2 * i]] for i in range(count)]
    return {"key": key, "state": _DATAGRAM_STATES[state], "made": made, "ranges": ranges, "end": end, "held": held}


_DECODERS: dict[type[State], Callable[[Any, bytes], dict[str, object]]] = {
    MapState: _map, MeterState: _meter, PoolState: _pool, CounterState: _counter, FragmentState: _fragments,
}


def rows_of_dump(program: Program, dump: StateDump) -> list[bytes]:
    """Rows that make the states of a dump; states that are not in it come out empty.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` where the dump does not fit the program.
    """
    known = {s.name for s in program.states if type(s) in _DECODERS}
    if dump.keys() - known:
        raise fail(Kind.ENGINE_LIMIT, f"the dump has states the program has not: {sorted(dump.keys() - known)}",
                   span=program.span, hint="load a dump of the same program")
    return [_encode(s, dump[s.name]) if s.name in dump else _empty(s) for s in program.states]


def _empty(state: State) -> bytes:
    if isinstance(state, PoolState):
        return bytes(8 + (state.size + 63) // 64 * 8)
    return bytes(16 * state.size) if isinstance(state, CounterState) else b""


def _encode(state: State, dumped: Mapping[str, Any]) -> bytes:
    try:
        return _ENCODERS[type(state)](state, dumped)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, struct.error) as error:
        raise fail(Kind.ENGINE_LIMIT, f"the dump of {state.name} does not fit its declaration: {error!r}",
                   span=state.span, hint="load a dump of the same program") from error


def _encode_map(state: MapState, dumped: Mapping[str, Any]) -> bytes:
    row, classes = map_row(state), [t.name for t in state.timeouts] or [""]
    entries = sorted(dumped["entries"], key=lambda e: e["last"])
    return b"".join(row.pack({LAST: e["last"], CLASS: classes.index(e["timeout"]), **e["fields"]}) for e in entries)


def _encode_meter(state: MeterState, dumped: Mapping[str, Any]) -> bytes:
    row = meter_row(state)
    entries = sorted(dumped["entries"], key=lambda e: e["last"])
    return b"".join(row.pack({LAST: e["last"], FIRST_CREDIT: e["credits"][0],
                              SECOND_CREDIT: e["credits"][1] if len(e["credits"]) > 1 else 0, **e["key"]})
                    for e in entries)


def _encode_pool(state: PoolState, dumped: Mapping[str, Any]) -> bytes:
    words = [0] * ((state.size + 63) // 64)
    for index in dumped["used"]:
        if not 0 <= index < state.size:
            raise ValueError(f"value {index} is not in the pool")
        words[index // 64] |= 1 << index % 64
    return struct.pack(f"={1 + len(words)}Q", dumped["next"], *words)


def _encode_counter(state: CounterState, dumped: Mapping[str, Any]) -> bytes:
    if len(dumped["values"]) != state.size:
        raise ValueError(f"{len(dumped['values'])} counters instead of {state.size}")
    return b"".join(n.to_bytes(8, sys.byteorder) for pair in dumped["values"] for n in pair)


def _encode_fragments(state: FragmentState, dumped: Mapping[str, Any]) -> bytes:
    if dumped["datagrams"]:
        raise ValueError("datagrams cannot be loaded: a dump has no bytes of their fragments")
    return b""


_ENCODERS: dict[type[State], Callable[[Any, Mapping[str, Any]], bytes]] = {
    MapState: _encode_map, MeterState: _encode_meter, PoolState: _encode_pool, CounterState: _encode_counter,
    FragmentState: _encode_fragments,
}
