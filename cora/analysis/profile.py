"""The profile document: what a traffic does to a program. Its fields are described in docs/profile.md.

A profile is made by running the program natively on the traffic (`cora.runtime.profiling`); the planner reads nothing
else about traffic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cora.errors import Kind, fail

FORMAT = "cora-profile"
VERSION = 1


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


@dataclass(frozen=True)
class WindowUse:
    """One window of the traffic: its start (ns), packets, octets, inserts and expiries over all states."""

    start_ns: int
    packets: int
    octets: int
    inserts: int
    expiries: int


@dataclass(frozen=True)
class Profile:
    """A profile. Totals are of the packets that reached the program; times are integer nanoseconds."""

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


def load_profile(path: Path) -> Profile:
    """Read a profile document.

    Raises:
        CoraError: `Kind.BAD_PROFILE` naming the file and what is wrong with it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise fail(Kind.BAD_PROFILE, f"cannot read the profile: {error}", where=str(path),
                   hint="make one with `cora profile NF TRACE -o profile.json`") from error
    return profile_from_json(data, str(path))


def profile_from_json(data: Any, where: str) -> Profile:
    """Check a parsed document and build the profile.

    Raises:
        CoraError: `Kind.BAD_PROFILE`.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise fail(Kind.BAD_PROFILE, f"this is no profile: its format is not {FORMAT!r}", where=where)
    if data.get("version") != VERSION:
        raise fail(Kind.BAD_PROFILE, f"version {data.get('version')!r} of the profile format is not {VERSION}",
                   where=where, hint="make the profile again with this version of cora")
    try:
        profile = _build(data)
    except (KeyError, TypeError, ValueError) as error:
        raise fail(Kind.BAD_PROFILE, f"the profile lacks or garbles a field: {error}", where=where) from error
    _check(profile, where)
    return profile


def _tuples(item: Any) -> Any:
    return tuple(_tuples(i) for i in item) if isinstance(item, list) else item


def _build(data: Mapping[str, Any]) -> Profile:
    rows = {f.name: data[f.name] for f in fields(Profile)}
    states = {name: _state_use(use) for name, use in rows["states"].items()}
    return Profile(**{
        **rows,
        "sizes": _tuples(rows["sizes"]),
        "ports": {k: _tuples(v) for k, v in rows["ports"].items()},
        "paths": tuple(PathUse(**{k: _tuples(v) for k, v in p.items()}) for p in rows["paths"]),
        "states": states,
        "windows": tuple(WindowUse(**w) for w in rows["windows"]),
    })


def _state_use(use: Mapping[str, Any]) -> StateUse:
    values: dict[str, Any] = {k: _tuples(x) for k, x in use.items()}
    values["lookups"] = {n: _tuples(v) for n, v in use["lookups"].items()}
    return StateUse(**values)


def _check(profile: Profile, where: str) -> None:
    if sum(p.packets for p in profile.paths) != profile.packets:
        raise fail(Kind.BAD_PROFILE, f"the paths add up to {sum(p.packets for p in profile.paths)} packets, "
                                     f"the total says {profile.packets}", where=where)
    if any(n < 0 for p in profile.paths for n in (p.packets, p.octets)) or profile.packets <= 0:
        raise fail(Kind.BAD_PROFILE, "packet counts must be positive", where=where)
