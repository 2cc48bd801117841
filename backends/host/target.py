"""The host as a target of its own, and as the last place of a NIC's chain."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import AccessRates
from cora.ir.nodes import Block, Program, State
from cora.models.cpu import CURVE, LAYOUT, WORD_BITS, Cpu, Curve
from cora.models.footprint import table_bytes
from cora.models.operations import Operations, block_operations
from cora.models.parameters import Model, load_model
from cora.models.target import Demand, Place, Refusal, Resource, Target, Tier

CORES = "host-cores"
PORT = "host-port"
PCIE = "host-pcie"


@lru_cache(maxsize=1)
def host_model() -> Model:
    """The parameters of the host.

    Raises:
        CoraError: `Kind.BAD_MODEL`.
    """
    return load_model(Path(__file__).with_name("model.toml"))


class HostPlace:
    """The host as a place: used by this target and, with ``prefix``, by every card's target."""

    def __init__(self, model: Model, prefix: str = "") -> None:
        ratio = model[prefix + "clock_ratio"]
        # Memory does not get faster with the core's clock.
        self.cpu = Cpu(model, prefix, speed=ratio, memory_speed=1.0, llc_bytes=model[prefix + "llc_bytes"])
        self.place = Place("host", (Tier("dram", int(model[prefix + "memory_bytes"])),), None, "host CPU cores")
        self.cores = Resource(CORES, 1e9, "ns", "host", scales=True, room=int(model[prefix + "ring_slots"]))
        self.latency_ns = model[prefix + "base_latency"] * 1000

    def per_packet(self) -> Demand:
        """Receive and transmit on a host core."""
        return {CORES: self.cpu.per_packet()}

    def operation_names(self) -> tuple[str, ...]:
        """Operations that have a price."""
        return self.cpu.operation_names()

    def operations(self, counts: Operations) -> Demand:
        """Price of operations."""
        return {CORES: self.cpu.price(counts)}

    def block(self, block: Block) -> Demand:
        """A block's own work."""
        return {CORES: self.cpu.block(block)}

    def access(self, state: State, kind: str, use: AccessRates) -> Demand:
        """One access to a state in host memory."""
        return {CORES: self.cpu.access(state, kind, use)}

    def messages(self, sent: float, received: float, each_ns: float) -> Demand:
        """Control messages of an owner: frames sent and received, ``each_ns`` to compose or apply one, and a record."""
        frames = sent + received
        return {CORES: self.cpu.price({"tx": sent, "rx": received, "record": frames}) + frames * each_ns}

    def holds(self, state: State) -> int:
        """Bytes of a state in host memory."""
        return table_bytes(state, LAYOUT)


class HostTarget(Target):
    """One place: the host's cores behind a plain NIC."""

    name = "host"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._host = HostPlace(model)
        self.places = (self._host.place,)

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        return (
            Resource(PORT, self.model["port_bits"] * 1e9, "bit", "host"),
            Resource(PCIE, self.model["pcie_packets"] * 1e6, "packet", "host"),
            self._host.cores,
        )

    def per_packet(self, place: int) -> Demand:
        return self._host.per_packet()

    def wire(self, mean_frame: float) -> Demand:
        return {PORT: 8 * (mean_frame + self.model["frame_overhead"]), PCIE: 1.0}

    def curves(self) -> tuple[Curve, ...]:
        """Look-up cost by flows."""
        return (Curve(CURVE, logarithmic=False),)

    def operation_names(self, place: int) -> tuple[str, ...]:
        """Operations that a place has."""
        return self._host.operation_names()

    def operations(self, place: int, counts: Operations) -> Demand:
        """Price of operations at a place (calibration rows are written in them)."""
        return self._host.operations(counts)

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        return self._host.block(block)

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        return self._host.access(state, kind, use)

    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        return self._host.holds(state)

    def code_size(self, program: Program, block: Block, place: int) -> int:
        return round(sum(block_operations(block, WORD_BITS).values()))

    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        return {}

    def latency(self, place: int) -> float:
        return self._host.latency_ns

    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        return 0.0


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    return HostTarget(host_model().at_instance(instance))
