"""Random legal placements of random programs: which place runs which block, keeps which state, and lends which entries.

They need not make sense, only be legal: edges never lead back towards the wire, every access is where its state is, and
entries are lent only of what `cora.analysis.sharding` says may be split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cora.analysis.accesses import accesses_of, components_of
from cora.analysis.parts import LENT, OWNER, RESTART, PlacedNode, split_of
from cora.analysis.prefixes import Piece, pieces_of
from cora.analysis.sharding import Sharding, copyable, sharding_of
from cora.ir.nodes import (
    Block,
    Delete,
    FragmentState,
    Hold,
    Insert,
    Instruction,
    Lookup,
    MapState,
    MeterState,
    Police,
    PoolState,
    Program,
    State,
    Terminator,
    TrackFragment,
    successors,
)
from cora.ir.parts import Lending, Role, Split
from cora.testing.choices import Choices

_TRIES = 40


@dataclass(frozen=True)
class FirstPlace:
    """What the first place cannot do: states it cannot keep whole, states it cannot borrow entries of, nodes.

    ``eager``: it runs and keeps all that it can, instead of what chance gives it.
    """

    keeps: Callable[[State], bool]
    borrows: Callable[[State], bool]
    runs: Callable[[Instruction | Terminator], bool]
    eager: bool = False


_ANYTHING = FirstPlace(lambda _: True, lambda _: True, lambda _: True)


def random_split(program: Program, choices: Choices, places: int = 2, first: FirstPlace = _ANYTHING) -> Split:
    """The parts of a random legal placement; the whole program at the last place where no other one was found."""
    shardings = sharding_of(program)
    for _ in range(_TRIES):
        draft = _Draft(program, choices, places, shardings, first)
        if draft.place():
            return draft.split()
    draft = _Draft(program, choices, places, {}, first)
    draft.homes = dict.fromkeys(draft.homes, places - 1)
    draft.place()
    return draft.split()


def random_rules(program: Program, choices: Choices, places: int = 2) -> Split | None:
    """As `random_split`, with a first place that runs only decided paths; None where nothing can be lent to it."""
    shardings = sharding_of(program)
    for _ in range(_TRIES):
        draft = _Rules(program, choices, places, shardings)
        if draft.lendings and draft.place():
            return draft.split()
    return None


def _below(choices: Choices, limit: int) -> int:
    return choices.integer(0, limit - 1)


@dataclass
class _Node:
    """A node of the draft. ``wanted``: the place it must have.

    ``kind``: plain before any access to lent state; first and second look; lent behind a hit; owner behind the rest.
    """

    piece: Piece
    kind: str
    edges: list[tuple[str, tuple[str, int, str]]]
    wanted: int | None = None
    place: int = 0


_Key = tuple[str, int, str]


class _Draft:
    def __init__(self, program: Program, choices: Choices, places: int, shardings: Mapping[str, Sharding],
                 first: FirstPlace = _ANYTHING) -> None:
        self.program, self.choices, self.places, self.first_place = program, choices, places, first
        self.components = components_of(program)
        self.pieces = pieces_of(program)
        far = {c for s, c in self.components.items() if not first.keeps(program.state(s))}
        self.homes = {c: 1 + _below(choices, places - 1) if c in far else 0 if first.eager else _below(choices, places)
                      for c in dict.fromkeys(self.components.values())}
        self.copied = {s.name for s in program.states
                       if isinstance(copyable(program, s), str) and _below(choices, 2)}
        self.lendings: dict[str, Lending] = {}
        for component, sharding in shardings.items():
            if sharding.splittable and sharding.anchors and _below(choices, 4):
                self.lend(component)
        self.anchors = {a.block: c for c in self.lendings for a in shardings[c].anchors}
        self.nodes: dict[_Key, _Node] = {}

    def lend(self, component: str) -> None:
        states = [s for s in self.program.states
                  if self.components[s.name] == component and isinstance(s, MapState | MeterState)]
        if len(states) != 1 or self.places < 2:
            return
        if self.first_place.eager and not self.homes[component]:
            return
        near = _below(self.choices, self.places - 1)
        if not near and not all(self.first_place.borrows(s) for s in states):
            return
        owner = near + 1 + _below(self.choices, self.places - 1 - near)
        entries = min(states[0].capacity, (1, 2, 4, 1000)[_below(self.choices, 4)])
        self.homes[component] = owner
        self.lendings[component] = Lending(component, states[0].name, near, owner, entries,
                                           1 + _below(self.choices, 3), restart=False)

    # The graph.

    def place(self) -> bool:
        """Build the graph and place its nodes; whether that is possible."""
        self.build()
        order = self.ordered()
        limit: dict[_Key, int] = {}
        for key in reversed(order):
            node = self.nodes[key]
            node.wanted = self.wanted(node)
            behind = min((limit[t] for _, t in node.edges), default=self.places - 1)
            limit[key] = behind if node.wanted is None else min(behind, node.wanted)
            if node.wanted is not None and limit[key] != node.wanted:
                return False
            if limit[key] < self.nearest(node):
                return False
        low = dict.fromkeys(order, 0)
        low.update({k: 1 for k in order if k[2] == "owner" and isinstance(self, _Rules)})
        for key in order:
            node = self.nodes[key]
            low[key] = max(low[key], self.nearest(node))
            if low[key] > limit[key]:
                return False
            node.place = low[key] + (0 if self.first_place.eager else _below(self.choices, limit[key] - low[key] + 1))
            if key == order[0]:
                node.place = 0
            if node.wanted is not None:
                node.place = node.wanted
            if node.kind == "lent":
                node.place = low[key]
            for _, target in node.edges:
                low[target] = max(low[target], node.place)
        return self.starts(order) and self.nodes[order[0]].wanted in (None, 0)

    def is_far(self, piece: Piece) -> bool:
        """Whether packets leave the first place here for good, so that what comes is another copy of its blocks."""
        if not self.first_place.eager:
            return False
        node = _Node(piece, "plain", [])
        return bool(self.nearest(node) or self.wanted(node))

    def nearest(self, node: _Node) -> int:
        """The place nearest the wire that can run a node."""
        block = node.piece.block
        return 0 if all(map(self.first_place.runs, (*block.instructions, block.terminator))) else 1

    def starts(self, order: list[_Key]) -> bool:
        """Whether packets enter at the first node."""
        return order[0] == (self.program.blocks[0].label, 0, "plain")

    def ordered(self) -> list[_Key]:
        position = {b.label: i for i, b in enumerate(self.program.blocks)}
        kinds = {"plain": 0, "lent": 1, "second": 2, "owner": 3}
        return sorted(self.nodes, key=lambda k: (position[k[0]], k[1], kinds[k[2]]))

    def wanted(self, node: _Node) -> int | None:
        found = set()
        for item in (*node.piece.block.instructions, node.piece.block.terminator):
            for state, _ in accesses_of(self.program, item):
                component = self.components[state]
                if state in self.copied:
                    continue
                lending = self.lendings.get(component)
                if lending is not None and node.kind in ("first", "lent"):
                    found.add(lending.near)
                else:
                    found.add(self.homes[component])
        if isinstance(node.piece.block.terminator, Hold):
            found |= {self.homes[self.components[s.name]] for s in self.program.states
                      if s.name in self.trackers()}
        return None if not found else found.pop() if len(found) == 1 else -1

    def trackers(self) -> set[str]:
        return {s.name for s in self.program.states if isinstance(s, FragmentState)}

    def build(self) -> None:
        waiting: list[_Key] = [(self.program.blocks[0].label, 0, "plain")]
        while waiting:
            key = waiting.pop()
            if key in self.nodes:
                continue
            node = self.make(key)
            self.nodes[key] = node
            waiting += [target for _, target in node.edges]

    def make(self, key: _Key) -> _Node:
        label, part, kind = key
        if kind == "second":
            return self.second(label)
        piece = self.pieces[label][part]
        component = self.anchors.get(label)
        if kind == "plain" and piece.last and component is not None and self.alone(piece):
            return self.first(piece)
        after = "owner" if kind == "plain" and (piece.component in self.lendings or self.is_far(piece)) else kind
        if not piece.last:
            return _Node(piece, kind, [("next", self.onwards(label, part + 1, after))])
        return _Node(piece, kind, [(o, self.onwards(t, 0, after)) for o, t in successors(piece.block.terminator)])

    def alone(self, piece: Piece) -> bool:
        """Whether the piece touches the component by its terminator only, and nothing else that is not copied."""
        states = {s for i in piece.block.instructions for s, _ in accesses_of(self.program, i)}
        return states <= self.copied

    def first(self, piece: Piece) -> _Node:
        label, end = piece.block.label, piece.block.terminator
        assert isinstance(end, Lookup | Police)
        edges: list[tuple[str, _Key]] = []
        for outcome, target in successors(end):
            if outcome in ("hit", "green", "yellow", "red"):
                said = LENT if outcome == "hit" else f"{LENT} {outcome}"
                edges.append((said, self.onwards(target, 0, "lent")))
        return _Node(piece, "first", [*edges, (OWNER, (label, len(self.pieces[label]), "second"))])

    def second(self, label: str) -> _Node:
        block = self.program.block(label)
        last = self.pieces[label][-1]
        code = Block(label, (), (), block.terminator, block.span)
        piece = replace(last, block=code, part=last.part + 1, start=len(block.instructions))
        return _Node(piece, "second", [(o, (t, 0, "owner")) for o, t in successors(block.terminator)])

    def onwards(self, label: str, part: int, kind: str) -> _Key:
        """Lent packets stay lent while the near place may run what comes."""
        piece = self.pieces[label][part]
        if kind != "lent" or (self.may_be_lent(piece) and _below(self.choices, 16)):
            return (label, part, kind)
        return (label, part, "owner")

    def may_be_lent(self, piece: Piece) -> bool:
        for item in (*piece.block.instructions, piece.block.terminator):
            if not self.first_place.runs(item):
                return False
            for state, _ in accesses_of(self.program, item):
                lending = self.lendings.get(self.components[state])
                if state in self.copied:
                    continue
                if lending is None or isinstance(item, Lookup | Insert | Delete | Police) or (
                        isinstance(self.program.state(state), PoolState)):
                    return False
        return not isinstance(piece.block.terminator, Hold)

    # The parts.

    def split(self) -> Split:
        order = self.ordered()
        number = {key: i for i, key in enumerate(order)}
        nodes = [PlacedNode(n.piece.block, n.piece.start, n.piece.last, n.place,
                            tuple((o, number[t]) for o, t in n.edges)) for n in (self.nodes[k] for k in order)]
        names = [f"place{i}" for i in range(self.places)]
        roles = {s.name: dict(self.roles(s.name)) for s in self.program.states}
        return split_of(self.program, names, nodes, roles, list(self.lendings.values()))

    def roles(self, state: str) -> Iterator[tuple[int, Role]]:
        component = self.components[state]
        lending = self.lendings.get(component)
        if state in self.copied:
            yield from ((place, "copy") for place in range(self.places))
        elif lending is not None and lending.state == state:
            yield lending.near, "lent"
            yield lending.owner, "owner"
        else:
            yield self.homes[component], "whole"


class _Rules(_Draft):
    """All packets meet decided paths first; who leaves them starts anew at the second place."""

    def __init__(self, program: Program, choices: Choices, places: int, shardings: Mapping[str, Sharding]) -> None:
        super().__init__(program, choices, places, shardings)
        whole = self.lendings
        self.lendings = {c: replace(item, near=0, owner=max(1, item.owner), restart=True)
                         for c, item in list(whole.items())[:1]}
        self.anchors = {a.block: c for c in self.lendings for a in shardings[c].anchors}
        self.copied |= {s.name for s in program.states if isinstance(copyable(program, s), str)}
        self.homes = {c: self.lendings[c].owner if c in self.lendings else max(1, home)
                      for c, home in self.homes.items()}

    def build(self) -> None:
        first = self.program.blocks[0].label
        waiting: list[_Key] = [(first, 0, "rule"), (first, 0, "owner")]
        while waiting:
            key = waiting.pop()
            if key not in self.nodes:
                self.nodes[key] = self.rule(key) if key[2] == "rule" else self.make(key)
                waiting += [target for _, target in self.nodes[key].edges]
        self.nodes[first, 0, "rule"].edges.append((RESTART, (first, 0, "owner")))

    def rule(self, key: _Key) -> _Node:
        label, part, _ = key
        piece = self.pieces[label][part]
        if not piece.last:
            after = self.pieces[label][part + 1]
            return _Node(piece, "rule", [("next", (label, part + 1, "rule"))] if self.decided(after) else [])
        edges: list[tuple[str, _Key]] = []
        end = piece.block.terminator
        looks = isinstance(end, Lookup) and label in self.anchors
        for outcome, target in successors(end):
            if self.decided(self.pieces[target][0]) and (not looks or outcome == "hit"):
                edges.append((LENT if looks else outcome, (target, 0, "rule")))
        return _Node(piece, "rule", edges)

    def decided(self, piece: Piece) -> bool:
        """Whether a decided path may go on with the piece."""
        end = piece.block.terminator
        if isinstance(end, Insert | Police | Hold | TrackFragment):
            return False
        if isinstance(end, Lookup) and end.state not in self.copied and piece.label not in self.anchors:
            return False
        return not any(isinstance(i, Delete) for i in piece.block.instructions)

    def wanted(self, node: _Node) -> int | None:
        return 0 if node.kind == "rule" else super().wanted(node)

    def ordered(self) -> list[_Key]:
        position = {b.label: i for i, b in enumerate(self.program.blocks)}
        return sorted(self.nodes, key=lambda k: (position[k[0]], k[1], k[2] != "rule"))

    def starts(self, order: list[_Key]) -> bool:
        return order[0][2] == "rule"

