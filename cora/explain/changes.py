"""The smallest changes to a program that would offload more: each is really planned again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cora.analysis.accesses import accesses_of
from cora.explain.kept import Kept, as_if_lent, kept_at_owner
from cora.explain.questions import SAME, Gain, Questions
from cora.explain.variants import until_lent, variants_of
from cora.models.target import Refusal
from cora.models.variation import varied
from cora.plan.document import RefusedAt, Source
from cora.plan.sources import source_of

# Sets of obstacles that are planned without, the smallest first.
_SETS = 8
# Reasons that keep packets at an owner and are planned without, and the least share of packets that is worth it.
_KEPT = 4
_FEW = 0.002


@dataclass(frozen=True)
class Change:
    """A change and what it brings.

    Attributes:
        change: what to change, as a sentence's start. price: what is given up for it, empty for code that would have to
            be written differently.
        obstacles: what a place refuses today, with its lines; empty for a declaration's attribute.
        bound: the gain is the most there is to win: code a place refuses is taken to cost nothing there.
        share: of packets that run the code in question; None for a declaration.
    """

    change: str
    price: str
    obstacles: tuple[RefusedAt, ...]
    source: Source | None
    share: float | None
    bound: bool
    gain: Gain


@dataclass(frozen=True)
class Changes:
    """The changes that bring something, the largest gain first, and how many were tried and bring nothing."""

    helpful: tuple[Change, ...]
    tried: int


def changes_of(questions: Questions, tell: Callable[[int], None] | None = None) -> Changes:
    """Everything `cora explain` tries, answered; ``tell`` is called with the number of changes tried so far."""
    tried: list[Change] = []
    for change in _tried(questions):
        tried.append(change)
        if tell is not None:
            tell(len(tried))
    helpful = [c for c in tried if not c.gain.nothing and not any(_enough(o, c) for o in tried)]
    return Changes(tuple(sorted(helpful, key=lambda c: (-_saved(c.gain), -c.gain.ratio, len(c.obstacles)))), len(tried))


def count(questions: Questions) -> int:
    """How many changes `changes_of` tries."""
    subject = questions.subject
    return (len(variants_of(subject.program, subject.profile)) + len(_sets(questions)) + len(_worth(questions))
            + len(until_lent(subject.program, subject.profile, subject.target)))


def _worth(questions: Questions) -> list[Kept]:
    """Reasons that keep packets at an owner, those that are worth a plan of their own."""
    return [k for k in kept_at_owner(questions.subject) if k.share >= _FEW and k.like is not None][:_KEPT]


def _saved(gain: Gain) -> int:
    return 0 if gain.cores is None or gain.cores_now is None else gain.cores_now - gain.cores


def _tried(questions: Questions) -> Iterator[Change]:
    subject = questions.subject
    for v in (*variants_of(subject.program, subject.profile),
              *until_lent(subject.program, subject.profile, subject.target)):
        gain = questions.gain(program=v.program, profile=v.profile)
        yield Change(f"declare {v.state.name} with {v.change}", v.price, (), source_of(v.state.span), None, False, gain)
    for kept in _worth(questions):
        as_if = as_if_lent(subject.profile, kept)
        reason = RefusedAt(kept.component, kept.near, kept.reason, source_of(kept.span))
        if as_if is not None:
            yield Change(f"let these packets find an entry of {kept.component} that is lent to {kept.near}", "",
                         (reason,), reason.source, kept.share, True, questions.gain(profile=as_if))
    for obstacles, share in _sets(questions):
        refused = {(r.place, r.reason) for r in obstacles}
        target = varied(subject.target, lifted=_in(refused))
        yield Change(_asked(obstacles), "", obstacles, obstacles[0].source, share, True, questions.gain(target=target))


def _enough(smaller: Change, change: Change) -> bool:
    """Whether a part of a change brings as much."""
    part, whole = ({(r.place, r.reason) for r in c.obstacles} for c in (smaller, change))
    return (0 < len(part) < len(whole) and part < whole and _saved(smaller.gain) >= _saved(change.gain)
            and smaller.gain.ratio >= change.gain.ratio * (1 - SAME))


def _in(refused: set[tuple[str, str]]) -> Callable[[Refusal], bool]:
    return lambda refusal: (refusal.place, refusal.reason) in refused


def _asked(obstacles: tuple[RefusedAt, ...]) -> str:
    count = "this obstacle" if len(obstacles) == 1 else f"these {len(obstacles)} obstacles"
    return f"write the program without {count} at {obstacles[0].place}"


def _sets(questions: Questions) -> list[tuple[tuple[RefusedAt, ...], float]]:
    """What places refuse on the ways packets take, in the order they meet it: the first obstacle, the first two, ...

    Returns sets with the share of packets that run into one of them, the smallest first.
    """
    profile, plan = questions.subject.profile, questions.subject.plan
    found: dict[tuple[str, frozenset[str]], tuple[RefusedAt, ...]] = {}
    packets: dict[tuple[str, frozenset[str]], int] = {}
    for place in plan.places[:-1]:
        refused = _Refused(questions, place)
        for path in profile.paths:
            obstacles = refused.on(path.blocks)
            for n in range(1, len(obstacles) + 1 if path.packets else 1):
                key = (place, frozenset(r.reason for r in obstacles[:n]))
                found.setdefault(key, obstacles[:n])
                packets[key] = packets.get(key, 0) + path.packets
    total = sum(p.packets for p in profile.paths)
    rows = [(obstacles, packets[key] / total) for key, obstacles in found.items()]
    return sorted(rows, key=lambda row: (len(row[0]), -row[1]))[:_SETS]


class _Refused:
    """What a place refuses of a program's code."""

    def __init__(self, questions: Questions, place: str) -> None:
        program = questions.subject.program
        refused = {r.subject: r for r in reversed(questions.subject.plan.refusals) if r.place == place}
        self._blocks = {b.label: refused[b.label] for b in program.blocks if b.label in refused}
        # Where a state cannot be, the code that uses it cannot be either, whatever else is lifted.
        self._stateful = {b.label for b in program.blocks for node in (*b.instructions, b.terminator)
                          for state, _ in accesses_of(program, node) if state in refused}

    def on(self, labels: Sequence[str]) -> tuple[RefusedAt, ...]:
        """The obstacles on a path, one a reason, up to the first use of a state that cannot be at the place."""
        found: dict[str, RefusedAt] = {}
        for label in labels:
            if label in self._stateful:
                break
            refused = self._blocks.get(label)
            if refused is not None:
                found.setdefault(refused.reason, refused)
        return tuple(found.values())
