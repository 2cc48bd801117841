"""Numbered error kinds, and the one exception every user-visible failure is raised as.

Numbers are stable: once given, a number keeps its meaning and is never reused. 1xx is the NF language, 2xx captures
and traffic, 3xx profiles, 4xx models and planning, 5xx plan documents, 6xx engines and tools, 7xx the command line.
Backends take 800 and up.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cora.ir.span import Span
from cora.text import lines_of, split_lines, visible


class Kind(Enum):
    """An error kind: its number and its stable name."""

    SYNTAX = (101, "syntax")
    UNKNOWN_NAME = (102, "unknown-name")
    DUPLICATE_NAME = (103, "duplicate-name")
    TYPE_MISMATCH = (104, "type-mismatch")
    VALUE_RANGE = (105, "value-out-of-range")
    HEADER_ABSENT = (106, "header-not-present")
    REFERENCE_ESCAPES = (107, "entry-reference-escapes")
    MISSING_RETURN = (108, "packet-without-verdict")
    UNREACHABLE = (109, "unreachable-statement")
    RECURSION = (110, "recursive-function")
    BAD_DECLARATION = (111, "bad-declaration")
    NOT_YET = (112, "not-supported-yet")
    BAD_PATTERN = (113, "bad-header-pattern")
    READ_ONLY = (114, "read-only")
    NOT_CONSTANT = (115, "not-constant")
    MISSING_ARM = (116, "missing-arm")
    BAD_OVERRIDE = (117, "bad-config-override")
    IR_TEXT = (120, "ir-syntax")
    IR_INVALID = (121, "invalid-ir")
    TOO_MANY_PATHS = (122, "too-many-paths")
    BAD_PASS = (123, "unknown-pass")

    FILE_UNREADABLE = (201, "file-unreadable")
    NOT_A_CAPTURE = (202, "not-a-capture")
    LINK_TYPE = (203, "unsupported-link-type")
    PORT_MAP = (204, "bad-port-map")
    TRAFFIC_SPEC = (205, "bad-traffic-specification")
    EMPTY_CAPTURE = (206, "empty-capture")

    BAD_PROFILE = (301, "bad-profile")
    PROFILE_MISMATCH = (302, "profile-of-another-program")
    BAD_STATE = (303, "bad-state-dump")

    BAD_MODEL = (401, "bad-model")
    UNKNOWN_NIC = (402, "unknown-nic")
    NO_PLAN = (403, "no-feasible-plan")
    SOLVER = (404, "solver-failed")
    BAD_TARGET = (405, "bad-target")
    PLAN_CHECK = (406, "plan-fails-exact-check")
    BAD_CALIBRATION = (407, "bad-calibration")

    BAD_PLAN = (501, "bad-plan-document")
    PLAN_VERSION = (502, "plan-version")
    PLAN_INPUTS = (503, "plan-of-other-inputs")
    BAD_BUDGET = (504, "bad-budget")
    NOT_BUILDABLE = (505, "not-buildable")
    BAD_BUILD = (506, "bad-build")

    NO_COMPILER = (601, "no-c-compiler")
    COMPILER_FAILED = (602, "c-compiler-failed")
    ENGINE_LIMIT = (603, "engine-limit")
    CACHE_UNWRITABLE = (604, "cache-unwritable")
    MISSING_LIBRARY = (605, "missing-library")
    MISSING_TOOL = (606, "missing-tool")
    MAKE_FAILED = (607, "make-failed")
    VERIFIER = (608, "kernel-refuses-program")
    BAD_INTERFACE = (609, "bad-interface")
    RUN_FAILED = (610, "run-failed")
    NO_SUCH_RUN = (611, "no-such-run")
    RUN_REFUSED = (612, "run-refused")

    BAD_FLAG = (701, "bad-flag")
    CANNOT_WRITE = (702, "cannot-write")
    NO_SUCH_PACKET = (703, "no-such-packet")

    @property
    def number(self) -> int:
        """The stable number users search for."""
        return self.value[0]

    @property
    def label(self) -> str:
        """The stable name beside the number."""
        return self.value[1]


# Characters of a source line that a message shows.
_SHOWN = 160


def _width(character: str) -> int:
    """Columns a character takes on a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _place(span: Span | None, where: str | None) -> dict[str, Any]:
    if span is None:
        return {"file": where, "line": None, "column": None, "end_line": None, "end_column": None}
    return {"file": span.file, "line": span.line, "column": span.column, "end_line": span.end_line,
            "end_column": span.end_column}


@dataclass(frozen=True)
class Diagnostic:
    """One message: what is wrong, where, and what to change.

    ``where`` names the place when there is no source span (a file, a flag, a byte offset). ``source`` holds the text
    the span points into when that text is not the file's own (a string given through the API).
    """

    kind: Kind
    message: str
    span: Span | None = None
    where: str | None = None
    hint: str | None = None
    notes: tuple[tuple[str, Span | None], ...] = ()
    source: str | None = field(default=None, compare=False, repr=False)

    def render(self) -> str:
        """The full text: place, kind, message, the line with a caret, notes, and the suggestion.

        What input brings into it cannot act on the terminal: such characters are told by their number.
        """
        place = str(self.span) if self.span else self.where
        head = f"{place}: " if place else ""
        out = [f"{head}error[E{self.kind.number} {self.kind.label}]: {self.message}"]
        if self.span:
            out += self._excerpt(self.span)
        for text, span in self.notes:
            out.append(f"{span}: note: {text}" if span else f"note: {text}")
            if span:
                out += self._excerpt(span)
        if self.hint:
            out.append(f"help: {self.hint}")
        return visible("\n".join(out))

    def document(self) -> dict[str, Any]:
        """The message as plain data, as ``--json`` prints it; ``file`` is the place in words when there is no span."""
        return {"code": self.kind.number, "name": self.kind.label, **_place(self.span, self.where),
                "message": self.message, "help": self.hint,
                "notes": [{"message": text, **_place(span, None)} for text, span in self.notes]}

    def _excerpt(self, span: Span) -> list[str]:
        lines = split_lines(self.source) if self.source is not None else lines_of(span.file)
        if not 1 <= span.line <= len(lines):
            return []
        text = "".join(c if c.isprintable() else " " for c in lines[span.line - 1])
        start = min(span.column - 1, len(text))
        past = span.end_column - 1 if span.end_line == span.line else len(text)
        first = max(0, start - _SHOWN // 2) if len(text) > _SHOWN else 0
        shown = text[first:first + _SHOWN]
        marked = text[start:min(past, first + _SHOWN)]
        before, after = "..." if first else "", "..." if first + _SHOWN < len(text) else ""
        indent = len(before) + sum(map(_width, text[first:start]))
        gutter = f"{span.line:>5} | "
        return [gutter + before + shown + after,
                " " * 5 + " | " + " " * indent + "^" * max(1, sum(map(_width, marked)))]


class CoraError(Exception):
    """One or more diagnostics about the user's input. The command line prints them and exits with code 2."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        """Keep the diagnostics in the order given; at least one is needed."""
        self.diagnostics: tuple[Diagnostic, ...] = (
            (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        )
        assert self.diagnostics, "an error without a diagnostic tells the user nothing"
        super().__init__(self.diagnostics[0].message)

    def __str__(self) -> str:
        """The rendered text, so that an uncaught error tells a Python user what the command line would."""
        return self.render()

    def render(self) -> str:
        """All diagnostics, one after the other."""
        return "\n".join(d.render() for d in self.diagnostics)


def fail(kind: Kind, message: str, *, span: Span | None = None, where: str | None = None, hint: str | None = None,
         notes: Sequence[tuple[str, Span | None]] = ()) -> CoraError:
    """Build the exception for a single diagnostic: ``raise fail(Kind.X, ...)``."""
    return CoraError(Diagnostic(kind, message, span, where, hint, tuple(notes)))
