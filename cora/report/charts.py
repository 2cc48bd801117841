"""The drawings of a report, each an inline SVG with a title and a description for readers who do not see it.

Charts know shares, rates and labels, nothing of plans. Colours are classes of the page's style (``place-0`` is the
place nearest to the wire), so that one set of rules serves light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cora.report.markup import Child, Markup, number, tag
from cora.report.scales import Linear, Logarithmic, nice

# Room for one line of text, in units of the drawings.
_LINE = 18.0
_ELLIPSIS = "…"


def drawing(name: str, width: float, height: float, title: str, description: str, *children: Child) -> Markup:
    """An SVG that scales with the page down to a width at which its text can still be read; ``name``: a unique id."""
    return tag("div", tag(
        "svg", tag("title", title, id=f"{name}-title"), tag("desc", description, id=f"{name}-desc"), children,
        viewBox=f"0 0 {number(width)} {number(height)}", role="img",
        aria_labelledby=f"{name}-title {name}-desc", xmlns="http://www.w3.org/2000/svg", class_="drawing",
        style=f"min-width:{number(0.8 * width)}px;max-width:{number(width)}px"),
        class_="scroll", tabindex=0, role="region", aria_label=title)


def text(x: float, y: float, content: str, anchor: str = "start", class_: str | None = None) -> Markup:
    return tag("text", content, x=x, y=y, text_anchor=anchor, class_=class_)


def cut(content: str, letters: int) -> str:
    """A label of at most so many letters."""
    return content if len(content) <= letters else content[:letters - 1].rstrip() + _ELLIPSIS


# Flows of packets.

@dataclass(frozen=True)
class Flow:
    """Packets of one kind: its label, the place (by number) where they end, their fate, and their share."""

    label: str
    place: int
    fate: str
    share: float


@dataclass
class _Stack:
    """A column of a Sankey diagram: where each of its nodes starts and how much of it is taken already."""

    x: float
    tops: dict[str, float]
    sizes: dict[str, float]

    def take(self, key: str, size: float) -> float:
        """The top of the next piece of a node."""
        top = self.tops[key]
        self.tops[key] = top + size
        return top


def sankey(flows: Sequence[Flow], places: Sequence[str], colours: Sequence[str], title: str,
           description: str) -> Markup:
    """Kinds of packets on the left, the places where their program ends in the middle, their fate on the right.

    Heights are to scale; a share too small to be seen is a hairline. ``colours``: the places' classes.
    """
    ordered = sorted(flows, key=lambda f: (f.place, -f.share))
    columns = [_totals((f.label, f.share) for f in ordered), _totals((str(f.place), f.share) for f in ordered),
               _totals((f.fate, f.share) for f in ordered)]
    scale = 320.0 / (sum(columns[0].values()) or 1.0)
    stacks = [_stack(x, column, scale) for x, column in zip((340.0, 560.0, 770.0), columns, strict=True)]
    nodes = [_nodes(stack, column, scale) for stack, column in zip(stacks, columns, strict=True)]
    height = max(bottom for stack in stacks for bottom in _bottoms(stack)) + 12
    heads = [text(stacks[0].x + 12, 16, "what the tables answered", "end", "head"),
             text(stacks[1].x + 6, 16, "where the program ends", "middle", "head"),
             text(stacks[2].x, 16, "what becomes of the packet", "start", "head")]
    labels = [*_labels(stacks[0], columns[0], scale, "end", {}), *_labels(stacks[2], columns[2], scale, "start", {}),
              *_labels(stacks[1], columns[1], scale, "middle", {str(i): p for i, p in enumerate(places)})]
    return drawing("paths", 960.0, height, title, description, heads,
                   list(_ribbons(ordered, stacks, scale, colours)), nodes, labels)


def _totals(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, share in pairs:
        found[key] = found.get(key, 0.0) + share
    return found


def _stack(x: float, column: dict[str, float], scale: float) -> _Stack:
    tops, y = {}, 30.0
    for key, share in column.items():
        # A thin node still needs a line for its label; it sits in the middle of its slot.
        size = share * scale
        slot = max(size, _LINE)
        tops[key] = y + (slot - size) / 2
        y += slot + 8
    return _Stack(x, tops, {key: share * scale for key, share in column.items()})


def _bottoms(stack: _Stack) -> list[float]:
    return [stack.tops[key] + max(size, _LINE / 2) for key, size in stack.sizes.items()]


def _nodes(stack: _Stack, column: dict[str, float], scale: float) -> list[Markup]:
    return [tag("rect", x=stack.x, y=stack.tops[key], width=12.0, height=max(share * scale, 1.0), class_="node")
            for key, share in column.items()]


def _ribbons(flows: Sequence[Flow], stacks: Sequence[_Stack], scale: float,
             colours: Sequence[str]) -> Iterator[Markup]:
    starts, ends = ([_Stack(s.x, dict(s.tops), s.sizes) for s in stacks] for _ in range(2))
    for flow in flows:
        size = flow.share * scale
        for i, (one, other) in enumerate(((flow.label, str(flow.place)), (str(flow.place), flow.fate))):
            a, b = starts[i].take(one, size), ends[i + 1].take(other, size)
            yield tag("path", d=_ribbon(stacks[i].x + 12, a, stacks[i + 1].x, b, max(size, 0.8)),
                      class_=f"ribbon {colours[flow.place]}")


def _ribbon(x: float, top: float, stop: float, other: float, size: float) -> str:
    """A band of one height from (x, top) to (stop, other)."""
    bend = number((x + stop) / 2)
    left, right = number(x), number(stop)
    return (f"M{left} {number(top)}C{bend} {number(top)} {bend} {number(other)} {right} {number(other)}"
            f"V{number(other + size)}C{bend} {number(other + size)} {bend} {number(top + size)} {left} "
            f"{number(top + size)}Z")


def _labels(stack: _Stack, column: dict[str, float], scale: float, anchor: str,
            names: dict[str, str]) -> list[Markup]:
    found = []
    for key, share in column.items():
        y = stack.tops[key] + share * scale / 2 + 4.5
        if anchor == "middle":
            found.append(text(stack.x + 18, y, f"{names[key]} {percent(share)}", "start", "strong halo"))
            continue
        x = stack.x - 8 if anchor == "end" else stack.x + 20
        shown = f"{cut(key, 40)}  {percent(share)}" if anchor == "end" else f"{percent(share)}  {cut(key, 24)}"
        found.append(tag("text", shown, tag("title", f"{key}: {percent(share)}"), x=x, y=y, text_anchor=anchor))
    return found


def percent(share: float) -> str:
    """A share for a label: ``46.0 %``, and never 0 for what is there."""
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


# Figures with bands.

@dataclass(frozen=True)
class Dot:
    """A figure with its band; ``mark``: the one the reader looks for. ``value`` None: there is none, see ``note``."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    note: str = ""
    mark: bool = False


def dots(name: str, rows: Sequence[Dot], unit: str, title: str, description: str,
         line: tuple[float, str] | None = None) -> Markup:
    """One row a figure: a dot for the value, a bar for P10 to P90. ``line``: a value to compare all with."""
    values = [v for r in rows for v in (r.value, r.high) if v is not None]
    top = _at_top(max([*values, *([line[0]] if line else [])], default=1.0))
    scale = Linear(top, 150.0, 640.0)
    height = 56.0 + 30.0 * len(rows)
    bottom = height - 26
    grid = [tag("line", x1=scale(t), x2=scale(t), y1=26.0, y2=bottom, class_="grid") for t in scale.ticks()]
    axis = [text(scale(t), height - 8, f"{t:g} {unit}" if t == scale.ticks()[-1] else f"{t:g}", "middle", "axis")
            for t in scale.ticks()]
    body = [_dot(r, scale, 44 + 30.0 * i) for i, r in enumerate(rows)]
    asked: list[Markup] = []
    if line is not None:
        x = scale(line[0])
        side = "end" if x > 520 else "start"
        asked = [tag("line", x1=x, x2=x, y1=22.0, y2=bottom, class_="asked"),
                 text(x + (-6 if side == "end" else 6), 16, line[1], side, "asked-label")]
    return drawing(name, 790.0, height, title, description, grid, axis, body, asked)


def _at_top(value: float) -> float:
    """A round end of a scale that holds a value."""
    step = nice(value / 5)
    return step * -(-value // step) if value > 0 else 1.0


def _dot(row: Dot, scale: Linear, y: float) -> list[Markup]:
    label = text(142, y + 4.5, cut(row.label, 20), "end", "strong" if row.mark else None)
    if row.value is None:
        return [label, text(scale.start + 6, y + 4.5, row.note or "none", "start", "axis")]
    band: list[Markup] = []
    high = row.high if row.high is not None else scale.top
    if row.low is not None:
        band = [tag("line", x1=scale(row.low), x2=max(scale(high), scale(row.low) + 1), y1=y, y2=y,
                    class_="band mark" if row.mark else "band")]
    dot = tag("circle", cx=scale(row.value), cy=y, r=5.5, class_="dot mark" if row.mark else "dot")
    return [label, *band, dot, text(652, y + 4.5, row.note, "start", "strong" if row.mark else None)]


# Curves.

@dataclass(frozen=True)
class Cut:
    """A point on a curve that a plan has chosen, and what it means."""

    x: float
    y: float
    label: str


def head_mass(name: str, points: Sequence[tuple[float, float]], cut_at: Cut | None, title: str,
              description: str) -> Markup:
    """Share of accesses that the most used entries get: x the share of entries (logarithmic), y that of accesses."""
    low = min([p[0] for p in points if p[0] > 0] + ([cut_at.x] if cut_at and cut_at.x > 0 else []), default=0.001)
    x = Logarithmic(min(low, 0.1), 1.0, 52.0, 400.0)
    y = Linear(1.0, 200.0, 20.0)
    grid = [tag("line", x1=x.start, x2=x.stop, y1=y(t), y2=y(t), class_="grid") for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    axes = [text(46, y(t) + 4, f"{100 * t:.0f} %", "end", "axis") for t in (0.0, 0.5, 1.0)]
    axes += [text(x(t), 217, f"{100 * t:g} %", "middle", "axis") for t in x.ticks()]
    axes += [text(226, 236, "of the entries, most used first", "middle", "axis"),
             text(x.start, 12, "accesses", "start", "axis")]
    way = " ".join(f"{number(x(a))},{number(y(b))}" for a, b in points if a > 0)
    curve = tag("polyline", points=way, class_="curve")
    marks: list[Markup] = []
    if cut_at is not None and cut_at.x > 0:
        side = "end" if x(cut_at.x) > 220 else "start"
        step = -8 if side == "end" else 8
        marks = [tag("line", x1=x(cut_at.x), x2=x(cut_at.x), y1=y(0), y2=y(cut_at.y), class_="asked"),
                 tag("circle", cx=x(cut_at.x), cy=y(cut_at.y), r=5.5, class_="dot mark"),
                 text(x(cut_at.x) + step, y(cut_at.y) + 20, cut_at.label, side, "strong halo")]
    return drawing(name, 424.0, 244.0, title, description, grid, axes, curve, marks)


def budgets(name: str, lines: Mapping[str, Sequence[tuple[float, float]]], chosen: Cut, title: str,
            description: str) -> Markup:
    """Share of packets served by how many entries a budget has: one line a rule, x logarithmic."""
    points = [p for line in lines.values() for p in line]
    x = Logarithmic(max(1.0, min(p[0] for p in points)), max(max(p[0] for p in points), 2.0), 60.0, 560.0)
    y = Linear(1.0, 220.0, 20.0)
    grid = [tag("line", x1=x.start, x2=x.stop, y1=y(t), y2=y(t), class_="grid") for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    axes = [text(54, y(t) + 4, f"{100 * t:.0f} %", "end", "axis") for t in (0.0, 0.5, 1.0)]
    axes += [text(x(t), 237, f"{t:,.0f}", "middle", "axis") for t in _apart(sorted({p[0] for p in points}), x)]
    axes += [text(310, 256, "entries lent at most", "middle", "axis"), text(x.start, 12, "of packets", "start", "axis")]
    drawn: list[Markup] = []
    bottom = -100.0
    for i, (label, line) in enumerate(sorted(lines.items(), key=lambda item: -max(item[1])[1])):
        ordered = sorted(line)
        bottom = max(bottom + 16, y(ordered[-1][1]) + 4)
        way = " ".join(f"{number(x(a))},{number(y(b))}" for a, b in ordered)
        drawn += [tag("polyline", points=way, class_="curve" if i == 0 else "curve thin"),
                  *(tag("circle", cx=x(a), cy=y(b), r=3.0, class_="dot") for a, b in ordered),
                  text(x.stop + 12, bottom, label)]
    mark = [tag("circle", cx=x(chosen.x), cy=y(chosen.y), r=6.0, class_="dot mark"),
            text(x(chosen.x), y(chosen.y) + 22, chosen.label, "middle", "strong halo")]
    return drawing(name, 720.0, 264.0, title, description, grid, axes, drawn, mark)


def _apart(values: Sequence[float], scale: Logarithmic) -> list[float]:
    """The values whose labels have room beside each other."""
    found: list[float] = []
    for value in values:
        if not found or scale(value) - scale(found[-1]) > 50:
            found.append(value)
    return found


@dataclass(frozen=True)
class Step:
    """The most throughput with so many cores: Mpps with its band. ``mark``: the plan's own."""

    cores: int
    value: float
    low: float
    high: float
    mark: bool


def front(steps: Sequence[Step], title: str, description: str, asked: tuple[float, str] | None = None) -> Markup:
    """Throughput by host cores: what a plan costs and what it could be traded for."""
    top = _at_top(max([s.high for s in steps] + ([asked[0]] if asked else [])))
    y = Linear(top, 250.0, 30.0)
    last = max(1, max(s.cores for s in steps))
    x = Linear(float(last), 70.0, 620.0)
    grid = [tag("line", x1=70.0, x2=620.0, y1=y(t), y2=y(t), class_="grid") for t in y.ticks()]
    axes = [text(62, y(t) + 4, f"{t:g}", "end", "axis") for t in y.ticks()]
    axes += [text(x(s.cores), 270, str(s.cores), "middle", "axis") for s in steps]
    axes += [text(345, 290, "host cores", "middle", "axis"), text(62, 16, "Mpps", "end", "axis")]
    way = " ".join(f"{number(x(s.cores))},{number(y(s.value))}" for s in steps)
    marks: list[Markup] = []
    for s in steps:
        kind = " mark" if s.mark else ""
        marks += [tag("line", x1=x(s.cores), x2=x(s.cores), y1=y(s.low), y2=y(s.high), class_=f"band{kind}"),
                  tag("circle", cx=x(s.cores), cy=y(s.value), r=5.5, class_=f"dot{kind}"),
                  text(x(s.cores) + 10, y(s.value) - 8, f"{s.value:.2f}", "start", "strong halo" if s.mark else "halo")]
    line: list[Markup] = []
    if asked is not None:
        line = [tag("line", x1=70.0, x2=620.0, y1=y(asked[0]), y2=y(asked[0]), class_="asked"),
                text(616, y(asked[0]) - 6, asked[1], "end", "asked-label halo")]
    return drawing("front", 690.0, 300.0, title, description, grid, axes, line,
                   tag("polyline", points=way, class_="curve thin"), marks)
