"""Random programs through the BPF emitter: compiled, verified by the kernel, run packet by packet; no test, a search.

    sudo .venv/bin/python benchmarks/fuzz_kernel.py [--seeds 0:100] [--packets 300]

For every seed: a random program; whole in the kernel where `cora.backends.xdp.capabilities` refuses nothing of it, a
random placement that the kernel half takes, and one that lends of every table it can; packets that were searched to
take the program's branches, some of them over and over. The kernel half runs in this machine's kernel, the user half in
this process, and every packet, all totals and all state must be those of the native engine on the unsplit program. The
exit code is 1 when something differs, or when the kernel or clang refuses a program that capabilities did not refuse,
except for its size (the verifier's limits, and the stack of 512 bytes), which is counted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cora.backends.xdp.capabilities import part_refusals
from cora.backends.xdp.trials import lending, scattered, try_kernel, usable, whole
from cora.engine.split import Statistics
from cora.errors import CoraError, Kind
from cora.ir.nodes import Program
from cora.ir.parts import Split
from cora.testing import Packet, exercising_packets, generate
from cora.testing.choices import RandomChoices

# What a message says of a program that is only too large.
_SIZES = ("too large", "stack", "combined stack", "too complex", "jump out of range", "The sequence of")


@dataclass
class Tally:
    """What a search found."""

    programs: int = 0
    splits: Counter[str] = field(default_factory=Counter)
    packets: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    refused: Counter[str] = field(default_factory=Counter)
    failures: int = 0


def packets_of(seed: int, found: Sequence[Packet], count: int) -> list[Packet]:
    """The packets searched for the program, then bursts of some of them again, time going on."""
    choices, out = RandomChoices(seed), usable(found)
    few, now = list(out), max((p.time_ns for p in out), default=0)
    while few and len(out) < count:
        burst = [choices.pick(few) for _ in range(choices.integer(1, 4))]
        for _ in range(choices.integer(1, 40)):
            now += choices.pick((0, 1, 1000, 1_000_000, 300_000_000))
            packet = choices.pick(burst)
            out.append(Packet(packet.port, now, packet.frame, packet.wirelen))
    return [p for p in out if p.time_ns < 1 << 62]


def splits_of(program: Program, seed: int, tally: Tally) -> Iterator[tuple[str, Split]]:
    """By kind; nothing that the kernel half refuses. A placement that cannot be cut into parts is counted only."""
    choices = RandomChoices(seed)
    entries, threshold = choices.pick((1, 3, 100)), choices.integer(1, 3)
    makers: tuple[tuple[str, Callable[[], Split]], ...] = (
        ("whole", lambda: whole(program)), ("scattered", lambda: scattered(program, seed)),
        ("lending", lambda: lending(program, seed, entries=entries, threshold=threshold)))
    for kind, make in makers:
        try:
            split = make()
        except CoraError as error:
            tally.refused[error.diagnostics[0].message[:60]] += 1
            continue
        if split.parts[0].program.blocks and not any(part_refusals(split.parts[0])):
            yield kind, split


def one(seed: int, count: int, tally: Tally) -> Iterator[str]:
    """Run one seed; the reports of failures."""
    case = generate(seed)
    packets = packets_of(seed, exercising_packets(case.program, seed, count // 2), count)
    tally.programs += 1
    for kind, split in splits_of(case.program, seed, tally):
        try:
            ran = try_kernel(split, packets, seed % 5 - 1)
        except CoraError as error:
            diagnostic = error.diagnostics[0]
            size = next((s for s in _SIZES if s in diagnostic.message), None)
            if size is None and diagnostic.kind not in (Kind.ENGINE_LIMIT, Kind.NOT_BUILDABLE):
                yield f"seed {seed}, {kind}: {error}\n{case.text}"
            tally.refused[size or diagnostic.message[:60]] += 1
            continue
        tally.splits[kind] += 1
        tally.packets += len(packets)
        tally.statistics = tally.statistics.plus(ran.statistics)
        if ran.difference is not None or ran.statistics.left or ran.statistics.stray:
            yield f"seed {seed}, {kind}: {ran.difference} ({ran.statistics})\n{case.text}\n{split.lendings}"


def main() -> int:
    """Run all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="first:last, the last not included")
    parser.add_argument("--packets", type=int, default=300)
    arguments = parser.parse_args()
    first, last = (int(n) for n in arguments.seeds.split(":"))
    tally, started = Tally(), time.monotonic()
    for seed in range(first, last):
        for report in one(seed, arguments.packets, tally):
            tally.failures += 1
            print(report, flush=True)
    kinds = ", ".join(f"{n} {kind}" for kind, n in tally.splits.most_common())
    print(f"{tally.programs} programs ({kinds}), {tally.packets} packets, {tally.failures} failures, in "
          f"{time.monotonic() - started:.0f} s")
    print(f"over all runs: {tally.statistics}")
    for message, times in tally.refused.most_common():
        print(f"  refused {times} times: {message}")
    return int(tally.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
