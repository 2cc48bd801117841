"""Where random decisions come from: a seeded generator, or hypothesis, which can then shrink what was built.

Generators ask a `Choices` object for every decision. The smallest number is always the simplest choice, so that a
shrinking source ends with the simplest program or packet.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cora.errors import Kind, fail

T = TypeVar("T")


class Choices(ABC):
    """A source of decisions."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of a hundred cases; False is the simpler answer."""
        return self.integer(0, 99) >= 100 - percent

    def pick(self, items: Sequence[T]) -> T:
        """One of the items; the first is the simplest. There must be one."""
        return items[self.integer(0, len(items) - 1)] if len(items) > 1 else items[0]

    def weighted(self, items: Sequence[tuple[int, T]]) -> T:
        """One of (weight, item); the first is the simplest."""
        at = self.integer(0, sum(w for w, _ in items) - 1)
        for weight, item in items:
            at -= weight
            if at < 0:
                return item
        raise AssertionError("weights are positive")

    def sample(self, items: Sequence[T], low: int, high: int) -> list[T]:
        """``low`` to ``high`` different items (fewer when there are fewer), in random order."""
        left = list(items)
        count = min(len(left), self.integer(low, high))
        return [left.pop(self.integer(0, len(left) - 1)) for _ in range(count)]

    def octets(self, count: int) -> bytes:
        """Bytes that all follow from one small decision: zeros, or noise."""
        kind = self.integer(0, 255)
        return random.Random(kind).randbytes(count) if kind else bytes(count)


class RandomChoices(Choices):
    """Decisions from a seed: the same seed gives the same decisions on every machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class DrawnChoices(Choices):
    """Decisions drawn from hypothesis inside a composite strategy."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self._integers = hypothesis_strategies().integers

    def integer(self, low: int, high: int) -> int:
        found: int = self._draw(self._integers(low, high))
        return found


def hypothesis_strategies() -> Any:
    """The module ``hypothesis.strategies``.

    Raises:
        CoraError: `Kind.MISSING_LIBRARY` when hypothesis is not installed.
    """
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise fail(Kind.MISSING_LIBRARY, "strategies for random programs and packets need the library 'hypothesis'",
                   where="cora.testing", hint="install it: pip install 'cora-nf[test]'") from error
    return strategies
