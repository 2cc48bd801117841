"""What a target is to the planner: a chain of places from the wire to the host, and what work costs at each.

A backend provides a `Target`; nothing in the core knows a NIC by name. Costs are demands on resources: how many units
of a resource one packet uses. A `Refusal` says in the user's terms why something cannot be done somewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cora.analysis.accesses import AccessRates
from cora.analysis.decided import RuleTemplate
from cora.ir.nodes import Block, Program, State
from cora.ir.span import Span
from cora.models.parameters import Model

# Resource name -> units used per packet (or per access, per crossing).
Demand = Mapping[str, float]


@dataclass(frozen=True)
class Tier:
    """A memory of a place that can hold state; ``capacity`` in bytes (rules for tables counted in rules)."""

    name: str
    capacity: int
    unit: str = "bytes"


@dataclass(frozen=True)
class Cache:
    """A cache in front of a memory (``tier`` of place number ``place``) that all tables there share; ``name``: as what
    a part of its ``capacity`` (bytes) can be reserved.
    """

    name: str
    place: int
    tier: str
    capacity: int


@dataclass(frozen=True)
class Place:
    """Somewhere code runs; ``code_capacity`` in the unit of `Target.code_size`, None for no limit."""

    name: str
    tiers: tuple[Tier, ...]
    code_capacity: int | None
    description: str


@dataclass(frozen=True)
class Resource:
    """Something packets use up: ``rate`` units a second.

    Attributes:
        scales: the rate is that of one host core and grows with the number of cores given to the plan.
        servers: how many packets are served at once (cores, engines, threads); of one core where it scales.
        room: packets that wait or are served when the resource is saturated (threads, ring slots); 0 when it adds no
            queue of its own. Both are for latency only.
    """

    name: str
    rate: float
    unit: str
    place: str
    scales: bool = False
    servers: int = 1
    room: int = 0


@dataclass(frozen=True)
class Refusal:
    """Why a block or a state cannot be at a place."""

    subject: str
    place: str
    reason: str
    span: Span | None = None


@dataclass(frozen=True)
class Lending:
    """How a place runs packets whose entries are lent to it.

    ``resume``: it runs the program's code and hands packets over in the middle, with what they need to go on.
    ``restart``: it serves whole packets by rules of decided flows; every other packet starts anew at the next place.
    """

    mode: Literal["resume", "restart"]


class Target(ABC):
    """A NIC with its host. Places are ordered from the wire; the last one is the host.

    A target is made from its model alone (``type(target)(model)``), so that it can be made again for a sample of the
    parameter box.
    """

    name: str
    model: Model
    places: tuple[Place, ...]
    # Whether the host can hand a packet back, in the middle of the program, to code at the place before it: the return
    # leg, once per packet. Its price is that of the crossing and of another visit.
    returns: bool = False

    def __init__(self, model: Model) -> None:
        self.model = model

    def caches(self) -> tuple[Cache, ...]:
        """Caches that tables of several programs share; tables are priced as if nothing else was in them."""
        return ()

    @property
    def exponent(self) -> float:
        """The exponent of the soft minimum over this target's resources."""
        return self.model["softmin_exponent"]

    @abstractmethod
    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        """All resources and their rates; ``mean_frame`` is the mean frame length in bytes (for port limits)."""

    @abstractmethod
    def per_packet(self, place: int) -> Demand:
        """What receiving, handling and sending a packet costs at a place before any program code runs there.

        Charged once per packet at every place where some of its code runs; a packet that only passes through a place
        pays crossings.
        """

    @abstractmethod
    def wire(self, mean_frame: float) -> Demand:
        """What every packet uses of the ports, wherever it is processed."""

    @abstractmethod
    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        """Cost of a block's own instructions and branch, without its table accesses."""

    @abstractmethod
    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        """Cost of one access.

        ``kind`` is lookup, insert, delete, touch, load, store, police, count or track.
        """

    @abstractmethod
    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        """Units of the tier a state of its declared capacity needs there (bytes or rules), or why it cannot be there.
        """

    def lends(self, program: Program, states: Sequence[State], near: int, owner: int) -> Lending | Refusal:
        """Whether entries of a component of states kept at ``owner`` can be lent to ``near``, and how, or why not."""
        return self._lends_nothing(states[0], near)

    def lent_holds(self, program: Program, state: State, place: int, tier: str, entries: int) -> int | Refusal:
        """Units of the tier that a near table of so many lent entries of a state takes, or why there is none.

        A pool takes nothing: its values stay with the owner. Rules count every way a packet meets an entry, so both
        directions of a flow.
        """
        return self._lends_nothing(state, place)

    def install(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
                entries: int) -> Demand | Refusal:
        """What it costs to lend one entry of a component to a tier of ``near`` and, later, to take it back.

        Messages, the near table's insert and delete or the rules' changes, and the owner's record of it. ``entries``:
        how many may be lent at once.
        """
        return self._lends_nothing(states[0], near)

    def recall(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
               entries: int) -> Demand | Refusal:
        """What a packet at the owner that needs a lent entry adds to taking it back: it is held meanwhile."""
        return self._lends_nothing(states[0], near)

    def rule(self, program: Program, template: RuleTemplate, place: int, rules: int) -> Demand | Refusal:
        """What a packet pays for the rules of decided flows at a place in restart mode, or why a path is no rule there.

        Paid by every packet that is looked up, served or not: whether a rule matches is known only afterwards.
        ``rules``: installed in all.
        """
        name = self.places[place].name
        return Refusal(template.component, name, f"{name} keeps no rules of decided flows", template.anchor.span)

    def _lends_nothing(self, state: State, near: int) -> Refusal:
        return Refusal(state.name, self.places[near].name,
                       f"{self.name} cannot lend entries of '{state.name}' to {self.places[near].name}", state.span)

    @abstractmethod
    def code_size(self, program: Program, block: Block, place: int) -> int:
        """Instructions a block takes in the code store of a place."""

    @abstractmethod
    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        """Cost of handing one packet over from a place to the next one (either direction)."""

    @abstractmethod
    def latency(self, place: int) -> float:
        """Unloaded nanoseconds a packet spends at a place before and after program code."""

    @abstractmethod
    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        """Unloaded nanoseconds of one crossing."""
