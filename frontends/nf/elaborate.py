"""Syntax tree to verified IR: declarations, dispatch, handler bodies, then the simplifying passes."""

from __future__ import annotations

from collections.abc import Mapping

from cora.errors import CoraError, Kind
from cora.frontends.nf import ast
from cora.frontends.nf.builder import Place
from cora.frontends.nf.declare import Errors, Symbols, declare
from cora.frontends.nf.dispatch import Dispatch
from cora.frontends.nf.lower import Lowering, TooLarge
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.span import Span
from cora.ir.verify import verify


def elaborate(source: ast.Source, overrides: Mapping[str, str]) -> Program:
    """Check a parsed program and lower it.

    Raises:
        CoraError: everything found wrong, in order of place.
    """
    errors = Errors()
    symbols = declare(source, overrides, errors)
    failed = {n for n in symbols.spans if not _known(symbols, n)}
    check_handlers(symbols, errors)
    lowering = Lowering(symbols, errors, failed)
    head = Span(source.span.file, source.span.line, source.span.column, source.span.line,
                source.span.column + len("nf ") + len(source.name))
    dispatch = Dispatch(symbols, errors, lowering.builder, head)
    before = list(errors.found)
    errors.found.clear()
    entry = dispatch.build() if symbols.ports else None
    errors.found[:0] = before
    bodies(dispatch, lowering)
    if entry is not None and not errors.found:
        full_policies(symbols, lowering, entry, errors)
    if errors.found or entry is None:
        raise CoraError(sorted(errors.found, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0)))
    program = Program(source.name, tuple(symbols.ports.values()), tuple(symbols.configs.values()),
                      tuple(symbols.states), lowering.builder.ordered(entry), head)
    return verify(program)


def _known(symbols: Symbols, name: str) -> bool:
    return name.startswith("policy ") or any(
        name in table for table in (symbols.ports, symbols.configs, symbols.consts, symbols.structs, symbols.pools,
                                    symbols.tables, symbols.counters, symbols.functions)) or name == "fragments"


def check_handlers(symbols: Symbols, errors: Errors) -> None:
    """Handlers must name ports that exist; ``unparsed pass`` needs an unambiguous other port."""
    for handler in symbols.handlers:
        for port in handler.ports:
            if port.text not in symbols.ports:
                errors.unknown("port", port.text, port.span, symbols.ports)
    if symbols.policies.unparsed == "pass" and len(symbols.ports) != 2:
        errors.add(Kind.BAD_DECLARATION, "'unparsed pass' sends packets to the other port, which needs exactly two "
                                         "ports", symbols.spans["policy unparsed"], "use 'unparsed drop;'")


def bodies(dispatch: Dispatch, lowering: Lowering) -> None:
    """Lower every handler that packets can reach; check the others too, they may hold errors."""
    for key, entered in dispatch.entered.items():
        handler = dispatch.handlers[key]
        lowering.builder.here = Place(entered.label, handler.path_span, headers=entered.headers)
        try:
            lowering.handler(handler)
        except TooLarge:
            return


def full_policies(symbols: Symbols, lowering: Lowering, entry: str, errors: Errors) -> None:
    """``full reject`` promises a drop and ``full pass`` a forward: hold the program to it."""
    blocks = lowering.builder.blocks
    for block in lowering.builder.ordered(entry):
        insert = block.terminator
        if not isinstance(insert, nodes.Insert):
            continue
        state = symbols.tables[insert.state].state
        assert isinstance(state, nodes.MapState), "inserts go into maps"
        wrong = {"reject": nodes.Forward, "pass": nodes.Drop}.get(state.full)
        if wrong is None:
            continue
        for end in _ends(blocks, insert.full):
            if isinstance(end, wrong):
                did = "forwards" if wrong is nodes.Forward else "drops"
                errors.add(Kind.BAD_DECLARATION, f"'{state.name}' says 'full {state.full}', but this way {did} the "
                                                 "packet when the table is full", end.span,
                           "change the verdict, or the table's 'full' attribute", [("the insert", insert.span)])


def _ends(blocks: Mapping[str, nodes.Block], start: str) -> list[nodes.Terminator]:
    seen, stack, ends = {start}, [start], []
    while stack:
        terminator = blocks[stack.pop()].terminator
        targets = [t for _, t in nodes.successors(terminator)]
        if not targets:
            ends.append(terminator)
        stack += [t for t in targets if t not in seen]
        seen.update(targets)
    return ends
