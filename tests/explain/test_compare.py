"""The comparison with simple placements is the arithmetic of the plan's own figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_fakes import nat_like, nat_profile, target_of

from cora.explain.compare import against, best_baseline, compared, comparison
from cora.partition import plan
from cora.plan.document import Plan


def made(**wanted: float) -> Plan:
    program = nat_like()
    return plan(program, nat_profile(program), target_of(), **wanted)  # type: ignore[arg-type]  # cores or rate_pps


def test_ratios_and_saved_cores_are_those_of_the_figures() -> None:
    one = made(rate_pps=12e6)
    assert one.cores == 0
    rows = {a.name: a for a in against(one)}
    assert set(rows) == {"host-only", "traffic-only", "state-only", "greedy"}
    host = rows["host-only"]
    assert host.throughput_pps and host.ratio == pytest.approx(one.throughput_pps / host.throughput_pps)
    assert host.cores and host.saved == 1.0
    assert host.ratio and host.ratio_low and host.ratio_high and host.ratio_low <= host.ratio <= host.ratio_high
    text = compared(one)
    assert f"{host.ratio:.2f}x" in text and "best simple placement: " in text
    assert [line.split()[0] for line in text.splitlines()[3:8]] == ["this", "host-only", "traffic-only", "state-only",
                                                                    "greedy"]


def test_the_best_baseline_is_judged_as_the_request_is() -> None:
    fast = made(cores=2)
    best = best_baseline(fast)
    assert best is not None and best.throughput_pps == max(a.throughput_pps or 0 for a in against(fast))
    assert "cores  P10 to P90  throughput" not in compared(fast)
    cheap = made(rate_pps=12e6)
    best = best_baseline(cheap)
    assert best is not None and best.cores == min(a.cores for a in against(cheap) if a.cores is not None)
    told = comparison(cheap)
    assert told["best_baseline"] == best.name and told["kind"] == "predicted" and len(told["baselines"]) == 4


def test_a_placement_that_is_not_possible_has_no_figures() -> None:
    one = made(cores=2)
    none = replace(one, alternatives=tuple(
        replace(a, legal=False, throughput_pps=None, note="not possible on fake") for a in one.alternatives))
    assert best_baseline(none) is None
    assert "none of the simple placements is possible on fake" in compared(none)
    assert compared(none).count("not possible on fake") == 4
