"""The tables of a program: maps with their pools, meters, counters, ACL and LPM tables (docs/semantics.md section 5).

Times are nanoseconds; `now` never goes back, so the order of use is also the order of `last`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from cora.ir.nodes import AclState, CounterState, LpmState, MapState, MatchKind, MeterState, PoolState
from cora.ir.types import bits_of

SCALE = 10**9  # one octet of credit
PRIVILEGED = 1024  # RFC 4787 REQ-3: ports below this form a range of their own


class Entry:
    """An entry of a map, or a row of a static table. ``given`` are the pool values an insert took for it."""

    __slots__ = ("alive", "given", "last", "timeout", "values")

    def __init__(self, values: dict[str, int], timeout: str = "", last: int = 0,
                 given: tuple[tuple[PoolTable, int], ...] = ()) -> None:
        self.values = values
        self.timeout = timeout
        self.last = last
        self.given = given
        self.alive = True

    def read(self, field: str) -> int:
        """The field's value now; 0 once the entry is gone."""
        return self.values[field] if self.alive else 0


class PoolTable:
    """A pool: values are indices in row-major order over its dimensions."""

    def __init__(self, decl: PoolState) -> None:
        self.decl = decl
        self.size = decl.size
        self.used: set[int] = set()
        self.next = 0

    def allocate(self, prefer: Sequence[int]) -> int | None:
        """Take a free value, near ``prefer`` when that is not empty; None when all are taken."""
        if len(self.used) == self.size:
            return None
        candidates = self._from_preference(prefer) if prefer else self._wrap(self.next)
        index = next(i for i in candidates if i not in self.used)
        self.used.add(index)
        if not prefer:
            self.next = (index + 1) % self.size
        return index

    def release(self, index: int) -> None:
        self.used.discard(index)

    def dump(self) -> dict[str, object]:
        return {"kind": "pool", "used": sorted(self.used), "next": self.next}

    def values_of(self, index: int) -> tuple[int, ...]:
        """The values of the dimensions that an index stands for."""
        found: list[int] = []
        for dimension in reversed(self.decl.ranges):
            index, rest = divmod(index, dimension.high - dimension.low + 1)
            found.append(dimension.low + rest)
        return tuple(reversed(found))

    def index_of(self, values: Sequence[int]) -> int:
        """The index of a value of each dimension, each within its range."""
        index = 0
        for dimension, value in zip(self.decl.ranges, values, strict=True):
            index = index * (dimension.high - dimension.low + 1) + value - dimension.low
        return index

    def _wrap(self, start: int) -> Iterator[int]:
        yield from range(start, self.size)
        yield from range(start)

    def _from_preference(self, prefer: Sequence[int]) -> Iterator[int]:
        wanted = [min(max(v, d.low), d.high) for v, d in zip(prefer, self.decl.ranges, strict=True)]
        index = self.index_of(wanted)
        yield index
        if self.decl.preserve:
            ports = self.decl.ranges[-1]
            port, block = wanted[-1], index - (wanted[-1] - ports.low)
            upward = (range(port, ports.high + 1), range(ports.low, port))
            for fits in (_same_parity_and_range, _same_range, _any):
                yield from (block + p - ports.low for p in chain(*upward) if fits(p, port))
        yield from self._wrap(index)


def _same_range(port: int, wanted: int) -> bool:
    return (port < PRIVILEGED) == (wanted < PRIVILEGED)


def _same_parity_and_range(port: int, wanted: int) -> bool:
    return port % 2 == wanted % 2 and _same_range(port, wanted)


def _any(port: int, wanted: int) -> bool:
    return True


class MapTable:
    """A map or pair map with all its keys."""

    def __init__(self, decl: MapState, pools: Mapping[str, PoolTable]) -> None:
        self.decl = decl
        self.pools = pools
        self.timeouts = {t.name: t.nanoseconds for t in decl.timeouts}
        allocated = {name for a in decl.allocs for name in a.fields}
        self.plain = tuple(f.name for f in decl.fields if f.name not in allocated)
        self.primary = decl.keys[0]
        self.primary_is_plain = allocated.isdisjoint(self.primary.fields)
        self.keys: dict[str, dict[tuple[int, ...], Entry]] = {k.name: {} for k in decl.keys}
        # Both in order of use, the entry used longest ago first.
        self.by_use: OrderedDict[Entry, None] = OrderedDict()
        self.by_class: dict[str, OrderedDict[Entry, None]] = {name: OrderedDict() for name in ("", *self.timeouts)}

    def __len__(self) -> int:
        return len(self.by_use)

    def expire(self, now: int) -> None:
        """Remove every entry that was idle for more than its class's time-out."""
        for name, nanoseconds in self.timeouts.items():
            entries = self.by_class[name]
            while entries and (entry := next(iter(entries))).last + nanoseconds < now:
                self.remove(entry)

    def lookup(self, key: str, operands: tuple[int, ...]) -> Entry | None:
        return self.keys[key].get(operands)

    def insert(self, values: Sequence[int], prefer: Sequence[Sequence[int]], timeout: str, now: int) -> Entry | None:
        """Add an entry in one step, or change nothing and return None (`full`)."""
        fields = dict(zip(self.plain, values, strict=True))
        if self.primary_is_plain and tuple(fields[f] for f in self.primary.fields) in self.keys[self.primary.name]:
            return None
        victim: Entry | None = None
        if len(self) >= self.decl.capacity:
            if self.decl.full != "evict_lru":
                return None
            victim = next(iter(self.by_use))
            self._detach(victim)
        entry = self._allocated(fields, prefer, victim)
        if entry is None:
            if victim is not None:
                self._attach_as_oldest(victim)
            return None
        if victim is not None:
            victim.alive = False
        self.attach(entry, timeout, now)
        return entry

    def _allocated(self, fields: dict[str, int], prefer: Sequence[Sequence[int]], victim: Entry | None
                   ) -> Entry | None:
        """An entry with its pool values taken and no key present yet, or None with the pools as before.

        ``victim`` makes room: its reverse key counts as gone, its primary key does not.
        """
        positions = [(self.pools[a.pool], self.pools[a.pool].next) for a in self.decl.allocs]
        given: list[tuple[PoolTable, int]] = []
        for alloc, wish in zip(self.decl.allocs, prefer, strict=True):
            pool = self.pools[alloc.pool]
            index = pool.allocate(wish)
            if index is None:
                break
            given.append((pool, index))
            fields.update(zip(alloc.fields, pool.values_of(index), strict=True))
        else:
            entry = Entry(fields, given=tuple(given))
            taken = any(self.key_of(entry, k.name) in self.keys[k.name] for k in self.decl.keys)
            name = self.primary.name
            if not taken and (victim is None or self.key_of(entry, name) != self.key_of(victim, name)):
                return entry
        for pool, index in given:
            pool.release(index)
        for pool, position in positions:
            pool.next = position
        return None

    def key_of(self, entry: Entry, key: str) -> tuple[int, ...]:
        declared = self.primary if key == self.primary.name else self.decl.keys[1]
        return tuple(entry.values[f] for f in declared.fields)

    def attach(self, entry: Entry, timeout: str, now: int) -> None:
        """Make an entry present under all keys, as the one used last."""
        for key in self.decl.keys:
            self.keys[key.name][self.key_of(entry, key.name)] = entry
        entry.timeout, entry.last = timeout, now
        self.by_use[entry] = None
        self.by_class[timeout][entry] = None

    def _attach_as_oldest(self, entry: Entry) -> None:
        for pool, index in entry.given:
            pool.used.add(index)
        self.attach(entry, entry.timeout, entry.last)
        self.by_use.move_to_end(entry, last=False)
        self.by_class[entry.timeout].move_to_end(entry, last=False)

    def _detach(self, entry: Entry) -> None:
        for key in self.decl.keys:
            del self.keys[key.name][self.key_of(entry, key.name)]
        for pool, index in entry.given:
            pool.release(index)
        del self.by_use[entry]
        del self.by_class[entry.timeout][entry]

    def remove(self, entry: Entry) -> None:
        """Delete an entry from all keys and give its pool values back; nothing when it is gone already."""
        if entry.alive:
            self._detach(entry)
            entry.alive = False

    def touch(self, entry: Entry, timeout: str, now: int) -> None:
        """Refresh an entry and set its time-out class; nothing when it is gone."""
        if not entry.alive:
            return
        del self.by_class[entry.timeout][entry]
        self.by_class[timeout][entry] = None
        self.by_use.move_to_end(entry)
        entry.timeout, entry.last = timeout, now

    def dump(self) -> dict[str, object]:
        present = sorted(self.by_use, key=lambda e: self.key_of(e, self.primary.name))
        names = [f.name for f in self.decl.fields]
        return {"kind": "map", "entries": [
            {"fields": {n: e.values[n] for n in names}, "timeout": e.timeout, "last": e.last} for e in present]}


class Buckets:
    """The buckets of one meter key; credits are octets * 10**9."""

    __slots__ = ("credits", "last")

    def __init__(self, credits: list[int], last: int) -> None:
        self.credits = credits
        self.last = last


class MeterTable:
    """Keyed token buckets of one algorithm."""

    def __init__(self, decl: MeterState) -> None:
        self.decl = decl
        self.charge = _CHARGES[decl.algorithm]
        self.limits = [b * SCALE for b in bursts_of(decl)]
        # In order of use, the key policed longest ago first.
        self.by_key: OrderedDict[tuple[int, ...], Buckets] = OrderedDict()

    def expire(self, now: int) -> None:
        while self.by_key:
            key, buckets = next(iter(self.by_key.items()))
            if buckets.last + self.decl.timeout >= now:
                return
            del self.by_key[key]

    def police(self, key: tuple[int, ...], size: int, now: int) -> str:
        """Charge ``size`` octets: ``green``, ``yellow``, ``red`` or ``full``."""
        buckets = self.by_key.get(key)
        if buckets is None:
            return self._first(key, size, now)
        self._refill(buckets, now)
        self.by_key.move_to_end(key)
        return self.charge(buckets.credits, size * SCALE)

    def _first(self, key: tuple[int, ...], size: int, now: int) -> str:
        credits = list(self.limits)
        colour = self.charge(credits, size * SCALE)
        if colour == "red":
            return "red"
        if len(self.by_key) >= self.decl.capacity:
            if self.decl.full != "evict_lru":
                return "full"
            self.by_key.popitem(last=False)
        self.by_key[key] = Buckets(credits, now)
        return colour

    def _refill(self, buckets: Buckets, now: int) -> None:
        elapsed = now - buckets.last
        buckets.last = now
        credits, limits = buckets.credits, self.limits
        committed = credits[0] + elapsed * self.decl.rate
        if self.decl.algorithm == "srtcm":
            overflow = max(0, committed - limits[0])
            credits[1] = min(limits[1], credits[1] + overflow)
        elif self.decl.algorithm == "trtcm":
            credits[1] = min(limits[1], credits[1] + elapsed * self.decl.peak_rate)
        credits[0] = min(limits[0], committed)

    def dump(self) -> dict[str, object]:
        names = [f.name for f in self.decl.fields]
        return {"kind": "meter", "entries": [
            {"key": dict(zip(names, key, strict=True)), "credits": list(b.credits), "last": b.last}
            for key, b in sorted(self.by_key.items(), key=lambda item: item[0])]}


def bursts_of(decl: MeterState) -> tuple[int, ...]:
    """The bucket sizes of a meter in octets, in the order of its credits."""
    if decl.algorithm == "token_bucket":
        return (decl.burst,)
    return (decl.burst, decl.excess_burst if decl.algorithm == "srtcm" else decl.peak_burst)


def _charge_token_bucket(credits: list[int], cost: int) -> str:
    if credits[0] < cost:
        return "red"
    credits[0] -= cost
    return "green"


def _charge_srtcm(credits: list[int], cost: int) -> str:
    for i, colour in enumerate(("green", "yellow")):
        if credits[i] >= cost:
            credits[i] -= cost
            return colour
    return "red"


def _charge_trtcm(credits: list[int], cost: int) -> str:
    committed, peak = credits
    if cost > peak:
        return "red"
    credits[1] = peak - cost
    if cost > committed:
        return "yellow"
    credits[0] = committed - cost
    return "green"


_CHARGES: dict[str, Callable[[list[int], int], str]] = {
    "token_bucket": _charge_token_bucket, "srtcm": _charge_srtcm, "trtcm": _charge_trtcm}


class CounterTable:
    """Pairs of 64-bit packet and octet counters."""

    def __init__(self, decl: CounterState) -> None:
        self.decl = decl
        self.values = [[0, 0] for _ in range(decl.size)]

    def count(self, index: int, octets: int) -> None:
        if index >= len(self.values):
            return
        pair = self.values[index]
        pair[0] = (pair[0] + 1) % 2**64
        pair[1] = (pair[1] + octets) % 2**64

    def dump(self) -> dict[str, object]:
        return {"kind": "counter", "values": [list(pair) for pair in self.values]}


class AclTable:
    """A ternary table, tried rule by rule from the largest priority."""

    def __init__(self, decl: AclState) -> None:
        self.kinds = decl.kinds
        # A stable sort: of equal priorities the earlier rule stays first.
        rules = sorted(decl.entries, key=lambda rule: -rule.priority)
        self.rules = [(rule.match, Entry(_named(decl, rule.values))) for rule in rules]

    def lookup(self, key: str, operands: tuple[int, ...]) -> Entry | None:
        for match, entry in self.rules:
            if all(map(_matches, self.kinds, match, operands)):
                return entry
        return None


def _matches(kind: MatchKind, match: tuple[int, int], operand: int) -> bool:
    first, second = match
    if kind == "range":
        return first <= operand <= second
    return operand & second == first


class LpmTable:
    """Prefixes by length, the longest tried first."""

    def __init__(self, decl: LpmState) -> None:
        self.width = bits_of(decl.key.type)
        self.by_length: dict[int, dict[int, Entry]] = {}
        for prefix in sorted(decl.entries, key=lambda p: -p.length):
            values = self.by_length.setdefault(prefix.length, {})
            values.setdefault(prefix.value, Entry(_named(decl, prefix.values)))

    def lookup(self, key: str, operands: tuple[int, ...]) -> Entry | None:
        (operand,) = operands
        for length, prefixes in self.by_length.items():
            cut = self.width - length
            entry = prefixes.get(operand >> cut << cut)
            if entry is not None:
                return entry
        return None


def _named(decl: AclState | LpmState, values: Sequence[int]) -> dict[str, int]:
    return {f.name: v for f, v in zip(decl.values, values, strict=True)}
