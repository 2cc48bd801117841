"""Split execution in one process: each part compiled with tables of its own, all under a seeded scheduler.

What the places tell each other, and why the results equal those of the unsplit program whatever the scheduler does, is
in docs/splitting.md.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_program, build_shared, load_shared
from cora.emit.part import emit_split
from cora.engine.native import (
    RECORD_BYTES,
    Records,
    decode_events,
    file_name_of,
    option_bits,
    packed_config,
    run_program,
    sections_of,
    summary_of,
)
from cora.engine.results import Event, Options, RunSummary, StateDump
from cora.engine.rows import dump_of_rows
from cora.errors import Kind, fail
from cora.ir.nodes import CounterState, State, reasons_of
from cora.ir.parts import Split

# The order of cora_statistic in wire.h.
STATISTICS = ("fast", "punted", "waited", "lent", "used", "recalled", "asked", "evicted", "refused", "stalled",
              "overtaken", "left", "stray", "peak")
# The order of cora_fault in place_state.h: build-time faults, for tests of the verification only.
FAULTS = ("sound", "no recall", "early removal", "shared writer", "lost count", "overtaking", "expires unasked",
          "stale value", "pool twice", "stale entry", "no update")

PROMPT = -1
# A plan is verified once, so its parts must be compiled fast.
_FLAGS = ("-std=gnu11", "-O1", "-DCORA_GAPS")
_SANITIZE = ("-std=gnu11", "-O1", "-DCORA_GAPS", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
             "-DCORA_MAIN", "-DCORA_EXACT_FRAMES")
_OUTPUTS = {"events": 1, "digests": 3}


@dataclass(frozen=True)
class Statistics:
    """What happened between the places; packets and entries.

    Attributes:
        fast: packets that used a lent entry and ended where it is lent to. punted: hand-overs from place to place.
        waited: packets that met a lent entry but had to follow others that were on their way.
        lent: entries lent; used: of them, used at least once; peak: most at a time.
        recalled: taken back for a packet at the owner; asked: for their last use; evicted: given back for another one;
        refused: not taken because all others are used more. stalled: waits for the verdict on a first fragment.
        overtaken: packets that left before an earlier one of their flow. left: lent entries without an owner's entry at
        the end. stray: messages that fitted nothing, a fault.
    """

    fast: int = 0
    punted: int = 0
    waited: int = 0
    lent: int = 0
    used: int = 0
    recalled: int = 0
    asked: int = 0
    evicted: int = 0
    refused: int = 0
    stalled: int = 0
    overtaken: int = 0
    left: int = 0
    stray: int = 0
    peak: int = 0

    def plus(self, other: Statistics) -> Statistics:
        """Both together; of the peaks the higher."""
        sums = {n: getattr(self, n) + getattr(other, n) for n in STATISTICS}
        return Statistics(**{**sums, "peak": max(self.peak, other.peak)})


class StandStill(Exception):
    """Places wait for each other and nobody can go on: a fault of the parts. The engine can only be closed."""


class SplitEngine:
    """A split program with its state, all places in this process. Packets are numbered from 0 in the order they come.

    Use it in a ``with`` statement, or call `close`; memory is given back then.
    """

    def __init__(self, split: Split, options: Options = Options(), *, chance: int = 0,  # noqa: B008
                 config: Mapping[str, int] | None = None, fault: str = "sound", march_native: bool = True,
                 gaps: bool = False) -> None:
        """Compile the parts, or find them compiled, and make their tables.

        Args:
            chance: seed of the scheduler; `PROMPT`: no packet comes while another one or a message is on its way.
            fault: one of `FAULTS`, for tests.
            gaps: rules serve packets as soon as they are installed; `commits` tells in which order packets were.

        Raises:
            CoraError: `Kind.ENGINE_LIMIT`, `Kind.NO_COMPILER`, `Kind.COMPILER_FAILED`, `Kind.CACHE_UNWRITABLE`.
        """
        self.split, self.program = split, split.program
        self._reasons = reasons_of(split.program)
        self._library = self._compiled(fault, march_native=march_native)
        seed = (ctypes.c_uint64 * 8).from_buffer_copy(os.urandom(64))
        world = self._library.cora_split_create(packed_config(split.program, config or {}), option_bits(options), seed,
                                                max(chance, 0))
        if not world:
            raise fail(Kind.ENGINE_LIMIT, "there is no memory for the tables of the split program",
                       span=split.program.span)
        if chance == PROMPT:
            self._library.cora_split_prompt(world)
        if gaps:
            start, owner = split.in_gaps or (0, 0)
            self._library.cora_split_gaps(world, start, owner)
        self._world: int | None = world
        self._finalizer = weakref.finalize(self, self._library.cora_split_destroy, world)
        self._finished = False

    # Which packets `takes` takes, in words; and whether frames have to be whole, so that cut ones are filled up first.
    TAKEN: ClassVar[str] = "all packets"
    WHOLE: ClassVar[bool] = False

    @classmethod
    def takes(cls, records: Records) -> NDArray[np.bool_]:
        """[N] whether the places can run these packets; all of them in this process."""
        return np.ones(len(records), bool)

    def _compiled(self, fault: str, *, march_native: bool) -> Any:
        """The library of all places and the world, ready to make an engine."""
        flags = [*_FLAGS, f"-DCORA_PLACES={len(self.split.parts)}", *(["-march=native"] if march_native else [])]
        flags += [f"-DCORA_FAULT={FAULTS.index(fault)}"] if fault != "sound" else []
        return split_library(f"{file_name_of(self.program)}-split", emit_split(self.split), flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; the engine cannot be used afterwards. Closing twice is fine."""
        self._world = None
        self._finalizer()

    @property
    def _handle(self) -> int:
        if self._world is None:
            raise ValueError("the engine is closed")
        return self._world

    def run_events(self, batches: Iterable[Records]) -> Iterator[Event]:
        """Process packets and yield what becomes of them, in the order in which it happens."""
        for records in batches:
            self._advance(records, "events")
            used = ctypes.c_size_t()
            at = self._library.cora_split_output(self._handle, ctypes.byref(used))
            buffer = ctypes.string_at(at, used.value) if used.value else b""
            self._library.cora_split_clear_output(self._handle)
            yield from decode_events(buffer, self._reasons)

    def run(self, batches: Iterable[Records]) -> None:
        """Process packets; of what becomes of them only `digests` are kept."""
        for records in batches:
            self._advance(records, "digests")

    def _advance(self, records: Records, output: str) -> None:
        if records.itemsize != RECORD_BYTES or not records.flags.c_contiguous:
            raise ValueError(f"records must be contiguous and {RECORD_BYTES} bytes each")
        self._library.cora_split_output_mode(self._handle, _OUTPUTS[output])
        self._enough(self._library.cora_split_run(self._handle, records.ctypes.data, len(records)))

    def finish(self, output: str = "digests") -> list[Event]:
        """After the last packet: what is due is removed, and what is lent comes back. Returns the events of that."""
        self._finished = True
        self._library.cora_split_output_mode(self._handle, _OUTPUTS[output])
        self._enough(self._library.cora_split_finish(self._handle))
        used = ctypes.c_size_t()
        at = self._library.cora_split_output(self._handle, ctypes.byref(used))
        buffer = ctypes.string_at(at, used.value) if used.value else b""
        self._library.cora_split_clear_output(self._handle)
        return list(decode_events(buffer, self._reasons))

    def _enough(self, succeeded: bool) -> None:
        if not succeeded and self._library.cora_split_stuck(self._handle):
            raise StandStill
        if not succeeded:
            self.close()
            raise fail(Kind.ENGINE_LIMIT, "memory ran out while packets were processed", span=self.program.span,
                       hint="lower the capacities of the tables, or run on a machine with more memory")

    def digests(self) -> NDArray[np.uint64]:
        """Per packet the sum of the digests of its events; packets without events at the end may be missing."""
        count = ctypes.c_size_t()
        at = self._library.cora_split_digests(self._handle, ctypes.byref(count))
        return np.frombuffer(ctypes.string_at(at, 8 * count.value), np.uint64) if count.value else np.zeros(
            0, np.uint64)

    def statistics(self) -> Statistics:
        """What happened between the places so far."""
        at = self._library.cora_split_statistics(self._handle)
        numbers = struct.unpack(f"={len(STATISTICS)}Q", ctypes.string_at(at, 8 * len(STATISTICS)))
        return Statistics(**dict(zip(STATISTICS, numbers, strict=True)))

    def overtaken(self) -> int | None:
        """The number of the first packet that left after a later one of its flow."""
        number = int(self._library.cora_split_overtaken(self._handle))
        return number - 1 if number else None

    def commits(self) -> NDArray[np.uint64]:
        """[N, 2] with ``gaps``: number and time (ns) of each packet, in the order in which they were committed."""
        count = ctypes.c_size_t()
        at = self._library.cora_split_commits(self._handle, ctypes.byref(count))
        text = ctypes.string_at(at, 16 * count.value) if count.value else b""
        return np.frombuffer(text, np.uint64).reshape(-1, 2)

    def summary(self) -> RunSummary:
        """Totals over everything processed so far, of all places."""
        count = 4 + 2 * len(self.program.ports) + len(self._reasons)
        totals = (ctypes.c_uint64 * count)()
        self._library.cora_split_summary(self._handle, totals)
        return summary_of(self.program, list(totals))

    def state(self) -> StateDump:
        """All state, merged over the places; call `finish` first, so that nothing is lent."""
        if not self._finished:
            raise ValueError("finish first: entries are lent")
        return dump_of_rows(self.program, merged_rows(self.split, self._rows))

    def _rows(self, place: int, number: int) -> bytes:
        size = self._library.cora_split_state_size(self._handle, place, number)
        buffer = ctypes.create_string_buffer(max(1, size))
        self._library.cora_split_state_dump(self._handle, place, number, buffer)
        return buffer.raw[:size]


@dataclass(frozen=True)
class SanitizedSplit:
    """What `run_sanitized` found."""

    events: list[Event]
    summary: RunSummary
    state: StateDump
    statistics: Statistics


def run_sanitized(split: Split, packets: Iterable[tuple[int, int, bytes, int]], options: Options = Options(), *,  # noqa: B008
                  chance: int = 0) -> SanitizedSplit:
    """Run (port, time, frame, wirelen) packets through the parts in a process under the address and undefined-behaviour
    sanitizers.

    Raises:
        CoraError: `Kind.COMPILER_FAILED` and its like; `Kind.ENGINE_LIMIT` with the sanitizer's report of a fault.
    """
    flags = (*_SANITIZE, f"-DCORA_PLACES={len(split.parts)}")
    binary = build_program(f"{file_name_of(split.program)}-split", emit_split(split), flags, include_dirs=[RUNTIME])
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "in"), Path(folder, "out")
        with inputs.open("wb") as file:
            file.write(struct.pack("=IQ", option_bits(options), chance) + os.urandom(64))
            file.write(packed_config(split.program, {}))
            for port, time_ns, frame, wirelen in packets:
                file.write(struct.pack("=QIIHHI", time_ns, len(frame), wirelen, port, 0, len(frame)) + frame)
        run_program(split.program, binary, inputs, outputs)
        sections = list(sections_of(outputs.read_bytes()))
    totals = np.frombuffer(sections[0], np.uint64).tolist()
    numbers = struct.unpack(f"={len(STATISTICS)}Q", sections[2])
    firsts = np.cumsum([0, *(len(p.program.states) for p in split.parts)])
    rows = merged_rows(split, lambda place, number: sections[3 + firsts[place] + number])
    return SanitizedSplit(list(decode_events(sections[1], reasons_of(split.program))),
                          summary_of(split.program, totals), dump_of_rows(split.program, rows),
                          Statistics(**dict(zip(STATISTICS, numbers, strict=True))))


def merged_rows(split: Split, rows: Any) -> list[bytes]:
    """Per state of the program its rows; ``rows(place, number of the state in the part)`` gives those of a place."""
    return [_merged(split, state, rows) for state in split.program.states]


def _merged(split: Split, state: State, rows: Any) -> bytes:
    found = []
    for part in split.parts:
        number = next((i for i, s in enumerate(part.program.states) if s.name == state.name), None)
        if number is not None and part.roles[state.name] != "lent":
            found.append(rows(part.number, number))
    if isinstance(state, CounterState):
        total = np.zeros(2 * state.size, np.uint64)
        for data in found:
            total += np.frombuffer(data, np.uint64)
        return total.tobytes()
    return found[0] if found else b""


def split_library(name: str, sources: Mapping[str, str], flags: Sequence[str]) -> Any:
    """The files of a split program as a loaded library, compiled or found compiled.

    Raises:
        CoraError: `Kind.NO_COMPILER`, `Kind.COMPILER_FAILED`, `Kind.CACHE_UNWRITABLE`.
    """
    library = load_shared(build_shared(name, sources, flags, include_dirs=[RUNTIME]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_P, _SIZE, _U32, _U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "cora_split_create": (_P, [ctypes.c_char_p, _U32, _P, _U64]),
    "cora_split_destroy": (None, [_P]),
    "cora_split_prompt": (None, [_P]),
    "cora_split_gaps": (None, [_P, _U32, _U32]),
    "cora_split_commits": (_P, [_P, _P]),
    "cora_split_output_mode": (None, [_P, _U32]),
    "cora_split_run": (ctypes.c_bool, [_P, _P, _SIZE]),
    "cora_split_finish": (ctypes.c_bool, [_P]),
    "cora_split_output": (_P, [_P, _P]),
    "cora_split_clear_output": (None, [_P]),
    "cora_split_digests": (_P, [_P, _P]),
    "cora_split_statistics": (_P, [_P]),
    "cora_split_overtaken": (_U64, [_P]),
    "cora_split_stuck": (ctypes.c_bool, [_P]),
    "cora_split_summary": (None, [_P, _P]),
    "cora_split_state_size": (_SIZE, [_P, _U32, _U32]),
    "cora_split_state_dump": (None, [_P, _U32, _U32, _P]),
}
