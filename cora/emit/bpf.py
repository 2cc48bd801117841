"""The kernel dialect: the part of the place nearest the wire as one XDP program (cora/emit/runtime/bpf).

All blocks stand in one function, as for the host. Entry references are pointers into the tables' arrays. From where a
packet finds an entry that packets change, it holds the entry's lock; `held` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from cora.analysis.liveness import liveness_of
from cora.emit.body import Body, choice, line_comment, needed_values, results_of, select_case
from cora.emit.bpf_again import looks_again
from cora.emit.bpf_map import BpfMap, BpfPool, wanted_index
from cora.emit.bpf_meter import BpfMeter
from cora.emit.bpf_services import services
from cora.emit.bpf_static import BpfStatic
from cora.emit.bpf_table import BpfTable
from cora.emit.dialect import Dialect, Lines
from cora.emit.headers import extract_call, load_expression, store_change, store_statements
from cora.emit.host import maps_with_stale_references
from cora.emit.layout import config_row, map_row, meter_row
from cora.emit.names import comment, literal, value_type
from cora.emit.part import EPOCH
from cora.emit.wrapping import wrapped
from cora.ir import nodes
from cora.ir.hashing import program_hash
from cora.ir.nodes import (
    AclState,
    Block,
    Const,
    CounterState,
    LoadConfig,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    Value,
    reasons_of,
    successors,
)
from cora.ir.parts import PUNT_FIXED, PUNT_LIMIT, Part, Split, punt_bytes
from cora.ir.types import EntryRef, bytes_of

_MERGED = {(h, f) for h, fields in (("ipv4", ("src", "dst")), ("ipv6", ("src", "dst")), ("l4", ("sport", "dport")))
           for f in fields}
INTERFACE = "kernel_interface.h"
KERNEL = 0
# How often entries without slack are tidied up: twice in so many nanoseconds.
_TIDY = 2 * 10**9

_BASES = {
    "eth": "p->data", "vlan": "p->data + 14", **dict.fromkeys(("arp", "ipv4", "ipv6"), "p->l3_header"),
    **dict.fromkeys(("tcp", "udp", "icmp", "icmp6", "l4"), "p->l4_header"),
    **dict.fromkeys(("quoted.ipv4", "quoted.ipv6"), "p->quoted_header"),
    **dict.fromkeys(("quoted.tcp", "quoted.udp", "quoted.icmp", "quoted.icmp6", "quoted.l4"), "p->quoted_l4_header")}
# Extractions that call functions which look at the frame by themselves.
_WITH_CONTEXT = ("ipv4", "ipv6", "quoted.ipv6")


def emit_kernel(split: Split, config: Mapping[str, int] | None = None) -> dict[str, str]:
    """File names and texts of the kernel's half: the program, and the header it shares with the user half.

    ``config``: values to begin with, where they are not those of the program.

    Built with ``clang -O2 -g -target bpf -mcpu=v3 -ffreestanding -I cora/emit/runtime``.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what BPF does not take; `cora.backends.xdp.capabilities` says so before.
    """
    kernel = KernelProgram(split)
    return {INTERFACE: interface(split, config), f"{file_stem(split)}.bpf.c": kernel.text()}


def file_stem(split: Split) -> str:
    """The program's name as a file name."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in split.program.name)[:40] or "program"


def interface(split: Split, config: Mapping[str, int] | None = None) -> str:
    """The generated header that both halves include before runtime/bpf/abi.h."""
    program, part = split.program, split.parts[KERNEL]
    dialect = KernelDialect(split)
    members = [f"    {value_type(c.type)} {dialect.names.config(c.name)};" for c in program.configs]
    given = config or {}
    values = ", ".join(literal(given.get(c.name, c.value), c.type) for c in program.configs) or "0"
    copies = [f"    __builtin_memcpy(&config->{dialect.names.config(f.name)}, row + {f.offset}, {f.size});"
              for f in config_row(program).fields]
    rows = [f" *   {i}: {comment(s.name)} ({type(s).__name__.removesuffix('State').lower()}, {part.roles[s.name]})"
            for i, s in enumerate(part.program.states)]
    lines = [
        f"/* {comment(program.name)}: what its kernel half and its user half agree on.", " *",
        " * Numbers of the states of the kernel half, for cora_dump and cora_load:", *(rows or [" *   none"]), " */",
        "#ifndef CORA_KERNEL_INTERFACE_H", "#define CORA_KERNEL_INTERFACE_H", "",
        "#include <stdbool.h>", "#include <stdint.h>", "",
        f"#define CORA_PORTS {len(program.ports)}",
        f"#define CORA_REASONS {len(reasons_of(program))}",
        f"#define CORA_LENDINGS {len(split.lendings)}",
        f"#define CORA_COUNTERS {dialect.counters}",
        f"#define CORA_KERNEL_STATES {len(part.program.states)}",
        f"#define CORA_ROW_LIMIT {max((row_size(split, i.state) for i in split.lendings), default=0)}",
        f"#define CORA_PUNT_FIXED {PUNT_FIXED}",
        f"#define CORA_PUNT_LIMIT {PUNT_LIMIT}",
        f"#define CORA_PROGRAM UINT64_C(0x{program_hash(program)[:16]})",
        f"#define CORA_EPOCH {EPOCH}",
        f"#define CORA_SWEEP_EVERY UINT64_C({sweep_every(split)})",
        f"#define CORA_PUNT_META {punt_meta(split)}", "",
        "typedef unsigned __int128 cora_u128;", "",
        "struct cora_kernel_config {", *(members or ["    uint8_t none;"]), "};",
        f"#define CORA_CONFIG_VALUES {{{values}}}", "",
        "/* Fills the configuration from a packed row, as cora/emit/layout.py packs it. */",
        "static inline __attribute__((unused)) void cora_config_read(struct cora_kernel_config *config,",
        "                                                            const uint8_t *row)", "{",
        *(copies or ["    (void)config, (void)row;"]), "}", "", "#endif",
    ]
    return "\n".join(lines) + "\n"


def sweep_every(split: Split) -> int:
    """Nanoseconds between two sweeps of the kernel's tables: half of the shortest slack, and not below a millisecond.

    Entries without slack are not found once they are due, and give way to new ones at once: the sweep only tidies up.
    0: nothing in the kernel is due.
    """
    part = split.parts[KERNEL]
    slack = [s.slack for s in part.program.states if isinstance(s, MapState | MeterState) and
             part.roles[s.name] == "whole" and (isinstance(s, MeterState) or s.timeouts)]
    return max(min(s or _TIDY for s in slack) // 2, 10**6) if slack else 0


def punt_meta(split: Split) -> int:
    """Bytes of metadata before every packet that is handed on: one length, since the receiver is told none."""
    values = [next(b.params for b in p.program.blocks if b.label == e.label) for p in split.parts for e in p.entries]
    return (max((punt_bytes(v) for v in values), default=PUNT_FIXED) + 3) // 4 * 4


def row_size(split: Split, name: str) -> int:
    """Bytes of a row of a state."""
    state = split.program.state(name)
    assert isinstance(state, MapState | MeterState)
    return (map_row(state) if isinstance(state, MapState) else meter_row(state)).size


class KernelDialect(Dialect):
    """Tables in the kernel program's .bss; entry references are pointers to entries, or numbers of read-only ones."""

    def __init__(self, split: Split) -> None:
        part = split.parts[KERNEL]
        super().__init__(part.program)
        self.split, self.part = split, part
        self.needed = needed_values(part.program)
        self.reasons = reasons_of(split.program)
        blocks = (*split.program.blocks, *part.program.blocks)
        self.constants = {i.result: i.value for b in blocks for i in b.instructions if isinstance(i, Const)}
        self.configs = {i.result: i.config for b in blocks for i in b.instructions if isinstance(i, LoadConfig)}
        self.liveness = liveness_of(part.program)
        self.stale = maps_with_stale_references(part.program, self.liveness)
        self.label = ""
        self.together: tuple[nodes.Store, ...] = ()
        self.tables: dict[str, BpfTable] = {}
        self.statics: dict[str, BpfStatic] = {}
        self.pools: dict[str, BpfPool] = {}
        self.counter_base: dict[str, int] = {}
        self.counters = 0
        self._declare()
        self.written = frozenset(_written(part.program))
        self.again = looks_again(part.program)
        self.lends = any(t.is_lent for t in self.tables.values())
        busy = frozenset(_changed(part.program))
        for name, table in self.tables.items():
            table.quiet = isinstance(table, BpfMap) and not table.is_lent and name not in busy and (
                len(table.state.timeouts) < 2)
        self.watches = any(t.quiet for t in self.tables.values())
        held = holding(part)
        self.parses_locked = any(isinstance(b.terminator, nodes.Extract) and b.label in held
                                 for b in part.program.blocks)
        for block in part.program.blocks:
            node = block.terminator
            if block.label in held and isinstance(node, nodes.Lookup) and node.state in self.statics:
                self.statics[node.state].locked = True

    def _declare(self) -> None:
        pools = {s.name: s for s in self.split.program.states if isinstance(s, PoolState)}
        lendings = {item.state: (n, item.entries) for n, item in enumerate(self.split.lendings)}
        for state in self.program.states:
            if isinstance(state, PoolState):
                self.pools[state.name] = BpfPool(state, self.names)
            elif isinstance(state, AclState | LpmState):
                self.statics[state.name] = BpfStatic(state, self.names)
            elif isinstance(state, CounterState):
                self.counter_base[state.name] = self.counters
                self.counters += state.size
            elif isinstance(state, MapState | MeterState):
                self.tables[state.name] = self._table(state, pools, lendings)

    def _table(self, state: MapState | MeterState, pools: dict[str, PoolState],
               lendings: dict[str, tuple[int, int]]) -> BpfTable:
        lent = lendings.get(state.name) if self.part.roles[state.name] == "lent" else None
        number, entries = lent or (0, state.capacity)
        owned = state.capacity if lent else None
        place = len(self.tables)
        if isinstance(state, MapState):
            # A map that packets never change takes no pool values, and its pool is elsewhere.
            state = replace(state, allocs=()) if self.part.roles[state.name] == "copy" else state
            return BpfMap(state, self.names, place, entries, pools, owned=owned, lending=number)
        return BpfMeter(state, self.names, place, entries, owned=owned, lending=number)

    # Values.

    def reference_type(self, state: str) -> str:
        return "uint32_t" if state in self.statics else f"struct {self.names.state(state)}_entry *"

    def config(self, name: str) -> str:
        return f"cora_config.{self.names.config(name)}"

    def meta(self, node: nodes.Meta) -> str:
        return {"time": "p->now", "size": "p->wirelen", "port": "p->port"}[node.what]

    def load_header(self, node: nodes.Load) -> str:
        return load_expression(node, _BASES)

    def store_header(self, node: nodes.Store) -> Lines:
        value = self.use(node.value)
        if node not in self.together:
            return store_statements(node, value, _BASES)
        # Checksums of several stores are brought up to date once: sums of changes may be added before they are folded.
        change = store_change(node, value, _BASES)
        out: Lines = ["address_change = upper_change = 0;"] if node == self.together[0] else []
        if node.header == "l4":
            out.append(f"upper_change += {change};")
        else:
            out.append(f"address_change += {change};")
        if node != self.together[-1]:
            return out
        v6 = any(n.header == "ipv6" for n in self.together)
        summed = [] if v6 else ["cora_stored_ipv4(p, address_change);"]
        return [*out, *summed, f"cora_stored_both(p, address_change, upper_change, {str(v6).lower()});"]

    def begin(self, block: Block) -> None:
        """The block whose statements come next: finds its stores whose checksums are brought up to date together."""
        self.label = block.label
        self.together = together(block)

    def extract(self, node: nodes.Extract) -> str:
        call = extract_call(node.header, node.limit, verify=node.verify, source_route=node.source_route)
        return call.replace("(p", "(ctx, p", 1) if node.header in _WITH_CONTEXT else call

    def _map_of(self, entry: Value) -> BpfMap:
        assert isinstance(entry.type, EntryRef)
        table = self.tables[entry.type.state]
        assert isinstance(table, BpfMap)
        return table

    def load_entry(self, node: nodes.LoadEntry) -> str:
        assert isinstance(node.entry.type, EntryRef)
        reference = self.use(node.entry)
        static = self.statics.get(node.entry.type.state)
        if static is not None:
            return static.value(node.field, reference)
        read = f"{reference}->{self._map_of(node.entry).field_names[node.field]}"
        if node.entry.type.state not in self.stale:
            return read
        return f"{reference}->life & 1 ? {read} : {literal(0, node.result.type)}"

    def _if_alive(self, entry: Value, lines: Lines) -> Lines:
        assert isinstance(entry.type, EntryRef)
        if entry.type.state not in self.stale:
            return lines
        return [f"if ({self.use(entry)}->life & 1) {{", *(f"    {line}" for line in lines), "}"]

    def store_entry(self, node: nodes.StoreEntry) -> Lines:
        field = self._map_of(node.entry).field_names[node.field]
        return self._if_alive(node.entry, [f"{self.use(node.entry)}->{field} = {self.use(node.value)};"])

    def touch(self, node: nodes.Touch) -> Lines:
        table, e = self._map_of(node.entry), self.use(node.entry)
        number = next((i for i, t in enumerate(table.state.timeouts) if t.name == node.timeout), 0)
        deadline = table.deadline(f"{e}->last", str(number))
        if table.quiet:
            return self._quiet_touch(table, e)
        out = [f"if (p->now > {e}->last)", f"    {e}->last = p->now;"]
        if len(table.state.timeouts) > 1:
            out.append(f"{e}->timeout = {number};")
        out += [f"{e}->deadline = {deadline};"] if table.timeouts() else []
        if table.ages and len(table.state.timeouts) > 1:
            out.append(f"cora_due_sooner(&{table.table}_due, {e}->deadline);")
        if table.is_lent and len(table.state.timeouts) > 1:
            out += [f"if (CORA_UNLIKELY({e}->deadline < {e}->lent.known))",
                    f"    cora_lent_sooner(counts, &{e}->lent, {table.lending}, {e}->deadline);"]
        return self._if_alive(node.entry, out)

    @staticmethod
    def _quiet_touch(table: BpfMap, e: str) -> Lines:
        """Without a lock: the exchange is the barrier between the new deadline and the look at the entry's life."""
        if not table.timeouts():
            return [f"if (p->now > {e}->last)", f"    {e}->last = p->now;"]
        deadline = table.deadline("p->now", "0")
        return [f"if ({deadline} > {e}->deadline)", f"    __sync_lock_test_and_set(&{e}->deadline, {deadline});"]

    def delete(self, node: nodes.Delete) -> Lines:
        table, e = self._map_of(node.entry), self.use(node.entry)
        # It leaves its chains when the packet has let go of its lock.
        return self._if_alive(node.entry, [f"{e}->life++;",
                                           f"dead_{table.table} = (uint32_t)({e} - {table.table}_entries);"])

    def count(self, node: nodes.Count) -> Lines:
        state = self.program.state(node.counter)
        assert isinstance(state, CounterState)
        base = self.counter_base[state.name]
        amount = self.use(node.amount) if node.amount is not None else "p->wirelen"
        fixed = 0 if node.index is None else self.known(node.index)
        if fixed is not None:
            if fixed >= state.size:
                return []
            counter = f"counts->counters[{base + fixed}]"
            return [f"{counter}.packets++;", f"{counter}.octets += {amount};"]
        assert node.index is not None
        index = self.use(node.index)
        return [f"if ({index} < {state.size}ull) {{",
                f"    struct cora_kernel_total *total = &counts->counters[{base} + (uint32_t){index}];",
                "    total->packets++;", f"    total->octets += {amount};", "}"]

    # Table accesses. The hash of the key is in `hash`.

    def access_hash(self, node: nodes.Lookup | nodes.Insert | nodes.Police) -> str | None:
        if node.state in self.statics:
            return None
        table = self.tables[node.state]
        if isinstance(node, nodes.Insert):
            assert isinstance(table, BpfMap)
            if table.primary_allocated():
                return None
            given = dict(zip((f.name for f in table.given_fields()), node.values, strict=True))
            return f"{table.table}_hash_0({', '.join(self.use(given[f]) for f in table.state.keys[0].fields)})"
        number = table.key_number(node.key) if isinstance(node, nodes.Lookup) and isinstance(table, BpfMap) else 0
        return f"{table.table}_hash_{number}({', '.join(self.use(o) for o in node.operands)})"

    def lookup(self, node: nodes.Lookup, goto: dict[str, str]) -> Lines:
        operands = ", ".join(self.use(o) for o in node.operands)
        if node.state in self.statics:
            call = f"{self.statics[node.state].table}_find({operands})"
            if node.entry not in self.needed:
                return choice(f"{call} != CORA_NONE", goto["hit"], goto["miss"])
            entry = self.names.value(node.entry)
            return [f"{entry} = {call};", *choice(f"{entry} != CORA_NONE", goto["hit"], goto["miss"])]
        table = self.tables[node.state]
        assert isinstance(table, BpfMap)
        if table.is_lent:
            return self._lent_lookup(node, table, operands, goto)
        t, number = table.table, table.key_number(node.key)
        if table.quiet:
            return self._quiet_lookup(node, table, operands, goto)
        found = [
            "{",
            f"    uint32_t at = {t}_find_{number}(hash, {operands});",
            f"    if (at >= {t}_capacity) {{",
            "        if (CORA_UNLIKELY(at == CORA_STRAYED))",
            "            goto cora_raced;",
            f"        {goto['miss']}",
            "    }",
            f"    struct {t}_entry *e = &{t}_entries[at];",
        ]
        if node.state in self.written:
            found += self._locked(table, number, operands, goto["miss"])
        found += [f"    {self.names.value(node.entry)} = e;"] if node.entry in self.needed else []
        return [*found, f"    {goto['hit']}", "}"]

    def _quiet_lookup(self, node: nodes.Lookup, table: BpfMap, operands: str, goto: dict[str, str]) -> Lines:
        """Uses an entry without its lock; before the packet leaves it looks whether the entry has lived through it."""
        t, number = table.table, table.key_number(node.key)
        due = ["    if (CORA_UNLIKELY(cora_volatile(&e->deadline) < p->now))",
               f"        {goto['miss']}"] if table.timeouts() else []
        return [
            "{",
            "    uint32_t life = 0;",
            f"    struct {t}_entry *e = {t}_seek_{number}(hash, {operands}, &life);",
            "    if (!e) {",
            "        if (CORA_UNLIKELY(life == CORA_STRAYED))",
            "            goto cora_raced;",
            f"        {goto['miss']}",
            "    }",
            *due,
            "    watched = &e->life;",
            "    lived = life;",
            *([f"    {self.names.value(node.entry)} = e;"] if node.entry in self.needed else []),
            f"    {goto['hit']}",
            "}",
        ]

    @staticmethod
    def _locked(table: BpfMap, number: int, operands: str, miss: str) -> Lines:
        """Takes the entry's lock and looks again."""
        return [
            "    held = cora_entry_lock(at);",
            "    if (!held)",
            "        goto cora_raced;",
            "    bpf_spin_lock(&held->lock);",
            f"    if (CORA_UNLIKELY(!{table.table}_is_{number}(e, p->now, {operands}))) {{",
            "        bpf_spin_unlock(&held->lock);",
            "        held = NULL;",
            f"        {miss}",
            "    }",
        ]

    def _lent_lookup(self, node: nodes.Lookup, table: BpfMap, operands: str, goto: dict[str, str]) -> Lines:
        """Uses a lent entry when all before it are through. Any other packet is handed on, and the entry follows it."""
        number = table.key_number(node.key)
        return [
            "{",
            f"    uint32_t at = {table.table}_find_{number}(hash, {operands});",
            "    if (CORA_UNLIKELY(at == CORA_STRAYED))",
            "        goto cora_raced;",
            *(f"    {line}" for line in self._lent_entry(table, f"{table.table}_is_{number}(e, p->now, {operands})",
                                                        f"{table.table}_find_{number}(hash, {operands})")),
            "    if (!e)",
            f"        {goto['miss']}",
            *([f"    {self.names.value(node.entry)} = e;"] if node.entry in self.needed else []),
            f"    {goto['hit']}",
            "}",
        ]

    def _lent_entry(self, table: BpfTable, is_it: str, again: str) -> Lines:
        """Statements that turn the number ``at`` into the locked entry ``e`` that may be used, or NULL."""
        t = table.table
        return [
            f"struct {t}_entry *e = NULL;",
            f"if (at < {t}_capacity) {{",
            f"    e = &{t}_entries[at];",
            f"    cora_lent_look(&e->lent, {table.lending});",
            "    held = cora_entry_lock(at);",
            "    if (!held)",
            "        goto cora_raced;",
            "    bpf_spin_lock(&held->lock);",
            f"    if (CORA_LIKELY({is_it} && cora_lent_use(counts, &e->lent, {table.lending}, p->now))) {{",
            "        p->met = &e->lent;",
            "    } else {",
            "        cora_hand_on(ctx, counts, p);",
            "        cora_follow(p, &e->lent);",
            "        bpf_spin_unlock(&held->lock);",
            "        held = NULL;",
            "        e = NULL;",
            "    }",
            "} else {",
            "    /* An entry that is lent just now may not know of this packet, which was not counted yet. */",
            "    cora_hand_on(ctx, counts, p);",
            f"    at = {again};",
            f"    if (CORA_UNLIKELY(at < {t}_capacity)) {{",
            "        held = cora_entry_lock(at);",
            "        if (!held)",
            "            goto cora_raced;",
            "        bpf_spin_lock(&held->lock);",
            f"        cora_follow(p, &{t}_entries[at].lent);",
            "        bpf_spin_unlock(&held->lock);",
            "        held = NULL;",
            "    }",
            "}",
        ]

    def insert(self, node: nodes.Insert, goto: dict[str, str]) -> Lines:
        table = self.tables[node.state]
        assert isinstance(table, BpfMap)
        t = table.table
        number = next((i for i, c in enumerate(table.state.timeouts) if c.name == node.timeout), 0)
        given = zip(table.given_fields(), node.values, strict=True)
        wishes = [wanted_index(table.pools[a.pool], [self.use(v) for v in wish]) if wish else "CORA_NEVER"
                  for a, wish in zip(table.allocs, node.prefer, strict=True)]
        hashed = [] if table.primary_allocated() else ["    n.hash = hash;"]
        return [
            "{",
            f"    struct {t}_new n = {{.last = p->now, .timeout = {number}}};",
            *hashed,
            *(f"    n.{table.field_names[f.name]} = {self.use(v)};" for f, v in given),
            *(f"    n.wish_{i} = {w};" for i, w in enumerate(wishes)),
            f"    uint32_t at = {t}_insert(&n);",
            *self._look_again(),
            f"    if (at >= {t}_capacity)",
            f"        {goto['full']}",
            *self._made(node, table),
            f"    {goto['ok']}",
            "}",
        ]

    def _look_again(self) -> Lines:
        """Another CPU has made the entry since the look-up missed: as if the packet had come behind that one's."""
        origin = self.again.get(self.label)
        if origin is None:
            return []
        return ["    if (CORA_UNLIKELY(at == CORA_TWICE && !again)) {", "        again = true;",
                f"        goto again_{self.names.block(origin)};", "    }"]

    def _made(self, node: nodes.Insert, table: BpfMap) -> Lines:
        """From here on the new entry is the packet's own, as if it had found it."""
        if node.entry not in self.needed:
            return []
        if table.quiet:
            return [f"    watched = &{table.table}_entries[at].life;", "    lived = cora_life(watched);",
                    f"    {self.names.value(node.entry)} = &{table.table}_entries[at];"]
        return ["    held = cora_entry_lock(at);", "    if (!held)", "        goto cora_raced;",
                "    bpf_spin_lock(&held->lock);",
                f"    {self.names.value(node.entry)} = &{table.table}_entries[at];"]

    def police(self, node: nodes.Police, goto: dict[str, str]) -> Lines:
        operands = ", ".join(self.use(o) for o in node.operands)
        table = self.tables[node.state]
        cases = [(f"CORA_COLOUR_{o.upper()}", goto[o]) for o, _ in successors(node)]
        size = self.use(node.size)
        if not table.is_lent:
            return select_case(f"{table.table}_police(hash, p->now, {operands}, {size})", cases)
        t = table.table
        assert isinstance(table, BpfMeter)
        return [
            "{",
            "    enum cora_colour colour = CORA_COLOUR_FULL;",
            f"    uint32_t at = {t}_find_0(hash, {operands});",
            "    if (CORA_UNLIKELY(at == CORA_STRAYED))",
            "        goto cora_raced;",
            *(f"    {line}" for line in self._lent_entry(table, f"{t}_is_0(e, p->now, {operands})",
                                                        f"{t}_find_0(hash, {operands})")),
            "    if (e)",
            f"        colour = {t}_charge(e, p->now, {size});",
            *(f"    {line}" for line in select_case("colour", cases)),
            "}",
        ]

    def track(self, node: nodes.TrackFragment, goto: dict[str, str]) -> Lines:
        raise TypeError("the kernel tracks no fragments")

    def leave(self, node: nodes.Forward | nodes.Drop | nodes.Reject | nodes.Hold) -> Lines:
        if isinstance(node, nodes.Forward):
            return [f"goto cora_out_{self.split.program.port_index(node.port)}; /* forward {comment(node.port)} */"]
        if isinstance(node, nodes.Drop):
            return [f"CORA_DROPS({self.reasons.index(node.reason)}); /* {comment(node.reason)} */"]
        raise TypeError(f"the kernel cannot end a packet by {node.mnemonic}")

    def punt(self, node: nodes.Punt) -> Lines:
        """The header and the values as metadata before the frame."""
        entry = next(e for p in self.split.parts if p.place == node.place for e in p.entries if e.number == node.entry)
        harm = [n for n, item in enumerate(self.split.lendings) if item.component in entry.harmful]
        out: Lines = ["{"]
        offset, stores = PUNT_FIXED, []
        for i, value in enumerate(node.values):
            size, read = self._carried(value)
            if isinstance(value.type, EntryRef):
                out.append(f"    uint32_t travels_{i} = {read};")
                read = f"travels_{i}"
            stores += _stored(offset, size, read)
            offset += size
        out += [
            *(f"    {line}" for line in self.lived()),
            "    cora_hand_on(ctx, counts, p);",
            *(["    if (p->met)", "        cora_follow(p, p->met);"] if self.lends else []),
            *(f"    cora_shared.guard[{n}] = cora_volatile(&cora_shared.rounds.open);" for n in harm),
            "    if (held)", "        bpf_spin_unlock(&held->lock);", "    held = NULL;",
            f"    uint8_t *meta = cora_punt_head(ctx, p, {node.entry}, {offset - PUNT_FIXED});",
            "    if (!meta)", "        return cora_not_handed_on(counts, p, CORA_FAULT_META);",
            *(f"    {line}" for line in stores),
            "    return cora_punt(counts, p);",
            f"}} /* to {comment(node.place)} */",
        ]
        return out

    def lived(self) -> Lines:
        """Whatever was read of an entry without its lock was the entry's, or the packet is given up."""
        if not self.watches:
            return []
        return ["if (watched && CORA_UNLIKELY(cora_life(watched) != lived))", "    goto cora_raced;"]

    def _carried(self, value: Value) -> tuple[int, str]:
        """Bytes of a value in the header, and the expression it is."""
        name = self.use(value)
        if not isinstance(value.type, EntryRef):
            return bytes_of(value.type), name
        table = self.tables.get(value.type.state)
        return 4, f"{name}->lent.slot" if table is not None and table.is_lent else name


def _stored(offset: int, size: int, value: str) -> Lines:
    """Statements that write a value, as memory holds it, into the metadata."""
    if size == 1:
        return [f"meta[{offset}] = {value};"]
    if size == 16:
        return [f"cora_set64(meta + {offset}, (uint64_t){value});",
                f"cora_set64(meta + {offset + 8}, (uint64_t)((cora_u128){value} >> 64));"]
    return [f"cora_set{8 * size}(meta + {offset}, {value});"]


def _changed(program: nodes.Program) -> Iterator[str]:
    """Maps of which packets change more than the time of an entry's last use."""
    for block in program.blocks:
        for node in block.instructions:
            if isinstance(node, nodes.StoreEntry | nodes.Delete) and isinstance(node.entry.type, EntryRef):
                yield node.entry.type.state


def _written(program: nodes.Program) -> Iterator[str]:
    """Maps that packets change."""
    changes = (nodes.StoreEntry, nodes.Touch, nodes.Delete)
    for block in program.blocks:
        for node in (*block.instructions, block.terminator):
            if isinstance(node, changes) and isinstance(node.entry.type, EntryRef):
                yield node.entry.type.state
            elif isinstance(node, nodes.Insert):
                yield node.state


class _Body(Body):
    """Without the numbers of paths, which are for profiles."""

    def gotos(self, block: Block) -> dict[str, str]:
        return {o: f"goto {self.dialect.names.block(target)};" for o, target in successors(block.terminator)}


class KernelProgram:
    """The C text of the kernel's half."""

    def __init__(self, split: Split) -> None:
        self.split, self.part = split, split.parts[KERNEL]
        self.dialect = KernelDialect(split)
        self.body = _Body(self.part.program, self.dialect)

    def text(self) -> str:
        """The whole file."""
        dialect = self.dialect
        pieces = [self._head()]
        pieces += [BpfPool.lines(p) for p in dialect.pools.values()]
        pieces += [t.structures() for t in dialect.tables.values()]
        pieces += [t.functions() for t in dialect.tables.values()]
        pieces += [t.functions() for t in dialect.statics.values()]
        pieces += [self._main(), services(self.split, dialect.tables, dialect.pools, dialect.counter_base)]
        lines = (("\n".join(piece)).strip("\n").split("\n") for piece in pieces if piece)
        return "\n".join("".join(f"{line}\n" for long in piece for line in wrapped(long)) for piece in lines)

    def _head(self) -> Lines:
        program = self.split.program
        lent = any(t.is_lent for t in self.dialect.tables.values())
        return [
            f"/* {comment(program.name)}, from {comment(PurePath(program.span.file).name)}: "
            f"what runs at {comment(self.part.place)} */",
            f'#include "{INTERFACE}"', "",
            f"#define CORA_TABLES {max(1, len(self.dialect.tables))}",
            f"#define CORA_HEADER_LIMIT {self._header_limit()}",
            *(["#define CORA_PARSES_LOCKED"] if self.dialect.parses_locked else []), "",
            '#include "bpf/core.h"', '#include "bpf/meter.h"', '#include "bpf/pool.h"', '#include "bpf/table.h"',
            '#include "bpf/punt.h"', *(['#include "bpf/lent.h"'] if lent else []),
            "", 'char _license[] SEC("license") = "GPL";',
        ]

    def _header_limit(self) -> int:
        """Most IPv6 extension headers that are walked."""
        return max((b.terminator.limit for b in self.part.program.blocks if isinstance(b.terminator, nodes.Extract) and
                    b.terminator.header.endswith("ipv6")), default=0)

    def _main(self) -> Lines:
        names, blocks = self.dialect.names, self.part.program.blocks
        out = ['SEC("xdp")', "int cora_xdp(struct xdp_md *ctx)", "{", *self._locals(),
               "    struct cora_packet packet = {0}, *p = &packet;",
               "    struct cora_counts *counts = cora_own_counts();",
               "    struct cora_lock *held = NULL;", "    uint64_t hash = 0;", "    (void)hash;",
               *(["    bool again = false;"] if self.dialect.again else []),
               *(["    uint64_t address_change = 0, upper_change = 0;"] if self._merges() else []),
               *(["    uint32_t *watched = NULL, lived = 0;"] if self.dialect.watches else []),
               *(f"    uint32_t dead_{t} = CORA_NONE;" for t in self._deleting()),
               "    if (!counts)", "        return XDP_ABORTED;",
               "    if (!cora_arrive(ctx, p))", "        return cora_fault(counts, CORA_FAULT_PORT);",
               "    counts->arrived.packets++;", "    counts->arrived.octets += p->wirelen;"]
        targets = {t for b in blocks for _, t in successors(b.terminator)}
        for block in blocks:
            out += self._block(block, labelled=block.label in targets)
        return [*out, *self._end(), "}"] if names else out

    def _block(self, block: Block, *, labelled: bool) -> Lines:
        self.dialect.begin(block)
        label = f"{self.dialect.names.block(block.label)}: " if labelled else "    "
        lines = self.body.block(block)
        node = block.terminator
        if isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police):
            lines += self._release(block)
            if block.label in self.dialect.again.values():
                lines.append(f"again_{self.dialect.names.block(block.label)}:")
            hash_ = self.dialect.access_hash(node)
            lines += [] if hash_ is None else [f"hash = {hash_};"]
        return [f"{label}; {line_comment(block)}", *(f"    {line}" for line in (*lines, *self.body.terminator(block)))]

    def _release(self, block: Block) -> Lines:
        """Before another table is used: capabilities made sure that no entry is needed any more."""
        node = block.terminator
        assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police)
        if node.state in self.dialect.statics or block.label not in holding(self.part):
            return []
        watched = [*self.dialect.lived(), "watched = NULL;"] if self.dialect.watches else []
        return [*watched, "if (held)", "    bpf_spin_unlock(&held->lock);", "held = NULL;", *self._buried()]

    def _deleting(self) -> list[str]:
        """Tables that packets delete entries of."""
        found = {i.entry.type.state for b in self.part.program.blocks for i in b.instructions
                 if isinstance(i, nodes.Delete) and isinstance(i.entry.type, EntryRef)}
        return [self.dialect.names.state(name) for name in sorted(found)]

    def _buried(self) -> Lines:
        out: Lines = []
        for t in self._deleting():
            out += [f"if (dead_{t} != CORA_NONE)", f"    {t}_unlink(dead_{t});", f"dead_{t} = CORA_NONE;"]
        return out

    def _end(self) -> Lines:
        raced = ["cora_raced:", "    if (held)", "        bpf_spin_unlock(&held->lock);",
                 "    return p->number ? cora_not_handed_on(counts, p, CORA_FAULT_RACED) :",
                 "                       cora_fault(counts, CORA_FAULT_RACED);"] if self._may_race() else []
        ends = [b.terminator for b in self.part.program.blocks]
        ports = {self.split.program.port_index(n.port) for n in ends if isinstance(n, nodes.Forward)}
        last: Lines = []
        for port in sorted(ports):
            last += [f"cora_out_{port}:", *self._let_go(), f"    return cora_send(p, counts, {port});"]
        if any(isinstance(n, nodes.Drop) for n in ends):
            last += ["cora_drops:", *self._let_go(), "    return cora_drop(p, counts);"]
        return [*last, *raced]

    def _let_go(self) -> Lines:
        """The packet's last use of its entry."""
        return [*(f"    {line}" for line in self.dialect.lived()), "    if (held)",
                "        bpf_spin_unlock(&held->lock);", *(f"    {line}" for line in self._buried())]

    def _merges(self) -> bool:
        return any(together(b) for b in self.part.program.blocks)

    def _may_race(self) -> bool:
        """Whether a look-up or an insert may have to give the packet up."""
        ends = [b.terminator for b in self.part.program.blocks]
        return self.dialect.watches or any(
            (isinstance(n, nodes.Lookup) and n.state in self.dialect.tables) or
            (isinstance(n, nodes.Police) and self.dialect.tables[n.state].is_lent) or
            (isinstance(n, nodes.Insert) and n.entry in self.dialect.needed) for n in ends)

    def _locals(self) -> Lines:
        values: list[Value] = []
        for block in self.part.program.blocks:
            values += results_of(block)
            if isinstance(block.terminator, nodes.Lookup | nodes.Insert):
                values.append(block.terminator.entry)
        skipped = self.dialect.constants.keys() | self.dialect.configs.keys()
        by_type: dict[str, list[str]] = {}
        for value in dict.fromkeys(values):
            if value in self.dialect.needed and value not in skipped:
                by_type.setdefault(self.dialect.type_of(value.type), []).append(self.dialect.names.value(value))
        return list(_declared(by_type))


def _declared(by_type: dict[str, list[str]]) -> Iterable[str]:
    """Declarations, one line for up to eight values of a type."""
    for type_, names in by_type.items():
        pointer = "*" if type_.endswith("*") else ""
        for i in range(0, len(names), 8):
            listed = ", ".join(f"{pointer}{n} = 0" for n in names[i:i + 8])
            yield f"    CORA_VALUE {type_.rstrip(' *')} {listed};"


def together(block: Block) -> tuple[nodes.Store, ...]:
    """The stores of a block to IP addresses and ports of one packet, where nothing between them looks at a checksum."""
    found: list[nodes.Store] = []
    for node in block.instructions:
        if isinstance(node, nodes.Store):
            if (node.header, node.field) not in _MERGED:
                return ()
            found.append(node)
        elif isinstance(node, nodes.Load) and node.field == "checksum":
            return ()
    ports, addresses = ([n for n in found if (n.header == "l4") is is_port] for is_port in (True, False))
    mixed = len({n.header for n in addresses}) > 1
    return tuple(found) if ports and addresses and not mixed and len(set(found)) == len(found) else ()


def holding(part: Part) -> frozenset[str]:
    """Blocks in which a packet may hold the lock of an entry: behind a look-up that hit, an insert, or a charge of a
    lent entry."""
    keyed = {s.name for s in part.program.states if isinstance(s, MapState)}
    static = {s.name for s in part.program.states if isinstance(s, AclState | LpmState)}
    found: set[str] = set()
    for block in part.program.blocks:
        node = block.terminator
        if isinstance(node, nodes.Lookup) and node.state in keyed:
            found.add(node.hit)
        elif isinstance(node, nodes.Insert):
            found.add(node.ok)
        elif isinstance(node, nodes.Police) and part.roles[node.state] == "lent":
            found.update(target for _, target in successors(node))
        released = isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police) and node.state not in static
        if block.label in found and not released:
            found.update(t for _, t in successors(node))
    return frozenset(found)
