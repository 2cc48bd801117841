"""The Agilio's costs against published figures and against what its structure implies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from state_zoo import COUNTER, ENTRY, SPAN, acl, block, flows, lpm, meter, program, used

from cora.analysis.accesses import AccessRates
from cora.ir import nodes
from cora.ir.nodes import State
from cora.models import registry
from cora.models.softmin import softmin, total
from cora.models.target import Demand, Refusal, Target

TARGET = registry.get("agilio-cx")
WRITER = block(end=nodes.Insert("flows", (), (), "", ENTRY, "x", "y", SPAN))


def cost(state: State, kind: str, tier: str, use: AccessRates | None = None, target: Target = TARGET) -> Demand:
    answer = target.access(program(state, blocks=(WRITER,)), state, kind, 0, tier, use or used(state, 1000))
    assert not isinstance(answer, Refusal)
    return answer


def rate(*parts: Demand, target: Target = TARGET) -> float:
    """Packets a second of the base cost and some more, at 60 bytes."""
    demand = total([(1.0, d) for d in (target.wire(60), target.per_packet(0), *parts)])
    return softmin(demand, {r.name: r.rate for r in target.resources(60)}, target.exponent).rate


def test_a_packet_takes_the_published_base_cycles() -> None:
    assert TARGET.per_packet(0) == {"micro-engines": 243.0, "imem-engine": 9.8}
    assert registry.get("agilio-cx", "xdp").per_packet(0)["micro-engines"] == 224.0


@pytest.mark.parametrize("rules", [1, 10, 100])
def test_a_rule_list_costs_what_the_published_programs_paid_for_each_rule(rules: int) -> None:
    found = cost(acl(rules), "lookup", "imem")
    assert found["micro-engines"] == pytest.approx(47 * rules)
    assert found["imem-engine"] == pytest.approx(1.57 * rules)


def test_long_rule_lists_stop_scaling_with_engines() -> None:
    """A linear rule list is bound by the memory engine whatever the number of micro-engines (47/1.57 = 30 of them)."""
    many = registry.get("agilio-cx", "all-engines")
    here, there = (rate(cost(acl(100), "lookup", "imem", target=t), target=t) for t in (TARGET, many))
    assert there / here < 1.03


def test_nearer_memories_take_fewer_core_cycles() -> None:
    near = [cost(acl(), "lookup", t)["micro-engines"] for t in ("lmem", "cls", "ctm", "imem", "emem")]
    assert near[0] < near[1] == near[2]
    assert near[1] <= near[4] and near[3] < near[4]


def test_waiting_grows_with_distance() -> None:
    waits = [cost(acl(), "lookup", t).get("thread-wait", 0.0) for t in ("lmem", "cls", "ctm", "emem")]
    assert waits == sorted(waits) and len(set(waits)) == 4


def test_what_packets_change_is_in_one_island_and_far_from_most() -> None:
    written, fixed = flows(), flows("fixed", timeout=0)
    far, near = (cost(s, "lookup", "ctm")["thread-wait"] for s in (written, fixed))
    assert near == pytest.approx(2 * 59)
    assert far == pytest.approx(2 * (59 + 4 * 106) / 5)


def test_external_memory_slows_down_beyond_its_cache() -> None:
    small, large = (cost(flows(capacity=n), "lookup", "emem", used(flows(), n)) for n in (1000, 10**7))
    assert large["thread-wait"] > 2 * small["thread-wait"]
    # A probe of 66 instead of 38 cycles, and the base of traffic with many flows.
    share = 1 - 6291456 / (10**7 * used(flows(), 1).entry_bytes)
    assert large["micro-engines"] - small["micro-engines"] == pytest.approx(share * (66 - 38 + 171))


def test_internal_memory_does_not() -> None:
    state = flows(capacity=10**6)
    small, large = (cost(state, "lookup", "imem", used(state, n, hottest=0.0)) for n in (1000, 10**6))
    assert small == large


def test_one_hot_entry_limits_to_the_rate_of_its_line() -> None:
    hot = cost(flows(), "lookup", "emem", used(flows(), 1000, hottest=1.0))
    # Bucket and entry are read by every packet: two reads at 198 M/s.
    assert 800e6 / hot["hot-line"] == pytest.approx(198e6 / 2)


def test_a_counter_of_all_packets_is_limited_by_its_line() -> None:
    hot = cost(COUNTER, "count", "imem", replace(used(COUNTER, 1), hottest=1.0))
    assert 800e6 / hot["hot-line"] == pytest.approx(248e6 / 2)


@pytest.mark.parametrize("tier", ["imem", "emem"])
def test_a_lock_all_packets_take_allows_a_few_million(tier: str) -> None:
    """The published latencies put a hot lock at 2 to 7 Mpps."""
    police = cost(meter(), "police", tier, used(meter(), 1000, hottest=1.0))
    assert 2e6 < 800e6 / police["hot-lock"] < 7e6


def test_exact_lru_order_is_one_lock_for_the_table() -> None:
    plain, lru = (cost(flows(full=full), "touch", "imem") for full in ("reject", "evict_lru"))
    assert "hot-lock" not in plain
    assert 800e6 / lru["hot-lock"] < 7e6


def test_look_ups_of_prefixes_try_each_length() -> None:
    one = replace(lpm(), entries=lpm().entries[:1])
    assert cost(lpm(), "lookup", "ctm")["micro-engines"] == 2 * cost(one, "lookup", "ctm")["micro-engines"]


def test_sizes_leave_the_frameworks_share() -> None:
    tiers = {t.name: t.capacity for t in TARGET.places[0].tiers}
    assert tiers == {"lmem": 2048, "cls": 49152, "ctm": 131072, "imem": 3145728, "emem": 1610612736}
    assert TARGET.places[0].code_capacity == 6192
    assert registry.get("agilio-cx", "xdp").places[0].code_capacity == 2560


def test_a_table_takes_entries_and_indexes() -> None:
    # 29 bytes of fields and a stamp and a lock on 16-byte boundaries, and 4 bytes of index at three quarters.
    one, two = (TARGET.holds(program(), flows(keys=k), 0, "emem") for k in (1, 2))
    assert isinstance(one, int) and isinstance(two, int)
    assert one == 1000 * 48 + 4 * 1334
    assert two - one >= 4 * 1334


def test_crossings_are_transfers_of_the_published_rates() -> None:
    there, back = (TARGET.crossing(*ends, 60, 4) for ends in ((0, 1), (1, 0)))
    assert (there["pcie-writes"], there["pcie-bits-out"]) == (1.0, 512.0)
    assert (back["pcie-reads"], back["pcie-bits-in"]) == (1.0, 512.0)
    rates = {r.name: r.rate for r in TARGET.resources(60)}
    assert (rates["pcie-writes"], rates["pcie-reads"], rates["pcie-bits-out"]) == (47.4e6, 59e6, 54e9)
    assert 550 <= TARGET.crossing_latency(0, 1, 64) <= 600
    assert 850 <= TARGET.crossing_latency(0, 1, 1024) <= 900


def test_more_engines_past_the_knee_only_add_waiting_room() -> None:
    few, many = ({r.name: r for r in registry.get("agilio-cx", i).resources(60)}["micro-engines"]
                 for i in (None, "all-engines"))
    # 0.95 of the threads hold a packet at saturation.
    assert (few.room, many.room) == (380, 456)


def test_a_skewed_table_keeps_its_head_in_the_cache() -> None:
    """Twice the cache in entries, nine tenths of the accesses to half of them: a tenth waits for DRAM."""
    size = used(flows(), 1).entry_bytes
    entries = 2 * 6291456 // size
    even = used(flows(), entries)
    skewed = replace(even, popularity=((0.5, 0.9), (1.0, 1.0)))
    cached, half, tenth = (cost(flows(), "lookup", "emem", u)["micro-engines"]
                           for u in (used(flows(), 10), even, skewed))
    assert (tenth - cached) / (half - cached) == pytest.approx(0.2, rel=0.01)
