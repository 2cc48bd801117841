"""An account of a placement, path by path: what one packet of each path uses, from the program and its graph alone.

Nothing here reads the weights of an instance: with the packets of each path the mean demand follows, so this is a
second account beside `cora.partition.placement.demand_of`, it tells what a packet of a path that was never seen would
cost, and it lets the mix of paths vary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cora.analysis.accesses import AccessRates
from cora.analysis.prefixes import lent_name, state_of
from cora.ir.nodes import Forward, Insert, Meta, Program, Reject, Switch
from cora.models.target import Demand, Refusal, Target
from cora.partition.instance import Instance, rules_of
from cora.partition.placement import Placement
from cora.partition.problem import Vector
from cora.partition.walks import Steps, Walk, Walks


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
    """One access to a state (or its lent entries, `lent_name`) kept in a tier of a place."""

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


@dataclass(frozen=True)
class RuleUse:
    """Being looked up among the rules of decided flows; ``path``: whose rule it is that a packet pays."""

    path: int


@dataclass(frozen=True)
class LendingUse:
    """One entry of a component lent to a tier (``install``), or taken back because a packet needs it (``recall``)."""

    component: str
    what: Literal["install", "recall"]
    tier: str


Use = BlockUse | AccessUse | VisitUse | CrossingUse | WireUse | RuleUse | LendingUse


class Ways:
    """Walks paths through the graph of an instance under a placement.

    ``lent``: share of packets that find their entry lent, of those that may and do not need its owner; None: as in the
    profile the placement is for, which is also what lends and takes back entries.
    """

    def __init__(self, placement: Placement, lent: float | None = None) -> None:
        self.instance = placement.instance
        self.lent = lent
        self.placement = placement
        self._walks = Walks(self.instance)
        self._fast = {p.blocks + p.outcomes: p for p in self.instance.profile.paths}

    def uses(self, path: Steps) -> dict[Use, float]:
        """What one packet of a path uses, from its start in the program to the port it leaves by.

        Of a path whose packets partly find their entry lent, the mean packet.
        """
        known = self._fast.get(path.blocks + path.outcomes)
        fast = None if known is None else self._walks.fast(known)
        share = 0.0
        if known is not None and fast is not None and known.packets:
            share = fast.packets / known.packets if self.lent is None else self.lent * (fast.owner_from is None)
        found: dict[Use, float] = defaultdict(float)
        if share and known is not None:
            self._along(found, self._walks.walk(path, fast), share, known.id)
        if share < 1:
            self._along(found, self._walks.walk(path), 1 - share, None)
        return found

    def _along(self, found: dict[Use, float], walk: Walk, share: float, rule: int | None) -> None:
        graph, places, virtual = self.instance.graph, self.placement.nodes, self.placement.assignment.places
        physical = self.instance.problem.physical
        split = self.instance.variant.split
        ruled = split is not None and split.mode == "restart"
        if ruled and self.instance.cheapest_rule is not None:
            found[RuleUse(self.instance.cheapest_rule if rule is None else rule)] += share
        for number, edge in walk:
            node, place = graph.nodes[number], places[number]
            if not (ruled and node.lent):
                found[BlockUse(node.label, node.piece.part, place)] += share
            for table, kind in node.accesses:
                found[AccessUse(table, kind, *self.placement.spot_of(table, number))] += share
            if edge is not None and virtual[number] > virtual[edge.source]:
                for step in range(virtual[edge.source], virtual[number]):
                    found[CrossingUse(physical[step], physical[step + 1], edge.live_bytes)] += share
                found[VisitUse(place)] += share
        self._leave(found, walk[-1][0], share)

    def arrival(self, hosted: bool) -> dict[Use, float]:
        """What it takes to bring a packet from a port (one that faces the host alone: ``hosted``) to its start."""
        found: dict[Use, float] = defaultdict(float)
        entry = self.placement.nodes[0]
        found[WireUse()] += 1
        found[VisitUse(entry)] += 1
        self._travel(found, self.instance.last if hosted else 0, entry, 1.0)
        split = self.instance.variant.split
        for lend in () if split is None or self.lent is not None else split.lends:
            tier = self.placement.states[lent_name(lend.anchored)][1]
            found[LendingUse(lend.component, "install", tier)] += lend.installs
            found[LendingUse(lend.component, "recall", tier)] += lend.recalls
        return found

    def _leave(self, found: dict[Use, float], node: int, share: float) -> None:
        piece = self.instance.graph.nodes[node].piece
        end = piece.block.terminator
        hosted = isinstance(end, Forward) and end.port in hosted_ports(self.instance.program)
        if isinstance(end, Forward | Reject):
            self._travel(found, self.placement.nodes[node], self.instance.last if hosted else 0, share)

    @staticmethod
    def _travel(found: dict[Use, float], start: int, stop: int, share: float) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            found[CrossingUse(place, place + step, 0)] += share


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
        self._program, self._instance = instance.program, instance
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
                declared = self._program.state(state_of(state))
                rates = traffic.rates[state] if state in traffic.rates else self._instance.rates[state]
                return target.access(self._program, declared, kind, place, tier, rates), 0.0
            case RuleUse() | LendingUse():
                return self._lending(use, target), 0.0

    def _lending(self, use: RuleUse | LendingUse, target: Target) -> Demand | Refusal:
        split = self._instance.variant.split
        assert split is not None, "there is no such use without a split"
        if isinstance(use, RuleUse):
            rules = rules_of(self._program, self._instance.target, split)
            return target.rule(self._program, split.templates[use.path], split.near, rules)
        lend = next(x for x in split.lends if x.component == use.component)
        states = [self._program.state(s) for s in lend.states]
        ask = target.install if use.what == "install" else target.recall
        return ask(self._program, states, split.near, split.owner, use.tier, lend.capacity)


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


def account_of(placement: Placement, paths: Sequence[Steps], lent: float | None = None) -> Account:
    """The account of paths under a placement; ``lent`` as `Ways` takes it."""
    instance = placement.instance
    ways = Ways(placement, lent)
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
