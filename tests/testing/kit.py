"""What the tests of cora.testing share."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

# The same examples on every run: a failure that appears is one that a change made.
STEADY: dict[str, Any] = {"derandomize": True, "database": None, "deadline": None,
                          "suppress_health_check": list(HealthCheck)}


def steady(examples: int) -> settings:
    return settings(max_examples=examples, **STEADY)
