"""Outcomes that no packet can take with a program's config values and the entries of its tables, and why."""

from __future__ import annotations

from collections.abc import Iterator

from cora.analysis.symbolic import Environment, Evaluator, Expr, nodes_in, over_all_paths
from cora.ir import nodes
from cora.ir.nodes import Block, Instruction, Program, Value, operands_of, successors
from cora.ir.types import EntryRef, bits_of

Edge = tuple[str, str]


def ruled_out(program: Program) -> dict[Edge, str]:
    """Per outcome (block, outcome) that cannot be taken why, in program order.

    Found are branches and switches over values that configs, constants and read-only tables decide, look-ups in tables
    that are always empty, and what lies behind nothing but those. It is no proof that all others can be taken.
    """
    found = dict(_decided(program))
    reached = {program.blocks[0].label}
    behind: dict[str, str] = {}
    for block in program.blocks:
        for outcome, target in successors(block.terminator):
            edge = (block.label, outcome)
            if block.label not in reached:
                found[edge] = behind.get(block.label, "nothing leads there")
            if edge not in found:
                reached.add(target)
            elif target not in behind:
                behind[target] = found[edge]
    order = [(b.label, outcome) for b in program.blocks for outcome, _ in successors(b.terminator)]
    return {edge: found[edge] for edge in order if edge in found}


def _decided(program: Program) -> Iterator[tuple[Edge, str]]:
    found: list[tuple[Edge, str]] = []
    definitions = {r.name: i for b in program.blocks for i in b.instructions if (r := nodes.result_of(i)) is not None}
    same = _same_values(program)
    inserted = {b.terminator.state for b in program.blocks if isinstance(b.terminator, nodes.Insert)}

    def visit(block: Block, _: Environment, evaluator: Evaluator) -> None:
        found.extend(_of(block, evaluator))

    def _of(block: Block, evaluator: Evaluator) -> Iterator[tuple[Edge, str]]:
        node = block.terminator
        if isinstance(node, nodes.Lookup):
            empty = _always_empty(program, node.state, inserted)
            if empty:
                yield (block.label, "hit"), empty
            if _always_hits(program.state(node.state)):
                yield (block.label, "miss"), f"table '{node.state}' has an entry for every key"
        if isinstance(node, nodes.Branch | nodes.Switch):
            value = node.condition if isinstance(node, nodes.Branch) else node.value
            number = _number(evaluator, value, same)
            if number is not None:
                taken = _taken(node, number)
                why = _why(program, definitions, value)
                yield from (((block.label, outcome), why) for outcome, _ in successors(node) if outcome != taken)

    over_all_paths(program, visit)
    yield from found


def _taken(node: nodes.Branch | nodes.Switch, number: int) -> str:
    if isinstance(node, nodes.Branch):
        return "true" if number else "false"
    return str(number) if number in {v for v, _ in node.cases} else "default"


def _number(evaluator: Evaluator, value: Value, same: dict[tuple[str, str], int]) -> int | None:
    """What a value always is, None where that depends on the packet."""
    expr = evaluator.values.get(value.name)
    if expr is None:
        return None
    known: dict[Expr, Expr] = {
        part: evaluator.make.const(same[str(part.detail[0]), str(part.detail[1])], part.bits)
        for part in nodes_in(expr) if part.op == "table" and (str(part.detail[0]), str(part.detail[1])) in same}
    return evaluator.make.substitute(expr, known).constant


def _same_values(program: Program) -> dict[tuple[str, str], int]:
    """(read-only table, field) -> the value that all of its entries have."""
    found: dict[tuple[str, str], int] = {}
    for state in program.states:
        if not isinstance(state, nodes.AclState | nodes.LpmState):
            continue
        for number, field in enumerate(state.values):
            values = {entry.values[number] for entry in state.entries}
            if len(values) == 1:
                found[state.name, field.name] = values.pop()
    return found


def _always_empty(program: Program, name: str, inserted: set[str]) -> str:
    """Why a look-up in a table never hits; empty where it may."""
    state = program.state(name)
    if isinstance(state, nodes.AclState | nodes.LpmState) and not state.entries:
        return f"table '{name}' has no entry"
    if isinstance(state, nodes.MapState) and name not in inserted:
        return f"nothing is inserted into '{name}'"
    return ""


def _always_hits(state: nodes.State) -> bool:
    if isinstance(state, nodes.LpmState):
        return any(entry.length == 0 for entry in state.entries)
    return isinstance(state, nodes.AclState) and any(
        all(_takes_all(kind, match, bits_of(key.type)) for kind, match, key in
            zip(state.kinds, entry.match, state.keys, strict=True)) for entry in state.entries)


def _takes_all(kind: nodes.MatchKind, match: tuple[int, int], bits: int) -> bool:
    return match == (0, (1 << bits) - 1) if kind == "range" else kind == "ternary" and match[1] == 0


def _why(program: Program, definitions: dict[str, Instruction], value: Value) -> str:
    """The configs and tables that decide a value."""
    configs = {c.name: c.value for c in program.configs}
    found: dict[str, None] = {}
    pending, seen = [value], {value.name}
    while pending:
        node = definitions.get(pending.pop().name)
        if isinstance(node, nodes.LoadConfig):
            found[f"config '{node.config}' is {configs[node.config]}"] = None
        if isinstance(node, nodes.LoadEntry):
            assert isinstance(node.entry.type, EntryRef), "the verifier lets entry instructions take references only"
            found[f"'{node.field}' is the same in all entries of '{node.entry.type.state}'"] = None
        for operand in () if node is None or isinstance(node, nodes.LoadEntry) else operands_of(node):
            if operand.name not in seen:
                seen.add(operand.name)
                pending.append(operand)
    return ", ".join(found) or "a constant decides it"
