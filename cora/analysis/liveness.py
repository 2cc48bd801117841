"""Which values are still needed at a point of a program: what a packet carries when it changes its place there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cora.ir.nodes import (
    Block,
    Const,
    Insert,
    Jump,
    LoadConfig,
    Lookup,
    Program,
    Value,
    operands_of,
    result_of,
    successors,
)
from cora.ir.types import EntryRef, bytes_of


@dataclass(frozen=True)
class Liveness:
    """Live values of a program.

    Attributes:
        blocks: the program's blocks by label.
        entering: per label the values needed at the block's start, its parameters included.
        remade: constants and configuration values; every place makes them itself, so they never travel.
    """

    blocks: Mapping[str, Block]
    entering: Mapping[str, frozenset[Value]]
    remade: frozenset[Value]

    def on_edge(self, block: Block, target: str) -> frozenset[Value]:
        """Values that travel on the edge from a block to a successor."""
        passed = block.terminator.args if isinstance(block.terminator, Jump) else ()
        return (self.entering[target] - frozenset(self.blocks[target].params)).union(passed) - self.remade

    def before(self, block: Block, index: int) -> frozenset[Value]:
        """Values that travel when a packet moves before instruction ``index`` of a block (its length: the end)."""
        return _backwards(block, index, self.entering, self.blocks) - self.remade


def _backwards(block: Block, index: int, entering: Mapping[str, frozenset[Value]],
               blocks: Mapping[str, Block]) -> frozenset[Value]:
    terminator = block.terminator
    live: frozenset[Value] = frozenset()
    for _, target in successors(terminator):
        live |= entering[target] - frozenset(blocks[target].params)
    if isinstance(terminator, Lookup | Insert):
        live -= {terminator.entry}
    live = live.union(operands_of(terminator))
    for instruction in reversed(block.instructions[index:]):
        live = (live - {result_of(instruction)}).union(operands_of(instruction))
    return live


def liveness_of(program: Program) -> Liveness:
    """One backward pass over the blocks is enough because the graph has no cycles."""
    blocks = {b.label: b for b in program.blocks}
    entering: dict[str, frozenset[Value]] = {}
    for block in reversed(program.blocks):
        entering[block.label] = _backwards(block, 0, entering, blocks)
    remade = frozenset(i.result for b in program.blocks for i in b.instructions if isinstance(i, Const | LoadConfig))
    return Liveness(blocks, entering, remade)


def bytes_of_values(values: Iterable[Value]) -> int:
    """Bytes the values take in a punt header. Entry references take none: they are only used where their state is."""
    return sum(bytes_of(v.type) for v in values if not isinstance(v.type, EntryRef))
