"""Predicted against published figures as a self-contained SVG: one log-log panel per NIC, bands as vertical bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from cora.models.validation import Summary, ValidationRow, summarise

SIDE = 320
LEFT, TOP, GAP = 58, 56, 26
BELOW = 64
# Colours that stay apart for colour-blind readers (Okabe and Ito), and shapes that stay apart without colour.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def validation_svg(rows: Sequence[ValidationRow]) -> str:
    """The plot: published on the horizontal axis, predicted on the vertical one, the diagonal is agreement.

    Rows in Gb/s and in Mpps have panels of their own.
    """
    panels = list(dict.fromkeys((r.target, r.unit) for r in rows))
    width = LEFT + len(panels) * (SIDE + LEFT) + GAP
    legends = [len({r.group for r in rows if (r.target, r.unit) == p}) for p in panels]
    height = TOP + SIDE + BELOW + 18 * max(legends, default=0)
    body = "".join(_panel([r for r in rows if (r.target, r.unit) == p], LEFT + i * (SIDE + LEFT))
                   for i, p in enumerate(panels))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="12">\n'
            '<title>Predicted against published figures</title>\n'
            f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}</svg>\n')


class _Scale:
    """A logarithmic axis from a bit below the smallest to a bit above the largest figure."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.low, self.high = min(numbers) / 1.15, max(numbers) * 1.15

    def at(self, number: float) -> float:
        """0 at the low end, `SIDE` at the high one."""
        return SIDE * math.log(number / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """1, 2 and 5 times powers of ten within the axis."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [t for d in decades for m in (1, 2, 5) if self.low <= (t := m * 10.0**d) <= self.high]


def _panel(rows: Sequence[ValidationRow], left: float) -> str:
    scale = _Scale([n for r in rows for n in (r.published, r.predicted, r.low, r.high) if n > 0])
    groups = list(dict.fromkeys(r.group for r in rows))
    foot = TOP + SIDE
    parts = [f'<g transform="translate({left} 0)">',
             f'<text x="0" y="20" font-size="15" font-weight="bold">{escape(rows[0].target)}, {rows[0].unit}</text>',
             f'<text x="0" y="40" fill="#444">{escape(_caption(summarise(rows)))}</text>',
             f'<rect x="0" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#888"/>',
             f'<line x1="0" y1="{foot}" x2="{SIDE}" y2="{TOP}" stroke="#888" stroke-dasharray="4 3"/>']
    for tick in scale.ticks():
        at = scale.at(tick)
        parts += [f'<line x1="{at:.1f}" y1="{foot}" x2="{at:.1f}" y2="{foot + 4}" stroke="#888"/>',
                  f'<text x="{at:.1f}" y="{foot + 17}" text-anchor="middle">{tick:g}</text>',
                  f'<line x1="-4" y1="{foot - at:.1f}" x2="0" y2="{foot - at:.1f}" stroke="#888"/>',
                  f'<text x="-7" y="{foot - at + 4:.1f}" text-anchor="end">{tick:g}</text>']
    parts += [f'<text x="{SIDE / 2}" y="{foot + 34}" text-anchor="middle">published, {rows[0].unit}</text>',
              f'<text transform="translate(-40 {TOP + SIDE / 2}) rotate(-90)" text-anchor="middle">predicted, P10 to '
              'P90</text>']
    parts += [_point(r, scale, groups.index(r.group)) for r in rows]
    held = {g for g in groups if not any(r.fitted for r in rows if r.group == g)}
    parts += [_key(group, group in held, number, foot + BELOW - 8 + 18 * number) for number, group in enumerate(groups)]
    return "\n".join(parts) + "\n</g>\n"


def _caption(found: Summary) -> str:
    covered = "" if found.covered is None else f", {found.covered:.0%} of {found.banded} in the band"
    return f"{found.rows} rows, median error {found.median:.1%}{covered}"


def _point(row: ValidationRow, scale: _Scale, group: int) -> str:
    foot, colour = TOP + SIDE, COLOURS[group % len(COLOURS)]
    x, y = scale.at(row.published), foot - scale.at(row.predicted)
    low, high = foot - scale.at(row.low), foot - scale.at(row.high)
    told = escape(f"{row.name}: published {row.published:g}, predicted {row.predicted:.4g} ({row.low:.4g} to "
                  f"{row.high:.4g}) {row.unit}, {row.error:+.1%}")
    return (f'<g stroke="{colour}" fill="{colour if row.fitted else "#fff"}"><title>{told}</title>'
            f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke-width="2" stroke-opacity="0.5"/>'
            f"{_mark(x, y, group)}</g>")


def _mark(x: float, y: float, group: int) -> str:
    match group % 4:
        case 0:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
        case 2:
            return f'<path d="M{x:.1f} {y - 5:.1f}l4.5 8h-9z"/>'
        case _:
            return f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'


def _key(group: str, held: bool, number: int, y: float) -> str:
    colour = COLOURS[number % len(COLOURS)]
    label = f"{group} (held out)" if held else group
    return (f'<g stroke="{colour}" fill="{"#fff" if held else colour}">{_mark(8, y - 4, number)}</g>'
            f'<text x="20" y="{y}">{escape(label)}</text>')
