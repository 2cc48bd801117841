"""Typed JSON documents: builds frozen dataclasses from parsed JSON and says exactly where the JSON does not fit."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cora.text import is_hidden

T = TypeVar("T")


class Garbled(Exception):
    """A field that is not what it should be; the text names it."""


_NAMES: Mapping[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false",
                             type(None): "null"}


# Whole numbers stay below it, so that they can be reckoned with; the largest a document may need is an IPv6 address.
_WHOLE = 10**40

# The largest profile or plan that is read; those of the examples have some hundred kilobytes.
MAX_DOCUMENT = 256 << 20


def read_text(path: Path) -> str:
    """The text of a document file; a byte-order mark is skipped.

    Raises:
        OSError: it cannot be read; Garbled: it is no UTF-8 text, or longer than `MAX_DOCUMENT`.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise Garbled(f"the file is longer than a document can be ({MAX_DOCUMENT} bytes)")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Garbled(f"this is no text: byte {error.start} is not UTF-8") from error


def write_text(path: Path, text: str) -> None:
    """Write a document so that a reader sees the old file or the whole new one, never a part.

    It is written under a temporary name beside ``path`` and renamed. What is there and no file (a device, a pipe) is
    written directly.

    Raises:
        OSError: it cannot be written; nothing is left behind then. ValueError: the path cannot be a path.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.parent / f".{path.name[:100]}.{os.getpid()}.tmp"
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:  # an interrupt too leaves nothing behind
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        raise


def read_json(text: str) -> Any:
    """Parse JSON strictly: no NaN or Infinity, no key twice, no number or nesting beyond reason.

    Raises:
        json.JSONDecodeError: it is no JSON; Garbled: it is, but not of this strict kind.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise Garbled("the document is nested too deeply") from error
    except ValueError as error:  # Python's limit on the digits of a number
        raise Garbled("a number has too many digits") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise Garbled(f"{next(n for n in names if names.count(n) > 1)}: the field stands twice")
    return found


def _no_constant(name: str) -> None:
    raise Garbled(f"{name} is no number that a document can have")


def decode(kind: type[T], item: Any) -> T:
    """Build a frozen dataclass from a JSON object with exactly its fields.

    Understands nested dataclasses, tuples of one type or of a fixed shape, mappings, optional and literal types.

    Raises:
        Garbled: naming the first field that is missing, unknown or of another type.
    """
    built: T = _fields(kind, item, "")
    return built


def _value(hint: Any, item: Any, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return item
    if origin in (Union, types.UnionType):
        return None if item is None else _value(next(a for a in args if a is not type(None)), item, where)
    if origin is Literal:
        _expect(item in args, where, " or ".join(map(repr, args)), item)
        return item
    if origin is tuple:
        return _tuple(args, item, where)
    if origin is not None:
        _expect(isinstance(item, dict), where, "an object", item)
        return {_shown(k, where): _value(args[1], v, f"{where}.{k}") for k, v in item.items()}
    if is_dataclass(hint):
        return _fields(hint, item, where)
    if hint is float and isinstance(item, int) and not isinstance(item, bool):
        _expect(abs(item) < 10**300, where, "a number", item)
        return float(item)
    _expect(type(item) is hint, where, _NAMES[hint], item)
    if hint is int and abs(item) >= _WHOLE:
        raise Garbled(f"{where}: a whole number has less than {len(str(_WHOLE))} digits in a document")
    return _shown(item, where) if hint is str else item


def _shown(text: str, where: str) -> str:
    """A text that a screen shows as it is; no command that prints one has to ask."""
    hidden = next((c for c in text if is_hidden(c)), None)
    if hidden is not None:
        raise Garbled(f"{where}: U+{ord(hidden):04X}, which hides or reorders text or is half a character, is no text")
    return text


def _tuple(args: tuple[Any, ...], item: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(item, list), where, "a list", item)
    if args[1:] == (...,):
        return tuple(_value(args[0], x, f"{where}[{i}]") for i, x in enumerate(item))
    _expect(len(item) == len(args), where, f"a list of {len(args)}", item)
    return tuple(_value(a, x, f"{where}[{i}]") for i, (a, x) in enumerate(zip(args, item, strict=True)))


def _fields(hint: Any, item: Any, where: str) -> Any:
    _expect(isinstance(item, dict), where or "the document", "an object", item)
    hints = get_type_hints(hint)
    names = [f.name for f in fields(hint)]
    prefix = f"{where}." if where else ""
    for name in item:
        if name not in names:
            raise Garbled(f"{prefix}{name}: there is no such field")
    for name in names:
        if name not in item:
            raise Garbled(f"{prefix}{name} is missing")
    return hint(**{n: _value(hints[n], item[n], f"{prefix}{n}") for n in names})


def _expect(holds: bool, where: str, what: str, item: Any) -> None:
    if not holds:
        text = json.dumps(item)
        raise Garbled(f"{where}: expected {what}, found {text if len(text) <= 40 else text[:40] + '...'}")
