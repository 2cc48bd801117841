"""Floods: endless traffic that takes one path of a program, found by trying packets.

A witness is a packet that took a path. A flood repeats it, after the packets that the path needs: either the very same
packet, or each with other values in the fields that make up the keys of tables, so that every packet is of a new flow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
# The last packets before a witness that may be what it needs, and how often they are tried without some.
_WINDOWS = (0, 32, 256)
_SHRINKS = 60
# Sources a flood comes from, by port, so that a port map can tell its ports apart.
_SOURCE_MAC = 0x020000000001
_EPHEMERAL = 1024

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

    def specs(self) -> Iterator[Spec]:
        """All packets in order, without an end."""
        yield from self.opening
        numbers = itertools.count()
        if self.filling is not None:
            for _ in range(self.fills):
                yield numbered(self.filling, self.varied, next(numbers))
        while True:
            yield numbered(self.body, self.varied, next(numbers))

    def packets(self, gap_ns: int = GAP_NS) -> Iterator[Packet]:
        """The packets with their times; each port's come from a source address of its own (`mac_of`)."""
        for i, spec in enumerate(self.specs()):
            yield packet_of(spec, START_NS + i * gap_ns)


def packet_of(spec: Spec, time_ns: int) -> Packet:
    """A described packet, sent from its port's source address."""
    sent = spec if ("eth", "src") in spec.fields else replace(
        spec, fields={**spec.fields, ("eth", "src"): _SOURCE_MAC + spec.port})
    frame, wirelen = build(sent)
    # What is shorter than a frame on the wire is padded there.
    padded = frame.ljust(60, b"\0") if wirelen == len(frame) else frame
    return Packet(spec.port, time_ns, padded, max(wirelen, len(padded)))


def numbered(spec: Spec, varied: Sequence[Field], number: int) -> Spec:
    """The packet with the values of a number in the varied fields, all different as far as the fields have room."""
    if not varied:
        return spec
    made = spec.copy()
    for header, name in varied:
        if (header, name) == FRAGMENT:
            assert made.fragment is not None, "only fragments have a number"
            made.fragment = (*made.fragment[:2], number & 0xFFFF)
            continue
        declared = field_of(header, name)
        assert declared is not None, "only fields of headers are varied"
        bits = min(declared.bits, 16)
        low = _EPHEMERAL if name in ("sport", "dport") else 0
        room = (1 << bits) - low
        number, digit = divmod(number, room)
        base = spec.fields.get((header, name), 0)
        retarget(made, header, name, (base >> bits << bits) | (low + digit))
    return made


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
        spec = replace(witness.spec.copy(), payload=_least_payload(witness.spec))
        filled = self.filling(key)
        pieces = [] if spec.fragment is None else [(FRAGMENT,)]
        for varied in ((), *pieces, *self.variations(key)):
            if filled is None:
                opening = self.opening(witness, spec, varied)
                if opening is not None:
                    yield self.flood(opening, None, "", spec, varied)
            elif varied:
                filling, state = filled
                yield self.flood((), filling, state, spec, varied)

    def flood(self, opening: Sequence[Spec], filling: Spec | None, state: str, body: Spec,
              varied: Sequence[Field]) -> Flood:
        """The flood with what it does in the end."""
        # Some packets may find the same place in a full table; a few more fill it all.
        fills = 0 if filling is None else getattr(self.program.state(state), "capacity", 0) + SMALL
        made = Flood(tuple(opening), filling, min(fills, 2 * SMALL), body, tuple(varied), {})
        taken = self.trial(made)
        mix = {key: taken.count(key) / len(taken) for key in dict.fromkeys(taken) if key is not None}
        return replace(made, fills=fills, mix=mix)

    def trial(self, flood: Flood) -> list[PathKey | None]:
        """The paths that the last packets of a trial take."""
        engine = Reference(self.witnesses.program, self.options)
        before = len(flood.opening) + flood.fills
        found: list[PathKey | None] = []
        for i, packet in enumerate(itertools.islice(flood.packets(), before + TRIAL)):
            trace: list[TraceStep] = []
            engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, trace)
            if i >= before + TRIAL // 2:
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
