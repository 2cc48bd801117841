"""What the packets of a plan cost, path class by path class and source line by source line.

An account of its own beside the planner's tables: every path of the profile is followed through the placement, and the
target is asked again for each instruction, access and crossing. The sum over all packets is what the plan says of its
resources; a test holds the two together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cora.analysis.accesses import accesses_of
from cora.analysis.demand import expiries_per_packet
from cora.analysis.prefixes import Edge, Node, Piece
from cora.analysis.profile import PathUse
from cora.ir.nodes import Block, Forward, Jump, Reject, successors
from cora.ir.span import Span
from cora.models.target import Refusal
from cora.partition.instance import Instance
from cora.partition.placement import Placement
from cora.plan.document import LATENCY, Cost, PathClass, Source, Spending
from cora.plan.sources import source_of, verdict_of

Amounts = Mapping[str, float]
# (history, verdict, place of its end): what tells path classes apart.
_Class = tuple[tuple[str, ...], str, str]


@dataclass(frozen=True)
class _Spot:
    what: Spending
    subject: str
    place: str
    source: Source | None


@dataclass(frozen=True)
class _Item:
    spot: _Spot
    amounts: Amounts


def costs_of(instance: Instance, placement: Placement, classes: Sequence[PathClass]) -> tuple[Cost, ...]:
    """The costs of a placement's packets; ``classes`` are the plan's, which the rows refer to by number."""
    return _Account(instance, placement).costs(classes)


def _add(into: dict[str, float], amounts: Amounts, times: float) -> None:
    for name, amount in amounts.items():
        if amount:
            into[name] = into.get(name, 0.0) + times * amount


class _Account:
    def __init__(self, instance: Instance, placement: Placement) -> None:
        self.instance, self.placement = instance, placement
        self.program, self.profile, self.target = instance.program, instance.profile, instance.target
        self.frame = self.profile.mean_frame
        self.graph = instance.graph
        self.places = placement.nodes
        self.edges = {(e.source, e.outcome): e for e in self.graph.edges}
        self.blocks: dict[tuple[str, int, int], list[_Item]] = {}
        self.sources: dict[Span, Source] = {}

    def costs(self, classes: Sequence[PathClass]) -> tuple[Cost, ...]:
        number = {(c.history, c.verdict, c.ends): i for i, c in enumerate(classes)}
        packets: dict[int, int] = defaultdict(int)
        spent: dict[int, dict[_Spot, dict[str, float]]] = defaultdict(dict)
        for path in self.profile.paths:
            if not path.packets:
                continue
            walk = list(self.walk(path))
            here = number[self.class_of(walk[-1][0])]
            packets[here] += path.packets
            for item in self.items(walk):
                _add(spent[here].setdefault(item.spot, {}), item.amounts, path.packets)
        rows = [_row(i, spot, {n: a / packets[i] for n, a in amounts.items()})
                for i in sorted(spent) for spot, amounts in spent[i].items()]
        rows += [_row(None, i.spot, i.amounts) for i in self.beside()]
        return tuple(r for r in rows if r.amounts)

    def class_of(self, number: int) -> _Class:
        last = self.graph.nodes[number]
        return (last.history or (), verdict_of(last.piece.block.terminator), self.name(self.places[number]))

    def name(self, place: int) -> str:
        return self.target.places[place].name

    def walk(self, path: PathUse) -> Iterator[tuple[int, Edge | None]]:
        """The nodes a path takes, each with the edge it came by."""
        at, edge = 0, None
        outcomes = iter(path.outcomes)
        while True:
            yield at, edge
            piece = self.graph.nodes[at].piece
            if piece.last and not successors(piece.block.terminator):
                return
            edge = self.edges[at, next(outcomes) if piece.last else "next"]
            at = edge.target

    def items(self, walk: Sequence[tuple[int, Edge | None]]) -> Iterator[_Item]:
        first, last = walk[0][0], walk[-1][0]
        yield self.arrival(self.places[first])
        for at, edge in walk:
            if edge is not None and self.places[at] > self.places[edge.source]:
                yield self.hand_over(self.places[edge.source], self.places[at], edge.live_bytes)
            yield from self.code(self.graph.nodes[at].piece, self.places[at])
        yield from self.departure(self.graph.nodes[last], self.places[last])

    def beside(self) -> Iterator[_Item]:
        """What is charged to all packets alike."""
        yield _Item(_Spot("wire", "", self.name(0), None), self.target.wire(self.frame))
        for state in self.program.states:
            dying = expiries_per_packet(self.program, self.profile, state)
            if dying:
                home = self.placement.states[state.name][0]
                amounts = {n: dying * a for n, a in self.access(state.name, "delete").items()}
                yield _Item(_Spot("ageing", state.name, self.name(home), self.source(state.span)), amounts)

    # Movements.

    def arrival(self, place: int) -> _Item:
        """Bringing a packet to the place its program starts at, and taking it there."""
        packets = sum(n for n, _ in self.profile.ports.values())
        hosted = sum(self.profile.ports.get(p.name, (0, 0))[0] for p in self.program.ports if "wire" not in p.faces)
        share = hosted / packets if packets else 0.0
        total: dict[str, float] = {}
        self.visit(total, place)
        self.travel(total, 0, place, 1 - share, 0)
        self.travel(total, len(self.target.places) - 1, place, share, 0)
        return _Item(_Spot("arrival", "", self.name(place), None), total)

    def hand_over(self, start: int, stop: int, live_bytes: int) -> _Item:
        total: dict[str, float] = {}
        self.travel(total, start, stop, 1.0, live_bytes)
        self.visit(total, stop)
        return _Item(_Spot("hand-over", self.name(start), self.name(stop), None), total)

    def departure(self, node: Node, place: int) -> Iterator[_Item]:
        end = node.piece.block.terminator
        if not node.piece.last or not isinstance(end, Forward | Reject):
            return
        port = end.port if isinstance(end, Forward) else ""
        to_wire = all("wire" in p.faces for p in self.program.ports if p.name == port)
        stop = 0 if to_wire else len(self.target.places) - 1
        total: dict[str, float] = {}
        self.travel(total, place, stop, 1.0, 0)
        yield _Item(_Spot("departure", self.name(place), self.name(stop), None), total)

    def travel(self, into: dict[str, float], start: int, stop: int, share: float, live_bytes: int) -> None:
        step = 1 if stop > start else -1
        for place in range(start, stop, step):
            if share:
                _add(into, self.target.crossing(place, place + step, self.frame, live_bytes), share)
                _add(into, {LATENCY: self.target.crossing_latency(place, place + step, self.frame)}, share)

    def visit(self, into: dict[str, float], place: int) -> None:
        _add(into, self.target.per_packet(place), 1.0)
        _add(into, {LATENCY: self.target.latency(place)}, 1.0)

    # What lines of the program do.

    def code(self, piece: Piece, place: int) -> list[_Item]:
        key = (piece.label, piece.part, place)
        if key not in self.blocks:
            self.blocks[key] = [*self.instructions(piece.block, place), *self.accesses(piece.block, place)]
        return self.blocks[key]

    def instructions(self, block: Block, place: int) -> Iterator[_Item]:
        """A block's own cost, shared out over its lines as its instructions would cost one by one."""
        whole = self.priced(block, place)
        empty = Jump(block.label, (), block.span)
        nothing = self.priced(Block(block.label, (), (), empty, block.span), place)
        alone = [(n.span, _less(self.priced(Block(block.label, (), (n,), empty, block.span), place), nothing))
                 for n in block.instructions]
        end = block.terminator
        alone.append((end.span, self.priced(Block(block.label, (), (), end, block.span), place)))
        name = self.name(place)
        for resource, amount in whole.items():
            parts = sum(a.get(resource, 0.0) for _, a in alone)
            for span, amounts in alone:
                part = amounts.get(resource, 0.0) / parts if parts else float(span is end.span)
                if part:
                    yield _Item(_Spot("code", "", name, self.source(span)), {resource: amount * part})

    def priced(self, block: Block, place: int) -> Amounts:
        answer = self.target.block(self.program, block, place)
        return {} if isinstance(answer, Refusal) else answer

    def accesses(self, block: Block, place: int) -> Iterator[_Item]:
        name = self.name(place)
        for node in (*block.instructions, block.terminator):
            for state, kind in accesses_of(self.program, node):
                yield _Item(_Spot("access", state, name, self.source(node.span)), self.access(state, kind))

    def access(self, state: str, kind: str) -> Amounts:
        place, tier = self.placement.states[state]
        answer = self.target.access(self.program, self.program.state(state), kind, place, tier,
                                    self.instance.rates[state])
        assert not isinstance(answer, Refusal), "the plan was checked"
        return answer

    def source(self, span: Span) -> Source:
        """Spots of one line are one spot: the source without its column."""
        if span not in self.sources:
            found = source_of(span)
            self.sources[span] = Source(found.file, found.line, 1, found.text)
        return self.sources[span]


def _row(path: int | None, spot: _Spot, amounts: Amounts) -> Cost:
    kept = {n: float(f"{a:.6g}") for n, a in amounts.items() if a}
    return Cost(path, spot.what, spot.subject, spot.place, spot.source, kept)


def _less(amounts: Amounts, other: Amounts) -> Amounts:
    return {n: max(0.0, a - other.get(n, 0.0)) for n, a in amounts.items()}
