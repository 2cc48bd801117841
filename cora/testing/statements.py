"""Random legal statements: every way ends in a verdict, references stay valid, promises of full tables are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from cora.frontends.nf.types import BOOLEAN, IPV4, IPV6, Scalar, Struct, uint
from cora.ir.headers import ALSO_PROVIDES, ICMP6_ERRORS, ICMP_ERRORS, QUOTED, field_of
from cora.testing.expressions import Expr, ExpressionWriter, literal
from cora.testing.values import FIELDS_BY_TYPE, field_value, value_of
from cora.testing.world import DROP, FORWARD, Function, Local, Param, Scope, Table, World

# FALL: some packet can reach the end whatever a constant condition turns out to be; END: none can.
Mode = Literal["fall", "end"]
FALL: Mode = "fall"
END: Mode = "end"

REASONS = ("denied", "no mapping", "over the rate", "not ours", "TTL expired", "100% full", "back\\slash",
           "naïve // not", "a /* b */ c", "two  spaces", "question ??/ mark", "{brace}", "%s%n")
Lines = list[str]
Arm = tuple[str, Scope, Mode]


def indented(lines: Lines) -> Lines:
    return [f"  {line}" for line in lines]


class StatementWriter:
    """Writes bodies of functions and handlers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.choices = world.choices
        self.expressions = ExpressionWriter(world, self.allowed)

    # Bodies.

    def body(self, scope: Scope, mode: Mode) -> Lines:
        """Statements, ended as the mode says; ``scope`` is changed to what is known at their end."""
        lines: Lines = []
        for _ in range(self.choices.integer(0, max(1, 5 - scope.depth))):
            lines += self.statement(scope)
        if mode == END:
            lines += self.ending(scope)
        return lines

    def statement(self, scope: Scope) -> Lines:
        """One statement that may be passed; nothing when the chosen kind is not possible here."""
        if self.room(scope) and self.choices.chance(45):
            if self.choices.chance(10):
                return self.for_(scope)
            return self.choices.weighted(_COMPOUND)(self, scope, FALL) or []
        return self.choices.weighted(_SIMPLE)(self, scope) or []

    def room(self, scope: Scope) -> bool:
        return scope.depth < 5 and self.world.budget > 0

    def ending(self, scope: Scope) -> Lines:
        """A verdict, a return, or a statement whose every arm ends in one."""
        if self.room(scope) and self.choices.chance(40):
            found = self.choices.weighted(_COMPOUND)(self, scope, END)
            if found:
                return found
        if self.may_return(scope) and self.choices.chance(40):
            return self.return_(scope)
        return self.verdict(scope)

    def may_return(self, scope: Scope) -> bool:
        """A function whose value is used in an expression leaves no promise of a full table to its caller."""
        return scope.function is not None and (scope.function.result is None or not scope.forbid)

    def verdict(self, scope: Scope) -> Lines:
        options = scope.verdicts()
        # Where a full table rules out forward and drop and no error can be sent, only a function can go on.
        if not options:
            return self.return_(scope)
        kind = self.choices.pick([*options, *options[:1] * 2])
        if kind != "reject" and scope.function is not None:
            scope.function.verdicts.add(kind)
        if kind == FORWARD:
            return [f"forward {self.choices.pick(self.world.ports)};"]
        reason = self.choices.pick(REASONS)
        if kind == DROP:
            return [f'drop "{reason}";']
        return [self.reject(scope, reason)]

    def reject(self, scope: Scope, reason: str) -> str:
        six = "ipv6" in scope.base and ("ipv4" not in scope.base or self.choices.chance(50))
        protocol, type_, types = ("icmp6", IPV6, ICMP6_ERRORS) if six else ("icmp", IPV4, ICMP_ERRORS)
        icmp_type = self.choices.pick([t for t in types if six or t != 5])
        code = self.choices.pick((0, 1, 13, 255))
        source = self.expressions.of(scope, type_, 1)
        return f'reject "{reason}" with {protocol}({icmp_type}, {code}) from {source.text};'

    def return_(self, scope: Scope) -> Lines:
        function = scope.function
        assert function is not None, "only functions return"
        self.leave(scope)
        if function.result is None:
            return ["return;"]
        return [f"return {self.expressions.of(scope, function.result, 2).text};"]

    def leave(self, scope: Scope) -> None:
        """Note what a way out of a function means for its callers."""
        function = scope.function
        assert function is not None, "only functions return"
        function.deletes |= {p.name for p in function.params if p.name in scope.dead}
        function.forbids |= scope.forbid

    # Simple statements.

    def let(self, scope: Scope) -> Lines:
        name = scope.fresh("x")
        kind = self.choices.integer(0, 9)
        if kind < 2 and self.world.structs:
            struct = self.choices.pick(self.world.structs)
            found = self.expressions.record(scope, struct, 2)
            scope.locals[name] = Local("record", struct, None, found.dynamic)
            return [f"let {name} = {found.text};"]
        if kind == 9:
            value = self.choices.pick((0, 1, 2, 5, 64, 1000))
            scope.locals[name] = Local("literal", None, None, False, value)
            return [f"let {name} = {value};"]
        type_ = self.expressions.any_type(scope)
        stated = self.choices.chance(40)
        found = self.expressions.of(scope, type_, 3, typed=not stated)
        scope.locals[name] = Local("value", type_, None, found.dynamic)
        return [f"let {name}{f': {type_}' if stated else ''} = {found.text};"]

    def var(self, scope: Scope) -> Lines:
        type_ = self.expressions.any_type(scope)
        stated = self.choices.chance(50)
        found = self.expressions.of(scope, type_, 2, typed=not stated)
        name = scope.fresh("v")
        scope.locals[name] = Local("var", type_, None, found.dynamic)
        return [f"var {name}{f': {type_}' if stated else ''} = {found.text};"]

    def assign(self, scope: Scope) -> Lines | None:
        names = [n for n, v in scope.locals.items() if v.kind == "var"]
        if not names:
            return None
        name = self.choices.pick(names)
        local = scope.locals[name]
        assert isinstance(local.type, Scalar), "variables are scalars"
        found = self.expressions.of(scope, local.type, 2)
        scope.locals[name] = replace(local, dynamic=found.dynamic)
        return [f"{name} = {found.text};"]

    def store(self, scope: Scope) -> Lines | None:
        places = self.stores(scope)
        # What checksums cover, above all addresses and ports.
        covered = [p for p in places if p[2] in ("src", "dst", "sport", "dport", "id") and p[1] != "eth"]
        if not places:
            return None
        type_, header, name = self.choices.pick(covered if covered and self.choices.chance(50) else places)
        if self.choices.chance(30):
            value = literal(self.world, type_, field_value(self.choices, header, name))
        else:
            value = self.expressions.of(scope, type_, 2)
        return [f"{self.expressions.field(scope, header, name).text} = {value.text};"]

    def store_entry(self, scope: Scope) -> Lines | None:
        places = [(n, p, t) for n, table in scope.entries() if table.kind == "map" for p, t in table.writable()]
        if not places:
            return None
        name, path, type_ = self.choices.pick(places)
        return [f"{name}.{path} = {self.expressions.of(scope, type_, 2).text};"]

    def reveal(self, scope: Scope, name: str | None = None) -> Lines | None:
        """Put a value, of an entry when one is named, where a comparison of engines sees it: a counter or a header."""
        known = dict(scope.entries())
        paths = [(name, p, t) for p, t in known[name].scalars()] if name in known else []
        if paths:
            entry, path, type_ = self.choices.pick(paths)
            found = Expr(f"{entry}.{path}", dynamic=True)
        else:
            type_ = self.expressions.any_type(scope)
            found = self.choices.pick(self.expressions.kinds(scope, type_))(scope, type_, 3)
        if self.choices.chance(60) and self.world.counters:
            counter, size = self.choices.pick(self.world.counters)
            index = f"[{self.choices.integer(0, size - 1)}]" if size > 1 else ""
            return [f"count {counter}{index} by {found.text if type_ == uint(32) else f'u32({found.text})'};"]
        places = [(t, h, f) for t, h, f in self.stores(scope) if getattr(t.ir, "bits", 1) >= 16]
        if not places:
            return None
        wanted, header, field = self.choices.pick(places)
        text = found.text if wanted == type_ else f"{wanted}({found.text})"
        return [f"{self.expressions.field(scope, header, field).text} = {text};"]

    def stores(self, scope: Scope) -> list[tuple[Scalar, str, str]]:
        """The header fields that may be stored to, with their types."""
        return [(t, h, f) for t in FIELDS_BY_TYPE for h, f in FIELDS_BY_TYPE[t]
                if h in scope.headers and (declared := field_of(h, f)) is not None and declared.writable]

    def touch(self, scope: Scope) -> Lines | None:
        entries = [(n, t) for n, t in scope.entries() if t.kind == "map"]
        if not entries:
            return None
        name, table = self.choices.pick(entries)
        return [f"touch {name}{self.as_class(table)};"]

    def as_class(self, table: Table) -> str:
        if not table.classes or (len(table.classes) == 1 and self.choices.chance(70)):
            return ""
        return f" as {self.choices.pick(table.classes)}"

    def delete(self, scope: Scope) -> Lines | None:
        names = [n for n, t in scope.entries() if t.kind == "map" and n not in scope.protected]
        pure = scope.function is not None and scope.function.result is not None
        parameters = {p.name for p in scope.function.params} if scope.function is not None and pure else set()
        names = [n for n in names if n not in parameters]
        if not names:
            return None
        name = self.choices.pick(names)
        scope.dead = scope.dead | {name}
        scope.gone = scope.gone | {name}
        return [f"delete {name};"]

    def count(self, scope: Scope) -> Lines | None:
        if not self.world.counters:
            return None
        name, size = self.choices.pick(self.world.counters)
        index = ""
        if size > 1 or self.choices.chance(20):
            found = self.expressions.of(scope, self.expressions.number_type(), 1)
            # A constant beyond the counter is an error, a value beyond it counts nothing.
            index = f"[{found.text}]" if found.dynamic else f"[{self.choices.integer(0, size - 1)}]"
        amount = f" by {self.expressions.of(scope, uint(32), 1).text}" if self.choices.chance(30) else ""
        return [f"count {name}{index}{amount};"]

    def allowed(self, scope: Scope, function: Function) -> bool:
        """Whether a function may be called here."""
        if function.cost * scope.factor > self.world.budget or not function.headers <= scope.headers:
            return False
        if any(p.kind == "packet" for p in function.params) and not scope.has_packet:
            return False
        if function.verdicts & scope.forbid or (function.deletes and scope.protected):
            return False
        if function.forbids - scope.forbid and not self.may_forbid(scope, scope.forbid | function.forbids):
            return False
        pure = scope.function is not None and scope.function.result is not None
        if pure and function.deletes:
            return False
        needed: dict[str, int] = {}
        for param in function.params:
            if param.table is not None:
                needed[param.table.name] = needed.get(param.table.name, 0) + 1
        return all(sum(1 for _ in scope.entries(t)) >= needed.get(t.name, 0) for t in self.world.tables)

    def may_forbid(self, scope: Scope, forbid: frozenset[str]) -> bool:
        """Whether ways on from here may be ruled by these promises."""
        return forbid <= scope.forbid or (not scope.fixed and forbid <= scope.ruled)

    def ruled(self, headers: frozenset[str]) -> frozenset[str]:
        """Without an IP header no error can be sent, so one of the other verdicts must stay possible."""
        if headers & {"ipv4", "ipv6"}:
            return frozenset({FORWARD, DROP})
        return frozenset({self.choices.pick((FORWARD, DROP))})

    def call(self, scope: Scope) -> Lines | None:
        usable = [f for f in self.world.functions if self.allowed(scope, f)]
        if not usable:
            return None
        return [f"{self.expressions.call_text(scope, self.choices.pick(usable))};"]

    # Compound statements.

    def modes(self, count: int, mode: Mode, *, dynamic: bool = True) -> list[Mode]:
        """How each of the arms ends so that the whole ends as wanted."""
        if mode == END or not dynamic:
            return [mode] * count
        found = [END if self.choices.chance(25) else FALL for _ in range(count)]
        if END in found and FALL not in found:
            found[self.choices.integer(0, count - 1)] = FALL
        return found

    def spend(self, scope: Scope, count: int) -> None:
        self.world.budget -= count * scope.factor

    def arms(self, scope: Scope, arms: Sequence[Arm]) -> list[Lines]:
        """The bodies of arms; the place after them becomes known."""
        bodies = [self.body(inner, mode) for _, inner, mode in arms]
        scope.join([inner for _, inner, mode in arms if mode == FALL])
        return bodies

    def if_(self, scope: Scope, mode: Mode) -> Lines:
        condition = self.expressions.of(scope, BOOLEAN, 3)
        if not condition.dynamic and self.choices.chance(70):
            condition = self.expressions.comparison(scope, BOOLEAN, 3)
        self.spend(scope, 2)
        return self.two_ways(scope, f"if {condition.text}", mode, condition.dynamic, ())

    def if_header(self, scope: Scope, mode: Mode) -> Lines | None:
        if not scope.has_packet:
            return None
        inner = self.choices.chance(25) and scope.headers & {"icmp", "icmp6"}
        names = [QUOTED + h for h in ("ipv4", "tcp", "udp", "icmp", "l4", "ipv6", "icmp6")] if inner else [
            "tcp", "udp", "l4", "vlan", "ipv4", "ipv6", "icmp", "icmp6", "arp", "eth"]
        header = self.choices.pick(names)
        gained = (header, *ALSO_PROVIDES.get(header, ()))
        self.spend(scope, 2)
        negated = self.choices.chance(25)
        test = f"if {self.world.packet} is {'not ' if negated else ''}{header}"
        return self.two_ways(scope, test, mode, True, gained, negated=negated)

    def two_ways(self, scope: Scope, test: str, mode: Mode, dynamic: bool, gained: tuple[str, ...], *,
                 negated: bool = False) -> Lines:
        modes = self.modes(2, mode, dynamic=dynamic)
        alone = modes[1] == FALL and self.choices.chance(40)
        ways = [scope.child(() if negated else gained), scope.child(gained if negated else ())]
        if alone:
            lines = [f"{test} {{", *indented(self.body(ways[0], modes[0])), "}"]
        else:
            yes, no = (self.body(w, m) for w, m in zip(ways, modes, strict=True))
            lines = [f"{test} {{", *indented(yes), "} else {", *indented(no), "}"]
        scope.join([w for w, m in zip(ways, modes, strict=True) if m == FALL], certain=dynamic)
        return lines

    def match(self, scope: Scope, mode: Mode) -> Lines | None:
        type_ = self.expressions.any_type(scope)
        if type_ == BOOLEAN:
            return None
        subject, values = self.subject(scope, type_)
        default = mode == END or self.choices.chance(60)
        groups = self.grouped(values)
        modes = self.modes(len(groups) + 1, mode)
        modes[-1] = modes[-1] if default else FALL
        self.spend(scope, len(modes))
        arms: list[Arm] = [("", scope.child(), m) for m in modes]
        bodies = [self.body(inner, m) for _, inner, m in (arms if default else arms[:-1])]
        scope.join([inner for _, inner, m in arms if m == FALL])
        lines = [f"match {subject.text} {{"]
        for group, body in zip(groups, bodies, strict=False):
            shown = ", ".join(literal(self.world, type_, v).text for v in group)
            lines += [f"  {shown} => {{", *indented(indented(body)), "  }"]
        if default:
            lines += ["  _ => {", *indented(indented(bodies[-1])), "  }"]
        return [*lines, "}"]

    def subject(self, scope: Scope, type_: Scalar) -> tuple[Expr, list[int]]:
        """What is matched, and values it may have."""
        fields = self.expressions.fields(scope, type_)
        if fields and self.choices.chance(70):
            header, name = self.choices.pick(fields)
            values = {field_value(self.choices, header, name) for _ in range(self.choices.integer(1, 4))}
            return self.expressions.field(scope, header, name), sorted(values)
        values = {value_of(self.choices, type_) for _ in range(self.choices.integer(1, 4))}
        return self.expressions.of(scope, type_, 2, typed=True), sorted(values)

    def grouped(self, values: list[int]) -> list[list[int]]:
        groups: list[list[int]] = []
        for value in values:
            if groups and self.choices.chance(30):
                groups[-1].append(value)
            else:
                groups.append([value])
        return groups

    def for_(self, scope: Scope) -> Lines:
        """A loop: its body runs several times, so it may not end what a second run needs."""
        first = self.choices.integer(0, 3)
        times = self.choices.integer(0, 3)
        inner = scope.child()
        inner.protected = frozenset(n for n, _ in scope.entries())
        inner.fixed = True
        inner.factor = scope.factor * max(1, times)
        for name, local in inner.locals.items():
            if local.kind == "var":
                inner.locals[name] = replace(local, dynamic=False)
        name = scope.fresh("i")
        typed = self.choices.chance(50)
        inner.locals[name] = Local("value", uint(8)) if typed else Local("literal", value=first + times)
        self.spend(inner, 1)
        body = self.body(inner, FALL)
        scope.join([inner, scope.child()], certain=False)
        low, high = (f"u8({n})" if typed else str(n) for n in (first, first + times))
        return [f"for {name} in {low} .. {high} {{", *indented(body), "}"]

    # Tables.

    def lookup(self, scope: Scope, mode: Mode) -> Lines | None:
        tables = self.world.of_kind("map", "map", "acl", "lpm")
        if not tables:
            return None
        table = self.choices.pick(tables)
        key = self.choices.pick(list(table.keys))
        place = f"{table.name}.{key}" if key and (len(table.keys) > 1 or self.choices.chance(30)) else table.name
        place = f"{place}[{self.expressions.key(scope, table, key)}]"
        head = f"lookup {place} {{"
        self.spend(scope, 2)
        hit, miss = self.modes(2, mode)
        hit_scope, name = self.with_entry(scope, table)
        shape = self.choices.integer(0, 9) if mode == FALL else 0
        arms: list[Arm] = [("hit", hit_scope, hit), ("miss", scope.child(), miss)]
        if shape == 9 and hit == FALL:
            body = self.body(arms[1][1], miss)
            scope.join([s for _, s, m in arms if m == FALL])
            return [head, "  miss {", *indented(indented(body)), "  }", "}"]
        start = self.used(hit_scope, name, table, place)
        if shape == 8 and miss == FALL:
            body = [*start, *self.body(hit_scope, hit)]
            scope.join([s for _, s, m in arms if m == FALL])
            return [head, f"  hit{name} {{", *indented(indented(body)), "  }", "}"]
        yes, no = self.arms(scope, arms)
        return [head, f"  hit{name} {{", *indented(indented([*start, *yes])), "  }",
                "  miss {", *indented(indented(no)), "  }", "}"]

    def with_entry(self, scope: Scope, table: Table) -> tuple[Scope, str]:
        """The scope of an arm that gets an entry, and how its head names it."""
        inner = scope.child()
        if self.choices.chance(90):
            name = scope.fresh("e")
            inner.locals[name] = Local("entry", None, table)
            return inner, f" {name}"
        return inner, ""

    def used(self, scope: Scope, name: str, table: Table, place: str) -> Lines:
        """First statements of a hit arm that make much of its entry; ``place`` is what was looked up."""
        lines: Lines = []
        if not name:
            return lines
        entry = name.strip()
        if table.kind == "map" and self.choices.chance(45):
            lines.append(f"touch {entry}{self.as_class(table)};")
        if table.fields and self.choices.chance(60):
            lines += self.reveal(scope, entry) or []
        places = table.writable() if table.kind == "map" else []
        if places and self.choices.chance(40):
            path, type_ = self.choices.pick(places)
            lines.append(f"{entry}.{path} = {self.expressions.of(scope, type_, 2).text};")
        if table.kind == "map" and self.choices.chance(10):
            # The entry goes by another reference: what is done through this one must see that.
            other = scope.fresh("e")
            after = self.reveal(scope, entry) or []
            lines += [f"lookup {place} {{", f"  hit {other} {{", f"    delete {other};", *indented(indented(after)),
                      "  }", "}"]
        return lines

    def lookup_or_insert(self, scope: Scope, mode: Mode) -> Lines | None:
        """The common idiom: find the entry of a key, else make it."""
        maps = [t for t in self.world.of_kind("map") if self.can_insert(scope, t)]
        if not maps:
            return None
        table = self.choices.pick(maps)
        key = next(iter(table.keys))
        parts = self.expressions.components(scope, table, key)
        operand = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
        place = f"{table.name}.{key}" if len(table.keys) > 1 else table.name
        self.spend(scope, 2)
        hit, miss = self.modes(2, mode)
        hit_scope, name = self.with_entry(scope, table)
        miss_scope = scope.child()
        place = f"{place}[{operand}]"
        found = [*self.used(hit_scope, name, table, place), *self.body(hit_scope, hit)]
        made = self.inserted(miss_scope, table, miss, parts)
        scope.join([s for s, m in ((hit_scope, hit), (miss_scope, miss)) if m == FALL])
        return [f"lookup {place} {{", f"  hit{name} {{", *indented(indented(found)), "  }", "  miss {",
                *indented(indented(made)), "  }", "}"]

    def can_insert(self, scope: Scope, table: Table) -> bool:
        """An insert that may evict must not stand where an entry of the table is in scope; the way on after a full
        table must leave some verdict."""
        if table.full == "evict_lru" and scope.may_lose(table):
            return False
        return bool(scope.verdicts(scope.forbid | self.promise(table))) or (scope.function is not None
                                                                            and scope.function.result is None)

    def promise(self, table: Table) -> frozenset[str]:
        return frozenset({"reject": {FORWARD}, "pass": {DROP}}.get(table.full, set()))

    def insert(self, scope: Scope, mode: Mode) -> Lines | None:
        maps = [t for t in self.world.of_kind("map") if self.can_insert(scope, t)]
        if not maps:
            return None
        table = self.choices.pick(maps)
        return self.inserted(scope, table, mode, self.expressions.components(scope, table, next(iter(table.keys))))

    def inserted(self, scope: Scope, table: Table, mode: Mode, parts: tuple[str, ...]) -> Lines:
        """An insert with both arms; the full arm keeps the table's promise to the end of the packet."""
        known = dict(zip((p for p, _ in next(iter(table.keys.values()))), parts, strict=True))
        values = [f"{name}: {self.field_value(scope, name, type_, known)}"
                  for name, type_, pool in table.fields if not pool]
        if self.choices.chance(20):
            values.reverse()
        head = f"insert {table.name} {{ {', '.join(values)} }}{self.as_class(table)}{self.preference(scope, table)} {{"
        self.spend(scope, 2)
        ok, full = self.modes(2, mode)
        forbid = scope.forbid | self.promise(table)
        if full == FALL and not self.may_forbid(scope, forbid):
            full = END
            ok = mode
        ok_scope, name = self.with_entry(scope, table)
        full_scope = scope.child()
        full_scope.forbid = forbid
        start = self.reveal(ok_scope, name.strip()) or [] if name and self.choices.chance(50) else []
        yes, no = self.arms(scope, [("ok", ok_scope, ok), ("full", full_scope, full)])
        return [head, f"  ok{name} {{", *indented(indented([*start, *yes])), "  }", "  full {", *indented(indented(no)),
                "  }", "}"]

    def field_value(self, scope: Scope, path: str, type_: Scalar | Struct, known: dict[str, str]) -> str:
        """The value of an entry field, made of the key's components where it is part of the key."""
        if isinstance(type_, Struct):
            if not any(k.startswith(f"{path}.") for k in known):
                return self.expressions.record(scope, type_, 2).text
            parts = [self.field_value(scope, f"{path}.{name}", inner, known) for name, inner in type_.fields]
            return f"{type_}({', '.join(parts)})"
        return known.get(path) or self.expressions.of(scope, type_, 2).text

    def preference(self, scope: Scope, table: Table) -> str:
        wishes: dict[str, str] = {}
        seen: set[str] = set()
        for pool in table.pools:
            # A name means the first pool that has such a dimension.
            names = {name for name, _ in pool.dimensions}
            hidden = bool(names & seen)
            seen |= names
            if hidden or self.choices.chance(30):
                continue
            for name, type_ in pool.dimensions:
                wishes[name] = self.expressions.component(scope, type_, set())
        return f" prefer {', '.join(f'{n} = {t}' for n, t in wishes.items())}" if wishes else ""

    def police(self, scope: Scope, mode: Mode) -> Lines | None:
        meters = self.world.of_kind("meter")
        if not meters:
            return None
        meter = self.choices.pick(meters)
        colours = ["green", "red", "full"] if meter.algorithm == "token_bucket" else ["green", "yellow", "red", "full"]
        size = ""
        if self.choices.chance(60):
            amount = Expr(f"{self.world.packet}.size") if scope.has_packet and self.choices.chance(60) else (
                self.expressions.of(scope, uint(32), 1))
            size = f" by {amount.text}"
        head = f"police {meter.name}[{self.expressions.key(scope, meter, '')}]{size} {{"
        self.spend(scope, len(colours))
        arms: list[Arm] = [(c, scope.child(), m) for c, m in zip(colours, self.modes(len(colours), mode), strict=True)]
        bodies = self.arms(scope, arms)
        lines = [head]
        for colour, body in zip(colours, bodies, strict=True):
            lines += [f"  {colour} {{", *indented(indented(body)), "  }"]
        return [*lines, "}"]

    # Functions and handlers.

    def function(self, name: str, headers: frozenset[str]) -> Lines:
        """A function; it is added to the world once it is written, so it cannot call itself."""
        result = None
        if self.choices.chance(50):
            result = self.expressions.any_type(Scope(headers, headers))
        params = self.params(headers)
        function = Function(name, params, result, headers)
        scope = Scope(headers, headers, function=function, fixed=result is not None, depth=1,
                      ruled=self.ruled(headers))
        for p in params:
            if p.kind == "entry":
                scope.locals[p.name] = Local("entry", None, p.table)
            elif p.kind == "value":
                scope.locals[p.name] = Local("record" if isinstance(p.type, Struct) else "value", p.type)
        before = self.world.budget
        self.world.budget = min(before, 12)
        start = self.world.budget
        lines = self.body(scope, FALL)
        function.cost = 1 + start - self.world.budget
        self.world.budget = before
        if result is not None:
            lines += self.return_(scope)
        else:
            self.leave(scope)
        self.world.functions.append(function)
        shown = ", ".join(p.name if p.type is None else f"{p.name}: {p.type}" for p in params)
        returns = "" if result is None else f" -> {result}"
        return [f"fn {name}({shown}){returns} {{", *indented(lines), "}"]

    def params(self, headers: frozenset[str]) -> tuple[Param, ...]:
        params = [Param(self.world.packet, "packet")] if headers or self.choices.chance(50) else []
        maps = self.world.of_kind("map")
        for _ in range(self.choices.integer(0, 2)):
            if maps and self.choices.chance(35):
                params.append(Param(f"e{90 + len(params)}", "entry", None, self.choices.pick(maps)))
            elif self.world.structs and self.choices.chance(25):
                params.append(Param(f"k{90 + len(params)}", "value", self.choices.pick(self.world.structs)))
            else:
                params.append(Param(f"a{len(params)}", "value", self.expressions.any_type(Scope(headers, headers))))
        return tuple(params)

    def handler(self, ports: Sequence[str], pattern: str, headers: frozenset[str]) -> Lines:
        scope = Scope(headers, headers, ruled=self.ruled(headers))
        lines: Lines = []
        # What every packet of the handler passes: this is where most of a program's state comes from.
        for _ in range(self.choices.integer(0, 2)):
            lines += self.reveal(scope) or []
        for write in (StatementWriter.police, StatementWriter.lookup_or_insert, StatementWriter.lookup):
            if self.choices.chance(40):
                lines += write(self, scope, FALL) or []
        lines += self.body(scope, END)
        return [f"on {', '.join(ports)}({self.world.packet}: {pattern}) {{", *indented(lines), "}"]


_SIMPLE: list[tuple[int, Callable[[StatementWriter, Scope], Lines | None]]] = [
    (7, StatementWriter.store), (4, StatementWriter.let), (2, StatementWriter.count), (2, StatementWriter.var),
    (3, StatementWriter.assign), (3, StatementWriter.touch), (3, StatementWriter.store_entry),
    (4, StatementWriter.delete), (4, StatementWriter.call), (6, StatementWriter.reveal)]
_COMPOUND: list[tuple[int, Callable[[StatementWriter, Scope, Mode], Lines | None]]] = [
    (4, StatementWriter.if_), (2, StatementWriter.if_header), (5, StatementWriter.lookup),
    (6, StatementWriter.lookup_or_insert), (2, StatementWriter.insert), (3, StatementWriter.match),
    (4, StatementWriter.police)]
