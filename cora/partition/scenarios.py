"""Scenarios: samples of the model's parameter box and of how traffic may differ from its profile, drawn together.

How traffic varies in a scenario (factors are log-normal; `Spread` has their P90, the P10 is its inverse):

* time: a stretch of the profile's windows, between a twentieth and all of it, gives path mix, frame size and new flows.
* churn: paths that make an entry have that many times the packets (at most half of all), the others give way; entries
  that die follow.
* popularity: the most used entry gets that many times the accesses.
* working set: that many times the entries are alive and touched (at most the declared capacity).
* size: frames have that many times the mean length, between 60 and 9,216 octets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cora.analysis.accesses import capacity_of
from cora.analysis.demand import expiries_per_packet, rates_of
from cora.analysis.profile import PathUse, Profile, StateUse, WindowUse
from cora.ir.nodes import Program
from cora.models.parameters import samples
from cora.models.target import Target
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.partition.problem import Vector
from cora.partition.ways import Prices, Traffic, Use, account_of, hosted_ports, makes_entries

# The standard normal's 90 % quantile, and where draws are cut.
_Z90 = 1.2815515655446004
_Z_LIMIT = 2.5
_MOST_NEW = 0.5
_FINE = 10**6
_SMALLEST, _LARGEST = 60.0, 9216.0
# Uses that together make up less than this share of the demand on every resource keep their central price; a resource
# tells nothing while its utilisation is below this share of the highest one.
_NEGLIGIBLE = 5e-3
_IDLE = 0.1


@dataclass(frozen=True)
class Spread:
    """P90 of the factors by which traffic may differ from its profile (1: not at all).

    ``stretch``: the shortest stretch of the profile that may stand for all of it, as a share of its windows.
    """

    churn: float = 2.0
    popularity: float = 2.0
    working_set: float = 2.0
    size: float = 1.25
    stretch: float = 0.05


USUAL = Spread()
NO_SPREAD = Spread(1.0, 1.0, 1.0, 1.0, 1.0)
FACTORS = ("churn", "popularity", "working_set", "size")


@dataclass(frozen=True)
class Drawn:
    """The traffic of one scenario as the profile it would have given, and the `FACTORS` it was drawn with."""

    profile: Profile
    factors: Mapping[str, float]


class _Priced:
    """What the uses of one instance cost in every scenario."""

    def __init__(self, instance: Instance, targets: Sequence[Target], traffic: Sequence[Traffic]) -> None:
        self.instance, self._targets, self._traffic = instance, targets, traffic
        self._prices = Prices(instance)
        self._known: dict[Use, Vector] = {}

    def central(self, use: Use) -> Vector:
        """[K + 1] in the first scenario."""
        return self._prices.row(use, self._targets[0], self._traffic[0])

    def varied(self, use: Use) -> Vector:
        """[S, K + 1]."""
        if use not in self._known:
            self._known[use] = np.array([self._prices.row(use, target, t)
                                         for target, t in zip(self._targets, self._traffic, strict=True)])
        return self._known[use]


class Scenarios:
    """``count`` scenarios of an instance; the first is the centre: the model's and the profile's own figures."""

    def __init__(self, instance: Instance, count: int, seed: int, spread: Spread = USUAL) -> None:
        """Draw them, the same for the same seed."""
        kind = type(instance.target)
        program, profile = instance.program, instance.profile
        traffic = _TrafficSampler(program, profile, spread, np.random.default_rng([seed, 1]))
        centre = Drawn(profile, dict.fromkeys(FACTORS, 1.0))
        self.instance = instance
        self.paths: tuple[PathUse, ...] = profile.paths
        self.targets: tuple[Target, ...] = (instance.target,
                                            *(kind(m) for m in samples(instance.target.model, count - 1, seed)))
        self.drawn: tuple[Drawn, ...] = (centre, *(traffic.draw() for _ in range(count - 1)))
        self.traffic = tuple(Traffic(d.profile.mean_frame, rates_of(program, d.profile)) for d in self.drawn)
        self.mix = np.array([[p.packets / d.profile.packets for p in d.profile.paths] for d in self.drawn])
        self.frames = np.array([t.frame for t in self.traffic])
        self.exponents = np.array([t.exponent for t in self.targets])
        self.rates = np.array([[r.rate for r in target.resources(t.frame)]
                               for target, t in zip(self.targets, self.traffic, strict=True)])
        self.scales = np.array([r.scales for r in instance.resources])
        self._hosted = _hosted_share(instance)
        self._known: dict[int, _Priced] = {}

    def __len__(self) -> int:
        return len(self.targets)

    def demand(self, placement: Placement) -> Vector:
        """[S, K + 1] mean demand of a packet under every scenario, the last column unloaded latency in ns."""
        account = account_of(placement, self.paths)
        priced = self._priced(placement.instance)
        often = self.mix @ account.counts
        often += (1 - self._hosted) * account.arrivals[0] + self._hosted * account.arrivals[1]
        for name, row in zip(account.dying, account.deaths, strict=True):
            often += self._dying(name)[:, None] * row
        central = np.array([priced.central(u) for u in account.uses])
        telling = self._telling(often.max(axis=0), central)
        total: Vector = often[:, ~telling] @ central[~telling]
        for number in np.flatnonzero(telling):
            total += often[:, number, None] * priced.varied(account.uses[number])
        return total

    def _dying(self, name: str) -> Vector:
        program = self.instance.program
        return np.array([expiries_per_packet(program, d.profile, program.state(name)) for d in self.drawn])

    def _priced(self, instance: Instance) -> _Priced:
        """Prices of a variant's uses: the same use is another piece of code where blocks are cut in another way."""
        known = self._known.get(id(instance))
        if known is None:
            known = self._known[id(instance)] = _Priced(instance, self.targets, self.traffic)
        return known

    def _telling(self, often: Vector, central: Vector) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which uses are asked about in every scenario: the largest, until what is left of a resource is negligible."""
        weighted = often[:, None] * central
        with np.errstate(divide="ignore", invalid="ignore"):
            loads = np.nan_to_num(weighted[:, :-1].sum(axis=0) / self.rates[0])
        keep = np.zeros(len(often), np.bool_)
        for column in weighted.T[np.array([*(loads >= _IDLE * loads.max(initial=0.0)), True])]:
            order = np.argsort(-column, kind="stable")
            rest = column.sum() - column[order].cumsum()
            if column.any():
                keep[order[:int(np.argmax(rest <= _NEGLIGIBLE * column.sum())) + 1]] = True
        return keep

    # What a demand reaches.

    def loads(self, demand: Vector, rate: Vector | float) -> Vector:
        """[S, K] seconds of each resource (of one core where it scales) that a second of ``rate`` packets/s takes."""
        with np.errstate(divide="ignore", invalid="ignore"):
            used = demand[:, :-1] * np.broadcast_to(rate, len(self))[:, None]
            found: Vector = np.where(used > 0, used / self.rates, 0.0)
        return found

    def throughput(self, demand: Vector, cores: int) -> Vector:
        """[S] packets a second with host cores, by the soft minimum."""
        loads = self.loads(demand, 1.0)
        with np.errstate(divide="ignore"):
            loads = np.where(self.scales, loads / cores if cores else np.where(loads > 0, math.inf, 0.0), loads)
            norm = _norm(loads, self.exponents)
            return np.where(norm > 0, 1 / norm, math.inf)

    def cores(self, demand: Vector, rate: Vector | float) -> Vector:
        """[S] host cores, fractional, that carry a rate; infinite where none do.

        From sum_r u_r^s + sum_h (u_h / c)^s = 1 with r over the resources that do not grow with cores and h over those
        that do: c = (sum_h u_h^s / (1 - sum_r u_r^s))^(1/s).
        """
        loads = self.loads(demand, rate)
        fixed = _norm(np.where(self.scales, 0.0, loads), self.exponents)
        work = _norm(np.where(self.scales, loads, 0.0), self.exponents)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            room = 1 - np.minimum(fixed, 1.0) ** self.exponents
            found: Vector = np.where(room > 0, work / room ** (1 / self.exponents), math.inf)
        return found

    def binding(self, demand: Vector, cores: int) -> list[str]:
        """[S] the resource that is used most; empty where nothing is used."""
        loads = self.loads(demand, 1.0)
        loads = np.where(self.scales, loads / max(cores, 1), loads)
        names = [r.name for r in self.instance.resources]
        return [names[int(row.argmax())] if row.any() else "" for row in loads]


def _norm(loads: Vector, exponents: Vector) -> Vector:
    """[S] soft maxima of rows; infinite where an element is."""
    top = loads.max(axis=1, initial=0.0)
    usable = (top > 0) & np.isfinite(top)
    scaled = np.where(usable[:, None], loads / np.where(usable, top, 1.0)[:, None], 0.0)
    found: Vector = np.where(usable, top * (scaled ** exponents[:, None]).sum(axis=1) ** (1 / exponents), top)
    return found


def _hosted_share(instance: Instance) -> float:
    """Share of packets that arrive on ports that face the host alone."""
    hosted = hosted_ports(instance.program)
    arrived = {name: packets for name, (packets, _) in instance.profile.ports.items()}
    total = sum(arrived.values())
    return sum(n for name, n in arrived.items() if name in hosted) / total if total else 0.0


class _TrafficSampler:
    def __init__(self, program: Program, profile: Profile, spread: Spread, random: np.random.Generator) -> None:
        self.program, self.profile, self.spread, self.random = program, profile, spread, random
        self.capacity = {s.name: capacity_of(s) for s in program.states}
        # Rare paths keep their weight in whole packets.
        self.scale = -(-_FINE // profile.packets)
        self.packets = np.array([p.packets for p in profile.paths], np.float64)
        self.number = {p.id: i for i, p in enumerate(profile.paths)}
        self.new = np.array([makes_entries(program, p) for p in profile.paths], np.bool_)
        self.windows = [w for w in profile.windows if w.packets]

    def draw(self) -> Drawn:
        factor = {name: self.factor(getattr(self.spread, name)) for name in FACTORS}
        stretch = self.stretch()
        packets, new = self.churned(self.mixed(stretch), factor["churn"])
        profile = self.profile
        mean = sum(w.octets for w in stretch) / sum(w.packets for w in stretch) if stretch else profile.mean_frame
        frame = min(max(mean * factor["size"], min(_SMALLEST, mean)), max(_LARGEST, mean))
        total = profile.packets * self.scale
        return Drawn(replace(
            profile, packets=total, octets=max(1, round(total * frame)),
            paths=tuple(replace(p, packets=max(1, round(n * self.scale))) for p, n in zip(profile.paths, packets,
                                                                                             strict=True)),
            states={name: self.state(use, self.capacity[name], factor, new) for name, use in profile.states.items()},
        ), factor)

    def factor(self, spread: float) -> float:
        z = float(np.clip(self.random.standard_normal(), -_Z_LIMIT, _Z_LIMIT))
        return math.pow(spread, z / _Z90)

    def stretch(self) -> Sequence[WindowUse]:
        """Windows that follow each other, of a length drawn evenly on a logarithmic scale."""
        count = len(self.windows)
        length = max(1, round(count * math.pow(self.spread.stretch, float(self.random.random()))))
        first = int(self.random.integers(0, max(count - length, 0) + 1))
        return self.windows[first:first + length]

    def mixed(self, stretch: Sequence[WindowUse]) -> Vector:
        """[P] packets of each path in the mix of a stretch; the profile's where its windows do not tell."""
        found = np.zeros(len(self.packets))
        for window in stretch:
            for path, packets in window.paths:
                found[self.number[path]] += packets
        return found * (self.packets.sum() / found.sum()) if found.any() else self.packets

    def churned(self, packets: Vector, factor: float) -> tuple[Vector, float]:
        """A path mix with so many times the new entries, and how many times those of the profile it then has."""
        total, before = float(packets.sum()), float(packets[self.new].sum())
        central = float(self.packets[self.new].sum())
        if not before or not central or before == total:
            return packets, before / central if central else 1.0
        after = min(before * factor, max(_MOST_NEW * total, before))
        scaled = np.where(self.new, packets * (after / before), packets * ((total - after) / (total - before)))
        return scaled, after / central

    def state(self, use: StateUse, capacity: int, factor: Mapping[str, float], new: float) -> StateUse:
        """How a state is used when popularity, working set and new entries are so many times the profile's."""
        def times(count: int) -> int:
            return round(count * new * self.scale)

        entries = _times(use.entries_peak, factor["working_set"], max(capacity, use.entries_peak))
        hottest = use.popularity[0][1] if use.popularity else 0.0
        head = min(1.0, max(hottest * factor["popularity"], 1 / max(entries, 1)))
        return replace(
            use, inserts=(times(use.inserts[0]), times(use.inserts[1])), deletes=times(use.deletes),
            expiries=times(use.expiries), entries_peak=entries,
            working_set=tuple(_times(n, factor["working_set"], max(capacity, n)) for n in use.working_set),
            popularity=((use.popularity[0][0], head), *use.popularity[1:]) if use.popularity else (),
        )


def _times(count: int, factor: float, most: int) -> int:
    return min(max(1, round(count * factor)), most) if count else 0
