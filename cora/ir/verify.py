"""The verifier: every program that a pass takes or gives obeys the rules checked here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

from cora.errors import CoraError, Diagnostic, Kind
from cora.ir import nodes
from cora.ir.cfg import available_headers, immediate_dominators, predecessors_of
from cora.ir.headers import HEADERS, field_of, header_type
from cora.ir.nodes import Block, Instruction, Program, State, Terminator, Value
from cora.ir.span import Span
from cora.ir.types import BOOL, U16, U32, U64, EntryRef, Type, UInt
from cora.ir.verify_declarations import check_declarations


def verify(program: Program) -> Program:
    """Return the program when it is valid IR.

    Raises:
        CoraError: `Kind.IR_INVALID`, one diagnostic per broken rule.
    """
    checker = _Checker(program)
    checker.found += check_declarations(program)
    checker.shape()
    if not checker.found:
        checker.bodies()
    if checker.found:
        raise CoraError(checker.found)
    return program


class _Checker:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[Diagnostic] = []
        self.states: dict[str, State] = {s.name: s for s in program.states}

    def error(self, span: Span, message: str) -> None:
        self.found.append(Diagnostic(Kind.IR_INVALID, message, span))

    def require(self, condition: bool, span: Span, message: str) -> None:
        if not condition:
            self.error(span, message)

    # The graph.

    def shape(self) -> None:
        p = self.program
        if not p.blocks:
            self.error(p.span, "a program needs a block")
            return
        for label, n in Counter(b.label for b in p.blocks).items():
            self.require(n == 1, p.span, f"block {label} is defined {n} times")
        order = {b.label: i for i, b in enumerate(p.blocks)}
        for i, block in enumerate(p.blocks):
            for _, target in nodes.successors(block.terminator):
                known = target in order
                self.require(known, block.terminator.span, f"block {target} does not exist")
                self.require(not known or order[target] > i, block.terminator.span,
                             f"{block.label} goes back to {target}: blocks must stand before their successors")
        entered = predecessors_of(p)
        for block in p.blocks[1:]:
            self.require(block.label in entered, block.span, f"block {block.label} is never reached")
        self.require(not p.blocks[0].params, p.blocks[0].span, "the entry block takes no parameters")
        self.arms(entered)

    def arms(self, entered: dict[str, list[str]]) -> None:
        holding = {b.label for b in self.program.blocks if isinstance(b.terminator, nodes.Hold)}
        for block in self.program.blocks:
            terminator = block.terminator
            for outcome, target in nodes.successors(terminator):
                binds = (isinstance(terminator, nodes.Lookup) and outcome == "hit") or (
                    isinstance(terminator, nodes.Insert) and outcome == "ok")
                self.require(not binds or entered[target] == [block.label], terminator.span,
                             f"block {target} gets an entry reference and must be entered from here only")
                held = isinstance(terminator, nodes.TrackFragment) and outcome == "hold"
                self.require(target not in holding or held, terminator.span,
                             f"block {target} holds the packet: only a tracker's 'hold' leads there")

    # Blocks.

    def bodies(self) -> None:
        p = self.program
        headers = available_headers(p)
        above = immediate_dominators(p)
        scope: dict[str, dict[str, Value]] = {}
        defined: Counter[str] = Counter()
        bound = {b.terminator.hit if isinstance(b.terminator, nodes.Lookup) else b.terminator.ok: b.terminator.entry
                 for b in p.blocks if isinstance(b.terminator, nodes.Lookup | nodes.Insert)}
        params = {b.label: b.params for b in p.blocks}
        for block in p.blocks:
            here = dict(scope[above[block.label]]) if block.label in above else {}
            entering = [*block.params, *([bound[block.label]] if block.label in bound else [])]
            for value in entering:
                here[value.name] = value
                defined[value.name] += 1
            body = _Body(self, block, here, headers.get(block.label, frozenset()), params)
            for instruction in block.instructions:
                body.instruction(instruction)
                result = nodes.result_of(instruction)
                if result is not None:
                    here[result.name] = result
                    defined[result.name] += 1
            body.terminator(block.terminator)
            scope[block.label] = here
        for name, n in defined.items():
            self.require(n == 1, p.span, f"value %{name} is defined {n} times")
        self.deletions()

    def deletions(self) -> None:
        dead: dict[str, frozenset[str]] = {}
        for block in self.program.blocks:
            gone = set(dead.get(block.label, frozenset()))
            for node in (*block.instructions, block.terminator):
                for value in nodes.operands_of(node):
                    self.require(value.name not in gone, node.span, f"%{value.name} refers to a deleted entry")
                if isinstance(node, nodes.Delete):
                    gone.add(node.entry.name)
            for _, target in nodes.successors(block.terminator):
                dead[target] = dead.get(target, frozenset()) | gone


class _Body:
    """Checks one block, given the values and headers known in it."""

    def __init__(self, checker: _Checker, block: Block, scope: dict[str, Value], headers: frozenset[str],
                 params: dict[str, tuple[Value, ...]]) -> None:
        self.checker, self.block, self.scope, self.headers, self.params = checker, block, scope, headers, params

    def error(self, span: Span, message: str) -> None:
        self.checker.error(span, message)

    def uses(self, node: Instruction | Terminator) -> None:
        for value in nodes.operands_of(node):
            known = self.scope.get(value.name)
            if known is None:
                self.error(node.span, f"%{value.name} is not defined on every way here")
            elif known != value:
                self.error(node.span, f"%{value.name} is a {known.type}, used as a {value.type}")

    def same(self, span: Span, what: str, *types: Type) -> None:
        if len(set(types)) != 1:
            self.error(span, f"{what}: types differ ({', '.join(map(str, types))})")

    def expect(self, span: Span, what: str, got: Type, wanted: Type) -> None:
        if got != wanted:
            self.error(span, f"{what} is a {got}, must be a {wanted}")

    def instruction(self, node: Instruction) -> None:
        self.uses(node)
        word, known = _WORDS.get(type(node), ("", ()))
        if word and getattr(node, word) not in known:
            self.error(node.span, f"there is no {node.mnemonic} {getattr(node, word)}")
            return
        _INSTRUCTIONS[type(node)](self, node)

    def terminator(self, node: Terminator) -> None:
        self.uses(node)
        check = _TERMINATORS.get(type(node))
        if check is not None:
            check(self, node)

    # Instructions.

    def const(self, node: nodes.Const) -> None:
        limit = 1 if node.result.type == BOOL else getattr(node.result.type, "bits", 0)
        if not 0 <= node.value < 1 << limit:
            self.error(node.span, f"{node.value} does not fit in {node.result.type}")

    def unary(self, node: nodes.Unary) -> None:
        self.same(node.span, node.op, node.result.type, node.operand.type)
        if (node.op == "not") != (node.operand.type == BOOL):
            self.error(node.span, f"{node.op} does not take a {node.operand.type}")

    def binary(self, node: nodes.Binary) -> None:
        self.same(node.span, node.op, node.result.type, node.left.type, node.right.type)
        if node.result.type == BOOL and node.op not in ("and", "or", "xor"):
            self.error(node.span, f"{node.op} does not take bools")
        if isinstance(node.result.type, EntryRef):
            self.error(node.span, f"{node.op} does not take entry references")

    def compare(self, node: nodes.Compare) -> None:
        self.same(node.span, node.op, node.left.type, node.right.type)
        self.expect(node.span, "a comparison", node.result.type, BOOL)
        if node.left.type == BOOL and node.op not in ("eq", "ne"):
            self.error(node.span, f"{node.op} does not take bools")

    def cast(self, node: nodes.Cast) -> None:
        if isinstance(node.result.type, EntryRef) or isinstance(node.operand.type, EntryRef):
            self.error(node.span, "an entry reference cannot be cast")

    def select(self, node: nodes.Select) -> None:
        self.expect(node.span, "the condition", node.condition.type, BOOL)
        self.same(node.span, "select", node.result.type, node.if_true.type, node.if_false.type)

    def config(self, node: nodes.LoadConfig) -> None:
        config = next((c for c in self.checker.program.configs if c.name == node.config), None)
        if config is None:
            self.error(node.span, f"there is no config {node.config}")
        else:
            self.expect(node.span, f"config {config.name}", node.result.type, config.type)

    def meta(self, node: nodes.Meta) -> None:
        self.expect(node.span, node.what, node.result.type, {"time": U64, "size": U32, "port": U16}[node.what])

    def header(self, span: Span, header: str, field: str, type_: Type, *, stored: bool) -> None:
        found = field_of(header, field)
        if found is None:
            self.error(span, f"{header} has no field {field}")
            return
        self.expect(span, f"{header}.{field}", type_, found.type)
        if header not in self.headers:
            self.error(span, f"{header} was not extracted on every way here")
        if stored and not found.writable:
            self.error(span, f"{header}.{field} cannot be stored")

    def load(self, node: nodes.Load) -> None:
        self.header(node.span, node.header, node.field, node.result.type, stored=False)

    def store(self, node: nodes.Store) -> None:
        self.header(node.span, node.header, node.field, node.value.type, stored=True)

    def entry_fields(self, span: Span, entry: Value) -> tuple[State | None, Sequence[nodes.FieldDecl]]:
        state = self.checker.states.get(entry.type.state) if isinstance(entry.type, EntryRef) else None
        if isinstance(state, nodes.MapState):
            return state, state.fields
        if isinstance(state, nodes.AclState | nodes.LpmState):
            return state, state.values
        self.error(span, f"%{entry.name} is no entry of a table")
        return None, ()

    def entry_field(self, node: nodes.LoadEntry | nodes.StoreEntry, type_: Type) -> None:
        state, declared = self.entry_fields(node.span, node.entry)
        found = next((f for f in declared if f.name == node.field), None)
        if state is None:
            return
        if found is None:
            self.error(node.span, f"{state.name} has no field {node.field}")
            return
        self.expect(node.span, f"{state.name}.{node.field}", type_, found.type)

    def load_entry(self, node: nodes.LoadEntry) -> None:
        self.entry_field(node, node.result.type)

    def store_entry(self, node: nodes.StoreEntry) -> None:
        self.entry_field(node, node.value.type)
        state, _ = self.entry_fields(node.span, node.entry)
        if not isinstance(state, nodes.MapState):
            self.error(node.span, "only map entries can be stored to")
        elif any(node.field in k.fields for k in state.keys) or any(node.field in a.fields for a in state.allocs):
            self.error(node.span, f"{state.name}.{node.field} is part of a key or came from a pool")

    def touch(self, node: nodes.Touch) -> None:
        state, _ = self.entry_fields(node.span, node.entry)
        if not isinstance(state, nodes.MapState):
            self.error(node.span, "only map entries can be touched")
        else:
            self.timeout(node.span, state, node.timeout)

    def timeout(self, span: Span, state: nodes.MapState, name: str) -> None:
        names = [t.name for t in state.timeouts]
        if (name not in names) if names else name:
            self.error(span, f"map {state.name} has no time-out class {name!r}")

    def delete(self, node: nodes.Delete) -> None:
        state, _ = self.entry_fields(node.span, node.entry)
        if not isinstance(state, nodes.MapState):
            self.error(node.span, "only map entries can be deleted")

    def count(self, node: nodes.Count) -> None:
        if not isinstance(self.checker.states.get(node.counter), nodes.CounterState):
            self.error(node.span, f"{node.counter} is no counter")
        if node.index is not None and not isinstance(node.index.type, UInt):
            self.error(node.span, "a counter's index is an integer")
        if node.amount is not None:
            self.expect(node.span, "the amount", node.amount.type, U32)

    # Terminators.

    def jump(self, node: nodes.Jump) -> None:
        wanted = [v.type for v in self.params[node.target]]
        if wanted != [v.type for v in node.args]:
            self.error(node.span, f"the arguments do not fit the parameters of {node.target}")

    def no_params(self, node: Terminator) -> None:
        for _, target in nodes.successors(node):
            if self.params[target]:
                self.error(node.span, f"{target} takes parameters and can be entered by jumps only")

    def branch(self, node: nodes.Branch) -> None:
        self.no_params(node)
        self.expect(node.span, "the condition", node.condition.type, BOOL)

    def switch(self, node: nodes.Switch) -> None:
        self.no_params(node)
        if not isinstance(node.value.type, UInt):
            self.error(node.span, "a switch takes an integer")
            return
        if len({v for v, _ in node.cases}) != len(node.cases):
            self.error(node.span, "a switch names a case twice")
        if any(v >= 1 << node.value.type.bits for v, _ in node.cases):
            self.error(node.span, f"a case does not fit in {node.value.type}")

    def outcomes(self, node: nodes.Extract | nodes.TrackFragment, wanted: tuple[str, ...]) -> None:
        self.no_params(node)
        if tuple(o for o, _ in node.outcomes) != wanted:
            self.error(node.span, f"outcomes must be {', '.join(wanted)}")

    def extract(self, node: nodes.Extract) -> None:
        if node.header not in _NEEDS:
            self.error(node.span, f"{node.header} is no header that can be extracted")
            return
        needed = _NEEDS[node.header]
        if needed and not self.headers.intersection(needed):
            self.error(node.span, f"{node.header} can only follow {' or '.join(needed)}")
        self.outcomes(node, nodes.extract_outcomes(node.header, verify=node.verify, source_route=node.source_route))

    def track(self, node: nodes.TrackFragment) -> None:
        if not isinstance(self.checker.states.get(node.state), nodes.FragmentState):
            self.error(node.span, f"{node.state} is no fragment tracker")
        self.fragment(node)
        self.outcomes(node, nodes.FRAGMENT_OUTCOMES)

    def fragment(self, node: nodes.TrackFragment | nodes.IsFragment) -> None:
        self.no_params(node)
        if node.header not in ("ipv4", "ipv6") or node.header not in self.headers:
            self.error(node.span, f"{node.header} was not extracted on every way here")

    def has(self, node: nodes.HasHeader) -> None:
        self.no_params(node)
        if node.header not in HEADERS and header_type(node.header) is None:
            self.error(node.span, f"there is no header {node.header}")

    def lookup(self, node: nodes.Lookup) -> None:
        self.no_params(node)
        state = self.checker.states.get(node.state)
        wanted: list[Type] | None = None
        if isinstance(state, nodes.MapState):
            key = state.key(node.key)
            types = {f.name: f.type for f in state.fields}
            wanted = [types[f] for f in key.fields] if key is not None else None
        elif isinstance(state, nodes.AclState):
            wanted = [f.type for f in state.keys]
        elif isinstance(state, nodes.LpmState):
            wanted = [state.key.type]
        if wanted is None or wanted != [v.type for v in node.operands]:
            self.error(node.span, f"the operands do not fit a key of {node.state}")
        self.expect(node.span, "the entry", node.entry.type, EntryRef(node.state))

    def insert(self, node: nodes.Insert) -> None:
        self.no_params(node)
        state = self.checker.states.get(node.state)
        if not isinstance(state, nodes.MapState):
            self.error(node.span, f"{node.state} is no map")
            return
        given = {name for a in state.allocs for name in a.fields}
        if [f.type for f in state.fields if f.name not in given] != [v.type for v in node.values]:
            self.error(node.span, f"the values do not fit the fields of {state.name}")
        if len(node.prefer) != len(state.allocs):
            self.error(node.span, f"{state.name} takes a preference for each of its {len(state.allocs)} pools")
        for wish, alloc in zip(node.prefer, state.allocs, strict=False):
            types = [f.type for name in alloc.fields if (f := state.field(name)) is not None]
            if wish and types != [v.type for v in wish]:
                self.error(node.span, f"the preference does not fit pool {alloc.pool}")
        self.timeout(node.span, state, node.timeout)
        self.expect(node.span, "the entry", node.entry.type, EntryRef(node.state))

    def police(self, node: nodes.Police) -> None:
        self.no_params(node)
        state = self.checker.states.get(node.state)
        if not isinstance(state, nodes.MeterState):
            self.error(node.span, f"{node.state} is no meter")
            return
        if [f.type for f in state.fields] != [v.type for v in node.operands]:
            self.error(node.span, f"the operands do not fit the key of {node.state}")
        if (node.yellow is None) != (state.algorithm == "token_bucket"):
            self.error(node.span, f"yellow does not fit a {state.algorithm}")
        self.expect(node.span, "the size", node.size.type, U32)

    def forward(self, node: nodes.Forward) -> None:
        if not any(p.name == node.port for p in self.checker.program.ports):
            self.error(node.span, f"there is no port {node.port}")

    def punt(self, node: nodes.Punt) -> None:
        self.error(node.span, "only the parts of a split program hand packets over")

    def reject(self, node: nodes.Reject) -> None:
        if node.header not in ("ipv4", "ipv6") or node.header not in self.headers:
            self.error(node.span, f"{node.header} was not extracted on every way here")
            return
        self.expect(node.span, "the source", node.source.type, UInt(32 if node.header == "ipv4" else 128))


# What must have been extracted before: one of these.
_NEEDS: dict[str, tuple[str, ...]] = {
    "eth": (), "vlan": ("eth",), "arp": ("eth",), "ipv4": ("eth",), "ipv6": ("eth",), "tcp": ("ipv4", "ipv6"),
    "udp": ("ipv4", "ipv6"), "icmp": ("ipv4",), "icmp6": ("ipv6",), "quoted.ipv4": ("icmp",),
    "quoted.ipv6": ("icmp6",), "quoted.tcp": ("quoted.ipv4", "quoted.ipv6"),
    "quoted.udp": ("quoted.ipv4", "quoted.ipv6"), "quoted.icmp": ("quoted.ipv4",), "quoted.icmp6": ("quoted.ipv6",),
}

# Fields that hold one of a few words.
_WORDS: dict[type, tuple[str, tuple[str, ...]]] = {
    nodes.Unary: ("op", get_args(nodes.UnaryOp)), nodes.Binary: ("op", get_args(nodes.BinaryOp)),
    nodes.Compare: ("op", get_args(nodes.CompareOp)), nodes.Meta: ("what", get_args(nodes.MetaWhat)),
}

_INSTRUCTIONS: dict[type, Callable[[_Body, Any], None]] = {
    nodes.Const: _Body.const, nodes.Unary: _Body.unary, nodes.Binary: _Body.binary, nodes.Compare: _Body.compare,
    nodes.Cast: _Body.cast, nodes.Select: _Body.select, nodes.LoadConfig: _Body.config, nodes.Meta: _Body.meta,
    nodes.Load: _Body.load, nodes.Store: _Body.store, nodes.LoadEntry: _Body.load_entry,
    nodes.StoreEntry: _Body.store_entry, nodes.Touch: _Body.touch, nodes.Delete: _Body.delete,
    nodes.Count: _Body.count,
}
_TERMINATORS: dict[type, Callable[[_Body, Any], None]] = {
    nodes.Jump: _Body.jump, nodes.Branch: _Body.branch, nodes.Switch: _Body.switch, nodes.HasHeader: _Body.has,
    nodes.Extract: _Body.extract, nodes.TrackFragment: _Body.track, nodes.IsFragment: _Body.fragment,
    nodes.Lookup: _Body.lookup, nodes.Insert: _Body.insert, nodes.Police: _Body.police,
    nodes.Forward: _Body.forward, nodes.Reject: _Body.reject, nodes.Punt: _Body.punt,
}
