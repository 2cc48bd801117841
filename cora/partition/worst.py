"""What packets of a path cost under a placement, path by path, and how much they leave of a plan's throughput.

The soft minimum of throughput falls most when all packets take one path: the soft maximum of utilisations is convex in
the mix of paths, so over any polytope of mixes it is largest at a corner, and where nothing but the total is fixed a
corner is a single path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import AccessRates, accesses_of, capacity_of
from cora.analysis.prefixes import state_of
from cora.ir.nodes import Insert, Lookup, Police, Program, TrackFragment
from cora.models.target import Target
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.partition.problem import Vector
from cora.partition.walks import Steps
from cora.partition.ways import (
    AccessUse,
    Account,
    BlockUse,
    CrossingUse,
    Prices,
    Traffic,
    Use,
    VisitUse,
    account_of,
    hosted_ports,
    makes_entries,
    port_of,
)

# Frames of traffic that is meant to hurt.
SMALLEST_FRAME = 60.0


Rates = Mapping[str, AccessRates]


def one_entry(instance: Instance) -> Rates:
    """All accesses of a state go to one entry."""
    return {name: replace(r, entries=1, working_set=r.entry_bytes, hottest=1.0) for name, r in instance.rates.items()}


def no_entry(instance: Instance) -> Rates:
    """Look-ups meet no entry, and all of them the same few bytes."""
    return {name: replace(r, entries=1, working_set=r.entry_bytes, hottest=0.0) for name, r in instance.rates.items()}


def all_entries(instance: Instance) -> Rates:
    """Accesses are spread over as many entries as a state may have, so that no cache helps."""
    found = {}
    for name, r in instance.rates.items():
        # The table of lent entries has room for as many as are lent.
        whole = capacity_of(instance.program.state(state_of(name)))
        entries = max(1, r.entries if name != state_of(name) else whole)
        found[name] = replace(r, entries=entries, working_set=entries * r.entry_bytes, hottest=1 / entries,
                              popularity=())
    return found


def states_met(program: Program, path: Steps) -> frozenset[str]:
    """The states of which a packet of a path meets or makes an entry."""
    met = set()
    for i, label in enumerate(path.blocks):
        block = program.block(label)
        outcome = path.outcomes[i] if i < len(path.outcomes) else ""
        for node in (*block.instructions, block.terminator):
            lookups = isinstance(node, Lookup | Insert | Police | TrackFragment)
            if not lookups or outcome not in ("miss", "full"):
                met |= {state for state, _ in accesses_of(program, node)}
    return frozenset(met)


@dataclass(frozen=True)
class Part:
    """One thing that a packet does, and what it uses of one resource; ``line``: of the program's source, 0 for none."""

    what: str
    line: int
    amount: float


class Costs:
    """What packets of some paths cost under a placement with so many host cores; ``lent`` as `Ways` takes it."""

    def __init__(self, instance: Instance, placement: Placement, paths: Sequence[Steps], cores: int,
                 lent: float | None = None) -> None:
        self.instance, self.placement = instance, placement
        self.paths = paths
        self.cores = max(cores, int(placement.uses_host))
        self.account: Account = account_of(placement, paths, lent)
        self._prices = Prices(instance)
        hosted = hosted_ports(instance.program)
        self._often = self.account.counts + np.array([
            self.account.arrivals[int(port_of(instance.program, p) in hosted)] for p in paths])

    def demands(self, traffic: Traffic, met: bool | None = None, target: Target | None = None) -> Vector:
        """[P, K + 1] of one packet of each path when all traffic is like it.

        ``met``: only accesses to states that the path meets an entry of (False: only the rest of what a packet uses).
        """
        rows = np.array([self._prices.row(u, target or self.instance.target, traffic) for u in self.account.uses])
        often = self._often if met is None else np.where(self._met == met, self._often, 0.0)
        with np.errstate(invalid="ignore"):
            found: Vector = np.nan_to_num(often @ rows, nan=0.0, posinf=math.inf)
        return found

    def of_new_flows(self, frame: float = SMALLEST_FRAME) -> Vector:
        """[P, K + 1] as `demands`, when every packet uses other entries."""
        return self.demands(Traffic(frame, all_entries(self.instance)))

    def of_one_packet(self, frame: float = SMALLEST_FRAME) -> Vector:
        """[P, K + 1] as `demands`, when every packet uses the same entries."""
        return (self.demands(Traffic(frame, one_entry(self.instance)), True)
                + self.demands(Traffic(frame, no_entry(self.instance)), False))

    @cached_property
    def _met(self) -> NDArray[np.bool_]:
        """[P, J] whether a use is an access to a state that the path meets an entry of."""
        states = [state_of(u.state) if isinstance(u, AccessUse) else None for u in self.account.uses]
        met = [states_met(self.instance.program, p) for p in self.paths]
        return np.array([[s in m for s in states] for m in met], np.bool_).reshape(len(met), len(states))

    def reach(self, demand: Vector, frame: float = SMALLEST_FRAME, target: Target | None = None) -> float:
        """Packets a second by the soft minimum for a demand [K + 1]; 0 where a packet needs what there is none of."""
        loads = self.loads(demand, frame, target)
        top = float(loads.max(initial=0.0))
        if top == 0 or math.isinf(top):
            return math.inf if top == 0 else 0.0
        exponent = (target or self.instance.target).exponent
        return 1.0 / (top * math.pow(float(((loads / top) ** exponent).sum()), 1 / exponent))

    def loads(self, demand: Vector, frame: float, target: Target | None = None) -> Vector:
        """[K] seconds of each resource that one packet takes."""
        resources = (target or self.instance.target).resources(frame)
        rates = np.array([r.rate * (self.cores if r.scales else 1) for r in resources])
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Vector = np.where(demand[:-1] > 0, demand[:-1] / rates, 0.0)
        return found

    def accesses(self, weights: Sequence[Vector]) -> dict[str, tuple[float, ...]]:
        """Per state the accesses per packet under each of several mixes of the paths."""
        totals = np.array(weights) @ self._often
        found = {name: tuple(0.0 for _ in weights) for name in self.instance.rates}
        for column, use in enumerate(self.account.uses):
            if isinstance(use, AccessUse):
                found[use.state] = tuple(a + float(t) for a, t in zip(found[use.state], totals[:, column], strict=True))
        return found

    def parts(self, path: int, resource: str, traffic: Traffic) -> list[Part]:
        """What a packet of a path uses of a resource, the largest first; parts of one line and kind are one."""
        column = [r.name for r in self.instance.resources].index(resource)
        found: dict[tuple[str, int], float] = {}
        lines = dict(self._lines(path))
        for use, often in zip(self.account.uses, self._often[path], strict=True):
            amount = often * self._prices.row(use, self.instance.target, traffic)[column] if often else 0.0
            if amount:
                key = self._told(use, lines)
                found[key] = found.get(key, 0.0) + amount
        return sorted((Part(what, line, amount) for (what, line), amount in found.items()), key=lambda p: -p.amount)

    def _lines(self, path: int) -> Iterator[tuple[tuple[str, str], int]]:
        """Per (state, kind) the line of its last access on a path."""
        program = self.instance.program
        for label in self.paths[path].blocks:
            block = program.block(label)
            for node in (*block.instructions, block.terminator):
                for access in accesses_of(program, node):
                    yield access, node.span.line

    def _told(self, use: Use, lines: Mapping[tuple[str, str], int]) -> tuple[str, int]:
        places = self.instance.target.places
        match use:
            case BlockUse(label, _, _):
                return "its code", self.instance.program.block(label).span.line
            case AccessUse(state, kind, _, _):
                return f"{kind} {state}", lines.get((state, kind), 0)
            case VisitUse(place):
                return f"receiving and sending at {places[place].name}", 0
            case CrossingUse(start, stop, _):
                return f"handing over from {places[start].name} to {places[stop].name}", 0
        return "the wire", 0


def mixed(profile: Mapping[str, AccessRates], other: Mapping[str, AccessRates], share: float,
          accesses: Mapping[str, Sequence[float]], instance: Instance) -> dict[str, AccessRates]:
    """How states are used when ``share`` of the packets are of another traffic; ``accesses`` per packet of both."""
    found = {}
    for name, ours in profile.items():
        if name not in other:  # lent entries: those of the plan's own traffic
            found[name] = ours
            continue
        theirs = other[name]
        capacity = max(capacity_of(instance.program.state(name)), ours.entries)
        first, second = ((1 - share) * accesses[name][0], share * accesses[name][1])
        total = first + second
        if total == 0:
            found[name] = ours
            continue
        entries = min(capacity, ours.entries + (theirs.entries if second else 0))
        touched = min(entries * ours.entry_bytes, ours.working_set + (theirs.working_set if second else 0))
        head = max(first * ours.hottest, second * theirs.hottest) / total
        found[name] = AccessRates(ours.entry_bytes, entries, touched, min(1.0, head),
                                  (1 - share) * ours.updates + share * theirs.updates)
    return found


def ranked(costs: Costs, again: Costs) -> list[tuple[float, int]]:
    """(Packets a second, path) of all paths, the slowest first.

    A path is taken by packets of ever new flows (``costs``: whose entries are not lent), or by the same packet again
    and again (``again``: whose entry is); the slower of the two counts.
    """
    new, same = costs.of_new_flows(), again.of_one_packet()
    rates = [min(costs.reach(new[i]), costs.reach(same[i]) if repeatable(costs.instance.program, p) else math.inf)
             for i, p in enumerate(costs.paths)]
    return sorted((rate, i) for i, rate in enumerate(rates))


def repeatable(program: Program, path: Steps) -> bool:
    """Whether the same packet may take a path again: it makes no entry, and is no new part of a datagram."""
    tracked = any(isinstance(program.block(label).terminator, TrackFragment) and outcome in ("ok", "hold")
                  for label, outcome in zip(path.blocks, path.outcomes, strict=False))
    return not tracked and not makes_entries(program, path)
