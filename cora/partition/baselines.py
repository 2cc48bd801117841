"""Placements by simple rules: what a plan is compared with, and what is kept when a solver's time runs out.

* host-only: everything at the host.
* traffic-only: all state at the host; code before the first state access runs as near to the wire as it may.
* state-only: every state as near to the wire as its memory takes it, most accesses per byte first; code follows.
* greedy: from the better of the first two, move one group of states at a time to the place that helps most.

All keep every state whole or copied: none of them splits flows.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cora.partition import evaluate
from cora.partition.exact import code_used
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.partition.problem import Assignment, CodeStore, CopyOption, Edge, Option, Problem, Together, Vector
from cora.partition.units import Units

NAMES = ("host-only", "traffic-only", "state-only", "greedy")
# Beyond this many combinations of tiers, states choose theirs one after the other.
_COMBINATIONS = 32


@dataclass(frozen=True)
class Aim:
    """What a placement is for: ``rate`` packets/s with the fewest of ``most`` cores, or the most with ``cores``.

    ``room``: the soft maximum of utilisations that may be used, 1 for all there is.
    """

    rate: float | None
    cores: int | None
    most: int
    room: float = 1.0

    def key(self, placement: Placement) -> tuple[float, float, float]:
        """Order of placements, smaller is better; infinite where the aim is missed."""
        if self.rate is None:
            assert self.cores is not None
            if placement.uses_host and self.cores == 0:
                return (math.inf, math.inf, math.inf)
            reached = placement.throughput(self.cores)
            return (1.0 / reached if reached else math.inf, placement.host_work(1.0), 0.0)
        needed = placement.cores_needed(self.rate, self.most, self.room)
        return (math.inf if needed is None else float(needed), placement.host_work(self.rate),
                placement.load(self.most, self.rate))


# A table and the place of one of its copies, None for a table that is kept once.
_Kept = tuple[int, int | None]


@dataclass(frozen=True)
class Rules:
    """Makes legal placements of an instance from wishes for its units."""

    instance: Instance
    units: Units
    aim: Aim

    @property
    def problem(self) -> Problem:
        return self.units.problem

    @property
    def last(self) -> int:
        """The virtual place of the host."""
        return self.problem.physical.index(self.problem.host)

    def settled(self, wanted: Sequence[int]) -> list[int] | None:
        """Virtual places of units, none nearer to the wire than wanted, as near as they legally can be; None: none."""
        nearest = self._nearest
        places = [nearest[u][p] for u, p in enumerate(wanted)]
        nowhere = len(self.problem.physical)
        changed = True
        while changed:
            changed = False
            for source, target in self._ends:
                if places[target] < places[source]:
                    places[target] = nearest[target][places[source]]
                    changed = True
            for group in self.problem.together:
                changed |= self._gather(group, places)
            for edge in self._uncrossable:
                least = max((p for p in range(places[edge.source] + 1, min(places[edge.target], nowhere - 1) + 1)
                             if not edge.crossable[p]), default=0)
                if places[edge.source] < least:
                    places[edge.source] = nearest[edge.source][least]
                    changed = True
        return None if nowhere in places else places

    def _gather(self, group: Together, places: list[int]) -> bool:
        """Bring the units of a group to the farthest place of theirs; whether any moves."""
        there = places[group.units[0]]
        farthest = max([places[u] for u in group.units] + [places[u] for u in group.lent if places[u] != group.near])
        moving = [u for u in (*group.units, *(u for u in group.lent if places[u] not in (there, group.near)))
                  if places[u] < farthest]
        for unit in moving:
            places[unit] = self._nearest[unit][farthest]
        return bool(moving)

    @cached_property
    def _nearest(self) -> list[list[int]]:
        """Per unit and wanted place the nearest place from there on that takes it, one past the last for none."""
        nowhere = len(self.problem.physical)
        return [[next((p for p in range(place, nowhere) if allowed[p]), nowhere) for place in range(nowhere + 1)]
                for allowed in self.problem.allowed]

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        return sorted(zip(*self.problem.ends.tolist(), strict=True))

    @cached_property
    def _uncrossable(self) -> list[Edge]:
        return [self.problem.edges[int(i)] for i in np.flatnonzero(~self.problem.crossable.all(axis=1))]

    def placement(self, places: Sequence[int] | None) -> Placement | None:
        """The placement with the best tiers for these places, None when a memory or a code store is too small."""
        if places is None:
            return None
        problem = self.problem
        choices: dict[_Kept, list[int]] = {}
        for number, state in enumerate(problem.whole):
            where = {problem.physical[places[u]] for u in state.units}
            if len(where) > 1:
                return None
            choices[number, None] = [o for o, option in enumerate(state.options) if option.place in (where or
                                     {option.place})]
        for number, copied in enumerate(problem.copied):
            for place in sorted({problem.physical[places[u]] for u in copied.users}):
                choices[number, place] = [o for o, option in enumerate(copied.options) if option.place == place]
        found = self._tiers(choices, places)
        if found is None:
            return None
        made = self._assignment(places, found)
        if any(code_used(problem, made, number) > store.capacity for number, store in self._tight):
            return None
        return Placement(self.instance, self.units.spread(made))

    def _assignment(self, places: Sequence[int], chosen: Mapping[_Kept, int]) -> Assignment:
        copies: list[dict[int, int]] = [{} for _ in self.problem.copied]
        for (number, place), option in chosen.items():
            if place is not None:
                copies[number][place] = option
        return Assignment(tuple(places), tuple(chosen[n, None] for n in range(len(self.problem.whole))), tuple(copies))

    @cached_property
    def _tight(self) -> list[tuple[int, CodeStore]]:
        """Code stores that would not hold the whole program."""
        return [(number, store) for number, store in enumerate(self.problem.code)
                if sum(size for _, size in store.pieces) > store.capacity]

    def _tiers(self, choices: Mapping[_Kept, Sequence[int]], places: Sequence[int]) -> dict[_Kept, int] | None:
        if math.prod(len(c) for c in choices.values()) <= _COMBINATIONS:
            return self._best_tiers(choices, places)
        taken: dict[_Kept, int] = {}
        busiest = sorted(choices, key=lambda kept: -self.accesses(self._name(kept)))
        for kept in busiest:
            fitting = [o for o in choices[kept] if self._fits({**taken, kept: o})]
            if not fitting:
                return None
            taken[kept] = min(fitting, key=lambda o: self._load(self._cost(kept, o, places)))
        return taken

    def _name(self, kept: _Kept) -> str:
        states = self.problem.whole if kept[1] is None else self.problem.copied
        return states[kept[0]].name

    def _option(self, kept: _Kept, option: int) -> Option | CopyOption:
        states = self.problem.whole if kept[1] is None else self.problem.copied
        return states[kept[0]].options[option]

    def _cost(self, kept: _Kept, option: int, places: Sequence[int]) -> Vector:
        """[K + 1] of keeping a table so."""
        found = self._option(kept, option)
        if isinstance(found, Option):
            return found.cost
        users = self.problem.copied[kept[0]].users
        there = [i for i, u in enumerate(users) if self.problem.physical[places[u]] == kept[1]]
        total: Vector = found.cost[there].sum(axis=0)
        return total

    def _best_tiers(self, choices: Mapping[_Kept, Sequence[int]], places: Sequence[int]) -> dict[_Kept, int] | None:
        costs = {kept: {o: self._cost(kept, o, places) for o in options} for kept, options in choices.items()}
        bare = self._code_demand(places)
        best: tuple[float, dict[_Kept, int]] | None = None
        for options in itertools.product(*choices.values()):
            chosen = dict(zip(choices, options, strict=True))
            if not self._fits(chosen):
                continue
            load = self._load(sum((costs[kept][o] for kept, o in chosen.items()), bare))
            if best is None or load < best[0]:
                best = load, chosen
        return best and best[1]

    def _code_demand(self, places: Sequence[int]) -> Vector:
        """[K + 1] of everything but the tables."""
        bare = replace(self.problem, whole=(), copied=())
        return evaluate.demand_of(bare, Assignment(tuple(places), (), ()))

    def _load(self, demand: Vector) -> float:
        cores = self.aim.most if self.aim.rate is not None else max(self.aim.cores or 0, 1)
        return evaluate.load_of(self.problem, demand, cores, 1.0)

    def _fits(self, chosen: Mapping[_Kept, int]) -> bool:
        filled: dict[int, int] = defaultdict(int)
        for kept, number in chosen.items():
            option = self._option(kept, number)
            filled[option.store] += option.amount
        within = all(amount <= self.problem.stores[store].capacity for store, amount in filled.items())
        return within and all(sum(filled[s] for s in c.stores) <= c.capacity for c in self.problem.ceilings)

    def accesses(self, state: str) -> float:
        """Accesses to a state per packet."""
        return sum(n for (name, _), n in self.instance.access_counts.items() if name == state)

    def stateful(self) -> list[int]:
        """Units that hold state kept whole, most accesses per byte first."""
        weight: dict[int, tuple[float, float]] = {}
        for name, unit in self.units.of_state.items():
            rates = self.instance.rates[name]
            accesses, size = weight.get(unit, (0.0, 0.0))
            weight[unit] = accesses + self.accesses(name), size + max(rates.entry_bytes * rates.entries, 1)
        return sorted(weight, key=lambda u: (-weight[u][0] / weight[u][1], u))

    # The rules.

    def host_only(self) -> Placement | None:
        return self.placement(self.settled([self.last] * len(self.problem.units)))

    def traffic_only(self) -> Placement | None:
        held = {u for s in (*self.problem.whole,) for u in s.units} | {u for c in self.problem.copied for u in c.users}
        wanted = [self.last if u in held else 0 for u in range(len(self.problem.units))]
        return self.placement(self.settled(wanted))

    def state_only(self) -> Placement | None:
        held = self.stateful()
        wanted = [0] * len(self.problem.units)
        for unit in held:
            wanted[unit] = self.last
        best: Placement | None = None
        for unit in held:
            for place in range(self.last + 1):
                trial = list(wanted)
                trial[unit] = place
                places = self.settled(trial)
                made = self.placement(places)
                if places and made and places[unit] == place:
                    wanted, best = trial, made
                    break
        return best or self.placement(self.settled(wanted))

    def greedy(self) -> Placement | None:
        starts = [p for p in (self.host_only(), self.traffic_only()) if p is not None]
        if not starts:
            return self.state_only()
        best = min(starts, key=self.aim.key)
        wanted = self._wanted(best)
        while True:
            better = min(self._moves(wanted), key=lambda pair: self.aim.key(pair[1]), default=None)
            if better is None or self.aim.key(better[1]) >= self.aim.key(best):
                return best
            wanted, best = better

    def _wanted(self, placement: Placement) -> list[int]:
        wanted = [0] * len(self.problem.units)
        for node, unit in enumerate(self.units.of_node):
            wanted[unit] = placement.assignment.places[node]
        return wanted

    def _moves(self, wanted: Sequence[int]) -> Iterator[tuple[list[int], Placement]]:
        held = set(self.units.of_state.values())
        for unit in held:
            for place in range(self.last + 1):
                if place == wanted[unit]:
                    continue
                for free in (0, None):
                    trial = [w if u in held or free is None else free for u, w in enumerate(wanted)]
                    trial[unit] = place
                    places = self.settled(trial)
                    made = self.placement(places)
                    if places and made:
                        yield places, made

    def moved(self, placement: Placement, state: str, place: int) -> Placement | None:
        """The placement with one state elsewhere and as little else changed as legality needs; None if it cannot be."""
        unit = self.units.of_state.get(state)
        if unit is None:
            return None
        wanted = self._wanted(placement)
        if place < wanted[unit]:
            for before in ancestors(self.problem, unit):
                wanted[before] = min(wanted[before], place)
        wanted[unit] = place
        places = self.settled(wanted)
        if places is None or places[unit] != place:
            return None
        return self.placement(places)


def ancestors(problem: Problem, unit: int) -> set[int]:
    """Units from which packets come to a unit."""
    found: set[int] = set()
    waiting = [unit]
    while waiting:
        here = waiting.pop()
        new = {e.source for e in problem.edges if e.target == here} - found
        found |= new
        waiting += new
    return found - {unit}


def baseline(rules: Rules, name: str) -> Placement | None:
    """A baseline by name, None where the target does not allow it."""
    made: Mapping[str, Callable[[], Placement | None]] = {
        "host-only": rules.host_only, "traffic-only": rules.traffic_only, "state-only": rules.state_only,
        "greedy": rules.greedy,
    }
    return made[name]()
