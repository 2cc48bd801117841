"""The native engine: a program compiled by the system's C compiler and run over batches of captured packets.

It follows docs/semantics.md exactly as the reference interpreter does; the difference is speed. The compiled library is
found again in the user's cache by the content of everything that went into it (`cora.emit.cbuild`). Configuration
values are given when an engine is made and need no compilation.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cora.cache import code_identity, read_blob, write_blob
from cora.emit.c import RUNTIME, emit_host
from cora.emit.cbuild import build_program, build_shared, load_shared
from cora.emit.layout import config_row
from cora.engine.results import (
    RETURN_FLOWS,
    Dropped,
    Event,
    Held,
    Options,
    Output,
    ReturnCounts,
    RunSummary,
    StateDump,
)
from cora.engine.rows import dump_of_rows, rows_of_dump
from cora.errors import Kind, fail
from cora.ir.nodes import Program, reasons_of
from cora.ir.types import bits_of

Records = NDArray[np.void]
"""An array of ``struct cora_record`` (cora/emit/runtime/record.h), 40 bytes each."""

_RECORD = struct.Struct("=QQIIIHHHHI")
RECORD_BYTES = _RECORD.size
_OUTPUT_LIMIT = 4 << 20
_NO_PORT = 0xFFFFFFFF
_EVENT = struct.Struct("=QIIII")
_MODES = {"none": 0, "events": 1, "pcap": 2}
_HELD, _DROP = 0xFFFF, 0x8000

# A profile build is made to plan once, so it must be compiled fast. The passes switched off for the others cost a tenth
# of the compile time and made the code slower (benchmarks/native_engine.py).
_PROFILE_FLAGS = ("-std=gnu11", "-O1", "-DCORA_PROFILE")
_FLAGS = ("-std=gnu11", "-O2", "-fno-tree-pre", "-fno-gcse", "-fno-schedule-insns2")
_SANITIZE = ("-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DCORA_MAIN",
             "-DCORA_EXACT_FRAMES", "-DCORA_RETURNS")

PATHS = np.dtype([("path", np.uint64), ("packets", np.uint64), ("octets", np.uint64), ("used", np.uint64)])
USES = np.dtype([("first_ns", np.uint64), ("last_ns", np.uint64), ("accesses", np.uint64), ("octets", np.uint64),
                 ("pause_ns", np.uint64), ("alive", np.uint64)])
WINDOWS = np.dtype([("packets", np.uint64), ("octets", np.uint64)])
TABLE_WINDOWS = np.dtype([("distinct", np.uint64), ("inserts", np.uint64), ("expiries", np.uint64),
                          ("ends", np.uint64), ("peak", np.uint64)])
SIZES = 16385

# The order of cora_table_event in table.h.
_TABLE_EVENTS = ("hit_0", "miss_0", "hit_1", "miss_1", "inserted", "full", "deleted", "expired", "evicted", "touched",
                 "stored", "green", "yellow", "red", "entries", "peak")


@dataclass(frozen=True)
class TableProfile:
    """What happened to one map, meter, ACL or LPM table.

    Attributes:
        events: counts by name: hit_N, miss_N (look-ups by the N-th key), inserted, full, deleted, expired, evicted,
            touched, stored, green, yellow, red; and entries (now), peak.
        uses: dtype USES, one row for each entry there ever was, those gone first in the order they went. An access is a
            hit, an insert or a charge; times are of the first and the latest access; the pause is the longest time
            between two.
        windows: dtype TABLE_WINDOWS: distinct entries accessed, inserts, expiries, entries gone for whatever reason,
            and the most entries after an insert (0: there was none); empty without windows.
    """

    events: dict[str, int]
    uses: NDArray[np.void]
    windows: NDArray[np.void]


@dataclass(frozen=True)
class RawProfile:
    """What a run did to a program.

    Attributes:
        paths: dtype PATHS, the paths taken by ascending number (`cora.analysis.paths.number_paths`). A held fragment
            takes one path when it arrives and one when it is released.
        sizes: packets by frame length; the last number counts all of 16384 octets and more.
        windows: dtype WINDOWS, by time stamp clamped to the clock; packets behind the last window count in it.
        tables: by state name.
    """

    paths: NDArray[np.void]
    sizes: NDArray[np.uint64]
    windows: NDArray[np.void]
    tables: dict[str, TableProfile]


class NativeEngine:
    """A program with its state. Packets are numbered from 0 in the order they come.

    Use it in a ``with`` statement, or call `close`; memory is given back then.
    """

    def __init__(self, program: Program, options: Options = Options(), *, profile: bool = False,  # noqa: B008
                 march_native: bool = True, config: Mapping[str, int] | None = None,
                 captured_at: int | None = None, flow_limit: int = RETURN_FLOWS) -> None:
        """Compile the program, or find it compiled, and make its tables.

        Args:
            profile: count paths and what happens to tables.
            march_native: compile for this very processor.
            config: configuration values to replace.
            captured_at: number of the port that packets look as they do at; what arrives on other ports is translated
                first as `cora.runtime.returns` says. None: packets are taken as they are.
            flow_limit: flows remembered for that.

        Raises:
            CoraError: `Kind.ENGINE_LIMIT`, `Kind.NO_COMPILER`, `Kind.COMPILER_FAILED`, `Kind.CACHE_UNWRITABLE`.
        """
        self.program, self.options = program, options
        self._reasons = reasons_of(program)
        self._library = _library(program, profile=profile, march_native=march_native, returns=captured_at is not None)
        self._config = packed_config(program, config or {})
        seed = (ctypes.c_uint64 * 8).from_buffer_copy(os.urandom(64))
        engine = self._library.cora_create(self._config, option_bits(options), seed)
        if not engine:
            raise fail(Kind.ENGINE_LIMIT, "there is no memory for the tables of the native engine", span=program.span)
        self._engine: int | None = engine
        if captured_at is not None:
            self._library.cora_set_captured_at(engine, captured_at, flow_limit)
        self._finalizer = weakref.finalize(self, self._library.cora_destroy, engine)
        self._profiling, self._windows = profile, 0
        self._returns = captured_at is not None
        self._verdicts: list[NDArray[np.uint16]] = []
        self._resolved: list[NDArray[np.uint64]] = []
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back; the engine cannot be used afterwards. Closing twice is fine."""
        self._engine = None
        self._finalizer()

    # Running.

    def run(self, batches: Iterable[Records], *, keep_verdicts: bool = False,
            watch: Callable[[int, int], None] | None = None) -> None:
        """Process all packets; only totals, state and (when asked for) verdicts are kept.

        ``watch`` is called after every batch with the address and the number of the moves in it (`follow`); they are
        there until it is called again.
        """
        self._mode("none")
        for records in batches:
            verdicts = np.empty(len(records), np.uint16) if keep_verdicts else None
            done = self._advance(records, 0, verdicts, 0)
            assert done == len(records)
            self._keep(verdicts)
            if watch is not None:
                count = ctypes.c_size_t()
                address = self._library.cora_profile_moves(self._handle, ctypes.byref(count))
                watch(address or 0, count.value)

    def run_digests(self, batches: Iterable[Records]) -> NDArray[np.uint64]:
        """Process packets; per packet the sum of the digests of its events, from number 0 on. Packets without events at
        the end may be missing. Two executions that agree on a packet have the same digest of it.
        """
        self._library.cora_set_digests(self._handle)
        for records in batches:
            done = self._advance(records, 0, None, 0)
            assert done == len(records)
        count = ctypes.c_size_t()
        at = self._library.cora_digests(self._handle, ctypes.byref(count))
        return _copied(at, np.dtype(np.uint64), count.value)

    def keep_arrivals(self) -> None:
        """From now on keep every packet as the program gets it: after the translation of ``captured_at``."""
        if not self._returns or not self._library.cora_keep_arrivals(self._handle):
            raise ValueError("packets are kept only where they are translated")

    def arrivals(self) -> tuple[Records, bytes]:
        """The packets kept; the records point into the bytes that come with them."""
        at = self._library.cora_kept_arrivals(self._handle)
        records_at, count, _, bytes_at, used, _ = struct.unpack("=6Q", ctypes.string_at(at, 48))
        data = ctypes.string_at(bytes_at, used) if used else b""
        rows = _copied(records_at, np.dtype((np.void, RECORD_BYTES)), count)
        fixed = np.frombuffer(bytearray(rows.tobytes()), np.uint64).reshape(-1, RECORD_BYTES // 8)
        fixed[:, 1] += np.uint64(np.frombuffer(data, np.uint8).ctypes.data if data else 0)
        return np.frombuffer(fixed.tobytes(), np.dtype((np.void, RECORD_BYTES))), data

    def run_events(self, batches: Iterable[Records]) -> Iterator[Event]:
        """Process packets and yield what becomes of them, in order; memory stays constant over long captures."""
        for buffer in self._buffers(batches, "events", _NO_PORT):
            yield from self._decode(buffer)

    def run_pcap(self, batches: Iterable[Records], port: int | None = None) -> Iterator[bytes]:
        """Process packets and yield pieces of a nanosecond pcap file (native byte order, Ethernet, no file header).

        It holds what leaves by ``port`` (None: by any port), ICMP errors included, stamped with the program's clock.
        """
        return self._buffers(batches, "pcap", _NO_PORT if port is None else port)

    def process(self, port: int, time_ns: int, frame: bytes, wirelen: int | None = None) -> list[Event]:
        """Process one packet.

        Raises:
            ValueError: a number does not fit, or ``wirelen`` is below the captured length.
        """
        length = len(frame) if wirelen is None else wirelen
        if not 0 <= time_ns < 1 << 64 or not len(frame) <= length < 1 << 31 or not 0 <= port < 0xFFFF:
            raise ValueError("time, lengths or port out of range")
        held = ctypes.create_string_buffer(frame, max(1, len(frame)))
        record = _RECORD.pack(time_ns, ctypes.addressof(held), len(frame), length, length, port, 0, 0, 0, 0)
        return list(self.run_events([np.frombuffer(record, np.dtype((np.void, RECORD_BYTES)))]))

    @property
    def verdicts(self) -> NDArray[np.uint16]:
        """Per packet run with ``keep_verdicts``: a port number, 0x8000 | reason number, or 0xffff while held."""
        out = np.concatenate(self._verdicts) if self._verdicts else np.empty(0, np.uint16)
        for pairs in self._resolved:
            out[pairs[:, 0]] = pairs[:, 1].astype(np.uint16)
        return out

    def take_verdicts(self) -> Iterator[tuple[int, NDArray[np.uint16]]]:
        """The verdicts kept so far, and forget them: (number of the first packet, its and the following verdicts).

        Packets that had been held come by themselves, after all others.
        """
        verdicts, resolved = self._verdicts, self._resolved
        self._verdicts, self._resolved = [], []
        for codes in verdicts:
            yield self._taken, codes
            self._taken += len(codes)
        for pairs in resolved:
            yield from ((int(index), np.array([code], np.uint16)) for index, code in pairs)

    def _mode(self, mode: str, port: int = _NO_PORT) -> None:
        self._library.cora_set_output(self._handle, _MODES[mode], port)

    @property
    def _handle(self) -> int:
        if self._engine is None:
            raise ValueError("the engine is closed")
        return self._engine

    def _advance(self, records: Records, start: int, verdicts: NDArray[np.uint16] | None, limit: int) -> int:
        if records.itemsize != RECORD_BYTES or not records.flags.c_contiguous:
            raise ValueError(f"records must be contiguous and {RECORD_BYTES} bytes each")
        address = records.ctypes.data + start * RECORD_BYTES
        target = None if verdicts is None else verdicts.ctypes.data
        done: int = self._library.cora_run(self._handle, address, len(records) - start, target, limit)
        if done > len(records):
            self.close()
            raise fail(Kind.ENGINE_LIMIT, "memory ran out while packets were processed", span=self.program.span,
                       hint="lower the capacities of the tables, or run on a machine with more memory")
        return done

    def _keep(self, verdicts: NDArray[np.uint16] | None) -> None:
        """Collects verdicts of this batch and of packets that had been held."""
        if verdicts is None:
            return
        self._verdicts.append(verdicts)
        count = ctypes.c_size_t()
        at = self._library.cora_resolutions(self._handle, ctypes.byref(count))
        if count.value:
            pairs = np.frombuffer(ctypes.string_at(at, 16 * count.value), np.uint64).reshape(-1, 2)
            self._resolved.append(pairs)
        self._library.cora_clear_resolutions(self._handle)

    def _buffers(self, batches: Iterable[Records], mode: str, port: int) -> Iterator[bytes]:
        for records in batches:
            start = 0
            while start < len(records):
                self._mode(mode, port)
                start += self._advance(records, start, None, _OUTPUT_LIMIT)
                used = ctypes.c_size_t()
                at = self._library.cora_output(self._handle, ctypes.byref(used))
                buffer = ctypes.string_at(at, used.value) if used.value else b""
                self._library.cora_clear_output(self._handle)
                if buffer:
                    yield buffer

    def _decode(self, buffer: bytes) -> Iterator[Event]:
        return decode_events(buffer, self._reasons)

    # Results.

    def summary(self) -> RunSummary:
        """Totals over everything processed so far; ports and reasons that never occurred are left out."""
        count = 4 + 2 * len(self.program.ports) + len(self._reasons)
        totals = (ctypes.c_uint64 * count)()
        self._library.cora_summary(self._handle, totals)
        return summary_of(self.program, list(totals))

    def dropped_at(self) -> list[int]:
        """Dropped packets by the port they had arrived on; fragments that had been held are left out."""
        return [int(n) for n in _copied(self._library.cora_dropped_at(self._handle), np.dtype(np.uint64),
                                        len(self.program.ports))]

    def returns(self) -> ReturnCounts:
        """What ``captured_at`` did so far."""
        counts = (ctypes.c_uint64 * 2)()
        if self._returns:
            self._library.cora_returns_counts(self._handle, counts)
        return ReturnCounts(*counts)

    def state(self) -> StateDump:
        """All state, in the canonical form of `cora.engine.results`."""
        return dump_of_rows(self.program, [self._rows(i) for i in range(len(self.program.states))])

    def load_state(self, dump: StateDump) -> None:
        """Put a dumped state in place of the present one. Totals and the clock stay.

        Entries of an `evict_lru` table that were last used at the same time are taken in the order of their keys.

        Raises:
            CoraError: `Kind.BAD_STATE` naming the row that is wrong; `Kind.ENGINE_LIMIT` when there are datagrams
                in a tracker (the bytes of their fragments are not part of a dump).
        """
        from cora.engine.reference.states import States

        # One judge for both engines: the interpreter's own check, on a state of its own.
        States(self.program).load(dump)
        rows = rows_of_dump(self.program, dump)
        self._library.cora_state_clear(self._handle, self._config)
        for number, (state, data) in enumerate(zip(self.program.states, rows, strict=True)):
            if not self._library.cora_state_load(self._handle, number, data, len(data)):
                raise fail(Kind.ENGINE_LIMIT, f"the dump of {state.name} does not fit its table", span=state.span,
                           hint="load a dump of the same program")

    def _rows(self, number: int) -> bytes:
        size = self._library.cora_state_size(self._handle, number)
        buffer = ctypes.create_string_buffer(max(1, size))
        self._library.cora_state_dump(self._handle, number, buffer)
        return buffer.raw[:size]

    # The profile.

    def set_windows(self, start_ns: int, length_ns: int, count: int) -> None:
        """Count packets, working sets, inserts and expiries in windows of packet time. Call it before running.

        Raises:
            ValueError: the engine was made without ``profile``, or a number is out of range.
        """
        self._need_profile()
        if not (0 <= start_ns < 1 << 64 and 0 < length_ns < 1 << 64 and 0 < count < 1 << 31):
            raise ValueError("windows out of range")
        self._windows = count
        self._library.cora_profile_windows(self._handle, start_ns, length_ns, count)

    def follow(self, components: Sequence[Sequence[str]]) -> None:
        """Write down every packet's path and what happens to the entries of these states, for the ``watch`` of `run`.

        The words are described in cora/emit/runtime/moves.h. ``components``: names of maps and meters; the entries of
        the i-th group's tables are those of component i. Call it before running.

        Raises:
            ValueError: the engine was made without ``profile``, or a state has no entries of its own.
        """
        self._need_profile()
        self._library.cora_profile_follow(self._handle)
        numbers = {s.name: i for i, s in enumerate(self.program.states)}
        for component, names in enumerate(components):
            for offset, name in enumerate(names):
                numbered = (numbers[name], component, len(names), offset)
                if not self._library.cora_profile_follow_table(self._handle, *numbered):
                    raise ValueError(f"{name} has no entries to follow")

    def profile(self) -> RawProfile:
        """What the run did so far.

        Raises:
            ValueError: the engine was made without ``profile``.
        """
        self._need_profile()
        count = self._library.cora_profile_paths(self._handle, None)
        paths = np.zeros(count, PATHS)
        self._library.cora_profile_paths(self._handle, paths.ctypes.data)
        sizes = _copied(self._library.cora_profile_sizes(self._handle), np.dtype(np.uint64), SIZES)
        windows = _copied(self._library.cora_profile_totals(self._handle), WINDOWS, self._windows)
        tables = {s.name: t for i, s in enumerate(self.program.states) if (t := self._table(i)) is not None}
        return RawProfile(np.sort(paths, order="path"), sizes, windows, tables)

    def _need_profile(self) -> None:
        if not self._profiling:
            raise ValueError("this engine was made without profile=True")

    def _table(self, number: int) -> TableProfile | None:
        table = self._library.cora_profile_table(self._handle, number)
        if not table:
            return None
        events = _copied(self._library.cora_profile_events(table), np.dtype(np.uint64), len(_TABLE_EVENTS))
        ended = ctypes.c_size_t()
        uses = np.zeros(self._library.cora_profile_uses(table, None, ctypes.byref(ended)), USES)
        self._library.cora_profile_uses(table, uses.ctypes.data, ctypes.byref(ended))
        windows = _copied(self._library.cora_profile_table_windows(table), TABLE_WINDOWS, self._windows)
        return TableProfile(dict(zip(_TABLE_EVENTS, map(int, events), strict=True)), uses, windows)


def decode_events(buffer: bytes, reasons: Sequence[str]) -> Iterator[Event]:
    """The events in an output buffer (``struct cora_event`` and bytes, padded to 8)."""
    offset = 0
    while offset < len(buffer):
        index, kind, port, caplen, wirelen = _EVENT.unpack_from(buffer, offset)
        offset += _EVENT.size
        if kind == 2:
            yield Dropped(index, reasons[port])
        elif kind == 3:
            yield Held(index)
        else:
            yield Output(index, port, buffer[offset:offset + caplen], wirelen, is_error=kind == 1)
        offset += (caplen + 7) & ~7


def summary_of(program: Program, totals: Sequence[int]) -> RunSummary:
    """The summary from the numbers of ``cora_summary``."""
    ports, reasons = program.ports, reasons_of(program)
    sent = {p.name: (totals[4 + 2 * i], totals[5 + 2 * i]) for i, p in enumerate(ports)}
    dropped = dict(zip(reasons, totals[4 + 2 * len(ports):], strict=True))
    return RunSummary(totals[0], totals[1], {k: v for k, v in sent.items() if v[0]}, totals[2],
                      {k: v for k, v in dropped.items() if v}, totals[3])


@dataclass(frozen=True)
class SanitizedRun:
    """What `run_sanitized` found."""

    events: list[Event]
    summary: RunSummary
    state: StateDump


def run_sanitized(program: Program, packets: Iterable[tuple[int, int, bytes, int]],
                  options: Options = Options(), *, captured_at: int | None = None  # noqa: B008
                  ) -> SanitizedRun:
    """Run (port, time, frame, wirelen) packets in a process under the address and undefined-behaviour sanitizers.

    Raises:
        CoraError: `Kind.COMPILER_FAILED` and its like; `Kind.ENGINE_LIMIT` with the sanitizer's report of a fault.
    """
    binary = build_program(file_name_of(program), {"program.c": emit_host(program)}, _SANITIZE, include_dirs=[RUNTIME])
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "in"), Path(folder, "out")
        with inputs.open("wb") as file:
            port = _NO_PORT if captured_at is None else captured_at
            file.write(struct.pack("=II", option_bits(options), port) + os.urandom(64) + packed_config(program, {}))
            for port, time_ns, frame, wirelen in packets:
                file.write(struct.pack("=QIIHHI", time_ns, len(frame), wirelen, port, 0, len(frame)) + frame)
        run_program(program, binary, inputs, outputs)
        sections = list(sections_of(outputs.read_bytes()))
    totals = np.frombuffer(sections[0], np.uint64).tolist()
    return SanitizedRun(list(decode_events(sections[1], reasons_of(program))), summary_of(program, totals),
                        dump_of_rows(program, sections[2:]))


def run_program(program: Program, binary: Path, inputs: Path, outputs: Path) -> None:
    import subprocess  # cost is paid only by sanitized runs

    run = subprocess.run([str(binary), str(inputs), str(outputs)], capture_output=True, text=True, errors="replace",
                         check=False)
    if run.returncode != 0:
        raise fail(Kind.ENGINE_LIMIT, f"the sanitized engine stopped with code {run.returncode}:\n{run.stderr[-4000:]}",
                   span=program.span, hint="a fault of the native engine: report it with the program and the packets")


def sections_of(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        (size,) = struct.unpack_from("=Q", data, offset)
        yield data[offset + 8:offset + 8 + size]
        offset += 8 + size


def _copied(address: int | None, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if not address or not count:
        return np.zeros(0, dtype)
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize * count), dtype)


def option_bits(options: Options) -> int:
    return options.ignore_checksums | options.headers_only << 1


def packed_config(program: Program, config: Mapping[str, int]) -> bytes:
    values = {c.name: c.value for c in program.configs}
    unknown = config.keys() - values.keys()
    if unknown:
        raise fail(Kind.BAD_OVERRIDE, f"the program has no config {', '.join(sorted(unknown))}", span=program.span)
    try:
        return config_row(program).pack({**values, **config})
    except OverflowError:
        wide = next(c for c in program.configs if not 0 <= {**values, **config}[c.name] < 1 << bits_of(c.type))
        raise fail(Kind.BAD_OVERRIDE, f"{config[wide.name]} does not fit config {wide.name}: {wide.type}",
                   span=wide.span) from None


def file_name_of(program: Program) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in program.name)[:40] or "program"


def _emitted(program: Program) -> str:
    """The C of a program, from the cache where it was emitted before."""
    code = code_identity(RUNTIME.parent, RUNTIME.parent.parent / "ir")
    name = f"emitted/{hashlib.sha256(pickle.dumps(program) + code.encode()).hexdigest()}"
    known = read_blob(name)
    if known is not None:
        return known.decode("utf-8", "surrogateescape")
    text = emit_host(program)
    write_blob(name, text.encode("utf-8", "surrogateescape"))
    return text


def _library(program: Program, *, profile: bool, march_native: bool, returns: bool) -> Any:
    flags = [*(_PROFILE_FLAGS if profile else _FLAGS), *(["-march=native"] if march_native else [])]
    flags += ["-DCORA_RETURNS"] if returns else []
    path = build_shared(file_name_of(program), {"program.c": _emitted(program)}, flags, include_dirs=[RUNTIME])
    library = load_shared(path)
    for name, (result, arguments) in _SIGNATURES.items():
        if (not profile and name.startswith("cora_profile")) or (not returns and name in _RETURNS):
            continue
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


# Functions of builds for captures taken on one side.
_RETURNS = frozenset(("cora_set_captured_at", "cora_returns_counts"))
_P, _SIZE, _U32, _U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "cora_create": (_P, [ctypes.c_char_p, _U32, _P]),
    "cora_destroy": (None, [_P]),
    "cora_run": (_SIZE, [_P, _P, _SIZE, _P, _SIZE]),
    "cora_set_output": (None, [_P, _U32, _U32]),
    "cora_output": (_P, [_P, _P]),
    "cora_clear_output": (None, [_P]),
    "cora_set_digests": (None, [_P]),
    "cora_digests": (_P, [_P, _P]),
    "cora_keep_arrivals": (ctypes.c_bool, [_P]),
    "cora_kept_arrivals": (_P, [_P]),
    "cora_resolutions": (_P, [_P, _P]),
    "cora_clear_resolutions": (None, [_P]),
    "cora_clock": (_U64, [_P]),
    "cora_summary": (None, [_P, _P]),
    "cora_dropped_at": (_P, [_P]),
    "cora_set_captured_at": (None, [_P, _U32, _U64]),
    "cora_returns_counts": (None, [_P, _P]),
    "cora_state_size": (_SIZE, [_P, _U32]),
    "cora_state_dump": (None, [_P, _U32, _P]),
    "cora_state_load": (ctypes.c_bool, [_P, _U32, ctypes.c_char_p, _SIZE]),
    "cora_state_clear": (None, [_P, ctypes.c_char_p]),
    "cora_profile_windows": (None, [_P, _U64, _U64, _U64]),
    "cora_profile_follow": (None, [_P]),
    "cora_profile_follow_table": (ctypes.c_bool, [_P, _U32, _U32, _U32, _U32]),
    "cora_profile_moves": (_P, [_P, _P]),
    "cora_profile_sizes": (_P, [_P]),
    "cora_profile_totals": (_P, [_P]),
    "cora_profile_paths": (_SIZE, [_P, _P]),
    "cora_profile_table": (_P, [_P, _U32]),
    "cora_profile_events": (_P, [_P]),
    "cora_profile_table_windows": (_P, [_P]),
    "cora_profile_uses": (_SIZE, [_P, _P, _P]),
}
