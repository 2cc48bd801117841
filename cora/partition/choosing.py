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
from cora.partition.prices import Prices
from cora.partition.problem import Assignment, Problem
from cora.partition.splits import splits_of
from cora.partition.units import Units, units_of
from cora.partition.variants import WHOLE, Split, Variant

# Host work (in cores) below which a split cannot save anything.
_NONE = 1e-6
# Throughputs, and host work, that differ by a smaller share are the same.
_SAME = 1e-3
# Splits that the fast search looks at.
_QUICK = 3
# Seconds for each at most.
_QUICK_SECONDS = 2.0
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


class Case:
    """One variant made numbers, with the tools that place it."""

    def __init__(self, prices: Prices, variant: Variant, asked: Asked) -> None:
        self.asked = asked
        self.instance: Instance = asked.restrictions.applied(
            build(prices.program, prices.profile, prices.target, variant, prices))

    @cached_property
    def units(self) -> Units:
        return units_of(self.instance)

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
        """Whether some packets have to go to the host: only then is there a reason for them to come back."""
        problem, nodes = self.instance.problem, self.instance.graph.nodes
        near = [v for v, p in enumerate(problem.physical) if p != problem.host]
        return any(n.packets and not allowed[near].any() for n, allowed in zip(nodes, problem.allowed, strict=True))

    def placement(self, assignment: Assignment) -> Placement:
        return Placement(self.instance, self.units.spread(assignment))


@dataclass(frozen=True)
class Chosen:
    """A placement of a case, for so many cores; ``proven``: no variant has a better one for the first goal."""

    case: Case
    placement: Placement
    cores: int
    proven: bool


@dataclass
class Chooser:
    """Compares the variants of a program.

    Attributes:
        scale: about the throughput to expect, so that numbers are about 1.
        stages, variables, rows: evidence of the search that found the best.
        unsplit: the best without a split. reached: per split that was looked at the least host work found at the rate,
            or the most throughput, by its number in ``splits``. compared: how many variants were.
        floors: what is proven of the variant that was looked at first.
        warm: a placement of one of the cases to begin with.
        shared: what the searches found out for each other.
    """

    prices: Prices
    asked: Asked
    scale: float = 1.0
    stages: list[Stage] = field(default_factory=list)
    variables: int = 0
    rows: int = 0
    unsplit: Chosen | None = None
    reached: dict[int, float] = field(default_factory=dict)
    compared: int = 1
    floors: list[Floor] = field(default_factory=list)
    warm: Placement | None = None
    shared: Shared = field(default_factory=Shared)

    @cached_property
    def whole(self) -> Case:
        """The variant without a split."""
        return Case(self.prices, WHOLE, self.asked)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return tuple(splits_of(self.prices))

    @cached_property
    def others(self) -> tuple[Case, ...]:
        """All other variants that are possible."""
        variants = [Variant(split) for split in self.splits]
        if self.prices.target.returns and self.whole.has_to_leave:
            variants.append(Variant(returns=True))
        cases = (Case(self.prices, v, self.asked) for v in variants)
        return tuple(case for case in cases if case.is_possible)

    @property
    def aim(self) -> Aim:
        return self.asked.aim

    def quickly(self) -> Chosen | None:
        """A good plan by the fast search, over the variant without a split and the splits that look best.

        Nothing is proven for the splits that are passed over, so that there is a bound only where there is no split.
        """
        started = time.perf_counter()
        promising = sorted(self.others, key=lambda c: (self.aim.key(c.nearest) if c.nearest else (math.inf,) * 3))
        cases = [self.whole, *promising[:_QUICK]]
        aim = self.aim
        best: Chosen | None = None
        bound: float | None = None
        for i, case in enumerate(cases):
            limit = Limits(aim.room, latency=self.asked.latency) if aim.rate is not None else Limits()
            setting = Setting(aim.rate or self.scale, aim.most, aim.rate if self.asked.latency is not None else None)
            share = min(max(self.asked.rest, 0.05) / (len(cases) - i), _QUICK_SECONDS)
            found = quick(case.units.problem, Task(setting, "host" if aim.rate is not None else "load", limit), share)
            bound = found.bound if i == 0 else None
            made = None if found.assignment is None else case.placement(found.assignment)
            for placement in [*case.at_hand, *([made] if made is not None else [])]:
                cores = aim.most if aim.rate is None else placement.cores_needed(aim.rate, aim.most, aim.room)
                late = self.asked.latency is not None and aim.rate is not None and cores is not None and (
                    placement.latency(cores, aim.rate).total > self.asked.latency)
                if cores is None or late or (aim.rate is None and aim.most == 0 and placement.uses_host):
                    continue
                if best is None or aim.key(placement) < aim.key(best.placement):
                    best = Chosen(case, placement, cores, False)
        if best is not None:
            value = best.placement.host_work(aim.rate) if aim.rate is not None \
                else best.placement.load(aim.most, self.scale)
            self.stages = [Stage("host work" if aim.rate is not None else "throughput", "feasible", value, bound,
                                 time.perf_counter() - started, len(cases))]
        self.compared = len(cases)
        return best

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
        at_hand = [(i, c.units.gathered(p.assignment)) for i, c in enumerate(cases) for p in c.at_hand]
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
        first = self.best_of([self.whole])
        self.unsplit = first
        if first is not None and self.aim.rate is not None and self.host_work(first) <= _NONE:
            return first
        if not self.others:
            return first
        cases = [self.whole, *self.others]
        known = [] if first is None else [(0, self.whole.units.gathered(first.placement.assignment))]
        earlier, self.stages = self.stages, []
        try:
            best = self.best_of(cases, known, {0: self.floors})
        except OutOfTime:
            if first is None:
                raise
            best, self.stages = replace(first, proven=False), earlier
        if first is None or best is None or not self.as_good(first, best):
            return best
        return replace(first, proven=best.proven)

    def as_good(self, one: Chosen, other: Chosen) -> bool:
        """Whether a plan does as well as another as far as a plan's promise goes: then the simpler one is taken."""
        if self.aim.rate is None:
            return one.placement.throughput(one.cores) >= other.placement.throughput(other.cores) * (1 - _SAME)
        return one.cores == other.cores and self.host_work(one) <= self.host_work(other) * (1 + _SAME) + _NONE

    def host_work(self, chosen: Chosen) -> float:
        rate = self.aim.rate
        return chosen.placement.host_work(rate if rate is not None else chosen.placement.throughput(chosen.cores))

    def best_of(self, cases: Sequence[Case], known: Sequence[tuple[int, Assignment]] = (),
                floors: Mapping[int, Sequence[Floor]] | None = None) -> Chosen | None:
        """The best plan of some variants; its evidence is added to the stages. What is proven of the first is kept."""
        optimiser = self.optimiser_of(cases, [c.units.problem for c in cases], known, floors)
        found = self.solved(optimiser)
        self.floors = optimiser.proven.get(0, [])
        self.stages += optimiser.stages
        self.variables, self.rows = optimiser.variables, optimiser.rows
        self.compared = len(cases)
        self.note(cases, optimiser)
        if found is None:
            return None
        case = cases[found.variant]
        return Chosen(case, case.placement(found.assignment), found.cores, found.proven)

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
        aim = self.aim
        if aim.rate is not None:
            return optimiser.for_rate(aim.rate, aim.most)
        if self.asked.latency is None:
            return optimiser.for_cores(aim.most, self.scale)
        rate = self.fastest(optimiser)
        if rate is None:
            return None
        optimiser.wishes = self.asked.wishes(rate)
        setting = Setting(rate, aim.most, rate)
        found = optimiser.best("host", setting, optimiser.limits, "host work")
        return None if found is None else optimiser.improved(found, "latency", setting, optimiser.limits, "latency")

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
