"""What commands on running programs share: finding them, and printing what they tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import table
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.runtime.control import Control
    from cora.runtime.runs import Run

# Texts and numbers of a status that are no counters, in this order, and how they read.
_HEAD = ("name", "program", "plan", "epoch", "uptime_ns", "shards", "pid")
# For other programs.
_HIDDEN = ("now_ns",)


def only_run(name: str | None) -> Run:
    """The run of that name; without a name the only one there is.

    Raises:
        CoraError: `Kind.NO_SUCH_RUN` where there is none, or several.
    """
    from cora.runtime.runs import find_run, runs

    if name is not None:
        return find_run(name)
    found = runs()
    if len(found) == 1:
        return found[0]
    if not found:
        raise fail(Kind.NO_SUCH_RUN, "nothing runs here", hint="`cora run PLAN --ports ...` starts a plan")
    raise fail(Kind.NO_SUCH_RUN, "several plans run here, say which one", where="NAME",
               hint=", ".join(r.name for r in found))


def control_of(name_or_socket: str | None) -> Control:
    """A connection to a run by its name, or by the path of its control socket.

    Raises:
        CoraError: `Kind.NO_SUCH_RUN`.
    """
    from cora.runtime.control import Control

    if name_or_socket is not None and "/" in name_or_socket:
        return Control(Path(name_or_socket))
    return Control(Path(only_run(name_or_socket).control))


def print_status(told: Mapping[str, Any]) -> None:
    """A status or the totals of a run as text: what it is, counters by section, tables."""
    for line in status_lines(told):
        click.echo(line)


def status_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """The lines of `print_status`. Whatever a program tells is shown, under its own names."""
    head = [f"{_words(k)} {_plain(k, told[k])}" for k in _HEAD if k in told]
    if head:
        yield ", ".join(head)
    for name, value in told.items():
        if name in _HEAD or name in _HIDDEN:
            continue
        if isinstance(value, Mapping):
            yield from _section(_words(name), value)
        else:
            yield f"{_words(name)}: {_plain(name, value)}"


def _section(name: str, values: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    indent = "  " * depth
    rows = list(values.items())
    if rows and all(isinstance(v, str) for _, v in rows):
        yield f"{indent}{name}: {', '.join(f'{k}={v}' for k, v in rows)}"
        return
    if rows and all(isinstance(v, Mapping) and not any(isinstance(x, Mapping) for x in v.values()) for _, v in rows):
        yield f"{indent}{name}"
        columns = list(dict.fromkeys(k for _, v in rows for k in v))
        body = [[key, *(_plain(c, v.get(c, "")) for c in columns)] for key, v in rows]
        yield from (f"{indent}  {line}" for line in table(body, ["", *map(_words, columns)]).splitlines())
        return
    plain = [(k, v) for k, v in rows if not isinstance(v, Mapping)]
    yield f"{indent}{name}{'' if rows else ': none'}"
    width = max((len(_plain(k, v)) for k, v in plain), default=0)
    for key, value in plain:
        yield f"{indent}  {_plain(key, value):>{max(width, 10)}}  {_words(key)}"
    for key, value in rows:
        if isinstance(value, Mapping):
            yield from _section(_words(key), value, depth + 1)


def _words(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")


def _plain(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ns") and isinstance(value, int):
        return f"{value / 1e9:.1f} s"
    if isinstance(value, int):
        return f"{value:,}" if name not in ("pid", "epoch") else str(value)
    if name == "plan":
        return str(value)[:16]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)
