"""The NF language: text in, verified IR out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cora.errors import CoraError, Diagnostic, Kind, fail
from cora.ir.nodes import Program

MAX_SOURCE = 4 << 20


def load(path: str | Path, overrides: Mapping[str, str] | None = None) -> Program:
    """Read, check and lower an NF program.

    Args:
        path: an ``.nf`` file.
        overrides: config values by name, as the command line's ``--set`` gives them.

    Raises:
        CoraError: everything that is wrong with the program, in order of place.
    """
    return loads(read_source(path), str(path), overrides)


def read_source(path: str | Path) -> str:
    """The text of a program file.

    Raises:
        CoraError: `Kind.FILE_UNREADABLE`.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            raw = file.read(MAX_SOURCE + 1)
    except OSError as error:
        raise fail(Kind.FILE_UNREADABLE, f"cannot read the program: {error.strerror}", where=str(path),
                   hint="give the path of an .nf file") from error
    if len(raw) > MAX_SOURCE:
        raise fail(Kind.FILE_UNREADABLE, f"the file is longer than a program can be ({MAX_SOURCE} bytes)",
                   where=str(path), hint="is this really an .nf file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fail(Kind.FILE_UNREADABLE, f"the file is no UTF-8 text (first at byte {error.start})", where=str(path),
                   hint="is this really an .nf file?") from error


def loads(text: str, file: str = "<text>", overrides: Mapping[str, str] | None = None) -> Program:
    """Like `load`, for a program given as text.

    Raises:
        CoraError: everything that is wrong with the program, in order of place.
    """
    from cora.frontends.nf.elaborate import elaborate
    from cora.frontends.nf.parser import parse

    try:
        return elaborate(parse(text, file), overrides or {})
    except RecursionError as error:
        raise fail(Kind.SYNTAX, "the program is nested too deeply", where=file,
                   hint="split long expressions with 'let' and deep blocks into functions") from error
    except CoraError as error:
        if Path(file).is_file():
            raise
        raise CoraError(
            Diagnostic(d.kind, d.message, d.span, d.where, d.hint, d.notes, d.source or text) for d in error.diagnostics
        ) from error
