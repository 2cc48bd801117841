"""From a plan document to the parts of its places: the plan's classes of blocks are the nodes of the graph to cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cora.analysis.accesses import components_of
from cora.analysis.parts import PlacedNode, split_of
from cora.analysis.prefixes import FOUND, Piece, lent_outcome, pieces_of, second_look, terminal_outcome
from cora.errors import CoraError, Kind, fail
from cora.ir.hashing import program_hash
from cora.ir.nodes import Jump, Lookup, MapState, MeterState, Police, Program, successors
from cora.ir.parts import Lending, Role, Split, states_of
from cora.partition.copies import copied_states
from cora.plan.document import BlockPlacement, Plan, StatePlacement

# (label, part, history, via, lent)
_Key = tuple[str, int, tuple[str, ...] | None, str, bool]


# A place that packets pass once more on their way back from the host is a part of its own, by this name.
RETURN = "{} again"


def parts_of(plan: Plan, program: Program, *, returning: bool = False) -> Split:
    """The parts of a plan's places.

    Where packets come back from the host and ``returning`` is asked for, what runs behind the host is one more part,
    the last one, named by `RETURN`: it is at the card, but packets get there behind the host. The two parts of the
    card share only counters and read-only tables.

    Raises:
        CoraError: `Kind.BAD_PLAN` where the plan is of another program, or does not say what it must;
            `Kind.IR_INVALID` where its parts do not fit each other.
    """
    if plan.program_hash != program_hash(program):
        raise fail(Kind.BAD_PLAN, f"the plan is of another program than {program.name} as it is now",
                   span=program.span, hint="give the program the plan was made of, with the same --set values, or plan "
                                           "again")
    back = next((b for b in plan.blocks if b.leg), None)
    if back is not None and not returning:
        there = [s.name for s in plan.states if s.place == back.place and s.decision == "whole"]
        raise fail(Kind.BAD_PLAN, f"packets come back to {back.place} from the host (block {back.block}); this can be "
                   "verified, but is not built yet", span=program.span,
                   hint="plan so that packets stay at the host: " + " ".join(
                       f"--forbid {name}={back.place}" for name in there))
    return _Reader(plan, program).split()


@dataclass(frozen=True)
class _Row:
    key: _Key
    place: int
    piece: Piece


class _Reader:
    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan, self.program = plan, program
        chosen = [s for s in plan.steering if s.chosen is not None]
        self.anchors = {label for s in chosen for label in s.anchors if s.mode == "resume"}
        self.restarts = any(s.mode == "restart" for s in chosen)
        self.pieces = self.cut()
        back = {b.place for b in plan.blocks if b.leg}
        # Places by the order in which packets pass them.
        self.places = (*plan.places, *(RETURN.format(name) for name in sorted(back)))
        if len(back) > 1 or (back and len(plan.places) < 2) or back - set(plan.places[-2:-1]):
            raise self.bad(f"packets come back to {' and '.join(sorted(back))}, and not to the card alone")
        self.place = {name: i for i, name in enumerate(plan.places)}
        self.order = {b.label: i for i, b in enumerate(program.blocks)}
        self.rows = sorted((self.row(b) for b in plan.blocks), key=self.rank)
        self.number = {row.key: i for i, row in enumerate(self.rows)}

    def cut(self) -> dict[str, tuple[Piece, ...]]:
        """Per label its parts as the plan cuts them; the block of an anchor has its look-up once more, as the last."""
        blocks = {b.label: b for b in self.program.blocks}
        cuts: dict[str, set[int]] = defaultdict(set)
        for row in self.plan.blocks:
            cuts[row.block].add(row.first)
        for label in self.anchors & blocks.keys():
            cuts[label].discard(len(blocks[label].instructions))
        found = pieces_of(self.program, frozenset(copied_states(self.program)),
                          {k: frozenset(v) for k, v in cuts.items()})
        return {label: (*parts, second_look(self.program, blocks[label], parts)) if label in self.anchors else parts
                for label, parts in found.items()}

    def split(self) -> Split:
        if len(self.number) != len(self.rows):
            raise self.bad("a class of a block stands twice in it")
        entry: _Key = (self.program.blocks[0].label, 0, (), "", self.restarts)
        if self.number.get(entry) != 0:
            raise self.bad("packets have no block to enter at")
        nodes = self.behind_the_wire([self.node(row) for row in self.rows])
        states = {s.name for s in self.plan.states}
        if states != {s.name for s in self.program.states}:
            raise self.bad("its states are not those of the program")
        roles = {s.name: dict(self.roles(s)) for s in self.plan.states}
        lendings = [item for s in self.plan.states if (item := self.lending(s)) is not None]
        return split_of(self.program, self.places, nodes, roles, lendings)

    @staticmethod
    def behind_the_wire(nodes: list[PlacedNode]) -> list[PlacedNode]:
        """The nodes, entered at the wire: a place there that runs nothing of the program passes packets on."""
        first = nodes[0]
        if first.place == 0:
            return nodes
        door = replace(first.block, instructions=(), terminator=Jump(first.block.label, (), first.block.span))
        return [PlacedNode(door, 0, False, 0, (("next", 1),)),
                *(replace(n, edges=tuple((outcome, target + 1) for outcome, target in n.edges)) for n in nodes)]

    def bad(self, message: str) -> CoraError:
        return fail(Kind.BAD_PLAN, f"the plan cannot be run: {message}", span=self.program.span,
                    hint="make the plan again with this version of cora")

    def row(self, block: BlockPlacement) -> _Row:
        key: _Key = (block.block, block.part, block.history, block.via, block.lent)
        pieces = self.pieces.get(block.block, ())
        if not 0 <= block.part < len(pieces):
            raise self.bad(f"the program has no block {block.block} with a part {block.part}")
        place = len(self.plan.places) if block.leg else self.place[block.place]
        return _Row(key, place, pieces[block.part])

    def rank(self, row: _Row) -> tuple[int, int, bool, bool, tuple[str, ...], str]:
        label, part, history, via, lent = row.key
        return (self.order[label], part, not lent, history is None, history or (), via)

    def node(self, row: _Row) -> PlacedNode:
        edges = tuple((outcome, self.numbered(row, outcome, key)) for outcome, key in self.edges(row))
        return PlacedNode(row.piece.block, row.piece.start, row.piece.last, row.place, edges)

    def edges(self, row: _Row) -> Iterator[tuple[str, _Key]]:
        label, part, history, via, lent = row.key
        if lent and self.restarts:
            yield from self.rule_edges(row)
            return
        if not row.piece.last:
            after: _Key = (label, part + 1, history, via, lent)
            yield "next", after if after in self.number else self.at_owner(after)
            return
        second: _Key = (label, part + 1, self.owned(history), via, False)
        meets = label in self.anchors and second in self.number
        for outcome, target in successors(row.piece.block.terminator):
            if not meets:
                yield outcome, self.follow(row, outcome, target, lent)
            elif outcome in FOUND:
                said = lent_outcome(row.piece.block.terminator, outcome)
                yield said, self.follow(row, said, target, True)
        if meets:
            yield "owner", second

    def rule_edges(self, row: _Row) -> Iterator[tuple[str, _Key]]:
        """The ways of decided paths, and from the first node that of all other packets."""
        label, part, history, via, _ = row.key
        if self.number[row.key] == 0:
            yield "restart", (*row.key[:4], False)
        if not row.piece.last:
            yield "next", (label, part + 1, history, via, True)
            return
        end = row.piece.block.terminator
        for outcome, target in successors(end):
            found = isinstance(end, Lookup | Police) and outcome in FOUND
            for said in (outcome, lent_outcome(end, outcome)) if found else (outcome,):
                key = self.told_apart(row, said, target, True)
                if key in self.number:
                    yield said, key

    def told_apart(self, row: _Row, outcome: str, target: str, lent: bool) -> _Key:
        """The class that an edge leads to where it was seen, as `cora.analysis.prefixes` tells classes apart."""
        label, _, history, _, _ = row.key
        passed = terminal_outcome(self.program, row.piece.block.terminator, outcome)
        after = (*history, passed) if history is not None and passed else history
        via = f"{label}.{outcome}" if self.pieces[target][0].is_plain_end else ""
        return (target, 0, after, via, lent)

    def follow(self, row: _Row, outcome: str, target: str, lent: bool) -> _Key:
        """The class that an edge leads to: packets that are never seen leave a lent entry."""
        seen = self.told_apart(row, outcome, target, lent)
        for key in (seen, self.at_owner(seen)):
            if key in self.number:
                return key
        return (target, 0, None, f"{seen[3]} {row.key[2]}" if seen[3] else "", False)

    def at_owner(self, key: _Key) -> _Key:
        return (key[0], key[1], self.owned(key[2]), key[3], False)

    @staticmethod
    def owned(history: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """A history as the owner tells it: an entry found lent is one it would have found itself."""
        return None if history is None else tuple(_owned(h) for h in history)

    def numbered(self, row: _Row, outcome: str, key: _Key) -> int:
        if key not in self.number:
            raise self.bad(f"it says of block {key[0]} not where it runs after {row.key[0]} ended in {outcome}")
        return self.number[key]

    def roles(self, state: StatePlacement) -> Iterator[tuple[int, Role]]:
        if self.restarts and state.name in copied_states(self.program):
            # Rules count by themselves, and have read-only tables evaluated in them.
            yield 0, "copy"
        if state.decision in ("replicated", "partial"):
            for copy in state.copies:
                yield from ((place, "copy") for place in self.stretches(copy.place))
            return
        declared = self.program.state(state.name)
        if state.decision == "split" and state.lent is not None and isinstance(declared, MapState | MeterState):
            yield self.at(state.place), "owner"
            yield self.at(state.lent.place), "lent"
            return
        yield from self.whole(state)

    def whole(self, state: StatePlacement) -> Iterator[tuple[int, Role]]:
        """Kept once: in the stretch of the packets' way in which it is used."""
        stretches = self.stretches(state.place)
        if len(stretches) == 1 or state.name in copied_states(self.program):
            yield from ((place, "copy" if len(stretches) > 1 else "whole") for place in stretches)
            return
        component = components_of(self.program)
        used = {row.place for row in self.rows for node in (*row.piece.block.instructions, row.piece.block.terminator)
                for name in states_of(node) if component[name] == component[state.name]} & set(stretches)
        if len(used) > 1:
            raise self.bad(f"packets use {state.name} both before and after the host, so that those that come back "
                           "would meet it after later ones")
        yield min(used, default=stretches[0]), "whole"

    def stretches(self, place: str) -> tuple[int, ...]:
        """The parts of a place."""
        back = (len(self.plan.places),) if RETURN.format(place) in self.places else ()
        return (self.at(place), *back)

    def at(self, place: str) -> int:
        if place not in self.place:
            raise self.bad(f"'{place}' is none of its places")
        return self.place[place]

    def lending(self, state: StatePlacement) -> Lending | None:
        declared = self.program.state(state.name)
        if state.decision != "split" or state.lent is None or not isinstance(declared, MapState | MeterState):
            return None
        lent = state.lent
        near, owner = self.at(lent.place), self.at(state.place)
        if near >= owner or lent.entries < 1 or lent.threshold < 1:
            raise self.bad(f"{state.name} is lent from {state.place} to {lent.place}: {lent.entries} entries after "
                           f"{lent.threshold} packets")
        return Lending(components_of(self.program)[state.name], state.name, near, owner,
                       min(lent.entries, declared.capacity), lent.threshold, lent.mode == "restart")


def _owned(passed: str) -> str:
    table, lent, said = passed.partition(" lent")
    return f"{table} {said.strip() or 'hit'}" if lent else passed
