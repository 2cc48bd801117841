"""The Agilio CX as a target: micro-engines with five memories in front of the host.

A packet takes core cycles of a micro-engine, time in which a thread waits for memory (hidden as long as threads
are left), engine cycles of the memory units, and, where many packets use one entry, time of its line or its lock. So
throughput is the two-resource soft minimum fitted to published programs, widened by the other ceilings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.backends.agilio import lending
from cora.backends.host.target import HostPlace, host_model
from cora.ir.nodes import (
    AclState,
    Binary,
    Block,
    Count,
    Delete,
    FragmentState,
    Insert,
    LoadEntry,
    Lookup,
    LpmState,
    MapState,
    MeterState,
    Police,
    PoolState,
    Program,
    State,
    StoreEntry,
    Touch,
)
from cora.ir.types import bits_of
from cora.models.cards import left
from cora.models.footprint import Layout, is_read_only, key_bytes, lent_bytes, table_bytes
from cora.models.operations import Operations, block_operations
from cora.models.parameters import Model, load_model
from cora.models.softmin import cached_share, total
from cora.models.target import Cache, Demand, Lending, Place, Refusal, Resource, Target, Tier

NIC, HOST = 0, 1
HOST_PREFIX = "host."
WORD_BITS = 32
# The library routines for division take up to 64 bits (two words).
MAX_DIVIDE_BITS = 64
BEAT = 16
BURST = 64
CRC_BYTES = 20
RULE_BYTES = 32

# Index buckets of 16 bytes with four tags each, entries on 16-byte boundaries, three quarters full.
LAYOUT = Layout(align=16, index_bytes=4, load=0.75)

ENGINES, WAIT, MAC, PORT = "micro-engines", "thread-wait", "mac-packets", "port"
ISLAND, IMEM, EMEM, LINE, LOCK = "island-memory", "imem-engine", "emem-engine", "hot-line", "hot-lock"
LENDING = "lending"
TO_HOST, FROM_HOST, BITS_TO_HOST, BITS_FROM_HOST = "pcie-writes", "pcie-reads", "pcie-bits-out", "pcie-bits-in"

# What an operation takes: parameter names per resource. Island and chip memories have their reads below.
_CORE = ENGINES
PRICES: Mapping[str, Mapping[str, str]] = {
    "word": {_CORE: "alu_cycles"},
    "branch": {_CORE: "branch_cycles"},
    "multiply": {_CORE: "multiply_cycles"},
    "divide": {_CORE: "divide_cycles"},
    "field_read": {_CORE: "field_read_cycles"},
    "field_write": {_CORE: "field_write_cycles"},
    "checksum": {_CORE: "compute_cycles"},
    "header": {_CORE: "compute_cycles"},
    "sum_word": {_CORE: "sum_word_cycles"},
    "icmp_error": {_CORE: "icmp_error_cycles"},
    "fragment": {_CORE: "fragment_cycles"},
    # Items of the published programs; the first six are also what table accesses are made of.
    "crc": {_CORE: "crc_cycles"},
    "rule": {_CORE: "rule_cycles", IMEM: "rule_engine"},
    "rule_many": {_CORE: "rule_cycles", IMEM: "rule_many_engine"},
    # The fit has one engine for both memories; its core cycles contain what waiting cost.
    "probe": {_CORE: "probe_cycles", IMEM: "probe_engine"},
    "probe_many": {_CORE: "probe_many_cycles", IMEM: "probe_engine"},
    "base_many": {_CORE: "base_many_cycles", IMEM: "base_many_engine"},
    "counter": {_CORE: "counter_cycles", IMEM: "counter_engine"},
    "counter_many": {_CORE: "counter_many_cycles", IMEM: "counter_many_engine"},
    "counter_core": {_CORE: "counter_cycles"},
    "counter_core_many": {_CORE: "counter_many_cycles"},
    "compute": {_CORE: "compute_cycles"},
    "avg_counter": {_CORE: "avg_counter_cycles", IMEM: "avg_counter_engine"},
    "avg_counter_many": {_CORE: "avg_counter_many_cycles", IMEM: "avg_counter_many_engine"},
    "ftp_mapper": {_CORE: "ftp_mapper_cycles", IMEM: "ftp_mapper_engine"},
    "ftp_mapper_many": {_CORE: "ftp_mapper_many_cycles", IMEM: "ftp_mapper_many_engine"},
    "webgen": {_CORE: "webgen_cycles", IMEM: "webgen_engine"},
    "webgen_many": {_CORE: "webgen_many_cycles", IMEM: "webgen_many_engine"},
    "encap": {_CORE: "encap_cycles", IMEM: "encap_engine"},
    "encap_many": {_CORE: "encap_many_cycles", IMEM: "encap_many_engine"},
    # One blocking trip to a memory (the engine time of its bytes is priced as beats).
    "trip_lmem": {_CORE: "latency_lmem"},
    "trip_cls": {_CORE: "blocking_sram_cycles", WAIT: "latency_cls"},
    "trip_cls_remote": {_CORE: "blocking_sram_cycles", WAIT: "latency_cls_remote"},
    "trip_ctm": {_CORE: "blocking_sram_cycles", WAIT: "latency_ctm"},
    "trip_ctm_remote": {_CORE: "blocking_sram_cycles", WAIT: "latency_ctm_remote"},
    "trip_imem": {_CORE: "blocking_sram_cycles", WAIT: "latency_imem"},
    "trip_emem": {_CORE: "blocking_emem_cycles", WAIT: "latency_emem_cached"},
    "trip_emem_uncached": {_CORE: "blocking_emem_cycles", WAIT: "latency_emem"},
    "wait_emem": {WAIT: "latency_emem_cached"},
    "wait_emem_uncached": {WAIT: "latency_emem"},
    "punt": {_CORE: "punt_cycles"},
}
# Operation -> (resource, parameter with the operations a second, factor to operations/s): one clock's worth of engine
# cycles divided by the rate.
BEATS: Mapping[str, tuple[str, str, float]] = {
    "beat_island": (ISLAND, "imem_operations", 1e9),
    "beat_imem": (IMEM, "imem_operations", 1e9),
    "beat_emem": (EMEM, "emem_operations", 1e6),
    "beat_atomic": (EMEM, "atomic_operations", 1e6),
    "line_read": (LINE, "emem_line_operations", 1e6),
    "line_atomic": (LINE, "atomic_line_operations", 1e6),
}
# Operation -> parameter with its instructions in the code store; routines count as their call.
CODE: Mapping[str, str] = {
    "word": "code_word",
    "branch": "code_branch",
    "multiply": "multiply_cycles",
    "divide": "code_call",
    "field_read": "code_field",
    "field_write": "code_field",
    "checksum": "code_call",
    "header": "code_header",
    "sum_word": "sum_word_cycles",
    "icmp_error": "code_call",
    "fragment": "code_call",
}
TIERS = ("lmem", "cls", "ctm", "imem", "emem")


@lru_cache(maxsize=1)
def agilio_model() -> Model:
    """The card's parameters with those of the host under ``host.``.

    Raises:
        CoraError: `Kind.BAD_MODEL`.
    """
    return load_model(Path(__file__).with_name("model.toml")).joined(host_model(), HOST_PREFIX)


class AgilioTarget(Target):
    """Micro-engines on the card, then the host behind PCIe."""

    name = "agilio-cx"
    returns = True

    def caches(self) -> tuple[Cache, ...]:
        """That of the external memory, which the tables of all programs share."""
        return (Cache("emem-cache", 0, "emem", int(emem_cache(self.model))),)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._host = HostPlace(model, HOST_PREFIX)
        self._clock = model["clock"] * 1e9
        tiers = tuple(Tier(t, left(model, t, model[f"{t}_bytes"] * model[f"{t}_free"])) for t in TIERS)
        code = left(model, "code", model["code_store"] - model["code_framework"])
        self.places = (Place("nic", tiers, code, "Agilio micro-engines"), self._host.place)

    def resources(self, mean_frame: float) -> tuple[Resource, ...]:
        m, clock = self.model, self._clock
        engines = int(m["me_count"])
        threads = int(engines * m["threads"])
        room = int(threads * m["busy_threads"])
        return (
            Resource(PORT, m["port_bits"] * 1e9, "bit", "nic"),
            Resource(MAC, m["mac_packets"] * 1e6, "packet", "nic"),
            Resource(ENGINES, engines * clock, "core cycle", "nic", servers=engines, room=room),
            Resource(WAIT, threads * clock, "thread cycle", "nic", servers=threads, room=room),
            *(Resource(name, clock, "engine cycle", "nic", room=room) for name in (ISLAND, IMEM, EMEM, LINE, LOCK)),
            Resource(TO_HOST, m["pcie_write_transfers"] * 1e6, "transfer", "nic", room=room),
            Resource(FROM_HOST, m["pcie_read_transfers"] * 1e6, "transfer", "nic", room=room),
            Resource(BITS_TO_HOST, m["pcie_bits"] * 1e9, "bit", "nic", room=room),
            Resource(BITS_FROM_HOST, m["pcie_bits"] * 1e9, "bit", "nic", room=room),
            # Changes of lent entries keep a host core busy or waiting: more cores change more.
            Resource(LENDING, m["lend_updates"] * 1e3, "entry change", "host", scales=True),
            self._host.cores,
        )

    def per_packet(self, place: int) -> Demand:
        if place == HOST:
            return self._host.per_packet()
        return {ENGINES: self.model["base_cycles"], IMEM: self.model["base_engine"]}

    def wire(self, mean_frame: float) -> Demand:
        return {PORT: 8 * (mean_frame + self.model["frame_overhead"]), MAC: 1.0}

    def operation_names(self, place: int) -> tuple[str, ...]:
        """Operations that a place has."""
        return self._host.operation_names() if place == HOST else (*PRICES, *BEATS, "lock_cycle")

    def operations(self, place: int, counts: Operations) -> Demand:
        """Price of operations at a place.

        Raises:
            KeyError: an operation the place does not have.
        """
        if place == HOST:
            return self._host.operations(counts)
        found: dict[str, float] = {}
        for operation, n in counts.items():
            for resource, amount in self._price(operation).items():
                found[resource] = found.get(resource, 0.0) + n * amount
        return found

    def _price(self, operation: str) -> dict[str, float]:
        if operation in BEATS:
            resource, rate, factor = BEATS[operation]
            return {resource: self._clock / (self.model[rate] * factor)}
        if operation == "lock_cycle":
            return {LOCK: 1.0}
        return {resource: self.model[parameter] for resource, parameter in PRICES[operation].items()}

    def block(self, program: Program, block: Block, place: int) -> Demand | Refusal:
        if place == HOST:
            return self._host.block(block)
        return _refuse_block(block) or self.operations(NIC, block_operations(block, WORD_BITS))

    def access(self, program: Program, state: State, kind: str, place: int, tier: str,
               use: AccessRates) -> Demand | Refusal:
        if place == HOST:
            return self._host.access(state, kind, use)
        refused = _refuse_state(program, state, tier)
        if refused:
            return refused
        return self.operations(NIC, self._access_operations(program, state, kind, tier, use))

    def _access_operations(self, program: Program, state: State, kind: str, tier: str,
                           use: AccessRates) -> Operations:
        """What one access is made of, as operations of `PRICES` and `BEATS`."""
        memory = _Memory(self.model, tier, is_read_only(program, state), use)
        match kind:
            case "lookup":
                return _lookup(state, memory)
            case "insert":
                return _insert(state, memory, self.model)
            case "delete":
                return _delete(state, memory)
            case "load":
                # The look-up has brought the entry's first burst; what is beyond it takes another trip.
                return {"word": 2} if use.entry_bytes <= BURST else {"word": 2, **memory.trip(BURST)}
            case "store":
                return _sum(memory.trip(BEAT), memory.hot(1))
            case "touch":
                return _touch(state, memory, self.model)
            case "count":
                return memory.count()
            case "police":
                return _police(state, memory, self.model)
            case "track":
                # As if every fragment had to wait: its frame is copied out and back, outside the datagram's lock.
                trips = self.model["insert_trips"]
                return _sum(_find(state, memory), _times(trips + self.model["held_copy_trips"], memory.trip(BURST)),
                            memory.lock(trips, memory.hottest))
        raise KeyError(kind)

    def holds(self, program: Program, state: State, place: int, tier: str) -> Refusal | int:
        if place == HOST:
            return self._host.holds(state)
        refused = _refuse_state(program, state, tier)
        if refused:
            return refused
        buffers = state.capacity * state.max_held if isinstance(state, FragmentState) else 0
        return table_bytes(state, LAYOUT) + buffers * int(self.model["held_buffer_bytes"])

    def lends(self, program: Program, states: Sequence[State], near: int, owner: int) -> Lending | Refusal:
        if (near, owner) != (NIC, HOST):
            return self._lends_nothing(states[0], near)
        return lending.refuse(states) or Lending("resume")

    def lent_holds(self, program: Program, state: State, place: int, tier: str, entries: int) -> int | Refusal:
        if place != NIC:
            return self._lends_nothing(state, place)
        return _refuse_lent(program, state, tier) or lent_bytes(state, LAYOUT, entries)

    def install(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
                entries: int) -> Demand | Refusal:
        refused = next((r for s in states if (r := self.lent_holds(program, s, near, tier, entries))
                        if isinstance(r, Refusal)), None)
        if refused:
            return refused
        lent = [s for s in states if isinstance(s, MapState | MeterState)]
        return total([(1.0, d) for s in lent for d in (self._messages(s), self._changes(program, s, tier, entries))])

    def _messages(self, state: State) -> Demand:
        """Frames that lend an entry, ask for it back and return it, on the bus and on the host's cores."""
        m, size = self.model, entry_bytes(state)
        control = 8 * m["control_bytes"]
        host = self._host.messages(lending.ASKED, lending.RETURNED, m["control_host_ns"])
        return {FROM_HOST: lending.ASKED, BITS_FROM_HOST: lending.ASKED * control + 8 * size,
                TO_HOST: lending.RETURNED, BITS_TO_HOST: lending.RETURNED * control + 8 * size,
                LENDING: 2.0, **host}

    def _changes(self, program: Program, state: State, tier: str, entries: int) -> Demand:
        """What the card does for them: three frames, an insert, a read and a delete."""
        use = lending.lent_use(state, entries)
        memory = _Memory(self.model, tier, False, use)
        counts = _sum({"punt": lending.ASKED + lending.RETURNED},
                      *(self._access_operations(program, state, kind, tier, use) for kind in ("insert", "delete")),
                      memory.trip(use.entry_bytes))
        return total([(lending.ASKED, self.per_packet(NIC)), (1.0, self.operations(NIC, counts))])

    def recall(self, program: Program, states: Sequence[State], near: int, owner: int, tier: str,
               entries: int) -> Demand | Refusal:
        refused = self.lends(program, states, near, owner)
        if isinstance(refused, Refusal):
            return refused
        # The packet waits in a queue of the owner's until the entry has come back.
        return self._host.operations({"record": 2, "branch": 2})

    def code_size(self, program: Program, block: Block, place: int) -> int:
        if place == HOST:
            return 0
        counts = block_operations(block, WORD_BITS)
        straight = sum(n * self.model[CODE[operation]] for operation, n in counts.items())
        nodes = (*block.instructions, block.terminator)
        searches = sum(isinstance(n, Lookup | Insert | Police | Delete) for n in nodes)
        writes = sum(isinstance(n, Count | Touch | StoreEntry | LoadEntry) for n in nodes)
        return math.ceil(straight + searches * self.model["code_access"] + writes * self.model["code_write"])

    def crossing(self, from_place: int, to_place: int, mean_frame: float, live_bytes: int) -> Demand:
        if from_place == to_place:
            return {}
        bits = 8 * (mean_frame + live_bytes)
        link = {TO_HOST: 1.0, BITS_TO_HOST: bits} if to_place == HOST else {FROM_HOST: 1.0, BITS_FROM_HOST: bits}
        return {**link, **self.operations(NIC, {"punt": 1})}

    def latency(self, place: int) -> float:
        return self._host.latency_ns if place == HOST else self.model["base_latency"] * 1000

    def crossing_latency(self, from_place: int, to_place: int, mean_frame: float) -> float:
        if from_place == to_place:
            return 0.0
        return self.model["crossing_ns"] + self.model["crossing_byte_ns"] * mean_frame


def emem_cache(model: Model) -> float:
    """Bytes of the external memory's cache that others leave."""
    return max(1.0, model["emem_cache_bytes"] - model["reserved_emem_cache"])


class _Memory:
    """One tier as a state sees it: operations of a trip, and what hot entries add."""

    def __init__(self, model: Model, tier: str, replicated: bool, use: AccessRates) -> None:
        """``replicated``: every island has its own copy, so its own memory is near."""
        self.tier, self._use = tier, use
        fits = cached_share(emem_cache(model), use.working_set)
        # What fits is the most used part of the table.
        self.cached = use.head(fits) if tier == "emem" else 1.0
        self._near = 1.0 if replicated else 1 / model["islands"]
        # A copy in each island shares the work of the islands' engines.
        self._engine_share = 1 / model["islands"] if replicated else 1.0
        latency = {"imem": model["latency_imem"], "lmem": model["latency_lmem"]}
        self.latency = latency.get(tier) or self._mean_latency(model)

    def _mean_latency(self, model: Model) -> float:
        if self.tier == "emem":
            return self.cached * model["latency_emem_cached"] + (1 - self.cached) * model["latency_emem"]
        return (self._near * model[f"latency_{self.tier}"]
                + (1 - self._near) * model[f"latency_{self.tier}_remote"])

    def trip(self, octets: int) -> dict[str, float]:
        """One blocking access to ``octets`` bytes, at most a burst at a time."""
        bursts, beats = -(-octets // BURST), -(-octets // BEAT)
        match self.tier:
            case "lmem":
                return {"trip_lmem": -(-octets // 4)}
            case "imem":
                return {"trip_imem": bursts, "beat_imem": beats}
            case "emem":
                return {"trip_emem": bursts * self.cached, "trip_emem_uncached": bursts * (1 - self.cached),
                        "beat_emem": beats}
        return {f"trip_{self.tier}": bursts * self._near, f"trip_{self.tier}_remote": bursts * (1 - self._near),
                "beat_island": beats * self._engine_share}

    def probe(self) -> dict[str, float]:
        """One hash bucket, compared with the key's tag."""
        if self.tier == "emem":
            far = 1 - self.cached
            return {"probe": self.cached, "wait_emem": self.cached, "probe_many": far, "wait_emem_uncached": far,
                    "base_many": far}
        return _sum(self.trip(BEAT), {"word": 10})

    def count(self) -> dict[str, float]:
        """A packet and an octet counter, added to without waiting."""
        match self.tier:
            case "imem":
                return _sum({"counter": 1}, self.hot_atomic(2))
            case "emem":
                return _sum({"counter_core": self.cached, "counter_core_many": 1 - self.cached, "beat_atomic": 2},
                            self.hot_atomic(2))
        return {"counter_core": 1, "beat_island": 2 * self._engine_share}

    def hot(self, operations: float) -> dict[str, float]:
        """Operations on the most used entry's line; only the chip's memories have lines that many packets queue at."""
        return {"line_read": operations * self._use.hottest} if self.tier in ("imem", "emem") else {}

    def hot_atomic(self, operations: float) -> dict[str, float]:
        """As `hot`, for atomic operations."""
        return {"line_atomic": operations * self._use.hottest} if self.tier in ("imem", "emem") else {}

    def lock(self, trips: float, share: float, cycles: float = 0.0) -> dict[str, float]:
        """A lock taken by ``share`` of the accesses on one word, held for memory trips and core cycles."""
        return {"lock_cycle": share * (trips * self.latency + cycles)}

    @property
    def hottest(self) -> float:
        return self._use.hottest


def _sum(*parts: Operations) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, n in part.items():
            total[name] = total.get(name, 0.0) + n
    return total


def _times(n: float, part: Operations) -> dict[str, float]:
    return {name: n * count for name, count in part.items()}


def _find(state: State, memory: _Memory) -> dict[str, float]:
    """Hash, probe and key comparison; the entry's first burst is read with the comparison."""
    size = key_bytes(state)
    return _sum({"crc": size / CRC_BYTES, "word": -(-size // 4), "branch": 1}, memory.probe(), memory.trip(BURST))


def _lookup(state: State, memory: _Memory) -> dict[str, float]:
    match state:
        case AclState():
            return _scan(state, memory)
        case LpmState():
            # A hash table per prefix length in use, longest first; a miss has tried them all.
            lengths = len({e.length for e in state.entries}) or 1
            return _times(lengths, _sum({"crc": 1, "word": 4, "branch": 1}, memory.probe()))
    return _sum(_find(state, memory), memory.hot(2))


def _scan(state: AclState, memory: _Memory) -> dict[str, float]:
    """A list searched from the top; a packet that matches nothing has read all of it."""
    pieces = len(state.entries) * -(-key_bytes(state) * 2 // RULE_BYTES)
    if memory.tier == "imem":
        return {"rule": pieces}
    return _times(pieces, _sum({"word": 12, "branch": 1}, _times(2, memory.trip(BEAT))))


def _insert(state: State, memory: _Memory, model: Model) -> dict[str, float]:
    # The head of a free list and the position of a pool are one word for all packets.
    head = _sum(memory.trip(BEAT), {"line_atomic": 1} if memory.tier in ("imem", "emem") else {})
    if isinstance(state, PoolState):
        # The position, then the value's bit in the map of those in use.
        return _sum(head, memory.trip(BEAT))
    keys = len(state.keys) if isinstance(state, MapState) else 1
    trips = model["insert_trips"]
    return _sum(_times(keys, _find(state, memory)), _times(trips + keys, memory.trip(BEAT)), head,
                memory.lock(trips, memory.hottest), _relinked(state, memory, model))


def _delete(state: State, memory: _Memory) -> dict[str, float]:
    if isinstance(state, PoolState):
        return memory.trip(BEAT)
    keys = len(state.keys) if isinstance(state, MapState) else 1
    return _sum(_times(2 + keys, memory.trip(BEAT)), memory.lock(1 + keys, memory.hottest))


def _touch(state: State, memory: _Memory, model: Model) -> dict[str, float]:
    return _sum(memory.trip(BEAT), memory.hot(1), _relinked(state, memory, model))


def _relinked(state: State, memory: _Memory, model: Model) -> dict[str, float]:
    """Exact LRU order is one list for the whole table: every packet takes its lock."""
    if not isinstance(state, MapState | MeterState) or state.full != "evict_lru":
        return {}
    trips = model["lru_trips"]
    return _sum(_times(trips + 1, memory.trip(BEAT)), memory.lock(trips, 1.0))


def _police(state: State, memory: _Memory, model: Model) -> dict[str, float]:
    # Refill and charge in 64-bit arithmetic on 32-bit words: elapsed * rate, cap, compare, subtract, per bucket.
    buckets = 2 if isinstance(state, MeterState) and state.algorithm != "token_bucket" else 1
    work = _times(buckets, {"multiply": 4, "word": 24, "branch": 3})
    return _sum(_find(state, memory), work, _times(3, memory.trip(BEAT)), memory.hot(2),
                memory.lock(2, memory.hottest), _relinked(state, memory, model))


def _refuse_block(block: Block) -> Refusal | None:
    for node in block.instructions:
        if isinstance(node, Binary) and node.op in ("div", "mod") and bits_of(node.result.type) > MAX_DIVIDE_BITS:
            return Refusal(block.label, "nic",
                           f"the card divides numbers of up to {MAX_DIVIDE_BITS} bits (in a library routine); "
                           f"this one has {bits_of(node.result.type)}", node.span)
    return None


def _refuse_lent(program: Program, state: State, tier: str) -> Refusal | None:
    if tier == "lmem":
        return Refusal(state.name, "nic", f"entries of '{state.name}' cannot be lent to local memory: each "
                                          "micro-engine has its own, and packets of one flow come to all of them",
                       state.span)
    return _refuse_state(program, state, tier)


# A fragment that waits must not keep its place in the port's sending order: it is dropped from the sequence, copied to
# a buffer of the buffer-list manager in EMEM, and sent with a new sequence number when its first fragment has come.
_HELD_IN_EMEM = "is kept in EMEM: fragments that wait are copied to packet buffers there"


def _refuse_state(program: Program, state: State, tier: str) -> Refusal | None:
    if isinstance(state, FragmentState) and tier != "emem":
        return Refusal(state.name, "nic", f"'{state.name}' {_HELD_IN_EMEM}", state.span)
    if tier == "lmem" and not is_read_only(program, state):
        written = "its values are handed out" if isinstance(state, PoolState) else "packets change it"
        return Refusal(state.name, "nic",
                       f"'{state.name}' cannot be in local memory: each micro-engine has its own, and {written}, so "
                       "the copies would drift apart", state.span)
    return None


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    return AgilioTarget(agilio_model().at_instance(instance))
