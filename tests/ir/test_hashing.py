"""The program hash changes with what a packet could notice, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

from cora.ir.hashing import program_hash
from cora.ir.nodes import Drop
from cora.ir.span import Span
from cora.ir.text import parse_program

TEXT = """
program p file "a.nf" @1:1-9:1
port wire faces (wire) @2:1-2:2
acl rules capacity 4 kinds (exact) @3:1-3:2
  keyfield k : u16 @3:3-3:4
  field v : u8 @3:5-3:6
  rule (1/65535) (7) priority 1 @3:7-3:8
block entry () @4:1-4:2
  drop "no" @4:3-4:4
"""


def test_spans_and_file_names_do_not_count() -> None:
    program = parse_program(TEXT)
    moved = parse_program(TEXT.replace("a.nf", "b.nf").replace("@4:3-4:4", "@40:3-40:9"))
    assert moved != program
    assert program_hash(moved) == program_hash(program)


def test_everything_else_counts() -> None:
    program = parse_program(TEXT)
    others = [
        parse_program(TEXT.replace(old, new))
        for old, new in (('"no"', '"not"'), ("(7)", "(8)"), ("priority 1", "priority 2"), ("capacity 4", "capacity 5"),
                         ("program p", "program q"), ("faces (wire)", "faces (vf)"))
    ]
    renamed = replace(program.blocks[0], label="start", terminator=Drop("no", Span("", 1, 1, 1, 1)))
    others.append(replace(program, blocks=(renamed,)))
    assert len({program_hash(p) for p in (program, *others)}) == 1 + len(others)
