"""One goal over all variants: branch and bound, of which most variants see no more than a few prices.

A node is a variant with some of its units at a place each. The one with the least bound comes next: bounds are first
looked for among prices that are known (`cora.partition.certificates`), then by the relaxation. What the relaxation
halves is above all where the packets of a heavy unit go, so the places of the heaviest halved unit are told apart;
where nothing is halved but memories, or after a few units, the solver takes the node as an integer program.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cora.partition.certificates import ANY, Case
from cora.partition.fast import weights_of
from cora.partition.integer import Goal, Limits, Model, Setting
from cora.partition.mixed import Floats

if TYPE_CHECKING:
    from cora.partition.optimise import Optimiser, Top

# Columns from which on a program is large: then branching is left to the fast search and the solver.
LARGE = 1500
# Units whose places are told apart one below the other.
_DEPTH = 5
_WHOLE = 1e-6
# Units with this share of the heaviest one's packets are heavy.
_HEAVY = 0.3
# Seconds for bounds after the time is over.
_LATE = 0.5


@dataclass(order=True)
class _Node:
    low: float
    number: int
    variant: int = field(compare=False)
    case: Case = field(compare=False)
    # The relaxation, once it was solved.
    values: Floats | None = field(compare=False, default=None)
    # Its parts are in the tree.
    done: bool = field(compare=False, default=False)


class Tree:
    """The search for one goal. ``top``: the best at hand; ``lows``: what is proven of each variant.

    ``solves``: whether nodes are searched as integer programs.
    """

    def __init__(self, optimiser: Optimiser, goal: Goal, setting: Setting, limits: Limits, top: Top | None,
                 solves: bool = True) -> None:
        self.solves = solves
        # Another deadline than the optimiser's.
        self.until: float | None = None
        self.optimiser, self.goal, self.setting, self.limits, self.top = optimiser, goal, setting, limits, top
        self.nodes: list[_Node] = []
        self.count = 0
        self.lows: dict[int, float] = {}
        # Per structure a variant whose relaxation was solved but not branched yet.
        self.leaders: dict[int, _Node] = {}

    def run(self, variants: Iterable[tuple[int, float]]) -> float:
        """Search variants, each with a bound that is known of it; what is proven of all of them.

        A little time is taken for relaxations even when none is left, so that a plan can tell its gap.
        """
        for variant, low in variants:
            self.push(low, variant, ANY)
        self.look(self.optimiser.deadline)
        if self.optimiser.rest() <= 0:
            self.solves, self.until = False, time.perf_counter() + _LATE
            self.look(self.until)
        for node in self.nodes:
            if not node.done:
                self.close(node.variant, node.low)
        return min(self.lows.values(), default=math.inf)

    def look(self, until: float) -> None:
        """Take the node with the least bound, again and again."""
        while self.nodes and not self.closed(self.nodes[0].low) and time.perf_counter() < until:
            node = heapq.heappop(self.nodes)
            if node.values is None:
                self.relax(node)
            elif not node.done:
                self.expand(node, node.values)

    def push(self, low: float, variant: int, case: Case, values: Floats | None = None) -> _Node:
        self.count += 1
        node = _Node(low, self.count, variant, case, values)
        heapq.heappush(self.nodes, node)
        return node

    def closed(self, low: float) -> bool:
        """Whether nothing above a bound is worth finding."""
        return self.top is not None and low >= self.optimiser.better(self.top.value)

    def close(self, variant: int, low: float) -> None:
        """Nothing below ``low`` in a node of the variant."""
        self.lows[variant] = min(low, self.lows.get(variant, math.inf))

    def model(self, node: _Node) -> Model:
        return self.optimiser.model(node.variant, self.setting)

    def relax(self, node: _Node) -> None:
        """Find a bound of a node: by known prices if they do, else by its relaxation."""
        model, shared = self.model(node), self.optimiser.shared
        low = max(node.low, shared.bound(model, self.goal, self.limits, node.case))
        if not self.closed(low) and node.case == ANY and self.follow(model):
            low = max(low, shared.bound(model, self.goal, self.limits))
        if self.closed(low):
            self.push(low, node.variant, node.case)
            return
        if not model.impossible:
            model.fix(dict(node.case))
        found = self.optimiser.relaxation(model, self.goal, self.limits, self.top, self.until,
                                         partial(self.torn, model) if self.may_branch(node, model) else None)
        if found is None:
            return
        proven, values = found
        if values is None:
            # There was no time for it.
            self.close(node.variant, max(low, proven))
            return
        shared.learn(model, self.goal, self.limits, node.case)
        low = max(low, proven)
        made = self.push(low, node.variant, node.case, values)
        if not self.closed(low):
            self.round(model, node.variant, values)
            if node.case == ANY:
                self.leaders.setdefault(id(model.structure), made)

    def follow(self, model: Model) -> bool:
        """Branch another variant with this structure if it waits for that, so that the prices of its cases are known.
        """
        leader = self.leaders.pop(id(model.structure), None)
        if leader is None or leader.done or leader.values is None or not self.branches(model):
            return False
        unit = self.halved(self.model(leader), leader.values)
        if unit is None:
            return False
        for part in self.parts(leader, unit):
            self.nodes.remove(part)
            self.relax(part)
        heapq.heapify(self.nodes)
        return True

    def round(self, model: Model, variant: int, values: Floats) -> None:
        """Try the assignment that a relaxation is nearest to."""
        assignment = model.rounded(values)
        if assignment is not None:
            self.improve(self.optimiser.judged(model, variant, assignment, self.goal, self.limits))

    def improve(self, candidate: Top | None) -> None:
        if candidate is not None and (self.top is None or candidate.value < self.top.value):
            self.top = candidate

    def expand(self, node: _Node, values: Floats) -> None:
        """Tell the places of a unit apart, or let the solver search the node."""
        model = self.model(node)
        unit = self.halved(model, values) if self.may_branch(node, model) else None
        if unit is None:
            if self.solves:
                self.solve(node, model)
            else:
                self.close(node.variant, node.low)
            return
        self.parts(node, unit)

    def parts(self, node: _Node, unit: int) -> list[_Node]:
        """Put a node's cases into the tree instead of it: a unit at each of its places."""
        model = self.model(node)
        node.done = True
        self.optimiser.shared.branch(model, self.goal, node.case, unit)
        return [self.push(node.low, node.variant, node.case | {(unit, int(place))})
                for place in model.allowed[unit].nonzero()[0]]

    def may_branch(self, node: _Node, model: Model) -> bool:
        return self.branches(model) and len(node.case) < _DEPTH

    def torn(self, model: Model, values: Floats) -> bool:
        """Whether a relaxation is about to be told apart by a heavy unit anyway, so that its exact value is no use."""
        unit = self.halved(model, values)
        weights = weights_of(model.problem)
        return unit is not None and bool(weights[unit] >= _HEAVY * weights.max())

    def branches(self, model: Model) -> bool:
        return model.solver == "highs" and model.variables <= LARGE

    @staticmethod
    def halved(model: Model, values: Floats) -> int | None:
        """The heaviest unit that the relaxation does not put at one place."""
        beyond = np.where(model.column >= 0, values[model.column], model.fixed)
        halved = (np.abs(beyond - np.rint(beyond)) > _WHOLE).any(axis=1)
        return int(np.where(halved, weights_of(model.problem), -1.0).argmax()) if halved.any() else None

    def solve(self, node: _Node, model: Model) -> None:
        """Search a node as an integer program."""
        optimiser = self.optimiser
        if model.variables > LARGE and model.solver == "highs":
            candidate, proven = optimiser.solve_in_parts(model, node.variant, self.goal, self.limits, self.top)
        else:
            model.fix(dict(node.case))
            candidate, proven = optimiser.solve(model, node.variant, self.goal, self.limits, self.top)
        self.improve(candidate)
        self.close(node.variant, max(node.low, -math.inf if proven is None else proven))
