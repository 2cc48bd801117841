"""The shipped programs and capture for tests of the kernel half."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from cora.backends.xdp.trials import lending, usable
from cora.compile import compile_file
from cora.ir.nodes import MapState, MeterState, Program
from cora.ir.parts import Split
from cora.runtime.verify import captured, packets_in
from cora.testing.frames import Packet

ROOT = Path(__file__).resolve().parents[3]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
# They are behind the first port of every example.
CLIENTS = "10.0.0.0/24,2001:db8:1::/64"


def example(name: str) -> Program:
    """A shipped program."""
    return compile_file(ROOT / "examples" / f"{name}.nf", {})


def lending_all(program: Program, *, entries: int = 1000, threshold: int = 1) -> Split:
    """A split that lends of every table, which chance gives sooner or later."""
    wanted = sum(isinstance(s, MapState | MeterState) for s in program.states)
    for seed in range(40):
        split = lending(program, seed, entries=entries, threshold=threshold)
        if len(split.lendings) == wanted:
            return split
    raise AssertionError(f"{program.name}: no split lends of every table")


def office(program: Program, count: int | None = None) -> list[Packet]:
    """The shipped capture."""
    with ExitStack() as stack:
        traffic, _ = captured(program, OFFICE, stack, port_map=[f"{program.ports[0].name}={CLIENTS}"])
        return usable(list(packets_in(traffic)))[:count]
