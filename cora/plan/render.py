"""A plan as text: the summary of the terminal, and why a state is where it is."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Sequence
from typing import Any

from cora.errors import Kind, fail
from cora.plan.document import Alternative, BlockPlacement, Figure, FrontPoint, Move, Plan, StatePlacement, plain
from cora.plan.quantities import available, cores, mpps, number, scaled, used
from cora.units import LINE_OCTETS

# Path classes, and reasons why something is not elsewhere, shown before the rest is only counted.
_CLASSES = 12
_REFUSALS = 5
# Blocks named in one line of a difference.
_BLOCKS = 4
Row = tuple[str, ...]
Table = tuple[str, Row, list[Row]]


def percent(share: float) -> str:
    """A share with one digit behind the point; small ones are not rounded away."""
    if share and share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def shown_figure(figure: Figure, value: float | None) -> str:
    """A value of a figure (itself, its P10 or P90) with its unit."""
    if value is None:
        return "unbounded" if figure.unit == "ns" else "out of reach"
    if figure.unit == "packets/s":
        return mpps(value)
    if figure.unit == "ns":
        return f"{value / 1000:.1f} us"
    return f"{value:.0f}" if figure.name == "host cores" else f"{value:.2f} {figure.unit}"


def figure_line(figure: Figure) -> str:
    """A figure with its band and kind: ``throughput 13.85 Mpps (P10 to P90: 10.63 Mpps to 14.97 Mpps, predicted)``."""
    low, high = shown_figure(figure, figure.low), shown_figure(figure, figure.high)
    return f"{figure.name} {shown_figure(figure, figure.value)} (P10 to P90: {low} to {high}, {figure.kind})"


def execution(on: str) -> str:
    """What ran, in words."""
    return "the parts in one process" if on == "split" else f"the programs on {on}"


def headline(plan: Plan) -> str:
    """One line: what, where, what it reaches, and how sure it is that what was asked is reached."""
    asked = "most throughput"
    if plan.request.rate_pps is not None:
        asked = (f"{asked_rate(plan)} asked, carried in {plan.samples_met} of {plan.samples} samples of the model's "
                 "uncertainty")
    return f"{plan.program} on {plan.target}: {_cores(plan)}, {mpps(plan.throughput_pps)} predicted ({asked})"


def host_model(plan: Plan) -> str:
    """Whose figures of host cores the plan was made with."""
    used_model = plan.host_model
    if used_model.kind == "published":
        return "published figures (`cora calibrate` measures your own)"
    return f"measured on {used_model.machine} by `{used_model.command}`, {used_model.made}"


def planned_rate(plan: Plan) -> int:
    """The asked rate, else the plan's throughput; packets/s."""
    return plan.throughput_pps if plan.request.rate_pps is None else plan.request.rate_pps


def asked_rate(plan: Plan) -> str:
    """The asked rate as it was asked, and in packets."""
    rate = mpps(plan.request.rate_pps)
    return rate if plan.request.line_bps is None else f"{scaled(plan.request.line_bps, 'bps')} = {rate}"


def _cores(plan: Plan) -> str:
    given = plan.request.cores
    if given is None or given == plan.cores:
        return cores(plan.cores)
    return f"{plan.cores} of {cores(given)} used"


def _lines(plan: Plan) -> list[str]:
    """The part of the summary that is no table."""
    busiest = max(plan.resources, key=lambda r: r.utilisation)
    lines = [headline(plan), ""]
    if plan.request.line_bps is not None:
        lines.append(f"  asked: {asked_rate(plan)} at the mean frame of {plan.mean_frame:.0f} octets "
                     f"({LINE_OCTETS} more on the line)")
    lines += [f"  {figure_line(f)}" for f in plan.figures]
    lines.append(f"  binding resource: {plan.binding}, {percent(busiest.utilisation)} used of "
                 f"{available(busiest.name, busiest.rate, busiest.unit)} at the planned rate")
    lines.append(f"  host model: {host_model(plan)}")
    e = plan.evidence
    gap = "unknown" if e.gap is None else f"{100 * e.gap:.3f} %"
    bound = "none" if e.bound is None else _goal(e.goal, e.bound)
    lines.append(f"  solver: {e.solver}; {e.goal} {_goal(e.goal, e.objective)}, bound {bound}, gap {gap}: {e.status}, "
                 f"in {e.seconds:.3f} s; exact check {e.exact_check}")
    for v in e.verified:
        lines.append(f"  verified: {v.packets:,} packets of {', '.join(v.traffic)} under {v.seeds} schedules each, "
                     f"{execution(v.on)} equal to the unsplit program; {v.fast:,} on the fast path, {v.punted:,} "
                     "handed over, over all schedules")
        if v.in_gaps is not None:
            lines.append(f"  reordered: with rules installed in gaps {v.overtaken:,} of {v.in_gaps:,} packets left "
                         "after a later one of their flow (measured, adversarial schedules)")
    return lines


def _goal(goal: str, value: float) -> str:
    return f"{value:,.0f} packets/s" if goal == "throughput" else f"{value:g}"


def _tables(plan: Plan) -> list[Table]:
    states: list[Row] = [(s.name, s.kind, _where(s), f"{s.amount:,} {s.unit}",
                          f"{s.accesses_per_packet:.3g}") for s in plan.states]
    classes: list[Row] = [(percent(c.share), "; ".join(c.history) or "-", c.verdict,
                c.starts if c.starts == c.ends else f"{c.starts} to {c.ends}") for c in plan.classes[:_CLASSES]]
    if len(plan.classes) > _CLASSES:
        rest = plan.classes[_CLASSES:]
        classes.append((percent(sum(c.share for c in rest)), f"{len(rest)} more classes", "", ""))
    crossings: list[Row] = [
        (f"{c.from_place} to {c.to_place}", percent(c.share), f"{c.before} to {c.after}",
         f"{used(c.bytes, 'byte')}: {', '.join(_names(c.values))}" if c.values else "no values")
        for c in plan.crossings if c.share
    ]
    resources: list[Row] = [
        (r.name, r.place, used(r.per_packet, r.unit), available(r.name, r.rate, r.unit), percent(r.utilisation))
        for r in sorted(plan.resources, key=lambda r: -r.utilisation) if r.per_packet
    ]
    others: list[Row] = [(a.name, *_alternative(plan, a)) for a in plan.alternatives]
    front: list[Row] = [
        (str(p.cores), mpps(p.throughput_pps),
         "the rate is not carried" if p.latency_ns is None else f"{p.latency_ns / 1000:.1f} us",
         f"{p.nic_memory:,} bytes", _near(plan, p), _code(p) if _reads_alike(plan, p) else "")
        for p in plan.pareto
    ]
    lent: list[Row] = [
        (s.name, f"{s.lent.place}/{s.lent.tier}", f"{s.lent.entries:,}", str(s.lent.threshold),
         f"{s.lent.amount:,} {s.lent.unit}", percent(s.lent.share), f"{1000 * s.lent.installs_per_packet:.3g}",
         f"{1000 * s.lent.recalls_per_packet:.3g}") for s in plan.states if s.lent is not None
    ]
    steered: list[Row] = [tuple(key.split(": ", 1)) for way in plan.steering if way.chosen is not None
                          for key in way.keys]
    given = plan.cores if plan.request.rate_pps is not None else plan.request.cores
    compared = cores(given) if given else "a core where needed"
    return [
        ("States", ("state", "kind", "place", "size", "accesses/packet"), states),
        ("Lent entries", ("state", "to", "entries", "after packets", "size", "fast path", "lent/1000 packets",
                          "taken back/1000"), lent),
        ("What leads packets to them", ("port", "key"), steered),
        ("Path classes", ("share", "state outcomes", "verdict", "place"), classes),
        ("Crossings inside the program", ("direction", "share", "blocks", "travels along"), crossings),
        ("Resources at the planned rate", ("resource", "place", "a packet takes", "available", "used"), resources),
        ("Pareto front", ("cores", "throughput", _front_latency(plan), "memory of the card", "states not at the host",
                          "code" if any(row[-1] for row in front) else ""), front),
        ("Other placements", ("placement", "cores", f"throughput, {compared}", "P10 to P90", "note"), others),
    ]


def _near(plan: Plan, point: FrontPoint) -> str:
    """The states that a plan of the front keeps nearer to the wire than the host."""
    return ", ".join(f"{s} {k}" for s, k in point.states.items()
                     if any(f"{place}/" in k for place in plan.places[:-1])) or "none"


def _reads_alike(plan: Plan, point: FrontPoint) -> bool:
    """Whether another plan of the front keeps all states where this one does: then the code is what differs."""
    return sum(p.states == point.states for p in plan.pareto) > 1


def _code(point: FrontPoint) -> str:
    """Blocks at each place, and the share of packets that end there."""
    return ", ".join(f"{place}: {point.blocks.get(place, 0)} blocks, end of {percent(share)}"
                     for place, share in point.ends.items())


def _front_latency(plan: Plan) -> str:
    rate = plan.request.rate_pps
    return "latency without queues" if rate is None else f"latency at {mpps(rate)}"


def _where(s: StatePlacement) -> str:
    """Where a state is kept: all its copies, or its owner and where its entries are lent to."""
    kept = " + ".join(f"{c.place}/{c.tier}" for c in s.copies) or f"{s.place}/{s.tier}"
    return kept if s.lent is None else f"split: {kept}, lent to {s.lent.place}/{s.lent.tier}"


def _alternative(plan: Plan, other: Alternative) -> Row:
    if not other.legal:
        return ("-", "-", "-", other.note)
    needed = "-" if plan.request.rate_pps is None else "out of reach" if other.cores is None else str(other.cores)
    return (needed, mpps(other.throughput_pps), f"{mpps(other.low)} to {mpps(other.high)}", other.note)


def _names(values: Sequence[str]) -> list[str]:
    """Names of values as the program's author may know them, without the numbers that tell versions apart."""
    return list(dict.fromkeys(v.partition(".")[0] for v in values))


def _refusals(plan: Plan, everything: bool) -> list[str]:
    """Refusals with their place in the source; those of one reason and place are one line.

    States come first, then the code that most packets run. Unless ``everything``, the rest is only counted.

    Those of single memories (``nic/cls``) where another of the same place would do are only in the document.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    where: dict[tuple[str, str], str] = {}
    for r in plan.refusals:
        if "/" in r.place:
            continue
        grouped.setdefault((r.place, r.reason), []).append(r.subject)
        if r.source is not None:
            where.setdefault((r.place, r.reason), f"{r.source}: {r.source.text}".rstrip(": "))
    weight: dict[str, float] = {s.name: math.inf for s in plan.states}
    for b in plan.blocks:
        weight[b.block] = weight.get(b.block, 0.0) + b.share
    ordered = sorted(grouped.items(), key=lambda item: -max(weight.get(s, 0.0) for s in item[1]))
    lines = []
    for (place, reason), subjects in ordered if everything else ordered[:_REFUSALS]:
        names = list(dict.fromkeys(subjects))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"  not at {place}: {shown}: {reason}")
        if (place, reason) in where:
            lines.append(f"    {where[place, reason]}")
    if len(ordered) > _REFUSALS and not everything:
        lines.append(f"  and {len(ordered) - _REFUSALS} more reasons: see them with --all")
    return lines


def reasons(plan: Plan) -> list[str]:
    """Why states are where they are; states with the same reason are one line."""
    grouped: dict[str, list[str]] = {}
    for s in plan.states:
        grouped.setdefault(s.reason, []).append(s.name)
    return [f"  {', '.join(names)}: {reason}" for reason, names in grouped.items()]


def summary(plan: Plan, everything: bool = False) -> str:
    """The plan for a pipe or a file: plain text, no colour, columns as wide as they need.

    ``everything``: all reasons why something is not elsewhere, not only the most important ones.
    """
    out = _lines(plan)
    for title, head, rows in _tables(plan):
        if rows:
            out += ["", title, *columns(head, rows)]
        if title == "States":
            out += ["", "Why there", *reasons(plan)]
    refused = _refusals(plan, everything)
    if refused:
        out += ["", "What could not be elsewhere, and why", *refused]
    return "\n".join(out) + "\n"


def columns(head: Row, rows: Sequence[Row]) -> list[str]:
    """A table as lines, columns as wide as they need."""
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)]


def render(plan: Plan, terminal: bool = False, everything: bool = False) -> str:
    """The plan as text without a trailing newline: tables in colour that fit a terminal, or `summary`."""
    if not terminal:
        return summary(plan, everything).rstrip("\n")
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=shutil.get_terminal_size().columns, highlight=False)
    first, *rest = _lines(plan)
    console.print(Text(first, style="bold"), *(Text(line) for line in rest), sep="\n")
    for title, head, rows in _tables(plan):
        if not rows:
            continue
        table = RichTable(title=Text(title, style="bold"), title_justify="left", box=None, pad_edge=False)
        for name in head:
            table.add_column(name, header_style="dim", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print()
        console.print(table)
        if title == "States":
            console.print(Text("\nWhy there", style="bold"))
            console.print(*(Text(line) for line in reasons(plan)), sep="\n")
    refused = _refusals(plan, everything)
    if refused:
        console.print(Text("\nWhat could not be elsewhere, and why", style="bold"))
        console.print(*(Text(line) for line in refused), sep="\n")
    return stream.getvalue().rstrip("\n")


def _known(plan: Plan, state: str) -> StatePlacement:
    try:
        return plan.state(state)
    except KeyError as error:
        known = ", ".join(x.name for x in plan.states) or "none"
        raise fail(Kind.UNKNOWN_NAME, f"the plan has no state '{state}'; it has {known}") from error


def explain(plan: Plan, state: str) -> str:
    """Why a state is where it is, what binds the plan, and what would change it.

    Raises:
        CoraError: `Kind.UNKNOWN_NAME` when the plan has no such state.
    """
    s = _known(plan, state)
    source = f"{s.source}: {s.source.text}".rstrip(": ")
    lines = [f"{s.name} ({s.kind}) {_kept(s)}.", f"  declared at {source}",
             f"  takes {s.amount:,} {s.unit} there; {s.entries:,} entries of {s.entry_bytes} bytes at most in this "
             f"traffic, {s.working_set_bytes:,} bytes used within a window",
             f"  {_accesses(s)}; the most used entry gets {percent(s.hottest)} of the accesses",
             "", "What binds the plan:", f"  {_binding(plan)}", "", "Elsewhere:"]
    for move in s.moves:
        lines.append(f"  at {move.where}: {'' if move.possible else 'not possible: '}{move.reason}")
    if not s.moves:
        lines.append("  this target has one place only")
    lines += ["", "What would change it:", *(f"  {line}" for line in _levers(plan, s))]
    return "\n".join(lines) + "\n"


def _kept(s: StatePlacement) -> str:
    """Where a state is, in words: whole, its copies, or its owner and what is lent."""
    if len(s.copies) > 1:
        return f"has a copy at each place that uses it: {_where(s)}"
    if s.lent is None:
        return f"is kept at {s.place}, in {s.tier}"
    return (f"is split: its owner is {s.place}, in {s.tier}; at most {s.lent.entries:,} entries at once are lent to "
            f"{s.lent.place}, in {s.lent.tier}, each after {used(s.lent.threshold, 'packet')} of its flow "
            f"({s.lent.amount:,} {s.lent.unit}); {percent(s.lent.share)} of packets find theirs there")


# Kinds of access: one, more than one.
_KINDS = {"lookup": ("look-up", "look-ups"), "load": ("read of an entry", "reads of entries"),
          "store": ("store", "stores"), "touch": ("touch", "touches"), "police": ("charge", "charges"),
          "count": ("count", "counts"), "track": ("fragment tracked", "fragments tracked"),
          "insert": ("insert", "inserts"), "delete": ("delete", "deletes")}


def _accesses(s: StatePlacement) -> str:
    """How a packet uses a state, kind by kind."""
    found = [f"{number(count)} {_KINDS[kind][count != 1]}" for kind, count in
             sorted(s.accesses.items(), key=lambda item: list(_KINDS).index(item[0]))]
    if s.kind in ("map", "pool", "fragments"):
        found.append(f"{number(float(f'{s.updates_per_packet:.3g}'))} entries made or removed")
    return f"per packet: {', '.join(found) or 'no access'}"


def _binding(plan: Plan) -> str:
    r = next(x for x in plan.resources if x.name == plan.binding)
    return (f"{r.name} at {r.place}: a packet takes {used(r.per_packet, r.unit)}, available: "
            f"{available(r.name, r.rate, r.unit)}; {percent(r.utilisation)} used at the planned rate; the plan ends "
            f"at {mpps(plan.throughput_pps)}")


def _levers(plan: Plan, s: StatePlacement) -> list[str]:
    return [_lever(plan, move) for move in s.moves] or ["nothing: there is no other place"]


def _lever(plan: Plan, move: Move) -> str:
    if not move.possible:
        return f"{move.place} becomes possible when this no longer holds: {move.reason}"
    if plan.request.rate_pps is not None and move.cores is None:
        given = cores(plan.cores) if plan.cores else "a host core where needed"
        return f"{move.place} is enough for a rate of {mpps(move.throughput_pps)} with {given}"
    if move.cores is not None and move.cores > plan.cores:
        return f"{move.place} costs host cores at this rate: {move.cores} instead of {plan.cores}"
    if plan.request.rate_pps is None and (move.throughput_pps or math.inf) < plan.throughput_pps / 1.001:
        ratio = plan.throughput_pps / max(move.throughput_pps or 1.0, 1.0)
        return f"{move.place} would do as well if what binds it there were {ratio:.2f} times as fast"
    return f"little: at {move.where}, {move.reason}"


def explained(plan: Plan, state: str) -> dict[str, Any]:
    """What `explain` says, as JSON's types: the state as in the document, and the resource that binds the plan.

    Raises:
        CoraError: as `explain`.
    """
    found: dict[str, Any] = plain(_known(plan, state))
    binding = next((plain(r) for r in plan.resources if r.name == plan.binding), None)
    return {"state": found, "binding": binding, "levers": _levers(plan, _known(plan, state))}


def differences(a: Plan, b: Plan) -> dict[str, Any]:
    """What `diff` says, as JSON's types: per fact the two values; per state and block the two places, null for none."""
    if a.program != b.program:
        return {"program": [a.program, b.program]}
    found: dict[str, Any] = {name: [x, y] for name, x, y in _facts(a, b) if x != y}
    for what, before, after in (("states", _states(a), _states(b)), ("blocks", _blocks(a), _blocks(b))):
        moved = {n: [before.get(n), after.get(n)] for n in dict.fromkeys((*before, *after))
                 if before.get(n) != after.get(n)}
        if moved:
            found[what] = moved
    return found


def _facts(a: Plan, b: Plan) -> list[tuple[str, Any, Any]]:
    facts = [("target", a.target, b.target), ("model_version", a.model_version, b.model_version),
             ("program_hash", a.program_hash, b.program_hash), ("profile_digest", a.profile_digest, b.profile_digest),
             ("request", plain(a.request), plain(b.request)), ("cores", a.cores, b.cores),
             ("throughput_pps", a.throughput_pps, b.throughput_pps), ("binding", a.binding, b.binding)]
    return facts + [(name, _value(a, name), _value(b, name)) for name in _compared(a, b)]


def _compared(a: Plan, b: Plan) -> list[str]:
    """Figures besides throughput and cores that either plan has."""
    return [n for n in dict.fromkeys(f.name for p in (a, b) for f in p.figures)
            if n == "host work" or n.startswith("latency")]


def _value(plan: Plan, name: str) -> float | None:
    return next((f.value for f in plan.figures if f.name == name), None)


def diff(a: Plan, b: Plan) -> str:
    """What differs between two plans, as lines a reader understands; empty when they place everything alike.

    Evidence and digests change with every run or input and are left out. Plans of two programs have nothing in common.
    """
    if a.program != b.program:
        return f"program: {a.program} -> {b.program}; plans of two programs are not compared\n"
    lines = [f"{what}: {x} -> {y}" for what, x, y in (
        ("target", a.target, b.target), ("model version", a.model_version, b.model_version)) if x != y]
    if a.program_hash != b.program_hash:
        lines.append("program: same name, other code")
    if a.profile_digest != b.profile_digest:
        lines.append("profile: another one")
    if a.request != b.request:
        lines.append(f"asked: {_asked(a)} -> {_asked(b)}")
    if a.cores != b.cores:
        lines.append(f"host cores: {a.cores} -> {b.cores}")
    if not math.isclose(a.throughput_pps, b.throughput_pps, rel_tol=1e-6):
        lines.append(f"throughput: {mpps(a.throughput_pps)} -> {mpps(b.throughput_pps)}")
    lines += [f"{name}: {_shown(a, name)} -> {_shown(b, name)}" for name in _compared(a, b)
              if _value(a, name) != _value(b, name)]
    if a.binding != b.binding:
        lines.append(f"binding resource: {a.binding} -> {b.binding}")
    lines += _moved("state", _states(a), _states(b))
    lines += _moved_blocks(a, b)
    return "\n".join(lines) + ("\n" if lines else "")


def _shown(plan: Plan, name: str) -> str:
    figure = next((f for f in plan.figures if f.name == name), None)
    return "-" if figure is None else shown_figure(figure, figure.value)


def _states(plan: Plan) -> dict[str, str]:
    return {s.name: f"{s.place}/{s.tier}" for s in plan.states}


def _asked(plan: Plan) -> str:
    parts = [] if plan.request.rate_pps is None else [asked_rate(plan)]
    if plan.request.cores is not None:
        parts.append(cores(plan.request.cores))
    return " with ".join(parts)


def _moved_blocks(a: Plan, b: Plan) -> list[str]:
    """Blocks that change their place, those between the same places on one line."""
    before, after = _blocks(a), _blocks(b)
    line_of = {n: block.line for plan in (a, b) for n, block in _named(plan)}
    grouped: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys((*before, *after)):
        start, stop = before.get(name, "not there"), after.get(name, "not there")
        if start != stop:
            grouped.setdefault((start, stop), []).append(name)
    lines = []
    for (start, stop), names in grouped.items():
        count = "1 block" if len(names) == 1 else f"{len(names)} blocks"
        more = f" and {len(names) - _BLOCKS} more" if len(names) > _BLOCKS else ""
        first, last = min(line_of[n] for n in names), max(line_of[n] for n in names)
        where = f"line {first}" if first == last else f"lines {first}-{last}"
        lines.append(f"{count} {start} -> {stop}: {where}: {', '.join(names[:_BLOCKS])}{more}")
    return lines


def _named(plan: Plan) -> list[tuple[str, BlockPlacement]]:
    """Blocks by what a reader can tell apart; classes no packet was seen in are left out."""
    return [(f"{b.block}{f' part {b.part}' if b.part else ''} ({'; '.join(b.history) or 'all packets'})"
             f"{f' from {b.via}' if b.via else ''}", b) for b in plan.blocks if b.history is not None]


def _blocks(plan: Plan) -> dict[str, str]:
    return {name: b.place for name, b in _named(plan)}


def _moved(what: str, before: dict[str, str], after: dict[str, str]) -> list[str]:
    lines = [f"{what} {n}: {p} -> {after[n]}" for n, p in before.items() if n in after and after[n] != p]
    lines += [f"{what} {n}: {p} -> no longer there" for n, p in before.items() if n not in after]
    return lines + [f"{what} {n}: new, {p}" for n, p in after.items() if n not in before]
