"""The admission simulator against the plain statement of its policy, on random moves of entries."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from slow_admission import Move, Packet, Point, Tally

from cora.runtime.admission.native import Simulator, Totals

KIND = {"use": 0, "make": 1, "end": 2, "change": 3}
PACKET = 4
PATHS = 6


def words_of(packets: list[Packet]) -> NDArray[np.uint64]:
    """As cora/emit/runtime/moves.h has them."""
    out: list[int] = []
    for packet in packets:
        out += [KIND[m.kind] << 61 | m.component << 40 | m.entry for m in packet.moves]
        out += [PACKET << 61, packet.path, packet.time]
    return np.array(out, np.uint64)


def aligned(path: int, way: int) -> bool:
    return bool(path % 3) if way == 0 else path % 3 == 2


class Traffic:
    """Random packets: entries are made, used with very different rates, changed, and end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.components = self.random.choice((1, 2))
        self.entries = self.random.choice((3, 8, 30))
        self.weights = [self.random.random() ** 3 + 0.001 for _ in range(self.entries)]
        self.live: list[list[int]] = [[] for _ in range(self.components)]

    def packets(self, count: int) -> list[Packet]:
        time, out = self.random.randrange(1000), []
        for _ in range(count):
            time += self.random.choice((0, 0, 1, 5, self.random.randrange(self.random.choice((4, 51, 1001)))))
            path = self.random.randrange(PATHS)
            moves = [m for c in range(self.components) for m in self.moves(c, path)]
            out.append(Packet(path, time, tuple(moves)))
        return out

    def moves(self, component: int, path: int) -> list[Move]:
        live, out = self.live[component], []
        for _ in range(self.random.choice((0, 1, 1, 1, 2))):
            kind = self.random.choices(("end", "make", "use"), (8, 17, 75))[0]
            free = [e for e in range(self.entries) if e not in live]
            if kind == "end" and live:
                out.append(Move("end", component, live.pop(self.random.randrange(len(live)))))
            elif kind == "make" and free:
                live.append(self.random.choice(free))
                out.append(Move("make", component, live[-1]))
            # A path that is aligned touches one entry.
            elif kind == "use" and live and not (path % 3 and any(m.kind in ("use", "make") for m in out)):
                entry = self.random.choices(live, [self.weights[e] for e in live])[0]
                out.append(Move("use", component, entry))
                if self.random.random() < 0.2:
                    out.append(Move("change", component, entry))
        return out


def window_of(time: int, windows: tuple[int, int, int]) -> int:
    start, length, count = windows
    return min(count - 1, (time - start) // length)


def as_tally(totals: Totals) -> Tally:
    return Tally(totals.installs, totals.removals, totals.recalls, totals.peak, Counter(totals.served))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", range(40))
def test_the_simulator_follows_the_policy_exactly(seed: int) -> None:
    traffic = Traffic(seed)
    packets = traffic.packets(traffic.random.choice((50, 400)))
    thresholds = traffic.random.choice(((1, 2, 4, 8), (1, 3), (2,)))
    start, end = packets[0].time, packets[-1].time
    length = max(1, (end - start) // 5)
    count = (end - start) // length + 1
    spans = (start, length, count)
    simulator = Simulator(
        traffic.components, spans,
        lambda path: [aligned(path, way) for _ in range(traffic.components) for way in range(2)], unchanging=(1,),
        thresholds=thresholds, smallest=traffic.random.choice((1, 2, 3)))
    for some in (packets[:20], packets[20:]):
        words = words_of(some)
        simulator.feed(words.ctypes.data, len(words))
    simulator.finish()
    taken = {(int(w), int(p)): int(n) for w, p, n in simulator.taken()}
    assert taken == Counter((window_of(p.time, spans), p.path) for p in packets)
    for component in range(traffic.components):
        for way in range(2):
            windows = {w: simulator.window(component, way, w) for w in range(count)}
            for number, point in enumerate(simulator.points(component, way)):
                slow = Point(component, point.capacity, point.threshold, partial(aligned, way=way), way == 1,
                             partial(window_of, windows=spans))
                slow.run(packets)
                assert as_tally(point.whole) == slow.whole
                assert (point.lent, point.area) == (len(slow.lent), slow.area)
                assert point.busiest == max(t.installs for t in slow.windows.values())
                for window, totals in windows.items():
                    if totals:
                        assert as_tally(totals[number]) == slow.windows[window]
    simulator.close()
