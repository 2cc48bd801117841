"""Where entries live when cores divide the state of a program, and which packets a steering hash can lead to them.

Every entry of a map or meter has a home: the core that a hash of some of its fields names. A packet is led there by the
key of its first access, when that key is known from the packet alone and has these fields. Where the second key of a
map is a pool value, packets that have only that are led by the pool, which knows the core of each value's entry. All
other packets (fragments, those that may touch two entries) run alone, with the other cores standing still; and maps in
which every entry hangs on every other one (`evict_lru`) have their home at core 0 and are always accessed so.

It is finer than `cora.analysis.steering`, which asks what a card can do without help: here software leads, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cora.analysis.sharding import Analysis, Anchor, Component, Insertion, Site, analysis_of, unknown_leaf
from cora.analysis.symbolic import Expr, nodes_in
from cora.ir import nodes
from cora.ir.nodes import AllocDecl, Block, MapState, MeterState, Program, successors
from cora.ir.span import Span
from cora.ir.types import bits_of

# Fields of at most so many bits (protocol numbers) tell flows apart that a card's hash does not.
_NARROW = 8


@dataclass(frozen=True)
class Led:
    """How packets that stop at one access are led.

    Attributes:
        by: ``home``: by the home fields of the entry; ``owner``: by the pool value in the key; ``alone``: not at all.
        reason: why they run alone, in the user's terms; empty otherwise.
    """

    by: Literal["home", "owner", "alone"]
    span: Span
    reason: str = ""


@dataclass(frozen=True)
class Homes:
    """Attributes:
        fields: per map and meter the entry fields that its home follows from; empty: its home is core 0.
        why: per state without such fields, the reason.
        owned: per map the allocation whose values lead packets, where there is one.
    """

    fields: Mapping[str, tuple[str, ...]]
    why: Mapping[str, str]
    owned: Mapping[str, AllocDecl]


def homes_of(program: Program) -> Homes:
    """The homes of the entries of every map and meter."""
    analysis = analysis_of(program)
    fields: dict[str, tuple[str, ...]] = {}
    why: dict[str, str] = {}
    owned: dict[str, AllocDecl] = {}
    for component in analysis.components.values():
        for state in component.states:
            if not isinstance(state, MapState | MeterState):
                continue
            found = _home_fields(component, state)
            fields[state.name] = () if isinstance(found, str) else found
            if isinstance(found, str):
                why[state.name] = found
            elif isinstance(state, MapState) and len(state.allocs) == 1:
                owned[state.name] = state.allocs[0]
    return Homes(fields, why, owned)


def led_at(program: Program, homes: Homes, block: Block) -> Led:
    """How packets are led whose first access to changing state is the terminator of a block."""
    analysis = analysis_of(program)
    node = block.terminator
    if isinstance(node, nodes.TrackFragment):
        return Led("alone", node.span, "fragments of a datagram meet at one tracker, whatever flow they belong to")
    assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police)
    component = analysis.components[analysis.component_of[node.state]]
    if not homes.fields.get(node.state):
        return Led("alone", node.span, homes.why.get(node.state, f"'{node.state}' is not divided"))
    if isinstance(node, nodes.Insert):
        values = next(i.values for i in component.insertions if i.block.label == block.label)
        steered = {f: values[f] for f in homes.fields[node.state] if f in values}
        reason = _unknown(steered, homes.fields[node.state]) or _behind(analysis, component, block, node.state, steered)
        return Led("alone", node.span, reason) if reason else Led("home", node.span)
    return _led_by_key(analysis, component, homes, block, node)


def _led_by_key(analysis: Analysis, component: Component, homes: Homes, block: Block,
                node: nodes.Lookup | nodes.Police) -> Led:
    anchor = component.anchors.get(block.label)
    if anchor is None or not _usable(anchor):
        reason = component.rejected.get(block.label, "its key is not made of the packet's own fields on every way")
        return Led("alone", node.span, reason)
    site = component.sites[block.label]
    wanted = homes.fields[node.state]
    if set(wanted) <= set(anchor.fields):
        steered = {f: e for f, e in zip(anchor.fields, site.key, strict=True) if f in wanted}
        reason = _behind(analysis, component, block, node.state, steered)
        return Led("alone", node.span, reason) if reason else Led("home", node.span)
    alloc = homes.owned.get(node.state)
    if alloc is None or set(alloc.fields) != set(anchor.fields):
        return Led("alone", node.span, f"its key has neither the home fields of '{node.state}' nor the pool value")
    reason = _behind(analysis, component, block, node.state, {})
    return Led("alone", node.span, reason) if reason else Led("owner", node.span)


def _home_fields(component: Component, state: MapState | MeterState) -> tuple[str, ...] | str:
    """The fields that an entry's home follows from, or why there are none."""
    if state.full == "evict_lru":
        return (f"'{state.name}' evicts the entry used longest ago when it is full: that needs one order of use over "
                "all entries")
    led = [a for a in component.anchors.values() if a.state == state.name and not a.quoted and _usable(a)]
    if not led:
        return f"no look-up of '{state.name}' has a key made of the packet's own header fields"
    bits = {f.name: bits_of(f.type) for f in state.fields}
    keys = {frozenset(a.fields) for a in led}
    common = frozenset.intersection(*keys)
    chosen = common if all(_headers(a, common) for a in led) else frozenset()
    if not chosen and isinstance(state, MapState) and len(state.allocs) == 1:
        chosen = frozenset().union(*keys) - frozenset(state.allocs[0].fields) if _by_pool(state, keys) else chosen
    if not chosen:
        return (f"the keys of '{state.name}' share no field, and none of them is a pool value: packets of the two "
                "directions cannot be led to one core")
    wide = tuple(f.name for f in state.fields if f.name in chosen and bits[f.name] > _NARROW)
    return wide or tuple(f.name for f in state.fields if f.name in chosen)


def _by_pool(state: MapState, keys: Iterable[frozenset[str]]) -> bool:
    """Whether each key is either the allocated fields, or has none of them."""
    allocated = frozenset(state.allocs[0].fields)
    others = [k for k in keys if k != allocated]
    return len(others) == 1 and not others[0] & allocated


def _usable(anchor: Anchor) -> bool:
    return anchor.plain and anchor.always and not any(p.header == "meta" for p in anchor.parts)


def _headers(anchor: Anchor, fields: frozenset[str]) -> bool:
    """Whether some of these fields are header fields in the packet, not only numbers."""
    return any(p.header for f, p in zip(anchor.fields, anchor.parts, strict=True) if f in fields)


def _unknown(steered: Mapping[str, Expr], wanted: Iterable[str]) -> str:
    """Why the home of a new entry is not known from the packet; empty when it is."""
    for name in wanted:
        expr = steered.get(name)
        if expr is None or unknown_leaf(expr) is not None or any(part.op == "varies" for part in nodes_in(expr)):
            return f"'{name}' of the new entry is not known from the packet alone"
    return ""


def _behind(analysis: Analysis, component: Component, block: Block, state: str, steered: Mapping[str, Expr]) -> str:
    """Why a packet may need another core's entries behind its first access; empty when it does not.

    ``steered``: what the home fields were in the packet; empty where a pool value led it.
    """
    for label in sorted(_reachable(analysis, block)):
        for other in analysis.components.values():
            for _, node in other.events.get(label, ()):
                reason = _needs(analysis, component, other, label, node, state, steered)
                if reason:
                    return reason
    return ""


def _needs(analysis: Analysis, component: Component, other: Component, label: str, node: object, state: str,
           steered: Mapping[str, Expr]) -> str:
    if not isinstance(node, nodes.Lookup | nodes.Police | nodes.Insert | nodes.TrackFragment):
        return ""
    if isinstance(analysis.program.state(node.state), nodes.AclState | nodes.LpmState):
        return ""
    if isinstance(node, nodes.Insert) and other is component and node.state == state:
        made = next(i for i in other.insertions if i.block.label == label)
        return "" if _same_home(made, steered) else (
            f"behind it an entry may be made (line {node.span.line}) whose home is not known to be here")
    if isinstance(node, nodes.Insert) and other is component:
        return f"behind it an entry of '{node.state}' may be made (line {node.span.line})"
    return f"behind it the packet may go on to an entry of '{node.state}' (line {node.span.line})"


def _same_home(made: Insertion, steered: Mapping[str, Expr]) -> bool:
    if not steered:
        return False
    known = _unknown(steered, steered) == ""
    return known and all(made.values.get(name) == expr for name, expr in steered.items())


def _reachable(analysis: Analysis, block: Block) -> frozenset[str]:
    return frozenset().union(*(analysis.reach[t] for _, t in successors(block.terminator)))


__all__ = ["Homes", "Led", "Site", "homes_of", "led_at"]
