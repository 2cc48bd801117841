"""A plan as text: the summary of the terminal, and why a state is where it is."""

from __future__ import annotations

import io
import math
import shutil
from collections.abc import Sequence

from cora.errors import Kind, fail
from cora.plan.document import Alternative, Figure, Plan, StatePlacement

# Path classes and refusals shown before the rest is only counted.
_CLASSES = 12
_REFUSALS = 12
Row = tuple[str, ...]
Table = tuple[str, Row, list[Row]]


def _mpps(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e6:.2f} Mpps"


def _percent(share: float) -> str:
    if share and share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def _scaled(figure: Figure, value: float | None) -> str:
    if value is None:
        return "unbounded" if figure.unit == "ns" else "out of reach"
    if figure.unit == "packets/s":
        return f"{value / 1e6:.2f} Mpps"
    if figure.unit == "ns":
        return f"{value / 1000:.1f} us"
    return f"{value:.0f}" if figure.name == "host cores" else f"{value:.2f} {figure.unit}"


def figure_line(figure: Figure) -> str:
    """A figure with its band and kind: ``throughput 13.85 Mpps (P10-P90 10.63 Mpps - 14.97 Mpps, predicted)``."""
    low, high = _scaled(figure, figure.low), _scaled(figure, figure.high)
    return f"{figure.name} {_scaled(figure, figure.value)} (P10-P90 {low} - {high}, {figure.kind})"


def headline(plan: Plan) -> str:
    """One line: what, where, and what it reaches."""
    asked = f"{_mpps(plan.request.rate_pps)} asked" if plan.request.rate_pps is not None else "most throughput"
    return f"{plan.program} on {plan.target}: {_cores(plan)}, {_mpps(plan.throughput_pps)} predicted ({asked})"


def _cores(plan: Plan) -> str:
    return f"{plan.cores} host core{'' if plan.cores == 1 else 's'}"


def _lines(plan: Plan) -> list[str]:
    """The part of the summary that is no table."""
    busiest = max(plan.resources, key=lambda r: r.utilisation)
    lines = [headline(plan), ""]
    lines += [f"  {figure_line(f)}" for f in plan.figures]
    lines.append(f"  binding resource: {plan.binding}, {_percent(busiest.utilisation)} used of "
                 f"{busiest.rate:.4g} {busiest.unit}/s at the planned rate")
    e = plan.evidence
    gap = "unknown" if e.gap is None else f"{100 * e.gap:.3f} %"
    bound = "none" if e.bound is None else f"{e.bound:.8g}"
    lines.append(f"  solver: {e.solver}; {e.goal} {e.objective:.8g}, bound {bound}, gap {gap}: {e.status}, in "
                 f"{e.seconds:.3f} s; exact check {e.exact_check}")
    return lines


def _tables(plan: Plan) -> list[Table]:
    states: list[Row] = [(s.name, s.kind, f"{s.place}/{s.tier}", f"{s.amount:,} {s.unit}",
                          f"{s.accesses_per_packet:.3g}") for s in plan.states]
    classes: list[Row] = [(_percent(c.share), "; ".join(c.history) or "-", c.verdict,
                c.starts if c.starts == c.ends else f"{c.starts} to {c.ends}") for c in plan.classes[:_CLASSES]]
    if len(plan.classes) > _CLASSES:
        rest = plan.classes[_CLASSES:]
        classes.append((_percent(sum(c.share for c in rest)), f"{len(rest)} more classes", "", ""))
    crossings: list[Row] = [(f"{c.from_place} to {c.to_place}", _percent(c.share), f"{c.before} to {c.after}",
                  f"{c.bytes} bytes: {', '.join(c.values)}" if c.values else "no values") for c in plan.crossings
                 if c.share]
    resources: list[Row] = [
        (r.name, r.place, f"{r.per_packet:.4g} {r.unit}", f"{r.rate:.4g} {r.unit}/s", _percent(r.utilisation))
        for r in sorted(plan.resources, key=lambda r: -r.utilisation) if r.per_packet
    ]
    others: list[Row] = [(a.name, *_alternative(plan, a)) for a in plan.alternatives]
    cores = _cores(plan) if plan.cores else "a core where needed"
    return [
        ("States", ("state", "kind", "place", "size", "accesses/packet"), states),
        ("Path classes", ("share", "state outcomes", "verdict", "place"), classes),
        ("Crossings inside the program", ("direction", "share", "blocks", "travels along"), crossings),
        ("Resources at the planned rate", ("resource", "place", "a packet takes", "there is", "used"), resources),
        ("Other placements", ("placement", "cores", f"throughput, {cores}", "note"), others),
    ]


def _alternative(plan: Plan, other: Alternative) -> Row:
    if not other.legal:
        return ("-", "-", other.note)
    cores = "-" if plan.request.rate_pps is None else "out of reach" if other.cores is None else str(other.cores)
    return (cores, _mpps(other.throughput_pps), other.note)


def _refusals(plan: Plan) -> list[str]:
    """Refusals with their place in the source; those of one reason and place are one line.

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
    lines = []
    for (place, reason), subjects in grouped.items():
        names = list(dict.fromkeys(subjects))
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"  not at {place}: {shown}: {reason}")
        if (place, reason) in where:
            lines.append(f"    {where[place, reason]}")
    if len(grouped) > _REFUSALS:
        return [*lines[: 2 * _REFUSALS], f"  and {len(grouped) - _REFUSALS} more reasons, all in the plan document"]
    return lines


def _reasons(plan: Plan) -> list[str]:
    """Why states are where they are; states with the same reason are one line."""
    grouped: dict[str, list[str]] = {}
    for s in plan.states:
        grouped.setdefault(s.reason, []).append(s.name)
    return [f"  {', '.join(names)}: {reason}" for reason, names in grouped.items()]


def summary(plan: Plan) -> str:
    """The plan for a pipe or a file: plain text, no colour, columns as wide as they need."""
    out = _lines(plan)
    for title, head, rows in _tables(plan):
        if rows:
            out += ["", title, *_columns(head, rows)]
        if title == "States":
            out += ["", "Why there", *_reasons(plan)]
    refused = _refusals(plan)
    if refused:
        out += ["", "What could not be elsewhere, and why", *refused]
    return "\n".join(out) + "\n"


def _columns(head: Row, rows: Sequence[Row]) -> list[str]:
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)]


def render(plan: Plan, terminal: bool = False) -> str:
    """The plan as text without a trailing newline: tables in colour that fit a terminal, or `summary`."""
    if not terminal:
        return summary(plan).rstrip("\n")
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
            console.print(*(Text(line) for line in _reasons(plan)), sep="\n")
    refused = _refusals(plan)
    if refused:
        console.print(Text("\nWhat could not be elsewhere, and why", style="bold"))
        console.print(*(Text(line) for line in refused), sep="\n")
    return stream.getvalue().rstrip("\n")


def explain(plan: Plan, state: str) -> str:
    """Why a state is where it is, what binds the plan, and what would change it.

    Raises:
        CoraError: `Kind.UNKNOWN_NAME` when the plan has no such state.
    """
    try:
        s = plan.state(state)
    except KeyError as error:
        known = ", ".join(x.name for x in plan.states) or "none"
        raise fail(Kind.UNKNOWN_NAME, f"the plan has no state '{state}'; it has {known}") from error
    source = f"{s.source}: {s.source.text}".rstrip(": ")
    lines = [f"{s.name} ({s.kind}) is kept at {s.place}, in {s.tier}.", f"  declared at {source}",
             f"  takes {s.amount:,} {s.unit} there; {s.entries:,} entries of {s.entry_bytes} bytes at most in this "
             f"traffic, {s.working_set_bytes:,} bytes used within a window",
             f"  a packet makes {s.accesses_per_packet:.4g} accesses to it, {s.updates_per_packet:.4g} of them change "
             f"what is in it; the most used entry gets {_percent(s.hottest)} of them",
             "", "What binds the plan:", f"  {_binding(plan)}", "", "Elsewhere:"]
    for move in s.moves:
        lines.append(f"  at {move.place}: {'' if move.possible else 'not possible: '}{move.reason}")
    if not s.moves:
        lines.append("  this target has one place only")
    lines += ["", "What would change it:", *(f"  {line}" for line in _levers(plan, s))]
    return "\n".join(lines) + "\n"


def _binding(plan: Plan) -> str:
    r = next(x for x in plan.resources if x.name == plan.binding)
    most = plan.throughput_pps / 1e6
    return (f"{r.name} at {r.place}: a packet takes {r.per_packet:.4g} of {r.rate:.4g} {r.unit}/s, "
            f"{_percent(r.utilisation)} used at the planned rate; the plan ends at {most:.2f} Mpps")


def _levers(plan: Plan, s: StatePlacement) -> list[str]:
    lines = []
    for move in s.moves:
        if not move.possible:
            lines.append(f"{move.place} becomes possible when this no longer holds: {move.reason}")
        elif plan.request.rate_pps is not None and move.cores is None:
            lines.append(f"{move.place} is enough for a rate of {_mpps(move.throughput_pps)} with {_cores(plan)}")
        elif move.cores is not None and move.cores > plan.cores:
            lines.append(f"{move.place} costs host cores at this rate: {move.cores} instead of {plan.cores}")
        elif move.throughput_pps is not None and move.throughput_pps < plan.throughput_pps / 1.001:
            ratio = plan.throughput_pps / max(move.throughput_pps, 1.0)
            lines.append(f"{move.place} would do as well if what binds it there were {ratio:.2f} times as fast")
        else:
            lines.append(f"little: at {move.place} {move.reason}")
    return lines or ["nothing: there is no other place"]


# Fields whose change is what a plan is about; evidence and digests change with every run or input.
def diff(a: Plan, b: Plan) -> str:
    """What differs between two plans, as lines a reader understands; empty when they place everything alike."""
    lines = [f"{what}: {x} -> {y}" for what, x, y in (
        ("program", a.program, b.program), ("target", a.target, b.target), ("model version", a.model_version,
                                                                            b.model_version)) if x != y]
    if a.program_hash != b.program_hash and a.program == b.program:
        lines.append("program: same name, other code")
    if a.profile_digest != b.profile_digest:
        lines.append("profile: another one")
    if a.request != b.request:
        lines.append(f"asked: {_asked(a)} -> {_asked(b)}")
    if a.cores != b.cores:
        lines.append(f"host cores: {a.cores} -> {b.cores}")
    if not math.isclose(a.throughput_pps, b.throughput_pps, rel_tol=1e-6):
        lines.append(f"throughput: {_mpps(a.throughput_pps)} -> {_mpps(b.throughput_pps)}")
    if a.binding != b.binding:
        lines.append(f"binding resource: {a.binding} -> {b.binding}")
    lines += _moved("state", {s.name: f"{s.place}/{s.tier}" for s in a.states},
                    {s.name: f"{s.place}/{s.tier}" for s in b.states})
    lines += _moved("block", _blocks(a), _blocks(b))
    return "\n".join(lines) + ("\n" if lines else "")


def _asked(plan: Plan) -> str:
    parts = [] if plan.request.rate_pps is None else [_mpps(plan.request.rate_pps)]
    if plan.request.cores is not None:
        parts.append(f"{plan.request.cores} cores")
    return " with ".join(parts)


def _blocks(plan: Plan) -> dict[str, str]:
    """Blocks by what a reader can tell apart; classes no packet was seen in are left out."""
    return {f"{b.block}{f' part {b.part}' if b.part else ''} ({'; '.join(b.history) or 'all packets'})"
            f"{f' from {b.via}' if b.via else ''}": b.place for b in plan.blocks if b.history is not None}


def _moved(what: str, before: dict[str, str], after: dict[str, str]) -> list[str]:
    lines = [f"{what} {n}: {p} -> {after[n]}" for n, p in before.items() if n in after and after[n] != p]
    lines += [f"{what} {n}: {p} -> no longer there" for n, p in before.items() if n not in after]
    return lines + [f"{what} {n}: new, {p}" for n, p in after.items() if n not in before]
