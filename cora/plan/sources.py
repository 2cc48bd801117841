"""How places in the user's program and verdicts of its paths are told in a plan."""

from __future__ import annotations

from cora.ir.nodes import Reject, Terminator
from cora.ir.source_text import lines_of
from cora.ir.span import Span
from cora.ir.text import print_node
from cora.plan.document import Source


def source_of(span: Span) -> Source:
    """A span with the text of its line, empty where the file cannot be read."""
    lines = lines_of(span.file)
    text = lines[span.line - 1].strip() if 1 <= span.line <= len(lines) else ""
    return Source(span.file, span.line, span.column, text)


def verdict_of(terminator: Terminator) -> str:
    """How a path ends, without the names that values have in the IR."""
    if isinstance(terminator, Reject):
        icmp = "ICMP" if terminator.header == "ipv4" else "ICMPv6"
        return f'reject "{terminator.reason}" ({icmp} type {terminator.icmp_type} code {terminator.icmp_code})'
    return print_node(terminator)
