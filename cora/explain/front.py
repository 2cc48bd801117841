"""The front of host cores against throughput: every point a plan of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cora.explain.questions import SAME, most_with
from cora.explain.subject import Subject
from cora.partition.uncertainty import band

# Core counts that are planned for at most.
MOST = 9


@dataclass(frozen=True)
class FrontPoint:
    """The most throughput with so many host cores, packets/s, with its P10 and P90 over the model's samples."""

    cores: int
    throughput_pps: float
    low: float
    high: float


def front(subject: Subject, tell: Callable[[int], None] | None = None) -> tuple[FrontPoint, ...]:
    """Plans for 0, 1, 2, ... host cores up to two more than the plan has, as long as more cores bring more.

    ``tell`` is called with the number of plans made so far. Cores for which there is no plan have no point.
    """
    found: list[FrontPoint] = []
    last = max(subject.plan.cores + 2, 3)
    for made, cores in enumerate(range(max(0, last + 1 - MOST), last + 1)):
        most = most_with(subject, cores)
        if tell is not None:
            tell(made + 1)
        if most is None:
            continue
        if len(found) > 1 and cores > subject.plan.cores and most.throughput < found[-1].throughput_pps * (1 + SAME):
            break
        found.append(FrontPoint(cores, most.throughput, *band(most.reach)))
    return tuple(found)
