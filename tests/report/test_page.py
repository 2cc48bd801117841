"""The page: its figures are the plan's, everything is escaped, nothing is loaded, and a browser shows it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from planning_fakes import nat_like, nat_profile, target_of

from cora.analysis.profile import StateUse
from cora.explain.changes import Changes
from cora.explain.front import FrontPoint, front
from cora.explain.questions import Questions
from cora.explain.sensitivity import sensitivity
from cora.explain.sizing import sizes
from cora.explain.subject import Subject
from cora.partition import plan
from cora.plan.document import Copy, Lent, Plan, Point, RefusedAt, Source, Steering
from cora.plan.quantities import mpps, scaled
from cora.plan.render import percent
from cora.report.page import Beside, page

Look = Callable[..., dict[str, Any]]
CURVE = ((0.01, 0.3), (0.1, 0.6), (0.5, 0.9), (1.0, 1.0))


@lru_cache(maxsize=8)
def made(cores: int | None = None, rate: float | None = None, refused: bool = False) -> Subject:
    program = nat_like()
    profile = replace(nat_profile(program), states={
        "conns": StateUse("map", entries_peak=50, popularity=CURVE),
        "peers": StateUse("map", popularity=((1.0, 1.0),))})
    target = target_of(refused=frozenset({("deny", "nic")} if refused else ()))
    return Subject(plan(program, profile, target, cores=cores, rate_pps=rate), program, profile, target)


def split(whole: Plan) -> Plan:
    """The plan as if it lent entries of conns, had two copies of peers, and counted at both places."""
    lent = Lent("nic", "fast", 12, 2, 24, "bytes", "resume", 0.6, 0.01, 0.001)
    conns = replace(whole.state("conns"), decision="split", place="host", tier="dram", lent=lent, entries=50)
    copies = (Copy("nic", "slow", 60, "bytes"), Copy("host", "dram", 60, "bytes"))
    peers = replace(whole.state("peers"), decision="replicated", copies=copies)
    points = tuple(Point((c,), (t,), share, 0.01, 0.001, None, 1e7) for c, t, share in (
        (4, 1, 0.4), (12, 1, 0.7), (4, 2, 0.3), (12, 2, 0.6)))
    steering = Steering(("conns",), "nic", "host", "resume", ("wire: ipv4.src -> conns.main",), ("entry",), points, 3)
    return replace(whole, states=(conns, peers, *whole.states[2:]), steering=(steering,))


class Outline(HTMLParser):
    """Every element with its attributes, text by element, and whether tags are closed in order."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def drawings(text: str) -> dict[str, ElementTree.Element]:
    """Every drawing by the name its title's id begins with; each has to be well-formed XML."""
    found = {}
    for match in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        svg = ElementTree.fromstring(match)
        title = svg.find("{http://www.w3.org/2000/svg}title")
        assert title is not None and title.text
        found[title.attrib["id"].removesuffix("-title")] = svg
    return found


def whole(subject: Subject) -> Beside:
    more = sensitivity(Questions(subject))
    full = sizes(subject.program, subject.profile, subject.plan.throughput_pps)
    return Beside(subject.target.places, subject.profile, front(subject), full, more, Changes((), 3))


def test_the_outline_is_sound_and_readable_without_looking() -> None:
    subject = made(rate=16e6)
    outline = Outline(page(subject.plan, whole(subject)))
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    names = [tag for tag, _ in outline.elements]
    assert names.count("h1") == 1 and names.count("main") == 1 and ("html", {"lang": "en"}) in outline.elements
    for tag, attributes in outline.elements:
        for name in ("aria-labelledby", "href"):
            for wanted in (attributes.get(name) or "").replace("#", " ").split():
                assert wanted in ids or wanted == "data:,", (tag, wanted)
        if tag == "svg" or attributes.get("role") == "img":
            assert attributes.get("aria-label") or attributes.get("aria-labelledby")
    sections = [a["id"] for tag, a in outline.elements if tag == "section"]
    assert sections == ["places", "packets", "resources", "others", "front", "popularity", "sizes", "help", "why",
                        "costs", "refusals", "evidence"]


def test_nothing_is_loaded_and_no_script_runs() -> None:
    subject = made(rate=16e6, refused=True)
    text = page(subject.plan, whole(subject))
    outline = Outline(text)
    assert not {t for t, _ in outline.elements} & {"script", "iframe", "img", "object", "embed", "form", "base"}
    for _, attributes in outline.elements:
        assert not [n for n in attributes if n.startswith("on") or n in ("src", "srcset", "action", "background")]
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    outside = re.findall(r"(?:https?:)?//[\w.-]+", text)
    assert set(outside) <= {"http://www.w3.org"}  # the name of SVG, which nobody loads
    assert "url(" not in text and "@import" not in text
    policy = next(a["content"] for t, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_figures_are_the_plans() -> None:
    subject = made(rate=16e6)
    found = subject.plan
    text = page(found, whole(subject))
    words = Outline(text).text
    assert f"{found.program} on {found.target}" in words and f"{found.samples_met} of {found.samples}" in words
    assert mpps(found.throughput_pps) in words and str(found.cores) in words
    for r in found.resources:
        assert r.name in words
        if r.per_packet:
            assert f'aria-label="{r.name} is {percent(r.utilisation)} used"' in text
            assert f"width:{min(100 * r.utilisation, 100):.3f}%" in text
    for s in found.states:
        assert f"{s.name} {scaled(s.amount, s.unit)}" in words
    for a in found.alternatives:
        if a.name != "second best":
            assert a.name in words and mpps(a.throughput_pps) in words
    for digest in (found.program_hash, found.profile_digest, found.model_digest, found.digest()):
        assert digest in words
    # The binding resource alone is marked.
    assert text.count('class="use binds"') == 1
    assert re.search(rf'<li class="use binds"><span class="name">{found.binding}<', text)


def test_the_drawing_of_packets_is_to_scale() -> None:
    subject = made(cores=2)
    svg = drawings(page(subject.plan))["paths"]
    space = "{http://www.w3.org/2000/svg}"
    nodes = [(float(r.attrib["x"]), float(r.attrib["height"])) for r in svg.iter(f"{space}rect")]
    columns = sorted({x for x, _ in nodes})
    assert len(columns) == 3
    for x in columns:
        # Hairlines of at least one unit stand in for what is too thin to be seen.
        heights = [h for at, h in nodes if at == x]
        assert sum(heights) == pytest.approx(320, abs=2.0 * len(heights))
    left = sorted((h for x, h in nodes if x == columns[0]), reverse=True)
    shares: dict[tuple[str, ...], float] = {}
    for c in subject.plan.classes:
        shares[c.history] = shares.get(c.history, 0.0) + c.share
    assert left == pytest.approx([max(1.0, 320 * s) for s in sorted(shares.values(), reverse=True)], abs=0.02)
    titles = [t.text for t in svg.iter(f"{space}title")]
    assert "conns.main hit: 90.0 %" in titles


def test_the_dots_stand_where_the_figures_are() -> None:
    subject = made(rate=16e6)
    found = subject.plan
    svg = drawings(page(found))["baselines"]
    space = "{http://www.w3.org/2000/svg}"
    dots = [float(c.attrib["cx"]) for c in svg.iter(f"{space}circle")]
    values = [found.throughput_pps, *(a.throughput_pps for a in found.alternatives if a.name != "second best")]
    # Two of them give the scale, all others have to lie on it.
    pairs = sorted(zip([v or 0.0 for v in values], dots, strict=True))
    (low, left), (high, right) = pairs[0], pairs[-1]
    for value, x in pairs:
        assert x == pytest.approx(left + (right - left) * (value - low) / (high - low), abs=0.02)


def test_a_split_plan_shows_its_pieces_and_its_cut() -> None:
    subject = made(cores=2)
    found = split(subject.plan)
    text = page(found, replace(whole(subject), more=None))
    words = Outline(text).text
    assert "conns (lent, 12 entries) 24 B" in words and "conns (owner)" in words
    assert words.count("peers (replicated copy) 60 B") == 2
    assert "at most 12, after 2 packets of a flow. 60.0 % of packets take the fast path" in words
    assert "wire: ipv4.src -> conns.main" in words and "after 1 packet" in words
    chosen = [c for c in drawings(text)["budgets-0"].iter("{http://www.w3.org/2000/svg}circle")
              if c.attrib["class"] == "dot mark"]
    assert len(chosen) == 1 and float(chosen[0].attrib["cx"]) == 560  # the largest budget is at the end
    assert float(chosen[0].attrib["cy"]) == pytest.approx(220 - 200 * 0.6)
    assert "up to 12 entries lent to nic after 2 packets; 60.0 % of packets on the fast path" in words
    svg = drawings(text)["popularity-0"]
    space = "{http://www.w3.org/2000/svg}"
    (dot,) = svg.iter(f"{space}circle")
    # 12 of 50 entries; the curve is linear between (0.1, 0.6) and (0.5, 0.9), and y runs from 200 up to 20.
    assert float(dot.attrib["cy"]) == pytest.approx(200 - 180 * (0.6 + 0.3 * (0.24 - 0.1) / 0.4), abs=0.01)


def test_what_is_not_known_is_left_out() -> None:
    text = page(made(cores=2).plan)
    sections = [a["id"] for tag, a in Outline(text).elements if tag == "section"]
    assert "popularity" not in sections and "front" not in sections and "help" not in sections
    assert " full\"" not in text  # no memory's size is known


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    subject = made(cores=2, refused=True)
    evil = "<script>alert(1)</script>\"'&\u202e</style></title>--><img src=x onerror=alert(2)>"
    source = Source(evil, 3, 1, f"{evil} // lookup")
    found = subject.plan
    hostile = replace(
        found, program=evil, target=evil, binding=found.binding,
        states=tuple(replace(s, source=source, reason=evil) for s in found.states),
        classes=tuple(replace(c, history=(evil,), verdict=f"drop {evil}") for c in found.classes),
        costs=tuple(replace(c, source=source if c.source else None) for c in found.costs),
        alternatives=tuple(replace(a, note=evil, legal=False) for a in found.alternatives),
        refusals=(RefusedAt(evil, "nic", evil, source),))
    text = page(hostile, Beside(subject.target.places, subject.profile, (FrontPoint(0, 1e6, 1e6, 1e6),)))
    outline = Outline(text)
    assert not {t for t, _ in outline.elements} & {"script", "img"}
    assert not [n for _, a in outline.elements for n in a if n.startswith("on")]
    assert "\u202e" not in text and "\\u202e" in text and "alert(1)" in outline.text
    drawings(text)


@pytest.mark.needs("chromium")
def test_a_browser_shows_it_wide_and_narrow_light_and_dark(tmp_path: Path, looked_at: Look) -> None:
    subject = made(rate=16e6, refused=True)
    found = split(subject.plan)
    text = page(found, whole(subject))
    parts = [f"#{name}" for name in ("places", "packets", "resources", "others", "front", "popularity", "sizes", "help",
                                     "why", "costs", "refusals", "evidence")]
    shown = [*parts, "h1", ".tile", ".place", ".track", "svg", ".use .name", "table"]
    inks = set()
    for width, dark in ((1280, False), (420, True)):
        told = looked_at(text, tmp_path, shown, width, dark)
        assert told["console"] == [] and told["loaded"] == [] and told["seen"] == []
        for selector in shown:
            boxes = told["boxes"][selector]
            assert boxes, selector
            # Tables in folded parts have no box; everything else is there.
            assert any(w > 20 and h > 5 for _, _, w, h in boxes), (selector, boxes[:3])
        assert told["wide"] == [], "nothing sticks out of the window"
        assert len([b for b in told["boxes"]["svg"] if b[2] > 200 and b[3] > 100]) >= 3
        inks.add((told["ink"], told["paper"]))
    assert len(inks) == 2, "dark and light have their own colours"


@pytest.mark.needs("chromium")
def test_the_look_at_pages_finds_what_it_looks_for(tmp_path: Path, looked_at: Look) -> None:
    text = page(made(cores=2).plan).replace("</main>", "<img src='http://127.0.0.1:9/x.png'><div style='width:5000px'>"
                                            "wide</div><div id='flat'></div></main>")
    told = looked_at(text, tmp_path, ["#flat"])
    assert told["seen"] == ["http://127.0.0.1:9/x.png img-src"] and told["console"]
    assert "DIV." in told["wide"] and told["boxes"]["#flat"][0][3] == 0
