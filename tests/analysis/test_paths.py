"""Paths: their numbering against networkx, their bound, and their agreement with what packets do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from cora.analysis.paths import enumerate_paths, number_paths, path_of, verdict_of
from cora.engine.reference import Reference, TraceStep
from cora.errors import CoraError, Kind
from cora.frontends.nf import load, loads
from cora.ir.cfg import graph_of
from cora.ir.nodes import Program, successors
from cora.testing import generate, random_packets

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.nf"))
PROGRAMS = [*(load(p) for p in EXAMPLES), *(generate(seed).program for seed in range(6))]
NAMES = [f"{i}-{p.name}" for i, p in enumerate(PROGRAMS)]


def counted(made: Program) -> int:
    """The number of paths, by adding up from the leaves of networkx's own order."""
    graph = graph_of(made)
    below: dict[str, int] = {}
    for label in reversed(list(nx.topological_sort(graph))):
        below[label] = sum(below[v] for _, v in graph.out_edges(label)) or 1
    return below[made.blocks[0].label]


@pytest.mark.parametrize("made", PROGRAMS, ids=NAMES)
def test_numbers_and_paths_belong_together(made: Program) -> None:
    numbering = number_paths(made)
    assert numbering.count == counted(made)
    numbers = range(numbering.count)
    if numbering.count > 500:
        numbers_seen = random.Random(1).sample(numbers, 500)
    else:
        numbers_seen = list(numbers)
    seen = set()
    for number in numbers_seen:
        path = path_of(made, numbering, number)
        assert path.id == number
        assert (path.blocks[0], len(path.outcomes)) == (made.blocks[0].label, len(path.blocks) - 1)
        total = 0
        for label, outcome, target in zip(path.blocks, path.outcomes, path.blocks[1:], strict=False):
            edges = successors(made.block(label).terminator)
            total += numbering.increments[label][edges.index((outcome, target))]
        assert total == number
        assert not successors(made.block(path.blocks[-1]).terminator)
        assert verdict_of(made, path).split()[0] in ("forward", "drop", "reject", "hold")
        seen.add((path.blocks, path.outcomes))
    assert len(seen) == len(numbers_seen)
    for outside in (-1, numbering.count):
        with pytest.raises(ValueError, match="of"):
            path_of(made, numbering, outside)


@pytest.mark.parametrize("made", [p for p in PROGRAMS if number_paths(p).count < 5000],
                         ids=lambda p: p.name)
def test_enumeration_is_complete_and_in_order(made: Program) -> None:
    paths = list(enumerate_paths(made))
    assert [p.id for p in paths] == list(range(counted(made)))
    assert len({(p.blocks, p.outcomes) for p in paths}) == len(paths)


@pytest.mark.parametrize("seed", range(6))
def test_packets_take_paths(seed: int) -> None:
    """The increments along what the interpreter executes sum to the number of the path it took."""
    made = generate(seed).program
    numbering = number_paths(made)
    engine = Reference(made)
    for packet in random_packets(made, seed, 20):
        steps: list[TraceStep] = []
        engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, steps)
        own = [s for s in steps if s.index == steps[0].index]
        ends = [s for s in own if s.node is made.block(s.block).terminator]
        total = 0
        for step in ends:
            outcomes = [o for o, _ in successors(made.block(step.block).terminator)]
            if outcomes:
                total += numbering.increments[step.block][outcomes.index(step.outcome)]
        assert path_of(made, numbering, total).blocks == tuple(s.block for s in ends)


def many(n: int) -> str:
    tests = "\n    ".join(f"if p.ip.ttl == {i} {{ p.ip.id = {i}; }}" for i in range(n))
    return f"nf many {{\n  port a: wire;\n  on a(p: eth/ipv4) {{\n    {tests}\n    forward a;\n  }}\n}}\n"


def test_too_many_paths(golden: Callable[[str, str], None]) -> None:
    made = loads(many(60), "many.nf")
    assert number_paths(made).count > 1 << 60, "counting costs nothing"
    with pytest.raises(CoraError) as caught:
        enumerate_paths(made)
    (found,) = caught.value.diagnostics
    assert found.kind == Kind.TOO_MANY_PATHS
    assert found.span is not None
    golden("too_many.txt", found.render() + "\n")
    with pytest.raises(CoraError):
        enumerate_paths(made, counted(made) - 1)
    assert next(iter(enumerate_paths(made, counted(made)))).id == 0
