"""How full tables get, held against entries that are really simulated one by one."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from planning_fakes import nat_like, nat_profile

from cora.analysis.profile import Profile, StateUse, TimeoutUse, profile_from_json
from cora.errors import CoraError
from cora.explain.sizing import course, longer_than, mean_of, seconds, sizes, sizing
from cora.ir.nodes import FragmentState, MapState, MeterState, Program, Timeout
from cora.ir.span import Span

SPAN = Span("case.nf", 1, 1, 1, 2)
SECOND = 10**9


def table(capacity: int, *timeouts_s: float) -> Program:
    program = nat_like()
    times = tuple(Timeout(f"t{i}", round(t * SECOND), SPAN) for i, t in enumerate(timeouts_s))
    return replace(program, states=tuple(
        replace(s, capacity=capacity, timeouts=times) if isinstance(s, MapState) and s.name == "conns" else s
        for s in program.states))


def profiled(program: Program, use: StateUse, packets: int, windows: int = 10) -> Profile:
    """``packets`` in ``windows`` windows of a second."""
    return replace(nat_profile(program, known=packets - 10), first_ns=0, last_ns=windows * SECOND, window_ns=SECOND,
                   states={"conns": use})


def simulated(rate: float, lifetimes: list[float], timeout: float, until: float) -> tuple[float, float]:
    """Entries at once on average over the last third, and the time at which there first were 500."""
    rng = random.Random(7)
    now, full = 0.0, float("inf")
    leaving: list[float] = []
    seen: list[int] = []
    while now < until:
        now += rng.expovariate(rate)
        leaving = [t for t in leaving if t > now]
        leaving.append(now + rng.choice(lifetimes) + timeout)
        if len(leaving) >= 500:
            full = min(full, now)
        if now > until * 2 / 3:
            seen.append(len(leaving))
    return sum(seen) / len(seen), full


def test_the_long_run_is_that_of_entries_simulated_one_by_one() -> None:
    rng = random.Random(3)
    lifetimes = sorted(rng.uniform(0.0, 4.0) for _ in range(2000))
    quantiles = tuple(round(lifetimes[int(q * 1999)] * SECOND) for q in (0.1, 0.5, 0.9, 0.99))
    program = table(500, 3.0)
    # 20 a second in the profile: 200 inserts of 1,000 packets in ten seconds.
    use = StateUse("map", inserts=(200, 0), lifetimes_ns=quantiles, window_inserts=(20,) * 10, entries_peak=100)
    profile = profiled(program, use, 1000)
    for times in (1, 8):
        row = sizes(program, profile, profile.packet_rate * times)[0]
        true, full = simulated(20.0 * times, lifetimes, 3.0, 40.0)
        assert row.arrivals == pytest.approx(20.0 * times)
        assert row.steady == pytest.approx(true, rel=0.06)
        assert row.fills == (true > 500)
        if row.full_after is not None:
            # Nothing dies before the time-out, so the first 3.1 s are as simulated.
            assert row.full_after == pytest.approx(full, rel=0.1)
            # With the time-out that fits, the table stays at its capacity in the long run.
            assert row.fitting_timeout is not None
            again, _ = simulated(20.0 * times, lifetimes, row.fitting_timeout, 40.0)
            assert again == pytest.approx(500, rel=0.06)


def test_a_burst_and_a_reserve_are_added() -> None:
    program = table(100_000, 9.0)
    use = StateUse("map", inserts=(1000, 0), lifetimes_ns=(SECOND,) * 4, window_inserts=(50,) * 8 + (100, 500))
    row = sizes(program, profiled(program, use, 10_000), 1000.0)[0]
    # 100 a second stay 10 s, but for the rise from 0 to the first quantile; the worst window has 400 more.
    assert row.arrivals == pytest.approx(100) and row.arrivals_p99 == pytest.approx(500)
    assert row.steady == pytest.approx(100 * (9 + 0.95)) and row.needed == pytest.approx(100 * 9.95 + 400)
    assert row.recommended == 2048 and not row.fills


def test_several_timeouts_give_a_range() -> None:
    program = table(500, 1.0, 100.0)
    use = StateUse("map", inserts=(100, 0), pauses_ns=(1, 10**8, 3 * SECOND, 70 * SECOND), window_inserts=(10,) * 10)
    use = replace(use, timeouts=(TimeoutUse(2 * SECOND, 40, 10), TimeoutUse(70 * SECOND, 90, 0)))
    row = sizes(program, profiled(program, use, 1000), 100.0)[0]
    assert row.tried == ((2.0, 40, 0.1), (70.0, 90, 0.0))
    assert row.steady_least == pytest.approx(10) and row.steady == pytest.approx(1000)
    assert row.fills and not row.surely and row.fitting_timeout == pytest.approx(50)
    assert row.cut_share == pytest.approx(0.1)  # nine of ten never pause for 50 s
    text = sizing((row,), profiled(program, use, 1000), 100.0)
    assert "conns may get full 50 s after it was empty" in text and "cuts at most 10.0 % of the entries short" in text
    assert "10 - 1,000" in text and "case.nf:3:1" in text
    assert "conns  2 s       40    10.0 %" in text and "conns  70 s      90    0.0 %" in text


def test_entries_that_never_expire_only_grow() -> None:
    program = table(500)
    use = StateUse("map", inserts=(100, 3), window_inserts=(10,) * 10)
    row = sizes(program, profiled(program, use, 1000), 100.0)[0]
    assert row.stay is None and row.steady is None and row.recommended is None and row.refused == 3
    assert row.full_after == pytest.approx(500 / 10.3)
    assert "its entries never expire" in sizing((row,), profiled(program, use, 1000), 100.0)


def test_a_table_nobody_adds_to_is_empty() -> None:
    program = table(500, 5.0)
    row = sizes(program, profiled(program, StateUse("map"), 1000), 100.0)[0]
    assert row.arrivals == 0 and row.steady == 0 and not row.fills and row.recommended == 16
    assert "16 entries would do" in sizing((row,), profiled(program, StateUse("map"), 1000), 100.0)


def test_meters_and_fragment_trackers() -> None:
    program = nat_like()
    meter = MeterState("m", (), 8, "token_bucket", 1, 1, 0, 0, 0, 10 * SECOND, 0, "reject", True, True, False, SPAN)
    tracker = FragmentState("f", 100, 30 * SECOND, 3, SPAN)
    more = replace(program, states=(*program.states, meter, tracker))
    profile = replace(profiled(more, StateUse("map"), 1000), states={
        "m": StateUse("meter", inserts=(10, 0)), "f": StateUse("fragment", counts=100)})
    rows = {r.name: r for r in sizes(more, profile, 100.0)}
    assert rows["m"].full_after == pytest.approx(8.0) and rows["m"].surely
    assert rows["f"].bound and rows["f"].arrivals == pytest.approx(10) and not rows["f"].surely
    text = sizing(tuple(rows.values()), profile, 100.0)
    assert "not counted" in text and "f may get full" in text and "m gets full 8 s" in text


def test_helpers() -> None:
    assert mean_of((10, 10, 10, 10)) == pytest.approx(9.5) and mean_of(()) == 0.0
    assert longer_than((1, 2, 3, 4), 2.5) == pytest.approx(0.5) and longer_than((), 1.0) is None
    assert longer_than((1, 2, 3, 4), 0.5) == 1.0 and longer_than((1, 2, 3, 4), 9.0) == pytest.approx(0.01)
    assert course(range(16)) == (1, 3, 5, 7, 9, 11, 13, 15) and course((4, 2)) == (4, 2)
    assert [seconds(x) for x in (5e-6, 0.025, 41.0, 600.0, 7440.0, 864000.0)] == [
        "5 us", "25 ms", "41 s", "10 min", "2.07 h", "10 days"]


@pytest.mark.parametrize("pauses", [[1, 2, 3], [1, 2, 3, 4, 5], [4, 3, 2, 1]])
def test_quantiles_that_are_not_four_or_fall_are_refused_with_the_profile(pauses: list[int]) -> None:
    whole = profiled(table(500, 3.0), StateUse("map", inserts=(1, 0), pauses_ns=(1, 2, 3, 4)), 1000)
    data = json.loads(whole.to_json())
    assert profile_from_json(data, "p.json").states["conns"].pauses_ns == (1, 2, 3, 4)
    data["states"]["conns"]["pauses_ns"] = pauses
    with pytest.raises(CoraError, match=r"E301.*states\.conns\.pauses_ns: expected the quantiles 0.1, 0.5, 0.9, 0.99"):
        profile_from_json(data, "p.json")
