"""The kernel's programs that user space runs: messages to the near place, the sweep, dumping and loading rows."""

from __future__ import annotations

from collections.abc import Mapping

from cora.emit.bpf_map import BpfMap, BpfPool
from cora.emit.bpf_table import BpfTable
from cora.emit.dialect import Lines
from cora.ir.nodes import CounterState, PoolState
from cora.ir.parts import Split


def services(split: Split, tables: Mapping[str, BpfTable], pools: Mapping[str, BpfPool],
             counters: Mapping[str, int]) -> Lines:
    """All of them, for the tables of the kernel's part."""
    out: Lines = []
    lent = [t for t in tables.values() if t.is_lent]
    for table in lent:
        out += _lent_functions(table)
    out += [*_told(lent), "", *_swept(tables), ""]
    states = split.parts[0].program.states
    numbers = {s.name: i for i, s in enumerate(states)}
    dump: Lines = []
    load: Lines = []
    for name, table in tables.items():
        out += [*_dump_table(table), *_load_table(table)]
        dump.append(f"    case {numbers[name]}: {table.table}_dump(call); break;")
        load += [] if table.is_lent else [f"    case {numbers[name]}: {table.table}_load(call); break;"]
    for state in states:
        if isinstance(state, PoolState):
            out += _pool_rows(pools[state.name])
            dump.append(f"    case {numbers[state.name]}: {pools[state.name].pool}_dump(call); break;")
            load.append(f"    case {numbers[state.name]}: {pools[state.name].pool}_load(call); break;")
        elif isinstance(state, CounterState):
            call = f"cora_dump_counter(call, {counters[state.name]}, {state.size})"
            dump.append(f"    case {numbers[state.name]}: {call}; break;")
    if counters:
        out += _COUNTER_DUMP
    out += _entry_point("cora_dump", dump)
    return [*out, "", *_entry_point("cora_load", load)]


def _entry_point(name: str, cases: Lines) -> Lines:
    none = "cora_nothing(call);" if name == "cora_dump" else "call->next = 0;"
    nothing = ["static inline void cora_nothing(struct cora_rows_call *call)", "{", "    call->count = 0;",
               "    call->next = CORA_ROWS_END;", "}", ""] if name == "cora_dump" else []
    return [*nothing, 'SEC("syscall")', f"int {name}(struct cora_rows_call *call)", "{", "    switch (call->state) {",
            *cases, f"    default: {none}", "    }", "    return 0;", "}"]


def _lent_functions(table: BpfTable) -> Lines:
    """What a message does to the table of lent entries. One thread of the user half sends them."""
    t, row = table.table, table.row()
    keys = {f for key in _key_names(table) for f in key}
    kept = [line for f in row.fields if f.name not in keys for line in table.member_in(f.name, f.offset, f.size)]
    kept = [line.replace("&n->", "&e->") for line in kept]
    return [
        "/* The entry as it is now, to its owner. */",
        f"static inline void {t}_say(const struct {t}_entry *e, struct cora_kernel_call *call, "
        "enum cora_message_kind kind)", "{",
        "    struct cora_message *m = &call->answer;",
        "    m->kind = kind;",
        "    m->to = call->message.to;",
        "    m->lending = call->message.lending;",
        "    m->slot = e->lent.slot;",
        "    m->serial = e->lent.serial;",
        "    m->used = e->lent.used;",
        "    m->gap = e->lent.gap;",
        "    m->active = e->lent.active;",
        f"    {t}_row(e, m->row);",
        "    call->answered = 1;", "}", "",
        "/* Gives an entry back: from here on no packet finds it, and its last values are in the answer. */",
        f"static CORA_ALONE int {t}_return(uint32_t at, struct cora_kernel_call *call)", "{",
        "    struct cora_lock *lock = cora_entry_lock(at);",
        f"    if (!lock || at >= {t}_capacity)", "        return 0;",
        f"    struct {t}_entry *e = &{t}_entries[at];",
        "    bpf_spin_lock(&lock->lock);",
        "    e->life++;",
        f"    {t}_say(e, call, CORA_RETURNED);",
        "    bpf_spin_unlock(&lock->lock);",
        "    uint32_t slot = e->lent.slot;",
        f"    if (slot < {table.owned}u)",
        f"        {t}_by_slot[slot] = 0;",
        f"    {t}_unlink(at);",
        "    return 0;", "}", "",
        f"uint32_t {t}_hand;", "",
        f"static long {t}_look_idle(uint32_t i, struct cora_idle *search)", "{",
        f"    uint32_t at = {t}_hand + i;",
        f"    if (at >= {t}_capacity)",
        f"        at -= {t}_capacity;",
        f"    if (at >= {t}_capacity)", "        return 0;",
        f"    const struct {t}_entry *e = &{t}_entries[at];",
        "    if (e->life & 1 && e->lent.used < search->used) {",
        "        search->used = e->lent.used;",
        "        search->found = at;",
        "    }",
        "    return 0;", "}", "",
        "/* Of the next entries in turn, the one that is idle longest. */",
        f"static CORA_ALONE uint32_t {t}_idle(void)", "{",
        "    struct cora_idle search = {.used = CORA_NEVER, .found = CORA_NONE};",
        f"    bpf_loop(CORA_SAMPLE, {t}_look_idle, &search, 0);",
        f"    {t}_hand = ({t}_hand + CORA_SAMPLE) % {t}_capacity;",
        "    return search.found;", "}", "",
        f"static CORA_ALONE int {t}_refuse(struct cora_kernel_call *call, struct cora_counts *counts)", "{",
        "    struct cora_message *m = &call->answer;",
        "    m->kind = CORA_REFUSAL;",
        "    m->to = call->message.to;",
        "    m->lending = call->message.lending;",
        "    m->slot = call->message.slot;",
        "    m->serial = call->message.serial;",
        "    m->active = false;",
        "    call->answered = 1;",
        "    counts->statistics[CORA_REFUSED]++;",
        "    return 0;", "}", "",
        f"static CORA_ALONE int {t}_lend(struct cora_kernel_call *call, struct cora_counts *counts)", "{",
        "    struct cora_message *m = &call->message;",
        f"    if ({t}_slots.count == {t}_capacity) {{",
        f"        uint32_t idle = {t}_idle();",
        f"        if (idle >= {t}_capacity || !cora_lent_replaces(m, {t}_entries[idle].lent.used,",
        f"                                                        {t}_entries[idle].lent.gap))",
        f"            return {t}_refuse(call, counts);",
        "        counts->statistics[CORA_EVICTED]++;",
        f"        {t}_return(idle, call);",
        "    }",
        f"    struct {t}_new n = {{.loaded = 1}};",
        f"    {t}_read_row(&n, m->row);",
        f"    n.hash = {table._hash_of(0, 'n.')};",
        "    n.lent.slot = m->slot;",
        "    n.lent.serial = m->serial;",
        "    n.lent.used = m->used;",
        "    n.lent.gap = m->gap;",
        "    n.lent.pending = true;",
        "    n.lent.round = cora_volatile(&cora_shared.rounds.open);",
        f"    uint32_t at = {t}_insert(&n);",
        "    uint32_t slot = m->slot;",
        f"    if (at >= {t}_capacity || slot >= {table.owned}u) {{",
        "        counts->statistics[CORA_STRAY]++;",
        f"        return {t}_refuse(call, counts);",
        "    }",
        f"    {t}_by_slot[slot] = at + 1;",
        f"    counts->statistics[CORA_PEAK] = {t}_slots.top;",
        "    return 0;", "}", "",
        f"static long {t}_look_live(uint32_t i, struct cora_idle *search)", "{",
        "    uint32_t at = (uint32_t)search->used + i;",
        f"    if (at >= {t}_capacity)", "        return 1;",
        f"    if (!({t}_entries[at].life & 1))", "        return 0;",
        "    search->found = at;",
        "    return 1;", "}", "",
        "/* Gives back any entry, from number `number` on: to an owner that knows of none, its process being new. */",
        f"static CORA_ALONE int {t}_return_any(struct cora_kernel_call *call)", "{",
        "    struct cora_idle search = {.used = call->message.number, .found = CORA_NONE};",
        f"    bpf_loop({t}_capacity, {t}_look_live, &search, 0);",
        f"    if (search.found >= {t}_capacity)", "        return 0;",
        f"    {t}_return(search.found, call);",
        "    call->answer.number = search.found + (uint64_t)1;",
        "    return 0;", "}", "",
        f"static CORA_ALONE int {t}_told(struct cora_kernel_call *call, struct cora_counts *counts)", "{",
        "    struct cora_message *m = &call->message;",
        "    if (m->kind == CORA_LEND)",
        f"        return {t}_lend(call, counts);",
        "    uint32_t slot = m->slot;",
        "    if (m->kind == CORA_RECALL && slot == CORA_NONE)",
        f"        return {t}_return_any(call);",
        f"    if (slot >= {table.owned}u)", "        return 0;",
        f"    uint32_t at = {t}_by_slot[slot] - 1;",
        "    struct cora_lock *lock = cora_entry_lock(at);",
        "    /* It went back by itself in the meantime, and its owner has been told. */",
        f"    if (!lock || at >= {t}_capacity || {t}_entries[at].lent.serial != m->serial)", "        return 0;",
        "    if (m->kind == CORA_RECALL)",
        f"        return {t}_return(at, call);",
        f"    struct {t}_entry *e = &{t}_entries[at];",
        "    if (m->kind == CORA_ASK) {",
        "        bpf_spin_lock(&lock->lock);",
        "        e->lent.known = e->deadline;",
        f"        {t}_say(e, call, CORA_ANSWER);",
        "        bpf_spin_unlock(&lock->lock);",
        "        return 0;",
        "    }",
        "    if (m->kind != CORA_UPDATE)", "        return 0;",
        "    const uint8_t *row = m->row;",
        "    bpf_spin_lock(&lock->lock);",
        "    bool active = e->lent.active;",
        *kept,
        f"    e->deadline = {table.deadline('e->last', 'e->timeout')};",
        "    e->lent.known = e->deadline;",
        "    e->lent.used = m->used;",
        "    e->lent.gap = m->gap;",
        "    bpf_spin_unlock(&lock->lock);",
        "    if (active)",
        "        counts->statistics[CORA_STRAY]++;",
        "    return 0;", "}", "",
    ]


def _key_names(table: BpfTable) -> list[tuple[str, ...]]:
    if isinstance(table, BpfMap):
        return [k.fields for k in table.state.keys]
    return [tuple(f.name for f in table.state.fields)]


def _told(lent: list[BpfTable]) -> Lines:
    cases = [f"    case {t.lending}: {t.table}_told(call, counts); break;" for t in lent]
    return ["/* A message to this place; what it has to say to the owner is in the answer. */",
            'SEC("syscall")', "int cora_told(struct cora_kernel_call *call)", "{",
            "    struct cora_counts *counts = cora_own_counts();",
            "    call->answered = 0;",
            "    if (!counts)", "        return 1;", "    switch (call->message.lending) {",
            *cases, "    default: break;", "    }", "    return 0;", "}"]


def _swept(tables: Mapping[str, BpfTable]) -> Lines:
    ageing = [t for t in tables.values() if t.ages]
    return ["/* Removes what is due. */",
            'SEC("syscall")', "int cora_sweep(struct cora_sweep_call *call)", "{",
            "    uint64_t now = call->now ? call->now : cora_clock();",
            "    uint64_t removed = 0;", "    (void)now;",
            *(f"    removed += {t.table}_expire(now);" for t in ageing),
            "    call->removed = removed;", "    return 0;", "}"]


def _dump_table(table: BpfTable) -> Lines:
    """A row is copied under its entry's lock, so it is one that a packet could have left."""
    t, size = table.table, table.row().size
    due = " && e->deadline >= walk->now" if table.timeouts() else ""
    return [
        f"struct {t}_dumping {{", "    struct cora_rows *rows;", "    uint64_t now;",
        "    uint32_t from, count, next;", "};", "",
        f"static long {t}_dump_one(uint32_t i, struct {t}_dumping *walk)", "{",
        "    uint32_t at = walk->from + i, place = walk->count;",
        f"    if (at >= {t}_capacity || at >= {t}_slots.top)", "        return 1;",
        f"    if (place >= CORA_ROWS_ROOM / {size}u) {{", "        walk->next = at;", "        return 1;", "    }",
        f"    const struct {t}_entry *e = &{t}_entries[at];",
        "    if (!(e->life & 1))", "        return 0;",
        "    uint32_t zero = 0;",
        "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
        "    struct cora_lock *lock = cora_entry_lock(at);",
        "    if (!rows || !lock)", "        return 1;",
        f"    uint8_t *out = rows->bytes + place * {size}u;",
        "    bpf_spin_lock(&lock->lock);",
        f"    bool live = e->life & 1{due};",
        "    if (live)",
        f"        {t}_row(e, out);",
        "    bpf_spin_unlock(&lock->lock);",
        "    walk->count += live;",
        "    return 0;", "}", "",
        f"static CORA_ALONE int {t}_dump(struct cora_rows_call *call)", "{",
        f"    struct {t}_dumping walk = {{.now = call->now ? call->now : cora_clock(), .from = call->from,",
        "                                .next = CORA_ROWS_END};",
        f"    bpf_loop({t}_capacity, {t}_dump_one, &walk, 0);",
        "    call->count = walk.count;", "    call->next = walk.next;", "    return 0;", "}", "",
    ]


def _load_table(table: BpfTable) -> Lines:
    if table.is_lent:
        return []
    t, size = table.table, table.row().size
    return [
        f"static long {t}_load_one(uint32_t i, uint32_t *taken)", "{",
        "    uint32_t zero = 0;",
        "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
        f"    if (!rows || i >= CORA_ROWS_ROOM / {size}u)", "        return 1;",
        f"    struct {t}_new n = {{.loaded = 1}};",
        f"    const uint8_t *row = rows->bytes + i * {size}u;",
        f"    {t}_read_row(&n, row);",
        f"    n.hash = {table._hash_of(0, 'n.')};",
        f"    if ({t}_insert(&n) >= {t}_capacity)", "        return 1;",
        "    *taken = i + 1;",
        "    return 0;", "}", "",
        f"static CORA_ALONE int {t}_load(struct cora_rows_call *call)", "{",
        "    uint32_t taken = 0;",
        f"    bpf_loop(call->count, {t}_load_one, &taken, 0);",
        "    call->next = taken;", "    return 0;", "}", "",
    ]


def _pool_rows(pool: BpfPool) -> Lines:
    """A pool's dump: where the next search starts, then its bitmap, in rows of one word."""
    p, words = pool.pool, pool.words
    walk = ["    uint32_t zero = 0;", "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
            f"    if (!rows || i >= {words} || i + 1 >= CORA_ROWS_ROOM / 8)", "        return 1;",
            "    uint8_t *word = rows->bytes + 8 * (i + 1);"]
    return [
        f"static long {p}_dump_one(uint32_t i, void *unused)", "{", "    (void)unused;", *walk,
        f"    cora_set64(word, {p}_used[i]);", "    return 0;", "}", "",
        f"static CORA_ALONE int {p}_dump(struct cora_rows_call *call)", "{",
        "    uint32_t zero = 0;", "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
        "    if (!rows)", "        return 1;",
        f"    cora_set64(rows->bytes, {p}_next);",
        f"    bpf_loop({words}, {p}_dump_one, NULL, 0);",
        f"    call->count = {words + 1};", "    call->next = CORA_ROWS_END;", "    return 0;", "}", "",
        f"static long {p}_load_one(uint32_t i, void *unused)", "{", "    (void)unused;", *walk,
        f"    {p}_used[i] = cora_raw64(word);", "    return 0;", "}", "",
        f"static CORA_ALONE int {p}_load(struct cora_rows_call *call)", "{",
        "    uint32_t zero = 0;", "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
        "    call->next = 0;",
        f"    if (!rows || call->count != {words + 1} || cora_raw64(rows->bytes) >= {pool.state.size})",
        "        return 1;",
        f"    {p}_next = cora_raw64(rows->bytes);",
        f"    bpf_loop({words}, {p}_load_one, NULL, 0);",
        f"    call->next = {words + 1};", "    return 0;", "}", "",
    ]


_COUNTER_DUMP = [
    "struct cora_counting {", "    uint64_t packets, octets;", "    uint32_t number;", "};", "",
    "static long cora_count_cpu(uint32_t cpu, struct cora_counting *sum)", "{",
    "    uint32_t zero = 0;",
    "    struct cora_counts *counts = bpf_map_lookup_percpu_elem(&cora_counts, &zero, cpu);",
    "    if (!counts)", "        return 1;",
    "    uint32_t number = sum->number;",
    "    if (number >= CORA_COUNTERS)", "        return 1;",
    "    sum->packets += counts->counters[number].packets;",
    "    sum->octets += counts->counters[number].octets;",
    "    return 0;", "}", "",
    "static long cora_count_one(uint32_t i, uint32_t *base)", "{",
    "    uint32_t zero = 0;",
    "    struct cora_rows *rows = bpf_map_lookup_elem(&cora_rows, &zero);",
    "    struct cora_counting sum = {.number = *base + i};",
    "    if (!rows || i >= CORA_ROWS_ROOM / 16)", "        return 1;",
    "    bpf_loop(4096, cora_count_cpu, &sum, 0);",
    "    cora_set64(rows->bytes + 16 * i, sum.packets);",
    "    cora_set64(rows->bytes + 16 * i + 8, sum.octets);",
    "    return 0;", "}", "",
    "static CORA_ALONE int cora_dump_counter(struct cora_rows_call *call, uint32_t base, uint32_t size)", "{",
    "    bpf_loop(size, cora_count_one, &base, 0);",
    "    call->count = size;", "    call->next = CORA_ROWS_END;", "    return 0;", "}", "",
]
