"""Values that were computed before on every way here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from cora.ir import nodes
from cora.ir.headers import QUOTED, field_of, header_type
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value, successors
from cora.ir.passes.rewrite import substitute, with_blocks

_Changed = Callable[[str, str], bool]
# What an instruction computes: its operator and operands, without where and under which name.
Key = tuple[object, ...]

_COMMUTES = ("add", "mul", "and", "or", "xor", "min", "max", "eq", "ne")
# Headers at the start of what layer 3 or layer 4 carries; of one layer they lie over each other.
_LAYER3 = ("arp", "ipv4", "ipv6")
_LAYER4 = ("tcp", "udp", "icmp", "icmp6", "l4")


@dataclass(frozen=True)
class ShareLoads:
    """Use a value again that every way here has computed: operators, configs, header fields and entry fields.

    A header field is read again after a store that may have changed it, an entry field after a store to that field of
    any entry of the table. ``across=no`` looks inside blocks only, which keeps fewer values alive between them.
    """

    name: ClassVar[str] = "share-loads"
    across: Literal["yes", "no"] = "yes"

    def apply(self, program: Program) -> Program:
        """See the class."""
        return _Sharer(program, self.across == "yes").program_after()


class _Sharer:
    def __init__(self, program: Program, across: bool) -> None:
        self.program = program
        self.across = across
        self.entering: dict[str, list[dict[Key, Value]]] = {program.blocks[0].label: [{}]}
        self.same: dict[str, Value] = {}
        self.consts: dict[str, Key] = {}
        self.evicting = {s.name for s in program.states if isinstance(s, nodes.MapState) and s.full == "evict_lru"}

    def program_after(self) -> Program:
        return with_blocks(self.program, [self.block(b) for b in self.program.blocks])

    def block(self, block: Block) -> Block:
        known = _common(self.entering[block.label]) if self.across else {}
        local: dict[Key, Value] = {}
        instructions: list[Instruction] = []
        for instruction in block.instructions:
            node = substitute(instruction, self.same)
            result = nodes.result_of(node)
            if result is None:
                _forget(known, node)
                if isinstance(node, nodes.Store):
                    known[("load", node.header, node.field)] = node.value
                instructions.append(node)
                continue
            key = self.key(node)
            # Constants cost nothing to make again, so they are not kept alive from block to block.
            table = local if isinstance(node, nodes.Const) else known
            before = table.get(key)
            if before is not None and before.type == result.type:
                self.same[result.name] = before
                continue
            table[key] = result
            instructions.append(node)
        terminator = substitute(block.terminator, self.same)
        for outcome, target in successors(terminator):
            arriving = dict(known)
            self.forget_behind(arriving, terminator, outcome)
            self.entering.setdefault(target, []).append(arriving)
        return replace(block, instructions=tuple(instructions), terminator=terminator)

    def key(self, node: Instruction) -> Key:
        match node:
            case nodes.Const(result=result, value=value):
                key: Key = ("const", value, result.type)
                self.consts[result.name] = key
                return key
            case nodes.Load():
                return ("load", node.header, node.field)
            case nodes.LoadEntry():
                state = getattr(node.entry.type, "state", "")
                return ("entry", state, node.field, node.entry.name)
            case nodes.LoadConfig():
                return ("config", node.config)
            case nodes.Meta():
                return ("meta", node.what)
            case _:
                operands: list[Key | str] = [self.consts.get(v.name, v.name) for v in nodes.operands_of(node)]
                op = getattr(node, "op", "")
                if op in _COMMUTES:
                    operands.sort(key=str)
                made = nodes.result_of(node)
                assert made is not None, "only instructions with a result are shared"
                return (type(node).__name__, op, made.type, *operands)

    def forget_behind(self, known: dict[Key, Value], terminator: Terminator, outcome: str) -> None:
        """Drop what a terminator may change on the way it takes."""
        if isinstance(terminator, nodes.Insert) and terminator.state in self.evicting:
            _drop_entries(known, terminator.state)
        if isinstance(terminator, nodes.TrackFragment):
            _drop_loads(known, lambda header, _: header in _LAYER4 or header.startswith(QUOTED))
        if isinstance(terminator, nodes.Extract) and outcome != "absent":
            moved = _MOVES.get(terminator.header, ())
            _drop_loads(known, lambda header, _: header in moved)


_QUOTED_LAYER4 = tuple(QUOTED + h for h in _LAYER4)
_QUOTED = (QUOTED + "ipv4", QUOTED + "ipv6", *_QUOTED_LAYER4)
# Headers that extracting another one may find elsewhere (docs/semantics.md, section 2).
_MOVES: dict[str, tuple[str, ...]] = {
    "eth": ("eth", "vlan", *_LAYER3, *_LAYER4, *_QUOTED), "ipv4": ("ipv4", *_LAYER4, *_QUOTED),
    "ipv6": ("ipv6", *_LAYER4, *_QUOTED), "icmp": _QUOTED, "icmp6": _QUOTED,
    QUOTED + "ipv4": (QUOTED + "ipv4", *_QUOTED_LAYER4), QUOTED + "ipv6": (QUOTED + "ipv6", *_QUOTED_LAYER4),
}


def _common(ways: list[dict[Key, Value]]) -> dict[Key, Value]:
    first, *others = ways
    return {k: v for k, v in first.items() if all(o.get(k) == v for o in others)}


def _forget(known: dict[Key, Value], node: Instruction) -> None:
    """Drop what a store, touch, delete or count may change."""
    match node:
        case nodes.Store():
            _drop_loads(known, lambda header, field: may_change(node.header, node.field, header, field))
        case nodes.StoreEntry(entry=entry, field=field):
            _drop_entries(known, getattr(entry.type, "state", ""), field)
        case nodes.Delete(entry=entry):
            _drop_entries(known, getattr(entry.type, "state", ""))
        case _:
            pass


def _drop_loads(known: dict[Key, Value], changed: _Changed) -> None:
    for key in [k for k in known if k[0] == "load" and changed(str(k[1]), str(k[2]))]:
        del known[key]


def _drop_entries(known: dict[Key, Value], state: str, field: str | None = None) -> None:
    for key in [k for k in known if k[:2] == ("entry", state) and field in (None, k[2])]:
        del known[key]


def may_change(stored: str, stored_field: str, read: str, read_field: str) -> bool:
    """Whether storing a header field may change what reading another (or the same) field gives.

    Checksums change with nearly everything. Headers of one layer share their bytes, and where a program reads two
    kinds of header from one layer, or payload as a header, nothing is assumed.
    """
    if read_field == "checksum":
        return stored not in ("eth", "vlan")
    if stored == read:
        return _overlap(stored, stored_field, read, read_field)
    link = {"eth", "vlan"}
    if stored in link or read in link:
        return False
    if stored in _LAYER4 and read in _LAYER4:
        return _overlap(stored, stored_field, read, read_field)
    if stored in _QUOTED_LAYER4 and read in _QUOTED_LAYER4:
        return _overlap(stored, stored_field, read, read_field)
    layers = [{"ipv4"}, {"ipv6"}, {"tcp", "udp", "l4"}, {"icmp", "icmp6"}, {QUOTED + "ipv4"}, {QUOTED + "ipv6"},
              set(_QUOTED_LAYER4)]
    order = [next((i for i, layer in enumerate(layers) if h in layer), None) for h in (stored, read)]
    # IP headers, what they carry, and what an ICMP error quotes lie one behind the other.
    apart = {(0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 5), (0, 6), (1, 6), (3, 4), (3, 5), (3, 6), (4, 6), (5, 6)}
    first, second = order
    if first is None or second is None:
        return True
    return (min(first, second), max(first, second)) not in apart


def _overlap(stored: str, stored_field: str, read: str, read_field: str) -> bool:
    a, b = field_of(stored, stored_field), field_of(read, read_field)
    assert a is not None and b is not None and header_type(stored), "a verified program names fields that exist"
    if a.computed or b.computed:
        return False
    return a.bit < b.bit + b.bits and b.bit < a.bit + a.bits
