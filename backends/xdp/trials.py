"""Trying the kernel half: splits with a part in the kernel, and runs of them compared with the unsplit program.

For tests and long searches; nothing of the compiler needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cora.backends.xdp.capabilities import lent_refusal, refusal
from cora.backends.xdp.execute import LONGEST, SHORTEST, KernelEngine
from cora.engine.split import Statistics
from cora.ir.nodes import MapState, MeterState, Program, State
from cora.ir.parts import Part, Role, Split
from cora.testing.choices import RandomChoices
from cora.testing.compare import Outcome, batch_of, difference, run_native
from cora.testing.frames import Packet
from cora.testing.placements import FirstPlace, random_split
from cora.testing.splits import by_packet


def whole(program: Program) -> Split:
    """Everything in the kernel."""
    roles: dict[str, Role] = {s.name: "whole" for s in program.states}
    nothing = replace(program, blocks=(), states=())
    return Split(program, (Part("kernel", 0, program, (), roles, frozenset(), ""),
                           Part("user", 1, nothing, (), {}, frozenset(), "")), ())


def kernel_place(program: Program, *, eager: bool = False, tables: bool = True) -> FirstPlace:
    """The kernel as the first place of a random placement. ``tables``: whether it may keep maps and meters whole."""
    def keeps(state: State) -> bool:
        return refusal(program, state) is None and (tables or not isinstance(state, MapState | MeterState))
    return FirstPlace(keeps, lambda s: lent_refusal(program, s) is None, lambda n: refusal(program, n) is None, eager)


def scattered(program: Program, seed: int) -> Split:
    """A random placement that the kernel half takes."""
    return random_split(program, RandomChoices(seed), 2, kernel_place(program))


def lending(program: Program, seed: int, *, entries: int, threshold: int) -> Split:
    """The kernel runs what it can, and tables stay in user space, which lends of those that can be split."""
    split = random_split(program, RandomChoices(seed), 2, kernel_place(program, eager=True, tables=False))
    return replace(split, lendings=tuple(replace(i, entries=entries, threshold=threshold) for i in split.lendings))


def usable(packets: Sequence[Packet]) -> list[Packet]:
    """Whole frames: what a capture cut off is filled with zeros; of frames that no test run takes, none."""
    filled = [replace(p, frame=p.frame.ljust(p.wirelen, b"\0")) for p in packets]
    return [p for p in filled if SHORTEST <= len(p.frame) <= LONGEST]


@dataclass(frozen=True)
class Ran:
    """A run of a split program with its kernel half in the kernel. ``difference``: from the unsplit program."""

    outcome: Outcome
    statistics: Statistics
    overtaken: int | None
    difference: str | None


def try_kernel(split: Split, packets: Sequence[Packet], chance: int = 0) -> Ran:
    """Run packets through a split program and the unsplit one; every packet, all totals and all state are compared.

    Raises:
        CoraError: `Kind.VERIFIER`, and what `KernelEngine` raises.
    """
    with KernelEngine(split, chance=chance, march_native=False) as engine:
        records, store = batch_of(packets)
        events = list(engine.run_events([records])) if packets else []
        events += engine.finish("events")
        del store  # the records pointed into it until here
        outcome = Outcome(by_packet(events), engine.summary(), engine.state())
        statistics, overtaken = engine.statistics(), engine.overtaken()
    native = run_native(split.program, packets)
    expected = Outcome(by_packet(native.events), native.summary, native.state)
    return Ran(outcome, statistics, overtaken, difference(expected, outcome))
