"""Latency of a packet: unloaded time plus queueing at every resource; a full buffer's worth at saturation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cora.models.target import Resource


@dataclass(frozen=True)
class Latency:
    """Nanoseconds: ``unloaded``, ``service`` and ``queueing`` add up to ``total``.

    ``saturated`` names the resource whose full buffer decides, None below saturation.
    """

    unloaded: float
    service: float
    queueing: float
    saturated: str | None = None

    @property
    def total(self) -> float:
        return self.unloaded + self.service + self.queueing


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival to M/M/c has to wait; ``offered`` in Erlang. 1 at or above saturation.

    By the recursion of Erlang B, which neither overflows nor cancels: B(0) = 1, B(c) = aB(c-1) / (c + aB(c-1)).
    """
    if offered >= servers:
        return 1.0
    blocking = 1.0
    for c in range(1, servers + 1):
        blocking = offered * blocking / (c + offered * blocking)
    return blocking / (1 - offered / servers * (1 - blocking))


def waiting(servers: int, service: float, rate: float) -> float:
    """Mean wait in the queue of M/M/c in the unit of ``service`` (rate in its inverse); infinite at saturation."""
    offered = rate * service
    if offered >= servers:
        return math.inf
    return erlang_c(servers, offered) * service / (servers - offered)


def latency(unloaded_ns: float, demands: Mapping[str, float], resources: Iterable[Resource], rate: float,
            cores: int = 1) -> Latency:
    """Mean latency in nanoseconds of a packet at ``rate`` packets per second.

    Below saturation each demanded resource is M/M/c with its ``servers`` (times ``cores`` where it scales). Where a
    resource is saturated the packet sees its full buffer: room / capacity; infinite if it has none, and where there is
    nothing of the resource (no cores).
    """
    service = queueing = full = 0.0
    saturated: str | None = None
    for r in resources:
        demand = demands.get(r.name, 0.0)
        if demand <= 0:
            continue
        capacity = r.rate * (cores if r.scales else 1) / demand
        if not capacity:
            saturated, full = r.name, math.inf
            continue
        servers = r.servers * (cores if r.scales else 1)
        each = servers / capacity * 1e9
        if rate < capacity:
            service += each
            queueing += waiting(servers, each, rate * 1e-9)
            continue
        stay = r.room / capacity * 1e9 if r.room else math.inf
        if saturated is None or stay > full:
            saturated, full = r.name, stay
    if saturated is None:
        return Latency(unloaded_ns, service, queueing)
    return Latency(unloaded_ns, service, max(0.0, full - unloaded_ns - service), saturated)
