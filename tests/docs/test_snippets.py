"""The programs in the documentation load, and the lists in it are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cora.errors import Kind
from cora.frontends.nf import MAX_SOURCE, declare, dispatch, loads, lower, parser, words
from cora.ir.headers import HEADERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGE = (ROOT / "docs" / "language.md").read_text()
BLOCK = re.compile(r"^```nf([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str, str]]:
    """(page and line, how it stands, text) of every ``nf`` block."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{page.name}:{line}", match[1].strip(), match[2]))
    return found


def whole(how: str, text: str) -> str:
    """A snippet as a program, inside the page's own prelude where it is a piece."""
    if how in ("", "prelude", "fragment=whole"):
        return text
    mark = {"fragment=declaration": "/* declarations */", "fragment=statement": "/* statements */"}[how]
    (prelude,) = (t for _, h, t in snippets() if h == "prelude")
    assert mark in prelude
    return prelude.replace(mark, text)


@pytest.mark.parametrize(("place", "how", "text"), snippets(), ids=[s[0] for s in snippets()])
def test_snippet_loads(place: str, how: str, text: str) -> None:
    assert loads(whole(how, text), place).blocks


def test_the_language_page_has_snippets_of_every_kind() -> None:
    kinds = [how for place, how, _ in snippets() if place.startswith("language.md")]
    assert kinds.count("") >= 1
    assert kinds.count("fragment=declaration") >= 8
    assert kinds.count("fragment=statement") >= 9


def test_every_planned_word_is_listed() -> None:
    section = LANGUAGE.split("## What is not there yet")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", section, re.MULTILINE))
    assert listed == words.NOT_YET


def test_every_error_of_the_language_is_listed() -> None:
    listed = re.findall(r"^\| E(\d+) \| ([\w-]+) \|", LANGUAGE, re.MULTILINE)
    assert listed == [(str(k.number), k.label) for k in Kind if k.number < 200]


def test_every_header_field_is_listed() -> None:
    section = LANGUAGE.split("## Packets and headers")[1].split("\n## ")[0]
    listed: dict[str, dict[str, bool]] = {}
    for names, fields in re.findall(r"^\| (`[\w`, ]+) \| ([^|]+) \|$", section, re.MULTILINE):
        plain = re.sub(r"\([^)]*\)", "", fields)
        for name in re.findall(r"\w+", names):
            listed[name] = {f.strip().strip("*"): not f.strip().startswith("*") for f in plain.split(",")}
    assert listed == {name: {f.name: f.writable for f in kind.fields} for name, kind in HEADERS.items()}


def test_limits_are_those_of_the_code() -> None:
    section = LANGUAGE.split("## Limits")[1].split("\n## ")[0]
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\b\d[\d,]*\b", section.replace("2^28", str(1 << 28)))]
    assert numbers == [
        MAX_SOURCE >> 20, parser.MAX_DEPTH, parser.MAX_PATHS, lower.MAX_CALLS, lower.MAX_UNROLL, lower.MAX_STATEMENTS,
        lower.MAX_BLOCKS, declare.MAX_FIELDS, declare.MAX_ENTRY_BITS, declare.MAX_CAPACITY, declare.MAX_RATE,
        declare.MAX_BURST,
        declare.MAX_SAME_PRIORITY]


def test_every_word_of_the_grammar_is_on_the_page() -> None:
    grammar = (Path(parser.__file__).with_name("grammar.lark")).read_text()
    keywords = set(re.findall(r'"([a-z_]{2,})"', grammar))
    assert {w for w in keywords if not re.search(rf"\b{w}\b", LANGUAGE)} == set()
    assert words.KEYWORDS - {"_"} <= keywords


def test_every_drop_reason_of_dispatch_is_on_the_page() -> None:
    for reason in (*dispatch._FAILED.values(), *dispatch._FRAGMENT_FAILED.values(), "unparsed", "no handler"):
        assert f"`{reason}`" in LANGUAGE, reason
