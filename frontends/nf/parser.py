"""Text to syntax tree, with every syntax error of the text in one run."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

from lark import Token, Tree, UnexpectedInput

from cora.errors import CoraError, Diagnostic, Kind
from cora.frontends.nf import ast
from cora.frontends.nf.grammar import lark_parser
from cora.frontends.nf.syntax import diagnose, token_span, without_statement
from cora.frontends.nf.words import NOT_YET as NOT_YET
from cora.ir.span import Span

MAX_ERRORS = 10
# Parsing goes on behind an error only in texts of up to this many characters, since it starts again from the top.
MAX_RECOVERED = 1 << 18
MAX_DEPTH = 100
MAX_PATHS = 64
# Digits of a literal: 2**128 has 39 in decimal and 128 in binary.
MAX_DIGITS = 160


def parse(text: str, file: str) -> ast.Source:
    """Parse one NF program.

    Raises:
        CoraError: every syntax error found, in order of place (`Kind.SYNTAX`, `Kind.NOT_YET`), at most `MAX_ERRORS`.
    """
    found: list[Diagnostic] = []
    remaining = text
    limit = MAX_ERRORS if len(text) <= MAX_RECOVERED else 1
    while len(found) < limit:
        try:
            tree: Tree[Any] = lark_parser().parse(remaining)
        except UnexpectedInput as error:
            diagnostic, offset = diagnose(error, remaining, file, text)
            at_end = not remaining[offset:].strip()
            if found and (at_end or any(d.span == diagnostic.span for d in found)):
                break  # what blanking out an earlier error left behind
            found.append(diagnostic)
            shortened = without_statement(remaining, offset)
            if at_end or shortened == remaining:
                break
            remaining = shortened
            continue
        found += _too_deep(tree, file)
        if found:
            break
        builder = _Builder(file)
        program: Any = tree.children[0]
        source = builder.source(program)
        if not builder.found:
            return source
        found = builder.found
        break
    raise CoraError(sorted(found, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0)))


def _too_deep(tree: Tree[Any], file: str) -> list[Diagnostic]:
    """The first place nested more than `MAX_DEPTH` deep, if there is one: the walks behind here recurse."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH + 3:
            meta = node.meta
            span = Span(file, meta.line, meta.column, meta.line, meta.column + 1)
            return [Diagnostic(Kind.SYNTAX, f"this is nested more than {MAX_DEPTH} deep", span,
                               hint="split long expressions with 'let', and deep blocks into functions")]
        stack += [(c, depth + 1) for c in reversed(node.children) if isinstance(c, Tree) and not c.meta.empty]
    return []


class _Builder:
    """Lark tree to syntax tree. One method a rule; small rules are folded into their parents."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Diagnostic] = []

    def span(self, item: Any) -> Span:
        if isinstance(item, Token):
            return token_span(item, self.file)
        meta = item.meta
        if meta.empty:
            return Span(self.file, 1, 1, 1, 1)
        return Span(self.file, meta.line, meta.column, meta.end_line, meta.end_column)

    def source(self, tree: Tree[Any]) -> ast.Source:
        name, *items = tree.children
        return ast.Source(str(name), tuple(self.declaration(i) for i in items), self.span(tree))

    def declaration(self, tree: Tree[Any]) -> ast.Declaration:
        method: Callable[[Tree[Any]], ast.Declaration] = getattr(self, str(tree.data))
        return method(tree)

    def sub(self, tree: Tree[Any], rule: str) -> list[Tree[Any]]:
        return [c for c in tree.children if isinstance(c, Tree) and c.data == rule]

    def first(self, tree: Tree[Any], rule: str) -> Tree[Any] | None:
        return next(iter(self.sub(tree, rule)), None)

    def tokens(self, tree: Tree[Any]) -> list[str]:
        return [str(c) for c in tree.children if isinstance(c, Token)]

    def once(self, tree: Tree[Any], what: str, *parts: tuple[str, ...]) -> None:
        """Report every part of a declaration that stands in it a second time."""
        for rules in parts:
            found = [c for c in tree.children if isinstance(c, Tree) and c.data in rules]
            for again in found[1:]:
                word = _PART_WORDS[rules[0]]
                self.found.append(Diagnostic(Kind.DUPLICATE_NAME, f"this {what} has a second '{word}'",
                                             self.span(again), hint="keep one of them"))

    # Declarations.

    def port_decl(self, tree: Tree[Any]) -> ast.PortDecl:
        name, *faces = self.tokens(tree)
        return ast.PortDecl(name, tuple(faces), self.span(tree))

    def type(self, tree: Tree[Any]) -> ast.Name:
        return ast.Name(str(tree.children[0]), self.span(tree))

    def config_decl(self, tree: Tree[Any]) -> ast.ConfigDecl:
        name, type_, value = tree.children
        return ast.ConfigDecl(str(name), self.type(type_), self.expr(value), self.span(tree))

    def const_decl(self, tree: Tree[Any]) -> ast.ConstDecl:
        type_ = self.first(tree, "type")
        return ast.ConstDecl(str(tree.children[0]), self.type(type_) if type_ else None,
                             self.expr(tree.children[-1]), self.span(tree))

    def field(self, tree: Tree[Any]) -> ast.FieldItem:
        name, type_, *extra = tree.children
        return ast.FieldItem(str(name), self.type(type_), self.span(tree), str(extra[0]) if extra else "")

    def struct_decl(self, tree: Tree[Any]) -> ast.StructDecl:
        return ast.StructDecl(str(tree.children[0]), tuple(map(self.field, self.sub(tree, "field"))), self.span(tree))

    def pool_single(self, tree: Tree[Any]) -> ast.PoolDecl:
        name, type_, low, high = tree.children[:4]
        only = ast.RangeItem("value", self.type(type_), self.expr(low), self.expr(high), self.span(tree))
        return ast.PoolDecl(str(name), (only,), self.attributes(tree), self.span(tree))

    def pool_product(self, tree: Tree[Any]) -> ast.PoolDecl:
        ranges = []
        for item in self.sub(tree, "pool_range"):
            name, type_, low, high = item.children
            ranges.append(ast.RangeItem(str(name), self.type(type_), self.expr(low), self.expr(high),
                                        self.span(item)))
        return ast.PoolDecl(str(tree.children[0]), tuple(ranges), self.attributes(tree), self.span(tree))

    def attributes(self, tree: Tree[Any]) -> tuple[ast.Attribute, ...]:
        return tuple(
            ast.Attribute(str(a.children[0]), tuple(map(self.expr, a.children[1:])), self.span(a))
            for a in self.sub(tree, "attribute")
        )

    def map_plain(self, tree: Tree[Any]) -> ast.MapDecl:
        return self.map(tree, pair=False)

    def map_pair(self, tree: Tree[Any]) -> ast.MapDecl:
        return self.map(tree, pair=True)

    def map(self, tree: Tree[Any], *, pair: bool) -> ast.MapDecl:
        self.once(tree, "map", ("entry_item",), ("timeout_one", "timeout_classes"))
        entry = tuple(self.field(f) for item in self.sub(tree, "entry_item") for f in item.children)
        keys = [ast.KeyItem(str(k.children[0]) if k.data == "key_named" else "", self.expr(k.children[-1]),
                            self.span(k))
                for k in tree.children if isinstance(k, Tree) and k.data in ("key_named", "key_plain")]
        return ast.MapDecl(str(tree.children[0]), pair, entry, tuple(keys), self.timeout(tree),
                           self.attributes(tree), self.span(tree))

    def timeout(self, tree: Tree[Any]) -> ast.TimeoutItem | None:
        for item in tree.children:
            if not isinstance(item, Tree) or item.data not in ("timeout_one", "timeout_classes"):
                continue
            slack = self.first(item, "slack")
            classes: tuple[tuple[str, ast.Expr, Span], ...]
            if item.data == "timeout_one":
                classes = (("", self.expr(item.children[0]), self.span(item)),)
            else:
                classes = tuple((str(c.children[0]), self.expr(c.children[1]), self.span(c))
                                for c in self.sub(item, "timeout_class"))
            return ast.TimeoutItem(classes, self.expr(slack.children[0]) if slack else None, self.span(item))
        return None

    def meter_decl(self, tree: Tree[Any]) -> ast.MeterDecl:
        self.once(tree, "meter", ("meter_key",), ("timeout_one", "timeout_classes"))
        key = tuple(self.field(f) for k in self.sub(tree, "meter_key") for f in k.children)
        return ast.MeterDecl(str(tree.children[0]), key, self.timeout(tree), self.attributes(tree), self.span(tree))

    def counter_decl(self, tree: Tree[Any]) -> ast.CounterDecl:
        size = self.expr(tree.children[1]) if len(tree.children) > 1 else None
        return ast.CounterDecl(str(tree.children[0]), size, self.span(tree))

    def acl_decl(self, tree: Tree[Any]) -> ast.TableDecl:
        return self.table(tree, "acl")

    def lpm_decl(self, tree: Tree[Any]) -> ast.TableDecl:
        return self.table(tree, "lpm")

    def table(self, tree: Tree[Any], kind: Any) -> ast.TableDecl:
        self.once(tree, kind, (f"{kind}_key",), ("value_item",), (f"{kind}_entries",))
        key = tuple(self.field(f) for k in self.sub(tree, f"{kind}_key") for f in k.children)
        values = tuple(self.field(f) for v in self.sub(tree, "value_item") for f in v.children)
        entries = tuple(self.entry(e) for item in self.sub(tree, f"{kind}_entries") for e in item.children)
        return ast.TableDecl(kind, str(tree.children[0]), key, values, entries, self.attributes(tree), self.span(tree))

    def entry(self, tree: Tree[Any]) -> ast.EntryItem:
        before = [c for c in tree.children if not (isinstance(c, Tree) and c.data == "record")]
        record = self.first(tree, "record")
        assert record is not None, "the grammar's own shape"
        if tree.data == "lpm_entry":
            value = self.expr(before[0])
            return ast.EntryItem((ast.Pattern("value", value, None, value.span),), self.named(record), None,
                                 self.span(tree))
        patterns = [self.pattern(c) for c in before if isinstance(c, Tree) and str(c.data).startswith("pattern_")]
        priority = self.expr(before[len(patterns)]) if len(before) > len(patterns) else None
        return ast.EntryItem(tuple(patterns), self.named(record), priority, self.span(tree))

    def pattern(self, tree: Tree[Any]) -> ast.Pattern:
        parts = [self.expr(c) for c in tree.children]
        kind: Any = str(tree.data).removeprefix("pattern_")
        return ast.Pattern(kind, parts[0] if parts else None, parts[1] if len(parts) > 1 else None, self.span(tree))

    def named(self, tree: Tree[Any]) -> tuple[tuple[str, ast.Expr], ...]:
        self.distinct("field", [(str(n.children[0]), n) for n in self.sub(tree, "named")])
        return tuple((str(n.children[0]), self.expr(n.children[1])) for n in self.sub(tree, "named"))

    def distinct(self, what: str, named: list[tuple[str, Any]]) -> None:
        """Report every name that stands in a list a second time."""
        seen: set[str] = set()
        for name, item in named:
            if name in seen:
                self.found.append(Diagnostic(Kind.DUPLICATE_NAME, f"{what} '{name}' stands twice", self.span(item),
                                             hint="keep one of them"))
            seen.add(name)

    def policy_fragments(self, tree: Tree[Any]) -> ast.Policy:
        return ast.Policy("fragments", self.tokens(tree)[0], self.attributes(tree), self.span(tree))

    def policy_unparsed(self, tree: Tree[Any]) -> ast.Policy:
        return ast.Policy("unparsed", self.tokens(tree)[0], (), self.span(tree))

    def policy_verify(self, tree: Tree[Any]) -> ast.Policy:
        return ast.Policy("verify", ".".join(self.tokens(tree)), (), self.span(tree))

    def policy_source_routes(self, tree: Tree[Any]) -> ast.Policy:
        return ast.Policy("source_routes", self.tokens(tree)[0], (), self.span(tree))

    def policy_limit(self, tree: Tree[Any]) -> ast.Policy:
        amount = ast.Attribute("limit", (self.expr(tree.children[1]),), self.span(tree))
        return ast.Policy("limit", str(tree.children[0]), (amount,), self.span(tree))

    def function(self, tree: Tree[Any]) -> ast.FunctionDecl:
        params = []
        for p in self.sub(tree, "param"):
            type_ = self.first(p, "type")
            params.append(ast.Param(str(p.children[0]), self.type(type_) if type_ else None, self.span(p)))
        result = self.first(tree, "type")
        return ast.FunctionDecl(str(tree.children[0]), tuple(params), self.type(result) if result else None,
                                self.body(tree.children[-1]), self.span(tree))

    def handler(self, tree: Tree[Any]) -> ast.HandlerDecl:
        *names, path, body = tree.children
        ports = tuple(ast.Name(str(n), self.span(n)) for n in names[:-1])
        return ast.HandlerDecl(ports, str(names[-1]), self.paths(path), self.body(body), self.span(tree),
                               self.span(path))

    def paths(self, tree: Tree[Any]) -> tuple[tuple[str, ...], ...]:
        found: list[tuple[str, ...]] = [()]
        for step in tree.children:
            if step.data == "step_one":
                choices: list[tuple[str, ...]] = [(str(step.children[0]),)]
            else:
                choices = [tuple(map(str, tail.children)) for tail in step.children]
            if len(found) * len(choices) > MAX_PATHS:
                self.found.append(Diagnostic(Kind.BAD_PATTERN, f"this pattern has more than {MAX_PATHS} alternatives",
                                             self.span(tree), hint="write several handlers"))
                break
            found = [(*before, *choice) for before in found for choice in choices]
        return tuple(found)

    # Statements.

    def body(self, tree: Tree[Any]) -> ast.Body:
        return ast.Body(tuple(self.statement(s) for s in tree.children), self.span(tree))

    def statement(self, tree: Tree[Any]) -> ast.Statement:
        method: Callable[[Tree[Any]], ast.Statement] = getattr(self, str(tree.data))
        return method(tree)

    def let(self, tree: Tree[Any], *, mutable: bool) -> ast.Let:
        type_ = self.first(tree, "type")
        return ast.Let(str(tree.children[0]), self.type(type_) if type_ else None, self.expr(tree.children[-1]),
                       mutable, self.span(tree))

    def let_stmt(self, tree: Tree[Any]) -> ast.Let:
        return self.let(tree, mutable=False)

    def var_stmt(self, tree: Tree[Any]) -> ast.Let:
        return self.let(tree, mutable=True)

    def assign_stmt(self, tree: Tree[Any]) -> ast.Assign:
        place, value = tree.children
        return ast.Assign(tuple(self.tokens(place)), self.expr(value), self.span(tree))

    def if_stmt(self, tree: Tree[Any]) -> ast.If:
        condition, then, *rest = tree.children
        otherwise = None
        if rest:
            inner = rest[0]
            nested = inner.data == "if_stmt"
            otherwise = ast.Body((self.if_stmt(inner),), self.span(inner)) if nested else self.body(inner)
        return ast.If(self.condition(condition), self.body(then), otherwise, self.span(tree))

    def condition(self, tree: Tree[Any]) -> ast.Expr | ast.IsHeader:
        if tree.data == "condition_expr":
            return self.expr(tree.children[0])
        packet, place = tree.children
        return ast.IsHeader(str(packet), tuple(self.tokens(place)), tree.data == "condition_is_not", self.span(tree))

    def match_stmt(self, tree: Tree[Any]) -> ast.Match:
        arms = []
        for arm in self.sub(tree, "match_arm"):
            *values, body = arm.children
            arms.append((tuple(map(self.expr, values)), self.body(body)))
        other = self.first(tree, "match_else")
        return ast.Match(self.expr(tree.children[0]), tuple(arms), self.body(other.children[-1]) if other else None,
                         self.span(tree))

    def for_stmt(self, tree: Tree[Any]) -> ast.For:
        name, first, past, body = tree.children
        return ast.For(str(name), self.expr(first), self.expr(past), self.body(body), self.span(tree))

    def lookup(self, tree: Tree[Any], entry: str | None, hit: ast.Body | None, miss: ast.Body | None) -> ast.LookupStmt:
        place = self.tokens(tree.children[0])
        return ast.LookupStmt(place[0], ".".join(place[1:]), self.expr(tree.children[1]), entry, hit, miss,
                              self.span(tree))

    def lookup_hit(self, tree: Tree[Any]) -> ast.LookupStmt:
        names = self.tokens(tree)
        bodies = [self.body(b) for b in self.sub(tree, "block")]
        return self.lookup(tree, names[0] if names else None, bodies[0], bodies[1] if len(bodies) > 1 else None)

    def lookup_miss(self, tree: Tree[Any]) -> ast.LookupStmt:
        return self.lookup(tree, None, None, self.body(tree.children[-1]))

    def insert_stmt(self, tree: Tree[Any]) -> ast.InsertStmt:
        names = self.tokens(tree)
        bodies = [self.body(b) for b in self.sub(tree, "block")]
        as_ = self.first(tree, "insert_as")
        prefer: list[tuple[str, ast.Expr]] = []
        for clause in self.sub(tree, "insert_prefer"):
            words = clause.children
            prefer = [(str(words[i]), self.expr(words[i + 1])) for i in range(0, len(words), 2)]
            self.distinct("dimension", [(str(w), w) for w in words[::2]])
        record = self.first(tree, "record")
        assert record is not None, "the grammar's own shape"
        return ast.InsertStmt(names[0], self.named(record), str(as_.children[0]) if as_ else None, tuple(prefer),
                              names[1] if len(names) > 1 else None, bodies[0], bodies[1] if len(bodies) > 1 else None,
                              self.span(tree))

    def touch_stmt(self, tree: Tree[Any]) -> ast.TouchStmt:
        names = self.tokens(tree)
        return ast.TouchStmt(names[0], names[1] if len(names) > 1 else None, self.span(tree))

    def delete_stmt(self, tree: Tree[Any]) -> ast.DeleteStmt:
        return ast.DeleteStmt(self.tokens(tree)[0], self.span(tree))

    def police_stmt(self, tree: Tree[Any]) -> ast.PoliceStmt:
        parts = [c for c in tree.children[1:] if c.data not in ("police_arm", "police_full")]
        arms = [(("full" if a.data == "police_full" else str(a.children[0])), self.body(a.children[-1]))
                for a in tree.children[1:] if a.data in ("police_arm", "police_full")]
        self.distinct("arm", [(name, a) for (name, _), a in zip(arms, tree.children[-len(arms):], strict=True)])
        return ast.PoliceStmt(str(tree.children[0]), self.expr(parts[0]),
                              self.expr(parts[1]) if len(parts) > 1 else None, tuple(arms), self.span(tree))

    def count_stmt(self, tree: Tree[Any]) -> ast.CountStmt:
        index = self.first(tree, "count_index")
        amount = self.first(tree, "count_by")
        return ast.CountStmt(str(tree.children[0]), self.expr(index.children[0]) if index else None,
                             self.expr(amount.children[0]) if amount else None, self.span(tree))

    def forward_stmt(self, tree: Tree[Any]) -> ast.ForwardStmt:
        return ast.ForwardStmt(self.tokens(tree)[0], self.span(tree))

    def drop_stmt(self, tree: Tree[Any]) -> ast.DropStmt:
        return ast.DropStmt(self.tokens(tree)[0][1:-1], self.span(tree))

    def reject_stmt(self, tree: Tree[Any]) -> ast.RejectStmt:
        reason, protocol, type_, code, source = tree.children
        return ast.RejectStmt(str(reason)[1:-1], str(protocol), self.expr(type_), self.expr(code), self.expr(source),
                              self.span(tree))

    def return_stmt(self, tree: Tree[Any]) -> ast.Return:
        return ast.Return(self.expr(tree.children[0]) if tree.children else None, self.span(tree))

    def call_stmt(self, tree: Tree[Any]) -> ast.CallStmt:
        name, *args = tree.children
        return ast.CallStmt(str(name), tuple(map(self.expr, args)), self.span(tree))

    # Expressions.

    def expr(self, tree: Any) -> ast.Expr:
        span = self.span(tree)
        rule = str(tree.data)
        children = tree.children
        if rule in _LITERALS:
            return self.literal(rule, str(children[0]) if children else rule, span)
        if rule == "name":
            return ast.Name(str(children[0]), span)
        if rule == "member":
            return ast.Member(self.expr(children[0]), str(children[1]), span)
        if rule == "call":
            return ast.Call(str(children[0]), tuple(map(self.expr, children[1:])), span)
        if rule == "tuple":
            return ast.TupleExpr(tuple(map(self.expr, children)), span)
        if rule == "choose":
            condition, if_true, if_false = map(self.expr, children)
            return ast.Choose(condition, if_true, if_false, span)
        if rule in ("op_not", "op_invert"):
            return ast.UnaryExpr("!" if rule == "op_not" else "~", self.expr(children[0]), span)
        left, right = self.expr(children[0]), self.expr(children[-1])
        operator = _WORDLESS.get(rule) or str(children[1])
        return ast.BinaryExpr(operator, left, right, span)

    def literal(self, rule: str, text: str, span: Span) -> ast.LiteralExpr:
        try:
            if rule != "string" and len(text) > MAX_DIGITS:
                raise ValueError("it is too long for a value of at most 128 bits")
            found = _READERS[rule](text, span)
            if found.value >= 1 << 128:
                raise ValueError("it does not fit in 128 bits")
        except ValueError as error:
            shown = text if len(text) <= 50 else text[:47] + "..."
            what = _LITERALS[rule]
            self.found.append(Diagnostic(Kind.SYNTAX, f"'{shown}' is no {what}: {_reason(error, text)}", span))
            return ast.LiteralExpr("int", 0, span, text)
        return found


_PART_WORDS = {"entry_item": "entry", "timeout_one": "timeout", "meter_key": "key", "acl_key": "key", "lpm_key": "key",
               "value_item": "value", "acl_entries": "entries", "lpm_entries": "entries"}
_WORDLESS = {"op_or": "||", "op_and": "&&", "op_bor": "|", "op_xor": "^", "op_band": "&"}
_LITERALS = {"number": "number", "duration": "duration", "quantity": "quantity", "ipv4_prefix": "IPv4 prefix",
             "ipv4": "IPv4 address", "mac": "MAC address", "ipv6_prefix": "IPv6 prefix", "ipv6": "IPv6 address",
             "string": "text", "true": "bool", "false": "bool"}
_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_OCTETS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_BITS_PER_SECOND = {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9}


def _reason(error: ValueError, text: str) -> str:
    """Why a literal is wrong, without the words of the library that found it."""
    said = str(error)
    if said.endswith("has host bits set"):
        return "bits behind the prefix length must be 0"
    if isinstance(error, ipaddress.NetmaskValueError):
        return f"/{text.rpartition('/')[2]} is no prefix length of this family"
    if isinstance(error, ipaddress.AddressValueError):
        if "." in text and ":" not in text:
            return "it has four numbers of 0 to 255, without leading zeros"
        return "it has eight groups of up to four hexadecimal digits, '::' once for a row of zeros"
    return "digits are missing" if said.startswith("invalid literal") else said


def _unit(text: str) -> tuple[int, str]:
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return int(digits.replace("_", "")), text[len(digits):]


def _number(text: str, span: Span) -> ast.LiteralExpr:
    return ast.LiteralExpr("int", int(text.replace("_", ""), 0 if text[:2].lower() in ("0x", "0b") else 10), span, text)


def _duration(text: str, span: Span) -> ast.LiteralExpr:
    amount, unit = _unit(text)
    return ast.LiteralExpr("duration", amount * _NANOSECONDS[unit], span, text)


def _quantity(text: str, span: Span) -> ast.LiteralExpr:
    amount, unit = _unit(text)
    if unit in _OCTETS:
        return ast.LiteralExpr("quantity", amount * _OCTETS[unit], span, text)
    bits = amount * _BITS_PER_SECOND[unit]
    if bits % 8:
        raise ValueError("a rate must be a whole number of octets per second")
    return ast.LiteralExpr("quantity", bits // 8, span, text)


def _prefix4(text: str, span: Span) -> ast.LiteralExpr:
    network = ipaddress.IPv4Network(text)
    return ast.LiteralExpr("prefix4", int(network.network_address), span, text, network.prefixlen)


def _prefix6(text: str, span: Span) -> ast.LiteralExpr:
    network = ipaddress.IPv6Network(text)
    return ast.LiteralExpr("prefix6", int(network.network_address), span, text, network.prefixlen)


_READERS: dict[str, Callable[[str, Span], ast.LiteralExpr]] = {
    "number": _number,
    "duration": _duration,
    "quantity": _quantity,
    "ipv4": lambda text, span: ast.LiteralExpr("ipv4", int(ipaddress.IPv4Address(text)), span, text),
    "ipv6": lambda text, span: ast.LiteralExpr("ipv6", int(ipaddress.IPv6Address(text)), span, text),
    "ipv4_prefix": _prefix4,
    "ipv6_prefix": _prefix6,
    "mac": lambda text, span: ast.LiteralExpr("mac", int(text.replace(":", ""), 16), span, text),
    "string": lambda text, span: ast.LiteralExpr("string", 0, span, text[1:-1]),
    "true": lambda text, span: ast.LiteralExpr("bool", 1, span, "true"),
    "false": lambda text, span: ast.LiteralExpr("bool", 0, span, "false"),
}


def parse_expression(text: str, file: str) -> ast.Expr:
    """Parse one expression, such as a config's value given on the command line.

    Raises:
        CoraError: `Kind.SYNTAX`.
    """
    tree = parse(f"nf x {{ const x = {text}; }}", file)
    item = tree.items[0]
    if len(tree.items) != 1 or not isinstance(item, ast.ConstDecl):
        raise CoraError(Diagnostic(Kind.SYNTAX, f"'{text}' is no expression", Span(file, 1, 1, 1, 2)))
    return item.value
