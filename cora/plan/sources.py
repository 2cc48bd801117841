"""How places in the user's program and verdicts of its paths are told in a plan."""

from __future__ import annotations

from cora.ir.nodes import Reject, Terminator
from cora.ir.span import Span
from cora.ir.text import print_node
from cora.plan.document import Source
from cora.text import lines_of, visible


def source_of(span: Span) -> Source:
    """A span with the text of its line, empty where the file cannot be read; characters that hide or
    reorder text are told by their number."""
    lines = lines_of(span.file)
    text = lines[span.line - 1].strip() if 1 <= span.line <= len(lines) else ""
    return Source(visible(span.file), span.line, span.column, visible(text))


def verdict_of(terminator: Terminator) -> str:
    """How a path ends, without the names that values have in the IR."""
    if isinstance(terminator, Reject):
        icmp = "ICMP" if terminator.header == "ipv4" else "ICMPv6"
        return f'reject "{terminator.reason}" ({icmp} type {terminator.icmp_type} code {terminator.icmp_code})'
    return print_node(terminator)
