"""Every message about a wrong program: its place here, its text in tests/golden/test_language_errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import error_cases as cases
import pytest

from cora.errors import CoraError, Diagnostic, Kind
from cora.frontends.nf import constants, declare, dispatch, elaborate, expressions, load, loads, lower, parser, words


@cache
def diagnostics(text: str, **overrides: str) -> tuple[Diagnostic, ...]:
    """What is wrong with a program that must be refused."""
    with pytest.raises(CoraError) as caught:
        loads(text, "t.nf", overrides)
    return caught.value.diagnostics


def places(found: tuple[Diagnostic, ...]) -> str:
    """``kind@line:column`` for each."""
    return " ".join(f"{d.kind.number}@{d.span.line}:{d.span.column}" if d.span else str(d.kind.number) for d in found)


GROUPS: dict[str, tuple[Sequence[tuple[str, ...]], Callable[..., str]]] = {
    "texts": (cases.TEXTS, lambda text: text),
    "declarations": (cases.DECLARATIONS, cases.declaration),
    "statements": (cases.STATEMENTS, cases.statement),
    "functions": (cases.FUNCTIONS, cases.function),
    "patterns": (cases.PATTERNS, cases.pattern),
}


@pytest.mark.parametrize("group", GROUPS)
def test_errors_stand_where_they_are(group: str) -> None:
    rows, program = GROUPS[group]
    for *piece, expected in rows:
        assert places(diagnostics(program(*piece))) == expected, piece


@pytest.mark.parametrize("group", GROUPS)
def test_messages(group: str, golden: Callable[[str, str], None]) -> None:
    rows, program = GROUPS[group]
    shown = []
    for *piece, _ in rows:
        found = diagnostics(program(*piece))
        shown.append(" | ".join(piece) + "\n" + "\n".join(d.render() for d in found) + "\n")
    golden(f"{group}.txt", "\n".join(shown).replace("\r", "<CR>"))


def test_errors_come_in_order_of_place() -> None:
    for rows, program in GROUPS.values():
        for *piece, _ in rows:
            found = [(d.span.line, d.span.column) for d in diagnostics(program(*piece)) if d.span]
            assert found == sorted(found), piece


def test_no_internal_name_reaches_a_user() -> None:
    for rows, program in GROUPS.values():
        for *piece, _ in rows:
            text = "\n".join(d.render() for d in diagnostics(program(*piece)))
            assert "__ANON" not in text, piece
            for name in ("token_bucket", "srtcm", "NoneType", "lark", "EntryRef", "UInt"):
                assert name not in text, piece


def test_every_kind_of_the_language_has_a_message() -> None:
    met = {
        d.kind for rows, program in GROUPS.values() for *piece, _ in rows for d in diagnostics(program(*piece))
    }
    elsewhere = {
        Kind.BAD_OVERRIDE: test_overrides, Kind.TOO_MANY_PATHS: test_programs_that_multiply,
        # Of the IR's own: tests/ir.
        Kind.IR_TEXT: None, Kind.IR_INVALID: None, Kind.BAD_PASS: None,
    }
    language = {k for k in Kind if k.number < 200}
    assert language - met == set(elsewhere)


@pytest.mark.parametrize("word", words.NOT_YET)
def test_planned_declarations_are_refused(word: str) -> None:
    for piece in (f"{word} x {{ size 5; }}", f"{word} x;", f'{word} "x";', f"{word};"):
        found = diagnostics(cases.declaration(piece))
        assert places(found) == "112@4:3", piece
        assert f"'{word}' is not in this version of the language" in found[0].message


@pytest.mark.parametrize("word", words.NOT_YET)
def test_planned_statements_are_refused(word: str) -> None:
    for piece in (f"{word}; forward b;", f"{word} p to b; forward b;", f"{word}(p); forward b;",
                  f"{word} p {{ forward b; }} forward b;"):
        assert places(diagnostics(cases.statement(piece))) == "112@19:5", piece


@pytest.mark.parametrize("word", words.NOT_YET)
def test_planned_headers_are_refused(word: str) -> None:
    assert places(diagnostics(cases.statement(f"let x = p.{word}.f; forward b;"))) == "112@19:13"
    assert places(diagnostics(cases.statement(f"if p is {word} {{ forward b; }} forward b;"))) == "112@19:8"
    assert places(diagnostics(cases.pattern(f"eth/{word}"))) == "112@18:11"


REFUSED = sorted((words.KEYWORDS - {"_"}) | words.BUILT_IN | set(words.NOT_YET) | {"u8", "ipv4"})


@pytest.mark.parametrize("word", REFUSED)
def test_words_of_the_language_are_no_names(word: str) -> None:
    for piece in (f"const {word} = 1;", f"port {word}: wire;", f"fn {word}() {{ }}", f"counter {word};"):
        found = diagnostics(cases.declaration(piece))
        assert found[0].kind in (Kind.DUPLICATE_NAME, Kind.SYNTAX, Kind.NOT_YET), piece
        assert found[0].span is not None
        assert found[0].span.line == 4
    for piece in (f"let {word} = u8(1); forward b;", f"var {word} = u8(1); forward b;",
                  f"for {word} in 0 .. 2 {{ }} forward b;",
                  f"lookup rules[p.ip.src] {{ hit {word} {{ }} }} forward b;"):
        found = diagnostics(cases.statement(piece))
        assert found[0].kind in (Kind.DUPLICATE_NAME, Kind.SYNTAX), piece
    assert diagnostics(cases.function(f"fn g({word}) {{ }}", "g(p); forward b;"))


def test_several_errors_in_one_run() -> None:
    text = cases.declaration("prot c: wire; const x = ; fn f() { forward; drop; let y 3; }\n  const z = 1 +;")
    assert places(diagnostics(text)) == "101@4:3 101@4:27 101@4:45 101@4:51 101@4:59 101@5:16"
    text = cases.statement("let x = nope; let y = also + 1; count zip; lookup nix[1] { hit { } } forward far;")
    assert places(diagnostics(text)) == "102@19:13 102@19:27 102@19:37 102@19:48 102@19:74"


def test_at_most_ten_syntax_errors() -> None:
    assert len(diagnostics(cases.declaration("const = 1; " * 30))) == parser.MAX_ERRORS


def test_at_most_fifty_other_errors() -> None:
    assert len(diagnostics(cases.declaration(" ".join(f"const x{i} = nope;" for i in range(99))))) == declare.MAX_ERRORS


def test_an_error_does_not_cause_others() -> None:
    for piece, expected in (
        ("lookup nope[p.ip.src] { hit e { forward b; } miss { drop \"x\"; } }", "102@19:5"),
        ("let x = nope; let y = x + 1; var z: u8 = x; p.ip.ttl = x; forward b;", "102@19:13"),
        ("if nope { forward b; } else { drop \"x\"; }", "102@19:8"),
    ):
        assert places(diagnostics(cases.statement(piece))) == expected, piece
    assert places(diagnostics(cases.declaration("const x: u8 = 300; const y = x + 1; counter c[x];"))) == "105@4:17"
    assert places(diagnostics(cases.declaration("struct S { a: nope } map m { entry { s: S } key = s; capacity 1; }")
                              )) == "102@4:17"


def test_overrides(golden: Callable[[str, str], None]) -> None:
    text = cases.declaration("config ttl: u8 = 3; config addr: ipv4 = 1.2.3.4; config idle: duration = 3s;")
    shown = []
    for given in ({"tll": "3"}, {"ttl": "300"}, {"ttl": "1.2.3.4"}, {"ttl": ""}, {"ttl": "3; }"}, {"ttl": "3 } nf y {"},
                  {"ttl": "//"}, {"ttl": "nope"}, {"addr": "1.2.3"}, {"addr": "3"}, {"idle": "3"}, {"ttl": "\x00"},
                  {"ttl": "9" * 5000}, {"ttl": "1" + "+1" * 5000}):
        found = diagnostics(text, **given)
        assert {d.kind for d in found} == {Kind.BAD_OVERRIDE}, given
        shown += [d.render()[:400] for d in found]
    golden("overrides.txt", "\n".join(shown) + "\n")
    program = loads(text, "t.nf", {"ttl": "1 + 2 * 3", "addr": "10.0.0.1", "idle": "2min"})
    assert [(c.name, c.value, c.shown) for c in program.configs] == [
        ("ttl", 7, "1 + 2 * 3"), ("addr", 0x0A000001, "10.0.0.1"), ("idle", 120 * 10**9, "2min")]


DOUBLING = " ".join(f"fn f{i}(q) {{ f{i + 1}(q); f{i + 1}(q); }}" for i in range(25))


@pytest.mark.parametrize(("functions", "body", "kind"), [
    pytest.param(DOUBLING + "fn f25(q) { q.ip.ttl = 1; }", "f0(p); forward b;", Kind.TOO_MANY_PATHS, id="calls"),
    pytest.param(DOUBLING + "fn f25(q) { if q.tcp.syn { q.ip.ttl = 1; } }", "f0(p); forward b;", Kind.TOO_MANY_PATHS,
                 id="branches"),
    pytest.param("".join(f"fn f{i}(q) {{ f{i + 1}(q); }}" for i in range(99)) + "fn f99(q) { }", "f0(p); forward b;",
                 Kind.VALUE_RANGE, id="deep calls"),
    pytest.param("", "".join(f"for i{n} in 0 .. 64 {{" for n in range(6)) + "p.ip.ttl = 1;" + "}" * 6 + "forward b;",
                 Kind.TOO_MANY_PATHS, id="loops"),
    pytest.param("struct S { a: u128, b: u128, c: u128, d: u128 } struct T { a: S, b: S, c: S, d: S } "
                 "map big { entry { k: u8, a: T, b: T, c: T } key = k; capacity 1; }", "forward b;", Kind.VALUE_RANGE,
                 id="entries"),
    pytest.param(" ".join(f"struct S{i} {{ a: {f'S{i - 1}' if i else 'u8'}, b: {f'S{i - 1}' if i else 'u8'} }}"
                          for i in range(40)), "forward b;", Kind.VALUE_RANGE, id="structs"),
    pytest.param("", "let x = " + "~" * 150 + "u8(1); forward b;", Kind.SYNTAX, id="nesting"),
    pytest.param("const c0 = 2; " + " ".join(f"const c{i} = c{i - 1} * c{i - 1};" for i in range(1, 60)), "forward b;",
                 Kind.VALUE_RANGE, id="constants"),
    pytest.param("acl big { key (x: u16); value { v: u8 } entries { "
                 + " ".join(f"({i}) -> {{ v: 1 }} priority 3;" for i in range(1100)) + "} }", "forward b;",
                 Kind.VALUE_RANGE, id="priorities"),
])
def test_programs_that_multiply(functions: str, body: str, kind: Kind, golden: Callable[[str, str], None],
                                request: pytest.FixtureRequest) -> None:
    found = diagnostics(cases.function(functions, body))
    assert [d.kind for d in found] == [kind]
    assert found[0].span is not None
    golden(f"limit {request.node.callspec.id}.txt", found[0].render() + "\n")


def test_patterns_that_multiply(golden: Callable[[str, str], None]) -> None:
    found = diagnostics(cases.pattern("/".join(["(eth|eth|eth|eth)"] * 12)))
    assert places(found) == "113@18:11"
    golden("limit patterns.txt", found[0].render() + "\n")


def test_unparsed_pass_needs_two_ports() -> None:
    for ports in ("port a: wire;", "port a: wire; port b: wire; port c: wire;"):
        found = diagnostics(f"nf t {{ {ports} unparsed pass; on a(p: eth) {{ forward a; }} }}")
        assert [d.kind for d in found] == [Kind.BAD_DECLARATION]


def test_every_message_of_the_frontend_is_tested() -> None:
    """The words of each message in the source stand in some golden file."""
    folder = Path(__file__).parents[2] / "golden" / "test_language_errors"
    golden = "\n".join(p.read_text() for p in folder.glob("*.txt"))
    missing = [
        piece for module in (constants, declare, dispatch, elaborate, expressions, lower, parser)
        for piece in message_pieces(inspect.getsource(module)) if piece not in golden
    ]
    assert set(missing) == UNTESTED


def message_pieces(source: str) -> list[str]:
    """The longest literal piece of every message given to ``errors.add`` or `Diagnostic` in a module."""
    import ast

    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or len(node.args) < 2:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in ("add", "Diagnostic") or "Kind." not in ast.unparse(node.args[0]):
            continue
        literal = [c.value for c in ast.walk(node.args[1]) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
        if literal:
            found.append(max(literal, key=len))
    return found


# What is wrong with a config's value given from outside is said in the words of that value.
UNTESTED = {"' is no expression"}


def test_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.nf"
    path.write_text(cases.statement("let x = nope; forward b;"))
    with pytest.raises(CoraError) as caught:
        load(path)
    assert caught.value.render().startswith(f"{path}:19:13: error[E102 unknown-name]: there is no value 'nope'\n")
    assert "   19 |     let x = nope; forward b;\n      |             ^^^^\n" in caught.value.render()
