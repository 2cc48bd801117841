"""Text of others: the lines of source files, and what of a text a screen can be trusted with."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path

# Control and format characters, lone halves of characters, private ones, and line separators.
_SHOWN_BY_NUMBER = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


@lru_cache(maxsize=32)
def lines_of(file: str) -> tuple[str, ...]:
    """All lines of a source file as `split_lines` counts them; none where it cannot be read."""
    try:
        return split_lines(Path(file).read_text(encoding="utf-8-sig", errors="replace"))
    except OSError:
        return ()


def split_lines(text: str) -> tuple[str, ...]:
    """The lines of a source text. Only line feeds end a line, as in every place that counts lines."""
    return tuple(line.rstrip("\r") for line in text.split("\n"))


def visible(text: str) -> str:
    """A text without characters that hide or reorder what stands beside them; a tab is a space."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) for c in text)


def is_hidden(character: str) -> bool:
    """Whether a screen would do something else with a character than show it; line feeds and tabs are no such."""
    return character not in "\t\n" and unicodedata.category(character) in _SHOWN_BY_NUMBER


def _visible(character: str) -> str:
    if is_hidden(character):
        return f"\\u{ord(character):04x}"
    return " " if character == "\t" else character
