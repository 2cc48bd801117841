"""Floods: endless traffic that takes one path of a program, found by trying packets.

A witness is a packet that took a path. A flood repeats it, after the packets that the path needs: either the very same
packet, or each with other values in the fields that make up the keys of tables, so that every packet is of a new flow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cora.engine.reference import Reference, TraceStep
from cora.engine.results import Options
from cora.ir import nodes
from cora.ir.headers import field_of
from cora.ir.nodes import Program, State, Terminator, Value, successors
from cora.testing.choices import RandomChoices
from cora.testing.coverage import Search
from cora.testing.frames import Packet, Spec, build, retarget
from cora.testing.packets import Harvest
from cora.testing.shrink import fewer

BUDGET = 3000
# Tables of the search hold so many entries at most, so that they can be full.
SMALL = 48
START_NS = 1_700_000_000 * 10**9
GAP_NS = 100
# Packets of a trial; the second half is what lasts.
TRIAL = 24
# Flows that there have to be beyond those that fill a table.
ROOM = 1 << 20
# The last packets before a witness that may be what it needs, and how often they are tried without some.
_WINDOWS = (0, 32, 256)
_SHRINKS = 60
# Sources a flood comes from, by port, so that a port map can tell its ports apart.
_SOURCE_MAC = 0x020000000001
_EPHEMERAL = 1024
_MOST_BITS = 24
_CHUNK = 4096
_ONES = 0xFFFF
_UDP = 17

Field = tuple[str, str]
# The number that the fragments of one datagram share.
FRAGMENT: Field = ("fragment", "id")
PathKey = tuple[tuple[str, ...], tuple[str, ...]]


def mac_of(port: int) -> str:
    """The source address of a flood's packets on a port, as a port map takes it."""
    return ":".join(f"{octet:02x}" for octet in (_SOURCE_MAC + port).to_bytes(6, "big"))


@dataclass(frozen=True)
class Witness:
    """A packet that took a path as the ``at``-th of a search."""

    key: PathKey
    spec: Spec
    at: int


@dataclass(frozen=True)
class Flood:
    """``opening`` once, then ``filling`` as often as ``fills``, then ``body`` for ever.

    ``varied``: fields of filling and body that have other values in every packet; empty: the same packet again and
    again. ``mix``: share of body packets that take each path once the flood lasts.
    """

    opening: tuple[Spec, ...]
    filling: Spec | None
    fills: int
    body: Spec
    varied: tuple[Field, ...]
    mix: Mapping[PathKey, float]

    def packets(self, gap_ns: int = GAP_NS) -> Iterator[Packet]:
        """The packets with their times; each port's come from a source address of its own (`mac_of`)."""
        filled = self.fills if self.filling is not None else 0
        parts: list[Iterator[Packet]] = [iter([packet_of(spec) for spec in self.opening])]
        if self.filling is not None:
            parts.append(itertools.islice(_numbered(self.filling, self.varied, 0), filled))
        parts.append(_numbered(self.body, self.varied, filled))
        for i, packet in enumerate(itertools.chain(*parts)):
            yield replace(packet, time_ns=START_NS + i * gap_ns)


def packet_of(spec: Spec) -> Packet:
    """A described packet at time 0, sent from its port's source address."""
    sent = spec if ("eth", "src") in spec.fields else replace(
        spec, fields={**spec.fields, ("eth", "src"): _SOURCE_MAC + spec.port})
    frame, wirelen = build(sent)
    # What is shorter than a frame on the wire is padded there.
    padded = frame.ljust(60, b"\0") if wirelen == len(frame) else frame
    return Packet(spec.port, 0, padded, max(wirelen, len(padded)))


def _room(field: Field) -> tuple[int, int]:
    """The lowest value that is used of a field's varied bits, and how many there are."""
    if field == FRAGMENT:
        return 0, 1 << 16
    declared = field_of(*field)
    assert declared is not None, "only fields of headers are varied"
    bits = min(declared.bits, _MOST_BITS)
    low = _EPHEMERAL if field[1] in ("sport", "dport") else 0
    return low, (1 << bits) - low


def room_of(varied: Sequence[Field]) -> int:
    """How many packets have different values in the varied fields; 1 without any."""
    return math.prod(_room(f)[1] for f in varied)


def numbered(spec: Spec, varied: Sequence[Field], number: int) -> Spec:
    """The packet with the values of a number in the varied fields, all different as far as the fields have room."""
    if not varied:
        return spec
    made = spec.copy()
    for header, name in varied:
        low, room = _room((header, name))
        number, digit = divmod(number, room)
        if (header, name) == FRAGMENT:
            assert made.fragment is not None, "only fragments have a number"
            made.fragment = (*made.fragment[:2], digit)
            continue
        bits = (low + room - 1).bit_length()
        base = spec.fields.get((header, name), 0)
        retarget(made, header, name, (base >> bits << bits) | (low + digit))
    return made


def _numbered(spec: Spec, varied: Sequence[Field], first: int) -> Iterator[Packet]:
    """The packets of ``numbered`` from a number on, without an end."""
    if not varied:
        yield from itertools.repeat(packet_of(spec))
    template = _Template(spec, varied)
    for start in itertools.count(first, _CHUNK):
        yield from template.packets(start, _CHUNK)


class _Template:
    """Frames of many numbers at once.

    Every 16-bit word of a frame is linear in the 16-bit words of the numbers' digits: a field's own word plainly, a
    checksum's in ones' complement. The factors are found by building a few frames, and the result is tried on others;
    packets that are not linear are built one by one.
    """

    def __init__(self, spec: Spec, varied: Sequence[Field]) -> None:
        self.spec, self.varied = spec, varied
        self.rooms = [_room(f)[1] for f in varied]
        self.base = packet_of(numbered(spec, varied, 0))
        self.origin = self.words(0)
        self.factors = [self.factor(n) for n in self.units()]
        self.linear = all(
            self.frame(n) == packet_of(numbered(spec, varied, n)).frame for n in self.trials())

    def units(self) -> list[int]:
        """Per word of the digits the number that has 1 there and 0 elsewhere."""
        found: list[int] = []
        weight = 1
        for room in self.rooms:
            found += [weight, weight << 16] if room > 1 << 16 else [weight]
            weight *= room
        return found

    def trials(self) -> list[int]:
        """Numbers that the rule is tried on."""
        total = min(math.prod(self.rooms), 1 << 50)
        return [n % total for n in (1, 2, 255, 4095, 64_511, 65_535, 65_536, 123_457, total - 1, total // 3)]

    def words(self, number: int) -> NDArray[np.int64]:
        frame = packet_of(numbered(self.spec, self.varied, number)).frame
        even = frame + b"\0" * (len(frame) % 2)
        return np.frombuffer(even, ">u2").astype(np.int64)

    def factor(self, unit: int) -> NDArray[np.int64]:
        return (self.words(unit) - self.origin) % _ONES

    def digits(self, numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        found: list[NDArray[np.int64]] = []
        for room in self.rooms:
            numbers, digit = np.divmod(numbers, room)
            found += [digit & 0xFFFF, digit >> 16] if room > 1 << 16 else [digit]
        return found

    def frames(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """[N, bytes] of the frames."""
        words = np.tile(self.origin, (len(numbers), 1))
        plain = np.all([f <= 1 for f in self.factors], axis=0)
        for digit, factor in zip(self.digits(numbers), self.factors, strict=True):
            words += digit[:, None] * factor
        # A word of a field never passes 65,535; a checksum is never all ones, but for UDP, where nought means none.
        words = np.where(plain, words, words % _ONES)
        if self.spec.upper == _UDP:
            words = np.where(plain | (words != 0), words, _ONES)
        return np.ascontiguousarray(words.astype(">u2")).view(np.uint8).reshape(len(numbers), -1)

    def frame(self, number: int) -> bytes:
        return self.frames(np.array([number], np.int64)).tobytes()[:len(self.base.frame)]

    def packets(self, first: int, count: int) -> Iterator[Packet]:
        """The packets of ``count`` numbers."""
        if not self.linear:
            yield from (packet_of(numbered(self.spec, self.varied, n)) for n in range(first, first + count))
            return
        size = len(self.base.frame)
        for row in self.frames(np.arange(first, first + count, dtype=np.int64)):
            yield replace(self.base, frame=row.tobytes()[:size])


class Witnesses(Search):
    """Searches packets for as many paths as it finds; tables are small, so that their being full is one of them."""

    def __init__(self, program: Program, seed: int, options: Options = Options()) -> None:  # noqa: B008
        """Nothing is sent yet."""
        super().__init__(small(program), RandomChoices(seed), options)
        self.found: dict[PathKey, Witness] = {}
        self.specs: list[Spec] = []

    def run(self, budget: int = BUDGET) -> dict[PathKey, Witness]:
        """Send ``budget`` packets: half of them search outcomes, the rest combine what was found."""
        while len(self.sent) < budget:
            if len(self.sent) < budget // 2 and self.coverage.missed:
                self.step(budget)
            else:
                self.send(self.traffic.spec())
        return self.found

    def saw(self, spec: Spec, own: Sequence[TraceStep]) -> None:
        """Keep the first packet of every path."""
        self.specs.append(spec.copy())
        key = key_of(own)
        if key is not None and key not in self.found and spec.raw_above is None:
            self.found[key] = Witness(key, spec.copy(), len(self.specs) - 1)


def key_of(own: Sequence[TraceStep]) -> PathKey | None:
    """The path a packet's own steps are; None when it did not start the program."""
    ends = [(s.block, s.node, s.outcome) for s in own if isinstance(s.node, Terminator)]
    if not ends:
        return None
    outcomes = tuple(outcome or successors(node)[0][0] for _, node, outcome in ends[:-1])
    return tuple(block for block, _, _ in ends), outcomes


def small(program: Program) -> Program:
    """The program with tables of at most `SMALL` entries."""
    return replace(program, states=tuple(_small(s) for s in program.states))


def _small(state: State) -> State:
    if isinstance(state, nodes.MapState | nodes.MeterState | nodes.FragmentState):
        return replace(state, capacity=min(state.capacity, SMALL))
    return state


class Floods:
    """Makes floods of witnesses."""

    def __init__(self, program: Program, witnesses: Witnesses, options: Options = Options()) -> None:  # noqa: B008
        """``program``: the real one; trials run on the one with small tables."""
        self.program = program
        self.witnesses = witnesses
        self.options = options
        self.harvest = Harvest(program)

    def of(self, key: PathKey) -> Iterator[Flood]:
        """Floods that begin with a witness's packet: the same again and again, and new flows in every packet."""
        witness = self.witnesses.found[key]
        spec = self.smallest(witness)
        filled = self.filling(key)
        pieces = [] if spec.fragment is None else [(FRAGMENT,)]
        for varied in ((), *pieces, *self.variations(key)):
            if filled is None:
                opening = self.opening(witness, spec, varied)
                if opening is not None:
                    yield self.flood(opening, None, "", spec, varied)
            elif varied and room_of(varied) >= self.capacity(filled[1]) + ROOM:
                filling, state = filled
                yield self.flood((), filling, state, spec, varied)

    def smallest(self, witness: Witness) -> Spec:
        """The witness's packet without what its path does not need, as far as it needs no packets before it."""
        bare = replace(witness.spec.copy(), payload=_least_payload(witness.spec))
        shorter = replace(bare.copy(), options=b"", tcp_options=b"", extensions=())
        if shorter != bare and self.trial(Flood((), None, 0, shorter, (), {}))[0] == witness.key:
            return shorter
        return bare

    def flood(self, opening: Sequence[Spec], filling: Spec | None, state: str, body: Spec,
              varied: Sequence[Field]) -> Flood:
        """The flood with what it does in the end."""
        # Some packets may find the same place in a full table; a few more fill it all.
        fills = 0 if filling is None else self.capacity(state) + SMALL
        made = Flood(tuple(opening), filling, min(fills, 2 * SMALL), body, tuple(varied), {})
        taken = self.trial(made)[1:]
        mix = {key: taken.count(key) / len(taken) for key in dict.fromkeys(taken) if key is not None}
        return replace(made, fills=fills, mix=mix)

    def capacity(self, state: str) -> int:
        """Entries that a table has room for."""
        found: int = getattr(self.program.state(state), "capacity", 0)
        return found

    def trial(self, flood: Flood) -> list[PathKey | None]:
        """The paths that packets of the body take: its first, then the second half of a trial's."""
        engine = Reference(self.witnesses.program, self.options)
        before = len(flood.opening) + flood.fills
        found: list[PathKey | None] = []
        for i, packet in enumerate(itertools.islice(flood.packets(), before + TRIAL)):
            trace: list[TraceStep] = []
            engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, trace)
            if i == before or i >= before + TRIAL // 2:
                found.append(key_of([s for s in trace if s.index == i]))
        return found

    def opening(self, witness: Witness, body: Spec, varied: Sequence[Field]) -> tuple[Spec, ...] | None:
        """As few packets as possible after which the body's takes the witness's path; None if they are not found."""
        def works(before: Sequence[Spec]) -> bool:
            return self.trial(Flood(tuple(before), None, 0, body, tuple(varied), {}))[-1] == witness.key

        for window in _WINDOWS:
            before = self.witnesses.specs[max(0, witness.at - window):witness.at]
            if works(before):
                return tuple(fewer(before, works, _SHRINKS)) if before else ()
        return None

    def filling(self, key: PathKey) -> tuple[Spec, str] | None:
        """For a path on which a table is full: a packet of a path that fills it, and the table's name."""
        full = [self.ends[label] for label, outcome in zip(*key, strict=False) if outcome == "full"]
        tables = [end.state for end in full if isinstance(end, nodes.Insert | nodes.Police | nodes.TrackFragment)]
        if not tables:
            return None
        return self.witnesses.found[key].spec.copy(), tables[0]

    @property
    def ends(self) -> Mapping[str, Terminator]:
        """Terminators by label."""
        return {b.label: b.terminator for b in self.program.blocks}

    def variations(self, key: PathKey) -> list[tuple[Field, ...]]:
        """Sets of header fields that make up keys on a path, those that tell flows of one client apart first."""
        operands: list[Value] = []
        for label in key[0]:
            end = self.ends[label]
            if isinstance(end, nodes.Lookup | nodes.Police):
                operands += end.operands
            elif isinstance(end, nodes.Insert):
                operands += end.values
        fields = list(dict.fromkeys(f for o in operands if (f := self.field(o)) is not None))
        ports = [f for f in fields if f[1] in ("sport", "id")]
        sources = [f for f in fields if f[1] == "src"]
        sets = [tuple(ports + sources), tuple(ports), tuple(sources), *((f,) for f in fields)]
        return [s for s in dict.fromkeys(sets) if s]

    def field(self, value: Value) -> Field | None:
        """The header field that a value is, as it arrived."""
        found = self.harvest.definitions.get(value.name)
        while isinstance(found, nodes.Cast):
            found = self.harvest.definitions.get(found.operand.name)
        if not isinstance(found, nodes.Load) or found.field in ("proto", "type", "next", "length"):
            return None
        return found.header, found.field


def _least_payload(spec: Spec) -> bytes:
    """Nothing that is not needed: frames as small as they can be."""
    needed = spec.quoted or spec.quoted_raw or spec.raw is not None or spec.flaws
    return spec.payload if needed else b""
