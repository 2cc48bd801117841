"""An independent reader of pcap and pcapng in plain Python, the oracle of the native one.

It takes well-formed files and stops without a word where a file is not. It knows no link types: it yields what the
records say.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path


@dataclass(frozen=True)
class Raw:
    """One record as the file has it; ``link`` is the type of its interface."""

    time_ns: int
    data: bytes
    origlen: int
    link: int
    iface: int


def read_file(path: Path) -> list[Raw]:
    """All records of a file, unpacked when it is gzip."""
    data = path.read_bytes()
    return list(read(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))


def read(data: bytes) -> Iterator[Raw]:
    """All records of a capture's bytes."""
    return _pcapng(data) if data[:4] == b"\n\r\r\n" else _pcap(data)


def _pcap(data: bytes) -> Iterator[Raw]:
    order, per_second = {
        b"\xd4\xc3\xb2\xa1": ("<", 10**6), b"\xa1\xb2\xc3\xd4": (">", 10**6),
        b"\x4d\x3c\xb2\xa1": ("<", 10**9), b"\xa1\xb2\x3c\x4d": (">", 10**9),
    }[data[:4]]
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    position = 24
    while position + 16 <= len(data):
        seconds, fraction, stored, original = struct.unpack_from(order + "4I", data, position)
        body = data[position + 16:position + 16 + stored]
        if len(body) < stored:
            return
        yield Raw(seconds * 10**9 + fraction * (10**9 // per_second), body, max(original, stored), link, 0)
        position += 16 + stored


def _pcapng(data: bytes) -> Iterator[Raw]:
    order, position, base, last = "<", 0, 0, 0
    links: list[tuple[int, int, Fraction, int]] = []
    while position + 12 <= len(data):
        if data[position:position + 4] == b"\n\r\r\n":
            order = "<" if data[position + 8:position + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            base = len(links)
        kind, total = struct.unpack_from(order + "II", data, position)
        body = data[position + 8:position + total - 4]
        if total < 12 or position + total > len(data):
            return
        position += total
        if kind == 1:
            links.append(_interface(order, body))
        elif kind in (2, 6):
            iface, high, low, stored, original = struct.unpack_from(
                order + ("IIIII" if kind == 6 else "HxxIIII"), body)
            link, _, unit, offset = links[base + iface]
            last = int((high << 32 | low) * unit * 10**9) + offset * 10**9
            yield Raw(last, body[20:20 + stored], original, link, base + iface)
        elif kind == 3:
            (original,) = struct.unpack_from(order + "I", body)
            link, snaplen, _, _ = links[base]
            yield Raw(last, body[4:4 + min(original, snaplen or original)], original, link, base)


def _interface(order: str, body: bytes) -> tuple[int, int, Fraction, int]:
    link, snaplen = struct.unpack_from(order + "HxxI", body)
    unit, offset, position = Fraction(1, 10**6), 0, 8
    while position + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, position)
        value = body[position + 4:position + 4 + length]
        if code == 9:
            base = 2 if value[0] >> 7 else 10
            unit = Fraction(1, base ** (value[0] & 127))
        elif code == 14:
            (offset,) = struct.unpack(order + "q", value)
        position += 4 + (length + 3) // 4 * 4
    return link, snaplen, unit, offset
