"""Which headers of cora/emit/runtime a generated file needs, so that they can be copied beside it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from cora.emit.c import RUNTIME

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Only included where a macro is defined that programs which stand alone never define.
_OPTIONAL = frozenset({"returns.h", "main.h", "split_main.h"})


def runtime_headers(text: str) -> dict[str, str]:
    """Path under the runtime folder and text of every header that ``text`` includes, directly or not.

    Files that the runtime does not have are generated ones, and are left to the caller.
    """
    found: dict[str, str] = {}
    wanted = list(_included(text, ""))
    while wanted:
        path = wanted.pop()
        if path in found or path in _OPTIONAL or not (RUNTIME / path).is_file():
            continue
        found[path] = (RUNTIME / path).read_text(encoding="utf-8")
        wanted += _included(found[path], posixpath.dirname(path))
    return dict(sorted(found.items()))


def _included(text: str, folder: str) -> Iterator[str]:
    """Paths under the runtime folder: beside the including file first, as the compiler looks for them."""
    for name in _INCLUDE.findall(text):
        beside = posixpath.normpath(posixpath.join(folder, name))
        yield beside if (RUNTIME / beside).is_file() else name
