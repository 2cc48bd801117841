"""HTML and SVG that cannot be broken by what it shows: text is escaped unless it is `Markup` already.

Programs, captures and plan files come from anywhere. What goes into a page passes through `tag`: text and attribute
values are escaped, and characters that are invisible or change the direction of writing are shown by their number.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable

from cora.text import visible


class Markup(str):
    """Text that is HTML already."""


Child = str | Markup | None | Iterable["Child"]
Value = str | int | float | bool | None

_VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})


def tag(name: str, *children: Child, **attributes: Value) -> Markup:
    """An element. ``class_`` is the attribute ``class``, other underscores become hyphens; None leaves one out."""
    given = "".join(f" {_name(key)}{_value(value)}" for key, value in attributes.items()
                    if value is not None and value is not False)
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Children one after the other, escaped where they are text."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return Markup(html.escape(visible(children), quote=True))
    return Markup("".join(join(c) for c in children))


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: Value) -> str:
    if value is True:
        return ""
    shown = number(value) if isinstance(value, float) else str(value)
    return f'="{html.escape(visible(shown), quote=True)}"'


def number(value: float) -> str:
    """A coordinate: two digits behind the point at most, never an exponent."""
    assert math.isfinite(value), "a drawing has no place for it"
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def table(head: Iterable[str], rows: Iterable[Iterable[Child]], caption: str = "", numeric: Iterable[int] = (),
          whole: Iterable[int] = (), label: str = "") -> Markup:
    """A data table; ``numeric``: columns aligned to the right, ``whole``: columns whose text is not broken.

    ``label``: what it is, for readers who do not see it, where there is no caption.
    """
    right, unbroken = frozenset(numeric), frozenset(whole)

    def kind(column: int) -> str | None:
        return "n" if column in right else "k" if column in unbroken else None

    top = tag("tr", [tag("th", name, scope="col", class_=kind(i)) for i, name in enumerate(head)])
    body = [tag("tr", [tag("td", cell, class_=kind(i)) for i, cell in enumerate(row)]) for row in rows]
    return tag("div", tag("table", tag("caption", caption) if caption else None, tag("thead", top), tag("tbody", body)),
               class_="scroll", tabindex=0, role="region", aria_label=caption or label or "table")


def details(title: str, *children: Child, opened: bool = False) -> Markup:
    """Something that is unfolded on demand, without a script."""
    return tag("details", tag("summary", title), children, open=opened)
