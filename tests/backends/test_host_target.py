"""The host's costs against the published flow sweep."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from state_zoo import COUNTER, POOL, acl, flows, meter, program, used

from cora.analysis.accesses import AccessRates
from cora.backends.host.target import HostPlace, host_model
from cora.ir.nodes import State
from cora.models import registry
from cora.models.cpu import Cpu, interpolate
from cora.models.target import Refusal

TARGET = registry.get("host")
PARSING = {"header": 3, "field_read": 5, "word": 10, "branch": 4}


def ns(state: State, kind: str, entries: int) -> float:
    answer = TARGET.access(program(), state, kind, 0, "dram", used(state, entries))
    assert not isinstance(answer, Refusal)
    return answer["host-cores"]


@pytest.mark.parametrize(("thousands", "expected"), [
    (16, 58), (32, 59), (64, 61), (128, 64), (256, 84), (512, 112), (1024, 124), (2048, 129), (4096, 131)])
def test_forward_hash_and_one_record(thousands: int, expected: float) -> None:
    state = flows(capacity=thousands * 1000)
    parts = (TARGET.per_packet(0)["host-cores"], TARGET.operations(0, PARSING)["host-cores"],  # type: ignore[attr-defined]
             ns(state, "lookup", thousands * 1000), ns(state, "store", thousands * 1000))
    assert sum(parts) == pytest.approx(expected, rel=0.02)


def test_receive_alone_is_the_published_drop_rate() -> None:
    assert TARGET.operations(0, {"rx": 1}) == {"host-cores": pytest.approx(1e9 / 43.5e6, rel=0.01)}  # type: ignore[attr-defined]


def test_look_ups_grow_with_the_working_set_only() -> None:
    costs = [ns(flows(), "lookup", 1000 * 2**k) for k in range(14)]
    assert all(a <= b for a, b in itertools.pairwise(costs))
    assert costs[0] == costs[4] < costs[13]


def test_a_further_scattered_record_costs_15_to_25_ns() -> None:
    big = 10**8
    assert 15 <= ns(COUNTER, "count", big) - ns(COUNTER, "count", 1) <= 25


def test_writing_shared_state_costs_the_published_share() -> None:
    """0.84 of the throughput of sharded state, at 58 ns a packet."""
    assert ns(flows(), "touch", 10) - ns(flows(), "store", 10) == pytest.approx(58 / 0.84 - 58)


def test_lru_order_and_pools_cost_something() -> None:
    assert ns(flows(full="evict_lru"), "touch", 10) > ns(flows(), "touch", 10)
    assert ns(POOL, "insert", 10) == 8.0
    assert ns(meter(), "police", 10) > ns(flows(), "lookup", 10)


def test_rule_sets_cost_with_the_logarithm_of_their_size() -> None:
    assert ns(acl(1024), "lookup", 4) - ns(acl(32), "lookup", 4) == pytest.approx(5 * 4.0)


def test_cores_scale_and_ports_do_not() -> None:
    found = {r.name: (r.rate, r.scales) for r in TARGET.resources(100)}
    assert found == {"host-port": (200e9, False), "host-pcie": (178e6, False), "host-cores": (1e9, True)}
    older = {r.name: r.rate for r in registry.get("host", "gen3").resources(100)}
    assert (older["host-port"], older["host-pcie"]) == (100e9, 115e6)


def test_a_faster_clock_speeds_up_cached_work_and_not_memory() -> None:
    model = host_model()
    slow, fast = (Cpu(model, "", speed, 1.0, model["llc_bytes"]) for speed in (1.0, 2.0))
    assert fast.per_packet() == slow.per_packet() / 2
    assert fast.price({"table_miss": 1}) == slow.price({"table_miss": 1}) == 73.0


def test_a_larger_cache_moves_the_curve_to_more_flows() -> None:
    model = host_model()
    here, larger = (Cpu(model, "", 1.0, 1.0, model["reference_llc_bytes"] * k) for k in (1, 2))
    use, twice = used(flows(), 300_000), used(flows(), 600_000)
    assert larger.missing_share(twice, True) == pytest.approx(here.missing_share(use, True))


def test_unknown_accesses_and_operations_are_defects() -> None:
    cpu = Cpu(host_model(), "", 1.0, 1.0, 1.0)
    with pytest.raises(KeyError):
        cpu.access(flows(), "caress", used(flows(), 1))
    with pytest.raises(KeyError):
        cpu.price({"sing": 1})


def test_interpolation_is_linear_in_the_logarithm_and_flat_outside() -> None:
    points = [(1, 0.0), (100, 2.0)]
    assert [interpolate(points, x) for x in (0.1, 1, 10, 100, 1e6)] == [0.0, 0.0, pytest.approx(1.0), 2.0, 2.0]


def test_a_skewed_table_misses_less() -> None:
    """With 512 k flows 54 of the 73 ns of 4096 k are paid; the 19 that are not go to the most used flows."""
    cpu = HostPlace(TARGET.model).cpu
    one_line = AccessRates(64, 512_000, 512_000 * 64, 1 / 512_000, 0.0)
    miss = cpu.missing_share(one_line, True)
    assert miss == pytest.approx(54 / 73)
    skewed = replace(one_line, popularity=((1 - miss, 0.8), (1.0, 1.0)))
    assert cpu.missing_share(skewed, True) == pytest.approx(0.2)
