"""Splits with a kernel half, the packets it is tried with, and the comparison with the unsplit program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cora.backends.xdp.capabilities import lent_refusal, refusal
from cora.backends.xdp.execute import LONGEST, SHORTEST, KernelEngine
from cora.compile import compile_file
from cora.engine.split import Statistics
from cora.ir.nodes import MapState, MeterState, Program, State
from cora.ir.parts import Part, Role, Split
from cora.runtime.verify import captured, packets_in
from cora.testing.choices import RandomChoices
from cora.testing.compare import Outcome, batch_of, difference, run_native
from cora.testing.frames import Packet
from cora.testing.placements import FirstPlace, random_split
from cora.testing.splits import by_packet

ROOT = Path(__file__).resolve().parents[3]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
# The clients are behind the first port of every example but the policers, whose first port is the LAN's.
CLIENTS = "10.0.0.0/24,2001:db8:1::/64"


def example(name: str) -> Program:
    """A shipped program."""
    return compile_file(ROOT / "examples" / f"{name}.nf", {})


def whole(program: Program) -> Split:
    """Everything in the kernel."""
    roles: dict[str, Role] = {s.name: "whole" for s in program.states}
    nothing = replace(program, blocks=(), states=())
    return Split(program, (Part("kernel", 0, program, (), roles, frozenset(), ""),
                           Part("user", 1, nothing, (), {}, frozenset(), "")), ())


def lending(program: Program, seed: int, *, entries: int = 1000, threshold: int = 1) -> Split:
    """The kernel runs what it can, and tables stay in user space, which lends of those that can be split."""
    first = FirstPlace(lambda s: _stays(program, s), lambda s: lent_refusal(program, s) is None,
                       lambda n: refusal(program, n) is None, eager=True)
    for number in range(seed, seed + 40):
        split = random_split(program, RandomChoices(number), 2, first)
        if len(split.lendings) == sum(isinstance(s, MapState | MeterState) for s in program.states):
            break
    else:
        raise AssertionError(f"{program.name}: no split lends of every table")
    return replace(split, lendings=tuple(replace(i, entries=entries, threshold=threshold) for i in split.lendings))


def _stays(program: Program, state: State) -> bool:
    return not isinstance(state, MapState | MeterState) and refusal(program, state) is None


def scattered(program: Program, seed: int) -> Split:
    """A random placement that the kernel half takes."""
    first = FirstPlace(lambda s: refusal(program, s) is None, lambda s: lent_refusal(program, s) is None,
                       lambda n: refusal(program, n) is None)
    return random_split(program, RandomChoices(seed), 2, first)


def usable(packets: Sequence[Packet]) -> list[Packet]:
    """Whole frames: what a capture cut off is filled with zeros; of frames that no test run takes, none."""
    filled = [replace(p, frame=p.frame.ljust(p.wirelen, b"\0")) for p in packets]
    return [p for p in filled if SHORTEST <= len(p.frame) <= LONGEST]


def office(program: Program, count: int | None = None) -> list[Packet]:
    """The shipped capture, the clients at the program's first port."""
    with ExitStack() as stack:
        traffic, _ = captured(program, OFFICE, stack, port_map=[f"{program.ports[0].name}={CLIENTS}"])
        return usable(list(packets_in(traffic)))[:count]


@dataclass(frozen=True)
class Ran:
    """A run of a split program with its kernel half in the kernel."""

    outcome: Outcome
    statistics: Statistics
    overtaken: int | None


def run_kernel(split: Split, packets: Sequence[Packet], chance: int = 0) -> Ran:
    with KernelEngine(split, chance=chance, march_native=False) as engine:
        records, store = batch_of(packets)
        events = list(engine.run_events([records])) if packets else []
        events += engine.finish("events")
        del store  # the records pointed into it until here
        outcome = Outcome(by_packet(events), engine.summary(), engine.state())
        return Ran(outcome, engine.statistics(), engine.overtaken())


def unlike(split: Split, packets: Sequence[Packet], chance: int = 0) -> tuple[str | None, Ran]:
    """What is not as in the unsplit program, every packet, all totals and all state compared; and the run."""
    ran = run_kernel(split, packets, chance)
    native = run_native(split.program, packets)
    expected = Outcome(by_packet(native.events), native.summary, native.state)
    return difference(expected, ran.outcome), ran
