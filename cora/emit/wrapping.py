"""Long lines of generated C, broken as a person would: behind a separator, under the bracket that is open there."""

from __future__ import annotations

from collections.abc import Iterator

WIDTH = 120
_SEPARATORS = (", ", " && ", " || ", " : ", " | ")
# A bracket farther to the right leaves no room under it.
_FARTHEST = 70


def wrapped(line: str) -> Iterator[str]:
    """The line in pieces of at most `WIDTH` columns, where it has separators; comments and directives stay whole."""
    whole, step = line.lstrip().startswith(("#", "/*", "*", '"')), 8
    while len(line) > WIDTH and not whole:
        at = _last_break(line)
        if at is None:
            break
        yield line[:at].rstrip()
        line = " " * _continuation(line[:at], step) + line[at:].lstrip()
        # What goes on stays in its column.
        step = 0
    yield line


def _last_break(line: str) -> int | None:
    """Where the last piece that still fits ends; not in front of what the line begins with."""
    start = len(line) - len(line.lstrip()) + 1
    # A string is never broken.
    limit = min(WIDTH, line.find('"')) if '"' in line else WIDTH
    ends = [end for s in _SEPARATORS if (end := line.rfind(s, start, limit) + len(s)) >= start + len(s)]
    return max(ends, default=None)


def _continuation(line: str, step: int) -> int:
    """The column under the innermost open bracket, or a step behind the line's own."""
    opened: list[int] = []
    for i, c in enumerate(line):
        if c in "({[":
            opened.append(i)
        elif c in ")}]" and opened:
            opened.pop()
    own = len(line) - len(line.lstrip())
    return opened[-1] + 1 if opened and opened[-1] < _FARTHEST else own + step
