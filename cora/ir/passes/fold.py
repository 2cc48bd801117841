"""Constants, identities and tests whose outcome is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cora.ir import nodes
from cora.ir.cfg import headers_gained
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value, successors
from cora.ir.passes import arithmetic
from cora.ir.passes.rewrite import substitute, with_blocks
from cora.ir.types import BOOL, EntryRef, bits_of


@dataclass(frozen=True)
class FoldConstants:
    """Compute what is known: operators on constants, x + 0 and the like, branches with one possible way.

    A condition is known below its own branch, the value of a switch below its case. Configs are no constants: they
    change with the epoch.
    """

    name: ClassVar[str] = "fold-constants"

    def apply(self, program: Program) -> Program:
        """See the class."""
        return _Folder(program).program_after()


class _Folder:
    def __init__(self, program: Program) -> None:
        self.program = program
        # Known numbers by value name at the end of every edge into a block that has been seen.
        self.entering: dict[str, list[dict[str, int]]] = {program.blocks[0].label: [{}]}
        self.arguments: dict[str, list[tuple[Value, ...]]] = {}
        self.same: dict[str, Value] = {}
        self.definitions: dict[str, Instruction] = {}
        self.dropped: dict[str, tuple[bool, ...]] = {}

    def program_after(self) -> Program:
        blocks = [self.block(b) for b in self.program.blocks if b.label in self.entering]
        return with_blocks(self.program, [self.without_arguments(b) for b in blocks])

    def block(self, block: Block) -> Block:
        known = _common(self.entering[block.label])
        params, made = self.params(block, known)
        instructions: list[Instruction] = list(made)
        for instruction in block.instructions:
            instructions += self.instruction(substitute(instruction, self.same), known)
        terminator = self.terminator(substitute(block.terminator, self.same), known)
        for outcome, target in successors(terminator):
            arriving = {**known, **_learnt(terminator, outcome)}
            self.entering.setdefault(target, []).append(arriving)
            if isinstance(terminator, nodes.Jump):
                self.arguments.setdefault(target, []).append(terminator.args)
        return replace(block, params=params, instructions=tuple(instructions), terminator=terminator)

    def params(self, block: Block, known: dict[str, int]) -> tuple[tuple[Value, ...], list[Instruction]]:
        """The parameters that differ between the ways in, and constants for those that are one number."""
        ways = self.arguments.get(block.label, [])
        kept, made, dropped = [], [], []
        for i, param in enumerate(block.params):
            numbers = {facts.get(way[i].name) for facts, way in zip(self.entering[block.label], ways, strict=True)}
            (number,) = numbers if len(numbers) == 1 else (None,)
            names = {way[i].name for way in ways}
            movable = not isinstance(param.type, EntryRef)
            if movable and number is not None:
                made.append(nodes.Const(param, number, block.span))
                known[param.name] = number
            elif movable and len(names) == 1:
                self.same[param.name] = ways[0][i]
            else:
                kept.append(param)
            dropped.append(param not in kept)
        if any(dropped):
            self.dropped[block.label] = tuple(dropped)
        return tuple(kept), list(made)

    def without_arguments(self, block: Block) -> Block:
        jump = block.terminator
        if not isinstance(jump, nodes.Jump) or jump.target not in self.dropped:
            return block
        args = tuple(a for a, gone in zip(jump.args, self.dropped[jump.target], strict=True) if not gone)
        return replace(block, terminator=replace(jump, args=args))

    def instruction(self, node: Instruction, known: dict[str, int]) -> list[Instruction]:
        result = nodes.result_of(node)
        if result is None or isinstance(result.type, EntryRef):
            return [node]
        number = _number(node, known)
        if number is not None:
            known[result.name] = number
            self.definitions[result.name] = made = nodes.Const(result, number, node.span)
            return [made]
        other = self.identity(node, known)
        if isinstance(other, Value):
            self.same[result.name] = other
            return []
        self.definitions[result.name] = other
        return [other]

    def identity(self, node: Instruction, known: dict[str, int]) -> Value | Instruction:
        """The value that this instruction gives, or the simplest instruction that gives it."""
        match node:
            case nodes.Binary():
                return _same_binary(node, known) or node
            case nodes.Cast(result=result, operand=operand) if result.type == operand.type:
                return operand
            case nodes.Select():
                return _select(node, known)
            case nodes.Compare() if node.left.type == BOOL:
                return _compare_bools(node, known)
            case nodes.Unary(operand=operand):
                before = self.definitions.get(operand.name)
                twice = isinstance(before, nodes.Unary) and before.op == node.op
                return before.operand if twice and isinstance(before, nodes.Unary) else node
            case _:
                return node

    def terminator(self, node: Terminator, known: dict[str, int]) -> Terminator:
        match node:
            case nodes.Branch(condition=condition) if condition.name in known:
                return nodes.Jump(node.if_true if known[condition.name] else node.if_false, (), node.span)
            case nodes.Switch(value=value) if value.name in known:
                return nodes.Jump(dict(node.cases).get(known[value.name], node.default), (), node.span)
            case nodes.Switch():
                cases = tuple((v, t) for v, t in node.cases if t != node.default)
                return replace(node, cases=cases) if cases else nodes.Jump(node.default, (), node.span)
            case nodes.Branch() | nodes.HasHeader() | nodes.IsFragment():
                targets = {t for _, t in successors(node)}
                return nodes.Jump(targets.pop(), (), node.span) if len(targets) == 1 else node
            case _:
                return node


def _common(ways: list[dict[str, int]]) -> dict[str, int]:
    first, *others = ways
    return {k: v for k, v in first.items() if all(o.get(k) == v for o in others)}


def _learnt(terminator: Terminator, outcome: str) -> dict[str, int]:
    """What taking an edge says about a value."""
    if isinstance(terminator, nodes.Branch):
        return {terminator.condition.name: int(outcome == "true")}
    if isinstance(terminator, nodes.Switch) and outcome != "default":
        return {terminator.value.name: int(outcome)}
    return {}


def _number(node: Instruction, known: dict[str, int]) -> int | None:
    """The number an instruction gives, when that is known."""
    values = [known.get(v.name) for v in nodes.operands_of(node)]
    match node, values:
        case nodes.Const(), _:
            return node.value
        case nodes.Unary(), [int(a)]:
            return arithmetic.invert(a, node.result.type)
        case nodes.Cast(), [int(a)]:
            return arithmetic.cast(a, node.result.type)
        case nodes.Binary(), [int(a), int(b)]:
            return arithmetic.binary(node.op, a, b, node.result.type)
        case nodes.Compare(), [int(a), int(b)]:
            return arithmetic.compare(node.op, a, b)
        case nodes.Compare(), _ if node.left == node.right and not isinstance(node.left.type, EntryRef):
            return int(node.op in ("eq", "le", "ge"))
        case nodes.Binary(), _:
            return _absorbed(node, *values)
        case nodes.Select(), [int(c), yes, no]:
            return yes if c else no
        case nodes.Select(), [None, int(yes), int(no)] if yes == no:
            return yes
        case _:
            return None


def _absorbed(node: nodes.Binary, left: int | None, right: int | None) -> int | None:
    """0 or all ones where one operand, or both being the same, decides the result."""
    ones = (1 << bits_of(node.result.type)) - 1
    if node.op in ("xor", "sub") and node.left == node.right:
        return 0
    if 0 in (left, right) and node.op in ("and", "mul", "min"):
        return 0
    if ones in (left, right) and node.op in ("or", "max"):
        return ones
    if node.op in ("shl", "shr") and right is not None and right >= bits_of(node.result.type):
        return 0
    return 0 if left == 0 and node.op in ("shl", "shr", "div", "mod") else None


# Per operator the right operand that leaves the left one as it is; "ones" is all bits set.
_NEUTRAL: dict[str, int | str] = {"add": 0, "sub": 0, "or": 0, "xor": 0, "shl": 0, "shr": 0, "max": 0, "mul": 1,
                                  "div": 1, "and": "ones", "min": "ones"}
_COMMUTES = ("add", "or", "xor", "max", "mul", "and", "min")


def _same_binary(node: nodes.Binary, known: dict[str, int]) -> Value | None:
    neutral = _NEUTRAL.get(node.op)
    if neutral == "ones":
        neutral = (1 << bits_of(node.result.type)) - 1
    if node.left == node.right and node.op in ("and", "or", "min", "max"):
        return node.left
    if neutral is None:
        return None
    if known.get(node.right.name) == neutral:
        return node.left
    return node.right if known.get(node.left.name) == neutral and node.op in _COMMUTES else None


def _select(node: nodes.Select, known: dict[str, int]) -> Value | Instruction:
    condition = known.get(node.condition.name)
    if condition is not None:
        return node.if_true if condition else node.if_false
    if node.if_true == node.if_false:
        return node.if_true
    if node.result.type == BOOL:
        match known.get(node.if_true.name), known.get(node.if_false.name):
            case 1, 0:
                return node.condition
            case 0, 1:
                return nodes.Unary(node.result, "not", node.condition, node.span)
    return node


def _compare_bools(node: nodes.Compare, known: dict[str, int]) -> Value | Instruction:
    for value, number in ((node.left, known.get(node.right.name)), (node.right, known.get(node.left.name))):
        if number is not None:
            same = (node.op == "eq") == (number == 1)
            return value if same else nodes.Unary(node.result, "not", value, node.span)
    return node


@dataclass(frozen=True)
class FoldHeaders:
    """Decide ``p is tcp`` where every way here extracted the header, or none did."""

    name: ClassVar[str] = "fold-headers"

    def apply(self, program: Program) -> Program:
        """See the class."""
        surely: dict[str, frozenset[str]] = {program.blocks[0].label: frozenset()}
        perhaps: dict[str, frozenset[str]] = {program.blocks[0].label: frozenset()}
        blocks = []
        for block in program.blocks:
            if block.label not in surely:
                continue
            here, possible = surely[block.label], perhaps[block.label]
            terminator = block.terminator
            if isinstance(terminator, nodes.HasHeader):
                if terminator.header in here:
                    terminator = nodes.Jump(terminator.if_present, (), terminator.span)
                elif terminator.header not in possible:
                    terminator = nodes.Jump(terminator.if_absent, (), terminator.span)
            for outcome, target in successors(terminator):
                gained = headers_gained(terminator, outcome)
                lost = {terminator.header} if isinstance(terminator, nodes.HasHeader) and outcome == "absent" else set()
                arriving, maybe = here.union(gained), possible.union(gained) - lost
                surely[target] = surely[target] & arriving if target in surely else arriving
                perhaps[target] = perhaps.get(target, frozenset()) | maybe
            blocks.append(replace(block, terminator=terminator))
        return with_blocks(program, blocks)
