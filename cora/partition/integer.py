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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cora.models.latency import erlang_c
from cora.models.target import Resource
from cora.partition.evaluate import demand_of, latency_of, norm, utilisation
from cora.partition.mixed import GAP, Builder, Floats, Ints, Session, session
from cora.partition.problem import Assignment, CopyOption, Option, Problem, Vector
from cora.partition.solver import Outcome

Goal = Literal["host", "load", "latency"]
# Coefficients are scaled to about 1; what lies this far below is rounding.
_TINY = 1e-12
# Latencies in the program are microseconds.
_MICRO = 1e-3


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

    def __init__(self, problem: Problem, setting: Setting, solver: str) -> None:
        self.problem = problem
        self.setting = setting
        self.solver = solver
        self.build = Builder()
        self.spots = len(problem.physical)
        self.allowed = self._allowed()
        self._place_columns()
        self.options = [self.build.add_columns(len(s.options), integer=True) for s in problem.whole]
        self._edges()
        self._whole()
        self._copies()
        self._orders()
        self._together()
        self._visits()
        self.room_rows = np.full(len(problem.stores) + len(problem.ceilings) + len(problem.code), -1, np.intp)
        self._groups()
        if setting.memory:
            self._stores()
        self.columns = self.build.columns
        self.structure = self.build.rows
        self._demand()
        self._loads()
        self.program = program = self.build.program()
        self.integer = np.flatnonzero(program.integer)
        self.variables, self.rows = len(program.lower), len(program.row_lower)
        self.impossible = bool(~self.allowed.any(axis=1).all()) or program.impossible
        self.session: Session = session(program, solver)

    # Where things are.

    def _allowed(self) -> NDArray[np.bool_]:
        """[U, L] where units may be once the options of their states are taken into account."""
        problem = self.problem
        physical = np.array(problem.physical)
        allowed = problem.allowed.copy()
        if self.setting.cores == 0:
            allowed[:, physical == problem.host] = False
        for state in problem.whole:
            if state.units:
                allowed[list(state.units)] &= np.isin(physical, [o.place for o in state.options])
        for copied in problem.copied:
            if copied.users:
                allowed[list(copied.users)] &= np.isin(physical, [o.place for o in copied.options])
        return allowed

    def _place_columns(self) -> None:
        """a[u,l] for l = 0..L: 1 first, 0 last, in between a column where there is a choice.

        ``column`` [U, L + 1] has its number, -1 where it is the constant in ``fixed``.
        """
        units = len(self.allowed)
        self.column = np.full((units, self.spots + 1), -1, np.intp)
        self.fixed = np.zeros((units, self.spots + 1))
        self.fixed[:, 0] = 1.0
        for place in range(1, self.spots):
            beyond, before = self.allowed[:, place:].any(axis=1), self.allowed[:, :place].any(axis=1)
            same = beyond & before & ~self.allowed[:, place - 1]
            new = beyond & before & self.allowed[:, place - 1]
            self.fixed[beyond & ~before, place] = 1.0
            self.column[same, place] = self.column[same, place - 1]
            self.fixed[same, place] = self.fixed[same, place - 1]
            self.column[new, place] = self.build.add_columns(int(new.sum()), integer=True)
        for place in range(1, self.spots - 1):
            choice = (self.column[:, place] >= 0) & (self.column[:, place + 1] >= 0)
            units_there = np.flatnonzero(choice & (self.column[:, place] != self.column[:, place + 1]))
            rows = self._rows(len(units_there), low=0.0)
            self._beyond(rows, units_there, place, 1.0)
            self._beyond(rows, units_there, place + 1, -1.0)

    def _rows(self, count: int, low: float = -np.inf, high: float = np.inf) -> Ints:
        return self.build.add_rows(np.full(count, low), np.full(count, high))

    def _beyond(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        """Add ``factor * a[u,place]`` of each unit to each row."""
        column = self.column[units, place]
        free = column >= 0
        self.build.add_entries(rows[free], column[free], np.full(int(free.sum()), factor))
        self.build.add_constants(rows[~free], factor * self.fixed[units[~free], place])

    def _weighted(self, row: Ints, units: Ints, place: int, factors: Floats) -> None:
        """Add ``factors . a[units,place]`` to one row."""
        column = self.column[units, place]
        free = column >= 0
        self._entries(row, column[free], factors[free])
        self.build.add_constants(row, np.array([float(factors[~free] @ self.fixed[units[~free], place])]))

    def _at(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        """Add ``factor * (1 when u is at a virtual place)``."""
        self._beyond(rows, units, place, factor)
        self._beyond(rows, units, place + 1, -factor)

    def _at_physical(self, rows: Ints, units: Ints, place: int, factor: float) -> None:
        for virtual, physical in enumerate(self.problem.physical):
            if physical == place:
                self._at(rows, units, virtual, factor)

    def _entries(self, row: Ints, columns: Ints, values: Floats | float) -> None:
        """One row, many columns."""
        filled = np.full(len(columns), values) if isinstance(values, float) else values
        self.build.add_entries(np.repeat(row, len(columns)), columns, filled)

    def _edges(self) -> None:
        source, target = self.problem.ends
        for place in range(1, self.spots):
            together = ~self.problem.crossable[:, place]
            # Nothing to say where both are decided: constants stand in no row.
            said = (self.column[source, place] >= 0) | (self.column[target, place] >= 0)
            said |= self.fixed[target, place] < self.fixed[source, place]
            said |= together & (self.fixed[target, place] != self.fixed[source, place])
            rows = self.build.add_rows(np.zeros(int(said.sum())), np.where(together[said], 0.0, np.inf))
            self._beyond(rows, target[said], place, 1.0)
            self._beyond(rows, source[said], place, -1.0)

    def _whole(self) -> None:
        """One option a state; and at each physical place a user is there exactly when an option there is chosen."""
        states = self.problem.whole
        if not states:
            return
        columns = np.concatenate(self.options)
        owner = np.repeat(np.arange(len(states)), [len(c) for c in self.options])
        where = np.array([o.place for s in states for o in s.options], np.intp)
        one = self._rows(len(states), 1.0, 1.0)
        self.build.add_entries(one[owner], columns, np.ones(len(columns)))
        if self.setting.cores == 0:
            self._entries(self._rows(1, high=0.0), columns[where == self.problem.host], 1.0)
        users = np.array([u for s in states for u in s.units], np.intp)
        first = np.cumsum([0, *(len(s.units) for s in states)])
        for place in dict.fromkeys(self.problem.physical):
            rows = self._rows(len(users), 0.0, 0.0)
            self._at_physical(rows, users, place, 1.0)
            here = where == place
            times = np.diff(first)[owner[here]]
            # Each option stands in the rows of all users of its state.
            start = np.repeat(first[owner[here]] - np.concatenate([[0], np.cumsum(times)[:-1]]), times)
            of_rows = rows[start + np.arange(len(start))]
            self.build.add_entries(of_rows, np.repeat(columns[here], times), np.full(len(of_rows), -1.0))

    def _copies(self) -> None:
        """w[i,o] for user i and option o; y[o] where a place has more than one way, or a copy takes room."""
        self.copies: list[Ints] = []
        self.accesses: list[Ints] = []
        for state in self.problem.copied:
            users, options = np.array(state.users, np.intp), len(state.options)
            kept = self.build.add_columns(options, integer=True)
            used = self.build.add_columns(len(users) * options).reshape(len(users), options)
            self.copies.append(kept)
            self.accesses.append(used)
            rows = self._rows(used.size, low=0.0)
            self.build.add_entries(rows, np.tile(kept, len(users)), np.ones(used.size))
            self.build.add_entries(rows, used.ravel(), -np.ones(used.size))
            where = np.array([o.place for o in state.options])
            for place in dict.fromkeys(self.problem.physical):
                rows = self._rows(len(users), 0.0, 0.0)
                self._at_physical(rows, users, place, -1.0)
                for option in np.flatnonzero(where == place):
                    self.build.add_entries(rows, used[:, option], np.ones(len(users)))
                self._entries(self._rows(1, high=1.0), kept[where == place], 1.0)

    def _orders(self) -> None:
        """The near one is at p or beyond only if the far one is at p + 1 or beyond."""
        for order in self.problem.orders:
            for place in range(len(self.problem.places)):
                row = self._rows(1, low=0.0)
                for number, least, factor in ((order.far, place + 1, 1.0), (order.near, place, -1.0)):
                    there = [o.place >= least for o in self.problem.whole[number].options]
                    self._entries(row, self.options[number][there], factor)

    def _together(self) -> None:
        """Units of a group are alike; a lent one is at another place than the near one only where the group is."""
        for group in self.problem.together:
            first, *others = group.units
            for place in range(1, self.spots):
                rows = self._rows(len(others), 0.0, 0.0)
                self._beyond(rows, np.array(others, np.intp), place, 1.0)
                self._beyond(rows, np.full(len(others), first, np.intp), place, -1.0)
            for place in (p for p in range(self.spots) if p != group.near):
                rows = self._rows(len(group.lent), high=0.0)
                self._at(rows, np.array(group.lent, np.intp), place, 1.0)
                self._at(rows, np.full(len(group.lent), first, np.intp), place, -1.0)

    def _visits(self) -> None:
        """Coming to a middle place is not linear in a (packets may pass it by): v >= "target there" - "source there".

        Where the source is beyond it, the target is too. The weaker "source there or beyond" would leave gaps of
        several per cent between the relaxed and the integer program.
        """
        source, target = self.problem.ends
        self.visits: list[tuple[int, Ints, Ints]] = []
        for place in range(1, self.spots - 1):
            edges = np.flatnonzero(self.problem.visit[:, place].any(axis=1) & self.allowed[target, place])
            columns = self.build.add_columns(len(edges))
            rows = self._rows(len(edges), low=0.0)
            self.build.add_entries(rows, columns, np.ones(len(edges)))
            self._at(rows, target[edges], place, -1.0)
            self._at(rows, source[edges], place, 1.0)
            self.visits.append((place, edges, columns))

    def _groups(self) -> None:
        """Per code store the columns "code of this group of units is here", with sizes."""
        self.groups: list[tuple[int, list[tuple[frozenset[int], int]], Ints]] = []
        for number, store in enumerate(self.problem.code):
            sizes: dict[frozenset[int], int] = {}
            for units, size in store.pieces:
                sizes[units] = sizes.get(units, 0) + size
            if sum(sizes.values()) <= store.capacity or not self.setting.memory:
                continue
            scale = max(store.capacity, 1)
            row = self._rows(1, high=store.capacity / scale)
            self.room_rows[len(self.problem.stores) + len(self.problem.ceilings) + number] = row[0]
            # Code of one unit alone needs no column of its own.
            alone = np.array([(*units, size) for units, size in sizes.items() if len(units) == 1], float).reshape(-1, 2)
            for virtual in np.flatnonzero(np.array(self.problem.physical) == store.place):
                units_alone, taken = alone[:, 0].astype(np.intp), alone[:, 1] / scale
                for place, sign in ((virtual, 1.0), (virtual + 1, -1.0)):
                    self._weighted(row, units_alone, int(place), sign * taken)
            pieces = [(units, size) for units, size in sizes.items() if len(units) > 1]
            columns = self.build.add_columns(len(pieces))
            units_of = np.array([u for units, _ in pieces for u in sorted(units)], np.intp)
            column_of = np.repeat(columns, [len(units) for units, _ in pieces])
            rows = self._rows(len(units_of), low=0.0)
            self.build.add_entries(rows, column_of, np.ones(len(units_of)))
            self._at_physical(rows, units_of, store.place, -1.0)
            self._entries(row, columns, np.array([size / scale for _, size in pieces]))
            self.groups.append((number, pieces, columns))

    def _stores(self) -> None:
        options: list[Option | CopyOption] = [o for s in self.problem.whole for o in s.options]
        options += [o for s in self.problem.copied for o in s.options]
        number = np.concatenate([np.zeros(0, np.intp), *self.options, *self.copies])
        store, amount = np.array([o.store for o in options], np.intp), np.array([o.amount for o in options], float)
        limits: list[tuple[tuple[int, ...], int]] = [((i,), s.capacity) for i, s in enumerate(self.problem.stores)]
        limits += [(c.stores, c.capacity) for c in self.problem.ceilings]
        for i, (members, capacity) in enumerate(limits):
            there = np.isin(store, members) & (amount > 0)
            if amount[there].sum() > capacity:
                scale = max(capacity, 1)
                row = self._rows(1, high=capacity / scale)
                self.room_rows[i] = row[0]
                self._entries(row, number[there], amount[there] / scale)

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

    def _loads(self) -> None:
        """One column a resource, its utilisation, and one each for host work, soft maximum and latency."""
        resources, cores = self.problem.resources, self.setting.cores
        anything = np.abs(self.used).sum(axis=0) + np.abs(self.constant)
        available = np.array([r.rate * (cores if r.scales else 1) for r in resources])
        self.host, self.load, self.latency, self.queue = self.build.add_columns(4, upper=np.inf)
        self.loads: dict[int, int] = {}
        self.load_rows: dict[int, int] = {}
        self.host_rows: dict[int, int] = {}
        for column, resource in enumerate(resources):
            if anything[column] and not available[column]:
                # Nothing of this resource: whatever uses it is out.
                self._sum(self.used[:, column], self.constant[column], None)
            elif anything[column]:
                (load,) = self.build.add_columns(1, upper=np.inf)
                self.loads[column] = int(load)
                scale = self.setting.rate / available[column]
                self.load_rows[column] = self.build.rows
                self._sum(self.used[:, column] * scale, self.constant[column] * scale, int(load))
                self._entries(self._rows(1, low=0.0), np.array([self.load, load]), np.array([1.0, -1.0]))
                if resource.scales:
                    self.host_rows[column] = self.build.rows
                    self._entries(self._rows(1, low=0.0), np.array([self.host, load]), np.array([1.0, -float(cores)]))
        # Service adds to the unloaded latency: it is what tells memories apart that nothing waits for.
        service = np.array([*(1e9 * r.servers / r.rate if r.rate else 0.0 for r in resources), 1.0]) * _MICRO
        (unqueued,) = self.build.add_columns(1, upper=np.inf)
        self._sum(self.used @ service, float(self.constant @ service), int(unqueued))
        self._entries(self._rows(1, low=0.0), np.array([self.latency, unqueued, self.queue]),
                      np.array([1.0, -1.0, -1.0]))
        self.unqueued = int(unqueued)

    def _sum(self, values: Floats, constant: float, result: int | None) -> None:
        """``result = constant + values . columns``; or at most 0 without a result."""
        row = self._rows(1, 0.0 if result is not None else -np.inf, 0.0)
        nonzero = np.flatnonzero(np.abs(values) > _TINY)
        self._entries(row, nonzero, values[nonzero])
        self.build.add_constants(row, np.array([constant]))
        if result is not None:
            self._entries(row, np.array([result]), -1.0)

    # Cuts.

    def cut_load(self, loads: Vector) -> None:
        """Cut at utilisations [K]: |u|_s >= g.u for every u, g being the dual norm's unit vector there."""
        top = float(loads.max())
        exponent = self.problem.exponent
        weights = (loads / top) ** exponent
        dual = np.where(loads > 0, weights / np.where(loads > 0, loads / top, 1.0), 0.0)
        dual /= float(weights.sum()) ** (1.0 - 1.0 / exponent)
        used = [c for c in self.loads if dual[c] > _TINY]
        self.session.add_row(np.array([self.load, *(self.loads[c] for c in used)]),
                             np.array([1.0, *(-dual[c] for c in used)]), 0.0, np.inf)

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
        return total * 1e9 / rate * _MICRO

    def cut_latency(self, loads: Vector) -> None:
        """Cut at utilisations [K] below 1: the time in queues lies above its tangent plane there.

        By Little's law the mean wait of a packet is the sum of mean queues over the rate.
        """
        rate = self.setting.latency_rate
        assert rate is not None
        scale, columns, values, constant = _MICRO * 1e9 / rate, [self.queue], [1.0], 0.0
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
        self.session.add_row(np.array(columns), np.array(values), constant, np.inf)

    def cut_assignment(self, assignment: Assignment) -> None:
        """Leave out one assignment of units and whole states (and whatever copies go with it)."""
        columns = np.concatenate([self.integer[: self._deciding()]])
        values = self.values_of(assignment)[columns]
        self.session.add_row(columns, np.where(values > 0.5, -1.0, 1.0), 1.0 - float((values > 0.5).sum()), np.inf)

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
                 ((limits.host, 1.0), (limits.load, 1.0), (limits.latency, _MICRO))]
        self.session.bound_columns(np.array([self.host, self.load, self.latency]), np.zeros(3), np.array(upper))

    def fix(self, fixed: Mapping[int, int]) -> None:
        """Bound the columns of units to a place each, and of all others not."""
        lower, upper = np.zeros(len(self.integer)), np.ones(len(self.integer))
        for unit, place in fixed.items():
            for beyond in range(1, self.spots):
                there = self.integer == self.column[unit, beyond]
                lower[there] = upper[there] = float(place >= beyond)
        self.session.bound_columns(self.integer, lower, upper)

    def value(self, goal: Goal, objective: float) -> float:
        """An objective of the program in the goal's own unit (latency in nanoseconds)."""
        return objective / _MICRO if goal == "latency" else objective

    def assignment(self, values: Sequence[float]) -> Assignment:
        """The assignment that a solution stands for."""
        found = np.asarray(values)
        beyond = np.where(self.column >= 0, found[self.column], self.fixed)[:, 1:-1]
        places = np.rint(beyond).sum(axis=1).astype(int).tolist()
        whole = [int(found[c].argmax()) for c in self.options]
        copies = []
        for state, columns in zip(self.problem.copied, self.copies, strict=True):
            needed = dict.fromkeys(self.problem.physical[places[u]] for u in state.users)
            copies.append({p: max((i for i, o in enumerate(state.options) if o.place == p),
                                  key=lambda i: float(found[columns[i]])) for p in needed})
        return Assignment(tuple(places), tuple(whole), tuple(copies))

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
        service = [1e9 * r.servers / r.rate if r.rate else 0.0 for r in problem.resources]
        values[self.unqueued] = _MICRO * float(demand @ np.array([*service, 1.0]))
        values[self.latency] = max(values[self.unqueued], _MICRO * self.latency_of(demand))
        values[self.queue] = values[self.latency] - values[self.unqueued]
        return values

    def latency_of(self, demand: Vector) -> float:
        """Nanoseconds of the mean packet as this program counts them; infinite where something used is not there."""
        loads = utilisation(self.problem, demand, self.setting.cores, self.setting.rate)
        if math.isinf(loads.max(initial=0.0)):
            return math.inf
        if self.setting.latency_rate is not None:
            return latency_of(self.problem, demand, self.setting.cores, self.setting.latency_rate).total
        service = [1e9 * r.servers / r.rate if r.rate else 0.0 for r in self.problem.resources]
        return float(demand @ np.array([*service, 1.0]))

    def worth(self, goal: Goal, demand: Vector) -> float:
        """What an assignment with this demand truly reaches; infinite where there is no such thing."""
        loads = utilisation(self.problem, demand, self.setting.cores, self.setting.rate)
        if goal == "load":
            return norm(self.problem, loads)
        if goal == "latency":
            return self.latency_of(demand)
        scaled = [float(u) for u, r in zip(loads, self.problem.resources, strict=True) if r.scales]
        top = max(scaled, default=0.0)
        return top * self.setting.cores if top and not math.isinf(top) else top
