"""Brings what cannot be mapped directly (gzip, pipes) into an unlinked temporary file, in constant memory."""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from cora.errors import Kind, fail

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
_OUTPUT = 1 << 20
_GZIP = 16 + zlib.MAX_WBITS


@dataclass
class Spooled:
    """A file to map, and what was wrong with its container: one text per fault, each with its byte offset."""

    file: BinaryIO
    size: int
    faults: list[str] = field(default_factory=list)


def open_flat(path: str) -> Spooled:
    """Open a capture file as a flat regular file: itself, or its unpacked contents.

    Raises CoraError FILE_UNREADABLE for anything that is neither a readable regular file nor a pipe.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - handed to the caller
    except OSError as error:
        raise fail(Kind.FILE_UNREADABLE, f"the capture cannot be opened: {error.strerror}", where=path) from None
    except ValueError:
        raise fail(Kind.FILE_UNREADABLE, "the capture's name holds a null character", where=repr(path)) from None
    try:
        return _flatten(path, file)
    except OSError as error:
        file.close()
        raise fail(Kind.FILE_UNREADABLE, f"the capture cannot be read: {error.strerror}", where=path) from None
    except BaseException:
        file.close()
        raise


def _flatten(path: str, file: BinaryIO) -> Spooled:
    status = os.fstat(file.fileno())
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        return _from_pipe(path, file)
    if not stat.S_ISREG(status.st_mode):
        raise fail(Kind.FILE_UNREADABLE, "a capture must be a regular file or a pipe, this is a device", where=path)
    head = file.read(2)
    file.seek(0)
    if head != GZIP_MAGIC:
        return Spooled(file, status.st_size)
    with file:
        return _spool(path, file, gzip=True)


def _from_pipe(path: str, pipe: BinaryIO) -> Spooled:
    with pipe:
        flat = _spool(path, pipe, gzip=False)
    head = os.pread(flat.file.fileno(), 2, 0)
    if head != GZIP_MAGIC:
        return flat
    flat.file.seek(0)
    with flat.file:
        return _spool(path, flat.file, gzip=True)


def _spool(path: str, source: BinaryIO, *, gzip: bool) -> Spooled:
    folder = _folder()
    spooled = Spooled(tempfile.TemporaryFile(dir=folder, prefix="cora-"), 0)  # noqa: SIM115 - handed to the caller
    try:
        pieces = _unpack(source, spooled.faults) if gzip else iter(lambda: source.read(_OUTPUT), b"")
        for piece in pieces:
            _store(path, folder, spooled, piece)
        spooled.file.flush()
    except BaseException:
        spooled.file.close()
        raise
    return spooled


def _store(path: str, folder: str, spooled: Spooled, piece: bytes) -> None:
    try:
        spooled.file.write(piece)
    except OSError as error:
        raise fail(
            Kind.FILE_UNREADABLE,
            f"unpacking stopped after {spooled.size} bytes, {folder} cannot take more: {error.strerror}", where=path,
            hint="make room there, or set TMPDIR to a folder on a larger disk",
        ) from None
    spooled.size += len(piece)


def _folder() -> str:
    """TMPDIR where set; else /var/tmp, which is on disk where /tmp is often memory; else the system's choice."""
    if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK | os.X_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


class _Feed:
    """A source read in chunks; ``position`` is the offset of the next byte taken."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._ahead = b""
        self.position = 0

    def take(self) -> bytes:
        """The next bytes, empty at the end of the source."""
        data = self._ahead or self._source.read(_CHUNK)
        self._ahead = b""
        self.position += len(data)
        return data

    def put_back(self, data: bytes) -> None:
        """Make ``data``, the last bytes taken, the next ones again."""
        self._ahead = data + self._ahead
        self.position -= len(data)

    def starts_with(self, magic: bytes) -> bool:
        """Whether the next bytes are ``magic``; nothing is taken."""
        while len(self._ahead) < len(magic):
            more = self._source.read(_CHUNK)
            if not more:
                break
            self._ahead += more
        return self._ahead.startswith(magic)


def _unpack(source: BinaryIO, faults: list[str]) -> Iterator[bytes]:
    """The contents of all gzip members, in pieces; everything before a fault is given, and the fault is noted."""
    feed = _Feed(source)
    whole = True
    while whole and feed.starts_with(GZIP_MAGIC):
        whole = yield from _member(feed, faults)
    if whole:
        _check_padding(feed, faults)


def _check_padding(feed: _Feed, faults: list[str]) -> None:
    """Zeros after the last member are padding (tapes, block devices); anything else is reported, as gzip does."""
    while data := feed.take():
        garbage = data.lstrip(b"\0")
        if garbage:
            faults.append(f"compressed byte {feed.position - len(garbage)}: what follows is not gzip data, ignored")
            return


def _member(feed: _Feed, faults: list[str]) -> Generator[bytes, None, bool]:
    """The contents of one gzip member; returns whether the member was whole."""
    start = feed.position
    inflate = zlib.decompressobj(_GZIP)
    data = b""
    while not inflate.eof:
        data = data or feed.take()
        if not data:
            yield inflate.flush()
            faults.append(f"compressed byte {feed.position}: the gzip member that starts at byte {start} is cut off")
            return False
        before = inflate.copy()
        try:
            piece = inflate.decompress(data, _OUTPUT)
        except zlib.error as error:
            piece, good = _salvage(before, data)
            yield piece
            faults.append(f"compressed byte {feed.position - len(data) + good}: corrupt gzip data ({error})")
            return False
        yield piece
        data = inflate.unconsumed_tail
    feed.put_back(inflate.unused_data)
    return True


def _salvage(inflate: zlib._Decompress, data: bytes) -> tuple[bytes, int]:
    """What comes out of ``data`` before its fault, and how many bytes were good; zlib drops it with the error."""
    pieces = []
    for index in range(len(data)):
        try:
            pieces.append(inflate.decompress(data[index:index + 1]))
        except zlib.error:
            return b"".join(pieces), index
    return b"".join(pieces), len(data)
