"""BlueField-2 as a target: the card's switch, its Arm cores, the host.

A packet that only passes a place pays the crossings: the switch steers straight to the host, no Arm core touches it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.analysis.decided import RuleTemplate
from cora.backends.bluefield import lending
from cora.backends.bluefield.decided import refuse_rule
from cora.backends.bluefield.eswitch import facts_of, refuse_block, refuse_state, rules_of
from cora.backends.host.target import HostPlace, host_model
from cora.ir.nodes import Block, Branch, MapState, MeterState, Program, State, Switch
from cora.models.cards import left
from cora.models.cpu import LAYOUT, WORD_BITS, Cpu, Curve, interpolate
from cora.models.footprint import lent_bytes, table_bytes
from cora.models.operations import Operations, block_operations
from cora.models.parameters import Model, load_model
from cora.models.softmin import total
from cora.models.target import Demand, Lending, Place, Refusal, Resource, Target, Tier

SWITCH, ARM, HOST = 0, 1, 2
HOST_PREFIX = "host."
PORT, PACKETS, PIPELINE = "port", "switch-packets", "switch-pipeline"
CORES, ARM_DRAM, RULE_UPDATES = "arm-cores", "arm-dram", "rule-updates"
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
    # The host sends to the card's Arm cores through its function's representor there.
    returns = True

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._host = HostPlace(model, HOST_PREFIX)
        ratio = model["arm_work_ratio"]
        self._arm = Cpu(model, HOST_PREFIX, speed=ratio, memory_speed=ratio, llc_bytes=model["arm_llc_bytes"])
        self.places = (
            Place("switch", tuple(Tier(unit, left(model, unit, model[name]), unit) for name, unit in
                                  (("flows", "rules"), ("counters", "counters"), ("meters", "meters"))),
                  None, "the card's match-action switch"),
            Place("arm", (Tier("dram", left(model, "dram", model["arm_memory_bytes"])),), None,
                  "Arm cores of the card"),
            self._host.place,
        )

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        m = self.model
        cores = max(1, round(m["arm_cores"]))
        bus = m["pcie_bits"] * 1e9
        inserters = max(1, round(m["inserters"]))
        return (
            Resource(PORT, m["port_bits"] * 1e9, "bit", "switch"),
            Resource(PACKETS, m["switch_packets"] * 1e6, "packet", "switch"),
            Resource(PIPELINE, 1e9, "ns", "switch"),
            Resource(CARD_OUT, bus, "bit", "arm"),
            Resource(CARD_IN, bus, "bit", "arm"),
            Resource(CORES, m["arm_cores"] * 1e9, "ns", "arm", servers=cores,
                     room=int(cores * m["arm_ring_slots"])),
            Resource(RULE_UPDATES, inserters * 1e9, "ns", "arm", servers=inserters, room=int(m["arm_ring_slots"])),
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

    def curves(self) -> tuple[Curve, ...]:
        """Rates of look-ups and of changes by rules."""
        return (Curve(LOOKUPS, logarithmic=True), Curve(UPDATES, logarithmic=True))

    def operation_names(self, place: int) -> tuple[str, ...]:
        """Operations that a place has; of the switch's look-ups those whose rate is measured."""
        if place == SWITCH:
            return (*(f"lookup_{thousands}" for thousands, _ in LOOKUPS),
                    *(f"update_{thousands}" for thousands, _ in UPDATES), *(f"insert_{t}" for t in (16, 56, 100)))
        return self._arm.operation_names()

    def operations(self, place: int, counts: Operations) -> Demand:
        """Price of operations at a place.

        The switch has ``lookup_N`` for a look-up in a table of N thousand rules, and, by one x86 core, ``update_N`` for
        a rule deleted and another inserted beside so many, ``insert_N`` for each of so many put into an empty table.

        Raises:
            KeyError: an operation the place does not have.
        """
        if place == ARM:
            return {CORES: self._arm.price(counts)}
        if place == HOST:
            return self._host.operations(counts)
        return total((n, self._switch_operation(name)) for name, n in counts.items())

    def _switch_operation(self, operation: str) -> Demand:
        name, _, thousands = operation.partition("_")
        if not thousands.isdigit() or int(thousands) == 0:
            raise KeyError(operation)
        rules = 1000 * int(thousands)
        match name:
            case "lookup":
                return {PIPELINE: self._lookup_ns(rules)}
            case "update":
                return {RULE_UPDATES: 1e9 / self.update_rate(rules)}
            case "insert":
                return {RULE_UPDATES: self.model["insert_setup"] * 1e6 / rules + 1e6 / self.model["insert_core"]}
        raise KeyError(operation)

    def lookup_rate(self, rules: float) -> float:
        """Look-ups a second in a table of so many rules, linear in the logarithm of rules and rate between points."""
        points = [(k, math.log(self.model[name])) for k, name in LOOKUPS]
        return math.exp(interpolate(points, rules / 1000)) * 1e6 * self.model["switch_transfer"]

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

    def lends(self, program: Program, states: Sequence[State], near: int, owner: int) -> Lending | Refusal:
        if not 0 <= near < owner <= HOST:
            return self._lends_nothing(states[0], near)
        if near == ARM:
            return lending.refuse_code(states, "arm") or Lending("resume")
        return lending.refuse_rules(states, "switch", self.model["rule_slack"]) or Lending("restart")

    def lent_holds(self, program: Program, state: State, place: int, tier: str, entries: int) -> int | Refusal:
        if place == ARM:
            return lent_bytes(state, LAYOUT, entries)
        if place != SWITCH:
            return self._lends_nothing(state, place)
        if not isinstance(state, MapState | MeterState):
            return 0
        wanted = "meters" if isinstance(state, MeterState) else "rules"
        if tier != wanted:
            return Refusal(state.name, "switch", f"lent entries of '{state.name}' are {wanted}, not {tier}", state.span)
        return entries * lending.rules_per_entry(program, state)

    def install(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
                entries: int) -> Demand | Refusal:
        refused = self.lends(program, states, near, owner)
        if isinstance(refused, Refusal):
            return refused
        lent = [s for s in states if isinstance(s, MapState | MeterState)]
        if near == ARM:
            return total([(1.0, d) for s in lent for d in (self._messages(s), self._near_changes(s, entries))])
        rules = sum(lending.rules_per_entry(program, s) for s in lent)
        asked = [(1.0, self._messages(s) if owner == HOST else self._handed_over()) for s in lent]
        return total([*asked, (rules, self._rule_change(rules * entries))])

    def _messages(self, state: State) -> Demand:
        """Frames between host and Arm cores that lend an entry, ask for it back and return it."""
        m, size = self.model, entry_bytes(state)
        control = 8 * m["control_bytes"]
        arm = {CORES: self._arm.price({"rx": 2, "tx": 1, "record": 3}) + 3 * m["control_host_ns"] / m["arm_work_ratio"]}
        bus = {HOST_OUT: 2 * control + 8 * size, HOST_IN: control + 8 * size}
        return total([(1.0, self._host.messages(2, 1, m["control_host_ns"])), (1.0, arm), (1.0, bus)])

    def _near_changes(self, state: State, entries: int) -> Demand:
        """Insert, read and delete of an entry in a table of the Arm cores."""
        size = entry_bytes(state)
        use = AccessRates(size, entries, size * entries, 1 / max(1, entries), 0.0)
        return {CORES: sum(self._arm.access(state, kind, use) for kind in ("insert", "load", "delete"))}

    def _handed_over(self) -> Demand:
        """An Arm core that owns an entry asks the one that changes rules, twice, and gets the counter's last value."""
        m = self.model
        return {CORES: self._arm.price({"record": 6}) + 3 * m["control_host_ns"] / m["arm_work_ratio"]}

    def _rule_change(self, rules: int) -> Demand:
        """One rule inserted and later deleted beside so many others, by an Arm core."""
        m = self.model
        if not m["inserters"]:
            return {CORES: m["insert_stall_ns"] / m["arm_work_ratio"]}
        slower = m["insert_core"] / m["insert_arm"]
        return {RULE_UPDATES: slower * 1e9 / self.update_rate(rules)}

    def recall(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
               entries: int) -> Demand | Refusal:
        refused = self.lends(program, states, near, owner)
        if isinstance(refused, Refusal):
            return refused
        # The packet waits in a queue of the owner's until the entry has come back.
        held = {"record": 2.0, "branch": 2.0}
        return self._host.operations(held) if owner == HOST else {CORES: self._arm.price(held)}

    def rule(self, program: Program, template: RuleTemplate, place: int, rules: int) -> Demand | Refusal:
        if place != SWITCH:
            return super().rule(program, template, place, rules)
        # A small table tells the ways in apart, then one look-up among the flows' rules.
        served: Demand = {PIPELINE: self._lookup_ns(1000) + self._lookup_ns(rules)}
        return refuse_rule(template, len(program.ports)) or served

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


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    return BluefieldTarget(bluefield_model().at_instance(instance))
