"""The best assignment over the variants of one planning question, goal by goal, with bounds that are proven.

At a fixed rate: fewest host cores, then least host work, then most headroom, then least latency. With the cores given:
most throughput, then least host work, then least latency.

A question has one problem a *variant* (a way to split states, an admission point). For every goal they are searched
together (`cora.partition.branching`), the one with the least bound first, until no bound is below the best value. So
the proof covers all variants, and most are never solved as integer programs. Assignments at hand (baselines, the plan
of yesterday) are the first values to beat.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cora.partition.branching import Tree
from cora.partition.certificates import Shared
from cora.partition.evaluate import ROOM, demand_of, host_cycles, least_demand, load_of, norm, uses_host, utilisation
from cora.partition.exact import broken_rules
from cora.partition.fast import Task, quick, weights_of
from cora.partition.integer import Goal, Limits, Model, Setting, goal_of
from cora.partition.mixed import GAP, Floats
from cora.partition.problem import Assignment, Problem, Vector

# The tangent cuts stop when the true value is within this of the proven bound (0.1 % is what a plan promises).
CUT_GAP = 5e-5
# Kept from the limits handed to a solver, which holds rows to about 1e-6 only; the exact check has no tolerance.
MARGIN = 1e-5
_ROUNDS = 200
# Tangents of other variants that a program starts with.
_SHARED = 6
_RELAXED_ROUNDS = 12
# Relaxations this near to the best so far are cut until they are as exact as a plan is.
_NEAR = 2e-3
# Floors hold to a solver's tolerance.
_FLOOR = 1e-6
# Only what is better than the best so far by this share is looked for.
_BETTER = 1e-5
# The same for goals that follow the first one.
_BETTER_LATER = 1e-4
# Host cores of work below which a solver's tolerance may hide that no core is needed at all: then that is tried.
_LITTLE_WORK = 1e-2
# Share of the time that the fast search gets of a large program.
_QUICKLY = 0.2


class OutOfTime(Exception):
    """The time limit was reached without any assignment; the caller has others to fall back on."""


@dataclass(frozen=True)
class Stage:
    """Evidence of one goal: what was reached, what is proven, how long it took, how many programs were solved."""

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
    """An assignment of a variant with its demand and the cores it is for."""

    variant: int
    assignment: Assignment
    demand: Vector
    cores: int
    proven: bool


@dataclass(frozen=True)
class Wishes:
    """Limits of the whole question.

    Attributes:
        headroom: share of every resource that stays free, in the sense of the soft maximum.
        latency: most nanoseconds of the mean packet, queueing included, at ``latency_rate`` packets a second.
    """

    headroom: float = 0.0
    latency: float | None = None
    latency_rate: float | None = None


@dataclass(frozen=True)
class Floor:
    """What is proven of a variant: no assignment within the limits is below ``value`` for the goal."""

    setting: Setting
    goal: Goal
    limits: Limits
    value: float

    def holds(self, setting: Setting, limits: Limits) -> bool:
        """Whether it was proven for all assignments that these limits allow."""
        return self.setting == setting and all(
            old is None or (new is not None and new <= old)
            for old, new in ((self.limits.load, limits.load), (self.limits.host, limits.host),
                             (self.limits.latency, limits.latency)))

    def excludes(self, setting: Setting, limits: Limits) -> bool:
        """Whether no assignment at all is within the limits."""
        limit = getattr(limits, self.goal)
        return limit is not None and self.value > limit * (1 + MARGIN) + _FLOOR and self.holds(setting, limits)


@dataclass
class Top:
    """The best so far for one goal."""

    value: float
    found: Found


@dataclass
class Optimiser:
    """One question with one solver under one time limit (seconds, for everything together).

    ``known``: assignments at hand with their variants; illegal ones are passed over. ``gap``: relative distance to the
    proven bound that is good enough. ``floors``: what is proven of variants already; ``shared``: what was found out in
    other searches for the same target.
    """

    problems: Sequence[Problem]
    solver: str
    time_limit: float
    wishes: Wishes = Wishes()
    known: Sequence[tuple[int, Assignment]] = ()
    gap: float = GAP
    floors: Mapping[int, Sequence[Floor]] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    stages: list[Stage] = field(default_factory=list)
    variables: int = 0
    rows: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        self.deadline = time.perf_counter() + self.time_limit
        self.models: dict[tuple[int, Setting], Model] = {}
        self.relaxations: dict[tuple[int, Setting, Goal, Limits], float | None] = {}
        self.solves = 0
        self.least = _BETTER
        self.hands: list[Found] = []
        self.goals: list[tuple[Goal, Setting, Limits]] = []
        self.points: list[Vector] = []
        self.given: dict[int, int] = {}
        self.proven: dict[int, list[Floor]] = {variant: list(floors) for variant, floors in self.floors.items()}
        for variant, assignment in self.known:
            if not broken_rules(self.problems[variant], assignment):
                self.keep(variant, assignment)

    def keep(self, variant: int, assignment: Assignment) -> Found:
        """Remember a legal assignment as a value to beat."""
        found = Found(variant, assignment, demand_of(self.problems[variant], assignment), 0, False)
        self.hands.append(found)
        return found

    def rest(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()

    def model(self, variant: int, setting: Setting) -> Model:
        """The program of a variant in a setting, with cuts at the assignments at hand."""
        key = variant, setting
        if key not in self.models:
            problem = self.problems[variant]
            model = Model(problem, setting, self.solver, self.shared.structure(problem, setting))
            self.models[key] = model
            if not self.variables:
                self.variables, self.rows = model.variables, model.rows
            for found in self.hands:
                loads = utilisation(problem, found.demand, max(setting.cores, 1), setting.rate)
                if found.variant == variant and math.isfinite(loads.max()) and loads.any() and not model.impossible:
                    model.cut_load(loads)
        return self.models[key]

    def better(self, value: float) -> float:
        """What an assignment has to be below to be worth finding."""
        return value - max(max(self.least, self.gap) * abs(value), 1e-9)

    # One goal.

    def best(self, goal: Goal, setting: Setting, limits: Limits, name: str, solves: bool = True) -> Found | None:
        """The best assignment of all variants for a goal, None when it is proven that there is none.

        ``solves``: False leaves it at relaxations, so that the bound may stay below the best that is found.

        Raises:
            OutOfTime: before any was found or all were excluded.
        """
        started, solved = time.perf_counter(), self.solves
        self.goals.append((goal, setting, limits))
        top = self._at_hand(goal, setting, limits)
        if top is not None:
            self._tangent(top.found, setting)
        tree = Tree(self, goal, setting, limits, top, solves)
        bound = tree.run(self._known(goal, setting, limits))
        for variant, low in tree.lows.items():
            self._prove(variant, Floor(setting, goal, limits, low))
        top = tree.top
        if top is None:
            if math.isinf(bound) and bound > 0:
                return None
            raise OutOfTime
        lowest = min(bound, top.value)
        known = None if math.isinf(lowest) else lowest
        proven_best = known is not None and top.value <= known * (1 + 1e-3) + 1e-9
        self.stages.append(Stage(name, "optimal" if proven_best else "feasible", top.value, known,
                                 time.perf_counter() - started, self.solves - solved))
        return replace(top.found, cores=setting.cores, proven=proven_best)

    def _at_hand(self, goal: Goal, setting: Setting, limits: Limits) -> Top | None:
        """The best of the assignments at hand that meet the limits."""
        top: Top | None = None
        for found in self.hands:
            problem = self.problems[found.variant]
            if setting.cores == 0 and uses_host(problem, found.assignment):
                continue
            model = self.model(found.variant, setting)
            value = model.worth(goal, found.demand)
            if _meets(model, found.demand, limits) and (top is None or value < top.value):
                top = Top(value, found)
        return top

    def _known(self, goal: Goal, setting: Setting, limits: Limits) -> Iterator[tuple[int, float]]:
        """Every variant that is not proven impossible, with what is proven of it."""
        for variant, problem in enumerate(self.problems):
            floors = self.proven.get(variant, [])
            hosted = setting.cores == 0 and any(all(o.place == problem.host for o in s.options) for s in problem.whole)
            if not hosted and not any(floor.excludes(setting, limits) for floor in floors):
                known = [f.value for f in floors if f.goal == goal and f.holds(setting, limits)]
                # Goals grow with every use.
                least = goal_of(problem, setting, goal, least_demand(problem))
                yield variant, max([least, *known])

    def judged(self, model: Model, variant: int, assignment: Assignment, goal: Goal, limits: Limits) -> Top | None:
        """An assignment as a value to beat; None where it is illegal or does not meet the limits."""
        if broken_rules(model.problem, assignment):
            return None
        found = self.keep(variant, assignment)
        return Top(model.worth(goal, found.demand), found) if _meets(model, found.demand, limits) else None

    def floor(self, variant: int) -> float:
        """What the first goal's search proved of a variant; minus infinity where nothing."""
        first = self.goals[0] if self.goals else None
        return max((f.value for f in self.proven.get(variant, []) if (f.goal, f.setting, f.limits) == first),
                   default=-math.inf)

    def _prove(self, variant: int, floor: Floor) -> None:
        if math.isfinite(floor.value):
            self.proven.setdefault(variant, []).append(floor)

    def _tangent(self, found: Found, setting: Setting) -> None:
        """Give all programs a tangent at an assignment that is hard to beat: relaxations end near it."""
        loads = utilisation(self.problems[found.variant], found.demand, max(setting.cores, 1), setting.rate)
        if np.isfinite(loads).all() and loads.any():
            self.points.append(loads)

    def _share(self, model: Model) -> None:
        """Give a program the last tangents of the others: one holds for every variant."""
        fresh = self.points[self.given.get(id(model), 0) :][-_SHARED:]
        self.given[id(model)] = len(self.points)
        for loads in fresh:
            if len(loads) == len(model.problem.resources) and not model.impossible:
                model.cut_load(loads)

    def relaxation(self, model: Model, goal: Goal, limits: Limits, top: Top | None, until: float | None = None,
                   enough: Callable[[Floats], bool] | None = None) -> tuple[float, Floats | None] | None:
        """The relaxation's value, with cuts until it changes little or is beyond the best so far, and its solution.

        ``until``: another deadline; ``enough``: what solutions are cut a second time only. None: impossible; no
        solution: there was no time.
        """
        self._share(model)
        low, values = -math.inf, None
        for number in range(_RELAXED_ROUNDS):
            rest = (self.deadline if until is None else until) - time.perf_counter()
            if rest <= 0:
                break
            self.solves += 1
            outcome = model.solve(goal, _inner(limits), rest, relaxed=True)
            if outcome.status == "infeasible":
                return None
            if outcome.status != "optimal":
                break
            low, values = max(low, model.value(goal, outcome.objective)), np.asarray(outcome.values)
            loads = model.loads_in(outcome.values)
            if top is not None and low >= self.better(top.value):
                break
            if number and enough is not None and enough(values):
                break
            near = top is not None and low > top.value * (1 - _NEAR)
            if not _cut_relaxed(model, goal, limits, outcome.values, loads, CUT_GAP if near else 10 * CUT_GAP):
                break
            self.points.append(loads)
            self.given[id(model)] = len(self.points)
        return low, values

    def solve(self, model: Model, variant: int, goal: Goal, limits: Limits, top: Top | None
               ) -> tuple[Top | None, float | None]:
        """The best of one variant that is better than the best so far, and what is proven for the variant.

        (None, infinity): there is none at all; (None, None): no time.
        """
        best: Top | None = None
        bound: float | None = None
        given = _inner(limits)
        if top is not None:
            limit: float | None = getattr(given, goal)
            given = replace(given, **{goal: min(self.better(top.value), math.inf if limit is None else limit)})
        last: Assignment | None = None
        for _ in range(_ROUNDS):
            if self.rest() <= 0:
                break
            self.solves += 1
            outcome = model.solve(goal, given, self.rest(), gap=self.gap)
            if outcome.status == "infeasible":
                none = math.inf if top is None else self.better(top.value)
                return best, none if best is None else min(none, best.value)
            if outcome.bound is not None:
                low = model.value(goal, outcome.bound)
                bound = low if bound is None else max(bound, low)
            if outcome.values:
                assignment = model.assignment(outcome.values)
                found = self.keep(variant, assignment)
                value = model.worth(goal, found.demand)
                within = _meets(model, found.demand, limits)
                if within and (best is None or value < best.value):
                    best = Top(value, found)
                near = bound is not None and value <= bound * (1 + max(CUT_GAP, self.gap)) + 1e-12
                if within and (goal == "host" or near):
                    break
                if outcome.status != "optimal":
                    break
                if assignment == last:
                    model.cut_assignment(assignment)  # tangents end at a solver's tolerance
                else:
                    _cut_at(model, found.demand)
                last = assignment
            if outcome.status != "optimal":
                break
        return best, bound

    def solve_in_parts(self, model: Model, variant: int, goal: Goal, limits: Limits, top: Top | None
                        ) -> tuple[Top | None, float | None]:
        """As `_solve` for a large problem: first by the fast search, then one place of its heaviest unit after the
        other. What all packets share is what the relaxation halves, and no solver knows it."""
        quickly = quick(model.problem, Task(model.setting, goal, limits), _QUICKLY * self.rest(), bounded=False)
        best: Top | None = None
        if quickly.assignment is not None:
            found = self.keep(variant, quickly.assignment)
            value = model.worth(goal, found.demand)
            if _meets(model, found.demand, limits) and (top is None or value < top.value):
                top = best = Top(value, found)
        bound = math.inf
        for low, fixed in self._parts(model, goal, limits, top):
            if top is not None and low >= self.better(top.value):
                bound = min(bound, low)
                continue
            model.fix(fixed)
            candidate, proven = self.solve(model, variant, goal, limits, top)
            if candidate is not None and (top is None or candidate.value < top.value):
                top = best = candidate
            bound = min(bound, max(low, -math.inf if proven is None else proven))
        model.fix({})
        return best, bound

    def _parts(self, model: Model, goal: Goal, limits: Limits, top: Top | None) -> list[tuple[float, dict[int, int]]]:
        """The places of the heaviest unit with a bound for each, the least first; impossible ones are left out."""
        unit = int(weights_of(model.problem).argmax())
        found = []
        for place in model.allowed[unit].nonzero()[0]:
            fixed = {unit: int(place)}
            model.fix(fixed)
            relaxed = self.relaxation(model, goal, limits, top)
            if relaxed is not None:
                found.append((relaxed[0], fixed))
        return sorted(found, key=lambda part: part[0])

    # The questions.

    def for_rate(self, rate: float, most: int) -> Found | None:
        """The plan with the fewest of ``most`` host cores that carries a rate; None when there is none."""
        found = self.least_host(rate, most)
        return None if found is None else self.refined_for_rate(found, rate)

    def refined_for_rate(self, found: Found, rate: float) -> Found:
        """What `least_host` found, improved in what comes after cores and host work."""
        return self.refine(found, self.setting(rate, found.cores))

    def setting(self, rate: float, cores: int) -> Setting:
        return Setting(rate, cores, self.wishes.latency_rate)

    @property
    def limits(self) -> Limits:
        """What has to be met at an asked rate."""
        return Limits(load=1.0 - self.wishes.headroom, latency=self.wishes.latency)

    def least_host(self, rate: float, most: int) -> Found | None:
        """The fewest host cores for a rate with the least host work; None: no plan."""
        found = self.best("host", self.setting(rate, most), self.limits, "host cores") if most else None
        if found is None and most:
            return None
        if found is None or self._host(found, rate) < _LITTLE_WORK:
            try:
                none = self.best("load", self.setting(rate, 0), self.limits, "host cores")
            except OutOfTime:
                if found is None:
                    raise
                return replace(found, cores=1, proven=False)
            if none is not None:
                return none
            if found is None:
                return None
        return self.fewest_cores(found, rate, most)

    def _host(self, found: Found, rate: float) -> float:
        return host_cycles(self.problems[found.variant], found.demand, rate)

    def fewest_cores(self, found: Found, rate: float, most: int) -> Found:
        """Bisect the core count between what the least host work proves and what its assignment needs."""
        bound = self.stages[-1].bound if found.proven else None
        low = 1 if bound is None else max(1, math.ceil(bound - 1e-9))
        high = self._needed(found, rate, 1, most)
        while low < high:
            middle = (low + high) // 2
            try:
                got = self.best("host", self.setting(rate, middle), self.limits, f"host work with {middle} cores")
            except OutOfTime:
                return replace(found, cores=high, proven=False)
            if got is None:
                low = middle + 1
            else:
                found, high = got, self._needed(got, rate, 1, middle)
        return replace(found, cores=high)

    def _needed(self, found: Found, rate: float, low: int, high: int) -> int:
        """The fewest cores in a range with which an assignment meets all limits; the most if none do."""
        problem = self.problems[found.variant]
        while low < high:
            middle = (low + high) // 2
            model = self.model(found.variant, self.setting(rate, middle))
            if _meets(model, found.demand, self.limits) and load_of(problem, found.demand, middle, rate) < math.inf:
                high = middle
            else:
                low = middle + 1
        return high

    def refine(self, found: Found, setting: Setting) -> Found:
        """Headroom, then latency, without giving up host work. ``found`` has the least host work for its cores."""
        host = _loosened(self._host(found, setting.rate))
        limits = replace(self.limits, host=host)
        if self._load(found, setting) > 0:
            found = self.improved(found, "load", setting, limits, "headroom")
        most = limits.load
        assert most is not None
        limits = replace(limits, load=min(most, self._load(found, setting) * (1 + 3 * MARGIN)))
        return self.improved(found, "latency", setting, limits, "latency")

    def _load(self, found: Found, setting: Setting) -> float:
        return load_of(self.problems[found.variant], found.demand, setting.cores, setting.rate)

    def improved(self, found: Found, goal: Goal, setting: Setting, limits: Limits, name: str) -> Found:
        """The best assignment for a later goal; what was found for the first one where there is no time or no other."""
        self.least = _BETTER_LATER
        try:
            best = self.best(goal, setting, limits, name)
        except OutOfTime:
            best = None
        self.least = _BETTER
        return replace(best or found, cores=setting.cores, proven=found.proven)

    def for_cores(self, cores: int, scale: float) -> Found | None:
        """The plan with the largest throughput on exactly ``cores`` host cores; ``scale`` is about that throughput."""
        found = self.most_throughput(cores, scale)
        return None if found is None else self.refined_for_cores(found, cores, scale)

    def most_throughput(self, cores: int, scale: float) -> Found | None:
        """As `for_cores`, by throughput alone."""
        self.scale = scale
        return self.best("load", self.setting(scale, cores), Limits(), "throughput")

    def refined_for_cores(self, found: Found, cores: int, scale: float) -> Found:
        """What `most_throughput` found, improved in what comes after throughput."""
        setting = self.setting(scale, cores)
        load = self._load(found, setting) * (1 + 3 * MARGIN)
        found = self.improved(found, "host", setting, Limits(load), "host work")
        host = self._host(found, scale)
        if cores and host < _LITTLE_WORK:
            # What no packet uses does not have to be at the host if the card has room for it.
            free = self.improved(found, "latency", self.setting(scale, 0), Limits(load), "latency without a host core")
            if not uses_host(self.problems[free.variant], free.assignment):
                return free
        return self.improved(found, "latency", setting, Limits(load, _loosened(host)), "latency")


def _inner(limits: Limits) -> Limits:
    """Limits for a solver, so that what it finds in spite of its tolerance meets the true ones."""
    return replace(limits, load=None if limits.load is None else limits.load * (1 - MARGIN),
                   latency=None if limits.latency is None else limits.latency * (1 - MARGIN))


def _loosened(host: float) -> float:
    """A limit that an assignment with this host work meets in spite of a solver's tolerance."""
    return host * (1 + MARGIN) + 1e-7


def _meets(model: Model, demand: Vector, limits: Limits) -> bool:
    """Whether a legal assignment meets the limits, told by its true values."""
    if limits.load is not None and not model.worth("load", demand) <= limits.load * ROOM:
        return False
    if limits.host is not None and not model.worth("host", demand) <= limits.host * (1 + 1e-9) + 1e-12:
        return False
    if not math.isfinite(model.worth("load", demand)):
        return False
    return limits.latency is None or model.worth("latency", demand) <= limits.latency


def _cut_at(model: Model, demand: Vector) -> None:
    """Tangents at a demand."""
    loads = utilisation(model.problem, demand, model.setting.cores, model.setting.rate)
    if loads.any():
        model.cut_load(loads)
    if model.setting.latency_rate is not None and _queues(model, loads):
        model.cut_latency(loads)


def _queues(model: Model, loads: Vector) -> bool:
    """Whether all resources are far enough below saturation for a tangent of their queues."""
    assert model.setting.latency_rate is not None
    return bool(loads.max(initial=0.0) * model.setting.latency_rate / model.setting.rate < 1 - 1e-6)


def _cut_relaxed(model: Model, goal: Goal, limits: Limits, values: Sequence[float], loads: Vector, gap: float) -> bool:
    """Cut off a relaxed solution whose true soft maximum (by a share of ``gap``) or queueing is worse than thought."""
    cut = False
    thought = values[model.load] if goal == "load" else limits.load
    true = norm(model.problem, loads)
    if thought is not None and true > max(thought, 1e-12) * (1 + gap):
        model.cut_load(loads)
        cut = True
    if model.setting.latency_rate is None or not (goal == "latency" or limits.latency is not None):
        return cut
    if _queues(model, loads) and model.queueing(loads) > values[model.queue] + 1e-4 * max(values[model.latency], 1e-9):
        model.cut_latency(loads)
        cut = True
    return cut

