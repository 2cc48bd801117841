"""How much of the accesses the most used entries get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.analysis.accesses import AccessRates


def rates(*popularity: tuple[float, float]) -> AccessRates:
    return AccessRates(32, 1000, 32_000, 0.1, 0.0, popularity)


@given(st.floats(0, 1))
def test_alike_means_the_share_itself(share: float) -> None:
    assert rates().head(share) == pytest.approx(share)


def test_the_curve_is_read_between_its_points() -> None:
    found = rates((0.01, 0.3), (0.2, 0.8), (1.0, 1.0))
    assert [found.head(x) for x in (0.0, 0.005, 0.01, 0.105, 0.2, 0.6, 1.0)] == pytest.approx(
        [0.0, 0.15, 0.3, 0.55, 0.8, 0.9, 1.0])


def test_a_raised_first_point_does_not_make_the_curve_fall() -> None:
    found = rates((0.01, 0.9), (0.2, 0.8), (1.0, 1.0))
    assert [found.head(x) for x in (0.01, 0.1, 0.2, 0.6)] == pytest.approx([0.9, 0.9, 0.9, 0.95])


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=200), st.floats(0, 1))
def test_it_never_falls_short_of_the_entries_themselves(weights: list[float], share: float) -> None:
    """Against the sum over the sorted weights: a concave curve lies above the diagonal."""
    ordered = sorted(weights, reverse=True)
    total, points, seen = sum(ordered), [], 0.0
    for number, weight in enumerate(ordered, start=1):
        seen += weight
        points.append((number / len(ordered), seen / total))
    found = rates(*points)
    assert found.head(share) >= share - 1e-9
    whole = int(share * len(ordered))
    assert found.head(whole / len(ordered)) == pytest.approx(sum(ordered[:whole]) / total)
