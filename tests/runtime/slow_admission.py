"""The admission policy of docs/profile.md, "Lending entries", written down plainly: one point at a time, no tricks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Entry = tuple[int, int]


@dataclass(frozen=True)
class Move:
    """``kind``: use, make, end or change; the entry ``entry`` of ``component``."""

    kind: str
    component: int
    entry: int


@dataclass(frozen=True)
class Packet:
    """A packet's path and time, and what happened since the packet before it."""

    path: int
    time: int
    moves: tuple[Move, ...]


@dataclass
class Known:
    """What is known of a live entry. ``gap`` None: it had one packet only. ``seen``: packets at the owner."""

    last: int
    gap: int | None = None
    seen: int = 0


@dataclass
class Tally:
    installs: int = 0
    removals: int = 0
    recalls: int = 0
    peak: int = 0
    served: Counter[int] = field(default_factory=Counter)


@dataclass
class Point:
    """One component lent in one way, at most ``capacity`` entries at once, each after ``threshold`` packets."""

    component: int
    capacity: int | None
    threshold: int
    aligned: Callable[[int], bool]
    unchanging: bool
    window_of: Callable[[int], int]
    entries: dict[int, Known] = field(default_factory=dict)
    lent: set[int] = field(default_factory=set)
    whole: Tally = field(default_factory=Tally)
    windows: dict[int, Tally] = field(default_factory=dict)
    active: bool = False
    area: int = 0
    now: int | None = None

    def run(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            self.packet(packet)

    def packet(self, packet: Packet) -> None:
        if self.now is not None:
            self.area += len(self.lent) * (packet.time - self.now)
        self.now = packet.time
        window = self.windows.setdefault(self.window_of(packet.time), Tally(peak=len(self.lent)))
        tallies = (self.whole, window)
        mine = [m for m in packet.moves if m.component == self.component]
        changes = any(m.kind == "change" for m in mine)
        aligned = self.aligned(packet.path) and not (self.unchanging and changes)
        self.active = self.active or aligned
        touched: dict[int, bool] = {}
        for move in mine:
            if move.kind == "end":
                self.end(move.entry, tallies)
                touched.pop(move.entry, None)
            elif move.kind == "make":
                self.entries[move.entry] = Known(packet.time)
                touched[move.entry] = True
            elif move.kind == "use" and move.entry not in touched:
                touched[move.entry] = False
                self.use(move.entry, packet, aligned, tallies)
        for entry, made in touched.items():
            known = self.entries[entry]
            if not made:
                gap = packet.time - known.last
                known.gap = gap if known.gap is None else known.gap - known.gap // 8 + gap // 8
                known.last = packet.time
        for entry, made in touched.items():
            if self.active and (aligned or made) and entry not in self.lent:
                self.entries[entry].seen = min(255, self.entries[entry].seen + 1)
                self.offer(entry, packet.time, tallies)

    def use(self, entry: int, packet: Packet, aligned: bool, tallies: tuple[Tally, ...]) -> None:
        if aligned and entry in self.lent:
            for tally in tallies:
                tally.served[packet.path] += 1
        if aligned:
            return
        self.entries[entry].seen = 0
        if entry in self.lent:
            self.lent.remove(entry)
            for tally in tallies:
                tally.recalls += 1

    def end(self, entry: int, tallies: tuple[Tally, ...]) -> None:
        del self.entries[entry]
        if entry in self.lent:
            self.lent.remove(entry)
            for tally in tallies:
                tally.removals += 1

    def offer(self, entry: int, now: int, tallies: tuple[Tally, ...]) -> None:
        if self.entries[entry].seen < self.threshold:
            return
        if self.capacity is not None and len(self.lent) == self.capacity:
            other = min(self.lent, key=lambda e: (self.entries[e].last, e))
            if not self.replaces(self.entries[entry], self.entries[other], now):
                return
            self.lent.remove(other)
            self.entries[other].seen = 0
            for tally in tallies:
                tally.removals += 1
        self.lent.add(entry)
        for tally in tallies:
            tally.installs += 1
            tally.peak = max(tally.peak, len(self.lent))

    def replaces(self, candidate: Known, other: Known, now: int) -> bool:
        idle = now - other.last
        if candidate.gap is None or idle <= candidate.gap:
            return False
        if other.gap is None or idle // 16 >= other.gap:
            return True
        return candidate.seen >= 8 and candidate.gap <= other.gap // 2
