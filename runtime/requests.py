"""What the user asks a plan for, in the planner's units."""

from __future__ import annotations

from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.units import parse_rate


def check_request(rate: str | None, cores: int | None, solver: str, time_limit: float) -> None:
    """Refuse a request that makes no sense for any traffic.

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    from cora.partition.planner import check_request as check_numbers

    if rate is not None:
        parse_rate(rate, where="--rate", kind=Kind.BAD_FLAG)
    check_numbers(1.0 if rate is not None else None, cores, solver, time_limit)


def packets_per_second(rate: str | float | None, profile: Profile) -> float | None:
    """A rate as packets per second; bits per second are turned by the profile's mean frame length.

    Raises:
        CoraError: `Kind.BAD_FLAG` when it is no rate, or not above zero.
    """
    if rate is None:
        return None
    if isinstance(rate, int | float):
        value = float(rate)
    else:
        parsed = parse_rate(rate, where="--rate", kind=Kind.BAD_FLAG)
        value = float(parsed.amount) if parsed.unit == "pps" else float(parsed.amount) / (8 * profile.mean_frame)
    if value <= 0:
        raise fail(Kind.BAD_FLAG, "the rate must be above zero", where="--rate", hint="for example 40Gbps or 10Mpps")
    return value
