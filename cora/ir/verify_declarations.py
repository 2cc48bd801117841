"""The verifier's rules for ports, configs and states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from cora.errors import Diagnostic, Kind
from cora.ir import nodes
from cora.ir.nodes import Program, State
from cora.ir.span import Span
from cora.ir.types import EntryRef, Type, UInt, bits_of

_FACES = ("wire", "host", "vf")


def check_declarations(program: Program) -> list[Diagnostic]:
    """One diagnostic per broken rule."""
    return _Declarations(program).check()


class _Declarations:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.states: dict[str, State] = {s.name: s for s in program.states}
        self.found: list[Diagnostic] = []

    def require(self, condition: bool, span: Span, message: str) -> None:
        if not condition:
            self.found.append(Diagnostic(Kind.IR_INVALID, message, span))

    def check(self) -> list[Diagnostic]:
        p = self.program
        for what, items in (("port", p.ports), ("config", p.configs), ("state", p.states)):
            for name, n in Counter(i.name for i in items).items():
                self.require(n == 1, p.span, f"{what} {name} is declared {n} times")
        self.require(bool(p.ports), p.span, "a program needs a port")
        for port in p.ports:
            for face in port.faces:
                self.require(face in _FACES, port.span, f"port {port.name} faces {face}, which is nothing a port faces")
        for config in p.configs:
            self.number(f"config {config.name}", config.value, config.type, config.span)
        for state in p.states:
            self.state(state)
        return self.found

    def state(self, state: State) -> None:
        match state:
            case nodes.MapState():
                self.map(state)
            case nodes.PoolState():
                self.pool(state)
            case nodes.MeterState():
                self.meter(state)
            case nodes.AclState():
                self.acl(state)
            case nodes.LpmState():
                self.lpm(state)
            case nodes.CounterState():
                self.require(state.size >= 1, state.span, f"counter {state.name} has no element")
            case nodes.FragmentState():
                self.require(state.capacity >= 1, state.span, f"{state.name} has no room")

    def number(self, what: str, value: int, type_: Type, span: Span) -> bool:
        """Whether a number can be of a type; reports it when not."""
        if isinstance(type_, EntryRef):
            self.require(False, span, f"{what} is a {type_}, which no number is")
            return False
        good = 0 <= value < 1 << bits_of(type_)
        self.require(good, span, f"{what}: {value} does not fit in {type_}")
        return good

    def fields(self, owner: str, fields: Iterable[nodes.FieldDecl], span: Span) -> None:
        names = [f.name for f in fields]
        self.require(len(set(names)) == len(names), span, f"{owner} names a field twice")
        for f in fields:
            self.require(not isinstance(f.type, EntryRef), f.span, f"{owner}: field {f.name} cannot hold a reference")

    def common(self, owner: str, state: nodes.MapState | nodes.MeterState) -> None:
        self.require(state.capacity >= 1, state.span, f"{owner} has no room")
        self.require(state.full in get_args(nodes.Full), state.span, f"{owner}: a full table cannot {state.full}")

    def map(self, state: nodes.MapState) -> None:
        owner = f"map {state.name}"
        self.common(owner, state)
        self.fields(owner, state.fields, state.span)
        names = [f.name for f in state.fields]
        self.require(len(state.keys) in (1, 2), state.span, f"{owner} needs one key, or two for a pair map")
        self.require(len({k.name for k in state.keys}) == len(state.keys), state.span, f"{owner} names a key twice")
        for key in state.keys:
            for name in key.fields:
                self.require(name in names, key.span, f"key {key.name} uses {name}, which is no field of {state.name}")
        classes = [t.name for t in state.timeouts]
        self.require(len(set(classes)) == len(classes), state.span, f"{owner} names a time-out class twice")
        for timeout in state.timeouts:
            self.require(timeout.nanoseconds >= 1, timeout.span, f"time-out {timeout.name} is no time")
        given = Counter(name for a in state.allocs for name in a.fields)
        for name, n in given.items():
            self.require(n == 1, state.span, f"field {name} of {state.name} comes from {n} pools")
        for alloc in state.allocs:
            self.alloc(state, alloc)

    def alloc(self, state: nodes.MapState, alloc: nodes.AllocDecl) -> None:
        pool = self.states.get(alloc.pool)
        if not isinstance(pool, nodes.PoolState):
            self.require(False, alloc.span, f"{alloc.pool} is no pool")
            return
        self.require(len(alloc.fields) == len(pool.ranges), alloc.span,
                     f"pool {pool.name} gives {len(pool.ranges)} values, {len(alloc.fields)} fields take them")
        for name, dimension in zip(alloc.fields, pool.ranges, strict=False):
            declared = state.field(name)
            self.require(declared is not None and declared.type == dimension.type, alloc.span,
                         f"field {name} cannot hold a value of {pool.name}.{dimension.name}")

    def pool(self, state: nodes.PoolState) -> None:
        self.require(bool(state.ranges), state.span, f"pool {state.name} has no value")
        for r in state.ranges:
            what = f"pool {state.name}.{r.name}"
            if self.number(what, r.low, r.type, r.span) and self.number(what, r.high, r.type, r.span):
                self.require(r.low <= r.high, r.span, f"{what} is empty")

    def meter(self, state: nodes.MeterState) -> None:
        owner = f"meter {state.name}"
        self.common(owner, state)
        self.fields(owner, state.fields, state.span)
        self.require(state.algorithm in get_args(nodes.Algorithm), state.span,
                     f"{owner}: there is no algorithm {state.algorithm}")

    def acl(self, state: nodes.AclState) -> None:
        owner = f"acl {state.name}"
        self.fields(owner, state.keys, state.span)
        self.fields(owner, state.values, state.span)
        self.require(len(state.kinds) == len(state.keys), state.span,
                     f"{owner} has {len(state.keys)} key fields and {len(state.kinds)} match kinds")
        for kind in state.kinds:
            self.require(kind in get_args(nodes.MatchKind), state.span, f"{owner}: there is no match kind {kind}")
        self.require(len(state.entries) <= state.capacity, state.span, f"{owner} has more entries than room")
        for entry in state.entries:
            self.require(len(entry.match) == len(state.keys), entry.span,
                         f"{owner} has {len(state.keys)} key fields, this entry matches {len(entry.match)}")
            for (a, b), key in zip(entry.match, state.keys, strict=False):
                _ = self.number(key.name, a, key.type, entry.span) and self.number(key.name, b, key.type, entry.span)
            self.entry_values(owner, state.values, entry)

    def entry_values(self, owner: str, fields: tuple[nodes.FieldDecl, ...], entry: nodes.AclEntry | nodes.LpmEntry
                     ) -> None:
        self.require(len(entry.values) == len(fields), entry.span,
                     f"{owner} has {len(fields)} value fields, this entry gives {len(entry.values)}")
        for value, declared in zip(entry.values, fields, strict=False):
            self.number(declared.name, value, declared.type, entry.span)

    def lpm(self, state: nodes.LpmState) -> None:
        owner = f"lpm {state.name}"
        self.fields(owner, state.values, state.span)
        self.require(len(state.entries) <= state.capacity, state.span, f"{owner} has more entries than room")
        if not isinstance(state.key.type, UInt):
            self.require(False, state.key.span, f"{owner}: the key is an integer")
            return
        bits = state.key.type.bits
        prefixes = Counter((e.value, e.length) for e in state.entries)
        for entry in state.entries:
            fits = 0 <= entry.length <= bits and self.number(state.key.name, entry.value, state.key.type, entry.span)
            rest = (1 << max(0, bits - entry.length)) - 1
            self.require(fits and entry.value & rest == 0, entry.span,
                         f"{owner}: {entry.value}/{entry.length} is no prefix of {bits} bits")
            self.require(prefixes[entry.value, entry.length] == 1, entry.span, f"{owner} has a prefix twice")
            self.entry_values(owner, state.values, entry)
