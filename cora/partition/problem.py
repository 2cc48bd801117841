"""A placement problem in numbers alone: units of code at places, states in memories, what each choice uses.

U units, L virtual places in order from the wire, K resources. A vector has K + 1 columns: units of each resource in
order, per packet of the traffic, and last the unloaded latency in nanoseconds per packet. Shares of packets are already
multiplied in, so that the mean demand of a packet is a sum of rows.

A *virtual* place is one stretch of a packet's way. Without a return leg virtual and physical places are the same. With
one they are for example nic, host, nic again: ``physical`` is (0, 1, 0). Packets move on to later virtual places only.
Memories, code stores and states belong to physical places, so that both stretches on the NIC share them. The physical
place with the highest number is the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from cora.models.target import Resource

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Store:
    """A memory of a physical place."""

    name: str
    place: int
    capacity: int
    unit: str = "bytes"


@dataclass(frozen=True)
class Ceiling:
    """At most ``capacity`` units in several stores together (`--max-nic-memory`); their units have to be the same."""

    name: str
    stores: tuple[int, ...]
    capacity: int


@dataclass(frozen=True)
class Option:
    """One way to keep a state whole: ``amount`` units of a store of a physical place, at ``cost`` [K + 1] a packet."""

    place: int
    store: int
    amount: int
    cost: Vector


@dataclass(frozen=True)
class WholeState:
    """A state kept at one physical place, where all ``units`` that touch it have to be.

    A lent table is one too; its ``units`` are those of the packets whose flow is lent.
    """

    name: str
    units: tuple[int, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True)
class CopyOption:
    """One way to keep a copy at a physical place; ``cost`` [users, K + 1]: what each user's accesses use a packet."""

    place: int
    store: int
    amount: int
    cost: Vector


@dataclass(frozen=True)
class CopiedState:
    """A replicated or partial state: one copy, in one store, at every physical place where a user is."""

    name: str
    users: tuple[int, ...]
    options: tuple[CopyOption, ...]


@dataclass(frozen=True)
class Order:
    """Whole state ``near`` (its number) is at a physical place strictly nearer to the wire than whole state ``far``."""

    near: int
    far: int


@dataclass(frozen=True)
class Together:
    """Units that are at one virtual place: packets of a flow end in them (`order strict`), or they use one component
    where packets may come back from the host.

    ``lent``: units that may be at place ``near`` instead, where packets wait for those that others took over.
    ``reason``: why, for messages.
    """

    units: tuple[int, ...]
    lent: tuple[int, ...]
    near: int
    reason: str


@dataclass(frozen=True)
class CodeStore:
    """The code store of a physical place; a piece takes ``size`` once if any of its units is there."""

    place: int
    capacity: int
    pieces: tuple[tuple[frozenset[int], int], ...]


@dataclass(frozen=True)
class Edge:
    """Packets that go on from one unit to another.

    Attributes:
        cross: [L, K + 1] of moving on from place l - 1 to l (row 0 is zero), times their share.
        crossable: [L] whether that step is possible.
        visit: [L, K + 1] of coming to a place and running there, times their share; charged at the place of the target
            when it is not the place of the source.
    """

    source: int
    target: int
    cross: Vector
    crossable: NDArray[np.bool_]
    visit: Vector


class Edges(Sequence[Edge]):
    """Edges as arrays, for problems that are made by the dozen; an `Edge` is made when it is asked for.

    ``ends`` [2, E], ``cross`` [E, L, K + 1], ``crossable`` [E, L], ``visit`` [E, L, K + 1].
    """

    def __init__(self, ends: NDArray[np.intp], cross: Vector, crossable: NDArray[np.bool_], visit: Vector) -> None:
        self.ends, self.cross, self.crossable, self.visit = ends, cross, crossable, visit

    def __len__(self) -> int:
        return int(self.ends.shape[1])

    @overload
    def __getitem__(self, number: int) -> Edge: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[Edge]: ...

    def __getitem__(self, number: int | slice) -> Edge | Sequence[Edge]:
        return self._all[number]

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._all)

    @cached_property
    def _all(self) -> tuple[Edge, ...]:
        return tuple(map(Edge, *self.ends.tolist(), self.cross, self.crossable, self.visit))


@dataclass(frozen=True)
class Problem:
    """Where may everything be, and what does it use there.

    Attributes:
        resources: K of them; those that ``scales`` are of one host core.
        exponent: s of the soft minimum.
        base: [K + 1] used by every packet whatever is decided.
        allowed: [U, L]; cost: [U, L, K + 1] of a unit's own code (finite also where it is not allowed).
        edges: between different units, without cycles.
        places: names of the physical places from the wire; units: names of the units, for messages.
    """

    resources: tuple[Resource, ...]
    exponent: float
    base: Vector
    allowed: NDArray[np.bool_]
    cost: Vector
    edges: Sequence[Edge]
    whole: tuple[WholeState, ...]
    copied: tuple[CopiedState, ...]
    orders: tuple[Order, ...]
    stores: tuple[Store, ...]
    ceilings: tuple[Ceiling, ...]
    code: tuple[CodeStore, ...]
    physical: tuple[int, ...]
    places: tuple[str, ...]
    units: tuple[str, ...]
    together: tuple[Together, ...] = ()

    @property
    def host(self) -> int:
        """Number of the physical place that is the host."""
        return len(self.places) - 1

    @cached_property
    def _arrays(self) -> Edges:
        if isinstance(self.edges, Edges):
            return self.edges
        shape = (len(self.edges), len(self.physical), len(self.base))
        ends = np.array([(e.source, e.target) for e in self.edges], np.intp).reshape(-1, 2).T
        return Edges(ends, np.array([e.cross for e in self.edges], float).reshape(shape),
                     np.array([e.crossable for e in self.edges], np.bool_).reshape(shape[:2]),
                     np.array([e.visit for e in self.edges], float).reshape(shape))

    @property
    def ends(self) -> NDArray[np.intp]:
        """[2, E] numbers of source and target units."""
        return self._arrays.ends

    @property
    def cross(self) -> Vector:
        """[E, L, K + 1] of all edges."""
        return self._arrays.cross

    @cached_property
    def reach(self) -> Vector:
        """[E, L, K + 1] sums of `cross` up to each place."""
        return self.cross.cumsum(axis=1)

    @property
    def visit(self) -> Vector:
        """[E, L, K + 1] of all edges."""
        return self._arrays.visit

    @property
    def crossable(self) -> NDArray[np.bool_]:
        """[E, L] of all edges."""
        return self._arrays.crossable


@dataclass(frozen=True)
class Assignment:
    """What is decided.

    Attributes:
        places: [U] the virtual place of each unit.
        whole: per whole state the number of its option.
        copies: per copied state, by physical place, the number of the option of the copy there.
    """

    places: tuple[int, ...]
    whole: tuple[int, ...]
    copies: tuple[Mapping[int, int], ...]
