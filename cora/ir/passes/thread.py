"""Straight-line code in one block, and no blocks that only lead on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from cora.ir import nodes
from cora.ir.cfg import predecessors_of
from cora.ir.nodes import Block, Program, Terminator, Value
from cora.ir.passes.rewrite import binds_entry, retarget, substitute, with_blocks
from cora.ir.types import EntryRef


@dataclass(frozen=True)
class ThreadJumps:
    """Lead edges past blocks that only jump, and merge a block into the only one that jumps to it."""

    name: ClassVar[str] = "thread-jumps"

    def apply(self, program: Program) -> Program:
        """See the class."""
        return merged(skipped(program))


def skipped(program: Program) -> Program:
    """The program without blocks that only jump, where its edges can lead on themselves.

    An edge that hands over an entry reference stays, since its target can have no other predecessor.
    """
    used_elsewhere = _read_outside_own_jump(program)
    empty: dict[str, Block] = {}
    for block in reversed(program.blocks[1:]):
        if not block.instructions and isinstance(block.terminator, nodes.Jump) and not (
                used_elsewhere & {p.name for p in block.params}):
            empty[block.label] = replace(block, terminator=_led_on(block.terminator, empty))
    return with_blocks(program, [replace(b, terminator=_led_on(b.terminator, empty)) for b in program.blocks])


def _read_outside_own_jump(program: Program) -> set[str]:
    """Names of values that something else than the jump of an instruction-less block reads."""
    read: set[str] = set()
    for block in program.blocks:
        own = not block.instructions and isinstance(block.terminator, nodes.Jump)
        params = {p.name for p in block.params} if own else set()
        for node in (*block.instructions, block.terminator):
            read.update(v.name for v in nodes.operands_of(node) if v.name not in params)
    return read


def _led_on(terminator: Terminator, empty: dict[str, Block]) -> Terminator:
    if isinstance(terminator, nodes.Jump):
        past = empty.get(terminator.target)
        if past is None:
            return terminator
        jump = past.terminator
        assert isinstance(jump, nodes.Jump), "empty blocks end in a jump"
        values = {p.name: a for p, a in zip(past.params, terminator.args, strict=True)}
        return replace(substitute(jump, values), span=terminator.span)

    def move(outcome: str, label: str) -> str:
        past = empty.get(label)
        if past is None or binds_entry(terminator, outcome):
            return label
        jump = past.terminator
        assert isinstance(jump, nodes.Jump), "empty blocks end in a jump"
        return label if jump.args else jump.target

    return retarget(terminator, move)


def merged(program: Program) -> Program:
    """The program with every block that one jump alone enters put behind that jump."""
    entered = Counter({label: len(froms) for label, froms in predecessors_of(program).items()})
    blocks = {b.label: b for b in program.blocks}
    gone: set[str] = set()
    values: dict[str, Value] = {}
    for label in [b.label for b in program.blocks]:
        if label in gone:
            continue
        block = blocks[label]
        while isinstance(block.terminator, nodes.Jump) and entered[block.terminator.target] == 1:
            then = blocks[block.terminator.target]
            # A reference under two names would hide that one of them was deleted.
            if any(isinstance(p.type, EntryRef) for p in then.params):
                break
            for param, arg in zip(then.params, block.terminator.args, strict=True):
                values[param.name] = values.get(arg.name, arg)
            block = replace(block, instructions=block.instructions + then.instructions, terminator=then.terminator)
            gone.add(then.label)
        blocks[label] = block
    kept = [blocks[b.label] for b in program.blocks if b.label not in gone]
    return with_blocks(program, [_reading(b, values) for b in kept])


def _reading(block: Block, values: dict[str, Value]) -> Block:
    return replace(block, instructions=tuple(substitute(i, values) for i in block.instructions),
                   terminator=substitute(block.terminator, values))
