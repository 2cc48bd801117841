"""How places in the user's program and verdicts of its paths are told in a plan."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from cora.ir.nodes import Reject, Terminator
from cora.ir.span import Span
from cora.ir.text import print_node
from cora.plan.document import Source


@lru_cache(maxsize=16)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def source_of(span: Span) -> Source:
    """A span with the text of its line, empty where the file cannot be read."""
    lines = _lines(span.file)
    text = lines[span.line - 1].strip() if 1 <= span.line <= len(lines) else ""
    return Source(span.file, span.line, span.column, text)


def order_line(span: Span) -> int:
    """The line that says `order` in a declaration of a map or meter; its first one where it says nothing of it."""
    lines = _lines(span.file)[span.line - 1 : span.end_line]
    return next((span.line + i for i, text in enumerate(lines) if re.match(r"\s*order\b", text)), span.line)


def verdict_of(terminator: Terminator) -> str:
    """How a path ends, without the names that values have in the IR."""
    if isinstance(terminator, Reject):
        icmp = "ICMP" if terminator.header == "ipv4" else "ICMPv6"
        return f'reject "{terminator.reason}" ({icmp} type {terminator.icmp_type} code {terminator.icmp_code})'
    return print_node(terminator)
