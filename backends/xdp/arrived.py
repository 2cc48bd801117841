"""Packets as they arrived, for those in user space who ask for them.

An ICMP error quotes its packet as it arrived, and a fragment that waits is kept as it arrived. Of a packet that is
handed on only the frame travels, as it is then. So the kernel half puts off what it would write into a header while the
packet may still come to one of those ends: it writes it when it is known that the packet does not, or hands the values
on, and the user half writes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cora.errors import Kind, fail
from cora.ir.headers import QUOTED, field_of
from cora.ir.nodes import (
    Block,
    Cast,
    Const,
    Drop,
    Hold,
    Instruction,
    Jump,
    Load,
    LoadConfig,
    Punt,
    Reject,
    Store,
    TrackFragment,
    Value,
    successors,
)
from cora.ir.parts import PUNT_LIMIT, Entry, Part, Split, punt_bytes, verify_split
from cora.ir.passes.rewrite import retarget

# Headers that share their first byte.
_UPPER = frozenset({"tcp", "udp", "icmp", "icmp6", "l4"})
_Pending = tuple[Store, ...]


def with_originals(split: Split) -> Split:
    """The split in which every packet that user space asks for as it arrived comes there as it arrived.

    Doing it twice changes nothing.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` where the kernel half reads what it has not written yet.
    """
    first, last = split.parts[0], split.parts[-1]
    near = _before(first, {b.label for b in first.program.blocks if _hands_to(b, last, _asking(last))})
    if not any(isinstance(i, Store) for b in first.program.blocks if b.label in near for i in b.instructions):
        return split
    kernel = _Deferring(first, last.place, near)
    kernel.run()
    user = _Receiving(split, kernel.arrivals)
    blocks = tuple(user.renumbered(b) for b in kernel.blocks)
    parts = (replace(first, program=replace(first.program, blocks=blocks), anchored=kernel.anchored()),
             *split.parts[1:-1], user.part())
    return verify_split(replace(split, parts=parts))


def _asking(part: Part) -> frozenset[int]:
    """Entries behind which somebody asks for the packet as it arrived."""
    ends = {b.label for b in part.program.blocks if isinstance(b.terminator, Reject | Hold | TrackFragment)}
    labels = _before(part, ends)
    return frozenset(e.number for e in part.entries if e.label in labels)


def _before(part: Part, ends: set[str]) -> frozenset[str]:
    """Labels from which one of these is reached."""
    found = set(ends)
    for block in reversed(part.program.blocks):
        if any(target in found for _, target in successors(block.terminator)):
            found.add(block.label)
    return frozenset(found)


def _hands_to(block: Block, last: Part, entries: frozenset[int]) -> bool:
    node = block.terminator
    return isinstance(node, Punt) and node.place == last.place and node.entry in entries


@dataclass(frozen=True)
class _Arrival:
    """Packets that come to an entry with stores that are still to be done, and values for them."""

    entry: int
    pending: _Pending
    values: tuple[Value, ...]


class _Deferring:
    """The kernel half's blocks, each once for every list of stores that packets come to it with.

    ``arrivals``: the ways to hand packets on; a punt's entry is the number of its own until it is renumbered.
    """

    def __init__(self, part: Part, place: str, near: frozenset[str]) -> None:
        self.part, self.place, self.near = part, place, near
        self.remade = {i.result for b in part.program.blocks for i in b.instructions
                       if isinstance(i, Const | LoadConfig)}
        self.blocks: list[Block] = []
        self.arrivals: dict[_Arrival, int] = {}
        self.taken = {b.label for b in part.program.blocks}
        self.labels: dict[tuple[str, _Pending], str] = {}
        self.waiting: dict[str, list[_Pending]] = defaultdict(list)

    def run(self) -> None:
        self.label(self.part.program.blocks[0].label, ())
        for block in self.part.program.blocks:
            for pending in self.waiting[block.label]:
                self.blocks.append(self.block(block, pending))

    def anchored(self) -> frozenset[str]:
        return frozenset(new for (old, _), new in self.labels.items() if old in self.part.anchored)

    def label(self, target: str, pending: _Pending) -> str:
        """The label of a block for packets that come with these stores to be done."""
        key = (target, pending)
        if key not in self.labels:
            self.labels[key] = target if not self.waiting[target] else _fresh(target, self.taken)
            self.waiting[target].append(pending)
        return self.labels[key]

    def block(self, block: Block, pending: _Pending) -> Block:
        name = self.labels[block.label, pending]
        body: list[Instruction] = []
        if block.label not in self.near:
            body += [] if isinstance(block.terminator, Drop) else pending
            pending = ()
        for instruction in block.instructions:
            if isinstance(instruction, Store) and block.label in self.near:
                pending = (*pending, instruction)
            else:
                body.append(_reading(instruction, pending) if isinstance(instruction, Load) else instruction)
        node = block.terminator
        if isinstance(node, Punt) and node.place == self.place:
            node = self.handing(node, pending)
        else:
            node = retarget(node, lambda _, target: self.label(target, pending))
        return replace(block, label=name, instructions=tuple(body), terminator=node)

    def handing(self, node: Punt, pending: _Pending) -> Punt:
        more = (v for v in dict.fromkeys(s.value for s in pending) if v not in node.values and v not in self.remade)
        values = (*node.values, *more)
        if punt_bytes(values) > PUNT_LIMIT:
            raise fail(Kind.NOT_BUILDABLE, f"what the packet takes along to user space makes a header of "
                       f"{punt_bytes(values)} bytes, and {PUNT_LIMIT} is the most", span=node.span,
                       hint="keep this part of the program in user space")
        arrival = _Arrival(node.entry, pending, values)
        return replace(node, entry=self.arrivals.setdefault(arrival, len(self.arrivals)), values=values)


def _fresh(wanted: str, taken: set[str]) -> str:
    """A label like the wanted one that is not taken, which it is from now on."""
    name = next(n for n in (f"{wanted}.{i}" for i in range(1, 1 << 20)) if n not in taken)
    taken.add(name)
    return name


def _reading(node: Load, pending: _Pending) -> Instruction:
    """A field that would have been written by now is read from the store."""
    for store in reversed(pending):
        if (store.header, store.field) == (node.header, node.field):
            return Cast(node.result, store.value, node.span)
        if _meets(store, node):
            raise fail(Kind.NOT_BUILDABLE, f"{node.header}.{node.field} is read in the kernel after {store.header}."
                       f"{store.field} was written there (line {store.span.line}), of a packet that user space may "
                       "have to know as it arrived", span=node.span,
                       hint="read the field before the other one is written")
    return node


def _meets(store: Store, load: Load) -> bool:
    """Whether a load sees what a store writes, into the field or into a checksum over it."""
    written, read = field_of(store.header, store.field), field_of(load.header, load.field)
    if written is None or read is None or read.computed:
        return False
    if load.field == "checksum":
        return True
    kinds = {h.removeprefix(QUOTED) for h in (store.header, load.header)}
    same = load.header.startswith(QUOTED) == store.header.startswith(QUOTED) and (len(kinds) == 1 or kinds <= _UPPER)
    return same and written.bit < read.bit + read.bits and read.bit < written.bit + written.bits


class _Receiving:
    """The user half's part, in which packets with stores to be done arrive at blocks of their own, which do them."""

    def __init__(self, split: Split, arrivals: Mapping[_Arrival, int]) -> None:
        self.source = split.parts[-1]
        self.made = {i.result: i for p in (split.program, self.source.program) for b in p.blocks
                     for i in b.instructions if isinstance(i, Const | LoadConfig)}
        # By old entry its arrivals, in the order of the kernel half's blocks; one without any is left out.
        self.by_entry = {e.number: [a for a in arrivals if a.entry == e.number] for e in self.source.entries}
        order = [a for e in self.source.entries for a in self.by_entry[e.number]]
        self.number = {a: i + 1 for i, a in enumerate(order)}
        self.final = {placeholder: self.number[a] for a, placeholder in arrivals.items()}

    def renumbered(self, block: Block) -> Block:
        """A block of the kernel half whose punt names the entry as it is numbered in the end."""
        node = block.terminator
        if not isinstance(node, Punt) or node.place != self.source.place:
            return block
        return replace(block, terminator=replace(node, entry=self.final[node.entry]))

    def part(self) -> Part:
        taken = {b.label for b in self.source.program.blocks}
        old = {e.label: e for e in self.source.entries}
        blocks: list[Block] = []
        entries: list[Entry] = []
        for block in self.source.program.blocks:
            entry = old.get(block.label)
            arrivals = self.by_entry[entry.number] if entry is not None else []
            if entry is None or not any(a.pending for a in arrivals):
                entries += [replace(entry, number=self.number[a]) for a in arrivals if entry is not None]
                blocks.append(block)
                continue
            for arrival in arrivals:
                door = self.door(block, arrival, _fresh(block.label, taken))
                blocks.append(door)
                entries.append(replace(entry, number=self.number[arrival], label=door.label))
            blocks.append(replace(block, params=()))
        return replace(self.source, program=replace(self.source.program, blocks=tuple(blocks)),
                       entries=tuple(sorted(entries, key=lambda e: e.number)))

    def door(self, block: Block, arrival: _Arrival, label: str) -> Block:
        """Where packets arrive: what the kernel half put off is done, then the block itself runs."""
        constants = [self.made[s.value] for s in arrival.pending if s.value in self.made]
        return Block(label, arrival.values, (*dict.fromkeys(constants), *arrival.pending),
                     Jump(block.label, (), block.span), block.span)
