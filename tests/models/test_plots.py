"""The picture of predicted against published figures: well-formed, self-contained, and every row where it belongs."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from cora.models.plots import SIDE, TOP, validation_svg
from cora.models.validation import ValidationRow

SVG = "{http://www.w3.org/2000/svg}"


def row(target: str, name: str, published: float, predicted: float, **more: object) -> ValidationRow:
    values: dict[str, object] = {"group": "g", "unit": "Mpps", "low": predicted * 0.9, "high": predicted * 1.1,
                                 "binding": "cores", "source": "s", "fitted": True, "reading": 0.0, **more}
    return ValidationRow(target, name, published=published, predicted=predicted, **values)  # type: ignore[arg-type]


ROWS = [row("a", "x < y", 10, 10), row("a", "far", 100, 50, group="other", fitted=False),
        row("b", "line", 40, 40, unit="Gb/s")]


def test_each_card_has_a_panel_and_each_row_a_mark() -> None:
    tree = ElementTree.fromstring(validation_svg(ROWS))
    panels = [g for g in tree.findall(f"{SVG}g") if "translate" in g.get("transform", "")]
    assert len(panels) == 2
    told = [t.text or "" for p in panels for t in p.iter(f"{SVG}title")]
    assert len(told) == 3
    assert told[0] == "x < y: published 10, predicted 10 (9 to 11) Mpps, +0.0%"
    assert told[1].endswith("-50.0%")


def test_marks_stand_at_the_logarithms_of_the_figures() -> None:
    tree = ElementTree.fromstring(validation_svg(ROWS[:2]))
    lines = [g.find(f"{SVG}line") for g in tree.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    # From 9/1.15 to 115: the published 10 and 100 on the horizontal axis, the bands of 10 and 50 on the vertical one.
    low, high = 9 / 1.15, 100 * 1.15

    def at(number: float) -> float:
        return SIDE * math.log(number / low) / math.log(high / low)

    first, second = ({k: float(line.get(k, "nan")) for k in ("x1", "y1", "y2")} for line in lines if line is not None)
    assert abs(first["x1"] - at(10)) < 0.1 and abs(second["x1"] - at(100)) < 0.1
    assert abs(first["y1"] - (TOP + SIDE - at(9))) < 0.1 and abs(second["y2"] - (TOP + SIDE - at(55))) < 0.1


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    text = validation_svg(ROWS)
    assert not re.search(r"(href|url\(|<script|<image)", text)
    assert text.count("http") == 1, "the name space alone"
    assert "other (held out)" in text and "g (held out)" not in text
