"""Values and steps of a program in words: an address as an address, a protocol by its name, credits in octets."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cora.engine.reference import Sum, TraceStep
from cora.frontends.nf.types import FIELD_TYPES
from cora.ir import nodes
from cora.ir.headers import ETHERTYPE, PROTOCOL, QUOTED
from cora.ir.nodes import FieldDecl, Program, State
from cora.ir.types import BOOL, U8

_PROTOCOLS = {number: name for name, number in PROTOCOL.items()}
_ETHERTYPES = {number: name for name, number in ETHERTYPE.items()}
_BUCKETS = {"token_bucket": ("left",), "srtcm": ("committed", "excess"), "trtcm": ("committed", "peak")}
# A duration this long is a point in time: nanoseconds since 1970 passed it in 1973.
_POINT_IN_TIME = 10**17
_UNITS = ((3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (10**3, "us"))


def duration(nanoseconds: int) -> str:
    """A length of time, exactly, in the largest unit that makes it whole; a point in time as seconds since 1970."""
    if nanoseconds >= _POINT_IN_TIME:
        return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}"
    for size, unit in _UNITS:
        if nanoseconds >= size and nanoseconds % size == 0:
            return f"{nanoseconds // size} {unit}"
    if nanoseconds >= 10**9:
        return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d} s"
    return f"{nanoseconds} ns"


def _mac(value: int) -> str:
    return value.to_bytes(6, "big").hex(":")


_SHOWN: Mapping[str, Callable[[int], str]] = {
    "ipv4": lambda v: str(ipaddress.IPv4Address(v)), "ipv6": lambda v: str(ipaddress.IPv6Address(v)), "mac": _mac,
    "bool": lambda v: "true" if v else "false", "duration": duration, "octets": lambda v: f"{v:,} octets",
    "protocol": lambda v: _PROTOCOLS.get(v, str(v)), "ethertype": lambda v: _ETHERTYPES.get(v, f"{v:#06x}"),
}


def value(number: int, kind: str) -> str:
    """A number by what it is: a scalar type of the language, ``octets``, ``protocol`` or ``ethertype``."""
    return _SHOWN[kind](number) if kind in _SHOWN else str(number)


def kind_of_field(declared: FieldDecl) -> str:
    """What a field of a table holds: its type in the language; an octet named proto is a protocol number."""
    if declared.type == U8 and declared.name.rpartition(".")[2] in ("proto", "protocol"):
        return "protocol"
    return "bool" if declared.type == BOOL else declared.shown_as


def kind_of_header_field(header: str, field: str) -> str:
    """What a header field holds."""
    name = header.removeprefix(QUOTED)
    if (name, field) in FIELD_TYPES:
        return FIELD_TYPES[name, field].name
    return {("eth", "type"): "ethertype", ("ipv4", "proto"): "protocol", ("ipv6", "proto"): "protocol",
            ("ipv6", "next"): "protocol"}.get((name, field), "")


class Shower:
    """Puts the steps of a traced packet into words."""

    def __init__(self, program: Program) -> None:
        """Learn what the program's values are."""
        self.program = program
        self._fields = {s.name: {f.name: kind_of_field(f) for f in _fields(s)} for s in program.states}
        self._kinds = {r.name: kind for b in program.blocks for node in b.instructions
                       if (r := nodes.result_of(node)) is not None and (kind := self._kind_of_result(node))}
        self._parsing = {b.terminator.span for b in program.blocks if isinstance(b.terminator, nodes.Extract)}

    def _kind_of_result(self, node: nodes.Instruction) -> str:
        match node:
            case nodes.Load():
                return kind_of_header_field(node.header, node.field)
            case nodes.LoadEntry():
                return self._fields.get(getattr(node.entry.type, "state", ""), {}).get(node.field, "")
            case nodes.Meta():
                return {"time": "duration", "size": "octets", "port": "port"}[node.what]
            case _:
                return "bool" if getattr(nodes.result_of(node), "type", None) == BOOL else ""

    def parses(self, step: TraceStep) -> bool:
        """Whether a step only finds headers, and found them."""
        match step.node:
            case nodes.Extract():
                return step.outcome == "ok"
            case nodes.IsFragment():
                return step.outcome == "whole"
            case nodes.Switch():
                return step.span in self._parsing or step.block == self.program.blocks[0].label
            case _:
                return False

    def headers(self, steps: Iterable[TraceStep]) -> str:
        """The line that stands for parsing steps; empty when no header was read in them."""
        read = [s.node.header for s in steps if isinstance(s.node, nodes.Extract)]
        return f"{', '.join(read)}: read" if read else ""

    def step(self, step: TraceStep) -> str:
        """A step in words."""
        node = step.node
        detail: Mapping[str, Any] = step.detail
        match node:
            case nodes.Lookup():
                return self._lookup(node, detail, step.outcome)
            case nodes.Insert():
                return f"insert into {node.state}: " + (self._entry(node.state, detail["entry"])
                                                        if step.outcome == "ok" else "full, no entry is made")
            case nodes.Police():
                return self._police(node, detail, step.outcome)
            case nodes.Store():
                return self._change(f"{node.header}.{node.field}", detail,
                                    kind_of_header_field(node.header, node.field))
            case nodes.StoreEntry():
                state = getattr(node.entry.type, "state", "")
                return self._change(f"{state} entry, {node.field}", detail, self._fields[state].get(node.field, ""))
            case nodes.Touch() | nodes.Delete():
                return self._use(node)
            case nodes.Count():
                index = "" if node.index is None else f"[{detail['index']}]"
                return f"count {node.counter}{index}: 1 packet, {detail['octets']:,} octets more"
            case nodes.Forward():
                return f"forward {node.port}"
            case nodes.Drop():
                return f'drop "{node.reason}"'
            case nodes.Reject():
                return f'reject "{node.reason}"' + ("" if detail["error_sent"] else ", no ICMP error is allowed")
            case _:
                return self._plain(step)

    def _plain(self, step: TraceStep) -> str:
        node, detail = step.node, step.detail
        match node:
            case nodes.Branch():
                return f"-> {step.outcome}"
            case nodes.Switch():
                return f"-> {self._switched(node, detail)}"
            case nodes.HasHeader() | nodes.Extract():
                found = {"ok": "read", "present": "yes", "absent": "no"}.get(step.outcome, step.outcome)
                return f"{node.header}: {found}"
            case nodes.IsFragment():
                return "a fragment" if step.outcome == "fragment" else "not a fragment"
            case nodes.TrackFragment():
                return f"fragment at octet {detail['offset']}: {step.outcome}" if "offset" in detail else "no fragment"
        if isinstance(node, nodes.Terminator):
            return node.mnemonic
        result = nodes.result_of(node)
        return node.mnemonic if result is None else f"{_source(node)} = {self._result(node, result, detail['result'])}"

    def _result(self, node: nodes.Instruction, result: nodes.Value, number: Any) -> str:
        if isinstance(node, nodes.LoadConfig):
            shown = {c.name: c.shown for c in self.program.configs}
            return shown.get(node.config) or str(number)
        return self._value(result, number)

    def _switched(self, node: nodes.Switch, detail: Mapping[str, Any]) -> str:
        return self._value(node.value, detail["value"])

    def _value(self, of: nodes.Value, number: Any) -> str:
        kind = "bool" if of.type == BOOL else self._kinds.get(of.name, "")
        if not isinstance(number, int):
            return str(number)
        if kind == "port" and 0 <= number < len(self.program.ports):
            return self.program.ports[number].name
        return value(number, kind)

    def _lookup(self, node: nodes.Lookup, detail: Mapping[str, Any], outcome: str) -> str:
        state = self.program.state(node.state)
        names = key_names(state, node.key)
        label = f"{node.state}.{node.key}" if isinstance(state, nodes.MapState) and len(state.keys) > 1 else node.state
        head = f"look up {label} ({self._listed(node.state, zip(names, detail['key'], strict=True))})"
        if outcome == "miss":
            return f"{head}: no entry"
        rest = {k: v for k, v in detail["entry"].items() if k not in names} or detail["entry"]
        return f"{head}: hit, {self._entry(node.state, rest)}"

    def _entry(self, state: str, fields: Mapping[str, Any]) -> str:
        return self._listed(state, fields.items()) or "no fields"

    def _listed(self, state: str, items: Iterable[tuple[str, int]]) -> str:
        pairs = list(items)
        short = _without_prefix([name for name, _ in pairs])
        kinds = self._fields.get(state, {})
        return ", ".join(f"{label} {value(number, kinds.get(name, ''))}"
                         for label, (name, number) in zip(short, pairs, strict=True))

    def _police(self, node: nodes.Police, detail: Mapping[str, Any], outcome: str) -> str:
        state = self.program.state(node.state)
        assert isinstance(state, nodes.MeterState), "verified"
        key = self._listed(node.state, zip(key_names(state, ""), detail["key"], strict=True))
        left = "no entry" if detail["credits"] is None else ", ".join(
            f"{credits_shown(c)} {name}" for name, c in zip(_BUCKETS[state.algorithm], detail["credits"], strict=True))
        return f"police {node.state} ({key}) for {detail['size']:,} octets: {outcome}; {left}"

    def _use(self, node: nodes.Touch | nodes.Delete) -> str:
        state = self.program.state(getattr(node.entry.type, "state", ""))
        if isinstance(node, nodes.Delete):
            return f"{state.name} entry: removed"
        limit = next((t.nanoseconds for t in getattr(state, "timeouts", ()) if t.name == node.timeout), None)
        return f"{state.name} entry: used now" + ("" if limit is None else
                                                  f", time-out {node.timeout} {duration(limit)}".replace("  ", " "))

    def _change(self, what: str, detail: Mapping[str, Any], kind: str) -> str:
        old, new = value(detail["old"], kind), value(detail["new"], kind)
        sums = "; ".join(f"{s.name} {s.old:#06x} to {s.new:#06x}" for s in detail.get("checksums", ())
                         if isinstance(s, Sum) and s.old != s.new)
        change = f"stays {new}" if old == new else f"{old} to {new}"
        return f"{what}: {change}" + (f" ({sums})" if sums else "")


def _source(node: nodes.Instruction) -> str:
    """Where a result comes from."""
    match node:
        case nodes.Load():
            return f"{node.header}.{node.field}"
        case nodes.LoadEntry():
            return f"{getattr(node.entry.type, 'state', '')} entry, {node.field}"
        case nodes.LoadConfig():
            return f"config {node.config}"
        case nodes.Meta():
            return f"packet's {node.what}"
        case nodes.Compare() | nodes.Binary() | nodes.Unary():
            return node.op
        case _:
            return node.mnemonic


def credits_shown(credit: int) -> str:
    """Credits of a bucket, which are kept in octets times 10**9, in octets."""
    whole, rest = divmod(credit, 10**9)
    return f"{whole:,} octets" if not rest else f"{whole:,}.{rest // 10**6:03d} octets"


def key_names(state: State, key: str) -> tuple[str, ...]:
    """The fields of a key, in order; ``key`` is empty for tables with one."""
    match state:
        case nodes.MapState():
            found = state.key(key)
            return (found or state.keys[0]).fields
        case nodes.LpmState():
            return (state.key.name,)
        case nodes.AclState():
            return tuple(f.name for f in state.keys)
        case nodes.MeterState():
            return tuple(f.name for f in state.fields)
        case _:
            return ()


def _fields(state: State) -> Iterator[FieldDecl]:
    match state:
        case nodes.MapState() | nodes.MeterState():
            yield from state.fields
        case nodes.AclState():
            yield from (*state.keys, *state.values)
        case nodes.LpmState():
            yield from (state.key, *state.values)
        case _:
            pass


def _without_prefix(names: Sequence[str]) -> list[str]:
    """Names without the part before the first dot, where all have the same."""
    prefixes = {name.partition(".")[0] for name in names if "." in name}
    if len(prefixes) == 1 and all("." in name for name in names):
        return [name.partition(".")[2] for name in names]
    return list(names)
