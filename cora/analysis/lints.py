"""Remarks on programs that are legal but probably not what was meant."""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.span import Span

# The largest untagged Ethernet frame without FCS (IEEE 802.3).
LARGEST_FRAME = 1514


@dataclass(frozen=True)
class Remark:
    """A warning: stable name, text, and the declaration it is about."""

    name: str
    text: str
    span: Span


def remarks_on(program: Program) -> tuple[Remark, ...]:
    """All remarks, in order of place."""
    used = _used(program)
    found: list[Remark] = []
    for state in program.states:
        if state.name not in used:
            found.append(Remark("unused-state", f"'{state.name}' is never used", state.span))
        if isinstance(state, nodes.MeterState):
            found += _meter(state)
        if isinstance(state, nodes.MapState):
            found += _map(program, state)
    return tuple(sorted(found, key=lambda r: (r.span.line, r.span.column)))


def _meter(state: nodes.MeterState) -> list[Remark]:
    largest = max(state.burst, state.excess_burst)
    if largest >= LARGEST_FRAME:
        return []
    return [Remark("burst-below-frame", f"frames larger than the burst of {largest} octets never pass meter "
                                        f"'{state.name}'; Ethernet frames have up to {LARGEST_FRAME}", state.span)]


def _map(program: Program, state: nodes.MapState) -> list[Remark]:
    found = []
    for alloc in state.allocs:
        pool = program.state(alloc.pool)
        if isinstance(pool, nodes.PoolState) and pool.size < state.capacity:
            text = (f"'{state.name}' has room for {state.capacity} entries but pool '{pool.name}' has only {pool.size} "
                    "values")
            found.append(Remark("capacity-beyond-pool", text, state.span))
    return found


def _used(program: Program) -> set[str]:
    names: set[str] = set()
    for block in program.blocks:
        for node in (*block.instructions, block.terminator):
            for attribute in ("state", "counter"):
                name = getattr(node, attribute, None)
                if isinstance(name, str):
                    names.add(name)
    for state in program.states:
        if isinstance(state, nodes.MapState) and state.name in names:
            names.update(a.pool for a in state.allocs)
    return names
