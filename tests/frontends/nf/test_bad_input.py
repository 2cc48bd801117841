"""Files that are no programs, and programs made to break the loader: one clear message, in a bounded time."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import error_cases as cases
import pytest

from cora.errors import CoraError, Kind
from cora.frontends.nf import MAX_SOURCE, load, loads

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.nf"))


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(path: Path, seconds: int = 10) -> CoraError:
    with time_limit(seconds), pytest.raises(CoraError) as caught:
        load(path)
    assert "Traceback" not in caught.value.render()
    return caught.value


@pytest.mark.parametrize(("content", "kind", "message"), [
    (b"", Kind.SYNTAX, "expected 'nf', found the end of the file"),
    (b" \n\n\t", Kind.SYNTAX, "expected 'nf', found the end of the file"),
    (b"\xef\xbb\xbf", Kind.SYNTAX, "expected 'nf', found the end of the file"),
    (b"// only a comment", Kind.SYNTAX, "expected 'nf', found the end of the file"),
    (b"\x7fELF\x02\x01\x01\x00", Kind.SYNTAX, "the character U+007F has no meaning here"),
    (b"\xd4\xc3\xb2\xa1\x02\x00", Kind.FILE_UNREADABLE, "the file is no UTF-8 text (first at byte 0)"),
    (b"nf t { \xff }", Kind.FILE_UNREADABLE, "the file is no UTF-8 text (first at byte 7)"),
    (b"nf\x00t", Kind.SYNTAX, "the character U+0000 has no meaning here"),
    (b"nf t {\x1b[31m }", Kind.SYNTAX, "the character U+001B has no meaning here"),
    ("nf näme { }".encode(), Kind.SYNTAX, "'ä' (U+00E4) has no meaning here"),
    ("nf 名 { }".encode(), Kind.SYNTAX, "'名' (U+540D) has no meaning here"),
    (b"nf t { /*", Kind.SYNTAX, "this comment is never closed"),
    (b'nf t { "abc', Kind.SYNTAX, "this text has no closing quote"),
    (b"#!/usr/bin/env python3\nprint(1)\n", Kind.SYNTAX, "'#' has no meaning here"),
])
def test_what_is_no_program(tmp_path: Path, content: bytes, kind: Kind, message: str) -> None:
    path = tmp_path / "t.nf"
    path.write_bytes(content)
    error = refused(path)
    assert (error.diagnostics[0].kind, error.diagnostics[0].message) == (kind, message)
    assert str(path) in error.render()
    assert all(c.isprintable() or c == "\n" for c in error.render())


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.nf", tmp_path):
        error = refused(path)
        assert error.diagnostics[0].kind == Kind.FILE_UNREADABLE
        assert str(path) in error.render()
    large = tmp_path / "large.nf"
    large.write_bytes(b" " * (MAX_SOURCE + 1))
    assert refused(large).diagnostics[0].kind == Kind.FILE_UNREADABLE


NAMES = " ".join(f"const name{i} = {i};" for i in range(8_000))
HARD = {
    "long sum": cases.statement("let x = " + "1 + " * 100_000 + "1; forward b;"),
    "long or": cases.statement("if " + "p.tcp.syn || " * 5_000 + "true { forward b; } drop \"x\";"),
    "open parentheses": cases.statement("let x = " + "(" * 50_000),
    "not": cases.statement("let x = " + "!" * 50_000 + "true; forward b;"),
    "choices": cases.statement("let x = " + "p.tcp.syn ? u8(1) : " * 3_000 + "u8(1); forward b;"),
    "members": cases.statement("let x = p" + ".ip" * 5_000 + "; forward b;"),
    "blocks": cases.statement("if p.tcp.syn {" * 4_000 + "}" * 4_000 + " forward b;"),
    "open blocks": cases.statement("if p.tcp.syn {" * 4_000),
    "else if": cases.statement("if p.tcp.syn { } else " * 4_000 + "{ } forward b;"),
    "braces": "{" * 200_000,
    "close braces": "nf t { " + "}" * 200_000,
    "number": cases.statement("let x = " + "9" * 500_000 + "; forward b;"),
    "hexadecimal": cases.statement("let x = 0x" + "f" * 500_000 + "; forward b;"),
    "duration": cases.statement("let x = " + "9" * 100_000 + "s; forward b;"),
    "colons": cases.statement("let x = " + "a:" * 100_000 + "; forward b;"),
    "dots": cases.statement("let x = " + "1." * 100_000 + "; forward b;"),
    "name": cases.statement("let " + "x" * 500_000 + " = nope; forward b;"),
    "comments": "/*" * 200_000,
    "stars": "/* " + "*" * 500_000,
    "slashes": "nf t { " + "/ " * 100_000,
    "quotes": 'nf t { drop ' + '"' * 200_001,
    "wrong statements": cases.statement("x y; " * 40_000),
    "wrong declarations": cases.declaration("prot c; " * 40_000),
    "unknown names": cases.statement("count nope; " * 5_000 + "forward b;"),
    "names and an error": cases.declaration(NAMES + " const z = ;"),
    "one line": cases.declaration(NAMES + " const z = nope;"),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_programs_end_in_one_message(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.nf"
    path.write_text(HARD[name])
    error = refused(path, 30)
    assert len(error.diagnostics) <= 50
    assert all(len(line) < 400 for line in error.render().splitlines())


def test_parentheses_alone_nest_freely() -> None:
    with time_limit(30):
        loads(cases.statement("let x = " + "(" * 10_000 + "1" + ")" * 10_000 + "; forward b;"))


def test_spaces_do_not_move_places(tmp_path: Path) -> None:
    """A byte order mark, tabs and Windows line ends: the column counts characters, the caret stands below the word."""
    path = tmp_path / "t.nf"
    path.write_bytes(b"\xef\xbb\xbfnf t {\r\n\tport a: wire;\r\n\ton a(p: eth) { forward c; }\r\n}\r\n")
    assert refused(path).render().splitlines()[:3] == [
        f"{path}:3:17: error[E102 unknown-name]: there is no port 'c'",
        "    3 |  on a(p: eth) { forward c; }",
        "      |                 ^^^^^^^^^^",
    ]


def test_other_line_ends_do_not_move_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.nf"
    path.write_text("nf t {\x0c // \u2028 \x85\n  port a: wire;\n  on a(p: eth) { forward c; }\n}\n")
    assert "    3 |   on a(p: eth) { forward c; }\n" in refused(path).render()


def test_wide_characters_do_not_move_the_caret(tmp_path: Path) -> None:
    path = tmp_path / "t.nf"
    path.write_text('nf t {\n  port a: wire;\n  on a(p: eth) { /* 日本 */ forward c; }\n}\n')
    lines = refused(path).render().splitlines()
    assert lines[0].startswith(f"{path}:3:27:")
    assert lines[2] == "      | " + " " * 28 + "^" * 10


@pytest.mark.parametrize("seed", range(40))
def test_mutilated_examples(seed: int, tmp_path: Path) -> None:
    """Tokens of the examples deleted, doubled, swapped or replaced: a program, or a message."""
    choose = random.Random(seed)
    text = choose.choice([p for p in EXAMPLES if p.stat().st_size < 4000] or EXAMPLES).read_text()
    tokens = re.findall(r"\s+|\w+|//[^\n]*|.", text)
    for _ in range(choose.randint(1, 5)):
        at = choose.randrange(len(tokens))
        kind = choose.randrange(4)
        if kind == 0:
            tokens[at] = ""
        elif kind == 1:
            tokens[at] *= 2
        elif kind == 2:
            other = choose.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            tokens[at] = choose.choice([*"{};()0p=@\"", "map", "drop", "nf", "1.2.3.4"])
    path = tmp_path / "t.nf"
    path.write_text("".join(tokens))
    with time_limit(20):
        try:
            load(path)
        except CoraError as error:
            assert error.render()


def test_source_given_as_text_is_shown() -> None:
    with pytest.raises(CoraError) as caught:
        loads("nf t {\n  port a: wire;\n  on a(p: eth) { forward c; }\n}\n")
    assert "    3 |   on a(p: eth) { forward c; }\n" in caught.value.render()
