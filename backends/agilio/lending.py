"""Lending entries of flows to the card: what may be lent, and what moving one entry there and back costs.

An entry is lent by a frame in the packets' own queue, which a micro-engine turns into an insert of the near table; it
is taken back by a frame that asks for it, a delete, and a frame that returns the entry's fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.ir.nodes import FragmentState, MapState, MeterState, State
from cora.models.target import Refusal

PLACE = "nic"
# Frames to the card and from it for one entry: lend, ask back, return.
ASKED, RETURNED = 2, 1


def refuse(states: Sequence[State]) -> Refusal | None:
    """Why entries of a component cannot be lent to the card, or None."""
    for state in states:
        if isinstance(state, FragmentState):
            return Refusal(state.name, PLACE, f"datagrams of '{state.name}' cannot be lent: fragments find them by "
                                              "other keys than the packets of a flow", state.span)
    if not any(isinstance(s, MapState | MeterState) for s in states):
        return Refusal(states[0].name, PLACE, f"'{states[0].name}' has no entries of flows that could be lent",
                       states[0].span)
    return None


def lent_use(state: State, entries: int) -> AccessRates:
    """A near table of so many entries as changes of it see it: none is hotter than the others."""
    size = entry_bytes(state)
    return AccessRates(size, entries, size * entries, 1 / max(1, entries), 0.0)
