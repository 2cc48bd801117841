"""An account of a placement, path by path: what one packet of each path uses, from the program and its graph alone.

Nothing here reads the weights of an instance: with the packets of each path the mean demand follows, so this is a
second account beside `cora.partition.placement.demand_of`, it tells what a packet of a path that was never seen would
cost, and it lets the mix of paths vary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cora.analysis.accesses import AccessRates
from cora.ir.nodes import Forward, Insert, Meta, Program, Reject, Switch
from cora.models.target import Demand, Refusal, Target
from cora.partition.instance import Instance, Vector
from cora.partition.placement import Placement


class Steps(Protocol):
    """What a path is here: labels of its blocks, and the outcome taken at each but the last."""

    @property
    def blocks(self) -> tuple[str, ...]: ...

    @property
    def outcomes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Traffic:
    """What prices depend on beside the placement: mean frame in bytes, and per state how it is used."""

    frame: float
    rates: Mapping[str, AccessRates]


@dataclass(frozen=True)
class BlockUse:
    """A block's own code, run at a place."""

    label: str
    part: int
    place: int


@dataclass(frozen=True)
class AccessUse:
    """One access to a state kept in a tier of a place."""

    state: str
    kind: str
    place: int
    tier: str


@dataclass(frozen=True)
class VisitUse:
    """Receiving and sending a packet at a place."""

    place: int


@dataclass(frozen=True)
class CrossingUse:
    """Handing a packet over to a neighbouring place with live values."""

    start: int
    stop: int
    live: int


@dataclass(frozen=True)
class WireUse:
    """What every packet uses of the ports."""


Use = BlockUse | AccessUse | VisitUse | CrossingUse | WireUse


class Ways:
    """Walks paths through the graph of an instance under a placement."""

    def __init__(self, instance: Instance, placement: Placement) -> None:
        self.instance = instance
        self.placement = placement
        self._edges = {(e.source, e.outcome): e for e in instance.graph.edges}
        self._live = {(e.source, e.target): e.live_bytes for e in instance.graph.edges}

    def nodes(self, path: Steps) -> Iterator[int]:
        """The numbers of the nodes a path runs through."""
        outcomes = iter((*path.outcomes, None))
        node = 0
        for _ in path.blocks:
            yield node
            while not self.instance.graph.nodes[node].piece.last:
                node = self._edges[node, "next"].target
                yield node
            outcome = next(outcomes)
            if outcome is not None:
                node = self._edges[node, outcome].target

    def uses(self, path: Steps) -> dict[Use, float]:
        """What one packet of a path uses, from its start in the program to the port it leaves by."""
        found: dict[Use, float] = defaultdict(float)
        graph, places = self.instance.graph, self.placement.nodes
        before: int | None = None
        for number in self.nodes(path):
            piece, place = graph.nodes[number].piece, places[number]
            found[BlockUse(piece.label, piece.part, place)] += 1
            for state, kind in piece.accesses:
                found[AccessUse(state, kind, *self.placement.states[state])] += 1
            if before is not None and places[before] != place:
                self._travel(found, places[before], place, self._live[before, number])
                found[VisitUse(place)] += 1
            before = number
        assert before is not None, "a path has at least one block"
        self._leave(found, before)
        return found

    def arrival(self, hosted: bool) -> dict[Use, float]:
        """What it takes to bring a packet from a port (one that faces the host alone: ``hosted``) to its start."""
        found: dict[Use, float] = defaultdict(float)
        entry = self.placement.nodes[0]
        found[WireUse()] += 1
        found[VisitUse(entry)] += 1
        self._travel(found, self.instance.last if hosted else 0, entry, 0)
        return found

    def _leave(self, found: dict[Use, float], node: int) -> None:
        end = self.instance.graph.nodes[node].piece.block.terminator
        if isinstance(end, Forward):
            self._travel(found, self.placement.nodes[node], self.instance.last if end.port in hosted_ports(
                self.instance.program) else 0, 0)
        elif isinstance(end, Reject):
            self._travel(found, self.placement.nodes[node], 0, 0)

    @staticmethod
    def _travel(found: dict[Use, float], start: int, stop: int, live: int) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            found[CrossingUse(place, place + step, live)] += 1


def hosted_ports(program: Program) -> frozenset[str]:
    """Ports that face the host alone."""
    return frozenset(p.name for p in program.ports if "wire" not in p.faces)


def port_of(program: Program, path: Steps) -> str | None:
    """The port on which the packets of a path arrive, where the path itself says so."""
    first = program.block(path.blocks[0])
    if len(program.ports) == 1:
        return program.ports[0].name
    end = first.terminator
    if not isinstance(end, Switch) or not path.outcomes:
        return None
    if not any(isinstance(i, Meta) and i.what == "port" and i.result == end.value for i in first.instructions):
        return None
    if path.outcomes[0] != "default":
        return program.ports[int(path.outcomes[0])].name
    rest = [i for i in range(len(program.ports)) if i not in {v for v, _ in end.cases}]
    return program.ports[rest[0]].name if len(rest) == 1 else None


def makes_entries(program: Program, path: Steps) -> bool:
    """Whether a packet of the path makes an entry in a table."""
    return any(isinstance(program.block(label).terminator, Insert) and outcome == "ok"
               for label, outcome in zip(path.blocks, path.outcomes, strict=False))


class Prices:
    """What uses cost on a target under a traffic, as rows over the resources of an instance and latency (ns)."""

    def __init__(self, instance: Instance) -> None:
        self._program = instance.program
        self._column = {r.name: i for i, r in enumerate(instance.resources)}
        self._blocks = {(n.label, n.piece.part): n.piece.block for n in instance.graph.nodes}

    def row(self, use: Use, target: Target, traffic: Traffic) -> Vector:
        """[K + 1] of one use; infinite latency where the target does not take it."""
        answer, latency = self._ask(use, target, traffic)
        row = np.zeros(len(self._column) + 1)
        if isinstance(answer, Refusal):
            row[-1] = math.inf
            return row
        for name, amount in answer.items():
            row[self._column[name]] += amount
        row[-1] = latency
        return row

    def _ask(self, use: Use, target: Target, traffic: Traffic) -> tuple[Demand | Refusal, float]:
        match use:
            case WireUse():
                return target.wire(traffic.frame), 0.0
            case VisitUse(place):
                return target.per_packet(place), target.latency(place)
            case CrossingUse(start, stop, live):
                return (target.crossing(start, stop, traffic.frame, live),
                        target.crossing_latency(start, stop, traffic.frame))
            case BlockUse(label, part, place):
                return target.block(self._program, self._blocks[label, part], place), 0.0
            case AccessUse(state, kind, place, tier):
                declared = self._program.state(state)
                return target.access(self._program, declared, kind, place, tier, traffic.rates[state]), 0.0


@dataclass(frozen=True)
class Account:
    """What placements use of a target under a traffic, by path.

    Attributes:
        uses: all kinds of use, J of them; counts: [P, J] how often one packet of each path uses them, arrival left out.
        arrivals: [2, J] of bringing a packet in from a wire port, and from a port that faces the host alone.
        deaths: [D, J] of one entry of each state in ``dying`` that dies of age.
    """

    uses: tuple[Use, ...]
    counts: Vector
    arrivals: Vector
    dying: tuple[str, ...]
    deaths: Vector


def account_of(instance: Instance, placement: Placement, paths: Sequence[Steps]) -> Account:
    """The account of paths under a placement."""
    ways = Ways(instance, placement)
    rows = [ways.uses(p) for p in paths]
    arrivals = [ways.arrival(False), ways.arrival(True)]
    dying = tuple(s for s, (place, tier) in placement.states.items() if instance.access_counts.get((s, "delete")))
    deaths: list[dict[Use, float]] = [{AccessUse(s, "delete", *placement.states[s]): 1.0} for s in dying]
    uses = tuple(dict.fromkeys(use for row in (*rows, *arrivals, *deaths) for use in row))
    number = {use: i for i, use in enumerate(uses)}

    def table(found: Sequence[Mapping[Use, float]]) -> Vector:
        made = np.zeros((len(found), len(uses)))
        for i, row in enumerate(found):
            for use, count in row.items():
                made[i, number[use]] = count
        return made

    return Account(uses, table(rows), table(arrivals), dying, table(deaths))
