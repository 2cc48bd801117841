"""The best plan over all variants: no split, every split with every budget that the profile knows of, the return leg.

Each variant is a placement problem of its own; `cora.partition.optimise` compares them, so that the proof covers all.
Where a rate is asked for and a plan without a split leaves no work to the host, none is tried: lending entries would
only cost. Where a split brings nothing that a plan can promise, there is none. Packets may come back from the host only
where some of them have to go there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from cora.partition.baselines import NAMES, Aim, Rules, baseline
from cora.partition.certificates import Shared
from cora.partition.evaluate import ROOM, host_cycles, load_of, throughput, uses_host
from cora.partition.fast import Task, quick
from cora.partition.instance import Instance, build
from cora.partition.integer import Limits, Setting
from cora.partition.optimise import Floor, Found, Optimiser, OutOfTime, Stage, Wishes
from cora.partition.options import Restrictions
from cora.partition.pareto import Front, pareto
from cora.partition.placement import Placement
from cora.partition.prices import Made, Prices
from cora.partition.problem import Assignment, Problem
from cora.partition.units import Units, units_of
from cora.partition.variants import WHOLE, Split, Variant

# Host work (in cores) below which a split cannot save anything.
_NONE = 1e-6
# Throughputs, and host work, that differ by a smaller share are the same.
_SAME = 1e-3
# Splits that the fast search looks at.
_QUICK = 3
# Seconds for each, and for each of its units; units beyond which the fast search finds a bound of its own; and seconds
# for the bound of all variants.
_QUICK_SECONDS = 0.05
_QUICK_SECONDS_A_UNIT = 6e-4
_RELAXED = 400
_BOUND_SECONDS = 1.0
# Where latency is limited and no rate is asked for, the highest rate is found to this relative precision.
_RATE_GAP = 1e-4


@dataclass(frozen=True)
class Asked:
    """What is looked for. ``headroom`` and ``latency`` (ns) are kept by every plan; ``deadline``: `perf_counter`."""

    aim: Aim
    solver: str
    deadline: float
    restrictions: Restrictions = field(default_factory=Restrictions)
    headroom: float = 0.0
    latency: float | None = None

    @property
    def rest(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()

    def wishes(self, rate: float | None) -> Wishes:
        """The limits for a solver, latency at a rate where it is limited."""
        return Wishes(self.headroom, self.latency, None if self.latency is None else rate)


def made_of(prices: Prices, variant: Variant, restrictions: Restrictions) -> Made:
    """A variant made numbers, once for all questions about the same prices."""
    key = id(variant.split), variant.returns, restrictions
    if key not in prices.made:
        base = None if prices.base is None else prices.base.made.get(key)
        if base is None:
            prices.made[key] = Made(variant, restrictions.applied(
                build(prices.program, prices.profile, prices.target, variant, prices)))
        else:
            prices.made[key] = _at_rates_of(base, prices)
    return prices.made[key]


def _at_rates_of(made: Made, prices: Prices) -> Made:
    def rated(problem: Problem) -> Problem:
        return replace(problem, resources=prices.resources)

    instance = replace(made.instance, target=prices.target, prices=prices, problem=rated(made.instance.problem))
    units = made.units
    return Made(made.variant, instance, None if units is None else replace(units, problem=rated(units.problem)))


class Case:
    """One variant made numbers, with the tools that place it."""

    def __init__(self, prices: Prices, variant: Variant, asked: Asked) -> None:
        self.asked = asked
        self.made = made_of(prices, variant, asked.restrictions)
        self.instance: Instance = self.made.instance

    @property
    def units(self) -> Units:
        if self.made.units is None:
            self.made.units = units_of(self.instance)
        return self.made.units

    @cached_property
    def rules(self) -> Rules:
        return Rules(self.instance, self.units, self.asked.aim)

    @cached_property
    def nearest(self) -> Placement | None:
        """Everything as near to the wire as it may be: a first placement to beat."""
        return self.rules.placement(self.rules.settled([0] * len(self.units.problem.units)))

    @cached_property
    def baselines(self) -> dict[str, Placement | None]:
        return {name: baseline(self.rules, name) for name in NAMES}

    @property
    def at_hand(self) -> list[Placement]:
        """Placements to begin a search with."""
        if self.split is None:
            return [p for p in self.baselines.values() if p is not None]
        return [] if self.nearest is None else [self.nearest]

    @property
    def split(self) -> Split | None:
        return self.instance.variant.split

    @property
    def is_possible(self) -> bool:
        """Whether every piece of code may be somewhere."""
        return bool(self.units.problem.allowed.any(axis=1).all())

    @property
    def has_to_leave(self) -> bool:
        """Whether some packets have to go to the host: only then is there a reason for them to come back. Where states
        are pinned, code that was never seen to run counts, too: without coming back there may be no plan at all.
        """
        problem, nodes = self.instance.problem, self.instance.graph.nodes
        near = [v for v, p in enumerate(problem.physical) if p != problem.host]
        pinned = bool(self.asked.restrictions.pins)
        return any((n.packets or pinned) and not allowed[near].any()
                   for n, allowed in zip(nodes, problem.allowed, strict=True))

    def placement(self, assignment: Assignment) -> Placement:
        return Placement(self.instance, self.units.spread(assignment))


@dataclass(frozen=True)
class Chosen:
    """A placement of a case, for so many cores; ``proven``: no variant has a better one for the first goal."""

    case: Case
    placement: Placement
    cores: int
    proven: bool


@dataclass(frozen=True)
class Search:
    """Cases and a search over them."""

    cases: Sequence[Case]
    optimiser: Optimiser

    def chosen(self, found: Found) -> Chosen:
        case = self.cases[found.variant]
        return Chosen(case, case.placement(found.assignment), found.cores, found.proven)


@dataclass(frozen=True)
class Reached:
    """What a search found for its first goal."""

    chosen: Chosen
    found: Found


@dataclass
class Chooser:
    """Compares the variants of a program.

    Attributes:
        scale: about the throughput to expect, so that numbers are about 1.
        stages, variables, rows: evidence of the search that found the best.
        unsplit: the best without a split, by the first goal; ``deferred``: it was not looked for yet.
        reached: per split that was looked at the least host work found at the rate, or the most throughput, by its
            number in ``splits``. compared: how many variants were.
        warm: a placement of one of the cases to begin with.
        shared: what the searches found out for each other.
    """

    prices: Prices
    asked: Asked
    scale: float = 1.0
    stages: list[Stage] = field(default_factory=list)
    variables: int = 0
    rows: int = 0
    unsplit: Reached | None = None
    deferred: bool = False
    reached: dict[int, float] = field(default_factory=dict)
    compared: int = 1
    warm: Placement | None = None
    shared: Shared = field(default_factory=Shared)

    @cached_property
    def whole(self) -> Case:
        """The variant without a split."""
        return Case(self.prices, WHOLE, self.asked)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return self.prices.splits

    @cached_property
    def others(self) -> tuple[Case, ...]:
        """All other variants that are possible."""
        # An owner at the host needs a core there.
        places = len(self.prices.target.places) - 1 if self.aim.most == 0 else len(self.prices.target.places)
        variants = [Variant(split) for split in self.splits if split.owner < places]
        if self.prices.target.returns and self.whole.has_to_leave:
            variants.append(Variant(returns=True))
        cases = (Case(self.prices, v, self.asked) for v in variants)
        return tuple(case for case in cases if case.is_possible)

    @property
    def aim(self) -> Aim:
        return self.asked.aim

    def quickly(self) -> Chosen | None:
        """A good plan by the fast search, over the variant without a split and the splits that look best.

        The bound is of all variants: by the fast search's own, by relaxations as far as there is time, or else by what
        every unit and state uses least.
        """
        started = time.perf_counter()
        promising = sorted(self.others, key=lambda c: (self.aim.key(c.nearest) if c.nearest else (math.inf,) * 3))
        cases = [self.whole, *promising]
        aim, goal = self.aim, self.quick_goal
        floors: dict[int, list[Floor]] = {}
        best: Chosen | None = None
        for i, case in enumerate(cases[: 1 + _QUICK]):
            problem = case.units.problem
            share = min(max(self.asked.rest, 0.05) / (1 + _QUICK - i),
                        _QUICK_SECONDS + _QUICK_SECONDS_A_UNIT * len(problem.units))
            found = quick(problem, goal, share, bounded=len(problem.units) > _RELAXED)
            if found.bound is not None:
                floors[i] = [Floor(goal.setting, goal.goal, goal.limits, found.bound)]
            made = [] if found.assignment is None else [case.placement(found.assignment)]
            for placement in (*case.at_hand, *made):
                cores = self.cores_of(placement)
                if cores is not None and (best is None or aim.key(placement) < aim.key(best.placement)):
                    best = Chosen(case, placement, cores, False)
        if best is None:
            return None
        best, bound = self.bounded(cases, best, floors)
        value = best.placement.load(aim.most, self.scale) if aim.rate is None else best.placement.host_work(aim.rate)
        self.stages = [Stage("host work" if aim.rate is not None else "throughput", "feasible", value,
                             min(value, bound), time.perf_counter() - started, 1 + _QUICK)]
        self.compared = len(cases)
        return best

    @property
    def quick_goal(self) -> Task:
        """What the fast search looks for: least host work at the rate, or most throughput."""
        aim = self.aim
        late = aim.rate if self.asked.latency is not None else None
        setting = Setting(aim.rate or self.scale, aim.most, late)
        if aim.rate is None:
            return Task(setting, "load", Limits())
        return Task(setting, "host", Limits(aim.room, latency=self.asked.latency))

    def cores_of(self, placement: Placement) -> int | None:
        """The host cores that a placement takes for what is asked; None where it does not do."""
        aim = self.aim
        if aim.rate is None:
            return None if aim.most == 0 and placement.uses_host else aim.most
        cores = placement.cores_needed(aim.rate, aim.most, aim.room)
        if cores is None or self.asked.latency is None:
            return cores
        return cores if placement.latency(cores, aim.rate).total <= self.asked.latency else None

    def bounded(self, cases: Sequence[Case], best: Chosen, floors: Mapping[int, Sequence[Floor]]
                ) -> tuple[Chosen, float]:
        """What relaxations prove of all variants, in a little time, and the best with what is found on the way.

        ``floors``: what is proven of the cases already.
        """
        goal = self.quick_goal
        known = [(cases.index(best.case), best.case.units.gathered(best.placement.assignment))]
        search = Search(cases, Optimiser([c.units.problem for c in cases], self.asked.solver,
                                         max(0.0, min(self.asked.rest, _BOUND_SECONDS)),
                                         self.asked.wishes(self.aim.rate), known, floors=floors, shared=self.shared))
        try:
            found = search.optimiser.best(goal.goal, goal.setting, goal.limits, "bound", solves=False)
        except OutOfTime:
            return best, 0.0
        if found is None:
            return best, 0.0
        other = search.chosen(found)
        cores = self.cores_of(other.placement)
        if cores is not None and self.aim.key(other.placement) < self.aim.key(best.placement):
            best = replace(other, cores=cores, proven=False)
        return best, search.optimiser.stages[-1].bound or 0.0

    def front(self, cores: Sequence[int], chosen: Chosen) -> tuple[Front, list[Case]]:
        """The Pareto front of the variant without a split and the chosen one, for these numbers of host cores."""
        cases = [self.whole, *([chosen.case] if chosen.case is not self.whole else [])]
        found = pareto([c.units.problem for c in cases], self.scale, cores, self.asked.solver,
                       max(self.asked.rest, 0.5), self.aim.rate)
        return found, cases

    def case_of(self, variant: Variant) -> Case | None:
        """The case of a variant, None where it is impossible."""
        if variant == WHOLE:
            return self.whole
        return next((c for c in self.others if c.instance.variant.returns == variant.returns
                     and (c.split is variant.split or alike(c.split, variant.split))), None)

    def optimiser_of(self, cases: Sequence[Case], problems: Sequence[Problem],
                     known: Sequence[tuple[int, Assignment]] = (),
                     floors: Mapping[int, Sequence[Floor]] | None = None) -> Optimiser:
        """A search over problems of these cases, with what they have at hand."""
        # Next to a plan made before, what is near the wire in a split is hardly ever worth trying.
        tried = [c.at_hand if self.warm is None or c.split is None else [] for c in cases]
        at_hand = [(i, c.units.gathered(p.assignment)) for i, c in enumerate(cases) for p in tried[i]]
        if self.warm is not None:
            at_hand += [(i, c.units.gathered(self.warm.assignment)) for i, c in enumerate(cases)
                        if c.instance is self.warm.instance]
        return Optimiser(problems, self.asked.solver, max(self.asked.rest, 0.0), self.asked.wishes(self.aim.rate),
                         [*known, *at_hand], floors=floors or {}, shared=self.shared)

    def best(self) -> Chosen | None:
        """The best plan, None when it is proven that there is none.

        Raises:
            OutOfTime: before any was found.
        """
        again = self.best_again()
        if again is not None:
            return again
        alone = self.search([self.whole])
        self.unsplit = first = self.first_goal(alone)
        if first is not None and self.aim.rate is not None and self.host_work(first.chosen) <= _NONE:
            return self.all_goals(alone, first)
        if not self.others:
            return None if first is None else self.all_goals(alone, first)
        known = [] if first is None else [(0, first.found.assignment)]
        every = self.search([self.whole, *self.others], known, {0: alone.optimiser.proven.get(0, [])})
        try:
            best = self.first_goal(every)
        except OutOfTime:
            if first is None:
                raise
            return replace(self.all_goals(alone, first), proven=False)
        if first is None or best is None or not self.as_good(first.chosen, best.chosen):
            return None if best is None else self.all_goals(every, best)
        # The evidence of the first goal is that of all variants.
        found = self.all_goals(alone, first)
        self.stages, self.compared = [*every.optimiser.stages, *alone.optimiser.stages[1:]], len(every.cases)
        return replace(found, proven=best.found.proven)

    def best_again(self) -> Chosen | None:
        """The best plan where one with a split was made before: all variants are held against that one at once.

        None where the best without a split may be as good and has to be known first.
        """
        if self.warm is None or self.warm.instance is self.whole.instance or self.asked.latency is not None:
            return None
        every = self.search([self.whole, *self.others])
        best = self.first_goal(every)
        if best is None or best.chosen.case is self.whole:
            return None
        value = every.optimiser.stages[0].objective * (1 + 2 * _SAME) + 2 * _NONE
        if not every.optimiser.stages or every.optimiser.floor(0) <= value:
            return None
        self.deferred = True
        return self.all_goals(every, best)

    def without_split(self) -> Chosen | None:
        """The best plan that does not split; None where there is none or no time to look for it."""
        if self.deferred:
            self.deferred = False
            with suppress(OutOfTime):
                self.unsplit = self.first_goal(self.search([self.whole]))
        return None if self.unsplit is None else self.unsplit.chosen

    def search(self, cases: Sequence[Case], known: Sequence[tuple[int, Assignment]] = (),
               floors: Mapping[int, Sequence[Floor]] | None = None) -> Search:
        return Search(cases, self.optimiser_of(cases, [c.units.problem for c in cases], known, floors))

    def first_goal(self, search: Search) -> Reached | None:
        """The best of some variants for the first goal; None: there is none."""
        found = self.solved(search.optimiser)
        self.note(search.cases, search.optimiser)
        return None if found is None else Reached(search.chosen(found), found)

    def all_goals(self, search: Search, reached: Reached) -> Chosen:
        """What was found, improved in the goals that follow; with the evidence of the search."""
        optimiser = search.optimiser
        found = self.refined(optimiser, reached.found)
        self.note(search.cases, optimiser)
        self.stages = list(optimiser.stages)
        self.variables, self.rows, self.compared = optimiser.variables, optimiser.rows, len(search.cases)
        return search.chosen(found)

    def as_good(self, one: Chosen, other: Chosen) -> bool:
        """Whether a plan does as well as another as far as a plan's promise goes: then the simpler one is taken."""
        if self.aim.rate is None:
            return one.placement.throughput(one.cores) >= other.placement.throughput(other.cores) * (1 - _SAME)
        return one.cores == other.cores and self.host_work(one) <= self.host_work(other) * (1 + _SAME) + _NONE

    def host_work(self, chosen: Chosen) -> float:
        rate = self.aim.rate
        return chosen.placement.host_work(rate if rate is not None else chosen.placement.throughput(chosen.cores))

    def best_of(self, cases: Sequence[Case]) -> Chosen | None:
        """The best plan of some variants, with its evidence."""
        search = self.search(cases)
        found = self.first_goal(search)
        return None if found is None else self.all_goals(search, found)

    def note(self, cases: Sequence[Case], optimiser: Optimiser) -> None:
        """Keep what was found for each split."""
        number = {id(split): i for i, split in enumerate(self.splits)} if len(cases) > 1 else {}
        aim = self.aim
        for found in optimiser.hands:
            case = cases[found.variant]
            if case.split is None or (aim.most == 0 and uses_host(case.units.problem, found.assignment)):
                continue
            which, problem = number[id(case.split)], case.units.problem
            if aim.rate is None:
                reach = throughput(problem, found.demand, aim.most)
                self.reached[which] = max(reach, self.reached.get(which, 0.0))
            elif load_of(problem, found.demand, aim.most, aim.rate) <= aim.room * ROOM:
                work = host_cycles(problem, found.demand, aim.rate)
                self.reached[which] = min(work, self.reached.get(which, math.inf))

    def solved(self, optimiser: Optimiser) -> Found | None:
        """The best for the first goal; where latency is limited and no rate was asked for, for all of them."""
        aim = self.aim
        if aim.rate is not None:
            return optimiser.least_host(aim.rate, aim.most)
        if self.asked.latency is None:
            return optimiser.most_throughput(aim.most, self.scale)
        rate = self.fastest(optimiser)
        if rate is None:
            return None
        optimiser.wishes = self.asked.wishes(rate)
        setting = Setting(rate, aim.most, rate)
        found = optimiser.best("host", setting, optimiser.limits, "host work")
        return None if found is None else optimiser.improved(found, "latency", setting, optimiser.limits, "latency")

    def refined(self, optimiser: Optimiser, found: Found) -> Found:
        aim = self.aim
        if aim.rate is not None:
            return optimiser.refined_for_rate(found, aim.rate)
        return found if self.asked.latency is not None else optimiser.refined_for_cores(found, aim.most, self.scale)

    def fastest(self, optimiser: Optimiser) -> float | None:
        """The highest rate with the given cores at which some assignment is within the latency; None: none is."""
        aim = self.aim
        free = optimiser.best("load", Setting(self.scale, aim.most), Limits(), "throughput")
        if free is None:
            return None
        low, high = 0.0, self.scale / optimiser.stages[-1].objective * (1 - self.asked.headroom)
        while low < high * (1 - _RATE_GAP):
            middle = (low + high) / 2
            optimiser.wishes = self.asked.wishes(middle)
            setting = Setting(middle, aim.most, middle)
            got = optimiser.best("latency", setting, optimiser.limits, "latency")
            low, high = (middle, high) if got is not None else (low, middle)
            if high < 1:
                return None
        optimiser.stages[-1] = replace(optimiser.stages[0], objective=self.scale / low, bound=self.scale / high)
        del optimiser.stages[:-1]
        return low


def alike(one: Split | None, other: Split | None) -> bool:
    """Whether two splits lend the same in the same way."""
    if one is None or other is None:
        return one is other
    return (one.near, one.owner, one.mode, one.lends) == (other.near, other.owner, other.mode, other.lends)
