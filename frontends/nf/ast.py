"""The syntax tree of an NF program, as written: names are not resolved and nothing is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cora.ir.span import Span

# --- expressions ---


@dataclass(frozen=True, eq=False)
class Name:
    """A name standing for a value."""

    text: str
    span: Span


@dataclass(frozen=True, eq=False)
class Member:
    """``base.name``."""

    base: Expr
    name: str
    span: Span


@dataclass(frozen=True, eq=False)
class LiteralExpr:
    """``kind``: int, bool, ipv4, ipv6, mac, duration (ns), quantity (octets or octets/s), string, prefix4, prefix6."""

    kind: str
    value: int
    span: Span
    text: str = ""
    length: int = 0


@dataclass(frozen=True, eq=False)
class TupleExpr:
    """Values in brackets."""

    items: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class Call:
    """A function, a built-in (min, max), a struct or a cast: told apart when names are resolved."""

    name: str
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class UnaryExpr:
    """``!`` or ``~``."""

    op: str
    operand: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class BinaryExpr:
    """Two operands and their operator."""

    op: str
    left: Expr
    right: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class Choose:
    """``condition ? if_true : if_false``."""

    condition: Expr
    if_true: Expr
    if_false: Expr
    span: Span


Expr = Name | Member | LiteralExpr | TupleExpr | Call | UnaryExpr | BinaryExpr | Choose


# --- statements ---


@dataclass(frozen=True, eq=False)
class Let:
    """``let``, or (mutable) ``var``."""

    name: str
    type: Name | None
    value: Expr
    mutable: bool
    span: Span


@dataclass(frozen=True, eq=False)
class Assign:
    """``place`` is a variable, a header field (p.ip.src) or an entry field (e.state)."""

    place: tuple[str, ...]
    value: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class IsHeader:
    """``p is tcp``: whether the packet has that header."""

    packet: str
    header: tuple[str, ...]
    negated: bool
    span: Span


@dataclass(frozen=True, eq=False)
class If:
    """``if`` with an optional ``else``."""

    condition: Expr | IsHeader
    then: Body
    otherwise: Body | None
    span: Span


@dataclass(frozen=True, eq=False)
class Match:
    """``match``; each arm has the values it takes."""

    subject: Expr
    arms: tuple[tuple[tuple[Expr, ...], Body], ...]
    otherwise: Body | None
    span: Span


@dataclass(frozen=True, eq=False)
class For:
    """A loop over ``first`` up to, but not including, ``past``."""

    name: str
    first: Expr
    past: Expr
    body: Body
    span: Span


@dataclass(frozen=True, eq=False)
class LookupStmt:
    """``key`` is empty for tables with one key."""

    table: str
    key: str
    operand: Expr
    entry: str | None
    hit: Body | None
    miss: Body | None
    span: Span


@dataclass(frozen=True, eq=False)
class InsertStmt:
    """``insert`` with its wish for pool values and its arms."""

    table: str
    fields: tuple[tuple[str, Expr], ...]
    timeout: str | None
    prefer: tuple[tuple[str, Expr], ...]
    entry: str | None
    ok: Body
    full: Body | None
    span: Span


@dataclass(frozen=True, eq=False)
class TouchStmt:
    """``touch``."""

    entry: str
    timeout: str | None
    span: Span


@dataclass(frozen=True, eq=False)
class DeleteStmt:
    """``delete``."""

    entry: str
    span: Span


@dataclass(frozen=True, eq=False)
class PoliceStmt:
    """``police`` with one arm a colour."""

    meter: str
    key: Expr
    size: Expr | None
    arms: tuple[tuple[str, Body], ...]
    span: Span


@dataclass(frozen=True, eq=False)
class CountStmt:
    """``count``."""

    counter: str
    index: Expr | None
    amount: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class ForwardStmt:
    """``forward``."""

    port: str
    span: Span


@dataclass(frozen=True, eq=False)
class DropStmt:
    """``drop``."""

    reason: str
    span: Span


@dataclass(frozen=True, eq=False)
class RejectStmt:
    """``reject`` with the ICMP error to send."""

    reason: str
    protocol: str
    type: Expr
    code: Expr
    source: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class Return:
    """``return``."""

    value: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class CallStmt:
    """A function called for its effect."""

    name: str
    args: tuple[Expr, ...]
    span: Span


Statement = (Let | Assign | If | Match | For | LookupStmt | InsertStmt | TouchStmt | DeleteStmt | PoliceStmt
             | CountStmt | ForwardStmt | DropStmt | RejectStmt | Return | CallStmt)


@dataclass(frozen=True, eq=False)
class Body:
    """Statements in braces."""

    statements: tuple[Statement, ...]
    span: Span


# --- declarations ---


@dataclass(frozen=True, eq=False)
class FieldItem:
    """A field; ``extra`` is said where it is used."""

    name: str
    type: Name
    span: Span
    extra: str = ""


@dataclass(frozen=True, eq=False)
class Attribute:
    """``capacity 100``, ``exact``, ``order strict``: a word and what follows it."""

    name: str
    args: tuple[Expr, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class PortDecl:
    """``port``."""

    name: str
    faces: tuple[str, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class ConfigDecl:
    """``config``."""

    name: str
    type: Name
    value: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class ConstDecl:
    """``const``."""

    name: str
    type: Name | None
    value: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class StructDecl:
    """``struct``."""

    name: str
    fields: tuple[FieldItem, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class RangeItem:
    """One dimension of a pool."""

    name: str
    type: Name
    low: Expr
    high: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class PoolDecl:
    """``pool``."""

    name: str
    ranges: tuple[RangeItem, ...]
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class KeyItem:
    """A key of a map."""

    name: str
    value: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class TimeoutItem:
    """One unnamed class, or several named ones."""

    classes: tuple[tuple[str, Expr, Span], ...]
    slack: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class MapDecl:
    """``FieldItem.extra`` of an entry field names the pool it is allocated from."""

    name: str
    pair: bool
    entry: tuple[FieldItem, ...]
    keys: tuple[KeyItem, ...]
    timeout: TimeoutItem | None
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class MeterDecl:
    """``meter``."""

    name: str
    key: tuple[FieldItem, ...]
    timeout: TimeoutItem | None
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class CounterDecl:
    """``counter``."""

    name: str
    size: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class Pattern:
    """What one key field of an ACL row matches."""

    kind: Literal["value", "range", "mask", "any"]
    first: Expr | None
    second: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class EntryItem:
    """A row of an ACL (patterns) or an LPM table (one pattern, a prefix)."""

    patterns: tuple[Pattern, ...]
    values: tuple[tuple[str, Expr], ...]
    priority: Expr | None
    span: Span


@dataclass(frozen=True, eq=False)
class TableDecl:
    """An ``acl`` or ``lpm`` table. ``FieldItem.extra`` of a key field is its match kind."""

    kind: Literal["acl", "lpm"]
    name: str
    key: tuple[FieldItem, ...]
    values: tuple[FieldItem, ...]
    entries: tuple[EntryItem, ...]
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class Policy:
    """``fragments``, ``unparsed``, ``verify``, ``source_routes`` or ``limit`` with its word."""

    kind: str
    word: str
    attributes: tuple[Attribute, ...]
    span: Span


@dataclass(frozen=True, eq=False)
class Param:
    """A function's parameter; without a type it takes whatever is passed."""

    name: str
    type: Name | None
    span: Span


@dataclass(frozen=True, eq=False)
class FunctionDecl:
    """``fn``."""

    name: str
    params: tuple[Param, ...]
    result: Name | None
    body: Body
    span: Span


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class Source:
    """A parsed file."""

    name: str
    items: tuple[Declaration, ...]
    span: Span
