"""``cora check --sharding``: how each state may be split by flow, copied, or divided between cores, and why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cora.analysis.paths import number_paths, path_of
from cora.analysis.sharding import Anchor, OwnerOnly, Reason, Sharding, align, copyable, sharding_of
from cora.analysis.steering import Steering, steering_of
from cora.ir.nodes import Program
from cora.ir.span import Span

_COPIES = {"replicated": "packets never change it: a copy at every place that reads it",
           "partial": "packets only add to it: a partial copy at every place that does; the sum counts"}
_MEETING = {"one key": "every packet has it", "common fields": "both directions have these fields",
            "pool value": "the core chooses the pool value so that both directions meet"}


@dataclass(frozen=True)
class Ways:
    """How many paths of a program run on a lent entry to the end, need the owner (by reason), or use none."""

    aligned: int
    owner: tuple[tuple[str, int], ...]
    unused: int

    @property
    def handed_over(self) -> int:
        return sum(n for _, n in self.owner)


def ways_of(program: Program, component: str, bound: int) -> Ways | None:
    """The paths of a program by what a component means to them; None when there are more than ``bound``."""
    numbering = number_paths(program)
    if numbering.count > bound:
        return None
    aligned = unused = 0
    owner: Counter[str] = Counter()
    for number in range(numbering.count):
        path = path_of(program, numbering, number)
        found = align(program, component, path.blocks, path.outcomes)
        if found.owner_from is not None:
            owner[found.reason] += 1
        elif found.anchor is not None:
            aligned += 1
        else:
            unused += 1
    return Ways(aligned, tuple(owner.most_common()), unused)


def report(program: Program, bound: int) -> str:
    """The report for people; ``bound``: paths that are sorted into ways at most."""
    sections = []
    for sharding in sharding_of(program).values():
        sections.append("\n".join(_section(program, sharding, bound)))
    return "\n".join(sections) if sections else "the program has no state"


def _section(program: Program, sharding: Sharding, bound: int) -> Iterator[str]:
    names = ", ".join((sharding.component, *(s for s in sharding.states if s != sharding.component)))
    copies = copyable(program, sharding.component)
    if len(sharding.states) == 1 and not isinstance(copies, Reason):
        yield f"{names}: {_COPIES[copies]}"
        return
    if not sharding.splittable:
        yield f"{names}: cannot be split"
        yield from (f"  line {r.span.line}: {r.text}" for r in sharding.refusals)
        return
    yield f"{names}: entries can be lent to a place nearer to the wire"
    yield from _anchors(sharding.anchors)
    yield from _owner_only(sharding.owner_only)
    yield from _ways(ways_of(program, sharding.component, bound), bound)
    yield from _steering(steering_of(program, sharding.component))


def _anchors(anchors: Sequence[Anchor]) -> Iterator[str]:
    yield "  packets find them by"
    rows = [[", ".join(a.ports), a.key or a.state, " ".join(str(p) for p in a.parts), f"line {a.span.line}"]
            for a in anchors]
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "    " + "  ".join([*cells, row[3]])


def _owner_only(accesses: Sequence[OwnerOnly]) -> Iterator[str]:
    if accesses:
        yield "  only at the owner"
        yield from _by_reason(accesses)


def _by_reason(accesses: Iterable[OwnerOnly]) -> Iterator[str]:
    """Accesses with the same reason in one line."""
    lines: dict[tuple[str, str], list[Span]] = {}
    for access in accesses:
        lines.setdefault((access.kind, access.reason), []).append(access.span)
    for (kind, reason), spans in lines.items():
        yield f"    {kind}, {_lines(spans)}: {reason}"


def _lines(spans: Iterable[Span]) -> str:
    numbers = sorted({s.line for s in spans})
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(str(n) for n in numbers)}"


def _ways(ways: Ways | None, bound: int) -> Iterator[str]:
    if ways is None:
        yield f"  the program has more than {bound:,} ways: they are not counted (--max-paths)"
        return
    yield (f"  of the program's ways {ways.aligned:,} run on a lent entry to their end, {ways.handed_over:,} need the "
           f"owner, {ways.unused:,} use none")
    yield from (f"    {count:,}: {reason}" for reason, count in ways.owner)


def _steering(found: Steering) -> Iterator[str]:
    if not found.meeting:
        yield "  cores cannot divide it by a steering hash"
    else:
        yield f"  cores could divide it by a steering hash: {_MEETING[found.meeting]}"
    for key in found.keys:
        headers = "/".join(h for h in key.headers if h) or "all"
        yield f"    {key.port} {headers}: {' '.join(h for _, h in key.fields)}"
    if found.elsewhere:
        yield "    handed to the entry's core"
        yield from ("  " + line for line in _by_reason(found.elsewhere))
    yield from (f"    not now, line {r.span.line}: {r.text}" for r in found.refusals)


def facts(program: Program, bound: int) -> dict[str, Any]:
    """The report for programs."""
    return {"components": [_facts(program, s, bound) for s in sharding_of(program).values()],
            "copies": {s.name: _copy_facts(copyable(program, s)) for s in program.states}}


def _facts(program: Program, sharding: Sharding, bound: int) -> dict[str, Any]:
    steering = steering_of(program, sharding.component)
    ways = ways_of(program, sharding.component, bound) if sharding.splittable else None
    return {
        "component": sharding.component, "states": list(sharding.states), "splittable": sharding.splittable,
        "exact": sharding.exact, "strict_order": sharding.strict_order, "per_shard": sharding.per_shard,
        "refusals": [_reason(r) for r in sharding.refusals],
        "anchors": [{"state": a.state, "key": a.key, "ports": list(a.ports), "place": str(a.span),
                     "parts": {f: str(p) for f, p in zip(a.fields, a.parts, strict=True)}, "quoted": a.quoted,
                     "plain": a.plain} for a in sharding.anchors],
        "owner_only": [_access(o) for o in sharding.owner_only],
        "ways": None if ways is None else {"aligned": ways.aligned, "unused": ways.unused,
                                           "owner": [{"reason": r, "ways": n} for r, n in ways.owner]},
        "cores": {"meeting": steering.meeting, "divides": steering.divides,
                  "keys": [{"port": k.port, "headers": [h for h in k.headers if h], "fields": dict(k.fields)}
                           for k in steering.keys],
                  "elsewhere": [_access(o) for o in steering.elsewhere],
                  "refusals": [_reason(r) for r in steering.refusals]},
    }


def _access(access: OwnerOnly) -> dict[str, str]:
    return {"kind": access.kind, "reason": access.reason, "place": str(access.span)}


def _reason(reason: Reason) -> dict[str, str]:
    return {"text": reason.text, "place": str(reason.span)}


def _copy_facts(copies: str | Reason) -> Any:
    return _reason(copies) if isinstance(copies, Reason) else copies
