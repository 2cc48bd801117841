"""From an instance to the best placement: goals one after the other, tangent cuts until the soft maximum is met.

At a fixed rate: fewest host cores, then least host work, then most headroom, then least latency. With the cores given:
most throughput, then least host work, then least latency.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from cora.errors import CoraError
from cora.partition.baselines import Aim
from cora.partition.formulation import Formulation, Goal, Limits
from cora.partition.instance import Instance, Vector
from cora.partition.placement import (
    ROOM,
    Demands,
    Placement,
    check,
    cores_needed,
    demand_of,
    host_cycles,
    norm,
    utilisation,
)
from cora.partition.units import Units

# The tangent cuts stop when the true soft maximum is within this of the proven bound (0.1 % is what a plan promises).
CUT_GAP = 5e-5
# Kept from the limits handed to a solver, which holds rows to about 1e-6 only; the exact check has no tolerance.
_MARGIN = 1e-5
_ROUNDS = 200
# Host cores of work below which a solver's tolerance may hide that no core is needed at all: then that is tried.
_LITTLE_WORK = 1e-2


class OutOfTime(Exception):
    """The time limit was reached without any placement; the caller has others to fall back on."""


@dataclass(frozen=True)
class Stage:
    """Evidence of one goal: what was reached, what is proven, and how long it took."""

    goal: str
    status: str
    objective: float
    bound: float | None
    seconds: float
    solves: int

    @property
    def gap(self) -> float | None:
        """Relative distance from the objective to its bound; None when nothing is proven."""
        if self.bound is None:
            return None
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), 1e-12) if self.objective else 0.0


@dataclass(frozen=True)
class Found:
    """A placement with its demand and the cores it is for."""

    placement: Placement
    demand: Vector
    cores: int
    proven: bool


@dataclass
class Search:
    """One search with one solver under one time limit (seconds, for everything together).

    ``known``: demands of placements at hand; cuts at them spare the first rounds. ``pinned``: units that have to be at
    a place.
    """

    instance: Instance
    units: Units
    solver: str
    time_limit: float
    stages: list[Stage] = field(default_factory=list)
    known: Sequence[Vector] = ()
    pinned: Mapping[int, int] = field(default_factory=dict)
    variables: int = 0
    rows: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.time_limit

    def formulation(self, rate: float, cores: int, host_allowed: bool = True, stores: bool = True) -> Formulation:
        made = Formulation(self.instance, self.units, rate, host_allowed, stores, self.pinned)
        for demand in self.known:
            loads = utilisation(self.instance, demand, max(cores, 1), rate)
            if math.isfinite(loads.max()) and loads.any():
                made.add_cut(loads)
        if not self.variables:
            self.variables, self.rows = len(made.base.lower), len(made.base.rows)
        return made

    def best(self, model: Formulation, goal: Goal, cores: int, limits: Limits, name: str,
             without: Sequence[Mapping[str, tuple[int, str]]] = ()) -> Found | None:
        """The best placement for a goal, None when it is proven that there is none.

        Raises:
            OutOfTime: before any was found or all were excluded.
        """
        started = time.perf_counter()
        top: tuple[float, Found] | None = None
        bound: float | None = None
        given = limits if limits.load is None else Limits(limits.load * (1 - _MARGIN), limits.host)
        solves = 0
        while solves < _ROUNDS:
            solves += 1
            outcome = model.solve(goal, cores, given, self.solver, self.deadline - time.perf_counter(), without)
            if outcome.status == "infeasible":
                return None
            if outcome.bound is not None:
                bound = outcome.bound if bound is None else max(bound, outcome.bound)
            if outcome.values:
                here = self._found(model, outcome.values, cores, outcome.status == "optimal")
                loads = utilisation(self.instance, here.demand, cores, model.rate)
                load = norm(self.instance, loads)
                value = load if goal == "load" else outcome.objective
                within = limits.load is None or load <= limits.load * ROOM
                if within and (top is None or value < top[0]):
                    top = value, here
                if within and (goal != "load" or (bound is not None and load <= bound * (1 + CUT_GAP) + 1e-12)):
                    break
                model.add_cut(loads)
            if outcome.status != "optimal":
                break
        if top is None:
            raise OutOfTime
        value, found = top
        proven = bound is not None and value <= bound * (1 + 1e-3) + 1e-9
        self.stages.append(Stage(name, "optimal" if proven else "feasible", value, bound,
                                 time.perf_counter() - started, solves))
        return Found(found.placement, found.demand, cores, proven)

    def _found(self, model: Formulation, values: Sequence[float], cores: int, proven: bool) -> Found:
        placement = model.placement(values)
        return Found(placement, demand_of(self.instance, placement), cores, proven)

    def for_rate(self, rate: float, most: int) -> Found | None:
        """The plan for a rate with at most ``most`` host cores, None when there is none."""
        least = self.least_host(rate, most)
        if least is None:
            return None
        model, found = least
        return self.refine(model, found, rate, found.cores)

    def least_host(self, rate: float, most: int) -> tuple[Formulation, Found] | None:
        """The fewest host cores for a rate with the least host work, and the program to go on with; None: no plan."""
        model = self.formulation(rate, most)
        found = self.best(model, "host", max(most, 1), Limits(load=1.0), "host cores") if most else None
        if found is None and most:
            return None
        if found is None or host_cycles(self.instance, found.demand, rate) < _LITTLE_WORK:
            without_host = self.formulation(rate, 0, host_allowed=False)
            try:
                none = self.best(without_host, "load", 0, Limits(load=1.0), "host cores")
            except OutOfTime:
                if found is None:
                    raise
                return model, replace(found, cores=1, proven=False)
            if none is not None:
                return without_host, none
            if found is None:
                return None
        cores, found = self.fewest_cores(model, found, rate, most)
        return model, replace(found, cores=cores)

    def fewest_cores(self, model: Formulation, found: Found, rate: float, most: int) -> tuple[int, Found]:
        """Bisect the core count between what the least host work proves and what its placement needs."""
        low = max(1, math.ceil(host_cycles(self.instance, found.demand, rate) - 1e-9))
        if not found.proven:
            low = 1
        high = cores_needed(self.instance, found.demand, rate, 1, most) or most
        while low < high:
            middle = (low + high) // 2
            try:
                got = self.best(model, "host", middle, Limits(load=1.0), f"host work with {middle} cores")
            except OutOfTime:
                return high, replace(found, proven=False)
            if got is None:
                low = middle + 1
            else:
                found, high = got, cores_needed(self.instance, got.demand, rate, 1, middle) or middle
        return high, found

    def refine(self, model: Formulation, found: Found, rate: float, cores: int) -> Found:
        """Headroom, then latency, without giving up host work. ``found`` has the least host work for ``cores``."""
        host = _loosened(host_cycles(self.instance, found.demand, rate))
        loads = norm(self.instance, utilisation(self.instance, found.demand, cores, rate))
        if loads > 0:
            found = self.improved(found, model, "load", cores, Limits(1.0, host), "headroom")
        load = norm(self.instance, utilisation(self.instance, found.demand, cores, rate))
        limit = min(1.0, load * (1 + 3 * _MARGIN))
        return self.improved(found, model, "latency", cores, Limits(limit, host), "latency")

    def improved(self, found: Found, model: Formulation, goal: Goal, cores: int, limits: Limits, name: str) -> Found:
        """The best placement for a later goal; what was found for the first one where there is no time or no other."""
        try:
            best = self.best(model, goal, cores, limits, name)
        except OutOfTime:
            best = None
        kept = best or found
        return Found(kept.placement, kept.demand, cores, found.proven)

    def for_cores(self, cores: int, scale: float) -> Found | None:
        """The plan with the largest throughput on exactly ``cores`` host cores; ``scale`` is about that throughput."""
        self.scale = scale
        model = self.formulation(scale, cores, host_allowed=cores > 0)
        found = self.best(model, "load", cores, Limits(), "throughput")
        if found is None:
            return None
        load = norm(self.instance, utilisation(self.instance, found.demand, cores, scale)) * (1 + 3 * _MARGIN)
        found = self.improved(found, model, "host", cores, Limits(load), "host work")
        host = host_cycles(self.instance, found.demand, scale)
        if cores and host < _LITTLE_WORK:
            # What no packet uses does not have to be at the host if the card has room for it.
            without_host = self.formulation(scale, 0, host_allowed=False)
            free = self.improved(found, without_host, "latency", 0, Limits(load), "latency without a host core")
            if not free.placement.uses(self.instance.last):
                return free
        return self.improved(found, model, "latency", cores, Limits(load, _loosened(host)), "latency")

    def elsewhere(self, unit: int, place: int, aim: Aim, cores: int, scale: float
                  ) -> tuple[list[Placement], bool]:
        """The best placements with a unit at a place: for a rate the fewest cores; if those are ``cores``, or without a
        rate, also the most throughput with ``cores``.

        The answer ends with whether there was time to look for all of them.
        """
        rest = self.deadline - time.perf_counter()
        if rest <= 0:
            return [], False
        search = Search(self.instance, self.units, self.solver, rest, known=self.known, pinned={unit: place})
        found: list[Placement] = []
        try:
            if aim.rate is not None and (least := search.least_host(aim.rate, aim.most)) is not None:
                found.append(least[1].placement)
                if least[1].cores != cores:
                    return found, True  # what it costs is cores; its throughput does not matter
            for count in dict.fromkeys([cores] if found or aim.rate is None else [cores, aim.most]):
                most = search.best(search.formulation(scale, count), "load", max(count, 1), Limits(), "throughput")
                if most is not None:
                    found.append(most.placement)
        except OutOfTime:
            return found, False
        return found, True

    def other(self, model: Formulation, aim: Aim, placement: Placement) -> Placement | None:
        """The best placement that keeps some state at another place; its stages are no evidence for the plan."""
        stages = len(self.stages)
        cores = max(aim.most, 1)
        rate = aim.rate is not None
        found = self.best(model, "host" if rate else "load", cores, Limits(load=1.0 if rate else None), "second best",
                          without=[placement.states])
        del self.stages[stages:]
        return None if found is None else found.placement


def _loosened(host: float) -> float:
    """A limit that a placement with this host work meets in spite of a solver's tolerance."""
    return host * (1 + _MARGIN) + 1e-7


def settle(instance: Instance, found: Found) -> Found:
    """Put code that was never seen to run where the code before it runs, if it may: the same choice every time."""
    nodes = list(found.placement.nodes)
    before: dict[int, list[int]] = {}
    for edge in instance.graph.edges:
        before.setdefault(edge.target, []).append(edge.source)
    for number, node in enumerate(instance.graph.nodes):
        if node.packets or node.piece.component is not None or number not in before:
            continue
        reached = max(nodes[s] for s in before[number])
        nodes[number] = next(p for p in range(reached, instance.last + 1) if instance.allowed[number, p])
    moved = Placement(found.placement.states, tuple(nodes))
    try:
        check(instance, moved, Demands(Fraction(0), found.cores))
    except CoraError:
        return found
    return Found(moved, demand_of(instance, moved), found.cores, found.proven)
