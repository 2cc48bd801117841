"""From a plan document to the parts of its places: the plan's classes of blocks are the nodes of the graph to cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cora.analysis.accesses import components_of
from cora.analysis.parts import PlacedNode, split_of
from cora.analysis.prefixes import Piece, pieces_of, terminal_outcome
from cora.errors import CoraError, Kind, fail
from cora.ir.hashing import program_hash
from cora.ir.nodes import MapState, MeterState, Program, successors
from cora.ir.parts import Lending, Role, Split
from cora.plan.document import BlockPlacement, Plan, StatePlacement

# (label, part, history, via, lent)
_Key = tuple[str, int, tuple[str, ...] | None, str, bool]


def parts_of(plan: Plan, program: Program) -> Split:
    """The parts of a plan's places.

    Raises:
        CoraError: `Kind.BAD_PLAN` where the plan is of another program, or does not say what it must;
            `Kind.IR_INVALID` where its parts do not fit each other.
    """
    if plan.program_hash != program_hash(program):
        raise fail(Kind.BAD_PLAN, f"the plan is of another program than {program.name} as it is now",
                   span=program.span, hint="give the program the plan was made of, with the same --set values, or plan "
                                           "again")
    return _Reader(plan, program).split()


@dataclass(frozen=True)
class _Row:
    key: _Key
    place: int
    piece: Piece


class _Reader:
    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan, self.program = plan, program
        self.pieces = pieces_of(program)
        self.place = {name: i for i, name in enumerate(plan.places)}
        self.order = {b.label: i for i, b in enumerate(program.blocks)}
        self.rows = sorted((self.row(b) for b in plan.blocks), key=self.rank)
        self.number = {row.key: i for i, row in enumerate(self.rows)}

    def split(self) -> Split:
        if len(self.number) != len(self.rows):
            raise self.bad("a class of a block stands twice in it")
        entry: _Key = (self.program.blocks[0].label, 0, (), "", False)
        if self.number.get(entry) != 0:
            raise self.bad("packets have no block to enter at")
        nodes = [self.node(row) for row in self.rows]
        states = {s.name for s in self.plan.states}
        if states != {s.name for s in self.program.states}:
            raise self.bad("its states are not those of the program")
        roles = {s.name: dict(self.roles(s)) for s in self.plan.states}
        lendings = [item for s in self.plan.states if (item := self.lending(s)) is not None]
        return split_of(self.program, self.plan.places, nodes, roles, lendings)

    def bad(self, message: str) -> CoraError:
        return fail(Kind.BAD_PLAN, f"the plan cannot be run: {message}", span=self.program.span,
                    hint="make the plan again with this version of cora")

    def row(self, block: BlockPlacement) -> _Row:
        key: _Key = (block.block, block.part, block.history, block.via, block.lent)
        pieces = self.pieces.get(block.block, ())
        if not 0 <= block.part < len(pieces):
            raise self.bad(f"the program has no block {block.block} with a part {block.part}")
        return _Row(key, self.place[block.place], pieces[block.part])

    def rank(self, row: _Row) -> tuple[int, int, bool, bool, tuple[str, ...], str]:
        label, part, history, via, lent = row.key
        return (self.order[label], part, lent, history is None, history or (), via)

    def node(self, row: _Row) -> PlacedNode:
        edges = tuple((outcome, self.numbered(row, outcome, key)) for outcome, key in self.edges(row))
        return PlacedNode(row.piece.block, row.piece.start, row.piece.last, row.place, edges)

    def edges(self, row: _Row) -> Iterator[tuple[str, _Key]]:
        label, part, history, via, lent = row.key
        if not row.piece.last:
            yield "next", (label, part + 1, history, via, lent)
            return
        for outcome, target in successors(row.piece.block.terminator):
            yield outcome, self.follow(row, outcome, target)

    def follow(self, row: _Row, outcome: str, target: str) -> _Key:
        """The class that an edge leads to, as `cora.analysis.prefixes` tells classes apart."""
        label, _, history, _, lent = row.key
        passed = terminal_outcome(self.program, row.piece.block.terminator, outcome)
        after = (*history, passed) if history is not None and passed else history
        via = f"{label}.{outcome}" if self.pieces[target][0].is_plain_end else ""
        seen: _Key = (target, 0, after, via, lent)
        if seen in self.number:
            return seen
        return (target, 0, None, f"{via} {history}" if via else "", lent)

    def numbered(self, row: _Row, outcome: str, key: _Key) -> int:
        if key not in self.number:
            raise self.bad(f"it says of block {key[0]} not where it runs after {row.key[0]} ended in {outcome}")
        return self.number[key]

    def roles(self, state: StatePlacement) -> Iterator[tuple[int, Role]]:
        if state.decision in ("replicated", "partial"):
            for copy in state.copies:
                yield self.at(copy.place), "copy"
            return
        declared = self.program.state(state.name)
        if state.decision == "split" and state.lent is not None and isinstance(declared, MapState | MeterState):
            yield self.at(state.place), "owner"
            yield self.at(state.lent.place), "lent"
            return
        yield self.at(state.place), "whole"

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

