"""The lines of the user's source, for messages that quote them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=16)
def lines_of(file: str) -> tuple[str, ...]:
    """All lines; none where the file cannot be read."""
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()
