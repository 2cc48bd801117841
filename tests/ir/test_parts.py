"""Parts are printed, read back, and refused where they do not fit each other or break their roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

import cora
from cora.errors import CoraError, Kind
from cora.ir.nodes import Delete, Program, Punt, StoreEntry, Value
from cora.ir.parts import PUNT_FIXED, Part, Split, print_part, punt_bytes, verify_split
from cora.ir.text import parse_program, print_program
from cora.ir.types import U16, U128, EntryRef
from cora.testing.choices import RandomChoices
from cora.testing.placements import random_split

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@lru_cache(maxsize=1)
def split() -> Split:
    return next(s for i in range(50) if (s := random_split(
        cora.load(EXAMPLES / "firewall.nf"), RandomChoices(i), 2)).lendings and s.parts[0].entries == ()
        and any(isinstance(i, StoreEntry) for b in s.parts[0].program.blocks for i in b.instructions))


def test_a_part_is_printed_and_its_program_read_back() -> None:
    for part in split().parts:
        text = print_part(part)
        assert text.startswith(f"part {part.number} {part.place}\n")
        assert parse_program(print_program(part.program)) == part.program


def with_program(part: Part, change: Callable[[Program], Program]) -> Split:
    found = split()
    parts = tuple(replace(p, program=change(p.program)) if p is part else p for p in found.parts)
    return replace(found, parts=parts)


def refused(broken: Split) -> str:
    with pytest.raises(CoraError) as caught:
        verify_split(broken)
    assert caught.value.diagnostics[0].kind == Kind.IR_INVALID
    return str(caught.value)


def test_a_value_that_does_not_travel_is_missed() -> None:
    near, owner = split().parts
    entry = next(e for e in owner.entries if owner.program.block(e.label).params)

    def shorter(program: Program) -> Program:
        return replace(program, blocks=tuple(
            replace(b, params=b.params[1:]) if b.label == entry.label else b for b in program.blocks))

    said = refused(with_program(owner, shorter))
    assert "is not defined on every way here" in said and "are not those that entry" in said
    assert near.entries == ()


def test_a_place_keeps_to_its_role() -> None:
    near = split().parts[0]

    def deleting(program: Program) -> Program:
        def changed(i: object) -> object:
            return Delete(i.entry, i.span) if isinstance(i, StoreEntry) else i

        return replace(program, blocks=tuple(
            replace(b, instructions=tuple(changed(i) for i in b.instructions)) for b in program.blocks))  # type: ignore[misc]  # instructions stay instructions

    assert "changes the directory" in refused(with_program(near, deleting))
    roles = {n: r for n, r in near.roles.items() if r != "lent"}
    found = split()
    assert "which is not here" in refused(replace(found, parts=(replace(near, roles=roles), *found.parts[1:])))


def test_a_punt_leads_to_an_entry_of_a_later_place() -> None:
    near = split().parts[0]

    def astray(program: Program) -> Program:
        return replace(program, blocks=tuple(
            replace(b, terminator=replace(b.terminator, entry=4000)) if isinstance(b.terminator, Punt) else b
            for b in program.blocks))

    assert "there is no entry 4000 at a later place" in refused(with_program(near, astray))


def test_bytes_of_a_punt_header() -> None:
    values = (Value("a", U16), Value("b", U128), Value("e", EntryRef("m")))
    assert punt_bytes(values) == PUNT_FIXED + 2 + 16 + 4
