"""The integer program of a numeric placement problem (docs/plan.md, "The integer program").

Columns: per unit u and virtual place l > 0 a binary a[u,l], "u is at l or beyond"; per whole state and option a binary
x; per copied state and option a binary y, "a copy is kept so", and per user a continuous w, "its accesses go there";
per edge and middle place a continuous "packets come to this place here"; per code store and group of units a continuous
"its code is here"; per resource its utilisation; the host's work, the soft maximum and the latency.

The soft maximum and the queueing are convex functions of the utilisations. They are outer-approximated by tangents:
every cut holds for all assignments, so bounds stay bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from cora.models.latency import erlang_c
from cora.models.target import Resource
from cora.partition.evaluate import demand_of, latency_of, norm, utilisation
from cora.partition.mixed import GAP, Builder, Floats, Ints, MixedProgram, Session, session
from cora.partition.problem import Assignment, CopyOption, Option, Problem, Vector
from cora.partition.solver import Outcome
from cora.partition.structure import Structure

Goal = Literal["host", "load", "latency"]
# Coefficients are scaled to about 1; what lies this far below is rounding.
_TINY = 1e-12
# Latencies in the program are microseconds.
MICRO = 1e-3
# A relaxed column above this counts as one: a little more than half, so that halves stay near the wire.
_HALF = 0.501


@dataclass(frozen=True)
class Limits:
    """Bounds beside the goal, None for none: the soft maximum, host cores' worth of work, nanoseconds of latency."""

    load: float | None = None
    host: float | None = None
    latency: float | None = None


@dataclass(frozen=True)
class Setting:
    """What the program is for.

    Attributes:
        rate: packets a second; scales utilisations.
        cores: host cores; with none nothing may be at the host.
        latency_rate: packets a second at which latency is told; None: without queueing, whatever the rate.
        memory: False leaves out the sizes of memories and code stores, to find out whether they are what fails.
    """

    rate: float
    cores: int
    latency_rate: float | None = None
    memory: bool = True


def queue_and_slope(resource: Resource, cores: int, offered: float) -> tuple[float, float]:
    """Mean number of waiting packets of M/M/c and its derivative, both by the offered load in Erlang (below c).

    L = C a / (c - a); with Erlang's B: B' = B (c/a - 1 + B), C = c B / (c - a (1 - B)). L is convex in a (Lee and
    Cohen, 1983: "A note on the convexity of performance measures of M/M/c queueing systems").
    """
    servers = resource.servers * (cores if resource.scales else 1)
    if offered <= 0:
        return 0.0, 0.0
    waits = erlang_c(servers, offered)
    blocked = waits * (servers - offered) / (servers - waits * offered)
    blocked_slope = blocked * (servers / offered - 1 + blocked)
    below = servers - offered * (1 - blocked)
    waits_slope = servers * (blocked_slope * below + blocked * (1 - blocked - offered * blocked_slope)) / below**2
    queue = waits * offered / (servers - offered)
    return queue, waits_slope * offered / (servers - offered) + waits * servers / (servers - offered) ** 2


class Model:
    """The program of one problem in one setting, in a solver; solved for several goals under several limits."""

    def __init__(self, problem: Problem, setting: Setting, solver: str, structure: Structure | None = None) -> None:
        """``structure``: the problem's, where it is known already."""
        self.problem = problem
        self.setting = setting
        self.solver = solver
        self.spots = len(problem.physical)
        self.structure = made = structure or Structure(problem, setting.cores, setting.memory)
        self.allowed, self.column, self.fixed = made.allowed, made.column, made.fixed
        self.options, self.copies, self.accesses = made.options, made.copies, made.accesses
        self.visits, self.groups = made.visits, made.groups
        self.columns = made.columns
        self._filled()
        self._demand()
        self._goals()
        self.integer = np.flatnonzero(self.structure.program.integer)
        self.cuts: list[tuple[Ints, Floats, float, float]] = []

    @cached_property
    def _built(self) -> _Built:
        return _Built(self)

    @property
    def program(self) -> MixedProgram:
        """All of it but the cuts. It is built when it is asked for: most models only say what things use."""
        return self._built.program

    @property
    def rows(self) -> int:
        return len(self.program.row_lower)

    @property
    def room_rows(self) -> Ints:
        """Rows of stores, ceilings and code stores, -1 where there is none because they cannot be overfull."""
        return np.concatenate([self._built.store_rows, self.structure.code_rows])

    @property
    def load_rows(self) -> dict[int, int]:
        """Per resource in use the row that says what its utilisation is."""
        return self._built.load_rows

    @property
    def host_rows(self) -> dict[int, int]:
        """Per resource of host cores the row that holds host work above it."""
        return self._built.host_rows

    @cached_property
    def impossible(self) -> bool:
        """Whether no assignment can be, told without a solver."""
        return self.structure.impossible or self.program.impossible

    @cached_property
    def session(self) -> Session:
        """The program in the solver, with the cuts so far."""
        made = session(self.program, self.solver)
        for cut in self.cuts:
            made.add_row(*cut)
        return made

    def _cut(self, index: Ints, value: Floats, low: float, high: float) -> None:
        """Add a row that all assignments keep."""
        self.cuts.append((index, value, low, high))
        if "session" in self.__dict__:
            self.session.add_row(index, value, low, high)

    def _filled(self) -> None:
        """``filled``: rows of memories and ceilings, columns, and shares of a capacity that they take; ``room``: [rows]
        the capacities in these units."""
        problem = self.problem
        options: list[Option | CopyOption] = [o for s in problem.whole for o in s.options]
        options += [o for s in problem.copied for o in s.options]
        number = np.concatenate([np.zeros(0, np.intp), *self.options, *self.copies])
        store, amount = np.array([o.store for o in options], np.intp), np.array([o.amount for o in options], float)
        capacity = np.array([*(s.capacity for s in problem.stores), *(c.capacity for c in problem.ceilings)], float)
        scale = np.maximum(capacity, 1.0)
        found = [(store, number, amount / scale[store])]
        for row, ceiling in enumerate(problem.ceilings, len(problem.stores)):
            there = np.isin(store, ceiling.stores)
            found.append((np.full(int(there.sum()), row), number[there], amount[there] / scale[row]))
        self.filled: tuple[Ints, Ints, Floats] = (
            np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]),
            np.concatenate([f[2] for f in found]))
        self.room = capacity / scale

    # What it uses.

    def _demand(self) -> None:
        """Mean demand of a packet: ``constant`` [K + 1] and ``used`` [columns, K + 1]."""
        problem = self.problem
        source, target = problem.ends
        by_place = np.diff(problem.cost, axis=1, prepend=0.0)
        step = problem.cross.copy()
        step[:, -1] += problem.visit[:, -1] if self.spots > 1 else 0.0
        step[:, 0] = 0.0
        np.add.at(by_place, target, step)
        np.subtract.at(by_place, source, step)
        free = self.column[:, : self.spots] >= 0
        self.constant = problem.base + (by_place * self.fixed[:, : self.spots, None])[~free].sum(axis=0)
        self.used = np.zeros((self.columns, len(problem.base)))
        np.add.at(self.used, self.column[:, : self.spots][free], by_place[free])
        if problem.whole:
            self.used[np.concatenate(self.options)] = [o.cost for s in problem.whole for o in s.options]
        for copied, used in zip(problem.copied, self.accesses, strict=True):
            for option, columns in zip(copied.options, used.T, strict=True):
                self.used[columns] = option.cost
        for place, edges, columns in self.visits:
            self.used[columns] = problem.visit[edges, place]

    def _goals(self) -> None:
        """Columns of the goals: one a resource that is used and there, its utilisation, and one each for host work,
        soft maximum and latency. ``scale`` [K]: utilisation by one unit a packet; ``service`` [K + 1]: nanoseconds.
        """
        resources = self.problem.resources
        anything = np.abs(self.used).sum(axis=0) + np.abs(self.constant)
        available = np.array([r.rate * (self.setting.cores if r.scales else 1) for r in resources])
        self.host, self.load, self.latency, self.queue = range(self.columns, self.columns + 4)
        there = (anything[:-1] > 0) & (available > 0)
        self.missing = np.flatnonzero((anything[:-1] > 0) & (available <= 0))
        self.loads = {int(c): self.columns + 4 + i for i, c in enumerate(np.flatnonzero(there))}
        self.scale = np.where(there, self.setting.rate / np.where(there, available, 1.0), 0.0)
        self.service = np.array([*(1e9 * r.servers / r.rate if r.rate else 0.0 for r in resources), 1.0])
        self.unqueued = self.columns + 4 + len(self.loads)
        self.variables = self.unqueued + 1

    # Cuts.

    def cut_load(self, loads: Vector) -> None:
        """Cut at utilisations [K]: |u|_s >= g.u for every u, g being the dual norm's unit vector there."""
        top = float(loads.max())
        exponent = self.problem.exponent
        weights = (loads / top) ** exponent
        dual = np.where(loads > 0, weights / np.where(loads > 0, loads / top, 1.0), 0.0)
        dual /= float(weights.sum()) ** (1.0 - 1.0 / exponent)
        used = [c for c in self.loads if dual[c] > _TINY]
        columns = np.array([self.load, *(self.loads[c] for c in used)])
        self._cut(columns, np.array([1.0, *(-dual[c] for c in used)]), 0.0, np.inf)

    def queueing(self, loads: Vector) -> float:
        """Microseconds the mean packet waits in queues at utilisations [K] below 1."""
        rate = self.setting.latency_rate
        assert rate is not None
        total = 0.0
        for c in self.loads:
            resource = self.problem.resources[c]
            servers = resource.servers * (self.setting.cores if resource.scales else 1)
            offered = float(loads[c]) * rate / self.setting.rate * servers
            total += queue_and_slope(resource, self.setting.cores, offered)[0]
        return total * 1e9 / rate * MICRO

    def cut_latency(self, loads: Vector) -> None:
        """Cut at utilisations [K] below 1: the time in queues lies above its tangent plane there.

        By Little's law the mean wait of a packet is the sum of mean queues over the rate.
        """
        rate = self.setting.latency_rate
        assert rate is not None
        scale, columns, values, constant = MICRO * 1e9 / rate, [self.queue], [1.0], 0.0
        share = rate / self.setting.rate
        for c, column in self.loads.items():
            resource = self.problem.resources[c]
            servers = resource.servers * (self.setting.cores if resource.scales else 1)
            offered = float(loads[c]) * share * servers
            queue, slope = queue_and_slope(resource, self.setting.cores, offered)
            if slope * scale > _TINY:
                columns.append(column)
                values.append(-slope * share * servers * scale)
                constant += (queue - slope * offered) * scale
        self._cut(np.array(columns), np.array(values), constant, np.inf)

    def cut_assignment(self, assignment: Assignment) -> None:
        """Leave out one assignment of units and whole states (and whatever copies go with it)."""
        columns = np.concatenate([self.integer[: self._deciding()]])
        values = self.values_of(assignment)[columns]
        self._cut(columns, np.where(values > 0.5, -1.0, 1.0), 1.0 - float((values > 0.5).sum()), np.inf)

    def _deciding(self) -> int:
        return int(np.searchsorted(self.integer, self.copies[0][0])) if self.copies else len(self.integer)

    # Solving.

    def solve(self, goal: Goal, limits: Limits, seconds: float, relaxed: bool = False,
              start: Assignment | None = None, gap: float = GAP) -> Outcome:
        """Minimise a goal. The soft maximum and the queueing are outer-approximated by the cuts so far."""
        if self.impossible:
            return Outcome("infeasible", [], float("inf"), None, 0.0)
        self.limit(limits)
        values = None if start is None or relaxed else self.values_of(start)
        return self.session.run(self.objective(goal), seconds, relaxed, values, gap)

    def objective(self, goal: Goal) -> Floats:
        found = np.zeros(self.variables)
        found[{"host": self.host, "load": self.load, "latency": self.latency}[goal]] = 1.0
        return found

    def limit(self, limits: Limits) -> None:
        """Set the bounds beside the goal."""
        upper = [np.inf if x is None else x * factor for x, factor in
                 ((limits.host, 1.0), (limits.load, 1.0), (limits.latency, MICRO))]
        self.session.bound_columns(np.array([self.host, self.load, self.latency]), np.zeros(3), np.array(upper))

    def fix(self, fixed: Mapping[int, int]) -> None:
        """Bound the columns of units to a place each, and of all others not."""
        lower, upper = self.bounds(fixed)
        self.session.bound_columns(self.integer, lower[self.integer], upper[self.integer])

    def bounds(self, fixed: Mapping[int, int]) -> tuple[Floats, Floats]:
        """[columns] bounds with units at a place each."""
        lower, upper = np.zeros(self.columns), np.ones(self.columns)
        for unit, place in fixed.items():
            for beyond in range(1, self.spots):
                column = self.column[unit, beyond]
                if column >= 0:
                    lower[column] = upper[column] = float(place >= beyond)
        return lower, upper

    def value(self, goal: Goal, objective: float) -> float:
        """An objective of the program in the goal's own unit (latency in nanoseconds)."""
        return objective / MICRO if goal == "latency" else objective

    def assignment(self, values: Sequence[float]) -> Assignment:
        """The assignment that a solution stands for."""
        found = np.asarray(values)
        beyond = np.where(self.column >= 0, found[self.column], self.fixed)[:, 1:-1]
        places = np.rint(beyond).sum(axis=1).astype(int).tolist()
        whole = [int(found[c].argmax()) for c in self.options]
        return Assignment(tuple(places), tuple(whole), tuple(self._copies_for(places, found)))

    def rounded(self, relaxed: Floats) -> Assignment | None:
        """The assignment a relaxed solution is nearest to, legal or not; None where a state has no option there."""
        beyond = np.where(self.column >= 0, relaxed[self.column], self.fixed)[:, 1:-1]
        places = (beyond > _HALF).sum(axis=1).tolist()
        physical, whole = self.problem.physical, []
        for state, columns in zip(self.problem.whole, self.options, strict=True):
            there = {physical[places[u]] for u in state.units}
            fine = [i for i, o in enumerate(state.options) if not there or o.place in there]
            if not fine:
                return None
            whole.append(max(fine, key=lambda i: float(relaxed[columns[i]])))
        return Assignment(tuple(places), tuple(whole), tuple(self._copies_for(places, relaxed)))

    def _copies_for(self, places: Sequence[int], found: Floats) -> Iterator[dict[int, int]]:
        """Per copied state, at each place that uses it, the option with most of a solution."""
        for state, columns in zip(self.problem.copied, self.copies, strict=True):
            needed = dict.fromkeys(self.problem.physical[places[u]] for u in state.users)
            yield {p: max((i for i, o in enumerate(state.options) if o.place == p),
                          key=lambda i: float(found[columns[i]])) for p in needed}

    def loads_in(self, values: Sequence[float]) -> Vector:
        """[K] the utilisations of a solution, whole or relaxed."""
        found = np.zeros(len(self.problem.resources))
        for column, variable in self.loads.items():
            found[column] = max(0.0, values[variable])
        return found

    def values_of(self, assignment: Assignment) -> Floats:
        """All columns of an assignment, to begin a search with."""
        problem, setting = self.problem, self.setting
        values = np.zeros(self.variables)
        places = np.array(assignment.places, np.intp)
        beyond = places[:, None] >= np.arange(self.spots + 1)
        free = self.column >= 0
        values[self.column[free]] = beyond[free]
        for columns, number in zip(self.options, assignment.whole, strict=True):
            values[columns[number]] = 1.0
        for state, kept, used, chosen in zip(problem.copied, self.copies, self.accesses, assignment.copies,
                                             strict=True):
            values[kept[list(chosen.values())]] = 1.0
            for i, user in enumerate(state.users):
                values[used[i, chosen[problem.physical[places[user]]]]] = 1.0
        source, target = problem.ends
        for place, edges, columns in self.visits:
            values[columns] = (places[target[edges]] == place) & (places[source[edges]] < place)
        physical = np.array(problem.physical)[places]
        for number, pieces, columns in self.groups:
            there = set(np.flatnonzero(physical == problem.code[number].place).tolist())
            values[columns] = [bool(units & there) for units, _ in pieces]
        demand = demand_of(problem, assignment)
        loads = utilisation(problem, demand, setting.cores, setting.rate)
        for column, variable in self.loads.items():
            values[variable] = loads[column]
        scaled = [float(loads[c]) * setting.cores for c, r in enumerate(problem.resources) if r.scales]
        values[self.host] = max(scaled, default=0.0) if setting.cores else 0.0
        values[self.load] = norm(problem, loads)
        values[self.unqueued] = MICRO * float(demand @ self.service)
        values[self.latency] = max(values[self.unqueued], MICRO * self.worth("latency", demand))
        values[self.queue] = values[self.latency] - values[self.unqueued]
        return values

    def worth(self, goal: Goal, demand: Vector) -> float:
        """What an assignment with this demand truly reaches; infinite where there is no such thing."""
        return goal_of(self.problem, self.setting, goal, demand)


class _Built:
    """A model's program: the structure's, and rows for memories and goals."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.build = Builder(model.structure.program)
        self.load_rows: dict[int, int] = {}
        self.host_rows: dict[int, int] = {}
        self._stores()
        self._loads()
        self.program = self.build.program()

    def _stores(self) -> None:
        model = self.model
        row, column, share = model.filled
        full = np.bincount(row, share, len(model.room)) > model.room
        self.store_rows = np.full(len(full), -1, np.intp)
        if model.setting.memory:
            self.store_rows[full] = self.build.add_rows(np.full(int(full.sum()), -np.inf), model.room[full])
            there = full[row] & (share > 0)
            self.build.add_entries(self.store_rows[row[there]], column[there], share[there])

    def _loads(self) -> None:
        model = self.model
        self.build.add_columns(model.variables - model.columns, upper=np.inf)
        for none in model.missing:
            # Nothing of this resource: whatever uses it is out.
            self._sum(model.used[:, none], model.constant[none], None)
        for resource, load in model.loads.items():
            scale = model.scale[resource]
            self.load_rows[resource] = self.build.rows
            self._sum(model.used[:, resource] * scale, model.constant[resource] * scale, load)
            self._above(model.load, {load: 1.0})
            if model.problem.resources[resource].scales:
                self.host_rows[resource] = self.build.rows
                self._above(model.host, {load: float(model.setting.cores)})
        # Service adds to the unloaded latency: it is what tells memories apart that nothing waits for.
        self._sum(model.used @ model.service * MICRO, float(model.constant @ model.service) * MICRO, model.unqueued)
        self._above(model.latency, {model.unqueued: 1.0, model.queue: 1.0})

    def _above(self, column: int, others: Mapping[int, float]) -> None:
        """A column is at least a sum of others."""
        row = self.build.add_rows(np.zeros(1), np.full(1, np.inf))
        self.build.add_entries(np.repeat(row, 1 + len(others)), np.array([column, *others], np.intp),
                               np.array([1.0, *(-factor for factor in others.values())]))

    def _sum(self, values: Floats, constant: float, result: int | None) -> None:
        """``result = constant + values . columns``; or at most 0 without a result."""
        row = self.build.add_rows(np.array([0.0 if result is not None else -np.inf]), np.zeros(1))
        nonzero = np.flatnonzero(np.abs(values) > _TINY)
        self.build.add_entries(np.repeat(row, len(nonzero)), nonzero, values[nonzero])
        self.build.add_constants(row, np.array([constant]))
        if result is not None:
            self.build.add_entries(row, np.array([result]), np.array([-1.0]))


def goal_of(problem: Problem, setting: Setting, goal: Goal, demand: Vector) -> float:
    """What a demand [K + 1] comes to for a goal, in its unit: it grows with every use. Infinite where something is used
    that is not there."""
    loads = utilisation(problem, demand, setting.cores, setting.rate)
    if goal == "load":
        return norm(problem, loads)
    if goal == "latency":
        return _latency(problem, setting, demand, loads)
    scaled = [float(u) for u, r in zip(loads, problem.resources, strict=True) if r.scales]
    top = max(scaled, default=0.0)
    return top * setting.cores if top and not math.isinf(top) else top


def _latency(problem: Problem, setting: Setting, demand: Vector, loads: Vector) -> float:
    """Nanoseconds of the mean packet, with queueing where the setting counts it."""
    if math.isinf(loads.max(initial=0.0)):
        return math.inf
    if setting.latency_rate is not None:
        return latency_of(problem, demand, setting.cores, setting.latency_rate).total
    service = [1e9 * r.servers / r.rate if r.rate else 0.0 for r in problem.resources]
    return float(demand @ np.array([*service, 1.0]))
