"""From a placed graph to parts: per place the code that runs there, cut out of the graph of path prefixes.

The graph is that of `cora.analysis.prefixes`: a node is a block, or a part of one, on one history of state outcomes.
Each node has a place, and edges never lead back towards the wire. An edge that changes the place becomes a punt at one
end and an entry at the other; the values alive there travel, constants and configuration values are made anew.

A look-up that meets lent entries stands in two nodes: the first look, in the table of lent entries, goes on with `lent`
(of a meter ``lent green`` and so on) or with `owner`, which leads to the second look, in the owner's directory.

Where the near place runs only decided paths (restart mode), the nodes on the fast path have no other ways than their
own; packets that take another one start anew, as they arrived, at the node that `restart` leads to from the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from cora.analysis.liveness import Liveness, liveness_of
from cora.errors import Kind, fail
from cora.ir.nodes import (
    Block,
    Const,
    Delete,
    FragmentState,
    Hold,
    Insert,
    Instruction,
    Jump,
    LoadConfig,
    LoadEntry,
    Lookup,
    MapState,
    MeterState,
    Police,
    Program,
    Punt,
    StoreEntry,
    Terminator,
    Touch,
    Value,
    operands_of,
    successors,
)
from cora.ir.parts import Entry, Lending, Part, Role, Split, states_of, verify_split
from cora.ir.passes.rewrite import retarget
from cora.ir.types import EntryRef

LENT, OWNER, RESTART = "lent", "owner", "restart"


@dataclass(frozen=True)
class PlacedNode:
    """A node of the graph at its place.

    Attributes:
        block: its code; a part of a block that is not the last ends in a jump to the block's own label.
        start: index of its first instruction in the block; ``last``: whether it has the block's own terminator.
        place: position from the wire; edges: (outcome, number of the node it leads to).
    """

    block: Block
    start: int
    last: bool
    place: int
    edges: tuple[tuple[str, int], ...]


def split_of(program: Program, places: Sequence[str], nodes: Sequence[PlacedNode],
             roles: Mapping[str, Mapping[int, Role]], lendings: Sequence[Lending]) -> Split:
    """The parts of a program.

    Args:
        nodes: every one before its successors; packets enter at number 0, which is at place 0.
        roles: per state its role at each place that has it.

    Raises:
        CoraError: `Kind.BAD_PLAN` where an edge leads back towards the wire; `Kind.IR_INVALID` where a node uses state
            that its place has not, or a punt header does not fit.
    """
    return verify_split(_Cutter(program, places, nodes, roles, lendings).split())


@dataclass
class _Room:
    """A part while it is made. ``blocks``: each with what sorts it."""

    blocks: list[tuple[tuple[int, int], Block]] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    known: dict[tuple[str, tuple[Value, ...], tuple[Value, ...]], int] = field(default_factory=dict)
    punts: dict[tuple[int, int], str] = field(default_factory=dict)
    released: str = ""

    def add(self, order: tuple[int, int], block: Block) -> None:
        self.blocks.append((order, block))


@dataclass(frozen=True)
class _Arrival:
    """Where a packet goes on: ``label`` at a place, with the values alive there and the arguments of a jump."""

    place: int
    label: str
    live: frozenset[Value]
    args: tuple[Value, ...]
    harmful: frozenset[str]
    anchored: str
    end: Terminator
    anew: bool = False


class _Cutter:
    def __init__(self, program: Program, places: Sequence[str], nodes: Sequence[PlacedNode],
                 roles: Mapping[str, Mapping[int, Role]], lendings: Sequence[Lending]) -> None:
        self.program, self.places, self.nodes, self.roles = program, places, nodes, roles
        self.lendings = {item.state: item for item in lendings}
        self.live: Liveness = liveness_of(program)
        self.rooms = [_Room() for _ in places]
        self.harm = _Harm(program, nodes, self.lendings)
        self.restart = dict(nodes[0].edges).get(RESTART)
        self.remade: dict[Value, Const | LoadConfig] = {
            i.result: i for b in program.blocks for i in b.instructions if isinstance(i, Const | LoadConfig)}

    def split(self) -> Split:
        for number, node in enumerate(self.nodes):
            self.cut(number, node)
        for state in self.program.states:
            if isinstance(state, FragmentState):
                self.release(state)
        return Split(self.program, tuple(self.part(i) for i in range(len(self.places))), tuple(self.lendings.values()))

    def part(self, place: int) -> Part:
        room = self.rooms[place]
        roles = {name: at[place] for name, at in self.roles.items() if place in at}
        blocks = _pruned([block for _, block in sorted(room.blocks, key=lambda item: item[0])],
                         {e.label for e in room.entries})
        states = tuple(s for s in self.program.states if s.name in roles)
        program = replace(self.program, states=states, blocks=blocks)
        anchored = frozenset(_name(n, self.nodes[n]) for node in self.nodes for outcome, n in node.edges
                             if outcome == OWNER and self.nodes[n].place == place)
        return Part(self.places[place], place, program, tuple(room.entries), roles, anchored, room.released)

    # Cutting one node.

    def cut(self, number: int, node: PlacedNode) -> None:
        edges = {_plain(k): v for k, v in node.edges if k != RESTART}
        end = self.first_look(node, edges) if OWNER in edges else self.moved(node, node.place, edges)
        self.rooms[node.place].add((number, 0), replace(node.block, label=_name(number, node), terminator=end))

    def first_look(self, node: PlacedNode, edges: Mapping[str, int]) -> Terminator:
        """The look into the lent table: what is not there, or may not be used now, is the owner's."""
        here = node.block.terminator
        assert isinstance(here, Lookup | Police)
        live = self.live.before(self.source(node), len(self.source(node).instructions))
        again = edges[OWNER]
        missed = self.punt(node.place, _Arrival(
            self.nodes[again].place, _name(again, self.nodes[again]), live, (), self.harm.behind(again, frozenset()),
            self.lendings[here.state].component, here))
        if isinstance(here, Lookup):
            return replace(here, hit=self.target(node, node.place, "hit", edges["hit"]), miss=missed)
        return retarget(here, lambda outcome, _: missed if outcome == "full" else self.target(
            node, node.place, outcome, edges[outcome]))

    def moved(self, node: PlacedNode, place: int, edges: Mapping[str, int]) -> Terminator:
        """The node's terminator at a place, leading to nodes there and to punts."""
        end = node.block.terminator
        if isinstance(end, Jump):
            if not edges:
                return Jump(self.anew(node), (), end.span)
            ((outcome, target),) = edges.items()
            label = self.target(node, place, outcome, target)
            # Arguments travel with a punt.
            stays = self.nodes[target].place == place and node.last
            return Jump(label, end.args if stays else (), end.span)
        return retarget(end, lambda outcome, _: self.target(node, place, outcome, edges[outcome])
                        if outcome in edges else self.anew(node))

    def anew(self, node: PlacedNode) -> str:
        """Where packets leave a place that runs only decided paths."""
        if self.restart is None:
            raise fail(Kind.BAD_PLAN, f"the plan does not say where block {node.block.label} goes on",
                       span=node.block.span, hint="make the plan again with this version of the program")
        return self.punt(node.place, _Arrival(
            self.nodes[self.restart].place, _name(self.restart, self.nodes[self.restart]), frozenset(), (),
            self.harm.behind(self.restart, frozenset()), "", node.block.terminator, anew=True))

    def target(self, node: PlacedNode, place: int, outcome: str, number: int) -> str:
        """The label an edge leads to from a place: the node itself, or a punt to where it is."""
        to = self.nodes[number]
        if to.place == place:
            return _name(number, to)
        return self.punt(place, self.arrival(node, outcome, number))

    def arrival(self, node: PlacedNode, outcome: str, number: int) -> _Arrival:
        to, end = self.nodes[number], node.block.terminator
        if node.last:
            live = self.live.on_edge(self.source(node), to.block.label)
            args = end.args if isinstance(end, Jump) else ()
        else:
            live, args = self.live.before(self.source(node), to.start), ()
        own = frozenset(v for v in live if isinstance(v.type, EntryRef) and v.type.state in self.lendings)
        return _Arrival(to.place, _name(number, to), live, args, self.harm.behind(number, own), "", end)

    def source(self, node: PlacedNode) -> Block:
        return self.live.blocks[node.block.label]

    def punt(self, place: int, arrival: _Arrival) -> str:
        """The label of a punt; it and the entry it leads to are made where they are new."""
        end = arrival.end
        if arrival.place < place:
            raise fail(Kind.BAD_PLAN, f"packets would go back from {self.places[place]} to "
                       f"{self.places[arrival.place]}, which is nearer to the wire", span=end.span,
                       hint="make the plan again with this version of the program")
        values = tuple(sorted(arrival.live, key=lambda v: v.name))
        room = self.rooms[arrival.place]
        key = (f"{arrival.label} anew" if arrival.anew else arrival.label, values, arrival.args)
        if key not in room.known:
            room.known[key] = number = len(room.entries) + 1
            room.entries.append(Entry(number, f"enter{number}", arrival.harmful, arrival.anchored,
                                      arrival.anew))
            body: tuple[Instruction, ...] = tuple(self.remade.values())
            # Entries stand before all blocks they may lead to.
            room.add((-1, number), Block(f"enter{number}", values, body,
                                         Jump(arrival.label, arrival.args, end.span), end.span))
        return self.leave(place, arrival.place, room.known[key], values, end)

    def leave(self, place: int, to: int, entry: int, values: tuple[Value, ...], end: Terminator) -> str:
        room = self.rooms[place]
        if (to, entry) not in room.punts:
            label = room.punts[to, entry] = f"to{to}_{entry}"
            room.add((len(self.nodes), len(room.punts)), Block(label, (), (), Punt(self.places[to], entry, values,
                                                                                   end.span), end.span))
        return room.punts[to, entry]

    # Fragments that were held start anew at their tracker's place.

    def release(self, state: FragmentState) -> None:
        place = next(iter(self.roles[state.name]), None)
        if place is None:
            return
        first = 0 if self.restart is None else self.restart
        if self.nodes[first].place == place:
            self.rooms[place].released = _name(first, self.nodes[first])
            return
        self.rooms[place].released = _released(first, self.nodes[first])
        waiting, seen = [first], {first}
        while waiting:
            number = waiting.pop()
            for target in self.release_node(number, place):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)

    def release_node(self, number: int, place: int) -> Iterator[int]:
        """Copy a node that a fragment passes before its tracker; yields the nodes behind it to be copied too."""
        node = self.nodes[number]
        labels: dict[str, str] = {}
        for outcome, target in node.edges:
            if outcome == RESTART:
                continue
            to = self.nodes[target]
            if to.place >= place:
                labels[outcome] = self.target(node, place, outcome, target)
            elif all(self.roles[s].get(place) == "copy" for s in _states(to)):
                labels[outcome] = _released(target, to)
                yield target
            else:
                labels[outcome] = self.never(place, node)
        end = node.block.terminator
        if isinstance(end, Jump):
            (label,) = labels.values()
            kept = end.args if node.last and label in {_released(t, self.nodes[t]) for _, t in node.edges} else ()
            stays = node.last and any(self.nodes[t].place == place for _, t in node.edges)
            end = Jump(label, end.args if stays else kept, end.span)
        else:
            end = retarget(end, lambda outcome, _: labels[outcome])
        self.rooms[place].add((number, 2), replace(node.block, label=_released(number, node), terminator=end))

    def never(self, place: int, node: PlacedNode) -> str:
        """Where no fragment gets that has passed its tracker; one that did would be held again, which is noticed."""
        room = self.rooms[place]
        if not any(b.label == "never" for _, b in room.blocks):
            span = node.block.terminator.span
            room.add((len(self.nodes) + 1, 0), Block("never", (), (), Hold(span), span))
        return "never"


class _Harm:
    """Finds what a packet may yet do to entries of other flows in a way that later packets could notice or disturb."""

    def __init__(self, program: Program, nodes: Sequence[PlacedNode], lendings: Mapping[str, Lending]) -> None:
        self.nodes, self.lendings = nodes, lendings
        self.stored = {(_state(i.entry), i.field) for b in program.blocks for i in b.instructions
                       if isinstance(i, StoreEntry)}
        self.looks = {n for i, node in enumerate(nodes) for outcome, again in node.edges if outcome == OWNER
                      for n in (i, again)}
        self.classes = {s.name: len(s.timeouts) for s in program.states if isinstance(s, MapState)}
        self.ordered = {s.name for s in program.states if isinstance(s, MapState | MeterState) and s.strict_order
                        and s.name in lendings and not lendings[s.name].restart}
        self.known: dict[tuple[int, frozenset[Value]], frozenset[str]] = {}

    def behind(self, number: int, own: frozenset[Value]) -> frozenset[str]:
        """Components harmed from a node on, by a packet that owns these references.

        Reading a field that never changes, refreshing an entry that has one time-out class, and finding or missing an
        entry do no harm: lent entries exist at their owner too, and a refresh never makes an entry older.

        With `order strict` a packet does harm that may find its own flow's entry at the owner and has not met the lent
        one, such as a fragment whose tracker is farther from the wire: later packets would leave before it.
        """
        if not self.lendings:
            return frozenset()
        key = (number, own)
        if key not in self.known:
            self.known[key] = frozenset(self._walk(number, own))
        return self.known[key]

    def _walk(self, number: int, own: frozenset[Value]) -> Iterator[str]:
        waiting, seen = [(number, own)], {(number, own)}
        while waiting:
            at, own = waiting.pop()
            node = self.nodes[at]
            end = node.block.terminator
            anchor = at in self.looks
            if not anchor and not own and isinstance(end, Lookup | Insert | Police) and end.state in self.ordered:
                yield self.lendings[end.state].component
            if anchor and isinstance(end, Lookup):
                own = own | {end.entry}
            if isinstance(end, Insert):
                own = own | {end.entry}
            for instruction in node.block.instructions:
                yield from self._of(instruction, own)
            if isinstance(end, Police) and not anchor and end.state in self.lendings:
                yield self.lendings[end.state].component
            for _, target in node.edges:
                if (target, own) not in seen:
                    seen.add((target, own))
                    waiting.append((target, own))

    def _of(self, node: Instruction, own: frozenset[Value]) -> Iterator[str]:
        if not isinstance(node, LoadEntry | StoreEntry | Touch | Delete) or node.entry in own:
            return
        state = _state(node.entry)
        if state not in self.lendings:
            return
        harmless = (isinstance(node, LoadEntry) and (state, node.field) not in self.stored) or (
            isinstance(node, Touch) and self.classes[state] == 1)
        if not harmless:
            yield self.lendings[state].component


def _state(entry: Value) -> str:
    assert isinstance(entry.type, EntryRef)
    return entry.type.state


def _states(node: PlacedNode) -> Iterator[str]:
    for item in (*node.block.instructions, node.block.terminator):
        yield from states_of(item)


def _plain(outcome: str) -> str:
    """The terminator's own outcome: ``hit`` for `lent`, ``green`` for ``lent green``."""
    return "hit" if outcome == LENT else outcome.removeprefix(f"{LENT} ")


def _name(number: int, node: PlacedNode) -> str:
    return f"{node.block.label}.{number}"


def _released(number: int, node: PlacedNode) -> str:
    return f"{node.block.label}.{number}r"


def _pruned(blocks: Sequence[Block], entries: Set[str]) -> tuple[Block, ...]:
    """Without the remade values that nobody behind an entry reads."""
    live: dict[str, frozenset[Value]] = {}
    out = []
    for block in reversed(blocks):
        after: frozenset[Value] = frozenset().union(*(live[t] for _, t in successors(block.terminator)))
        needed = set(after.union(operands_of(block.terminator)))
        if block.label in entries and isinstance(block.terminator, Jump):
            block = replace(block, instructions=tuple(
                i for i in block.instructions if not isinstance(i, Const | LoadConfig) or i.result in needed))
        for instruction in reversed(block.instructions):
            needed.update(operands_of(instruction))
        live[block.label] = frozenset(needed)
        out.append(block)
    return tuple(reversed(out))
