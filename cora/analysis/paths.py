"""Paths through a program: their number, their Ball-Larus numbering, and their enumeration under a bound.

Numbering after Ball and Larus, "Efficient path profiling", MICRO 1996: every edge gets an increment so that the sum
along a path is that path's number, 0 to count-1, without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cora.errors import Kind, fail
from cora.ir.nodes import Block, Drop, Forward, Program, Reject, successors
from cora.ir.text import print_node

DEFAULT_BOUND = 100_000


@dataclass(frozen=True)
class Path:
    """A way through the program: blocks in order and the outcome taken at each but the last."""

    id: int
    blocks: tuple[str, ...]
    outcomes: tuple[str, ...]


@dataclass(frozen=True)
class Numbering:
    """``count`` paths in all; ``increments[label]`` has one number per outcome edge, in `successors` order."""

    count: int
    below: dict[str, int]
    increments: dict[str, tuple[int, ...]]


def number_paths(program: Program) -> Numbering:
    """Ball-Larus numbering; no bound, since the count alone costs nothing."""
    below: dict[str, int] = {}
    increments: dict[str, tuple[int, ...]] = {}
    for block in reversed(program.blocks):
        total = 0
        steps = []
        for _, target in successors(block.terminator):
            steps.append(total)
            total += below[target]
        below[block.label] = total or 1
        increments[block.label] = tuple(steps)
    return Numbering(below[program.blocks[0].label], below, increments)


def path_of(program: Program, numbering: Numbering, number: int) -> Path:
    """The path with a number.

    Raises:
        ValueError: the number is not below the count.
    """
    if not 0 <= number < numbering.count:
        raise ValueError(f"path {number} of {numbering.count}")
    blocks = {b.label: b for b in program.blocks}
    label, rest = program.blocks[0].label, number
    labels, outcomes = [label], []
    while edges := successors(blocks[label].terminator):
        steps = numbering.increments[label]
        i = max(i for i, step in enumerate(steps) if step <= rest)
        rest -= steps[i]
        outcome, label = edges[i]
        outcomes.append(outcome)
        labels.append(label)
    return Path(number, tuple(labels), tuple(outcomes))


def enumerate_paths(program: Program, bound: int = DEFAULT_BOUND) -> Iterator[Path]:
    """All paths in order of their numbers.

    Raises:
        CoraError: `Kind.TOO_MANY_PATHS` when there are more than ``bound``, naming where they multiply.
    """
    numbering = number_paths(program)
    if numbering.count > bound:
        worst = max(program.blocks, key=lambda b: (len(successors(b.terminator)) > 1) * _growth(numbering, b))
        raise fail(
            Kind.TOO_MANY_PATHS,
            f"the program has {numbering.count} paths, the bound is {bound}", span=worst.terminator.span,
            hint="conditions in a row multiply the paths: compute a bool with '&&' and '||' instead of branching, "
                 "decide once, or raise the bound with --max-paths")
    return (path_of(program, numbering, i) for i in range(numbering.count))


def _growth(numbering: Numbering, block: Block) -> float:
    targets = [numbering.below[t] for _, t in successors(block.terminator)]
    return sum(targets) / max(targets) if targets else 0.0


def verdict_of(program: Program, path: Path) -> str:
    """How a path ends, as one line such as ``forward outside`` or ``drop "no mapping"``."""
    terminator = program.block(path.blocks[-1]).terminator
    assert isinstance(terminator, Forward | Drop | Reject) or not successors(terminator)
    return print_node(terminator)
