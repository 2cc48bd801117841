"""Builds small pcap and pcapng files by hand, byte by byte, for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

MICRO, NANO, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34


def pcap_header(*, order: str = "<", magic: int = MICRO, link: int = 1, version: tuple[int, int] = (2, 4),
                snaplen: int = 65535) -> bytes:
    return struct.pack(order + "IHHiIII", magic, *version, 0, 0, snaplen, link)


def pcap_record(data: bytes, *, order: str = "<", time: tuple[int, int] = (1, 2), caplen: int | None = None,
                origlen: int | None = None) -> bytes:
    stored = len(data) if caplen is None else caplen
    return struct.pack(order + "IIII", *time, stored, len(data) if origlen is None else origlen) + data


def pcap(frames: Iterable[bytes], *, order: str = "<", magic: int = MICRO, link: int = 1) -> bytes:
    records = (pcap_record(frame, order=order, time=(1000 + i, i)) for i, frame in enumerate(frames))
    return pcap_header(order=order, magic=magic, link=link) + b"".join(records)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def block(kind: int, body: bytes, *, order: str = "<") -> bytes:
    body = _padded(body)
    total = len(body) + 12
    return struct.pack(order + "II", kind, total) + body + struct.pack(order + "I", total)


def section(*, order: str = "<", version: tuple[int, int] = (1, 0)) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, *version, -1), order=order)


def option(code: int, value: bytes, *, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + _padded(value)


def interface(link: int = 1, *, order: str = "<", snaplen: int = 0, options: Sequence[tuple[int, bytes]] = ()) -> bytes:
    tail = b"".join(option(code, value, order=order) for code, value in options)
    tail += option(0, b"", order=order) if options else b""
    return block(1, struct.pack(order + "HHI", link, 0, snaplen) + tail, order=order)


def enhanced(data: bytes, *, order: str = "<", iface: int = 0, ticks: int = 1_000_000, caplen: int | None = None,
             origlen: int | None = None, options: bytes = b"") -> bytes:
    stored = len(data) if caplen is None else caplen
    original = len(data) if origlen is None else origlen
    head = struct.pack(order + "IIIII", iface, ticks >> 32, ticks & 0xFFFFFFFF, stored, original)
    return block(6, head + _padded(data) + options, order=order)


def obsolete(data: bytes, *, order: str = "<", iface: int = 0, ticks: int = 1_000_000, drops: int = 7) -> bytes:
    head = struct.pack(order + "HHIIII", iface, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data))
    return block(2, head + data, order=order)


def simple(data: bytes, *, order: str = "<", origlen: int | None = None) -> bytes:
    return block(3, struct.pack(order + "I", len(data) if origlen is None else origlen) + data, order=order)


def frame(number: int, length: int = 60) -> bytes:
    """An Ethernet frame that tells which one it is."""
    return (b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\x00" + number.to_bytes(4, "big")).ljust(length, b"\xaa")
