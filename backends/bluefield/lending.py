"""Lending entries of flows to the card's switch, as rules of decided flows, and to its Arm cores, which run code.

The switch cannot change tables as packets pass: an Arm core inserts a flow's rules, reads their counters and removes
them. Packets may overtake each other in the gap, and time-outs are as coarse as the counters are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cora.backends.bluefield.eswitch import facts_of
from cora.ir.nodes import Cast, Const, FragmentState, Instruction, Load, Lookup, MapState, MeterState, Program, State
from cora.models.target import Refusal

SECOND = 10**9


def refuse_code(states: Sequence[State], place: str) -> Refusal | None:
    """Why entries of a component cannot be lent to a place that runs code, or None."""
    for state in states:
        if isinstance(state, FragmentState):
            return Refusal(state.name, place, f"datagrams of '{state.name}' cannot be lent: fragments find them by "
                                              "other keys than the packets of a flow", state.span)
    if not any(isinstance(s, MapState | MeterState) for s in states):
        return Refusal(states[0].name, place, f"'{states[0].name}' has no entries of flows that could be lent",
                       states[0].span)
    return None


def refuse_rules(states: Sequence[State], place: str, slack_seconds: float) -> Refusal | None:
    """Why flows of a component cannot be rules of the switch, or None."""
    refused = refuse_code(states, place)
    if refused:
        return refused
    for state in states:
        reason = _rule_reason(state, slack_seconds) if isinstance(state, MapState | MeterState) else None
        if reason:
            return Refusal(state.name, place, reason, state.span)
    return None


def _rule_reason(state: MapState | MeterState, slack_seconds: float) -> str | None:
    if state.strict_order:
        return (f"'{state.name}' is declared `order strict`: packets may overtake each other while a rule of the "
                "switch is inserted or removed; `order weak` allows it")
    if isinstance(state, MeterState) and state.exact:
        return (f"'{state.name}' is declared `exact`: a meter of the switch counts in its own steps; `approx` allows "
                "it")
    ages = bool(state.timeouts) if isinstance(state, MapState) else True
    if ages and state.slack < slack_seconds * SECOND:
        return (f"entries of '{state.name}' may go at most {state.slack / SECOND:g} s late: the switch's counters are "
                f"read every {slack_seconds:g} s; `slack {slack_seconds:g}s` allows it")
    return None


def rules_per_entry(program: Program, state: State) -> int:
    """Rules that one lent entry takes: one for each key of packet fields it is found by, so both directions of a flow.
    """
    definitions = facts_of(program).definitions
    found = {(n.key, tuple(_origin(definitions, v.name) for v in n.operands))
             for b in program.blocks if isinstance(n := b.terminator, Lookup) and n.state == state.name}
    return max(1, len(found))


def _origin(definitions: Mapping[str, Instruction], name: str) -> str:
    """Where a key's operand comes from: two look-ups by one header field are one rule."""
    match definitions.get(name):
        case Load(header=header, field=field):
            return f"{header}.{field}"
        case Const(value=value):
            return str(value)
        case Cast(operand=operand):
            return _origin(definitions, operand.name)
    return f"%{name}"
