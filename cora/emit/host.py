"""The host dialect: programs as C for this machine, run over batches of captured packets (cora/emit/runtime/driver.h).

The program becomes two functions. `cora_program_prefix` runs each packet of a batch up to its first access to a table:
it depends on the packet alone, so it may run before earlier packets have had their effects. `cora_program_finish` goes
on from there, packet by packet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from cora.analysis.liveness import Liveness, liveness_of
from cora.emit.body import Body, choice, line_comment, needed_values, results_of, select_case
from cora.emit.dialect import Dialect, Lines
from cora.emit.host_common import arguments
from cora.emit.host_map import HostMap, check_pool, wanted_index
from cora.emit.host_meter import HostMeter
from cora.emit.host_static import HostStatic
from cora.emit.layout import config_row, map_row, meter_row
from cora.emit.names import comment, literal, value_type
from cora.errors import Kind, fail
from cora.ir import nodes
from cora.ir.nodes import (
    AclState,
    Block,
    CounterState,
    Delete,
    FragmentState,
    Insert,
    LpmState,
    MapState,
    MeterState,
    PoolState,
    Program,
    Value,
    reasons_of,
    successors,
)
from cora.ir.types import EntryRef

_TRACK_OUTCOMES = {o: f"CORA_TRACK_{o.upper()}" for o in nodes.FRAGMENT_OUTCOMES}
_VERDICTS = 0x7FFF


class HostDialect(Dialect):
    """Tables in process memory; entry references are entry numbers."""

    def __init__(self, program: Program) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the engine does not take."""
        super().__init__(program)
        self.liveness = liveness_of(program)
        self.needed = needed_values(program)
        self.reasons = reasons_of(program)
        pools = {s.name: s for s in program.states if isinstance(s, PoolState)}
        stale = maps_with_stale_references(program, self.liveness)
        self.maps: dict[str, HostMap] = {}
        self.meters: dict[str, HostMeter] = {}
        self.statics: dict[str, HostStatic] = {}
        for state in program.states:
            if isinstance(state, MapState):
                self.maps[state.name] = HostMap(state, self.names, pools, checked=state.name in stale)
            elif isinstance(state, MeterState):
                self.meters[state.name] = HostMeter(state, self.names)
            elif isinstance(state, AclState | LpmState):
                self.statics[state.name] = HostStatic(state, self.names)
        for pool in pools.values():
            check_pool(pool)
        if len(self.reasons) >= _VERDICTS or len(program.ports) >= _VERDICTS:
            raise fail(Kind.ENGINE_LIMIT, f"more than {_VERDICTS} ports or drop reasons", span=program.span)
        self.trackers = [s.name for s in program.states if isinstance(s, FragmentState)]

    def reference_type(self, state: str) -> str:
        return "uint64_t" if state in self.maps and self.maps[state].checked else "uint32_t"

    def config(self, name: str) -> str:
        return f"E->config.{self.names.config(name)}"

    def meta(self, node: nodes.Meta) -> str:
        return {"time": "p->now", "size": "p->wirelen", "port": "p->port"}[node.what]

    def _map_of(self, entry: Value) -> HostMap:
        assert isinstance(entry.type, EntryRef)
        return self.maps[entry.type.state]

    def load_entry(self, node: nodes.LoadEntry) -> str:
        assert isinstance(node.entry.type, EntryRef)
        reference = self.use(node.entry)
        if node.entry.type.state in self.statics:
            return self.statics[node.entry.type.state].value(node.field, reference)
        table = self._map_of(node.entry)
        read = f"{table.entry(reference)}.{table.field_names[node.field]}"
        if not table.checked:
            return read
        return f"{table.table}_alive(E, {reference}) ? {read} : {literal(0, node.result.type)}"

    def _if_alive(self, table: HostMap, reference: str, lines: Lines) -> Lines:
        if not table.checked:
            return lines
        return [f"if ({table.table}_alive(E, {reference})) {{", *(f"    {line}" for line in lines), "}"]

    def store_entry(self, node: nodes.StoreEntry) -> Lines:
        table, reference = self._map_of(node.entry), self.use(node.entry)
        place, value = f"{table.entry(reference)}.{table.field_names[node.field]}", self.use(node.value)
        at = f"(uint32_t){reference}" if table.checked else reference
        return self._if_alive(table, reference, [
            f"CORA_IF_PROFILE(if ({place} != {value}) cora_profile_change(&E->{table.table}.profile, &E->core, {at});)",
            f"{place} = {value};",
            f"CORA_IF_PROFILE(E->{table.table}.profile.events[CORA_STORED]++;)"])

    def touch(self, node: nodes.Touch) -> Lines:
        table, reference = self._map_of(node.entry), self.use(node.entry)
        at = f"(uint32_t){reference}" if table.checked else reference
        return self._if_alive(table, reference, [
            f"{table.table}_touch(E, {at}, p->now, {_class_number(table.state, node.timeout)});"])

    def delete(self, node: nodes.Delete) -> Lines:
        table, reference = self._map_of(node.entry), self.use(node.entry)
        at = f"(uint32_t){reference}" if table.checked else reference
        return self._if_alive(table, reference, [
            f"CORA_IF_PROFILE(E->{table.table}.profile.events[CORA_DELETED]++;)",
            f"{table.table}_remove(E, {at});"])

    def count(self, node: nodes.Count) -> Lines:
        state = self.program.state(node.counter)
        assert isinstance(state, CounterState)
        counter = f"E->{self.names.state(state.name)}"
        index = self.use(node.index) if node.index is not None else "0"
        amount = self.use(node.amount) if node.amount is not None else "p->wirelen"
        lines = [f"{counter}[{index}].packets++;", f"{counter}[{index}].octets += {amount};"]
        fixed = 0 if node.index is None else self.known(node.index)
        if fixed is not None:
            return lines if fixed < state.size else []
        return [f"if ({index} < {state.size}ull) {{", *(f"    {line}" for line in lines), "}"]

    # Table accesses. The hash of the key is in `hash`.

    def pool_life(self, name: str, made: str) -> tuple[Lines, Lines]:
        """Statements that make (with the call ``made``) and unmake a pool."""
        return [f"    {made}"], [f"    cora_pool_close(&E->{name});"]

    def access_hash(self, node: nodes.Lookup | nodes.Insert | nodes.Police) -> str | None:
        if node.state in self.statics:
            return None
        table = self.names.state(node.state)
        number, operands = self.access_key(node)
        return None if operands is None else f"{table}_hash_{number}(E{arguments([self.use(o) for o in operands])})"

    def access_key(self, node: nodes.Lookup | nodes.Insert | nodes.Police) -> tuple[int, list[Value] | None]:
        """The number of the key an access starts with, and its operands; None when they are not all known yet."""
        if isinstance(node, nodes.Police):
            return 0, list(node.operands)
        table = self.maps[node.state]
        if isinstance(node, nodes.Lookup):
            return table.key_number(node.key), list(node.operands)
        given = dict(zip((f.name for f in table.given_fields()), node.values, strict=True))
        fields = table.state.keys[0].fields
        return 0, [given[f] for f in fields] if all(f in given for f in fields) else None

    def lookup(self, node: nodes.Lookup, goto: dict[str, str]) -> Lines:
        operands = arguments([self.use(o) for o in node.operands])
        if node.state in self.statics:
            call = f"{self.statics[node.state].table}_lookup(E{operands})"
        else:
            table = self.maps[node.state]
            call = f"{table.table}_lookup_{table.key_number(node.key)}(E, hash{operands})"
        return self._found(call, node, goto["hit"], goto["miss"])

    def _found(self, call: str, node: nodes.Lookup | nodes.Insert, hit: str, miss: str) -> Lines:
        """Takes the entry number a call gives, and branches on whether there is one."""
        if node.entry not in self.needed:
            return choice(f"{call} != CORA_NONE", hit, miss)
        entry = self.names.value(node.entry)
        table = self.maps.get(node.state)
        if table is None or not table.checked:
            return [f"{entry} = {call};", *choice(f"{entry} != CORA_NONE", hit, miss)]
        return ["{", f"    uint32_t at = {call};", "    if (at == CORA_NONE)", f"        {miss}",
                f"    {entry} = {table.reference('at')};", f"    {hit}", "}"]

    def insert(self, node: nodes.Insert, goto: dict[str, str]) -> Lines:
        table = self.maps[node.state]
        wishes = [wanted_index(table.pools[a.pool], [self.use(v) for v in wish]) if wish else "CORA_NEVER"
                  for a, wish in zip(table.state.allocs, node.prefer, strict=True)]
        given = arguments([*(self.use(v) for v in node.values), *wishes])
        number = _class_number(table.state, node.timeout)
        call = f"{table.table}_insert(E, hash, p->now, {number}{given})"
        return self._found(call, node, goto["ok"], goto["full"])

    def police(self, node: nodes.Police, goto: dict[str, str]) -> Lines:
        operands = arguments([self.use(o) for o in node.operands])
        call = f"{self.meters[node.state].table}_police(E, hash, p->now{operands}, {self.use(node.size)})"
        return select_case(call, [(f"CORA_COLOUR_{o.upper()}", goto[o]) for o, _ in successors(node)])

    def track(self, node: nodes.TrackFragment, goto: dict[str, str]) -> Lines:
        tracker = f"E->trackers[{self.trackers.index(node.state)}]"
        call = f"cora_track(&E->core, &{tracker}, p, {str(node.header == 'ipv6').lower()})"
        return ["if (cora_tracks_trivially(p))", f"    {goto['ok']}",
                *select_case(call, [(_TRACK_OUTCOMES[o], goto[o]) for o, _ in node.outcomes])]

    def leave(self, node: nodes.Forward | nodes.Drop | nodes.Reject | nodes.Hold) -> Lines:
        match node:
            case nodes.Forward():
                return [f"CORA_END({self.program.port_index(node.port)}); /* forward {comment(node.port)} */"]
            case nodes.Hold():
                return ["CORA_END(CORA_HELD);"]
        drop = f"CORA_END(CORA_DROP | {self.reasons.index(node.reason)}); /* {comment(node.reason)} */"
        if isinstance(node, nodes.Drop):
            return [drop]
        family = 4 if node.header == "ipv4" else 6
        reject = f"{{{self.use(node.source)}, {family}, {node.icmp_type}, {node.icmp_code}}}"
        return [f"p->reject = (struct cora_reject){reject};", drop]


def _class_number(state: MapState, name: str) -> int:
    return next((i for i, t in enumerate(state.timeouts) if t.name == name), 0)


def maps_with_stale_references(program: Program, liveness: Liveness) -> frozenset[str]:
    """Maps with an entry that can be removed while the program still holds a reference to it."""
    maps = {s.name: s for s in program.states if isinstance(s, MapState)}
    found: set[str] = set()
    for block in program.blocks:
        for i, node in enumerate(block.instructions):
            if isinstance(node, Delete) and isinstance(node.entry.type, EntryRef):
                found |= _states(liveness.before(block, i + 1) - {node.entry}) & {node.entry.type.state}
        end = block.terminator
        if isinstance(end, Insert) and maps[end.state].full == "evict_lru":
            live = frozenset().union(*(liveness.on_edge(block, t) for _, t in successors(end)))
            found |= _states(live - {end.entry}) & {end.state}
    return frozenset(found)


def _states(values: Iterable[Value]) -> set[str]:
    return {v.type.state for v in values if isinstance(v.type, EntryRef)}


@dataclass(frozen=True)
class ResumePoint:
    """Where the prefix stops: before the terminator of a block, with these values alive."""

    number: int
    block: Block
    live: tuple[Value, ...]


class HostProgram:
    """The C text of one program."""

    def __init__(self, program: Program, dialect: HostDialect | None = None) -> None:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the engine does not take."""
        self.program = program
        self.dialect = HostDialect(program) if dialect is None else dialect
        self.body = Body(program, self.dialect)
        if self.body.paths.count >= 1 << 64:
            raise fail(Kind.ENGINE_LIMIT, f"64 bits cannot number the {self.body.paths.count} paths of the program",
                       span=program.span, hint="branch less often in a row: combine conditions with 'and' and 'or'")
        self.prefix, stops = self._split()
        self.points = [self._point(i + 1, b) for i, b in enumerate(stops)]
        self.finish = self._reachable({t for b in stops for _, t in successors(b.terminator)})

    def _stops(self, block: Block) -> bool:
        node = block.terminator
        if isinstance(node, nodes.Lookup):
            return node.state in self.dialect.maps
        return isinstance(node, nodes.Insert | nodes.Police | nodes.TrackFragment)

    def _split(self) -> tuple[list[Block], list[Block]]:
        """Blocks that are entered before any table access, and those among them that end in one."""
        labels = {self.program.blocks[0].label}
        prefix, stops = [], []
        for block in self.program.blocks:
            if block.label not in labels:
                continue
            prefix.append(block)
            if not self._stops(block):
                labels.update(t for _, t in successors(block.terminator))
                continue
            stops.append(block)
            # A packet that is no fragment goes on without a look at the tracker.
            if isinstance(block.terminator, nodes.TrackFragment):
                labels.add(dict(block.terminator.outcomes)["ok"])
        return prefix, stops

    def _reachable(self, labels: set[str]) -> list[Block]:
        out = []
        for block in self.program.blocks:
            if block.label in labels:
                out.append(block)
                labels.update(t for _, t in successors(block.terminator))
        return out

    def _point(self, number: int, block: Block) -> ResumePoint:
        live = self.dialect.liveness.before(block, len(block.instructions)) & self.body.needed
        return ResumePoint(number, block, tuple(sorted(live, key=lambda v: v.name)))

    def prefix_function(self) -> Lines:
        points = {p.block.label: p for p in self.points}
        out = ["static void cora_program_prefix(struct cora_engine *E, struct cora_packet *p)", "{",
               *self._locals(self._prefix_values()), "    CORA_IF_PROFILE(uint64_t path = 0;)", "    (void)E;"]
        for block in self.prefix:
            out += self._labelled(block, self.prefix)
            point = points.get(block.label)
            lines = self.body.terminator(block) if point is None else self._stop(point)
            out += _indented(lines)
        return [*out, "}"]

    def _stop(self, point: ResumePoint) -> Lines:
        node = point.block.terminator
        out: Lines = []
        if isinstance(node, nodes.TrackFragment):
            out += ["if (cora_tracks_trivially(p))", f"    {self.body.gotos(point.block)['ok']}"]
        else:
            assert isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police)
            hash_ = self.dialect.access_hash(node)
            if hash_ is not None:
                table = f"E->{self.dialect.names.state(node.state)}"
                number, _ = self.dialect.access_key(node)
                out.append(f"cora_prefetch_key(p, &{table}.index_{number}, {hash_}, {table}.entries, "
                           f"sizeof *{table}.entries);")
        out += [f"p->live.{self.dialect.names.value(v)} = {self.dialect.names.value(v)};" for v in point.live]
        return [*out, f"CORA_STOP({point.number});"]

    def finish_function(self) -> Lines:
        out = ["static void cora_program_finish(struct cora_engine *E, struct cora_packet *p)", "{",
               *self._locals(self._finish_values()),
               "    uint64_t hash = p->hash;", "    CORA_IF_PROFILE(uint64_t path = p->path;)",
               "    (void)E, (void)hash;",
               *_indented(self._resume())]
        points = {p.block.label: p for p in self.points}
        entered = {b.label for b in self.finish}
        for block in self.program.blocks:
            if block.label in entered or block.label in points:
                out += self._rest(block, points.get(block.label), entered=block.label in entered)
        return [*out, "}"]

    def _resume(self) -> Lines:
        """Goes on where the prefix stopped, with its values."""
        out = ["switch (p->resume) {"]
        for point in self.points:
            names = [self.dialect.names.value(v) for v in point.live]
            out += [f"case {point.number}:", *(f"    {n} = p->live.{n};" for n in names),
                    f"    goto resume_{point.number};"]
        return [*out, "default:", "    return;", "}"]

    def _rest(self, block: Block, point: ResumePoint | None, *, entered: bool) -> Lines:
        """A block in the second function: all of it where it is entered there, else only its terminator."""
        out: Lines = []
        if entered:
            out += [*self._labelled(block, self.finish), *_indented(self._hash(block))]
        if point is not None:
            out.append(f"resume_{point.number}: {'' if entered else line_comment(block)}".rstrip())
        return out + _indented(self.body.terminator(block))

    def _hash(self, block: Block) -> Lines:
        node = block.terminator
        if not isinstance(node, nodes.Lookup | nodes.Insert | nodes.Police):
            return []
        hash_ = self.dialect.access_hash(node)
        return [] if hash_ is None else [f"hash = {hash_};"]

    def _labelled(self, block: Block, among: list[Block]) -> Lines:
        """Label and instructions of a block; the label only where something among these blocks goes there."""
        targets = self._finish_targets if among is self.finish else self._prefix_targets
        head = line_comment(block)
        label = f"{self.dialect.names.block(block.label)}: {head}" if block.label in targets else f"    {head}"
        return [label, *_indented(self.body.block(block))]

    @cached_property
    def _prefix_targets(self) -> set[str]:
        return {t for b in self.prefix for t in self._left_for(b, self.prefix)}

    @cached_property
    def _finish_targets(self) -> set[str]:
        blocks = (*self.finish, *(p.block for p in self.points))
        return {t for b in blocks for _, t in successors(b.terminator)}

    def _left_for(self, block: Block, among: list[Block]) -> list[str]:
        """Labels that a block's statements go to in one of the two functions."""
        if among is self.finish or not self._stops(block):
            return [t for _, t in successors(block.terminator)]
        node = block.terminator
        return [dict(node.outcomes)["ok"]] if isinstance(node, nodes.TrackFragment) else []

    def _prefix_values(self) -> list[Value]:
        """Values defined in the first part."""
        out: list[Value] = []
        for block in self.prefix:
            out += results_of(block)
            if isinstance(block.terminator, nodes.Lookup) and not self._stops(block):
                out.append(block.terminator.entry)
        return out

    def _finish_values(self) -> list[Value]:
        """Values defined in the rest, or handed over to it."""
        out = [v for p in self.points for v in p.live]
        for block in self.finish:
            out += results_of(block)
        for block in (*self.finish, *(p.block for p in self.points)):
            if isinstance(block.terminator, nodes.Lookup | nodes.Insert):
                out.append(block.terminator.entry)
        return out

    def _locals(self, values: Iterable[Value]) -> Lines:
        """Declarations, one line for up to eight values of a type."""
        skipped = self.dialect.constants.keys() | self.dialect.configs.keys()
        by_type: dict[str, list[str]] = {}
        for value in dict.fromkeys(values):
            if value in self.body.needed and value not in skipped:
                by_type.setdefault(self.dialect.type_of(value.type), []).append(self.dialect.names.value(value))
        return [f"    CORA_VALUE {type_} {', '.join(names[i:i + 8])};"
                for type_, names in by_type.items() for i in range(0, len(names), 8)]

    def live_structure(self) -> Lines:
        """What a batch keeps for a packet between the two functions."""
        values = sorted({v for p in self.points for v in p.live}, key=lambda v: v.name)
        if not values:
            return []
        members = [f"    {self.dialect.type_of(v.type)} {self.dialect.names.value(v)};" for v in values]
        return ["struct cora_live {", *members, "};", "#define CORA_LIVE_VALUES"]

    def tables(self) -> Iterator[HostMap | HostMeter | HostStatic]:
        """Everything with entries of its own."""
        yield from self.dialect.maps.values()
        yield from self.dialect.meters.values()
        yield from self.dialect.statics.values()

    def row_sizes(self) -> dict[str, int]:
        """Bytes of a dumped row for each map and meter."""
        return {s.name: (map_row(s) if isinstance(s, MapState) else meter_row(s)).size
                for s in self.program.states if isinstance(s, MapState | MeterState)}

    def config_structure(self) -> Lines:
        return config_structure(self.program, self.dialect)

    def config_copies(self) -> Lines:
        return config_copies(self.program, self.dialect)


def config_structure(program: Program, dialect: Dialect) -> Lines:
    """The configuration values as a structure."""
    members = [f"    {value_type(c.type)} {dialect.names.config(c.name)};" for c in program.configs]
    return ["struct cora_config {", *(members or ["    uint8_t none;"]), "};"]


def config_copies(program: Program, dialect: Dialect) -> Lines:
    """Statements that fill the structure from a packed row."""
    return [f"    memcpy(&E->config.{dialect.names.config(f.name)}, config + {f.offset}, {f.size});"
            for f in config_row(program).fields]


def _indented(lines: Lines) -> Lines:
    return [f"    {line}" for line in lines]
