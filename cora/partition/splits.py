"""The splits a program and a target allow, each with a budget from the profile's admission points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from cora.analysis.decided import RuleTemplate, decide
from cora.analysis.prefixes import FastPath, Lent
from cora.analysis.profile import Admission, AdmissionPoint, PathUse
from cora.analysis.sharding import Sharding, align, sharding_of
from cora.models.target import Refusal
from cora.partition.copies import copied_states
from cora.partition.prices import Prices
from cora.partition.variants import Lend, Split

Mode = Literal["resume", "restart"]


def splits_of(prices: Prices) -> Iterator[Split]:
    """Every split of components that the target takes, for every admission point of the profile.

    What cannot be split is told to ``prices`` as a refusal.
    """
    return _Splits(prices).splits()


@dataclass(frozen=True)
class _Ways:
    """How the paths of the profile meet lent entries of some components; packets are still 0."""

    components: tuple[str, ...]
    anchors: frozenset[str]
    paths: Mapping[int, FastPath]
    templates: Mapping[int, RuleTemplate]


class _Splits:
    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.program, self.profile, self.target = prices.program, prices.profile, prices.target
        self.ways: dict[tuple[tuple[str, ...], Mode, int], _Ways] = {}

    @cached_property
    def shardings(self) -> Mapping[str, Sharding]:
        return sharding_of(self.program)

    def splits(self) -> Iterator[Split]:
        last = len(self.target.places) - 1
        pairs = [(near, owner) for near in range(last) for owner in range(near + 1, last + 1)]
        copied = copied_states(self.program)
        for near, owner in pairs:
            for component, sharding in self.shardings.items():
                if component not in copied:
                    self.refuse(sharding, near, owner, component)
        for admission in self.profile.admission:
            for near, owner in pairs:
                self.refuse_jointly(admission, near, owner)
                for point in admission.points:
                    split = self.split(point, admission.mode, near, owner)
                    if split is not None:
                        yield split

    def refuse(self, sharding: Sharding, near: int, owner: int, component: str) -> None:
        """Say why a component that could be split for its kind is not."""
        place = f"{self.prices.name(near)} by flow"
        if sharding.anchors and not sharding.splittable:
            for reason in sharding.refusals:
                self.prices.refuse(Refusal(component, place, reason.text, reason.span), reason.span)
        answer = self.lending(component, near, owner) if sharding.splittable else None
        if isinstance(answer, Refusal):
            span = answer.span or self.program.state(component).span
            self.prices.refuse(Refusal(component, place, answer.reason, span), span)

    def refuse_jointly(self, admission: Admission, near: int, owner: int) -> None:
        """Say so where two components could each be lent, but the profile knows nothing of both at once."""
        if any(len(point.budgets) > 1 for point in admission.points):
            return
        lent = [c for c in dict.fromkeys(c for point in admission.points for c in point.budgets)
                if c in self.shardings and self.shardings[c].splittable
                and self.lending(c, near, owner) == admission.mode]
        if len(lent) > 1:
            span = self.program.state(lent[0]).span
            self.prices.refuse(Refusal(
                " and ".join(lent), f"{self.prices.name(near)} by flow",
                "packets use entries of more than one of them, so that only one is lent at a time: how they would "
                "share the fast path is not simulated", span), span)

    def lending(self, component: str, near: int, owner: int) -> Mode | Refusal:
        states = [self.program.state(s) for s in self.shardings[component].states]
        answer = self.target.lends(self.program, states, near, owner)
        return answer if isinstance(answer, Refusal) else answer.mode

    def split(self, point: AdmissionPoint, mode: Mode, near: int, owner: int) -> Split | None:
        components = tuple(sorted(point.budgets))
        if not all(c in self.shardings and self.shardings[c].splittable and self.lending(c, near, owner) == mode
                   for c in components):
            return None
        key = (components, mode, near)
        if key not in self.ways:
            self.ways[key] = self.ways_of(components, mode, near)
        ways = self.ways[key]
        paths = self.weighted(ways, point)
        if not any(fast.packets for fast in paths.values()):
            return None
        return Split(near, owner, mode, tuple(self.lend(c, point) for c in components), ways.anchors, paths,
                     ways.templates)

    def lend(self, component: str, point: AdmissionPoint) -> Lend:
        """What is lent of one component; a joint point tells its changes in all, which are taken as shared alike."""
        sharding, budget = self.shardings[component], point.budgets[component]
        each = self.profile.packets * len(point.budgets)
        return Lend(component, sharding.states, sharding.anchors[0].state, budget.capacity, budget.threshold,
                    point.installs / each, point.removals / each, point.recalls / each, point.peak)

    def ways_of(self, components: Sequence[str], mode: Mode, near: int) -> _Ways:
        anchors = frozenset(a.block for c in components for a in self.shardings[c].anchors if a.always)
        blocks = {b.label: b for b in self.program.blocks}
        bare = Lent(mode, frozenset(), anchors, {})
        paths: dict[int, FastPath] = {}
        templates: dict[int, RuleTemplate] = {}
        for path in self.profile.paths:
            meets = bare.meets(blocks, path)
            if meets is None:
                continue
            if mode == "resume":
                fast = self.resumed(components, path, meets)
            else:
                fast = self.decided(components, path, meets, near, templates)
            if fast is not None:
                paths[path.id] = fast
        return _Ways(tuple(components), anchors, paths, templates)

    def resumed(self, components: Sequence[str], path: PathUse, meets: int) -> FastPath | None:
        """How packets of a path go on from an entry found lent at ``meets``; None: they never find one there."""
        found = [align(self.program, c, path.blocks, path.outcomes) for c in components]
        if not any(a.anchor == meets for a in found):
            return None
        owned = [a.owner_from for a in found if a.owner_from is not None]
        first = min(owned, default=None)
        if first is not None and first[0] <= meets:
            return None
        return FastPath(0, meets, first)

    def decided(self, components: Sequence[str], path: PathUse, meets: int, near: int,
                templates: dict[int, RuleTemplate]) -> FastPath | None:
        """The same where only rules run, one for the whole path, which is about one flow of one component."""
        met = path.blocks[meets]
        component = next((c for c in components for a in self.shardings[c].anchors if a.block == met), "")
        if not component:
            return None
        template = decide(self.program, component, path.blocks, path.outcomes)
        if not isinstance(template, RuleTemplate):
            return None
        if isinstance(self.target.rule(self.program, template, near, 1), Refusal):
            return None
        templates[path.id] = template
        return FastPath(0, meets, None)

    def weighted(self, ways: _Ways, point: AdmissionPoint) -> Mapping[int, FastPath]:
        """The packets of a point on their paths. Recalls are not told by path: they are shared out by its packets."""
        lent = dict(point.lent)
        leaving = sum(p.packets for p in self.profile.paths
                      if (fast := ways.paths.get(p.id)) is not None and fast.owner_from is not None)
        found = {}
        for path in self.profile.paths:
            fast = ways.paths.get(path.id)
            if fast is None:
                continue
            packets = lent.get(path.id, 0)
            if fast.owner_from is not None:
                packets = min(path.packets, point.recalls * path.packets // leaving)
            found[path.id] = replace(fast, packets=min(packets, path.packets))
        return found
