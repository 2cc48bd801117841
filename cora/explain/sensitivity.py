"""What one more unit of each resource would buy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cora.explain.questions import Gain, Questions
from cora.models.target import Resource, Tier
from cora.models.variation import varied
from cora.plan.document import Plan
from cora.plan.quantities import scaled

# What is asked about a resource: this much more of it.
MORE = 1.1
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class More:
    """One question and its answer: ``what`` more, of ``resource`` (a resource's or memory's name) at ``place``."""

    what: str
    resource: str
    place: str
    gain: Gain


def sensitivity(questions: Questions, tell: Callable[[int], None] | None = None) -> tuple[More, ...]:
    """Every resource of the target, every memory, one more host core and, of a split plan, twice the rate of changes.

    ``tell`` is called with the number of questions answered so far.
    """
    found = []
    for more in _questions(questions):
        found.append(more)
        if tell is not None:
            tell(len(found))
    return tuple(sorted(found, key=lambda m: (m.gain.nothing, -m.gain.ratio)))


def count(questions: Questions) -> int:
    """How many questions `sensitivity` asks."""
    target = questions.subject.target
    resources = target.resources(questions.subject.profile.mean_frame)
    changes = rates_of_change(questions.subject.plan)
    return (1 + sum(not r.scales or r.name in changes for r in resources)
            + sum(len(p.tiers) for p in target.places))


def rates_of_change(plan: Plan) -> frozenset[str]:
    """The resource that says how many entries or rules can be changed a second: the fullest that only lending uses."""
    lending = {n for c in plan.costs if c.what == "lending" for n in c.amounts}
    alone = lending - {n for c in plan.costs if c.what != "lending" for n in c.amounts}
    found = max((r for r in plan.resources if r.name in alone), key=lambda r: r.utilisation, default=None)
    return frozenset() if found is None else frozenset({found.name})


def _questions(questions: Questions) -> Iterator[More]:
    subject = questions.subject
    last = subject.target.places[-1]
    yield More("1 host core more", "host cores", last.name, questions.gain(more_cores=1))
    changes = rates_of_change(subject.plan)
    for resource in subject.target.resources(subject.profile.mean_frame):
        if resource.name in changes:
            yield _faster(questions, resource, 2.0, f"twice the rate of changes ({resource.name})")
        elif not resource.scales:
            yield _faster(questions, resource, MORE, f"10 % more {resource.name}")
    for place in subject.target.places:
        for tier in place.tiers:
            yield _roomier(questions, place.name, tier)


def _faster(questions: Questions, resource: Resource, factor: float, what: str) -> More:
    target = varied(questions.subject.target, faster={resource.name: factor})
    return More(what, resource.name, resource.place, questions.gain(target=target))


def _roomier(questions: Questions, place: str, tier: Tier) -> More:
    more = MEGABYTE if tier.unit == "bytes" else max(1, tier.capacity // 10)
    target = varied(questions.subject.target, room={(place, tier.name): more})
    return More(f"{scaled(more, tier.unit)} more {tier.name}", tier.name, place, questions.gain(target=target))
