"""The reference interpreter: the meaning of a program, executed node by node.

It follows docs/semantics.md literally and is the oracle every other execution is compared with. It is written to be
read next to that page, not to be fast.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cora.engine.reference.fragments import Arrival, Datagram, Tracker
from cora.engine.reference.packet import Packet
from cora.engine.reference.reject import icmp_error
from cora.engine.reference.states import States
from cora.engine.reference.tables import Entry, MapTable
from cora.engine.results import Dropped, Event, Held, Options, Output, RunSummary, StateDump
from cora.ir import nodes
from cora.ir.nodes import TRACKER_REASONS, Block, Instruction, Program, Terminator, Value, successors
from cora.ir.span import Span
from cora.ir.types import BOOL, EntryRef, bits_of

TIMED_OUT, FIRST_DROPPED, CONDEMNED = TRACKER_REASONS


@dataclass(frozen=True)
class TraceStep:
    """One executed node.

    Attributes:
        outcome: the edge taken by a terminator that has several, else empty.
        detail: what the node read or did: results, keys and entry fields, old and new field values, checksums.
        index: the packet that was processed, which for a released fragment is an earlier one.
    """

    span: Span
    block: str
    node: Instruction | Terminator
    outcome: str
    detail: Mapping[str, object]
    index: int


@dataclass(eq=False, slots=True)
class Run:
    """One passage of a packet through the program.

    ``passed`` are the datagrams it belongs to and whether it is their first fragment; ``held_by`` is the one whose
    `hold` it takes.
    """

    arrival: Arrival
    packet: Packet
    released: bool
    values: dict[str, Any] = field(default_factory=dict)
    passed: list[tuple[Tracker, Datagram, bool]] = field(default_factory=list)
    held_by: Datagram | None = None
    forwarded: bool = False
    note: dict[str, object] | None = None  # the detail of the node being traced


@dataclass(frozen=True, slots=True)
class Code:
    """A block made ready: each node with its handler, and where each outcome leads."""

    block: Block
    body: tuple[tuple[Callable[[Run, Any], None], Instruction], ...]
    last: Callable[[Run, Any], str]
    targets: dict[str, str]


class Reference:
    """One running instance of a program: its state, its clock, its totals."""

    def __init__(self, program: Program, options: Options = Options()) -> None:  # noqa: B008 (immutable)
        """Start with empty state.

        Args:
            program: valid IR (see `cora.ir.verify`).
            options: how to read packets.
        """
        self.program = program
        self.options = options
        self.now = 0
        self._states = States(program)
        self._totals = RunSummary()
        self._events: list[Event] = []
        self._trace: list[TraceStep] | None = None
        self._configs = {c.name: c.value for c in program.configs}
        self._ports = {p.name: i for i, p in enumerate(program.ports)}
        self._code = {b.label: self._prepare(b) for b in program.blocks}
        self._start = program.blocks[0].label

    def _prepare(self, block: Block) -> Code:
        body = tuple((partial(_INSTRUCTIONS[type(i)], self), i) for i in block.instructions)
        last = partial(_TERMINATORS[type(block.terminator)], self)
        return Code(block, body, last, dict(successors(block.terminator)))

    def process(self, port: int, time_ns: int, frame: bytes, wirelen: int | None = None,
                trace: list[TraceStep] | None = None) -> list[Event]:
        """Process the next packet; the first one has index 0.

        Args:
            port: number of the arrival port.
            time_ns: time stamp; earlier than one before is clamped.
            frame: captured bytes, from the Ethernet header on.
            wirelen: original length, at least the captured one, which is also the default.
            trace: gets one step per executed node appended.

        Returns:
            What happened because of this packet, in order, held fragments it released included.

        Raises:
            ValueError: the port does not exist, or ``wirelen`` is less than the captured length.
        """
        length = len(frame) if wirelen is None else wirelen
        if not 0 <= port < len(self.program.ports):
            raise ValueError(f"port {port} of a program with {len(self.program.ports)} ports")
        if length < len(frame):
            raise ValueError(f"{len(frame)} bytes captured of a frame of {length}")
        arrival = Arrival(self._totals.packets, port, bytes(frame), length)
        self._totals.packets += 1
        self._totals.octets += length
        self._events, self._trace = [], trace
        self.now = max(self.now, time_ns)
        self._states.expire(self.now)
        for tracker in self._states.trackers.values():
            self._give_up(tracker.expire(self.now), TIMED_OUT)
        self._run(arrival, None)
        return self._events

    def state(self) -> StateDump:
        """All changing state in canonical form, expired up to the last packet."""
        return self._states.dump()

    def load_state(self, dump: StateDump) -> None:
        """Replace all state by a dump's; the clock moves on to the latest time in it where that is later.

        A dump does not hold what fragments still waiting or an open datagram need, nor which of several entries with
        the same time was used last: there the key decides.

        Raises:
            CoraError: `Kind.BAD_STATE`, and nothing was changed.
        """
        states = States(self.program)
        self.now = max(self.now, states.load(dump))
        self._states = states

    def summary(self) -> RunSummary:
        """Totals since the start; ports and reasons without packets are left out."""
        t = self._totals
        return RunSummary(t.packets, t.octets, dict(t.forwarded), t.errors_sent, dict(t.dropped), self._states.held)

    # Running.

    def _run(self, arrival: Arrival, follow: bytes | None) -> None:
        """Take a packet through the program; ``follow`` is set for a fragment the tracker releases."""
        run = Run(arrival, Packet(arrival.frame, arrival.wirelen, self.options), follow is not None)
        if follow is not None:
            run.packet.follow(follow)
        walk = self._walk if self._trace is None else self._walk_traced
        label: str | None = self._start
        while label is not None:
            label = walk(run, self._code[label])
        self._settle(run)

    def _walk(self, run: Run, code: Code) -> str | None:
        for handler, node in code.body:
            handler(run, node)
        outcome = code.last(run, code.block.terminator)
        return code.targets[outcome] if code.targets else None

    def _walk_traced(self, run: Run, code: Code) -> str | None:
        for handler, node in code.body:
            run.note = {}
            handler(run, node)
            result = nodes.result_of(node)
            if result is not None:
                run.note["result"] = run.values[result.name]
            self._step(run, code.block, node, "")
        run.note = {}
        outcome = code.last(run, code.block.terminator)
        self._step(run, code.block, code.block.terminator, outcome)
        return code.targets[outcome] if code.targets else None

    def _step(self, run: Run, block: Block, node: Instruction | Terminator, outcome: str) -> None:
        assert self._trace is not None
        assert run.note is not None
        self._trace.append(TraceStep(node.span, block.label, node, outcome, run.note, run.arrival.index))

    def _settle(self, run: Run) -> None:
        """What the end of a packet decides about the datagrams it belongs to."""
        for tracker, datagram, is_first in run.passed:
            if is_first and run.forwarded:
                datagram.state = "open"
                held, datagram.held = datagram.held, []
                for arrival in held:
                    self._run(arrival, datagram.first)
            elif is_first:
                self._give_up(tracker.condemn(datagram), FIRST_DROPPED)
            tracker.forget_if_complete(datagram)

    def _give_up(self, arrivals: Iterable[Arrival], reason: str) -> None:
        for arrival in arrivals:
            self._drop(arrival, reason)

    def _drop(self, arrival: Arrival, reason: str) -> None:
        self._events.append(Dropped(arrival.index, reason))
        self._totals.dropped[reason] = self._totals.dropped.get(reason, 0) + 1

    # Instructions.

    def _const(self, run: Run, node: nodes.Const) -> None:
        run.values[node.result.name] = node.value

    def _unary(self, run: Run, node: nodes.Unary) -> None:
        operand = run.values[node.operand.name]
        # `not` of a bool is the inversion of its one bit.
        run.values[node.result.name] = operand ^ ((1 << bits_of(node.result.type)) - 1)

    def _binary(self, run: Run, node: nodes.Binary) -> None:
        bits = bits_of(node.result.type)
        left, right = run.values[node.left.name], run.values[node.right.name]
        run.values[node.result.name] = _BINARY[node.op](left, right, bits) & ((1 << bits) - 1)

    def _compare(self, run: Run, node: nodes.Compare) -> None:
        run.values[node.result.name] = int(_COMPARE[node.op](run.values[node.left.name], run.values[node.right.name]))

    def _cast(self, run: Run, node: nodes.Cast) -> None:
        operand = run.values[node.operand.name]
        if node.result.type == BOOL:
            run.values[node.result.name] = int(operand != 0)
        else:
            run.values[node.result.name] = operand & ((1 << bits_of(node.result.type)) - 1)

    def _select(self, run: Run, node: nodes.Select) -> None:
        chosen = node.if_true if run.values[node.condition.name] else node.if_false
        run.values[node.result.name] = run.values[chosen.name]

    def _load_config(self, run: Run, node: nodes.LoadConfig) -> None:
        run.values[node.result.name] = self._configs[node.config]

    def _meta(self, run: Run, node: nodes.Meta) -> None:
        known = {"time": self.now, "size": run.arrival.wirelen, "port": run.arrival.port}
        run.values[node.result.name] = known[node.what]

    def _load(self, run: Run, node: nodes.Load) -> None:
        run.values[node.result.name] = run.packet.load(node.header, node.field)

    def _store(self, run: Run, node: nodes.Store) -> None:
        value = run.values[node.value.name]
        if run.note is None:
            run.packet.store(node.header, node.field, value)
            return
        run.note["old"] = run.packet.load(node.header, node.field)
        run.packet.sums = []
        run.packet.store(node.header, node.field, value)
        run.note["new"] = value
        run.note["checksums"] = tuple(run.packet.sums)

    def _load_entry(self, run: Run, node: nodes.LoadEntry) -> None:
        run.values[node.result.name] = run.values[node.entry.name].read(node.field)

    def _store_entry(self, run: Run, node: nodes.StoreEntry) -> None:
        entry, value = run.values[node.entry.name], run.values[node.value.name]
        if run.note is not None:
            run.note |= {"old": entry.read(node.field), "new": value}
        if entry.alive:
            entry.values[node.field] = value

    def _touch(self, run: Run, node: nodes.Touch) -> None:
        self._table_of(node.entry).touch(run.values[node.entry.name], node.timeout, self.now)

    def _delete(self, run: Run, node: nodes.Delete) -> None:
        self._table_of(node.entry).remove(run.values[node.entry.name])

    def _table_of(self, entry: Value) -> MapTable:
        assert isinstance(entry.type, EntryRef)
        return self._states.maps[entry.type.state]

    def _count(self, run: Run, node: nodes.Count) -> None:
        index = 0 if node.index is None else run.values[node.index.name]
        octets = run.arrival.wirelen if node.amount is None else run.values[node.amount.name]
        self._states.counters[node.counter].count(index, octets)
        if run.note is not None:
            run.note |= {"index": index, "octets": octets}

    # Terminators: each returns the outcome it takes.

    def _jump(self, run: Run, node: nodes.Jump) -> str:
        passed = [run.values[v.name] for v in node.args]
        params = self._code[node.target].block.params
        run.values.update((p.name, v) for p, v in zip(params, passed, strict=True))
        return "next"

    def _branch(self, run: Run, node: nodes.Branch) -> str:
        return "true" if run.values[node.condition.name] else "false"

    def _switch(self, run: Run, node: nodes.Switch) -> str:
        value = run.values[node.value.name]
        if run.note is not None:
            run.note["value"] = value
        return next((str(case) for case, _ in node.cases if case == value), "default")

    def _has_header(self, run: Run, node: nodes.HasHeader) -> str:
        return "present" if node.header in run.packet.at else "absent"

    def _extract(self, run: Run, node: nodes.Extract) -> str:
        outcome = run.packet.extract(node)
        if run.note is not None and outcome == "ok":
            run.note["offset"] = run.packet.at[node.header]
        return outcome

    def _is_fragment(self, run: Run, node: nodes.IsFragment) -> str:
        return "whole" if run.packet.fragment is None else "fragment"

    def _track_fragment(self, run: Run, node: nodes.TrackFragment) -> str:
        if run.packet.fragment is None or run.released:
            return "ok"
        tracker = self._states.trackers[node.state]
        verdict = tracker.track(run.packet, node.header, self.now)
        self._give_up(verdict.given_up, CONDEMNED)
        datagram = verdict.datagram
        if run.note is not None:
            run.note |= {"offset": run.packet.fragment_offset, "given_up": [a.index for a in verdict.given_up]}
        if verdict.outcome == "hold":
            run.held_by = datagram
        elif datagram is not None:
            is_first = run.packet.fragment_offset == 0
            run.passed.append((tracker, datagram, is_first))
            if not is_first:
                run.packet.follow(datagram.first)
        return verdict.outcome

    def _lookup(self, run: Run, node: nodes.Lookup) -> str:
        key = tuple([run.values[v.name] for v in node.operands])
        entry = self._states.lookups[node.state].lookup(node.key, key)
        if run.note is not None:
            run.note |= {"key": key, "entry": _shown(entry)}
        if entry is None:
            return "miss"
        run.values[node.entry.name] = entry
        return "hit"

    def _insert(self, run: Run, node: nodes.Insert) -> str:
        values = [run.values[v.name] for v in node.values]
        prefer = [tuple(run.values[v.name] for v in wish) for wish in node.prefer]
        entry = self._states.maps[node.state].insert(values, prefer, node.timeout, self.now)
        if run.note is not None:
            run.note |= {"values": tuple(values), "prefer": tuple(prefer), "entry": _shown(entry)}
        if entry is None:
            return "full"
        run.values[node.entry.name] = entry
        return "ok"

    def _police(self, run: Run, node: nodes.Police) -> str:
        key = tuple(run.values[v.name] for v in node.operands)
        meter = self._states.meters[node.state]
        colour = meter.police(key, run.values[node.size.name], self.now)
        if run.note is not None:
            buckets = meter.by_key.get(key)
            run.note |= {"key": key, "size": run.values[node.size.name],
                         "credits": None if buckets is None else tuple(buckets.credits)}
        return colour

    def _forward(self, run: Run, node: nodes.Forward) -> str:
        arrival = run.arrival
        run.forwarded = True
        self._events.append(Output(arrival.index, self._ports[node.port], bytes(run.packet.data), arrival.wirelen))
        packets, octets = self._totals.forwarded.get(node.port, (0, 0))
        self._totals.forwarded[node.port] = (packets + 1, octets + arrival.wirelen)
        return ""

    def _drop_packet(self, run: Run, node: nodes.Drop) -> str:
        self._drop(run.arrival, node.reason)
        return ""

    def _reject(self, run: Run, node: nodes.Reject) -> str:
        self._drop(run.arrival, node.reason)
        error = icmp_error(run.packet, node, run.values[node.source.name])
        if error is not None:
            self._events.append(Output(run.arrival.index, run.arrival.port, error, len(error), is_error=True))
            self._totals.errors_sent += 1
        if run.note is not None:
            run.note["error_sent"] = error is not None
        return ""

    def _hold(self, run: Run, node: nodes.Hold) -> str:
        assert run.held_by is not None, "a program reaches `hold` only through that outcome of `track_fragment`"
        run.held_by.held.append(run.arrival)
        self._events.append(Held(run.arrival.index))
        return ""


def _shown(entry: Entry | None) -> dict[str, int] | None:
    return None if entry is None else dict(entry.values)


def _shift_left(value: int, by: int, bits: int) -> int:
    return value << by if by < bits else 0


def _shift_right(value: int, by: int, bits: int) -> int:
    return value >> by if by < bits else 0


# The result is cut to the width afterwards.
_BINARY: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, _: a + b, "sub": lambda a, b, _: a - b, "mul": lambda a, b, _: a * b,
    "div": lambda a, b, _: a // b if b else 0, "mod": lambda a, b, _: a % b if b else a,
    "and": lambda a, b, _: a & b, "or": lambda a, b, _: a | b, "xor": lambda a, b, _: a ^ b,
    "shl": _shift_left, "shr": _shift_right,
    "min": lambda a, b, _: min(a, b), "max": lambda a, b, _: max(a, b),
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}

_INSTRUCTIONS: dict[type, Callable[[Reference, Run, Any], None]] = {
    nodes.Const: Reference._const, nodes.Unary: Reference._unary, nodes.Binary: Reference._binary,
    nodes.Compare: Reference._compare, nodes.Cast: Reference._cast, nodes.Select: Reference._select,
    nodes.LoadConfig: Reference._load_config, nodes.Meta: Reference._meta, nodes.Load: Reference._load,
    nodes.Store: Reference._store, nodes.LoadEntry: Reference._load_entry, nodes.StoreEntry: Reference._store_entry,
    nodes.Touch: Reference._touch, nodes.Delete: Reference._delete, nodes.Count: Reference._count,
}
_TERMINATORS: dict[type, Callable[[Reference, Run, Any], str]] = {
    nodes.Jump: Reference._jump, nodes.Branch: Reference._branch, nodes.Switch: Reference._switch,
    nodes.HasHeader: Reference._has_header, nodes.Extract: Reference._extract,
    nodes.TrackFragment: Reference._track_fragment, nodes.IsFragment: Reference._is_fragment,
    nodes.Lookup: Reference._lookup, nodes.Insert: Reference._insert, nodes.Police: Reference._police,
    nodes.Forward: Reference._forward, nodes.Drop: Reference._drop_packet, nodes.Reject: Reference._reject,
    nodes.Hold: Reference._hold,
}
