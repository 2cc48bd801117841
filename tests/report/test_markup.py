"""Escaping, numbers and scales: the parts that every section and chart is made of."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cora.report.charts import _at_top, cut
from cora.report.markup import Markup, join, number, table, tag
from cora.report.scales import Linear, Logarithmic, nice
from cora.text import visible


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_any_text_stays_text(content: str) -> None:
    reader = _Reader()
    reader.feed(tag("p", content, title=content))
    reader.close()
    assert reader.tags == ["p"] and [name for name, _ in reader.attributes] == ["title"]
    shown = visible(content)
    assert reader.text.replace("\r", "\n") == shown and (reader.attributes[0][1] or "") == shown


def test_elements_attributes_and_tables() -> None:
    assert tag("line", x1=1.0, y_2=2.345, class_="a", none=None, no=False, hidden=True) == \
        '<line x1="1" y-2="2.35" class="a" hidden></line>'
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert join(["<", Markup("<b>"), None, ["x", "&"]]) == "&lt;<b>x&amp;"
    made = table(("a", "b"), [("1", Markup("<i>2</i>"))], numeric=(1,), label="figures")
    assert '<td class="n"><i>2</i></td>' in made and 'aria-label="figures"' in made


def test_numbers_of_drawings_have_no_exponent() -> None:
    assert [number(x) for x in (0.0, -0.0001, 1e-9, 12.5, 1e6, 3.14159)] == ["0", "0", "0", "12.5", "1000000", "3.14"]


def test_scales_and_ticks() -> None:
    scale = Linear(50.0, 100.0, 200.0)
    assert [scale(v) for v in (-1.0, 0.0, 25.0, 50.0, 99.0)] == [100, 100, 150, 200, 200]
    assert scale.ticks() == [0, 10, 20, 30, 40, 50]
    turned = Linear(10.0, 200.0, 0.0)
    assert turned(10.0) == 0 and turned(0.0) == 200
    wide = Logarithmic(0.001, 1.0, 0.0, 300.0)
    assert wide(0.01) == pytest.approx(100) and wide(0.0) == 0 and wide(2.0) == 300
    assert wide.ticks() == pytest.approx([0.001, 0.01, 0.1, 1.0])
    assert [nice(v) for v in (0.0, 0.7, 1.0, 2.2, 30.0, 51.0)] == [1.0, 1.0, 1.0, 2.5, 50.0, 100.0]
    assert [_at_top(v) for v in (33.58, 50.0, 0.3, 0.0)] == pytest.approx([40.0, 50.0, 0.3, 1.0])


def test_labels_are_cut() -> None:
    assert cut("abcdef", 6) == "abcdef" and cut("abcdefg", 6) == "abcde…"
