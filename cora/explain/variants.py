"""Programs that differ from another one in a declaration, and the profile that the same traffic would give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cora.analysis.profile import PathUse, Profile
from cora.analysis.sharding import sharding_of
from cora.ir.hashing import program_hash
from cora.ir.nodes import (
    Block,
    Drop,
    FragmentState,
    MapState,
    MeterState,
    Program,
    State,
    TrackFragment,
    successors,
)
from cora.models.target import Refusal, Target

# Room above the traffic's peak that a smaller capacity leaves.
RESERVE = 1.25
# What an exact time-out is loosened by.
SLACK = 1_000_000_000


@dataclass(frozen=True)
class Variant:
    """Another declaration of a state: ``change`` as the user would write it, ``price`` what it gives up."""

    state: State
    change: str
    price: str
    program: Program
    profile: Profile


def variants_of(program: Program, profile: Profile) -> list[Variant]:
    """Every declaration of the program that could be loosened by one attribute, and fragments that could be dropped."""
    found: list[Variant] = []
    for state in program.states:
        for change, price, other in _loosened(state, profile):
            made = replace(program, states=tuple(other if s is state else s for s in program.states))
            found.append(Variant(state, change, price, made, _relabelled(profile, made)))
        if isinstance(state, FragmentState):
            made, seen = without_fragments(program, profile)
            found.append(Variant(state, "`fragments drop;`", "all fragments are dropped", made, seen))
    return found


def until_lent(program: Program, profile: Profile, target: Target) -> list[Variant]:
    """Declarations loosened by just what a place demands before it takes lent entries of a component.

    Only sets of more than one attribute: the others are among `variants_of`.
    """
    found: list[Variant] = []
    for sharding in sharding_of(program).values():
        if not sharding.splittable:
            continue
        for near in range(len(target.places) - 1):
            made = _loosened_for(program, sharding.states, target, near)
            if made is not None and len(made[1]) > 1:
                changed, changes = made
                table = next(s for s in map(program.state, sharding.states) if isinstance(s, MapState | MeterState))
                found.append(Variant(table, " and ".join(changes), "packets may overtake each other and time-outs are "
                                     "coarser", changed, _relabelled(profile, changed)))
    return found


def _loosened_for(program: Program, states: tuple[str, ...], target: Target,
                  near: int) -> tuple[Program, list[str]] | None:
    """The program with which a place lends a component, and what was changed; None: no attribute makes it lend."""
    owner = len(target.places) - 1
    changes: list[str] = []
    for change, attributes in _DEMANDED:
        if not isinstance(target.lends(program, [program.state(s) for s in states], near, owner), Refusal):
            break
        other = replace(program, states=tuple(
            _with(s, attributes) if s.name in states else s for s in program.states))
        if other != program:
            program = other
            changes.append(change)
    lent = target.lends(program, [program.state(s) for s in states], near, owner)
    return None if isinstance(lent, Refusal) else (program, changes)


# What places ask for before they lend, in the order in which it costs meaning.
_DEMANDED: tuple[tuple[str, dict[str, object]], ...] = (
    ("`order weak;`", {"strict_order": False}), ("`slack 1s`", {"slack": SLACK}),
    ("`slack 10s`", {"slack": 10 * SLACK}), ("`approx;`", {"exact": False}))


def _with(state: State, attributes: dict[str, object]) -> State:
    if not isinstance(state, MapState | MeterState):
        return state
    if "slack" in attributes and (state.slack >= attributes["slack"] or not _ages(state)):  # type: ignore[operator]
        return state
    changed: State = replace(state, **attributes)  # type: ignore[arg-type]  # fields that both kinds have
    return changed


def _ages(state: MapState | MeterState) -> bool:
    return bool(state.timeouts) if isinstance(state, MapState) else state.timeout > 0


def _relabelled(profile: Profile, program: Program) -> Profile:
    return replace(profile, program_hash=program_hash(program))


def _loosened(state: State, profile: Profile) -> list[tuple[str, str, State]]:
    found: list[tuple[str, str, State]] = []
    if isinstance(state, MapState | MeterState):
        found += _attributes(state)
    # Of fragment trackers a profile does not count the datagrams.
    if isinstance(state, MapState | MeterState):
        enough = enough_for(profile, state)
        if state.name in profile.states and enough < state.capacity:
            found.append((f"`capacity {enough};`", f"room for {enough:,} entries instead of {state.capacity:,}; this "
                          f"traffic has {profile.states[state.name].entries_peak:,} at most",
                          replace(state, capacity=enough)))
    return found


def _attributes(state: MapState | MeterState) -> list[tuple[str, str, State]]:
    rows: list[tuple[bool, str, str, State]] = [
        (state.strict_order, "`order weak;`", "packets of a flow may overtake each other while its entry moves",
         replace(state, strict_order=False)),
        (state.exact, "`approx;`", "an approximate table may stand in", replace(state, exact=False)),
        (_ages(state) and state.slack == 0, "`slack 1s`", "entries may go a second late", replace(state, slack=SLACK)),
        (not state.per_shard, "`per_shard;`", "capacity and pools are divided between shards",
         replace(state, per_shard=True)),
        (state.full == "evict_lru", "`full reject;`", "new entries are refused while the table is full",
         replace(state, full="reject")),
    ]
    return [(change, price, other) for holds, change, price, other in rows if holds]


def enough_for(profile: Profile, state: MapState | MeterState) -> int:
    """The next power of two above the traffic's peak with a reserve; at least 16."""
    use = profile.states.get(state.name)
    peak = 0 if use is None else use.entries_peak
    return max(16, 1 << (max(1, round(peak * RESERVE)) - 1).bit_length())


def without_fragments(program: Program, profile: Profile) -> tuple[Program, Profile]:
    """The program with `fragments drop`, and the profile of the same packets: fragments end where they are tracked."""
    tracked = {b.label: replace(b, terminator=Drop("fragment", b.terminator.span)) for b in program.blocks
               if isinstance(b.terminator, TrackFragment)}
    blocks = _reachable(program, lambda b: tracked.get(b.label, b))
    states = tuple(s for s in program.states if not isinstance(s, FragmentState))
    made = replace(program, states=states, blocks=blocks)
    paths: dict[tuple[str, ...], PathUse] = {}
    for path in profile.paths:
        ended = _ended(path, tracked)
        known = paths.get(ended.blocks)
        paths[ended.blocks] = ended if known is None else replace(
            known, packets=known.packets + ended.packets, octets=known.octets + ended.octets)
    uses = {n: u for n, u in profile.states.items() if any(s.name == n for s in states)}
    return made, replace(_relabelled(profile, made), paths=tuple(paths.values()), states=uses)


def _ended(path: PathUse, tracked: dict[str, Block]) -> PathUse:
    at = next((i for i, label in enumerate(path.blocks) if label in tracked), None)
    if at is None:
        return path
    return replace(path, blocks=path.blocks[:at + 1], outcomes=path.outcomes[:at], verdict='drop "fragment"')


def _reachable(program: Program, changed: Callable[[Block], Block]) -> tuple[Block, ...]:
    """The blocks that are still entered; every block stands before its successors."""
    entered = {program.blocks[0].label}
    found = []
    for block in program.blocks:
        if block.label in entered:
            found.append(changed(block))
            entered |= {label for _, label in successors(found[-1].terminator)}
    return tuple(found)
