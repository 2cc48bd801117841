"""Brute force for the analysis of splitting: run packets, see which entries they really touch, compare with the claims.

What a packet touched is taken from the reference interpreter's tables, which entry that is from the identity of the
table's own entry object. What a claim says about a packet is worked out from the bytes that arrived, read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cora.analysis.accesses import components_of
from cora.analysis.sharding import Alignment, Anchor
from cora.engine.reference import Reference, TraceStep
from cora.engine.reference.packet import Packet as Arrived
from cora.engine.reference.tables import Entry, MapTable, MeterTable
from cora.engine.results import Event, Options
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.types import EntryRef, bits_of
from cora.testing import Packet

# Entry identity: the state and a number given at the first sight of the entry object (a bucket: of its key).
Identity = tuple[str, int]


@dataclass(frozen=True)
class Access:
    """One access of a packet: where on its path, what, to which entry (None: none was found or made), by which key.

    ``fields``: of the entry as it was found, the key of the bucket for a meter; ``timeout``: its class then.
    """

    position: int
    index: int
    kind: str
    component: str
    entry: Identity | None
    fields: dict[str, int]
    timeout: str = ""


@dataclass
class Passage:
    """One way of a packet through the program, with the entries as they were before it began."""

    packet: Packet
    blocks: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    follower: bool = False
    events: list[Event] = field(default_factory=list)


class Watched:
    """A reference interpreter that tells which entries every packet touched.

    ``planting``: of the look-ups in maps that would find nothing every other one finds an entry that is made on the
    spot, as if other packets had made it before: traffic alone would take long to fill a map with all kinds of keys.
    """

    def __init__(self, program: Program, options: Options, planting: int | None = None) -> None:
        self.program = program
        self.planting = None if planting is None else Random(planting)
        self.options = options
        self.engine = Reference(program, options)
        self.components = components_of(program)
        self.blocks = {b.label: b for b in program.blocks}
        self.given: dict[int, tuple[object, int]] = {}
        self.buckets: dict[tuple[str, tuple[int, ...]], int] = {}
        # What the tables were asked during the current packet, in order.
        self.heard: list[tuple[str, Any]] = []
        self.asked: set[tuple[str, str, tuple[int, ...]]] = set()
        states = self.engine._states
        for name, table in states.maps.items():
            self._listen_map(name, table)
        for name, meter in states.meters.items():
            self._listen_meter(name, meter)

    def _listen_map(self, name: str, table: MapTable) -> None:
        lookup, insert = table.lookup, table.insert

        def looked_up(key: str, operands: tuple[int, ...]) -> Entry | None:
            found = lookup(key, operands)
            # No entry appears while a packet is processed: what it asked for before is not made now.
            fresh = (name, key, operands) not in self.asked
            self.asked.add((name, key, operands))
            if found is None and fresh and self.planting is not None and self.planting.random() < 0.5:
                found = self._planted(table, key, operands)
            self.heard.append((name, None if found is None else self._snapshot(found)))
            return found

        def inserted(*args: Any) -> Entry | None:
            made = insert(*args)
            self.heard.append((name, None if made is None else self._snapshot(made)))
            return made

        table.lookup = looked_up  # type: ignore[method-assign]  # the table is watched from outside
        table.insert = inserted  # type: ignore[method-assign, assignment]  # likewise

    def _planted(self, table: MapTable, key: str, operands: tuple[int, ...]) -> Entry | None:
        """A new entry with that key and other fields at random; None where there is no room or another key is taken."""
        assert self.planting is not None, "asked for where entries are planted"
        values = {f.name: self.planting.getrandbits(bits_of(f.type)) for f in table.decl.fields}
        fields = next(k.fields for k in table.decl.keys if k.name == key)
        values.update(zip(fields, operands, strict=True))
        entry = Entry(values)
        taken = any(table.key_of(entry, k.name) in table.keys[k.name] for k in table.decl.keys)
        if taken or len(table) >= table.decl.capacity:
            return None
        table.attach(entry, self.planting.choice([*table.timeouts] or [""]), self.engine.now)
        return entry

    def _listen_meter(self, name: str, meter: MeterTable) -> None:
        police = meter.police

        def charged(key: tuple[int, ...], size: int, now: int) -> str:
            known = key in meter.by_key
            colour = police(key, size, now)
            number = self.buckets.setdefault((name, key), len(self.buckets))
            fields = {f.name: v for f, v in zip(meter.decl.fields, key, strict=True)}
            self.heard.append((name, (number, fields, "") if known else None))
            return colour

        meter.police = charged  # type: ignore[method-assign]  # likewise

    def _snapshot(self, entry: Entry) -> tuple[int, dict[str, int], str]:
        _, number = self.given.setdefault(id(entry), (entry, len(self.given)))
        return number, dict(entry.values), entry.timeout

    def process(self, packet: Packet) -> Iterator[Passage]:
        """Run one packet; held fragments that it releases are passages of their own."""
        steps: list[TraceStep] = []
        self.heard = []
        self.asked = set()
        events = self.engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, steps)
        heard = iter(self.heard)
        passage: Passage | None = None
        entries: dict[str, tuple[Identity, dict[str, int], str]] = {}
        index = 0
        for step in steps:
            first = self.program.blocks[0]
            if step.block == first.label and step.node is (*first.instructions, first.terminator)[0]:
                if passage is not None:
                    yield passage
                passage = Passage(packet, follower=passage is not None)
                passage.events = events
                entries = {}
            assert passage is not None, "every passage starts with the first block"
            if not passage.blocks or len(passage.outcomes) == len(passage.blocks):
                passage.blocks.append(step.block)
                index = 0
            self._note(passage, index, step, heard, entries)
            index += 1
            if step.node is self.blocks[step.block].terminator and nodes.successors(step.node):
                passage.outcomes.append(step.outcome)
        if passage is not None:
            yield passage

    def _note(self, passage: Passage, index: int, step: TraceStep, heard: Iterator[tuple[str, Any]],
              entries: dict[str, tuple[Identity, dict[str, int], str]]) -> None:
        node = step.node
        position = len(passage.blocks) - 1
        if isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police):
            if isinstance(self.program.state(node.state), nodes.AclState | nodes.LpmState):
                return
            name, found = next(heard)
            assert name == node.state, "tables are heard in the order of the steps"
            identity, fields, timeout = (None, {}, "") if found is None else ((name, found[0]), *found[1:])
            if identity is not None and not isinstance(node, nodes.Police):
                entries[node.entry.name] = (identity, fields, timeout)
            self._add(passage, position, index, node.mnemonic, name, identity, fields, timeout)
        elif isinstance(node, nodes.LoadEntry | nodes.StoreEntry | nodes.Touch | nodes.Delete):
            assert isinstance(node.entry.type, EntryRef), "entry instructions take references"
            if node.entry.name in entries:
                self._add(passage, position, index, node.mnemonic, node.entry.type.state, *entries[node.entry.name])
        elif isinstance(node, nodes.TrackFragment):
            self._add(passage, position, index, "track", node.state, None, {})

    def _add(self, passage: Passage, position: int, index: int, kind: str, state: str, entry: Identity | None,
             fields: dict[str, int], timeout: str = "") -> None:
        passage.accesses.append(Access(position, index, kind, self.components[state], entry, fields, timeout))


@dataclass(frozen=True)
class Claims:
    """What an analysis says of a program: its anchors and how it aligns a path. May be those of another program."""

    anchors: Sequence[Anchor]
    align: Callable[[Sequence[str], Sequence[str]], Alignment]


def arrived_fields(program: Program, passage: Passage, options: Options) -> Arrived:
    """The packet as it arrived, with the headers found that its path found."""
    packet = Arrived(passage.packet.frame, passage.packet.wirelen, options)
    blocks = {b.label: b for b in program.blocks}
    for label, outcome in zip(passage.blocks, passage.outcomes, strict=False):
        node = blocks[label].terminator
        if isinstance(node, nodes.Extract) and outcome == "ok":
            packet.extract(node)
    return packet


def key_on_arrival(anchor: Anchor, packet: Arrived, port: int) -> tuple[int | None, ...]:
    """The key that a packet has by the fields it arrived with; None for a computed part."""
    found: list[int | None] = []
    for part in anchor.parts:
        if part.header == "meta":
            found.append(port if part.field == "port" else None)
        elif part.header:
            found.append(packet.load(part.header, part.field) if part.header in packet.at else -1)
        else:
            found.append(part.value)
    return tuple(found)


def violations(program: Program, component: str, claims: Claims, packets: Iterable[Packet],
               options: Options = Options(), planting: int | None = None) -> Iterator[str]:  # noqa: B008 (immutable)
    """What is wrong with the claims about a component, on these packets; ``planting`` as in `Watched`."""
    watched = Watched(program, options, planting)
    met: dict[tuple[Identity, str], tuple[int | None, ...]] = {}
    for number, packet in enumerate(packets):
        for passage in watched.process(packet):
            if passage.follower:
                continue
            for text in _of_passage(program, component, claims, passage, options, met):
                yield f"packet {number}: {text}"


def _of_passage(program: Program, component: str, claims: Claims, passage: Passage, options: Options,
                met: dict[tuple[Identity, str], tuple[int | None, ...]]) -> Iterator[str]:
    alignment = claims.align(passage.blocks, passage.outcomes)
    mine = [a for a in passage.accesses if a.component == component]
    end = alignment.owner_from
    near = [a for a in mine if end is None or (a.position, a.index) < end]
    far = [a for a in mine if a not in near]
    for access in near:
        if access.kind in ("insert", "delete", "track"):
            yield f"{access.kind} away from the owner"
        elif access.entry is None and access.kind == "lookup":
            yield "a look-up that finds nothing, away from the owner"
    entries = {a.entry for a in near if a.entry is not None}
    if len(entries) > 1:
        yield "two entries away from the owner"
    if not entries:
        return
    if alignment.anchor is None:
        yield "an entry without an anchor"
        return
    others = {a.entry for a in far if a.entry is not None and a.kind != "insert"} - entries
    made = {a.entry for a in far if a.kind == "insert"}
    if others - made:
        yield "another entry after a lent one"
    yield from _anchored(program, claims, passage, alignment.anchor, near, options, met)


def _anchored(program: Program, claims: Claims, passage: Passage, at: int, near: Sequence[Access], options: Options,
              met: dict[tuple[Identity, str], tuple[int | None, ...]]) -> Iterator[str]:
    anchor = next(a for a in claims.anchors if a.block == passage.blocks[at])
    first = near[0]
    if first.position != at:
        yield "an entry before the anchor"
        return
    port = program.ports[passage.packet.port].name
    if port not in anchor.ports:
        yield f"a packet from {port}, which the anchor does not know"
    arrived = arrived_fields(program, passage, options)
    key = key_on_arrival(anchor, arrived, passage.packet.port)
    real = tuple(first.fields[f] for f in anchor.fields)
    if any(k is not None and k != r for k, r in zip(key, real, strict=True)):
        yield f"the entry {real} by the key {key}"
    assert first.entry is not None, "an anchor hits"
    before = met.setdefault((first.entry, anchor.key), key)
    if None not in (*key, *before) and before != key:
        yield f"one entry by two steering keys: {before} and {key}"


