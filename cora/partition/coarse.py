"""Smaller problems of the same form: groups of units that are kept together.

What is best for the smaller problem is legal in the larger one, and never better than what is best there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cora.partition.problem import Assignment, CodeStore, Edges, Problem, Together


def where_units_may_be(problem: Problem) -> NDArray[np.bool_]:
    """[U, L] the allowed places of units, with those of the states they touch taken into account."""
    physical = np.array(problem.physical)
    allowed = problem.allowed.copy()
    for state in problem.whole:
        if state.units:
            allowed[list(state.units)] &= np.isin(physical, [o.place for o in state.options])
    for copied in problem.copied:
        if copied.users:
            allowed[list(copied.users)] &= np.isin(physical, [o.place for o in copied.options])
    return allowed


def contract(problem: Problem, groups: Sequence[int]) -> Problem:
    """The problem in which all units with the same number in ``groups`` [U] (0, 1, ...) are one unit."""
    of = np.array(groups, np.intp)
    count = int(of.max(initial=-1)) + 1
    allowed = np.ones((count, len(problem.physical)), np.bool_)
    np.logical_and.at(allowed, of, where_units_may_be(problem))
    cost = np.zeros((count, *problem.cost.shape[1:]))
    np.add.at(cost, of, problem.cost)
    names: list[str] = [""] * count
    for unit in range(len(of) - 1, -1, -1):
        names[of[unit]] = problem.units[unit]
    return replace(
        problem, allowed=allowed, cost=cost, edges=_edges(problem, of), units=tuple(names),
        whole=tuple(replace(s, units=_once(of[u] for u in s.units)) for s in problem.whole),
        copied=tuple(replace(s, users=tuple(int(of[u]) for u in s.users)) for s in problem.copied),
        code=tuple(CodeStore(c.place, c.capacity, tuple((frozenset(int(of[u]) for u in units), size)
                                                        for units, size in c.pieces)) for c in problem.code),
        together=tuple(_together(t, of) for t in problem.together),
    )


def _together(group: Together, of: NDArray[np.intp]) -> Together:
    units = _once(of[u] for u in group.units)
    return replace(group, units=units, lent=tuple(u for u in _once(of[u] for u in group.lent) if u not in units))


def _once(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(n) for n in numbers))


def _edges(problem: Problem, of: NDArray[np.intp]) -> Edges:
    ends = of[problem.ends]
    between = np.flatnonzero(ends[0] != ends[1])
    key = ends[0, between] * (int(of.max(initial=0)) + 1) + ends[1, between]
    unique, where = np.unique(key, return_inverse=True)
    shape = (len(unique), *problem.cross.shape[1:])
    cross, visit, crossable = np.zeros(shape), np.zeros(shape), np.ones(shape[:2], np.bool_)
    np.add.at(cross, where, problem.cross[between])
    np.add.at(visit, where, problem.visit[between])
    np.logical_and.at(crossable, where, problem.crossable[between])
    return Edges(np.array(np.divmod(unique, int(of.max(initial=0)) + 1)), cross, crossable, visit)


def expand(assignment: Assignment, groups: Sequence[int]) -> Assignment:
    """What an assignment of a contracted problem means for the larger one."""
    return replace(assignment, places=tuple(assignment.places[g] for g in groups))


def forced(problem: Problem) -> list[int]:
    """Groups of units that are at one place in every assignment: users of a state, ends of a flow, what lies between.

    With a return leg they may be in different stretches; then nothing is forced.
    """
    if len(problem.places) < len(problem.physical):
        return list(range(len(problem.units)))
    after: list[list[int]] = [[] for _ in problem.units]
    for source, target in problem.ends.T.tolist():
        after[source].append(target)
    for state in problem.whole:
        for unit, other in zip(state.units, state.units[1:] + state.units[:1], strict=True):
            after[unit].append(other)
    for group in problem.together:
        for unit, other in zip(group.units, group.units[1:] + group.units[:1], strict=True):
            after[unit].append(other)
    return _numbered(strongly_connected(after))


def strongly_connected(after: Sequence[Sequence[int]]) -> dict[int, int]:
    """Per node the least node of its strongly connected component (Tarjan's algorithm, without recursion)."""
    order, low, leader = [-1] * len(after), [0] * len(after), {}
    stack: list[int] = []
    count = 0
    for root in range(len(after)):
        work = [(root, 0)] if order[root] < 0 else []
        while work:
            node, position = work.pop()
            if position == 0:
                order[node] = low[node] = count
                count += 1
                stack.append(node)
            if position < len(after[node]):
                work.append((node, position + 1))
                child = after[node][position]
                if order[child] < 0:
                    work.append((child, 0))
                elif child not in leader:
                    low[node] = min(low[node], order[child])
                continue
            if low[node] == order[node]:
                group = stack[stack.index(node) :]
                del stack[-len(group) :]
                leader.update(dict.fromkeys(group, min(group)))
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return leader


def _numbered(leader: dict[int, int]) -> list[int]:
    number = {first: i for i, first in enumerate(sorted(set(leader.values())))}
    return [number[leader[u]] for u in range(len(leader))]


def paired(problem: Problem) -> list[int]:
    """Groups of at most two units: each joined with the only one before or after it over which most packets go.

    Joining along an edge whose target has no other source, or whose source has no other target, makes no cycle, however
    many such pairs are joined at once. Only units that may be at the same places are joined, and none whose states have
    to be at different places.
    """
    allowed = where_units_may_be(problem)
    source, target = problem.ends
    into, out = (np.bincount(x, minlength=len(problem.units)) for x in (target, source))
    same = (allowed[source] == allowed[target]).all(axis=1) & problem.crossable.all(axis=1)
    ordered = {u for o in problem.orders for n in (o.near, o.far) for u in problem.whole[n].units}
    ordered |= {u for t in problem.together if t.lent for u in (*t.units, *t.lent)}
    weight = problem.cross.sum(axis=1)[:, :-1].sum(axis=1)
    joined: dict[int, int] = defaultdict(int)
    leader = {u: u for u in range(len(problem.units))}
    for edge in np.argsort(-weight, kind="stable"):
        u, v = int(source[edge]), int(target[edge])
        if not same[edge] or joined[u] or joined[v] or ordered & {u, v} or (into[v] > 1 and out[u] > 1):
            continue
        joined[u] = joined[v] = 1
        leader[v] = u
    return _numbered(leader)

