"""Maps, pair maps and pools of the kernel's half."""

from __future__ import annotations

from collections.abc import Sequence

from cora.emit.bpf_table import BpfTable
from cora.emit.dialect import Lines
from cora.emit.layout import Row, map_row
from cora.emit.names import Names, comment, literal, value_type
from cora.ir.nodes import AllocDecl, FieldDecl, MapState, PoolState
from cora.ir.types import U64, Type

# Places of an index that has one for every value of a pool: 4 bytes each.
MAX_DIRECT = 1 << 20


class BpfPool:
    """Everything generated for one pool."""

    def __init__(self, state: PoolState, names: Names) -> None:
        self.state = state
        self.pool = names.state(state.name)

    @property
    def words(self) -> int:
        return (self.state.size + 63) // 64

    def lines(self) -> Lines:
        """The bitmap, and the functions that claim and return values."""
        p, size = self.pool, self.state.size
        last = self.state.ranges[-1]
        block = last.high - last.low + 1
        split = 0 if last.low >= 1024 else min(1024 - last.low, block)
        return [
            f"/* {comment(self.state.name)}: {size} values */",
            f"uint64_t {p}_used[{self.words}];",
            f"uint64_t {p}_next;", "",
            f"static inline bool {p}_is_used(uint32_t index)", "{",
            f"    return index / 64 >= {self.words} || {p}_used[index / 64] >> (index % 64) & 1;", "}", "",
            f"static inline bool {p}_claim(uint32_t index)", "{",
            "    uint32_t word = index / 64;",
            "    uint64_t bit = 1ull << (index % 64);",
            f"    return word < {self.words} && !(__sync_fetch_and_or(&{p}_used[word], bit) & bit);", "}", "",
            f"static inline void {p}_give(uint32_t index)", "{",
            "    uint32_t word = index / 64;",
            f"    if (word < {self.words})",
            f"        __sync_fetch_and_and(&{p}_used[word], ~(1ull << (index % 64)));", "}", "",
            f"static long {p}_look(uint32_t i, struct cora_pool_search *search)", "{",
            "    uint32_t word = search->word;",
            "    (void)i;",
            f"    if (word >= {self.words} || word * 64 >= search->to)", "        return 1;",
            f"    uint64_t open = ~{p}_used[word] & search->bits;",
            "    if (!open) {",
            "        search->word = word + 1;",
            "        search->bits = search->mask;",
            "        return 0;",
            "    }",
            "    uint32_t index = word * 64 + cora_lowest_bit(open);",
            "    if (index >= search->to)", "        return 1;",
            "    /* Where another CPU was quicker, the word is looked at again. */",
            f"    if (!{p}_claim(index))", "        return 0;",
            "    search->found = index;",
            "    return 1;", "}", "",
            "/* Claims the lowest free index in [from, to) whose bit is in the mask (of indices modulo 64). */",
            f"CORA_ALONE uint32_t {p}_scan(uint32_t from, uint32_t to, uint64_t mask)", "{",
            "    struct cora_pool_search search = {.bits = mask & (UINT64_MAX << (from % 64)), .mask = mask,",
            "                                      .word = from / 64, .to = to, .found = CORA_NONE};",
            f"    bpf_loop({self.words + 64}, {p}_look, &search, 0);",
            "    return search.found;", "}", "",
            f"static CORA_ALONE uint32_t {p}_around(uint32_t from, uint32_t to, uint32_t start, uint64_t mask)", "{",
            f"    uint32_t found = {p}_scan(start, to, mask);",
            f"    return found != CORA_NONE ? found : {p}_scan(from, start, mask);", "}", "",
            *self._take(), "", *self._near(block, split),
        ]

    def _take(self) -> Lines:
        p, size = self.pool, self.state.size
        return [
            "/* Takes the lowest free index at or after the one past the previous allocation; CORA_NONE: none. */",
            f"CORA_ALONE uint32_t {p}_take(void)", "{",
            f"    uint32_t found = {p}_around(0, {size}u, (uint32_t){p}_next, CORA_POOL_ALL);",
            "    if (found != CORA_NONE)",
            f"        *(volatile uint64_t *)&{p}_next = found + 1 == {size}u ? 0 : found + 1;",
            "    return found;", "}",
        ]

    def _near(self, block: int, split: int) -> Lines:
        """RFC 4787 REQ-3 and REQ-4 where the pool preserves; docs/semantics.md, section 5."""
        p, size = self.pool, self.state.size
        out = [
            "/* Takes `wanted` or the value that comes next in the order of preference. */",
            f"CORA_ALONE uint32_t {p}_take_near(uint32_t wanted)", "{",
            f"    if ({p}_claim(wanted))", "        return wanted;",
        ]
        if self.state.preserve:
            out += [
                f"    uint32_t base = wanted - wanted % {block}u, end = base + {block}u, split = base + {split}u;",
                "    uint32_t from = wanted < split ? base : split, to = wanted < split ? split : end;",
                "    uint64_t parity = wanted & 1 ? ~CORA_POOL_EVEN : CORA_POOL_EVEN;",
                f"    uint32_t found = {p}_around(from, to, wanted, parity);",
                "    if (found == CORA_NONE)", f"        found = {p}_around(from, to, wanted, CORA_POOL_ALL);",
                "    if (found == CORA_NONE)", f"        found = {p}_around(base, end, wanted, CORA_POOL_ALL);",
                "    if (found != CORA_NONE)", "        return found;",
            ]
        return [*out, f"    return {p}_around(0, {size}u, wanted, CORA_POOL_ALL);", "}", ""]


class BpfMap(BpfTable):
    """Everything generated for one map."""

    state: MapState

    def __init__(self, state: MapState, names: Names, number: int, capacity: int, pools: dict[str, PoolState], *,
                 owned: int | None = None, lending: int = 0) -> None:
        super().__init__(state, names, number, capacity, owned=owned, lending=lending)
        self.pools = pools
        self.allocs = () if self.is_lent else state.allocs
        self.allocated = {name for a in self.allocs for name in a.fields}

    def keys(self) -> list[tuple[str, list[tuple[str, Type]]]]:
        return [(k.name, [(self.field_names[f], self.types[f]) for f in k.fields]) for k in self.state.keys]

    def direct(self, number: int) -> PoolState | None:
        """Each value of a pool is held by one entry at most, so that a key which is one needs no chain."""
        alloc = self._alloc_of(number)
        pool = None if alloc is None else self.pools.get(alloc.pool)
        return pool if pool is not None and pool.size <= MAX_DIRECT else None

    def _alloc_of(self, number: int) -> AllocDecl | None:
        fields = self.state.keys[number].fields
        return next((a for a in self.state.allocs if sorted(a.fields) == sorted(fields)), None)

    def place(self, number: int) -> Lines:
        alloc, pool = self._alloc_of(number), self.direct(number)
        assert alloc is not None and pool is not None
        digits = [f"(uint64_t){self.field_names[f]} - {r.low}u" if r.low else f"(uint64_t){self.field_names[f]}"
                  for f, r in zip(alloc.fields, pool.ranges, strict=True)]
        counts = [r.high - r.low + 1 for r in pool.ranges]
        if len(digits) == 1:
            # What lies beneath the pool wraps around, beyond its end.
            return [f"    return {digits[0]};"]
        out = [f"    uint64_t digit_{i} = {d};" for i, d in enumerate(digits)]
        beyond = " || ".join(f"digit_{i} >= {n}u" for i, n in enumerate(counts))
        index = "digit_0"
        for i, n in list(enumerate(counts))[1:]:
            index = f"({index}) * {n}u + digit_{i}"
        return [*out, f"    if ({beyond})", "        return CORA_NEVER;", f"    return {index};"]

    def row(self) -> Row:
        return map_row(self.state)

    def timeouts(self) -> list[int]:
        return [t.nanoseconds for t in self.state.timeouts]

    def own_members(self) -> list[tuple[int, str]]:
        return [(4, f"uint32_t pool_{i};") for i in range(len(self.allocs))]

    def told_members(self) -> list[tuple[int, str]]:
        return [(8, f"uint64_t wish_{i};") for i in range(len(self.allocs))]

    def given_fields(self) -> list[FieldDecl]:
        """Fields an insert gets values for."""
        return [f for f in self.state.fields if f.name not in self.allocated]

    def key_number(self, name: str) -> int:
        return next(i for i, k in enumerate(self.state.keys) if k.name == name)

    def primary_allocated(self) -> bool:
        return any(f in self.allocated for f in self.state.keys[0].fields)

    def give_pools(self) -> Lines:
        return [f"    {self.names.state(a.pool)}_give(value_{i});" for i, a in enumerate(self.allocs)]

    def keep_pools(self) -> Lines:
        return [f"    uint32_t value_{i} = e->pool_{i};" for i in range(len(self.allocs))]

    def pool_lines(self) -> tuple[Lines, Lines, Lines]:
        take: Lines = []
        give: Lines = []
        note: Lines = []
        pools = [self.names.state(a.pool) for a in self.allocs]
        for i, p in enumerate(pools):
            take += [f"    uint32_t taken_{i} = CORA_NONE;", f"    const uint64_t position_{i} = {p}_next;"]
        for i, (alloc, p) in enumerate(zip(self.allocs, pools, strict=True)):
            pool = self.pools[alloc.pool]
            fields = [f"n->{self.field_names[f]}" for f in alloc.fields]
            take += [
                "    if (n->loaded) {",
                f"        taken_{i} = (uint32_t){wanted_index(pool, fields)};",
                "    } else {",
                f"        taken_{i} = n->wish_{i} == CORA_NEVER ? {p}_take() : {p}_take_near((uint32_t)n->wish_{i});",
                *self._again(i, p),
                f"        if (taken_{i} == CORA_NONE)", "            goto fail;",
                *(f"        {line}" for line in self._values(i, alloc.fields, pool)),
                "    }",
            ]
            give = [f"    if (taken_{i} != CORA_NONE && !n->loaded)", f"        {p}_give(taken_{i});",
                    f"    *(volatile uint64_t *)&{p}_next = position_{i};", *give]
            note.append(f"e->pool_{i} = taken_{i};")
        return take, give, note

    def _again(self, i: int, p: str) -> Lines:
        """Without slack, entries that are due hold no values: they are looked for before the pool counts as empty."""
        if self.state.slack or not self.ages:
            return []
        near = f"{p}_take_near((uint32_t)n->wish_{i})"
        return [f"        if (taken_{i} == CORA_NONE && {self.table}_expire(n->last))",
                f"            taken_{i} = n->wish_{i} == CORA_NEVER ? {p}_take() : {near};"]

    def _values(self, i: int, fields: Sequence[str], pool: PoolState) -> Lines:
        """The fields of a pool value, from its index."""
        step = 1
        values: Lines = []
        for name, r in reversed(list(zip(fields, pool.ranges, strict=True))):
            count = r.high - r.low + 1
            digit = f"taken_{i} / {step}u" if step > 1 else f"taken_{i}"
            digit = f"{digit} % {count}u" if len(fields) > 1 else digit
            base = f"{literal(r.low, self.types[name])} + " if r.low else ""
            values.append(f"n->{self.field_names[name]} = ({value_type(self.types[name])})({base}{digit});")
            step *= count
        return values[::-1]


def wanted_index(pool: PoolState, values: Sequence[str]) -> str:
    """The index of the pool value nearest to these coordinates (C expressions), each clamped into its range."""
    index = ""
    for value, r in zip(values, pool.ranges, strict=True):
        count = r.high - r.low + 1
        place = f"cora_pool_clamp({value}, {literal(r.low, U64)}, {literal(r.high, U64)})"
        index = f"({index}) * {count}u + {place}" if index else place
    return f"({index})"
