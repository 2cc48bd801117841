"""What targets refuse, in golden texts; and that what the golden texts do not name is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from state_zoo import (
    COUNTER,
    ENTRY,
    FLAG,
    FRAGMENTS,
    LOADS,
    POOL,
    SPAN,
    WIDE,
    A,
    B,
    acl,
    block,
    flows,
    lpm,
    meter,
    program,
    used,
)

from cora.ir import nodes
from cora.ir.nodes import Block, Program, State, Value
from cora.ir.types import U64
from cora.models import registry
from cora.models.target import Refusal, Target

LONG = Value("l", U64)
STATIC = flows("static", timeout=0)
STATES = (flows(), STATIC, acl(), lpm(), meter(), COUNTER, POOL, FRAGMENTS)
PROGRAM_BLOCKS: dict[str, Block] = {
    # Fine in the switch.
    "loads": block(*LOADS),
    "mask": block(*LOADS, nodes.Const(Value("m", A.type), 255, SPAN),
                  nodes.Binary(B, "and", A, Value("m", A.type), SPAN)),
    "compare with a constant": block(*LOADS, nodes.Const(Value("m", A.type), 7, SPAN),
                                     nodes.Compare(FLAG, "lt", A, Value("m", A.type), SPAN)),
    "count packets": block(nodes.Count("hits", None, None, SPAN)),
    "drop": block(end=nodes.Drop("no", SPAN)),
    "arrival port": block(nodes.Meta(A, "port", SPAN)),
    "acl": block(*LOADS, end=nodes.Lookup("rules", "", (A, B), ENTRY, "x", "y", SPAN)),
    "unwritten map": block(*LOADS, end=nodes.Lookup("static", "fwd", (A, B), ENTRY, "x", "y", SPAN)),
    "ethernet": block(end=nodes.Extract("eth", 2, False, False, (), SPAN)),
    "ipv4": block(end=nodes.Extract("ipv4", 0, True, False, (), SPAN)),
    "fragment test": block(end=nodes.IsFragment("ipv4", "x", "y", SPAN)),
    # Not in the switch.
    "time": block(nodes.Meta(LONG, "time", SPAN)),
    "size": block(nodes.Meta(A, "size", SPAN)),
    "unmatched field": block(nodes.Load(A, "tcp", "seq", SPAN)),
    "quoted field": block(nodes.Load(A, "quoted.ipv4", "src", SPAN)),
    "quoted header": block(end=nodes.Extract("quoted.ipv4", 0, False, False, (), SPAN)),
    "arp": block(end=nodes.Extract("arp", 0, False, False, (), SPAN)),
    "vlan depth": block(end=nodes.Extract("eth", 3, False, False, (), SPAN)),
    "extension headers": block(end=nodes.Extract("ipv6", 8, False, False, (), SPAN)),
    "source routes": block(end=nodes.Extract("ipv4", 0, False, True, (), SPAN)),
    "arithmetic": block(*LOADS, nodes.Binary(A, "add", A, B, SPAN)),
    "invert": block(*LOADS, nodes.Unary(A, "invert", B, SPAN)),
    "select": block(*LOADS, nodes.Select(A, FLAG, A, B, SPAN)),
    "two fields": block(*LOADS, nodes.Compare(FLAG, "eq", A, B, SPAN)),
    "rewrite": block(nodes.Store("ipv4", "src", A, SPAN)),
    "count an amount": block(nodes.Count("hits", None, A, SPAN)),
    "count by field": block(*LOADS, nodes.Count("hits", A, None, SPAN)),
    "touch": block(nodes.Touch(ENTRY, "idle", SPAN)),
    "store entry": block(nodes.StoreEntry(ENTRY, "packets", LONG, SPAN)),
    "delete": block(nodes.Delete(ENTRY, SPAN)),
    "written map": block(end=nodes.Lookup("flows", "fwd", (A,), ENTRY, "x", "y", SPAN)),
    "insert": block(end=nodes.Insert("flows", (A,), (), "idle", ENTRY, "x", "y", SPAN)),
    "police": block(end=nodes.Police("limits", (A,), A, "x", None, "y", "z", SPAN)),
    "reject": block(end=nodes.Reject("no", "ipv4", 3, 13, A, SPAN)),
    "track": block(end=nodes.TrackFragment("fragments", "ipv4", (), SPAN)),
    "hold": block(end=nodes.Hold(SPAN)),
    # On no card.
    "wide division": block(nodes.Binary(WIDE, "mod", WIDE, WIDE, SPAN)),
}
PROGRAM = program(*STATES, blocks=tuple(PROGRAM_BLOCKS.values()))
SWITCH_CAN = {"loads", "mask", "compare with a constant", "count packets", "drop", "arrival port", "acl",
              "unwritten map", "ethernet", "ipv4", "fragment test"}


def refusals(target: Target, place: int) -> Iterable[str]:
    """A line per refusal."""
    for name, made in PROGRAM_BLOCKS.items():
        answer = target.block(PROGRAM, made, place)
        if isinstance(answer, Refusal):
            yield f"block, {name}: {answer.reason} [{answer.place}, {answer.span}]"
    for state in STATES:
        for tier in target.places[place].tiers:
            held = target.holds(PROGRAM, state, place, tier.name)
            if isinstance(held, Refusal):
                assert held.subject == state.name
                yield f"state, {state.name} in {tier.name}: {held.reason} [{held.place}, {held.span}]"


@pytest.mark.parametrize(("name", "place"), [("agilio-cx", "nic"), ("bluefield2", "switch")])
def test_refusals(name: str, place: str, golden: Callable[[str, str], None]) -> None:
    target = registry.get(name)
    number = next(i for i, p in enumerate(target.places) if p.name == place)
    golden(f"{name}.txt", "".join(line + "\n" for line in refusals(target, number)))


@pytest.mark.parametrize(("name", "place"), [("agilio-cx", 1), ("bluefield2", 1), ("bluefield2", 2), ("host", 0)])
def test_processors_refuse_nothing(name: str, place: int) -> None:
    assert list(refusals(registry.get(name), place)) == []


def test_the_switch_does_what_it_can() -> None:
    target = registry.get("bluefield2")
    allowed = {n for n, b in PROGRAM_BLOCKS.items() if not isinstance(target.block(PROGRAM, b, 0), Refusal)}
    assert allowed == SWITCH_CAN


def test_micro_engines_refuse_only_wide_divisions() -> None:
    target = registry.get("agilio-cx")
    refused = {n for n, b in PROGRAM_BLOCKS.items() if isinstance(target.block(PROGRAM, b, 0), Refusal)}
    assert refused == {"wide division"}


def test_a_map_is_a_rule_table_only_while_nothing_changes_it() -> None:
    target = registry.get("bluefield2")
    timed: State = flows("timed")
    quiet = Program("quiet", PROGRAM.ports, (), (timed, STATIC), (), SPAN)
    assert target.holds(quiet, STATIC, 0, "rules") == 1000
    answer = target.holds(quiet, timed, 0, "rules")
    assert isinstance(answer, Refusal)
    assert answer.reason == ("entries of 'timed' time out: without packets refreshing them the switch would drop live "
                             "ones")


def test_access_is_refused_with_the_reason_of_the_state() -> None:
    for name, tier, state, kind in (("agilio-cx", "lmem", COUNTER, "count"),
                                    ("bluefield2", "rules", flows(), "lookup")):
        target = registry.get(name)
        answer = target.access(PROGRAM, state, kind, 0, tier, used(state, 100))
        held = target.holds(PROGRAM, state, 0, tier)
        assert isinstance(answer, Refusal) and isinstance(held, Refusal)
        assert answer.reason == held.reason

