"""A fast search for large problems: a good assignment and a lower bound, without an integer program.

Method, and why. The relaxation of the integer program is strong, since moving away from the wire is monotone (crossings
are linear) and only a few rows tie everything together: memories, code stores, the soft maximum. But solving it grows
faster than the square of the blocks, and it halves what all packets share, above all where they start. So:

1. Units that are at one place in every assignment are joined (exact), then pairs of neighbours, until few are left.
2. The relaxation of that small problem is solved with tangents of the soft maximum, and again for each place of the
   heaviest units that it halves. The best of these branches is followed.
3. Groups are halved, and the relaxation is solved again with units only where their group or a neighbour of it was:
   almost all of its columns are constants. This goes on until every unit stands for itself.
4. What is left of fractions is rounded at a threshold, which keeps packets moving away from the wire, and repaired and
   improved by local search with the relaxation's duals as prices (`cora.partition.local`); then by the integer program
   of a kernel of columns: those that the relaxation halves or that would cost little otherwise.
5. The bound is Lagrange's, the least over the branches: with prices fixed, what ties the problem together leaves it,
   and what is left (a closure problem) is solved in a fraction of the time. Any prices give a valid bound.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cora.partition.coarse import contract, expand, forced, paired
from cora.partition.evaluate import ROOM, demand_of, norm, utilisation
from cora.partition.exact import broken_rules
from cora.partition.integer import Goal, Limits, Model, Setting
from cora.partition.local import LocalSearch
from cora.partition.mixed import Highs, only_rows
from cora.partition.problem import Assignment, Problem, Vector

# Units of the problem whose relaxation is solved as a whole.
_SMALL = 200
_TANGENTS = 8
_KEPT = 5
_CLOSE = 1.0005
_THRESHOLDS = (0.3, 0.5, 0.7)
_ROUNDS = 30
# Units with this share of the heaviest one's packets are tried at each of their places, so many one after another.
_HEAVY = 0.3
_BRANCHINGS = 2
# Share of the time after which no more branches are relaxed (their bounds are then told at other prices).
_BRANCHING = 0.4
# Kept from the limit of the soft maximum, for what rounding adds.
_MARGIN = 1e-5
_WHOLE = 1e-6
_POLISH_GAP = 5e-3
# Shares of the time for the local search before the integer program of a kernel, by the columns; what columns of the
# first kernel and of the next one cost at most, as shares of the goal.
_FEW_COLUMNS = 600
_LOCAL_FIRST, _LOCAL_MOSTLY = 0.2, 0.6
_KERNELS = (3e-3, 1e-2, float("inf"))
# Of the time that is left, what the solver is given: it stops late.
_GIVEN = 0.7


@dataclass(frozen=True)
class Quick:
    """The best found and what is proven; None where there was no time or nothing fits. In the goal's unit."""

    assignment: Assignment | None
    value: float
    bound: float | None
    seconds: float

    @property
    def gap(self) -> float | None:
        """Relative distance from the value to the bound."""
        if self.bound is None or self.assignment is None:
            return None
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-12)


@dataclass(frozen=True)
class _Relaxed:
    """A relaxation: its solution, and prices of rooms [rows], loads [K], host work [K] and of the soft maximum.

    ``reduced`` costs [columns] of all columns; ``lower``, ``upper``: bounds of the whole-numbered ones.
    """

    model: Model
    values: NDArray[np.float64]
    value: float
    rooms: Vector
    loads: Vector
    hosts: Vector
    limit: float
    reduced: Vector
    lower: Vector
    upper: Vector

    @property
    def beyond(self) -> Vector:
        """[U, L - 1] the columns a[u,l]."""
        model = self.model
        found: Vector = np.where(model.column >= 0, self.values[model.column], model.fixed)[:, 1:-1]
        return found

    @property
    def at(self) -> Vector:
        """[U, L] how much of a unit is at a place."""
        beyond = self.beyond
        one, none = np.ones((len(beyond), 1)), np.zeros((len(beyond), 1))
        return -np.diff(np.concatenate([one, beyond, none], axis=1), axis=1)


@dataclass(frozen=True)
class Task:
    """What is asked: a setting, a goal and limits beside it."""

    setting: Setting
    goal: Goal
    limits: Limits


def quick(problem: Problem, task: Task, seconds: float, bounded: bool = True) -> Quick:
    """Search for about so many seconds. ``bounded``: also for a lower bound, which takes time of its own."""
    started = time.perf_counter()
    deadline = started + seconds
    levels = _levels(problem)
    points: list[Vector] = []
    branches = _branches(levels[-1][0], task, deadline, points)
    solved = [relaxed for _, relaxed in branches if relaxed is not None]
    if not solved:
        return Quick(None, float("inf"), None, time.perf_counter() - started)
    solved.sort(key=lambda r: r.value)
    best, found, value = solved[0], None, float("inf")
    for relaxed in solved:
        if relaxed.value >= value or (found is not None and time.perf_counter() > deadline):
            break
        made = _refined(levels, relaxed, task, deadline, points)
        if made is None or broken_rules(problem, made):
            continue
        worth = float(relaxed.model.worth(task.goal, demand_of(problem, made)))
        found, value = (made, worth) if worth < value else (found, value)
    bound = _bound(levels, branches, best, task) if bounded and task.goal != "latency" else None
    return Quick(found, value, bound, time.perf_counter() - started)


def _levels(problem: Problem) -> list[tuple[Problem, list[int]]]:
    """The problem with groups of its units, then ever smaller ones with groups of the units of the one before."""
    groups = forced(problem)
    levels = [(contract(problem, groups), groups)]
    while len(levels[-1][0].units) > _SMALL:
        groups = paired(levels[-1][0])
        smaller = contract(levels[-1][0], groups)
        if len(smaller.units) > 0.95 * len(levels[-1][0].units):
            break
        levels.append((smaller, groups))
    return levels


def relax(model: Model, task: Task, deadline: float, points: list[Vector], fixed: Mapping[int, int] | None = None
          ) -> _Relaxed | None:
    """The relaxation with tangents until they change little; None without a solution.

    ``points``: utilisations of tangents that the model has; new ones are added. ``fixed``: units at a place each.
    """
    if fixed is not None:
        model.fix(fixed)
    limits = task.limits
    if limits.load is not None:
        limits = replace(limits, load=limits.load * (1 - _MARGIN))
    found: _Relaxed | None = None
    for _ in range(_TANGENTS):
        outcome = model.solve(task.goal, limits, deadline - time.perf_counter(), relaxed=True)
        if outcome.status != "optimal":
            return found if outcome.status == "unknown" else None
        assert isinstance(model.session, Highs)
        model.session.resume_quickly()
        found = _priced(model, np.asarray(outcome.values), model.value(task.goal, outcome.objective), fixed or {})
        loads = model.loads_in(outcome.values)
        thought = found.values[model.load] if task.goal == "load" else limits.load
        if thought is None or norm(model.problem, loads) <= max(thought, 1e-12) * _CLOSE:
            break
        if time.perf_counter() > deadline:
            break
        model.cut_load(loads)
        points.append(loads)
    return found


def _modelled(problem: Problem, task: Task, points: list[Vector]) -> Model:
    """The program of a problem with the last few tangents."""
    model = Model(problem, task.setting, "highs")
    del points[:-_KEPT]
    for loads in points:
        if not model.impossible:
            model.cut_load(loads)
    return model


def _priced(model: Model, values: NDArray[np.float64], value: float, fixed: Mapping[int, int]) -> _Relaxed:
    assert isinstance(model.session, Highs)
    rows, columns = model.session.prices()
    lower, upper = (bounds[model.integer] for bounds in model.bounds(fixed))
    loads, hosts = np.zeros(len(model.problem.resources)), np.zeros(len(model.problem.resources))
    loads[list(model.load_rows)] = -rows[list(model.load_rows.values())]
    hosts[list(model.host_rows)] = rows[list(model.host_rows.values())]
    rooms = np.where(model.room_rows >= 0, -rows[model.room_rows], 0.0)
    return _Relaxed(model, values, value, np.maximum(rooms, 0.0), np.maximum(loads, 0.0), np.maximum(hosts, 0.0),
                    max(0.0, -float(columns[model.load])), columns, lower, upper)


# Branches.

_Fixed = dict[int, int]


def _branches(problem: Problem, task: Task, deadline: float, points: list[Vector]
              ) -> list[tuple[_Fixed, _Relaxed | None]]:
    """Ways to fix the heaviest units that the relaxation halves, each with its relaxation; all cases are covered."""
    began = time.perf_counter()
    model = _modelled(problem, task, points)
    whole = None if model.impossible else relax(model, task, deadline, points)
    branches: list[tuple[_Fixed, _Relaxed | None]] = [({}, whole)]
    weight = weights_of(problem)
    for _ in range(_BRANCHINGS):
        fixed, relaxed = min(branches, key=lambda b: float("inf") if b[1] is None else b[1].value)
        if relaxed is None or time.perf_counter() > deadline:
            break
        halved = (np.abs(relaxed.at - np.rint(relaxed.at)) > _WHOLE).any(axis=1) & (weight >= _HEAVY * weight.max())
        if not halved.any():
            break
        unit = int(np.where(halved, weight, -1.0).argmax())
        branches.remove((fixed, relaxed))
        there = np.where(model.allowed[unit], relaxed.at[unit], -1.0)
        for position, place in enumerate(np.argsort(-there)[: int(model.allowed[unit].sum())]):
            fixings = {**fixed, unit: int(place)}
            in_time = position == 0 or time.perf_counter() < began + _BRANCHING * (deadline - began)
            branches.append((fixings, relax(model, task, deadline, points, fixings) if in_time else None))
    return branches


def weights_of(problem: Problem) -> Vector:
    """[U] what it takes to move a unit's packets on: in proportion to its share of packets."""
    source, target = problem.ends
    each = problem.cross.sum(axis=(1, 2))
    into, out = (np.bincount(x, weights=each, minlength=len(problem.units)) for x in (target, source))
    found: Vector = np.maximum(into, out)
    return found


# From groups to units.

def _refined(levels: list[tuple[Problem, list[int]]], relaxed: _Relaxed, task: Task, deadline: float,
             points: list[Vector]) -> Assignment | None:
    """Relaxations of ever larger problems near the one before, then local search in the largest."""
    for number in range(len(levels) - 1, 0, -1):
        finer = levels[number - 1][0]
        narrow = replace(finer, allowed=finer.allowed & _near(relaxed)[levels[number][1]])
        # Half of the time that is left is for the local search.
        until = time.perf_counter() + 0.5 * (deadline - time.perf_counter())
        model = _modelled(narrow, task, points)
        found = None if model.impossible else relax(model, task, until, points)
        if found is None:
            rounded = _local(relaxed, levels[number][0], task, deadline)
            return None if rounded is None else _expanded(levels, number, rounded)
        relaxed = found
    rest = deadline - time.perf_counter()
    small = len(relaxed.model.integer) <= _FEW_COLUMNS
    best = _local(relaxed, levels[0][0], task, time.perf_counter() + (_LOCAL_FIRST if small else _LOCAL_MOSTLY) * rest)
    for least in _KERNELS:
        best = _polished(relaxed, best, task, least, deadline) or best
    return None if best is None else expand(best, levels[0][1])


def _polished(relaxed: _Relaxed, best: Assignment | None, task: Task, least: float, deadline: float
              ) -> Assignment | None:
    """The best of what the last relaxation could be, by the integer program of a kernel of its columns, if there is
    time: without those that it decides and that would cost more than ``least`` of its value otherwise."""
    model = relaxed.model
    limits = task.limits
    if limits.load is not None:
        limits = replace(limits, load=limits.load * (1 - _MARGIN))
    if time.perf_counter() >= deadline:
        return None
    rounded = np.rint(relaxed.values[model.integer])
    decided = (np.abs(relaxed.values[model.integer] - rounded) < _WHOLE) & (
        np.abs(relaxed.reduced[model.integer]) > least * abs(relaxed.value))
    lower, upper = np.where(decided, rounded, relaxed.lower), np.where(decided, rounded, relaxed.upper)
    model.session.bound_columns(model.integer, lower, upper)
    top = None
    for _ in range(_TANGENTS):
        if time.perf_counter() >= deadline:
            break
        start = None if best is None else model.values_of(best)[model.integer]
        inside = start is not None and bool(((lower <= start) & (start <= upper)).all())
        outcome = model.solve(task.goal, limits, _GIVEN * (deadline - time.perf_counter()),
                              start=best if inside else None, gap=_POLISH_GAP)
        if not outcome.values:
            break
        found = model.assignment(outcome.values)
        demand = demand_of(model.problem, found)
        if limits.load is None or model.worth("load", demand) <= (task.limits.load or 0.0) * ROOM:
            top = found
            break
        model.cut_load(utilisation(model.problem, demand, task.setting.cores, task.setting.rate))
    if top is None or best is None:
        return top
    better = model.worth(task.goal, demand_of(model.problem, top)) < model.worth(task.goal, demand_of(model.problem,
                                                                                                     best))
    return top if better else best


def _expanded(levels: list[tuple[Problem, list[int]]], number: int, assignment: Assignment) -> Assignment:
    for _, groups in reversed(levels[: number + 1]):
        assignment = expand(assignment, groups)
    return assignment


def _near(relaxed: _Relaxed) -> NDArray[np.bool_]:
    """[U, L] where a unit is in the relaxation, or one next to it is."""
    there = relaxed.at > _WHOLE
    near = there.copy()
    source, target = relaxed.model.problem.ends
    np.logical_or.at(near, source, there[target])
    np.logical_or.at(near, target, there[source])
    return near


def _local(relaxed: _Relaxed, problem: Problem, task: Task, deadline: float) -> Assignment | None:
    scale = max(relaxed.limit, 1e-3 * abs(relaxed.value), 1e-9)
    rooms = np.maximum(relaxed.rooms, 0.02 * scale)
    local = LocalSearch(problem, task.setting, task.goal, task.limits, rooms, scale)
    starts = []
    for threshold in _THRESHOLDS:
        places = (relaxed.beyond >= threshold).sum(axis=1).astype(np.intp)
        local.start(places, _options(local, relaxed, places), _copies(relaxed))
        starts.append((float(local.merit(local.demand, local.filled)), threshold))
    places = (relaxed.beyond >= min(starts)[1]).sum(axis=1).astype(np.intp)
    local.start(places, _options(local, relaxed, places), _copies(relaxed))
    return local.search(deadline, _ROUNDS)


def _options(local: LocalSearch, relaxed: _Relaxed, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Per whole state the option with most of the relaxation at the place where its users are."""
    chosen = []
    for state, columns, first in zip(local.problem.whole, relaxed.model.options, local.first, strict=False):
        there = None if not state.units else int(local.physical[places[state.units[0]]])
        fine = [i for i, o in enumerate(state.options) if there in (None, o.place)]
        key = [(float(relaxed.values[columns[i]]), -float(local.fill[first + i] @ relaxed.rooms)) for i in fine]
        chosen.append(int(first) + fine[max(range(len(fine)), key=key.__getitem__)])
    return np.array(chosen, np.intp)


def _copies(relaxed: _Relaxed) -> list[dict[int, int]]:
    """Per copied state and place the option that the relaxation uses most; the smallest where it uses none."""
    found = []
    for state, columns in zip(relaxed.model.problem.copied, relaxed.model.copies, strict=True):
        often = [(float(relaxed.values[columns[i]]), -o.amount, i) for i, o in enumerate(state.options)]
        found.append({state.options[i].place: i for _, _, i in sorted(often)})
    return found


# The bound.

def _bound(levels: list[tuple[Problem, list[int]]], branches: list[tuple[_Fixed, _Relaxed | None]], best: _Relaxed,
           task: Task) -> float:
    """The least Lagrangian bound of the branches, each at the prices of its own relaxation."""
    of = np.arange(len(levels[0][0].units))
    for _, groups in levels[1:]:
        of = np.array(groups, np.intp)[of]
    found = []
    for fixed, relaxed in branches:
        problem = levels[0][0]
        allowed = problem.allowed.copy()
        for unit, place in fixed.items():
            # One unit of the group: a group may be torn apart, but this unit is at one of its places in any case.
            allowed[np.flatnonzero(of == unit)[0]] &= np.arange(allowed.shape[1]) == place
        found.append(lagrangian(replace(problem, allowed=allowed), relaxed or best, task))
    return min(found)


def lagrangian(problem: Problem, prices: _Relaxed, task: Task) -> float:
    """A lower bound of a goal (host work or load) by pricing what ties a problem together; infinite: impossible.

    For prices w >= 0 of loads, p >= 0 of rooms and weights h of the host's resources (sum at most 1):
    goal >= min over legal x of w.u(x) + p.(A x - b), less |w - cores h|_s* times the limit of the soft maximum, since
    g.u <= |g|_s* |u|_s. For the goal load w is scaled to |w|_s* = 1 instead.
    """
    setting = task.setting
    model = Model(problem, setting, "highs")
    if model.impossible:
        return float("inf")
    dual = problem.exponent / (problem.exponent - 1)
    weights, rooms, cost = prices.loads.copy(), prices.rooms, 0.0
    if task.goal == "load":
        size = float((weights**dual).sum() ** (1 / dual))
        weights, rooms = weights / max(size, 1e-12), rooms / max(size, 1e-12)
    else:
        hosts = prices.hosts / max(1.0, float(prices.hosts.sum()))
        rest = np.maximum(weights - setting.cores * hosts, 0.0)
        weights = rest + setting.cores * hosts
        limit = task.limits.load
        cost = float((rest**dual).sum() ** (1 / dual)) * limit if limit is not None else 0.0
        weights = weights if limit is not None else setting.cores * hosts
    one = np.zeros(len(problem.base))
    scale = np.zeros(len(weights))
    for column in model.loads:
        resource = problem.resources[column]
        scale[column] = setting.rate / (resource.rate * (setting.cores if resource.scales else 1))
    one[:-1] = weights * scale
    objective = np.zeros(model.variables)
    objective[: model.columns] = model.used @ one
    total = float(model.constant @ one) - cost
    program = model.program
    for row, price in zip(model.room_rows, rooms, strict=True):
        if row < 0 or price <= 0:
            continue
        entries = slice(program.start[row], program.start[row + 1])
        np.add.at(objective, program.index[entries], price * program.value[entries])
        total -= price * float(program.row_upper[row])
    kept = np.setdiff1d(np.arange(model.structure.rows), model.room_rows[model.room_rows >= 0])
    outcome = Highs(only_rows(program, kept)).run(objective, 60.0, relaxed=True)
    if outcome.status == "infeasible":
        return float("inf")
    return total + outcome.objective if outcome.status == "optimal" else float("-inf")
