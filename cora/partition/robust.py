"""How robust a plan is: it and its rivals under scenarios of model and traffic, and the one that is least to regret.

Rivals are the baselines, the plan with one state elsewhere, and what is best for some of the scenarios by themselves.
A rival's regret in a scenario is what it loses against the best of them all there: host cores at the asked rate, or a
share of the throughput where cores were given.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cora.analysis.profile import Profile
from cora.errors import CoraError
from cora.ir.nodes import Program
from cora.models.target import Target
from cora.partition.baselines import Aim
from cora.partition.choosing import Asked, Case, Chooser
from cora.partition.evaluate import DEFAULT_HOST_CORES
from cora.partition.exact import broken_rules
from cora.partition.instance import Instance
from cora.partition.optimise import OutOfTime
from cora.partition.placement import Placement, class_of
from cora.partition.planner import instance_of, placement_of, plan_with, restrictions_of, settled
from cora.partition.prices import Prices
from cora.partition.problem import Assignment, CopyOption, Option, Problem, Vector
from cora.partition.scenarios import FACTORS, USUAL, Scenarios, Spread
from cora.partition.variants import WHOLE, Split, Variant
from cora.plan.document import Plan, Request
from cora.units import LINE_OCTETS

SCENARIOS = 200
SEED = 20
# For so many scenarios the best plan is searched anew.
REPLANNED = 6
# Losses below these are the model's noise: host cores, and a share of throughput.
_SAME_CORES = 0.01
_SAME_SHARE = 1e-3
# Correlations weaker than this are likely chance and not told, nor are those of fewer scenarios.
_TELLING = 0.25
_ENOUGH = 50
_DRIVERS = 5


@dataclass(frozen=True)
class Rival:
    """One placement over all scenarios; figures as `Robustness.measure` says.

    ``value``: at the model's and the profile's own figures; ``low``, ``middle``, ``high``: P10, median and P90 (None:
    out of reach). ``met``: share of scenarios in which it carries the asked rate with the plan's cores (None: none was
    asked for). ``best``: share of scenarios in which none is better. ``regret``: mean, P90 and maximum over the
    scenarios that any rival carries; ``lost``: share of these in which this one does not.
    """

    name: str
    states: Mapping[str, str]
    value: float | None
    low: float | None
    middle: float | None
    high: float | None
    met: float | None
    best: float
    regret: tuple[float | None, float | None, float | None]
    lost: float


@dataclass(frozen=True)
class Driver:
    """What the plan's figure depends on: rank correlation with a parameter or a factor of the traffic (-1 to 1)."""

    name: str
    correlation: float


@dataclass(frozen=True)
class Robustness:
    """What scenarios say of a plan.

    ``measure``: ``host cores`` at the asked rate, fractional, or ``throughput`` in packets/s. ``unreachable``: share of
    scenarios in which nothing carries the asked rate. ``rivals``: the plan first, then by regret. ``least_regret``: the
    name of the one to take. ``binding``: per resource the share of scenarios in which it limits the plan.
    """

    scenarios: int
    seed: int
    spread: Spread
    measure: str
    unreachable: float
    rivals: tuple[Rival, ...]
    least_regret: str
    binding: Mapping[str, float]
    drivers: tuple[Driver, ...]

    def rival(self, name: str) -> Rival:
        """The rival of that name.

        Raises:
            KeyError: there is none.
        """
        return {r.name: r for r in self.rivals}[name]


@dataclass(frozen=True)
class Judgement:
    """A report with the placements that its rivals stand for."""

    report: Robustness
    placements: Mapping[str, Placement]


def judge(instance: Instance, chosen: Placement, request: Request, cores: int, *, count: int = SCENARIOS,
          seed: int = SEED, spread: Spread = USUAL) -> Judgement:
    """Hold a plan's placement against its rivals under ``count`` scenarios; ``cores`` are the plan's host cores."""
    return _Judge(instance, chosen, request, cores, Scenarios(instance, count + 1, seed, spread), seed, spread).judged()


def least_regret(plan: Plan, program: Program, profile: Profile, target: Target) -> Plan:
    """The plan that is least to regret of those that carry the rate as predicted; the given one where that is it.

    Raises:
        CoraError: as `cora.partition.plan`.
    """
    instance = instance_of(plan, program, profile, target)
    found = judge(instance, placement_of(plan, instance), plan.request, plan.cores)
    name = found.report.least_regret
    if name == found.report.rivals[0].name:
        return plan
    made = plan_with(profile, plan.request, found.placements[name], "taken because it is least to regret")
    # The plan's own samples are of the model alone, with the cores that each plan asks for.
    return plan if (made.samples_met or 0) < (plan.samples_met or 0) else made


class _Judge:
    def __init__(self, instance: Instance, chosen: Placement, request: Request, cores: int, scenarios: Scenarios,
                 seed: int, spread: Spread) -> None:
        self.instance, self.chosen, self.request = instance, chosen, request
        self.scenarios, self.seed, self.spread = scenarios, seed, spread
        self.cores = cores
        most = request.cores if request.cores is not None else DEFAULT_HOST_CORES
        self.aim = Aim(request.rate_pps, request.cores, most)
        self.rates = self._rates()
        self.demands: dict[str, Vector] = {}
        self.cases: dict[None, Case] = {}

    def _rates(self) -> Vector | None:
        """[S] packets a second that are asked for; those of a line depend on the frames."""
        if self.request.rate_pps is None:
            return None
        if self.request.line_bps is None:
            return np.full(len(self.scenarios), float(self.request.rate_pps))
        return self.request.line_bps / (8 * (self.scenarios.frames + LINE_OCTETS))

    def judged(self) -> Judgement:
        placements = {"the plan": self.chosen}
        known = {_identity(self.chosen)}
        for name, placement in self.rivals():
            if _identity(placement) not in known:
                known.add(_identity(placement))
                placements[name if name not in placements else f"{name} ({len(placements)})"] = placement
        self.demands = {name: self.scenarios.demand(p) for name, p in placements.items()}
        # Smaller is better, in every scenario; infinite where the rate is not carried.
        costs = np.array([self.cost(placements[n], d) for n, d in self.demands.items()])
        return Judgement(self.report(placements, costs), placements)

    def cost(self, placement: Placement, demand: Vector) -> Vector:
        if self.rates is None:
            return 1 / self.scenarios.throughput(demand, max(self.aim.most, int(placement.uses_host)))
        cores = self.scenarios.cores(demand, self.rates)
        return np.where(cores <= self.aim.most, cores, math.inf)

    # Rivals.

    def asked(self) -> Asked:
        """What was asked for, with time enough for one more search."""
        request = self.request
        given = restrictions_of(request.pins, request.forbids, request.max_nic_memory, self.instance.program,
                                self.instance.target)
        return Asked(self.aim, request.solver, time.perf_counter() + request.time_limit_s, given, request.headroom,
                     request.max_latency_ns)

    def rivals(self) -> Iterator[tuple[str, Placement]]:
        whole = Case(self.instance.prices, WHOLE, self.asked())
        self.cases = {None: whole}
        for name, found in whole.baselines.items():
            if found is not None:
                yield name, found
        same = self.on_todays_graph(self.chosen) if self.instance.variant == WHOLE else None
        for state, (place, _) in () if same is None else same.states.items():
            for other in range(self.instance.last + 1):
                moved = whole.rules.moved(same, state, other) if same is not None and place != other else None
                if moved is not None:
                    yield f"{state} to {self.instance.target.places[other].name}", moved
        for number in self.hardest():
            best = self.replanned(number)
            found = None if best is None else self.on_todays_graph(best)
            if found is not None:
                yield f"best for scenario {number}", found

    def hardest(self) -> list[int]:
        """Scenarios to search a plan for: half of them where the plan does worst, half spread over the rest."""
        cost = self.cost(self.chosen, self.scenarios.demand(self.chosen))[1:]
        order = 1 + np.argsort(-cost, kind="stable")
        half = REPLANNED // 2
        spread = order[half:][np.linspace(0, len(order) - half - 1, min(REPLANNED - half, max(len(order) - half, 0)),
                                          dtype=int)] if len(order) > half else order[:0]
        return [int(i) for i in (*order[:half], *spread)]

    def replanned(self, number: int) -> Placement | None:
        """The best placement if a scenario were certain, without a split or with the plan's own."""
        target, drawn = self.scenarios.targets[number], self.scenarios.drawn[number]
        asked = self.asked()
        scale = float(self.scenarios.throughput(self.scenarios.demand(self.chosen), max(self.aim.most, 1))[number])
        if self.rates is not None:
            asked = replace(asked, aim=replace(self.aim, rate=float(self.rates[number])))
        chooser = Chooser(Prices(self.instance.program, drawn.profile, target), asked, scale)
        try:
            own = self.own_split(chooser)
            found = chooser.best_of([chooser.whole] if own is None else [chooser.whole, own])
        except (OutOfTime, CoraError):
            return None
        return None if found is None else settled(found.placement)

    def own_split(self, chooser: Chooser) -> Case | None:
        """The plan's split under the figures of another scenario."""
        wanted = self.instance.variant.split
        if wanted is None:
            return None
        for split in chooser.splits:
            if _lends_alike(split, wanted):
                case = Case(chooser.prices, Variant(split, self.instance.variant.returns), chooser.asked)
                return case if case.is_possible else None
        return None

    def on_todays_graph(self, placement: Placement) -> Placement | None:
        """A placement of a scenario on the graph of the plan's own traffic; None where it is not legal there."""
        split = placement.instance.variant.split
        instance = self.cases[None].instance if split is None else self.instance
        known = placement.blocks
        if any(class_of(n) not in known for n in instance.graph.nodes):
            return None
        nodes = tuple(known[class_of(n)] for n in instance.graph.nodes)
        problem = instance.problem
        try:
            whole = tuple(_numbers(problem, s.options)[placement.states[s.name]] for s in problem.whole)
            copies = tuple({p: _numbers(problem, s.options)[p, tier] for p, tier in placement.copies[s.name].items()}
                           for s in problem.copied)
        except KeyError:
            return None
        assignment = Assignment(nodes, whole, copies)
        return None if broken_rules(problem, assignment) else Placement(instance, assignment)

    # The report.

    def report(self, placements: Mapping[str, Placement], costs: Vector) -> Robustness:
        names = list(placements)
        drawn = costs[:, 1:]
        best = drawn.min(axis=0)
        reached = np.isfinite(best)
        with np.errstate(invalid="ignore"):
            regret = drawn[:, reached] - best[reached]
            if self.rates is None:
                regret = 1 - best[reached] / drawn[:, reached]
        same = _SAME_CORES if self.rates is not None else _SAME_SHARE
        rivals = [self.rival(n, placements[n], costs[i], regret[i], same) for i, n in enumerate(names)]
        order = {r.name: (_steps(r.regret[1], same), r.lost, _steps(r.regret[0], same), i)
                 for i, r in enumerate(rivals)}
        # What misses the rate by the model's own figures is no plan, and what carries it less often no safer one.
        carrying = [r for r in rivals if r.value is not None and _carries_as_often(r, rivals[0])] or rivals[:1]
        least = min(carrying, key=lambda r: order[r.name])
        others = sorted(rivals[1:], key=lambda r: order[r.name])
        binding = Counter(self.scenarios.binding(self.demands[names[0]], self.cores)[1:])
        count = len(self.scenarios) - 1
        return Robustness(count, self.seed, self.spread,
                          "throughput" if self.rates is None else "host cores",
                          float(1 - reached.mean()), (rivals[0], *others), least.name,
                          {n: k / count for n, k in binding.most_common()}, self.drivers(costs[0, 1:]))

    def rival(self, name: str, placement: Placement, cost: Vector, regret: Vector, same: float) -> Rival:
        values = 1 / cost if self.rates is None else cost
        demand = self.demands[name]
        met = None
        if self.rates is not None:
            cores = max(self.cores, int(placement.uses_host))
            met = float((self.scenarios.throughput(demand, cores)[1:] >= self.rates[1:]).mean())
        finite = np.isfinite(regret)
        low, middle, high = (_quantile(values[1:], q) for q in (0.1, 0.5, 0.9))
        states = placement.kept
        mean = _rounded(float(regret.mean())) if regret.size else None
        told = (mean, _quantile(regret, 0.9), _rounded(float(regret.max())) if regret.size else None)
        return Rival(name, states, _rounded(float(values[0])), low, middle, high, met,
                     float((regret <= same).mean()) if regret.size else 0.0, told,
                     float(1 - finite.mean()) if regret.size else 0.0)

    def drivers(self, cost: Vector) -> tuple[Driver, ...]:
        usable = np.isfinite(cost)
        if usable.sum() < _ENOUGH or np.ptp(cost[usable]) <= 1e-9 * cost[usable].max():
            return ()
        figure = _ranks(cost[usable] if self.rates is not None else -cost[usable])
        found = []
        for name, values in self.inputs():
            here = values[usable]
            if here.std() > 0:
                found.append(Driver(name, round(float(np.corrcoef(_ranks(here), figure)[0, 1]), 3)))
        telling = [d for d in found if abs(d.correlation) >= _TELLING]
        return tuple(sorted(telling, key=lambda d: -abs(d.correlation))[:_DRIVERS])

    def inputs(self) -> Iterator[tuple[str, Vector]]:
        """What was drawn, by name, over the scenarios but the centre."""
        for parameter in self.instance.target.model:
            if parameter.low < parameter.high:
                yield parameter.name, np.array([t.model[parameter.name] for t in self.scenarios.targets[1:]])
        for factor in FACTORS:
            values = np.array([d.factors[factor] for d in self.scenarios.drawn[1:]])
            yield f"traffic: {factor.replace('_', ' ')}", values


def _carries_as_often(rival: Rival, plan: Rival) -> bool:
    """Whether a rival carries the asked rate in as many scenarios as the plan, with its cores and with the most."""
    return rival.lost <= plan.lost and (rival.met or 0.0) >= (plan.met or 0.0)


def _numbers(problem: Problem, options: Sequence[Option | CopyOption]) -> dict[tuple[int, str], int]:
    """Per (place, tier) the number of the option."""
    return {(o.place, problem.stores[o.store].name): i for i, o in enumerate(options)}


def _lends_alike(one: Split, other: Split) -> bool:
    """Whether two splits lend under the same budgets, whatever the traffic makes of them."""
    def budgets(split: Split) -> list[tuple[str, int, int]]:
        return [(lend.component, lend.capacity, lend.threshold) for lend in split.lends]

    return (one.near, one.owner, one.mode, budgets(one)) == (other.near, other.owner, other.mode, budgets(other))


def _identity(placement: Placement) -> tuple[object, ...]:
    return (placement.nodes, *sorted(placement.states.items()),
            *((name, *sorted(c.items())) for name, c in placement.copies.items()))


def _steps(value: float | None, step: float) -> float:
    """What differs by less than the model's noise is the same; None is infinite."""
    return math.inf if value is None else round(value / step)


def _ranks(values: NDArray[np.float64]) -> Vector:
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _quantile(values: Vector, share: float) -> float | None:
    """Infinite values count as the largest; None when the quantile is one."""
    if not len(values):
        return None
    ordered = np.sort(values)
    position = (math.floor if share <= 0.5 else math.ceil)(share * (len(ordered) - 1))
    return _rounded(float(ordered[position]))


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
