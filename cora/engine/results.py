"""What every execution of a program reports, in one form, so that any two can be compared byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# A state dump: state name -> rows in a canonical order, plain integers, strings and lists only (JSON-ready).
#   map:      {"kind": "map", "entries": [{"fields": {name: int, ...}, "timeout": class, "last": ns}, ...]}
#             entries sorted by the values of their primary key, in field order
#   meter:    {"kind": "meter", "entries": [{"key": {name: int}, "credits": [int, ...], "last": ns}, ...]} sorted by key
#             credits: [bucket], [committed, excess] or [committed, peak], in octets * 10**9
#   pool:     {"kind": "pool", "used": [index, ...] ascending, "next": index}
#   counter:  {"kind": "counter", "values": [[packets, octets], ...]}
#   fragment: {"kind": "fragment", "datagrams": [{"key": [family, src, dst, proto or 0, id],
#              "state": "waiting"|"open"|"condemned", "made": ns, "ranges": [[first, past_last], ...] merged, ascending,
#              "end": int or -1, "held": [packet index, ...]}, ...]} sorted by key
#   acl, lpm: absent (they never change)
StateDump = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Options:
    """How to read packets; see docs/semantics.md section 1."""

    ignore_checksums: bool = False
    headers_only: bool = False


@dataclass(frozen=True)
class Output:
    """A packet that leaves: caused by input ``index``, out of port number ``port``; ``is_error``: made by Reject."""

    index: int
    port: int
    frame: bytes
    wirelen: int
    is_error: bool = False


@dataclass(frozen=True)
class Dropped:
    """Input packet ``index`` was dropped for ``reason``."""

    index: int
    reason: str


@dataclass(frozen=True)
class Held:
    """Input packet ``index`` waits in the fragment tracker (a later `Output` or `Dropped` of that index ends this)."""

    index: int


Event = Output | Dropped | Held


@dataclass
class RunSummary:
    """Totals of a run.

    Attributes:
        packets, octets: input packets and their frame lengths (original length).
        forwarded: per port name, packets and octets sent (ICMP errors excluded).
        errors_sent: ICMP errors sent.
        dropped: per reason, packets.
        held: packets still waiting in the fragment tracker.
    """

    packets: int = 0
    octets: int = 0
    forwarded: dict[str, tuple[int, int]] = field(default_factory=dict)
    errors_sent: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    held: int = 0


RETURN_FLOWS = 8_000_000
"""Flows whose translation is remembered for captures taken on one side of a program (docs/profile.md)."""


@dataclass(frozen=True)
class ReturnCounts:
    """What was done to a capture taken on one side of a program.

    Attributes:
        translated: packets that were given the addresses the program had chosen.
        forgotten: how often the older half of the remembered flows had to be forgotten.
    """

    translated: int
    forgotten: int


def first_difference(left: StateDump, right: StateDump) -> str | None:
    """A sentence naming the first place two dumps differ, or None when they are equal."""
    if left.keys() != right.keys():
        return f"states differ: {sorted(left.keys() ^ right.keys())}"
    for name in sorted(left):
        found = _walk(left[name], right[name], name)
        if found:
            return found
    return None


def _walk(left: object, right: object, place: str) -> str | None:
    if isinstance(left, Mapping) and isinstance(right, Mapping) and left.keys() == right.keys():
        return next((d for k in left if (d := _walk(left[k], right[k], f"{place}.{k}"))), None)
    if isinstance(left, Sequence) and isinstance(right, Sequence) and not isinstance(left, str):
        if len(left) != len(right):
            return f"{place}: {len(left)} items against {len(right)}"
        pairs = enumerate(zip(left, right, strict=True))
        return next((d for i, (a, b) in pairs if (d := _walk(a, b, f"{place}[{i}]"))), None)
    return None if left == right else f"{place}: {left!r} against {right!r}"
