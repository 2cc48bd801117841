"""The syntax tree of an NF program, as written: names are not resolved and nothing is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cora.ir.span import Span

# --- expressions ---


@dataclass(frozen=True)
class Name:
    text: str
    span: Span


@dataclass(frozen=True)
class Member:
    base: Expr
    name: str
    span: Span


@dataclass(frozen=True)
class LiteralExpr:
    """``kind``: int, bool, ipv4, ipv6, mac, duration (ns), quantity (octets or octets/s), string, prefix4, prefix6."""

    kind: str
    value: int
    span: Span
    text: str = ""
    length: int = 0


@dataclass(frozen=True)
class TupleExpr:
    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True)
class Call:
    """A function, a built-in (min, max), a struct or a cast: told apart when names are resolved."""

    name: str
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True)
class UnaryExpr:
    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True)
class BinaryExpr:
    op: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True)
class Choose:
    condition: Expr
    if_true: Expr
    if_false: Expr
    span: Span


Expr = Name | Member | LiteralExpr | TupleExpr | Call | UnaryExpr | BinaryExpr | Choose


# --- statements ---


@dataclass(frozen=True)
class Let:
    name: str
    type: Name | None
    value: Expr
    mutable: bool
    span: Span


@dataclass(frozen=True)
class Assign:
    """``place`` is a variable, a header field (p.ip.src) or an entry field (e.state)."""

    place: tuple[str, ...]
    value: Expr
    span: Span


@dataclass(frozen=True)
class IsHeader:
    """``p is tcp``: whether the packet has that header."""

    packet: str
    header: tuple[str, ...]
    negated: bool
    span: Span


@dataclass(frozen=True)
class If:
    condition: Expr | IsHeader
    then: Body
    otherwise: Body | None
    span: Span


@dataclass(frozen=True)
class Match:
    subject: Expr
    arms: tuple[tuple[tuple[Expr, ...], Body], ...]
    otherwise: Body | None
    span: Span


@dataclass(frozen=True)
class For:
    name: str
    first: Expr
    past: Expr
    body: Body
    span: Span


@dataclass(frozen=True)
class LookupStmt:
    """``key`` is empty for tables with one key."""

    table: str
    key: str
    operand: Expr
    entry: str | None
    hit: Body | None
    miss: Body | None
    span: Span


@dataclass(frozen=True)
class InsertStmt:
    table: str
    fields: tuple[tuple[str, Expr], ...]
    timeout: str | None
    prefer: tuple[tuple[str, Expr], ...]
    entry: str | None
    ok: Body
    full: Body | None
    span: Span


@dataclass(frozen=True)
class TouchStmt:
    entry: str
    timeout: str | None
    span: Span


@dataclass(frozen=True)
class DeleteStmt:
    entry: str
    span: Span


@dataclass(frozen=True)
class PoliceStmt:
    meter: str
    key: Expr
    size: Expr | None
    arms: tuple[tuple[str, Body], ...]
    span: Span


@dataclass(frozen=True)
class CountStmt:
    counter: str
    index: Expr | None
    amount: Expr | None
    span: Span


@dataclass(frozen=True)
class ForwardStmt:
    port: str
    span: Span


@dataclass(frozen=True)
class DropStmt:
    reason: str
    span: Span


@dataclass(frozen=True)
class RejectStmt:
    reason: str
    protocol: str
    type: Expr
    code: Expr
    source: Expr
    span: Span


@dataclass(frozen=True)
class Return:
    value: Expr | None
    span: Span


@dataclass(frozen=True)
class CallStmt:
    name: str
    args: tuple[Expr, ...]
    span: Span


Statement = (Let | Assign | If | Match | For | LookupStmt | InsertStmt | TouchStmt | DeleteStmt | PoliceStmt
             | CountStmt | ForwardStmt | DropStmt | RejectStmt | Return | CallStmt)


@dataclass(frozen=True)
class Body:
    statements: tuple[Statement, ...]
    span: Span


# --- declarations ---


@dataclass(frozen=True)
class FieldItem:
    name: str
    type: Name
    span: Span
    extra: str = ""


@dataclass(frozen=True)
class Attribute:
    """``capacity 100``, ``exact``, ``order strict``: a word and what follows it."""

    name: str
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True)
class PortDecl:
    name: str
    faces: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class ConfigDecl:
    name: str
    type: Name
    value: Expr
    span: Span


@dataclass(frozen=True)
class ConstDecl:
    name: str
    type: Name | None
    value: Expr
    span: Span


@dataclass(frozen=True)
class StructDecl:
    name: str
    fields: tuple[FieldItem, ...]
    span: Span


@dataclass(frozen=True)
class RangeItem:
    name: str
    type: Name
    low: Expr
    high: Expr
    span: Span


@dataclass(frozen=True)
class PoolDecl:
    name: str
    ranges: tuple[RangeItem, ...]
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class KeyItem:
    name: str
    value: Expr
    span: Span


@dataclass(frozen=True)
class TimeoutItem:
    """One unnamed class, or several named ones."""

    classes: tuple[tuple[str, Expr, Span], ...]
    slack: Expr | None
    span: Span


@dataclass(frozen=True)
class MapDecl:
    """``FieldItem.extra`` of an entry field names the pool it is allocated from."""

    name: str
    pair: bool
    entry: tuple[FieldItem, ...]
    keys: tuple[KeyItem, ...]
    timeout: TimeoutItem | None
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class MeterDecl:
    name: str
    key: tuple[FieldItem, ...]
    timeout: TimeoutItem | None
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class CounterDecl:
    name: str
    size: Expr | None
    span: Span


@dataclass(frozen=True)
class Pattern:
    kind: Literal["value", "range", "mask", "any"]
    first: Expr | None
    second: Expr | None
    span: Span


@dataclass(frozen=True)
class EntryItem:
    """A row of an ACL (patterns) or an LPM table (one pattern, a prefix)."""

    patterns: tuple[Pattern, ...]
    values: tuple[tuple[str, Expr], ...]
    priority: Expr | None
    span: Span


@dataclass(frozen=True)
class TableDecl:
    """An ``acl`` or ``lpm`` table. ``FieldItem.extra`` of a key field is its match kind."""

    kind: Literal["acl", "lpm"]
    name: str
    key: tuple[FieldItem, ...]
    values: tuple[FieldItem, ...]
    entries: tuple[EntryItem, ...]
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class Policy:
    """``fragments``, ``unparsed``, ``verify``, ``source_routes`` or ``limit`` with its word."""

    kind: str
    word: str
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True)
class Param:
    name: str
    type: Name | None
    span: Span


@dataclass(frozen=True)
class FunctionDecl:
    name: str
    params: tuple[Param, ...]
    result: Name | None
    body: Body
    span: Span


@dataclass(frozen=True)
class HandlerDecl:
    """``paths``: every alternative of the header pattern, spelled out."""

    ports: tuple[Name, ...]
    packet: str
    paths: tuple[tuple[str, ...], ...]
    body: Body
    span: Span
    path_span: Span


Declaration = (PortDecl | ConfigDecl | ConstDecl | StructDecl | PoolDecl | MapDecl | MeterDecl | CounterDecl
               | TableDecl | Policy | FunctionDecl | HandlerDecl)


@dataclass(frozen=True)
class Source:
    """A parsed file."""

    name: str
    items: tuple[Declaration, ...]
    span: Span
