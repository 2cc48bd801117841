"""The control-flow graph of a program on networkx, and facts computed over it."""

from __future__ import annotations

from collections import defaultdict

import networkx as nx

from cora.ir.headers import ALSO_PROVIDES
from cora.ir.nodes import Extract, HasHeader, Program, Terminator, successors


def graph_of(program: Program) -> nx.MultiDiGraph:
    """Blocks as nodes (by label), one edge per outcome (attribute ``outcome``), in the order of `successors`."""
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
