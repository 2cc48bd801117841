"""A placement problem in numbers: what each node, state and crossing would use at each place of a target.

Vectors run over the target's resources in order, in units per packet of the profile, and end with one more column, the
unloaded latency in nanoseconds per packet. Everything is linear in the placement: the mean demand of a packet is a sum
of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cora.analysis.accesses import AccessRates, accesses_of
from cora.analysis.demand import check_profile, expiries_per_packet, rates_of
from cora.analysis.prefixes import Edge, Node, Piece, PrefixGraph, expand
from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.nodes import Forward, FragmentState, MapState, MeterState, Program, Reject, State
from cora.ir.span import Span
from cora.models.target import Demand, Refusal, Resource, Target, Tier
from cora.plan.quantities import scaled

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Option:
    """One way to keep a state whole: at a place, in a tier, ``amount`` units of it, at this demand a packet."""

    place: int
    tier: str
    amount: int
    cost: Vector


@dataclass(frozen=True)
class Instance:
    """The problem. N nodes, E edges, L places, K columns.

    Attributes:
        base: [K] used by every packet whatever the plan.
        node_cost: [N, L, K] of a node at a place, weighted with its share of packets; zeros where it may not be.
        allowed: [N, L] whether a node's own code may run at a place.
        edge_cross: [E, L, K] of moving on an edge from place l-1 to l (row 0 is zero).
        crossable: [E, L] whether that is possible.
        edge_reach: [E, L, K] sums of edge_cross up to each place; edge_ends: [2, E] numbers of source and target.
        edge_share: [E] share of packets.
        visit: [L, K] of one packet coming to a place.
        options: per state where it may be; empty when nowhere. refusals: why not elsewhere.
        code: per piece (label, part) its size at each place; [L].
    """

    program: Program
    profile: Profile
    target: Target
    graph: PrefixGraph
    resources: tuple[Resource, ...]
    exponent: float
    base: Vector
    node_cost: Vector
    allowed: NDArray[np.bool_]
    edge_cross: Vector
    edge_reach: Vector
    edge_ends: NDArray[np.intp]
    crossable: NDArray[np.bool_]
    edge_share: Vector
    visit: Vector
    options: Mapping[str, tuple[Option, ...]]
    refusals: tuple[Refusal, ...]
    rates: Mapping[str, AccessRates]
    access_counts: Mapping[tuple[str, str], float]
    code: Mapping[tuple[str, int], tuple[int, ...]]

    @property
    def last(self) -> int:
        """Number of the last place, the host."""
        return len(self.target.places) - 1

    def option(self, state: str, place: int, tier: str) -> Option | None:
        return next((o for o in self.options[state] if o.place == place and o.tier == tier), None)

    def place_number(self, name: str) -> int | None:
        return next((i for i, p in enumerate(self.target.places) if p.name == name), None)


def build(program: Program, profile: Profile, target: Target) -> Instance:
    """Ask a target about every piece, state and crossing of a program under a profile.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH`, `Kind.TOO_MANY_PATHS`; `Kind.BAD_TARGET` for a demand that makes no sense.
    """
    check_profile(program, profile)
    return _Builder(program, profile, target, expand(program, profile)).instance()


class _Builder:
    def __init__(self, program: Program, profile: Profile, target: Target, graph: PrefixGraph) -> None:
        self.program = program
        self.profile = profile
        self.target = target
        self.graph = graph
        self.frame = profile.mean_frame
        self.resources = target.resources(self.frame)
        self.column = {r.name: i for i, r in enumerate(self.resources)}
        self.latency = len(self.resources)
        self.width = self.latency + 1
        self.places = range(len(target.places))
        self.rates = rates_of(program, profile)
        self.refusals: dict[tuple[str, str, str, Span | None], Refusal] = {}
        self.crossings: dict[tuple[int, int, int], Vector] = {}

    def instance(self) -> Instance:
        graph = self.graph
        pieces = {(n.label, n.piece.part): n.piece for n in graph.nodes}
        costs = {key: [self.code_cost(piece, place) for place in self.places] for key, piece in pieces.items()}
        counts = self.access_counts()
        options = {s.name: tuple(self.options_of(s, counts)) for s in self.program.states}
        crossing = [[self.edge_cross(e, place) for place in self.places] for e in graph.edges]
        cross = _stack(crossing, len(self.places), self.width)
        node_cost = np.array([[self.node_cost(i, n, costs, place) for place in self.places]
                              for i, n in enumerate(graph.nodes)])
        possible = np.array([[costs[n.label, n.piece.part][place] is not None for place in self.places]
                             for n in graph.nodes])
        possible &= np.isfinite(node_cost).all(axis=2)
        return Instance(
            self.program, self.profile, self.target, graph, self.resources, self.target.exponent,
            base=self.vector(self.target.wire(self.frame), "the wire"),
            node_cost=np.where(possible[:, :, None], node_cost, 0.0),
            allowed=possible,
            edge_cross=cross,
            edge_reach=cross.cumsum(axis=1),
            edge_ends=np.array([(e.source, e.target) for e in graph.edges], np.intp).reshape(-1, 2).T,
            crossable=np.array([[v is not None for v in r] for r in crossing], np.bool_).reshape(-1, len(self.places)),
            edge_share=np.array([e.packets / graph.packets for e in graph.edges]),
            visit=np.array([self.visit(place) for place in self.places]),
            options=options,
            refusals=tuple(self.refusals.values()),
            rates=self.rates,
            access_counts=counts,
            code={key: tuple(self.target.code_size(self.program, p.block, place) for place in self.places)
                  for key, p in pieces.items()},
        )

    def vector(self, demand: Demand, what: str) -> Vector:
        """A demand as a row. An infinite demand stays infinite: it means "impossible"."""
        row = np.zeros(self.width)
        for name, amount in demand.items():
            if name not in self.column or math.isnan(amount) or amount < 0:
                known = f"uses {name}, its resources are {', '.join(self.column)}"
                problem = f"uses {amount} of {name}" if name in self.column else known
                raise fail(Kind.BAD_TARGET, f"target {self.target.name}: {what} {problem}",
                           hint="this is a defect of the target's backend, not of your program")
            row[self.column[name]] += amount
        return row

    def refuse(self, refusal: Refusal, span: Span) -> None:
        full = refusal if refusal.span else replace(refusal, span=span)
        self.refusals.setdefault((full.subject, full.place, full.reason, full.span), full)

    def code_cost(self, piece: Piece, place: int) -> Vector | None:
        """Cost of a piece's own code, or None where it may not run."""
        answer = self.target.block(self.program, piece.block, place)
        if isinstance(answer, Refusal):
            self.refuse(answer, piece.block.span)
            return None
        row = self.vector(answer, f"block {piece.label} at {self.target.places[place].name}")
        return row if np.isfinite(row).all() else None

    def node_cost(self, number: int, node: Node, costs: Mapping[tuple[str, int], list[Vector | None]],
                  place: int) -> Vector:
        own = costs[node.label, node.piece.part][place]
        share = node.packets / self.graph.packets
        if own is None or (share == 0 and number != 0):
            return np.zeros(self.width)
        row = own * share
        if number == 0:
            row = row + self.arrival(place)
        return row + share * self.departure(node, place)

    def arrival(self, place: int) -> Vector:
        """What it takes to bring packets from the ports they arrive on to the place they start at."""
        packets = sum(n for n, _ in self.profile.ports.values())
        hosted = sum(self.profile.ports.get(p.name, (0, 0))[0] for p in self.program.ports if "wire" not in p.faces)
        share = hosted / packets if packets else 0.0
        last = len(self.places) - 1
        return self.visit(place) + _times(1 - share, self.travel(0, place)) + _times(share, self.travel(last, place))

    def departure(self, node: Node, place: int) -> Vector:
        """What it takes to bring a packet from the place its program ends to the port it leaves by.

        An error message of `Reject` goes back to the arrival port; it is charged like a frame to the wire.
        """
        terminator = node.piece.block.terminator
        if not node.piece.last or not isinstance(terminator, Forward | Reject):
            return np.zeros(self.width)
        port = terminator.port if isinstance(terminator, Forward) else ""
        to_wire = all("wire" in p.faces for p in self.program.ports if p.name == port)
        return self.travel(place, 0 if to_wire else len(self.places) - 1)

    def travel(self, start: int, stop: int) -> Vector:
        step = 1 if stop > start else -1
        return sum((self.crossing(p, p + step, 0) for p in range(start, stop, step)), np.zeros(self.width))

    def crossing(self, start: int, stop: int, live_bytes: int) -> Vector:
        key = (start, stop, live_bytes)
        if key not in self.crossings:
            names = self.target.places[start].name, self.target.places[stop].name
            demand = self.target.crossing(start, stop, self.frame, live_bytes)
            row = self.vector(demand, f"crossing {names[0]}-{names[1]}")
            row[self.latency] = self.target.crossing_latency(start, stop, self.frame)
            self.crossings[key] = row
        return self.crossings[key]

    def edge_cross(self, edge: Edge, place: int) -> Vector | None:
        """Moving on an edge from the place before; None where that is impossible."""
        if place == 0:
            return np.zeros(self.width)
        row = self.crossing(place - 1, place, edge.live_bytes)
        return row * (edge.packets / self.graph.packets) if np.isfinite(row).all() else None

    def visit(self, place: int) -> Vector:
        row = self.vector(self.target.per_packet(place), f"a packet at {self.target.places[place].name}")
        row[self.latency] = self.target.latency(place)
        return row

    def access_counts(self) -> dict[tuple[str, str], float]:
        """Per (state, kind) the accesses a packet makes on average; kinds that only unseen code uses count 0."""
        counts: dict[tuple[str, str], float] = {}
        for node in self.graph.nodes:
            for access in node.piece.accesses:
                counts[access] = counts.get(access, 0.0) + node.packets / self.graph.packets
        for state in self.program.states:
            dying = expiries_per_packet(self.program, self.profile, state)
            if dying:
                counts[state.name, "delete"] = counts.get((state.name, "delete"), 0.0) + dying
        return counts

    def options_of(self, state: State, counts: Mapping[tuple[str, str], float]) -> Iterable[Option]:
        for place, declared in enumerate(self.target.places):
            answers = [(tier.name, self.option_of(state, place, tier, counts)) for tier in declared.tiers]
            found = [answer for _, answer in answers if isinstance(answer, Option)]
            yield from found
            small = None if found else self.too_large(state, place)
            if small is not None:
                # A reason about the kind of one memory would hide that none is large enough.
                self.refuse(small, state.span)
            for name, answer in answers:
                if isinstance(answer, Refusal):
                    # Where another memory of the place takes the state, or would if it were larger, the refusal is
                    # about this memory alone.
                    place_name = f"{declared.name}/{name}" if found or small else declared.name
                    self.refuse(replace(answer, subject=state.name, place=place_name), state.span)

    def too_large(self, state: State, place: int) -> Refusal | None:
        """A refusal that names the largest memory of a place that would take a state but for its size."""
        declared = self.target.places[place]
        sizes = [(tier, self.target.holds(self.program, state, place, tier.name)) for tier in declared.tiers]
        small = [(tier, size) for tier, size in sizes if not isinstance(size, Refusal) and size > tier.capacity]
        if not small:
            return None
        tier, size = max(small, key=lambda pair: pair[0].capacity)
        fits = self.largest_capacity(state, place, tier)
        most = f"; the largest capacity that fits is {fits:,}" if fits else ""
        return Refusal(state.name, declared.name,
                       f"no memory of {declared.name} holds '{state.name}': the largest that could, {tier.name}, has "
                       f"{scaled(tier.capacity, tier.unit)}, with its declared capacity it needs "
                       f"{scaled(size, tier.unit)}{most}")

    def largest_capacity(self, state: State, place: int, tier: Tier) -> int | None:
        """The largest declared capacity with which a memory alone holds a state; None: none fits, or it has none."""
        if not isinstance(state, MapState | MeterState | FragmentState):
            return None
        low, high = 0, state.capacity
        while high - low > 1:
            middle = (low + high) // 2
            size = self.target.holds(self.program, replace(state, capacity=middle), place, tier.name)
            low, high = (middle, high) if not isinstance(size, Refusal) and size <= tier.capacity else (low, middle)
        return low or None

    def option_of(self, state: State, place: int, tier: Tier,
                  counts: Mapping[tuple[str, str], float]) -> Option | Refusal:
        amount = self.target.holds(self.program, state, place, tier.name)
        if isinstance(amount, Refusal):
            return amount
        name = self.target.places[place].name
        if amount > tier.capacity:
            return Refusal(state.name, name, f"{tier.name} has {scaled(tier.capacity, tier.unit)}, '{state.name}' with "
                                             f"its declared capacity needs {scaled(amount, tier.unit)}")
        cost = self.state_cost(state, place, tier.name, counts)
        return cost if isinstance(cost, Refusal) else Option(place, tier.name, amount, cost)

    def state_cost(self, state: State, place: int, tier: str,
                   counts: Mapping[tuple[str, str], float]) -> Vector | Refusal:
        total = np.zeros(self.width)
        for (name, kind), count in counts.items():
            if name != state.name:
                continue
            answer = self.target.access(self.program, state, kind, place, tier, self.rates[name])
            if isinstance(answer, Refusal):
                return replace(answer, span=answer.span or self.first_access(name, kind))
            row = self.vector(answer, f"{kind} of {name} in {tier}")
            if not np.isfinite(row).all():
                return Refusal(name, self.target.places[place].name, f"it has no {kind}", self.first_access(name, kind))
            total += count * row
        return total

    def first_access(self, name: str, kind: str) -> Span | None:
        """The first place in the source where a state is used in a way."""
        return next((node.span for block in self.program.blocks for node in (*block.instructions, block.terminator)
                     if (name, kind) in accesses_of(self.program, node)), None)


def _times(share: float, row: Vector) -> Vector:
    """``share * row``, where none of something impossible is nothing."""
    return share * row if share else np.zeros_like(row)


def _stack(rows: list[list[Vector | None]], places: int, width: int) -> Vector:
    zero = np.zeros(width)
    return np.array([[zero if v is None else v for v in row] for row in rows]).reshape(-1, places, width)
