"""The host dialect's meters: token buckets by key in the same table structure as maps."""

from __future__ import annotations

from cora.emit import host_common as common
from cora.emit.host_common import Lines
from cora.emit.layout import FIRST_CREDIT, LAST, SECOND_CREDIT, meter_row
from cora.emit.names import Names, comment, literal, value_type
from cora.errors import Kind, fail
from cora.ir.nodes import MeterState
from cora.ir.types import U64, bytes_of

_ALGORITHMS = {"token_bucket": "CORA_TOKEN_BUCKET", "srtcm": "CORA_SRTCM", "trtcm": "CORA_TRTCM"}


class HostMeter:
    """Everything generated for one meter."""

    def __init__(self, state: MeterState, names: Names) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for numbers the engine does not take."""
        common.check_capacity(state)
        largest = max(state.rate, state.burst, state.excess_burst, state.peak_rate, state.peak_burst)
        if largest >= 1 << 64:
            raise fail(Kind.ENGINE_LIMIT, f"meter {state.name}: rates and bursts must be below 2^64", span=state.span)
        self.state = state
        self.table = names.state(state.name)
        self.field_names = {f.name: names.field(f.name) for f in state.fields}
        self.fields = common.typed(state.fields, self.field_names)
        self.key_names = [n for n, _ in self.fields]
        self.lru = state.full == "evict_lru"

    @property
    def expires(self) -> bool:
        """Whether the engine removes its entries when they are due."""
        return True

    def _before_removal(self) -> Lines:
        """What has to happen before entry ``at`` is removed."""
        return []

    def _when_due(self) -> Lines:
        """What has to happen before entry ``at`` is looked at because it seems to be due."""
        return []

    def _when_found(self) -> Lines:
        """What has to happen before entry ``at`` is charged; it may turn out to be none."""
        return []

    def _after_insert(self) -> Lines:
        """What has to happen once entry ``at`` is made."""
        return []

    # What a charge is told beside its key: a C parameter.
    told: str = ""

    def _not_found(self) -> str:
        return f"{self.table}_insert(E, now{common.arguments(self.key_names)}, size)"

    def structures(self) -> Lines:
        t = self.table
        members = [(bytes_of(ty), f"{value_type(ty)} {name};") for name, ty in self.fields]
        members += [(32, "struct cora_buckets buckets;"), (8, "uint64_t last; /* ns */"), (1, "uint8_t live;")]
        return [
            f"struct {t}_entry {{",
            *common.struct_members(members),
            f"}} __attribute__((aligned({common.alignment(members)})));",
            "",
            f"struct {t} {{",
            f"    struct {t}_entry *entries;",
            "    struct cora_slots slots;",
            "    struct cora_index index_0;",
            "    struct cora_expiry expiry;",
            *(["    struct cora_recency recency;"] if self.lru else []),
            "    CORA_IF_PROFILE(struct cora_table_profile profile;)",
            "};",
        ]

    def functions(self) -> Lines:
        t = self.table
        timeout = literal(self.state.timeout, U64)
        out = [f"/* {comment(self.state.name)} */", self._spec(), f"static const uint64_t {t}_timeout = {timeout};", ""]
        entry_hash = f"{t}_hash_0(E{common.arguments([f'e->{n}' for n in self.key_names])})"
        parts = (
            common.hash_function(f"{t}_hash_0", self.fields, self.state),
            common.find_function(f"{t}_find_0", t, "index_0", self.fields),
            common.grow_function(f"{t}_grow_0", t, "index_0", entry_hash),
            self._remove(entry_hash), self._expire(), self._link(entry_hash), self._insert(), self._police(),
            self._open(), self._close(), self._dump(), self._load(),
        )
        for part in parts:
            out += [*part, ""]
        return out

    def _spec(self) -> str:
        s = self.state
        second = (s.peak_rate, s.peak_burst) if s.algorithm == "trtcm" else (0, s.excess_burst)
        numbers = (s.rate, s.burst, *(second if s.algorithm != "token_bucket" else (0, 0)))
        listed = ", ".join(literal(n, U64) for n in numbers)
        return f"static const struct cora_meter_spec {self.table}_spec = {{{_ALGORITHMS[s.algorithm]}, {listed}}};"

    def _remove(self, entry_hash: str) -> Lines:
        t = self.table
        return [
            f"CORA_COLD void {t}_remove(struct cora_engine *E, uint32_t at)", "{",
            f"    struct {t}_entry *e = &E->{t}.entries[at];",
            *self._before_removal(),
            f"    cora_index_remove(&E->{t}.index_0, {entry_hash}, at);",
            f"    cora_expiry_remove(&E->{t}.expiry, at);",
            *([f"    cora_recency_remove(&E->{t}.recency, at);"] if self.lru else []),
            "    e->live = 0;",
            f"    CORA_IF_PROFILE(cora_profile_end(&E->{t}.profile, &E->core, at);)",
            f"    cora_slots_give(&E->{t}.slots, at);", "}",
        ]

    def _expire(self) -> Lines:
        t = self.table
        return [
            f"CORA_COLD void {t}_expire(struct cora_engine *E, uint64_t now)", "{",
            "    uint32_t at;",
            f"    while ((at = cora_expiry_pop(&E->{t}.expiry, now)) != CORA_NONE) {{",
            *self._when_due(),
            f"        uint64_t deadline = cora_add_capped(E->{t}.entries[at].last, {t}_timeout);",
            "        if (deadline >= now) {",
            f"            cora_expiry_push(&E->{t}.expiry, at, deadline);",
            "            continue;", "        }",
            f"        CORA_IF_PROFILE(cora_profile_expiry(&E->{t}.profile, &E->core, CORA_EXPIRED);)",
            f"        {t}_remove(E, at);", "    }", "}",
        ]

    def _link(self, entry_hash: str) -> Lines:
        """Makes a filled entry findable."""
        t = self.table
        return [
            f"static inline void {t}_link(struct cora_engine *E, uint32_t at)", "{",
            f"    struct {t}_entry *e = &E->{t}.entries[at];",
            f"    if (CORA_UNLIKELY(E->{t}.index_0.count >= E->{t}.index_0.limit))",
            f"        {t}_grow_0(E);",
            f"    cora_index_add(&E->{t}.index_0, {entry_hash}, at);",
            "    e->live = 1;",
            *([f"    cora_recency_add(&E->{t}.recency, at);"] if self.lru else []),
            f"    uint64_t deadline = cora_add_capped(e->last, {t}_timeout);",
            f"    cora_expiry_add(&E->{t}.expiry, at, deadline);",
            "    E->core.next_due = cora_min64(E->core.next_due, deadline);",
            f"    CORA_IF_PROFILE(cora_profile_insert(&E->{t}.profile, &E->core, at);)", "}",
        ]

    def _insert(self) -> Lines:
        """A key without an entry: full buckets, charged, if the packet fits them and the table has room."""
        t = self.table
        full = [f"    if (E->{t}.slots.count == E->{t}.slots.capacity)"]
        if self.lru:
            full += ["    {", f"        CORA_IF_PROFILE(cora_profile_expiry(&E->{t}.profile, &E->core, CORA_EVICTED);)",
                     f"        {t}_remove(E, E->{t}.recency.oldest);", "    }"]
        else:
            full += [f"        {{ CORA_IF_PROFILE(E->{t}.profile.events[CORA_FULL]++;) return CORA_COLOUR_FULL; }}"]
        return [
            f"CORA_COLD enum cora_colour {t}_insert(struct cora_engine *E, uint64_t now, "
            f"{common.parameters(self.fields)}, uint64_t size)",
            "{",
            f"    struct cora_buckets buckets = cora_full_buckets(&{t}_spec);",
            f"    enum cora_colour colour = cora_charge(&{t}_spec, &buckets, size);",
            "    if (colour == CORA_COLOUR_RED)",
            "        return colour;",
            *full,
            f"    uint32_t at = cora_slots_take(&E->{t}.slots);",
            f"    struct {t}_entry *e = &E->{t}.entries[at];",
            *(f"    e->{n} = {n};" for n in self.key_names),
            "    e->buckets = buckets;",
            "    e->last = now;",
            f"    {t}_link(E, at);",
            *self._after_insert(),
            "    return colour;", "}",
        ]

    def _police(self) -> Lines:
        t = self.table
        keys = common.arguments(self.key_names)
        return [
            f"static inline enum cora_colour {t}_police(struct cora_engine *E, {self.told}uint64_t hash, uint64_t now, "
            f"{common.parameters(self.fields)}, uint64_t size)",
            "{",
            f"    uint32_t at = {t}_find_0(E, hash{keys});",
            *self._when_found(),
            f"    CORA_IF_PROFILE(E->{t}.profile.events[at == CORA_NONE ? CORA_MISS_FIRST : CORA_HIT_FIRST]++;)",
            "    enum cora_colour colour;",
            "    if (at == CORA_NONE) {",
            f"        colour = {self._not_found()};",
            "    } else {",
            f"        struct {t}_entry *e = &E->{t}.entries[at];",
            f"        cora_refill(&{t}_spec, &e->buckets, now - e->last);",
            "        e->last = now;",
            *([f"        cora_recency_use(&E->{t}.recency, at);"] if self.lru else []),
            f"        colour = cora_charge(&{t}_spec, &e->buckets, size);",
            f"        CORA_IF_PROFILE(cora_profile_use(&E->{t}.profile, &E->core, at);)",
            "    }",
            f"    CORA_IF_PROFILE(if (colour != CORA_COLOUR_FULL) E->{t}.profile.events[CORA_GREEN + colour]++;)",
            "    return colour;", "}",
        ]

    def _open(self) -> Lines:
        t, capacity = self.table, f"{self.state.capacity}u"
        return [
            f"CORA_COLD void {t}_open(struct cora_engine *E)", "{",
            f"    E->{t}.entries = cora_zeroed({capacity}, sizeof *E->{t}.entries);",
            f"    cora_slots_init(&E->{t}.slots, {capacity});",
            f"    cora_index_init(&E->{t}.index_0, 16);",
            f"    cora_expiry_init(&E->{t}.expiry, {capacity});",
            *([f"    cora_recency_init(&E->{t}.recency, {capacity});"] if self.lru else []),
            f"    CORA_IF_PROFILE(cora_profile_init(&E->{t}.profile, {capacity});)", "}",
        ]

    def _close(self) -> Lines:
        t = self.table
        return [
            f"CORA_COLD void {t}_close(struct cora_engine *E)", "{",
            f"    cora_release(E->{t}.entries, {self.state.capacity}u, sizeof *E->{t}.entries);",
            f"    cora_slots_close(&E->{t}.slots);",
            f"    cora_index_close(&E->{t}.index_0);",
            f"    cora_expiry_close(&E->{t}.expiry);",
            *([f"    cora_recency_close(&E->{t}.recency);"] if self.lru else []),
            f"    CORA_IF_PROFILE(cora_profile_close(&E->{t}.profile);)", "}",
        ]

    def _members(self) -> dict[str, str]:
        return {LAST: "e->last", FIRST_CREDIT: "e->buckets.first", SECOND_CREDIT: "e->buckets.second",
                **{f: f"e->{n}" for f, n in self.field_names.items()}}

    def _dump(self) -> Lines:
        t, row = self.table, meter_row(self.state)
        return [
            f"CORA_COLD void {t}_dump(const struct cora_engine *E, uint8_t *out)", "{",
            f"    for (uint32_t at = 0; at < E->{t}.slots.top; at++) {{",
            f"        const struct {t}_entry *e = &E->{t}.entries[at];",
            "        if (!e->live)", "            continue;",
            *(f"        {line}" for line in common.copies_out(row, self._members())),
            f"        out += {row.size};", "    }", "}",
        ]

    def _load(self) -> Lines:
        t, row = self.table, meter_row(self.state)
        keys = common.arguments([f"e->{n}" for n in self.key_names])
        return [
            f"CORA_COLD bool {t}_load(struct cora_engine *E, const uint8_t *row)", "{",
            f"    if (E->{t}.slots.count == E->{t}.slots.capacity)", "        return false;",
            f"    struct {t}_entry loaded = {{0}}, *e = &loaded;",
            *(f"    {line}" for line in common.copies_in(row, self._members())),
            f"    if ({t}_find_0(E, {t}_hash_0(E{keys}){keys}) != CORA_NONE)", "        return false;",
            f"    uint32_t at = cora_slots_take(&E->{t}.slots);",
            f"    E->{t}.entries[at] = loaded;",
            f"    {t}_link(E, at);",
            "    return true;", "}",
        ]
