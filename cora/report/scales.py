"""Scales of charts: from values to coordinates, and ticks a reader can count by."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Values from 0 to ``top`` on coordinates from ``start`` to ``stop``."""

    top: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (self.stop - self.start) * min(max(value / self.top, 0.0), 1.0)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values up to the top, about so many."""
        step = nice(self.top / count)
        return [i * step for i in range(int(self.top / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Logarithmic:
    """Values from ``low`` to ``top``, both above 0, on coordinates from ``start`` to ``stop``."""

    low: float
    top: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = math.log(self.top / self.low) or 1.0
        share = math.log(max(value, self.low) / self.low) / span
        return self.start + (self.stop - self.start) * min(share, 1.0)

    def ticks(self) -> list[float]:
        """Powers of ten in the range."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.top) + 1e-9)
        return [10.0**e for e in range(first, last + 1)]


def nice(value: float) -> float:
    """The least of 1, 2, 2.5 or 5 times a power of ten that is at least a value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= value * (1 - 1e-9))
