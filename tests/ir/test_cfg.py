"""The graph of a program against networkx: edges, order, dominators, flow typing."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
import random_ir
from reference_kit import chain, program

from cora.frontends.nf import load
from cora.ir.cfg import available_headers, graph_of, headers_gained, immediate_dominators, predecessors_of
from cora.ir.nodes import Program, successors
from cora.ir.passes.pipeline import run_pipeline

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.nf"))
PROGRAMS = [*(load(p) for p in EXAMPLES), *(run_pipeline(load(p)) for p in EXAMPLES),
            *(random_ir.random_program(seed) for seed in range(6))]
NAMES = [f"{i}-{p.name}" for i, p in enumerate(PROGRAMS)]


@pytest.mark.parametrize("made", PROGRAMS, ids=NAMES)
def test_graph_is_that_of_the_blocks(made: Program) -> None:
    graph = graph_of(made)
    assert list(graph.nodes) == [b.label for b in made.blocks]
    assert nx.is_directed_acyclic_graph(graph)
    entry = made.blocks[0].label
    assert set(nx.descendants(graph, entry)) == set(graph.nodes) - {entry}
    for block in made.blocks:
        edges = [(d["outcome"], v) for _, v, d in graph.out_edges(block.label, data=True)]
        assert sorted(edges) == sorted(successors(block.terminator))
    entered = predecessors_of(made)
    assert {v: sorted(us) for v, us in entered.items()} == {
        v: sorted(u for u, _ in graph.in_edges(v)) for v in graph.nodes if graph.in_degree(v)}


@pytest.mark.parametrize("made", PROGRAMS, ids=NAMES)
def test_dominators_are_those_of_networkx(made: Program) -> None:
    entry = made.blocks[0].label
    wanted = nx.immediate_dominators(nx.DiGraph(graph_of(made)), entry)
    wanted.pop(entry, None)
    assert immediate_dominators(made) == wanted


@pytest.mark.parametrize("made", PROGRAMS[:12], ids=NAMES[:12])
def test_headers_are_those_of_every_way(made: Program) -> None:
    """Against a search over ways that keeps sets instead of their intersection."""
    ways: dict[str, set[frozenset[str]]] = {made.blocks[0].label: {frozenset()}}
    for block in made.blocks:
        for outcome, target in successors(block.terminator):
            gained = headers_gained(block.terminator, outcome)
            ways.setdefault(target, set()).update(known.union(gained) for known in ways[block.label])
    assert available_headers(made) == {label: frozenset.intersection(*sets) for label, sets in ways.items()}


def test_layer_4_comes_with_tcp_and_udp() -> None:
    made = chain("eth 2", "ipv4", "udp", body=" has tcp yes no\nblock yes ()\n forward out\nblock no ()\n forward out")
    headers = available_headers(made)
    assert headers["no"] == {"eth", "ipv4", "udp", "l4"}
    assert headers["yes"] == {"eth", "ipv4", "udp", "l4", "tcp"}
    assert headers["leaf2_malformed"] == {"eth", "ipv4"}


def test_verifying_needs_no_networkx() -> None:
    """It takes longer to import than a program to check."""
    import subprocess
    import sys

    code = ("import sys\nfrom cora.frontends.nf import load\nfrom cora.ir.passes.pipeline import run_pipeline\n"
            f"run_pipeline(load({str(EXAMPLES[0])!r}), verify=True)\nprint('networkx' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_one_block_has_no_dominator() -> None:
    assert immediate_dominators(program('block start ()\n drop "x"')) == {}
