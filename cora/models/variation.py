"""Targets that are like another one but for one thing: what a planner asks when it wants to know what that is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cora.ir.nodes import Block, Program
from cora.models.parameters import Model
from cora.models.target import Demand, Refusal, Resource, Target

# (place, memory) -> units added to its capacity.
Room = Mapping[tuple[str, str], int]
# Whether a refusal of a block is lifted.
Lifted = Callable[[Refusal], bool]


def varied(target: Target, *, faster: Mapping[str, float] | None = None, room: Room | None = None,
           lifted: Lifted | None = None) -> Target:
    """A target with some things changed, which can be made again from its model alone like any other.

    Args:
        faster: resource -> factor on its rate.
        room: memory -> units added to it.
        lifted: which refusals of blocks no longer hold. Such code costs nothing where it was refused: what comes of it
            is the most that lifting them can bring.
    """
    kind = type(target)

    def start(self: Target, model: Model) -> None:
        kind.__init__(self, model)
        self.places = tuple(
            replace(p, tiers=tuple(replace(t, capacity=t.capacity + (room or {}).get((p.name, t.name), 0))
                                   for t in p.tiers))
            for p in self.places)

    def resources(self: Target, mean_frame: float) -> tuple[Resource, ...]:
        return tuple(replace(r, rate=r.rate * (faster or {}).get(r.name, 1.0))
                     for r in kind.resources(self, mean_frame))

    def block(self: Target, program: Program, code: Block, place: int) -> Demand | Refusal:
        answer = kind.block(self, program, code, place)
        if lifted is not None and isinstance(answer, Refusal) and lifted(answer):
            return {}
        return answer

    made = type(kind.__name__, (kind,), {"__init__": start, "resources": resources, "block": block})
    found: Target = made(target.model)
    return found
