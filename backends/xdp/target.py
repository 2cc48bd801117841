"""Linux XDP as a target: the kernel half in the driver's receive path, the user half behind AF_XDP sockets.

Both run on the cores of this machine, so all work is charged to the same cores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.backends.host.target import CORES, HostPlace, host_model
from cora.backends.xdp.capabilities import MAX_ENTRIES, block_refusal, lent_refusal, refusal
from cora.ir.nodes import Block, Forward, FragmentState, MapState, MeterState, Program, State
from cora.ir.parts import PUNT_FIXED, PUNT_LIMIT
from cora.models.cpu import LAYOUT, WORD_BITS, Cpu
from cora.models.footprint import lent_bytes, table_bytes
from cora.models.operations import Operations, block_operations
from cora.models.parameters import Model, load_model
from cora.models.softmin import total
from cora.models.target import Demand, Lending, Place, Refusal, Resource, Target, Tier

KERNEL, USER = 0, 1
HOST_PREFIX = "host."
PORT = "port"
# An operation of calibration rows: a packet leaves by another interface.
_FORWARD = "forward"
# Accesses for which the kernel half takes the lock of an entry.
_LOCKED = ("touch", "store", "police")
# Messages for one entry: it is lent, and taken back.
_LENT_AND_BACK = 2


@lru_cache(maxsize=1)
def xdp_model() -> Model:
    """The parameters of XDP with those of the host under ``host.``.

    Raises:
        CoraError: `Kind.BAD_MODEL`.
    """
    return load_model(Path(__file__).with_name("model.toml")).joined(host_model(), HOST_PREFIX)


class XdpTarget(Target):
    """The kernel, then user space."""

    name = "xdp"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._user = HostPlace(model, HOST_PREFIX)
        self._kernel = Cpu(model, HOST_PREFIX, speed=model[HOST_PREFIX + "clock_ratio"] * model["bpf_work_ratio"],
                           memory_speed=1.0, llc_bytes=model[HOST_PREFIX + "llc_bytes"])
        self.places = (
            Place("kernel", (Tier("maps", int(model["kernel_memory_bytes"])),), None,
                  "XDP program in the kernel"),
            Place("user", self._user.place.tiers, None, "user space, behind AF_XDP sockets"),
        )

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        cores = self._user.cores
        return (Resource(PORT, self.model["port_bits"] * 1e9, "bit", "kernel"),
                Resource(CORES, cores.rate, cores.unit, "user", scales=True, room=cores.room))

    def per_packet(self, place: int) -> Demand:
        # What arrives is received in the kernel whatever runs there: `wire`.
        return {} if place == KERNEL else {CORES: self.model["xsk_rx_ns"]}

    def wire(self, mean_frame: float) -> Demand:
        return {PORT: 8 * (mean_frame + self.model["frame_overhead"]), CORES: self.model["kernel_rx_ns"]}

    def operation_names(self, place: int) -> tuple[str, ...]:
        """Operations that a place has."""
        return self._kernel.operation_names() if place == USER else (*self._kernel.operation_names(), _FORWARD)

    def operations(self, place: int, counts: Operations) -> Demand:
        """Price of operations at a place (calibration rows are written in them)."""
        if place == USER:
            return self._user.operations(counts)
        generated = {name: n for name, n in counts.items() if name != _FORWARD}
        return {CORES: self._kernel.price(generated) + counts.get(_FORWARD, 0.0) * self.model["kernel_tx_ns"]}

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        if place == USER:
            return self._user.block(block)
        sent = self.model["kernel_tx_ns"] if isinstance(block.terminator, Forward) else 0.0
        return block_refusal(program, block) or {CORES: self._kernel.block(block) + sent}

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        if place == USER:
            return self._user.access(state, kind, use)
        lock = self.model["entry_lock_ns"] if kind in _LOCKED else 0.0
        return {CORES: self._kernel.access(state, kind, use) + lock}

    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        if place == USER:
            return self._user.holds(state)
        return refusal(program, state) or table_bytes(state, LAYOUT)

    def lends(self, program: Program, states: Sequence[State], near: int, owner: int) -> Lending | Refusal:
        if (near, owner) != (KERNEL, USER):
            return self._lends_nothing(states[0], near)
        for state in states:
            if isinstance(state, FragmentState):
                return Refusal(state.name, "kernel", f"datagrams of '{state.name}' cannot be lent: fragments find them "
                                                     "by other keys than the packets of a flow", state.span)
        lent = [s for s in states if isinstance(s, MapState | MeterState)]
        if not lent:
            return Refusal(states[0].name, "kernel", f"'{states[0].name}' has no entries of flows that could be lent",
                           states[0].span)
        refused = (lent_refusal(program, s) for s in lent)
        return next((r for r in refused if r is not None), None) or Lending("resume")

    def lent_holds(self, program: Program, state: State, place: int, tier: str, entries: int) -> int | Refusal:
        if place != KERNEL:
            return self._lends_nothing(state, place)
        if entries > MAX_ENTRIES:
            return Refusal(state.name, "kernel", f"a table of the kernel half has at most {MAX_ENTRIES} entries",
                           state.span)
        return lent_bytes(state, LAYOUT, entries)

    def install(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
                entries: int) -> Demand | Refusal:
        refused = self.lends(program, states, near, owner)
        if isinstance(refused, Refusal):
            return refused
        lent = [s for s in states if isinstance(s, MapState | MeterState)]
        return total((1.0, self._lent_once(s, entries)) for s in lent)

    def _lent_once(self, state: State, entries: int) -> Demand:
        """Messages, the near table's insert, read and delete, and the owner's records of them."""
        size = entry_bytes(state)
        use = AccessRates(size, entries, size * entries, 1 / max(1, entries), 0.0)
        near = sum(self._kernel.access(state, kind, use) for kind in ("insert", "load", "delete"))
        own = self._user.operations({"record": _LENT_AND_BACK})[CORES]
        return {CORES: _LENT_AND_BACK * self.model["told_ns"] + near + own}

    def recall(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
               entries: int) -> Demand | Refusal:
        refused = self.lends(program, states, near, owner)
        # The message is answered at once; taking back is charged when an entry is lent.
        return refused if isinstance(refused, Refusal) else self._user.operations({"record": 2.0, "branch": 2.0})

    def code_size(self, program: Program, block: Block, place: int) -> int:
        return round(sum(block_operations(block, WORD_BITS).values()))

    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        if from_place == to_place:
            return {}
        copied = self.model["copy_byte_ns"] * (mean_frame + PUNT_FIXED + live_bytes)
        if to_place == USER:
            # What does not fit the metadata of a frame cannot travel.
            fits = PUNT_FIXED + live_bytes <= PUNT_LIMIT
            woken = self.model["wake_ns"] / self.model["wake_batch"]
            return {CORES: self.model["punt_ns"] + woken + copied if fits else math.inf}
        return {CORES: self.model["xsk_tx_ns"] + copied}

    def latency(self, place: int) -> float:
        return self.model["kernel_latency"] * 1000 if place == KERNEL else self._user.latency_ns

    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        return self.model["punt_latency"] * 1000 if from_place != to_place else 0.0


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    return XdpTarget(xdp_model().at_instance(instance))
