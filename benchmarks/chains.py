"""Synthetic placement problems: parallel chains of stateful stages on a NIC with Arm cores and a host.

A packet is sent to one of the chains and runs its stages one after the other; at each it may leave. A stage is five
units of code: look-up (with a state), the way after a hit, the way after a miss, a check, a join. Some states are used
by a later stage again. There are 3 places with 6 memories. Capacities are tight: the memories near the wire hold a
fraction of the states, and the cycles there carry a fraction of the work, so that many placements are nearly as good as
the best one.
"""

from __future__ import annotations

import random

import numpy as np

from cora.models.target import Resource
from cora.partition.problem import CodeStore, Edge, Option, Problem, Store, WholeState

STAGE = 5
_CHAIN = 10
PLACES = ("nic", "arm", "host")
# Per tier: place, share of all states' bytes it holds, nanoseconds an access takes of its engine, and of latency.
_TIERS = (("lmem", 0, 0.02, 0.5, 5.0), ("ctm", 0, 0.08, 1.0, 100.0), ("emem", 0, 0.35, 4.0, 400.0),
          ("cache", 1, 0.05, 2.0, 20.0), ("ram", 1, 0.6, 8.0, 120.0), ("dram", 2, 4.0, 3.0, 90.0))
RATE = 10e6


def chain_problem(blocks: int, seed: int = 1) -> Problem:
    """A problem of about ``blocks`` units and a fifth as many states, made for RATE packets/s and tens of cores."""
    return _Chains(blocks, seed).problem()


class _Chains:
    def __init__(self, blocks: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.stages = max(1, blocks // STAGE)
        self.resources = (
            Resource("nic-cycles", 1.0, "cycle", "nic", servers=400, room=800),
            Resource("nic-memory", 1.0, "access", "nic"),
            Resource("arm-cycles", 1.0, "cycle", "arm", servers=8, room=4096),
            Resource("host-cycles", 3e9, "cycle", "host", scales=True, room=4096),
            Resource("host-link", 14e9, "byte", "nic"),
        )
        self.width = len(self.resources) + 1
        self.share: list[float] = []
        self.edges: list[tuple[int, int, float, int]] = []
        self.states: list[tuple[list[int], int, float]] = []

    def problem(self) -> Problem:
        self.chains()
        units = len(self.share)
        work = np.array([self.random.uniform(20, 120) for _ in range(units)]) * np.array(self.share)
        cost = np.zeros((units, 3, self.width))
        for place, (column, factor) in enumerate(((0, 2.0), (2, 1.4), (3, 1.0))):
            cost[:, place, column] = work * factor
            cost[:, place, -1] = work * factor / (0.8, 2.5, 3.0)[place]
        total = sum(amount for _, amount, _ in self.states)
        stores = tuple(Store(name, place, int(total * share)) for name, place, share, _, _ in _TIERS)
        whole = tuple(WholeState(f"state{i}", tuple(users), tuple(self.option(t, amount, often)
                                                                  for t in range(len(_TIERS))))
                      for i, (users, amount, often) in enumerate(self.states))
        code = tuple((frozenset([u]), self.random.randint(10, 60)) for u in range(units))
        size = sum(s for _, s in code)
        return Problem(
            self.sized(cost), 8.0, np.zeros(self.width), np.ones((units, 3), np.bool_), cost,
            tuple(self.edge(*e) for e in self.edges), whole, (), (), stores, (),
            (CodeStore(0, int(size * 0.6), code),), (0, 1, 2), PLACES, tuple(f"unit{u}" for u in range(units)),
        )

    def sized(self, cost: np.ndarray) -> tuple[Resource, ...]:
        """Rates for which the cycles at NIC and Arm carry a part of the work, and their memories a part of the uses."""
        uses = sum(often for _, _, often in self.states)
        rates = (0.35 * cost[:, 0, 0].sum() * RATE, 1.2 * uses * RATE, 0.2 * cost[:, 1, 2].sum() * RATE)
        found = dict(zip(("nic-cycles", "nic-memory", "arm-cycles"), rates, strict=True))
        return tuple(Resource(r.name, found.get(r.name, r.rate), r.unit, r.place, r.scales, r.servers, r.room)
                     for r in self.resources)

    def unit(self, share: float) -> int:
        self.share.append(share)
        return len(self.share) - 1

    def chains(self) -> None:
        start = self.unit(1.0)
        number = max(1, self.stages // _CHAIN)
        weights = [1 / (i + 1) ** 0.8 for i in range(number)]
        left = [weight / sum(weights) for weight in weights]
        ends = [start] * number
        waiting: list[list[tuple[list[int], int, float]]] = [[] for _ in range(number)]
        for stage in range(self.stages):
            chain = stage % number
            ends[chain], left[chain] = self.stage(ends[chain], left[chain], waiting[chain])

    def stage(self, before: int, share: float, waiting: list[tuple[list[int], int, float]]) -> tuple[int, float]:
        r = self.random
        miss = r.choice((0.01, 0.05, 0.3))
        units = [self.unit(share * s) for s in (1.0, 1 - miss, miss, 1.0, 1.0 - miss / 2)]
        lookup, hit, missed, check, join = units
        live = r.choice((0, 8, 24))
        for source, target, weight in ((before, lookup, 1.0), (lookup, hit, 1 - miss), (lookup, missed, miss),
                                       (hit, check, 1 - miss), (missed, check, miss), (check, join, 1 - miss / 2)):
            self.edges.append((source, target, share * weight, live))
        users = [lookup] + ([check] if r.random() < 0.3 else [])
        state = (users, int(2 ** r.uniform(10, 22)), share * r.uniform(1, 4))
        if waiting and r.random() < 0.3:
            waiting.pop()[0].append(lookup)
        self.states.append(state)
        if r.random() < 0.3:
            waiting.append(state)
        return join, share * (1.0 - miss / 2)

    def option(self, tier: int, amount: int, often: float) -> Option:
        _, place, _, busy, latency = _TIERS[tier]
        cost = np.zeros(self.width)
        if place == 0:
            cost[0], cost[1] = often * 10, often * busy / 2
        elif place == 1:
            cost[2] = often * busy * 10
        else:
            cost[3] = often * busy * 60
        cost[-1] = often * latency
        return Option(place, tier, amount, cost)

    def edge(self, source: int, target: int, share: float, live: int) -> Edge:
        cross = np.zeros((3, self.width))
        cross[1, 0], cross[1, -1] = share * 40, share * 800
        cross[2, 4], cross[2, 3], cross[2, -1] = share * (300 + live), share * 80, share * 1200
        visit = np.zeros((3, self.width))
        visit[0, 0], visit[1, 2], visit[2, 3] = share * 60, share * 150, share * 100
        return Edge(source, target, cross, np.array([True, True, True]), visit)
