"""Rows left out in turn: the formula against fits made anew, curve points by hand, and bands that cover as they say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cora.models import registry
from cora.models.cpu import CURVE, Curve
from cora.models.left_out import left_out, leverages_of, without
from cora.models.validation import summarise, validate


@pytest.mark.parametrize("seed", range(5))
def test_leverages_are_those_of_fits_made_anew(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, parameters, scatter = 12, 4, 0.3
    x, y = rng.normal(size=(rows, parameters)), rng.normal(size=rows)

    def fitted(kept: list[int]) -> NDArray[np.float64]:
        # A ridge is a row more for each parameter.
        design = np.vstack([x[kept], scatter * np.eye(parameters)])
        found: NDArray[np.float64] = np.linalg.lstsq(design, np.concatenate([y[kept], np.zeros(parameters)]))[0]
        return found

    every = list(range(rows))
    residuals = y - x @ fitted(every)
    for i, leverage in enumerate(leverages_of(x, scatter)):
        left = y[i] - x[i] @ fitted([k for k in every if k != i])
        assert residuals[i] / (1 - leverage) == pytest.approx(left, rel=1e-9)


def test_a_point_of_a_curve_is_what_its_neighbours_say() -> None:
    model = registry.get("host").model
    found = without(model, Curve(CURVE, logarithmic=False), 5)
    assert (CURVE[4][0], CURVE[5][0], CURVE[6][0]) == (256, 512, 1024)
    # 512 lies in the middle of 256 and 1024 on a logarithmic scale.
    assert found["miss_ns_512k"] == pytest.approx((model["miss_ns_256k"] + model["miss_ns_1024k"]) / 2)
    assert found["miss_ns_256k"] == model["miss_ns_256k"]


@pytest.mark.parametrize(("name", "least", "most"), [("agilio-cx", 0.7, 0.9), ("host", 0.7, 0.9),
                                                     ("bluefield2", 0.6, 0.9)])
def test_bands_cover_the_share_of_rows_left_out_that_they_promise(name: str, least: float, most: float) -> None:
    """P10 to P90 promise 80 %. The switch's look-ups fall off a cliff that nobody knows without its points."""
    found = left_out(name)
    summary = summarise(found)
    assert len(found) >= 20 and summary.covered is not None and least <= summary.covered <= most
    assert not any(r.fitted for r in found)
    # Without a row the model is worse at it.
    known = {r.name: r for r in validate(name)}
    worse = [abs(r.error) >= abs(known[r.name].error) - 1e-3 for r in found]
    assert sum(worse) > 0.8 * len(worse)
