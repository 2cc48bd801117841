"""Writes pcap and pcapng files: a temporary file beside the target, renamed when it is complete."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from cora.errors import CoraError, Kind, fail

_MAGIC = {True: 0xA1B23C4D, False: 0xA1B2C3D4}
_RECORD = struct.Struct("<IIII")
_NS_PER_S = 1_000_000_000
_BUFFER = 1 << 20
# The limit of the reader, and of libpcap.
_MAX_FRAME = 262144


class PcapWriter:
    """A pcap file being written, little-endian. As a context manager it appears under its name only on success.

    A path that exists and is no regular file (a pipe, /dev/stdout) is written directly. Raises CoraError CANNOT_WRITE.
    """

    def __init__(self, path: str | os.PathLike[str], *, nanoseconds: bool = True, linktype: int = 1) -> None:
        """Create the temporary file and write the file header."""
        self._shown = os.fspath(path)
        self._target = os.path.realpath(self._shown)
        self._unit = 1 if nanoseconds else 1000
        direct = os.path.exists(self._target) and not stat.S_ISREG(os.stat(self._target).st_mode)
        self._temporary = None if direct else f"{self._target}.{os.getpid()}.{id(self):x}.tmp"
        try:
            # The name is new to the folder, so "x" never touches a file of someone else.
            self._file = (open(self._temporary, "xb", buffering=_BUFFER) if self._temporary  # noqa: SIM115 - closed by close or abandon
                          else open(self._target, "wb", buffering=_BUFFER))  # noqa: SIM115 - the same
        except (OSError, ValueError) as error:
            raise self._failure(error) from None
        self._put(self._header(nanoseconds, linktype))

    def _header(self, nanoseconds: bool, linktype: int) -> bytes:
        return struct.pack("<IHHiIII", _MAGIC[nanoseconds], 2, 4, 0, 0, _MAX_FRAME, linktype)

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Keep the file on success, remove it after an exception."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, time_ns: int, frame: bytes, wirelen: int | None = None, interface: int = 0) -> None:
        """Append one packet; ``wirelen`` is the original length where ``frame`` was cut. A pcap has no interfaces.

        Raises CoraError CANNOT_WRITE for what a pcap record cannot hold: times before 1970 or after 2106, frames
        over 262144 bytes, an original length below the captured one.
        """
        length = len(frame) if wirelen is None else wirelen
        if not 0 <= time_ns < _NS_PER_S << 32:
            raise self._misfit(f"a time of {time_ns} ns does not fit a pcap record (1970 to 2106)")
        if len(frame) > _MAX_FRAME:
            raise self._misfit(f"a frame of {len(frame)} bytes is longer than a pcap record may be ({_MAX_FRAME})")
        if not len(frame) <= length < 1 << 32:
            raise self._misfit(f"an original length of {length} does not fit a frame of {len(frame)} bytes")
        self._put(self._record(time_ns, frame, length, interface))

    def _record(self, time_ns: int, frame: bytes, length: int, _interface: int) -> bytes:
        seconds, rest = divmod(time_ns, _NS_PER_S)
        return _RECORD.pack(seconds, rest // self._unit, len(frame), length) + frame

    def close(self) -> None:
        """Finish the file and give it its name; without effect the second time."""
        if self._file.closed:
            return
        try:
            self._file.close()
            if self._temporary:
                os.replace(self._temporary, self._target)
        except OSError as error:
            self.abandon()
            raise self._failure(error) from None

    def abandon(self) -> None:
        """Give up: the target keeps what it held before."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._temporary and os.path.exists(self._temporary):
            os.unlink(self._temporary)

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            self.abandon()
            raise self._failure(error) from None

    def _failure(self, error: OSError | ValueError) -> CoraError:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return fail(Kind.CANNOT_WRITE, f"the capture cannot be written: {why}", where=self._shown,
                    hint="choose another name or make room; nothing was left half-written")

    def _misfit(self, message: str) -> CoraError:
        return fail(Kind.CANNOT_WRITE, message, where=self._shown)


class PcapngWriter(PcapWriter):
    """A pcapng file (draft-ietf-opsawg-pcapng) being written: one Ethernet interface per name, nanoseconds."""

    def __init__(self, path: str | os.PathLike[str], interfaces: Sequence[str]) -> None:
        """Create the temporary file and write the section header and the interfaces, numbered as given."""
        self._interfaces = tuple(interfaces)
        super().__init__(path)

    def _header(self, nanoseconds: bool, linktype: int) -> bytes:
        section = _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
        return section + b"".join(
            _block(1, struct.pack("<HHI", linktype, 0, _MAX_FRAME) + _option(2, name.encode()) + _option(9, b"\x09")
                   + _option(0, b"")) for name in self._interfaces)

    def _record(self, time_ns: int, frame: bytes, length: int, interface: int) -> bytes:
        return _block(6, struct.pack("<IIIII", interface, time_ns >> 32, time_ns & 0xFFFFFFFF, len(frame), length)
                      + _padded(frame))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, data: bytes) -> bytes:
    return struct.pack("<HH", code, len(data)) + _padded(data)


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def write_pcap(path: str | os.PathLike[str], packets: Iterable[tuple[int, bytes, int | None]], nanoseconds: bool = True,
               linktype: int = 1) -> int:
    """Write packets (time in ns, frame, original length or None for the frame's own) and return their number.

    The file appears under its name when all packets are written, and not at all when one cannot be.
    """
    count = 0
    with PcapWriter(path, nanoseconds=nanoseconds, linktype=linktype) as writer:
        for time_ns, frame, wirelen in packets:
            writer.write(time_ns, frame, wirelen)
            count += 1
    return count
