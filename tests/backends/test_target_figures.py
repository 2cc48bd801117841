"""Model files of the three targets: every published row is in them, and every figure matters to a prediction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from state_zoo import LOADS, SPAN, ZOO, A, B, block, flows, meter, program, used

from cora.analysis.decided import RuleTemplate
from cora.analysis.sharding import Anchor
from cora.ir import nodes
from cora.ir.nodes import Block, State
from cora.models import registry
from cora.models.target import Refusal, Target

# Rows of the figures' list -> (target, parameter, value, low, high); low and high from the stated uncertainty
# (those of the Clara fit from its error on held-out programs; of look-ups, interference and further records from how
# the rows lie around the model, the uncertainty of another switch apart).
ROWS = {
    "clock": ("agilio-cx", "clock", 0.8, 0.8, 0.8),
    "engines": ("agilio-cx", "me_count", 50, 50, 50),
    "threads": ("agilio-cx", "threads", 8, 8, 8),
    "MAC": ("agilio-cx", "mac_packets", 54.4, 53.9, 54.9),
    "base": ("agilio-cx", "base_cycles", 243, 223.6, 262.4),
    "ALU": ("agilio-cx", "alu_cycles", 1, 0.98, 1.02),
    "branch": ("agilio-cx", "branch_cycles", 4, 3, 4.1),
    "SRAM access": ("agilio-cx", "blocking_sram_cycles", 16, 16, 19.2),
    "EMEM access": ("agilio-cx", "blocking_emem_cycles", 25, 24.5, 30),
    "CLS": ("agilio-cx", "latency_cls", 41, 34.9, 47.2),
    "CTM": ("agilio-cx", "latency_ctm", 59, 50.2, 67.9),
    "EMEM miss": ("agilio-cx", "latency_emem", 318, 222.6, 413.4),
    "IMEM engine": ("agilio-cx", "imem_operations", 1.02, 0.8, 1.07),
    "EMEM spread": ("agilio-cx", "emem_operations", 790, 632, 948),
    "EMEM line": ("agilio-cx", "emem_line_operations", 198, 194, 202),
    "atomic spread": ("agilio-cx", "atomic_operations", 990, 792, 1188),
    "atomic line": ("agilio-cx", "atomic_line_operations", 248, 235.6, 260.4),
    "LMEM": ("agilio-cx", "lmem_bytes", 4096, 4096, 4096),
    "CTM size": ("agilio-cx", "ctm_bytes", 262144, 262144, 262144),
    "EMEM cache": ("agilio-cx", "emem_cache_bytes", 6291456, 4194304, 6291456),
    "code": ("agilio-cx", "code_store", 8192, 5632, 8192),
    "PCIe reads": ("agilio-cx", "pcie_read_transfers", 59, 53, 65),
    "PCIe writes": ("agilio-cx", "pcie_write_transfers", 47.4, 42.7, 52.1),
    "crossing": ("agilio-cx", "crossing_ns", 556, 530, 600),
    "L0": ("agilio-cx", "base_latency", 6.5, 5.5, 7.5),
    "map updates": ("agilio-cx", "host_map_updates", 30, 10, 100),
    "rule": ("agilio-cx", "rule_cycles", 47, 42.3, 51.7),
    "insert": ("agilio-cx", "insert_trips", 2, 1, 6),
    "ports": ("bluefield2", "port_bits", 200, 200, 200),
    "look-ups": ("bluefield2", "lookups_10k", 105, 99.75, 110.25),
    "other switch": ("bluefield2", "switch_transfer", 1, 0.75, 1.25),
    "root": ("bluefield2", "root_rules", 32, 28.8, 35.2),
    "insertion": ("bluefield2", "insert_core", 450, 405, 495),
    "Arm insertion": ("bluefield2", "insert_arm", 190, 95, 380),
    "interference": ("bluefield2", "insert_interference", 210, 195, 225),
    "update": ("bluefield2", "update_100k", 327, 294.3, 359.7),
    "flows": ("bluefield2", "flows", 4e6, 4e6, 4e6),
    "counters": ("bluefield2", "counters", 16e6, 16e6, 16e6),
    "Arm ratio": ("bluefield2", "arm_work_ratio", 0.42, 0.247, 0.714),
    "Arm cores": ("bluefield2", "arm_cores", 7, 6, 8),
    "Arm DRAM": ("bluefield2", "arm_dram_bytes", 25.6, 20.5, 25.6),
    "Arm to host": ("bluefield2", "arm_host_share", 0.5, 0.35, 0.65),
    "I/O": ("host", "rx_ns", 22.9, 21.8, 24.0),
    "flow packet": ("host", "flow_packet_ns", 58, 52.2, 63.8),
    "further record": ("host", "further_record_ns", 19, 15, 22),
    "host ceiling": ("host", "pcie_packets", 178, 160, 196),
    "shared state": ("host", "shared_state_ratio", 0.84, 0.66, 0.92),
    "host L0": ("host", "base_latency", 2.5, 2, 3),
}
# Figures that are shown but limit nothing: facts beside the model, and what only another instance of the card uses.
REFERENCE = {"agilio-cx": {"host_map_updates"},
             "bluefield2": {"arm_dma", "root_rules", "conntrack", "insert_hardware",
                            "insert_stall_ns"},
             "host": {"xdp_rx_ns", "xdp_redirect_ns"},
             "xdp": set()}
PROGRAM = program(*(state for state, _ in ZOO))
BLOCKS = (
    block(*LOADS, nodes.Binary(A, "div", A, B, SPAN), nodes.Binary(B, "mul", A, B, SPAN),
          nodes.Store("ipv4", "src", A, SPAN), end=nodes.Extract("ipv4", 0, True, False, (), SPAN)),
    block(end=nodes.Reject("no", "ipv4", 3, 13, A, SPAN)),
    block(nodes.Count("hits", None, None, SPAN), end=nodes.Lookup("flows", "fwd", (A,), A, "x", "y", SPAN)),
    block(end=nodes.TrackFragment("fragments", "ipv4", (), SPAN)),
    block(end=nodes.Extract("eth", 3, False, False, (), SPAN)),
    block(end=nodes.Forward("outside", SPAN)),
    block(nodes.Load(A, "eth", "type", SPAN), end=nodes.Branch(A, "x", "y", SPAN)),
)
# Items that only calibration rows name.
MICRO = ("rx", "tx", "compute", "crc", "rule", "rule_many", "probe", "probe_many", "base_many", "counter_many",
         "avg_counter", "avg_counter_many", "ftp_mapper", "ftp_mapper_many", "webgen", "webgen_many", "encap",
         "encap_many", "line_read", "lookup_10", "lookup_30", "lookup_40", "lookup_100", "lookup_1000", "lookup_2000",
         "insert_16")


TEMPLATE = RuleTemplate("flows", (), (), Anchor("flows", "flows", "fwd", "here", ("wire",), (), SPAN), (), (), (), (),
                        (), (), (), None, "wire", "", frozenset())


def figures(target: Target) -> Iterator[object]:
    """Everything a target says about the zoo of states and the blocks."""
    yield target.exponent
    yield [p.tiers for p in target.places] + [p.code_capacity for p in target.places]
    yield target.resources(200.0)
    yield target.wire(200.0)
    share = getattr(target, "forwarding_share", None)
    if share:
        yield share(1e5), share(1e3, True), [target.update_rate(n) for n in (1e5, 1e6, 4e6)]  # type: ignore[attr-defined]
    for place, declared in enumerate(target.places):
        yield target.per_packet(place), target.latency(place)
        for other in (place - 1, place + 1):
            if 0 <= other < len(target.places):
                yield target.crossing(place, other, 200.0, 8), target.crossing_latency(place, other, 200.0)
        yield [(target.block(PROGRAM, b, place), target.code_size(PROGRAM, b, place)) for b in BLOCKS]
        for state, kinds in ZOO:
            for tier in declared.tiers:
                yield target.holds(PROGRAM, state, place, tier.name)
                for kind in kinds:
                    for entries in (1000, 20_000, 40_000, 60_000, 100_000, 200_000, 400_000, 10**6, 2 * 10**6, 10**7):
                        yield target.access(PROGRAM, state, kind, place, tier.name, used(state, entries, 0.1))
        yield from micro(target, place)
    yield from lending(target)


def lending(target: Target) -> Iterator[object]:
    """Everything a target says about lending entries of the zoo's tables."""
    tables: list[State] = [flows(slack=10**9, strict_order=False),
                           meter(slack=10**9, exact=False, strict_order=False)]
    end = Block("out", (), (), nodes.Forward("wire", SPAN), SPAN)
    asked = program(*tables, blocks=(replace(block(*LOADS), terminator=nodes.Jump("out", (), SPAN)), end))
    for owner in range(len(target.places)):
        for near in range(owner):
            for state in tables:
                yield target.lends(asked, (state,), near, owner)
                for tier in target.places[near].tiers:
                    yield target.lent_holds(asked, state, near, tier.name, 5000)
                    for entries in (5000, 10**6, 3 * 10**6):
                        yield target.install(asked, (state,), near, owner, tier.name, entries)
                    yield target.recall(asked, (state,), near, owner, tier.name, 5000)
        yield [target.rule(asked, TEMPLATE, owner, n) for n in (1000, 10**5)]


def micro(target: Target, place: int) -> Iterator[object]:
    for name in MICRO:
        try:
            yield target.operations(place, {name: 1.0})  # type: ignore[attr-defined]
        except KeyError:
            yield None


@pytest.mark.parametrize("row", ROWS)
def test_published_rows_are_in_the_model_with_their_uncertainty(row: str) -> None:
    name, parameter, *expected = ROWS[row]
    found = registry.get(name).model.parameters[parameter]
    assert [found.value, found.low, found.high] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", registry.names())
def test_every_figure_has_unit_source_and_kind(name: str) -> None:
    model = registry.get(name).model
    assert len(model.parameters) > 40
    for parameter in model:
        assert parameter.unit and parameter.source, parameter.name
        assert model.reference(parameter).count("(") >= 1
        if parameter.kind == "assumed":
            assert parameter.low < parameter.high or "bytes" in parameter.name, f"{parameter.name} is assumed but exact"


@pytest.mark.parametrize("name", registry.names())
def test_every_figure_changes_what_the_target_says(name: str) -> None:
    target = registry.get(name)
    before = list(figures(target))
    idle = set()
    for parameter in target.model:
        changed = type(target)(target.model.with_values({parameter.name: parameter.value * 2 + 1}))
        if list(figures(changed)) == before:
            idle.add(parameter.name)
    # The host behind a card has neither ports nor a bus of its own.
    behind = {"host." + n for n in ("port_bits", "pcie_packets", "frame_overhead", "softmin_exponent",
                                    *REFERENCE["host"])}
    assert idle == REFERENCE[name] | (behind if name != "host" else set())


@pytest.mark.parametrize("name", registry.names())
def test_every_answer_is_a_demand_on_known_resources_or_a_refusal_with_a_place(name: str) -> None:
    target = registry.get(name)
    known = {r.name for r in target.resources(200.0)}
    for answer in figures(target):
        for item in answer if isinstance(answer, list | tuple) else (answer,):
            inner = item[0] if isinstance(item, tuple) else item
            if isinstance(inner, dict):
                assert set(inner) <= known
                assert all(v >= 0 for v in inner.values())
            if isinstance(inner, Refusal):
                assert inner.reason and inner.span
                assert inner.place in {p.name for p in target.places}
