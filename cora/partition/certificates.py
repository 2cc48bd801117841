"""Prices that prove a lower bound of one problem, tried on others of the same structure.

For weights w >= 0 of utilisations u and any prices y of a structure's rows, the goal of every assignment x is at least

    w.u(x) - (what the limits allow, priced)  >=  w.u(0) - limits + y.b + sum_j min over the bounds of x_j (c_j - A_j.y)

with c_j what column j adds to w.u. Nothing is solved for it, so that a variant of a plan that is far from the best is
passed over in a fraction of a millisecond. Where a bound needs cases (a unit at each of its places), every case has
prices of its own. The weights come from a relaxation of the integer program; any others would be as right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cora.partition.integer import MICRO, Goal, Limits, Model, Setting
from cora.partition.mixed import Floats, Highs
from cora.partition.problem import Problem, Vector
from cora.partition.structure import Structure, structure_key

# Units at places: a case.
Case = frozenset[tuple[int, int]]
ANY: Case = frozenset()
# Prices kept for one case.
_KEPT = 3


@dataclass(frozen=True)
class Certificate:
    """Prices of one case.

    Attributes:
        weights: [K] of utilisations; latency: of the latency without queueing.
        load, host: prices of a unit of the limits of soft maximum and host work.
        rooms: of memories and ceilings, whose rows are each problem's own.
        columns: [columns] sum_i A_ij y_i over the structure's rows; rows: y.b.
        lower, upper: [columns] bounds in this case.
    """

    weights: Vector
    latency: float
    load: float
    host: float
    rooms: Vector
    columns: Floats
    rows: float
    lower: Floats
    upper: Floats

    def bound(self, model: Model, limits: Limits) -> float:
        """The goal's least value in this case, in the program's own unit; minus infinity where nothing is proven."""
        if self.rooms.size != model.room.size:
            return -math.inf
        total = self.rows
        for price, limit in ((self.load, limits.load), (self.host, limits.host)):
            if price > 0 and limit is None:
                return -math.inf
            total -= price * (limit or 0.0)
        one = model.service * self.latency
        one[:-1] += self.weights * model.scale
        row, column, share = model.filled
        left = model.used @ one - self.columns + np.bincount(column, self.rooms[row] * share, model.columns)
        total -= float(self.rooms @ model.room)
        return total + float(model.constant @ one) + float(np.where(left > 0, self.lower, self.upper) @ left)


def certificate(model: Model, goal: Goal, limits: Limits, case: Case) -> Certificate | None:
    """The prices of the relaxation that was solved last; None where the queueing counts, which is not linear."""
    session = model.session
    if not isinstance(session, Highs) or limits.latency is not None or (goal == "latency"
                                                                        and model.setting.latency_rate is not None):
        return None
    duals, _ = session.prices()
    loads, hosts = np.zeros(len(model.problem.resources)), np.zeros(len(model.problem.resources))
    loads[list(model.load_rows)] = -duals[list(model.load_rows.values())]
    hosts[list(model.host_rows)] = np.maximum(duals[list(model.host_rows.values())], 0.0)
    if goal == "host":
        hosts = hosts / max(1.0, float(hosts.sum()))
    weights = np.maximum(loads - model.setting.cores * hosts, 0.0)
    dual = model.problem.exponent / (model.problem.exponent - 1)
    size = float((weights**dual).sum() ** (1 / dual))
    # The soft maximum is at least g.u for every g with a dual norm of at most 1.
    scale = max(1.0, size) if goal == "load" else 1.0
    if goal != "load" and limits.load is None:
        weights, size = np.zeros_like(weights), 0.0
    if goal != "host" and limits.host is None:
        hosts = np.zeros_like(hosts)
    program = model.structure.program
    prices = duals[: model.structure.rows] / scale
    prices = np.where((prices > 0) & np.isinf(program.row_lower) | (prices < 0) & np.isinf(program.row_upper), 0.0,
                      prices)
    rows = model.room_rows[: len(model.room)]
    rooms = np.where(rows >= 0, np.maximum(-duals[rows], 0.0), 0.0) / scale
    sides = np.where(prices > 0, program.row_lower, program.row_upper)
    each = np.repeat(prices, np.diff(program.start)) * program.value
    lower, upper = model.bounds(dict(case))
    return Certificate(
        (weights + model.setting.cores * hosts) / scale, MICRO if goal == "latency" else 0.0,
        0.0 if goal == "load" else size, 0.0 if goal == "host" else float(hosts.sum()) / scale, rooms,
        np.bincount(program.index, weights=each, minlength=model.columns).astype(float),
        float(prices[prices != 0] @ sides[prices != 0]), lower, upper)


@dataclass
class Shared:
    """What problems of one target have in common: their structures, and what is proven by prices."""

    structures: dict[tuple[object, ...], Structure] = field(default_factory=dict)
    _prices: dict[tuple[int, Setting, Goal], dict[Case, list[Certificate]]] = field(default_factory=dict)
    _branched: dict[tuple[int, Setting, Goal], dict[Case, int]] = field(default_factory=dict)

    def structure(self, problem: Problem, setting: Setting) -> Structure:
        """The structure of a problem, made once."""
        key = structure_key(problem, setting.cores, setting.memory)
        if key not in self.structures:
            self.structures[key] = Structure(problem, setting.cores, setting.memory)
        return self.structures[key]

    def learn(self, model: Model, goal: Goal, limits: Limits, case: Case) -> None:
        """Keep the prices of the relaxation that was solved last."""
        found = certificate(model, goal, limits, case)
        if found is not None:
            kept = self._prices.setdefault(self._key(model, goal), {}).setdefault(case, [])
            kept.append(found)
            del kept[:-_KEPT]

    def branch(self, model: Model, goal: Goal, case: Case, unit: int) -> None:
        """Remember that the places of a unit are told apart in a case."""
        self._branched.setdefault(self._key(model, goal), {})[case] = unit

    def bound(self, model: Model, goal: Goal, limits: Limits, case: Case = ANY) -> float:
        """The best that all prices known prove of a problem, in the goal's own unit."""
        key = self._key(model, goal)
        prices = self._prices.get(key)
        if prices is None or model.structure.impossible:
            return -math.inf
        return model.value(goal, self._proven(model, limits, case, prices, self._branched.get(key, {})))

    def _proven(self, model: Model, limits: Limits, case: Case, prices: Mapping[Case, list[Certificate]],
                branched: Mapping[Case, int]) -> float:
        found = max((c.bound(model, limits) for c in prices.get(case, ())), default=-math.inf)
        unit = branched.get(case)
        if unit is None:
            return found
        cases = [case | {(unit, int(place))} for place in model.allowed[unit].nonzero()[0]]
        return max(found, min((self._proven(model, limits, c, prices, branched) for c in cases), default=-math.inf))

    @staticmethod
    def _key(model: Model, goal: Goal) -> tuple[int, Setting, Goal]:
        return id(model.structure), model.setting, goal
