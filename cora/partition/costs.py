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
from cora.analysis.prefixes import Edge, Node, lent_name, state_of
from cora.analysis.profile import PathUse
from cora.ir.nodes import Block, Forward, Jump, Reject
from cora.ir.span import Span
from cora.models.target import Refusal
from cora.partition.instance import rules_of
from cora.partition.placement import Placement, Spot
from cora.partition.walks import Walk, Walks
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


def costs_of(placement: Placement, classes: Sequence[PathClass]) -> tuple[Cost, ...]:
    """The costs of a placement's packets; ``classes`` are the plan's, which the rows refer to by number."""
    return _Account(placement).costs(classes)


def _add(into: dict[str, float], amounts: Amounts, times: float) -> None:
    for name, amount in amounts.items():
        if amount:
            into[name] = into.get(name, 0.0) + times * amount


class _Account:
    def __init__(self, placement: Placement) -> None:
        instance = placement.instance
        self.instance, self.placement = instance, placement
        self.program, self.profile, self.target = instance.program, instance.profile, instance.target
        self.frame = self.profile.mean_frame
        self.graph = instance.graph
        self.places, self.virtual = placement.nodes, placement.assignment.places
        self.walks = Walks(instance)
        self.blocks: dict[tuple[int, int], list[_Item]] = {}
        self.sources: dict[Span, Source] = {}

    def costs(self, classes: Sequence[PathClass]) -> tuple[Cost, ...]:
        number = {(c.history, c.verdict, c.ends): i for i, c in enumerate(classes)}
        packets: dict[int, int] = defaultdict(int)
        spent: dict[int, dict[_Spot, dict[str, float]]] = defaultdict(dict)
        for path in self.profile.paths:
            for count, walk in self.walks.of(path):
                here = number[self.class_of(walk[-1][0])]
                packets[here] += count
                for item in self.items(path, walk):
                    _add(spent[here].setdefault(item.spot, {}), item.amounts, count)
        rows = [_row(i, spot, {n: a / packets[i] for n, a in amounts.items()})
                for i in sorted(spent) for spot, amounts in spent[i].items()]
        rows += [_row(None, i.spot, i.amounts) for i in self.beside()]
        return tuple(r for r in rows if r.amounts)

    def class_of(self, number: int) -> _Class:
        last = self.graph.nodes[number]
        return (last.history or (), verdict_of(last.piece.block.terminator), self.name(self.places[number]))

    def name(self, place: int) -> str:
        return self.target.places[place].name

    def items(self, path: PathUse, walk: Walk) -> Iterator[_Item]:
        first, last = walk[0][0], walk[-1][0]
        yield self.arrival(self.places[first])
        served = self.graph.nodes[last].lent
        yield from self.rule(path, served)
        for at, edge in walk:
            if edge is not None and self.virtual[at] > self.virtual[edge.source]:
                yield self.hand_over(edge)
            yield from self.code(at)
        yield from self.departure(self.graph.nodes[last], self.places[last])

    def rule(self, path: PathUse, served: bool) -> Iterator[_Item]:
        """The rules of decided flows: those of the path where it is served by one, else the look-up that finds none."""
        split = self.instance.variant.split
        cheapest = self.instance.cheapest_rule
        if split is None or split.mode != "restart" or cheapest is None:
            return
        template = split.templates[path.id if served else cheapest]
        answer = self.target.rule(self.program, template, split.near, rules_of(self.program, self.target, split))
        assert not isinstance(answer, Refusal), "the plan was checked"
        name = self.placement.instance.program.state(split.lends[0].anchored)
        yield _Item(_Spot("access", name.name, self.name(split.near), self.source(name.span)), answer)

    def beside(self) -> Iterator[_Item]:
        """What is charged to all packets alike."""
        yield _Item(_Spot("wire", "", self.name(0), None), self.target.wire(self.frame))
        for state in self.program.states:
            dying = expiries_per_packet(self.program, self.profile, state)
            if dying:
                spot = self.placement.states[state.name]
                home = spot[0]
                amounts = {n: dying * a for n, a in self.access(state.name, "delete", spot).items()}
                yield _Item(_Spot("ageing", state.name, self.name(home), self.source(state.span)), amounts)
        yield from self.lending()

    def lending(self) -> Iterator[_Item]:
        """Entries lent, and taken back early because a packet needs them."""
        split = self.instance.variant.split
        for lend in () if split is None else split.lends:
            assert split is not None
            tier = self.placement.states[lent_name(lend.anchored)][1]
            states = [self.program.state(s) for s in lend.states]
            span = self.program.state(lend.anchored).span
            for often, ask in ((lend.installs, self.target.install), (lend.recalls, self.target.recall)):
                answer = ask(self.program, states, split.near, split.owner, tier, lend.capacity)
                assert not isinstance(answer, Refusal), "the plan was checked"
                yield _Item(_Spot("lending", lend.anchored, self.name(split.near), self.source(span)),
                            {n: often * a for n, a in answer.items()})

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

    def hand_over(self, edge: Edge) -> _Item:
        total: dict[str, float] = {}
        physical = self.instance.problem.physical
        start, stop = self.places[edge.source], self.places[edge.target]
        for step in range(self.virtual[edge.source], self.virtual[edge.target]):
            self.travel(total, physical[step], physical[step + 1], 1.0, edge.live_bytes)
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

    def code(self, number: int) -> list[_Item]:
        key = (number, self.places[number])
        if key not in self.blocks:
            node, place = self.graph.nodes[number], self.places[number]
            split = self.instance.variant.split
            ruled = node.lent and split is not None and split.mode == "restart"
            self.blocks[key] = [] if ruled else [*self.instructions(node.piece.block, place), *self.accesses(number)]
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

    def accesses(self, number: int) -> Iterator[_Item]:
        """A node's accesses, each at its line; what is lent is told under the state's own name."""
        node = self.graph.nodes[number]
        name = self.name(self.places[number])
        block = node.piece.block
        spans = [n.span for n in (*block.instructions, block.terminator) for _ in accesses_of(self.program, n)]
        for (table, kind), span in zip(node.accesses, spans, strict=True):
            spot = self.placement.spot_of(table, number)
            yield _Item(_Spot("access", state_of(table), name, self.source(span)), self.access(table, kind, spot))

    def access(self, table: str, kind: str, spot: Spot) -> Amounts:
        state = self.program.state(state_of(table))
        answer = self.target.access(self.program, state, kind, *spot, self.instance.rates[table])
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
