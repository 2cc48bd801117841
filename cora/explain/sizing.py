"""How full tables get: over the profile's time, at a planned rate, and what size or time-out would do.

The model is a queue without waiting (Little's law): N new entries a second that stay S seconds each are N * S entries
at once. An entry stays from its first use to its last, and then for its time-out; which of several time-outs it has is
not in a profile, so there is a range. At another rate than the profile's the same mix of packets is taken to come from
more flows at the same speed, which is the demanding reading: N grows with the rate, S does not change. Of fragment
trackers a profile counts only the packets they look at: each of them might be a datagram of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cora.analysis.accesses import STATE_KINDS, capacity_of
from cora.analysis.demand import check_profile
from cora.analysis.profile import ENTRY_QUANTILES, Profile, StateUse
from cora.ir.nodes import FragmentState, MapState, MeterState, PoolState, Program
from cora.plan.document import Source
from cora.plan.quantities import mpps, number
from cora.plan.render import columns, percent
from cora.plan.sources import source_of

# Room above what is needed that a recommended size leaves.
RESERVE = 1.25
# Points that the course of a table over the profile is told in.
_POINTS = 8
_SECOND = 1e9


@dataclass(frozen=True)
class Exhaustion:
    """A table (or a pool) and how full it gets; times in seconds, ``predicted`` but for what the profile counted.

    Attributes:
        capacity: entries, or values of a pool; room: the smaller of that and the pools it draws from.
        peak, refused, course: counted in the profile: most live entries, inserts refused, live entries over time.
        arrivals: new entries a second at the rate; arrivals_p99: of the window with the 99th percentile of them.
        stay: how long an entry stays, with the longest time-out; None: it never leaves by itself.
        steady_least, steady: entries at once in the long run, with the shortest and the longest time-out; None: it only
            grows.
        needed: for the long run and a P99 window on top of it; None as for steady.
        full_after: seconds from empty to full; None: never.
        timeout, fitting_timeout: the longest declared, and the longest that fits where the declared one does not.
        cut_share: share of entries that pause for longer than the fitting one, at most; None where nothing is to say.
        tried: other time-outs on this traffic, counted: (seconds, peak entries, share of entries cut short).
        bound: what is not counted was taken as the most it can be.
    """

    name: str
    kind: str
    capacity: int
    room: int
    peak: int
    refused: int
    course: tuple[int, ...]
    arrivals: float
    arrivals_p99: float
    stay: float | None
    steady_least: float | None
    steady: float | None
    needed: float | None
    full_after: float | None
    timeout: float | None
    fitting_timeout: float | None
    cut_share: float | None
    tried: tuple[tuple[float, int, float], ...]
    bound: bool
    source: Source

    @property
    def recommended(self) -> int | None:
        """A size that is enough: the next power of two above what is needed with a reserve."""
        if self.needed is None:
            return None
        return 1 << max(4, (max(1, round(self.needed * RESERVE)) - 1).bit_length())

    @property
    def fills(self) -> bool:
        """Whether it gets full in the long run, with the longest time-out."""
        return self.full_after is not None

    @property
    def surely(self) -> bool:
        """Whether it does with the shortest one too."""
        return self.fills and not self.bound and (self.steady_least is None or self.steady_least > self.room)


def sizes(program: Program, profile: Profile, rate: float) -> tuple[Exhaustion, ...]:
    """Every table that packets add entries to, and every pool, at ``rate`` packets/s.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH`.
    """
    check_profile(program, profile)
    tables = {s.name: _table(program, profile, s, rate) for s in program.states
              if isinstance(s, MapState | MeterState | FragmentState) and s.name in profile.states}
    pools = [_pool(s, [tables[m.name] for m in program.states if isinstance(m, MapState) and m.name in tables
                       and any(a.pool == s.name for a in m.allocs)])
             for s in program.states if isinstance(s, PoolState)]
    return (*tables.values(), *(p for p in pools if p is not None))


def _table(program: Program, profile: Profile, state: MapState | MeterState | FragmentState, rate: float) -> Exhaustion:
    use = profile.states[state.name]
    room = min([capacity_of(state), *(capacity_of(program.state(a.pool)) for a in getattr(state, "allocs", ()))])
    made = use.inserts[0] + use.inserts[1]
    arrivals = (made or _made(use)) / profile.packets * rate
    burst = max(arrivals, _p99(use.window_inserts) / (profile.window_ns / _SECOND) * _times(profile, rate))
    shortest, longest = _timeouts(state)
    life = mean_of(use.lifetimes_ns) / _SECOND
    stay = None if longest is None else life + longest
    steady = None if stay is None else arrivals * stay
    least = None if shortest is None else arrivals * (life + shortest)
    needed = None if steady is None else steady + (burst - arrivals) * profile.window_ns / _SECOND
    full = room / arrivals if arrivals and (steady is None or steady > room) else None
    fits = None if full is None or longest is None else max(0.0, room / arrivals - life)
    cut = None if fits is None else longer_than(use.pauses_ns, fits * _SECOND)
    tried = tuple((t.timeout_ns / _SECOND, t.peak, t.cut / max(made, 1)) for t in use.timeouts)
    return Exhaustion(
        state.name, STATE_KINDS[type(state)], capacity_of(state), room, use.entries_peak, use.inserts[1],
        course(use.window_peaks), arrivals, burst, stay, least, steady, needed, full, longest, fits, cut, tried,
        isinstance(state, FragmentState), source_of(state.span))


def _pool(state: PoolState, drawing: Sequence[Exhaustion]) -> Exhaustion | None:
    """A pool is as full as the tables that draw from it."""
    if not drawing:
        return None
    arrivals = sum(t.arrivals for t in drawing)
    least, steady, needed = (_total([t.steady_least for t in drawing]), _total([t.steady for t in drawing]),
                             _total([t.needed for t in drawing]))
    full = state.size / arrivals if arrivals and (steady is None or steady > state.size) else None
    many = max(len(t.course) for t in drawing)
    together = tuple(sum(t.course[i] for t in drawing if i < len(t.course)) for i in range(many))
    return Exhaustion(state.name, "pool", state.size, state.size, sum(t.peak for t in drawing),
                      sum(t.refused for t in drawing), together, arrivals, sum(t.arrivals_p99 for t in drawing), None,
                      least, steady, needed, full, None, None, None, (), False, source_of(state.span))


def _total(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None


def _made(use: StateUse) -> int:
    """The most entries there can have been of a table whose inserts are not counted."""
    return use.counts


def _times(profile: Profile, rate: float) -> float:
    return rate / profile.packet_rate if profile.packet_rate else 0.0


def _p99(counts: Sequence[int]) -> int:
    return sorted(counts)[max(0, -(-99 * len(counts) // 100) - 1)] if counts else 0


def _timeouts(state: MapState | MeterState | FragmentState) -> tuple[float | None, float | None]:
    """The shortest and the longest declared time-out in seconds; None: entries never expire."""
    given = [t.nanoseconds for t in state.timeouts] if isinstance(state, MapState) else [state.timeout]
    if not any(given):
        return None, None
    return min(given) / _SECOND, max(given) / _SECOND


def mean_of(quantiles: Sequence[int]) -> float:
    """A mean from the quantiles of a profile, linear between them; the last one stands for all beyond it."""
    if not quantiles:
        return 0.0
    points = [(0.0, 0.0), *zip(ENTRY_QUANTILES, map(float, quantiles), strict=True), (1.0, float(quantiles[-1]))]
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def longer_than(quantiles: Sequence[int], limit: float) -> float | None:
    """The share of entries above a limit, at most: one minus the highest quantile that is below it."""
    if not quantiles:
        return None
    return 1.0 - max((p for p, q in zip(ENTRY_QUANTILES, quantiles, strict=True) if q <= limit), default=0.0)


def course(peaks: Sequence[int]) -> tuple[int, ...]:
    """The largest of each of some equal stretches of time."""
    if len(peaks) <= _POINTS:
        return tuple(peaks)
    edges = [round(i * len(peaks) / _POINTS) for i in range(_POINTS + 1)]
    return tuple(max(peaks[a:b]) for a, b in pairwise(edges))


def sizing(rows: Sequence[Exhaustion], profile: Profile, rate: float) -> str:
    """The report as text."""
    counted = [(r.name, r.kind, f"{r.room:,}", *((f"{r.peak:,}", percent(r.peak / r.room), f"{r.refused:,}",
                " ".join(f"{n:,}" for n in r.course)) if not r.bound else ("not counted", "", "", ""))) for r in rows]
    own = f"the profile has {mpps(profile.packet_rate)} over {profile.duration_ns / _SECOND:.3f} s"
    lines = [f"{mpps(rate)} planned; {own}", "", "In the profile (counted)",
             *columns(("state", "kind", "room", "peak", "of it", "refused", "entries over time"), counted),
             "", f"At {mpps(rate)} (predicted: the same mix of packets from more flows)",
             *columns(("state", "new a second", "P99 window", "an entry stays", "at once", "full after", "enough"),
                      [_row(r) for r in rows])]
    tried = [(r.name, seconds(t), f"{peak:,}", percent(cut)) for r in rows for t, peak, cut in r.tried]
    if tried:
        lines += ["", "Other time-outs on this traffic (counted)",
                  *columns(("state", "time-out", "peak", "entries cut short"), tried)]
    for r in rows:
        for told, where in advice(r):
            lines += ["", told, f"  {where}"]
    return "\n".join(lines) + "\n"


def _row(r: Exhaustion) -> tuple[str, ...]:
    stay = "" if r.kind == "pool" else "for ever" if r.stay is None else f"up to {seconds(r.stay)}"
    return (r.name, ("at most " if r.bound else "") + number(_three(r.arrivals)), number(_three(r.arrivals_p99)), stay,
            at_once(r), "never" if r.full_after is None else seconds(r.full_after),
            "-" if r.recommended is None else f"{r.recommended:,}")


def at_once(r: Exhaustion) -> str:
    """Entries at once in the long run: one figure, a range, or ``ever more``."""
    if r.steady is None or r.steady_least is None:
        return "ever more"
    low, high = (number(round(x)) for x in (r.steady_least, r.steady))
    return f"at most {high}" if r.bound else high if low == high else f"{low} - {high}"


def _three(value: float) -> float:
    return float(f"{value:.3g}")


def advice(r: Exhaustion) -> list[tuple[str, str]]:
    """What to change, with the line it is declared at: where something gets full, and where far less would do."""
    where = f"{r.source}: {r.source.text}".rstrip(": ")
    if not r.fills:
        if r.recommended is None or 4 * r.recommended > r.room or r.bound:
            return []
        return [(f"{r.name} is larger than this traffic needs: {r.recommended:,} entries would do", where)]
    told = f"{r.name} {'gets' if r.surely else 'may get'} full {seconds(r.full_after or 0.0)} after it was empty: "
    if r.kind == "pool":
        return [(told + "it needs more values, or the tables that draw from it shorter time-outs", where)]
    if r.recommended is None:
        return [(told + "its entries never expire", where)]
    if not r.fitting_timeout:
        return [(f"{told}it needs a capacity of {r.recommended:,}; its entries are used for so long that no time-out "
                 "would do", where)]
    cut = "" if r.cut_share is None else f" (which cuts at most {percent(r.cut_share)} of the entries short)"
    return [(f"{told}it needs a capacity of {r.recommended:,}, or no time-out beyond {seconds(r.fitting_timeout)}; "
             f"the longest is {seconds(r.timeout or 0.0)}{cut}", where)]


def seconds(value: float) -> str:
    """A time as people say it: ``25 ms``, ``41 s``, ``2.1 h``."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"), (7200.0, 1 / 60, "min"),
                                (172800.0, 1 / 3600, "h")):
        if value < limit:
            return f"{number(_three(value * factor))} {unit}"
    return f"{number(_three(value / 86400))} days"
