"""The control-flow graph of a program on networkx, and facts computed over it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cora.ir.headers import ALSO_PROVIDES
from cora.ir.nodes import Extract, HasHeader, Program, Terminator, successors

if TYPE_CHECKING:
    import networkx as nx


def graph_of(program: Program) -> nx.MultiDiGraph:
    """Blocks as nodes (by label), one edge per outcome (attribute ``outcome``), in the order of `successors`."""
    import networkx as nx  # here, because it takes long to import and checking a program does without it

    graph = nx.MultiDiGraph()
    graph.add_nodes_from(b.label for b in program.blocks)
    for block in program.blocks:
        for outcome, target in successors(block.terminator):
            graph.add_edge(block.label, target, outcome=outcome)
    return graph


def predecessors_of(program: Program) -> dict[str, list[str]]:
    """Per label the labels that jump to it, one item per edge."""
    found: dict[str, list[str]] = defaultdict(list)
    for block in program.blocks:
        for _, target in successors(block.terminator):
            found[target].append(block.label)
    return found


def immediate_dominators(program: Program) -> dict[str, str]:
    """Per block but the entry, the nearest other block that lies on every way to it.

    The blocks must stand before their successors and be reachable, so that one sweep of Cooper, Harvey and Kennedy's
    "A Simple, Fast Dominance Algorithm" (2001) finds them.
    """
    entered = predecessors_of(program)
    entry = program.blocks[0].label
    above: dict[str, str] = {}
    depth = {entry: 0}
    for block in program.blocks[1:]:
        nearest, *others = entered[block.label]
        for other in others:
            while nearest != other:
                if depth[nearest] >= depth[other]:
                    nearest = above[nearest]
                else:
                    other = above[other]
        above[block.label] = nearest
        depth[block.label] = depth[nearest] + 1
    return above


def headers_gained(terminator: Terminator, outcome: str) -> tuple[str, ...]:
    """Headers that become readable when a terminator takes this outcome."""
    if isinstance(terminator, Extract) and outcome == "ok":
        return (terminator.header, *ALSO_PROVIDES.get(terminator.header, ()))
    if isinstance(terminator, HasHeader) and outcome == "present":
        return (terminator.header, *ALSO_PROVIDES.get(terminator.header, ()))
    return ()


def available_headers(program: Program) -> dict[str, frozenset[str]]:
    """Per block the headers that were extracted on every way to its start (flow typing)."""
    found: dict[str, frozenset[str]] = {program.blocks[0].label: frozenset()}
    for block in program.blocks:
        here = found.get(block.label, frozenset())
        for outcome, target in successors(block.terminator):
            arriving = here.union(headers_gained(block.terminator, outcome))
            found[target] = found[target] & arriving if target in found else arriving
    return found
