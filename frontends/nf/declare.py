"""Declarations: resolves types and constants, checks each, and makes the IR's ports, configs and states."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cora.errors import Diagnostic, Kind
from cora.frontends.nf import ast
from cora.frontends.nf.constants import Constants
from cora.frontends.nf.types import (
    DURATION,
    INTEGER,
    IPV4,
    IPV6,
    LanguageType,
    Number,
    Scalar,
    Struct,
    flatten_type,
    scalar_named,
)
from cora.frontends.nf.words import NOT_YET, NOT_YET_HINT, not_yet, refused_name
from cora.ir import nodes
from cora.ir.span import Span
from cora.ir.types import bits_of

FACES = ("wire", "host", "vf")
MAX_CAPACITY = 1 << 28
MAX_ENTRY_BITS = 512 * 8
MAX_FIELDS = 64
# Entries of one priority are compared in pairs.
MAX_SAME_PRIORITY = 1000
MAX_ERRORS = 50
# Products of 10**9 and a burst must fit 63 bits (docs/semantics.md, section 5).
MAX_BURST = (1 << 63) // 10**9
# Octets a second: 8 Tbit/s, beyond any port.
MAX_RATE = 10**12


@dataclass(frozen=True)
class Table:
    """A table as programs see it: the language types of its fields beside the IR state."""

    name: str
    kind: Literal["map", "meter", "acl", "lpm"]
    state: nodes.State
    fields: tuple[tuple[str, LanguageType], ...]
    keys: Mapping[str, tuple[tuple[str, Scalar], ...]]
    span: Span


@dataclass
class Policies:
    """What the program says about packets that need a rule rather than code."""

    fragments: str | None = None
    unparsed: str = "drop"
    verify: bool = True
    source_routes: str = "drop"
    vlan_tags: int = 2
    ipv6_headers: int = 8


@dataclass
class Symbols:
    """Everything a program declares, by name."""

    ports: dict[str, nodes.Port] = field(default_factory=dict)
    configs: dict[str, nodes.Config] = field(default_factory=dict)
    config_types: dict[str, Scalar] = field(default_factory=dict)
    consts: dict[str, Number] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    pools: dict[str, nodes.PoolState] = field(default_factory=dict)
    pool_types: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    counters: dict[str, nodes.CounterState] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDecl] = field(default_factory=dict)
    handlers: list[ast.HandlerDecl] = field(default_factory=list)
    policies: Policies = field(default_factory=Policies)
    states: list[nodes.State] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)


class Errors:
    """Collects diagnostics; lowering goes on after each."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        # Every name the program declares anywhere.
        self.declared: dict[str, Span] = {}

    def add(self, kind: Kind, message: str, span: Span, hint: str | None = None,
            notes: Iterable[tuple[str, Span | None]] = ()) -> None:
        diagnostic = Diagnostic(kind, message, span, hint=hint, notes=tuple(notes))
        if diagnostic not in self.found and len(self.found) < MAX_ERRORS:
            self.found.append(diagnostic)

    def unknown(self, what: str, name: str, span: Span, known: Iterable[str]) -> None:
        """An unknown name, with the nearest known one as the suggestion."""
        if name in NOT_YET:
            self.add(Kind.NOT_YET, not_yet(name), span, NOT_YET_HINT)
            return
        names = sorted(set(known))
        near = difflib.get_close_matches(name, names, 1, 0.6)
        hint = f"did you mean '{near[0]}'?" if near else (f"known: {', '.join(names[:12])}" if names else None)
        # Fields, attributes and choices are found elsewhere than declared names.
        elsewhere = self.declared.get(name) if " called" not in what and "field" not in what else None
        if elsewhere is not None and (elsewhere.line, elsewhere.column) > (span.line, span.column):
            hint = "a name is known from its declaration on: move that up"
        notes = [] if elsewhere is None else [(f"'{name}' is declared here", _head(elsewhere))]
        self.add(Kind.UNKNOWN_NAME, f"there is no {what} '{name}'", span, hint, notes)


def declare(source: ast.Source, overrides: Mapping[str, str], errors: Errors) -> Symbols:
    """Process all declarations of a program in order; ``overrides`` replaces values of configs by name."""
    declarer = _Declarer(errors, overrides)
    for item in source.items:
        name = getattr(item, "name", None)
        if isinstance(name, str):
            errors.declared.setdefault(name, item.span)
    for item in source.items:
        declarer.item(item)
    declarer.finish(source)
    return declarer.symbols


class _Declarer:
    def __init__(self, errors: Errors, overrides: Mapping[str, str]) -> None:
        self.errors = errors
        self.overrides = overrides
        self.symbols = Symbols()
        self.constants = Constants(self.symbols, errors)

    def item(self, item: ast.Declaration) -> None:
        name = getattr(item, "name", None)
        if isinstance(name, str) and not self.new_name(name, item.span):
            return
        _DECLARE[type(item)](self, item)

    def new_name(self, name: str, span: Span) -> bool:
        before = self.symbols.spans.get(name)
        if before is not None:
            self.errors.add(Kind.DUPLICATE_NAME, f"'{name}' is declared twice", span, "give one of them another name",
                            [("first declared here", _head(before))])
            return False
        refused = refused_name(name)
        if refused is not None:
            self.errors.add(Kind.DUPLICATE_NAME, refused, _head(span), "choose another name")
            return False
        self.symbols.spans[name] = span
        return True

    def finish(self, source: ast.Source) -> None:
        if not self.symbols.ports:
            self.errors.add(Kind.BAD_DECLARATION, "the program declares no port", _head(source.span),
                            "add for example: port inside: wire;")
        if not self.symbols.handlers:
            self.errors.add(Kind.BAD_DECLARATION, "the program handles no packet", _head(source.span),
                            "add for example: on inside(p: eth) { forward outside; }")
        for name in self.overrides:
            if name not in self.symbols.configs and name not in self.constants.failed:
                known = ", ".join(self.symbols.configs) or "none"
                self.errors.found.append(Diagnostic(
                    Kind.BAD_OVERRIDE, f"{source.name} has no config '{name}'", where=f"--set {name}",
                    hint=f"its configs: {known}"))

    def type(self, name: ast.Name) -> LanguageType | None:
        found = scalar_named(name.text) or self.symbols.structs.get(name.text)
        if found is None and name.text not in self.constants.failed:
            self.errors.unknown("type", name.text, name.span,
                                ["bool", "u8", "u16", "u32", "u64", "u128", "ipv4", "ipv6", "mac", "duration",
                                 *self.symbols.structs])
        return found

    def scalar(self, name: ast.Name) -> Scalar | None:
        found = self.type(name)
        if isinstance(found, Struct):
            self.errors.add(Kind.TYPE_MISMATCH, f"'{found}' is a struct, a scalar type is needed here", name.span)
            return None
        return found

    # Simple declarations.

    def port(self, item: ast.PortDecl) -> None:
        for face in item.faces:
            if face not in FACES:
                self.errors.add(Kind.BAD_DECLARATION, f"a port faces 'wire', 'host' or 'vf', not '{face}'", item.span)
        self.symbols.ports[item.name] = nodes.Port(item.name, item.faces, item.span)

    def config(self, item: ast.ConfigDecl) -> None:
        type_ = self.scalar(item.type)
        if type_ is None:
            self.constants.failed.add(item.name)
            return
        value = self.constants.of_type(item.value, type_)
        shown = ""
        if item.name in self.overrides:
            value = self.constants.override(item, type_, self.overrides[item.name])
            shown = self.overrides[item.name]
        if value is None:
            self.constants.failed.add(item.name)
            return
        self.symbols.configs[item.name] = nodes.Config(item.name, type_.ir, value, item.span, shown)
        self.symbols.config_types[item.name] = type_

    def const(self, item: ast.ConstDecl) -> None:
        type_ = self.scalar(item.type) if item.type else INTEGER
        if type_ is None:
            self.constants.failed.add(item.name)
            return
        found = self.constants.number(item.value)
        if found is not None and item.type:
            value = self.constants.of_type(item.value, type_)
            found = None if value is None else Number(type_, value)
        if found is None:
            self.constants.failed.add(item.name)
            return
        self.symbols.consts[item.name] = found

    def struct(self, item: ast.StructDecl) -> None:
        before = len(self.errors.found)
        made = Struct(item.name, tuple(self.fields(item.fields)))
        scalars = sum(scalar_count(t) for _, t in made.fields)
        if scalars > MAX_FIELDS:
            self.errors.add(Kind.VALUE_RANGE, f"struct '{item.name}' holds {scalars} scalars, at most {MAX_FIELDS} are "
                                              "possible", _head(item.span))
        if len(self.errors.found) > before or len(made.fields) != len(item.fields):
            self.constants.failed.add(item.name)
            return
        self.symbols.structs[item.name] = made

    def fields(self, items: Iterable[ast.FieldItem]) -> list[tuple[str, LanguageType]]:
        seen: dict[str, Span] = {}
        found = []
        for f in items:
            if f.name in seen:
                self.errors.add(Kind.DUPLICATE_NAME, f"field '{f.name}' stands twice", f.span, None,
                                [("first here", seen[f.name])])
                continue
            seen[f.name] = f.span
            type_ = self.type(f.type)
            if type_ is not None:
                found.append((f.name, type_))
        return found

    def pool(self, item: ast.PoolDecl) -> None:
        known = self.attributes(item.attributes, "pool", {"preserve": 0, "per_shard": 0})
        ranges, types = [], []
        for r in item.ranges:
            type_ = self.scalar(r.type)
            if type_ is None:
                continue
            low, high = self.constants.of_type(r.low, type_), self.constants.of_type(r.high, type_)
            if low is None or high is None:
                continue
            if low > high:
                name = r.name if len(item.ranges) > 1 else item.name
                self.errors.add(Kind.VALUE_RANGE, f"the range of '{name}' is empty: it starts above its end", r.span,
                                "write the smaller value first")
                continue
            ranges.append(nodes.PoolRange(r.name, type_.ir, low, high, r.span))
            types.append(type_)
        if not item.ranges:
            self.errors.add(Kind.BAD_DECLARATION, f"pool '{item.name}' has no values", _head(item.span),
                            "add for example: port: u16 in 1024 .. 65535;")
        if len(ranges) != len(item.ranges) or not ranges:
            self.constants.failed.add(item.name)
            return
        pool = nodes.PoolState(item.name, tuple(ranges), "preserve" in known, "per_shard" in known, item.span)
        if pool.size > MAX_CAPACITY:
            self.errors.add(Kind.VALUE_RANGE, f"pool '{item.name}' has {pool.size} values, at most {MAX_CAPACITY} "
                                              "are possible", item.span)
            self.constants.failed.add(item.name)
            return
        self.symbols.pools[item.name] = pool
        self.symbols.pool_types[item.name] = tuple(types)
        self.symbols.states.append(pool)

    def counter(self, item: ast.CounterDecl) -> None:
        size = 1 if item.size is None else self.positive(item.size, "the size of a counter", MAX_CAPACITY)
        if size is None:
            self.constants.failed.add(item.name)
            return
        counter = nodes.CounterState(item.name, size, item.span)
        self.symbols.counters[item.name] = counter
        self.symbols.states.append(counter)

    def positive(self, expr: ast.Expr, what: str, limit: int) -> int | None:
        value = self.constants.plain(expr, what)
        if value is not None and not 1 <= value <= limit:
            self.errors.add(Kind.VALUE_RANGE, f"{what} is {value}, it must be 1 to {limit}", expr.span)
            return None
        return value

    def attributes(self, items: Iterable[ast.Attribute], what: str, allowed: Mapping[str, int]
                   ) -> dict[str, ast.Attribute]:
        """Attributes by name; ``allowed`` says how many words may follow each."""
        found: dict[str, ast.Attribute] = {}
        for a in items:
            if a.name not in allowed:
                self.errors.unknown(f"attribute of a {what} called", a.name, a.span, allowed)
            elif a.name in found:
                self.errors.add(Kind.DUPLICATE_NAME, f"'{a.name}' is given twice", a.span)
            elif len(a.args) != allowed[a.name]:
                self.errors.add(Kind.BAD_DECLARATION,
                                f"'{a.name}' takes {allowed[a.name] or 'no'} value{'s' * (allowed[a.name] != 1)}, "
                                f"{len(a.args)} given", a.span)
                if len(a.args) > allowed[a.name]:
                    found[a.name] = replace(a, args=a.args[:allowed[a.name]])
            else:
                found[a.name] = a
        return found

    # Tables.

    def capacity(self, known: Mapping[str, ast.Attribute], what: str, span: Span, default: int | None = None
                 ) -> int | None:
        if "capacity" in known:
            return self.positive(known["capacity"].args[0], f"the capacity of {what}", MAX_CAPACITY)
        if default is None:
            self.errors.add(Kind.BAD_DECLARATION, f"{what} has no capacity", _head(span),
                            "add for example: capacity 65536;")
        return default

    def full(self, known: Mapping[str, ast.Attribute]) -> nodes.Full:
        if "full" not in known:
            return "reject"
        words = tuple(a.text if isinstance(a, ast.Name) else "" for a in known["full"].args)
        choices: dict[tuple[str, ...], nodes.Full] = {("reject",): "reject", ("pass",): "pass",
                                                      ("evict_lru",): "evict_lru"}
        if words not in choices:
            self.errors.add(Kind.BAD_DECLARATION, "a full table can 'reject', 'pass' or 'evict_lru'",
                            known["full"].span)
        return choices.get(words, "reject")

    def strict(self, known: Mapping[str, ast.Attribute]) -> bool:
        if "exact" in known and "approx" in known:
            self.errors.add(Kind.BAD_DECLARATION, "a table is 'exact' or 'approx', not both", known["approx"].span)
        if "order" not in known:
            return True
        word = known["order"].args[0]
        if not isinstance(word, ast.Name) or word.text not in ("strict", "weak"):
            self.errors.add(Kind.BAD_DECLARATION, "the order of a table is 'strict' or 'weak'", word.span)
            return True
        return word.text == "strict"

    def timeouts(self, item: ast.TimeoutItem | None) -> tuple[tuple[nodes.Timeout, ...], int]:
        if item is None:
            return (), 0
        found, names = [], set()
        for name, expr, span in item.classes:
            if name in names:
                self.errors.add(Kind.DUPLICATE_NAME, f"time-out class '{name}' stands twice", span)
            names.add(name)
            value = self.constants.of_type(expr, DURATION)
            if value is not None and not 1 <= value < 1 << 62:
                self.errors.add(Kind.VALUE_RANGE, "a time-out must be at least 1ns and below 146 years", expr.span)
                value = None
            if value is not None:
                found.append(nodes.Timeout(name or "idle", value, span))
        slack = 0 if item.slack is None else (self.constants.of_type(item.slack, DURATION) or 0)
        return tuple(found), slack

    _TABLE = {"capacity": 1, "full": 1, "exact": 0, "approx": 0, "order": 1, "per_shard": 0}  # noqa: RUF012

    def map(self, item: ast.MapDecl) -> None:
        known = self.attributes(item.attributes, "map", self._TABLE)
        fields = self.fields(item.entry)
        if len(fields) != len(item.entry):
            self.constants.failed.add(item.name)
            return
        capacity = self.capacity(known, f"map '{item.name}'", item.span)
        timeouts, slack = self.timeouts(item.timeout)
        keys = self.keys(item, fields)
        flat = [pair for name, type_ in fields for pair in flatten_type(type_, name)]
        allocs = self.allocs(item, dict(fields))
        bits = sum(bits_of(t.ir) for _, t in flat)
        if bits > MAX_ENTRY_BITS:
            self.errors.add(Kind.VALUE_RANGE, f"an entry of map '{item.name}' has {bits} bits, at most "
                                              f"{MAX_ENTRY_BITS} are possible", _head(item.span))
        if not item.entry:
            self.errors.add(Kind.BAD_DECLARATION, f"map '{item.name}' has no entry fields", _head(item.span),
                            "add for example: entry { src: ipv4, packets: u64 }")
        if capacity is None or keys is None or allocs is None or not fields:
            self.constants.failed.add(item.name)
            return
        spans = {f.name: f.span for f in item.entry}
        state = nodes.MapState(
            item.name, tuple(nodes.FieldDecl(n, t.ir, spans[n.split(".")[0]], t.name) for n, t in flat),
            tuple(nodes.KeyDecl(k.name or "key", tuple(n for n, _ in keys[k.name]), k.span) for k in item.keys),
            allocs, capacity, timeouts, slack, self.full(known), "approx" not in known, self.strict(known),
            "per_shard" in known, item.span)
        named = {k or "key": tuple(v) for k, v in keys.items()}
        self.symbols.tables[item.name] = Table(item.name, "map", state, tuple(fields), named, item.span)
        self.symbols.states.append(state)

    def keys(self, item: ast.MapDecl, fields: list[tuple[str, LanguageType]]
             ) -> dict[str, list[tuple[str, Scalar]]] | None:
        wanted = 2 if item.pair else 1
        if len(item.keys) != wanted:
            shape = "a pair map has two keys" if item.pair else "a map has one key (a 'pair map' has two)"
            self.errors.add(Kind.BAD_DECLARATION, f"{shape}, '{item.name}' has {len(item.keys)}", _head(item.span),
                            "for example: key fwd = flow;")
            return None
        found: dict[str, list[tuple[str, Scalar]]] = {}
        types = dict(fields)
        for k in item.keys:
            if item.pair and (not k.name or k.name in found):
                self.errors.add(Kind.BAD_DECLARATION, "the two keys of a pair map need different names", k.span)
                return None
            parts: list[tuple[str, Scalar]] = []
            for expr in k.value.items if isinstance(k.value, ast.TupleExpr) else (k.value,):
                part = self.key_part(expr, types)
                if part is None:
                    return None
                parts += part
            found[k.name] = parts
        return found

    def key_part(self, expr: ast.Expr, types: Mapping[str, LanguageType]) -> list[tuple[str, Scalar]] | None:
        names: list[str] = []
        inner = expr
        while isinstance(inner, ast.Member):
            names.insert(0, inner.name)
            inner = inner.base
        if not isinstance(inner, ast.Name):
            self.errors.add(Kind.BAD_DECLARATION, "a key is made of entry fields only", expr.span,
                            "compute the value where you look up or insert, and keep it in a field")
            return None
        type_: LanguageType | None = types.get(inner.text)
        path = inner.text
        for name in names:
            type_ = dict(type_.fields).get(name) if isinstance(type_, Struct) else None
            path += f".{name}"
        if type_ is None:
            self.errors.unknown("entry field", path, expr.span, types)
            return None
        return flatten_type(type_, path)

    def allocs(self, item: ast.MapDecl, types: Mapping[str, LanguageType]) -> tuple[nodes.AllocDecl, ...] | None:
        found = []
        for f in item.entry:
            if not f.extra:
                continue
            if f.extra in self.constants.failed or f.name not in types:
                return None
            pool = self.symbols.pools.get(f.extra)
            if pool is None:
                self.errors.unknown("pool", f.extra, f.span, self.symbols.pools)
                return None
            flat = flatten_type(types[f.name], f.name)
            if [t for _, t in flat] != list(self.symbols.pool_types[f.extra]):
                shape = ", ".join(map(str, self.symbols.pool_types[f.extra]))
                self.errors.add(Kind.TYPE_MISMATCH, f"pool '{f.extra}' gives ({shape}), '{f.name}' is "
                                                    f"{types[f.name]}", f.span, None, [("the pool", pool.span)])
                return None
            found.append(nodes.AllocDecl(f.extra, tuple(n for n, _ in flat), f.span))
        return tuple(found)

    def meter(self, item: ast.MeterDecl) -> None:
        numbers = {"rate": 1, "burst": 1, "excess": 1, "peak": 1, "peak_burst": 1}
        known = self.attributes(item.attributes, "meter", {**self._TABLE, **numbers})
        limits = {n: MAX_RATE if n in ("rate", "peak") else MAX_BURST for n in numbers}
        values = {n: self.positive(known[n].args[0], f"the {n} of a meter", limits[n]) for n in numbers if n in known}
        for name in ("rate", "burst"):
            if name not in known:
                self.errors.add(Kind.BAD_DECLARATION, f"meter '{item.name}' has no {name}", _head(item.span),
                                "for example: rate 10Mbps; burst 15000B;")
        algorithm = self.algorithm(item, known)
        fields = self.fields(item.key)
        capacity = self.capacity(known, f"meter '{item.name}'", item.span)
        if not item.key:
            self.errors.add(Kind.BAD_DECLARATION, f"meter '{item.name}' has no key", _head(item.span),
                            "for example: key src: ipv4;")
        if capacity is None or None in values.values() or not {"rate", "burst"} <= set(values) or not fields:
            self.constants.failed.add(item.name)
            return
        got = {n: v or 0 for n, v in values.items()}
        timeouts, slack = self.timeouts(item.timeout)
        if len(timeouts) > 1 and item.timeout is not None:
            self.errors.add(Kind.BAD_DECLARATION, "a meter has one time-out, not classes", item.timeout.span,
                            "for example: timeout 30s;")
        flat = [pair for name, type_ in fields for pair in flatten_type(type_, name)]
        timeout = timeouts[0].nanoseconds if timeouts else refill_ns(got)
        state = nodes.MeterState(
            item.name, _declared(flat, item.span), capacity, algorithm, got["rate"],
            got["burst"], got.get("excess", 0), got.get("peak", 0), got.get("peak_burst", 0), timeout, slack,
            self.full(known), "approx" not in known, self.strict(known), "per_shard" in known, item.span)
        self.symbols.tables[item.name] = Table(item.name, "meter", state, tuple(fields), {"": tuple(flat)}, item.span)
        self.symbols.states.append(state)

    def algorithm(self, item: ast.MeterDecl, known: Mapping[str, ast.Attribute]) -> nodes.Algorithm:
        if "excess" in known and ("peak" in known or "peak_burst" in known):
            self.errors.add(Kind.BAD_DECLARATION, "a meter has an excess burst (RFC 2697) or a peak rate (RFC 2698), "
                                                  "not both", known["excess"].span)
        if ("peak" in known) != ("peak_burst" in known):
            self.errors.add(Kind.BAD_DECLARATION, "'peak' and 'peak_burst' go together (RFC 2698)", _head(item.span))
        if "peak" in known:
            return "trtcm"
        return "srtcm" if "excess" in known else "token_bucket"

    def table(self, item: ast.TableDecl) -> None:
        known = self.attributes(item.attributes, f"{item.kind} table", {"capacity": 1})
        key = self.fields(item.key)
        values = self.fields(item.values)
        if len(key) != len(item.key) or len(values) != len(item.values):
            self.constants.failed.add(item.name)
            return
        flat_key = [pair for name, t in key for pair in flatten_type(t, name)]
        flat_values = [pair for name, t in values for pair in flatten_type(t, name)]
        if len(flat_values) != len(item.values):
            self.errors.add(Kind.BAD_DECLARATION, f"the values of '{item.name}' are scalars", _head(item.span))
            self.constants.failed.add(item.name)
            return
        if len(flat_key) != len(item.key):
            self.errors.add(Kind.BAD_DECLARATION, f"the key of '{item.name}' is made of scalars", _head(item.span))
            self.constants.failed.add(item.name)
            return
        capacity = self.capacity(known, f"table '{item.name}'", item.span, max(1, len(item.entries)))
        state = self.acl(item, flat_key, flat_values, capacity) if item.kind == "acl" else self.lpm(
            item, flat_key, flat_values, capacity)
        if state is None:
            self.constants.failed.add(item.name)
            return
        self.symbols.tables[item.name] = Table(item.name, item.kind, state, tuple(values), {"": tuple(flat_key)},
                                               item.span)
        self.symbols.states.append(state)

    def values(self, entry: ast.EntryItem, fields: list[tuple[str, Scalar]]) -> tuple[int, ...] | None:
        given = dict(entry.values)
        for name, expr in entry.values:
            if name not in dict(fields):
                self.errors.unknown("value field", name, expr.span, dict(fields))
        found = []
        for name, type_ in fields:
            if name not in given:
                self.errors.add(Kind.BAD_DECLARATION, f"this entry gives no '{name}'", entry.span)
                return None
            found.append(self.constants.of_type(given[name], type_))
        return None if None in found else tuple(v for v in found if v is not None)

    def too_many(self, item: ast.TableDecl, capacity: int | None) -> bool:
        if capacity is not None and len(item.entries) > capacity:
            self.errors.add(Kind.VALUE_RANGE, f"'{item.name}' has {len(item.entries)} entries but a capacity of "
                                              f"{capacity}", item.entries[capacity].span)
            return True
        return capacity is None

    def acl(self, item: ast.TableDecl, key: list[tuple[str, Scalar]], values: list[tuple[str, Scalar]],
            capacity: int | None) -> nodes.AclState | None:
        kinds: list[nodes.MatchKind] = []
        for f in item.key:
            if f.extra not in ("", "exact", "ternary", "range"):
                self.errors.unknown("match kind", f.extra, f.span, ("exact", "ternary", "range"))
                return None
            kinds.append("exact" if f.extra == "" else f.extra)  # type: ignore[arg-type]
        if not item.key:
            self.errors.add(Kind.BAD_DECLARATION, f"acl '{item.name}' has no key", _head(item.span),
                            "for example: key (src: ipv4 ternary, dport: u16 range);")
        if self.too_many(item, capacity) or not kinds:
            return None
        explicit = [e for e in item.entries if e.priority is not None]
        if explicit and len(explicit) != len(item.entries):
            bare = next(e for e in item.entries if e.priority is None)
            self.errors.add(Kind.BAD_DECLARATION, "some entries of this table have a priority, this one has none",
                            bare.span, "give every entry a priority (the largest wins), or none (the first wins)")
            return None
        found = []
        for i, entry in enumerate(item.entries):
            made = self.acl_entry(entry, key, kinds, values, len(item.entries) - i)
            if made is None:
                return None
            found.append(made)
        self.overlaps(found, kinds)
        return nodes.AclState(item.name, _declared(key, item.span), tuple(kinds), _declared(values, item.span),
                              tuple(found), capacity or 1, item.span)

    def acl_entry(self, entry: ast.EntryItem, key: list[tuple[str, Scalar]], kinds: list[nodes.MatchKind],
                  values: list[tuple[str, Scalar]], order: int) -> nodes.AclEntry | None:
        if len(entry.patterns) != len(key):
            self.errors.add(Kind.BAD_DECLARATION, f"the key has {len(key)} fields, this entry gives "
                                                  f"{len(entry.patterns)}", entry.span)
            return None
        match = [self.match(p, t, kind) for p, (_, t), kind in zip(entry.patterns, key, kinds, strict=True)]
        got = self.values(entry, values)
        priority = order if entry.priority is None else self.positive(entry.priority, "a priority", (1 << 31) - 1)
        if got is None or priority is None or None in match:
            return None
        return nodes.AclEntry(tuple(m for m in match if m is not None), got, priority, entry.span)

    def match(self, pattern: ast.Pattern, type_: Scalar, kind: nodes.MatchKind) -> tuple[int, int] | None:
        everything = type_.limit - 1
        if pattern.kind == "any":
            if kind == "exact":
                self.errors.add(Kind.BAD_DECLARATION, "an exact field cannot be 'any'", pattern.span,
                                "declare the field 'ternary' or 'range'")
                return None
            return (0, everything) if kind == "range" else (0, 0)
        assert pattern.first is not None, "only 'any' has no value"
        if isinstance(pattern.first, ast.LiteralExpr) and pattern.first.kind in ("prefix4", "prefix6"):
            return self.prefix_match(pattern.first, type_, kind)
        first = self.constants.of_type(pattern.first, type_)
        if pattern.second is None:
            return None if first is None else ((first, first) if kind == "range" else (first, everything))
        second = self.constants.of_type(pattern.second, type_)
        if first is None or second is None:
            return None
        if (pattern.kind == "range") != (kind == "range") or kind == "exact":
            self.errors.add(Kind.BAD_DECLARATION, f"this is a {pattern.kind}, the field is {kind}", pattern.span)
            return None
        if pattern.kind == "mask":
            return first & second, second
        if first > second:
            self.errors.add(Kind.VALUE_RANGE, "this range is empty", pattern.span, "write the smaller value first")
            return None
        return first, second

    def prefix_match(self, literal: ast.LiteralExpr, type_: Scalar, kind: nodes.MatchKind) -> tuple[int, int] | None:
        width = 32 if literal.kind == "prefix4" else 128
        if type_ != (IPV4 if width == 32 else IPV6) or kind == "exact":
            self.errors.add(Kind.TYPE_MISMATCH, f"a prefix does not match a {kind} {type_}", literal.span)
            return None
        mask = ((1 << literal.length) - 1) << (width - literal.length)
        rest = (1 << width) - 1 - mask
        return (literal.value, literal.value | rest) if kind == "range" else (literal.value, mask)

    def overlaps(self, entries: list[nodes.AclEntry], kinds: list[nodes.MatchKind]) -> None:
        by_priority: dict[int, list[nodes.AclEntry]] = {}
        for e in entries:
            same = by_priority.setdefault(e.priority, [])
            if len(same) == MAX_SAME_PRIORITY:
                self.errors.add(Kind.VALUE_RANGE, f"more than {MAX_SAME_PRIORITY} entries have priority {e.priority}",
                                e.span, "leave all priorities out: then the first entry that matches wins")
                return
            for other in same:
                if other.values != e.values and all(
                        _meet(a, b, k) for a, b, k in zip(e.match, other.match, kinds, strict=True)):
                    self.errors.add(Kind.BAD_DECLARATION, f"two entries of priority {e.priority} match the same packet "
                                                          "and give different values", e.span,
                                    "give one of them a larger priority", [("the other entry", other.span)])
            same.append(e)

    def lpm(self, item: ast.TableDecl, key: list[tuple[str, Scalar]], values: list[tuple[str, Scalar]],
            capacity: int | None) -> nodes.LpmState | None:
        if len(key) != 1 or key[0][1] not in (IPV4, IPV6):
            self.errors.add(Kind.BAD_DECLARATION, f"the key of lpm table '{item.name}' is one ipv4 or ipv6",
                            _head(item.span))
            return None
        if self.too_many(item, capacity):
            return None
        found: dict[tuple[int, int], nodes.LpmEntry] = {}
        for entry in item.entries:
            made = self.lpm_entry(entry, key[0][1], values)
            if made is None:
                return None
            if (made.value, made.length) in found:
                self.errors.add(Kind.DUPLICATE_NAME, "this prefix stands twice", entry.span, None,
                                [("first here", found[made.value, made.length].span)])
            found[made.value, made.length] = made
        return nodes.LpmState(item.name, _declared(key, item.span)[0], _declared(values, item.span),
                              tuple(found.values()), capacity or 1, item.span)

    def lpm_entry(self, entry: ast.EntryItem, type_: Scalar, values: list[tuple[str, Scalar]]
                  ) -> nodes.LpmEntry | None:
        literal = entry.patterns[0].first
        wanted = ("prefix4", "ipv4", 32) if type_ == IPV4 else ("prefix6", "ipv6", 128)
        if not isinstance(literal, ast.LiteralExpr) or literal.kind not in wanted[:2]:
            self.errors.add(Kind.TYPE_MISMATCH, f"an entry of this table is an {type_} prefix", entry.span)
            return None
        length = literal.length if literal.kind == wanted[0] else wanted[2]
        got = self.values(entry, values)
        return None if got is None else nodes.LpmEntry(literal.value, length, got, entry.span)

    # Policies.

    def policy(self, item: ast.Policy) -> None:
        name = f"policy {item.kind} {item.word if item.kind == 'limit' else ''}".strip()
        if name in self.symbols.spans:
            self.errors.add(Kind.DUPLICATE_NAME, f"'{name.removeprefix('policy ')}' is decided twice", item.span,
                            "keep one of them", [("first here", self.symbols.spans[name])])
            return
        self.symbols.spans[name] = item.span
        policies = self.symbols.policies
        choices = {"fragments": ("track", "drop", "ignore"), "unparsed": ("drop", "pass"),
                   "verify": ("ipv4.checksum", "none"), "source_routes": ("drop", "pass"),
                   "limit": ("vlan_tags", "ipv6_headers")}[item.kind]
        if item.word not in choices:
            self.errors.unknown(f"choice for '{item.kind}' called", item.word, item.span, choices)
            return
        match item.kind:
            case "fragments":
                policies.fragments = item.word
                self.tracker(item)
            case "unparsed":
                policies.unparsed = item.word
            case "verify":
                policies.verify = item.word != "none"
            case "source_routes":
                policies.source_routes = item.word
            case _:
                limit = self.positive(item.attributes[0].args[0], f"the limit of {item.word}", 16)
                if limit is not None:
                    setattr(policies, item.word, limit)

    def tracker(self, item: ast.Policy) -> None:
        if item.word != "track":
            self.attributes(item.attributes, f"'fragments {item.word}' policy", {})
            return
        known = self.attributes(item.attributes, "'fragments track' policy", {"capacity": 1, "timeout": 1, "held": 1})
        capacity = self.capacity(known, "the fragment tracker", item.span, 4096) or 1
        # RFC 8200 section 4.5 allows 60 s for reassembly; most trackers keep 30 s.
        timeout = 30 * 10**9
        if "timeout" in known:
            timeout = self.constants.of_type(known["timeout"].args[0], DURATION) or timeout
        held = self.positive(known["held"].args[0], "the number of held fragments", 16) if "held" in known else 3
        self.symbols.spans["fragments"] = item.span
        self.symbols.states.append(nodes.FragmentState("fragments", capacity, timeout, held or 1, item.span))


def _handler(declarer: _Declarer, item: ast.HandlerDecl) -> None:
    declarer.symbols.handlers.append(item)


def _function(declarer: _Declarer, item: ast.FunctionDecl) -> None:
    seen: dict[str, Span] = {}
    for param in item.params:
        refused = refused_name(param.name)
        if refused is not None or param.name in seen:
            notes = [("first here", seen[param.name])] if param.name in seen else []
            declarer.errors.add(Kind.DUPLICATE_NAME, refused or f"parameter '{param.name}' stands twice", param.span,
                                "choose another name", notes)
        seen[param.name] = param.span
    declarer.symbols.functions[item.name] = item


_DECLARE: dict[type, Callable[[_Declarer, Any], None]] = {
    ast.PortDecl: _Declarer.port, ast.ConfigDecl: _Declarer.config, ast.ConstDecl: _Declarer.const,
    ast.StructDecl: _Declarer.struct, ast.PoolDecl: _Declarer.pool, ast.MapDecl: _Declarer.map,
    ast.MeterDecl: _Declarer.meter, ast.CounterDecl: _Declarer.counter, ast.TableDecl: _Declarer.table,
    ast.Policy: _Declarer.policy, ast.FunctionDecl: _function, ast.HandlerDecl: _handler,
}


def scalar_count(type_: LanguageType) -> int:
    """How many scalars a value of a type is made of."""
    return 1 if isinstance(type_, Scalar) else len(flatten_type(type_, ""))


def _declared(flat: Iterable[tuple[str, Scalar]], span: Span) -> tuple[nodes.FieldDecl, ...]:
    return tuple(nodes.FieldDecl(n, t.ir, span, t.name) for n, t in flat)


def refill_ns(numbers: Mapping[str, int]) -> int:
    """The longest whole nanoseconds after which a bucket may still lack something: idle for longer, all are full."""
    committed = (numbers["burst"] + numbers.get("excess", 0)) * 10**9 // numbers["rate"]
    peak = numbers.get("peak_burst", 0) * 10**9 // numbers["peak"] if numbers.get("peak") else 0
    return max(committed, peak)


def _meet(left: tuple[int, int], right: tuple[int, int], kind: nodes.MatchKind) -> bool:
    if kind == "range":
        return left[0] <= right[1] and right[0] <= left[1]
    common = left[1] & right[1]
    return left[0] & common == right[0] & common


def _head(span: Span) -> Span:
    """The first line of a long construct."""
    return span if span.line == span.end_line else Span(span.file, span.line, span.column, span.line, span.column + 1)
