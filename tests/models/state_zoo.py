"""One state of each kind and small programs around them, for asking targets about costs and refusals."""

from __future__ import annotations

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.ir import nodes
from cora.ir.nodes import Block, Program, State, Value
from cora.ir.span import Span
from cora.ir.types import BOOL, U8, U16, U32, U64, U128, EntryRef, Type

SPAN = Span("case.nf", 7, 3, 7, 20)


def field(name: str, type_: Type) -> nodes.FieldDecl:
    return nodes.FieldDecl(name, type_, SPAN)


def flows(name: str = "flows", capacity: int = 1000, full: nodes.Full = "reject", timeout: int = 10**9,
          keys: int = 1, slack: int = 0, strict_order: bool = True) -> nodes.MapState:
    fields = (field("src", U32), field("dst", U32), field("sport", U16), field("dport", U16), field("proto", U8),
              field("packets", U64))
    declared = (nodes.KeyDecl("fwd", ("src", "dst", "sport", "dport", "proto"), SPAN),
                nodes.KeyDecl("rev", ("dst", "dport"), SPAN))
    timeouts = (nodes.Timeout("idle", timeout, SPAN),) if timeout else ()
    return nodes.MapState(name, fields, declared[:keys], (), capacity, timeouts, slack, full, True,
                          strict_order, False, SPAN)


def acl(rules: int = 4, ranges: tuple[int, int] | None = None) -> nodes.AclState:
    match = ((1, 255), ranges or (80, 80))
    entries = tuple(nodes.AclEntry(match, (1,), i, SPAN) for i in range(rules))
    return nodes.AclState("rules", (field("src", U32), field("dport", U16)), ("ternary", "range"),
                          (field("allow", U8),), entries, rules, SPAN)


def lpm() -> nodes.LpmState:
    entries = (nodes.LpmEntry(10 << 24, 8, (1,), SPAN), nodes.LpmEntry(10 << 24, 16, (2,), SPAN))
    return nodes.LpmState("routes", field("dst", U32), (field("hop", U16),), entries, 1000, SPAN)


def meter(full: nodes.Full = "reject", slack: int = 0, exact: bool = True,
          strict_order: bool = True) -> nodes.MeterState:
    return nodes.MeterState("limits", (field("src", U32),), 1000, "token_bucket", 10**6, 1500, 0, 0, 0, 10**9, slack,
                            full, exact, strict_order, False, SPAN)


COUNTER = nodes.CounterState("hits", 16, SPAN)
POOL = nodes.PoolState("ports", (nodes.PoolRange("port", U16, 1024, 65535, SPAN),), True, False, SPAN)
FRAGMENTS = nodes.FragmentState("fragments", 64, 10**9, 3, SPAN)

# State and the kinds of access it has.
ZOO: tuple[tuple[State, tuple[str, ...]], ...] = (
    (flows(), ("lookup", "insert", "delete", "touch", "load", "store")),
    (flows("recent", full="evict_lru", keys=2), ("lookup", "insert", "touch")),
    (acl(), ("lookup", "load")),
    (lpm(), ("lookup", "load")),
    (meter(), ("police",)),
    (COUNTER, ("count",)),
    (POOL, ("insert", "delete")),
    (FRAGMENTS, ("track",)),
)


def used(state: State, entries: int, hottest: float | None = None) -> AccessRates:
    """All entries used alike, unless one is hotter."""
    size = entry_bytes(state)
    return AccessRates(size, entries, size * entries, 1 / entries if hottest is None else hottest, 0.01)


def block(*instructions: nodes.Instruction, end: nodes.Terminator | None = None) -> Block:
    return Block("here", (), instructions, end or nodes.Forward("wire", SPAN), SPAN)


def program(*states: State, blocks: tuple[Block, ...] = ()) -> Program:
    return Program("case", (nodes.Port("wire", ("wire",), SPAN),), (), states, blocks, SPAN)


A, B = Value("a", U32), Value("b", U32)
FLAG = Value("flag", BOOL)
WIDE = Value("wide", U128)
ENTRY = Value("e", EntryRef("flows"))
LOADS = (nodes.Load(A, "ipv4", "src", SPAN), nodes.Load(B, "ipv4", "dst", SPAN))
