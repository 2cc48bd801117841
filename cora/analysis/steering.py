"""Whether cores that share nothing can divide a component of state, each getting its packets by a steering hash.

The card spreads packets by fields of their own headers (receive-side scaling). That works for a component when all
packets that meet at one entry have one steering key: the entry fields that are steered by must be header fields of the
packet wherever the entry is looked up, on every port. A second key onto the same entries meets the first either by
fields that both have, or by a pool value that the core chooses so that it leads back to itself.

This asks for more than lending does (`cora.analysis.sharding`), where one near table serves all packets of a place: a
packet led by the one it quotes meets a lent entry, but the card would send it to another core.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cora.analysis.sharding import Analysis, Anchor, Component, Insertion, OwnerOnly, Reason, analysis_of, part_of
from cora.analysis.symbolic import is_upper
from cora.ir import nodes
from cora.ir.nodes import Program

Meeting = Literal["one key", "common fields", "pool value", ""]


@dataclass(frozen=True)
class SteeringKey:
    """What packets of one kind on a port are steered by.

    ``headers``: the network and the upper header they have (``l4``: TCP or UDP), empty where any will do. ``fields``:
    pairs of an entry field and the header field (or number) that packets have for it; any of them that differs between
    flows, or several, may be hashed, the same ones on every port.
    """

    port: str
    headers: tuple[str, str]
    key: str
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Steering:
    """How cores may divide one component.

    Attributes:
        meeting: how packets with different keys of one entry meet: by ``common fields``, by a ``pool value`` that the
            core chooses, or trivially (``one key``); empty when they cannot.
        elsewhere: accesses at which a packet may be at another core than the entry: it has to be handed over.
        refusals: why cores can not divide it.
    """

    component: str
    keys: tuple[SteeringKey, ...]
    meeting: Meeting
    elsewhere: tuple[OwnerOnly, ...]
    refusals: tuple[Reason, ...]

    @property
    def divides(self) -> bool:
        return not self.refusals


def steering_of(program: Program, component: str) -> Steering:
    """How cores that share nothing may divide a component.

    Raises:
        KeyError: the program has no such component.
    """
    analysis = analysis_of(program)
    return _Search(analysis, analysis.components[component]).steering()


class _Search:
    """The choice of steering keys for one component."""

    def __init__(self, analysis: Analysis, component: Component) -> None:
        self.analysis = analysis
        self.component = component
        self.declared = [s for s in component.states if isinstance(s, nodes.MapState | nodes.MeterState)]
        # Anchors that the card can lead packets to: all of the key is in the packet's own headers.
        self.led = [a for a in component.anchors.values()
                    if a.plain and not a.quoted and a.always and not any(p.header == "meta" for p in a.parts)]
        self.chosen: list[SteeringKey] = []

    def steering(self) -> Steering:
        meeting, wanted = self._meeting()
        for anchor in self.led if meeting else ():
            self._choose(anchor, wanted)
        keys = tuple(self.chosen)
        elsewhere = tuple(self._elsewhere(wanted)) if meeting else ()
        return Steering(self.component.name, keys, meeting, elsewhere, tuple(self._refusals(meeting)))

    def _meeting(self) -> tuple[Meeting, frozenset[str]]:
        """How the keys meet, and the entry fields to steer by; no fields: each key by its own."""
        used = {(a.state, a.key): frozenset(a.fields) for a in self.led}
        if not used:
            return "", frozenset()
        by_state: dict[str, list[frozenset[str]]] = {}
        for (state, _), fields in used.items():
            by_state.setdefault(state, []).append(fields)
        if all(len(keys) == 1 for keys in by_state.values()):
            return "one key", frozenset()
        common = frozenset.intersection(*used.values())
        if common and len(by_state) == 1 and self._leads(common):
            return "common fields", common
        if all(self._chosen_by_pool(s) for s, keys in by_state.items() if len(keys) > 1):
            return "pool value", frozenset()
        return "", frozenset()

    def _leads(self, wanted: frozenset[str]) -> bool:
        """Whether every anchor has a header field, not only numbers, among these entry fields."""
        return all(any(p.header for f, p in zip(a.fields, a.parts, strict=True) if f in wanted) for a in self.led)

    def _chosen_by_pool(self, name: str) -> bool:
        state = self.analysis.program.state(name)
        if not isinstance(state, nodes.MapState):
            return False
        allocated = {f for a in state.allocs for f in a.fields}
        return all(allocated.issuperset(k.fields) for k in state.keys[1:])

    def _choose(self, anchor: Anchor, wanted: frozenset[str]) -> None:
        fields = _fields(anchor, wanted)
        for port in anchor.ports:
            known = self._of(port, anchor.headers)
            clash = any(k.fields != fields for k in known)
            if not clash and not any(_covers(k.headers, anchor.headers) for k in known):
                self.chosen.append(SteeringKey(port, anchor.headers, _key_name(anchor), fields))

    def _of(self, port: str, headers: tuple[str, str]) -> list[SteeringKey]:
        """The keys chosen for packets of a port that may have these headers: the card steers each of them by one."""
        return [k for k in self.chosen if k.port == port and _overlap(k.headers, headers)]

    # What does not meet.

    def _elsewhere(self, wanted: frozenset[str]) -> Iterator[OwnerOnly]:
        for label in self.component.rejected:
            yield self._away(label, "lookup", "it leads to a second entry, or its key comes out of one: that may be "
                                              "another core's")
        for anchor in self.component.anchors.values():
            reason = self._astray(anchor, wanted)
            if reason:
                yield self._away(anchor.block, "lookup", reason)
        for insertion in self.component.insertions:
            reason = self._misplaced(insertion, wanted)
            if reason:
                yield self._away(insertion.block.label, "insert", reason)
        yield from self._fragments()

    def _away(self, label: str, kind: str, reason: str) -> OwnerOnly:
        span = self.analysis.blocks[label].terminator.span
        return OwnerOnly(self.component.name, label, kind, reason, span)

    def _astray(self, anchor: Anchor, wanted: frozenset[str]) -> str:
        """Why packets may be at another core than the entry this anchor leads to; empty when they are not."""
        if anchor.quoted:
            return "its key is read from the packet that an ICMP error quotes: the card steers by the outer headers"
        if not anchor.always:
            return "its key is not made of the packet's own headers on every way"
        if anchor not in self.led:
            return "its key is computed: the card steers by header fields"
        fields = _fields(anchor, wanted)
        for port in anchor.ports:
            for key in self._of(port, anchor.headers):
                if key.fields != fields:
                    return (f"packets from '{port}' with {_listed(anchor.headers)} are steered by other fields "
                            f"({', '.join(h for _, h in key.fields)})")
        return ""

    def _misplaced(self, insertion: Insertion, wanted: frozenset[str]) -> str:
        """Why an inserted entry may belong to another core than the packet that makes it; empty when it does not."""
        for number in sorted(insertion.ports):
            port = self.analysis.program.ports[number].name
            known = self._of(port, insertion.headers)
            if not any(_covers(k.headers, insertion.headers) for k in known):
                return f"packets from '{port}' with {_listed(insertion.headers)} are not steered for it"
            for name, header in (pair for key in known for pair in key.fields):
                value = insertion.values.get(name)
                if value is None:
                    return f"packets from '{port}' are steered by '{name}', which a pool gives only now"
                if str(part_of(value)) != header:
                    return (f"the new entry's '{name}' is not '{header}', by which the packet was steered: its later "
                            "packets go to another core")
        return ""

    def _fragments(self) -> Iterator[OwnerOnly]:
        program = self.analysis.program
        uses_ports = any(is_upper(h.partition(".")[0]) for k in self.chosen for _, h in k.fields)
        if not uses_ports:
            return
        reason = "later fragments have no ports: the card steers them by addresses alone"
        told_apart = [b.label for b in program.blocks if isinstance(b.terminator, nodes.IsFragment)]
        families = {k.headers[0] for k in self.chosen}
        tracked = [b.label for b in program.blocks
                   if isinstance(b.terminator, nodes.TrackFragment) and families & {b.terminator.header, ""}]
        # A program that does not tell fragments apart takes what stands in them for a header.
        for label in tracked or ([] if told_apart else [a.block for a in self.led[:1]]):
            yield self._away(label, "fragment", reason)

    def _refusals(self, meeting: Meeting) -> Iterator[Reason]:
        yield from self.analysis.shardings[self.component.name].refusals
        if not self.declared:
            return
        if not meeting:
            yield Reason(self._why_not(), self.declared[0].span)
        for state in self.component.states:
            if isinstance(state, nodes.MapState | nodes.MeterState | nodes.PoolState) and not state.per_shard:
                what = "its values are" if isinstance(state, nodes.PoolState) else "its capacity is"
                yield Reason(f"'{state.name}' is one for all cores: {what} not divided; write 'per_shard' where every "
                             "core may have its part", state.span)

    def _why_not(self) -> str:
        if not self.led:
            return (f"no look-up of '{self.component.name}' has a key made of the packet's own header fields, by which "
                    "the card could steer")
        return (f"the keys of '{self.component.name}' share no field, and the second one is not given by a pool: "
                "packets of the two directions cannot be led to one core")


def _fields(anchor: Anchor, wanted: frozenset[str]) -> tuple[tuple[str, str], ...]:
    pairs = zip(anchor.fields, anchor.parts, strict=True)
    return tuple(sorted((f, str(p)) for f, p in pairs if not wanted or f in wanted))


def _key_name(anchor: Anchor) -> str:
    return f"{anchor.state}.{anchor.key}" if anchor.key else anchor.state


def _overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether packets may have the headers of both kinds."""
    return all(not a or not b or a == b for a, b in zip(one, other, strict=True))


def _covers(general: Sequence[str], special: Sequence[str]) -> bool:
    """Whether packets with the second headers all have the first."""
    return all(not a or a == b for a, b in zip(general, special, strict=True))


def _listed(headers: Iterable[str]) -> str:
    return "/".join(h for h in headers if h) or "any headers"
