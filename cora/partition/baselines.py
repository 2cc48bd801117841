"""Placements by simple rules: what a plan is compared with, and what is kept when a solver's time runs out.

* host-only: everything at the host.
* traffic-only: all state at the host; code before the first state access runs as near to the wire as it may.
* state-only: every state as near to the wire as its memory takes it, most accesses per byte first; code follows.
* greedy: from the better of the first two, move one group of states at a time to the place that helps most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cora.partition.instance import Instance, Option, Vector
from cora.partition.placement import (
    Placement,
    code_used,
    cores_needed,
    demand_of,
    host_cycles,
    norm,
    throughput,
    utilisation,
)
from cora.partition.units import UnitEdge, Units

NAMES = ("host-only", "traffic-only", "state-only", "greedy")
# Beyond this many combinations of tiers, states choose theirs one after the other.
_COMBINATIONS = 32


@dataclass(frozen=True)
class Aim:
    """What a placement is for: ``rate`` packets/s with the fewest of ``most`` cores, or the most with ``cores``."""

    rate: float | None
    cores: int | None
    most: int

    def key(self, instance: Instance, demand: Vector, uses_host: bool) -> tuple[float, float, float]:
        """Order of placements, smaller is better; infinite where the aim is missed."""
        if self.rate is None:
            assert self.cores is not None
            if uses_host and self.cores == 0:
                return (math.inf, math.inf, math.inf)
            return (1.0 / throughput(instance, demand, self.cores), host_cycles(instance, demand, 1.0), 0.0)
        work = host_cycles(instance, demand, self.rate)
        load = norm(instance, utilisation(instance, demand, self.most, self.rate))
        needed = cores_needed(instance, demand, self.rate, int(uses_host), self.most)
        return (math.inf if needed is None else float(needed), work, load)


@dataclass(frozen=True)
class Rules:
    """Makes legal placements of an instance from wishes for its units."""

    instance: Instance
    units: Units
    aim: Aim

    def settled(self, wanted: Sequence[int]) -> list[int] | None:
        """Places of units, none nearer to the wire than wanted, as near as they legally can be; None without any."""
        nearest = self._nearest
        places = [nearest[u][p] for u, p in enumerate(wanted)]
        nowhere = self.instance.last + 1
        changed = True
        while changed:
            changed = False
            for source, target in self._ends:
                if places[target] < places[source]:
                    places[target] = nearest[target][places[source]]
                    changed = True
            for edge in self._uncrossable:
                least = max((p for p in range(places[edge.source] + 1, min(places[edge.target], self.instance.last) + 1)
                             if not edge.crossable[p]), default=0)
                if places[edge.source] < least:
                    places[edge.source] = nearest[edge.source][least]
                    changed = True
        return None if nowhere in places else places

    @cached_property
    def _nearest(self) -> list[list[int]]:
        """Per unit and wanted place the nearest place from there on that takes it, one past the last for none."""
        nowhere = self.instance.last + 1
        return [[next((p for p in range(place, nowhere) if allowed[p]), nowhere) for place in range(nowhere + 1)]
                for allowed in self.units.allowed]

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        return sorted((e.source, e.target) for e in self.units.edges)

    @cached_property
    def _uncrossable(self) -> list[UnitEdge]:
        return [e for e in self.units.edges if not e.crossable.all()]

    def placement(self, places: Sequence[int] | None) -> Placement | None:
        """The placement with the best tiers for these places, None when a memory or a code store is too small."""
        if places is None:
            return None
        nodes = tuple(places[u] for u in self.units.of_node)
        choices = {name: [o for o in options if o.place == places[self.units.of_state[name]]]
                   for name, options in self.instance.options.items()}
        found = self._tiers(choices, nodes)
        if found is None:
            return None
        made = Placement({name: (o.place, o.tier) for name, o in found.items()}, nodes)
        if any(code_used(self.instance, made, place) > capacity for place, capacity in self._tight):
            return None
        return made

    @cached_property
    def _tight(self) -> list[tuple[int, int]]:
        """Places whose code store would not hold the whole program, with its size."""
        return [(place, declared.code_capacity) for place, declared in enumerate(self.instance.target.places)
                if declared.code_capacity is not None
                and sum(sizes[place] for sizes in self.instance.code.values()) > declared.code_capacity]

    def _tiers(self, choices: Mapping[str, Sequence[Option]], nodes: tuple[int, ...]) -> dict[str, Option] | None:
        if math.prod(len(c) for c in choices.values()) <= _COMBINATIONS:
            return self._best_tiers(choices, nodes)
        taken: dict[str, Option] = {}
        busiest = sorted(choices, key=lambda name: -self.accesses(name))
        for name in busiest:
            fitting = [o for o in choices[name] if self._fits([*taken.values(), o])]
            if not fitting:
                return None
            taken[name] = min(fitting, key=lambda o: self._load(o.cost))
        return taken

    def _best_tiers(self, choices: Mapping[str, Sequence[Option]], nodes: tuple[int, ...]) -> dict[str, Option] | None:
        code = demand_of(self.instance, Placement({}, nodes))
        best: tuple[float, dict[str, Option]] | None = None
        for options in itertools.product(*choices.values()):
            if not self._fits(options):
                continue
            load = self._load(sum((o.cost for o in options), code))
            if best is None or load < best[0]:
                best = load, dict(zip(choices, options, strict=True))
        return best and best[1]

    def _load(self, demand: Vector) -> float:
        cores = self.aim.most if self.aim.rate is not None else max(self.aim.cores or 0, 1)
        return norm(self.instance, utilisation(self.instance, demand, cores, 1.0))

    def _fits(self, options: Sequence[Option]) -> bool:
        filled: dict[tuple[int, str], int] = {}
        for o in options:
            filled[o.place, o.tier] = filled.get((o.place, o.tier), 0) + o.amount
        tiers = self.instance.target.places
        return all(amount <= next(t.capacity for t in tiers[place].tiers if t.name == name)
                   for (place, name), amount in filled.items())

    def accesses(self, state: str) -> float:
        """Accesses to a state per packet."""
        return sum(n for (name, _), n in self.instance.access_counts.items() if name == state)

    def key(self, placement: Placement) -> tuple[float, float, float]:
        """Order of placements under the aim, smaller is better."""
        return self.aim.key(self.instance, demand_of(self.instance, placement), placement.uses(self.instance.last))

    def stateful(self) -> list[int]:
        """Units that hold state, most accesses per byte first."""
        weight: dict[int, tuple[float, float]] = {}
        for name, unit in self.units.of_state.items():
            rates = self.instance.rates[name]
            accesses, size = weight.get(unit, (0.0, 0.0))
            weight[unit] = accesses + self.accesses(name), size + max(rates.entry_bytes * rates.entries, 1)
        return sorted(weight, key=lambda u: (-weight[u][0] / weight[u][1], u))

    # The rules.

    def host_only(self) -> Placement | None:
        return self.placement(self.settled([self.instance.last] * len(self.units.allowed)))

    def traffic_only(self) -> Placement | None:
        held = set(self.units.of_state.values())
        wanted = [self.instance.last if u in held else 0 for u in range(len(self.units.allowed))]
        return self.placement(self.settled(wanted))

    def state_only(self) -> Placement | None:
        held = self.stateful()
        wanted = [0] * len(self.units.allowed)
        for unit in held:
            wanted[unit] = self.instance.last
        best: Placement | None = None
        for unit in held:
            for place in range(self.instance.last + 1):
                trial = list(wanted)
                trial[unit] = place
                places = self.settled(trial)
                made = self.placement(places)
                if places and made and places[unit] == place:
                    wanted, best = trial, made
                    break
        return best or self.traffic_only()

    def greedy(self) -> Placement | None:
        starts = [p for p in (self.host_only(), self.traffic_only()) if p is not None]
        if not starts:
            return self.state_only()
        best = min(starts, key=self.key)
        wanted = self._wanted(best)
        while True:
            better = min(self._moves(wanted), key=lambda pair: self.key(pair[1]), default=None)
            if better is None or self.key(better[1]) >= self.key(best):
                return best
            wanted, best = better

    def _wanted(self, placement: Placement) -> list[int]:
        wanted = [0] * len(self.units.allowed)
        for node, unit in enumerate(self.units.of_node):
            wanted[unit] = placement.nodes[node]
        for name, unit in self.units.of_state.items():
            wanted[unit] = placement.states[name][0]
        return wanted

    def _moves(self, wanted: Sequence[int]) -> Iterator[tuple[list[int], Placement]]:
        held = set(self.units.of_state.values())
        for unit in held:
            for place in range(self.instance.last + 1):
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
        unit = self.units.of_state[state]
        wanted = self._wanted(placement)
        if place < wanted[unit]:
            for before in self._ancestors(unit):
                wanted[before] = min(wanted[before], place)
        wanted[unit] = place
        places = self.settled(wanted)
        if places is None or places[unit] != place:
            return None
        return self.placement(places)

    def _ancestors(self, unit: int) -> set[int]:
        found: set[int] = set()
        waiting = [unit]
        while waiting:
            here = waiting.pop()
            new = {e.source for e in self.units.edges if e.target == here} - found
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
