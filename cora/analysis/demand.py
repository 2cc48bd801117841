"""How a profile uses the states of a program, in the planner's terms."""

from __future__ import annotations

from dataclasses import replace

from cora.analysis.accesses import STATE_KINDS, AccessRates, capacity_of, entry_bytes
from cora.analysis.profile import Profile, StateUse
from cora.errors import Kind, fail
from cora.ir.hashing import program_hash
from cora.ir.nodes import AclState, CounterState, LpmState, MapState, PoolState, Program, State


def check_profile(program: Program, profile: Profile) -> None:
    """Refuse a profile that was made from another program.

    Raises:
        CoraError: `Kind.PROFILE_MISMATCH`.
    """
    if profile.program_hash != program_hash(program):
        raise fail(Kind.PROFILE_MISMATCH,
                   f"the profile is of another program or another version of it: it was made from '{profile.program}' "
                   f"with hash {profile.program_hash[:12]}, this is '{program.name}' with hash "
                   f"{program_hash(program)[:12]}",
                   hint="make the profile again from this program: `cora profile NF TRACE -o profile.json`")


def rates_of(program: Program, profile: Profile) -> dict[str, AccessRates]:
    """Per state how it is used; a state the profile says nothing about counts as unused."""
    return {s.name: _rates(s, _use_of(program, profile, s), profile.packets) for s in program.states}


def _use_of(program: Program, profile: Profile, state: State) -> StateUse:
    """The profile's record of a state; that of a pool is what the maps that draw from it say."""
    use = profile.states.get(state.name) or StateUse(STATE_KINDS[type(state)])
    if not isinstance(state, PoolState):
        return use
    drawing = [profile.states[m.name] for m in program.states if isinstance(m, MapState) and m.name in profile.states
               and any(a.pool == state.name for a in m.allocs)]
    return replace(use, entries_peak=sum(u.entries_peak for u in drawing), expiries=sum(u.expiries for u in drawing),
                   inserts=(sum(u.inserts[0] for u in drawing), 0), deletes=sum(u.deletes for u in drawing))


def _rates(state: State, use: StateUse, packets: int) -> AccessRates:
    size = entry_bytes(state)
    entries = _entries(state, use)
    touched = min(max(use.working_set, default=entries), max(entries, 1))
    return AccessRates(
        entry_bytes=size,
        entries=entries,
        working_set=touched * size,
        hottest=use.popularity[0][1] if use.popularity else 1.0 / max(entries, 1),
        updates=(use.inserts[0] + use.deletes + use.expiries) / packets,
        popularity=use.popularity,
    )


def _entries(state: State, use: StateUse) -> int:
    match state:
        case AclState() | LpmState():
            return len(state.entries)
        case CounterState():
            return state.size
        case _:
            return min(use.entries_peak, capacity_of(state))


def expiries_per_packet(program: Program, profile: Profile, state: State) -> float:
    """Entries of a state that die of age, per packet; each costs what a delete costs."""
    return _use_of(program, profile, state).expiries / profile.packets
