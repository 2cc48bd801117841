"""Units of placement: nodes and states that are at one place in any plan, or in any plan worth looking at.

Forced together: all code that touches one component of state, and that state; then whatever lies on a cycle between
such groups, since packets only move away from the wire. Contracted: code the profile never saw follows the only unit it
is reached from, if it may run wherever that may; and runs of stateless code without an observed decision between them
stay together when the target allows both in the same places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import components_of
from cora.partition.instance import Instance, Vector


@dataclass(frozen=True)
class UnitEdge:
    """All edges between two units: their cost of moving on to each place, [L, K], and their share of packets."""

    source: int
    target: int
    cross: Vector
    crossable: NDArray[np.bool_]
    share: float


@dataclass(frozen=True)
class Units:
    """U units, each one before its successors as far as that is possible.

    Attributes:
        of_node: per node its unit; of_state: per state its unit.
        allowed: [U, L]; cost: [U, L, K] of its nodes; observed: whether packets were seen in it.
    """

    of_node: tuple[int, ...]
    of_state: Mapping[str, int]
    allowed: NDArray[np.bool_]
    cost: Vector
    observed: tuple[bool, ...]
    edges: tuple[UnitEdge, ...]


def units_of(instance: Instance) -> Units:
    """Group the nodes and states of an instance."""
    grouping = _Grouping(instance)
    grouping.contract_unseen()
    grouping.join_cycles()
    grouping.contract_runs()
    return grouping.units()


class _Grouping:
    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.components = components_of(instance.program)
        nodes = instance.graph.nodes
        first: dict[str, int] = {}
        # Union-find over nodes, then one element per state component that no node touches.
        self.leader = list(range(len(nodes)))
        for i, node in enumerate(nodes):
            if node.piece.component is not None:
                self.leader[i] = first.setdefault(node.piece.component, i)
        self.home = dict(first)
        for component in dict.fromkeys(self.components.values()):
            if component not in self.home:
                self.home[component] = len(self.leader)
                self.leader.append(len(self.leader))
        self.stateful = set(self.home.values())
        self.allowed = [self.allowed_of(i) for i in range(len(self.leader))]
        for i in range(len(nodes)):
            if self.leader[i] != i:
                self.allowed[self.leader[i]] = self.allowed[self.leader[i]] & self.allowed[i]
        self.weight = [n.packets for n in nodes] + [0] * (len(self.leader) - len(nodes))
        for i in range(len(nodes)):
            if self.leader[i] != i:
                self.weight[self.leader[i]] = max(self.weight[self.leader[i]], self.weight[i])

    def allowed_of(self, element: int) -> NDArray[np.bool_]:
        places = len(self.instance.target.places)
        ok = np.ones(places, np.bool_)
        if element < len(self.instance.allowed):
            ok &= self.instance.allowed[element]
        for state, component in self.components.items():
            if self.home[component] == element:
                there = {o.place for o in self.instance.options[state]}
                ok &= np.array([p in there for p in range(places)])
        return ok

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
        self.weight[into] = max(self.weight[into], self.weight[unit])

    def contract_unseen(self) -> None:
        reached: dict[int, set[int]] = defaultdict(set)
        for edge in self.instance.graph.edges:
            reached[edge.target].add(edge.source)
        for i, node in enumerate(self.instance.graph.nodes):
            sources = {self.find(s) for s in reached[i]}
            if node.packets or node.piece.component is not None or len(sources) != 1:
                continue
            into = sources.pop()
            if (self.allowed[i] | ~self.allowed[into]).all():
                self.merge(into, i)

    def join_cycles(self) -> None:
        import networkx as nx

        _, after = self.adjacency()
        graph = nx.DiGraph((source, target) for source, targets in after.items() for target in targets)
        for cycle in nx.strongly_connected_components(graph):
            first, *rest = sorted(cycle)
            for unit in rest:
                self.allowed[first] = self.allowed[first] & self.allowed[unit]
                self.stateful |= {first} if unit in self.stateful else set()
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

    def units(self) -> Units:
        instance = self.instance
        roots = sorted({self.find(i) for i in range(len(self.leader))})
        number = {root: i for i, root in enumerate(roots)}
        of_node = tuple(number[self.find(i)] for i in range(len(instance.graph.nodes)))
        cost = np.zeros((len(roots), *instance.node_cost.shape[1:]))
        np.add.at(cost, np.array(of_node), instance.node_cost)
        return Units(
            of_node,
            {state: number[self.find(self.home[component])] for state, component in self.components.items()},
            np.array([self.allowed[root] for root in roots]),
            cost,
            tuple(self.weight[root] > 0 for root in roots),
            self.edges(of_node),
        )

    def edges(self, of_node: tuple[int, ...]) -> tuple[UnitEdge, ...]:
        grouped: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, edge in enumerate(self.instance.graph.edges):
            pair = of_node[edge.source], of_node[edge.target]
            if pair[0] != pair[1]:
                grouped[pair].append(i)
        return tuple(
            UnitEdge(source, target, self.instance.edge_cross[rows].sum(axis=0),
                     np.logical_and.reduce(self.instance.crossable[rows]), float(self.instance.edge_share[rows].sum()))
            for (source, target), rows in grouped.items()
        )
