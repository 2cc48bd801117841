"""Throughput from demands: a soft minimum over resources, and ceilings of hot entries and cache shares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Throughput:
    """What a set of resources lets through.

    Attributes:
        rate: packets per second; infinite when nothing is demanded.
        binding: the resource with the largest utilisation, None when nothing is demanded.
        utilisation: per demanded resource the share of it in use at ``rate`` (0..1).
    """

    rate: float
    binding: str | None
    utilisation: Mapping[str, float]


def softmin(demands: Mapping[str, float], rates: Mapping[str, float], exponent: float = 8.0) -> Throughput:
    """X = (sum over r of (D_r / R_r)^s)^(-1/s).

    The plain minimum of R_r / D_r is reached as s grows; a finite s is what queueing between the resources costs near
    the knee. ``demands``: units per packet, ``rates``: units per second, ``exponent``: s >= 1.

    Raises:
        KeyError: a demanded resource has no rate.
        ValueError: a negative demand, a rate that is not positive, or an exponent below 1.
    """
    if exponent < 1:
        raise ValueError(f"the soft-min exponent must be at least 1, not {exponent}")
    times = {name: _seconds(name, demand, rates[name]) for name, demand in demands.items() if demand != 0}
    if not times:
        return Throughput(math.inf, None, {})
    binding = max(times, key=lambda name: times[name])
    longest = times[binding]
    # Scaled by the largest term: the powers themselves leave the range of floats.
    seconds: float = longest * sum((t / longest) ** exponent for t in times.values()) ** (1 / exponent)
    rate = 1 / seconds
    return Throughput(rate, binding, {name: t * rate for name, t in times.items()})


def _seconds(name: str, demand: float, rate: float) -> float:
    if demand < 0 or rate <= 0:
        raise ValueError(f"resource {name}: demand {demand} must not be negative, rate {rate} must be positive")
    return demand / rate


def total(demands: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Sum of demands, each times its weight (the share of packets that cause it)."""
    found: dict[str, float] = {}
    for weight, demand in demands:
        for name, amount in demand.items():
            found[name] = found.get(name, 0.0) + weight * amount
    return found


def cached_share(cache_bytes: float, working_set: float) -> float:
    """Share of accesses that find their line in a cache when all entries are used alike: min(1, size / working set)."""
    return 1.0 if working_set <= cache_bytes else max(0.0, cache_bytes) / working_set


def hot_ceiling(rate_of_line: float, hottest: float, operations: float) -> float:
    """Packets per second that one memory line lets through: R / (p_max * operations); infinite when it is unused.

    ``hottest``: share of packets that use the most used entry; ``operations``: operations on its line per such packet.
    """
    used = hottest * operations
    return rate_of_line / used if used > 0 else math.inf


def lock_ceiling(hold_ns: float, hottest: float) -> float:
    """Packets per second that one lock lets through when ``hottest`` of the packets hold it for ``hold_ns`` each."""
    busy = hottest * hold_ns
    return 1e9 / busy if busy > 0 else math.inf
