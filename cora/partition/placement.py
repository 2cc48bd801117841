"""A placement: what an assignment of an instance's numbers means by name, and what it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cora.analysis.prefixes import Node, lent_name
from cora.models.latency import Latency
from cora.partition import evaluate
from cora.partition.evaluate import ROOM
from cora.partition.exact import Promise
from cora.partition.exact import check as check_assignment
from cora.partition.instance import Instance
from cora.partition.problem import Assignment, CopyOption, Option, Store, Vector

Spot = tuple[int, str]


@dataclass(frozen=True, eq=False)
class Placement:
    """One way to run an instance; ``assignment`` is one of its nodes. Places are physical and by number."""

    instance: Instance
    assignment: Assignment

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Per node its place."""
        physical = self.instance.problem.physical
        return tuple(physical[p] for p in self.assignment.places)

    @cached_property
    def states(self) -> Mapping[str, Spot]:
        """Per table that is kept once (lent ones included) its (place, tier)."""
        return {s.name: self._spot(s.options[o])
                for s, o in zip(self.instance.problem.whole, self.assignment.whole, strict=True)}

    @cached_property
    def copies(self) -> Mapping[str, Mapping[int, str]]:
        """Per copied state the tier of its copy at each place that has one, from the wire."""
        return {s.name: {p: self.store(s.options[chosen[p]]).name for p in sorted(chosen)}
                for s, chosen in zip(self.instance.problem.copied, self.assignment.copies, strict=True)}

    def store(self, option: Option | CopyOption) -> Store:
        return self.instance.problem.stores[option.store]

    def _spot(self, option: Option) -> Spot:
        return option.place, self.store(option).name

    def option(self, table: str) -> Option:
        """How a table that is kept once is kept."""
        number = self.instance.whole_number[table]
        return self.instance.problem.whole[number].options[self.assignment.whole[number]]

    def copy_options(self, state: str) -> list[CopyOption]:
        """How the copies of a state are kept, from the wire."""
        number = self.instance.copied.index(state)
        options = self.instance.problem.copied[number].options
        chosen = self.assignment.copies[number]
        return [options[chosen[place]] for place in sorted(chosen)]

    def places_of(self, state: str) -> tuple[int, ...]:
        """Where a state is kept: one place, that of its owner, or those of its copies."""
        return (self.states[state][0],) if state in self.states else tuple(self.copies[state])

    @property
    def kept(self) -> Mapping[str, str]:
        """Per state where it is kept, in words: ``nic/emem``; ``nic/cls + host/dram`` of copies; ``host/dram, lent to
        nic/cls`` of a split one.
        """
        found = {}
        for state in self.instance.program.states:
            spots = [self.states[state.name]] if state.name in self.states else list(self.copies[state.name].items())
            found[state.name] = " + ".join(self._told(spot) for spot in spots)
            if lent_name(state.name) in self.states:
                found[state.name] += f", lent to {self._told(self.states[lent_name(state.name)])}"
        return found

    def _told(self, spot: Spot) -> str:
        return f"{self.instance.target.places[spot[0]].name}/{spot[1]}"

    def spot_of(self, table: str, number: int) -> Spot:
        """Where an access of a node goes."""
        if table in self.states:
            return self.states[table]
        place = self.nodes[number]
        return place, self.copies[table][place]

    @cached_property
    def demand(self) -> Vector:
        """[K + 1] mean demand of one packet, the last column its unloaded latency."""
        return evaluate.demand_of(self.instance.problem, self.assignment)

    @cached_property
    def uses_host(self) -> bool:
        """Whether anything, be it code that was never seen to run, is at the host."""
        return evaluate.uses_host(self.instance.problem, self.assignment)

    def keeps_alike(self, other: Placement) -> bool:
        """Whether both keep every state in the same way, code aside."""
        return self.states == other.states and self.copies == other.copies

    def is_same(self, other: Placement) -> bool:
        return self.keeps_alike(other) and self.blocks == other.blocks

    @cached_property
    def blocks(self) -> Mapping[tuple[object, ...], int]:
        """Per class of blocks its virtual place; classes are named as in a plan."""
        return {class_of(n): p for n, p in zip(self.instance.graph.nodes, self.assignment.places, strict=True)}

    # What it reaches.

    def utilisation(self, cores: int, rate: float) -> Vector:
        """[K] rate * D / R with ``cores`` host cores."""
        return evaluate.utilisation(self.instance.problem, self.demand, cores, rate)

    def load(self, cores: int, rate: float) -> float:
        """The soft maximum of utilisations: the rate is carried when this is at most 1."""
        return evaluate.norm(self.instance.problem, self.utilisation(cores, rate))

    def throughput(self, cores: int) -> float:
        """Packets a second by the soft minimum over all resources; there is no other throughput figure in a plan."""
        return evaluate.throughput(self.instance.problem, self.demand, cores)

    def host_work(self, rate: float) -> float:
        """Host cores' worth of work at a rate, fractional."""
        return evaluate.host_cycles(self.instance.problem, self.demand, rate)

    def cores_needed(self, rate: float, at_most: int, room: float = 1.0) -> int | None:
        """The fewest host cores that carry a rate with a soft maximum of at most ``room``; None when the most do not.
        """
        limit = room * ROOM
        if self.load(at_most, rate) > limit:
            return None
        low, high = int(self.uses_host), max(at_most, int(self.uses_host))
        while low < high:
            middle = (low + high) // 2
            if self.load(middle, rate) <= limit:
                high = middle
            else:
                low = middle + 1
        return low if low <= at_most else None

    def latency(self, cores: int, rate: float) -> Latency:
        """Mean latency of a packet at a rate with ``cores`` host cores."""
        return evaluate.latency_of(self.instance.problem, self.demand, cores, rate)


def class_of(node: Node) -> tuple[object, ...]:
    """What tells a node apart in a plan."""
    return node.label, node.piece.part, node.history, node.via, node.lent


def check(placement: Placement, promise: Promise) -> None:
    """Check a placement in exact arithmetic, node by node, whatever the search grouped.

    Raises:
        CoraError: `Kind.PLAN_CHECK`, one diagnostic per broken rule.
    """
    check_assignment(placement.instance.problem, placement.assignment, promise)


def rates_of_resources(instance: Instance, cores: int) -> Vector:
    """Units a second of each resource with ``cores`` host cores."""
    return evaluate.rates_of(instance.problem.resources, cores)

