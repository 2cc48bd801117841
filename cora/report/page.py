"""The report of a plan: one HTML page that needs nothing else.

Sections that only need the plan document are always there. With what the plan was made from (`Beside`) come memories to
scale, popularity, the front of cores against throughput, and what more of a resource or a change would bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cora.analysis.profile import Profile
from cora.explain.changes import Changes
from cora.explain.front import FrontPoint
from cora.explain.sensitivity import More
from cora.explain.sizing import Exhaustion
from cora.models.target import Place
from cora.plan.document import Plan
from cora.report import sections
from cora.report.markup import Markup, join, tag

# Nothing may be loaded from anywhere; styles are inline, the page's icon is empty.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Beside:
    """What is known beside the document; each may be missing. ``places``: of the target the plan was made for."""

    places: tuple[Place, ...] = ()
    profile: Profile | None = None
    front: tuple[FrontPoint, ...] = ()
    sizes: tuple[Exhaustion, ...] = ()
    more: tuple[More, ...] | None = None
    changes: Changes | None = None


def page(plan: Plan, beside: Beside | None = None) -> str:
    """The whole page, ending in a newline."""
    known = beside or Beside()
    parts = [(anchor, title, body) for anchor, title, body in _parts(plan, known) if body is not None]
    head = tag("head",
               tag("meta", charset="utf-8"),
               tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
               tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
               tag("link", rel="icon", href="data:,"), tag("title", f"{plan.program} on {plan.target}: plan"),
               tag("style", Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))))
    menu = tag("nav", [tag("a", title, href=f"#{anchor}") for anchor, title, _ in parts], aria_label="Sections")
    top = tag("header", tag("a", "Skip to the plan", href="#main", class_="skip"), sections.heading(plan), menu)
    main = tag("main", [tag("section", tag("h2", title, id=f"{anchor}-h"), body, id=anchor,
                            aria_labelledby=f"{anchor}-h") for anchor, title, body in parts], id="main")
    body = tag("body", top, main, tag("footer", sections.closing(plan)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _parts(plan: Plan, known: Beside) -> Sequence[tuple[str, str, Markup | None]]:
    return (
        ("places", "What lives where", sections.places(plan, known.places)),
        ("packets", "Where packets go", sections.packets(plan)),
        ("splits", "What is split by flow", sections.splits(plan)),
        ("resources", "What binds", sections.resources(plan)),
        ("others", "Beside other placements", sections.others(plan)),
        ("front", "Cores against throughput", sections.front(plan, known.front)),
        ("popularity", "How traffic spreads over entries", sections.popularity(plan, known.profile)),
        ("sizes", "How full tables get", sections.sizes(plan, known.sizes)),
        ("help", "What would help", sections.helpful(plan, known.more, known.changes)),
        ("why", "Why each state is where it is", sections.why(plan)),
        ("costs", "What a packet costs", sections.costs(plan)),
        ("refusals", "What could not be elsewhere", sections.refusals(plan)),
        ("evidence", "How sure this is", join([sections.evidence(plan)])),
    )
