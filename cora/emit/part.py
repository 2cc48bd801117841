"""The part of one place of a split program as C for this machine (cora/emit/runtime/place_driver.h).

All blocks stand in one function; it starts where the packet's header says. State that other places have too is reached
by messages only: every place is a file of its own with tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cora.emit import c
from cora.emit.body import Body, line_comment, results_of
from cora.emit.dialect import Lines
from cora.emit.host import HostDialect, config_copies, config_structure
from cora.emit.host_common import arguments
from cora.emit.host_lent import LentMap, LentMeter, OwnerMap, OwnerMeter
from cora.emit.host_map import HostMap
from cora.emit.host_meter import HostMeter
from cora.emit.host_static import HostStatic
from cora.emit.layout import config_row, map_row, meter_row
from cora.emit.names import comment, value_type
from cora.ir import nodes
from cora.ir.hashing import program_hash
from cora.ir.nodes import (
    Block,
    Const,
    CounterState,
    LoadConfig,
    MapState,
    MeterState,
    PoolState,
    Value,
    reasons_of,
    successors,
)
from cora.ir.parts import PUNT_FIXED, PUNT_LIMIT, Part, Split
from cora.ir.types import EntryRef, bytes_of

# Configuration is one epoch so far: all places of a run are made together.
EPOCH = 1


def emit_split(split: Split) -> dict[str, str]:
    """File names and texts of a split program: one file a place, and the world between them.

    They are compiled with ``-I cora/emit/runtime -DCORA_PLACES=<number of places>``; ``-DCORA_MAIN`` adds a main
    function, ``-DCORA_EXACT_FRAMES`` gives every frame its own allocation (for the address sanitizer).

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the engine does not take.
    """
    files = {f"place{p.number}.c": emit_place(split, p) for p in split.parts}
    return {**files, "split.c": _world(split)}


def emit_place(split: Split, part: Part) -> str:
    """One place as a C file: its tables, its part of the program, and what runs it for the world around it.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the engine does not take.
    """
    host = PartProgram(split, part)
    pieces = [_head(split, host), c._engine(host, ["    struct cora_place place;"]), _promises(), c._tables(host),
              c._life(host), c._rows(host), _interface(split, host), ['#include "place_state.h"'], host.function(),
              ['#include "place_driver.h"']]
    return "\n".join("\n".join(piece).strip("\n") + "\n" for piece in pieces if piece)


def common_defines(split: Split) -> Lines:
    """What all files of a split program define."""
    program = split.program
    return [
        f"#define CORA_LENDINGS {len(split.lendings)}",
        f"#define CORA_PUNT_FIXED {PUNT_FIXED}",
        f"#define CORA_PUNT_LIMIT {PUNT_LIMIT}",
        f"#define CORA_ROW_LIMIT {max((_row_size(split, item.state) for item in split.lendings), default=0)}",
        f"#define CORA_PORTS {len(program.ports)}",
        f"#define CORA_REASONS {len(reasons_of(program))}",
        f"#define CORA_CONFIG_SIZE {config_row(program).size}",
    ]


def _row_size(split: Split, name: str) -> int:
    state = split.program.state(name)
    assert isinstance(state, MapState | MeterState)
    return (map_row(state) if isinstance(state, MapState) else meter_row(state)).size


def _listed(numbers: Iterable[int]) -> str:
    return "{" + "".join(f"{n}u, " for n in numbers) + "0u}"


def _head(split: Split, host: PartProgram) -> Lines:
    part = host.part
    return [
        f"/* {comment(split.program.name)}: what runs at {comment(part.place)} */",
        f"#define CORA_PLACE {part.number}",
        *common_defines(split),
        f"#define CORA_STATES {len(part.program.states)}",
        f"#define CORA_TRACKERS {len(host.dialect.trackers)}",
        f"#define CORA_LATER {host.dialect.later}",
        "#define CORA_PATHS 1",
        f"#define CORA_PROGRAM UINT64_C(0x{program_hash(split.program)[:16]})",
        f"#define CORA_EPOCH {EPOCH}",
        f"#define CORA_NEAR_PLACES {_listed(item.near for item in split.lendings)}",
        f"#define CORA_OWNER_PLACES {_listed(item.owner for item in split.lendings)}",
        f"#define CORA_LENT_MOST {_listed(item.entries for item in split.lendings)}",
        f"#define CORA_BY_RULES {_listed(int(item.restart) for item in split.lendings)}",
        f"#define CORA_LENT_AFTER {_listed(item.threshold for item in split.lendings)}",
        "",
        '#include "base.h"',
        '#include "core.h"',
        '#include "fragment.h"',
        '#include "meter.h"',
        '#include "pool.h"',
        '#include "table.h"',
        '#include "place.h"',
    ]


def _promises() -> Lines:
    return [
        "static void cora_owner_ask(struct cora_engine *E, uint32_t c, uint32_t at, uint64_t now);",
        "static void cora_owner_withdraw(struct cora_engine *E, uint32_t c, uint32_t at);",
        "static uint32_t cora_owner_found(struct cora_engine *E, uint32_t c, uint32_t at, bool anchored);",
        "static inline uint32_t cora_owner_made(struct cora_engine *E, uint32_t c, uint32_t at);",
        "static uint32_t cora_lent_found(struct cora_engine *E, struct cora_packet *p, uint32_t c, uint32_t at);",
        "static void cora_lent_sooner(struct cora_engine *E, uint32_t c, uint32_t at, uint64_t deadline);",
    ]


def _interface(split: Split, host: PartProgram) -> Lines:
    """What place_state.h asks of the tables of split states, by number of the lending."""
    owned = list(host.lent_tables())
    near = [t for t in owned if isinstance(t, LentMap | LentMeter)]
    capacities = []
    for lending in split.lendings:
        state = split.program.state(lending.state)
        assert isinstance(state, MapState | MeterState)
        capacities.append(state.capacity)
    counters = [s for s in host.program.states if isinstance(s, CounterState)]
    out = [f"CORA_VALUE static const uint32_t cora_split_capacity[] = {_listed(capacities)};", ""]
    out += _chosen("void cora_split_row(const struct cora_engine *E, uint32_t c, uint32_t at, uint8_t *out)",
                   owned, "{t}_row(E, at, out); return;", "return;")
    out += _chosen("void cora_split_apply(struct cora_engine *E, uint32_t c, uint32_t at, const uint8_t *row)",
                   owned, "{t}_apply(E, at, row); return;", "return;")
    out += _chosen("uint64_t cora_split_deadline(const struct cora_engine *E, uint32_t c, uint32_t at)",
                   owned, "return {t}_deadline(E, at);", "return 0;")
    out += _chosen("bool cora_split_live(const struct cora_engine *E, uint32_t c, uint32_t at)",
                   owned, "return E->{t}.entries[at].live;", "return false;")
    out += _chosen("void cora_split_recent(struct cora_engine *E, uint32_t c, uint32_t at)",
                   near, "cora_recency_use(&E->{t}.recency, at); return;", "return;")
    out += _chosen("void cora_split_remove(struct cora_engine *E, uint32_t c, uint32_t at)",
                   owned, "{t}_remove(E, at); return;", "return;")
    out += _chosen("uint32_t cora_split_count(const struct cora_engine *E, uint32_t c)",
                   owned, "return E->{t}.slots.count;", "return 0;")
    out += _chosen("uint32_t cora_split_install(struct cora_engine *E, uint32_t c, const uint8_t *row)",
                   near, "return {t}_install(E, row);", "return CORA_NONE;")
    out += _chosen("uint32_t cora_split_oldest(const struct cora_engine *E, uint32_t c)",
                   near, "return E->{t}.recency.oldest;", "return CORA_NONE;")
    due = [t for t in owned if isinstance(t, OwnerMap | OwnerMeter) and t.expires]
    out += _chosen("void cora_split_due(struct cora_engine *E, uint32_t c, uint32_t at, uint64_t deadline)", due,
                   "cora_expiry_move(&E->{t}.expiry, at, deadline);\n"
                   "        E->core.next_due = cora_min64(E->core.next_due, deadline);\n        return;", "return;")
    pools = [t for t in owned if isinstance(t, OwnerMap) and t.state.allocs]
    leak = [f"    case {t.number}: cora_pool_give(&E->{host.dialect.names.state(t.state.allocs[0].pool)}, "
            f"E->{t.table}.entries[at].{t.pool_index(0)}); return;" for t in pools]
    out += _switch("void cora_split_leak(struct cora_engine *E, uint32_t c, uint32_t at)", leak, "return;",
                   "    (void)E, (void)at;")
    forget = [f"    memset(E->{host.dialect.names.state(s.name)}, 0, {s.size}ull * sizeof(struct cora_total));"
              for s in counters]
    ruled = [t for t in near if isinstance(t, LentMap) and split.lendings[t.number].restart]
    refreshed = [f"    if (p->refreshed[{t.number}])\n        {t.table}_touch(E, p->lent_at[{t.number}], p->now, "
                 f"p->refreshed[{t.number}] - 1);" for t in ruled]
    if host.dialect.later:
        out += ["CORA_COLD void cora_split_refresh(struct cora_engine *E, struct cora_packet *p)", "{",
                "    (void)E, (void)p;", *refreshed, "}", ""]
    return [*out, "CORA_COLD void cora_split_forget_counts(struct cora_engine *E)", "{", "    (void)E;", *forget, "}",
            "", "static inline bool cora_split_expired(const struct cora_engine *E, uint32_t c, uint32_t at, "
            "uint64_t now)", "{", "    return cora_split_deadline(E, c, at) < now;", "}"]


_Table = OwnerMap | LentMap | OwnerMeter | LentMeter


def _chosen(head: str, tables: Iterable[_Table], statement: str, otherwise: str) -> Lines:
    cases = [f"    case {t.number}: {statement.replace('{t}', t.table)}" for t in tables]
    unused = [n for n in ("at", "out", "row", "now", "deadline") if f" {n}" in head or f"*{n}" in head]
    return _switch(head, cases, otherwise, f"    (void)E, (void)c{''.join(f', (void){n}' for n in unused)};")


def _switch(head: str, cases: Lines, otherwise: str, unused: str) -> Lines:
    if not cases:
        return [f"CORA_COLD {head}", "{", f"{unused} (void)c;", f"    {otherwise}", "}", ""]
    return [f"CORA_COLD {head}", "{", unused, "    switch (c) {", *cases, f"    default: {otherwise}", "    }", "}", ""]


@dataclass(frozen=True)
class Travelling:
    """A value in a punt header: where it stands behind the fixed part, and how wide it is there."""

    value: Value
    offset: int
    size: int


def travelling(values: tuple[Value, ...]) -> Iterator[Travelling]:
    """Where each of these values stands."""
    offset = 0
    for value in values:
        size = 4 if isinstance(value.type, EntryRef) else bytes_of(value.type)
        yield Travelling(value, offset, size)
        offset += size


class PartDialect(HostDialect):
    """Tables in process memory, of which some hold lent entries or are the directory of entries lent elsewhere."""

    def __init__(self, split: Split, part: Part) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the engine does not take."""
        super().__init__(part.program)
        self.split, self.part = split, part
        self.numbers = {item.state: n for n, item in enumerate(split.lendings)}
        self.reasons = reasons_of(split.program)
        blocks = (*split.program.blocks, *part.program.blocks)
        self.constants = {i.result: i.value for b in blocks for i in b.instructions if isinstance(i, Const)}
        self.configs = {i.result: i.config for b in blocks for i in b.instructions if isinstance(i, LoadConfig)}
        # The label of the block whose terminator is being written.
        self.label = ""
        self.ruled = any(item.restart and item.near == part.number for item in split.lendings)
        # A place that runs only decided paths does nothing before it knows that one serves the packet.
        self.later = 1 + sum(isinstance(i, nodes.Count) for b in part.program.blocks for i in b.instructions) if (
            self.ruled) else 0
        self.anew = {(p.number, e.number) for p in split.parts for e in p.entries if e.anew}
        pools = {s.name: s for s in part.program.states if isinstance(s, PoolState)}
        for copied in part.program.states:
            # A map that packets never change has no entries, and its pool is elsewhere.
            if isinstance(copied, MapState) and part.roles[copied.name] == "copy":
                self.maps[copied.name] = HostMap(replace(copied, allocs=()), self.names, {}, checked=False)
        for name, number in self.numbers.items():
            role = part.roles.get(name)
            entries = split.lendings[number].entries
            state = split.program.state(name)
            if role is None:
                continue
            if isinstance(state, MapState):
                self.maps[name] = LentMap(state, self.names, number, entries) if role == "lent" else OwnerMap(
                    state, self.names, pools, number, checked=self.maps[name].checked)
            elif isinstance(state, MeterState):
                self.meters[name] = (LentMeter(state, self.names, number, entries) if role == "lent"
                                     else OwnerMeter(state, self.names, number))

    def lookup(self, node: nodes.Lookup, goto: dict[str, str]) -> Lines:
        table = self.maps.get(node.state)
        if not isinstance(table, OwnerMap | LentMap):
            return super().lookup(node, goto)
        operands = arguments([self.use(o) for o in node.operands])
        found = f"{table.table}_lookup_{table.key_number(node.key)}(E, hash{operands})"
        if isinstance(table, LentMap):
            return self._found(f"cora_lent_found(E, p, {table.number}, {found})", node, goto["hit"], goto["miss"])
        call = f"cora_owner_found(E, {table.number}, {found}, {self._anchored()})"
        return self._found(call, node, goto["hit"], goto["miss"])

    def _anchored(self) -> str:
        return "true" if self.label in self.part.anchored else "false"

    def _noting_full(self, node: nodes.Insert | nodes.Police, goto: dict[str, str]) -> dict[str, str]:
        """The ways out, with a count of full tables where the program around the engine keeps one."""
        if "full" not in goto:
            return goto
        number = next(i for i, s in enumerate(self.part.program.states) if s.name == node.state)
        return {**goto, "full": f"{{ CORA_FULL({number}); {goto['full']} }}"}

    def insert(self, node: nodes.Insert, goto: dict[str, str]) -> Lines:
        lines = super().insert(node, self._noting_full(node, goto))
        table = self.maps[node.state]
        if not isinstance(table, OwnerMap):
            return lines
        call = f"{table.table}_insert("
        return [_wrapped(line, call, f"cora_owner_made(E, {table.number}, ") for line in lines]

    def police(self, node: nodes.Police, goto: dict[str, str]) -> Lines:
        lines = super().police(node, self._noting_full(node, goto))
        table = self.meters[node.state]
        call = f"{table.table}_police(E, "
        if isinstance(table, OwnerMeter):
            return [line.replace(call, f"{call}{self._anchored()}, ") for line in lines]
        return [line.replace(call, f"{call}p, ") for line in lines] if isinstance(table, LentMeter) else lines

    def count(self, node: nodes.Count) -> Lines:
        lines = super().count(node)
        if not self.ruled or not lines:
            return lines
        total = next(i for i, line in enumerate(lines) if ".packets++;" in line)
        added = next(i for i, line in enumerate(lines) if ".octets +=" in line)
        entry, amount = lines[added].strip().rstrip(";").split(".octets += ")
        pad = lines[total][:len(lines[total]) - len(lines[total].lstrip())]
        noted = [f"{pad}p->later[p->later_count].total = &{entry}.packets;",
                 f"{pad}p->later[p->later_count++].octets = {amount};"]
        return [*lines[:total], *noted, *lines[added + 1:]]

    def touch(self, node: nodes.Touch) -> Lines:
        table = self._map_of(node.entry)
        if isinstance(table, OwnerMap) and self.split.lendings[table.number].restart:
            number = next((i for i, t in enumerate(table.state.timeouts) if t.name == node.timeout), 0)
            return [*self._changing(table, f"{table.entry(self.use(node.entry))}.timeout != {number}"),
                    *super().touch(node)]
        if not self.ruled or not isinstance(table, LentMap):
            return super().touch(node)
        number = next((i for i, t in enumerate(table.state.timeouts) if t.name == node.timeout), 0)
        # Another class is a change of the entry, which is its owner's.
        return [f"if ({table.entry(self.use(node.entry))}.timeout != {number})", f"    {self._leave()}",
                f"p->refreshed[{table.number}] = {number + 1};"]

    def store_entry(self, node: nodes.StoreEntry) -> Lines:
        table = self._map_of(node.entry)
        if isinstance(table, OwnerMap) and self.split.lendings[table.number].restart:
            field = f"{table.entry(self.use(node.entry))}.{table.field_names[node.field]}"
            return [*self._changing(table, f"{field} != {self.use(node.value)}"), *super().store_entry(node)]
        if not self.ruled or not isinstance(table, LentMap):
            return super().store_entry(node)
        field = f"{table.entry(self.use(node.entry))}.{table.field_names[node.field]}"
        return [f"if ({field} != {self.use(node.value)})", f"    {self._leave()}"]

    @staticmethod
    def _changing(table: OwnerMap, changes: str) -> Lines:
        """A packet that changes its entry is one that no rule of a decided flow would have served."""
        return [f"if ({changes})", f"    E->place.owned[{table.number}].unaligned = true;"]

    def _leave(self) -> str:
        """Goes to where packets start anew at the next place."""
        label = next(b.label for b in self.part.program.blocks if isinstance(b.terminator, nodes.Punt) and
                     self._starts_anew(b.terminator))
        return f"goto {self.names.block(label)};"

    def _starts_anew(self, node: nodes.Punt) -> bool:
        place = next(p.number for p in self.split.parts if p.place == node.place)
        return (place, node.entry) in self.anew

    def punt(self, node: nodes.Punt) -> Lines:
        out: Lines = ["p->anew = true;"] if self._starts_anew(node) else []
        items = list(travelling(node.values))
        for item in items:
            name = self.use(item.value)
            out.append(f"{{ {self._carrier(item)} travels = {self._departing(item, name)}; "
                       f"memcpy(p->values + {item.offset}, &travels, {item.size}); }}")
        if items and not self._starts_anew(node):
            out[0] = f"if (CORA_FAULT != CORA_STALE_VALUE) {out[0]}"
        size = items[-1].offset + items[-1].size if items else 0
        place = next(p.number for p in self.split.parts if p.place == node.place)
        return [*out, f"p->punt_size = {size};", f"p->punt_to = {place};", f"p->resume = {node.entry};",
                f"return; /* to {comment(node.place)} */"]

    def _carrier(self, item: Travelling) -> str:
        return "uint32_t" if isinstance(item.value.type, EntryRef) else value_type(item.value.type)

    def _departing(self, item: Travelling, name: str) -> str:
        type_ = item.value.type
        if not isinstance(type_, EntryRef):
            return name
        table = self.maps.get(type_.state)
        if isinstance(table, LentMap):
            return f"E->place.lent[{table.number}].entries[{name}].slot"
        return f"(uint32_t){name}"

    def arriving(self, values: tuple[Value, ...]) -> Lines:
        """Reads the values that came with a packet."""
        out: Lines = []
        for item in travelling(values):
            name, type_ = self.names.value(item.value), item.value.type
            if item.value not in self.needed:
                continue
            table = self.maps.get(type_.state) if isinstance(type_, EntryRef) else None
            given = "came"
            if isinstance(table, OwnerMap):
                out.append(f"{{ uint32_t came, at; memcpy(&came, p->values + {item.offset}, 4); "
                           f"at = cora_owner_resume(E, {table.number}, came); {name} = {table.reference('at')}; }}")
                continue
            if isinstance(table, HostMap) and table.checked:
                given = table.reference("came")
            out.append(f"{{ {self._carrier(item)} came; memcpy(&came, p->values + {item.offset}, {item.size}); "
                       f"{name} = {given}; }}")
        return out


def _wrapped(line: str, call: str, around: str) -> str:
    """The line with the call, up to its closing bracket, as the last argument of another."""
    at = line.find(call)
    if at < 0:
        return line
    depth, end = 0, at
    for end in range(at, len(line)):
        depth += (line[end] == "(") - (line[end] == ")")
        if line[end] == ")" and depth == 0:
            break
    return f"{line[:at]}{around}{line[at:end + 1]}){line[end + 1:]}"


class PartProgram:
    """The C text of one part. It has what `cora.emit.c` asks of a program for the host."""

    def __init__(self, split: Split, part: Part) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the engine does not take."""
        self.part, self.program = part, part.program
        self.dialect = PartDialect(split, part)
        self.body = Body(part.program, self.dialect) if part.program.blocks else None

    def lent_tables(self) -> Iterator[_Table]:
        """Tables of split states."""
        for table in (*self.dialect.maps.values(), *self.dialect.meters.values()):
            if isinstance(table, OwnerMap | LentMap | OwnerMeter | LentMeter):
                yield table

    def function(self) -> Lines:
        """``cora_program_run``: the whole part, from where the packet's ``resume`` says."""
        part, blocks = self.part, self.program.blocks
        out = ["static void cora_program_run(struct cora_engine *E, struct cora_packet *p)", "{", *self._locals(),
               "    uint64_t hash = 0;", "    (void)E, (void)hash;", "    switch (p->resume) {"]
        start = part.released or (blocks[0].label if part.number == 0 and blocks else "")
        if part.number == 0 and blocks:
            start = next(b.label for b in blocks if b.label not in {e.label for e in part.entries})
        out += [f"    case 0: goto {self.dialect.names.block(start)};"] if start else []
        out += [f"    case {e.number}: goto {self.dialect.names.block(e.label)};" for e in part.entries]
        out += ["    default:", "        cora_count_event(E, CORA_STRAY);", "        CORA_END(CORA_HELD);", "    }"]
        targets = {t for b in blocks for _, t in successors(b.terminator)} | {e.label for e in part.entries} | {start}
        entries = {e.label for e in part.entries}
        for block in blocks:
            out += self._block(block, labelled=block.label in targets, arrives=block.label in entries)
        return [*out, "}"]

    def _block(self, block: Block, *, labelled: bool, arrives: bool) -> Lines:
        assert self.body is not None
        self.dialect.label = block.label
        label = f"{self.dialect.names.block(block.label)}: " if labelled else "    "
        out = [f"{label}; {line_comment(block)}"]
        lines = self.dialect.arriving(block.params) if arrives else []
        lines += self.body.block(block)
        node = block.terminator
        if isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police):
            hash_ = self.dialect.access_hash(node)
            lines += [] if hash_ is None else [f"hash = {hash_};"]
        return [*out, *(f"    {line}" for line in (*lines, *self.body.terminator(block)))]

    def _locals(self) -> Lines:
        values: list[Value] = []
        for block in self.program.blocks:
            values += results_of(block)
            if isinstance(block.terminator, nodes.Lookup | nodes.Insert):
                values.append(block.terminator.entry)
        skipped = self.dialect.constants.keys() | self.dialect.configs.keys()
        by_type: dict[str, list[str]] = {}
        for value in dict.fromkeys(values):
            if value in self.dialect.needed and value not in skipped:
                by_type.setdefault(self.dialect.type_of(value.type), []).append(self.dialect.names.value(value))
        return [f"    CORA_VALUE {type_} {', '.join(f'{n} = 0' for n in names[i:i + 8])};"
                for type_, names in by_type.items() for i in range(0, len(names), 8)]

    # What `cora.emit.c` asks.

    def tables(self) -> Iterator[HostMap | HostMeter | HostStatic]:
        """Everything with entries of its own."""
        yield from self.dialect.maps.values()
        yield from self.dialect.meters.values()
        yield from self.dialect.statics.values()

    def row_sizes(self) -> dict[str, int]:
        """Bytes of a dumped row for each map and meter."""
        return {s.name: (map_row(s) if isinstance(s, MapState) else meter_row(s)).size
                for s in self.program.states if isinstance(s, MapState | MeterState)}

    def config_structure(self) -> Lines:
        """The configuration values as a structure."""
        return config_structure(self.program, self.dialect)

    def config_copies(self) -> Lines:
        """Statements that fill it from a packed row."""
        return config_copies(self.program, self.dialect)


def _world(split: Split) -> str:
    """The file with the world between the places."""
    numbers = {item.component: 1 << i for i, item in enumerate(split.lendings)}
    rows = []
    for part in split.parts:
        harm = [sum(numbers[name] for name in e.harmful) for e in part.entries]
        rows.append(f"static const uint64_t cora_harm_{part.number}[] = {{0, {', '.join(f'{h}u' for h in harm)}}};")
    places = ", ".join(f"&cora_place_{p.number}" for p in split.parts)
    lines = [
        f"/* {comment(split.program.name)}: the world between its places */",
        *common_defines(split), "#define CORA_TRACKERS 0", "#define CORA_LATER 0", "#define CORA_STATES 0", "",
        '#include "split.h"', "",
        *(f"extern const struct cora_place_ops cora_place_{p.number};" for p in split.parts),
        f"static const struct cora_place_ops *const cora_places[] = {{{places}}};", *rows,
        f"static const uint64_t *const cora_harm[] = {{{', '.join(f'cora_harm_{p.number}' for p in split.parts)}}};",
        f"CORA_VALUE static const uint32_t cora_states[] = {_listed(len(p.program.states) for p in split.parts)};",
        "", '#include "split_driver.h"',
    ]
    return "\n".join(lines) + "\n"
