"""Splits random programs at random and compares the parts with the reference interpreter; a long run, not a test.

    python benchmarks/fuzz_splits.py [--seeds 0:100] [--packets 800] [--schedules 3] [--places 3]

For every seed: a random program, a random legal placement of its blocks and states (with entries lent wherever
`cora.analysis.sharding` allows it), and packets that were searched to take its branches, some of them over and over.
Under every schedule the parts must give the events, totals and state of the reference and leave nothing lent behind.
The exit code is 1 when one does not; what the engine refuses (a stated limit) is counted and shown. Packets overtaken
within their flow are counted only: a random placement may send some of a flow another way with no state to hold them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cora.engine.results import Options
from cora.engine.split import Statistics
from cora.errors import CoraError, Kind
from cora.ir.parts import Split
from cora.testing import Packet, difference, exercising_packets, generate, run_reference
from cora.testing.choices import RandomChoices
from cora.testing.compare import Outcome
from cora.testing.placements import random_rules, random_split
from cora.testing.splits import by_packet, run_split


@dataclass
class Tally:
    """What a run found. ``lent``: programs with a split state."""

    programs: int = 0
    lent: int = 0
    packets: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    refused: Counter[str] = field(default_factory=Counter)
    failures: int = 0


def options_of(seed: int) -> Options:
    return Options(ignore_checksums=seed % 5 == 1, headers_only=seed % 5 == 2)


def packets_of(seed: int, program_packets: Sequence[Packet], count: int) -> list[Packet]:
    """The packets searched for the program, then bursts of some of them again, time going on."""
    choices, out = RandomChoices(seed), list(program_packets)
    now = max((p.time_ns for p in out), default=0)
    while program_packets and len(out) < count:
        few = [choices.pick(program_packets) for _ in range(choices.integer(1, 4))]
        for _ in range(choices.integer(1, 40)):
            now += choices.pick((0, 1, 1000, 1_000_000, 300_000_000))
            packet = choices.pick(few)
            out.append(Packet(packet.port, now, packet.frame, packet.wirelen))
    return out


def check(split: Split, packets: Sequence[Packet], options: Options, schedules: range, tally: Tally) -> str | None:
    """What is wrong with a split program, or None."""
    found = run_reference(split.program, packets, options)
    wanted = Outcome(by_packet(found.events), found.summary, found.state)
    for chance in schedules:
        run = run_split(split, packets, options, chance=chance)
        tally.statistics = tally.statistics.plus(run.statistics)
        unequal = difference(wanted, run.outcome)
        if unequal is not None:
            return f"schedule {chance}: {unequal} ({run.statistics})"
        if run.statistics.left or run.statistics.stray:
            return f"schedule {chance}: {run.statistics}"
    return None


def one(seed: int, count: int, schedules: int, most_places: int, tally: Tally) -> str | None:
    """Run one seed; the report of a failure."""
    case, options, choices = generate(seed), options_of(seed), RandomChoices(seed)
    places = choices.integer(2, most_places)
    # In every third one, rules serve decided paths at the first place, where that is possible.
    ruled = random_rules(case.program, choices, places) if seed % 3 == 0 else None
    split = ruled or random_split(case.program, choices, places)
    packets = packets_of(seed, exercising_packets(case.program, seed, count // 2, options), count)
    tally.programs += 1
    tally.lent += bool(split.lendings)
    tally.packets += len(packets)
    found = check(split, packets, options, range(schedules), tally)
    return None if found is None else f"seed {seed}: {found}\n{case.text}\n{split.lendings}"


def main() -> int:
    """Run all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="first:last, the last not included")
    parser.add_argument("--packets", type=int, default=800)
    parser.add_argument("--schedules", type=int, default=3)
    parser.add_argument("--places", type=int, default=3)
    arguments = parser.parse_args()
    first, last = (int(n) for n in arguments.seeds.split(":"))
    tally, started = Tally(), time.monotonic()
    for seed in range(first, last):
        try:
            report = one(seed, arguments.packets, arguments.schedules, arguments.places, tally)
        except CoraError as error:
            diagnostic = error.diagnostics[0]
            expected = diagnostic.kind == Kind.ENGINE_LIMIT or "make a header of" in diagnostic.message
            tally.refused[diagnostic.message[:60]] += 1
            report = None if expected else f"seed {seed}: {error}"
        if report is not None:
            tally.failures += 1
            print(report, flush=True)
    print(f"{tally.programs} programs, {tally.lent} of them with lent entries, {tally.packets} packets, "
          f"{tally.failures} failures, in {time.monotonic() - started:.0f} s")
    print(f"over all schedules: {tally.statistics}")
    for message, times in tally.refused.most_common():
        print(f"  refused {times} times: {message}")
    return int(tally.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
