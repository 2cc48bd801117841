"""Path-prefix nodes: the control-flow graph expanded by what state accesses gave before, weighted by a profile.

Packets that hit in a table and packets that missed may run the same block at different places, so each of these classes
has its own node. Only histories that the profile has seen are told apart: all others share one node a block (history
`UNSEEN`), weight 0. That loses nothing, since a way that was never taken costs nothing and must be legal on every
history anyway. Blocks that end a packet without touching state get a node for each way in, so that a drop follows the
code that decided it.

Where entries are lent (`Lent`), packets that find theirs at the near place run lent copies of the nodes there. In
resume mode the near look-up is an outcome of its own: the block of an anchor ends in a look-up of the lent entries, and
who finds nothing looks up again at the owner, in a part of the same block that is only the look-up. In restart mode all
packets meet the rules first, in the lent copy of the first node; who finds no rule starts at the first node anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import Access, accesses_of, components_of
from cora.analysis.liveness import Liveness, bytes_of_values, liveness_of
from cora.analysis.profile import PathUse, Profile
from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import Block, Jump, Police, Program, Terminator, TrackFragment, Value, successors
from cora.ir.types import EntryRef

DEFAULT_BOUND = 20_000

History = tuple[str, ...] | None
UNSEEN: History = None
# The number of an entry in a punt header: what an owner goes on with when a packet leaves a lent entry.
ENTRY_BYTES = 4


@dataclass(frozen=True)
class FastPath:
    """Packets of a path that find their entry lent.

    Attributes:
        packets: how many of the path's.
        anchor: position in the path's blocks of the look-up that finds the entry.
        owner_from: (position in the path's blocks, instruction) from where they run at the owner, which takes the entry
            back first; None: they run to their end at the near place.
    """

    packets: int
    anchor: int
    owner_from: tuple[int, int] | None


@dataclass(frozen=True)
class Lent:
    """What is lent: entries of these ``states``, met at the ``anchors`` (labels of blocks), by packets of ``paths``.

    ``paths``: by path number of the profile; in restart mode only those that are rules.
    """

    mode: Literal["resume", "restart"]
    states: frozenset[str]
    anchors: frozenset[str]
    paths: Mapping[int, FastPath]

    def meets(self, blocks: Mapping[str, Block], path: PathUse) -> int | None:
        """Where packets of a path look for a lent entry: the position of that block; None: nowhere.

        A fragment's key is not its own: it goes to the owner.
        """
        for i, label in enumerate(path.blocks):
            if isinstance(blocks[label].terminator, TrackFragment):
                return None
            if label in self.anchors:
                return i
        return None


def lent_name(name: str) -> str:
    """The table of a state's (or a component's) entries that are lent, as accesses and nodes name it."""
    return f"{name} lent"


def state_of(table: str) -> str:
    """The state that a table keeps entries of."""
    return table.removesuffix(lent_name(""))


@dataclass(frozen=True)
class Piece:
    """A block, or a part of one: cut where it turns to another component of state, so each part can have its place.

    Attributes:
        block: the code as a block of its own; a part that is not the last ends in a `Jump` to the block's own label.
        part: 0 for the first; start: index of its first instruction in the block.
        accesses: all its state accesses in order; component: the one component they belong to, None without any.
            Accesses to copied states belong to none: each place has its own copy.
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
        """The packet leaves here, and no state is touched but by a copy of the place."""
        return self.last and self.component is None and not successors(self.block.terminator)


@dataclass(frozen=True)
class Node:
    """A piece on one history of state outcomes; ``via`` names the way in where ends are told apart by it.

    Attributes:
        lent: the copy of the piece for packets whose entry was found lent to a place before the state's owner.
        accesses: what the piece uses here; a lent copy uses the lent entries (`lent_name`).
        home: the component that all of them at one place belong to; ``X lent`` for entries lent; None for any place.
    """

    piece: Piece
    history: History
    via: str
    packets: int
    lent: bool
    accesses: tuple[Access, ...]
    home: str | None

    @property
    def label(self) -> str:
        return self.piece.label


@dataclass(frozen=True)
class Edge:
    """From node ``source`` to ``target`` (numbers); ``live``: values a packet carries when it changes places here.

    ``handed``: the entries among them are lent, so that their numbers travel along.
    """

    source: int
    target: int
    outcome: str
    packets: int
    live: tuple[Value, ...]
    handed: bool = False

    @property
    def live_bytes(self) -> int:
        entries = sum(isinstance(v.type, EntryRef) for v in self.live) if self.handed else 0
        return bytes_of_values(self.live) + ENTRY_BYTES * entries


@dataclass(frozen=True)
class PrefixGraph:
    """All nodes, every one before its successors; packets enter at number 0. ``packets``: how many the profile has.

    ``rules``: in restart mode, per node that ends a decided path the path numbers with the packets each rule serves.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    packets: int
    rules: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """The graph of a program with entries lent, for any number of packets on the lent paths.

    Only these numbers differ between the budgets of one split, and every node and edge counts its packets linearly in
    them. ``graph``: with no packet served. ``paths``: numbers of the lent paths. ``nodes`` and ``edges``: [3, C] node
    (edge), position in ``paths``, and +1 or -1, what it has more for each packet served. ``ends``: per node the paths
    whose rule ends there.
    """

    graph: PrefixGraph
    paths: tuple[int, ...]
    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    ends: Mapping[int, tuple[int, ...]]

    def weighted(self, fast: Mapping[int, FastPath]) -> PrefixGraph:
        """The graph with so many packets served."""
        served = np.array([fast[path].packets for path in self.paths], np.int64)
        graph = self.graph
        nodes = tuple(
            node if node.packets == packets else
            Node(node.piece, node.history, node.via, packets, node.lent, node.accesses, node.home)
            for node, packets in zip(graph.nodes, _changed([n.packets for n in graph.nodes], self.nodes, served),
                                     strict=True))
        edges = tuple(
            edge if edge.packets == packets else
            Edge(edge.source, edge.target, edge.outcome, packets, edge.live, edge.handed)
            for edge, packets in zip(graph.edges, _changed([e.packets for e in graph.edges], self.edges, served),
                                     strict=True))
        rules = {node: tuple((path, fast[path].packets) for path in paths) for node, paths in self.ends.items()}
        return PrefixGraph(nodes, edges, graph.packets, rules)


def _changed(packets: Sequence[int], changes: NDArray[np.int64], served: NDArray[np.int64]) -> list[int]:
    total = np.array(packets, np.int64)
    where, path, sign = changes
    np.add.at(total, where, sign * served[path])
    found: list[int] = total.tolist()
    return found


def pieces_of(program: Program, copied: frozenset[str] = frozenset(),
              cuts: Mapping[str, frozenset[int]] | None = None) -> dict[str, tuple[Piece, ...]]:
    """Per label its block in parts that touch one component of state each, states of ``copied`` aside.

    ``cuts``: per label the instructions at which parts have to begin in any case.
    """
    components = components_of(program)
    return {b.label: tuple(_cut(program, b, components, copied, (cuts or {}).get(b.label, frozenset())))
            for b in program.blocks}


def _cut(program: Program, block: Block, components: Mapping[str, str], copied: frozenset[str],
         cuts: frozenset[int]) -> Iterator[Piece]:
    start = 0
    part = 0
    found: list[Access] = []
    component: str | None = None
    for i, node in enumerate((*block.instructions, block.terminator)):
        here = accesses_of(program, node)
        whole = [s for s, _ in here if s not in copied]
        new = components[whole[0]] if whole else component
        if (component is not None and new != component) or (i in cuts and i > start):
            yield Piece(_part(block, start, i), part, start, False, tuple(found), component)
            start, part, found = i, part + 1, []
            new = components[whole[0]] if whole else None
        component = new
        found += here
    yield Piece(_part(block, start, None), part, start, True, tuple(found), component)


def _part(block: Block, start: int, stop: int | None) -> Block:
    if start == 0 and stop is None:
        return block
    terminator: Terminator = block.terminator if stop is None else Jump(block.label, (), block.terminator.span)
    params = block.params if start == 0 else ()
    return Block(block.label, params, block.instructions[start:stop], terminator, block.span)


# (label, part, history, via, lent)
_Key = tuple[str, int, History, str, bool]


def expand(program: Program, profile: Profile, bound: int = DEFAULT_BOUND, *, copied: frozenset[str] = frozenset(),
           lent: Lent | None = None) -> PrefixGraph:
    """Build the nodes of a program under a profile.

    ``copied``: states with a copy wherever they are used. ``lent``: entries that are lent; None: none are.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH` when a path of the profile is none of the program; `Kind.TOO_MANY_PATHS`
            beyond ``bound`` nodes.
    """
    return shape_of(program, profile, bound, copied=copied, lent=lent).weighted({} if lent is None else lent.paths)


def shape_of(program: Program, profile: Profile, bound: int = DEFAULT_BOUND, *, copied: frozenset[str] = frozenset(),
             lent: Lent | None = None) -> Shape:
    """As `expand`, for any number of packets on the paths of ``lent``."""
    if lent is None:
        return _Expansion(program, profile, bound, copied).shape()
    if lent.mode == "resume":
        return _Resuming(program, profile, bound, copied, lent).shape()
    return _Restarting(program, profile, bound, copied, lent).shape()


@dataclass(frozen=True)
class _Packets:
    """``always`` and, for each packet of lent path number ``path`` that is served, ``more``."""

    always: int
    path: int = -1
    more: int = 0


class _Expansion:
    """Without lent entries; what lending changes is in the classes below."""

    def __init__(self, program: Program, profile: Profile, bound: int, copied: frozenset[str],
                 cuts: Mapping[str, frozenset[int]] | None = None) -> None:
        self.program = program
        self.profile = profile
        self.bound = bound
        self.total = profile.packets
        self.pieces = pieces_of(program, copied, cuts)
        self.components = components_of(program)
        self.live: Liveness = liveness_of(program)
        self.nodes: dict[_Key, int] = defaultdict(int)
        self.taken: dict[tuple[_Key, str], tuple[_Key, int]] = {}
        self.served: tuple[int, ...] = ()
        self.more_at: list[tuple[_Key, int, int]] = []
        self.more_on: list[tuple[tuple[_Key, str], int, int]] = []

    def walk_all(self) -> None:
        """Add the packets of every path to the nodes and edges they take."""
        for path in self.profile.paths:
            self.check(path)
            packets = _Packets(path.packets)
            self.walk(path, self.enter(packets), packets)

    def check(self, path: PathUse) -> None:
        """Refuse a path that is none of the program."""
        blocks = self.live.blocks
        if len(path.outcomes) != len(path.blocks) - 1 or path.blocks[0] != self.program.blocks[0].label:
            raise _mismatch(path)
        for label, outcome, target in zip(path.blocks, path.outcomes, path.blocks[1:], strict=False):
            if label not in blocks or (outcome, target) not in successors(blocks[label].terminator):
                raise _mismatch(path)
        if successors(blocks[path.blocks[-1]].terminator):
            raise _mismatch(path)

    def enter(self, packets: _Packets) -> _Key:
        """Count packets in at the first node."""
        key: _Key = (self.program.blocks[0].label, 0, (), "", False)
        self.count(key, packets)
        return key

    def count(self, key: _Key, packets: _Packets) -> None:
        self.nodes[key] += packets.always
        if packets.more:
            self.more_at.append((key, packets.path, packets.more))

    def walk(self, path: PathUse, key: _Key, packets: _Packets, start: int = 0) -> None:
        """From a node of the block at position ``start`` to the path's end."""
        for i in range(start, len(path.blocks)):
            key = self.through(key, packets)
            if i < len(path.outcomes):
                key = self.leave(key, path.outcomes[i], path.blocks[i + 1], packets)

    def through(self, key: _Key, packets: _Packets) -> _Key:
        """From a part of a block to its last one."""
        label, first, history, via, lent = key
        for part in range(first + 1, len(self.pieces[label])):
            key = self.step(key, "next", (label, part, history, via, lent), packets)
        return key

    def leave(self, key: _Key, outcome: str, target: str, packets: _Packets) -> _Key:
        """From the last part of a block to a successor."""
        return self.step(key, outcome, self.follow(key, outcome, target), packets)

    def step(self, key: _Key, outcome: str, target: _Key, packets: _Packets) -> _Key:
        before = self.taken.get((key, outcome), (target, 0))[1]
        self.taken[key, outcome] = (target, before + packets.always)
        if packets.more:
            self.more_on.append(((key, outcome), packets.path, packets.more))
        self.count(target, packets)
        return target

    def follow(self, key: _Key, outcome: str, label: str, lent: bool = False) -> _Key:
        """The node an edge leads to when its history is told apart."""
        terminator = self.live.blocks[key[0]].terminator
        history = key[2]
        passed = terminal_outcome(self.program, terminator, outcome)
        if history is not None and passed:
            history = (*history, passed)
        via = f"{key[0]}.{outcome}" if self.pieces[label][0].is_plain_end else ""
        return (label, 0, history, via, lent)

    def piece(self, key: _Key) -> Piece:
        return self.pieces[key[0]][key[1]]

    def shape(self) -> Shape:
        """Close the observed nodes under all edges, and number everything."""
        self.walk_all()
        known: dict[str, set[_Key]] = defaultdict(set)
        for key in self.nodes:
            known[key[0]].add(key)
        edges: list[tuple[_Key, str, _Key, int]] = []
        order: list[_Key] = []
        for block in self.program.blocks:
            waiting = [(_rank(key), key) for key in known[block.label]]
            heapify(waiting)
            while waiting:
                _, key = heappop(waiting)
                order.append(key)
                for outcome, target in self.edges_of(block, key, known):
                    edges.append((key, outcome, target, self.taken.get((key, outcome), (target, 0))[1]))
                    if target not in known[target[0]]:
                        known[target[0]].add(target)
                        if target[0] == block.label:
                            heappush(waiting, (_rank(target), target))
            if len(order) > self.bound:
                raise self.too_many(block, len(known[block.label]))
        number = {key: i for i, key in enumerate(order)}
        graph = PrefixGraph(tuple(self.node(k) for k in order), tuple(self.edge(number, *e) for e in edges), self.total)
        of_edge = {(key, outcome): i for i, (key, outcome, _, _) in enumerate(edges)}
        return Shape(graph, self.served, _changes([(number[key], *more) for key, *more in self.more_at]),
                     _changes([(of_edge[way], *more) for way, *more in self.more_on]), self.rules(number))

    def rules(self, number: Mapping[_Key, int]) -> Mapping[int, tuple[int, ...]]:
        return {}

    def edges_of(self, block: Block, key: _Key, known: Mapping[str, set[_Key]]) -> Iterator[tuple[str, _Key]]:
        """The edges out of a node: where packets were seen to go, else to the class of what was never seen."""
        if not self.piece(key).last:
            label, part, history, via, lent = key
            yield "next", self.taken.get((key, "next"), ((label, part + 1, history, via, lent), 0))[0]
            return
        for outcome, target in successors(block.terminator):
            yield outcome, self.known(key, outcome, self.follow(key, outcome, target), known)

    def known(self, key: _Key, outcome: str, target: _Key, known: Mapping[str, set[_Key]]) -> _Key:
        """The target of an edge if its class was seen, else that of its block that never was."""
        if (key, outcome) in self.taken:
            return self.taken[key, outcome][0]
        if target in known[target[0]]:
            return target
        return (target[0], 0, UNSEEN, f"{target[3]} {key[2]}" if target[3] else "", False)

    def node(self, key: _Key) -> Node:
        piece = self.piece(key)
        return Node(piece, key[2], key[3], self.nodes.get(key, 0), key[4], piece.accesses, piece.component)

    def edge(self, number: Mapping[_Key, int], key: _Key, outcome: str, target: _Key, packets: int) -> Edge:
        block = self.live.blocks[key[0]]
        if key[0] == target[0]:
            live = self.live.before(block, self.piece(target).start)
        else:
            live = self.live.on_edge(block, target[0])
        return Edge(number[key], number[target], outcome, packets, tuple(sorted(live, key=lambda v: v.name)),
                    key[4] and not target[4])

    def too_many(self, block: Block, classes: int) -> CoraError:
        return fail(Kind.TOO_MANY_PATHS,
                    f"the traffic takes this program through more than {self.bound} classes of path prefixes; this "
                    f"block is reached in {classes} of them", span=block.span,
                    hint="table look-ups in a row multiply the classes: end paths earlier, or combine tables")


def _changes(found: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
    return np.array(found, np.int64).reshape(-1, 3).T


class _Lending(_Expansion):
    """With lent entries."""

    lent: Lent

    @cached_property
    def position(self) -> Mapping[int, int]:
        return {path: i for i, path in enumerate(self.served)}

    def those_served(self, path: PathUse) -> _Packets:
        """The packets of a path that find their entry lent."""
        return _Packets(0, self.position[path.id], 1)

    def not_served(self, path: PathUse) -> _Packets:
        """The others."""
        if path.id not in self.position:
            return _Packets(path.packets)
        return _Packets(path.packets, self.position[path.id], -1)


class _Resuming(_Lending):
    """Lent entries, met by a look-up at the near place in the middle of the program."""

    def __init__(self, program: Program, profile: Profile, bound: int, copied: frozenset[str], lent: Lent) -> None:
        # Where packets leave their lent entry. One that does not know yet how it goes on cannot stay longer than
        # another one at the same instruction.
        self.left: set[tuple[str, int]] = set()
        for path in profile.paths:
            fast = lent.paths.get(path.id)
            if fast is None or fast.owner_from is None:
                continue
            position, index = fast.owner_from
            label = path.blocks[position]
            if not (label in lent.anchors and index == len(program.block(label).instructions)):
                self.left.add((label, index))
        cuts: dict[str, set[int]] = defaultdict(set)
        for label, index in self.left:
            cuts[label].add(index)
        super().__init__(program, profile, bound, copied, {k: frozenset(v) for k, v in cuts.items()})
        self.lent = lent
        self.served = tuple(lent.paths)
        self.again = {label: second_look(program, self.live.blocks[label], self.pieces[label])
                      for label in lent.anchors}
        self.meeting: set[_Key] = set()
        self.owned: dict[str, str] = {}

    def piece(self, key: _Key) -> Piece:
        parts = self.pieces[key[0]]
        return parts[key[1]] if key[1] < len(parts) else self.again[key[0]]

    def walk_all(self) -> None:
        for path in self.profile.paths:
            self.check(path)
            fast = self.lent.paths.get(path.id)
            anchor = self.lent.meets(self.live.blocks, path)
            packets = self.not_served(path)
            if anchor is None:
                self.walk(path, self.enter(packets), packets)
                continue
            if fast is not None:
                served = self.those_served(path)
                self.walk_lent(path, self.meet(path, anchor, served), fast, anchor, served)
            self.walk(path, self.step_again(self.meet(path, anchor, packets), packets), packets, anchor)

    def meet(self, path: PathUse, anchor: int, packets: _Packets) -> _Key:
        """From the program's start to the near look-up."""
        key = self.enter(packets)
        for i in range(anchor):
            key = self.leave(self.through(key, packets), path.outcomes[i], path.blocks[i + 1], packets)
        key = self.through(key, packets)
        self.meeting.add(key)
        return key

    def step_again(self, key: _Key, packets: _Packets) -> _Key:
        return self.step(key, "owner", self.second(key), packets)

    def second(self, key: _Key) -> _Key:
        return (key[0], self.again[key[0]].part, self.history_at_owner(key[2]), key[3], False)

    def walk_lent(self, path: PathUse, key: _Key, fast: FastPath, anchor: int, packets: _Packets) -> None:
        """From the near look-up that finds its entry to the path's end, or to where the packet goes to the owner."""
        for i in range(anchor, len(path.outcomes)):
            if key in self.meeting and fast.owner_from is not None and fast.owner_from[0] == i:
                # It finds one entry lent and then another one not.
                self.walk(path, self.step_again(key, packets), packets, i)
                return
            target = path.blocks[i + 1]
            key = self.through_lent(self.lent_step(key, path.outcomes[i], target, packets), packets)
            if not key[4]:
                self.walk(path, key, packets, i + 1)
                return
            if target in self.lent.anchors:
                self.meeting.add(key)

    def through_lent(self, key: _Key, packets: _Packets) -> _Key:
        """From a lent node to the last part of its block, or to the part that is run at the owner."""
        label, first, history, via, lent = key
        for part in range(first + 1, len(self.pieces[label])):
            if not lent:
                break
            after: _Key = (label, part, history, via, True)
            left = (label, self.pieces[label][part].start) in self.left
            key = self.step(key, "next", self.at_owner(after) if left else after, packets)
            lent = key[4]
        return key

    def lent_step(self, key: _Key, outcome: str, label: str, packets: _Packets) -> _Key:
        """From the last part of a block to a successor, where the entry is still at hand."""
        said = lent_outcome(self.live.blocks[key[0]].terminator, outcome) if key in self.meeting else outcome
        target = self.follow(key, said, label, lent=True)
        if key in self.meeting and target[2] and key[2] is not None:
            self.owned[target[2][-1]] = self.follow(key, outcome, label)[2][-1]  # type: ignore[index]
        return self.step(key, said, self.at_owner(target) if (label, 0) in self.left else target, packets)

    def at_owner(self, key: _Key) -> _Key:
        """The owner's class of packets that come from a lent entry: that of those it looked up itself."""
        return (key[0], key[1], self.history_at_owner(key[2]), key[3], False)

    def history_at_owner(self, history: History) -> History:
        return None if history is None else tuple(self.owned.get(h, h) for h in history)

    def edges_of(self, block: Block, key: _Key, known: Mapping[str, set[_Key]]) -> Iterator[tuple[str, _Key]]:
        if key not in self.meeting:
            yield from super().edges_of(block, key, known)
            return
        for outcome, target in successors(block.terminator):
            if outcome in FOUND:
                said = lent_outcome(block.terminator, outcome)
                yield said, self.known(key, said, self.follow(key, said, target, lent=True), known)
        yield "owner", self.second(key)

    def node(self, key: _Key) -> Node:
        plain = super().node(key)
        states, piece = self.lent.states, plain.piece
        if not key[4] and key not in self.meeting:
            return plain
        accesses = tuple((lent_name(s), kind) if s in states else (s, kind) for s, kind in piece.accesses)
        home = piece.component
        if home is not None and any(self.components[s] == home for s in states):
            home = lent_name(home)
        return replace(plain, accesses=accesses, home=home)


def second_look(program: Program, block: Block, parts: Sequence[Piece]) -> Piece:
    """The part of an anchor's block that looks up again, at the owner; ``parts`` are its others."""
    stop = len(block.instructions)
    return Piece(_part(block, stop, None), len(parts), stop, True, accesses_of(program, block.terminator),
                 parts[-1].component)


# Outcomes of an anchor that finds the entry.
FOUND = ("hit", "green", "yellow", "red")


def lent_outcome(terminator: Terminator, outcome: str) -> str:
    """How a near look-up names what it found: ``lent``, of a meter also the colour."""
    return f"lent {outcome}" if isinstance(terminator, Police) else "lent"


class _Restarting(_Lending):
    """Decided flows served by rules from the wire on; all other packets start at the next place."""

    def __init__(self, program: Program, profile: Profile, bound: int, copied: frozenset[str], lent: Lent) -> None:
        super().__init__(program, profile, bound, copied)
        self.lent = lent
        self.served = tuple(lent.paths)
        self.root: _Key = (program.blocks[0].label, 0, (), "", True)
        self.home = lent_name(next(self.components[s] for s in sorted(lent.states)))
        self.ends: dict[_Key, list[int]] = defaultdict(list)

    def walk_all(self) -> None:
        for path in self.profile.paths:
            self.check(path)
            self.nodes[self.root] += path.packets
            packets = self.not_served(path)
            self.walk(path, self.step(self.root, "restart", (*self.root[:4], False), packets), packets)
            if path.id in self.position:
                self.walk_rule(path, self.lent.paths[path.id].anchor, self.those_served(path))

    def walk_rule(self, path: PathUse, anchor: int, packets: _Packets) -> None:
        key = self.root
        for i, (outcome, target) in enumerate(zip(path.outcomes, path.blocks[1:], strict=True)):
            key = self.through(key, packets)
            said = lent_outcome(self.live.blocks[path.blocks[i]].terminator, outcome) if i == anchor else outcome
            key = self.step(key, said, self.follow(key, said, target, lent=True), packets)
        self.ends[self.through(key, packets)].append(path.id)

    def edges_of(self, block: Block, key: _Key, known: Mapping[str, set[_Key]]) -> Iterator[tuple[str, _Key]]:
        """A rule has no other ways than its own."""
        if not key[4]:
            yield from super().edges_of(block, key, known)
            return
        yield from ((outcome, target) for (source, outcome), (target, _) in self.taken.items() if source == key)

    def node(self, key: _Key) -> Node:
        plain = super().node(key)
        return replace(plain, accesses=(), home=self.home) if key[4] else plain

    def rules(self, number: Mapping[_Key, int]) -> Mapping[int, tuple[int, ...]]:
        return {number[key]: tuple(found) for key, found in self.ends.items()}


def _rank(key: _Key) -> tuple[int, bool, bool, tuple[str, ...], str]:
    """Order of a block's nodes: its parts one after the other, lent copies first."""
    return (key[1], not key[4], key[2] is None, key[2] or (), key[3])


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
