"""Text of others: line numbers as the frontends count them, nothing that acts on a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from cora.errors import CoraError, Kind, fail
from cora.plan.sources import source_of
from cora.text import lines_of, visible


@pytest.mark.parametrize(("content", "shown"), [
    ("a\u202eb", "a\\u202eb"), ("\x1b[31m", "\\u001b[31m"), ("\x00", "\\u0000"), ("a\tb", "a b"), ("zero\u200bwidth",
     "zero\\u200bwidth"), ("größe", "größe"), ("\ud800", "\\ud800"),
])
def test_what_hides_or_reorders_text_is_shown_by_its_number(content: str, shown: str) -> None:
    assert visible(content) == shown


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    """A form feed or a line separator in a comment moved every later line of a plan and a trace by one."""
    file = tmp_path / "odd.nf"
    text = '\ufeffnf odd { // \x0c page, \u2028 separator\r\n  port a: wire;\n  on a(p: eth) { drop "no"; }\n}\n'
    file.write_bytes(text.encode())
    program = cora.load(str(file))
    span = program.blocks[-1].terminator.span
    assert span.line == 3 and lines_of(str(file))[2].strip() == 'on a(p: eth) { drop "no"; }'
    assert source_of(span).text == lines_of(str(file))[2].strip()
    assert lines_of(str(file))[0].startswith("nf odd")


def test_a_plan_quotes_lines_that_no_screen_acts_on(tmp_path: Path) -> None:
    file = tmp_path / "odd.nf"
    text = 'nf odd {\n  port a: wire;\n  on a(p: eth) { drop "no"; } // \x1b[2J \u202e\n}\n'
    file.write_text(text, encoding="utf-8")
    found = source_of(cora.load(str(file)).blocks[-1].terminator.span)
    assert found.text.endswith(r"// \u001b[2J \u202e")


def test_messages_tell_what_would_act_on_the_terminal(tmp_path: Path) -> None:
    error = fail(Kind.BAD_PLAN, "there is no field 'a\x1b[31m'", where="b\x07.json", hint="c\x9b")
    assert error.render() == (r"b\u0007.json: error[E501 bad-plan-document]: there is no field 'a\u001b[31m'" "\n"
                              r"help: c\u009b")
    with pytest.raises(CoraError) as caught:
        cora.load(str(tmp_path / "no\x1b[2Jfile.nf"))
    assert "\x1b" not in caught.value.render()
