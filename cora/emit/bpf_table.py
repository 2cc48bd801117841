"""Tables of the kernel's half: entries in one array, a hash chain for each key, expiry by a sweep.

What maps and meters share. cora/emit/runtime/bpf/table.h says how look-ups, changes and removals on several CPUs go
together; cora/emit/runtime/bpf/core.h says what is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cora.emit import host_common as common
from cora.emit.dialect import Lines
from cora.emit.layout import CLASS, LAST, Row
from cora.emit.names import Names, comment, literal, value_type
from cora.ir.nodes import FieldDecl, MapState, MeterState, PoolState
from cora.ir.types import U64, Type, bytes_of

# Words of a key have a seed each (CORA_SEEDS in abi.h, less the one of the final mixing).
KEY_WORDS = 63
# Nanoseconds: packets are not stamped so late, nor do most time-outs last so long.
LONG = 1 << 62


@dataclass(frozen=True)
class Member:
    """A member of an entry that a row carries: its C name and bytes."""

    name: str
    size: int


class BpfTable:
    """What is generated for one map or meter of the kernel's half.

    Attributes:
        number: of the table's lock. owned: capacity at the owner of a table of lent entries, None for a whole one.
        lending: number of its lending.
    """

    def __init__(self, state: MapState | MeterState, names: Names, number: int, capacity: int, *,
                 owned: int | None = None, lending: int = 0) -> None:
        self.state, self.names, self.number, self.capacity = state, names, number, capacity
        self.owned, self.lending = owned, lending
        self.table = names.state(state.name)
        self.field_names = {f.name: names.field(f.name) for f in state.fields}
        self.types = {f.name: f.type for f in state.fields}
        self.bits = max(1, (capacity - 1).bit_length())
        # Whether packets change nothing of an entry but the time of its last use, in one class: they need no lock then.
        self.quiet = False

    # What subclasses say.

    def keys(self) -> list[tuple[str, list[tuple[str, Type]]]]:
        """(name, fields) of each key."""
        raise NotImplementedError

    def row(self) -> Row:
        """How an entry travels."""
        raise NotImplementedError

    def timeouts(self) -> list[int]:
        """Nanoseconds by class; empty: entries are not due."""
        raise NotImplementedError

    def own_members(self) -> list[tuple[int, str]]:
        """(bytes, declaration) of members beside fields and bookkeeping."""
        return []

    def row_members(self) -> dict[str, Member]:
        """The member behind each name of the row, but the credits of a meter's wide rows."""
        out = {f: Member(n, bytes_of(self.types[f])) for f, n in self.field_names.items()}
        return {**out, LAST: Member("last", 8), CLASS: Member("timeout", 1)}

    def pool_lines(self) -> tuple[Lines, Lines, Lines]:
        """Statements that take pool values before an insert, return them when it fails, and note them in the entry."""
        return [], [], []

    def give_pools(self) -> Lines:
        """Statements that give the pool values of the removed entry back."""
        return []

    def keep_pools(self) -> Lines:
        """Statements that note the pool values of the entry ``e``, which is another CPU's as soon as it is free."""
        return []

    # The entry.

    @property
    def is_lent(self) -> bool:
        return self.owned is not None

    @property
    def ages(self) -> bool:
        """Whether entries are removed here when they are due; lent ones are removed by their owner."""
        return bool(self.timeouts()) and not self.is_lent

    @property
    def infers_last(self) -> bool:
        """Whether the last use is told by the deadline alone: of entries with one time-out that packets do not lock."""
        return self.quiet and len(self.timeouts()) == 1

    def all_fields(self) -> list[tuple[str, Type]]:
        return [(self.field_names[f.name], f.type) for f in self.state.fields]

    def typed(self, fields: Iterable[FieldDecl]) -> list[tuple[str, Type]]:
        return [(self.field_names[f.name], f.type) for f in fields]

    def structures(self) -> Lines:
        """The entry, and what an insert is told; then the table in memory."""
        t = self.table
        keys = self.keys()
        members = [(bytes_of(ty), f"{value_type(ty)} {name};") for name, ty in self.all_fields()]
        members += [] if self.infers_last else [(8, "uint64_t last; /* ns */")]
        members += [(8, "uint64_t deadline;"), *self.own_members()]
        chained = [i for i in range(len(keys)) if self.direct(i) is None]
        life = "uint32_t life; /* odd: alive; changes when the entry is made or removed */"
        bookkeeping = [*((4, f"uint32_t next_{i};") for i in chained), (4, life)]
        members += [*bookkeeping, (1, "uint8_t timeout; /* class */")]
        lent = [(80, "struct cora_lent_entry lent;")] if self.is_lent else []
        told = [(bytes_of(ty), f"{value_type(ty)} {name};") for name, ty in self.all_fields()]
        told += [(8, "uint64_t hash; /* of the first key */"), (8, "uint64_t last;"), *self.told_members(), *lent,
                 (1, "uint8_t timeout;"), (1, "uint8_t loaded; /* pool values are not to be taken */")]
        out = [f"/* {comment(self.state.name)} */", f"#define {t}_capacity {self.capacity}u",
               f"struct {t}_entry {{", *common.struct_members(members + lent),
               f"}} __attribute__((aligned({common.alignment(members + lent)})));", "",
               f"struct {t}_new {{", *common.struct_members(told), "};", "",
               f"struct {t}_entry {t}_entries[{self.capacity}];",
               *(f"uint32_t {t}_heads_{i}[{self.buckets(i)}]; /* {comment(name) or 'key'} */"
                 for i, (name, _) in enumerate(keys)),
               f"uint32_t {t}_free[{self.capacity}];",
               f"struct cora_slots {t}_slots;",
               f"uint64_t {t}_due;"]
        if self.is_lent:
            out.append(f"uint32_t {t}_by_slot[{self.owned}]; /* entry and 1, by its owner's number */")
        return [*out, ""]

    def told_members(self) -> list[tuple[int, str]]:
        """Members of the new entry's description beside fields and bookkeeping."""
        return []

    # Functions.

    def functions(self) -> Lines:
        """All functions of the table, each defined before it is used."""
        out: Lines = []
        if self.timeouts():
            out += [f"static inline uint64_t {self.table}_timeout(uint8_t number)", "{", *self._timeout_cases(), "}",
                    ""]
        for number, (name, fields) in enumerate(self.keys()):
            out += [f"/* {comment(f'{self.state.name}.{name}' if name else self.state.name)} */",
                    *self._hash(number, fields), "", *self._find(number, fields), "", *self._is(number, fields), "",
                    *(self._seek(number, fields) if self.quiet else [])]
        parts = [self._unlink(), self._kill(), self._sweep(), self._insert(), self._row_out(), self._row_in()]
        for part in parts:
            out += [*part, ""] if part else []
        return out

    def _timeout_cases(self) -> Lines:
        values = [literal(n, U64) for n in self.timeouts()]
        if len(values) == 1:
            return ["    (void)number;", f"    return {values[0]};"]
        return ["    switch (number) {", *(f"    case {i}: return {v};" for i, v in enumerate(values[:-1])),
                f"    default: return {values[-1]};", "    }"]

    def deadline(self, last: str, number: str) -> str:
        """The C expression of an entry's deadline."""
        if not self.timeouts():
            return "CORA_NEVER"
        timeout = f"{self.table}_timeout({number})"
        # No clock comes near 2^63 ns, so only such time-outs can lead beyond 64 bits.
        return f"({last} + {timeout})" if max(self.timeouts()) < LONG else f"cora_add_capped({last}, {timeout})"

    def direct(self, number: int) -> PoolState | None:
        """The pool of which a key is a value: such a key has a place of its own, without hashing."""
        return None

    def buckets(self, number: int) -> int:
        """Chains of a key's index, or places of one that has a place for every key."""
        pool = self.direct(number)
        return 1 << self.bits if pool is None else pool.size

    def bucket(self, number: int, hash_: str) -> str:
        """The C expression of the bucket of a hash."""
        return f"(uint32_t)({hash_} >> {64 - self.bits})" if self.direct(number) is None else f"(uint32_t){hash_}"

    def _hash(self, number: int, fields: Sequence[tuple[str, Type]]) -> Lines:
        head = f"static inline uint64_t {self.table}_hash_{number}({common.parameters(fields)})"
        if self.direct(number) is not None:
            return ["/* The place of a key that is a value of a pool; CORA_NEVER: it is none. */", head, "{",
                    *self.place(number), "}"]
        words = common.key_words(fields, self.state)
        words = words[:-1] if words[-1] == "0" else words
        total = " +\n                    ".join(f"cora_nh({i}, {w})" for i, w in enumerate(words))
        return [head, "{", f"    return cora_mix({total});", "}"]

    def place(self, number: int) -> Lines:
        """Statements that return the place of a direct key."""
        raise NotImplementedError

    def _equal(self, fields: Sequence[tuple[str, Type]]) -> str:
        return " && ".join(f"e->{n} == {n}" for n, _ in fields)

    def _find(self, number: int, fields: Sequence[tuple[str, Type]]) -> Lines:
        t = self.table
        return [
            "/* The entry that seems to have the key, CORA_NONE or CORA_STRAYED. */",
            f"static inline uint32_t {t}_find_{number}(uint64_t hash, {common.parameters(fields)})", "{",
            *self._walk(number, [], f"{self._equal(fields)} && e->life & 1"), "}",
        ]

    def _walk(self, number: int, before: Lines, found: str, answers: tuple[str, str, str] = (
            "return at;", "return CORA_NONE;", "return CORA_STRAYED;")) -> Lines:
        """Statements that look for the entry ``e`` for which ``found`` is true, and answer: found, none, led away."""
        t, (hit, none, strayed) = self.table, answers
        entry = [f"struct {t}_entry *e = &{t}_entries[at];", *before, f"if (CORA_LIKELY({found}))", f"    {hit}"]
        if self.direct(number) is not None:
            return [f"    if (hash < {self.buckets(number)}) {{",
                    f"        uint32_t at = *(volatile uint32_t *)&{t}_heads_{number}[hash] - 1;",
                    f"        if (at < {t}_capacity) {{", *(f"            {line}" for line in entry),
                    "        }", "    }", f"    {none}"]
        return [
            f"    uint32_t bucket = {self.bucket(number, 'hash')};",
            f"    uint32_t next = *(volatile uint32_t *)&{t}_heads_{number}[bucket];",
            "    CORA_LOOP",
            "    for (int i = 0; i < CORA_CHAIN; i++) {",
            "        uint32_t at = next - 1;",
            f"        if (at >= {t}_capacity)",
            "            break;",
            *(f"        {line}" for line in entry),
            f"        next = e->next_{number};",
            "    }",
            "    if (CORA_UNLIKELY(next && next != CORA_LAST(bucket))) {", f"        {strayed}", "    }", f"    {none}",
        ]

    def _is(self, number: int, fields: Sequence[tuple[str, Type]]) -> Lines:
        due = " && e->deadline >= now" if self.timeouts() else ""
        unused = [] if self.timeouts() else ["    (void)now;"]
        return [
            "/* Under the entry's lock: whether it has the key, and is not due. */",
            f"static inline bool {self.table}_is_{number}(const struct {self.table}_entry *e, uint64_t now, "
            f"{common.parameters(fields)})", "{", *unused,
            f"    return e->life & 1 && {self._equal(fields)}{due};", "}",
        ]

    def _seek(self, number: int, fields: Sequence[tuple[str, Type]]) -> Lines:
        """The look-up without a lock: of an entry whose life has not changed since, what was read belongs together."""
        t = self.table
        return [
            "/* The entry with the key and its life, or NULL; a life of CORA_STRAYED: the look-up was led away. */",
            f"static inline struct {t}_entry *{t}_seek_{number}(uint64_t hash, {common.parameters(fields)}, "
            "uint32_t *life)", "{",
            *self._walk(number, ["CORA_KEEP(e);", "*life = cora_life(&e->life);"],
                        f"*life & 1 && {self._equal(fields)}",
                        ("return e;", "*life = 0; return NULL;", "*life = CORA_STRAYED; return NULL;")),
            "}", "",
        ]

    def _hash_of(self, number: int, prefix: str) -> str:
        names = ", ".join(f"{prefix}{n}" for n, _ in self.keys()[number][1])
        return f"{self.table}_hash_{number}({names})"

    def _unlink(self) -> Lines:
        """Removes an entry that is dead: whoever made it so calls this, once."""
        t = self.table
        out = ["/* Takes a dead entry out of its chains; its links stay for those who are walking on them. */",
               f"static CORA_ALONE void {t}_unlink(uint32_t at)", "{",
               f"    struct cora_lock *lock = cora_table_lock({self.number});",
               f"    if (!lock || at >= {t}_capacity)", "        return;",
               f"    struct {t}_entry *e = &{t}_entries[at];", *self.keep_pools()]
        for i in range(len(self.keys())):
            out.append(f"    uint32_t bucket_{i} = {self.bucket(i, self._hash_of(i, 'e->'))};")
        out.append("    bpf_spin_lock(&lock->lock);")
        for i in range(len(self.keys())):
            out += self._unlink_key(i)
        return [*out,
                f"    uint32_t free = {t}_slots.free_count;",
                f"    if (free < {t}_capacity) {{",
                f"        {t}_free[free] = at;",
                f"        {t}_slots.free_count = free + 1;",
                f"        {t}_slots.count--;",
                "    }",
                "    bpf_spin_unlock(&lock->lock);",
                *self.give_pools(), "}"]

    def _unlink_key(self, i: int) -> Lines:
        t = self.table
        if self.direct(i) is not None:
            return [f"    if (bucket_{i} < {self.buckets(i)} && {t}_heads_{i}[bucket_{i}] == at + 1)",
                    f"        {t}_heads_{i}[bucket_{i}] = 0;"]
        return [
            f"    uint32_t *link_{i} = &{t}_heads_{i}[bucket_{i}];",
            "    CORA_LOOP",
            "    for (int i = 0; i < CORA_CHAIN; i++) {",
            f"        uint32_t next = *link_{i} - 1;",
            "        if (next == at) {",
            f"            *link_{i} = e->next_{i};",
            "            break;",
            "        }",
            f"        if (next >= {t}_capacity)",
            "            break;",
            f"        link_{i} = &{t}_entries[next].next_{i};",
            "    }",
        ]

    def _kill(self) -> Lines:
        if not self.ages:
            return []
        t = self.table
        return [
            "/* Removes an entry if it is due. */",
            f"static CORA_ALONE bool {t}_kill(uint32_t at, uint64_t now)", "{",
            "    struct cora_lock *lock = cora_entry_lock(at);",
            f"    if (!lock || at >= {t}_capacity)", "        return false;",
            f"    struct {t}_entry *e = &{t}_entries[at];",
            "    bpf_spin_lock(&lock->lock);",
            "    bool dead = e->life & 1 && e->deadline < now;",
            *self._noticed(),
            "    if (dead)",
            "        e->life++;",
            "    bpf_spin_unlock(&lock->lock);",
            "    if (dead)",
            f"        {t}_unlink(at);",
            "    return dead;", "}",
        ]

    def _noticed(self) -> Lines:
        """A packet writes the deadline before it looks at the life again, and here it is the other way round, each with
        a barrier between: either the packet sees that its entry is going, or its refresh is seen here."""
        if not self.quiet:
            return []
        return ["    if (dead) {",
                "        __sync_fetch_and_add(&e->life, 2);",
                "        dead = cora_volatile(&e->deadline) < now;",
                "    }"]

    def _insert(self) -> Lines:
        t, keys = self.table, self.keys()
        take, give, note = self.pool_lines()
        first = ", ".join(f"n->{name}" for name, _ in keys[0][1])
        out = [
            "/* The new entry's number; CORA_TWICE: its primary key is there; else CORA_NONE, and nothing changed. */",
            f"CORA_ALONE uint32_t {t}_insert(struct {t}_new *n)", "{",
            f"    struct cora_lock *lock = cora_table_lock({self.number});",
            "    struct cora_counts *counts = cora_own_counts();",
            "    uint32_t at = CORA_NONE;",
            "    if (!n || !lock || !counts)", "        return CORA_NONE;",
        ]
        if not self.primary_allocated():
            out += [f"    uint32_t other = {t}_find_0(n->hash, {first});",
                    *self._met("other", "        return CORA_TWICE;")]
        out += [*self._full(), *take]
        for i in range(len(keys)):
            if i == 0 and not self.primary_allocated():
                out.append("    uint64_t hash_0 = n->hash;")
                continue
            fields = ", ".join(f"n->{name}" for name, _ in keys[i][1])
            out += [f"    uint64_t hash_{i} = {self._hash_of(i, 'n->')};",
                    f"    uint32_t other_{i} = {t}_find_{i}(hash_{i}, {fields});",
                    *self._met(f"other_{i}", "        goto fail;" if give else "        return CORA_NONE;")]
        return [*out, *self._commit(note, give), "}"]

    def _full(self) -> Lines:
        """Fails where there is no room. Without slack, entries that are due take none: they are looked for first."""
        t = self.table
        full = f"{t}_slots.count == {t}_capacity"
        if self.ages and not self.state.slack:
            full += f" && !{t}_expire(n->last)"
        return [f"    if ({full})", "        return CORA_NONE;"]

    def primary_allocated(self) -> bool:
        """Whether the first key is complete only after the allocation."""
        return False

    def _met(self, other: str, fail: str) -> Lines:
        """What it means that an insert found its key: an entry that is due makes room, any other one stays."""
        t = self.table
        due = f" && !{t}_kill({other}, n->last)" if self.ages else ""
        return [f"    if ({other} < {t}_capacity{due})", fail]

    def _commit(self, note: Lines, give: Lines) -> Lines:
        """Under the directory's lock: no other CPU made the key meanwhile, there is room, and the entry is linked."""
        t, keys = self.table, self.keys()
        out = ["    bool present = false, crowded = false, twice = false;"]
        out += [f"    uint32_t bucket_{i} = {self.bucket(i, f'hash_{i}')};" for i in range(len(keys))]
        out.append("    bpf_spin_lock(&lock->lock);")
        for i, (_, fields) in enumerate(keys):
            out += self._look(i, " && ".join(f"e->{n} == n->{n}" for n, _ in fields))
            out += ["    twice = present;"] if i == 0 and not self.primary_allocated() else []
        out += [
            f"    uint32_t free = {t}_slots.free_count - 1, top = {t}_slots.top;",
            "    if (!present && !crowded) {",
            f"        if (free < {t}_capacity) {{",
            f"            at = {t}_free[free];",
            f"            {t}_slots.free_count = free;",
            f"        }} else if (top < {t}_capacity) {{",
            "            at = top;",
            f"            {t}_slots.top = top + 1;",
            "        }",
            "    }",
            f"    if (at < {t}_capacity) {{",
            f"        struct {t}_entry *e = &{t}_entries[at];",
            f"        {t}_slots.count++;",
            *(f"        e->{name} = n->{name};" for name, _ in self.all_fields()),
            *([] if self.infers_last else ["        e->last = n->last;"]),
            "        e->timeout = n->timeout;",
            f"        e->deadline = {self.deadline('n->last', 'n->timeout')};",
            *(["        e->lent = n->lent;", "        e->lent.known = e->deadline;"] if self.is_lent else []),
            *(f"        {line}" for line in (*note, *self.copied_members())),
        ]
        for i in (i for i in range(len(keys)) if self.direct(i) is None):
            out += [f"        uint32_t head_{i} = {t}_heads_{i}[bucket_{i}];",
                    f"        e->next_{i} = head_{i} ? head_{i} : CORA_LAST(bucket_{i});"]
        # An atomic exchange is a barrier: who sees the entry alive or linked sees all of it.
        out += ["        __sync_fetch_and_add(&e->life, 1);",
                *(f"        {'' if self.direct(i) is None else f'if (bucket_{i} < {self.buckets(i)}) '}"
                  f"{t}_heads_{i}[bucket_{i}] = at + 1;" for i in range(len(keys))),
                "    }",
                "    bpf_spin_unlock(&lock->lock);",
                "    if (crowded)",
                "        counts->crowded++;"]
        out += ["    if (twice)", "        at = CORA_TWICE;"]
        if give:
            out += [f"    if (at >= {t}_capacity)", "        goto fail;"]
        else:
            out += [f"    if (at >= {t}_capacity)", "        return at;"]
        out += [f"    cora_due_sooner(&{t}_due, {self.deadline('n->last', 'n->timeout')});"] if self.ages else []
        out.append("    return at;")
        return [*out, "fail:", *give, "    return at;"] if give else out

    def _look(self, i: int, equal: str) -> Lines:
        """Under the directory's lock: whether a key is there, and whether its chain has room."""
        t = self.table
        if self.direct(i) is not None:
            return [
                f"    if (bucket_{i} >= {self.buckets(i)}) {{",
                "        present = true;",
                f"    }} else if ({t}_heads_{i}[bucket_{i}] - 1 < {t}_capacity) {{",
                f"        const struct {t}_entry *e = &{t}_entries[{t}_heads_{i}[bucket_{i}] - 1];",
                f"        present |= {equal} && e->life & 1;",
                "    }",
            ]
        return [
            f"    uint32_t next_{i} = {t}_heads_{i}[bucket_{i}];",
            f"    uint32_t length_{i} = 0;",
            "    CORA_LOOP",
            f"    for (; length_{i} < CORA_CHAIN - 1; length_{i}++) {{",
            f"        uint32_t number = next_{i} - 1;",
            f"        if (number >= {t}_capacity)",
            "            break;",
            f"        const struct {t}_entry *e = &{t}_entries[number];",
            f"        if ({equal} && e->life & 1)",
            "            present = true;",
            f"        next_{i} = e->next_{i};",
            "    }",
            f"    crowded |= length_{i} == CORA_CHAIN - 1;",
        ]

    def copied_members(self) -> Lines:
        """Statements that fill the entry's own members from the description."""
        return []

    # Rows.

    def _row_out(self) -> Lines:
        t = self.table
        lines = [line for f in self.row().fields for line in self.member_out(f.name, f.offset, f.size)]
        return [f"/* An entry as a row ({self.row().size} bytes). */",
                f"static inline void {t}_row(const struct {t}_entry *e, uint8_t *out)", "{", *lines, "}"]

    def member_out(self, name: str, offset: int, size: int) -> Lines:
        member = self.row_members()[name]
        if name == LAST and self.infers_last:
            return [f"    uint64_t last = e->deadline - {self.table}_timeout(0);",
                    f"    __builtin_memcpy(out + {offset}, &last, {size});"]
        return [f"    __builtin_memcpy(out + {offset}, &e->{member.name}, {size});"]

    def _row_in(self) -> Lines:
        t = self.table
        lines = [line for f in self.row().fields for line in self.member_in(f.name, f.offset, f.size)]
        return [f"static inline void {t}_read_row(struct {t}_new *n, const uint8_t *row)", "{", *lines, "}"]

    def member_in(self, name: str, offset: int, size: int) -> Lines:
        return [f"    __builtin_memcpy(&n->{self.row_members()[name].name}, row + {offset}, {size});"]

    # The sweep.

    def _sweep(self) -> Lines:
        if not self.ages:
            return []
        t = self.table
        return [
            f"struct {t}_walk {{", "    uint64_t now, due, removed;", "};", "",
            f"static long {t}_visit(uint32_t at, struct {t}_walk *walk)", "{",
            f"    if (at >= {t}_capacity)", "        return 1;",
            f"    const struct {t}_entry *e = &{t}_entries[at];",
            "    if (!(e->life & 1))", "        return 0;",
            "    uint64_t deadline = e->deadline;",
            f"    if (deadline < walk->now && {t}_kill(at, walk->now))",
            "        walk->removed++;",
            "    else if (deadline < walk->due)",
            "        walk->due = deadline;",
            "    return 0;", "}", "",
            "/* Removes entries that are due; returns how many. Costs nothing while none is. */",
            f"CORA_ALONE uint64_t {t}_expire(uint64_t now)", "{",
            f"    if (cora_volatile(&{t}_due) >= now)", "        return 0;",
            f"    struct {t}_walk walk = {{.now = now, .due = CORA_NEVER}};",
            f"    *(volatile uint64_t *)&{t}_due = CORA_NEVER;",
            f"    bpf_loop({t}_slots.top, {t}_visit, &walk, 0);",
            f"    cora_due_sooner(&{t}_due, walk.due);",
            "    return walk.removed;", "}",
        ]
