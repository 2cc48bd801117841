"""A placement problem of a program: what each node, state and crossing would use at each place of a target.

Everything is linear in the placement: the mean demand of a packet is a sum of rows (`cora.partition.prices`). An
`Instance` is one variant of the plan, with every node of its prefix graph as a unit of code of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cora.analysis.accesses import Access, AccessRates, components_of
from cora.analysis.demand import check_profile, expiries_per_packet
from cora.analysis.order import order_clause
from cora.analysis.prefixes import PrefixGraph, lent_name
from cora.analysis.profile import Profile
from cora.ir.nodes import MapState, MeterState, Program, State
from cora.models.target import Refusal, Resource, Target, Tier
from cora.partition.frames import Frame
from cora.partition.prices import Prices
from cora.partition.problem import (
    CopiedState,
    CopyOption,
    Edges,
    Option,
    Order,
    Problem,
    Store,
    Together,
    Vector,
    WholeState,
)
from cora.partition.variants import WHOLE, Lend, Split, Variant
from cora.plan.quantities import scaled


@dataclass(frozen=True)
class Instance:
    """One variant. N nodes of ``graph`` are the units of ``problem``, in order.

    Attributes:
        copied: names of the states that have a copy where they are used.
        rates: how each table is used, lent ones by `lent_name`.
        access_counts: per (table, kind) accesses per packet; kinds that only unseen code uses count 0.
        refusals: why something cannot be somewhere.
        frame: what other budgets of the same split have in common with it.
        cheapest_rule: the path whose rule packets pay that find none; None where there are no rules.
    """

    program: Program
    profile: Profile
    target: Target
    variant: Variant
    graph: PrefixGraph
    problem: Problem
    copied: tuple[str, ...]
    rates: Mapping[str, AccessRates]
    access_counts: Mapping[Access, float]
    refusals: tuple[Refusal, ...]
    prices: Prices
    cheapest_rule: int | None
    frame: Frame

    @property
    def last(self) -> int:
        """Number of the last physical place, the host."""
        return len(self.target.places) - 1

    def place_number(self, name: str) -> int | None:
        return next((i for i, p in enumerate(self.target.places) if p.name == name), None)

    @property
    def resources(self) -> tuple[Resource, ...]:
        return self.problem.resources

    @cached_property
    def whole_number(self) -> Mapping[str, int]:
        """Per table kept whole, and per table of lent entries, its number in the problem."""
        return {s.name: i for i, s in enumerate(self.problem.whole)}


def build(program: Program, profile: Profile, target: Target, variant: Variant = WHOLE,
          prices: Prices | None = None) -> Instance:
    """Ask a target about every piece, state and crossing of a program under a profile.

    ``prices``: answers of the target that are known already, of the same program, profile and target.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH`, `Kind.TOO_MANY_PATHS`; `Kind.BAD_TARGET` for a demand that makes no sense.
    """
    if prices is None:
        check_profile(program, profile)
        prices = Prices(program, profile, target)
    return _Builder(prices, variant).instance()


class _Builder:
    def __init__(self, prices: Prices, variant: Variant) -> None:
        self.prices = prices
        self.program, self.profile, self.target = prices.program, prices.profile, prices.target
        self.split: Split | None = variant.split
        self.variant = variant
        self.places = range(len(self.target.places))
        self.last = len(self.target.places) - 1
        self.physical = (*self.places, self.last - 1) if variant.returns else tuple(self.places)
        copied = prices.copied
        lent = None if self.split is None else self.split.lent
        self.frame = prices.frames.frame(frozenset(copied), lent, self.physical)
        self.graph: PrefixGraph = self.frame.graph(lent)
        self.share = np.array([n.packets / self.graph.packets for n in self.graph.nodes])
        self.counts = self.access_counts()
        used = {name for name, _ in self.counts}
        # A state that no code uses is kept once.
        self.copied = tuple(name for name in copied if name in used)
        self.components = components_of(self.program)
        self.stores = tuple(Store(t.name, i, t.capacity, t.unit)
                            for i, p in enumerate(self.target.places) for t in p.tiers)
        self.store_number = {(s.place, s.name): i for i, s in enumerate(self.stores)}
        self.rates = {**prices.rates, **self.lent_rates()}

    def instance(self) -> Instance:
        copied = tuple(self.copied_state(self.program.state(name)) for name in self.copied)
        whole = tuple(self.whole_state(s) for s in self.program.states if s.name not in self.copied)
        lent = tuple(self.lent_table(lend, name) for lend in self.lends for name in lend.states if self.is_lent(name))
        states = (*whole, *lent)
        allowed, cost = self.code()
        self.forbid(allowed, states, copied)
        problem = Problem(
            self.prices.resources, self.target.exponent,
            base=self.prices.vector(self.target.wire(self.prices.frame), "the wire"),
            allowed=allowed, cost=np.where(allowed[:, :, None], cost, 0.0),
            edges=self.edges(),
            whole=states, copied=copied, orders=tuple(self.orders(states)), stores=self.stores, ceilings=(),
            code=self.frame.stores, physical=self.physical, places=tuple(p.name for p in self.target.places),
            units=self.frame.names, together=self.together(allowed),
        )
        return Instance(self.program, self.profile, self.target, self.variant, self.graph, problem, self.copied,
                        self.rates, self.counts, tuple(self.prices.refusals.values()), self.prices, self.cheapest,
                        self.frame)

    @property
    def lends(self) -> tuple[Lend, ...]:
        return self.split.lends if self.split is not None else ()

    # What is used how often.

    def access_counts(self) -> dict[Access, float]:
        counts: dict[Access, float] = defaultdict(float)
        for access, nodes in self.frame.accesses.items():
            counts[access] += float(self.share[nodes].sum())
        for state in self.program.states:
            dying = expiries_per_packet(self.program, self.profile, state)
            if dying:
                counts[state.name, "delete"] += dying
        return dict(counts)

    def lent_rates(self) -> dict[str, AccessRates]:
        """How lent tables are used: by fewer packets, of fewer flows."""
        return {lent_name(name): self.lent_rate(lend, name) for lend in self.lends for name in lend.states
                if self.is_lent(name)}

    def lent_rate(self, lend: Lend, name: str) -> AccessRates:
        known = self.prices.rates[name]
        entries = max(1, min(lend.capacity, lend.peak))
        lent = sum(n for (table, kind), n in self.counts.items() if table == lent_name(name) and kind != "lookup")
        every = lent + sum(n for (table, kind), n in self.counts.items() if table == name and kind != "lookup")
        # The hottest flow is lent, so its share grows by as much as the others are left out.
        hottest = min(1.0, known.hottest * every / lent) if lent else known.hottest
        size = known.entry_bytes
        return AccessRates(size, entries, min(known.working_set, entries * size) or size, hottest,
                           lend.installs + lend.removals)

    def is_lent(self, name: str) -> bool:
        return isinstance(self.program.state(name), MapState | MeterState)

    def counts_of(self, table: str) -> dict[str, float]:
        return {kind: count for (name, kind), count in self.counts.items() if name == table}

    # Code.

    def code(self) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.bool_]], Vector]:
        """[N, L] whether a node's own code may be at a virtual place, [N, L, K + 1] what it costs there."""
        frame, places = self.frame, list(self.physical)
        runs, share = frame.runs.copy(), self.share[:, None, None]
        own = frame.code * share
        self.only_rules(runs, own)
        # None of something impossible is nothing.
        row = own + np.where(share > 0, frame.ends, 0.0) * share
        row[0] += [self.arrival(place) for place in self.places]
        allowed = runs & np.isfinite(row).all(axis=2)
        cost = np.where(runs[:, :, None], row, 0.0)
        return allowed[:, places], cost[:, places]

    def only_rules(self, runs: np.ndarray[tuple[int, int], np.dtype[np.bool_]], own: Vector) -> None:
        """In restart mode up to the near place there is nothing but the rules, and the rules are nowhere else."""
        split = self.split
        if split is None or split.mode != "restart":
            return
        runs[:, : split.near + 1] = False
        for number, node in enumerate(self.graph.nodes):
            if node.lent:
                runs[number] = False
                runs[number, split.near] = True
                own[number, split.near] = self.rule(number)

    def rule(self, number: int) -> Vector:
        """[K + 1] of the rules that end at a node; at the first node also of the packets that match none."""
        split = self.split
        assert split is not None, "there are rules"
        row = np.zeros(self.prices.width)
        for path, packets in self.graph.rules.get(number, ()):
            row += self.rule_price(split, path) * (packets / self.graph.packets)
        if number == 0 and self.cheapest is not None:
            served = sum(packets for rules in self.graph.rules.values() for _, packets in rules)
            row += self.rule_price(split, self.cheapest) * (1 - served / self.graph.packets)
        return row

    @cached_property
    def ruled(self) -> int:
        return 0 if self.split is None else rules_of(self.program, self.target, self.split)

    @cached_property
    def cheapest(self) -> int | None:
        """The path with the cheapest rule: nobody knows before whether a rule matches, so that who finds none pays it.
        """
        split = self.split
        if split is None or not split.templates:
            return None
        return min(split.templates, key=lambda path: (float(self.rule_price(split, path).sum()), path))

    def rule_price(self, split: Split, path: int) -> Vector:
        row = self.prices.rule(split.templates[path], split.near, self.ruled)
        assert not isinstance(row, Refusal), "a split has only paths that the place takes as rules"
        return row

    def arrival(self, place: int) -> Vector:
        """What it takes to bring packets from the ports they arrive on to the place they start at."""
        packets = sum(n for n, _ in self.profile.ports.values())
        hosted = sum(self.profile.ports.get(p.name, (0, 0))[0] for p in self.program.ports if "wire" not in p.faces)
        share = hosted / packets if packets else 0.0
        travel = self.prices.travel
        return self.prices.visit(place) + _times(1 - share, travel(0, place)) + _times(share, travel(self.last, place))

    def edges(self) -> Edges:
        share = np.array([edge.packets for edge in self.graph.edges])[:, None, None] / self.graph.packets
        frame = self.frame
        return Edges(frame.ends_of_edges, frame.cross * share, frame.crossable, frame.visit * share)

    # States.

    def users(self, table: str) -> tuple[int, ...]:
        return self.frame.users.get(table, ())

    def at_home(self, home: str) -> tuple[int, ...]:
        return self.frame.homes.get(home, ())

    def options_of(self, state: State, answers: Iterable[tuple[int, Tier, Option | CopyOption | Refusal]]
                   ) -> Iterator[Option | CopyOption]:
        """The options among the answers; the refusals are kept."""
        by_place: dict[int, list[tuple[str, object]]] = defaultdict(list)
        for place, tier, answer in answers:
            by_place[place].append((tier.name, answer))
            if not isinstance(answer, Refusal):
                yield answer
        for place, found in by_place.items():
            self.prices.refuse_tiers(state, place, found)

    def tiers(self) -> Iterator[tuple[int, Tier]]:
        return ((place, tier) for place, declared in enumerate(self.target.places) for tier in declared.tiers)

    def whole_state(self, state: State) -> WholeState:
        counts = self.counts_of(state.name)
        owner = next((self.split.owner for lend in self.lends if self.split and state.name in lend.states), None)
        found = self.options_of(state, ((place, tier, self.whole_option(state, place, tier, counts))
                                        for place, tier in self.tiers()))
        options = tuple(o for o in found if isinstance(o, Option) and owner in (None, o.place))
        return WholeState(state.name, self.at_home(self.components[state.name]), options)

    def whole_option(self, state: State, place: int, tier: Tier, counts: Mapping[str, float]) -> Option | Refusal:
        amount = self.prices.fits(state, place, tier)
        if isinstance(amount, Refusal):
            return amount
        cost = self.prices.accesses(state, counts, place, tier.name, self.rates[state.name])
        if isinstance(cost, Refusal):
            return cost
        return Option(place, self.store_number[place, tier.name], amount, cost)

    def copied_state(self, state: State) -> CopiedState:
        users = self.users(state.name)
        share = self.share[list(users), None]
        return CopiedState(state.name, users, tuple(
            replace(option, cost=option.cost * share) for option in self.copies_of(state, users)))

    def copies_of(self, state: State, users: Sequence[int]) -> tuple[CopyOption, ...]:
        """The options of a copied state, ``cost`` per packet at each user: the same for all budgets of a split."""
        known = self.frame.copies
        if state.name not in known:
            found = self.options_of(state, ((place, tier, self.copy_option(state, place, tier, users))
                                            for place, tier in self.tiers()))
            known[state.name] = tuple(o for o in found if isinstance(o, CopyOption))
        return known[state.name]

    def copy_option(self, state: State, place: int, tier: Tier, users: Sequence[int]) -> CopyOption | Refusal:
        amount = self.prices.fits(state, place, tier)
        if isinstance(amount, Refusal):
            return amount
        cost = np.zeros((len(users), self.prices.width))
        for i, user in enumerate(users):
            for name, kind in self.graph.nodes[user].accesses:
                if name != state.name:
                    continue
                row = self.prices.access(state, kind, place, tier.name, self.rates[state.name])
                if isinstance(row, Refusal):
                    return row
                cost[i] += row
        return CopyOption(place, self.store_number[place, tier.name], amount, cost)

    def lent_table(self, lend: Lend, name: str) -> WholeState:
        """The near table of a state's lent entries, with what lending, taking back and recalling cost."""
        assert self.split is not None, "something is lent"
        state, near = self.program.state(name), self.split.near
        counts = self.counts_of(lent_name(name))
        options = []
        for tier in self.target.places[near].tiers:
            option = self.lent_option(lend, state, near, tier, counts)
            if isinstance(option, Refusal):
                self.prices.refuse(replace(option, subject=lent_name(name),
                                           place=f"{self.prices.name(near)}/{tier.name}"), state.span)
            else:
                options.append(option)
        return WholeState(lent_name(name), self.at_home(lent_name(lend.component)), tuple(options))

    def lent_option(self, lend: Lend, state: State, near: int, tier: Tier,
                    counts: Mapping[str, float]) -> Option | Refusal:
        assert self.split is not None, "something is lent"
        amount = self.target.lent_holds(self.program, state, near, tier.name, lend.capacity)
        if isinstance(amount, Refusal):
            return amount
        if amount > tier.capacity:
            return Refusal(state.name, self.prices.name(near),
                           f"{tier.name} has {scaled(tier.capacity, tier.unit)}, {lend.capacity:,} lent entries of "
                           f"'{state.name}' need {scaled(amount, tier.unit)}")
        total = self.prices.accesses(state, counts, near, tier.name, self.rates[lent_name(state.name)])
        if isinstance(total, Refusal) or state.name != lend.anchored:
            return total if isinstance(total, Refusal) else Option(near, self.store_number[near, tier.name], amount,
                                                                   total)
        for often, what in ((lend.installs, "install"), (lend.recalls, "recall")):
            row = self.prices.lending(what, lend.states, (near, self.split.owner), tier.name, lend.capacity)
            if isinstance(row, Refusal):
                return row
            total = total + often * row
        return Option(near, self.store_number[near, tier.name], amount, total)

    def orders(self, states: Sequence[WholeState]) -> Iterator[Order]:
        number = {s.name: i for i, s in enumerate(states)}
        for lend in self.lends:
            for name in lend.states:
                if lent_name(name) in number:
                    yield Order(number[lent_name(name)], number[name])

    def together(self, allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> tuple[Together, ...]:
        """Ends of packets of one flow: the same for all budgets of a split that agree on what is legal."""
        split = self.split
        key = () if split is None else (split.near, split.components), allowed.tobytes()
        if key not in self.frame.together:
            self.frame.together[key] = tuple(self.ends(allowed))
        return self.frame.together[key]

    def ends(self, allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Iterator[Together]:
        """Those on a lent entry may end near the wire: they wait until packets of their flow that were handed on are
        through. A packet that does not meet the entry cannot make them wait.
        """
        near = -1 if self.split is None else self.split.near
        if self.variant.returns:
            yield from self.one_stretch()
        for group in self.prices.ordered:
            found = sorted(i for label in group.blocks for i in self.frame.last.get(label, ()))
            waits = self.split is not None and not group.passed & set(self.split.components) and (
                self.split.mode == "resume" or all(self.is_strict(c) for c in self.split.components))
            lent = [i for i in found if waits and self.graph.nodes[i].lent and allowed[i, near]]
            away = set(lent)
            kept = [i for i in found if i not in away]
            if found:
                yield Together(tuple(kept or lent[:1]), tuple(lent if kept else lent[1:]), near,
                               order_reason(self.program, group.states))

    def one_stretch(self) -> Iterator[Together]:
        """All code of a component before the host, or all behind it: a packet that comes back would meet the table
        after packets that arrived later, and have it otherwise than the unsplit program has.
        """
        for home, units in self.frame.homes.items():
            if len(units) > 1:
                yield Together(units, (), -1, f"all code that uses {home} is in one stretch of a packet's way")

    def is_strict(self, component: str) -> bool:
        return all(s.strict_order for s in self.program.states
                   if isinstance(s, MapState | MeterState) and self.components[s.name] == component)

    def forbid(self, allowed: np.ndarray[tuple[int, int], np.dtype[np.bool_]], whole: Sequence[WholeState],
               copied: Sequence[CopiedState]) -> None:
        """Code may only be where the states it uses may be."""
        used = [(s.units, {o.place for o in s.options}) for s in whole]
        used += [(s.users, {o.place for o in s.options}) for s in copied]
        for units, there in used:
            allowed[list(units)] &= np.array([place in there for place in self.physical])


def order_reason(program: Program, states: Sequence[str]) -> str:
    """Why packets end at one place, in the user's words."""
    clause = order_clause([program.state(name) for name in states])
    return f"{clause} keeps all packets of a flow that are forwarded at one place"


def rules_of(program: Program, target: Target, split: Split) -> int:
    """Rules that a split installs at most."""
    sizes = [target.lent_holds(program, program.state(lend.anchored), split.near, tier.name, lend.capacity)
             for lend in split.lends for tier in target.places[split.near].tiers]
    return sum(size for size in sizes if not isinstance(size, Refusal))


def _times(share: float, row: Vector) -> Vector:
    """``share * row``, where none of something impossible is nothing."""
    return share * row if share else np.zeros_like(row)
