"""Packet captures: pcap and pcapng, plain or gzip, read natively in batches and in constant memory.

A packet is a RECORD (the layout of ``cora/emit/runtime/record.h``); records point into the mapped file. Damaged files
give every packet before the damage, a warning with the byte offset, and a count in the statistics.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cora.errors import Kind, fail
from cora.frontends.traffic.messages import NOTE_TEXTS, SUPPORTED_HINT, link_name, refusal, resolution_text
from cora.frontends.traffic.native import library
from cora.frontends.traffic.spool import Spooled, open_flat

RECORD = np.dtype([
    ("time_ns", np.uint64), ("data", np.uint64), ("caplen", np.uint32), ("wirelen", np.uint32),
    ("origlen", np.uint32), ("port", np.uint16), ("ethertype", np.uint16), ("flags", np.uint16), ("iface", np.uint16),
    ("reserved", np.uint32),
])
"""numpy form of ``struct cora_record``."""

Batch = NDArray[np.void]
"""A one-dimensional array of RECORD."""

DEFAULT_BATCH = 8192

# Consumed pages of a large file are given back this often, so that resident memory stays flat.
_RELEASE = 64 << 20

# CORA_NOTES_KEPT of native/capture.h.
_NOTES_KEPT = 8

@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of the slow path: ``frame`` is Ethernet, with a synthesised header for other link types."""

    index: int
    time_ns: int
    frame: bytes
    wirelen: int
    port: int


@dataclass(frozen=True, slots=True)
class Link:
    """One interface of a capture, numbered over the whole file; ``local`` is its number in its pcapng section."""

    index: int
    section: int
    local: int
    type: int
    name: str | None
    snaplen: int
    resolution: str
    packets: int
    skipped: int


@dataclass(frozen=True, slots=True)
class CaptureStats:
    """What one pass over a capture met. Lengths in octets; ``bytes`` by the original length, times in nanoseconds.

    ``truncated`` counts packets stored shorter than they were, ``skipped`` packets left out (unsupported link type,
    unknown interface, impossible lengths), ``errors`` places where the file is damaged, ``backward`` packets with a
    time before the one before them. Times are None without packets; first and last in file order.
    """

    packets: int
    bytes: int
    captured: int
    truncated: int
    skipped: int
    errors: int
    backward: int
    first_ns: int | None
    last_ns: int | None
    earliest_ns: int | None
    latest_ns: int | None


class TrafficSource(Protocol):
    """Whatever gives packets: a capture, a capture with ports assigned, synthetic traffic."""

    @property
    def name(self) -> str:
        """What messages call it."""

    @property
    def warnings(self) -> list[str]:
        """What the most recent pass met."""

    @property
    def stats(self) -> CaptureStats:
        """Counts of the most recent pass."""

    @property
    def links(self) -> list[Link]:
        """Interfaces seen so far."""

    def batches(self, size: int = DEFAULT_BATCH) -> Iterator[Batch]:
        """Records in order, in a buffer that the next batch overwrites."""

    def packets(self) -> Iterator[Packet]:
        """The same packets one by one."""


class SourceWrapper:
    """What a traffic source that changes another one's packets passes on from it unchanged."""

    def __init__(self, source: TrafficSource) -> None:
        self._source = source

    @property
    def name(self) -> str:
        """The name of the source behind."""
        return self._source.name

    @property
    def warnings(self) -> list[str]:
        """Those of the source behind."""
        return self._source.warnings

    @property
    def stats(self) -> CaptureStats:
        """Counts of the source behind, packets that are left out here included."""
        return self._source.stats

    @property
    def links(self) -> list[Link]:
        """Interfaces of the source behind."""
        return self._source.links


class _Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "packets", "bytes", "captured", "truncated", "skipped", "errors", "first_ns", "last_ns", "earliest_ns",
        "latest_ns", "backward", "offset", "size", "sections", "other_blocks",
    )]


class _Link(ctypes.Structure):
    _fields_ = [
        ("offset", ctypes.c_uint64), ("name", ctypes.c_uint64), ("time_offset", ctypes.c_int64),
        ("packets", ctypes.c_uint64), ("skipped", ctypes.c_uint64), ("name_length", ctypes.c_uint32),
        ("snaplen", ctypes.c_uint32), ("section", ctypes.c_uint32), ("local", ctypes.c_uint32),
        ("type", ctypes.c_uint16), ("resolution", ctypes.c_uint8), ("supported", ctypes.c_uint8),
        ("reserved", ctypes.c_uint32),
    ]


class _Note(ctypes.Structure):
    _fields_ = [
        ("offset", ctypes.c_uint64), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64), ("kind", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


@lru_cache(maxsize=1)
def _native() -> ctypes.CDLL:
    lib = library()
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    lib.cora_capture_open.argtypes = [pointer, u64, ctypes.POINTER(pointer), ctypes.POINTER(u64)]
    lib.cora_capture_close.argtypes = [pointer]
    lib.cora_capture_close.restype = None
    lib.cora_capture_stats.argtypes = [pointer]
    lib.cora_capture_stats.restype = ctypes.POINTER(_Stats)
    lib.cora_capture_links.argtypes = [pointer, ctypes.POINTER(ctypes.c_uint32)]
    lib.cora_capture_links.restype = ctypes.POINTER(_Link)
    lib.cora_capture_notes.argtypes = [pointer, ctypes.POINTER(ctypes.c_uint32),
                                       ctypes.POINTER(ctypes.POINTER(u64))]
    lib.cora_capture_notes.restype = ctypes.POINTER(_Note)
    lib.cora_capture_format.argtypes = [pointer]
    lib.cora_frame_copy.argtypes = [pointer, pointer]
    lib.cora_frame_copy.restype = None
    lib.cora_capture_read.argtypes = [pointer, pointer, u64]
    lib.cora_capture_read.restype = u64
    return lib


class _Reader:
    """One pass of the native reader. Keeps the mapped bytes alive as long as it lives."""

    def __init__(self, name: str, data: NDArray[np.uint8]) -> None:
        self._lib = _native()
        self._data = data
        handle, detail = ctypes.c_void_p(), ctypes.c_uint64()
        status = self._lib.cora_capture_open(data.ctypes.data, data.size, ctypes.byref(handle), ctypes.byref(detail))
        self._handle = handle
        if status:
            raise refusal(name, status, detail.value, data[:16].tobytes())

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.cora_capture_close(self._handle)

    def read(self, out: Batch) -> int:
        """Fill ``out`` from its start; the number of records, 0 at the end."""
        return int(self._lib.cora_capture_read(self._handle, out.ctypes.data, out.size))

    @property
    def offset(self) -> int:
        """Bytes of the file consumed so far."""
        return int(self._lib.cora_capture_stats(self._handle).contents.offset)

    @property
    def packets(self) -> int:
        """Packets delivered so far."""
        return int(self._lib.cora_capture_stats(self._handle).contents.packets)

    def stats(self, container_faults: int) -> CaptureStats:
        """Counts so far, with the faults of the file's container added."""
        s = self._lib.cora_capture_stats(self._handle).contents
        times = (s.first_ns, s.last_ns, s.earliest_ns, s.latest_ns) if s.packets else (None, None, None, None)
        return CaptureStats(s.packets, s.bytes, s.captured, s.truncated, s.skipped, s.errors + container_faults,
                            s.backward, *times)

    def links(self) -> list[Link]:
        """Interfaces met so far."""
        count = ctypes.c_uint32()
        links = self._lib.cora_capture_links(self._handle, ctypes.byref(count))
        return [self._link(index, links[index]) for index in range(count.value)]

    def _link(self, index: int, link: _Link) -> Link:
        name = None
        if link.name:
            raw = ctypes.string_at(link.name, link.name_length)
            name = raw.split(b"\0")[0].decode("utf-8", "replace")
        return Link(index, link.section, link.local, link.type, name, link.snaplen, resolution_text(link.resolution),
                    link.packets, link.skipped)

    def warnings(self) -> list[str]:
        """Notes so far as text, in file order, and how many more there were of each kind."""
        count, totals = ctypes.c_uint32(), ctypes.POINTER(ctypes.c_uint64)()
        notes = self._lib.cora_capture_notes(self._handle, ctypes.byref(count), ctypes.byref(totals))
        texts, kept = [], [0] * len(NOTE_TEXTS)
        for note in notes[:count.value]:
            texts.append(f"byte {note.offset}: {NOTE_TEXTS[note.kind](note.a, note.b)}")
            kept[note.kind] += 1
            more = totals[note.kind] - kept[note.kind]
            last_kept = kept[note.kind] == _NOTES_KEPT
            if last_kept and more:
                texts.append(f"byte {note.offset} and later: {more} more of the same kind as the last")
        return texts


class Capture:
    """A capture file (or one in memory), to be closed after use; every call of batches() is a pass from the start.

    Records point into the mapped bytes and are valid until close(). A file must not be shortened while it is open.
    """

    def __init__(self, name: str, data: NDArray[np.uint8], *, mapping: mmap.mmap | None = None,
                 faults: tuple[str, ...] = ()) -> None:
        """Take over ``data`` (and ``mapping`` behind it); use Capture.open or Capture.from_bytes."""
        self._name = name
        self._mapping = mapping
        self._faults = faults
        self._data = data
        self._reader: _Reader | None = _Reader(name, data)
        self._final = self._snapshot(self._reader)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Capture:
        """Open a capture; raises CoraError FILE_UNREADABLE, NOT_A_CAPTURE or LINK_TYPE.

        gzip files and pipes are first written to an unlinked temporary file (TMPDIR, else /var/tmp).
        """
        name = os.fspath(path)
        flat = open_flat(name)
        with flat.file:
            mapping = _map(name, flat)
        data = np.empty(0, np.uint8) if mapping is None else np.frombuffer(mapping, np.uint8)
        return cls(name, data, mapping=mapping, faults=tuple(flat.faults))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "capture in memory") -> Capture:
        """A capture whose whole file is ``data``; raises CoraError NOT_A_CAPTURE or LINK_TYPE."""
        return cls(name, np.frombuffer(data, np.uint8))

    def __enter__(self) -> Self:
        """The capture itself; it is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Release the file. Statistics, warnings and links stay readable; records do not."""
        if self._reader is not None:
            self._final = self._snapshot(self._reader)
        self._reader = None
        self._data = np.empty(0, np.uint8)
        self._mapping = None

    @property
    def name(self) -> str:
        """The path, or the name given."""
        return self._name

    @property
    def size(self) -> int:
        """Bytes of the file after unpacking."""
        return int(self._data.size)

    @property
    def offset(self) -> int:
        """Bytes of ``size`` that the most recent pass has consumed: for progress bars."""
        return self._reader.offset if self._reader else 0

    @property
    def stats(self) -> CaptureStats:
        """Counts of the most recent pass, so far."""
        return self._current()[0]

    @property
    def warnings(self) -> list[str]:
        """What the most recent pass met, so far, each with its byte offset in the (unpacked) file."""
        return self._current()[1]

    @property
    def links(self) -> list[Link]:
        """Interfaces met by the most recent pass, so far."""
        return self._current()[2]

    def _current(self) -> tuple[CaptureStats, list[str], list[Link]]:
        return self._snapshot(self._reader) if self._reader else self._final

    def _snapshot(self, reader: _Reader) -> tuple[CaptureStats, list[str], list[Link]]:
        return reader.stats(len(self._faults)), [*reader.warnings(), *self._faults], reader.links()

    def batches(self, size: int = DEFAULT_BATCH) -> Iterator[Batch]:
        """All packets in file order, at most ``size`` at a time, in a buffer that the next batch overwrites.

        Raises CoraError LINK_TYPE at the end when every packet was skipped for its link type.
        """
        if self._reader is None:
            raise ValueError("the capture is closed")
        if size < 1:
            raise ValueError("a batch holds at least one packet")
        return self._pass(size, _Reader(self._name, self._data), self._mapping)

    def _pass(self, size: int, reader: _Reader, mapping: mmap.mmap | None) -> Iterator[Batch]:
        self._reader = reader
        out = np.zeros(size, RECORD)
        released = 0
        while count := reader.read(out):
            yield out[:count]
            ready = (reader.offset - released) // _RELEASE * _RELEASE
            if mapping is not None and ready:
                mapping.madvise(mmap.MADV_DONTNEED, released, ready)
                released += ready
        skipped = sorted({link.type for link in reader.links() if link.skipped})
        if skipped and not reader.packets:
            types = ", ".join(link_name(number) for number in skipped)
            raise fail(Kind.LINK_TYPE, f"no packet is readable: link type {types} is not supported", where=self._name,
                       hint=SUPPORTED_HINT)

    def packets(self) -> Iterator[Packet]:
        """All packets one by one, about a hundred times slower than batches()."""
        return packets_of(self.batches())


def packets_of(batches: Iterable[Batch]) -> Iterator[Packet]:
    """The packets of batches of records as objects; the records' bytes must still be mapped."""
    copy = _native().cora_frame_copy
    index = 0
    for batch in batches:
        frame = np.empty(int(batch["caplen"].max(initial=0)), np.uint8)
        for row, record in enumerate(batch):
            copy(batch.ctypes.data + row * RECORD.itemsize, frame.ctypes.data)
            yield Packet(index, int(record["time_ns"]), frame[:record["caplen"]].tobytes(), int(record["wirelen"]),
                         int(record["port"]))
            index += 1


def _map(name: str, flat: Spooled) -> mmap.mmap | None:
    """The file's bytes, None for an empty file (which cannot be mapped)."""
    if not flat.size:
        return None
    try:
        mapping = mmap.mmap(flat.file.fileno(), flat.size, access=mmap.ACCESS_READ)
    except (OSError, ValueError, OverflowError) as error:
        raise fail(Kind.FILE_UNREADABLE, f"the capture cannot be mapped into memory: {error}", where=name) from None
    mapping.madvise(mmap.MADV_SEQUENTIAL)
    return mapping
