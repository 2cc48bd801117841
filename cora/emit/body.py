"""Blocks of a program as labelled C statements, shared by all dialects."""

from __future__ import annotations

from pathlib import PurePath

from cora.analysis.paths import Numbering, number_paths
from cora.emit import expressions
from cora.emit.dialect import Dialect, Lines
from cora.emit.headers import present_flag
from cora.emit.names import comment, literal
from cora.ir import nodes
from cora.ir.nodes import Block, Instruction, Program, Terminator, Value, operands_of, result_of, successors
from cora.ir.types import bytes_of

_OUTCOMES = {"ok": "CORA_OK", "malformed": "CORA_MALFORMED", "unparsed": "CORA_UNPARSED",
             "bad_checksum": "CORA_BAD_CHECKSUM", "source_route": "CORA_SOURCE_ROUTE", "absent": "CORA_ABSENT"}

# Instructions that may be left out when nobody reads their result.
_PURE = (nodes.Const, nodes.Unary, nodes.Binary, nodes.Compare, nodes.Cast, nodes.Select, nodes.LoadConfig, nodes.Meta,
         nodes.Load, nodes.LoadEntry)


class Body:
    """Turns the blocks of one program into statements of one dialect."""

    def __init__(self, program: Program, dialect: Dialect) -> None:
        """Number the paths and find the values that are read at all."""
        self.program, self.dialect = program, dialect
        self.blocks = {b.label: b for b in program.blocks}
        self.paths: Numbering = number_paths(program)
        self.needed = needed_values(program)
        # The source line that was told last, and in which block; the label of a block tells the block's own.
        self._told = ("", "")

    def block(self, block: Block) -> Lines:
        """Instructions of a block, without its label and terminator, each line of the source before what it became."""
        self._told = (block.label, line_comment(block))
        out: Lines = []
        for instruction in block.instructions:
            out += self._with_line(block, instruction, self.instruction(instruction))
        return out

    def _with_line(self, block: Block, node: Instruction | Terminator, lines: Lines) -> Lines:
        """The statements of a node, with its source line where it is another one than before."""
        where, told = self._told
        line = line_comment(node)
        if not lines or line == (told if where == block.label else line_comment(block)):
            return lines
        self._told = (block.label, line)
        return [line, *lines]

    def instruction(self, node: Instruction) -> Lines:
        """Statements of one instruction; none for constants (they stand where they are used) and unused results."""
        result = result_of(node)
        if isinstance(node, nodes.Const | nodes.LoadConfig) or (isinstance(node, _PURE) and result not in self.needed):
            return []
        if result is not None:
            return [f"{self.dialect.names.value(result)} = {self.expression(node)};"]
        return self.effect(node)

    def expression(self, node: Instruction) -> str:
        """What an instruction computes."""
        use, known = self.dialect.use, self.dialect.known
        match node:
            case nodes.Unary():
                return expressions.unary(node, use)
            case nodes.Binary():
                return expressions.binary(node, use, known)
            case nodes.Compare():
                return expressions.compare(node, use, known)
            case nodes.Cast():
                return expressions.cast(node, use)
            case nodes.Select():
                return expressions.select(node, use)
            case nodes.Meta():
                return self.dialect.meta(node)
            case nodes.Load():
                return self.dialect.load_header(node)
            case nodes.LoadEntry():
                return self.dialect.load_entry(node)
        raise TypeError(f"{node.mnemonic} computes no value")

    def effect(self, node: Instruction) -> Lines:
        """What an instruction changes."""
        match node:
            case nodes.Store():
                return self.dialect.store_header(node)
            case nodes.StoreEntry():
                return self.dialect.store_entry(node)
            case nodes.Touch():
                return self.dialect.touch(node)
            case nodes.Delete():
                return self.dialect.delete(node)
            case nodes.Count():
                return self.dialect.count(node)
        raise TypeError(f"{node.mnemonic} changes nothing")

    def gotos(self, block: Block) -> dict[str, str]:
        """Per outcome the statement that follows its edge; path numbers are added up on the way."""
        found = {}
        edges = zip(successors(block.terminator), self.paths.increments[block.label], strict=True)
        for (outcome, target), step in edges:
            jump = f"goto {self.dialect.names.block(target)};"
            found[outcome] = f"{{ CORA_STEP({step}); {jump} }}" if step else jump
        return found

    def terminator(self, block: Block) -> Lines:
        """Statements of a terminator, after `block` of its block; a table access finds its hash in ``hash``."""
        return self._with_line(block, block.terminator, self._end(block))

    def _end(self, block: Block) -> Lines:
        node, goto = block.terminator, self.gotos(block)
        match node:
            case nodes.Lookup():
                return self.dialect.lookup(node, goto)
            case nodes.Insert():
                return self.dialect.insert(node, goto)
            case nodes.Police():
                return self.dialect.police(node, goto)
            case nodes.TrackFragment():
                return self.dialect.track(node, goto)
            case nodes.Forward() | nodes.Drop() | nodes.Reject() | nodes.Hold():
                return self.dialect.leave(node)
            case nodes.Punt():
                return self.dialect.punt(node)
        return self.control(node, goto)

    def control(self, node: Terminator, goto: dict[str, str]) -> Lines:
        """Terminators that only choose a block."""
        match node:
            case nodes.Jump():
                return [*self.passed(node), goto["next"]]
            case nodes.Branch():
                return choice(self.dialect.use(node.condition), goto["true"], goto["false"])
            case nodes.HasHeader():
                return choice(f"p->present & {present_flag(node.header)}", goto["present"], goto["absent"])
            case nodes.IsFragment():
                return choice("p->is_fragment", goto["fragment"], goto["whole"])
            case nodes.Switch():
                return self.switch(node, goto)
            case nodes.Extract():
                return select_case(self.dialect.extract(node), [(_OUTCOMES[o], goto[o]) for o, _ in node.outcomes])
        raise TypeError(f"{node.mnemonic} is no plain terminator")

    def passed(self, node: nodes.Jump) -> Lines:
        """Assignments to the parameters of a jump's target."""
        pairs = zip(self.blocks[node.target].params, node.args, strict=True)
        return [f"{self.dialect.names.value(p)} = {self.dialect.use(a)};" for p, a in pairs if p in self.needed]

    def switch(self, node: nodes.Switch, goto: dict[str, str]) -> Lines:
        value, type_ = self.dialect.use(node.value), node.value.type
        cases = [(literal(v, type_), goto[str(v)]) for v, _ in node.cases]
        if bytes_of(type_) > 8:
            return [*(f"if ({value} == {v}) {g}" for v, g in cases), goto["default"]]
        return select_case(value, [*cases, ("", goto["default"])])


def choice(condition: str, if_true: str, if_false: str) -> Lines:
    """A two-way branch."""
    return [f"if ({condition})", f"    {if_true}", if_false]


def select_case(value: str, cases: list[tuple[str, str]]) -> Lines:
    """A switch that never falls out: its last case is the default."""
    out = [f"switch ({value}) {{"]
    out += [f"case {name}: {goto}" for name, goto in cases[:-1]]
    return [*out, f"default: {cases[-1][1]}", "}"]


def needed_values(program: Program) -> frozenset[Value]:
    """Values that reach something with an effect: a terminator, a store, a table."""
    needed: set[Value] = set()
    params = {b.label: b.params for b in program.blocks}
    for block in reversed(program.blocks):
        node = block.terminator
        if isinstance(node, nodes.Jump):
            needed.update(a for p, a in zip(params[node.target], node.args, strict=True) if p in needed)
        else:
            needed.update(operands_of(node))
        for instruction in reversed(block.instructions):
            if not isinstance(instruction, _PURE) or result_of(instruction) in needed:
                needed.update(operands_of(instruction))
    return frozenset(needed)


def results_of(block: Block) -> list[Value]:
    """Values a block defines before its terminator: parameters and results."""
    return [*block.params, *(r for i in block.instructions if (r := result_of(i)) is not None)]


def line_comment(node: Block | Instruction | Terminator) -> str:
    """Where code came from. Only the file's name: the same program elsewhere is the same C file."""
    return f"/* {comment(f'{PurePath(node.span.file).name}:{node.span.line}')} */"
