"""Runs a packet sequence through several executions of a program and compares everything they report."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cora.engine.reference import Reference
from cora.engine.results import Event, Options, Output, RunSummary, StateDump, first_difference
from cora.ir.nodes import Program
from cora.testing.frames import Packet


@dataclass(frozen=True)
class Outcome:
    """What an execution reports: events in order, totals, state at the end."""

    events: list[Event]
    summary: RunSummary
    state: StateDump


Execution = Callable[[Program, Sequence[Packet], Options], Outcome]


def run_reference(program: Program, packets: Sequence[Packet], options: Options = Options()) -> Outcome:  # noqa: B008
    """The reference interpreter from empty state."""
    engine = Reference(program, options)
    events = [e for p in packets for e in engine.process(p.port, p.time_ns, p.frame, p.wirelen)]
    return Outcome(events, engine.summary(), engine.state())


def run_native(program: Program, packets: Sequence[Packet], options: Options = Options()) -> Outcome:  # noqa: B008
    """The native engine from empty state, all packets in one batch.

    Raises:
        CoraError: the program cannot be compiled.
    """
    from cora.engine.native import NativeEngine

    with NativeEngine(program, options, march_native=False) as engine:
        records, store = batch_of(packets)
        events = list(engine.run_events([records])) if packets else []
        del store  # the records pointed into it until here
        return Outcome(events, engine.summary(), engine.state())


def run_sanitized(program: Program, packets: Sequence[Packet], options: Options = Options()) -> Outcome:  # noqa: B008
    """The native engine under the address and undefined-behaviour sanitizers.

    Raises:
        CoraError: the program cannot be compiled, or a sanitizer found a fault.
    """
    from cora.engine import native

    found = native.run_sanitized(program, [(p.port, p.time_ns, p.frame, p.wirelen) for p in packets], options)
    return Outcome(found.events, found.summary, found.state)


_RECORD = struct.Struct("=QQIIIHHHHI")


def batch_of(packets: Sequence[Packet]) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], bytearray]:
    """Packets as records of the native engine (cora/emit/runtime/record.h).

    The records point into the returned bytes: keep them as long as the records are used.
    """
    store = bytearray(b"".join(p.frame for p in packets) + b"\0")
    data = np.frombuffer(store, np.uint8)
    at = data.ctypes.data
    rows = bytearray()
    for p in packets:
        rows += _RECORD.pack(p.time_ns, at, len(p.frame), p.wirelen, p.wirelen, p.port, 0, 0, 0, 0)
        at += len(p.frame)
    return np.frombuffer(bytes(rows), np.dtype((np.void, _RECORD.size))), store


def difference(left: Outcome, right: Outcome) -> str | None:
    """A sentence on the first thing two executions disagree on, or None."""
    for i, (a, b) in enumerate(zip(left.events, right.events, strict=False)):
        if a != b:
            return f"event {i} (packet {a.index}): {_shown(a)} against {_shown(b)}"
    if len(left.events) != len(right.events):
        return f"{len(left.events)} events against {len(right.events)}"
    if left.summary != right.summary:
        return f"totals: {left.summary} against {right.summary}"
    found = first_difference(left.state, right.state)
    return None if found is None else f"state: {found}"


def _shown(event: Event) -> str:
    if isinstance(event, Output):
        kind = "error" if event.is_error else "output"
        return f"{kind}(index={event.index}, port={event.port}, wirelen={event.wirelen}, {event.frame.hex()})"
    return str(event)
