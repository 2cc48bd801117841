"""How a component of state may be split by flow: where packets meet their entries, and what only the owner may do.

A split component has an owner (the place farther from the wire), which keeps the directory, capacity, pools, eviction
and deletion. Entries of admitted flows are lent to a near place, which then is the only one that reads and writes them;
it finds them by a near table with the same keys. That is safe on a path when the first access to the component is an
*anchor*: a look-up or charge whose key is known from the packet (and configuration and read-only tables) alone, and
when behind its hit no other entry of the component is touched. Everything else runs at the owner, which takes a lent
entry back before it touches it. `docs/splitting.md` says why that is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from cora.analysis.accesses import accesses_of, components_of
from cora.analysis.symbolic import Environment, Evaluator, Expr, along, is_upper, nodes_in, over_all_paths, shown
from cora.ir import nodes
from cora.ir.cfg import available_headers
from cora.ir.nodes import Block, Instruction, Lookup, Police, Program, State, Terminator, successors
from cora.ir.span import Span

Node = Instruction | Terminator


@dataclass(frozen=True)
class Reason:
    """Why something cannot be split, copied or decided, in the user's terms, and the place it is about."""

    text: str
    span: Span


@dataclass(frozen=True)
class KeyPart:
    """One operand of a key: a header field as it arrived, or a constant (``header`` is empty).

    ``header`` is ``meta`` for the arrival port, time and size. ``text``: a value computed from these, with ``header``
    empty and ``value`` None.
    """

    header: str
    field: str
    value: int | None
    text: str = ""

    def __str__(self) -> str:
        if self.header:
            return f"{self.header}.{self.field}"
        return self.text if self.value is None else str(self.value)


@dataclass(frozen=True)
class Anchor:
    """A look-up (``key`` of a map) or meter charge at the end of ``block`` by which a packet meets its lent entry.

    ``ports``: names of the arrival ports from which packets get here. ``fields``: the entry fields of the key, one per
    part. ``always``: whether its key is known from the packet on every way here; else `align` tells by the path.
    ``headers``: the network and the upper header that packets here have (``l4``: TCP or UDP), empty where that differs.
    """

    component: str
    state: str
    key: str
    block: str
    ports: tuple[str, ...]
    parts: tuple[KeyPart, ...]
    span: Span
    fields: tuple[str, ...] = ()
    always: bool = True
    headers: tuple[str, str] = ("", "")

    @property
    def plain(self) -> bool:
        """Whether all parts are header fields or constants."""
        return all(p.header or p.value is not None for p in self.parts)

    @property
    def quoted(self) -> bool:
        """Whether part of it is read from the packet that an ICMP error quotes."""
        return any(p.header.startswith("quoted.") for p in self.parts)


@dataclass(frozen=True)
class OwnerOnly:
    """An access that has to run at the owner. ``kind``: lookup, insert, delete, police or track."""

    component: str
    block: str
    kind: str
    reason: str
    span: Span


@dataclass(frozen=True)
class Sharding:
    """What may be split of one component of state.

    Attributes:
        anchors: where packets meet lent entries; owner_only: what runs at the owner although the component is split.
        refusals: why it can never be split; empty when it can.
        exact, strict_order, per_shard: what the declarations demand of all or allow for all its maps and meters.
    """

    component: str
    states: tuple[str, ...]
    anchors: tuple[Anchor, ...]
    owner_only: tuple[OwnerOnly, ...]
    refusals: tuple[Reason, ...]
    exact: bool
    strict_order: bool
    per_shard: bool

    @property
    def splittable(self) -> bool:
        return not self.refusals


@dataclass(frozen=True)
class Alignment:
    """One path under one component.

    Attributes:
        anchor: position in the path's blocks of the anchor that hits; None: none does.
        owner_from: (position in the blocks, instruction index; the number of instructions for the terminator) from
            where the packet runs at the owner; None: it never has to.
        reason: why it has to, empty when it has not.
    """

    anchor: int | None
    owner_from: tuple[int, int] | None
    reason: str

    @property
    def aligned(self) -> bool:
        """Whether the packet meets a lent entry and needs the owner nowhere."""
        return self.anchor is not None and self.owner_from is None


def sharding_of(program: Program) -> Mapping[str, Sharding]:
    """Per component of state (`cora.analysis.accesses.components_of`) how it may be split."""
    return analysis_of(program).shardings


def align(program: Program, component: str, blocks: Sequence[str], outcomes: Sequence[str]) -> Alignment:
    """Where a path meets a lent entry of a component, and from where on it needs the owner.

    ``outcomes``: the edges taken, one per block but the last.

    Raises:
        KeyError: the program has no such component or block.
    """
    return analysis_of(program).align(component, blocks, outcomes)


def copyable(program: Program, state: State | str) -> Literal["replicated", "partial"] | Reason:
    """Whether every place may have a copy of a state, and which kind, or why not.

    ``replicated``: packets never change it. ``partial``: packets only add to it and never read it, so that the sum of
    the copies is the state.
    """
    found = program.state(state) if isinstance(state, str) else state
    match found:
        case nodes.AclState() | nodes.LpmState():
            return "replicated"
        case nodes.CounterState():
            return "partial"
        case nodes.PoolState():
            return Reason(f"'{found.name}' hands out values, each to one entry at a time: two copies would hand out "
                          "the same value twice", found.span)
        case nodes.FragmentState():
            return Reason(f"'{found.name}' keeps what was seen of each datagram: fragments that meet different copies "
                          "would never be put together", found.span)
        case nodes.MeterState():
            return Reason(f"'{found.name}' decides by what was charged before: copies would each let the whole rate "
                          "pass", found.span)
        case nodes.MapState():
            return _copyable_map(program, found)


def _copyable_map(program: Program, state: nodes.MapState) -> Literal["replicated", "partial"] | Reason:
    for block in program.blocks:
        for node in (*block.instructions, block.terminator):
            changed = any(name == state.name and kind in ("insert", "delete", "touch", "store")
                          for name, kind in accesses_of(program, node))
            if changed:
                return Reason(f"packets {_CHANGES[node.mnemonic]} '{state.name}': a copy would not see what another "
                              "one changed", node.span)
    return "replicated"


_CHANGES = {"insert": "insert into", "delete": "delete from", "touch": "refresh entries of",
            "store_entry": "change entries of"}


# --- the analysis ---


@dataclass(frozen=True)
class Site:
    """A look-up or charge: its key over all paths, and the ports and headers it is reached with."""

    block: Block
    node: Lookup | Police
    key: tuple[Expr, ...]
    ports: frozenset[int]

    # As users call it: the state, and which of its keys where it has several.
    name: str
    headers: tuple[str, str]


@dataclass(frozen=True)
class Insertion:
    """An insert: the values of the fields that no pool gives, over all paths."""

    block: Block
    node: nodes.Insert
    values: Mapping[str, Expr]
    ports: frozenset[int]
    headers: tuple[str, str]


def _headers(available: frozenset[str]) -> tuple[str, str]:
    """The network and the upper header that packets certainly have."""
    network = next((h for h in ("ipv4", "ipv6", "arp") if h in available), "")
    return network, next((h for h in ("l4", "icmp", "icmp6") if h in available), "")


@dataclass
class Component:
    """A component while it is analysed; ``events``: per block its accesses in order."""

    name: str
    states: tuple[State, ...]
    events: dict[str, list[tuple[int, Node]]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    insertions: list[Insertion] = field(default_factory=list)
    # Per block whose look-up is no anchor on any way, why.
    rejected: dict[str, str] = field(default_factory=dict)
    anchors: dict[str, Anchor] = field(default_factory=dict)


# Analyses of the programs asked about last: planners ask about one program many times.
_latest: list[Analysis] = []
_KEPT = 16


def analysis_of(program: Program) -> Analysis:
    for known in _latest:
        if known.program is program:
            return known
    made = Analysis(program)
    _latest.insert(0, made)
    del _latest[_KEPT:]
    return made


class Analysis:
    """Everything known about how one program meets its state."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.blocks = {b.label: b for b in program.blocks}
        self.component_of = components_of(program)
        self.components = self._components()
        self.tracking = frozenset(b.label for b in program.blocks if isinstance(b.terminator, nodes.TrackFragment))
        self.available = available_headers(program)
        self.evaluator = over_all_paths(program, self._visit)
        self.reach = self._reach()
        for component in self.components.values():
            self._find_anchors(component)
        self.order = self._order()
        self.shardings: dict[str, Sharding] = {n: self._sharding(c) for n, c in self.components.items()}

    def _components(self) -> dict[str, Component]:
        members: dict[str, list[State]] = {}
        for state in self.program.states:
            members.setdefault(self.component_of[state.name], []).append(state)
        return {name: Component(name, tuple(states)) for name, states in members.items()}

    def _visit(self, block: Block, env: Environment, evaluator: Evaluator) -> None:
        for i, node in enumerate((*block.instructions, block.terminator)):
            for name in dict.fromkeys(self.component_of[s] for s, _ in accesses_of(self.program, node)):
                self.components[name].events.setdefault(block.label, []).append((i, node))
        if isinstance(block.terminator, Lookup | Police):
            site = Site(block, block.terminator, evaluator.key_of(block.terminator), env.ports,
                         self._name(block.terminator), _headers(self.available[block.label]))
            self.components[self.component_of[block.terminator.state]].sites[block.label] = site
        elif isinstance(block.terminator, nodes.Insert):
            insertion = self._insertion(block, block.terminator, env, evaluator)
            self.components[self.component_of[block.terminator.state]].insertions.append(insertion)

    def _insertion(self, block: Block, node: nodes.Insert, env: Environment, evaluator: Evaluator) -> Insertion:
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MapState), "the verifier lets maps be inserted into only"
        allocated = {f for a in state.allocs for f in a.fields}
        plain = [f.name for f in state.fields if f.name not in allocated]
        values = {n: evaluator.values[v.name] for n, v in zip(plain, node.values, strict=True)}
        return Insertion(block, node, values, env.ports, _headers(self.available[block.label]))

    def _name(self, node: Lookup | Police) -> str:
        state = self.program.state(node.state)
        several = isinstance(state, nodes.MapState) and len(state.keys) > 1
        return f"{node.state}.{node.key}" if several and isinstance(node, Lookup) else node.state

    def _reach(self) -> dict[str, frozenset[str]]:
        """Per block the blocks with accesses on any way from its start, itself included."""
        busy = {label for c in self.components.values() for label in c.events}
        found: dict[str, frozenset[str]] = {}
        for block in reversed(self.program.blocks):
            below = frozenset[str]().union(*(found[t] for _, t in successors(block.terminator)))
            found[block.label] = below | {block.label} if block.label in busy else below
        return found

    # Anchors.

    def _find_anchors(self, component: Component) -> None:
        first = self._first_accesses(component)
        for label, site in component.sites.items():
            if isinstance(self.program.state(site.node.state), nodes.AclState | nodes.LpmState):
                continue
            reason = self._key_reason(component, site) or self._second_entry(component, site)
            if not reason and label not in first:
                reason = (f"every way to this look-up of '{site.name}' leads through another one of "
                          f"'{component.name}', which already needed the owner")
            if reason:
                component.rejected[label] = reason
            else:
                component.anchors[label] = self._anchor(component, site)

    def _first_accesses(self, component: Component) -> set[str]:
        """Blocks with the first access a packet may make to a component."""
        seen: set[str] = set()
        found: set[str] = set()
        pending = [self.program.blocks[0].label]
        while pending:
            label = pending.pop()
            if label in seen:
                continue
            seen.add(label)
            if label in component.events:
                found.add(label)
            else:
                pending += (t for _, t in successors(self.blocks[label].terminator))
        return found

    def _key_reason(self, component: Component, site: Site) -> str:
        """Why no way here has a key known from the packet alone; empty when one may have."""
        for name, expr in zip(key_fields(self.program, site.node), site.key, strict=True):
            leaf = unknown_leaf(expr)
            if leaf is not None and not _differs(expr):
                return (f"the key of this look-up of '{site.name}' has {_from(leaf)} for '{name}': "
                        "a packet cannot be led to the entry before that is known")
        return ""

    def _second_entry(self, component: Component, site: Site) -> str:
        """Why the packet may go on to another entry of the component behind this one's hit; empty when it cannot."""
        for label in sorted(self._behind(site), key=self._place):
            for _, node in component.events.get(label, ()):
                if isinstance(node, nodes.TrackFragment) or (
                        isinstance(node, Lookup | Police) and not same_entry(site, component.sites[label])):
                    return (f"behind this look-up of '{site.name}' a packet may go on to another entry of "
                            f"'{component.name}' (line {node.span.line}), and packets that meet two entries in "
                            "opposite orders come in no one order unless one place looks up both")
        return ""

    def _behind(self, site: Site) -> frozenset[str]:
        kept = [t for o, t in successors(site.block.terminator) if o not in ("miss", "full")]
        return frozenset[str]().union(*(self.reach[t] for t in kept))

    def _place(self, label: str) -> tuple[int, int]:
        span = self.blocks[label].terminator.span
        return span.line, span.column

    def _anchor(self, component: Component, site: Site) -> Anchor:
        node = site.node
        ports = tuple(p.name for i, p in enumerate(self.program.ports) if i in site.ports)
        return Anchor(component.name, node.state, node.key if isinstance(node, Lookup) else "", site.block.label, ports,
                      tuple(part_of(e) for e in site.key), node.span, key_fields(self.program, node),
                      all(unknown_leaf(e) is None for e in site.key), site.headers)

    # The order in which packets use components.

    def _order(self) -> dict[str, set[str]]:
        """Per component those with changing state that a packet may use after it."""
        found: dict[str, set[str]] = {name: set() for name in self.components}
        for block in self.program.blocks:
            here = [n for n, c in self.components.items() if block.label in c.events]
            here.sort(key=lambda n: self.components[n].events[block.label][0][0])
            after = self._used(t for _, t in successors(block.terminator))
            for i, name in enumerate(here):
                found[name] |= after.union(here[i + 1:]) - {name}
        return found

    def _used(self, labels: Iterable[str]) -> set[str]:
        reached = frozenset[str]().union(*(self.reach[label] for label in labels))
        return {n for n, c in self.components.items() if not reached.isdisjoint(c.events) and self._changes(c)}

    def _changes(self, component: Component) -> bool:
        return component.name in self._changing

    @cached_property
    def _changing(self) -> frozenset[str]:
        """Components that packets change."""
        return frozenset(name for name, c in self.components.items()
                         if any(isinstance(copyable(self.program, s), Reason) for s in c.states))

    def _conflict(self, component: Component) -> Reason | None:
        """Another component that packets use after a hit in this one and also, on this or another way, before it."""
        for label in component.anchors:
            site = component.sites[label]
            targets = [t for o, t in successors(site.node) if o not in ("miss", "full")]
            for other in sorted(self._used(targets) - {component.name}):
                if self._leads_to(other, component.name):
                    return Reason(
                        f"packets use '{component.name}' before '{other}' (from line {site.node.span.line}) and "
                        f"'{other}' before '{component.name}', on this or another way: with '{component.name}' split, "
                        "two packets could each be ahead of the other; use them in the same order everywhere",
                        site.node.span)
        return None

    def _leads_to(self, start: str, end: str) -> bool:
        seen, pending = {start}, [start]
        while pending:
            for after in self.order[pending.pop()] - seen:
                seen.add(after)
                pending.append(after)
        return end in seen

    # Results.

    def _sharding(self, component: Component) -> Sharding:
        declared = [s for s in component.states if isinstance(s, nodes.MapState | nodes.MeterState)]
        return Sharding(
            component.name, tuple(s.name for s in component.states), tuple(component.anchors.values()),
            tuple(self._owner_only(component)), tuple(self._refusals(component)),
            any(s.exact for s in declared), any(s.strict_order for s in declared),
            all(s.per_shard for s in component.states if isinstance(s, nodes.MapState | nodes.MeterState
                                                                    | nodes.PoolState)))

    def _owner_only(self, component: Component) -> Iterator[OwnerOnly]:
        for block in self.program.blocks:
            for _, node in component.events.get(block.label, ()):
                reason = self._owner_reason(component, block, node)
                if reason:
                    yield OwnerOnly(component.name, block.label, _KINDS[type(node)], reason, node.span)

    def _owner_reason(self, component: Component, block: Block, node: Node) -> str:
        match node:
            case nodes.Insert():
                return self._insert_reason(component, node)
            case nodes.Delete():
                return f"it deletes an entry of '{component.name}': the owner keeps the directory, room and pool values"
            case nodes.TrackFragment():
                return f"'{node.state}' keeps the fragments of whole datagrams, whose ports are in the first one only"
            case Lookup() | Police():
                return component.rejected.get(block.label, "")
        return ""

    def _insert_reason(self, component: Component, node: nodes.Insert) -> str:
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MapState), "the verifier lets maps be inserted into only"
        pools = ", ".join(f"'{a.pool}'" for a in state.allocs)
        taken = f"room of '{state.name}'" + (f" and a value of {pools}" if pools else "")
        return f"it inserts into '{state.name}': it takes {taken}, of which the owner keeps account"

    def _refusals(self, component: Component) -> Iterator[Reason]:
        for state in component.states:
            reason = _never_split(state)
            if reason:
                yield Reason(reason, state.span)
        if not any(isinstance(s, nodes.MapState | nodes.MeterState) for s in component.states):
            return
        if not component.anchors:
            yield self._no_anchor(component)
        conflict = self._conflict(component)
        if conflict is not None:
            yield conflict

    def _no_anchor(self, component: Component) -> Reason:
        for label, reason in component.rejected.items():
            return Reason(f"'{component.name}' has no look-up by which a packet alone finds its entry: {reason}",
                          component.sites[label].node.span)
        return Reason(f"no packet looks anything up in '{component.name}'", component.states[0].span)

    # Paths.

    def align(self, name: str, blocks: Sequence[str], outcomes: Sequence[str]) -> Alignment:
        component = self.components[name]
        walk = _Walk(self, component, blocks, outcomes)
        for position, label in enumerate(blocks):
            for index, node in component.events.get(label, ()):
                reason = walk.step(position, node)
                if reason:
                    return Alignment(walk.anchor, (position, index), reason)
        return Alignment(walk.anchor, None, "")


class _Walk:
    """A path on its way through the accesses of a component."""

    def __init__(self, analysis: Analysis, component: Component, blocks: Sequence[str], outcomes: Sequence[str]
                 ) -> None:
        self.analysis = analysis
        self.component = component
        self.labels = blocks
        self.outcomes = outcomes
        self.anchor: int | None = None

    def step(self, position: int, node: Node) -> str:
        """Why the packet needs the owner from this access on; empty when it does not."""
        label = self.labels[position]
        if not isinstance(node, Lookup | Police):
            return self.analysis._owner_reason(self.component, self.analysis.blocks[label], node)
        if isinstance(self.analysis.program.state(node.state), nodes.AclState | nodes.LpmState):
            return ""
        if self.anchor is not None:
            again = same_entry(self.component.sites[self.labels[self.anchor]], self.component.sites[label])
            return "" if again and self.outcomes[position] == "hit" else "it goes on to another entry"
        return self._first(position, label, node)

    def _first(self, position: int, label: str, node: Lookup | Police) -> str:
        anchor = self.component.anchors.get(label)
        if anchor is None:
            return self.component.rejected[label]
        reason = self._fragment(label) or ("" if anchor.always else self._on_this_way(position))
        if reason:
            return reason
        outcome = self.outcomes[position]
        if outcome == "miss":
            return f"'{self.component.sites[label].name}' has no entry for it: the owner looks it up again"
        if outcome == "full":
            return f"'{node.state}' is full: the owner keeps account of its room"
        self.anchor = position
        return ""

    def _fragment(self, label: str) -> str:
        """A fragment's ports come from the first fragment of its datagram, wherever that is remembered."""
        if self.analysis.tracking.isdisjoint(self.labels):
            return ""
        if any(leaf.op == "field" and is_upper(str(leaf.detail[0]))
               for e in self.component.sites[label].key for leaf in e.leaves):
            return "it is a fragment: the ports of its key come from the datagram's first fragment"
        return ""

    def _on_this_way(self, position: int) -> str:
        analysis, label = self.analysis, self.labels[position]
        keys: list[tuple[Expr, ...]] = []
        evaluator = Evaluator(analysis.program, analysis.evaluator.make)

        def keep(at: int, block: Block, env: Environment) -> None:
            if at == position:
                keys.append(evaluator.key_of(self.component.sites[label].node))

        along(evaluator, analysis.blocks, self.labels[:position + 1], self.outcomes[:position], keep)
        (key,) = keys
        return analysis._key_reason(self.component, replace(self.component.sites[label], key=key))


_KINDS: Mapping[type, str] = {nodes.Insert: "insert", nodes.Delete: "delete", nodes.TrackFragment: "track",
                              Lookup: "lookup", Police: "police"}


def _never_split(state: State) -> str:
    """Why a component with this state can never be split; empty when this state does not forbid it."""
    match state:
        case nodes.MapState(full="evict_lru", exact=True) | nodes.MeterState(full="evict_lru", exact=True):
            return (f"'{state.name}' is exact and evicts the entry used longest ago when full: that needs one order of "
                    "use over all entries; write 'approx', or 'full reject'")
        case nodes.FragmentState():
            return (f"'{state.name}' puts datagrams together and holds packets: all fragments of a datagram have to "
                    "meet at one place")
        case nodes.CounterState():
            return f"'{state.name}' is a counter: every place that counts has a copy instead"
        case nodes.AclState() | nodes.LpmState():
            return f"packets never change '{state.name}': every place that reads it has a copy instead"
        case nodes.PoolState():
            return ""
    return ""


def key_fields(program: Program, node: Lookup | Police) -> tuple[str, ...]:
    """Names of the entry fields that a look-up's or charge's operands are compared with."""
    state = program.state(node.state)
    match state:
        case nodes.MapState():
            key = state.key(node.key) if isinstance(node, Lookup) else None
            return key.fields if key is not None else ()
        case nodes.MeterState():
            return tuple(f.name for f in state.fields)
        case nodes.AclState():
            return tuple(f.name for f in state.keys)
        case nodes.LpmState():
            return (state.key.name,)
    return ()


def same_entry(one: Site, other: Site) -> bool:
    """Whether two look-ups certainly mean the same entry: by the same key of the same map, with the same values."""
    return (isinstance(one.node, Lookup) and isinstance(other.node, Lookup) and one.name == other.name
            and one.key == other.key and all(unknown_leaf(e) is None and not _differs(e) for e in one.key))


def unknown_leaf(expr: Expr) -> Expr | None:
    """A part of a value that is not known from the packet alone; None when all is."""
    return next((leaf for leaf in sorted(expr.leaves, key=shown) if leaf.op in ("entry", "unknown")), None)


def _differs(expr: Expr) -> bool:
    """Whether a value is another one by the way taken."""
    return any(part.op == "varies" for part in nodes_in(expr))


def _from(leaf: Expr) -> str:
    if leaf.op == "entry":
        return f"'{leaf.detail[2]}' of an entry of '{leaf.detail[1]}'"
    return f"a value that is not known ({leaf.detail[0]})"


def part_of(expr: Expr) -> KeyPart:
    """A key's operand as users know it; widening a field changes nothing about it."""
    while expr.op == "cast" and expr.bits >= expr.operands[0].bits:
        expr = expr.operands[0]
    if expr.constant is not None:
        return KeyPart("", "", expr.constant)
    if expr.op == "field":
        return KeyPart(str(expr.detail[0]), str(expr.detail[1]), None)
    if expr.op == "meta":
        return KeyPart("meta", str(expr.detail[0]), None)
    return KeyPart("", "", None, shown(expr))
