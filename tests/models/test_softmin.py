"""The soft minimum and the ceilings against their closed forms."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.models.softmin import cached_share, hot_ceiling, lock_ceiling, softmin, total


def test_one_resource_gives_its_rate_over_its_demand() -> None:
    found = softmin({"cores": 4.0}, {"cores": 100.0, "idle": 1.0})
    assert (found.rate, found.binding, found.utilisation) == (25.0, "cores", {"cores": 1.0})


@pytest.mark.parametrize("exponent", [1, 2, 8, 64])
def test_two_equal_resources_lose_the_known_factor(exponent: float) -> None:
    assert softmin({"a": 1, "b": 1}, {"a": 10, "b": 10}, exponent).rate == pytest.approx(10 * 2 ** (-1 / exponent))


def test_nothing_demanded_means_no_limit() -> None:
    found = softmin({"a": 0.0}, {"a": 1.0})
    assert (found.rate, found.binding, found.utilisation) == (math.inf, None, {})


demand = st.floats(1e-9, 1e9)


@given(st.lists(st.tuples(demand, demand), min_size=1, max_size=6), st.floats(1, 40))
def test_it_lies_below_the_plain_minimum_by_no_more_than_the_count_explains(
        rows: list[tuple[float, float]], exponent: float) -> None:
    demands = {str(i): d for i, (d, _) in enumerate(rows)}
    rates = {str(i): r for i, (_, r) in enumerate(rows)}
    hard = min(rates[k] / demands[k] for k in demands)
    found = softmin(demands, rates, exponent)
    assert hard * len(rows) ** (-1 / exponent) <= found.rate * (1 + 1e-9)
    assert found.rate <= hard * (1 + 1e-9)
    assert max(found.utilisation.values()) == found.utilisation[found.binding or ""]


@pytest.mark.parametrize("bad", [lambda: softmin({"a": -1}, {"a": 1}), lambda: softmin({"a": 1}, {"a": 0}),
                                 lambda: softmin({"a": 1}, {"a": 1}, 0.5)])
def test_senseless_figures_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="must"):
        bad()  # type: ignore[operator]


def test_totals_weigh_each_demand_by_its_share() -> None:
    assert total([(0.5, {"a": 2.0}), (0.25, {"a": 4.0, "b": 8.0})]) == {"a": 2.0, "b": 2.0}


def test_cached_share_is_size_over_working_set() -> None:
    assert [cached_share(100, ws) for ws in (0, 100, 400)] == [1.0, 1.0, 0.25]


def test_ceilings_of_lines_and_locks() -> None:
    assert hot_ceiling(198e6, 0.5, 2) == 198e6
    assert lock_ceiling(500, 0.5) == 4e6
    assert hot_ceiling(1, 0, 3) == lock_ceiling(9, 0) == math.inf
