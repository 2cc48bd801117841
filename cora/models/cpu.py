"""What packet work costs on a general-purpose core: nanoseconds of core time per operation.

A cached part scales with the core's speed; what misses the last-level cache follows a measured curve of a hash table's
cost against its working set. All figures come from parameters under a prefix; `PRICES` names them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cora.analysis.accesses import AccessRates
from cora.ir.nodes import (
    AclState,
    Block,
    CounterState,
    FragmentState,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    State,
)
from cora.models.footprint import Layout, key_bytes
from cora.models.operations import block_operations
from cora.models.parameters import Model

WORD_BITS = 64
LINE = 64
HASH_BYTES = 16

# Open-addressing tables as the emitted C uses them: entries on 16-byte boundaries, 8-byte index slots, 3/4 full.
LAYOUT = Layout(align=16, index_bytes=8, load=0.75)

# Operation -> parameter with its cached cost in nanoseconds.
PRICES: Mapping[str, str] = {
    "rx": "rx_ns",
    "tx": "tx_ns",
    # Receive and drop in the kernel's XDP hook, and what a redirect adds.
    "xdp_rx": "xdp_rx_ns",
    "xdp_redirect": "xdp_redirect_ns",
    "word": "word_ns",
    "branch": "branch_ns",
    "multiply": "multiply_ns",
    "divide": "divide_ns",
    "field_read": "field_read_ns",
    "field_write": "field_write_ns",
    "checksum": "checksum_ns",
    "header": "header_ns",
    "sum_word": "sum_word_ns",
    "icmp_error": "icmp_error_ns",
    "fragment": "fragment_ns",
    # Tables.
    "hash": "hash_ns",
    "probe": "probe_ns",
    "record": "record_ns",
    "insert": "insert_ns",
    "delete": "delete_ns",
    "allocate": "allocate_ns",
    "police": "police_ns",
    "acl": "acl_ns",
    "acl_doubling": "acl_doubling_ns",
    "lpm": "lpm_ns",
    "relink": "relink_ns",
}

# Points of the miss curve: thousands of flows and the parameter with the nanoseconds a look-up costs beyond the cached
# one.
CURVE: tuple[tuple[int, str], ...] = tuple((k, f"miss_ns_{k}k") for k in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096))


@dataclass(frozen=True)
class Curve:
    """Parameters by size (thousands of flows or rules): linear in the size's logarithm, or in both logarithms."""

    points: tuple[tuple[int, str], ...]
    logarithmic: bool


class Cpu:
    """Prices of one kind of core.

    Args:
        model: has the parameters of `PRICES`, `CURVE`, ``rx_ns``, ``tx_ns``, ``flow_packet_ns``, ``flow_bytes``,
            ``further_record_ns``, ``miss_share``, ``shared_state_ratio`` and ``reference_llc_bytes`` under ``prefix``.
        speed: cached work per second relative to the core of the figures; memory_speed: the same for cache misses.
        llc_bytes: last-level cache.
    """

    def __init__(self, model: Model, prefix: str, speed: float, memory_speed: float, llc_bytes: float) -> None:
        self._model, self._prefix = model, prefix
        self._speed, self._memory_speed = speed, memory_speed
        # A cache k times as large moves the curve to k times as many flows.
        self._flow_bytes = self._get("flow_bytes") * llc_bytes / self._get("reference_llc_bytes")

    def _get(self, name: str) -> float:
        return self._model[self._prefix + name]

    def operation_names(self) -> tuple[str, ...]:
        """Operations that `price` knows."""
        return (*PRICES, "table_miss", "line_miss", "shared_write")

    def per_packet(self) -> float:
        """Receive and transmit of one packet."""
        return self.price({"rx": 1, "tx": 1})

    def price(self, operations: Mapping[str, float]) -> float:
        """Nanoseconds of operations; ``table_miss`` and ``line_miss`` are shares of accesses that miss the cache.

        Raises:
            KeyError: an operation no core has.
        """
        return sum(n * self._price_of(op) for op, n in operations.items())

    def _price_of(self, operation: str) -> float:
        match operation:
            case "table_miss":
                return self._get(CURVE[-1][1]) * self._get("miss_share") / self._memory_speed
            case "line_miss":
                return self._get("further_record_ns") * self._get("miss_share") / self._memory_speed
            case "shared_write":
                return self._get("flow_packet_ns") * (1 / self._get("shared_state_ratio") - 1) / self._speed
            case _:
                return self._get(PRICES[operation]) / self._speed

    def block(self, block: Block) -> float:
        """A block's instructions and branch."""
        return self.price(block_operations(block, WORD_BITS))

    def missing_share(self, use: AccessRates, indexed: bool) -> float:
        """Share (0..1) of the cost of a fully uncached table that its accesses pay.

        By interpolating the curve, linearly in the logarithm of the number of flows between points: what it leaves
        out is the part of a uniformly used table that is cached. Where some entries are used more, that part of the
        table is the most used one. ``indexed``: a hash index line comes on top of the entry's own.
        """
        entries = use.working_set / max(1, use.entry_bytes)
        lines = -(-use.entry_bytes // LINE) + 1 if indexed else use.entry_bytes / LINE
        flows = entries * lines * LINE / self._flow_bytes / 1000
        points = [(k, self._get(name)) for k, name in CURVE]
        return 1 - use.head(1 - interpolate(points, flows) / points[-1][1])

    def access(self, state: State, kind: str, use: AccessRates) -> float:
        """Nanoseconds of one access.

        Raises:
            KeyError: a kind of access such a state does not have (a defect of the caller).
        """
        return self.price(self.access_operations(state, kind, use))

    def access_operations(self, state: State, kind: str, use: AccessRates) -> dict[str, float]:
        """Operations of one access; counts may be fractions."""
        ops = _own_operations(state, kind)
        miss = self.missing_share(use, indexed=not isinstance(state, CounterState | PoolState | AclState))
        one_line = isinstance(state, PoolState) or (kind == "lookup" and isinstance(state, AclState | LpmState))
        if one_line or kind in ("delete", "count"):
            ops["line_miss"] = miss
        elif kind in ("lookup", "insert", "police", "track"):
            ops["table_miss"] = miss
        elif "relink" in ops:
            # The list neighbours of the entry.
            ops["line_miss"] = 2 * miss
        return ops


def _own_operations(state: State, kind: str) -> dict[str, float]:
    match kind:
        case "lookup":
            return _find(state)
        case "insert" if isinstance(state, PoolState):
            return {"allocate": 1}
        case "delete" if isinstance(state, PoolState):
            return {"record": 1}
        case "insert":
            return {**_find(state), "insert": 1, "shared_write": 1}
        case "delete":
            return {"delete": 1, "shared_write": 1}
        case "touch":
            lru = isinstance(state, MapState) and state.full == "evict_lru"
            return {"record": 1, "shared_write": 1, **({"relink": 1} if lru else {})}
        case "load":
            # The look-up has brought its line.
            return {"field_read": 1}
        case "store" | "count":
            return {"record": 1}
        case "police":
            return {**_find(state), "police": 1, "shared_write": 1}
        case "track":
            return {**_find(state), "shared_write": 1}
    raise KeyError(kind)


def _find(state: State) -> dict[str, float]:
    match state:
        case AclState():
            return {"acl": 1, "acl_doubling": math.ceil(math.log2(max(2, len(state.entries))))}
        case LpmState():
            return {"lpm": -(-key_bytes(state) // 4)}
        case MapState() | MeterState() | FragmentState():
            return {"hash": -(-key_bytes(state) // HASH_BYTES), "probe": 1}
        case CounterState() | PoolState():
            return {}


def interpolate(points: Sequence[tuple[int, float]], x: float) -> float:
    """Linear in log x between points of rising x, constant beyond the ends."""
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * math.log(x / x0) / math.log(x1 / x0)
    return points[-1][1]
