"""BlueField-2 as a target: the card's switch, its Arm cores, the host.

A packet that only passes a place pays the crossings: the switch steers straight to the host, no Arm core touches it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import AccessRates
from cora.backends.bluefield.eswitch import facts_of, refuse_block, refuse_state, rules_of
from cora.backends.host.target import HostPlace, host_model
from cora.ir.nodes import Block, Branch, Program, State, Switch
from cora.models.cpu import LAYOUT, WORD_BITS, Cpu, interpolate
from cora.models.footprint import table_bytes
from cora.models.operations import Operations, block_operations
from cora.models.parameters import Model, load_model
from cora.models.target import Demand, Place, Refusal, Resource, Target, Tier

SWITCH, ARM, HOST = 0, 1, 2
HOST_PREFIX = "host."
PORT, PACKETS, PIPELINE = "port", "switch-packets", "switch-pipeline"
CORES, ARM_DRAM = "arm-cores", "arm-dram"
CARD_OUT, CARD_IN, HOST_OUT, HOST_IN = "card-bus-out", "card-bus-in", "pcie-bits-out", "pcie-bits-in"
# Points of the look-up rate curve: thousands of rules in the table and the parameter with the rate.
LOOKUPS = tuple((k, f"lookups_{k}k") for k in (10, 30, 40, 100, 1000, 2000))
UPDATES = tuple((k, f"update_{k}k") for k in (100, 1000, 4000))


@lru_cache(maxsize=1)
def bluefield_model() -> Model:
    """The card's parameters with those of the host under ``host.``.

    Raises:
        CoraError: `Kind.BAD_MODEL`.
    """
    return load_model(Path(__file__).with_name("model.toml")).joined(host_model(), HOST_PREFIX)


class BluefieldTarget(Target):
    """Switch, Arm cores, host."""

    name = "bluefield2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._host = HostPlace(model, HOST_PREFIX)
        ratio = model["arm_work_ratio"]
        self._arm = Cpu(model, HOST_PREFIX, speed=ratio, memory_speed=ratio, llc_bytes=model["arm_llc_bytes"])
        self.places = (
            Place("switch", tuple(Tier(unit, int(model[name]), unit) for name, unit in
                                  (("flows", "rules"), ("counters", "counters"), ("meters", "meters"))),
                  None, "the card's match-action switch"),
            Place("arm", (Tier("dram", int(model["arm_memory_bytes"])),), None, "Arm cores of the card"),
            self._host.place,
        )

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        m = self.model
        cores = max(1, round(m["arm_cores"]))
        bus = m["pcie_bits"] * 1e9
        return (
            Resource(PORT, m["port_bits"] * 1e9, "bit", "switch"),
            Resource(PACKETS, m["switch_packets"] * 1e6, "packet", "switch"),
            Resource(PIPELINE, 1e9, "ns", "switch"),
            Resource(CARD_OUT, bus, "bit", "arm"),
            Resource(CARD_IN, bus, "bit", "arm"),
            Resource(CORES, m["arm_cores"] * 1e9, "ns", "arm", servers=cores,
                     room=int(cores * m["arm_ring_slots"])),
            # A frame is written to memory by the card and read from it again.
            Resource(ARM_DRAM, m["arm_dram_bytes"] * 1e9 / (2 * mean_frame), "frame", "arm"),
            Resource(HOST_OUT, bus, "bit", "host"),
            Resource(HOST_IN, bus, "bit", "host"),
            self._host.cores,
        )

    def per_packet(self, place: int) -> Demand:
        if place == SWITCH:
            return {}
        if place == ARM:
            return {CORES: self._arm.per_packet(), ARM_DRAM: 1.0}
        return self._host.per_packet()

    def wire(self, mean_frame: float) -> Demand:
        return {PORT: 8 * (mean_frame + self.model["frame_overhead"]), PACKETS: 1.0}

    def operations(self, place: int, counts: Operations) -> Demand:
        """Price of operations at a place; the switch has ``lookup_N`` for a look-up in a table of N thousand rules.

        Raises:
            KeyError: an operation the place does not have.
        """
        if place == ARM:
            return {CORES: self._arm.price(counts)}
        if place == HOST:
            return self._host.operations(counts)
        return {PIPELINE: sum(n * self._lookup_ns(_rules_in(name)) for name, n in counts.items())}

    def lookup_rate(self, rules: float) -> float:
        """Look-ups a second in a table of so many rules, linear in the logarithm of rules and rate between points."""
        points = [(k, math.log(self.model[name])) for k, name in LOOKUPS]
        return math.exp(interpolate(points, rules / 1000)) * 1e6

    def _lookup_ns(self, rules: float) -> float:
        return 1e9 / self.lookup_rate(rules)

    def update_rate(self, rules: float) -> float:
        """Rule changes (delete and insert) a second of one x86 core beside so many rules."""
        return interpolate([(k, self.model[name]) for k, name in UPDATES], rules / 1000) * 1e3

    def forwarding_share(self, insertions: float, root: bool = False) -> float:
        """Share of its forwarding rate that a core keeps while it inserts so many rules a second: 1/(1 + r/r0)."""
        halved = self.model["insert_interference_root" if root else "insert_interference"] * 1e3
        return 1 / (1 + insertions / halved)

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        if place == HOST:
            return self._host.block(block)
        if place == ARM:
            return {CORES: self._arm.block(block)}
        refused = refuse_block(facts_of(program), block, int(self.model["vlan_tags"]))
        if refused:
            return refused
        # A decision is a small table of its own; headers are told apart by the parser.
        decisions = isinstance(block.terminator, Branch | Switch)
        return self.operations(SWITCH, {"lookup_1": 1.0}) if decisions else {}

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        if place == HOST:
            return self._host.access(state, kind, use)
        if place == ARM:
            return {CORES: self._arm.access(state, kind, use)}
        refused = refuse_state(program, state, tier)
        if refused:
            return refused
        return {PIPELINE: self._lookup_ns(rules_of(state))} if kind == "lookup" else {}

    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        if place == HOST:
            return self._host.holds(state)
        if place == ARM:
            return table_bytes(state, LAYOUT)
        return refuse_state(program, state, tier) or rules_of(state)

    def code_size(self, program: Program, block: Block, place: int) -> int:
        return 0 if place == SWITCH else round(sum(block_operations(block, WORD_BITS).values()))

    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        bits = 8 * (mean_frame + live_bytes)
        if {from_place, to_place} == {SWITCH, ARM}:
            return {CARD_IN if to_place == ARM else CARD_OUT: bits}
        if {from_place, to_place} != {ARM, HOST}:
            return {}
        bus = {HOST_IN if to_place == HOST else HOST_OUT: bits}
        if live_bytes == 0:
            return bus
        # Live values mean that an Arm core had the packet: between its memory and the host the card's own bus is
        # crossed once more in each direction.
        again = bits / self.model["arm_host_share"] / 2
        return {**bus, CARD_IN: again, CARD_OUT: again}

    def latency(self, place: int) -> float:
        if place == SWITCH:
            return self.model["switch_latency"] * 1000
        if place == ARM:
            return self._host.latency_ns / self.model["arm_work_ratio"]
        return self._host.latency_ns

    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        if from_place == to_place:
            return 0.0
        return self.model["switch_arm_ns" if SWITCH in (from_place, to_place) else "arm_host_ns"]


def _rules_in(operation: str) -> float:
    name, _, thousands = operation.partition("_")
    if name != "lookup" or not thousands.isdigit():
        raise KeyError(operation)
    return 1000.0 * int(thousands)


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    return BluefieldTarget(bluefield_model().at_instance(instance))
