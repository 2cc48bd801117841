"""What all passes do to nodes and blocks: replace values, redirect edges, leave out what is not reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cora.ir import nodes
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value, read_fields, successors

Node = TypeVar("Node", bound=Instruction | Terminator)

# Per terminator, the fields that name one block.
_TARGETS: dict[type, tuple[str, ...]] = {
    nodes.Jump: ("target",), nodes.Branch: ("if_true", "if_false"), nodes.Switch: ("default",),
    nodes.HasHeader: ("if_present", "if_absent"), nodes.IsFragment: ("if_fragment", "if_whole"),
    nodes.Lookup: ("hit", "miss"), nodes.Insert: ("ok", "full"), nodes.Police: ("green", "yellow", "red", "full"),
}


def substitute(node: Node, values: Mapping[str, Value]) -> Node:
    """The node reading other values instead of those named; what it defines stays."""
    if not values:
        return node
    kind: type = type(node)
    changed: dict[str, Any] = {}
    for name in read_fields(kind):
        item = getattr(node, name)
        found = _substituted(item, values)
        if found is not item:
            changed[name] = found
    return replace(node, **changed) if changed else node


def _substituted(item: Any, values: Mapping[str, Value]) -> Any:
    if isinstance(item, Value):
        return values.get(item.name, item)
    if isinstance(item, tuple):
        found = tuple(_substituted(i, values) for i in item)
        return found if any(a is not b for a, b in zip(found, item, strict=True)) else item
    return item


def retarget(terminator: Terminator, move: Callable[[str, str], str]) -> Terminator:
    """The terminator with every edge (outcome, label) leading to ``move(outcome, label)``."""
    if not any(move(outcome, label) != label for outcome, label in successors(terminator)):
        return terminator
    if isinstance(terminator, nodes.Extract | nodes.TrackFragment):
        return replace(terminator, outcomes=tuple((o, move(o, label)) for o, label in terminator.outcomes))
    if isinstance(terminator, nodes.Switch):
        return replace(terminator, cases=tuple((v, move(str(v), label)) for v, label in terminator.cases),
                       default=move("default", terminator.default))
    outcomes = dict(successors(terminator))
    moved: dict[str, Any] = {}
    for name, outcome in zip(_TARGETS[type(terminator)], _outcomes(terminator), strict=True):
        if outcome in outcomes:
            moved[name] = move(outcome, outcomes[outcome])
    return replace(terminator, **moved)


def _outcomes(terminator: Terminator) -> tuple[str, ...]:
    """The outcomes in the order of `_TARGETS`."""
    if isinstance(terminator, nodes.Police):
        return ("green", "yellow", "red", "full")
    return tuple(o for o, _ in successors(terminator))


def binds_entry(terminator: Terminator, outcome: str) -> bool:
    """Whether an edge hands over an entry reference, so that its target can have no other predecessor."""
    return (isinstance(terminator, nodes.Lookup) and outcome == "hit") or (
        isinstance(terminator, nodes.Insert) and outcome == "ok")


def with_blocks(program: Program, blocks: Iterable[Block]) -> Program:
    """The program with these blocks, in their order, without those that are not reached."""
    kept: list[Block] = []
    reached: set[str] = set()
    for block in blocks:
        if kept and block.label not in reached:
            continue
        kept.append(block)
        reached.update(t for _, t in successors(block.terminator))
    return replace(program, blocks=tuple(kept))
