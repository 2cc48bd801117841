"""The sections of a report, made of a plan's figures; nothing is computed here that the plan does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cora.analysis.profile import Profile, StateUse
from cora.explain.budget import budget_of
from cora.explain.changes import Change, Changes
from cora.explain.compare import against, verdict
from cora.explain.front import FrontPoint
from cora.explain.sensitivity import More
from cora.explain.sizing import Exhaustion, advice, at_once, seconds
from cora.explain.why import gain_text, user_name, watched
from cora.models.target import Place, Tier
from cora.plan.costs import User, users
from cora.plan.document import Figure, Plan, RefusedAt, Source, StatePlacement, Steering
from cora.plan.quantities import available, cores, mpps, number, scaled, used
from cora.plan.render import asked_rate, execution, host_model, percent, planned_rate, shown_figure
from cora.report.charts import Cut, Dot, Flow, Step, budgets, cut, dots, head_mass, sankey
from cora.report.charts import front as front_chart
from cora.report.markup import Child, Markup, details, join, table, tag

# Kinds of packets drawn by themselves, and rows told before the rest is folded away.
_FLOWS = 9
_REFUSALS = 8
_USERS = 10
_CURVES = 4
_PER_MPPS = 1e-6


def heading(plan: Plan) -> Markup:
    """The title, what was asked for, and the figures a reader came for."""
    asked = f"asked: the most throughput with {cores(plan.request.cores or 0)}"
    if plan.request.rate_pps is not None:
        asked = f"asked: {asked_rate(plan)} with as few host cores as possible"
    tiles = [_tile("host cores", str(plan.cores), _core_band(plan))]
    tiles += [_tile(f.name, shown_figure(f, f.value), _band(f)) for f in plan.figures if f.name != "host cores"]
    if plan.samples_met is not None:
        tiles.insert(1, _tile("carries what was asked", f"{plan.samples_met} of {plan.samples}",
                              "samples of the model"))
    return join([tag("h1", f"{plan.program} on {plan.target}"), tag("p", asked, class_="soft"),
                 tag("dl", tiles, class_="tiles"),
                 tag("p", "All figures are predicted by the model; ranges are P10 to P90 over "
                          f"{plan.samples} samples of its uncertainty.", class_="note")])


def _tile(name: str, value: str, band: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", tag("span", value, class_="value"),
                                           tag("span", band, class_="band") if band else None), class_="tile")


def _band(figure: Figure) -> str:
    return f"{shown_figure(figure, figure.low)} to {shown_figure(figure, figure.high)}"


def _core_band(plan: Plan) -> str:
    figure = next((f for f in plan.figures if f.name == "host cores"), None)
    if figure is not None:
        return _band(figure)
    return "" if plan.request.cores is None else f"of {plan.request.cores} given"


def colour(plan: Plan, place: str) -> str:
    """The class of a place's colour: the host's is the same in all reports, the others count from the wire."""
    index = plan.places.index(place) if place in plan.places else 0
    if index and index == len(plan.places) - 1:
        return "place-host"
    return f"place-{index % 3}"


# What lives where.

def places(plan: Plan, known: Sequence[Place]) -> Markup:
    """The chain from the wire to the host: each place with its memories, filled to scale, and what passes between."""
    declared = {p.name: p for p in known}
    parts: list[Markup] = [_between("wire", 1.0)]
    for i, name in enumerate(plan.places):
        if i:
            parts.append(_between(f"to {name}", _reaching(plan, i), _crossing(plan, i, -1)))
        parts.append(_place(plan, i, name, declared.get(name)))
    return tag("figure", tag("figcaption", "Places from the wire to the host. Bars show how much of each memory the "
                                           "states take, to the scale of that memory; arrows the share of packets "
                                           "whose program goes on there."),
               tag("div", parts, class_="chain"))


def _between(name: str, share: float, back: float = 0.0) -> Markup:
    returned = [tag("br"), f"{percent(back)} back"] if back else []
    return tag("div", tag("span", name, tag("br"), percent(share), returned), class_="wire")


def _reaching(plan: Plan, place: int) -> float:
    """Share of packets whose program runs at a place or beyond: it starts there, or goes on there."""
    order = {name: i for i, name in enumerate(plan.places)}
    starts = sum(c.share for c in plan.classes if order[c.starts] >= place)
    return min(1.0, starts + _crossing(plan, place, 1))


def _crossing(plan: Plan, place: int, way: int) -> float:
    """Share of packets that cross to a place from the wire's side (1), or back from it (-1), inside the program."""
    order = {name: i for i, name in enumerate(plan.places)}
    return sum(c.share for c in plan.crossings
               if way * (order[c.to_place] - order[c.from_place]) > 0
               and min(order[c.from_place], order[c.to_place]) < place <= max(order[c.from_place], order[c.to_place]))


def _place(plan: Plan, index: int, name: str, declared: Place | None) -> Markup:
    order = {n: i for i, n in enumerate(plan.places)}
    ends = sum(c.share for c in plan.classes if order[c.ends] == index)
    kept: dict[str, list[tuple[str, int, str]]] = {}
    for state in plan.states:
        for place, tier, amount, unit, note in _kept(state):
            if place == name:
                kept.setdefault(tier, []).append((f"{state.name}{note}", amount, unit))
    memories = [_memory(tier, rows, _tier(declared, tier)) for tier, rows in kept.items()]
    empty = [t.name for t in declared.tiers if t.name not in kept] if declared else []
    what = f"{declared.description}; " if declared else ""
    return tag("div", tag("h3", name), tag("div", f"{what}{percent(ends)} of packets end here", class_="note"),
               memories or tag("p", "no state is kept here", class_="note"),
               tag("p", f"empty: {', '.join(empty)}", class_="note") if empty and memories else None,
               class_=f"place {colour(plan, name)}")


def _kept(state: StatePlacement) -> list[tuple[str, str, int, str, str]]:
    """Every piece of a state: place, tier, amount, unit, and a note on what it is."""
    if state.copies:
        return [(c.place, c.tier, c.amount, c.unit, f" ({state.decision} copy)") for c in state.copies]
    note = " (owner)" if state.lent is not None else ""
    rows = [(state.place, state.tier, state.amount, state.unit, note)]
    if state.lent is not None:
        rows.append((state.lent.place, state.lent.tier, state.lent.amount, state.lent.unit,
                     f" (lent, {state.lent.entries:,} entries)"))
    return rows


def _tier(declared: Place | None, name: str) -> Tier | None:
    return None if declared is None else next((t for t in declared.tiers if t.name == name), None)


def _memory(name: str, rows: Sequence[tuple[str, int, str]], tier: Tier | None) -> Markup:
    ordered = sorted(rows, key=lambda row: -row[1])
    total = sum(amount for _, amount, _ in ordered)
    capacity = tier.capacity if tier is not None and tier.capacity else None
    head: list[Child] = [tag("span", tag("strong", name))]
    bar: Markup | None = None
    if capacity is not None:
        share = total / capacity
        head.append(tag("span", f"{percent(share)} of {scaled(capacity, ordered[0][2])}"))
        bar = tag("div", [tag("i", class_="fill", style=f"width:{100 * amount / capacity:.4f}%")
                          for _, amount, _ in ordered],
                  class_="track", role="img", aria_label=f"{name} is {percent(share)} full")
    listed = [tag("li", tag("span", label), tag("span", scaled(amount, unit))) for label, amount, unit in ordered]
    return tag("div", tag("div", head, class_="name"), bar, tag("ul", listed), class_="memory")


# Where packets go.

def packets(plan: Plan) -> Markup | None:
    """Kinds of packets, the places where they end, and their fate."""
    if not plan.classes:
        return None
    order = {name: i for i, name in enumerate(plan.places)}
    shown = plan.classes[:_FLOWS] if len(plan.classes) > _FLOWS + 1 else plan.classes
    flows = [Flow("; ".join(c.history) or "no state read", order[c.ends], _fate(c.verdict), c.share) for c in shown]
    rest = plan.classes[len(shown):]
    flows += [Flow(f"{len(rest)} rarer kinds", place, fate, share) for (place, fate), share in
              _added([((order[c.ends], _fate(c.verdict)), c.share) for c in rest]).items() if share > 0]
    drawn = sankey([f for f in flows if f.share > 0], plan.places,
                   [colour(plan, p) for p in plan.places], "Where packets go",
                   "Shares of packets by what the tables answered, by the place where their program ends, and by what "
                   "becomes of them; the same figures are in the table below.")
    rows = [(percent(c.share), "; ".join(c.history) or "-", c.verdict, _way(c.starts, c.ends)) for c in plan.classes]
    data = table(("share", "state outcomes", "verdict", "place"), rows, "All kinds of packets", numeric=(0,))
    crossing = [(f"{c.from_place} to {c.to_place}", percent(c.share), f"{c.before} to {c.after}", used(c.bytes, "byte"))
                for c in plan.crossings if c.share]
    handed = table(("direction", "share", "blocks", "travels along"), crossing, "Handed over inside the program",
                   numeric=(1,)) if crossing else tag("p", "No packet changes its place inside the program.",
                                                      class_="note")
    return tag("figure", tag("figcaption", "Heights are shares of packets; colours are those of the places."), drawn,
               details("All kinds of packets as a table", data), details("Hand-overs inside the program", handed))


def _added(pairs: Sequence[tuple[tuple[int, str], float]]) -> dict[tuple[int, str], float]:
    found: dict[tuple[int, str], float] = {}
    for key, share in pairs:
        found[key] = found.get(key, 0.0) + share
    return found


def _fate(verdict: str) -> str:
    """What becomes of packets, without the reasons that tell drops apart."""
    return verdict if verdict.startswith("forward") else {"drop": "dropped", "reject": "rejected", "hold": "held"}.get(
        verdict.split(" ")[0], verdict)


def _way(starts: str, ends: str) -> str:
    return starts if starts == ends else f"{starts} to {ends}"


# What binds.

def resources(plan: Plan) -> Markup:
    """Utilisation of every resource at the planned rate, and who uses those that matter."""
    rows: list[Markup] = []
    for r in sorted(plan.resources, key=lambda r: -r.utilisation):
        if not r.per_packet:
            continue
        binds = r.name == plan.binding
        rows.append(tag(
            "li", tag("span", r.name, tag("span", "binds", class_="tagged") if binds else None, class_="name"),
            tag("span", tag("i", class_=f"fill {colour(plan, r.place)}",
                            style=f"width:{min(100 * r.utilisation, 100):.3f}%"), class_="track",
                role="img", aria_label=f"{r.name} is {percent(r.utilisation)} used"),
            tag("span", percent(r.utilisation), class_="value"),
            tag("span", f"at {r.place}: a packet takes {used(r.per_packet, r.unit)}, available: "
                        f"{available(r.name, r.rate, r.unit)}", class_="why"),
            class_="use binds" if binds else "use"))
    idle = [r.name for r in plan.resources if not r.per_packet]
    return join([
        tag("figure", tag("figcaption", "Use of each resource at the planned rate, "
                                        f"{mpps(planned_rate(plan))}; the plan ends at "
                                        f"{mpps(plan.throughput_pps)}. Colours are those of the places."),
            tag("ul", rows, class_="uses"), tag("p", f"not used: {', '.join(idle)}", class_="note") if idle else None),
        [_who(plan, r.name, r.place) for r in watched(plan)],
    ])


def _who(plan: Plan, resource: str, place: str) -> Markup:
    found = users(plan, resource)
    rows = [(percent(u.share), user_name(u), _line(u)) for u in found[:_USERS]]
    rest = found[_USERS:]
    if rest:
        rows.append((percent(sum(u.share for u in rest)), f"{len(rest)} more", Markup("")))
    return join([tag("h3", f"Who uses {resource} at {place}"),
                 table(("share", "used by", "line"), rows, numeric=(0,), whole=(1,),
                       label=f"Users of {resource}")])


def _line(user: User) -> Markup:
    return Markup("") if user.source is None else _source(user.source, 90)


def _source(source: Source, letters: int) -> Markup:
    return join([tag("span", f"{source.file}:{source.line} ", class_="soft"),
                 tag("code", cut(source.text, letters), title=source.text)])


# Beside other placements.

def others(plan: Plan) -> Markup:
    """The simple placements with their bands beside the plan."""
    reach = plan.figure("throughput")
    rows = [Dot("this plan", _m(plan.throughput_pps), _m(reach.low), _m(reach.high), cores(plan.cores), True)]
    for a in against(plan):
        rows.append(Dot(a.name, _m(a.throughput_pps) if a.legal else None, _m(a.low), _m(a.high),
                        _needs(plan, a.cores) if a.legal else a.note))
    given = plan.cores if plan.request.rate_pps is not None else plan.request.cores
    with_cores = cores(given) if given else "a host core where needed"
    line = None if plan.request.rate_pps is None else (plan.request.rate_pps * _PER_MPPS, "asked")
    chart = dots("baselines", rows, "Mpps", "Throughput of the plan and of simpler placements",
                 "A dot for each placement's predicted throughput, a bar for P10 to P90 over the model's samples; the "
                 "same figures are in the table below.", line)
    told = verdict(plan)
    body = [(a.name, "-" if a.cores is None else str(a.cores), mpps(a.throughput_pps),
             f"{mpps(a.low)} to {mpps(a.high)}", "-" if a.ratio is None else f"{a.ratio:.2f}",
             "-" if a.ratio_low is None or a.ratio_high is None else f"{a.ratio_low:.2f} to {a.ratio_high:.2f}", a.note)
            for a in against(plan)]
    data = table(("placement", "cores", "throughput", "P10 to P90", "plan is faster by", "P10 to P90", "note"), body,
                 "Simpler placements (predicted)", numeric=(1, 2, 3, 4, 5))
    caption = f"Throughput with {with_cores}, predicted; bars are P10 to P90."
    if plan.request.rate_pps is not None:
        caption += " On the right the host cores that the asked rate takes."
    return tag("figure", tag("figcaption", caption), chart, tag("p", f"{told[0].upper()}{told[1:]}."),
               details("These figures as a table", data))


def _m(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value * _PER_MPPS


def _needs(plan: Plan, needed: int | None) -> str:
    if plan.request.rate_pps is None:
        return ""
    return "out of reach" if needed is None else cores(needed)


def front(plan: Plan, points: Sequence[FrontPoint]) -> Markup | None:
    """Throughput by host cores, where it was planned for."""
    if not points:
        return None
    steps = [Step(p.cores, p.throughput_pps * _PER_MPPS, p.low * _PER_MPPS, p.high * _PER_MPPS, p.cores == plan.cores)
             for p in points]
    asked = None if plan.request.rate_pps is None else (plan.request.rate_pps * _PER_MPPS, f"asked {asked_rate(plan)}")
    chart = front_chart(steps, "The most throughput by host cores",
                        "Each dot is a plan of its own, made for so many host cores; bars are P10 to P90.", asked)
    data = table(("host cores", "throughput", "P10", "P90"),
                 [(str(p.cores), mpps(p.throughput_pps), mpps(p.low), mpps(p.high)) for p in points],
                 "Plans by host cores (predicted)", numeric=(0, 1, 2, 3))
    return tag("figure", tag("figcaption", "Each dot is a plan of its own for so many host cores (predicted, bars P10 "
                                           "to P90); the coloured one has this plan's cores."), chart,
               details("These figures as a table", data))


# Popularity.

def popularity(plan: Plan, profile: Profile | None) -> Markup | None:
    """Head-mass curves of the tables that are used most, with the cut a split plan has chosen."""
    if profile is None:
        return None
    drawn = [(s, profile.states[s.name]) for s in plan.states
             if s.name in profile.states and len(profile.states[s.name].popularity) > 1]
    drawn.sort(key=lambda pair: (pair[0].lent is None, -pair[0].accesses_per_packet))
    if not drawn:
        return None
    figures = [_curve(i, state, use) for i, (state, use) in enumerate(drawn[:_CURVES])]
    return join([tag("p", "The steeper the curve, the more a few entries get: the more a small fast table can serve.",
                     class_="soft"), tag("div", figures, class_="grid-2")])


def _curve(index: int, state: StatePlacement, use: StateUse) -> Markup:
    chosen = None
    told = f"kept whole at {state.place}"
    if state.lent is not None:
        share = min(1.0, state.lent.entries / max(state.entries, 1))
        height = _at(use.popularity, share)
        chosen = Cut(share, height, f"{state.lent.entries:,} lent")
        told = (f"up to {state.lent.entries:,} entries lent to {state.lent.place} after {state.lent.threshold} "
                f"packets; {percent(state.lent.share)} of packets on the fast path")
    hottest = use.popularity[0][1]
    chart = head_mass(f"popularity-{index}", use.popularity, chosen, f"Popularity of {state.name}'s entries",
                      f"Share of accesses that the most used entries get; the most used one gets {percent(hottest)}.")
    return tag("figure", tag("h3", state.name), tag("figcaption", f"{state.entries:,} entries; the most used gets "
                                                                  f"{percent(hottest)} of accesses; {told}."), chart)


def _at(points: Sequence[tuple[float, float]], share: float) -> float:
    """The curve's height at a share of entries, linear between points."""
    before = (0.0, 0.0)
    for point in points:
        if point[0] >= share:
            span = point[0] - before[0]
            return before[1] + (point[1] - before[1]) * ((share - before[0]) / span if span else 1.0)
        before = point
    return before[1]


def splits(plan: Plan) -> Markup | None:
    """Ways to split state by flow, with the budgets that were considered and the one chosen."""
    chosen = [s for s in plan.steering if s.chosen is not None]
    if not chosen:
        return None
    return join([_split(i, s) for i, s in enumerate(chosen)])


def _split(index: int, way: Steering) -> Markup:
    at = way.chosen if way.chosen is not None else 0
    point = way.points[at]
    lines: dict[str, list[tuple[float, float]]] = {}
    for p in way.points:
        name = ", ".join(f"{t} packet{'' if t == 1 else 's'}" for t in p.thresholds)
        lines.setdefault(f"after {name}", []).append((float(sum(p.capacities)), p.share))
    chart = budgets(f"budgets-{index}", lines, Cut(float(sum(point.capacities)), point.share, "chosen"),
                    f"Packets on the fast path by entries lent of {', '.join(way.components)}",
                    "One line for each number of packets after which a flow's entry is lent; the same figures are in "
                    "the table below.")
    rows = [(", ".join(f"{c:,}" for c in p.capacities), ", ".join(map(str, p.thresholds)), percent(p.share),
             number(float(f"{p.installs_per_packet:.3g}")), number(float(f"{p.recalls_per_packet:.3g}")),
             "-" if p.host_work is None else f"{p.host_work:.2f}", mpps(p.throughput_pps),
             tag("strong", "chosen") if i == at else "") for i, p in enumerate(way.points)]
    data = table(("entries lent at most", "after packets", "fast path", "lent a packet", "recalled a packet",
                  "host work (cores)", "throughput", ""), rows, "Budgets considered", numeric=range(7))
    keys = tag("ul", [tag("li", tag("code", k)) for k in way.keys])
    how = "runs the program" if way.mode == "resume" else "has rules of decided flows"
    told = (f"Entries of {', '.join(way.components)} are lent from {way.owner} to {way.near}, which {how}: at most "
            f"{sum(point.capacities):,}, after {', '.join(map(str, point.thresholds))} packets of a flow. "
            f"{percent(point.share)} of packets take the fast path.")
    return tag("figure", tag("figcaption", told), chart, details("Budgets that were considered", data),
               details("How packets find their entries", keys))


def sizes(plan: Plan, rows: Sequence[Exhaustion]) -> Markup | None:
    """How full tables got and get at the planned rate."""
    if not rows:
        return None
    body = [(r.name, f"{r.room:,}", "not counted" if r.bound else f"{r.peak:,}", number(float(f"{r.arrivals:.3g}")),
             at_once(r), "never" if r.full_after is None else seconds(r.full_after),
             "-" if r.recommended is None else f"{r.recommended:,}") for r in rows]
    data = table(("table or pool", "room", "peak in the profile", "new a second", "entries at once", "full after",
                  "enough"), body, f"At {mpps(planned_rate(plan))}, from more flows of the same kind (predicted)",
                 numeric=(1, 2, 3, 4, 5, 6))
    told = [tag("li", tag("div", line), tag("pre", where)) for r in rows for line, where in advice(r)]
    return join([data, tag("ul", told, class_="reasons") if told else None])


# What would help, why, costs.

def helpful(plan: Plan, more: Sequence[More] | None, changes: Changes | None) -> Markup | None:
    """What was planned anew with one thing different."""
    if more is None or changes is None:
        return None
    useful = [(m.what, m.place, gain_text(m.gain)) for m in more if not m.gain.nothing]
    idle = [f"{m.what} at {m.place}" for m in more if m.gain.nothing]
    bought = table(("more", "at", "brings (predicted)"), useful, "More of a resource") if useful else \
        tag("p", "More of no resource brings anything.")
    listed = tag("ul", [_change(c, plan) for c in changes.helpful], class_="reasons") if changes.helpful else \
        tag("p", f"None of the {changes.tried} changes of the program that were tried brings anything.")
    return join([tag("p", "Each row was planned anew with one thing different.", class_="soft"), bought,
                 details(f"{len(idle)} that bring nothing", tag("p", "; ".join(idle))) if idle else None,
                 tag("h3", "Changes of the program"), listed])


def _change(change: Change, plan: Plan) -> Markup:
    most = "at most " if change.bound else ""
    parts: list[Child] = [tag("strong", f"{change.change}: "), f"{most}{gain_text(change.gain)}"]
    if change.price:
        parts.append(tag("div", f"price: {change.price}", class_="soft"))
    for r in change.obstacles:
        parts += [tag("div", r.reason, class_="soft"), _excerpt(r)]
    if not change.obstacles and change.source is not None:
        parts.append(tag("pre", _where(change.source)))
    return tag("li", parts, class_=colour(plan, change.obstacles[0].place) if change.obstacles else None)


def why(plan: Plan) -> Markup:
    """Reasons per state, with what each other place would mean."""
    rows = []
    for s in plan.states:
        lines = [tag("div", s.reason)] if s.decision != "whole" or not s.moves else []
        lines += [tag("div", f"at {m.where}: {'' if m.possible else 'not possible: '}{m.reason}") for m in s.moves]
        how = "" if s.decision == "whole" else f", {s.decision}"
        rows.append(tag("li", tag("strong", s.name), f" ({s.kind}{how}) at {s.place}/{s.tier}; "
                        f"{number(s.accesses_per_packet)} accesses a packet",
                        tag("pre", _where(s.source)), lines,
                        class_=colour(plan, s.place)))
    return tag("ul", rows, class_="reasons") if rows else tag("p", "The program has no state.")


def costs(plan: Plan) -> Markup:
    """What one packet of each path takes of the resources that are time."""
    budget = budget_of(plan)
    names = budget.times()
    head = ("path", "share", *(f"{n} ({budget.units[n].unit})" for n in names))
    rows: list[Sequence[Child]] = [(p.name, percent(p.share), *(_amount(p.costs, n) for n in names))
                                   for p in budget.paths]
    rows.append((tag("strong", "mean packet"), "", *(_amount(budget.mean, n) for n in names)))
    return table(head, rows, "One packet of each path (predicted)", numeric=range(1, len(head)), whole=(0,))


def _amount(amounts: Mapping[str, float], name: str) -> str:
    return f"{amounts[name]:,.1f}" if amounts.get(name) else "-"


# Refusals and evidence.

def refusals(plan: Plan) -> Markup:
    """What cannot be where and why, grouped by reason, states first, with the user's own lines."""
    grouped: dict[tuple[str, str], list[RefusedAt]] = {}
    for r in plan.refusals:
        if "/" not in r.place:
            grouped.setdefault((r.place, r.reason), []).append(r)
    if not grouped:
        return tag("p", "Nothing was refused anywhere.")
    weight: dict[str, float] = {s.name: math.inf for s in plan.states}
    for b in plan.blocks:
        weight[b.block] = weight.get(b.block, 0.0) + b.share
    ordered = sorted(grouped.values(), key=lambda rows: -max(weight.get(r.subject, 0.0) for r in rows))
    shown = tag("ul", [_refusal(plan, rows) for rows in ordered[:_REFUSALS]], class_="reasons")
    rest = ordered[_REFUSALS:]
    return join([shown, details(f"{len(rest)} more reasons", tag("ul", [_refusal(plan, rows) for rows in rest],
                                                                class_="reasons")) if rest else None])


def _refusal(plan: Plan, rows: Sequence[RefusedAt]) -> Markup:
    names = list(dict.fromkeys(r.subject for r in rows))
    subjects = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    first = rows[0]
    return tag("li", tag("strong", f"not at {first.place}: "), tag("span", subjects, class_="soft"),
               tag("div", first.reason), _excerpt(first), class_=colour(plan, first.place))


def _excerpt(refused: RefusedAt) -> Markup | None:
    return None if refused.source is None else tag("pre", _where(refused.source))


def _where(source: Source) -> str:
    return f"{source}: {source.text}".rstrip(": ")


def evidence(plan: Plan) -> Markup:
    """What was proven, what was checked, and what the figures rest on."""
    e = plan.evidence
    bound = "none" if e.bound is None else number(e.bound)
    gap = "unknown" if e.gap is None else f"{100 * e.gap:.3f} %"
    facts = [
        ("search", f"{e.solver}: {e.status}"),
        ("goal", f"{e.goal} {number(e.objective)}, bound {bound}, gap {gap}, {e.seconds:.3f} s"),
        ("exact check", f"{e.exact_check}: legality, memories and throughput in rational arithmetic"),
        ("uncertainty", f"{plan.samples} samples of the model's parameter box; bands are P10 to P90"),
        ("traffic", f"{plan.profile_packets:,} packets, mean frame {plan.mean_frame:.0f} octets"),
        ("model", f"{plan.target}, version {plan.model_version}"),
        ("host model", host_model(plan)),
    ]
    for v in e.verified:
        facts.append(("verified", f"{v.packets:,} packets of {', '.join(v.traffic)} with {v.seeds} orders of the "
                                  f"scheduler: {execution(v.on)} gave what the unsplit program gives; {v.fast:,} on "
                                  f"the fast path, {v.punted:,} handed over, {v.recalled:,} entries taken back; "
                                  f"{percent(v.coverage)} of the program's outcomes covered"))
    if not e.verified:
        facts.append(("verified", "not yet: `cora verify` runs the plan's parts against the unsplit program"))
    hashes = [("program", plan.program_hash), ("profile", plan.profile_digest), ("model", plan.model_digest),
              ("plan", plan.digest())]
    stages = [(s.goal, s.status, number(s.objective), "-" if s.bound is None else number(s.bound),
               "-" if s.gap is None else f"{100 * s.gap:.3f} %", f"{s.seconds:.3f}") for s in e.stages]
    goals = table(("goal", "status", "value", "bound", "gap", "seconds"), stages, "Goals", numeric=(2, 3, 4, 5))
    return join([
        table(("what", "how"), facts, "Evidence"),
        details("Goals of the search, in order", goals) if stages else None,
        details("Digests", table(("of", "SHA-256"), [(n, tag("code", h, class_="hash")) for n, h in hashes])),
    ])


def closing(plan: Plan) -> Markup:
    """What kind of figures these are."""
    return tag("p", f"Every figure on this page is predicted by the model of {plan.target} for the profiled traffic; "
                    "none was measured on a card. Made by cora from a plan document, without any other source.")

