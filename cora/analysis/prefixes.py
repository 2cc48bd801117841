"""Path-prefix nodes: the control-flow graph expanded by what state accesses gave before, weighted by a profile.

Packets that hit in a table and packets that missed may run the same block at different places, so each of these classes
has its own node. Only histories that the profile has seen are told apart: all others share one node a block (history
`UNSEEN`), weight 0. That loses nothing, since a way that was never taken costs nothing and must be legal on every
history anyway. Blocks that end a packet without touching state get a node for each way in, so that a drop follows the
code that decided it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cora.analysis.accesses import Access, accesses_of, components_of
from cora.analysis.liveness import Liveness, bytes_of_values, liveness_of
from cora.analysis.profile import PathUse, Profile
from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import Block, Jump, Program, Terminator, Value, successors

DEFAULT_BOUND = 20_000

History = tuple[str, ...] | None
UNSEEN: History = None


@dataclass(frozen=True)
class Piece:
    """A block, or a part of one: cut where it turns to another component of state, so each part can have its place.

    Attributes:
        block: the code as a block of its own; a part that is not the last ends in a `Jump` to the block's own label.
        part: 0 for the first; start: index of its first instruction in the block.
        accesses: all its state accesses in order; component: the one component they belong to, None without any.
    """

    block: Block
    part: int
    start: int
    last: bool
    accesses: tuple[Access, ...]
    component: str | None

    @property
    def label(self) -> str:
        return self.block.label

    @property
    def is_plain_end(self) -> bool:
        """The packet leaves here, and no state is touched."""
        return self.last and self.component is None and not successors(self.block.terminator)


@dataclass(frozen=True)
class Node:
    """A piece on one history of state outcomes; ``via`` names the way in where ends are told apart by it.

    ``lent``: the copy of the piece for packets whose entry was found lent to a place before the state's owner.
    """

    piece: Piece
    history: History
    via: str
    packets: int
    lent: bool = False

    @property
    def label(self) -> str:
        return self.piece.label


@dataclass(frozen=True)
class Edge:
    """From node ``source`` to ``target`` (numbers); ``live``: values a packet carries when it changes places here."""

    source: int
    target: int
    outcome: str
    packets: int
    live: tuple[Value, ...]

    @property
    def live_bytes(self) -> int:
        return bytes_of_values(self.live)


@dataclass(frozen=True)
class PrefixGraph:
    """All nodes, every one before its successors; packets enter at number 0. ``packets``: how many the profile has."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    packets: int


def pieces_of(program: Program) -> dict[str, tuple[Piece, ...]]:
    """Per label its block in parts that touch one component of state each."""
    components = components_of(program)
    return {b.label: tuple(_cut(program, b, components)) for b in program.blocks}


def _cut(program: Program, block: Block, components: Mapping[str, str]) -> Iterator[Piece]:
    start = 0
    part = 0
    found: list[Access] = []
    component: str | None = None
    for i, node in enumerate((*block.instructions, block.terminator)):
        here = accesses_of(program, node)
        new = components[here[0][0]] if here else component
        if component is not None and new != component:
            yield Piece(_part(block, start, i), part, start, False, tuple(found), component)
            start, part, found = i, part + 1, []
        component = new
        found += here
    yield Piece(_part(block, start, None), part, start, True, tuple(found), component)


def _part(block: Block, start: int, stop: int | None) -> Block:
    if start == 0 and stop is None:
        return block
    terminator: Terminator = block.terminator if stop is None else Jump(block.label, (), block.terminator.span)
    params = block.params if start == 0 else ()
    return Block(block.label, params, block.instructions[start:stop], terminator, block.span)


# (label, part, history, via)
_Key = tuple[str, int, History, str]


def expand(program: Program, profile: Profile, bound: int = DEFAULT_BOUND) -> PrefixGraph:
    """Build the nodes of a program under a profile.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH` when a path of the profile is none of the program; `Kind.TOO_MANY_PATHS`
            beyond ``bound`` nodes.
    """
    return _Expansion(program, profile, bound).graph()


class _Expansion:
    def __init__(self, program: Program, profile: Profile, bound: int) -> None:
        self.program = program
        self.bound = bound
        self.total = profile.packets
        self.pieces = pieces_of(program)
        self.live: Liveness = liveness_of(program)
        self.nodes: dict[_Key, int] = defaultdict(int)
        self.taken: dict[tuple[_Key, str], tuple[_Key, int]] = {}
        for path in profile.paths:
            self.walk(path)

    def walk(self, path: PathUse) -> None:
        """Add one path's packets to the nodes and edges it takes."""
        if len(path.outcomes) != len(path.blocks) - 1 or path.blocks[0] != self.program.blocks[0].label:
            raise _mismatch(path)
        key: _Key = (path.blocks[0], 0, (), "")
        self.nodes[key] += path.packets
        for i, label in enumerate(path.blocks):
            if label not in self.pieces or label != key[0]:
                raise _mismatch(path)
            key = self.through(key, path.packets)
            edges = successors(self.live.blocks[label].terminator)
            if i == len(path.outcomes):
                if edges:
                    raise _mismatch(path)
                return
            if (path.outcomes[i], path.blocks[i + 1]) not in edges:
                raise _mismatch(path)
            key = self.step(key, path.outcomes[i], self.follow(key, path.outcomes[i], path.blocks[i + 1]), path.packets)

    def through(self, key: _Key, packets: int) -> _Key:
        """From a block's first part to its last."""
        label, _, history, via = key
        for part in range(1, len(self.pieces[label])):
            key = self.step(key, "next", (label, part, history, via), packets)
        return key

    def step(self, key: _Key, outcome: str, target: _Key, packets: int) -> _Key:
        before = self.taken.get((key, outcome), (target, 0))[1]
        self.taken[key, outcome] = (target, before + packets)
        self.nodes[target] += packets
        return target

    def follow(self, key: _Key, outcome: str, label: str) -> _Key:
        """The node an edge leads to when its history is told apart."""
        piece = self.pieces[key[0]][-1]
        history = key[2]
        passed = terminal_outcome(self.program, piece.block.terminator, outcome)
        if history is not None and passed:
            history = (*history, passed)
        via = f"{key[0]}.{outcome}" if self.pieces[label][0].is_plain_end else ""
        return (label, 0, history, via)

    def graph(self) -> PrefixGraph:
        """Close the observed nodes under all edges, and number everything."""
        waiting: dict[str, list[_Key]] = defaultdict(list)
        for key in self.nodes:
            if key[1] == 0:
                waiting[key[0]].append(key)
        edges: list[tuple[_Key, str, _Key, int]] = []
        order: list[_Key] = []
        known = set(self.nodes)
        for block in self.program.blocks:
            for first in sorted(waiting[block.label], key=_rank):
                for key, outcome, target, packets in self.edges_of(block, first, known):
                    edges.append((key, outcome, target, packets))
                    if target not in known:
                        known.add(target)
                        if target[1] == 0:
                            waiting[target[0]].append(target)
                order += [(first[0], part, first[2], first[3]) for part in range(len(self.pieces[block.label]))]
            if len(order) > self.bound:
                raise self.too_many(block, len(waiting[block.label]))
        number = {key: i for i, key in enumerate(order)}
        nodes = tuple(Node(self.pieces[k[0]][k[1]], k[2], k[3], self.nodes.get(k, 0)) for k in order)
        return PrefixGraph(nodes, tuple(self.edge(number, *e) for e in edges), self.total)

    def edges_of(self, block: Block, first: _Key, known: set[_Key]) -> Iterator[tuple[_Key, str, _Key, int]]:
        label, _, history, via = first
        key = first
        for part in range(1, len(self.pieces[label])):
            after: _Key = (label, part, history, via)
            yield key, "next", after, self.taken.get((key, "next"), (after, 0))[1]
            key = after
        for outcome, target in successors(block.terminator):
            told_apart = self.follow(key, outcome, target)
            packets = self.taken.get((key, outcome), (told_apart, 0))[1]
            if told_apart not in known:
                told_apart = (target, 0, UNSEEN, f"{told_apart[3]} {history}" if told_apart[3] else "")
            yield key, outcome, told_apart, packets

    def edge(self, number: Mapping[_Key, int], key: _Key, outcome: str, target: _Key, packets: int) -> Edge:
        block = self.live.blocks[key[0]]
        if key[0] == target[0]:
            live = self.live.before(block, self.pieces[key[0]][target[1]].start)
        else:
            live = self.live.on_edge(block, target[0])
        return Edge(number[key], number[target], outcome, packets, tuple(sorted(live, key=lambda v: v.name)))

    def too_many(self, block: Block, classes: int) -> CoraError:
        return fail(Kind.TOO_MANY_PATHS,
                    f"the traffic takes this program through more than {self.bound} classes of path prefixes; this "
                    f"block is reached in {classes} of them", span=block.span,
                    hint="table look-ups in a row multiply the classes: end paths earlier, or combine tables")


def _rank(key: _Key) -> tuple[bool, tuple[str, ...], str]:
    return (key[2] is None, key[2] or (), key[3])


def terminal_outcome(program: Program, terminator: Terminator, outcome: str) -> str:
    """What a history says of an outcome: ``conns.fwd hit``; empty where the terminator touches no state."""
    terminal = accesses_of(program, terminator)
    return f"{terminal[0][0]}{_key_name(terminator)} {outcome}" if terminal else ""


def _key_name(terminator: Terminator) -> str:
    name = getattr(terminator, "key", "")
    return f".{name}" if name else ""


def _mismatch(path: PathUse) -> CoraError:
    return fail(Kind.PROFILE_MISMATCH, f"path {path.id} of the profile is no path of this program",
                hint="make the profile again from this version of the program")


def outcomes_shown(history: Iterable[str] | None) -> str:
    """A history as users read it."""
    if history is None:
        return "never seen"
    return ", ".join(history) or "-"
