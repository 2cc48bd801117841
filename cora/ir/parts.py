"""The parts of a split program: what each place runs, as IR, and how packets and state pass between the places.

A part is a program over the blocks of one place. Where a packet leaves for a later place it ends in a `Punt`; where
packets arrive there is an entry: a block without a predecessor whose parameters are the values that travelled. Blocks
stand before their successors. A block of the source may stand in several blocks here, one for each history of state
outcomes, so a value's name is defined once on every way, not once in the part.

State has a role at each place that uses it:
  whole  the only copy
  copy   one of several: read-only tables, or counters whose sum counts
  owner  the directory of a split state: every entry, its capacity, pools, expiry and deletion
  lent   entries the owner lent; a look-up hits only one that may be used now, a charge finds one or ends in ``full``
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from cora.errors import CoraError, Diagnostic, Kind
from cora.ir.nodes import (
    Block,
    Count,
    CounterState,
    Delete,
    Hold,
    Insert,
    Instruction,
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
    TrackFragment,
    Value,
    operands_of,
    successors,
)
from cora.ir.text import print_program
from cora.ir.types import EntryRef, bytes_of

Role = Literal["whole", "copy", "owner", "lent"]

# XDP metadata, the narrowest way between two places of any target, carries at most this.
PUNT_LIMIT = 252
# What every punt header carries besides live values; `struct cora_punt_head` of cora/emit/runtime/wire.h.
PUNT_FIXED = 96
_REFERENCE_BYTES = 4


@dataclass(frozen=True)
class Entry:
    """Where packets arrive: the block ``label``, entered with its parameters.

    Attributes:
        harmful: split components of which a packet that arrives here may yet use an entry that is not its own flow's in
            a way that later packets could notice or disturb.
        anchored: the packet missed in the lent table of this component on its way, so the owner's look-up finds the
            packet's own entry; empty otherwise.
        anew: packets come as they arrived, to start from the beginning, since no rule of the place before serves them.
    """

    number: int
    label: str
    harmful: frozenset[str]
    anchored: str
    anew: bool = False


@dataclass(frozen=True)
class Part:
    """What one place runs. ``program``: its declarations and blocks; the first place starts at its first block.

    Attributes:
        place: its name; number: its position from the wire.
        anchored: blocks whose look-up or charge at the owner is by the key that was looked up in the lent table before.
        released: the block where fragments start that were held at this place; empty where none are.
    """

    place: str
    number: int
    program: Program
    entries: tuple[Entry, ...]
    roles: Mapping[str, Role]
    anchored: frozenset[str]
    released: str


@dataclass(frozen=True)
class Lending:
    """A split component: ``state`` (the map or meter of it) is owned at place ``owner`` and lent to ``near``.

    ``entries``: most that are lent at once; ``threshold``: packets of a flow the owner sees before it lends the entry.
    """

    component: str
    state: str
    near: int
    owner: int
    entries: int
    threshold: int
    restart: bool


@dataclass(frozen=True)
class Split:
    """A program as the parts of its places, in order from the wire. ``program`` is the unsplit one."""

    program: Program
    parts: tuple[Part, ...]
    lendings: tuple[Lending, ...]

    def __str__(self) -> str:
        """All parts as text."""
        return "\n".join(print_part(p) for p in self.parts)

    @property
    def in_gaps(self) -> tuple[int, int] | None:
        """Where the near place cannot wait for packets on their way (`order weak`, rules of decided flows): the place
        where packets start that no rule serves, and the owner's. None where it waits, or nothing is lent.
        """
        by_rules = all(item.restart and not _is_strict(self.program, item.state) for item in self.lendings)
        owners = {item.owner for item in self.lendings}
        starts = {p.number for p in self.parts for e in p.entries if e.anew}
        return (min(starts), min(owners)) if by_rules and len(owners) == len(starts) == 1 else None


def _is_strict(program: Program, name: str) -> bool:
    state = program.state(name)
    return isinstance(state, MapState | MeterState) and state.strict_order


def print_part(part: Part) -> str:
    """A part as text: its entries and roles, then its program."""
    lines = [f"part {part.number} {part.place}"]
    lines += [f"  state {name} {role}" for name, role in sorted(part.roles.items())]
    lines += [f"  entry {e.number} {e.label}{f' missed {e.anchored}' if e.anchored else ''}"
              f"{' may harm ' + ', '.join(sorted(e.harmful)) if e.harmful else ''}" for e in part.entries]
    return "\n".join(lines) + "\n" + print_program(part.program)


def punt_bytes(values: tuple[Value, ...]) -> int:
    """Bytes of a punt header that carries these values."""
    return PUNT_FIXED + sum(_REFERENCE_BYTES if isinstance(v.type, EntryRef) else bytes_of(v.type) for v in values)


def verify_split(split: Split) -> Split:
    """Return the split program when its parts fit each other and keep to their roles.

    Raises:
        CoraError: `Kind.IR_INVALID`, one diagnostic per broken rule.
    """
    found = [d for part in split.parts for d in _Checker(split, part).check()]
    if found:
        raise CoraError(found)
    return split


class _Checker:
    def __init__(self, split: Split, part: Part) -> None:
        self.split, self.part = split, part
        self.found: list[Diagnostic] = []
        self.entries = {p.place: {e.number: e for e in p.entries} for p in split.parts}
        self.blocks = {b.label: b for b in part.program.blocks}

    def check(self) -> list[Diagnostic]:
        self.shape()
        if not self.found:
            self.values()
        for block in self.part.program.blocks:
            for node in (*block.instructions, block.terminator):
                self.node(block, node)
        return self.found

    def error(self, node: Block | Instruction | Terminator, message: str) -> None:
        self.found.append(Diagnostic(Kind.IR_INVALID, f"part {self.part.place}: {message}", node.span))

    def shape(self) -> None:
        order = {b.label: i for i, b in enumerate(self.part.program.blocks)}
        if len(order) != len(self.part.program.blocks):
            self.found.append(Diagnostic(Kind.IR_INVALID, f"part {self.part.place}: a label is defined twice",
                                         self.part.program.span))
        for i, block in enumerate(self.part.program.blocks):
            for _, target in successors(block.terminator):
                if order.get(target, -1) <= i:
                    self.error(block, f"{block.label} leads to {target}, which does not stand after it")
        for entry in self.part.entries:
            if entry.label not in order:
                self.found.append(Diagnostic(Kind.IR_INVALID, f"part {self.part.place}: entry {entry.number} leads to "
                                             f"{entry.label}, which does not exist", self.part.program.span))

    def values(self) -> None:
        """Every value that is read was defined on every way from where packets enter."""
        known: dict[str, frozenset[Value]] = {e.label: frozenset() for e in self.part.entries}
        starts = [self.part.released] if self.part.released else []
        if self.part.number == 0 and self.part.program.blocks:
            starts.append(self.part.program.blocks[0].label)
        known.update(dict.fromkeys(starts, frozenset()))
        for block in self.part.program.blocks:
            if block.label not in known:
                self.error(block, f"block {block.label} is never reached")
                continue
            here = set(known[block.label]).union(block.params)
            for node in (*block.instructions, block.terminator):
                for value in operands_of(node):
                    if value not in here:
                        self.error(node, f"%{value.name} is not defined on every way here")
                result = getattr(node, "result", None)
                if result is not None:
                    here.add(result)
            self.flow(block, frozenset(here), known)

    def flow(self, block: Block, here: frozenset[Value], known: dict[str, frozenset[Value]]) -> None:
        node = block.terminator
        for outcome, target in successors(node):
            found = here
            if (isinstance(node, Lookup) and outcome == "hit") or (isinstance(node, Insert) and outcome == "ok"):
                found = here | {node.entry}
            known[target] = known[target] & found if target in known else found

    def node(self, block: Block, node: Instruction | Terminator) -> None:
        if isinstance(node, Punt):
            self.punt(node)
        if isinstance(node, Hold) and not any(isinstance(b.terminator, TrackFragment)
                                              for b in self.part.program.blocks):
            self.error(node, "a fragment waits where its tracker is")
        for state in states_of(node):
            role = self.part.roles.get(state)
            if role is None:
                self.error(node, f"{block.label} uses {state}, which is not here")
            elif role == "lent" and isinstance(node, Insert | Delete):
                self.error(node, f"{block.label} changes the directory of {state}, which is only lent here")
            elif role == "copy" and isinstance(node, StoreEntry | Touch | Insert | Delete | Police):
                self.error(node, f"{block.label} writes {state}, of which this is a copy")

    def punt(self, node: Punt) -> None:
        target = next((p for p in self.split.parts if p.place == node.place), None)
        entry = None if target is None else self.entries[node.place].get(node.entry)
        if target is None or entry is None or target.number <= self.part.number:
            self.error(node, f"there is no entry {node.entry} at a later place {node.place}")
            return
        block = next((b for b in target.program.blocks if b.label == entry.label), None)
        if block is not None and block.params != node.values:
            self.error(node, f"the values that travel are not those that entry {node.entry} of {node.place} takes")
        if punt_bytes(node.values) > PUNT_LIMIT:
            self.error(node, f"the values that travel make a header of {punt_bytes(node.values)} bytes; the most is "
                             f"{PUNT_LIMIT}")


def states_of(node: Instruction | Terminator) -> Iterator[str]:
    """The states a node uses, without the pools behind a map."""
    match node:
        case LoadEntry() | StoreEntry() | Touch() | Delete():
            if isinstance(node.entry.type, EntryRef):
                yield node.entry.type.state
        case Count():
            yield node.counter
        case Lookup() | Insert() | Police() | TrackFragment():
            yield node.state


def is_counter(program: Program, name: str) -> bool:
    """Whether a state is a counter, whose copies add up."""
    return isinstance(program.state(name), CounterState)
