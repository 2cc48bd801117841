"""A target's answers as rows of numbers, asked once for all variants of a plan.

Vectors run over the target's resources in order, in units per packet of the profile, and end with one more column, the
unloaded latency in nanoseconds per packet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cora.analysis.accesses import AccessRates, accesses_of
from cora.analysis.decided import RuleTemplate
from cora.analysis.demand import rates_of
from cora.analysis.order import OrderedEnds, ordered_ends
from cora.analysis.prefixes import Piece
from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.nodes import FragmentState, MapState, MeterState, Program, State
from cora.ir.span import Span
from cora.models.target import Demand, Refusal, Target, Tier
from cora.partition.copies import copied_states
from cora.partition.frames import Frames
from cora.partition.problem import Vector
from cora.plan.quantities import scaled

if TYPE_CHECKING:
    from cora.partition.instance import Instance
    from cora.partition.units import Units
    from cora.partition.variants import Split, Variant


@dataclass
class Made:
    """A variant made numbers, and its units once they were asked for."""

    variant: Variant
    instance: Instance
    units: Units | None = None


class Prices:
    """What everything of a program costs at every place of a target, under a profile.

    Refusals that targets give on the way are kept, each once, with their place in the user's source.

    Attributes:
        made: for `cora.partition.choosing`: variants made with these prices, by what they are of.
        base: prices that differ in the rates of resources alone.
    """

    def __init__(self, program: Program, profile: Profile, target: Target) -> None:
        self.program = program
        self.profile = profile
        self.target = target
        self.frame = profile.mean_frame
        self.resources = target.resources(self.frame)
        self.width = len(self.resources) + 1
        self.rates = rates_of(program, profile)
        self.frames = Frames(self)
        self.refusals: dict[tuple[str, str, str, Span | None], Refusal] = {}
        self.made: dict[tuple[object, ...], Made] = {}
        self.base: Prices | None = None
        self._column = {r.name: i for i, r in enumerate(self.resources)}
        self._code: dict[tuple[str, int, int, bool, int], Vector | None] = {}
        self._crossings: dict[tuple[int, int, int], Vector] = {}
        self._accesses: dict[tuple[str, str, int, str, AccessRates], Vector | Refusal] = {}
        self._visits: dict[int, Vector] = {}
        self._holds: dict[tuple[str, int, str], int | Refusal] = {}
        self._sizes: dict[tuple[str, int, int, bool, int], int] = {}

    def at_rates_of(self, target: Target) -> Prices:
        """The prices of a target that differs in the rates of its resources alone."""
        found = copy(self)
        found.target, found.resources = target, target.resources(self.frame)
        found.refusals, found.made, found.base = dict(self.refusals), {}, self
        return found

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """The splits of the program that the target takes, with the budgets of the profile."""
        from cora.partition.splits import splits_of

        return tuple(splits_of(self))

    @cached_property
    def copied(self) -> Mapping[str, str]:
        """States that every place may have a copy of, and how."""
        return copied_states(self.program)

    @cached_property
    def ordered(self) -> tuple[OrderedEnds, ...]:
        """What `order strict` keeps at one place."""
        return ordered_ends(self.program)

    def vector(self, demand: Demand, what: str) -> Vector:
        """A demand as a row. An infinite demand stays infinite: it means "impossible"."""
        row = np.zeros(self.width)
        for name, amount in demand.items():
            if name not in self._column or math.isnan(amount) or amount < 0:
                known = f"uses {name}, its resources are {', '.join(self._column)}"
                problem = f"uses {amount} of {name}" if name in self._column else known
                raise fail(Kind.BAD_TARGET, f"target {self.target.name}: {what} {problem}",
                           hint="this is a defect of the target's backend, not of your program")
            row[self._column[name]] += amount
        return row

    def refuse(self, refusal: Refusal, span: Span) -> None:
        full = refusal if refusal.span else replace(refusal, span=span)
        self.refusals.setdefault((full.subject, full.place, full.reason, full.span), full)

    def name(self, place: int) -> str:
        return self.target.places[place].name

    # Code and packets.

    def code(self, piece: Piece, place: int) -> Vector | None:
        """Cost of a piece's own code, or None where it may not run."""
        key = (*identity(piece), place)
        if key not in self._code:
            self._code[key] = self._ask_code(piece, place)
        return self._code[key]

    def _ask_code(self, piece: Piece, place: int) -> Vector | None:
        answer = self.target.block(self.program, piece.block, place)
        if isinstance(answer, Refusal):
            self.refuse(answer, piece.block.span)
            return None
        row = self.vector(answer, f"block {piece.label} at {self.name(place)}")
        return row if np.isfinite(row).all() else None

    def code_size(self, piece: Piece, place: int) -> int:
        key = (*identity(piece), place)
        if key not in self._sizes:
            self._sizes[key] = self.target.code_size(self.program, piece.block, place)
        return self._sizes[key]

    def visit(self, place: int) -> Vector:
        """What a packet that comes to a place pays there before any code."""
        if place not in self._visits:
            row = self.vector(self.target.per_packet(place), f"a packet at {self.name(place)}")
            row[-1] = self.target.latency(place)
            self._visits[place] = row
        return self._visits[place]

    def crossing(self, start: int, stop: int, live_bytes: int) -> Vector:
        """Handing a packet over between places that are next to each other."""
        key = (start, stop, live_bytes)
        if key not in self._crossings:
            demand = self.target.crossing(start, stop, self.frame, live_bytes)
            row = self.vector(demand, f"crossing {self.name(start)}-{self.name(stop)}")
            row[-1] = self.target.crossing_latency(start, stop, self.frame)
            self._crossings[key] = row
        return self._crossings[key]

    def travel(self, start: int, stop: int) -> Vector:
        """Passing a packet on, from place to place, without values of the program."""
        step = 1 if stop > start else -1
        return sum((self.crossing(p, p + step, 0) for p in range(start, stop, step)), np.zeros(self.width))

    # States.

    def holds(self, state: State, place: int, tier: str) -> int | Refusal:
        key = (state.name, place, tier)
        if key not in self._holds:
            self._holds[key] = self.target.holds(self.program, state, place, tier)
        return self._holds[key]

    def access(self, state: State, kind: str, place: int, tier: str, use: AccessRates) -> Vector | Refusal:
        """One access of a state that is used like ``use``."""
        key = (state.name, kind, place, tier, use)
        if key not in self._accesses:
            self._accesses[key] = self._ask_access(state, kind, place, tier, use)
        return self._accesses[key]

    def _ask_access(self, state: State, kind: str, place: int, tier: str, use: AccessRates) -> Vector | Refusal:
        answer = self.target.access(self.program, state, kind, place, tier, use)
        if isinstance(answer, Refusal):
            return replace(answer, span=answer.span or self.first_access(state.name, kind))
        row = self.vector(answer, f"{kind} of {state.name} in {tier}")
        if not np.isfinite(row).all():
            return Refusal(state.name, self.name(place), f"it has no {kind}", self.first_access(state.name, kind))
        return row

    def accesses(self, state: State, counts: Mapping[str, float], place: int, tier: str,
                 use: AccessRates) -> Vector | Refusal:
        """All accesses a packet makes to a state, ``counts`` of each kind."""
        total = np.zeros(self.width)
        for kind, count in counts.items():
            row = self.access(state, kind, place, tier, use)
            if isinstance(row, Refusal):
                return row
            total += count * row
        return total

    def lending(self, what: str, states: Sequence[str], places: tuple[int, int], tier: str,
                entries: int) -> Vector | Refusal:
        """``install`` or ``recall`` of one entry between the places (near, owner)."""
        ask = self.target.install if what == "install" else self.target.recall
        answer = ask(self.program, [self.program.state(s) for s in states], *places, tier, entries)
        return answer if isinstance(answer, Refusal) else self.vector(answer, f"{what} of {states[0]} in {tier}")

    def rule(self, template: RuleTemplate, place: int, rules: int) -> Vector | Refusal:
        """One packet served by a rule of a decided flow, ``rules`` of them installed."""
        answer = self.target.rule(self.program, template, place, rules)
        return answer if isinstance(answer, Refusal) else self.vector(answer, f"a rule at {self.name(place)}")

    def fits(self, state: State, place: int, tier: Tier) -> int | Refusal:
        """Units of a tier that a state takes, refused where the tier is too small."""
        amount = self.holds(state, place, tier.name)
        if isinstance(amount, Refusal) or amount <= tier.capacity:
            return amount
        return Refusal(state.name, self.name(place),
                       f"{tier.name} has {scaled(tier.capacity, tier.unit)}, '{state.name}' with its declared capacity "
                       f"needs {scaled(amount, tier.unit)}")

    def refuse_tiers(self, state: State, place: int, answers: Sequence[tuple[str, object]]) -> None:
        """Keep the refusals among the answers of a place's tiers: of one memory alone where another takes the state.

        A reason about the kind of one memory would hide that none is large enough: then that is the reason.
        """
        taken = any(not isinstance(answer, Refusal) for _, answer in answers)
        small = None if taken else self.too_large(state, place)
        if small is not None:
            self.refuse(small, state.span)
        for tier, answer in answers:
            if isinstance(answer, Refusal):
                where = f"{self.name(place)}/{tier}" if taken or small else self.name(place)
                self.refuse(replace(answer, subject=state.name, place=where), state.span)

    def too_large(self, state: State, place: int) -> Refusal | None:
        """A refusal that names the largest memory of a place that would take a state but for its size."""
        declared = self.target.places[place]
        sizes = [(tier, self.holds(state, place, tier.name)) for tier in declared.tiers]
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

    def first_access(self, name: str, kind: str) -> Span | None:
        """The first place in the source where a state is used in a way."""
        return next((node.span for block in self.program.blocks for node in (*block.instructions, block.terminator)
                     if (name, kind) in accesses_of(self.program, node)), None)


def identity(piece: Piece) -> tuple[str, int, int, bool]:
    """What makes a piece: its block, where it begins and ends, and whether the block's end belongs to it."""
    return piece.label, piece.start, len(piece.block.instructions), piece.last
