"""What the kernel half can hold and run: asked by the planner for every state and node, and asserted by the emitter.

So a plan never fails when its program is loaded. The verifier's limits on size are not known before: they are those of
the whole program, and its message is shown with the source's lines then.

Three rules come from what a BPF program may do:
  one lock   it holds at most one lock and calls nothing while it does, so a packet uses one entry at a time
  no lists   which entry was used longest ago is the order of all packets on all CPUs: no `evict_lru`
  64 bits    there is no 128-bit multiplication and division
"""

from __future__ import annotations

from collections.abc import Iterator

from cora.analysis.liveness import Liveness, liveness_of
from cora.ir.nodes import (
    AclState,
    Binary,
    Block,
    CounterState,
    FragmentState,
    Hold,
    Insert,
    Instruction,
    Lookup,
    LpmState,
    MapState,
    MeterState,
    Police,
    PoolState,
    Program,
    Reject,
    State,
    Terminator,
    TrackFragment,
    successors,
)
from cora.ir.parts import Part
from cora.ir.types import EntryRef, bytes_of
from cora.models.target import Refusal

PLACE = "kernel"
# Entries are found by a number with a bit to spare, in an array of less than 2^29 bytes (BPF_MAX_VAR_OFF).
MAX_ENTRIES = 1 << 22
# Without slack an insert into a full table looks for entries that are due among all of them, before the next packet:
# a millisecond for so many.
MAX_EXACT = 1 << 18
MAX_POOL = 1 << 20
# Counters of one CPU are one element of a per-CPU array, at most 32 KiB (PCPU_MIN_UNIT_SIZE).
MAX_COUNTERS = 1500
# A burst and what the rate adds in a nanosecond, in credits of 10^-9 octets.
MAX_CREDITS = 1 << 63
_CREDIT = 10**9
_WIDE = ("mul", "div", "mod", "shl", "shr")


def refusal(program: Program, subject: State | Instruction | Terminator) -> Refusal | None:
    """Why a state cannot be whole in the kernel, or a node cannot run there; None where it can.

    Lent entries need less: `lent_refusal`. A copied table is one that packets do not change.
    """
    if isinstance(subject, FragmentState):
        return _refused(subject.name, subject, "fragments are tracked in user space: the kernel half keeps no packets")
    if isinstance(subject, MapState):
        return _refuse_map(program, subject)
    if isinstance(subject, MeterState):
        return _refuse_full(subject) or _refuse_size(subject) or _refuse_exact(subject) or _refuse_meter(subject)
    if isinstance(subject, PoolState):
        return _refuse_pool(subject)
    if isinstance(subject, CounterState):
        return _refuse_counter(program, subject)
    return None if isinstance(subject, AclState | LpmState) else _refuse_node(subject)


def lent_refusal(program: Program, state: State) -> Refusal | None:
    """Why entries of a state cannot be lent to the kernel; None where they can."""
    if isinstance(state, MeterState):
        return _refuse_size(state) or _refuse_meter(state)
    if isinstance(state, MapState):
        return _refuse_size(state) or _refuse_two(program, state.name, lent=True)
    return None


def block_refusal(program: Program, block: Block) -> Refusal | None:
    """Why a block cannot run in the kernel, by the first node that cannot."""
    found = (refusal(program, node) for node in (*block.instructions, block.terminator))
    return next((r for r in found if r is not None), None)


def part_refusals(part: Part) -> Iterator[Refusal]:
    """What of a part the kernel cannot hold or run; nothing, where the planner has asked."""
    program = part.program
    for state in program.states:
        role = part.roles.get(state.name)
        found = lent_refusal(program, state) if role == "lent" else refusal(program, state)
        if found is not None and role != "copy":
            yield found
    for block in program.blocks:
        refused = block_refusal(program, block)
        if refused is not None:
            yield refused


def _refused(subject: str, where: State | Instruction | Terminator, reason: str) -> Refusal:
    return Refusal(subject, PLACE, reason, where.span)


def _refuse_map(program: Program, state: MapState) -> Refusal | None:
    return (_refuse_full(state) or _refuse_size(state) or _refuse_exact(state)
            or _refuse_two(program, state.name))


def _refuse_full(state: MapState | MeterState) -> Refusal | None:
    if state.full != "evict_lru":
        return None
    return _refused(state.name, state, "'evict_lru' needs the order in which all CPUs used the entries, which the "
                                       "kernel half does not keep; write 'full reject' or 'full pass', or keep it in "
                                       "user space")


def _refuse_size(state: MapState | MeterState) -> Refusal | None:
    if state.capacity <= MAX_ENTRIES:
        return None
    return _refused(state.name, state, f"a table of the kernel half has at most {MAX_ENTRIES} entries, not "
                                       f"{state.capacity}")


def _refuse_exact(state: MapState | MeterState) -> Refusal | None:
    ages = isinstance(state, MeterState) or bool(state.timeouts)
    if state.slack or not ages or state.capacity <= MAX_EXACT:
        return None
    return _refused(state.name, state, f"a table of more than {MAX_EXACT} entries that gives up those that are due "
                                       "without delay would hold up packets while it looks for them; write a slack, "
                                       "for example 'slack 1s', or keep it in user space")


def _refuse_meter(state: MeterState) -> Refusal | None:
    first = state.burst * _CREDIT + state.rate
    second = (state.excess_burst if state.algorithm == "srtcm" else state.peak_burst) * _CREDIT + state.peak_rate
    if first + second < MAX_CREDITS:
        return None
    return _refused(state.name, state, "the kernel half counts credits in 64 bits, so bursts together stay below "
                                       f"{MAX_CREDITS // _CREDIT} octets")


def _refuse_pool(state: PoolState) -> Refusal | None:
    if state.size > MAX_POOL:
        return _refused(state.name, state, f"the kernel half searches pools of at most {MAX_POOL} values, not "
                                           f"{state.size}")
    if any(bytes_of(r.type) > 8 for r in state.ranges):
        return _refused(state.name, state, "the kernel half gives pool values of up to 64 bits")
    return None


def _refuse_counter(program: Program, state: CounterState) -> Refusal | None:
    sizes = [s.size for s in program.states if isinstance(s, CounterState)]
    if sum(sizes) <= MAX_COUNTERS or state.size * len(sizes) < MAX_COUNTERS:
        return None
    return _refused(state.name, state, f"a CPU of the kernel half keeps at most {MAX_COUNTERS} counters, and this "
                                       f"program has {sum(sizes)}")


def _refuse_node(node: Instruction | Terminator) -> Refusal | None:
    match node:
        case Reject():
            return _refused("reject", node, "ICMP errors are built in user space: they need another packet than "
                                            "the one that came")
        case TrackFragment() | Hold():
            return _refused("fragments", node, "fragments are tracked in user space: the kernel half keeps no packets")
        case Binary() if node.op in _WIDE and bytes_of(node.result.type) > 8:
            return _refused(node.op, node, f"BPF has no 128-bit '{node.op}'")
    return None


def _refuse_two(program: Program, name: str, *, lent: bool = False) -> Refusal | None:
    """A packet that holds an entry while it looks for another one would need two locks.

    Of a state whose entries are lent, packets that use two run at the owner.
    """
    live = liveness_of(program)
    for block in program.blocks:
        second = _second_use(program, block, live)
        if second is not None and name in second and not (lent and set(second) == {name}):
            other = next((s for s in second if s != name), name)
            what = f"two entries of '{name}'" if other == name else f"an entry of '{name}' and '{other}'"
            return _refused(name, block.terminator, f"a packet uses {what} at a time, and a BPF program holds one "
                                                    "lock; keep it in user space, or split it by flow")
    return None


def _second_use(program: Program, block: Block, live: Liveness) -> tuple[str, ...] | None:
    """The tables of a block that looks into one while a packet may still use an entry of another, or of the same."""
    node = block.terminator
    if not isinstance(node, Lookup | Insert | Police):
        return None
    if not isinstance(program.state(node.state), MapState | MeterState):
        return None
    after = frozenset().union(*(live.on_edge(block, target) for _, target in successors(node)))
    entry = getattr(node, "entry", None)
    held = sorted({v.type.state for v in after if isinstance(v.type, EntryRef) and v != entry and
                   isinstance(program.state(v.type.state), MapState)})
    return (node.state, *held) if held else None
