"""Error kinds: numbers are unique and stable, and every kind has a test that asserts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cora.errors import CoraError, Diagnostic, Kind, fail
from cora.ir.span import Span

TESTS = Path(__file__).parent


def test_numbers_and_names_are_unique() -> None:
    assert len({k.number for k in Kind}) == len(Kind)
    assert len({k.label for k in Kind}) == len(Kind)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda k: k.name)
def test_every_kind_is_asserted_somewhere(kind: Kind) -> None:
    needles = (f"E{kind.number}", f"Kind.{kind.name}", f"== {kind.number}")
    files = [f for f in TESTS.rglob("*") if f.suffix in (".py", ".txt") and f != Path(__file__)]
    assert any(n in f.read_text(encoding="utf-8", errors="replace") for f in files for n in needles)


def test_a_message_has_place_kind_excerpt_notes_and_help() -> None:
    text = "nf x {\n\tport a: wyre;\n}\n"
    span = Span("x.nf", 2, 10, 2, 14)
    error = CoraError(Diagnostic(Kind.UNKNOWN_NAME, "there is no 'wyre'", span, hint="did you mean 'wire'?",
                                 notes=(("used here", Span("x.nf", 1, 1, 1, 3)),), source=text))
    assert error.render() == (
        "x.nf:2:10: error[E102 unknown-name]: there is no 'wyre'\n"
        "    2 |  port a: wyre;\n"
        "      |          ^^^^\n"
        "x.nf:1:1: note: used here\n"
        "    1 | nf x {\n"
        "      | ^^\n"
        "help: did you mean 'wire'?")


def test_a_message_without_a_source_names_its_place() -> None:
    assert fail(Kind.BAD_FLAG, "no", where="--rate").render() == "--rate: error[E701 bad-flag]: no"
