"""Random well-typed IR programs, and packets that reach their branches, from one seeded generator."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from cora.ir import nodes as n
from cora.ir.headers import ALSO_PROVIDES, field_of, header_type
from cora.ir.span import Span
from cora.ir.types import BOOL, U8, U16, U32, U64, U128, EntryRef, Type, UInt, bits_of
from cora.testing import Packet

AT = Span("random.nf", 1, 1, 1, 2)
U12, U33 = UInt(12), UInt(33)
WIDTHS: tuple[Type, ...] = (BOOL, U8, U12, U16, U32, U33, UInt(48), U64, UInt(100), U128)
SECOND = 10**9


@dataclass
class Scope:
    """What is known at a point of the program."""

    values: list[n.Value]
    headers: frozenset[str] = frozenset()
    dead: set[str] = field(default_factory=set)

    def copy(self) -> Scope:
        return Scope(list(self.values), self.headers, set(self.dead))


class Generator:
    """Builds one program; blocks are made from the leaves up and turned round at the end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made: list[n.Block] = []
        self.counter = 0
        self.states: list[n.State] = self._states()
        self.configs = tuple(n.Config(f"c{i}", t, self._number(t), AT) for i, t in enumerate(WIDTHS))

    def program(self) -> n.Program:
        self._entry()
        ports = (n.Port("left", ("wire",), AT), n.Port("right", ("host",), AT))
        return n.Program("random", ports, self.configs, tuple(self.states), tuple(reversed(self.made)), AT)

    # Declarations.

    def _number(self, type_: Type) -> int:
        top = (1 << bits_of(type_)) - 1
        return self.random.choice([0, 1, top, self.random.randint(0, top), self.random.randint(0, min(top, 9))])

    def _full(self) -> n.Full:
        return self.random.choice(("reject", "evict_lru"))

    def _states(self) -> list[n.State]:
        r = self.random
        classes = tuple(n.Timeout(f"k{i}", r.choice([1, 3, 8]) * SECOND, AT) for i in range(r.randint(0, 3)))
        low = r.choice([0, 1020, 2000])
        pool = n.PoolState("pool", (n.PoolRange("a", U32, 5, 5 + r.randint(0, 2), AT),
                                    n.PoolRange("p", U16, low, low + r.randint(1, 9), AT)), r.random() < 0.5, False, AT)
        line = n.PoolState("line", (n.PoolRange("x", U8, 1, r.randint(2, 90), AT),), False, False, AT)
        plain = n.MapState(
            "plain", (n.FieldDecl("key", U16, AT), n.FieldDecl("wide", U128, AT), n.FieldDecl("v", U12, AT),
                      n.FieldDecl("flag", BOOL, AT)), (n.KeyDecl("k", ("key", "wide"), AT),), (), r.randint(1, 5),
            classes, 0, self._full(), True, True, False, AT)
        pair = n.MapState(
            "pair", (n.FieldDecl("src", U32, AT), n.FieldDecl("port", U16, AT), n.FieldDecl("a", U32, AT),
                     n.FieldDecl("p", U16, AT), n.FieldDecl("x", U8, AT), n.FieldDecl("seen", U64, AT)),
            (n.KeyDecl("fwd", ("src", "port"), AT), n.KeyDecl("rev", ("a", "p") if r.random() < 0.5 else ("x",), AT)),
            (n.AllocDecl("pool", ("a", "p"), AT), n.AllocDecl("line", ("x",), AT)), r.randint(1, 6),
            (n.Timeout("one", 4 * SECOND, AT),), 0, self._full(), True, True, False, AT)
        twice = n.MapState(
            "twice", (n.FieldDecl("x", U8, AT), n.FieldDecl("y", U8, AT), n.FieldDecl("z", U8, AT)),
            (n.KeyDecl("k", ("z",), AT), n.KeyDecl("r", ("x", "y"), AT)),
            (n.AllocDecl("line", ("x",), AT), n.AllocDecl("line", ("y",), AT)), 3, (), 0, self._full(), True, True,
            False, AT)
        meters = [n.MeterState(f"meter_{a}", (n.FieldDecl("k", U16, AT),), r.randint(1, 3), a, r.choice([0, 100, 3001]),
                               r.choice([50, 150, 4000]), r.choice([0, 90, 2000]), r.choice([100, 5000]),
                               r.choice([80, 300]), r.choice([2, 9]) * SECOND, 0, self._full(), True, True, False, AT)
                  for a in ("token_bucket", "srtcm", "trtcm")]
        counter = n.CounterState("hits", r.randint(1, 4), AT)
        trackers = [n.FragmentState(f"track{i}", r.randint(1, 3), r.choice([2, 5]) * SECOND, r.randint(0, 3), AT)
                    for i in range(2)]
        return [pool, line, plain, pair, twice, *meters, counter, self._acl(), self._lpm(), *trackers]

    def _acl(self) -> n.AclState:
        r = self.random
        kinds: tuple[n.MatchKind, ...] = ("exact", "ternary", "range")
        def match(kind: str, bits: int) -> tuple[int, int]:
            top = (1 << bits) - 1
            value = r.randint(0, min(top, 40))
            if kind == "range":
                return value, r.choice([value, top, r.randint(value, top)])
            mask = top if kind == "exact" else r.choice([0, top, r.randint(0, top)])
            return value & mask, mask
        entries = tuple(n.AclEntry(tuple(match(k, b) for k, b in zip(kinds, (8, 16, 16), strict=True)),
                                   (r.randint(0, 255),), r.randint(0, 3), AT) for _ in range(r.randint(0, 9)))
        keys = (n.FieldDecl("e", U8, AT), n.FieldDecl("t", U16, AT), n.FieldDecl("r", U16, AT))
        return n.AclState("acl", keys, kinds, (n.FieldDecl("act", U8, AT),), entries, 16, AT)

    def _lpm(self) -> n.LpmState:
        r, found = self.random, {}
        for _ in range(r.randint(0, 9)):
            length = r.choice([0, 8, 24, 30, 31, 32])
            value = r.choice([0x0A000000 + r.randint(0, 7), r.randint(0, 2**32 - 1)])
            found[(value >> 32 - length << 32 - length if length else 0, length)] = (r.randint(0, 2**16 - 1),)
        entries = tuple(n.LpmEntry(v, length, values, AT) for (v, length), values in found.items())
        return n.LpmState("lpm", n.FieldDecl("d", U32, AT), (n.FieldDecl("hop", U16, AT),), entries, 16, AT)

    # Blocks. Every function returns the label of a block that does it.

    def _label(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}.{self.counter}"

    def _value(self, type_: Type, stem: str = "v") -> n.Value:
        self.counter += 1
        return n.Value(f"{stem}.{self.counter}", type_)

    def _add(self, instructions: list[n.Instruction], terminator: n.Terminator, params: tuple[n.Value, ...] = (),
             stem: str = "b") -> str:
        label = self._label(stem)
        self.made.append(n.Block(label, params, tuple(instructions), terminator, AT))
        return label

    def _leaf(self, scope: Scope) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.6:
            return self._add([], n.Forward(r.choice(("left", "right")), AT), stem="out")
        family = next((h for h in ("ipv4", "ipv6") if h in scope.headers), None)
        if kind < 0.75 and family is not None:
            source = self._value(U32 if family == "ipv4" else U128)
            return self._add([n.Const(source, self._number(source.type), AT)],
                             n.Reject(r.choice(("no", "never")), family, r.choice((3, 11)), r.randint(0, 9), source,
                                      AT))
        return self._add([], n.Drop(r.choice(("no", "dull", "late")), AT), stem="drop")

    def _entry(self) -> None:
        scope = Scope([])
        ended = [self._body(scope.copy(), 2) for _ in range(2)]
        tagged = replace_headers(scope, "eth", "vlan")
        inner = self._by_type(tagged)
        plain = self._by_type(replace_headers(scope, "eth"))
        vlan = self._add([], n.Extract("vlan", 0, False, False, (("ok", inner), ("absent", plain)), AT))
        outcomes = (("ok", vlan), ("malformed", ended[0]), ("unparsed", ended[1]))
        self._add([], n.Extract("eth", self.random.randint(0, 2), False, False, outcomes, AT), stem="start")

    def _by_type(self, scope: Scope) -> str:
        kind = self._value(U16)
        four, six = self._ip(scope, "ipv4"), self._ip(scope, "ipv6")
        arp = self._extract(scope, "arp", lambda s: self._body(s, 2))
        other = self._body(scope.copy(), 1)
        return self._add([n.Load(kind, "eth", "type", AT)],
                         n.Switch(kind, ((0x800, four), (0x86DD, six), (0x806, arp)), other, AT))

    def _extract(self, scope: Scope, header: str, then: Callable[[Scope], str], *, limit: int = 0) -> str:
        r = self.random
        verify, route = (r.random() < 0.5, r.random() < 0.5) if header == "ipv4" else (False, False)
        found = scope.copy()
        found.headers |= {header, *ALSO_PROVIDES.get(header, ())}
        ok = then(found)
        names = n.extract_outcomes(header, verify=verify, source_route=route)
        outcomes = (("ok", ok), *((o, self._leaf(scope)) for o in names[1:]))
        return self._add([], n.Extract(header, limit, verify, route, outcomes, AT))

    def _ip(self, scope: Scope, family: str) -> str:
        limit = self.random.randint(1, 3) if family == "ipv6" else 0
        return self._extract(scope, family, lambda s: self._tracked(s, family, 2), limit=limit)

    def _tracked(self, scope: Scope, family: str, most: int) -> str:
        """Perhaps tracks fragments, perhaps twice; then the upper layer."""
        r = self.random
        if most and r.random() < 0.6:
            ok = self._tracked(scope.copy(), family, most - 1)
            hold = self._add([], n.Hold(AT), stem="hold")
            others = tuple((o, self._leaf(scope)) for o in n.FRAGMENT_OUTCOMES[2:])
            return self._add([], n.TrackFragment(f"track{most - 1}", family, (("ok", ok), ("hold", hold), *others), AT))
        if r.random() < 0.3:
            return self._add([], n.IsFragment(family, self._body(scope.copy(), 1), self._upper(scope, family), AT))
        return self._upper(scope, family)

    def _upper(self, scope: Scope, family: str) -> str:
        kind = self._value(U8)
        icmp = "icmp" if family == "ipv4" else "icmp6"
        cases = ((6, self._extract(scope, "tcp", lambda s: self._body(s, 4))),
                 (17, self._extract(scope, "udp", lambda s: self._body(s, 4))),
                 (1 if icmp == "icmp" else 58, self._extract(scope, icmp, lambda s: self._quoted(s, family))))
        default = self._body(scope.copy(), 2)
        return self._add([n.Load(kind, family, "proto", AT)], n.Switch(kind, cases, default, AT))

    def _quoted(self, scope: Scope, family: str) -> str:
        if self.random.random() < 0.2:
            return self._body(scope, 3)
        names = ("tcp", "udp", "icmp") if family == "ipv4" else ("tcp", "udp", "icmp6")
        inner = "quoted." + self.random.choice(names)
        return self._extract(scope, f"quoted.{family}", lambda s: self._extract(s, inner, lambda t: self._body(t, 3)),
                             limit=self.random.randint(1, 2))

    def _body(self, scope: Scope, depth: int) -> str:
        """Some instructions and, unless it is deep enough, something that branches."""
        instructions: list[n.Instruction] = []
        for _ in range(self.random.randint(0, 5)):
            self._instruction(scope, instructions)
        if depth <= 0 or self.random.random() < 0.1:
            leaf = self._leaf(scope)
            return self._add(instructions, n.Jump(leaf, (), AT))
        return self.random.choice((self._branch, self._table, self._table, self._table, self._join, self._has))(
            scope, instructions, depth)

    def _branch(self, scope: Scope, instructions: list[n.Instruction], depth: int) -> str:
        condition = self._want(scope, instructions, BOOL)
        yes, no = self._body(scope.copy(), depth - 1), self._body(scope.copy(), depth - 1)
        return self._add(instructions, n.Branch(condition, yes, no, AT))

    def _has(self, scope: Scope, instructions: list[n.Instruction], depth: int) -> str:
        header = self.random.choice(("tcp", "udp", "icmp", "ipv4", "vlan"))
        known = scope.copy()
        known.headers |= {header, *ALSO_PROVIDES.get(header, ())}
        yes, no = self._body(known, depth - 1), self._body(scope.copy(), depth - 1)
        return self._add(instructions, n.HasHeader(header, yes, no, AT))

    def _join(self, scope: Scope, instructions: list[n.Instruction], depth: int) -> str:
        """Two ways that meet in a block with parameters."""
        types = [self.random.choice(WIDTHS) for _ in range(self.random.randint(0, 2))]
        params = tuple(self._value(t, "p") for t in types)
        after = scope.copy()
        after.values += params
        label = self._body(after, depth - 1)
        entry = self._add([], n.Jump(label, (), AT), params, "join")
        sides = []
        for _ in range(2):
            inner, own = scope.copy(), list[n.Instruction]()
            arguments = tuple(self._want(inner, own, t) for t in types)
            sides.append(self._add(own, n.Jump(entry, arguments, AT)))
        condition = self._want(scope, instructions, BOOL)
        return self._add(instructions, n.Branch(condition, sides[0], sides[1], AT))

    def _table(self, scope: Scope, instructions: list[n.Instruction], depth: int) -> str:
        r = self.random
        state = r.choice([s for s in self.states if not isinstance(s, n.PoolState | n.CounterState | n.FragmentState)])
        hit, miss = scope.copy(), scope.copy()
        entry = self._value(EntryRef(state.name), "e")
        hit.values.append(entry)
        if isinstance(state, n.MeterState):
            key = self._want(scope, instructions, U16)
            size = self._value(U32)
            instructions.append(n.Meta(size, "size", AT))
            yellow = None if state.algorithm == "token_bucket" else self._leaf(scope)
            green, red, full = self._body(miss, depth - 1), self._leaf(scope), self._leaf(scope)
            return self._add(instructions, n.Police(state.name, (key,), size, green, yellow, red, full, AT))
        if isinstance(state, n.MapState) and r.random() < 0.5:
            return self._insert(state, scope, instructions, hit, entry, depth)
        if isinstance(state, n.MapState):
            key_decl = r.choice(state.keys)
            types = {f.name: f.type for f in state.fields}
            operands = tuple(self._want(scope, instructions, types[f]) for f in key_decl.fields)
            name = key_decl.name
        else:
            fields = state.keys if isinstance(state, n.AclState) else (state.key,)
            operands, name = tuple(self._want(scope, instructions, f.type) for f in fields), ""
        found, absent = self._body(hit, depth - 1), self._body(miss, depth - 1)
        return self._add(instructions, n.Lookup(state.name, name, operands, entry, found, absent, AT))

    def _insert(self, state: n.MapState, scope: Scope, instructions: list[n.Instruction], hit: Scope, entry: n.Value,
                depth: int) -> str:
        r = self.random
        given = {name for a in state.allocs for name in a.fields}
        values = tuple(self._want(scope, instructions, f.type) for f in state.fields if f.name not in given)
        types = {f.name: f.type for f in state.fields}
        prefer = tuple(tuple(self._want(scope, instructions, types[f]) for f in a.fields) if r.random() < 0.6 else ()
                       for a in state.allocs)
        timeout = r.choice(state.timeouts).name if state.timeouts else ""
        ok, full = self._body(hit, depth - 1), self._body(scope.copy(), depth - 2)
        return self._add(instructions, n.Insert(state.name, values, prefer, timeout, entry, ok, full, AT))

    # Instructions.

    def _want(self, scope: Scope, out: list[n.Instruction], type_: Type) -> n.Value:
        """A value of a type: one that is there, or one made now; small numbers are likely, so that keys repeat."""
        r = self.random
        fitting = [v for v in scope.values if v.type == type_]
        if fitting and r.random() < 0.5:
            return r.choice(fitting)
        result = self._value(type_)
        loads = [(h, f.name) for h in sorted(scope.headers) if (kind := header_type(h)) is not None
                 for f in kind.fields if f.type == type_ and field_of(h, f.name) is not None]
        choice = r.random()
        if loads and choice < 0.5:
            header, name = r.choice(loads)
            out.append(n.Load(result, header, name, AT))
        elif choice < 0.6:
            config = next(c for c in self.configs if c.type == type_) if type_ in WIDTHS else None
            out.append(n.LoadConfig(result, config.name, AT) if config else n.Const(result, self._number(type_), AT))
        else:
            out.append(n.Const(result, self._number(type_), AT))
        scope.values.append(result)
        return result

    def _instruction(self, scope: Scope, out: list[n.Instruction]) -> None:
        r = self.random
        entries = [v for v in scope.values if isinstance(v.type, EntryRef) and v.name not in scope.dead]
        makers: list[Callable[[Scope, list[n.Instruction]], None]] = [
            self._binary, self._binary, self._compare, self._cast, self._select, self._unary, self._meta, self._count]
        if scope.headers:
            makers += [self._store, self._store]
        r.choice(makers)(scope, out)
        if entries and r.random() < 0.6:
            self._entry_access(scope, out, r.choice(entries))

    def _keep(self, scope: Scope, out: list[n.Instruction], node: n.Instruction) -> None:
        out.append(node)
        result = n.result_of(node)
        assert result is not None
        scope.values.append(result)

    def _binary(self, scope: Scope, out: list[n.Instruction]) -> None:
        type_ = self.random.choice(WIDTHS)
        ops: tuple[n.BinaryOp, ...] = ("and", "or", "xor") if type_ == BOOL else (
            "add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr", "min", "max")
        left, right = self._want(scope, out, type_), self._want(scope, out, type_)
        self._keep(scope, out, n.Binary(self._value(type_), self.random.choice(ops), left, right, AT))

    def _compare(self, scope: Scope, out: list[n.Instruction]) -> None:
        type_ = self.random.choice(WIDTHS)
        ops: tuple[n.CompareOp, ...] = ("eq", "ne") if type_ == BOOL else ("eq", "ne", "lt", "le", "gt", "ge")
        left, right = self._want(scope, out, type_), self._want(scope, out, type_)
        self._keep(scope, out, n.Compare(self._value(BOOL), self.random.choice(ops), left, right, AT))

    def _cast(self, scope: Scope, out: list[n.Instruction]) -> None:
        source = self._want(scope, out, self.random.choice(WIDTHS))
        self._keep(scope, out, n.Cast(self._value(self.random.choice(WIDTHS)), source, AT))

    def _select(self, scope: Scope, out: list[n.Instruction]) -> None:
        type_ = self.random.choice(WIDTHS)
        condition = self._want(scope, out, BOOL)
        left, right = self._want(scope, out, type_), self._want(scope, out, type_)
        self._keep(scope, out, n.Select(self._value(type_), condition, left, right, AT))

    def _unary(self, scope: Scope, out: list[n.Instruction]) -> None:
        type_ = self.random.choice(WIDTHS)
        operand = self._want(scope, out, type_)
        self._keep(scope, out, n.Unary(self._value(type_), "not" if type_ == BOOL else "invert", operand, AT))

    def _meta(self, scope: Scope, out: list[n.Instruction]) -> None:
        kinds: tuple[tuple[n.MetaWhat, Type], ...] = (("time", U64), ("size", U32), ("port", U16))
        what, type_ = self.random.choice(kinds)
        self._keep(scope, out, n.Meta(self._value(type_), what, AT))

    def _count(self, scope: Scope, out: list[n.Instruction]) -> None:
        index = self._want(scope, out, self.random.choice((U8, U16, U128))) if self.random.random() < 0.7 else None
        amount = self._want(scope, out, U32) if self.random.random() < 0.5 else None
        out.append(n.Count("hits", index, amount, AT))

    def _store(self, scope: Scope, out: list[n.Instruction]) -> None:
        choices = [(h, f) for h in sorted(scope.headers) if (kind := header_type(h)) is not None
                   for f in kind.fields if f.writable and field_of(h, f.name) is not None]
        header, chosen = self.random.choice(choices)
        out.append(n.Store(header, chosen.name, self._want(scope, out, chosen.type), AT))

    def _entry_access(self, scope: Scope, out: list[n.Instruction], entry: n.Value) -> None:
        assert isinstance(entry.type, EntryRef)
        state = next(s for s in self.states if s.name == entry.type.state)
        if not isinstance(state, n.MapState):
            assert isinstance(state, n.AclState | n.LpmState)
            chosen = self.random.choice(state.values)
            self._keep(scope, out, n.LoadEntry(self._value(chosen.type), entry, chosen.name, AT))
            return
        kind = self.random.random()
        fixed = {f for k in state.keys for f in k.fields} | {f for a in state.allocs for f in a.fields}
        free = [f for f in state.fields if f.name not in fixed]
        if kind < 0.35 or (kind < 0.6 and not free):
            chosen = self.random.choice(state.fields)
            self._keep(scope, out, n.LoadEntry(self._value(chosen.type), entry, chosen.name, AT))
        elif kind < 0.6:
            chosen = self.random.choice(free)
            out.append(n.StoreEntry(entry, chosen.name, self._want(scope, out, chosen.type), AT))
        elif kind < 0.85:
            out.append(n.Touch(entry, self.random.choice(state.timeouts).name if state.timeouts else "", AT))
        else:
            out.append(n.Delete(entry, AT))
            scope.dead.add(entry.name)


def replace_headers(scope: Scope, *headers: str) -> Scope:
    out = scope.copy()
    out.headers = frozenset(headers)
    return out


class Packets:
    """Packets over few addresses and ports, with every oddity the contract has a rule for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = 10 * SECOND

    def make(self) -> Packet:
        r = self.random
        self.time += r.choice([0, 1, 1000, SECOND // 3, SECOND, -SECOND, 2 * SECOND, SECOND // 10])
        frame = self._frame()
        if r.random() < 0.15:
            data = bytearray(frame)
            for _ in range(r.randint(1, 3)):
                data[r.randrange(len(data))] = r.choice([0, 1, 0xFF, r.randrange(256)])
            frame = bytes(data)
        frame += bytes(r.choice([0, 0, 0, 7]))
        wirelen = len(frame)
        if r.random() < 0.1:
            frame = frame[:r.randint(0, len(frame))]
        if r.random() < 0.05:
            wirelen = len(frame)
        return Packet(r.randint(0, 1), max(0, self.time), frame, wirelen)

    def _frame(self) -> bytes:
        r = self.random
        macs = r.choice([b"\x02\0\0\0\0\x02", b"\xff" * 6]) + b"\x02\0\0\0\0\x01"
        tags = b"".join(r.choice([b"\x81\0", b"\x88\xa8", b"\x91\0"]) + r.randbytes(2)
                        for _ in range(r.choice([0, 0, 0, 1, 2, 3])))
        kind = r.random()
        if kind < 0.55:
            return macs + tags + b"\x08\0" + self._ipv4()
        if kind < 0.9:
            return macs + tags + b"\x86\xdd" + self._ipv6()
        return macs + tags + (b"\x08\x06" + r.randbytes(28) if kind < 0.95 else r.randbytes(20))

    def _ipv4(self, *, quoted: bool = False) -> bytes:
        r = self.random
        proto = r.choice([6, 17, 17, 1, 136, 50])
        source = bytes([10, 0, 0, r.randint(1, 3)])
        if r.random() < 0.1:
            source = r.choice([bytes(4), b"\x7f\0\0\1", b"\xe0\0\0\1"])
        target = bytes([10, 0, 1, r.randint(1, 3)]) if r.random() < 0.9 else b"\xff" * 4
        options = r.choice([b"", b"", b"\x01\x01\x01\x00", b"\x83\x07\x04abcde", b"\x07\x04ab", b"\x44\x01ab"])
        payload = self._upper(proto, v6=False, quoted=quoted)
        flags, chosen = 0, payload
        if not quoted and r.random() < 0.35:
            flags, chosen = self._cut(payload)
        head = bytearray(bytes([0x40 | 5 + len(options) // 4, r.randrange(256)])
                         + (20 + len(options) + len(chosen)).to_bytes(2, "big") + r.choice([b"\0\1", b"\0\2"])
                         + flags.to_bytes(2, "big") + bytes([r.choice([1, 64]), proto, 0, 0]) + source + target
                         + options)
        head[10:12] = ones_complement(bytes(head)).to_bytes(2, "big")
        return bytes(head) + chosen

    def _cut(self, payload: bytes) -> tuple[int, bytes]:
        """A piece of a payload of 40 bytes, mostly on 8-byte borders, and the flags word of IPv4."""
        r = self.random
        whole = (payload + bytes(40))[:40]
        first = r.choice([0, 0, 8, 16, 16, 24, 32])
        last = r.choice([x for x in (8, 16, 24, 32, 40, 37) if x > first])
        more = last < 37 or r.random() < 0.1
        return (0x2000 if more else 0) | first // 8, whole[first:last]

    def _ipv6(self, *, quoted: bool = False) -> bytes:
        r = self.random
        upper = r.choice([6, 17, 58, 50])
        source = b"\xfd" + bytes(14) + bytes([r.randint(1, 3)]) if r.random() < 0.9 else r.choice(
            [bytes(16), bytes(15) + b"\1", b"\xff" + bytes(15)])
        target = b"\xfd" + bytes(13) + bytes([1, r.randint(1, 3)])
        payload, kind = self._upper(upper, v6=True, quoted=quoted), upper
        if r.random() < 0.35:
            flags, payload = self._cut(payload) if r.random() < 0.8 and not quoted else (0, payload)
            field_ = ((flags & 0x1FFF) << 3) | (flags >> 13 & 1)
            payload = bytes([kind, 0]) + field_.to_bytes(2, "big") + r.choice([b"\0\0\0\1", b"\0\0\0\2"]) + payload
            kind = 44
        for _ in range(r.choice([0, 0, 0, 1, 2])):
            extra = r.choice([0, 60, 43, 51, 44])
            body = bytes([kind, 0 if extra != 51 else 1]) + bytes(6 if extra != 51 else 10)
            payload, kind = body + payload, extra
        head = bytes([0x60, 0, 0, 0]) + len(payload).to_bytes(2, "big") + bytes([kind, r.choice([1, 64])])
        return head + source + target + payload

    def _upper(self, proto: int, *, v6: bool, quoted: bool) -> bytes:
        r = self.random
        ports = r.choice([b"\x03\xfd", b"\x10\0", b"\0\1"]) + r.choice([b"\0\x35", b"\x07\xd0"])
        data = r.randbytes(r.randint(0, 24))
        if proto == 6:
            offset = r.choice([0x50, 0x50, 0x60, 0x40])
            return ports + r.randbytes(8) + bytes([offset, r.randrange(256)]) + r.randbytes(6) + data
        if proto == 17:
            length = 8 + len(data) if r.random() < 0.9 else r.randint(0, 60)
            return ports + length.to_bytes(2, "big") + r.choice([b"\0\0", b"\xff\xff", r.randbytes(2)]) + data
        if proto in (1, 58) and not quoted and r.random() < 0.7:
            kind = r.choice([3, 11]) if proto == 1 else r.choice([1, 3])
            inner = self._ipv6(quoted=True) if v6 else self._ipv4(quoted=True)
            return bytes([kind, 0]) + r.randbytes(6) + inner[:r.choice([28, 48, 60, 200])]
        if proto in (1, 58):
            return bytes([r.choice([0, 8, 128, 129, 3]), 0]) + r.randbytes(2) + ports + data
        return ports + r.randbytes(16)


def ones_complement(data: bytes) -> int:
    """The Internet checksum of RFC 1071."""
    total = sum(int.from_bytes(data[i:i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def random_program(seed: int) -> n.Program:
    """A well-typed program; the same for the same seed."""
    return Generator(seed).program()


def random_packets(seed: int, count: int) -> list[Packet]:
    """Packets in file order; time stamps may step back."""
    source = Packets(seed)
    return [source.make() for _ in range(count)]
