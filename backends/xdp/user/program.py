"""The C text of the user half: the part of the last place, tables that describe it, and cora/emit/runtime/xdp/run.h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cora.backends.xdp.arrived import with_originals
from cora.emit.bpf import INTERFACE
from cora.emit.c import state_life
from cora.emit.described import capacity_of, entries_of, keeps_original, kind_of, text_literal
from cora.emit.dialect import Lines
from cora.emit.headers import present_flag
from cora.emit.host_lent import OwnerMap
from cora.emit.layout import map_row, meter_row
from cora.emit.names import comment, mask_of
from cora.emit.part import PartProgram, emit_place, travelling
from cora.engine.native import packed_config
from cora.ir.cfg import available_headers
from cora.ir.nodes import (
    AclState,
    CounterState,
    FragmentState,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    Program,
    Punt,
    State,
    Value,
    reasons_of,
)
from cora.ir.parts import PUNT_FIXED, Entry, Part, Split, punt_bytes
from cora.ir.types import Bool, EntryRef, UInt

# Characters of a plan's digest, and the end of the string.
DIGEST_ROOM = 65


def emit_user(split: Split, config: Mapping[str, int], plan: str, stem: str) -> str:
    """The user half as one C file.

    It is compiled beside `kernel_interface.h` (cora/emit/bpf.py) with ``-I <runtime>``, and linked with libbpf and
    jansson.

    Args:
        split: two parts, of the kernel and of user space. plan: digest of the plan, hexadecimal.
        stem: the program's name in file names. config: configuration values to replace.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the engine does not take, `Kind.BAD_OVERRIDE` for a bad config value,
            `Kind.NOT_BUILDABLE` as `with_originals`.
    """
    split = with_originals(split)
    part = split.parts[-1]
    host = PartProgram(split, part)
    before = [f"#define CORA_PLACES {len(split.parts)}", "#define CORA_LIVE", f'#define CORA_NAME "{stem}"',
              f'#define CORA_PLAN "{plan}"', f"#define CORA_DIGEST_ROOM {DIGEST_ROOM}",
              f"#define CORA_KEEPS_ORIGINAL {int(keeps_original(part.program))}",
              f"#define CORA_ENTRIES {max((e.number for e in part.entries), default=0)}", "",
              f'#include "{INTERFACE}"']
    after = [*_names(split.program), *_config(split.program, config), *_states(split, host), *_entries(split, host),
             *_adopting(split, host), "", '#include "xdp/run.h"']
    return "\n".join(before) + "\n\n" + emit_place(split, part) + "\n" + "\n".join(after) + "\n"


def _params(part: Part, entry: Entry) -> tuple[Value, ...]:
    return next(b.params for b in part.program.blocks if b.label == entry.label)


def _names(program: Program) -> Lines:
    reasons = [text_literal(r) for r in reasons_of(program)]
    return [*_array("static const char *const cora_port_names[]", [text_literal(p.name) for p in program.ports]),
            *_array("static const char *const cora_reason_names[]", reasons or ["NULL"]), ""]


def _array(declared: str, items: Sequence[str]) -> Lines:
    """An initialised array, in as many lines as it takes."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) > 110:
            lines.append("")
        lines[-1] += f"{item}, "
    if len(lines) == 1 and len(declared) + len(lines[0]) < 112:
        return [f"{declared} = {{{lines[0].removesuffix(', ')}}};"]
    return [f"{declared} = {{", *(f"    {line.rstrip()}" for line in lines), "};"]


def _config(program: Program, config: Mapping[str, int]) -> Lines:
    values = [str(b) for b in packed_config(program, config)] or ["0"]
    said = [f" *   {comment(f'{c.name} = {config.get(c.name, c.value)}')}" for c in program.configs]
    return ["/* The configuration, packed (cora/emit/layout.py):", *(said or [" *   there is none"]), " */",
            *_array("static const uint8_t cora_config_row[]", values), ""]


# States.

def _states(split: Split, host: PartProgram) -> Lines:
    part = split.parts[-1]
    rows = [f"    {{{text_literal(s.name)}, {text_literal(kind_of(s))}, {text_literal(_role(split, s.name))}, "
            f"{capacity_of(s)}u, {_numbered(part, s.name)}, {_numbered(split.parts[0], s.name)}, "
            f"{_lending(split, s.name)}, {_row(s)}u, {_drawn(split.program, s)}}},"
            for s in split.program.states]
    cases = [f"    case {i}: return {count};" for i, s in enumerate(part.program.states)
             if (count := entries_of(host.dialect, s)) is not None]
    renewed = [line for i, s in enumerate(part.program.states) for line in _renewing(host, i, s)]
    remarked = [line for s in part.program.states if isinstance(s, PoolState) for line in _remarking(host, s)]
    return [
        "/* All states of the program, and their numbers here and in the kernel half (-1: not there). */",
        f"#define CORA_ALL_STATES {len(split.program.states)}",
        "static const struct cora_state {", "    const char *name, *kind, *role;", "    uint32_t capacity;",
        "    int32_t here, kernel, lending;", "    uint32_t row; /* bytes of one entry in a dump */",
        "    uint64_t pools; /* a bit for each state of these that it draws values from */",
        "} cora_states[] = {",
        *rows, "    {NULL, NULL, NULL, 0, -1, -1, -1, 0, 0},", "};", "",
        "/* Entries of a table, values in use of a pool. */",
        "static uint64_t cora_program_entries(const struct cora_engine *E, uint32_t state)", "{", "    (void)E;",
        "    switch (state) {", *cases, "    default: return 0;", "    }", "}", "",
        "/* Empties a state. */",
        "static void cora_program_renew(struct cora_engine *E, uint32_t state)", "{", "    (void)E;",
        "    switch (state) {", *renewed, "    default: return;", "    }", "}", "",
        "/* Marks the pool values that entries hold, and no others. */",
        "static void cora_program_remark(struct cora_engine *E)", "{", "    (void)E;", *remarked, "}", "",
    ]


def _renewing(host: PartProgram, number: int, state: State) -> Lines:
    if isinstance(state, AclState | LpmState | FragmentState):
        return []
    opened, closed = state_life(host, state)
    return [f"    case {number}:", *(f"    {line}" for line in (*closed, *opened)), "        return;"]


def _remarking(host: PartProgram, pool: PoolState) -> Lines:
    """Where no map here draws from the pool, it stays as it is."""
    names = host.dialect.names
    drawn = [(t, i) for t in host.dialect.maps.values() for i, a in enumerate(t.state.allocs) if a.pool == pool.name]
    if not drawn:
        return []
    name = names.state(pool.name)
    opened, closed = state_life(host, pool)
    marks = [line for t, i in drawn for line in (
        f"        for (uint32_t at = 0; at < E->{t.table}.slots.top; at++)",
        f"            if (E->{t.table}.entries[at].live)",
        f"                cora_pool_mark(&E->{name}, E->{t.table}.entries[at].{t.pool_index(i)});")]
    return ["    {", f"        uint64_t next = E->{name}.next;", *(f"    {line}" for line in (*closed, *opened)),
            f"        E->{name}.next = next;", *marks, "    }"]


def _role(split: Split, name: str) -> str:
    """Where a state is: at one place, lent from user space to the kernel, or copied."""
    here, kernel = split.parts[-1].roles.get(name), split.parts[0].roles.get(name)
    if here == "owner":
        return "lent to the kernel"
    if here and kernel:
        return "at both places"
    return "user" if here else "kernel" if kernel else "nowhere"


def _numbered(part: Part, name: str) -> int:
    return next((i for i, s in enumerate(part.program.states) if s.name == name), -1)


def _drawn(program: Program, state: State) -> str:
    names = {a.pool for a in state.allocs} if isinstance(state, MapState) else set()
    return f"{sum(1 << i for i, s in enumerate(program.states) if s.name in names):#x}"


def _lending(split: Split, name: str) -> int:
    return next((i for i, item in enumerate(split.lendings) if item.state == name), -1)


def _row(state: State) -> int:
    """Bytes of one entry in a dump; a pool's are those of a word of its bitmap."""
    match state:
        case MapState():
            return map_row(state).size
        case MeterState():
            return meter_row(state).size
        case CounterState():
            return 16
    return 8 if isinstance(state, PoolState) else 0


def _adopting(split: Split, host: PartProgram) -> Lines:
    """Entries that a killed user half had lent come back as the kernel half has them."""
    cases: Lines = []
    functions: Lines = []
    for table in host.lent_tables():
        pools = table.state.allocs if isinstance(table, OwnerMap) else ()
        marks = [f"    cora_pool_mark(&E->{host.dialect.names.state(a.pool)}, E->{table.table}.entries[at].pool_{i});"
                 for i, a in enumerate(pools)]
        functions += [
            f"static bool {table.table}_adopt(struct cora_engine *E, const uint8_t *row)", "{",
            f"    if (!{table.table}_load(E, row))", "        return false;",
            f"    uint32_t at = {table.table}_at_row(E, row);", "    (void)at;", *marks, "    return true;", "}", ""]
        cases.append(f"    case {table.number}: return {table.table}_adopt(E, row);")
    return [*functions,
            "/* Makes an entry of a lending from its row; false: it does not fit. */",
            "static bool cora_program_adopt(struct cora_engine *E, uint32_t lending, const uint8_t *row)", "{",
            "    (void)E, (void)row;", "    switch (lending) {", *cases, "    default: return false;", "    }", "}"]


# Entries.

def _entries(split: Split, host: PartProgram) -> Lines:
    part = split.parts[-1]
    by_number = {e.number: e for e in part.entries}
    last = max(by_number, default=0)
    present, sizes = ["0"], ["0"]
    for number in range(1, last + 1):
        entry = by_number.get(number)
        flags = sorted(present_flag(h) for h in _headers(split, part, entry)) if entry else []
        present.append(" | ".join(flags) or "0")
        sizes.append(str(punt_bytes(_params(part, entry)) - PUNT_FIXED if entry else 0))
    cases: Lines = []
    for entry in part.entries:
        checks = list(_ranges(part, entry, host))
        if checks:
            cases += [f"    case {entry.number}:", *(f"        {c}" for c in checks), "        return true;"]
    labels = ["NULL", *(text_literal(by_number[n].label) if n in by_number else "NULL" for n in range(1, last + 1))]
    return [
        "/* The blocks of the program that packets go on at, what they bring along, and how it is checked. */",
        *_array("static const char *const cora_entry_labels[]", labels),
        *_array("static const uint32_t cora_entry_present[]", present),
        *_array("static const uint8_t cora_entry_size[]", sizes), "",
        "/* Whether values that came with a packet are such as the program can have made. */",
        "static bool cora_entry_fits(uint32_t entry, const uint8_t *values)", "{", "    (void)values;",
        "    switch (entry) {", *cases, "    default: return true;", "    }", "}", "",
    ]


def _headers(split: Split, part: Part, entry: Entry) -> frozenset[str]:
    """Headers that every packet has that comes to an entry."""
    found: frozenset[str] | None = None
    for source in split.parts[:part.number]:
        known = available_headers(source.program)
        for block in source.program.blocks:
            node = block.terminator
            if isinstance(node, Punt) and node.place == part.place and node.entry == entry.number:
                here = known.get(block.label, frozenset())
                found = here if found is None else found & here
    return frozenset() if entry.anew else found or frozenset()


def _ranges(part: Part, entry: Entry, host: PartProgram) -> Iterator[str]:
    """Statements that refuse values which fill more bits than their type has, or name an entry that no table has."""
    for item in travelling(_params(part, entry)):
        most = _most(host, item.value.type)
        if most is None or most + 1 >= 1 << 8 * item.size:
            continue
        type_ = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "cora_u128"}[item.size]
        value = f"(((cora_u128){most >> 64:#x}u << 64) | {most & (1 << 64) - 1:#x}u)" if most >> 64 else f"{most:#x}u"
        yield (f"{{ {type_} v; memcpy(&v, values + {item.offset}, {item.size}); if (v > {value}) return false; }}"
               f" /* {comment(item.value.name)} */")


def _most(host: PartProgram, type_: Bool | UInt | EntryRef) -> int | None:
    if not isinstance(type_, EntryRef):
        return mask_of(type_)
    state = host.program.state(type_.state)
    if isinstance(state, AclState | LpmState):
        return max(0, len(state.entries) - 1)
    return state.capacity - 1 if isinstance(state, MapState) else None
