"""Which ways of a program a packet sequence takes, and a search for packets that take all of them.

A way is an edge of the control-flow graph: (block, outcome). The search sends random traffic; where a block was
reached but one of its outcomes never taken, it works out from the trace which header fields, lengths or table entries
would turn the decision, and sends an earlier packet with those changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cora.engine.reference import Reference, TraceStep
from cora.engine.results import Options
from cora.ir import nodes
from cora.ir.cfg import available_headers, headers_gained
from cora.ir.headers import QUOTED, field_of
from cora.ir.nodes import Program, Terminator, Value, result_of, successors
from cora.ir.types import BOOL, bits_of
from cora.testing.choices import Choices, RandomChoices
from cora.testing.frames import IPV4, IPV6, NUMBERS, Packet, Spec, build, resize, retarget, upper_bytes
from cora.testing.packets import Harvest, Traffic
from cora.testing.ruled_out import ruled_out

Edge = tuple[str, str]
# What to change in a packet: (header, field) -> value; ("meta", "size" or "port") for what is no header.
Wish = dict[tuple[str, str], int]
MAX_FLOOD = 64
MAX_WISHES = 6
MAX_VISITS = 5
MAX_TRIES = 30
# Packets that made entries which are sent again in another protocol, and answers sent behind them.
MAX_RETOLD = 6
MAX_ANSWERS = 3
# A search ends after so many packets that took nothing new.
PATIENCE = 1500
_SYN = 2


def edges_of(program: Program) -> tuple[Edge, ...]:
    """Every outcome that a packet could take, in program order.

    Left out are the outcomes of tests for headers that no way, or every way, has extracted before, cases of a read-only
    header field that an earlier switch over it has ruled out, and what `ruled_out` finds; and what can only be reached
    through those.
    """
    sure, possible = available_headers(program), _possible_headers(program)
    impossible = ruled_out(program)
    selected = _Selected(program)
    reached = {program.blocks[0].label}
    found: list[Edge] = []
    for block in program.blocks:
        if block.label not in reached:
            continue
        for outcome, target in successors(block.terminator):
            node = block.terminator
            if isinstance(node, nodes.HasHeader):
                if outcome == "present" and node.header not in possible[block.label]:
                    continue
                if outcome == "absent" and node.header in sure[block.label]:
                    continue
            if not selected.may_take(block, outcome) or (block.label, outcome) in impossible:
                continue
            reached.add(target)
            found.append((block.label, outcome))
    return tuple(found)


class _Selected:
    """What switches over read-only header fields say about those fields further on."""

    def __init__(self, program: Program) -> None:
        self.loads = {i.result.name: (i.header, i.field) for b in program.blocks for i in b.instructions
                      if isinstance(i, nodes.Load) and not _is_writable(i)}
        # Per block: field -> values it may have; a field that is not there may have any.
        self.known: dict[str, dict[Edge, frozenset[int]]] = {program.blocks[0].label: {}}
        for block in program.blocks:
            for outcome, target in successors(block.terminator):
                here = dict(self.known.get(block.label, {}))
                place = self.place(block)
                if place is not None and outcome != "default":
                    here[place] = frozenset({int(outcome)})
                before = self.known.get(target)
                self.known[target] = here if before is None else {
                    k: before[k] | here[k] for k in before.keys() & here.keys()}

    def place(self, block: nodes.Block) -> Edge | None:
        """The read-only field that a block switches over."""
        node = block.terminator
        return self.loads.get(node.value.name) if isinstance(node, nodes.Switch) else None

    def may_take(self, block: nodes.Block, outcome: str) -> bool:
        place = self.place(block)
        values = None if place is None else self.known[block.label].get(place)
        if values is None:
            return True
        node = block.terminator
        assert isinstance(node, nodes.Switch), "only switches have a place"
        cases = {v for v, _ in node.cases}
        return not values <= cases if outcome == "default" else int(outcome) in values


def _is_writable(node: nodes.Load) -> bool:
    declared = field_of(node.header, node.field)
    return declared is None or declared.writable


def _possible_headers(program: Program) -> dict[str, frozenset[str]]:
    """Per block the headers that some way to it extracts."""
    found: dict[str, frozenset[str]] = {b.label: frozenset() for b in program.blocks}
    for block in program.blocks:
        for outcome, target in successors(block.terminator):
            gained = headers_gained(block.terminator, outcome)
            if isinstance(block.terminator, nodes.HasHeader):
                gained = ()
            found[target] = found[target] | found[block.label] | frozenset(gained)
    return found


@dataclass
class Coverage:
    """The edges taken so far."""

    edges: tuple[Edge, ...]
    taken: set[Edge] = field(default_factory=set)

    @property
    def missed(self) -> tuple[Edge, ...]:
        return tuple(e for e in self.edges if e not in self.taken)

    @property
    def fraction(self) -> float:
        """Taken edges among those that could be taken, 0 to 1."""
        return 1 - len(self.missed) / len(self.edges) if self.edges else 1.0

    def add(self, trace: Iterable[TraceStep]) -> bool:
        """Note a packet's trace; whether an edge was new."""
        new = {(s.block, s.outcome) for s in trace if isinstance(s.node, Terminator) and s.outcome} - self.taken
        self.taken |= new
        return bool(new)


def coverage_of(program: Program, packets: Sequence[Packet], options: Options = Options()) -> Coverage:  # noqa: B008
    """What a sequence takes when the program starts with empty state."""
    engine, coverage = Reference(program, options), Coverage(edges_of(program))
    for packet in packets:
        trace: list[TraceStep] = []
        engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, trace)
        coverage.add(trace)
    return coverage


def exercising_packets(program: Program, seed: int = 0, count: int = 600, options: Options = Options()) -> list[Packet]:  # noqa: B008
    """Packets for a comparison of engines: half of them search new outcomes, the rest come back to those found.

    The same program, seed and count give the same packets on every machine.
    """
    search = Search(program, RandomChoices(seed), options)
    while len(search.sent) < count:
        if len(search.sent) < count // 2 and search.coverage.missed:
            search.step(count)
        else:
            search.send(search.traffic.spec())
    return search.sent


@dataclass(frozen=True)
class Covering:
    """A packet sequence with what it takes; ``missed`` are the outcomes that the search did not reach."""

    packets: tuple[Packet, ...]
    coverage: Coverage

    @property
    def missed(self) -> tuple[Edge, ...]:
        return self.coverage.missed


# Entries of the tables of `small_tables`: fewer than a search sends new keys to fill one.
SMALL = 12


def small_tables(program: Program) -> Program:
    """The program with tables that are full after few packets: the same code, so that outcomes are named alike."""
    return replace(program, states=tuple(small_state(s) for s in program.states))


def small_state(state: nodes.State) -> nodes.State:
    """A state with room for few entries."""
    if isinstance(state, nodes.MapState | nodes.MeterState | nodes.FragmentState):
        return replace(state, capacity=min(state.capacity, SMALL))
    return state


def covering_packets(program: Program, seed: int = 0, budget: int = 400, options: Options = Options(), *,  # noqa: B008
                     taken: Iterable[Edge] = (), retells: bool = False) -> Covering:
    """Search a sequence of at most ``budget`` packets that takes as many outcomes as possible.

    The same program, seed and budget give the same packets on every machine. The sequence ends with the last packet
    that took a new outcome. ``taken``: outcomes that need not be looked for; they count as taken. ``retells``: also
    send what made entries once more as packets of another protocol, which costs what connections that went on made.
    """
    search = Search(program, RandomChoices(seed), options, retells=retells)
    search.coverage.taken |= set(taken)
    while len(search.sent) < budget and search.coverage.missed and len(search.sent) < search.useful + PATIENCE:
        search.step(budget)
    return Covering(tuple(search.sent[:search.useful]), search.coverage)


@dataclass(frozen=True)
class Round:
    """A sequence of packets that begins with empty tables, on the program or on the one with `small_tables`.

    ``taken``: what it takes, perhaps besides others, that those before it did not.
    """

    packets: tuple[Packet, ...]
    small: bool
    taken: frozenset[Edge]


def covering_rounds(program: Program, seed: int = 0, budget: int = 3000, options: Options = Options(), *,  # noqa: B008
                    small: bool = True) -> Iterator[Round]:
    """Search several sequences, each of at most ``budget`` packets, for the outcomes that those before it did not take:
    plainly, with entries made anew in other protocols, and (``small``) both with tables that are soon full.
    """
    taken: frozenset[Edge] = frozenset()
    variants = [program, small_tables(program)] if small else [program]
    ways = [(variant, retells) for variant in variants for retells in (False, True)]
    for number, (variant, retells) in enumerate(ways):
        found = covering_packets(variant, seed + number, budget, options, taken=taken, retells=retells)
        if found.packets:
            yield Round(found.packets, variant is not program, frozenset(found.coverage.taken) - taken)
        taken = taken | found.coverage.taken
        if not found.missed:
            return


def _behind(program: Program) -> dict[Edge, frozenset[Edge]]:
    """Per edge the edges that can follow it."""
    after: dict[str, frozenset[Edge]] = {}
    found: dict[Edge, frozenset[Edge]] = {}
    for block in reversed(program.blocks):
        edges = successors(block.terminator)
        found |= {(block.label, outcome): after[target] for outcome, target in edges}
        after[block.label] = frozenset((block.label, o) for o, _ in edges).union(*(after[t] for _, t in edges))
    return found


@dataclass
class _Visit:
    """A packet that passed a block, the values it computed, and the step of the block's terminator."""

    spec: Spec
    values: Mapping[str, int]
    step: TraceStep
    before: tuple[Spec, ...]  # packets before it that made entries


class Search:
    """Sends packets to a reference and aims at outcomes that were never taken."""

    def __init__(self, program: Program, choices: Choices, options: Options, *, retells: bool = False) -> None:
        self.program, self.retells = program, retells
        self.choices = choices
        self.traffic = Traffic(program, choices)
        self.engine = Reference(program, options)
        self.coverage = Coverage(edges_of(program))
        self.solver = Solver(self.traffic.harvest, choices)
        self.visits: dict[str, deque[_Visit]] = {}
        self.tries: dict[Edge, int] = {}
        self.behind = _behind(program)
        self.sent: list[Packet] = []
        self.useful = 0
        self.makers: deque[Spec] = deque(maxlen=MAX_RETOLD)

    def step(self, budget: int) -> None:
        """Send one packet, or those that aim at one outcome."""
        open_edges = [e for e in self.coverage.missed if e[0] in self.visits and self.tries.get(e, 0) < MAX_TRIES]
        if not open_edges or self.choices.chance(30):
            self.send(self.traffic.spec())
            return
        edge = self.choices.pick(open_edges) if self.choices.chance(25) else max(open_edges, key=self.worth)
        self.tries[edge] = self.tries.get(edge, 0) + 1
        # What aims at a table's contents fails while it holds none: later tries are worth more again.
        if len(self.sent) % 200 < 2:
            self.tries = {e: n // 2 for e, n in self.tries.items()}
        for spec in self.aimed(edge):
            if len(self.sent) >= budget or edge in self.coverage.taken:
                return
            self.send(spec, soon=True)

    def worth(self, edge: Edge) -> float:
        """How much an outcome promises: what lies behind it and was never taken, less after every failed try."""
        return (1 + len(self.behind[edge] - self.coverage.taken)) / (1 + self.tries.get(edge, 0)) ** 2

    def send(self, spec: Spec, *, soon: bool = False) -> None:
        packet = self.traffic.send(spec, soon=soon)
        trace: list[TraceStep] = []
        events = self.engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, trace)
        self.traffic.observe(packet, events)
        self.sent.append(packet)
        index = len(self.sent) - 1
        own = [s for s in trace if s.index == index]
        values = {r.name: v for s in own if (r := result_of(s.node)) is not None  # type: ignore[arg-type]
                  and isinstance(v := s.detail.get("result"), int)}
        for s in own:
            if isinstance(s.node, Terminator):
                visits = self.visits.setdefault(s.block, deque(maxlen=MAX_VISITS))
                # One that is given as plain bytes cannot be changed field by field: it only stands in for a better one.
                if not visits or (spec.raw_above is None and spec.raw is None and spec.quoted_raw is None):
                    visits.append(_Visit(spec, values, s, tuple(self.makers)))
        if spec.raw_above is None and any(isinstance(s.node, nodes.Insert) and s.outcome == "ok" for s in own):
            self.makers.append(spec)
        self.saw(spec, own)
        if self.coverage.add(trace):
            self.useful = len(self.sent)
            if spec.raw is None:
                self.traffic.corpus.append(spec)

    def saw(self, spec: Spec, own: Sequence[TraceStep]) -> None:
        """What a packet did by itself; for searches that look for more than outcomes."""

    def aimed(self, edge: Edge) -> Iterator[Spec]:
        """Packets that may take an outcome of a block that was reached."""
        visit = self.choices.pick(list(self.visits[edge[0]]))
        made = False
        for spec in _AIMS[type(visit.step.node)](self, visit, edge[1]):
            made = True
            yield spec
        if not made:
            # Nothing in the packet decides this: what the tables hold does. Others about the same flow may change it.
            if self.retells and self.choices.chance(50):
                yield from self.retold(visit, self.choices.pick(tuple(NUMBERS.values())))
            yield self.traffic.answer() or self.traffic.spec()
            yield self.traffic.again() or self.traffic.spec()
            yield visit.spec.copy()

    def changed(self, spec: Spec, wish: Wish) -> Spec:
        """An earlier packet with fields changed, and mostly without what was wrong with it."""
        found = spec.copy()
        if self.choices.chance(80):
            found.flaws.clear()
        for (header, name), value in wish.items():
            if found.raw is not None and header not in ("eth", "vlan", "meta", "ipv4", "ipv6"):
                found.raw = found.fragment = None
            if (header, name) == ("meta", "port"):
                found.port = value % self.traffic.ports
            elif (header, name) == ("meta", "size"):
                resize(found, min(value, 1 << 20))
            else:
                retarget(found, header, name, value)
        return found

    def retold(self, visit: _Visit, protocol: int) -> Iterator[Spec]:
        """The packets that made entries before a visit, and its own, all of another protocol, in tables that are empty
        again: where entries of one protocol led there, so may those of another.
        """
        self.traffic.outlive()
        for spec in (*visit.before, visit.spec):
            wish: Wish = {(spec.ip, "next" if spec.ip == "ipv6" else "proto"): protocol}
            if protocol == NUMBERS["tcp"]:
                wish["tcp", "flags"] = _SYN
            yield self.changed(spec, wish)
        for _ in range(MAX_ANSWERS):
            yield self.traffic.answer() or self.traffic.spec()

    def wished(self, visit: _Visit, wishes: list[Wish]) -> Iterator[Spec]:
        for wish in wishes[:MAX_WISHES]:
            yield self.changed(visit.spec, wish)

    # One aim per kind of decision.

    def at_branch(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        node = visit.step.node
        assert isinstance(node, nodes.Branch)
        yield from self.wished(visit, self.solver.wishes(node.condition, int(outcome == "true"), visit.values))

    def at_switch(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        node = visit.step.node
        assert isinstance(node, nodes.Switch)
        if outcome != "default":
            yield from self.wished(visit, self.solver.wishes(node.value, int(outcome), visit.values))
            return
        cases = {v for v, _ in node.cases}
        limit = 1 << bits_of(node.value.type)
        others = [v % limit for c in cases for v in (c + 1, c - 1) if v % limit not in cases] or [limit - 1]
        yield from self.wished(visit, self.solver.wishes(node.value, self.choices.pick(others), visit.values))

    def at_lookup(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        node = visit.step.node
        assert isinstance(node, nodes.Lookup)
        if outcome == "miss":
            yield self.scattered(visit, node.operands)
            return
        keys = list(self.present_keys(node))
        for _ in range(min(3, len(keys))):
            yield from self.wished(visit, self.solver.all_of(
                list(zip(node.operands, self.choices.pick(keys), strict=True)), visit.values)[:2])

    def present_keys(self, node: nodes.Lookup) -> Iterator[tuple[int, ...]]:
        """Operands that hit now."""
        state = self.program.state(node.state)
        if isinstance(state, nodes.AclState):
            for entry in state.entries:
                yield tuple(first for first, _ in entry.match)
        elif isinstance(state, nodes.LpmState):
            for prefix in state.entries:
                yield (prefix.value,)
        elif isinstance(state, nodes.MapState):
            key = state.key(node.key)
            assert key is not None, "verified programs name keys that exist"
            entries = self.engine.state()[node.state]["entries"]
            assert isinstance(entries, list)
            for entry in entries:
                yield tuple(entry["fields"][f] for f in key.fields)

    def scattered(self, visit: _Visit, operands: Sequence[Value]) -> Spec:
        """The packet with a key of its own."""
        pairs = [(o, self.choices.integer(0, (1 << bits_of(o.type)) - 1)) for o in operands if self.choices.chance(70)]
        wishes = self.solver.all_of(pairs, visit.values) if pairs else []
        return self.changed(visit.spec, wishes[0] if wishes else {})

    def at_insert(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        node = visit.step.node
        assert isinstance(node, nodes.Insert)
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MapState)
        if outcome == "ok":
            yield self.scattered(visit, node.values)
            return
        yield visit.spec.copy()
        for _ in range(_flood(state.capacity)):
            yield self.scattered(visit, node.values)
        # Other packets may fill the table, too.
        others = [v for visits in self.visits.values() for v in visits
                  if isinstance(v.step.node, nodes.Insert) and v.step.node.state == node.state]
        for _ in range(_flood(state.capacity)):
            other = self.choices.pick(others)
            assert isinstance(other.step.node, nodes.Insert), "they were picked so"
            yield self.scattered(other, [self.choices.pick(other.step.node.values)])
        yield visit.spec.copy()

    def at_police(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        node = visit.step.node
        assert isinstance(node, nodes.Police)
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MeterState)
        if outcome == "full":
            for _ in range(_flood(state.capacity)):
                yield self.scattered(visit, node.operands)
        elif outcome == "green":
            yield from self.wished(visit, self.solver.wishes(node.size, 0, visit.values)[:1])
            yield self.scattered(visit, node.operands)
        else:
            for size in (min(state.burst + 1, 1 << 31), 1514):
                yield from self.wished(visit, self.solver.wishes(node.size, size, visit.values)[:1])
            for _ in range(4):
                yield visit.spec.copy()

    def at_extract(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        """Make the header missing, cut off or wrong."""
        node = visit.step.node
        assert isinstance(node, nodes.Extract)
        for wish, flaws in self.spoilers(node, outcome, visit.spec):
            spec = self.changed(visit.spec, wish)
            spec.flaws = flaws
            if outcome == "source_route":
                spec.options = b"\x83\x03\x04\0"
            yield spec

    def spoilers(self, node: nodes.Extract, outcome: str, spec: Spec) -> list[tuple[Wish, dict[str, int]]]:
        """Changes and flaws that may make an extraction end so."""
        if outcome == "unparsed":
            return [({}, {"cut": c}) for c in self.cuts(node.header, spec)] + [({("eth", "tags"): 16}, {})]
        if outcome == "malformed":
            return _malformations(node.header, len(upper_bytes(spec)))
        if outcome == "bad_checksum":
            return [({}, {"ip_sum": 1})]
        if outcome in ("absent", "ok"):
            return [({("eth", "tags"): int(outcome == "ok")} if node.header == "vlan" else {}, {})]
        return [({}, {})]

    def cuts(self, header: str, spec: Spec) -> list[int]:
        """Captured lengths that end inside a header."""
        layer = 14 + 4 * len(spec.tags)
        if header == "eth":
            return [13, 15]
        if header in ("arp", "ipv4", "ipv6"):
            return [layer + self.choices.integer(0, 27), layer + 22]
        whole, _ = build(replace(spec, flaws={}))
        upper = len(whole) - len(upper_bytes(spec))
        if not header.startswith(QUOTED):
            return [upper + self.choices.integer(0, 7)]
        inner = {IPV4: 20, IPV6: 40}.get(spec.ethertype, 0)
        behind = 0 if header in ("quoted.ipv4", "quoted.ipv6") else inner
        return [upper + 8 + behind + self.choices.integer(0, 7)]

    def at_header(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        """A test whether a header was extracted: another protocol."""
        node = visit.step.node
        assert isinstance(node, nodes.HasHeader)
        prefix = QUOTED if node.header.startswith(QUOTED) else ""
        kind = node.header.removeprefix(QUOTED)
        alike = ("tcp", "udp") if kind == "l4" else (kind,)
        if self.retells and outcome == "present" and kind in NUMBERS and not prefix and self.choices.chance(50):
            yield from self.retold(visit, NUMBERS[kind])
        for name, number in NUMBERS.items():
            if (name in alike) == (outcome == "present"):
                yield self.changed(visit.spec, {(prefix + visit.spec.ip, "proto"): number})
        yield self.traffic.again() or self.traffic.spec()

    def at_fragment(self, visit: _Visit, outcome: str) -> Iterator[Spec]:
        whole = replace(visit.spec.copy(), raw=None, fragment=None, payload=bytes(160), flaws={})
        if outcome == "tiny":
            whole.upper = NUMBERS["tcp"]
        if outcome == "whole":
            yield whole
            return
        octets = upper_bytes(whole)
        ident = self.choices.integer(0, 0xFFFF)
        if outcome == "full":
            node = visit.step.node
            assert isinstance(node, nodes.TrackFragment), "only trackers are full"
            state = self.program.state(node.state)
            assert isinstance(state, nodes.FragmentState)
            for other in range(_flood(state.capacity)):
                yield self.traffic.piece(whole, octets, 24, 32, (ident + other) & 0xFFFF)
            return
        if outcome == "overlap":
            # A last fragment that ends before a byte that was received.
            yield self.traffic.piece(whole, octets, 80, 88, ident ^ 1)
            yield self.traffic.piece(whole, octets[:64], 56, 64, ident ^ 1)
        for first, past in _FRAGMENTS.get(outcome, ((0, 24), (24, len(octets)))):
            yield self.traffic.piece(whole, octets, first, past, ident)


# Ranges of one datagram, sent in this order, that make the tracker answer so.
_FRAGMENTS: dict[str, tuple[tuple[int, int], ...]] = {
    "hold": ((24, 32),), "malformed": ((24, 31),), "tiny": ((0, 8), (8, 16)),
    "overlap": ((24, 40), (32, 48)), "duplicate": ((24, 32), (24, 32)),
    "dead": ((24, 40), (32, 48), (64, 72)), "too_many": tuple((8 * i, 8 * i + 8) for i in range(3, 20)),
}


def _flood(capacity: int) -> int:
    """How many new keys to send to a table that should be full; none where that would take too many packets."""
    return capacity + 1 if capacity <= MAX_FLOOD else 0


def _malformations(header: str, upper: int) -> list[tuple[Wish, dict[str, int]]]:
    """Changes that make a header malformed; ``upper`` is the length of what the IP header carries."""
    found: list[tuple[Wish, dict[str, int]]] = []
    if header == "eth":
        return [({}, {"wirelen": 12})]
    if header in ("arp", "ipv4", "ipv6"):
        found += [({}, {"wirelen": w}) for w in (16, 30, 37)]
        return found if header == "arp" else [*found, ({(header, "version"): 5}, {})]
    if header in ("quoted.ipv4", "quoted.ipv6"):
        found.append(({(header, "version"): 5}, {}))
    if header.startswith(QUOTED):
        found += [({}, {"length": -(upper - n)}) for n in (10, 30, 34, 50, 54) if n < upper]
    else:
        found += [({}, {"length": -(upper - n)}) for n in (0, 7) if n <= upper]
        found.append(({}, {"udp_length": -1000}))
    return found


class Solver:
    """Works out which packet fields make a value what is wanted, backwards through the program's instructions."""

    def __init__(self, harvest: Harvest, choices: Choices) -> None:
        self.definitions = harvest.definitions
        self.harvest = harvest
        self.choices = choices

    def wishes(self, value: Value, wanted: int, values: Mapping[str, int], depth: int = 12) -> list[Wish]:
        """Alternative changes after which ``value`` may be ``wanted``; ``values`` are those of the packet to change."""
        known = self.harvest.constant(value)
        if known is not None:
            return [{}] if known == wanted else []
        node = self.definitions.get(value.name)
        solve = _SOLVERS.get(type(node))
        if depth == 0 or solve is None:
            return [{}] if values.get(value.name) == wanted else []
        return solve(self, node, wanted, values, depth - 1)[:MAX_WISHES]

    def all_of(self, pairs: Sequence[tuple[Value, int]], values: Mapping[str, int], depth: int = 12) -> list[Wish]:
        """Changes after which every value is what is wanted."""
        found: list[Wish] = [{}]
        for value, wanted in pairs:
            more = self.wishes(value, wanted, values, depth)
            found = [{**a, **b} for a in found for b in more
                     if all(a[k] == b[k] for k in a.keys() & b.keys())][:MAX_WISHES]
        return found

    def load(self, node: nodes.Load, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        return [{(node.header, node.field): wanted}]

    def meta(self, node: nodes.Meta, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        return [] if node.what == "time" else [{("meta", node.what): wanted}]

    def cast(self, node: nodes.Cast, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        limit = 2 if node.operand.type == BOOL else 1 << bits_of(node.operand.type)
        if node.result.type == BOOL:
            tries = [1, limit - 1] if wanted else [0]
        else:
            tries = [wanted] if wanted < limit else []
        return [w for t in tries for w in self.wishes(node.operand, t, values, depth)]

    def unary(self, node: nodes.Unary, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        mask = (1 << bits_of(node.result.type)) - 1
        return self.wishes(node.operand, wanted ^ mask, values, depth)

    def select(self, node: nodes.Select, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        return [*self.all_of([(node.condition, 1), (node.if_true, wanted)], values, depth),
                *self.all_of([(node.condition, 0), (node.if_false, wanted)], values, depth)]

    def compare(self, node: nodes.Compare, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        op = node.op if wanted else _OPPOSITE[node.op]
        limit = 1 << bits_of(node.left.type)
        found: list[Wish] = []
        for moved, fixed, toward in ((node.left, node.right, op), (node.right, node.left, _MIRRORED[op])):
            base = values.get(fixed.name)
            if base is None:
                continue
            for target in _satisfying(toward, base, limit):
                found += self.wishes(moved, target, values, depth)
        return found

    def binary(self, node: nodes.Binary, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        if node.result.type == BOOL:
            return self.boolean(node, wanted, values, depth)
        limit = 1 << bits_of(node.result.type)
        found: list[Wish] = []
        left, right = values.get(node.left.name), values.get(node.right.name)
        if right is not None:
            for target in _operand(node.op, wanted, right, left or 0, limit):
                found += self.wishes(node.left, target, values, depth)
        if left is not None and node.op in ("add", "and", "or", "xor", "mul", "min", "max"):
            for target in _operand(node.op, wanted, left, right or 0, limit):
                found += self.wishes(node.right, target, values, depth)
        return found

    def boolean(self, node: nodes.Binary, wanted: int, values: Mapping[str, int], depth: int) -> list[Wish]:
        sides = {"and": [(1, 1)] if wanted else [(0, None), (None, 0)],
                 "or": [(1, None), (None, 1)] if wanted else [(0, 0)],
                 "xor": [(0, 1), (1, 0)] if wanted else [(0, 0), (1, 1)]}[node.op]
        found = []
        for a, b in sides:
            pairs = [(v, t) for v, t in ((node.left, a), (node.right, b)) if t is not None]
            found += self.all_of(pairs, values, depth)
        return found


def _satisfying(op: str, base: int, limit: int) -> list[int]:
    """Values x with ``x op base``, the nearest ones first."""
    near = {"eq": [base], "ne": [base + 1, base - 1], "lt": [base - 1, 0], "le": [base, 0], "gt": [base + 1, limit - 1],
            "ge": [base, limit - 1]}[op]
    tests: dict[str, Callable[[int], bool]] = {
        "eq": lambda x: x == base, "ne": lambda x: x != base, "lt": lambda x: x < base, "le": lambda x: x <= base,
        "gt": lambda x: x > base, "ge": lambda x: x >= base}
    return [x for x in dict.fromkeys(near) if 0 <= x < limit and tests[op](x)]


def _operand(op: str, wanted: int, other: int, now: int, limit: int) -> list[int]:
    """Values of one operand that may give the wanted result with the other one as it is; ``now`` is its value."""
    width = limit.bit_length() - 1
    match op:
        case "add":
            found = [wanted - other]
        case "sub":
            found = [wanted + other]
        case "xor":
            found = [wanted ^ other]
        case "and":
            found = [(now & ~other) | wanted]
        case "or":
            found = [wanted & ~other, wanted]
        case "mul":
            found = [wanted // other] if other and wanted % other == 0 else []
        case "div":
            found = [wanted * other] if wanted * other < limit else []
        case "shl":
            found = [wanted >> other] if other < width else []
        case "shr":
            found = [wanted << other] if other < width else []
        case _:
            found = [wanted]
    return [x % limit for x in found]


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_Solve = Callable[[Solver, object, int, Mapping[str, int], int], list[Wish]]
_SOLVERS: dict[type, _Solve] = {
    nodes.Load: Solver.load, nodes.Meta: Solver.meta, nodes.Cast: Solver.cast, nodes.Unary: Solver.unary,  # type: ignore[dict-item]
    nodes.Select: Solver.select, nodes.Compare: Solver.compare, nodes.Binary: Solver.binary,  # type: ignore[dict-item]
}
_AIMS: dict[type, Callable[[Search, _Visit, str], Iterator[Spec]]] = {
    nodes.Branch: Search.at_branch, nodes.Switch: Search.at_switch, nodes.Lookup: Search.at_lookup,
    nodes.Insert: Search.at_insert, nodes.Police: Search.at_police, nodes.Extract: Search.at_extract,
    nodes.TrackFragment: Search.at_fragment, nodes.IsFragment: Search.at_fragment,
    nodes.HasHeader: Search.at_header,
}
