"""What the user asks a plan for, in the planner's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.nodes import Program
from cora.models.target import Target
from cora.units import LINE_OCTETS, parse_bytes, parse_duration, parse_rate, parse_share

# Packets a second: beyond any card, and far from where floating-point sums go wrong.
MAX_RATE = 1e12


@dataclass(frozen=True)
class AskedRate:
    """A rate in packets/s, and in bits/s on the line where it was asked in those."""

    pps: float
    line_bps: int | None


@dataclass(frozen=True)
class Terms:
    """What a plan has to keep beside the rate, as the fields of `cora.plan.document.Request` have it."""

    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    max_latency_ns: float | None = None
    max_nic_memory: int | None = None
    headroom: float = 0.0
    window: float | None = None
    search: Literal["exact", "fast"] = "exact"


def terms_of(*, pin: Sequence[str] = (), forbid: Sequence[str] = (), max_latency: str | None = None,
             max_nic_memory: str | None = None, headroom: str | None = None, window: str | None = None,
             search: str = "exact") -> Terms:
    """Read what users write: ``50us``, ``2MB``, ``20%``, ``P99``.

    Raises:
        CoraError: `Kind.BAD_FLAG`. Names of states and places are looked at when there is a program and a target.
    """
    free = Fraction(0) if headroom is None else parse_share(headroom, where="--headroom")
    if free >= 1:
        raise fail(Kind.BAD_FLAG, "with all of every resource kept free, nothing can run", where="--headroom",
                   hint="for example --headroom 20%")
    latency = None if max_latency is None else parse_duration(max_latency, where="--max-latency")
    if latency == 0:
        raise fail(Kind.BAD_FLAG, "no packet takes no time at all", where="--max-latency", hint="for example 50us")
    memory = None if max_nic_memory is None else parse_bytes(max_nic_memory, where="--max-nic-memory")
    if search not in ("exact", "fast"):
        raise fail(Kind.BAD_FLAG, f"unknown search '{search}'", where="--search", hint="exact or fast")
    return Terms(tuple(pin), tuple(forbid), None if latency is None else float(latency), memory, float(free),
                 None if window is None else _window(window), "fast" if search == "fast" else "exact")


def check_terms(program: Program, target: Target, terms: Terms) -> None:
    """Refuse pins of states or places that there are not, and pins that contradict each other.

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    from cora.partition.planner import restrictions_of

    restrictions_of(terms.pins, terms.forbids, terms.max_nic_memory, program, target)


def _window(text: str) -> float:
    """``P99`` as 0.99."""
    number = text[1:] if text[:1] in "Pp" else ""
    if not number.replace(".", "", 1).isdigit() or not 0 < float(number) <= 100:
        raise fail(Kind.BAD_FLAG, f"'{text}' is not a quantile of the windows' load", where="--window",
                   hint="write for example P99: the window whose load 99 % of the windows do not exceed")
    return round(float(number) / 100, 6)


def check_request(rate: str | None, cores: int | None, solver: str, time_limit: float) -> None:
    """Refuse a request that makes no sense for any traffic.

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    from cora.partition.planner import check_request as check_numbers

    if rate is not None:
        parse_rate(rate, where="--rate", kind=Kind.BAD_FLAG)
    check_numbers(1.0 if rate is not None else None, cores, solver, time_limit)


def asked_rate(rate: str | float | None, profile: Profile) -> AskedRate | None:
    """A rate as packets per second. Bits per second are those of the line: a frame of the profile's mean length takes
    `LINE_OCTETS` more there.

    Raises:
        CoraError: `Kind.BAD_FLAG` when it is no rate, or not above zero.
    """
    if not profile.octets:
        raise fail(Kind.BAD_PROFILE, "the packets of this traffic have no octets, so nothing can be planned for them")
    if rate is None:
        return None
    line_bps = None
    if isinstance(rate, int | float):
        value = float(rate)
    else:
        parsed = parse_rate(rate, where="--rate", kind=Kind.BAD_FLAG)
        value = float(parsed.amount)
        if parsed.unit == "bps":
            line_bps, value = parsed.amount, value / (8 * (profile.mean_frame + LINE_OCTETS))
    if not 1 <= value <= MAX_RATE:
        raise fail(Kind.BAD_FLAG, f"a rate of {value:g} packets/s is not between 1 and {MAX_RATE:g}", where="--rate",
                   hint="for example 40Gbps or 10Mpps")
    return AskedRate(value, line_bps)
