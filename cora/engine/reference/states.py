"""All changing state of a running program: made empty, expired, dumped, and restored from a dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cora.engine.reference.fragments import MAX_RANGES, Datagram, Tracker
from cora.engine.reference.tables import (
    AclTable,
    Buckets,
    CounterTable,
    Entry,
    LpmTable,
    MapTable,
    MeterTable,
    PoolTable,
)
from cora.engine.results import StateDump
from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import (
    AclState,
    CounterState,
    FieldDecl,
    FragmentState,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    Program,
)
from cora.ir.types import bits_of

U64 = 1 << 64
# Times of any capture lie below this (the year 2262); above, adding a time-out could wrap.
TIME_LIMIT = 1 << 63


class States:
    """The state of one program, by name and kind."""

    def __init__(self, program: Program) -> None:
        """Everything empty, every pool value free."""
        self.pools = {s.name: PoolTable(s) for s in program.states if isinstance(s, PoolState)}
        self.maps = {s.name: MapTable(s, self.pools) for s in program.states if isinstance(s, MapState)}
        self.meters = {s.name: MeterTable(s) for s in program.states if isinstance(s, MeterState)}
        self.counters = {s.name: CounterTable(s) for s in program.states if isinstance(s, CounterState)}
        self.trackers = {s.name: Tracker(s) for s in program.states if isinstance(s, FragmentState)}
        self.lookups: dict[str, MapTable | AclTable | LpmTable] = {
            **self.maps,
            **{s.name: AclTable(s) for s in program.states if isinstance(s, AclState)},
            **{s.name: LpmTable(s) for s in program.states if isinstance(s, LpmState)},
        }
        self._changing: dict[str, PoolTable | MapTable | MeterTable | CounterTable | Tracker] = {
            **self.pools, **self.maps, **self.meters, **self.counters, **self.trackers}

    def expire(self, now: int) -> None:
        """Remove the map and meter entries that are due."""
        for table in self.maps.values():
            table.expire(now)
        for meter in self.meters.values():
            meter.expire(now)

    @property
    def held(self) -> int:
        return sum(t.held for t in self.trackers.values())

    def dump(self) -> StateDump:
        """The canonical form of `cora.engine.results`."""
        return {name: table.dump() for name, table in self._changing.items()}

    def load(self, dump: StateDump) -> int:
        """Fill this (empty) state from a dump; returns the latest time in it.

        Raises:
            CoraError: `Kind.BAD_STATE`, naming the row that cannot be right.
        """
        if dump.keys() != self._changing.keys():
            odd = ", ".join(sorted(dump.keys() ^ self._changing.keys()))
            raise _bad("the dump", f"its states are not those of the program (missing or unknown: {odd})")
        latest = 0
        for name, table in self._changing.items():
            row = _Row(dump[name], name)
            if isinstance(table, PoolTable):
                _load_pool(table, row)
            elif isinstance(table, MapTable):
                latest = max(latest, _load_map(table, row))
            elif isinstance(table, MeterTable):
                latest = max(latest, _load_meter(table, row))
            elif isinstance(table, CounterTable):
                _load_counter(table, row)
            else:
                latest = max(latest, _load_tracker(table, row))
        self._check_pools()
        return latest

    def _check_pools(self) -> None:
        holders = Counter((pool.decl.name, i) for m in self.maps.values() for e in m.by_use for pool, i in e.given)
        for name, pool in self.pools.items():
            for index in pool.used:
                if holders[name, index] != 1:
                    raise _bad(f"{name}.used", f"value {index} is used but held by {holders[name, index]} entries")
        for name, index in holders:
            if index not in self.pools[name].used:
                raise _bad(f"{name}.used", f"value {index} is held by an entry but not used")


class _Row:
    """A mapping of a dump, read with checks; ``where`` says which."""

    def __init__(self, item: object, where: str) -> None:
        if not isinstance(item, Mapping):
            raise _bad(where, "an object is expected")
        self.item: Mapping[object, object] = item
        self.where = where

    def get(self, name: str) -> object:
        if name not in self.item:
            raise _bad(self.where, f"{name} is missing")
        return self.item[name]

    def kind(self, wanted: str) -> None:
        if self.get("kind") != wanted:
            raise _bad(self.where, f"kind is {self.get('kind')!r}, the program has a {wanted}")

    def number(self, name: str, limit: int = U64, low: int = 0) -> int:
        return _number(self.get(name), f"{self.where}.{name}", limit, low)

    def items(self, name: str) -> Sequence[object]:
        return _list(self.get(name), f"{self.where}.{name}")

    def rows(self, name: str) -> list[_Row]:
        return [_Row(item, f"{self.where}.{name}[{i}]") for i, item in enumerate(self.items(name))]

    def values(self, name: str, declared: Sequence[FieldDecl]) -> dict[str, int]:
        row = _Row(self.get(name), f"{self.where}.{name}")
        if set(row.item) != {f.name for f in declared}:
            raise _bad(row.where, f"fields must be {', '.join(f.name for f in declared)}")
        return {f.name: row.number(f.name, 1 << bits_of(f.type)) for f in declared}


def _bad(where: str, message: str) -> CoraError:
    return fail(Kind.BAD_STATE, message, where=f"state {where}",
                hint="load only what `state` of this program gave, unchanged")


def _number(item: object, where: str, limit: int = U64, low: int = 0) -> int:
    if not isinstance(item, int) or isinstance(item, bool) or not low <= item < limit:
        raise _bad(where, f"{item!r} is no integer from {low} to {limit - 1}")
    return item


def _list(item: object, where: str, length: int | None = None) -> Sequence[object]:
    if not isinstance(item, Sequence) or isinstance(item, str | bytes) or length not in (None, len(item)):
        raise _bad(where, "a list is expected" if length is None else f"a list of {length} is expected")
    return item


def _load_pool(table: PoolTable, row: _Row) -> None:
    row.kind("pool")
    used = [_number(i, f"{row.where}.used", table.size) for i in row.items("used")]
    table.used = set(used)
    if len(table.used) != len(used):
        raise _bad(f"{row.where}.used", "a value is named twice")
    table.next = row.number("next", table.size)


def _load_map(table: MapTable, row: _Row) -> int:
    row.kind("map")
    found: list[tuple[int, Entry]] = []
    for item in row.rows("entries"):
        entry = Entry(item.values("fields", table.decl.fields))
        entry.timeout = _timeout_of(table, item)
        entry.given = tuple((table.pools[a.pool], _index_of(table.pools[a.pool], [entry.values[f] for f in a.fields],
                                                            item.where)) for a in table.decl.allocs)
        found.append((item.number("last", TIME_LIMIT), entry))
        for key in table.decl.keys:
            if table.key_of(entry, key.name) in table.keys[key.name]:
                raise _bad(item.where, f"key {key.name} is there twice")
            table.keys[key.name][table.key_of(entry, key.name)] = entry
    if len(found) > table.decl.capacity:
        raise _bad(row.where, f"{len(found)} entries, the capacity is {table.decl.capacity}")
    found.sort(key=lambda pair: (pair[0], table.key_of(pair[1], table.primary.name)))
    for last, entry in found:
        table.attach(entry, entry.timeout, last)
    return found[-1][0] if found else 0


def _timeout_of(table: MapTable, row: _Row) -> str:
    name = row.get("timeout")
    known = list(table.timeouts) or [""]
    if not isinstance(name, str) or name not in known:
        raise _bad(row.where, f"there is no time-out class {name!r}")
    return name


def _index_of(pool: PoolTable, values: Sequence[int], where: str) -> int:
    for value, dimension in zip(values, pool.decl.ranges, strict=True):
        if not dimension.low <= value <= dimension.high:
            raise _bad(where, f"{value} is no value of pool {pool.decl.name}")
    return pool.index_of(values)


def _load_meter(table: MeterTable, row: _Row) -> int:
    row.kind("meter")
    found: list[tuple[int, tuple[int, ...], list[int]]] = []
    for item in row.rows("entries"):
        key = tuple(item.values("key", table.decl.fields).values())
        credits = _list(item.get("credits"), f"{item.where}.credits", len(table.limits))
        found.append((item.number("last", TIME_LIMIT), key, [
            _number(c, f"{item.where}.credits", limit + 1) for c, limit in zip(credits, table.limits, strict=True)]))
    if len({key for _, key, _ in found}) != len(found) or len(found) > table.decl.capacity:
        raise _bad(row.where, f"a key is there twice, or more entries than the capacity of {table.decl.capacity}")
    for last, key, left in sorted(found):
        table.by_key[key] = Buckets(left, last)
    return max((last for last, _, _ in found), default=0)


def _load_counter(table: CounterTable, row: _Row) -> None:
    row.kind("counter")
    pairs = _list(row.get("values"), f"{row.where}.values", len(table.values))
    for i, pair in enumerate(pairs):
        where = f"{row.where}.values[{i}]"
        table.values[i] = [_number(v, where) for v in _list(pair, where, 2)]


# Exclusive limits of a datagram's key: family, source, destination, protocol, identification.
_KEY_LIMITS = {4: (5, 1 << 32, 1 << 32, 256, 1 << 16), 6: (7, 1 << 128, 1 << 128, 1, 1 << 32)}


def _load_tracker(table: Tracker, row: _Row) -> int:
    row.kind("fragment")
    found = [_datagram(item) for item in row.rows("datagrams")]
    if len({d.key for d in found}) != len(found) or len(found) > table.decl.capacity:
        raise _bad(row.where, f"a datagram is there twice, or more than the capacity of {table.decl.capacity}")
    for datagram in sorted(found, key=lambda d: (d.made, d.key)):
        table.datagrams[datagram.key] = datagram
    return max((d.made for d in found), default=0)


def _datagram(row: _Row) -> Datagram:
    parts = _list(row.get("key"), f"{row.where}.key", 5)
    limits = _KEY_LIMITS[6 if parts[0] == 6 else 4]
    lows = (limits[0] - 1, 0, 0, 0, 0)
    family, source, destination, protocol, ident = (
        _number(p, f"{row.where}.key", limit, low) for p, limit, low in zip(parts, limits, lows, strict=True))
    state = row.get("state")
    if row.items("held") or state not in ("waiting", "condemned"):
        raise _bad(row.where, "only datagrams that hold no fragment and are not open can be restored: a dump has "
                              "neither the held packets nor the first header")
    datagram = Datagram((family, source, destination, protocol, ident), row.number("made", TIME_LIMIT), str(state))
    datagram.end = row.number("end", 1 << 16, -1)
    for i, item in enumerate(row.items("ranges")):
        where = f"{row.where}.ranges[{i}]"
        first, past = (_number(v, where, 1 << 16) for v in _list(item, where, 2))
        if first >= past or (datagram.ranges and first <= datagram.ranges[-1][1]):
            raise _bad(where, "ranges must be merged and ascending")
        datagram.ranges.append((first, past))
        datagram.arrived.append((first, past))
    if len(datagram.ranges) > MAX_RANGES or (datagram.ranges and -1 < datagram.end < datagram.ranges[-1][1]):
        raise _bad(row.where, f"more than {MAX_RANGES} ranges, or bytes past the end")
    return datagram


