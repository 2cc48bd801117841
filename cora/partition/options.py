"""What a user wishes for beside a rate: states pinned to or kept from places, and less memory on the NIC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cora.analysis.prefixes import state_of
from cora.errors import Kind, fail
from cora.ir.nodes import Program
from cora.models.target import Target
from cora.partition.instance import Instance
from cora.partition.problem import Ceiling, CopyOption, Option, Problem

_Kind = TypeVar("_Kind", Option, CopyOption)


@dataclass(frozen=True)
class Wish:
    """A state at a place, in any of its memories where ``tier`` is None; ``text`` as the user wrote it."""

    state: str
    place: int
    tier: str | None
    text: str

    def covers(self, place: int, tier: str) -> bool:
        return place == self.place and self.tier in (None, tier)


def wish_of(text: str, flag: str, program: Program, target: Target) -> Wish:
    """Read ``STATE=PLACE`` or ``STATE=PLACE/TIER``.

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    state, equals, where = text.partition("=")
    place, slash, tier = where.partition("/")
    if not equals or not state or not place or (slash and not tier):
        raise fail(Kind.BAD_FLAG, f"'{text}' does not say which state and where", where=flag,
                   hint="write STATE=PLACE or STATE=PLACE/TIER, for example conns=host")
    names = [s.name for s in program.states]
    if state not in names:
        raise fail(Kind.BAD_FLAG, f"{program.name} has no state '{state}'", where=f"{flag} {text}",
                   hint=f"it has {', '.join(names) or 'no state at all'}")
    number = next((i for i, p in enumerate(target.places) if p.name == place), None)
    if number is None:
        raise fail(Kind.BAD_FLAG, f"{target.name} has no place '{place}'", where=f"{flag} {text}",
                   hint=f"its places are {', '.join(p.name for p in target.places)}")
    tiers = [t.name for t in target.places[number].tiers]
    if slash and tier not in tiers:
        raise fail(Kind.BAD_FLAG, f"{place} has no memory '{tier}'", where=f"{flag} {text}",
                   hint=f"its memories are {', '.join(tiers)}")
    return Wish(state, number, tier if slash else None, text)


@dataclass(frozen=True)
class Restrictions:
    """All of them. A pinned state is kept there, its copies or its owner; what is lent of it may be nearer."""

    pins: tuple[Wish, ...] = ()
    forbids: tuple[Wish, ...] = ()
    nic_memory: int | None = None

    @property
    def said(self) -> tuple[str, ...]:
        """Each as the user wrote it."""
        memory = () if self.nic_memory is None else (f"--max-nic-memory {self.nic_memory}",)
        return (*(f"--pin {w.text}" for w in self.pins), *(f"--forbid {w.text}" for w in self.forbids), *memory)

    def without(self, number: int) -> Restrictions:
        """All but one of them, by its number in ``said``."""
        pins, forbids = len(self.pins), len(self.forbids)
        if number < pins:
            return replace(self, pins=(*self.pins[:number], *self.pins[number + 1:]))
        if number < pins + forbids:
            at = number - pins
            return replace(self, forbids=(*self.forbids[:at], *self.forbids[at + 1:]))
        return replace(self, nic_memory=None)

    def blamed(self, possible: Callable[[Restrictions], bool]) -> tuple[str, ...]:
        """Some of them that leave nothing possible, each of which is needed for that; none where it is not them."""
        if not self.said or not possible(Restrictions()):
            return ()
        least, number = self, 0
        while number < len(least.said):
            fewer = least.without(number)
            if possible(fewer):
                number += 1
            else:
                least = fewer
        return least.said

    def away(self, state: str, place: int) -> str | None:
        """The one that by itself keeps a state from a place; None: none does."""
        pin = next((w for w in self.pins if w.state == state and w.place != place), None)
        if pin is not None:
            return f"--pin {pin.text}"
        forbid = next((w for w in self.forbids if w.state == state and w.place == place and w.tier is None), None)
        return None if forbid is None else f"--forbid {forbid.text}"

    def applied(self, instance: Instance) -> Instance:
        """The instance without what they rule out."""
        if not self.pins and not self.forbids and self.nic_memory is None:
            return instance
        problem = instance.problem
        whole = tuple(replace(s, options=tuple(self.left(problem, s.name, s.options))) for s in problem.whole)
        copied = tuple(replace(s, options=tuple(self.left(problem, s.name, s.options))) for s in problem.copied)
        allowed = problem.allowed.copy()
        used = [(s.units, {o.place for o in s.options}) for s in whole]
        used += [(s.users, {o.place for o in s.options}) for s in copied]
        for units, there in used:
            allowed[list(units)] &= [place in there for place in problem.physical]
        return replace(instance, problem=replace(problem, whole=whole, copied=copied, allowed=allowed,
                                                 ceilings=tuple(self.ceilings(problem))))

    def left(self, problem: Problem, table: str, options: Sequence[_Kind]) -> Iterator[_Kind]:
        """The options that are left to a table."""
        name = state_of(table)
        pins = [w for w in self.pins if w.state == name and name == table]
        forbids = [w for w in self.forbids if w.state == name]
        for option in options:
            spot = option.place, problem.stores[option.store].name
            if all(w.covers(*spot) for w in pins) and not any(w.covers(*spot) for w in forbids):
                yield option

    def ceilings(self, problem: Problem) -> Iterator[Ceiling]:
        if self.nic_memory is not None:
            stores = tuple(i for i, s in enumerate(problem.stores) if s.place != problem.host and s.unit == "bytes")
            yield Ceiling("the NIC", stores, self.nic_memory)


def contradiction(given: Restrictions) -> None:
    """Refuse restrictions that exclude each other.

    Raises:
        CoraError: `Kind.BAD_FLAG` naming the two.
    """
    for i, pin in enumerate(given.pins):
        for other in given.pins[i + 1:]:
            if other.state != pin.state:
                continue
            if other.place != pin.place or (pin.tier is not None and other.tier not in (None, pin.tier)):
                raise fail(Kind.BAD_FLAG, f"'{pin.text}' and '{other.text}' contradict each other: a state has one "
                                          "place", where="--pin", hint="keep one of them")
        for other in given.forbids:
            if other.state == pin.state and other.place == pin.place and other.tier in (None, pin.tier):
                raise fail(Kind.BAD_FLAG, f"--pin {pin.text} and --forbid {other.text} contradict each other",
                           where="--pin, --forbid", hint="drop one of them")
