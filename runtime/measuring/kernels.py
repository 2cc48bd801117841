"""The timed kernels of ``kernels.c``, compiled for this processor. All times are nanoseconds per operation."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_shared, load_shared

# As generated programs are built (`cora.engine.native`).
_FLAGS = ("-std=gnu11", "-O2", "-fno-tree-pre", "-fno-gcse", "-fno-schedule-insns2", "-march=native", "-pthread")

# Kernels of one number of repetitions.
SIMPLE = ("cycle", "word", "branch", "multiply", "divide", "field_read", "field_write", "checksum", "sum_word", "copy",
          "hash")
# Kernels over a table; ``draw`` is what the others spend on choosing a flow.
TABLE = ("draw", "lookup", "record", "further")


class Kernels:
    """The compiled kernels.

    Raises:
        CoraError: `Kind.NO_COMPILER`, `Kind.COMPILER_FAILED` or `Kind.CACHE_UNWRITABLE`.
    """

    def __init__(self) -> None:
        source = Path(__file__).with_name("kernels.c").read_text(encoding="utf-8")
        self._library = load_shared(build_shared("kernels", {"kernels.c": source}, _FLAGS, include_dirs=[RUNTIME]))
        pointer, number, real = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_double
        for name in SIMPLE:
            self._declare(name, real, [number])
        for name in TABLE:
            self._declare(name, real, [pointer, number])
        self._declare("open", pointer, [number])
        self._declare("close", None, [pointer])
        self._declare("changes", None, [pointer, number, ctypes.POINTER(real), ctypes.POINTER(real)])
        self._declare("shared", real, [number, ctypes.c_int])

    def _declare(self, name: str, result: object, arguments: list[object]) -> None:
        function = getattr(self._library, f"cora_measure_{name}")
        function.restype, function.argtypes = result, arguments

    def simple(self, name: str, repetitions: int) -> float:
        """One of `SIMPLE`."""
        return float(getattr(self._library, f"cora_measure_{name}")(repetitions))

    @contextmanager
    def table(self, flows: int) -> Iterator[Table]:
        """A table of so many flows.

        Raises:
            MemoryError: there is no room for it.
        """
        at = self._library.cora_measure_open(flows)
        if not at:
            raise MemoryError(f"no memory for a table of {flows} flows")
        try:
            yield Table(self._library, at)
        finally:
            self._library.cora_measure_close(at)

    def shared_write(self, repetitions: int, shared: bool) -> float:
        """A write by one of two threads, to lines both write or to its own; negative: there is no second thread."""
        return float(self._library.cora_measure_shared(repetitions, int(shared)))


class Table:
    """An open table of flows."""

    def __init__(self, library: ctypes.CDLL, at: int) -> None:
        self._library, self._at = library, at

    def access(self, name: str, repetitions: int) -> float:
        """One of `TABLE`."""
        return float(getattr(self._library, f"cora_measure_{name}")(self._at, repetitions))

    def changes(self, flows: int) -> tuple[float, float]:
        """Insert and delete, each with its look-up."""
        inserted, deleted = ctypes.c_double(), ctypes.c_double()
        self._library.cora_measure_changes(self._at, flows, ctypes.byref(inserted), ctypes.byref(deleted))
        return inserted.value, deleted.value
