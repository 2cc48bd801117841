"""Numbers with units as users write them: rates, durations, byte counts, counts and shares.

Every function returns exact integers or fractions, never floats, and raises `CoraError` naming the text, what is
wrong with it and a form that works. ``where`` names the flag or file the text came from; ``kind`` is the error kind
of the caller's input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from cora.errors import Kind, fail

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z/%µ]*)\s*", re.ASCII)
_RATE_UNITS: Mapping[str, Literal["pps", "bps"]] = {"pps": "pps", "bps": "bps", "bit/s": "bps", "b/s": "bps"}
_DURATION_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "m": 60 * 10**9,
                "h": 3600 * 10**9}
_BYTES = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Octets that a frame takes on an Ethernet link beside its own (IEEE 802.3): preamble 8, check sequence 4, gap 12.
LINE_OCTETS = 24
# Longer digit strings are typing accidents, and quadratic work to convert.
_MAX_TEXT = 40


@dataclass(frozen=True)
class Rate:
    """A traffic rate: ``amount`` packets or bits per second, a whole number of at least 1."""

    amount: int
    unit: Literal["pps", "bps"]

    def __str__(self) -> str:
        """The shortest exact form that `parse_rate` reads back."""
        return _scaled(self.amount) + self.unit


def _scaled(amount: int) -> str:
    for prefix in ("T", "G", "M", "k"):
        whole, rest = divmod(amount, _DECIMAL[prefix])
        if whole:
            digits = len(str(_DECIMAL[prefix])) - 1
            return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".") + prefix
    return str(amount)


def _split(text: str, what: str, example: str, where: str | None, kind: Kind) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
        if text.lstrip().startswith(("-", "\u2212")) and _NUMBER.fullmatch(text.lstrip()[1:]):
            raise fail(kind, f"the {what} '{shown}' is below zero", where=where, hint=f"write {what}s like {example}")
        raise fail(kind, f"'{shown}' is not a {what}", where=where, hint=f"write {what}s like {example}")
    return Fraction(match[1]), match[2]


def _whole(value: Fraction, text: str, unit: str, where: str | None, kind: Kind) -> int:
    if value.denominator != 1:
        of_what = f" of {unit}" if unit else ""
        raise fail(kind, f"'{text}' is not a whole number{of_what}", where=where, hint="leave out some decimals")
    return value.numerator


def parse_rate(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> Rate:
    """Read a rate such as ``10Mpps``, ``14.88Mpps``, ``40Gbps``, ``1 Gbit/s``: decimal prefixes k, M, G, T."""
    number, unit = _split(text, "rate", "10Mpps or 40Gbps", where, kind)
    for suffix, name in _RATE_UNITS.items():
        prefix = unit.removesuffix(suffix)
        if prefix != unit and prefix in _DECIMAL:
            amount = _whole(number * _DECIMAL[prefix], text, "packets or bits per second", where, kind)
            if amount < 1:
                raise fail(kind, f"the rate '{text}' is zero", where=where, hint="write rates like 10Mpps or 40Gbps")
            return Rate(amount, name)
    raise fail(kind, _rate_problem(text, unit), where=where, hint="write rates like 10Mpps or 40Gbps")


def _rate_problem(text: str, unit: str) -> str:
    if unit in _DECIMAL:
        return f"the rate '{text}' does not say packets (pps) or bits (bps)"
    if "B" in unit:
        return f"the rate '{text}' is in bytes; rates are packets (pps) or bits (bps) per second"
    return f"the rate '{text}' has the unknown unit '{unit}'"


def parse_duration(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> int:
    """Read a duration such as ``300s``, ``1.5ms``, ``2min``; returns nanoseconds, possibly 0."""
    number, unit = _split(text, "duration", "300s, 10ms or 2min", where, kind)
    if unit not in _DURATION_NS:
        problem = f"has the unknown unit '{unit}'" if unit else "has no unit"
        raise fail(kind, f"the duration '{text}' {problem}", where=where, hint="units are ns, us, ms, s, min, h")
    return _whole(number * _DURATION_NS[unit], text, "nanoseconds", where, kind)


def parse_bytes(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> int:
    """Read a byte count such as ``1500``, ``64kB``, ``2MiB``; returns bytes, possibly 0."""
    number, unit = _split(text, "byte count", "1500, 64kB or 2MiB", where, kind)
    if unit not in _BYTES:
        raise fail(kind, f"the byte count '{text}' has the unknown unit '{unit}'", where=where,
                   hint="units are B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024)")
    return _whole(number * _BYTES[unit], text, "bytes", where, kind)


def parse_count(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> int:
    """Read a count such as ``10000``, ``100k``, ``1.5M``; returns a whole number, possibly 0."""
    return _whole(parse_amount(text, where=where, kind=kind), text, "", where, kind)


def parse_amount(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> Fraction:
    """Read a number that need not be whole, such as ``0.5``, ``1.1`` or ``20k``; exact, never negative."""
    number, prefix = _split(text, "number", "10000, 100k or 1.5M", where, kind)
    if prefix not in _DECIMAL:
        raise fail(kind, f"the number '{text}' has the unknown suffix '{prefix}'", where=where,
                   hint="suffixes are k, M, G, T")
    return number * _DECIMAL[prefix]


def parse_share(text: str, *, where: str | None = None, kind: Kind = Kind.BAD_FLAG) -> Fraction:
    """Read a share such as ``0.2`` or ``20%``; returns a fraction from 0 to 1."""
    number, unit = _split(text, "share", "0.2 or 20%", where, kind)
    if unit not in ("", "%"):
        raise fail(kind, f"the share '{text}' has the unknown unit '{unit}'", where=where, hint="write 0.2 or 20%")
    share = number / 100 if unit else number
    if share > 1:
        raise fail(kind, f"the share '{text}' is more than the whole", where=where,
                   hint="write a share from 0 to 1, or from 0% to 100%")
    return share
