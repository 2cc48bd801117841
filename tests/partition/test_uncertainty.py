"""Samples of a placement's demand agree with the planner's own sums, and their bands with the box."""

from __future__ import annotations

import random

import numpy as np
import pytest
from placement_oracle import summed_baselines
from planning_fakes import nat_like, nat_profile, random_profile, random_program, random_target, target_of

from cora.partition.baselines import Aim, Rules, baseline
from cora.partition.instance import build
from cora.partition.uncertainty import band, load_of, sampled
from cora.partition.units import units_of


@pytest.mark.parametrize("seed", range(40))
def test_uses_add_up_to_the_demand(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    instance = build(program, random_profile(rng, program), random_target(rng, program))
    for placement, total in summed_baselines(instance):
        np.testing.assert_allclose(total, placement.demand, rtol=1e-9)


def test_samples_repeat_and_centre_on_the_demand() -> None:
    program = nat_like()
    instance = build(program, nat_profile(program), target_of())
    placement = baseline(Rules(instance, units_of(instance), Aim(1e6, None, 8)), "host-only")
    assert placement is not None
    one, two = (sampled(placement, 200, 7) for _ in range(2))
    assert all((a.demand == b.demand).all() for a, b in zip(one, two, strict=True))
    centre = np.median([s.demand for s in one], axis=0)
    np.testing.assert_allclose(centre, placement.demand, rtol=0.05)
    scales = [r.scales for r in instance.resources]
    loads = placement.utilisation(2, 5e6)
    assert np.median([load_of(s, scales, 2, 5e6) for s in one]) == pytest.approx(loads.max(), rel=0.1)


def test_bands_are_the_tenth_and_ninetieth_of_a_hundred() -> None:
    values = [float(i) for i in range(101)]
    random.Random(1).shuffle(values)
    assert band(values) == (10.0, 90.0)
    assert band([1.0, float("inf")]) == (1.0, float("inf"))
