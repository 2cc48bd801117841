"""One's-complement sums over bytearrays: the full sum of RFC 1071 and the update of RFC 1624."""

from __future__ import annotations

from collections.abc import Sequence

# (word before, word after) for each 16-bit word a rewrite covered.
Changes = Sequence[tuple[int, int]]


def fold(total: int) -> int:
    """Add the carries until 16 bits remain."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def ones_sum(data: bytes | bytearray) -> int:
    """The folded sum of the 16-bit words of ``data``; an odd last byte counts as the high half of a word."""
    padded = bytes(data) + b"\0" * (len(data) % 2)
    return fold(sum(int.from_bytes(padded[i:i + 2], "big") for i in range(0, len(padded), 2)))


def checksum(data: bytes | bytearray) -> int:
    """The Internet checksum of ``data`` (RFC 1071), whose own checksum field must be zero."""
    return ~ones_sum(data) & 0xFFFF


def updated(old: int, changes: Changes) -> int:
    """RFC 1624 equation 3: the checksum ``old`` after the covered words changed."""
    total = ~old & 0xFFFF
    for before, after in changes:
        total += (~before & 0xFFFF) + after
    return ~fold(total) & 0xFFFF
