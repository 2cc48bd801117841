"""What nothing depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cora.ir import nodes
from cora.ir.nodes import Block, Instruction, Program
from cora.ir.passes.rewrite import with_blocks

# Instructions that leave everything but their result as it is.
_PURE = (nodes.Const, nodes.Unary, nodes.Binary, nodes.Compare, nodes.Cast, nodes.Select, nodes.LoadConfig, nodes.Meta,
         nodes.Load, nodes.LoadEntry)


@dataclass(frozen=True)
class RemoveUnused:
    """Leave out values that nothing reads, block parameters among them. Ports, configs and states stay."""

    name: ClassVar[str] = "remove-unused"

    def apply(self, program: Program) -> Program:
        """See the class."""
        read: set[str] = set()
        kept: dict[str, tuple[bool, ...]] = {}
        blocks: list[Block] = []
        # Every block stands before its successors, so what is read behind a block is known when it is reached.
        for block in reversed(program.blocks):
            terminator = block.terminator
            if isinstance(terminator, nodes.Jump):
                args = zip(terminator.args, kept[terminator.target], strict=True)
                terminator = replace(terminator, args=tuple(a for a, keep in args if keep))
            read.update(v.name for v in nodes.operands_of(terminator))
            instructions: list[Instruction] = []
            for instruction in reversed(block.instructions):
                result = nodes.result_of(instruction)
                if result is not None and result.name not in read and isinstance(instruction, _PURE):
                    continue
                read.update(v.name for v in nodes.operands_of(instruction))
                instructions.append(instruction)
            kept[block.label] = tuple(p.name in read for p in block.params)
            params = tuple(p for p in block.params if p.name in read)
            blocks.append(replace(block, params=params, instructions=tuple(reversed(instructions)),
                                  terminator=terminator))
        return with_blocks(program, reversed(blocks))
