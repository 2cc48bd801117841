"""Programs with one fault each: the analysis notices every one, and brute force shows that it has to.

What was claimed of the program before the change is wrong for the mutant (packets show it); what the analysis claims of
the mutant is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import islice
from random import Random

import pytest
from sharding_kit import SHIPPED, shipped
from sharding_mutants import Mutant, mutants_of
from sharding_oracle import Claims, violations

from cora.analysis.sharding import align, sharding_of
from cora.testing import Packet, covering_packets

A_KIND = 9


@lru_cache(maxsize=1)
def chosen() -> tuple[tuple[str, Mutant], ...]:
    """Up to nine mutants of every kind, drawn over all shipped programs."""
    every = [(name, m) for name in SHIPPED for m in mutants_of(shipped(name))]
    Random(20).shuffle(every)
    kinds = sorted({m.kind for _, m in every})
    return tuple(pair for kind in kinds for pair in islice((p for p in every if p[1].kind == kind), A_KIND))


def is_noticed(name: str, mutant: Mutant) -> bool:
    """Whether the analysis says something else of the mutant than of the program."""
    before, now = sharding_of(shipped(name))[mutant.component], sharding_of(mutant.program)[mutant.component]
    return (before.anchors, before.owner_only, before.refusals) != (now.anchors, now.owner_only, now.refusals)


def wrong(claimed: str | None, mutant: Mutant, packets: Sequence[Packet]) -> str | None:
    """The first packet that shows a claim about the mutant to be wrong; ``claimed``: of this program, or the mutant."""
    program = mutant.program if claimed is None else shipped(claimed)
    anchors = sharding_of(program)[mutant.component].anchors
    claims = Claims(anchors, partial(align, program, mutant.component))
    return next(violations(mutant.program, mutant.component, claims, packets, planting=1), None)


@lru_cache(maxsize=1)
def verdicts() -> tuple[tuple[Mutant, bool, bool, str | None], ...]:
    """Per mutant: noticed, shown to break the old claims, and what is wrong with the new ones."""
    found = []
    for name, mutant in chosen():
        packets = covering_packets(mutant.program, 3, 500).packets
        broken = wrong(name, mutant, packets) is not None
        found.append((mutant, is_noticed(name, mutant), broken, wrong(None, mutant, packets)))
    return tuple(found)


def test_every_mutant_is_noticed() -> None:
    assert [str(m) for m, noticed, _, _ in verdicts() if not noticed] == []


def test_what_is_claimed_of_mutants_is_right() -> None:
    assert [(str(m), text) for m, _, _, text in verdicts() if text is not None] == []


def test_brute_force_shows_that_the_old_claims_are_wrong() -> None:
    shown = Counter(m.kind for m, _, broken, _ in verdicts() if broken)
    assert sum(shown.values()) >= 40
    assert set(shown) == {m.kind for _, m in chosen()}


@pytest.mark.parametrize("name", SHIPPED)
def test_programs_themselves_pass_the_same_test(name: str) -> None:
    program = shipped(name)
    for component, sharding in sharding_of(program).items():
        if sharding.splittable:
            unchanged = Mutant("none", "", component, program)
            assert wrong(name, unchanged, covering_packets(program, 3, 500).packets) is None
