"""The text form: what is printed is read back, and what cannot be read is said."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
import random_ir
from reference_kit import program

from cora.errors import CoraError, Kind
from cora.frontends.nf import load
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import run_pipeline
from cora.ir.span import Span
from cora.ir.text import FORMATS, parse_program, print_node, print_program
from cora.ir.verify import verify
from cora.testing import generate

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.nf"))


def all_nodes(item: Any) -> Iterator[Any]:
    """Every node of a program, declarations and their parts included."""
    if is_dataclass(item):
        if hasattr(item, "span"):
            yield item
        for f in fields(item):
            yield from all_nodes(getattr(item, f.name))
    elif isinstance(item, tuple):
        for inner in item:
            yield from all_nodes(inner)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_are_read_back(path: Path) -> None:
    for made in (load(path), run_pipeline(load(path))):
        text = print_program(made)
        assert parse_program(text) == made
        assert print_program(parse_program(text)) == text


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_are_read_back(seed: int) -> None:
    for made in (random_ir.random_program(seed), generate(seed).program):
        assert parse_program(print_program(made)) == made


def test_every_kind_of_node_is_read_back() -> None:
    met = {type(n) for seed in range(30) for n in all_nodes(random_ir.random_program(seed))}
    # Only the parts of split programs hand packets over (tests/ir/test_parts.py).
    assert set(FORMATS) - met == {nodes.Punt}
    assert set(get_args(nodes.Instruction)) | set(get_args(nodes.Terminator)) <= set(FORMATS)


def test_odd_texts_are_read_back() -> None:
    raw = program('config c : u8 = 3 ""\nblock start ()\n drop "x"')
    for odd in ('"', "\\", "\\n", "a\nb", "tab\there", "\x0b\x0c\x1c\u2028\x85\r", "日本", "@1:1-1:2",
                "%x", "//", '\\"', ""):
        block = raw.blocks[0]
        made = replace(raw, blocks=(replace(block, terminator=nodes.Drop(f"r{odd}", block.span)),),
                       configs=(replace(raw.configs[0], shown=odd),))
        elsewhere = Span(f"other{odd}.nf", 3, 4, 5, 6)
        made = replace(made, span=replace(made.span, file=f"a file{odd}.nf"), ports=(
            replace(made.ports[0], span=elsewhere), made.ports[1]))
        assert parse_program(print_program(made)) == made, repr(odd)


# Spans.


def lines_of(path: Path) -> list[str]:
    return path.read_text().split("\n")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_every_node_says_where_it_comes_from(path: Path) -> None:
    lines = lines_of(path)
    for made in (load(path), run_pipeline(load(path))):
        for node in all_nodes(made):
            span = node.span
            assert isinstance(span, Span), node
            assert span.file == str(path)
            assert 1 <= span.line <= span.end_line <= len(lines), node
            assert 1 <= span.column <= len(lines[span.line - 1]), node
            assert 1 <= span.end_column <= len(lines[span.end_line - 1]) + 1, node
            assert (span.line, span.column) < (span.end_line, span.end_column), node


def test_every_kind_of_node_has_a_span() -> None:
    kinds = [k for k in vars(nodes).values() if isinstance(k, type) and is_dataclass(k)
             and k.__module__ == nodes.__name__ and k is not nodes.Value]
    assert len(kinds) > 40
    for kind in kinds:
        assert "span" in {f.name for f in fields(kind)}, kind
    assert set(FORMATS) == set(kinds) - {Program}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_spans_lead_to_the_words(path: Path) -> None:
    """Stores, drops and the like stand where the source has them."""
    lines = lines_of(path)
    words = {nodes.Drop: "drop", nodes.Reject: "reject", nodes.Forward: "forward", nodes.Touch: "touch",
             nodes.Delete: "delete", nodes.Lookup: "lookup", nodes.Insert: "insert", nodes.Police: "police",
             nodes.Count: "count", nodes.MapState: "map", nodes.Port: "port", nodes.Config: "config"}
    checked = 0
    made = load(path)
    own_drops = {"malformed", "unparsed", "bad IPv4 checksum", "source route", "no handler", "fragment"}
    for node in all_nodes(made):
        word = words.get(type(node))
        if word is None or (isinstance(node, nodes.Drop) and (
                node.reason in own_drops or "fragment" in node.reason)):
            continue
        text = lines[node.span.line - 1][node.span.column - 1:]
        assert text.startswith((word, "pair map")), (node, text)
        checked += 1
    assert checked > 5


# Listing.


def test_print_node() -> None:
    x, y = nodes.Value("x", nodes_type("u8")), nodes.Value("y", nodes_type("u8"))
    span = Span("t.nf", 1, 1, 1, 2)
    assert print_node(nodes.Binary(y, "add", x, x, span)) == "%y : u8 = binary add %x %x"
    assert print_node(nodes.Drop('say "no"', span)) == 'drop "say \\"no\\""'
    assert print_node(nodes.Hold(span)) == "hold"
    assert print_node(nodes.Jump("there", (x, y), span)) == "jump there (%x, %y)"
    assert print_node(nodes.Switch(x, ((1, "a"), (2, "b")), "c", span)) == "switch %x {1 -> a, 2 -> b} else c"
    assert print_node(nodes.Police("m", (x,), y, "g", None, "r", "f", span)) == (
        "police m (%x) size %y green g yellow - red r full f")
    assert print_node(nodes.Count("c", None, x, span)) == "count c - %x"


def nodes_type(text: str) -> Any:
    """The type of that name."""
    (config,) = program(f'config c : {text} = 0 ""\nblock start ()\n drop "x"').configs
    return config.type


# What cannot be read.

HEAD = 'program t file "t.nf" @1:1-1:2\nport p faces (wire) @1:1-1:2\n'
UNREADABLE = [
    "", "prog", "program", 'program t file t.nf @1:1-1:2', 'program t file "t.nf"', 'program t file "t.nf" @1:1',
    'program t file "t.nf" @1:1-1:2 more', HEAD + "thing x @1:1-1:2", HEAD + "block a () @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n sing @1:1-1:2", HEAD + "block a () @1:1-1:2\n %x : u8 = const @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n %x : u8 = const ten @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n %x : u129 = const 1 @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n %x : u8 = const " + "9" * 100 + " @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n %x : float = const 1 @1:1-1:2", HEAD + "block a () @1:1-1:2\n jump b (%x) @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n jump b (%x @1:1-1:2", HEAD + 'block a () @1:1-1:2\n drop "x @1:1-1:2',
    HEAD + "block a () @1:1-1:2\n drop x @1:1-1:2", HEAD + "block a () @1:1-1:2\n drop § @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n drop ² @1:1-1:2", HEAD + "lpm t capacity 4 @1:1-1:2",
    HEAD + "map m capacity 4 slack 0 full reject maybe strict_order - @1:1-1:2",
    HEAD + "block a () @1:1-1:2\n extract eth limit 0 - - {ok a} @1:1-1:2",
]


def test_what_cannot_be_read(golden: Callable[[str, str], None]) -> None:
    shown = []
    for text in UNREADABLE:
        with pytest.raises(CoraError) as caught:
            parse_program(text, "given.ir")
        (found,) = caught.value.diagnostics
        assert found.kind == Kind.IR_TEXT
        assert found.span is not None
        assert found.span.line <= max(1, text.count("\n") + 1)
        last = text.split("\n")[-1]
        shown.append(f"{last[:70]}\n{caught.value.render()}\n")
    golden("unreadable.txt", "\n".join(shown))


@pytest.mark.parametrize("seed", range(30))
def test_mutilated_texts_are_refused_or_read(seed: int) -> None:
    choose = random.Random(seed)
    lines = print_program(load(choose.choice([p for p in EXAMPLES if p.stat().st_size < 4000]))).split("\n")
    for _ in range(choose.randint(1, 3)):
        at = choose.randrange(len(lines))
        tokens = re.findall(r'\s+|"[^"]*"|%?[\w.]+|.', lines[at]) or [""]
        token = choose.randrange(len(tokens))
        tokens[token] = choose.choice(["", tokens[token] * 2, "0", "-", "u8", "block", "%x", "ipv4", "ref<m>"])
        lines[at] = "".join(tokens)
    try:
        verify(parse_program("\n".join(lines)))
    except CoraError as error:
        assert {d.kind for d in error.diagnostics} <= {Kind.IR_TEXT, Kind.IR_INVALID}
