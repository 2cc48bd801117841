"""Splits of programs between kernel and user space made by hand, and their user halves built."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from cora.analysis.parts import PlacedNode, split_of
from cora.backends.xdp.user.program import emit_user
from cora.compile import compile_file
from cora.emit.bpf import INTERFACE, interface
from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_program
from cora.ir.nodes import Jump, Program, successors
from cora.ir.parts import Split

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PLAN = "00" * 32
FLAGS = ("-std=gnu11", "-O2", "-pthread", "-Wall", "-Wextra", "-Wno-type-limits", "-Werror")
SANITIZE = ("-std=gnu11", "-O1", "-g", "-pthread", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LIBRARIES = ("-lbpf", "-ljansson")


@lru_cache(maxsize=8)
def example(name: str, settings: tuple[tuple[str, str], ...] = ()) -> Program:
    """A shipped program; ``settings``: values of its configuration."""
    return compile_file(EXAMPLES / f"{name}.nf", dict(settings))


def all_in_user_space(program: Program) -> Split:
    """Every packet is handed on as it arrived."""
    first = program.blocks[0]
    door = replace(first, instructions=(), terminator=Jump(first.label, (), first.span))
    number = {b.label: i + 1 for i, b in enumerate(program.blocks)}
    nodes = [PlacedNode(door, 0, False, 0, (("next", 1),))]
    nodes += [PlacedNode(b, 0, True, 1, tuple((o, number[t]) for o, t in successors(b.terminator)))
              for b in program.blocks]
    return split_of(program, ("kernel", "user"), nodes, {s.name: {1: "whole"} for s in program.states}, [])


def stem(program: Program) -> str:
    return "".join(c if c.isalnum() else "_" for c in program.name)


def replayer(split: Split) -> Path:
    """The user half around a file of packets (user_replay.c), under the sanitizers."""
    name = stem(split.program)
    sources = {f"{name}.h": emit_user(split, {}, PLAN, name), INTERFACE: interface(split),
               "replay.c": Path(__file__).with_name("user_replay.c").read_text()}
    return build_program(f"{name}-replay", sources, (*SANITIZE, f'-DPROGRAM="{name}.h"', *LIBRARIES),
                         include_dirs=[RUNTIME])


def user_half(split: Split) -> Path:
    """The user half as `cora run` starts it."""
    name = stem(split.program)
    sources = {f"{name}.c": emit_user(split, {}, PLAN, name), INTERFACE: interface(split)}
    return build_program(f"{name}-user", sources, (*FLAGS, *LIBRARIES), include_dirs=[RUNTIME])
