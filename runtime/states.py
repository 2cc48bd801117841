"""The state of running programs as documents.

A document is ``{"format": "cora-state", "program": hash, "time_ns": clock of the program at the dump, "states":
StateDump}``; a plain `StateDump`, as `cora replay --state` writes it, is read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cora.documents import Garbled, read_json, read_text
from cora.engine.results import StateDump
from cora.engine.rows import dump_of_rows, rows_of_dump
from cora.errors import CoraError, Kind, fail
from cora.ir.hashing import program_hash
from cora.ir.nodes import AclState, FragmentState, LpmState, Program
from cora.runtime.control import Control

FORMAT = "cora-state"


def dumpable(program: Program) -> tuple[str, ...]:
    """The states that a dump has: access lists and prefix tables never change, so they are not among them."""
    return tuple(s.name for s in program.states if not isinstance(s, AclState | LpmState))


def _chosen(program: Program, wanted: Sequence[str]) -> tuple[str, ...]:
    known = dumpable(program)
    for name in wanted:
        if name not in known:
            raise fail(Kind.BAD_FLAG, f"the program has no state {name} that changes", where="STATE",
                       hint=f"those it has: {', '.join(known)}" if known else "it has none")
    return tuple(n for n in known if n in wanted) if wanted else known


def dumped(control: Control, program: Program, wanted: Sequence[str]) -> dict[str, Any]:
    """The document of some states of a running program; of all where ``wanted`` is empty.

    Raises:
        CoraError: `Kind.BAD_FLAG` for an unknown state; what the program refuses.
    """
    names = _chosen(program, wanted)
    rows, now = {}, 0
    for name in names:
        rows[name], now = control.dump(name)
    empty = rows_of_dump(program, {})
    data = [rows.get(s.name, none) for s, none in zip(program.states, empty, strict=True)]
    states = dump_of_rows(program, data)
    return {"format": FORMAT, "program": program_hash(program), "time_ns": now,
            "states": {name: states[name] for name in names}}


def read_states(path: Path, program: Program) -> dict[str, Any]:
    """The document in a file.

    Raises:
        CoraError: `Kind.BAD_STATE` where it is none, or one of another program.
    """
    try:
        body = read_json(read_text(path))
    except json.JSONDecodeError as error:
        raise _bad(path, f"this is no JSON: {error}") from error
    except (OSError, Garbled) as error:
        raise _bad(path, f"cannot read: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(body, dict) or not all(isinstance(v, dict) for v in body.get("states", body).values()):
        raise _bad(path, "this is no dump of states")
    if body.get("format") != FORMAT:
        return {"format": FORMAT, "program": program_hash(program), "time_ns": _latest(body), "states": body}
    if body.get("program") != program_hash(program):
        raise _bad(path, f"this is the state of another program than {program.name} as it runs")
    if not isinstance(body.get("time_ns"), int):
        raise _bad(path, "time_ns is missing or no whole number")
    return body


def _bad(path: Path, message: str) -> CoraError:
    return fail(Kind.BAD_STATE, message, where=str(path),
                hint="`cora state dump` and `cora replay --state` write such files")


def _latest(states: Mapping[str, Any]) -> int:
    """The last use of any entry, where a dump does not tell its own time."""
    rows = [e for s in states.values() for e in s.get("entries", []) if isinstance(e, dict)]
    return max((e["last"] for e in rows if isinstance(e.get("last"), int)), default=0)


def loaded(control: Control, program: Program, document: Mapping[str, Any], wanted: Sequence[str]) -> list[str]:
    """Replace states of a running program by those of a document, all of them (or those ``wanted``) or none.

    Raises:
        CoraError: `Kind.BAD_FLAG`, `Kind.BAD_STATE`; `Kind.RUN_REFUSED` where they do not fit; then nothing changed.
    """
    states: StateDump = document["states"]
    names = [n for n in _chosen(program, wanted) if n in states]
    if not names or set(wanted) - set(names):
        missing = ", ".join(sorted(set(wanted) - set(names))) or "states of the program"
        raise fail(Kind.BAD_STATE, f"the file has no {missing}", where="STATE", hint=f"it has: {', '.join(states)}")
    held = [s.name for s in program.states if isinstance(s, FragmentState) and s.name in names]
    for name in held:
        if states[name].get("datagrams"):
            raise fail(Kind.BAD_STATE, f"datagrams of {name} cannot be loaded: a dump has no bytes of their fragments",
                       where=name, hint="name the states to load, without it")
        names.remove(name)
    moved = control.dump(names[0])[1] - document["time_ns"]
    try:
        rows = rows_of_dump(program, {n: _later(states[n], moved) for n in names})
    except CoraError as error:
        raise CoraError(fail(Kind.BAD_STATE, d.message, span=d.span, hint=d.hint).diagnostics[0]
                        for d in error.diagnostics) from error
    with control.transaction():
        for state, data in zip(program.states, rows, strict=True):
            if state.name in names:
                control.load(state.name, data)
    return names


def _later(dumped: Mapping[str, Any], moved: int) -> dict[str, Any]:
    """A state whose entries were used so much later, at 0 at the least."""
    entries = dumped.get("entries")
    if not isinstance(entries, list):
        return dict(dumped)
    return {**dumped, "entries": [{**e, "last": max(0, e["last"] + moved)} if isinstance(e, dict) and
                                  isinstance(e.get("last"), int) else e for e in entries]}
