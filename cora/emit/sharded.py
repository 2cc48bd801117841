"""A program as C for several cores of the host that divide its state (cora/emit/runtime/shard.h).

The tables are those of the host dialect; what is added: room and pools are one for all cores, entries can move between
the engines of two cores, and `cora_program_steer` says which core a packet belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

from cora.analysis.homes import Homes, Led, homes_of, led_at
from cora.emit import c
from cora.emit import host_common as common
from cora.emit.dialect import Lines
from cora.emit.host import HostDialect, HostProgram, ResumePoint
from cora.emit.host_common import arguments
from cora.emit.host_map import HostMap, wanted_index
from cora.emit.host_meter import HostMeter
from cora.emit.names import comment, literal
from cora.ir import nodes
from cora.ir.nodes import MapState, MeterState, PoolState, Program, Value
from cora.ir.types import Type, bits_of


def _home_function(table: str, fields: Sequence[tuple[str, Type]], why: str) -> Lines:
    """``table_home(fields)``: the core at which the entry lives."""
    if not fields:
        return [f"/* Core 0 has all entries: {comment(why)}. */"]
    folds = " ^ ".join(f"{'cora_fold16_wide' if bits_of(t) > 64 else 'cora_fold16'}({n})" for n, t in fields)
    return [f"static inline uint32_t {table}_home({common.parameters(fields)})", "{",
            f"    return cora_steer({folds});", "}"]


class _Divided:
    """What maps and meters have in common; mixed into the host dialect's tables."""

    table: str
    number: int
    home_fields: list[tuple[str, Type]]
    why: str

    def divide(self, number: int, home_fields: list[tuple[str, Type]], why: str) -> None:
        """``number``: of the state. ``home_fields``: C names and types; none: all entries are at core 0 (``why``)."""
        self.number, self.home_fields, self.why = number, home_fields, why

    def home_of(self, entry: str) -> str:
        """The home of an entry: a C expression."""
        if not self.home_fields:
            return "0"
        return f"{self.table}_home({', '.join(f'{entry}{n}' for n, _ in self.home_fields)})"

    def borrow_head(self, number: int, fields: Sequence[tuple[str, Type]]) -> str:
        return (f"CORA_COLD uint32_t {self.table}_borrow_{number}(struct cora_engine *E, uint64_t hash, "
                f"{common.parameters(fields)})")

    def borrow(self, number: int, fields: Sequence[tuple[str, Type]]) -> Lines:
        """A look-up that found nothing here, of a packet that runs alone: at the other cores."""
        t, names = self.table, arguments([n for n, _ in fields])
        return [
            self.borrow_head(number, fields), "{",
            "    for (uint32_t i = 1; i < cora_shards.count; i++) {",
            "        struct cora_engine *other = cora_shards.engines[i];",
            f"        uint32_t at = {t}_find_{number}(other, hash{names});",
            "        if (at != CORA_NONE)",
            f"            return {t}_move(other, at, E);", "    }", "    return CORA_NONE;", "}"]

    def go_home(self) -> Lines:
        t = self.table
        return [
            f"CORA_COLD void {t}_go_home(struct cora_engine *E, uint32_t at)", "{",
            f"    const struct {t}_entry *e = &E->{t}.entries[at];",
            f"    uint32_t home = {self.home_of('e->')};",
            "    if (e->live && home != E->shard.number)",
            f"        {t}_move(E, at, cora_shards.engines[home]);", "}"]

    def loader(self, after: Lines) -> Lines:
        t = self.table
        return [
            f"CORA_COLD bool {t}_load(struct cora_engine *E, const uint8_t *row)", "{",
            f"    if (!cora_room_take({self.number}, E->{t}.slots.capacity))",
            "        return false;",
            f"    if (!{t}_load_here(E, row)) {{", f"        cora_room_give({self.number});", "        return false;",
            "    }", *after, "    return true;", "}"]


class ShardedMap(_Divided, HostMap):
    """A map whose entries are at several cores."""

    def _before_removal(self) -> Lines:
        return [] if self.lru else [f"    cora_room_give({self.number});"]

    def _when_missed(self, number: int) -> Lines:
        if not self.home_fields:
            return []
        names = arguments([n for n, _ in self.key_fields(self.state.keys[number])])
        return ["    if (CORA_UNLIKELY(at == CORA_NONE) && CORA_UNLIKELY(E->shard.alone))",
                f"        at = {self.table}_borrow_{number}(E, hash{names});"]

    def functions(self) -> Lines:
        keys = list(enumerate(self.state.keys))
        out: Lines = []
        if self.home_fields:
            out += [f"{self.borrow_head(i, self.key_fields(k))};" for i, k in keys]
        out += [*_home_function(self.table, self.home_fields, self.why), ""]
        return out + super().functions()

    def _remove(self) -> Lines:
        return [*super()._remove(), *(["", *self._move()] if self.home_fields else [])]

    def _move(self) -> Lines:
        """Moving an entry to another engine and all that is built on it."""
        t = self.table
        out = ["/* Moves an entry to the engine of another core; what it has of room and pools stays its own. */",
               f"CORA_COLD uint32_t {t}_move(struct cora_engine *from, uint32_t was, struct cora_engine *to)", "{",
               "    struct cora_engine *E = from;",
               f"    struct {t}_entry moved = E->{t}.entries[was], *e = &moved;"]
        out += [f"    cora_index_remove(&E->{t}.{self.index(i)}, {self._entry_hash(i)}, was);"
                for i in range(len(self.state.keys))]
        out += [f"    cora_expiry_remove(&E->{t}.expiry, was);"] if self.classes else []
        out += [f"    E->{t}.entries[was].live = 0;", *([f"    E->{t}.entries[was].life++;"] if self.checked else []),
                f"    cora_slots_give(&E->{t}.slots, was);", "    E = to;"]
        for i in range(len(self.state.keys)):
            out += [f"    if (E->{t}.{self.index(i)}.count >= E->{t}.{self.index(i)}.limit)",
                    f"        {t}_grow_{i}(E);"]
        out += [f"    uint32_t at = cora_slots_take(&E->{t}.slots);", f"    e = &E->{t}.entries[at];"]
        out += ["    moved.life = e->life;"] if self.checked else []
        out += ["    *e = moved;", *self._link("e->last", "e->timeout", self._entry_hash)]
        out += ["    if (E->shard.alone)", f"        cora_shard_note(&E->shard, {self.number}, at);",
                "    return at;", "}"]
        for i, key in enumerate(self.state.keys):
            out += ["", *self.borrow(i, self.key_fields(key))]
        return [*out, "", *self.go_home()]

    def _insert(self) -> Lines:
        """The insert of one core, and around it what concerns all."""
        if self.lru:
            return super()._insert()
        t = self.table
        inner = [line.replace(f" {t}_insert(", f" {t}_insert_here(") for line in super()._insert()]
        given = [self.field_names[f.name] for f in self.given_fields()]
        wishes = [f"wish_{i}" for i in range(len(self.state.allocs))]
        call = f"{t}_insert_here(E, hash, now, timeout{arguments([*given, *wishes])})"
        made = [f"    cora_pool_own(&E->{self.names.state(a.pool)}, e->{self.pool_index(i)}, {self.home_of('e->')});"
                for i, a in enumerate(self.state.allocs)]
        return [
            *inner, "",
            "/* The same for all cores: one count of the room that is left. */",
            f"CORA_SHARED uint32_t {t}_insert({self.insert_parameters()})", "{",
            *self._borrow_keys(),
            "    uint32_t at = CORA_NONE;",
            "    do {",
            f"        if (!cora_room_take({self.number}, {self.state.capacity}u))", "            continue;",
            f"        at = {call};",
            "        if (at == CORA_NONE)", f"            cora_room_give({self.number});",
            "    } while (at == CORA_NONE && cora_shard_settle(E, now));",
            "    E->shard.refused += at == CORA_NONE;",
            *self._made(made), "    return at;", "}"]

    def _made(self, owned: Lines) -> Lines:
        if not self.home_fields and not owned:
            return []
        out = ["    if (at == CORA_NONE)", "        return at;"]
        if owned:
            out += [f"    const struct {self.table}_entry *e = &E->{self.table}.entries[at];", *owned]
        return out + (["    if (CORA_UNLIKELY(E->shard.alone))",
                       f"        cora_shard_note(&E->shard, {self.number}, at);"] if self.home_fields else [])

    def _borrow_keys(self) -> Lines:
        """A key that is known before the insert may be that of an entry at another core."""
        if not self.home_fields:
            return []
        out: Lines = []
        for i, key in enumerate(self.state.keys):
            if any(f in self.allocated for f in key.fields):
                continue
            names = arguments([n for n, _ in self.key_fields(key)])
            hashed = "hash" if i == 0 else self._entry_hash(i, "")
            out += ["    if (CORA_UNLIKELY(E->shard.alone))", f"        {self.table}_borrow_{i}(E, {hashed}{names});"]
        return out

    def _load(self) -> Lines:
        if self.lru:
            return super()._load()
        t = self.table
        inner = [line.replace(f" {t}_load(", f" {t}_load_here(") for line in super()._load()]
        inner = [line.replace("    return true;", "    E->shard.loaded = at;\n    return true;") for line in inner]
        return [*inner, "", *self.loader([*self._take_values(), *self._noted()])]

    def _take_values(self) -> Lines:
        """The pool values of a loaded entry become its own; false where another entry has one."""
        t, allocs = self.table, list(enumerate(self.state.allocs))
        if not allocs:
            return []
        pools = [(f"&E->{self.names.state(a.pool)}", f"e->{self.pool_index(i)}", i) for i, a in allocs]
        out = [f"    const struct {t}_entry *e = &E->{t}.entries[E->shard.loaded];"]
        out += [f"    bool free_{i} = cora_pool_mark({pool}, {value});" for pool, value, i in pools]
        out += [f"    if ({' || '.join(f'!free_{i}' for _, _, i in pools)}) {{",
                f"        {t}_remove(E, E->shard.loaded);"]
        for pool, value, i in pools:
            out += [f"        if (!free_{i})", f"            cora_pool_mark({pool}, {value});"]
        out += ["        return false;", "    }"]
        return out + [f"    cora_pool_own({pool}, {value}, {self.home_of('e->')});" for pool, value, _ in pools]

    def _noted(self) -> Lines:
        return [f"    cora_shard_note(&E->shard, {self.number}, E->shard.loaded);"] if self.home_fields else []


class ShardedMeter(_Divided, HostMeter):
    """A meter whose entries are at several cores."""

    def _before_removal(self) -> Lines:
        return [] if self.lru else [f"    cora_room_give({self.number});"]

    def _when_found(self) -> Lines:
        if not self.home_fields:
            return []
        return ["    if (CORA_UNLIKELY(at == CORA_NONE) && CORA_UNLIKELY(E->shard.alone))",
                f"        at = {self.table}_borrow_0(E, hash{arguments(self.key_names)});"]

    def _after_insert(self) -> Lines:
        if not self.home_fields:
            return []
        return ["    if (CORA_UNLIKELY(E->shard.alone))", f"        cora_shard_note(&E->shard, {self.number}, at);"]

    def _link(self, entry_hash: str) -> Lines:
        return [*super()._link(entry_hash), *(["", *self._move(entry_hash)] if self.home_fields else [])]

    def functions(self) -> Lines:
        return [*_home_function(self.table, self.home_fields, self.why), "", *super().functions()]

    def _move(self, entry_hash: str) -> Lines:
        t = self.table
        return [
            "/* Moves an entry to the engine of another core; the room it takes stays its own. */",
            f"CORA_COLD uint32_t {t}_move(struct cora_engine *from, uint32_t was, struct cora_engine *to)", "{",
            "    struct cora_engine *E = from;",
            f"    struct {t}_entry moved = E->{t}.entries[was], *e = &moved;",
            f"    cora_index_remove(&E->{t}.index_0, {entry_hash}, was);",
            f"    cora_expiry_remove(&E->{t}.expiry, was);",
            f"    E->{t}.entries[was].live = 0;",
            f"    cora_slots_give(&E->{t}.slots, was);",
            "    E = to;",
            f"    uint32_t at = cora_slots_take(&E->{t}.slots);",
            f"    E->{t}.entries[at] = moved;",
            f"    {t}_link(E, at);",
            "    if (E->shard.alone)", f"        cora_shard_note(&E->shard, {self.number}, at);", "    return at;", "}",
            "", *self.borrow(0, self.fields), "", *self.go_home()]

    def _insert(self) -> Lines:
        if self.lru:
            return super()._insert()
        t = self.table
        inner = [line.replace(f" {t}_insert(", f" {t}_insert_here(") for line in super()._insert()]
        call = f"{t}_insert_here(E, now{arguments(self.key_names)}, size)"
        return [
            *inner, "",
            "/* The same for all cores: one count of the room that is left. */",
            f"CORA_COLD enum cora_colour {t}_insert(struct cora_engine *E, uint64_t now, "
            f"{common.parameters(self.fields)}, uint64_t size)", "{",
            "    do {",
            f"        if (!cora_room_take({self.number}, {self.state.capacity}u))", "            continue;",
            f"        enum cora_colour colour = {call};",
            "        if (colour == CORA_COLOUR_RED)", f"            cora_room_give({self.number});",
            "        return colour;",
            "    } while (cora_shard_settle(E, now));",
            f"    struct cora_buckets buckets = cora_full_buckets(&{t}_spec);",
            f"    if (cora_charge(&{t}_spec, &buckets, size) == CORA_COLOUR_RED)", "        return CORA_COLOUR_RED;",
            "    E->shard.refused++;", "    return CORA_COLOUR_FULL;", "}"]

    def _load(self) -> Lines:
        if self.lru:
            return super()._load()
        t = self.table
        inner = [line.replace(f" {t}_load(", f" {t}_load_here(").replace(
            "    return true;", "    E->shard.loaded = at;\n    return true;") for line in super()._load()]
        noted = [f"    cora_shard_note(&E->shard, {self.number}, E->shard.loaded);"] if self.home_fields else []
        return [*inner, "", *self.loader(noted)]


class ShardedDialect(HostDialect):
    """Tables at several cores."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.homes: Homes = homes_of(program)
        numbers = {s.name: i for i, s in enumerate(program.states)}
        pools = {s.name: s for s in program.states if isinstance(s, PoolState)}
        for state in program.states:
            if not isinstance(state, MapState | MeterState):
                continue
            home = self.homes.fields[state.name]
            names = [(self.names.field(f.name), f.type) for f in state.fields if f.name in home]
            table: ShardedMap | ShardedMeter
            if isinstance(state, MapState):
                table = self.maps[state.name] = ShardedMap(state, self.names, pools,
                                                           checked=self.maps[state.name].checked)
            else:
                table = self.meters[state.name] = ShardedMeter(state, self.names)
            table.divide(numbers[state.name], names, self.homes.why.get(state.name, ""))

    def pool_life(self, name: str, made: str) -> tuple[Lines, Lines]:
        return (["    if (cora_shard_shares(E))", f"        E->{name} = cora_shards.engines[0]->{name};", "    else",
                 f"        {made}"],
                ["    if (!cora_shard_shares(E))", f"        cora_pool_close(&E->{name});"])


class ShardedProgram(HostProgram):
    """The C text of a program for several cores."""

    dialect: ShardedDialect

    def __init__(self, program: Program) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the engine does not take."""
        super().__init__(program, ShardedDialect(program))
        self.led = {p.number: led_at(program, self.dialect.homes, p.block) for p in self.points}
        self.one_core = self._one_core()

    def _clock_values(self) -> set[Value]:
        """Times that the first part of the program reads."""
        return {i.result for b in self.prefix for i in b.instructions if isinstance(i, nodes.Meta) and i.what == "time"}

    def _one_core(self) -> str:
        """Why the program runs on one core only; empty when it does not.

        A packet that is handed over may come to its core when the clock there is ahead of it: then its time is that
        clock's. That is too late for what the first part has computed with it.
        """
        clock = self._clock_values()
        for block in self.prefix:
            for node in (*block.instructions, *(() if self._stops(block) else (block.terminator,))):
                if clock.intersection(nodes.operands_of(node)):
                    return f"it computes with the time (line {node.span.line}) before its first access to a table"
        return ""

    def _resume(self) -> Lines:
        clock = {self.dialect.names.value(v) for v in self._clock_values()}
        return [line.replace(f"p->live.{n};", "p->now;") if (n := line.split(" = ")[0].strip()) in clock else line
                for line in super()._resume()]

    def divided(self) -> list[ShardedMap | ShardedMeter]:
        """Tables with entries at several cores."""
        tables = (*self.dialect.maps.values(), *self.dialect.meters.values())
        return [t for t in tables if isinstance(t, ShardedMap | ShardedMeter) and t.home_fields]

    def steer_function(self) -> Lines:
        """``cora_program_steer``: by the point at which the first part of the program stopped."""
        out = ["/* The core a packet belongs to, once its first part has run: where the entry that it asks for lives.",
               " * `here`: any core will do. CORA_ALONE: it may need entries of several cores. */",
               "static inline uint32_t cora_program_steer(const struct cora_engine *E, const struct cora_packet *p, "
               "uint32_t here)", "{", "    (void)E;", "    switch (p->resume) {"]
        for point in self.points:
            out += [f"    case {point.number}: /* line {point.block.terminator.span.line} */", *self._steer(point)]
        return [*out, "    default:", "        return here;", "    }", "}"]

    def _steer(self, point: ResumePoint) -> Lines:
        led: Led = self.led[point.number]
        if led.by == "alone":
            return [*_wrapped_comment(led.reason), "        return CORA_ALONE;"]
        node = point.block.terminator
        assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police)
        table = (self.dialect.maps | self.dialect.meters)[node.state]
        operands = self._operands(node)
        if led.by == "home":
            wanted = [self._read(operands[f]) for f in self._ordered(node.state)]
            return [f"        return {table.table}_home({', '.join(wanted)});"]
        return self._owner(node, operands)

    def _ordered(self, state: str) -> list[str]:
        declared = self.program.state(state)
        assert isinstance(declared, MapState | MeterState)
        return [f.name for f in declared.fields if f.name in self.dialect.homes.fields[state]]

    def _operands(self, node: nodes.Lookup | nodes.Insert | nodes.Police) -> dict[str, Value]:
        """The values of entry fields that an access comes with."""
        state = self.program.state(node.state)
        if isinstance(node, nodes.Police):
            assert isinstance(state, MeterState)
            return dict(zip((f.name for f in state.fields), node.operands, strict=True))
        assert isinstance(state, MapState)
        if isinstance(node, nodes.Lookup):
            key = next(k for k in state.keys if k.name == node.key) if len(state.keys) > 1 else state.keys[0]
            return dict(zip(key.fields, node.operands, strict=True))
        given = (f.name for f in self.dialect.maps[node.state].given_fields())
        return dict(zip(given, node.values, strict=True))

    def _owner(self, node: nodes.Lookup | nodes.Insert | nodes.Police, operands: dict[str, Value]) -> Lines:
        alloc = self.dialect.homes.owned[node.state]
        pool = self.program.state(alloc.pool)
        assert isinstance(pool, PoolState)
        values = [self._read(operands[f]) for f in alloc.fields]
        outside = [text for value, r in zip(values, pool.ranges, strict=True)
                   for text in _outside(value, r.low, r.high, r.type)]
        refuse = [f"        if ({' || '.join(outside)})", "            return here; /* no value of the pool */"]
        index = wanted_index(pool, values)
        return [*(refuse if outside else []),
                f"        return cora_pool_owner(&E->{self.dialect.names.state(alloc.pool)}, {index});"]

    def _read(self, value: Value) -> str:
        text = self.dialect.use(value)
        return f"p->live.{text}" if text == self.dialect.names.value(value) else text

    def probe_function(self) -> Lines:
        """``cora_program_probe``: a packet that was handed over looks for its first entry in another engine."""
        cases: Lines = []
        for point in self.points:
            node = point.block.terminator
            if isinstance(node, nodes.TrackFragment):
                continue
            assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police)
            number, known = self.dialect.access_key(node)
            if known is None:
                continue
            table = f"E->{self.dialect.names.state(node.state)}"
            cases += [f"    case {point.number}:",
                      f"        cora_prefetch_key(p, &{table}.index_{number}, p->hash, {table}.entries, "
                      f"sizeof *{table}.entries);", "        break;"]
        return ["/* A packet that was handed over looks for its first entry in this engine. */",
                "static inline void cora_program_probe(struct cora_engine *E, struct cora_packet *p)", "{",
                "    (void)E;", "    switch (p->resume) {", *cases, "    default:",
                "        p->probe_index = NULL;", "    }", "}"]

    def home_functions(self) -> Lines:
        tables = self.divided()
        cases = [f"        case {t.number}: {t.table}_go_home(E, a.at); break;" for t in tables]
        body = ["    for (size_t i = 0; i < E->shard.away_count; i++) {",
                "        struct cora_away a = E->shard.away[i];", "        switch (a.state) {", *cases, "        }",
                "    }"]
        return ["/* Entries that were borrowed for a packet that ran alone, or made by it, go to where they live. */",
                "CORA_COLD void cora_program_homecoming(struct cora_engine *E)", "{", *(body if cases else []),
                "    E->shard.away_count = 0;", "}", "",
                *self._clear()]

    def _clear(self) -> Lines:
        """Removing all entries of a state at one core."""
        cases: Lines = []
        for i, state in enumerate(self.program.states):
            name = self.dialect.names.state(state.name)
            if isinstance(state, MapState | MeterState):
                cases += [f"    case {i}:", f"        for (uint32_t at = 0; at < E->{name}.slots.top; at++)",
                          f"            if (E->{name}.entries[at].live)", f"                {name}_remove(E, at);",
                          "        break;"]
            elif isinstance(state, nodes.CounterState):
                cases += [f"    case {i}: memset(E->{name}, 0, {state.size}ull * sizeof *E->{name}); break;"]
        return ["/* Empties a state at one core; the values of pools come back with the entries. */",
                "CORA_COLD void cora_program_clear(struct cora_engine *E, uint32_t state)", "{", "    (void)E;",
                "    switch (state) {", *cases, "    default: break;", "    }", "}"]


def _outside(value: str, low: int, high: int, type_: Type) -> Lines:
    out = [f"{value} < {literal(low, type_)}"] if low else []
    return out + ([f"{value} > {literal(high, type_)}"] if high < (1 << bits_of(type_)) - 1 else [])


def _wrapped_comment(text: str) -> Lines:
    words, lines = comment(text).split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [f"        {'/* ' if i == 0 else ' * '}{line}{' */' if i == len(lines) - 1 else ''}"
            for i, line in enumerate(lines)]


def emit_sharded(program: Program) -> tuple[ShardedProgram, str]:
    """The program for several cores as C, up to and with driver.h, and what is known of it.

    The caller defines ``CORA_SHARDS`` and writes what runs it behind (cora/emit/runtime/dpdk).

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the engine does not take.
    """
    host = ShardedProgram(program)
    parts = [
        c._head(host), ['#include "shard.h"'], c._engine(host, ["    struct cora_shard shard;"]),
        ['#include "shard_engine.h"'], c._tables(host), c._life(host), c._rows(host), c._profile(host),
        host.steer_function(), host.probe_function(), host.home_functions(), host.prefix_function(),
        host.finish_function(), ['#include "driver.h"'],
    ]
    return host, "\n".join("\n".join(part).strip("\n") + "\n" for part in parts if part)

