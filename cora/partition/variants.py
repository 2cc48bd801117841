"""Ways to run a program that need a graph of their own: which entries are lent where, and whether packets return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cora.analysis.decided import RuleTemplate
from cora.analysis.prefixes import FastPath, Lent


@dataclass(frozen=True)
class Lend:
    """One component lent: its ``states``, of which ``anchored`` is the one packets meet their entry in.

    ``capacity``: entries lent at once at most; ``threshold``: packets of a flow that the owner sees before it lends;
    ``installs``, ``removals`` and ``recalls`` per packet of the profile; ``peak``: entries lent at most.
    """

    component: str
    states: tuple[str, ...]
    anchored: str
    capacity: int
    threshold: int
    installs: float
    removals: float
    recalls: float
    peak: int


@dataclass(frozen=True)
class Split:
    """Components whose entries are lent from place ``owner`` to place ``near`` (numbers), together.

    ``paths``: by path number how its packets meet the entries; ``anchors``: labels of the blocks where they do.
    ``templates``: in restart mode the decided rule of each path.
    """

    near: int
    owner: int
    mode: Literal["resume", "restart"]
    lends: tuple[Lend, ...]
    anchors: frozenset[str]
    paths: Mapping[int, FastPath]
    templates: Mapping[int, RuleTemplate] = field(default_factory=dict)

    @property
    def lent(self) -> Lent:
        """What the expansion of the program needs to know."""
        return Lent(self.mode, frozenset(s for lend in self.lends for s in lend.states), self.anchors, self.paths)

    @property
    def components(self) -> tuple[str, ...]:
        return tuple(lend.component for lend in self.lends)


@dataclass(frozen=True)
class Variant:
    """``split`` None: every state is whole or copied. ``returns``: packets may come back from the host once."""

    split: Split | None = None
    returns: bool = False


WHOLE = Variant()
