"""The Pareto front of plans: host cores, throughput, latency and memory on the card, by epsilon constraints.

For every number of host cores: the most throughput; then again with less and less memory on the card; and the least
latency at parts of that throughput. What another point beats in every respect is left out. Each point is an optimum of
its constrained problem, so none of them is dominated by more than the solver's gap; between two points there may be
others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cora.partition.evaluate import amounts, latency_of, load_of
from cora.partition.integer import Limits, Setting
from cora.partition.optimise import MARGIN, Found, Optimiser, OutOfTime
from cora.partition.problem import Assignment, Ceiling, Problem

# Throughputs at which the least latency is looked for, as shares of the most; memories as shares of what is used then.
_SHARES = (0.95, 0.75, 0.5)
_MEMORIES = (0.75, 0.5, 0.25, 0.0)
# Differences below this are none, as among the other placements of a plan: a front's rows would read alike.
_SAME = 1e-3


@dataclass(frozen=True)
class Point:
    """One plan of the front.

    Attributes:
        throughput: packets a second with ``cores`` host cores, by the soft minimum.
        latency: nanoseconds of the mean packet at the front's latency rate; infinite where that rate is not carried.
        memory: bytes used on the card.
        proven: whether it is proven optimal for its limits.
    """

    variant: int
    assignment: Assignment
    cores: int
    throughput: float
    latency: float
    memory: int
    proven: bool

    def beats(self, other: Point) -> bool:
        """At least as good in every respect and better in one, differences below 0.1 % being none."""
        mine = (self.cores, -self.throughput, self.latency, self.memory)
        others = (other.cores, -other.throughput, other.latency, other.memory)
        slack = [_SAME * abs(o) if o not in (float("inf"), float("-inf")) else 0.0 for o in others]
        return all(m <= o + s for m, o, s in zip(mine, others, slack, strict=True)) and any(
            m < o - s for m, o, s in zip(mine, others, slack, strict=True))


@dataclass(frozen=True)
class Front:
    """Points that no other point beats, by cores, then throughput from the most; ``complete``: there was time for all.
    """

    points: tuple[Point, ...]
    complete: bool


def card_stores(problem: Problem) -> tuple[int, ...]:
    """Stores of the card that are counted in bytes."""
    return tuple(i for i, s in enumerate(problem.stores) if s.place != problem.host and s.unit == "bytes")


def with_card_memory(problem: Problem, most: int) -> Problem:
    """The problem with at most so many bytes of states on the card."""
    stores = card_stores(problem)
    if not stores:
        return problem
    return replace(problem, ceilings=(*problem.ceilings, Ceiling("memory of the card", stores, most)))


def card_memory(problem: Problem, assignment: Assignment) -> int:
    """Bytes of states on the card."""
    used = amounts(problem, assignment)
    return sum(used[i] for i in card_stores(problem))


def pareto(problems: Sequence[Problem], scale: float, cores: Sequence[int], solver: str, seconds: float,
           latency_rate: float | None = None) -> Front:
    """The front of a question's variants within about so many seconds.

    ``scale``: about the throughput to expect (packets/s). ``latency_rate``: where latencies are compared; None: each
    without queueing.
    """
    walk = _Walk(list(problems), scale, solver, time.perf_counter() + seconds, latency_rate)
    for count in cores:
        walk.at_cores(count)
    fresh = [p for i, p in enumerate(walk.points) if not any(_same(p, q) for q in walk.points[:i])]
    kept = [p for p in fresh if not any(q.beats(p) for q in fresh)]
    return Front(tuple(sorted(kept, key=lambda p: (p.cores, -p.throughput, p.latency, p.memory))), walk.complete)


def _same(one: Point, other: Point) -> bool:
    return (one.variant, one.assignment, one.cores) == (other.variant, other.assignment, other.cores)


@dataclass
class _Walk:
    problems: list[Problem]
    scale: float
    solver: str
    deadline: float
    latency_rate: float | None
    complete: bool = True

    def __post_init__(self) -> None:
        self.points: list[Point] = []

    def at_cores(self, cores: int) -> None:
        """The points with so many host cores."""
        most = self.best(self.problems, cores, None)
        if most is None:
            return
        self.less_memory(cores, most)
        for share in _SHARES:
            # With less throughput asked there is room for memories and places that are nearer but narrower.
            self.best(self.problems, cores, self.scale / most.throughput / share)

    def less_memory(self, cores: int, most: Point) -> None:
        """The most throughput with less and less memory of the card, down to none."""
        reached = most.memory
        for share in _MEMORIES:
            bytes_left = int(most.memory * share)
            if bytes_left >= reached:
                continue
            point = self.best([with_card_memory(p, bytes_left) for p in self.problems], cores, None)
            if point is None:
                return
            reached = point.memory

    def best(self, problems: Sequence[Problem], cores: int, load: float | None) -> Point | None:
        """Most throughput (without ``load``), or least latency within a load; None: impossible, or no time."""
        rest = self.deadline - time.perf_counter()
        if rest <= 0:
            self.complete = False
            return None
        known = [(p.variant, p.assignment) for p in self.points]
        search = Optimiser(problems, self.solver, rest, known=known)
        setting = Setting(self.scale, cores)
        try:
            if load is not None:
                found = search.best("latency", setting, Limits(load), "latency")
            else:
                found = search.best("load", setting, Limits(), "throughput")
                if found is not None:
                    found = self.frugal(search, setting, found)
        except OutOfTime:
            self.complete = False
            return None
        if found is None:
            return None
        point = self.point(found, cores)
        self.points.append(point)
        return point

    def frugal(self, search: Optimiser, setting: Setting, found: Found) -> Found:
        """Of the plans with this throughput one with little latency."""
        problem = self.problems[found.variant]
        load = load_of(problem, found.demand, setting.cores, setting.rate) * (1 + 3 * MARGIN)
        return search.improved(found, "latency", setting, Limits(load), "latency")

    def point(self, found: Found, cores: int) -> Point:
        problem = self.problems[found.variant]
        load = load_of(problem, found.demand, cores, self.scale)
        reach = self.scale / load if load else float("inf")
        rate = self.latency_rate
        if rate is None:
            latency = float(found.demand[-1]) + sum(
                1e9 * r.servers / r.rate * float(d) for r, d in zip(problem.resources, found.demand, strict=False)
                if r.rate)
        else:
            latency = latency_of(problem, found.demand, cores, rate).total if rate <= reach else float("inf")
        return Point(found.variant, found.assignment, cores, reach, latency, card_memory(problem, found.assignment),
                     found.proven)

