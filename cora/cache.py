"""The user's cache folder: compiled engines and built parsers. Everything in it can be deleted at any time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import cora


def cache_dir() -> Path:
    """The folder: ``CORA_CACHE_DIR``, else the user's cache folder. It may not exist yet."""
    chosen = os.environ.get("CORA_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("cora"))


def read_blob(name: str) -> bytes | None:
    """What `write_blob` stored under a name; None when there is nothing, or when it is not what was written."""
    try:
        raw = (cache_dir() / name).read_bytes()
    except OSError:
        return None
    digest, blob = raw[:32], raw[32:]
    return blob if hashlib.sha256(blob).digest() == digest else None


def write_blob(name: str, blob: bytes) -> None:
    """Store bytes under a name by rename, so that any number of processes may do it at once.

    A cache that cannot be written is no error: the next run does the work again.
    """
    target = cache_dir() / name
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, made = tempfile.mkstemp(prefix=".blob-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(blob).digest() + blob)
            os.replace(made, target)
        except OSError:
            Path(made).unlink(missing_ok=True)


@lru_cache(maxsize=8)
def code_identity(*folders: Path) -> str:
    """What identifies the code in some folders: this version of Cora and of Python, and when the files were changed.

    Part of the key of everything that this code makes and the cache keeps, so that an edited checkout never meets
    what it made before.
    """
    changed = [f"{e.name} {e.stat().st_mtime_ns}" for f in folders for e in os.scandir(f) if e.is_file()]
    return "\n".join([cora.__version__, sys.version, *sorted(changed)])
