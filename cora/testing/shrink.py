"""Makes a failing program and packet sequence small: removes packets and statements while the failure stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from cora.errors import CoraError
from cora.frontends import nf
from cora.ir.nodes import Program
from cora.testing.frames import Packet

T = TypeVar("T")
Fails = Callable[[Program, Sequence[Packet]], bool]


def shrink(text: str, packets: Sequence[Packet], fails: Fails, max_runs: int = 400) -> tuple[str, list[Packet]]:
    """A smaller program and fewer packets for which ``fails`` still holds.

    Args:
        fails: called with programs that load; must hold for the given ones.
        max_runs: at most so many calls of it.
    """
    budget = _Budget(max_runs)
    program = nf.loads(text)
    left = _fewer(list(packets), lambda kept: fails(program, kept), budget)
    while budget.left > 0:
        smaller = _smaller_text(text, left, fails, budget)
        if smaller == text:
            break
        text = smaller
    program = nf.loads(text)
    return text, _fewer(left, lambda kept: fails(program, kept), budget)


def fewer(items: list[T], fails: Callable[[list[T]], bool], runs: int) -> list[T]:
    """Without as many items as possible, ``fails`` still holding; it is called at most ``runs`` times."""
    return _fewer(items, fails, _Budget(runs))


class _Budget:
    def __init__(self, runs: int) -> None:
        self.left = runs

    def allows(self, test: Callable[[], bool]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return test()


def _fewer(items: list[T], fails: Callable[[list[T]], bool], budget: _Budget) -> list[T]:
    """Without as many items as possible: first large runs of them, then single ones."""
    size = len(items)
    while size >= 1:
        at = len(items) - size
        while at >= 0:
            kept = items[:at] + items[at + size:]
            if kept and budget.allows(lambda kept=kept: fails(kept)):  # type: ignore[misc]
                items = kept
            at -= size
        size //= 2
    return items


def _smaller_text(text: str, packets: list[Packet], fails: Fails, budget: _Budget) -> str:
    """One pass over the text that removes what can be removed."""
    lines = text.splitlines()
    at = len(lines) - 1
    while at > 0 and budget.left > 0:
        for kept in _without(lines, at):
            program = _loaded("\n".join(kept) + "\n")
            if program is None or any(p.port >= len(program.ports) for p in packets):
                continue
            if budget.allows(lambda p=program: fails(p, packets)):  # type: ignore[misc]
                lines = kept
                break
        at = min(at, len(lines)) - 1
    return "\n".join(lines) + "\n"


def _without(lines: list[str], at: int) -> Iterator[list[str]]:
    """Variants of the text without what starts at a line: its whole block, its head and end only, or just the line."""
    depth = 0
    for end in range(at, len(lines)):
        depth += lines[end].count("{") - lines[end].count("}")
        if depth <= 0:
            break
    else:
        return
    if end == at:
        if depth == 0:
            yield lines[:at] + lines[at + 1:]
        return
    yield lines[:at] + lines[end + 1:]
    inside = lines[at + 1:end]
    middle = next((i for i, line in enumerate(inside) if line.strip() == "} else {"
                   and _indent(line) == _indent(lines[at])), None)
    for part in ([inside] if middle is None else [inside[:middle], inside[middle + 1:]]):
        yield lines[:at] + part + lines[end + 1:]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _loaded(text: str) -> Program | None:
    try:
        return nf.loads(text)
    except CoraError:
        return None
