"""What the user asks a plan for, in the planner's units."""

from __future__ import annotations

from dataclasses import dataclass

from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.units import LINE_OCTETS, parse_rate

# Packets a second: beyond any card, and far from where floating-point sums go wrong.
MAX_RATE = 1e12


@dataclass(frozen=True)
class AskedRate:
    """A rate in packets/s, and in bits/s on the line where it was asked in those."""

    pps: float
    line_bps: int | None


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
