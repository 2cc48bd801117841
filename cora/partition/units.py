"""Units of placement: nodes that are at one place in any plan, or in any plan worth looking at.

Forced together: all code that touches one component of state; then whatever lies on a cycle between such groups, since
packets only move away from the wire. Contracted: code the profile never saw follows the only unit it is reached from,
if it may run wherever that may; and runs of stateless code without an observed decision between them stay together when
the target allows both in the same places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cora.partition.coarse import strongly_connected
from cora.partition.frames import Grouping
from cora.partition.instance import Instance
from cora.partition.problem import (
    Assignment,
    CodeStore,
    CopiedState,
    CopyOption,
    Edges,
    Problem,
    Together,
    WholeState,
)


@dataclass(frozen=True)
class Units:
    """U units, each one before its successors as far as that is possible, and the problem with them as units of code.

    Attributes:
        of_node: per node its unit; of_state: per whole state the first unit that touches it.
        observed: whether packets were seen in it.
    """

    of_node: tuple[int, ...]
    of_state: Mapping[str, int]
    observed: tuple[bool, ...]
    problem: Problem

    def spread(self, assignment: Assignment) -> Assignment:
        """An assignment of the units as one of the instance's nodes."""
        return replace(assignment, places=tuple(assignment.places[u] for u in self.of_node))

    def gathered(self, assignment: Assignment) -> Assignment:
        """The other way round; nodes of one unit have to be at one place."""
        places = dict(zip(self.of_node, assignment.places, strict=True))
        return replace(assignment, places=tuple(places[u] for u in range(len(self.problem.units))))


def units_of(instance: Instance) -> Units:
    """Group the nodes of an instance; budgets of one split that agree on what is legal are grouped once."""
    problem = instance.problem
    key = problem.allowed.tobytes(), id(problem.together)
    known = instance.frame.groupings
    if key not in known:
        made = _Grouping(instance)
        made.contract_unseen()
        made.join_cycles()
        made.contract_runs()
        of_node = made.of_node()
        groups = np.array(of_node, np.intp)
        known[key] = Grouping(problem.together, of_node, tuple(_code(store, groups) for store in problem.code),
                              tuple(together_of(t, groups) for t in problem.together))
    grouping = known[key]
    of_node = grouping.of_node
    observed = np.zeros(max(of_node) + 1, np.bool_)
    np.logical_or.at(observed, np.array(of_node, np.intp), [n.packets > 0 for n in instance.graph.nodes])
    found = grouped(problem, of_node, grouping)
    of_state = {s.name: s.units[0] for s in found.whole if s.units}
    return Units(of_node, of_state, tuple(observed.tolist()), found)


class _Grouping:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nodes = instance.graph.nodes
        self.allowed = [row.copy() for row in instance.problem.allowed]
        self.leader = list(range(len(self.nodes)))
        self.stateful = {i for i, n in enumerate(self.nodes) if n.accesses or n.home is not None}
        self.join_components()
        # Where packets of a flow end is decided for all of them; a unit that may be near the wire has to be free to.
        self.ending = {u for group in instance.problem.together for u in (*group.units, *group.lent)}
        self.join_ends()

    def join_ends(self) -> None:
        for group in self.instance.problem.together:
            first, *others = group.units
            for unit in others:
                if self.find(unit) != self.find(first):
                    self.merge(self.find(first), self.find(unit))

    def join_components(self) -> None:
        first: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            if node.home is not None and first.setdefault(node.home, i) != i:
                self.merge(first[node.home], i)

    def find(self, element: int) -> int:
        while self.leader[element] != element:
            element = self.leader[element]
        return element

    def adjacency(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Per unit the units before and after it."""
        before: dict[int, set[int]] = defaultdict(set)
        after: dict[int, set[int]] = defaultdict(set)
        for edge in self.instance.graph.edges:
            source, target = self.find(edge.source), self.find(edge.target)
            if source != target:
                before[target].add(source)
                after[source].add(target)
        return before, after

    def merge(self, into: int, unit: int) -> None:
        self.leader[unit] = into
        self.allowed[into] = self.allowed[into] & self.allowed[unit]
        self.stateful |= {into} if unit in self.stateful else set()

    def contract_unseen(self) -> None:
        reached: dict[int, set[int]] = defaultdict(set)
        for edge in self.instance.graph.edges:
            reached[edge.target].add(edge.source)
        for i, node in enumerate(self.nodes):
            sources = {self.find(s) for s in reached[i]}
            if self.instance.frame.seen[i] or node.home is not None or len(sources) != 1 or i in self.ending:
                continue
            into = sources.pop()
            if into != self.find(i) and (self.allowed[i] | ~self.allowed[into]).all():
                self.merge(into, i)

    def join_cycles(self) -> None:
        _, after = self.adjacency()
        for unit, first in strongly_connected([sorted(after.get(u, ())) for u in range(len(self.nodes))]).items():
            if unit != first:
                self.merge(first, unit)

    def contract_runs(self) -> None:
        before, after = self.adjacency()
        for unit in sorted(before):
            if unit in self.stateful or len(before[unit]) != 1:
                continue
            (source,) = before[unit]
            if source in self.stateful or after[source] != {unit}:
                continue
            if (self.allowed[source] == self.allowed[unit]).all():
                self.merge(source, unit)
                after[source] = after.pop(unit, set())
                for target in after[source]:
                    before[target] = before[target] - {unit} | {source}

    def of_node(self) -> tuple[int, ...]:
        roots = sorted({self.find(i) for i in range(len(self.leader))})
        number = {root: i for i, root in enumerate(roots)}
        return tuple(number[self.find(i)] for i in range(len(self.nodes)))


def grouped(problem: Problem, of_node: Sequence[int], known: Grouping | None = None) -> Problem:
    """The problem whose units are groups of a problem's units: ``of_node`` gives each one's group, 0 to U - 1.

    ``known``: its code stores and ends of flows, where they were made before.
    """
    groups = np.array(of_node, np.intp)
    count = int(groups.max(initial=-1)) + 1
    allowed = np.ones((count, len(problem.physical)), np.bool_)
    np.logical_and.at(allowed, groups, problem.allowed)
    cost = np.zeros((count, *problem.cost.shape[1:]))
    np.add.at(cost, groups, problem.cost)
    names = [""] * count
    for node in reversed(range(len(groups))):
        names[groups[node]] = problem.units[node]
    return replace(
        problem, allowed=allowed, cost=np.where(allowed[:, :, None], cost, 0.0), edges=_edges(problem, groups),
        whole=tuple(WholeState(s.name, _of(groups, s.units), s.options) for s in problem.whole),
        copied=tuple(_copied(s, groups) for s in problem.copied),
        code=tuple(_code(store, groups) for store in problem.code) if known is None else known.code, units=tuple(names),
        together=tuple(together_of(t, groups) for t in problem.together) if known is None else known.together,
    )


def together_of(group: Together, groups: NDArray[np.intp]) -> Together:
    """The same with groups of the units."""
    units = _of(groups, group.units)
    return replace(group, units=units, lent=tuple(u for u in _of(groups, group.lent) if u not in units))


def _of(groups: NDArray[np.intp], nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({int(groups[n]) for n in nodes}))


def _edges(problem: Problem, groups: NDArray[np.intp]) -> Edges:
    ends = groups[problem.ends]
    between = np.flatnonzero(ends[0] != ends[1])
    most = int(groups.max(initial=0)) + 1
    pairs, first, number = np.unique(ends[0, between] * most + ends[1, between], return_index=True, return_inverse=True)
    order = np.argsort(first)
    # In the order in which they come in the problem.
    place = np.empty(len(pairs), np.intp)
    place[order] = np.arange(len(pairs))
    number = place[number.ravel()]
    crossable = np.ones((len(pairs), problem.crossable.shape[1]), np.bool_)
    np.logical_and.at(crossable, number, problem.crossable[between])
    cross, visit = (np.zeros((len(pairs), *rows.shape[1:])) for rows in (problem.cross, problem.visit))
    np.add.at(cross, number, problem.cross[between])
    np.add.at(visit, number, problem.visit[between])
    return Edges(np.array(np.divmod(pairs[order], most)), cross, crossable, visit)


def _copied(state: CopiedState, groups: NDArray[np.intp]) -> CopiedState:
    users = _of(groups, state.users)
    row = {user: i for i, user in enumerate(users)}
    where = np.array([row[int(groups[u])] for u in state.users], np.intp)

    def summed(option: CopyOption) -> CopyOption:
        cost = np.zeros((len(users), option.cost.shape[1]))
        np.add.at(cost, where, option.cost)
        return replace(option, cost=cost)

    return CopiedState(state.name, users, tuple(summed(o) for o in state.options))


def _code(store: CodeStore, groups: NDArray[np.intp]) -> CodeStore:
    """Pieces that the same units run are one piece."""
    sizes: dict[frozenset[int], int] = defaultdict(int)
    for nodes, size in store.pieces:
        sizes[frozenset(_of(groups, tuple(nodes)))] += size
    return CodeStore(store.place, store.capacity, tuple(sizes.items()))
