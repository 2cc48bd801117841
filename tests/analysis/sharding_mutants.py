"""Programs with one fault each, made from a program by a change to its IR at one of its anchors.

Labels stay as they are (new blocks get new ones), so that what was claimed of the program can be held against the
mutant too. Every mutant names the block it was changed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cora.analysis.sharding import Anchor, sharding_of
from cora.ir import nodes
from cora.ir.headers import field_of
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value
from cora.ir.types import BOOL, bits_of


@dataclass(frozen=True)
class Mutant:
    """``kind``: what was done; ``block``: where; ``program``: the result."""

    kind: str
    block: str
    component: str
    program: Program

    def __str__(self) -> str:
        return f"{self.program.name} {self.component} {self.kind} at {self.block}"


def mutants_of(program: Program) -> Iterator[Mutant]:
    """All mutants of a program at all anchors of its components that can be split."""
    for name, sharding in sharding_of(program).items():
        if not sharding.splittable:
            continue
        for anchor in sharding.anchors:
            for kind, make in _KINDS.items():
                for changed in make(program, anchor):
                    yield Mutant(kind, anchor.block, name, changed)


def _site(program: Program, anchor: Anchor) -> tuple[Block, nodes.Lookup | nodes.Police]:
    block = program.block(anchor.block)
    assert isinstance(block.terminator, nodes.Lookup | nodes.Police)
    return block, block.terminator


def _with(program: Program, changed: Sequence[Block]) -> Program:
    """The program with blocks replaced by those of the same label; new ones stand right behind the first replaced."""
    by_label = {b.label: b for b in changed}
    known = {b.label for b in program.blocks}
    fresh = [b for b in changed if b.label not in known]
    blocks: list[Block] = []
    for block in program.blocks:
        blocks.append(by_label.get(block.label, block))
        if block.label in by_label and fresh:
            blocks += fresh
            fresh = []
    return replace(program, blocks=tuple(blocks))


def _operand(program: Program, anchor: Anchor, index: int, value: Value, before: Sequence[Instruction]) -> Program:
    block, node = _site(program, anchor)
    operands = (*node.operands[:index], value, *node.operands[index + 1:])
    changed = replace(block, instructions=(*block.instructions, *before), terminator=replace(node, operands=operands))
    return _with(program, [changed])


def _swapped(program: Program, anchor: Anchor) -> Iterator[Program]:
    block, node = _site(program, anchor)
    for i, one in enumerate(node.operands):
        for j in range(i + 1, len(node.operands)):
            other = node.operands[j]
            if one.type == other.type and anchor.parts[i] != anchor.parts[j]:
                operands = list(node.operands)
                operands[i], operands[j] = other, one
                yield _with(program, [replace(block, terminator=replace(node, operands=tuple(operands)))])


def _doubled(program: Program, anchor: Anchor) -> Iterator[Program]:
    """One part of the key in the place of another."""
    _, node = _site(program, anchor)
    for i, one in enumerate(node.operands):
        for j, other in enumerate(node.operands):
            if i != j and one.type == other.type and anchor.parts[i] != anchor.parts[j]:
                yield _operand(program, anchor, i, other, ())


def _constant(program: Program, anchor: Anchor) -> Iterator[Program]:
    """A number in the place of a header field."""
    _, node = _site(program, anchor)
    for i, part in enumerate(anchor.parts):
        if part.header:
            made = Value("mutant.c", node.operands[i].type)
            yield _operand(program, anchor, i, made, (nodes.Const(made, 1, node.span),))


def _rewritten(program: Program, anchor: Anchor) -> Iterator[Program]:
    """A header field is changed before it is read for the key."""
    _, node = _site(program, anchor)
    for i, part in enumerate(anchor.parts):
        kind = field_of(part.header, part.field) if part.header and part.header != "meta" else None
        if kind is None or not kind.writable or bits_of(node.operands[i].type) != kind.bits:
            continue
        one, more, again = (Value(f"mutant.{n}", node.operands[i].type) for n in ("one", "more", "again"))
        steps = (nodes.Const(one, 1, node.span), nodes.Binary(more, "xor", node.operands[i], one, node.span),
                 nodes.Store(part.header, part.field, more, node.span),
                 nodes.Load(again, part.header, part.field, node.span))
        yield _operand(program, anchor, i, again, steps)


def _behind(program: Program, anchor: Anchor) -> tuple[Block, Value] | None:
    """The block behind a map's hit, and the entry."""
    _, node = _site(program, anchor)
    return (program.block(node.hit), node.entry) if isinstance(node, nodes.Lookup) else None


def _deleting(program: Program, anchor: Anchor) -> Iterator[Program]:
    behind = _behind(program, anchor)
    if behind is not None:
        block, entry = behind
        steps = (nodes.Delete(entry, block.span), *block.instructions)
        yield _with(program, [replace(block, instructions=steps)])


def _inserting(program: Program, anchor: Anchor) -> Iterator[Program]:
    """Another entry is inserted behind the hit."""
    behind = _behind(program, anchor)
    state = program.state(anchor.state)
    if behind is None or not isinstance(state, nodes.MapState):
        return
    block, _ = behind
    allocated = {f for a in state.allocs for f in a.fields}
    values = [Value(f"mutant.{f.name}", f.type) for f in state.fields if f.name not in allocated]
    numbers = tuple(nodes.Const(v, 1, block.span) for v in values)
    rest = Block("mutant_rest", (), block.instructions, block.terminator, block.span)
    timeout = state.timeouts[0].name if state.timeouts else ""
    made = Value("mutant.entry", anchor_entry(program, anchor).type)
    insert = nodes.Insert(anchor.state, tuple(values), tuple(() for _ in state.allocs), timeout, made, "mutant_ok",
                          "mutant_full", block.span)
    ways = [Block(n, (), (), nodes.Jump("mutant_rest", (), block.span), block.span)
            for n in ("mutant_ok", "mutant_full")]
    yield _with(program, [replace(block, instructions=numbers, terminator=insert), *ways, rest])


def anchor_entry(program: Program, anchor: Anchor) -> Value:
    node = program.block(anchor.block).terminator
    assert isinstance(node, nodes.Lookup)
    return node.entry


def _looking_again(program: Program, anchor: Anchor) -> Iterator[Program]:
    """A second look-up behind the hit, by the same key but for one part."""
    behind = _behind(program, anchor)
    _, node = _site(program, anchor)
    if behind is None or not isinstance(node, nodes.Lookup):
        return
    block, entry = behind
    wide = [i for i, v in enumerate(node.operands) if v.type != BOOL and bits_of(v.type) >= 16]
    made, one = Value("mutant.key", node.operands[wide[-1]].type), Value("mutant.one", node.operands[wide[-1]].type)
    steps = (nodes.Const(one, 1, node.span), nodes.Binary(made, "xor", node.operands[wide[-1]], one, node.span))
    operands = tuple(made if i == wide[-1] else v for i, v in enumerate(node.operands))
    yield _second(program, block, replace(node, operands=operands, entry=Value("mutant.entry", entry.type)), steps)


def _from_entry(program: Program, anchor: Anchor) -> Iterator[Program]:
    """A second look-up behind the hit, by a key out of the entry with two parts exchanged."""
    behind = _behind(program, anchor)
    _, node = _site(program, anchor)
    state = program.state(anchor.state)
    if behind is None or not isinstance(node, nodes.Lookup) or not isinstance(state, nodes.MapState):
        return
    block, entry = behind
    made = [Value(f"mutant.{i}", v.type) for i, v in enumerate(node.operands)]
    steps = tuple(nodes.LoadEntry(v, entry, f, node.span) for v, f in zip(made, anchor.fields, strict=True))
    if len(made) < 4:
        return
    operands = (made[2], made[3], made[0], made[1], *made[4:])
    yield _second(program, block, replace(node, operands=operands, entry=Value("mutant.entry", entry.type)), steps)


def _second(program: Program, block: Block, lookup: nodes.Lookup, steps: Sequence[Instruction]) -> Program:
    first = tuple(i for i in block.instructions if isinstance(i, nodes.LoadEntry))
    rest = Block("mutant_rest", (), tuple(i for i in block.instructions if i not in first), block.terminator,
                 block.span)
    ways = [Block(n, (), (), nodes.Jump("mutant_rest", (), block.span), block.span)
            for n in ("mutant_hit", "mutant_miss")]
    terminator: Terminator = replace(lookup, hit="mutant_hit", miss="mutant_miss")
    changed = replace(block, instructions=(*first, *steps), terminator=terminator)
    return _with(program, [changed, *ways, rest])


def _charging_again(program: Program, anchor: Anchor) -> Iterator[Program]:
    """A second charge, to another bucket, behind a conforming one."""
    _, node = _site(program, anchor)
    if not isinstance(node, nodes.Police):
        return
    block = program.block(node.green)
    made, one = (Value(f"mutant.{n}", node.operands[0].type) for n in ("key", "one"))
    steps = (nodes.Const(one, 1, node.span), nodes.Binary(made, "xor", node.operands[0], one, node.span))
    rest = Block("mutant_rest", (), block.instructions, block.terminator, block.span)
    names = ("mutant_green", "mutant_red", "mutant_full")
    ways = [Block(n, (), (), nodes.Jump("mutant_rest", (), block.span), block.span) for n in names]
    charge = replace(node, operands=(made, *node.operands[1:]), green=names[0], red=names[1], full=names[2],
                     yellow=None)
    yield _with(program, [replace(block, instructions=steps, terminator=charge), *ways, rest])


def _other_port(program: Program, anchor: Anchor) -> Iterator[Program]:
    """Packets from the other port take the anchor's handler too."""
    first = program.blocks[0]
    if not isinstance(first.terminator, nodes.Switch) or len(anchor.ports) != 1:
        return
    number = program.port_index(anchor.ports[0])
    target = dict(nodes.successors(first.terminator)).get(str(number), first.terminator.default)
    jump = nodes.Jump(target, (), first.span)
    yield _with(program, [replace(first, terminator=jump)])


_KINDS: dict[str, Callable[[Program, Anchor], Iterator[Program]]] = {
    "swap": _swapped, "double": _doubled, "constant": _constant, "rewrite": _rewritten, "delete": _deleting,
    "insert": _inserting, "look again": _looking_again, "key of the entry": _from_entry,
    "charge again": _charging_again, "other port": _other_port,
}
