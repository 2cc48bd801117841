"""Random small placement problems with every feature, and the best of all their assignments by trying each one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cora.models.latency import latency
from cora.models.target import Resource
from cora.partition.problem import (
    Assignment,
    Ceiling,
    CodeStore,
    CopiedState,
    CopyOption,
    Edge,
    Option,
    Order,
    Problem,
    Store,
    Together,
    WholeState,
)

RATE = 1e6
# physical places of the virtual ones: two places, three, a return leg.
_LAYOUTS: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = (
    ((0, 1), ("nic", "host")), ((0, 1, 2), ("nic", "arm", "host")), ((0, 1, 0), ("nic", "host")))


def random_problem(seed: int) -> Problem:
    """A problem that can be solved by trying everything; most have assignments, some have none."""
    return _Case(random.Random(seed)).problem()


class _Case:
    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.physical, self.places = source.choice(_LAYOUTS)
        self.units = source.randint(2, 6)
        self.resources = (
            Resource("nic-cycles", source.uniform(2e9, 8e9), "cycle", "nic", servers=source.choice((1, 8)), room=64),
            Resource("arm-cycles", source.uniform(1e9, 4e9), "cycle", "arm", servers=4, room=64),
            Resource("host-cycles", 1e9, "cycle", "host", scales=True, room=64),
            Resource("host-memory", 1.5e9, "byte", "host", scales=True),
            Resource("link", source.uniform(3e8, 1e9), "byte", "nic", servers=1, room=16),
        )
        self.width = len(self.resources) + 1
        self.stores = tuple(Store(f"m{i}", place, source.randint(20, 100))
                            for i, place in enumerate([0, 0, *range(1, len(self.places))]))

    def row(self, place: int, size: float) -> np.ndarray:
        """A vector with some use of a physical place's cycles."""
        found = np.zeros(self.width)
        column = (0, 2)[place] if len(self.places) == 2 else (0, 1, 2)[place]
        found[column] = self.random.uniform(0.1, 1) * size
        if column == 2:
            found[3] = self.random.choice((0.0, self.random.uniform(0, 1) * size))
        found[-1] = self.random.uniform(10, 200)
        return found

    def vectors(self, size: float) -> np.ndarray:
        return np.array([self.row(p, size) for p in self.physical])

    def problem(self) -> Problem:
        r = self.random
        allowed = np.array([[r.random() < 0.92 for _ in self.physical] for _ in range(self.units)])
        edges = [self.edge(u, v) for u in range(self.units) for v in range(u + 1, self.units)
                 if v == u + 1 or r.random() < 0.3]
        whole = [self.whole(i) for i in range(r.randint(0, 3))]
        copied = [self.copied(i) for i in range(r.choice((0, 0, 1, 2)))]
        orders = (Order(0, 1),) if len(whole) > 1 and r.random() < 0.3 else ()
        code = tuple(self.code(place) for place in range(len(self.places) - 1) if r.random() < 0.4)
        ceilings = (Ceiling("card memory", (0, 1), r.randint(15, 80)),) if r.random() < 0.3 else ()
        base = np.zeros(self.width)
        base[4] = r.choice((0.0, 50.0))
        cost = np.array([self.vectors(800) for _ in range(self.units)])
        return Problem(self.resources, 8.0, base, allowed, cost, tuple(edges), tuple(whole), tuple(copied), orders,
                       self.stores, ceilings, code, self.physical, self.places,
                       tuple(f"unit{u}" for u in range(self.units)), tuple(self.together()))

    def together(self) -> Iterator[Together]:
        r = self.random
        if r.random() < 0.4:
            kept = r.sample(range(self.units), r.randint(2, min(4, self.units)))
            alone = r.randint(1, len(kept))
            yield Together(tuple(kept[:alone]), tuple(kept[alone:]), r.choice((0, 0, -1)), "they go together")

    def edge(self, source: int, target: int) -> Edge:
        r = self.random
        cross = np.zeros((len(self.physical), self.width))
        for place in range(1, len(self.physical)):
            cross[place] = self.row(self.physical[place], 100)
            cross[place, 4] = r.uniform(10, 300)
        crossable = np.array([True, *(r.random() < 0.9 for _ in self.physical[1:])])
        visit = self.vectors(400) * r.choice((0.0, 1.0))
        visit[0] = 0.0
        return Edge(source, target, cross, crossable, visit)

    def users(self) -> tuple[int, ...]:
        return tuple(sorted(self.random.sample(range(self.units), self.random.choice((0, 1, 1, 1, 2)))))

    def whole(self, number: int) -> WholeState:
        kept = [i for i in range(len(self.stores)) if self.random.random() < 0.93] or [0]
        return WholeState(f"s{number}", self.users(), tuple(
            Option(self.stores[i].place, i, self.random.randint(5, 30), self.row(self.stores[i].place, 300))
            for i in kept))

    def copied(self, number: int) -> CopiedState:
        users = self.users()
        return CopiedState(f"c{number}", users, tuple(
            CopyOption(s.place, i, self.random.randint(2, 20),
                       np.array([self.row(s.place, 200) for _ in users]).reshape(-1, self.width))
            for i, s in enumerate(self.stores)))

    def code(self, place: int) -> CodeStore:
        pieces = tuple((frozenset(self.random.sample(range(self.units), self.random.choice((1, 1, 2)))),
                        self.random.randint(1, 20)) for _ in range(self.units))
        return CodeStore(place, self.random.randint(15, 60), pieces)


def every_assignment(problem: Problem) -> Iterator[Assignment]:
    """All legal assignments, by rules spelled out here."""
    units, spots = range(len(problem.units)), range(len(problem.physical))
    for places in itertools.product(spots, repeat=len(units)):
        if not all(problem.allowed[u, places[u]] for u in units) or not _moves(problem, places):
            continue
        if not all({places[u] for u in t.units} | ({places[u] for u in t.lent} - {t.near}) == {places[t.units[0]]}
                   for t in problem.together):
            continue
        where = [problem.physical[p] for p in places]
        if any(sum(size for members, size in store.pieces if any(where[u] == store.place for u in members))
               > store.capacity for store in problem.code):
            continue
        choices = [[i for i, o in enumerate(s.options) if all(where[u] == o.place for u in s.units)]
                   for s in problem.whole]
        copies = [_copies(problem, number, where) for number in range(len(problem.copied))]
        for whole in itertools.product(*choices):
            for copied in itertools.product(*copies):
                assignment = Assignment(places, whole, copied)
                if _fits(problem, assignment):
                    yield assignment


def _moves(problem: Problem, places: tuple[int, ...]) -> bool:
    for edge in problem.edges:
        start, stop = places[edge.source], places[edge.target]
        if stop < start or not all(edge.crossable[p] for p in range(start + 1, stop + 1)):
            return False
    return True


def _copies(problem: Problem, number: int, where: list[int]) -> list[dict[int, int]]:
    state = problem.copied[number]
    needed = sorted({where[u] for u in state.users})
    ways = [[i for i, o in enumerate(state.options) if o.place == p] for p in needed]
    return [dict(zip(needed, chosen, strict=True)) for chosen in itertools.product(*ways)]


def _fits(problem: Problem, assignment: Assignment) -> bool:
    kept = [s.options[o] for s, o in zip(problem.whole, assignment.whole, strict=True)]
    if any(kept[o.near].place >= kept[o.far].place for o in problem.orders):
        return False
    filled = [0] * len(problem.stores)
    for option in kept:
        filled[option.store] += option.amount
    for state, chosen in zip(problem.copied, assignment.copies, strict=True):
        for number in chosen.values():
            filled[state.options[number].store] += state.options[number].amount
    if any(sum(filled[i] for i in c.stores) > c.capacity for c in problem.ceilings):
        return False
    return all(used <= store.capacity for used, store in zip(filled, problem.stores, strict=True))


def demand_by_hand(problem: Problem, assignment: Assignment) -> list[float]:
    """Mean demand of a packet, term by term."""
    terms = [problem.base]
    for unit, place in enumerate(assignment.places):
        terms.append(problem.cost[unit][place])
    for edge in problem.edges:
        start, stop = assignment.places[edge.source], assignment.places[edge.target]
        for place in range(start + 1, stop + 1):
            terms.append(edge.cross[place])
        if stop != start:
            terms.append(edge.visit[stop])
    for state, number in zip(problem.whole, assignment.whole, strict=True):
        terms.append(state.options[number].cost)
    for copied, chosen in zip(problem.copied, assignment.copies, strict=True):
        for i, user in enumerate(copied.users):
            terms.append(copied.options[chosen[problem.physical[assignment.places[user]]]].cost[i])
    return [math.fsum(float(t[k]) for t in terms) for k in range(len(problem.base))]


@dataclass(frozen=True)
class Judged:
    """What one assignment reaches with some cores; ``load`` infinite where it cannot be had."""

    assignment: Assignment
    load: float
    host: float
    latency: float


def judged(problem: Problem, assignment: Assignment, demand: list[float], cores: int, queueing: bool) -> Judged:
    """Soft maximum, host work and latency at RATE."""
    host = len(problem.places) - 1
    at_host = any(problem.physical[p] == host for p in assignment.places) or any(
        s.options[o].place == host for s, o in zip(problem.whole, assignment.whole, strict=True))
    if cores == 0 and at_host:
        return Judged(assignment, math.inf, math.inf, math.inf)
    shares = []
    work = 0.0
    for used, resource in zip(demand, problem.resources, strict=False):
        available = resource.rate * (cores if resource.scales else 1)
        shares.append(0.0 if not used else RATE * used / available if available else math.inf)
        work = max(work, RATE * used / resource.rate if resource.scales else 0.0)
    load = sum(s**problem.exponent for s in shares) ** (1 / problem.exponent)
    uses = {r.name: d for r, d in zip(problem.resources, demand, strict=False)}
    if math.isinf(load):
        return Judged(assignment, math.inf, work, math.inf)
    if queueing:
        time = latency(demand[-1], uses, problem.resources, RATE, cores).total
    else:
        time = demand[-1] + sum(1e9 * r.servers / r.rate * d for r, d in zip(problem.resources, demand, strict=False))
    return Judged(assignment, load, work, time)


def all_judged(problem: Problem, cores: int, queueing: bool = False) -> list[Judged]:
    """Every legal assignment with what it reaches."""
    return [judged(problem, a, demand_by_hand(problem, a), cores, queueing) for a in every_assignment(problem)]
