"""The C sources of this package and the one library they are compiled to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Thread

import cora.emit.runtime
from cora.emit.cbuild import build_shared, load_shared
from cora.errors import CoraError

FLAGS = ("-std=gnu11", "-O2", "-Wall")


def sources() -> Mapping[str, str]:
    """File name to text of everything the library is made of."""
    own = Path(__file__).parent
    shared = Path(cora.emit.runtime.__file__).parent
    files = (*sorted(own.glob("*.[ch]")), shared / "record.h")
    return {path.name: path.read_text(encoding="utf-8") for path in files}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The compiled library, built at the first use; raises CoraError as build_shared does."""
    return load_shared(build_shared("cora-traffic", sources(), FLAGS))


@contextmanager
def building(*others: Callable[[], object]) -> Iterator[None]:
    """The library is built while the body builds something else: the first run of all has two compilers to wait for.

    ``others`` build further libraries, after it. What fails in the background fails again, with its error, when the
    library is asked for.
    """
    builders: tuple[Callable[[], object], ...] = (library, *others)

    def build() -> None:
        for one in builders:
            with suppress(CoraError):
                one()

    background = Thread(target=build)
    background.start()
    try:
        yield
    finally:
        background.join()
