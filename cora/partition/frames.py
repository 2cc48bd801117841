"""What all budgets of one split have in common: the graph but for its numbers of packets, and prices per packet.

A plan compares a split with every budget that the profile knows of. Only the packets on nodes and edges differ between
those, so that everything else is made once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import Access
from cora.analysis.prefixes import Edge, Lent, Node, PrefixGraph, Shape, shape_of
from cora.analysis.profile import Profile
from cora.ir.nodes import Forward, Program, Reject
from cora.partition.problem import CodeStore, CopyOption, Together, Vector

if TYPE_CHECKING:
    from cora.partition.prices import Prices


@dataclass(frozen=True)
class Grouping:
    """Nodes in units, for the ends of flows ``of``: per node its unit; and the units' code stores and ends of flows."""

    of: tuple[Together, ...]
    of_node: tuple[int, ...]
    code: tuple[CodeStore, ...]
    together: tuple[Together, ...]


@dataclass(frozen=True)
class Frame:
    """N nodes and E edges at L virtual and P physical places, K resources; rows are per packet there.

    Attributes:
        runs: [N, P] whether a node's own code may run; code: [N, P, K + 1] what it costs, zero where it may not.
        ends: [N, P, K + 1] from where its program ends to the port its packets leave by; may be infinite.
        crossable: [E, L]; cross: [E, L, K + 1], zero where it is not; visit: [L, K + 1].
        accesses: the nodes of each access, once for every time they make it; users, homes: the nodes of each table and
            of each component.
        copies, together: for `cora.partition.instance`, groupings: for `cora.partition.units`, by what else decides
            them.
    """

    shape: Shape
    runs: NDArray[np.bool_]
    code: Vector
    ends: Vector
    crossable: NDArray[np.bool_]
    cross: Vector
    visit: Vector
    accesses: Mapping[Access, NDArray[np.intp]]
    users: Mapping[str, tuple[int, ...]]
    homes: Mapping[str, tuple[int, ...]]
    stores: tuple[CodeStore, ...]
    copies: dict[str, tuple[CopyOption, ...]] = field(default_factory=dict)
    together: dict[object, tuple[Together, ...]] = field(default_factory=dict)
    groupings: dict[object, Grouping] = field(default_factory=dict)

    @cached_property
    def last(self) -> Mapping[str, tuple[int, ...]]:
        """Per block the nodes of its last part."""
        found: dict[str, list[int]] = defaultdict(list)
        for number, node in enumerate(self.shape.graph.nodes):
            if node.piece.last:
                found[node.label].append(number)
        return {label: tuple(numbers) for label, numbers in found.items()}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Per node its name in messages."""
        return tuple(f"block {n.label}" for n in self.shape.graph.nodes)

    @cached_property
    def ends_of_edges(self) -> NDArray[np.intp]:
        """[2, E] sources and targets."""
        return np.array([(e.source, e.target) for e in self.shape.graph.edges], np.intp).reshape(-1, 2).T

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """[N] whether packets may come to a node under some budget."""
        found = np.array([n.packets > 0 for n in self.shape.graph.nodes], np.bool_)
        node, _, sign = self.shape.nodes
        found[node[sign > 0]] = True
        return found

    def graph(self, lent: Lent | None) -> PrefixGraph:
        return self.shape.weighted({} if lent is None else lent.paths)


# What decides a frame: how and what is lent, where it is met, how paths go on, and the virtual places.
Likeness = tuple[object, ...]


class Frames:
    """The frames of one program, profile and target."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.known: dict[Likeness, Frame] = {}

    def frame(self, copied: frozenset[str], lent: Lent | None, physical: tuple[int, ...]) -> Frame:
        """The frame of a variant.

        Raises:
            CoraError: as `expand`.
        """
        like = (_likeness(lent), physical, copied)
        if like not in self.known:
            self.known[like] = self._made(copied, lent, physical)
        return self.known[like]

    def _made(self, copied: frozenset[str], lent: Lent | None, physical: tuple[int, ...]) -> Frame:
        prices = self.prices
        shape = _shape(prices.program, prices.profile, copied, lent)
        nodes = shape.graph.nodes
        runs, code = self._code(nodes)
        crossable, cross = self._crossings(shape.graph.edges, physical)
        visit = np.array([np.zeros(prices.width), *(prices.visit(p) for p in physical[1:])])
        accesses: dict[Access, list[int]] = defaultdict(list)
        users: dict[str, dict[int, None]] = defaultdict(dict)
        homes: dict[str, list[int]] = defaultdict(list)
        for number, node in enumerate(nodes):
            for access in node.accesses:
                accesses[access].append(number)
                users[access[0]][number] = None
            if node.home is not None:
                homes[node.home].append(number)
        return Frame(shape, runs, code, self._ends(nodes), crossable, cross, visit,
                     {a: np.array(n, np.intp) for a, n in accesses.items()},
                     {name: tuple(n) for name, n in users.items()}, {home: tuple(n) for home, n in homes.items()},
                     self._stores(nodes, lent))

    def _code(self, nodes: tuple[Node, ...]) -> tuple[NDArray[np.bool_], Vector]:
        places = range(len(self.prices.target.places))
        runs = np.zeros((len(nodes), len(places)), np.bool_)
        code = np.zeros((len(nodes), len(places), self.prices.width))
        for number, node in enumerate(nodes):
            for place in places:
                own = self.prices.code(node.piece, place)
                if own is not None:
                    runs[number, place] = True
                    code[number, place] = own
        return runs, code

    def _ends(self, nodes: tuple[Node, ...]) -> Vector:
        prices, last = self.prices, len(self.prices.target.places) - 1
        ends = np.zeros((len(nodes), last + 1, prices.width))
        for to in (0, last):
            numbers = [i for i, node in enumerate(nodes) if self._leaves_to(node) == to]
            if numbers:
                ends[numbers] = [prices.travel(place, to) for place in range(last + 1)]
        return ends

    def _leaves_to(self, node: Node) -> int | None:
        """The place whose port a packet leaves by where its program ends at a node, None where it does not leave.

        An error message of `Reject` goes back to the arrival port; it is charged like a frame to the wire.
        """
        terminator = node.piece.block.terminator
        if not node.piece.last or not isinstance(terminator, Forward | Reject):
            return None
        port = terminator.port if isinstance(terminator, Forward) else ""
        to_wire = all("wire" in p.faces for p in self.prices.program.ports if p.name == port)
        return 0 if to_wire else len(self.prices.target.places) - 1

    def _crossings(self, edges: tuple[Edge, ...], physical: tuple[int, ...]) -> tuple[NDArray[np.bool_], Vector]:
        crossable = np.ones((len(edges), len(physical)), np.bool_)
        cross = np.zeros((len(edges), len(physical), self.prices.width))
        sizes = np.array([edge.live_bytes for edge in edges], np.intp)
        for virtual in range(1, len(physical)):
            for size in np.unique(sizes):
                row = self.prices.crossing(physical[virtual - 1], physical[virtual], int(size))
                if np.isfinite(row).all():
                    cross[sizes == size, virtual] = row
                else:
                    crossable[sizes == size, virtual] = False
        return crossable, cross

    def _stores(self, nodes: tuple[Node, ...], lent: Lent | None) -> tuple[CodeStore, ...]:
        prices = self.prices
        pieces = {(n.label, n.piece.part): n.piece for n in nodes}
        units: dict[tuple[str, int], set[int]] = defaultdict(set)
        for number, node in enumerate(nodes):
            if not (node.lent and lent is not None and lent.mode == "restart"):
                units[node.label, node.piece.part].add(number)
        return tuple(CodeStore(place, declared.code_capacity, tuple(
            (frozenset(found), prices.code_size(pieces[key], place)) for key, found in units.items()))
            for place, declared in enumerate(prices.target.places) if declared.code_capacity is not None)


# Shapes of the programs and profiles asked about last: questions about a plan change its target again and again.
_latest: list[tuple[Program, Profile, dict[Likeness, Shape]]] = []
_KEPT = 2


def _shape(program: Program, profile: Profile, copied: frozenset[str], lent: Lent | None) -> Shape:
    for number, (of, under, _) in enumerate(_latest):
        if of is program and under is profile:
            _latest.insert(0, _latest.pop(number))
            break
    else:
        _latest.insert(0, (program, profile, {}))
        del _latest[_KEPT:]
    known, like = _latest[0][2], (_likeness(lent), copied)
    if like not in known:
        known[like] = shape_of(program, profile, copied=copied, lent=lent)
    return known[like]


def _likeness(lent: Lent | None) -> Likeness | None:
    if lent is None:
        return None
    paths = tuple((path, fast.anchor, fast.owner_from) for path, fast in lent.paths.items())
    return lent.mode, lent.states, lent.anchors, paths
