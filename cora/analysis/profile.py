"""The profile document: what a traffic does to a program. Its fields are described in docs/profile.md.

A profile is made by running the program natively on the traffic (`cora.runtime.profiling`); the planner reads nothing
else about traffic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cora.documents import Garbled, decode, read_json, read_text
from cora.errors import Kind, fail

FORMAT = "cora-profile"
VERSION = 2
# Counts of packets and times in nanoseconds stay below this in any capture.
LIMIT = 1 << 63
# Of what is told of single entries: how long they live, how often they are used, how long they pause.
ENTRY_QUANTILES = (0.1, 0.5, 0.9, 0.99)
# Shares of the windows that have at most the load of the window that is looked at in detail.
WINDOW_QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class PathUse:
    """One path that packets took: its number (Ball-Larus), its blocks, and the verdict it ends in.

    ``outcomes`` are the edges taken, one per block but the last.
    """

    id: int
    blocks: tuple[str, ...]
    outcomes: tuple[str, ...]
    verdict: str
    packets: int
    octets: int


@dataclass(frozen=True)
class TimeoutUse:
    """What another time-out would have done to a table without bounds.

    ``peak``: entries live at most; ``cut``: entries that would have died of age while more accesses were to come.
    """

    timeout_ns: int
    peak: int
    cut: int


@dataclass(frozen=True)
class StateUse:
    """How one state was used.

    Attributes:
        lookups: per key name (empty for tables with one) [hits, misses]; inserts: [ok, full].
        police: [green, yellow, red, full].
        entries_end, entries_peak: live entries at the end and at most.
        working_set: distinct entries touched per window, in window order.
        popularity: (share of entries, share of accesses) points of the head-mass curve, from the most used entry
            down; the first point is the hottest entry alone.
        lifetimes_ns: quantiles 0.1, 0.5, 0.9, 0.99 of (last use - insert) over the entries that died or still live.
        uses_per_entry: the same quantiles of the number of accesses to one entry.
        sampled_entries: the number of entries the curves are made of.
        window_inserts, window_deletes, window_expiries, window_peaks: entries made, deleted by packets, dead of age or
            evicted, and live at most, per window.
        pauses_ns: quantiles as above of the longest time between two accesses to one entry.
        timeouts: what shorter time-outs would have done, see `TimeoutUse`; empty where nothing expires.
    """

    kind: str
    lookups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inserts: tuple[int, int] = (0, 0)
    police: tuple[int, int, int, int] = (0, 0, 0, 0)
    deletes: int = 0
    expiries: int = 0
    touches: int = 0
    loads: int = 0
    stores: int = 0
    counts: int = 0
    entries_end: int = 0
    entries_peak: int = 0
    working_set: tuple[int, ...] = ()
    popularity: tuple[tuple[float, float], ...] = ()
    lifetimes_ns: tuple[int, ...] = ()
    uses_per_entry: tuple[int, ...] = ()
    sampled_entries: int = 0
    window_inserts: tuple[int, ...] = ()
    window_deletes: tuple[int, ...] = ()
    window_expiries: tuple[int, ...] = ()
    window_peaks: tuple[int, ...] = ()
    pauses_ns: tuple[int, ...] = ()
    timeouts: tuple[TimeoutUse, ...] = ()


@dataclass(frozen=True)
class WindowUse:
    """One window of the traffic: its start (ns), packets, octets, inserts and expiries over all states.

    ``paths``: (path id, packets that took it), only those that were taken.
    """

    start_ns: int
    packets: int
    octets: int
    inserts: int
    expiries: int
    paths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Budget:
    """How entries of a component are lent: at most ``capacity`` at once, each after ``threshold`` packets of it."""

    capacity: int
    threshold: int


@dataclass(frozen=True)
class AdmissionWindow:
    """What `AdmissionPoint` says, of one window alone: ``window`` is its number, ``peak`` the entries lent at most."""

    window: int
    lent: tuple[tuple[int, int], ...]
    installs: int
    removals: int
    recalls: int
    peak: int


@dataclass(frozen=True)
class AdmissionPoint:
    """What lending entries under a budget would have done to these packets; simulated as docs/profile.md says.

    Attributes:
        budgets: by component (`cora.analysis.accesses.components_of`); several where they are lent together.
        lent: (path id, packets) of the packets whose anchor entry was lent when they came and whose path is aligned to
            its end, by path; only those that are not zero.
        installs: entries lent. removals: lent entries that died or were taken back to make room. recalls: lent entries
            taken back because a packet needed them at their owner. What is left is lent at the end.
        peak, mean: entries lent at most, and on average over time.
        busiest: installs of the window with most. Of several components, peak and busiest are the sums of what each
            has, which the two need not reach at the same time.
        windows: the same of the windows at `WINDOW_QUANTILES` of load, by their number.
    """

    budgets: Mapping[str, Budget]
    lent: tuple[tuple[int, int], ...]
    installs: int
    removals: int
    recalls: int
    peak: int
    mean: float
    busiest: int
    windows: tuple[AdmissionWindow, ...]


@dataclass(frozen=True)
class Admission:
    """The admission points of one way of lending: ``resume`` or ``restart`` (docs/profile.md)."""

    mode: Literal["resume", "restart"]
    points: tuple[AdmissionPoint, ...]


@dataclass(frozen=True)
class Profile:
    """A profile. Totals are of the packets that reached the program; times are integer nanoseconds.

    ``admission`` is empty where no state of the program can be split.
    """

    program: str
    program_hash: str
    source: Mapping[str, Any]
    packets: int
    octets: int
    first_ns: int
    last_ns: int
    sizes: tuple[tuple[int, int], ...]
    ports: Mapping[str, tuple[int, int]]
    paths: tuple[PathUse, ...]
    states: Mapping[str, StateUse]
    window_ns: int
    windows: tuple[WindowUse, ...]
    admission: tuple[Admission, ...] = ()

    @property
    def duration_ns(self) -> int:
        return max(0, self.last_ns - self.first_ns)

    @property
    def mean_frame(self) -> float:
        """Mean frame length in bytes."""
        return self.octets / self.packets if self.packets else 0.0

    @property
    def packet_rate(self) -> float:
        """Packets per second over the whole profile; 0 when it has no duration."""
        return self.packets * 1e9 / self.duration_ns if self.duration_ns else 0.0

    def to_json(self) -> str:
        """The document, in a stable order, one trailing newline."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"


def window_at(loads: Sequence[int], quantile: float) -> int:
    """The number of the window whose packets this share of the windows does not exceed; the first of equal ones.

    ``loads``: packets by window, at least one.
    """
    order = sorted(range(len(loads)), key=lambda i: (loads[i], i))
    value = loads[order[max(0, math.ceil(quantile * len(order)) - 1)]]
    return loads.index(value)


def at_window(profile: Profile, quantile: float) -> Profile:
    """The profile of the window whose load (packets) this share of all windows does not exceed.

    ``quantile``: one of `WINDOW_QUANTILES`. What is counted per window is that of the window: packets, octets, paths,
    inserts, deletes, expiries, working set, entries and what admission did. Curves, the shares of ports and the lengths
    of frames stay those of the whole traffic; look-ups and other counts that are not kept per window are left out.
    ``source`` gets a field ``window``.

    Raises:
        CoraError: `Kind.BAD_FLAG` for another quantile, or a window without packets.
    """
    if quantile not in WINDOW_QUANTILES:
        named = ", ".join(f"P{100 * q:g}" for q in WINDOW_QUANTILES)
        raise fail(Kind.BAD_FLAG, f"a profile tells nothing about the window at P{100 * quantile:g} of load",
                   where="--window", hint=f"choose one of {named}")
    number = window_at([w.packets for w in profile.windows], quantile)
    window = profile.windows[number]
    if not window.packets:
        raise fail(Kind.BAD_FLAG, f"the window at P{100 * quantile:g} of load holds no packets", where="--window",
                   hint="choose a higher one, or make the profile again with longer windows")
    packets = dict(window.paths)
    paths = tuple(replace(p, packets=packets[p.id], octets=round(p.octets * packets[p.id] / p.packets))
                  for p in profile.paths if p.id in packets)
    return replace(
        profile, source={**profile.source, "window": {"quantile": quantile, "number": number}}, packets=window.packets,
        octets=window.octets, first_ns=window.start_ns,
        last_ns=min(window.start_ns + profile.window_ns, max(profile.last_ns, window.start_ns)), paths=paths,
        states={name: _state_at(use, number) for name, use in profile.states.items()}, windows=(window,),
        admission=tuple(replace(a, points=tuple(_point_at(p, number) for p in a.points)) for a in profile.admission))


def _state_at(use: StateUse, number: int) -> StateUse:
    def only(values: tuple[int, ...]) -> tuple[int, ...]:
        return values[number:number + 1]

    made, deleted, expired = (sum(only(v)) for v in (use.window_inserts, use.window_deletes, use.window_expiries))
    peak = only(use.window_peaks)
    return StateUse(
        use.kind, inserts=(made, 0), deletes=deleted, expiries=expired,
        entries_peak=peak[0] if peak else use.entries_peak, working_set=only(use.working_set),
        popularity=use.popularity, lifetimes_ns=use.lifetimes_ns, uses_per_entry=use.uses_per_entry,
        sampled_entries=use.sampled_entries, window_inserts=only(use.window_inserts),
        window_deletes=only(use.window_deletes), window_expiries=only(use.window_expiries), window_peaks=peak,
        pauses_ns=use.pauses_ns, timeouts=use.timeouts)


def _point_at(point: AdmissionPoint, number: int) -> AdmissionPoint:
    nothing = AdmissionWindow(number, (), 0, 0, 0, 0)  # nothing could be lent up to then
    found = replace(next((w for w in point.windows if w.window == number), nothing), window=0)
    return replace(point, lent=found.lent, installs=found.installs, removals=found.removals, recalls=found.recalls,
                   peak=found.peak, busiest=found.installs, windows=(found,))


def load_profile(path: Path) -> Profile:
    """Read a profile document.

    Raises:
        CoraError: `Kind.BAD_PROFILE` naming the file and what is wrong with it.
    """
    try:
        data = read_json(read_text(path))
    except OSError as error:
        raise fail(Kind.BAD_PROFILE, f"cannot read the profile: {error.strerror}", where=str(path),
                   hint=_AGAIN) from error
    except json.JSONDecodeError as error:
        raise fail(Kind.BAD_PROFILE, f"this is no profile, nor JSON at all: {error.msg}",
                   where=f"{path}:{error.lineno}:{error.colno}", hint=_AGAIN) from error
    except Garbled as error:
        raise fail(Kind.BAD_PROFILE, f"cannot read the profile: {error}", where=str(path), hint=_AGAIN) from error
    return profile_from_json(data, str(path))


_AGAIN = "make one with `cora profile NF TRACE -o profile.json`"


def profile_from_json(data: Any, where: str) -> Profile:
    """Check a parsed document and build the profile.

    Raises:
        CoraError: `Kind.BAD_PROFILE`.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise fail(Kind.BAD_PROFILE, f"this is no profile: its format is not {FORMAT!r}", where=where, hint=_AGAIN)
    if data.get("version") != VERSION or not isinstance(data["version"], int) or data["version"] is True:
        raise fail(Kind.BAD_PROFILE, f"version {data.get('version')!r} of the profile format is not {VERSION}",
                   where=where, hint="make the profile again with this version of cora")
    try:
        profile = decode(Profile, {k: v for k, v in data.items() if k not in ("format", "version")})
        _check(profile)
    except Garbled as error:
        raise fail(Kind.BAD_PROFILE, str(error), where=where, hint=_AGAIN) from error
    return profile


def _integers(item: Any) -> Iterator[int]:
    if isinstance(item, bool):
        return
    if isinstance(item, int):
        yield item
    elif isinstance(item, Mapping):
        for value in item.values():
            yield from _integers(value)
    elif isinstance(item, tuple | list):
        for value in item:
            yield from _integers(value)


def _check(profile: Profile) -> None:
    """What a reader may rely on without knowing the program."""
    if not all(0 <= n < LIMIT for n in _integers(asdict(profile))):
        raise Garbled(f"a count is negative or beyond {LIMIT - 1}")
    counts = [("packets", profile.packets), ("octets", profile.octets), ("window_ns", profile.window_ns)]
    counts += [(f"paths[{i}].packets", p.packets) for i, p in enumerate(profile.paths)]
    counts += [(f"paths[{i}].octets", p.octets) for i, p in enumerate(profile.paths)]
    for name, count in counts:
        if count < 0 or (count == 0 and name in ("packets", "window_ns")):
            raise Garbled(f"{name}: {count} is too small")
    for i, path in enumerate(profile.paths):
        if not path.blocks or len(path.outcomes) != len(path.blocks) - 1:
            raise Garbled(f"paths[{i}]: a path has one outcome less than blocks")
    for state, use in profile.states.items():
        for name in ("lifetimes_ns", "uses_per_entry", "pauses_ns"):
            _check_quantiles(f"states.{state}.{name}", getattr(use, name))
    if not profile.octets:
        raise Garbled("octets: the packets have none, so no rate can be planned")
    if profile.last_ns < profile.first_ns:
        raise Garbled(f"last_ns: {profile.last_ns} lies before first_ns")
    # A held fragment takes one path when it arrives and one when it is released.
    taken = sum(p.packets for p in profile.paths)
    if taken < profile.packets:
        raise Garbled(f"paths: they add up to {taken} packets, the total says {profile.packets}")


def _check_quantiles(where: str, found: tuple[int, ...]) -> None:
    if found and (len(found) != len(ENTRY_QUANTILES) or list(found) != sorted(found)):
        shares = ", ".join(f"{q:g}" for q in ENTRY_QUANTILES)
        raise Garbled(f"{where}: expected the quantiles {shares}, which do not fall, found {len(found)} numbers")
