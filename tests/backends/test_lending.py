"""What lending entries costs on each card, against sums made by hand from the published figures; refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_zoo import COUNTER, FRAGMENTS, POOL, SPAN, flows, meter, program

from cora.analysis.decided import RuleTemplate
from cora.analysis.sharding import Anchor
from cora.api import load
from cora.frontends.nf import loads
from cora.ir.nodes import Program, State
from cora.models import registry
from cora.models.target import Demand, Lending, Refusal, Target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
AGILIO, BLUEFIELD, HOST_ONLY = (registry.get(n) for n in ("agilio-cx", "bluefield2", "host"))
NIC, NIC_HOST = 0, 1
SWITCH, ARM, HOST = 0, 1, 2
# Twenty-one bytes of fields and a time of 8: what an entry brings along in a frame.
ENTRY_BYTES = 29
WEAK = flows(slack=10**9, strict_order=False)


def ways(count: int) -> Program:
    """A program that finds an entry of the weak table in one or two directions."""
    key = "(p.ipv4.src, p.ipv4.dst)", "(p.ipv4.dst, p.ipv4.src)"
    ports = ("inside", "outside")[:count]
    handlers = "".join(f"on {port}(p: eth/ipv4) {{ lookup flows[{k}] {{ hit e {{ touch e; forward out; }} miss "
                       f"{{ drop \"unknown\"; }} }} }}\n" for port, k in zip(ports, key, strict=False))
    return loads("nf ways {\n" + "".join(f"port {p}: wire;\n" for p in (*ports, "out")) + """
map flows {
  entry { src: ipv4, dst: ipv4 }
  key = (src, dst);
  capacity 1000;
  timeout 60s slack 1s;
  order weak;
}
""" + handlers + "}\n")


ONE_WAY = ways(1)
TEMPLATE = RuleTemplate("flows", (), (), Anchor("flows", "flows", "fwd", "here", ("wire",), (), SPAN), (), (), (), (),
                        (), (), (), None, "wire", "", frozenset())


def demand(answer: Demand | Refusal) -> Demand:
    assert not isinstance(answer, Refusal), answer.reason
    return answer


def refusal(answer: object) -> str:
    assert isinstance(answer, Refusal)
    assert answer.span == SPAN
    return answer.reason


@pytest.mark.parametrize(("target", "near", "owner", "mode"), [
    (AGILIO, NIC, NIC_HOST, "resume"), (BLUEFIELD, ARM, HOST, "resume"), (BLUEFIELD, SWITCH, ARM, "restart"),
    (BLUEFIELD, SWITCH, HOST, "restart")])
def test_places_that_run_code_resume_and_the_switch_restarts(target: Target, near: int, owner: int, mode: str) -> None:
    assert target.lends(program(WEAK), (WEAK,), near, owner) == Lending(mode)  # type: ignore[arg-type]


@pytest.mark.parametrize(("near", "owner"), [(1, 0), (1, 1), (2, 1), (0, 3)])
def test_entries_are_lent_towards_the_wire_only(near: int, owner: int) -> None:
    assert "cannot lend" in refusal(BLUEFIELD.lends(program(WEAK), (WEAK,), near, owner))


def test_the_host_alone_lends_nothing() -> None:
    assert not HOST_ONLY.returns
    for answer in (HOST_ONLY.lends(program(WEAK), (WEAK,), 0, 0),
                   HOST_ONLY.lent_holds(program(WEAK), WEAK, 0, "dram", 9),
                   HOST_ONLY.install(program(WEAK), (WEAK,), 0, 0, "dram", 9),
                   HOST_ONLY.recall(program(WEAK), (WEAK,), 0, 0, "dram", 9)):
        assert "cannot lend" in refusal(answer)
    assert "keeps no rules" in refusal(HOST_ONLY.rule(program(WEAK), TEMPLATE, 0, 10))


@pytest.mark.parametrize(("state", "part"), [
    (flows(slack=10**9), "order strict"), (flows(slack=10**9 - 1, strict_order=False), "slack 1s"),
    (meter(slack=10**9, strict_order=False), "approx"), (meter(strict_order=False, exact=False), "slack 1s"),
    (FRAGMENTS, "fragments find them"), (COUNTER, "no entries of flows")])
def test_the_switch_says_which_declaration_keeps_flows_out(state: State, part: str) -> None:
    assert part in refusal(BLUEFIELD.lends(program(state), (state,), SWITCH, ARM))


def test_a_table_whose_entries_never_go_needs_no_slack() -> None:
    forever = flows(timeout=0, strict_order=False)
    assert BLUEFIELD.lends(program(forever), (forever,), SWITCH, ARM) == Lending("restart")


@pytest.mark.parametrize(("target", "near", "owner"), [(AGILIO, NIC, NIC_HOST), (BLUEFIELD, ARM, HOST)])
def test_code_lends_strict_tables_but_no_fragments(target: Target, near: int, owner: int) -> None:
    strict = flows(keys=2)
    assert target.lends(program(strict, POOL), (strict, POOL), near, owner) == Lending("resume")
    assert "fragments find them" in refusal(target.lends(program(FRAGMENTS), (FRAGMENTS,), near, owner))
    assert "no entries of flows" in refusal(target.lends(program(COUNTER), (COUNTER,), near, owner))


# --- room ---


def test_a_near_table_has_entries_indexes_and_counts_of_punted_packets() -> None:
    state = flows()
    # 29 and 8 bytes rounded to 48, 4 bytes of index at three quarters, 8 of counts.
    assert AGILIO.lent_holds(program(state), state, NIC, "emem", 100) == 100 * 48 + 4 * 134 + 100 * 8
    # On the Arm cores index slots have 8 bytes.
    assert BLUEFIELD.lent_holds(program(state), state, ARM, "dram", 100) == 100 * 48 + 8 * 134 + 100 * 8


def test_pools_stay_with_the_owner() -> None:
    places = ((AGILIO, NIC, "imem"), (BLUEFIELD, ARM, "dram"), (BLUEFIELD, SWITCH, "rules"))
    assert [t.lent_holds(program(POOL), POOL, place, tier, 100) for t, place, tier in places] == [0, 0, 0]


def test_local_memory_is_no_place_for_lent_entries() -> None:
    assert "each micro-engine has its own" in refusal(AGILIO.lent_holds(program(WEAK), WEAK, NIC, "lmem", 10))
    assert isinstance(AGILIO.install(program(WEAK), (WEAK,), NIC, NIC_HOST, "lmem", 10), Refusal)


def test_rules_count_both_directions_of_a_flow_once_each() -> None:
    nat, firewall, policer = (load(EXAMPLES / f"{name}.nf") for name in ("nat", "firewall", "policer"))
    # Out and back, by ports or by the identifier of a ping; what an ICMP error quotes is no rule.
    assert BLUEFIELD.lent_holds(nat, nat.state("conns"), SWITCH, "rules", 1000) == 2000
    assert BLUEFIELD.lent_holds(firewall, firewall.state("conns6"), SWITCH, "rules", 1000) == 2000
    assert BLUEFIELD.lent_holds(policer, policer.state("limits4"), SWITCH, "meters", 1000) == 1000


def test_meters_of_the_switch_are_few() -> None:
    limits = load(EXAMPLES / "policer.nf")
    state = limits.state("limits4")
    held = BLUEFIELD.lent_holds(limits, state, SWITCH, "meters", 5000)
    assert isinstance(held, int)
    assert held == 5000 > {t.name: t.capacity for t in BLUEFIELD.places[SWITCH].tiers}["meters"]
    wrong = BLUEFIELD.lent_holds(limits, state, SWITCH, "rules", 1)
    assert isinstance(wrong, Refusal) and "are meters, not rules" in wrong.reason
    assert "are rules, not meters" in refusal(BLUEFIELD.lent_holds(program(WEAK), WEAK, SWITCH, "meters", 1))


# --- prices ---


def test_a_lent_entry_takes_two_frames_to_the_card_and_one_back() -> None:
    found = demand(AGILIO.install(program(WEAK), (WEAK,), NIC, NIC_HOST, "imem", 1000))
    assert (found["pcie-reads"], found["pcie-writes"], found["lending"]) == (2.0, 1.0, 2.0)
    assert (found["pcie-bits-in"], found["pcie-bits-out"]) == (2 * 512 + 8 * ENTRY_BYTES, 512 + 8 * ENTRY_BYTES)
    # Two frames sent, one received, three records, 60 ns for each frame.
    assert found["host-cores"] == pytest.approx(2 * 11.3 + 22.9 + 3 * 2 + 3 * 60)


def test_the_card_inserts_reads_and_deletes_a_lent_entry() -> None:
    found = demand(AGILIO.install(program(WEAK), (WEAK,), NIC, NIC_HOST, "imem", 1000))
    search = 13 / 20 * 19 + 4 + 4 + (16 + 10) + 16
    insert = search + 3 * 16 + 16
    delete, read, frames = 3 * 16, 16, 3 * 100 + 2 * 243
    assert found["micro-engines"] == pytest.approx(insert + delete + read + frames)
    # The insert holds its bucket's lock for two trips, the delete for two.
    assert found["hot-lock"] == pytest.approx(4 * 115 / 1000)


def test_entries_lent_a_second_grow_with_host_cores_and_are_known_to_a_factor_of_ten() -> None:
    resource = {r.name: r for r in AGILIO.resources(60)}["lending"]
    rate = AGILIO.model.parameters["lend_updates"]
    assert (resource.rate, resource.scales) == (300e3, True)
    assert (rate.low, rate.high) == (30, 3000)
    slow = {r.name: r for r in registry.get("agilio-cx", "driver-messages").resources(60)}["lending"]
    assert slow.rate == 30e3


def test_rules_of_a_flow_are_changed_by_an_arm_core_of_its_own() -> None:
    both = ways(2)
    found = demand(BLUEFIELD.install(both, both.states[:1], SWITCH, ARM, "rules", 50_000))
    # 327 k updates a second of an x86 core beside 100 k rules, 190/450 of it on an Arm core, two rules a flow.
    assert found["rule-updates"] == pytest.approx(2 * 1e9 / (327e3 * 190 / 450))
    assert "pcie-bits-out" not in found
    million = demand(BLUEFIELD.install(both, both.states[:1], SWITCH, ARM, "rules", 500_000))
    assert million["rule-updates"] == pytest.approx(2 * 1e9 / (265e3 * 190 / 450))


def test_hardware_steering_changes_rules_ten_times_as_fast() -> None:
    fast = registry.get("bluefield2", "hardware-steering")
    slow_ns, fast_ns = (demand(t.install(ONE_WAY, ONE_WAY.states[:1], SWITCH, ARM, "rules", 1000))["rule-updates"]
                        for t in (BLUEFIELD, fast))
    assert 8 < slow_ns / fast_ns < 10


def test_inserting_on_forwarding_cores_takes_their_time() -> None:
    shared = registry.get("bluefield2", "shared-inserter")
    own, taken = (demand(t.install(ONE_WAY, ONE_WAY.states[:1], SWITCH, ARM, "rules", 1000))
                  for t in (BLUEFIELD, shared))
    assert "rule-updates" not in taken
    # 3.4 us of an x86 core's forwarding for each insertion.
    assert taken["arm-cores"] - own["arm-cores"] == pytest.approx(3400 / 0.42)


def test_an_owner_on_the_host_sends_frames_to_the_arm_cores() -> None:
    near, far = (demand(BLUEFIELD.install(ONE_WAY, ONE_WAY.states[:1], SWITCH, owner, "rules", 1000))
                 for owner in (ARM, HOST))
    # Two addresses and a time of 8 bytes.
    assert far["pcie-bits-out"] == 2 * 512 + 8 * 16
    assert far["host-cores"] == pytest.approx(2 * 11.3 + 22.9 + 3 * 2 + 3 * 60)
    assert near["rule-updates"] == far["rule-updates"]


def test_an_arm_table_is_changed_by_the_arm_cores() -> None:
    found = demand(BLUEFIELD.install(program(WEAK), (WEAK,), ARM, HOST, "dram", 1000))
    frames = 2 * 22.9 + 11.3 + 3 * 2 + 3 * 60
    shared = 58 * (1 / 0.84 - 1)
    table = (4 + 10 + 60 + shared) + 0.25 + (45 + shared)
    assert found["arm-cores"] == pytest.approx((frames + table) / 0.42)
    assert "rule-updates" not in found


def test_a_recall_holds_the_packet_where_the_owner_is() -> None:
    assert set(demand(AGILIO.recall(program(WEAK), (WEAK,), NIC, NIC_HOST, "imem", 10))) == {"host-cores"}
    assert set(demand(BLUEFIELD.recall(program(WEAK), (WEAK,), SWITCH, ARM, "rules", 10))) == {"arm-cores"}
    assert set(demand(BLUEFIELD.recall(program(WEAK), (WEAK,), SWITCH, HOST, "rules", 10))) == {"host-cores"}


def test_a_decided_packet_pays_the_small_table_and_the_flows_table() -> None:
    assert demand(BLUEFIELD.rule(ONE_WAY, TEMPLATE, SWITCH, 30_000)) == pytest.approx(
        {"switch-pipeline": 1e9 / 105e6 + 1e9 / 62e6})
    assert "keeps no rules" in refusal(BLUEFIELD.rule(ONE_WAY, TEMPLATE, ARM, 10))
    assert "keeps no rules" in refusal(AGILIO.rule(ONE_WAY, TEMPLATE, NIC, 10))


def test_both_cards_can_hand_packets_back_to_their_code() -> None:
    assert AGILIO.returns and BLUEFIELD.returns
    assert AGILIO.crossing(NIC_HOST, NIC, 60, 4) and BLUEFIELD.crossing(HOST, ARM, 60, 4)
