"""BlueField-2's costs against published figures."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_zoo import ENTRY, LOADS, SPAN, A, B, acl, block, flows, lpm, program, used

from cora.backends.bluefield.eswitch import prefixes
from cora.backends.bluefield.target import BluefieldTarget
from cora.ir import nodes
from cora.models import registry
from cora.models.target import Refusal

TARGET = BluefieldTarget(registry.get("bluefield2").model)


@pytest.mark.parametrize(("rules", "millions"), [
    (1, 105), (10_000, 105), (30_000, 62), (100_000, 37), (4 * 10**6, 29.6)])
def test_look_up_rates_are_the_published_ones(rules: int, millions: float) -> None:
    assert TARGET.lookup_rate(rules) == pytest.approx(millions * 1e6)


def test_look_up_rates_fall_with_rules() -> None:
    found = [TARGET.lookup_rate(10 ** (k / 4)) for k in range(30)]
    assert all(a >= b for a, b in itertools.pairwise(found))


def test_rates_of_rule_changes() -> None:
    assert [TARGET.update_rate(n) for n in (10**5, 10**6, 4 * 10**6)] == [327e3, 265e3, 210e3]
    assert TARGET.forwarding_share(0) == 1.0
    assert TARGET.forwarding_share(100e3) == pytest.approx(0.67, rel=0.05)
    assert TARGET.forwarding_share(10e3, root=True) == pytest.approx(0.40, rel=0.05)


def test_a_decision_is_a_table_and_plain_code_is_not() -> None:
    decision = block(*LOADS, end=nodes.Branch(A, "x", "y", SPAN))
    found = TARGET.block(program(), decision, 0)
    assert not isinstance(found, Refusal)
    assert found["switch-pipeline"] == pytest.approx(1e9 / 105e6)
    assert TARGET.block(program(), block(*LOADS), 0) == {}


def test_a_look_up_pays_for_the_size_of_its_table() -> None:
    big = flows("big", capacity=10**6, timeout=0)
    found = TARGET.access(program(big), big, "lookup", 0, "rules", used(big, 10))
    assert not isinstance(found, Refusal)
    assert dict(found) == pytest.approx({"switch-pipeline": 1e9 / 32e6})


def test_ranges_are_expanded_into_prefixes() -> None:
    assert TARGET.holds(program(), acl(4), 0, "rules") == 4
    # 1024..65535 is six prefixes.
    assert TARGET.holds(program(), acl(4, (1024, 65535)), 0, "rules") == 24
    assert TARGET.holds(program(), lpm(), 0, "rules") == 1000


@given(st.integers(0, 255), st.integers(0, 255))
def test_prefix_counts_are_the_least_possible(a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    best: dict[tuple[int, int], int] = {}

    def least(lo: int, hi: int) -> int:
        """Recursion over the binary tree of values: a node inside the range is one prefix."""
        if hi < low or lo > high:
            return 0
        if low <= lo and hi <= high:
            return 1
        middle = (lo + hi) // 2
        return best.setdefault((lo, hi), least(lo, middle) + least(middle + 1, hi))

    assert prefixes(low, high, 8) == least(0, 255)


def test_arm_work_is_the_hosts_over_the_published_ratio() -> None:
    """Forward, hash and one record: 140 ns cached to 310 from DRAM on an Arm core."""
    for flow_count, expected in ((1000, 140), (4 * 10**6, 310)):
        state = flows(capacity=flow_count)
        use = used(state, flow_count)
        parts = [TARGET.per_packet(1), TARGET.operations(1, {"header": 3, "field_read": 5, "word": 10, "branch": 4}),
                 *(TARGET.access(program(), state, kind, 1, "dram", use) for kind in ("lookup", "store"))]
        assert sum(p["arm-cores"] for p in parts if not isinstance(p, Refusal)) == pytest.approx(expected, rel=0.02)


def test_seven_arm_cores_serve_the_function() -> None:
    cores = {r.name: r for r in TARGET.resources(100)}["arm-cores"]
    assert (cores.rate, cores.servers, cores.scales) == (7e9, 7, False)


def test_memory_of_the_arm_side_limits_long_frames() -> None:
    rates = {r.name: r.rate for r in TARGET.resources(1500)}
    assert rates["arm-dram"] * 1500 * 2 == pytest.approx(25.6e9)


def test_a_packet_that_passes_straight_to_the_host_pays_less_than_one_an_arm_core_had() -> None:
    straight, worked = (TARGET.crossing(1, 2, 1000, live) for live in (0, 8))
    assert straight == {"pcie-bits-in": 8000.0}
    assert set(worked) == {"pcie-bits-in", "card-bus-in", "card-bus-out"}
    assert TARGET.crossing(0, 1, 1000, 0) == {"card-bus-in": 8000.0}
    assert TARGET.crossing(1, 0, 1000, 0) == {"card-bus-out": 8000.0}


def test_a_rule_counts_for_nothing_more() -> None:
    state = nodes.CounterState("hits", 16, SPAN)
    assert TARGET.access(program(state), state, "count", 0, "counters", used(state, 16)) == {}
    assert TARGET.holds(program(state), state, 0, "counters") == 16


def test_values_of_the_rule_that_matched_select_counters() -> None:
    rules, hits = acl(), nodes.CounterState("hits", 16, SPAN)
    entry = nodes.Value("e", ENTRY.type)
    loaded = nodes.LoadEntry(B, entry, "allow", SPAN)
    made = block(loaded, nodes.Count("hits", B, None, SPAN))
    assert TARGET.block(program(rules, hits, blocks=(made,)), made, 0) == {}


def test_rules_of_an_empty_table_cost_its_setting_up() -> None:
    """14 ms and 1/450 ms each: 16 k rules at 323 k/s, the first 350 at 24 k/s, 1 M at 447 k/s."""
    rates = [1e6 / TARGET.operations(0, {f"insert_{k}": 1.0})["rule-updates"] for k in (16, 1000)]
    assert rates == pytest.approx([16 / (14 + 16 / 0.45) * 1000, 1000 / (14 + 1000 / 0.45) * 1000])
    changed = TARGET.operations(0, {"update_1000": 2.0})
    assert changed == {"rule-updates": pytest.approx(2 * 1e9 / 265e3)}
    for unknown in ("insert_0", "insert", "remove_10", "lookup_many"):
        with pytest.raises(KeyError):
            TARGET.operations(0, {unknown: 1.0})
