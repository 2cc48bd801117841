"""What a program that stands alone must know about itself at run time: names, configuration, its states."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cora.emit.dialect import Lines
from cora.emit.host import HostDialect
from cora.emit.layout import map_row, meter_row
from cora.emit.names import comment
from cora.engine.native import packed_config
from cora.ir.nodes import (
    AclState,
    CounterState,
    FragmentState,
    Hold,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    Program,
    Reject,
    State,
    TrackFragment,
    reasons_of,
)

_KINDS = {MapState: "map", PoolState: "pool", MeterState: "meter", CounterState: "counter", AclState: "acl",
          LpmState: "lpm", FragmentState: "fragment"}


def text_literal(value: str) -> str:
    """A C string. Names are printable; what is not ASCII stands as octal escapes of its UTF-8 bytes."""
    plain = json.dumps(value, ensure_ascii=False)[1:-1]
    return '"' + "".join(c if c.isascii() else "".join(f"\\{b:03o}" for b in c.encode()) for c in plain) + '"'


def keeps_original(program: Program) -> bool:
    """Whether anything asks for packets as they arrived: ICMP errors quote them, held fragments wait as they came."""
    return any(isinstance(b.terminator, Reject | Hold | TrackFragment) for b in program.blocks)


def names_of(program: Program) -> Lines:
    """Names of ports and drop reasons, by number."""
    ports = ", ".join(text_literal(p.name) for p in program.ports)
    reasons = ", ".join(text_literal(r) for r in reasons_of(program))
    return [f"static const char *const cora_port_names[] = {{{ports}}};",
            f"static const char *const cora_reason_names[] = {{{reasons or 'NULL'}}};", ""]


def config_row_of(program: Program, config: Mapping[str, int]) -> Lines:
    """The configuration as a packed row."""
    values = ", ".join(str(b) for b in packed_config(program, config)) or "0"
    said = ", ".join(f"{c.name} = {config.get(c.name, c.value)}" for c in program.configs)
    return [f"/* {comment(said or 'no configuration')} */",
            f"static const uint8_t cora_config_row[] = {{{values}}};", ""]


def kind_of(state: State) -> str:
    """The kind of a state in one word."""
    return _KINDS[type(state)]


def capacity_of(state: State) -> int:
    """Entries, values or counters that a state has room for."""
    match state:
        case MapState() | MeterState() | FragmentState():
            return state.capacity
        case PoolState() | CounterState():
            return state.size
    return len(state.entries)


def row_bytes(state: State) -> int:
    """Bytes of which a dump of the state is a multiple, 0 where none can be loaded."""
    match state:
        case MapState():
            return map_row(state).size
        case MeterState():
            return meter_row(state).size
        case CounterState():
            return 16 * state.size
        case PoolState():
            return 8 + (state.size + 63) // 64 * 8
    return 0


def states_of(program: Program, dialect: HostDialect) -> Lines:
    """The states by number, and functions about how full they are."""
    rows = [f"    {{{text_literal(s.name)}, \"{kind_of(s)}\", {capacity_of(s)}u, {row_bytes(s)}u, "
            f"{str(isinstance(s, PoolState)).lower()}, {str(isinstance(s, CounterState)).lower()}}},"
            for s in program.states]
    cases = [f"    case {i}: return {count};" for i, s in enumerate(program.states)
             if (count := entries_of(dialect, s)) is not None]
    pools = [(i, dialect.names.state(s.name)) for i, s in enumerate(program.states) if isinstance(s, PoolState)]
    position = [line for i, name in pools for line in (
        f"    case {i}:",
        f"        if (size != cora_pool_dump_size(&E->{name}) || cora_raw64(rows) >= E->{name}.size ||",
        f"            memcmp(rows + 8, E->{name}.used, size - 8) != 0)", "            return false;",
        f"        cora_pool_set_next(&E->{name}, cora_raw64(rows));", "        return true;")]
    return [
        "/* The states by number; `row`: bytes of which a dump is a multiple, 0 where none can be loaded. */",
        "static const struct {", "    const char *name, *kind;", "    uint32_t capacity, row;",
        "    bool pool, counter;", "} cora_states[] = {", *rows, "    {NULL, NULL, 0, 0, false, false},", "};", "",
        "/* Entries of a table, values in use of a pool. */",
        "static uint64_t cora_program_entries(const struct cora_engine *E, uint32_t state)", "{", "    (void)E;",
        "    switch (state) {", *cases, "    default: return 0;", "    }", "}", "",
        "/* Takes the position of a pool's search from a dump; false where its values in use are others than now. */",
        "static bool cora_program_pool_position(struct cora_engine *E, uint32_t state, const uint8_t *rows,",
        "                                       size_t size)",
        "{", "    (void)E, (void)rows, (void)size;", "    switch (state) {", *position, "    default: return false;",
        "    }", "}", "",
    ]


def entries_of(dialect: HostDialect, state: State) -> str | None:
    """A C expression for the entries of a table or the values in use of a pool; None for a counter."""
    name = dialect.names.state(state.name)
    match state:
        case MapState() | MeterState():
            return f"E->{name}.slots.count"
        case PoolState():
            return f"cora_pool_count(&E->{name})"
        case FragmentState():
            return f"E->trackers[{dialect.trackers.index(state.name)}].slots.count"
        case AclState() | LpmState():
            return f"{len(state.entries)}"
    return None
