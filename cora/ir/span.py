"""Where in the user's text something came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a source file; lines and columns are 1-based, the end is exclusive in its column."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def to(self, other: Span) -> Span:
        """The smallest span that starts where this one starts and ends where ``other`` ends."""
        return Span(self.file, self.line, self.column, other.end_line, other.end_column)

    @property
    def short(self) -> str:
        """``line:column-line:column``, the form the textual IR uses."""
        return f"{self.line}:{self.column}-{self.end_line}:{self.end_column}"
