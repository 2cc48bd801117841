"""Inserts that may look again: another CPU may have made the very entry since the look-up in front of them missed.

For one CPU that cannot be, and the `full` arm would be taken as if the table had no room. So the packet goes back to
its look-up, once, where nothing has been changed on the way from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from cora.ir import nodes
from cora.ir.nodes import Block, Insert, Lookup, MapState, Program, successors

_CHANGES = (nodes.Store, nodes.StoreEntry, nodes.Touch, nodes.Delete, nodes.Count)


def looks_again(program: Program) -> dict[str, str]:
    """Label of an insert's block -> label of the block with the look-up to go back to."""
    found: dict[str, str] = {}
    for block in program.blocks:
        node = block.terminator
        if isinstance(node, Insert):
            origin = next((b.label for b in _same_key(program, node) if _leads_only(program, b, block)), None)
            if origin is not None:
                found[block.label] = origin
    return found


def _same_key(program: Program, insert: Insert) -> Iterator[Block]:
    """Blocks that look up the primary key of the entry that an insert makes."""
    state = program.state(insert.state)
    assert isinstance(state, MapState)
    allocated = {f for a in state.allocs for f in a.fields}
    given = dict(zip((f.name for f in state.fields if f.name not in allocated), insert.values, strict=True))
    wanted = tuple(given.get(f) for f in state.keys[0].fields)
    for block in program.blocks:
        node = block.terminator
        if isinstance(node, Lookup) and node.state == insert.state and node.key == state.keys[0].name and (
                node.operands == wanted):
            yield block


def _leads_only(program: Program, lookup: Block, insert: Block) -> bool:
    """Whether every packet at the insert comes from the look-up's miss, and nothing was changed since."""
    node = lookup.terminator
    assert isinstance(node, Lookup)
    blocks = {b.label: b for b in program.blocks}
    behind = _reached(blocks, node.miss, "")
    before = {label for label in behind if insert.label in _reached(blocks, label, "")}
    if insert.label not in behind or insert.label in _reached(blocks, program.blocks[0].label, lookup.label):
        return False
    return all(_is_plain(program, blocks[label], last=label == insert.label) for label in before)


def _reached(blocks: dict[str, Block], start: str, cut: str) -> set[str]:
    """Labels reached from a block, not going on from the block ``cut``."""
    found, waiting = set[str](), [start]
    while waiting:
        label = waiting.pop()
        if label in found:
            continue
        found.add(label)
        if label != cut:
            waiting += [target for _, target in successors(blocks[label].terminator)]
    return found


def _is_plain(program: Program, block: Block, *, last: bool) -> bool:
    node = block.terminator
    changes = any(isinstance(i, _CHANGES) for i in block.instructions)
    accesses = isinstance(node, Insert | nodes.Police) or (
        isinstance(node, Lookup) and isinstance(program.state(node.state), MapState))
    return not changes and (last or not accesses)
