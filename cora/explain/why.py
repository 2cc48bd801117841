"""Why a plan is as it is and what would change it, as text and as JSON's types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from cora.explain.changes import Change, Changes
from cora.explain.kept import Kept, NotLent
from cora.explain.questions import Gain, told
from cora.explain.sensitivity import More
from cora.plan.costs import User, class_name, shares_of_classes, users
from cora.plan.document import Plan, ResourceUse, Source, plain
from cora.plan.quantities import available, mpps, used
from cora.plan.render import columns, headline, percent, reasons
from cora.plan.sources import source_of

# Users of a resource, and path classes, told before the rest is only added up.
_USERS = 8
_CLASSES = 5
# Characters of a source line beside its share.
_TEXT = 60
# A use below this share of the resource is part of the rest.
_SMALL = 0.01

_MOVING = {"wire": "frames on the link", "arrival": "receiving and sending packets",
           "hand-over": "handing packets over", "departure": "sending packets back",
           "ageing": "entries that die of age", "lending": "lending entries and taking them back"}


def why(plan: Plan) -> str:
    """What the document knows: what binds and who uses it, why states are where they are."""
    return "\n".join([headline(plan), "", "What binds", *binding(plan), "", "Why each state is where it is",
                      *reasons(plan)]) + "\n"


def watched(plan: Plan) -> list[ResourceUse]:
    """The resource that binds, then the most used one of every other place that the program's own work goes to."""
    ordered = sorted((r for r in plan.resources if r.per_packet), key=lambda r: -r.utilisation)
    found = ordered[:1]
    for r in ordered[1:]:
        by_code = any(u.source is not None for u in users(plan, r.name))
        if by_code and all(r.place != f.place or not _by_code(plan, f) for f in found):
            found.append(r)
    return found


def _by_code(plan: Plan, resource: ResourceUse) -> bool:
    return any(u.source is not None for u in users(plan, resource.name))


def binding(plan: Plan) -> list[str]:
    """The resources watched, each with what uses it."""
    lines = []
    for i, r in enumerate(watched(plan)):
        role = "" if i else "the binding resource; the plan ends at " + mpps(plan.throughput_pps) + "; "
        lines.append(f"  {r.name} at {r.place}: {percent(r.utilisation)} used at the planned rate; {role}"
                     f"a packet takes {used(r.per_packet, r.unit)}, available: {available(r.name, r.rate, r.unit)}")
        lines += [f"    {line}" for line in _users(plan, r)]
    return lines


def _users(plan: Plan, resource: ResourceUse) -> list[str]:
    found = users(plan, resource.name)
    shown = [u for u in found if u.share >= _SMALL][:_USERS]
    rows = [(percent(u.share), user_name(u), _where(u)) for u in shown]
    rest = found[len(shown):]
    if rest:
        rows.append((percent(sum(u.share for u in rest)), f"{len(rest)} more", ""))
    lines = [line.strip() for line in columns(("share", "used by", "line"), rows)]
    return [_by_kind(found), *lines, *_by_class(plan, resource)]


def _kind(user: User) -> str:
    match user.what:
        case "access" | "ageing":
            return f"accesses to {user.subject}"
        case "lending":
            return f"lending of {user.subject}"
        case "code":
            return "other code"
    return "moving packets"


def _by_kind(found: Sequence[User]) -> str:
    """In total: what each state's accesses, all other code, and moving packets use."""
    total: dict[str, float] = {}
    for u in found:
        name = _kind(u)
        total[name] = total.get(name, 0.0) + u.share
    rows = sorted(total.items(), key=lambda row: -row[1])
    return "in all: " + ", ".join(f"{percent(share)} {name}" for name, share in rows if share >= _SMALL)


def _by_class(plan: Plan, resource: ResourceUse) -> list[str]:
    shares = [(i, s) for i, s in shares_of_classes(plan, resource.name)]
    if not shares:
        return []
    parts = [f"{percent(s)} by '{class_name(plan.classes[i])}' ({percent(plan.classes[i].share)} of the packets)"
             for i, s in shares[:_CLASSES] if s >= _SMALL]
    return ["by path: " + "; ".join(parts)]


def user_name(user: User) -> str:
    """What a user of a resource is, in words."""
    match user.what:
        case "code":
            return f"code at {user.place}"
        case "access":
            return f"{user.subject}: accesses at {user.place}"
        case "hand-over" | "departure":
            return f"{_MOVING[user.what]}, {user.subject} to {user.place}"
        case "ageing" | "lending":
            return f"{user.subject}: {_MOVING[user.what]}"
    return f"{_MOVING[user.what]} at {user.place}"


def _where(user: User) -> str:
    return "" if user.source is None else _shown(user.source)


def _shown(source: Source) -> str:
    text = source.text if len(source.text) <= _TEXT else source.text[:_TEXT - 1] + "…"
    return f"{source.file}:{source.line}: {text}".rstrip(": ")


def gain_text(gain: Gain) -> str:
    """A gain in one phrase: ``+4.0 % throughput (P10 to P90: +0.0 % to +10.0 %)``."""
    if gain.throughput_pps is None:
        return "no plan"
    if gain.nothing:
        return "nothing"
    parts = []
    if gain.cores is not None and gain.cores_now is not None and gain.cores != gain.cores_now:
        parts.append(f"{gain.cores} instead of {gain.cores_now} host cores")
    parts.append(f"{_signed(gain.ratio)} throughput (P10 to P90: {_signed(gain.low)} to {_signed(gain.high)}): "
                 f"{mpps(gain.throughput_pps)}")
    return "; ".join(parts)


def _signed(ratio: float) -> str:
    share = round(100 * (ratio - 1), 1) or 0.0  # no minus before a zero
    return f"{share:+.1f} %"


def more_text(rows: Sequence[More], unasked: Sequence[str] = ()) -> str:
    """What one more unit of each resource would buy."""
    useful = [m for m in rows if not m.gain.nothing]
    lines = columns(("more", "at", "brings"), [(m.what, m.place, gain_text(m.gain)) for m in useful])
    idle = [f"{m.what} at {m.place}" for m in rows if m.gain.nothing]
    lines = lines if useful else ["  nothing that was asked about brings more"]
    return "\n".join(["What more of a resource would buy (each planned anew; predicted)", *lines,
                      *([f"  nothing by: {'; '.join(idle)}"] if idle else []),
                      *([f"  not asked, mostly free: {', '.join(unasked)}"] if unasked else [])]) + "\n"


def kept_text(kept: Sequence[Kept], never: Sequence[NotLent]) -> str:
    """What keeps packets from entries that are lent nearer to the wire."""
    lines = ["What keeps packets at a state's owner (counted)"]
    for k in kept:
        lines.append(f"  {percent(k.share)} of the packets need {k.component} at its owner although its entries can be "
                     f"lent to {k.near}: {k.reason}")
        lines.append(f"    {_shown(source_of(k.span))}")
    for n in never:
        lines += [f"  nothing of {n.component} is lent to {n.near}: {n.reason}", f"    {_shown(source_of(n.span))}"]
    return "\n".join(lines if len(lines) > 1 else [*lines, "  nothing"]) + "\n"


def changes_text(changes: Changes) -> str:
    """The smallest changes that would offload more."""
    lines = [f"Changes that would offload more (each planned anew; predicted; {changes.tried} tried)"]
    for c in changes.helpful:
        most = "at most " if c.bound else ""
        lines.append(f"  {c.change}: {most}{gain_text(c.gain)}")
        lines += [f"    {line}" for line in _details(c)]
    if not changes.helpful:
        lines.append("  none of them brings anything")
    return "\n".join(lines) + "\n"


def _details(change: Change) -> list[str]:
    if not change.obstacles:
        where = "" if change.source is None else f"{change.source}: {change.source.text}".rstrip(": ")
        return [f"price: {change.price}", *([where] if where else [])]
    lines = [] if change.share is None else [f"keeps {percent(change.share)} of the packets from going on there"]
    for r in change.obstacles:
        lines.append(f"{r.reason}")
        lines += [] if r.source is None else [f"  {r.source}: {r.source.text}".rstrip(": ")]
    return lines


def _data(row: Kept | NotLent) -> dict[str, Any]:
    found = asdict(row)
    del found["span"]
    return {**found, "source": plain(source_of(row.span))}


def as_json(plan: Plan, more: Sequence[More] | None = None, changes: Changes | None = None,
            kept: Sequence[Kept] | None = None, never: Sequence[NotLent] | None = None) -> dict[str, Any]:
    """All that `cora explain` says, as JSON's types; null for what needs the plan's inputs and was not asked."""
    return {
        "binding": plan.binding,
        "resources": [{**plain(r), "users": [{**asdict(u), "source": plain(u.source)} for u in users(plan, r.name)],
                       "by_class": [{"class": i, "share": s} for i, s in shares_of_classes(plan, r.name)]}
                      for r in watched(plan)],
        "states": [plain(s) for s in plan.states],
        "more": None if more is None else [
            {"what": m.what, "resource": m.resource, "place": m.place, "gain": told(m.gain)} for m in more],
        "kept_at_owner": None if kept is None else [_data(k) for k in kept],
        "not_lent": None if never is None else [_data(n) for n in never],
        "changes": None if changes is None else {
            "tried": changes.tried,
            "helpful": [{"change": c.change, "price": c.price, "obstacles": [plain(o) for o in c.obstacles],
                         "source": plain(c.source), "share": c.share, "bound": c.bound, "gain": told(c.gain)}
                        for c in changes.helpful]},
    }
