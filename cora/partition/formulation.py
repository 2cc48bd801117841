"""The integer program of a placement problem (docs/plan.md, "The integer program").

Variables: per unit u and place l > 0 a binary a[u,l], "u is at place l or beyond"; per state and option a binary x; z,
"nothing of the group may use the fast path" (one steering group with one breakpoint in this version: everything or
nothing); per observed edge and middle place a continuous "a packet comes to this place here"; per resource its
utilisation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from cora.models.target import Resource
from cora.partition.instance import Instance, Option, Vector
from cora.partition.placement import Placement
from cora.partition.solver import Outcome, Program, solve
from cora.partition.units import Units

Goal = Literal["host", "load", "latency"]
# Coefficients are scaled to about 1; what lies this far below is rounding.
_TINY = 1e-12
_SLACK = 1e-6


@dataclass
class Affine:
    """A constant plus coefficients of variables."""

    constant: float = 0.0
    terms: dict[int, float] = field(default_factory=dict)

    def add(self, other: Affine, factor: float) -> None:
        """Add ``factor * other``."""
        self.constant += factor * other.constant
        for variable, coefficient in other.terms.items():
            self.plus(variable, factor * coefficient)

    def plus(self, variable: int, coefficient: float) -> None:
        """Add ``coefficient * variable``."""
        self.terms[variable] = self.terms.get(variable, 0.0) + coefficient


@dataclass(frozen=True)
class Limits:
    """Bounds beside the goal: on the soft maximum of utilisations, on host cores' worth of work, None for none."""

    load: float | None = None
    host: float | None = None


class Formulation:
    """The program of one instance at one rate; solved again and again for other goals, core counts and limits.

    ``rate`` scales utilisations. ``host_allowed`` False keeps everything off the last place, for plans without a core.
    ``stores`` False leaves out the sizes of memories and code stores, to find out whether they are what fails.
    ``pinned``: units that have to be at a place.
    """

    def __init__(self, instance: Instance, units: Units, rate: float, host_allowed: bool = True,
                 stores: bool = True, pinned: Mapping[int, int] | None = None) -> None:
        self.instance = instance
        self.units = units
        self.rate = rate
        self.host_allowed = host_allowed
        self.stores = stores
        self.last = instance.last
        self.base = Program()
        self.cuts: list[Vector] = []
        allowed = units.allowed.copy()
        if not host_allowed:
            allowed[:, self.last] = False
        for unit, place in (pinned or {}).items():
            allowed[unit, :place] = allowed[unit, place + 1 :] = False
        self.beyond = [self._place_variables(allowed[u]) for u in range(len(allowed))]
        self.options = {
            name: [(o, self.base.variable(0, 1, True)) for o in found if host_allowed or o.place < self.last]
            for name, found in instance.options.items()
        }
        self._states()
        self._edges()
        self._steering()
        if stores:
            self._code_stores()
        self._columns()

    # Where things are.

    def _place_variables(self, allowed: Sequence[bool]) -> list[Affine]:
        """a[l] for l = 0..L as affine forms: 1 first, 0 last, in between a binary where there is a choice."""
        forms = [Affine(1.0)]
        for place in range(1, len(allowed)):
            if not any(allowed[:place]):
                forms.append(Affine(1.0))
            elif not any(allowed[place:]):
                forms.append(Affine(0.0))
            elif not allowed[place - 1]:
                forms.append(forms[-1])
            else:
                forms.append(Affine(0.0, {self.base.variable(0, 1, True): 1.0}))
        forms.append(Affine(0.0))
        if not any(allowed):
            self._row(Affine(0.0), low=1.0)
        for before, after in pairwise(forms):
            self._at_least(before, after)
        return forms

    def at(self, unit: int, place: int) -> Affine:
        """The form that is 1 when a unit is exactly at a place."""
        form = Affine()
        form.add(self.beyond[unit][place], 1.0)
        form.add(self.beyond[unit][place + 1], -1.0)
        return form

    def _at_least(self, larger: Affine, smaller: Affine) -> None:
        row = Affine()
        row.add(larger, 1.0)
        row.add(smaller, -1.0)
        self._row(row, low=0.0)

    def _row(self, form: Affine, low: float | None = None, high: float | None = None) -> None:
        """``low <= form <= high``; a row without variables that cannot hold makes the program infeasible."""
        terms = {v: c for v, c in form.terms.items() if c != 0}
        low = None if low is None else low - form.constant
        high = None if high is None else high - form.constant
        if terms:
            self.base.row(terms, low, high)
        elif (low is not None and low > _SLACK) or (high is not None and high < -_SLACK):
            impossible = self.base.variable(0, 0)
            self.base.row({impossible: 1.0}, 1.0, None)

    def _states(self) -> None:
        filled: dict[tuple[int, str], Affine] = defaultdict(Affine)
        for name, options in self.options.items():
            for place in range(self.last + 1):
                form = self.at(self.units.of_state[name], place)
                for option, variable in options:
                    if option.place == place:
                        form.plus(variable, -1.0)
                self._row(form, 0.0, 0.0)
            for option, variable in options:
                filled[option.place, option.tier].plus(variable, option.amount)
        for (place, name), form in filled.items():
            capacity = next(t.capacity for t in self.instance.target.places[place].tiers if t.name == name)
            if self.stores and sum(form.terms.values()) > capacity:
                self._row(Affine(0.0, {v: c / capacity for v, c in form.terms.items()}), high=1.0)

    def _edges(self) -> None:
        for edge in self.units.edges:
            for place in range(1, self.last + 1):
                source, target = self.beyond[edge.source][place], self.beyond[edge.target][place]
                self._at_least(target, source)
                if not edge.crossable[place]:
                    self._at_least(source, target)

    def _steering(self) -> None:
        """z = 1: the group's share on the fast path is nothing, all its packets start at the host; z = 0: all may.

        More breakpoints (a share of the flows) become more columns of this one-hot choice.
        """
        entry = self.beyond[self.units.of_node[0]]
        z = self.base.variable(0, 1, True)
        for place in range(1, self.last + 1):
            row = Affine(0.0, {z: -1.0})
            row.add(entry[place], 1.0)
            self._row(row, low=0.0)
        row = Affine(0.0, {z: -1.0})
        row.add(entry[self.last], 1.0)
        self._row(row, high=0.0)

    def _code_stores(self) -> None:
        graph = self.instance.graph
        for place, declared in enumerate(self.instance.target.places):
            capacity = declared.code_capacity
            if capacity is None or sum(sizes[place] for sizes in self.instance.code.values()) <= capacity:
                continue
            there: dict[tuple[str, int], set[int]] = defaultdict(set)
            for node, unit in zip(graph.nodes, self.units.of_node, strict=True):
                there[node.label, node.piece.part].add(unit)
            total: dict[int, float] = defaultdict(float)
            stored: dict[frozenset[int], int] = {}
            for key, found in there.items():
                group = frozenset(found)
                if group not in stored:
                    stored[group] = self.base.variable(0, 1)
                    for unit in group:
                        self._at_least(Affine(0.0, {stored[group]: 1.0}), self.at(unit, place))
                total[stored[group]] += self.instance.code[key][place] / max(capacity, 1)
            self._row(Affine(0.0, total), high=1.0 if capacity else 0.0)

    # What it uses.

    def _columns(self) -> None:
        """One variable a resource, its utilisation at ``rate`` with one host core, and one for the latency."""
        instance = self.instance
        scale = np.array([self._scale(r) for r in instance.resources] + [1e-3])
        constant, rows = self._demand()
        used = np.abs(rows).sum(axis=0) + constant
        self.loads = {}
        for column in range(len(instance.resources)):
            if used[column] and scale[column]:
                self.loads[column] = self._utilisation(constant, rows, column, float(scale[column]))
            elif used[column]:
                # Nothing of this resource: whatever uses it is out.
                self._row(self._column(constant, rows, column, 1.0), high=0.0)
        # Service adds to the unloaded latency: it is what tells memories apart that nothing waits for.
        service = np.array([1e9 * r.servers / r.rate if r.rate else 0.0 for r in instance.resources])
        rows[:, -1] += rows[:, :-1] @ service
        constant[-1] += constant[:-1] @ service
        self.latency = self._utilisation(constant, rows, len(instance.resources), float(scale[-1]))
        self.host = self.base.variable()
        for column, variable in self.loads.items():
            if instance.resources[column].scales:
                self.base.row({self.host: 1.0, variable: -1.0}, 0.0, None)

    def _scale(self, resource: Resource) -> float:
        """Utilisation per unit of demand; 0 for a resource there is nothing of."""
        if not resource.rate or (resource.scales and not self.host_allowed):
            return 0.0
        return self.rate / resource.rate

    def _utilisation(self, constant: Vector, rows: Vector, column: int, scale: float) -> int:
        variable = self.base.variable()
        form = self._column(constant, rows, column, scale)
        form.plus(variable, -1.0)
        self._row(form, 0.0, 0.0)
        return variable

    @staticmethod
    def _column(constant: Vector, rows: Vector, column: int, scale: float) -> Affine:
        values = rows[:, column] * scale
        form = Affine(float(constant[column]) * scale)
        form.terms.update({int(v): float(values[v]) for v in np.nonzero(np.abs(values) > _TINY)[0]})
        return form

    def _demand(self) -> tuple[Vector, Vector]:
        """Mean demand of a packet as constant [K] and coefficients [variables, K]."""
        self._visits()
        constant = self.instance.base.copy()
        rows = np.zeros((len(self.base.lower), len(constant)))

        def add(form: Affine, cost: Vector) -> None:
            if form.constant:
                constant[:] += form.constant * cost
            for variable, coefficient in form.terms.items():
                rows[variable] += coefficient * cost

        for unit, cost in enumerate(self.units.cost):
            for place in range(self.last + 1):
                add(self.at(unit, place), cost[place])
        for edge in self.units.edges:
            for place in range(1, self.last + 1):
                step = edge.cross[place] + (edge.share * self.instance.visit[place] if place == self.last else 0.0)
                moved = Affine()
                moved.add(self.beyond[edge.target][place], 1.0)
                moved.add(self.beyond[edge.source][place], -1.0)
                add(moved, step)
        for options in self.options.values():
            for option, variable in options:
                rows[variable] += option.cost
        for (place, share), variable in self.visits:
            rows[variable] += share * self.instance.visit[place]
        return constant, rows

    def _visits(self) -> None:
        """Coming to a middle place is not linear in a (packets may pass it by): v >= "target there, source not yet"."""
        self.visits: list[tuple[tuple[int, float], int]] = []
        for edge in self.units.edges:
            for place in range(1, self.last):
                if edge.share == 0 or not self.instance.visit[place].any():
                    continue
                row = Affine()
                row.add(self.at(edge.target, place), -1.0)
                row.add(self.beyond[edge.source][place], 1.0)
                if not any(c for c in row.terms.values()) and row.constant >= 0:
                    continue
                variable = self.base.variable(0, 1)
                row.plus(variable, 1.0)
                self._row(row, low=0.0)
                self.visits.append(((place, edge.share), variable))

    # Solving.

    def add_cut(self, loads: Vector) -> None:
        """Cut at a placement's utilisations: |u|_s >= g.u for every u, g being the dual norm's unit vector there."""
        top = float(loads.max())
        weights = (loads / top) ** self.instance.exponent
        dual = np.where(loads > 0, weights / np.where(loads > 0, loads / top, 1.0), 0.0)
        self.cuts.append(dual / float(weights.sum()) ** (1.0 - 1.0 / self.instance.exponent))

    def solve(self, goal: Goal, cores: int, limits: Limits, solver: str, time_limit: float,
              without: Sequence[Mapping[str, tuple[int, str]]] = ()) -> Outcome:
        """Minimise a goal with ``cores`` host cores. The soft maximum is outer-approximated by the cuts so far.

        ``without``: state places that are not to be found again (all of them together).
        """
        program = Program(list(self.base.lower), list(self.base.upper), list(self.base.integer), list(self.base.rows))
        load = program.variable(0.0, limits.load)
        for cut in (*np.eye(len(self.instance.resources)), *self.cuts):
            terms = {v: -float(cut[c]) / self._factor(c, cores) for c, v in self.loads.items() if cut[c] > _TINY}
            if terms:
                program.row({load: 1.0, **terms}, 0.0, None)
        if limits.host is not None:
            program.upper[self.host] = limits.host
        for states in without:
            chosen = {v: 1.0 for name, found in self.options.items() for o, v in found if o.place == states[name][0]}
            program.row(chosen, None, len(states) - 1.0)
        program.objective = {{"host": self.host, "load": load, "latency": self.latency}[goal]: 1.0}
        return solve(program, solver, time_limit)

    def _factor(self, column: int, cores: int) -> int:
        return max(cores, 1) if self.instance.resources[column].scales else 1

    def placement(self, values: Sequence[float]) -> Placement:
        """The placement that a solution stands for."""
        places = [round(sum(f.constant + sum(c * values[v] for v, c in f.terms.items()) for f in forms[1:-1]))
                  for forms in self.beyond]
        states = {}
        for name, options in self.options.items():
            option: Option = max(options, key=lambda pair: values[pair[1]])[0]
            states[name] = (option.place, option.tier)
        return Placement(states, tuple(places[u] for u in self.units.of_node))
