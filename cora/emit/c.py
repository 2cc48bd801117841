"""The C source of a program for the host: one readable file over the headers in cora/emit/runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Protocol

from cora.emit.dialect import Lines
from cora.emit.host import HostDialect, HostProgram
from cora.emit.host_map import HostMap
from cora.emit.host_meter import HostMeter
from cora.emit.host_static import HostStatic
from cora.emit.layout import config_row
from cora.emit.names import comment
from cora.ir.nodes import TRACKER_REASONS, CounterState, FragmentState, MapState, MeterState, PoolState, Program, State


class EmittedProgram(Protocol):
    """What is asked of a program, or of a part of one, to write its tables."""

    @property
    def program(self) -> Program: ...
    @property
    def dialect(self) -> HostDialect: ...
    def tables(self) -> Iterator[HostMap | HostMeter | HostStatic]: ...
    def row_sizes(self) -> dict[str, int]: ...
    def config_structure(self) -> Lines: ...
    def config_copies(self) -> Lines: ...


RUNTIME = Path(__file__).resolve().parent / "runtime"


def emit_host(program: Program) -> str:
    """The program as one C file for the host.

    It is compiled with ``-I cora/emit/runtime``; ``-DCORA_PROFILE`` adds counting, ``-DCORA_MAIN`` a main function,
    ``-DCORA_EXACT_FRAMES`` gives every frame its own allocation (for the address sanitizer).

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for what the engine does not take.
    """
    host = HostProgram(program)
    parts = [
        _head(host), _engine(host), _tables(host), _life(host), _rows(host), _profile(host),
        host.prefix_function(), host.finish_function(), ['#include "driver.h"'],
    ]
    return "\n".join("\n".join(part).strip("\n") + "\n" for part in parts if part)


def _head(host: HostProgram) -> Lines:
    program = host.program
    return [
        f"/* {comment(program.name)}, from {comment(PurePath(program.span.file).name)} */",
        f"#define CORA_TRACKERS {len(host.dialect.trackers)}",
        f"#define CORA_PORTS {len(program.ports)}",
        f"#define CORA_REASONS {len(host.dialect.reasons)}",
        f"#define CORA_STATES {len(program.states)}",
        f"#define CORA_PATHS UINT64_C({host.body.paths.count})",
        f"#define CORA_CONFIG_SIZE {config_row(program).size}",
        "",
        '#include "base.h"',
        "",
        *host.live_structure(),
        "",
        '#include "core.h"',
        '#include "fragment.h"',
        '#include "meter.h"',
        '#include "pool.h"',
        '#include "table.h"',
    ]


def _engine(host: EmittedProgram, more: Lines | None = None) -> Lines:
    dialect = host.dialect
    out = host.config_structure()
    for table in host.tables():
        out += ["", *table.structures()]
    members = ["    struct cora_core core;", "    struct cora_batch batch;", "    struct cora_config config;"]
    for state in host.program.states:
        name = dialect.names.state(state.name)
        if isinstance(state, PoolState):
            members.append(f"    struct cora_pool {name};")
        elif isinstance(state, CounterState):
            members.append(f"    struct cora_total *{name}; /* {state.size} */")
        elif not isinstance(state, FragmentState):
            members.append(f"    struct {name} {name};")
    if dialect.trackers:
        members.append("    struct cora_tracker trackers[CORA_TRACKERS];")
    return [*out, "", "struct cora_engine {", *members, *(more or []), "};"]


def _tables(host: EmittedProgram) -> Lines:
    return [line for table in host.tables() for line in table.functions()]


def _life(host: EmittedProgram) -> Lines:
    """Opening, closing and expiring all tables."""
    open_: Lines = []
    close: Lines = []
    for state in host.program.states:
        opened, closed = state_life(host, state)
        open_ += opened
        close += closed
    return [
        "CORA_COLD void cora_program_open(struct cora_engine *E, const uint8_t *config)", "{",
        "    (void)E, (void)config;", *host.config_copies(), *open_, "}", "",
        "CORA_COLD void cora_program_close(struct cora_engine *E)", "{", "    (void)E;", *close, "}", "",
        *_expiry(host),
    ]


def state_life(host: EmittedProgram, state: State) -> tuple[Lines, Lines]:
    """Statements that make and unmake one state."""
    name = host.dialect.names.state(state.name)
    if isinstance(state, PoolState):
        last = state.ranges[-1]
        block = last.high - last.low + 1
        return host.dialect.pool_life(name, f"cora_pool_init(&E->{name}, {state.size}u, {block}u, {last.low}ull);")
    if isinstance(state, CounterState):
        return ([f"    E->{name} = cora_zeroed({state.size}ull, sizeof *E->{name});"],
                [f"    cora_release(E->{name}, {state.size}ull, sizeof *E->{name});"])
    if isinstance(state, FragmentState):
        return _tracker_life(host, state)
    if isinstance(state, MapState | MeterState):
        return [f"    {name}_open(E);"], [f"    {name}_close(E);"]
    entries = max(1, len(state.entries))
    return ([f"    CORA_IF_PROFILE(cora_profile_init(&E->{name}.profile, {entries});)"],
            [f"    CORA_IF_PROFILE(cora_profile_close(&E->{name}.profile);)"])


def _tracker_life(host: EmittedProgram, state: FragmentState) -> tuple[Lines, Lines]:
    number = host.dialect.trackers.index(state.name)
    tracker = f"E->trackers[{number}]"
    members = ("reason_timeout", "reason_first", "reason_condemned")
    return ([
        f"    cora_tracker_init(&{tracker}, {state.capacity}u, {state.timeout}ull, {state.max_held}u);",
        f"    {tracker}.number = {number};",
        *(f"    {tracker}.{member} = {host.dialect.reasons.index(reason)};"
          for member, reason in zip(members, TRACKER_REASONS, strict=True)),
    ], [f"    cora_tracker_close(&{tracker});"])


def _expiry(host: EmittedProgram) -> Lines:
    dialect = host.dialect
    ageing = [m.table for m in dialect.maps.values() if m.expires]
    ageing += [m.table for m in dialect.meters.values() if m.expires]
    trackers = range(len(dialect.trackers))
    return [
        "/* Removes what is due: table entries first, then held fragments. */",
        "CORA_COLD void cora_program_expire(struct cora_engine *E)", "{",
        *(f"    {t}_expire(E, E->core.now);" for t in ageing),
        *(f"    cora_tracker_expire(&E->core, &E->trackers[{i}]);" for i in trackers),
        *([] if ageing or trackers else ["    (void)E;"]),
        "}", "",
        "CORA_COLD uint64_t cora_program_due(const struct cora_engine *E)", "{",
        "    uint64_t due = CORA_NEVER;", "    (void)E;",
        *(f"    due = cora_min64(due, cora_expiry_due(&E->{t}.expiry));" for t in ageing),
        *(f"    due = cora_min64(due, cora_tracker_due(&E->trackers[{i}]));" for i in trackers),
        "    return due;", "}",
        *(["", "static inline struct cora_tracker *cora_program_tracker(struct cora_engine *E, uint32_t number)", "{",
           "    return &E->trackers[number];", "}"] if trackers else []),
    ]


def _rows(host: EmittedProgram) -> Lines:
    """Dumping and loading every state; the rows are described in cora/emit/layout.py and the headers of the runtime."""
    parts = [_state_rows(host, number, state) for number, state in enumerate(host.program.states)]
    size, dump, load = ([line for part in parts for line in part[i]] for i in range(3))
    return [
        *_switch("size_t cora_program_size(const struct cora_engine *E, uint32_t state)", size, "return 0;", ("E",)),
        "",
        *_switch("void cora_program_dump(const struct cora_engine *E, uint32_t state, uint8_t *out)", dump, "break;",
                 ("E", "out")), "",
        *_switch("bool cora_program_load(struct cora_engine *E, uint32_t state, const uint8_t *rows, size_t size)",
                 load, "return size == 0;", ("E", "rows")),
    ]


def _state_rows(host: EmittedProgram, number: int, state: State) -> tuple[Lines, Lines, Lines]:
    """Cases for the size of a state's dump, for dumping and for loading it."""
    name, case = host.dialect.names.state(state.name), f"    case {number}:"
    if isinstance(state, MapState | MeterState):
        row = host.row_sizes()[state.name]
        return ([f"{case} return (size_t)E->{name}.slots.count * {row};"],
                [f"{case} {name}_dump(E, out); break;"],
                [case, f"        for (size_t at = 0; at + {row} <= size; at += {row})",
                 f"            if (!{name}_load(E, rows + at))", "                return false;",
                 "        return true;"])
    if isinstance(state, PoolState):
        return ([f"{case} return cora_pool_dump_size(&E->{name});"],
                [f"{case} cora_pool_dump(&E->{name}, out); break;"],
                [f"{case} return cora_pool_load(&E->{name}, rows, size);"])
    if isinstance(state, CounterState):
        octets = f"{state.size}ull * sizeof *E->{name}"
        return ([f"{case} return {octets};"], [f"{case} memcpy(out, E->{name}, {octets}); break;"],
                [case, f"        if (size != {octets})", "            return false;",
                 f"        memcpy(E->{name}, rows, size);", "        return true;"])
    if isinstance(state, FragmentState):
        tracker = f"&E->trackers[{host.dialect.trackers.index(state.name)}]"
        return ([f"{case} return cora_tracker_size({tracker});"],
                [f"{case} cora_tracker_dump({tracker}, out); break;"], [])
    return [], [], []


def _switch(head: str, cases: Lines, otherwise: str, unused: tuple[str, ...]) -> Lines:
    return [f"CORA_COLD {head}", "{", *(f"    (void){u};" for u in unused), "    switch (state) {", *cases,
            f"    default: {otherwise}", "    }", "}"]


def _profile(host: HostProgram) -> Lines:
    tables = {t.state.name for t in host.tables()}
    cases = [f"    case {i}: return &E->{host.dialect.names.state(s.name)}.profile;"
             for i, s in enumerate(host.program.states) if s.name in tables]
    return ["#ifdef CORA_PROFILE",
            *_switch("struct cora_table_profile *cora_program_profile(struct cora_engine *E, uint32_t state)", cases,
                     "return NULL;", ("E",)),
            "#endif"]

