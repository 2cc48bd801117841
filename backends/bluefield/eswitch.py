"""What the card's switch can do with blocks and states of a program, and why not, in the user's terms.

The switch matches parsed headers against rules and acts; it runs no code. Rules of single flows come with splitting;
here whole states are placed, so what packets write is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.analysis.order import order_clause
from cora.ir.headers import QUOTED
from cora.ir.nodes import (
    AclState,
    Binary,
    Block,
    Cast,
    Compare,
    Const,
    Count,
    CounterState,
    Delete,
    Extract,
    FragmentState,
    Hold,
    Insert,
    Instruction,
    Load,
    LoadConfig,
    LoadEntry,
    Lookup,
    LpmState,
    MapState,
    Meta,
    MeterState,
    Police,
    PoolState,
    Program,
    Reject,
    Select,
    State,
    Store,
    StoreEntry,
    Terminator,
    Touch,
    TrackFragment,
    Unary,
    result_of,
)
from cora.ir.types import Bool, EntryRef
from cora.models.footprint import writers
from cora.models.target import Refusal

PLACE = "switch"

# Header fields that rules can match (mlx5 flow items: eth, vlan, ipv4, ipv6, tcp, udp, icmp, icmp6).
MATCHED: dict[str, tuple[str, ...]] = {
    "eth": ("dst", "src", "type", "tags"),
    "vlan": ("pcp", "dei", "vid"),
    "ipv4": ("version", "ihl", "dscp", "ecn", "ttl", "proto", "src", "dst"),
    "ipv6": ("version", "dscp", "ecn", "flow", "next", "hop_limit", "src", "dst", "proto"),
    "tcp": ("sport", "dport", "flags", "cwr", "ece", "urg", "ack", "psh", "rst", "syn", "fin"),
    "udp": ("sport", "dport"),
    "l4": ("sport", "dport"),
    "icmp": ("type", "code", "id", "seq"),
    "icmp6": ("type", "code"),
}


@dataclass(frozen=True)
class Facts:
    """Definitions of a program's values, for telling constants from fields."""

    program: Program
    definitions: Mapping[str, Instruction]

    def constant(self, name: str) -> bool:
        """Whether a value is a constant or a configuration value, possibly widened."""
        node = self.definitions.get(name)
        if isinstance(node, Cast):
            return self.constant(node.operand.name)
        return isinstance(node, Const | LoadConfig)

    def from_rule(self, name: str) -> bool:
        """Whether a value is constant within the rule that matched."""
        return self.constant(name) or isinstance(self.definitions.get(name), LoadEntry)


# The latest program asked about, with its facts: a target asks about one program many times.
_latest: list[Facts] = []


def facts_of(program: Program) -> Facts:
    """The facts of a program."""
    if not _latest or _latest[0].program is not program:
        found = {r.name: n for b in program.blocks for n in b.instructions if (r := result_of(n)) is not None}
        _latest[:] = [Facts(program, found)]
    return _latest[0]


def refuse_block(facts: Facts, block: Block, vlan_tags: int) -> Refusal | None:
    """The first thing in a block that the switch cannot do, or None."""
    for node in block.instructions:
        reason = _instruction(facts, node)
        if reason:
            return Refusal(block.label, PLACE, reason, node.span)
    reason = _terminator(facts, block.terminator, vlan_tags)
    return Refusal(block.label, PLACE, reason, block.terminator.span) if reason else None


def _instruction(facts: Facts, node: Instruction) -> str | None:
    match node:
        case Load():
            return _load(node)
        case Meta():
            return None if node.what == "port" else f"the switch's rules cannot see a packet's {node.what}"
        case Binary() | Compare() | Unary() | Select():
            return _compute(facts, node)
        case Store():
            return (f"'{node.header}.{node.field}' is rewritten: rules that rewrite are made for single flows, "
                    "which needs a split state")
        case Count():
            return _count(facts, node)
        case StoreEntry() | Touch() | Delete():
            verb = {"store_entry": "changes", "touch": "refreshes", "delete": "deletes"}[node.mnemonic]
            return f"it {verb} an entry of '{_state_of(node)}': the switch cannot change tables as packets pass"
    return None


def _state_of(node: StoreEntry | Touch | Delete) -> str:
    kind = node.entry.type
    return kind.state if isinstance(kind, EntryRef) else ""


def _load(node: Load) -> str | None:
    if node.header.startswith(QUOTED):
        return "the packet quoted in an ICMP error lies deeper than the switch's parser reads"
    if node.field not in MATCHED.get(node.header, ()):
        return f"the switch's rules cannot match '{node.header}.{node.field}'"
    return None


def _compute(facts: Facts, node: Binary | Compare | Unary | Select) -> str | None:
    if isinstance(node, Compare):
        if facts.constant(node.left.name) or facts.constant(node.right.name) or isinstance(node.left.type, Bool):
            return None
        return "it compares two values of the packet: the switch only matches fields against constants"
    if isinstance(node.result.type, Bool) and not isinstance(node, Select):
        return None
    if isinstance(node, Binary) and node.op == "and" \
            and (facts.constant(node.left.name) or facts.constant(node.right.name)):
        return None
    if isinstance(node, Select):
        return "it chooses between values: the switch has no arithmetic on values"
    what = node.op if isinstance(node, Binary) else "invert"
    return f"it computes ({what}): the switch has no arithmetic on values"


def _count(facts: Facts, node: Count) -> str | None:
    if node.amount is not None:
        return f"'{node.counter}' is counted by an amount of the program's: the switch counts packets and frame lengths"
    if node.index is not None and not facts.from_rule(node.index.name):
        return (f"the index into '{node.counter}' is computed from the packet: in the switch a counter belongs to a "
                "rule")
    return None


def _terminator(facts: Facts, node: Terminator, vlan_tags: int) -> str | None:
    match node:
        case Extract():
            return _extract(node, vlan_tags)
        case TrackFragment():
            return "the switch cannot track fragments: it keeps no packet and no memory of one"
        case Lookup():
            return _lookup(facts.program, node)
        case Insert():
            return f"'{node.state}' is inserted into: the switch cannot add entries as packets pass"
        case Police():
            return (f"'{node.state}' makes an entry for a new key: the switch's meters are set up from outside, "
                    "which needs a split state")
        case Reject():
            return "the switch cannot send an ICMP error: it makes no packets and quotes none"
        case Hold():
            return "the switch cannot hold a packet"
    return None


def _extract(node: Extract, vlan_tags: int) -> str | None:
    if node.header.startswith(QUOTED):
        return "the packet quoted in an ICMP error lies deeper than the switch's parser reads"
    if node.header not in MATCHED:
        return f"the switch's rules cannot check an {node.header} header"
    if node.header == "eth" and node.limit > vlan_tags:
        return f"it reads up to {node.limit} VLAN tags: the switch matches at most {vlan_tags}"
    if node.header == "ipv6" and node.limit > 0:
        return f"it walks up to {node.limit} IPv6 extension headers: the switch's parser does not"
    if node.source_route:
        return "it looks for source-route options: the switch's parser does not read IPv4 options"
    return None


def _lookup(program: Program, node: Lookup) -> str | None:
    state = program.state(node.state)
    refusal = refuse_state(program, state, "rules")
    return refusal.reason if refusal else None


def refuse_state(program: Program, state: State, tier: str) -> Refusal | None:
    """Why a whole state cannot be in a tier of the switch, or None."""
    match state:
        case AclState() | LpmState():
            wanted, reason = "rules", None
        case CounterState():
            wanted, reason = "counters", None
        case MapState():
            wanted, reason = "rules", _map(program, state)
        case MeterState():
            wanted, reason = "meters", (f"'{state.name}' makes an entry for a new key: the switch's meters are set up "
                                        "from outside, which needs a split state")
        case PoolState():
            wanted, reason = "", f"'{state.name}' hands out values: the switch has no memory packets can take from"
        case FragmentState():
            wanted, reason = "", "the switch cannot track fragments: it keeps no packet and no memory of one"
    if reason:
        return Refusal(state.name, PLACE, reason, state.span)
    if tier != wanted:
        return Refusal(state.name, PLACE, f"'{state.name}' is kept as {wanted}, not as {tier}", state.span)
    return None


def _map(program: Program, state: MapState) -> str | None:
    for node in writers(program, state):
        verb = {"insert": "insert into", "delete": "delete from", "touch": "refresh", "store_entry": "change",
                "police": "police"}[node.mnemonic]
        need = "rules of decided flows need a split state"
        if state.strict_order:
            need = (f"{order_clause([state])} refuses rules of decided flows: they cannot wait for packets still "
                    "queued at the owner; `order weak` allows them")
        return (f"packets {verb} '{state.name}' (line {node.span.line}): the switch cannot write tables as packets "
                f"pass; {need}")
    if state.timeouts:
        return f"entries of '{state.name}' time out: without packets refreshing them the switch would drop live ones"
    return None


def rules_of(state: State) -> int:
    """Rules or counters that a state of its declared capacity takes; ranges are expanded into prefixes."""
    match state:
        case AclState():
            return state.capacity * max((_expansion(state, i) for i in range(len(state.entries))), default=1)
        case CounterState() | PoolState():
            return state.size
    return state.capacity


def _expansion(state: AclState, index: int) -> int:
    rules = 1
    for kind, key, (low, high) in zip(state.kinds, state.keys, state.entries[index].match, strict=True):
        if kind == "range":
            rules *= prefixes(low, high, 1 if isinstance(key.type, Bool) else getattr(key.type, "bits", 1))
    return rules


def prefixes(low: int, high: int, bits: int) -> int:
    """The least number of (value, mask) prefixes that cover low..high exactly."""
    count = 0
    while low <= high:
        size = low & -low if low else 1 << bits
        while size > high - low + 1:
            size >>= 1
        low += size
        count += 1
    return count
