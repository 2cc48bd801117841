"""The host dialect's maps and pools: one entry array, an index for each key, exact eager expiry, atomic inserts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cora.emit import host_common as common
from cora.emit.host_common import Lines
from cora.emit.layout import CLASS, LAST, map_row
from cora.emit.names import Names, comment, literal, value_type
from cora.errors import Kind, fail
from cora.ir.nodes import AllocDecl, FieldDecl, KeyDecl, MapState, PoolState
from cora.ir.types import U64, Type, bytes_of

# A 32-bit number names a pool value, and one of them says "none".
_POOL_VALUES = 2**32 - 1


class HostMap:
    """Everything generated for one map. ``checked``: references carry the entry's life, so a stale one is noticed."""

    def __init__(self, state: MapState, names: Names, pools: dict[str, PoolState], *, checked: bool) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for a capacity or key the engine does not take."""
        common.check_capacity(state)
        self.state, self.names, self.pools, self.checked = state, names, pools, checked
        self.table = names.state(state.name)
        self.field_names = {f.name: names.field(f.name) for f in state.fields}
        self.fields = common.typed(state.fields, self.field_names)
        self.types = {f.name: f.type for f in state.fields}
        self.allocated = {name for a in state.allocs for name in a.fields}
        self.lru = state.full == "evict_lru"
        self.classes = [t.name for t in state.timeouts]

    @property
    def expires(self) -> bool:
        """Whether the engine removes its entries when they are due."""
        return bool(self.classes)

    def key_fields(self, key: KeyDecl) -> list[tuple[str, Type]]:
        return [(self.field_names[f], self.types[f]) for f in key.fields]

    def given_fields(self) -> list[FieldDecl]:
        """Fields an insert gets values for."""
        return [f for f in self.state.fields if f.name not in self.allocated]

    def index(self, number: int) -> str:
        return f"index_{number}"

    def key_number(self, name: str) -> int:
        return next(i for i, k in enumerate(self.state.keys) if k.name == name)

    def pool_index(self, number: int) -> str:
        """The entry's hidden member: which value of its ``number``-th pool it holds."""
        return f"pool_{number}"

    def reference(self, at: str) -> str:
        """The reference to entry number ``at``."""
        return f"((uint64_t)E->{self.table}.entries[{at}].life << 32 | {at})" if self.checked else at

    def entry(self, reference: str) -> str:
        """The entry a reference leads to; only valid while it is alive."""
        at = f"(uint32_t){reference}" if self.checked else reference
        return f"E->{self.table}.entries[{at}]"

    # Declarations.

    def structures(self) -> Lines:
        t = self.table
        members = [(bytes_of(ty), f"{value_type(ty)} {name};") for name, ty in self.fields]
        members.append((8, "uint64_t last; /* ns */"))
        if self.checked:
            members.append((4, "uint32_t life; /* changes when the entry is removed */"))
        members += [(4, f"uint32_t {self.pool_index(i)};") for i in range(len(self.state.allocs))]
        members += [(1, "uint8_t timeout; /* class */"), (1, "uint8_t live;")]
        return [
            f"struct {t}_entry {{",
            *common.struct_members(members),
            f"}} __attribute__((aligned({common.alignment(members)})));",
            "",
            f"struct {t} {{",
            f"    struct {t}_entry *entries;",
            "    struct cora_slots slots;",
            *(f"    struct cora_index {self.index(i)}; /* {comment(k.name)} */" for i, k in enumerate(self.state.keys)),
            "    struct cora_expiry expiry;",
            *(["    struct cora_recency recency;"] if self.lru else []),
            "    CORA_IF_PROFILE(struct cora_table_profile profile;)",
            "};",
        ]

    def functions(self) -> Lines:
        """All functions of the map, in an order in which each is defined before it is used."""
        out: Lines = []
        if self.classes:
            values = ", ".join(literal(t.nanoseconds, U64) for t in self.state.timeouts)
            out += [f"/* {comment(', '.join(self.classes))} */",
                    f"static const uint64_t {self.table}_timeouts[] = {{{values}}};", ""]
        for number, key in enumerate(self.state.keys):
            out += [*self._key_functions(number, key), ""]
        parts = (self._alive(), self._remove(), self._expire(), self._touch(), self._insert(), self._open(),
                 self._close(), self._dump(), self._load())
        for part in parts:
            out += [*part, ""] if part else []
        return out

    def _key_functions(self, number: int, key: KeyDecl) -> Lines:
        t, fields = self.table, self.key_fields(key)
        names = [n for n, _ in fields]
        entry_hash = f"{t}_hash_{number}(E{common.arguments([f'e->{n}' for n in names])})"
        hit, miss = ("CORA_HIT_FIRST", "CORA_MISS_FIRST") if number == 0 else ("CORA_HIT_SECOND", "CORA_MISS_SECOND")
        lookup = [
            f"static inline uint32_t {t}_lookup_{number}(struct cora_engine *E, uint64_t hash, "
            f"{common.parameters(fields)})",
            "{",
            f"    uint32_t at = {t}_find_{number}(E, hash{common.arguments(names)});",
            *self._when_missed(number),
            f"    CORA_IF_PROFILE(E->{t}.profile.events[at == CORA_NONE ? {miss} : {hit}]++;)",
            f"    CORA_IF_PROFILE(if (at != CORA_NONE) cora_profile_use(&E->{t}.profile, &E->core, at);)",
            "    return at;",
            "}",
        ]
        return [
            f"/* {comment(f'{self.state.name}.{key.name}')} */",
            *common.hash_function(f"{t}_hash_{number}", fields, self.state), "",
            *common.find_function(f"{t}_find_{number}", t, self.index(number), fields), "",
            *lookup, "",
            *common.grow_function(f"{t}_grow_{number}", t, self.index(number), entry_hash),
        ]

    def _alive(self) -> Lines:
        if not self.checked:
            return []
        return [
            f"static inline bool {self.table}_alive(const struct cora_engine *E, uint64_t reference)",
            "{",
            f"    const struct {self.table}_entry *e = &E->{self.table}.entries[(uint32_t)reference];",
            "    return e->live && e->life == reference >> 32;",
            "}",
        ]

    def _entry_hash(self, number: int, prefix: str = "e->") -> str:
        names = [f"{prefix}{n}" for n, _ in self.key_fields(self.state.keys[number])]
        return f"{self.table}_hash_{number}(E{common.arguments(names)})"

    def _remove(self) -> Lines:
        t = self.table
        out = [f"CORA_COLD void {t}_remove(struct cora_engine *E, uint32_t at)", "{",
               f"    struct {t}_entry *e = &E->{t}.entries[at];", *self._before_removal()]
        out += [f"    cora_index_remove(&E->{t}.{self.index(i)}, {self._entry_hash(i)}, at);"
                for i in range(len(self.state.keys))]
        out += [f"    cora_pool_give(&E->{self.names.state(a.pool)}, e->{self.pool_index(i)});"
                for i, a in enumerate(self.state.allocs)]
        out += [f"    cora_expiry_remove(&E->{t}.expiry, at);"] if self.classes else []
        out += [f"    cora_recency_remove(&E->{t}.recency, at);"] if self.lru else []
        out += ["    e->live = 0;", *(["    e->life++;"] if self.checked else []),
                f"    CORA_IF_PROFILE(cora_profile_end(&E->{t}.profile, &E->core, at);)",
                f"    cora_slots_give(&E->{t}.slots, at);", "}"]
        return out

    def _before_removal(self) -> Lines:
        """What has to happen before entry ``at`` is removed."""
        return []

    def _when_due(self) -> Lines:
        """What has to happen before entry ``at`` is looked at because it seems to be due."""
        return []

    def _when_missed(self, number: int) -> Lines:
        """What is done about a look-up by key ``number`` that may have found none (``at``)."""
        return []

    def _last_use(self) -> Lines:
        return ["    e->last = now;"]

    def _after_touch(self) -> Lines:
        return []

    def _expire(self) -> Lines:
        if not self.expires:
            return []
        t = self.table
        return [
            f"CORA_COLD void {t}_expire(struct cora_engine *E, uint64_t now)",
            "{",
            "    uint32_t at;",
            f"    while ((at = cora_expiry_pop(&E->{t}.expiry, now)) != CORA_NONE) {{",
            *self._when_due(),
            f"        const struct {t}_entry *e = &E->{t}.entries[at];",
            f"        uint64_t deadline = cora_add_capped(e->last, {t}_timeouts[e->timeout]);",
            "        if (deadline >= now) {",
            f"            cora_expiry_push(&E->{t}.expiry, at, deadline);",
            "            continue;",
            "        }",
            f"        CORA_IF_PROFILE(cora_profile_expiry(&E->{t}.profile, &E->core, CORA_EXPIRED);)",
            f"        {t}_remove(E, at);",
            "    }",
            "}",
        ]

    def _touch(self) -> Lines:
        t = self.table
        out = [f"static inline void {t}_touch(struct cora_engine *E, uint32_t at, uint64_t now, uint8_t timeout)", "{",
               f"    struct {t}_entry *e = &E->{t}.entries[at];",
               *self._last_use()]
        if len(self.classes) > 1:
            out += [
                "    if (CORA_UNLIKELY(e->timeout != timeout)) {",
                f"        uint64_t deadline = cora_add_capped(now, {t}_timeouts[timeout]);",
                "        e->timeout = timeout;",
                f"        CORA_IF_PROFILE(cora_profile_change(&E->{t}.profile, &E->core, at);)",
                f"        cora_expiry_move(&E->{t}.expiry, at, deadline);",
                "        E->core.next_due = cora_min64(E->core.next_due, deadline);",
                "    }",
            ]
        else:
            out.append("    (void)timeout;")
        out += [f"    cora_recency_use(&E->{t}.recency, at);"] if self.lru else []
        return [*out, *self._after_touch(), f"    CORA_IF_PROFILE(E->{t}.profile.events[CORA_TOUCHED]++;)", "}"]

    # The atomic insert.

    def insert_parameters(self) -> str:
        given = common.parameters([(self.field_names[f.name], f.type) for f in self.given_fields()])
        wishes = [f"uint64_t wish_{i}" for i in range(len(self.state.allocs))]
        return ", ".join(["struct cora_engine *E", "uint64_t hash", "uint64_t now", "uint8_t timeout",
                          *([given] if given else []), *wishes])

    def _insert(self) -> Lines:
        t = self.table
        out = ["/* The new entry's number, or CORA_NONE; nothing has changed then. `hash` is the primary key's. */",
               f"CORA_SHARED uint32_t {t}_insert({self.insert_parameters()})", "{",
               *(f"    {value_type(self.types[f])} {self.field_names[f]};"
                 for a in self.state.allocs for f in a.fields)]
        out += self._insert_checks()
        out += self._insert_pools()
        out += self._insert_reverse()
        out += self._insert_commit()
        return [*out, "    return at;", *self._insert_failure(), "}"]

    def _fail_insert(self) -> str:
        return f"{{ CORA_IF_PROFILE(E->{self.table}.profile.events[CORA_FULL]++;) return CORA_NONE; }}"

    def _insert_checks(self) -> Lines:
        t = self.table
        names = [n for n, _ in self.key_fields(self.state.keys[0])]
        # The primary key of a map whose first key has allocated fields is only known after the allocation.
        out = [] if self._primary_allocated() else [
            f"    if ({t}_find_0(E, hash{common.arguments(names)}) != CORA_NONE)", f"        {self._fail_insert()}"]
        full = f"E->{t}.slots.count == E->{t}.slots.capacity"
        if self.lru:
            return [*out, f"    uint32_t victim = {full} ? E->{t}.recency.oldest : CORA_NONE;"]
        return [*out, f"    if ({full})", f"        {self._fail_insert()}"]

    def _primary_allocated(self) -> bool:
        return any(f in self.allocated for f in self.state.keys[0].fields)

    def _insert_pools(self) -> Lines:
        """Takes pool values, with those of the entry that would make room counted as free."""
        allocs = self.state.allocs
        if not allocs:
            return []
        out = [f"    const uint64_t next_{i} = cora_pool_next(&E->{self.names.state(a.pool)});"
               for i, a in enumerate(allocs)]
        out += [f"    uint32_t taken_{i} = CORA_NONE;" for i in range(len(allocs))]
        if self.lru:
            out.append("    if (victim != CORA_NONE) {")
            out += [f"        cora_pool_give(&E->{self.names.state(a.pool)}, {self._victims(i)});"
                    for i, a in enumerate(allocs)]
            out.append("    }")
        for i, alloc in enumerate(allocs):
            out += self._take(i, alloc)
        return out

    def _victims(self, i: int) -> str:
        """The value of the ``i``-th pool that the entry to be evicted holds."""
        return f"E->{self.table}.entries[victim].{self.pool_index(i)}"

    def _take(self, i: int, alloc: AllocDecl) -> Lines:
        pool = self.pools[alloc.pool]
        p = f"&E->{self.names.state(alloc.pool)}"
        preserve = str(pool.preserve).lower()
        near = f"cora_pool_take_near({p}, wish_{i}, {preserve})"
        out = [f"    taken_{i} = wish_{i} == CORA_NEVER ? cora_pool_take({p}) : {near};",
               f"    if (taken_{i} == CORA_NONE)", "        goto fail;"]
        step = 1
        values: Lines = []
        for name, r in reversed(list(zip(alloc.fields, pool.ranges, strict=True))):
            count = r.high - r.low + 1
            digit = f"taken_{i} / {step}u" if step > 1 else f"taken_{i}"
            digit = f"{digit} % {count}u" if len(alloc.fields) > 1 else digit
            base = f"{literal(r.low, self.types[name])} + " if r.low else ""
            values.append(f"    {self.field_names[name]} = ({value_type(self.types[name])})({base}{digit});")
            step *= count
        return out + values[::-1]

    def _insert_reverse(self) -> Lines:
        """Checks the keys whose fields are complete only now."""
        t, out = self.table, []
        for i in range(len(self.state.keys)):
            if i == 0 and not self._primary_allocated():
                continue
            fields = [n for n, _ in self.key_fields(self.state.keys[i])]
            hash_name = "hash" if i == 0 else f"hash_{i}"
            out.append(f"    {'' if i == 0 else 'uint64_t '}{hash_name} = {self._entry_hash(i, '')};")
            found = f"{t}_find_{i}(E, {hash_name}{common.arguments(fields)})"
            goto = "goto fail;" if self.state.allocs else self._fail_insert()
            if self.lru and i > 0:
                out += [f"    uint32_t other_{i} = {found};",
                        f"    if (other_{i} != CORA_NONE && other_{i} != victim)", f"        {goto}"]
            else:
                out += [f"    if ({found} != CORA_NONE)", f"        {goto}"]
        # The jump to `fail` must not pass a declaration that is used there; hashes are not.
        return out

    def _insert_commit(self) -> Lines:
        t = self.table
        out: Lines = []
        if self.lru:
            out += ["    if (victim != CORA_NONE) {",
                    f"        CORA_IF_PROFILE(cora_profile_expiry(&E->{t}.profile, &E->core, CORA_EVICTED);)"]
            # The values of the victim were given back before, and may be taken again by now.
            out += [f"        const bool shared_{i} = "
                    f"cora_pool_is_used(&E->{self.names.state(a.pool)}, {self._victims(i)});"
                    for i, a in enumerate(self.state.allocs)]
            out.append(f"        {t}_remove(E, victim);")
            for i, a in enumerate(self.state.allocs):
                out += [f"        if (shared_{i})",
                        f"            cora_pool_mark(&E->{self.names.state(a.pool)}, {self._victims(i)});"]
            out.append("    }")
        for i in range(len(self.state.keys)):
            out += [f"    if (CORA_UNLIKELY(E->{t}.{self.index(i)}.count >= E->{t}.{self.index(i)}.limit))",
                    f"        {t}_grow_{i}(E);"]
        out += [f"    uint32_t at = cora_slots_take(&E->{t}.slots);", f"    struct {t}_entry *e = &E->{t}.entries[at];"]
        out += [f"    e->{n} = {n};" for n, _ in self.fields]
        out += [f"    e->{self.pool_index(i)} = taken_{i};" for i in range(len(self.state.allocs))]
        return out + self._link("now", "timeout", lambda i: "hash" if i == 0 else f"hash_{i}") + [
            f"    CORA_IF_PROFILE(cora_profile_insert(&E->{t}.profile, &E->core, at);)"]

    def _link(self, last: str, timeout: str, hash_of: Callable[[int], str]) -> Lines:
        """Makes the filled entry ``at`` findable; ``hash_of`` maps a key's number to its hash expression."""
        t = self.table
        out = [f"    e->last = {last};", f"    e->timeout = {timeout};"] if last == "now" else []
        out.append("    e->live = 1;")
        out += [f"    cora_index_add(&E->{t}.{self.index(i)}, {hash_of(i)}, at);" for i in range(len(self.state.keys))]
        out += [f"    cora_recency_add(&E->{t}.recency, at);"] if self.lru else []
        if self.classes:
            out += [f"    uint64_t deadline = cora_add_capped({last}, {t}_timeouts[{timeout}]);",
                    f"    cora_expiry_add(&E->{t}.expiry, at, deadline);",
                    "    E->core.next_due = cora_min64(E->core.next_due, deadline);"]
        return out

    def _insert_failure(self) -> Lines:
        if not self.state.allocs:
            return []
        t, out = self.table, ["fail:"]
        for i, a in reversed(list(enumerate(self.state.allocs))):
            pool = f"&E->{self.names.state(a.pool)}"
            out += [f"    if (taken_{i} != CORA_NONE)", f"        cora_pool_give({pool}, taken_{i});",
                    f"    cora_pool_set_next({pool}, next_{i});"]
        if self.lru:
            out.append("    if (victim != CORA_NONE) {")
            out += [f"        cora_pool_mark(&E->{self.names.state(a.pool)}, {self._victims(i)});"
                    for i, a in enumerate(self.state.allocs)]
            out.append("    }")
        return [*out, f"    CORA_IF_PROFILE(E->{t}.profile.events[CORA_FULL]++;)", "    return CORA_NONE;"]

    # Life of the table, and its rows.

    def _open(self) -> Lines:
        t = self.table
        capacity = f"{self.state.capacity}u"
        return [
            f"CORA_COLD void {t}_open(struct cora_engine *E)", "{",
            f"    E->{t}.entries = cora_zeroed({capacity}, sizeof *E->{t}.entries);",
            f"    cora_slots_init(&E->{t}.slots, {capacity});",
            *(f"    cora_index_init(&E->{t}.{self.index(i)}, 16);" for i in range(len(self.state.keys))),
            *([f"    cora_expiry_init(&E->{t}.expiry, {capacity});"] if self.classes else []),
            *([f"    cora_recency_init(&E->{t}.recency, {capacity});"] if self.lru else []),
            f"    CORA_IF_PROFILE(cora_profile_init(&E->{t}.profile, {capacity});)",
            "}",
        ]

    def _close(self) -> Lines:
        t = self.table
        return [
            f"CORA_COLD void {t}_close(struct cora_engine *E)", "{",
            f"    cora_release(E->{t}.entries, {self.state.capacity}u, sizeof *E->{t}.entries);",
            f"    cora_slots_close(&E->{t}.slots);",
            *(f"    cora_index_close(&E->{t}.{self.index(i)});" for i in range(len(self.state.keys))),
            *([f"    cora_expiry_close(&E->{t}.expiry);"] if self.classes else []),
            *([f"    cora_recency_close(&E->{t}.recency);"] if self.lru else []),
            f"    CORA_IF_PROFILE(cora_profile_close(&E->{t}.profile);)",
            "}",
        ]

    def _members(self) -> dict[str, str]:
        return {LAST: "e->last", CLASS: "e->timeout", **{f: f"e->{n}" for f, n in self.field_names.items()}}

    def _dump(self) -> Lines:
        t, row = self.table, map_row(self.state)
        return [
            f"CORA_COLD void {t}_dump(const struct cora_engine *E, uint8_t *out)", "{",
            f"    for (uint32_t at = 0; at < E->{t}.slots.top; at++) {{",
            f"        const struct {t}_entry *e = &E->{t}.entries[at];",
            "        if (!e->live)", "            continue;",
            *(f"        {line}" for line in common.copies_out(row, self._members())),
            f"        out += {row.size};", "    }", "}",
        ]

    def _load(self) -> Lines:
        """Rows come in the order of their last use; pools are loaded on their own."""
        t, row = self.table, map_row(self.state)
        out = [f"CORA_COLD bool {t}_load(struct cora_engine *E, const uint8_t *row)", "{",
               f"    if (E->{t}.slots.count == E->{t}.slots.capacity)", "        return false;",
               f"    struct {t}_entry loaded = {{0}}, *e = &loaded;",
               *(f"    {line}" for line in common.copies_in(row, self._members()))]
        for i in range(len(self.state.keys)):
            names = [f"e->{n}" for n, _ in self.key_fields(self.state.keys[i])]
            out += [f"    if ({t}_find_{i}(E, {self._entry_hash(i)}{common.arguments(names)}) != CORA_NONE)",
                    "        return false;"]
        out += [f"    if (E->{t}.{self.index(i)}.count >= E->{t}.{self.index(i)}.limit)\n        {t}_grow_{i}(E);"
                for i in range(len(self.state.keys))]
        out += [f"    loaded.{self.pool_index(i)} = (uint32_t){wanted_index(self.pools[a.pool], members)};"
                for i, a in enumerate(self.state.allocs)
                for members in [[f"e->{self.field_names[f]}" for f in a.fields]]]
        out += [f"    uint32_t at = cora_slots_take(&E->{t}.slots);", f"    E->{t}.entries[at] = loaded;",
                f"    e = &E->{t}.entries[at];"]
        out += self._link("e->last", "e->timeout", lambda i: self._entry_hash(i))
        return [*out, f"    CORA_IF_PROFILE(cora_profile_insert(&E->{t}.profile, &E->core, at);)",
                "    return true;", "}"]


def wanted_index(pool: PoolState, values: Sequence[str]) -> str:
    """The index of the pool value nearest to these coordinates (C expressions), each clamped into its range."""
    index = ""
    for value, r in zip(values, pool.ranges, strict=True):
        count = r.high - r.low + 1
        place = f"cora_pool_clamp({value}, {literal(r.low, U64)}, {literal(r.high, U64)})"
        index = f"({index}) * {count}u + {place}" if index else place
    return f"({index})"


def check_pool(pool: PoolState) -> None:
    """Raises CoraError `Kind.ENGINE_LIMIT` for a pool with too many or too wide values."""
    if pool.size > _POOL_VALUES:
        raise fail(Kind.ENGINE_LIMIT,
                   f"pool {pool.name} has {pool.size} values; the native engine takes {_POOL_VALUES}", span=pool.span,
                   hint="make its ranges smaller")
    wide = next((r for r in pool.ranges if bytes_of(r.type) > 8), None)
    if wide is not None:
        raise fail(Kind.ENGINE_LIMIT,
                   f"pool {pool.name} gives values of type {wide.type}; the native engine takes up to 64 bits",
                   span=wide.span, hint="use a smaller type, or run the reference engine")
