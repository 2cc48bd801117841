"""What one more unit of each resource would buy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cora.explain.questions import Gain, Questions
from cora.models.target import Resource, Tier
from cora.models.variation import varied
from cora.plan.document import Plan
from cora.plan.quantities import scaled
from cora.plan.render import planned_rate

# What is asked about a resource: this much more of it.
MORE = 1.1
MEGABYTE = 1_000_000
# Of a resource that is used less than this at the plan's throughput, a tenth more is not asked about.
BUSY = 0.2


@dataclass(frozen=True)
class More:
    """One question and its answer: ``what`` more, of ``resource`` (a resource's or memory's name) at ``place``."""

    what: str
    resource: str
    place: str
    gain: Gain


def sensitivity(questions: Questions, tell: Callable[[int], None] | None = None) -> tuple[More, ...]:
    """Resources that are used, memories that are short, one more host core, and twice a split plan's rate of changes.

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
    memories = sum(_short(questions, p.name, t.name) for p in target.places for t in p.tiers)
    return 1 + len(_resources(questions)) + memories


def unasked(questions: Questions) -> tuple[str, ...]:
    """Resources that are not asked about, because the plan leaves most of them free even at its throughput."""
    asked = {r.name for r in _resources(questions)}
    subject = questions.subject
    return tuple(r.name for r in subject.target.resources(subject.profile.mean_frame)
                 if r.name not in asked and not r.scales)


def _resources(questions: Questions) -> list[Resource]:
    """The resources worth a plan of their own: used enough to bind, or the rate of changes."""
    subject = questions.subject
    plan = subject.plan
    busier = plan.throughput_pps / planned_rate(plan)
    used = {r.name: r.utilisation * busier for r in plan.resources}
    changes = rates_of_change(plan)
    return [r for r in subject.target.resources(subject.profile.mean_frame)
            if r.name in changes or (not r.scales and used.get(r.name, 0.0) >= BUSY)]


def _short(questions: Questions, place: str, tier: str) -> bool:
    """Whether a memory, or all of its place, was too small for a state of the program, or is more than half full."""
    subject = questions.subject
    states = {s.name for s in subject.plan.states}
    if any(r.subject in states and r.place in (place, f"{place}/{tier}") for r in subject.plan.refusals):
        return True
    filled = sum(s.amount for s in subject.plan.states if (s.place, s.tier) == (place, tier))
    filled += sum(s.lent.amount for s in subject.plan.states
                  if s.lent and (s.lent.place, s.lent.tier) == (place, tier))
    capacity = next(t.capacity for p in subject.target.places if p.name == place for t in p.tiers if t.name == tier)
    return 2 * filled > capacity


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
    for resource in _resources(questions):
        if resource.name in changes:
            yield _faster(questions, resource, 2.0, f"twice the rate of changes ({resource.name})")
        else:
            yield _faster(questions, resource, MORE, f"10 % more {resource.name}")
    for place in subject.target.places:
        for tier in (t for t in place.tiers if _short(questions, place.name, t.name)):
            yield _roomier(questions, place.name, tier)


def _faster(questions: Questions, resource: Resource, factor: float, what: str) -> More:
    target = varied(questions.subject.target, faster={resource.name: factor})
    return More(what, resource.name, resource.place, questions.gain(target=target, only_rates=True))


def _roomier(questions: Questions, place: str, tier: Tier) -> More:
    more = MEGABYTE if tier.unit == "bytes" else max(1, tier.capacity // 10)
    target = varied(questions.subject.target, room={(place, tier.name): more})
    # A memory counted in what it is named after (rules, counters, meters) needs no second name.
    named = tier.unit == tier.name
    what = scaled(more, f"more {tier.unit}") if named else f"{scaled(more, tier.unit)} more {tier.name}"
    return More(what, tier.name, place, questions.gain(target=target))
