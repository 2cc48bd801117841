"""Pictures of the evaluation as SVG, drawn without any library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from matrix import Matrix
from rows import Row

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 820, 360, 70, 220, 40, 60
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6c4f9e", "#4f5d75")
DASHES = ("", "6 4")


@dataclass(frozen=True)
class Series:
    """Points (x position 0..1, value, low, high) joined by a line; ``dash`` and ``colour`` by number."""

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]
    colour: int
    dash: int


def chart(title: str, ticks: Sequence[tuple[float, str]], x_name: str, y_name: str, series: Sequence[Series],
          lines: Sequence[tuple[float, str]] = (), per_cent: bool = False) -> str:
    """A line chart; ``lines``: horizontal reference lines."""
    values = [v for s in series for p in s.points for v in p[1:] if v is not None] + [v for v, _ in lines] + [0.0]
    top = max(values) * 1.08 or 1.0
    low = min(values)

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + x * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - (y - low) / (top - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
           f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for k in range(5):
        value = low + (top - low) * k / 4
        x, y = at(0, value)
        shown = f"{100 * value:.0f} %" if per_cent else f"{value:.3g}"
        out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
    for position, text in ticks:
        x, y = at(position, low)
        out.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{escape(text)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text x="{middle:.0f}" y="{HEIGHT - 16}" text-anchor="middle">{escape(x_name)}</text>'
               f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
               f"{escape(y_name)}</text>")
    for value, text in lines:
        x, y = at(0, value)
        out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#333" '
                   f'stroke-dasharray="2 3"/><text x="{x + 6:.1f}" y="{y - 4:.1f}" fill="#333">{escape(text)}</text>')
    out += [_drawn(s, at) for s in series]
    for i, s in enumerate(series):
        y = TOP + 14 + 16 * i
        out.append(f'<line x1="{WIDTH - RIGHT + 10}" y1="{y - 4}" x2="{WIDTH - RIGHT + 34}" y2="{y - 4}" '
                   f'stroke="{COLOURS[s.colour]}" stroke-width="2" stroke-dasharray="{DASHES[s.dash]}"/>'
                   f'<text x="{WIDTH - RIGHT + 40}" y="{y}">{escape(s.name)}</text>')
    return "\n".join([*out, "</svg>\n"])


def _drawn(series: Series, at: object) -> str:
    places = [(*at(x, y), low, high, x) for x, y, low, high in series.points]  # type: ignore[operator]
    colour = COLOURS[series.colour]
    bars = "".join(
        f'<line x1="{x:.1f}" y1="{at(p, low)[1]:.1f}" x2="{x:.1f}" y2="{at(p, high)[1]:.1f}" '  # type: ignore[operator]
        f'stroke="{colour}" opacity="0.35" stroke-width="3"/>'
        for x, _, low, high, p in places if low is not None and high is not None)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, *_ in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y, *_ in places)
    return (f'{bars}<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{DASHES[series.dash]}"/>{dots}')


def pictures(matrix: Matrix, rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Per file name its title and SVG text; a picture without points is left out."""
    planned = [r for r in rows if r.status == "planned" and r.traffic.axis == "factorial"]
    rates = [r for r in matrix.requests if r.rate is not None]
    cores = [r for r in matrix.requests if r.rate is None]
    middle = matrix.middle
    found: dict[str, tuple[str, str]] = {}
    for axis, other in (("zipf", "churn"), ("churn", "zipf")):
        names = list(dict.fromkeys(getattr(t, axis) for t in matrix.traffics if t.axis == "factorial"))
        ticks = [(i / max(len(names) - 1, 1), n) for i, n in enumerate(names)]
        x_name = "Zipf exponent of flow popularity" if axis == "zipf" else "flows a second that end and are replaced"
        here = [r for r in planned if getattr(r.traffic, other) == getattr(middle, other)]
        beside = f"{other} {getattr(middle, other)}"
        places = {n: p for p, n in ticks}
        if rates:
            request = rates[len(rates) // 2]
            title = f"Host work saved against host-only, {request.name}, {beside} (predicted)"
            series = _series(matrix, here, request, axis, places, saved=True)
            lines = [(0.94, "94.0 % published")]
            drawn = chart(title, ticks, x_name, "saved", series, lines, per_cent=True) if series else ""
            found[f"saved-{axis}.svg"] = title, drawn
        if cores:
            request = cores[0]
            title = f"Throughput against the best simple placement, {request.name}, {beside} (predicted)"
            series = _series(matrix, here, request, axis, places, saved=False)
            lines = [(1.0, "as fast"), (1.449, "1.449x published"), (1.823, "1.823x published")]
            found[f"faster-{axis}.svg"] = title, chart(title, ticks, x_name, "times", series, lines) if series else ""
    return {name: pair for name, pair in found.items() if pair[1]}


def _series(matrix: Matrix, rows: Sequence[Row], request: object, axis: str, places: dict[str, float], *, saved: bool
            ) -> list[Series]:
    found = []
    for i, program in enumerate(matrix.programs):
        for k, nic in enumerate(matrix.nics):
            points = []
            for row in rows:
                if (row.program, row.nic, row.request) != (program, nic, request):
                    continue
                base = row.baseline("host-only") if saved else row.best
                value = base and (base.saved if saved else base.speedup)
                if base is not None and value is not None:
                    band = (base.saved_low, base.saved_high) if saved else (base.speedup_low, base.speedup_high)
                    points.append((places[getattr(row.traffic, axis)], value, *band))
            if points:
                found.append(Series(f"{program}, {nic}", tuple(sorted(points)), i % len(COLOURS), k % len(DASHES)))
    return found
