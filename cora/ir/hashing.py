"""The identity of a program: profiles, plans and generated code name the program they belong to by this hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from cora.ir.nodes import Program
from cora.ir.text import CHILDREN, print_node


def program_hash(program: Program) -> str:
    """SHA-256, in hex, of the program's text form without spans and without its file's name.

    Moving code in the source file, editing comments or renaming the file keeps the hash; anything a packet could
    notice changes it.
    """
    return hashlib.sha256("\n".join(_lines(program)).encode()).hexdigest()


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    for declaration in (*program.ports, *program.configs, *program.states):
        yield from _tree(declaration)
    for block in program.blocks:
        yield print_node(block)
        for node in (*block.instructions, block.terminator):
            yield print_node(node)


def _tree(declaration: Any) -> Iterator[str]:
    yield print_node(declaration)
    for name, _, single in CHILDREN.get(type(declaration), ()):
        for child in (getattr(declaration, name),) if single else getattr(declaration, name):
            yield f"{name}: {print_node(child)}"
