"""What keeps packets at the owner of a state although entries of it could be lent, and the traffic without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cora.analysis.decided import decide
from cora.analysis.profile import Admission, AdmissionPoint, PathUse, Profile
from cora.analysis.sharding import Reason, align, copyable, sharding_of
from cora.explain.subject import Subject
from cora.ir.nodes import Program, State
from cora.ir.span import Span
from cora.models.target import Refusal


@dataclass(frozen=True)
class Kept:
    """Packets that need the owner of a component for one reason.

    ``mode``: how the place ``near`` would run the others. ``paths``: ids of theirs, with ``share`` of all packets;
    ``like``: the id of the most used path that runs on a lent entry to its end, None where there is none.
    """

    component: str
    near: str
    owner: str
    mode: str
    reason: str
    span: Span
    paths: tuple[int, ...]
    share: float
    like: int | None


@dataclass(frozen=True)
class NotLent:
    """Why nothing of a component is lent from one place to another."""

    component: str
    near: str
    owner: str
    reason: str
    span: Span


def kept_at_owner(subject: Subject) -> tuple[Kept, ...]:
    """Per component and way of lending the reasons, those that concern most packets first."""
    found: list[Kept] = []
    for component, near, owner, mode in _ways(subject):
        found += _kept(subject, component, near, owner, mode)
    return tuple(sorted(found, key=lambda k: (-k.share, k.component, k.near)))


def not_lent(subject: Subject) -> tuple[NotLent, ...]:
    """Components that cannot be split, and places that cannot be lent to."""
    found: list[NotLent] = []
    target, program = subject.target, subject.program
    last = len(target.places) - 1
    for name, sharding in sharding_of(program).items():
        if all(isinstance(copyable(program, s), str) for s in sharding.states):
            continue  # every place has a copy, nothing needs to be lent
        if not sharding.splittable:
            found += [NotLent(name, target.places[0].name, target.places[last].name, r.text, r.span)
                      for r in sharding.refusals[:1] if last]
            continue
        for near in range(last):
            refused = [target.lends(program, _states(program, sharding.states), near, o)
                       for o in range(near + 1, last + 1)]
            if all(isinstance(r, Refusal) for r in refused):
                first = next(r for r in refused if isinstance(r, Refusal))
                found.append(NotLent(name, target.places[near].name, target.places[last].name, first.reason,
                                     first.span or program.state(sharding.states[0]).span))
    return tuple(found)


def _states(program: Program, names: tuple[str, ...]) -> list[State]:
    return [program.state(n) for n in names]


def _ways(subject: Subject) -> list[tuple[str, int, int, str]]:
    """(component, near, owner, mode): the nearest owner for every place that entries can be lent to."""
    found: list[tuple[str, int, int, str]] = []
    target, program = subject.target, subject.program
    for name, sharding in sharding_of(program).items():
        if not sharding.splittable:
            continue
        for near in range(len(target.places) - 1):
            for owner in range(near + 1, len(target.places)):
                answer = target.lends(program, _states(program, sharding.states), near, owner)
                if not isinstance(answer, Refusal):
                    found.append((name, near, owner, answer.mode))
                    break
    return found


def _kept(subject: Subject, component: str, near: int, owner: int, mode: str) -> list[Kept]:
    total = sum(p.packets for p in subject.profile.paths)
    reasons: dict[str, tuple[Span, list[PathUse]]] = {}
    served: list[PathUse] = []
    for path in subject.profile.paths:
        if not path.packets:
            continue
        why = _reason(subject.program, component, path, mode)
        if why is None:
            served.append(path)
        elif why.text:
            reasons.setdefault(why.text, (why.span, []))[1].append(path)
    like = max(served, key=lambda p: p.packets, default=None)
    names = [p.name for p in subject.target.places]
    return [Kept(component, names[near], names[owner], mode, text, span, tuple(p.id for p in paths),
                 sum(p.packets for p in paths) / total, None if like is None else like.id)
            for text, (span, paths) in reasons.items()]


def _reason(program: Program, component: str, path: PathUse, mode: str) -> Reason | None:
    """Why a path needs the owner; None: it does not; an empty text: it does not use the component at all."""
    alignment = align(program, component, path.blocks, path.outcomes)
    if alignment.anchor is None and alignment.owner_from is None:
        return Reason("", program.span)
    if alignment.owner_from is not None:
        block = program.block(path.blocks[alignment.owner_from[0]])
        at = alignment.owner_from[1]
        node = block.instructions[at] if at < len(block.instructions) else block.terminator
        return Reason(alignment.reason, node.span)
    if mode == "restart":
        answer = decide(program, component, path.blocks, path.outcomes)
        return answer if isinstance(answer, Reason) else None
    return None


def as_if_lent(profile: Profile, kept: Kept) -> Profile | None:
    """The traffic as if the packets kept took the way of the most used path that runs on lent entries.

    Shares of that path's packets that admission lets run there stay what they are. None: no path runs there.
    """
    if kept.like is None:
        return None
    moved = set(kept.paths)
    more = sum(p.packets for p in profile.paths if p.id in moved)
    octets = sum(p.octets for p in profile.paths if p.id in moved)
    before = next(p.packets for p in profile.paths if p.id == kept.like)
    paths = tuple(replace(p, packets=p.packets + more, octets=p.octets + octets) if p.id == kept.like else p
                  for p in profile.paths if p.id not in moved)
    factor = (before + more) / before
    admission = tuple(Admission(a.mode, tuple(_scaled(p, kept.like, factor, moved) for p in a.points))
                      for a in profile.admission)
    return replace(profile, paths=paths, admission=admission)


def _scaled(point: AdmissionPoint, like: int, factor: float, moved: set[int]) -> AdmissionPoint:
    lent: Mapping[int, int] = {i: round(n * factor) if i == like else n for i, n in point.lent if i not in moved}
    return replace(point, lent=tuple(lent.items()))
