"""Quantities of a plan as people read them: SI prefixes, whole words for units, plurals."""

from __future__ import annotations

import math

from cora.units import LINE_OCTETS

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SYMBOLS = {"bit": "bit", "bps": "bps", "byte": "B", "bytes": "B"}


def number(value: float) -> str:
    """Four significant digits, never with an exponent: ``2,462``, ``0.3345``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: float, unit: str) -> str:
    """With an SI prefix: ``80 Gbit``, ``1.6 GB``, ``40 G core cycles``."""
    factor, prefix = next(((f, p) for f, p in _PREFIXES if abs(value) >= f), (1.0, ""))
    shown = number(float(f"{value / factor:.4g}"))
    if unit in _SYMBOLS:
        return f"{shown} {prefix}{_SYMBOLS[unit]}"
    return f"{shown} {prefix}{' ' if prefix else ''}{plural(unit, value)}"


def plural(unit: str, value: float) -> str:
    """The unit's word for so many of it; symbols stay as they are."""
    if value == 1 or unit == "ns":
        return unit
    return f"{unit}es" if unit.endswith("ss") else unit if unit.endswith("s") else f"{unit}s"


def used(value: float, unit: str) -> str:
    """What one packet takes: ``577.4 core cycles``."""
    return f"{number(value)} {plural(unit, value)}"


def available(name: str, rate: float, unit: str) -> str:
    """What there is of a resource: ``80 Gbit/s``; time of cores that work side by side is told as their number."""
    if unit != "ns":
        return f"{scaled(rate, unit)}/s"
    count = number(float(f"{rate / 1e9:.4g}"))
    if name.endswith("cores"):
        return f"{count} {plural('core', float(count.replace(',', '')))}"
    return f"{count} at a time"


def mpps(rate: float | None) -> str:
    """Packets a second: ``13.87 Mpps``, small ones as ``1.20 kpps`` or ``7 pps``."""
    if rate is None:
        return "-"
    if not math.isfinite(rate):
        return "any rate"
    if 0 < rate < 1000:
        return f"{rate:.0f} pps"
    return f"{rate / 1e6:.2f} Mpps" if rate >= 1e5 or rate == 0 else f"{rate / 1e3:.2f} kpps"


def line_rate(pps: float, mean_frame: float) -> str:
    """Packets a second as bits a second on the line, with the octets that a frame takes there besides its own."""
    return f"{number(float(f'{pps * 8 * (mean_frame + LINE_OCTETS) / 1e9:.4g}'))} Gbps"


def cores(count: int) -> str:
    """``1 host core``, ``2 host cores``."""
    return f"{count} host core{'' if count == 1 else 's'}"
