"""The admission simulator's C library: moves of a profile run in, what every admission point did with them out."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cora.emit.runtime
from cora.emit.cbuild import build_shared, load_shared
from cora.errors import Kind, fail

FLAGS = ("-std=gnu11", "-O2", "-Wall", "-march=native")
# Ways of lending a component, as in admission.c.
# Points: every threshold with the capacities SMALLEST, 4 * SMALLEST and so on, and with none.
WAYS = 2
THRESHOLDS = (1, 2, 4, 8)
SMALLEST = 16
_UNBOUNDED = (1 << 64) - 1
_FAILED = ctypes.c_size_t(-1).value

TAKEN = np.dtype([("window", np.uint64), ("path", np.uint64), ("packets", np.uint64)])


@dataclass(frozen=True)
class Totals:
    """What one point did: installs, removals, recalls, entries lent at most; served: packets by path, not zero."""

    installs: int
    removals: int
    recalls: int
    peak: int
    served: Mapping[int, int]


@dataclass(frozen=True)
class Point:
    """One point over the whole run. ``capacity`` None: without a bound. ``area``: entries times nanoseconds lent."""

    capacity: int | None
    threshold: int
    whole: Totals
    busiest: int
    lent: int
    area: int


def sources() -> Mapping[str, str]:
    """File name to text of everything the library is made of."""
    files = (Path(__file__).with_name("admission.c"), Path(cora.emit.runtime.__file__).with_name("moves.h"))
    return {path.name: path.read_text(encoding="utf-8") for path in files}


_P, _SIZE, _U32, _U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
_SIGNATURES: Mapping[str, tuple[Any, list[Any]]] = {
    "open": (_P, [_U64, _U64, _U64, _U32, _U32, _U64, _P, _U32]),
    "close": (None, [_P]),
    "run": (_SIZE, [_P, _P, _SIZE]),
    "unknown": (_U64, [_P]),
    "register": (ctypes.c_bool, [_P, _U64, ctypes.c_char_p]),
    "finish": (ctypes.c_bool, [_P]),
    "size": (None, [_P, _U32, _P]),
    "points": (None, [_P, _U32, _P]),
    "served": (None, [_P, _U32, _P]),
    "window": (ctypes.c_bool, [_P, _U32, _U64, _P]),
    "taken": (_SIZE, [_P, _P]),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The compiled library, built at the first use; raises CoraError as build_shared does."""
    made = load_shared(build_shared("cora-admission", sources(), FLAGS))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(made, f"cora_admission_{name}")
        function.restype, function.argtypes = result, arguments
    return made


class Simulator:
    """Simulates all points of all components and ways of lending at once, move by move; constant memory per entry."""

    def __init__(self, components: int, windows: tuple[int, int, int],
                 aligned: Callable[[int], Sequence[bool]], *, unchanging: Sequence[int] = (),
                 thresholds: Sequence[int] = THRESHOLDS, smallest: int = SMALLEST) -> None:
        """Make the points.

        Args:
            windows: start, length and number, as `cora.engine.native.NativeEngine.set_windows` takes them.
            aligned: called once per path with its number: by component and then way, whether it is aligned to its end.
            unchanging: ways in which a packet that changes its entry needs the owner all the same.

        Raises:
            CoraError: as `library`; `Kind.ENGINE_LIMIT` without memory.
        """
        self._library, self._aligned = library(), aligned
        limits = (ctypes.c_uint64 * len(thresholds))(*thresholds)
        bits = sum(1 << way for way in unchanging)
        made = self._library.cora_admission_open(*windows, components, bits, smallest, limits, len(thresholds))
        if not made:
            raise _no_memory()
        self._made: int = made
        self._finalizer = weakref.finalize(self, self._library.cora_admission_close, made)

    def close(self) -> None:
        """Give the memory back; nothing else can be called then."""
        self._finalizer()

    def feed(self, address: int, count: int) -> None:
        """Go on with so many words of moves (cora/emit/runtime/moves.h)."""
        while count:
            done = self._library.cora_admission_run(self._made, address, count)
            if done == _FAILED:
                raise _no_memory()
            address, count = address + 8 * done, count - done
            if count:
                path = self._library.cora_admission_unknown(self._made)
                if not self._library.cora_admission_register(self._made, path, bytes(self._aligned(path))):
                    raise _no_memory()

    def finish(self) -> None:
        """No more moves come. Call it once, before the results are asked for."""
        if not self._library.cora_admission_finish(self._made):
            raise _no_memory()

    def points(self, component: int, way: int) -> list[Point]:
        """All points; those with a capacity that was never reached do not exist."""
        number, (points, rows) = self._numbers(component, way)
        table, served = np.zeros((points, 10), np.uint64), np.zeros((rows, 1 + points), np.uint64)
        self._library.cora_admission_points(self._made, number, table.ctypes.data)
        self._library.cora_admission_served(self._made, number, served.ctypes.data)
        found = []
        for at, row in enumerate(table.tolist()):
            capacity, threshold, lent, installs, removals, recalls, peak, busiest, low, high = row
            totals = Totals(installs, removals, recalls, peak, _served(served[:, 0], served[:, 1 + at]))
            found.append(Point(None if capacity == _UNBOUNDED else capacity, threshold, totals, busiest, lent,
                               high << 64 | low))
        return found

    def window(self, component: int, way: int, window: int) -> list[Totals]:
        """What the points did in one window, in the order of `points`; empty where nothing could be lent up to then."""
        number, (points, rows) = self._numbers(component, way)
        out = np.zeros(4 * points + rows * points, np.uint64)
        if not self._library.cora_admission_window(self._made, number, window, out.ctypes.data):
            return []
        served = np.zeros((rows, 1 + points), np.uint64)
        self._library.cora_admission_served(self._made, number, served.ctypes.data)
        counts = out[4 * points:].reshape(rows, points)
        totals = out[:4 * points].reshape(points, 4).tolist()
        return [Totals(installs, removals, recalls, peak, _served(served[:, 0], counts[:, at]))
                for at, (installs, removals, recalls, peak) in enumerate(totals)]

    def taken(self) -> NDArray[np.void]:
        """Packets by window and path, dtype TAKEN, windows in order."""
        rows = np.zeros(self._library.cora_admission_taken(self._made, None), TAKEN)
        self._library.cora_admission_taken(self._made, rows.ctypes.data)
        return np.sort(rows, order=("window", "path"))

    def _numbers(self, component: int, way: int) -> tuple[int, tuple[int, int]]:
        number = component * WAYS + way
        size = (ctypes.c_uint64 * 2)()
        self._library.cora_admission_size(self._made, number, size)
        return number, (size[0], size[1])


def _served(paths: NDArray[np.uint64], counts: NDArray[np.uint64]) -> dict[int, int]:
    chosen = counts > 0
    return dict(sorted(zip(paths[chosen].tolist(), counts[chosen].tolist(), strict=True)))


def _no_memory() -> Exception:
    return fail(Kind.ENGINE_LIMIT, "memory ran out while lending was simulated",
                hint="lower the capacities of the tables, or run on a machine with more memory")
