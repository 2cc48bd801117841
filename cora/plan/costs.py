"""Reading a plan's costs: totals per path class, and what uses a resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cora.plan.document import LATENCY, Cost, PathClass, Plan, Source, Spending


@dataclass(frozen=True)
class User:
    """A spot that uses a resource: what it is (as in `Cost`), and its share of the resource's use."""

    what: Spending
    subject: str
    place: str
    source: Source | None
    amount: float
    share: float


def class_name(path: PathClass) -> str:
    """As a reader tells classes apart: ``conns.fwd hit; forward outside``."""
    return "; ".join((*path.history, path.verdict))


def amounts_of(costs: Iterable[Cost]) -> Mapping[str, float]:
    """The sum of rows of one class (or of those beside all classes)."""
    total: dict[str, float] = {}
    for cost in costs:
        for name, amount in cost.amounts.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def of_class(plan: Plan, number: int) -> tuple[Cost, ...]:
    """The rows of one path class."""
    return tuple(c for c in plan.costs if c.path == number)


def mean_amounts(plan: Plan) -> Mapping[str, float]:
    """What a mean packet uses; equals the plan's resources."""
    total: dict[str, float] = {}
    for cost in plan.costs:
        for name, amount in cost.amounts.items():
            total[name] = total.get(name, 0.0) + weight(plan, cost) * amount
    return total


def weight(plan: Plan, cost: Cost) -> float:
    """The share of packets that a row is charged for."""
    return 1.0 if cost.path is None else plan.classes[cost.path].share


def users(plan: Plan, resource: str) -> tuple[User, ...]:
    """What uses a resource, the largest user first; the classes that share a spot are added up."""
    found: dict[tuple[Spending, str, str, Source | None], float] = {}
    for cost in plan.costs:
        amount = cost.amounts.get(resource, 0.0) * weight(plan, cost)
        if amount > 0:
            key = (cost.what, cost.subject, cost.place, cost.source)
            found[key] = found.get(key, 0.0) + amount
    total = sum(found.values())
    rows = sorted(found.items(), key=lambda row: (-row[1], str(row[0])))
    return tuple(User(*key, amount, amount / total) for key, amount in rows)


def shares_of_classes(plan: Plan, resource: str) -> tuple[tuple[int, float], ...]:
    """(class, share of a resource's use), the largest first; what is beside all classes is left out of both."""
    used = {i: amounts_of(of_class(plan, i)).get(resource, 0.0) * c.share for i, c in enumerate(plan.classes)}
    total = sum(used.values())
    if not total:
        return ()
    return tuple(sorted(((i, a / total) for i, a in used.items() if a), key=lambda row: (-row[1], row[0])))


def latency_of(plan: Plan, number: int) -> float:
    """Unloaded nanoseconds of a packet of a class."""
    return amounts_of(of_class(plan, number)).get(LATENCY, 0.0)
