"""Lending entries of flows to the card's switch, as rules of decided flows, and to its Arm cores, which run code.

The switch cannot change tables as packets pass: an Arm core inserts a flow's rules, reads their counters and removes
them. Packets may overtake each other in the gap, and time-outs are as coarse as the counters are read.
"""

from __future__ import annotations

from collections.abc import Sequence

from cora.analysis.accesses import components_of
from cora.analysis.order import order_clause
from cora.analysis.sharding import sharding_of
from cora.ir.nodes import FragmentState, MapState, MeterState, Program, State
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
        return (f"{order_clause([state])} refuses rules in the switch: they cannot wait for packets still queued at "
                "the owner; `order weak` allows them")
    if isinstance(state, MeterState) and state.exact:
        return (f"'{state.name}' is declared `exact`: a meter of the switch counts in its own steps; `approx` allows "
                "it")
    ages = bool(state.timeouts) if isinstance(state, MapState) else True
    if ages and state.slack < slack_seconds * SECOND:
        return (f"entries of '{state.name}' may go at most {state.slack / SECOND:g} s late: the switch's counters are "
                f"read every {slack_seconds:g} s; `slack {slack_seconds:g}s` allows it")
    return None


# Headers above IP: the packets of one entry have one of them.
_TRANSPORT = {"l4": "l4", "tcp": "l4", "udp": "l4", "icmp": "icmp", "icmp6": "icmp6"}


def rules_per_entry(program: Program, state: State) -> int:
    """Rules that one lent entry takes: one for each way packets find it, so both directions of a flow.

    Ways that differ in the transport header alone count once: an entry is of one protocol. Packets quoted in ICMP
    errors meet no rule.
    """
    sharding = sharding_of(program)[components_of(program)[state.name]]
    found: dict[str, set[tuple[object, ...]]] = {}
    for anchor in sharding.anchors:
        if anchor.state == state.name and not anchor.quoted:
            above = next((_TRANSPORT[p.header] for p in anchor.parts if p.header in _TRANSPORT), "")
            found.setdefault(above, set()).add((anchor.key, anchor.ports, tuple(map(str, anchor.parts))))
    any_protocol = len(found.pop("", ()))
    return max(1, any_protocol + max((len(ways) for ways in found.values()), default=0))
