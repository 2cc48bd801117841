"""Compares engines over random programs and packets; a long run, not a test.

    python benchmarks/fuzz_engines.py [--seeds 0:200] [--packets 800] [--engine native|sanitized|none]

For every seed: the program must load and survive printing and parsing of its IR; the reference must run on packets
that were searched to take its branches; the engine must report the same events, totals and state.
Every fifth seed each runs with ``ignore_checksums`` and with ``headers_only``. A failure is made small and printed with
its packets; the exit code is 1 then. What the engine refuses (a stated limit) is counted and shown, not hidden.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cora.engine.results import Options
from cora.errors import CoraError, Kind
from cora.ir.nodes import Program
from cora.ir.text import parse_program, print_program
from cora.testing import (
    Generated,
    Packet,
    coverage_of,
    difference,
    exercising_packets,
    generate,
    run_native,
    run_reference,
    run_sanitized,
    shrink,
)
from cora.testing.compare import Execution

ENGINES: dict[str, Execution | None] = {"native": run_native, "sanitized": run_sanitized, "none": None}


@dataclass
class Tally:
    """What a run found."""

    programs: int = 0
    blocks: int = 0
    packets: int = 0
    coverage: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    failures: int = 0


def options_of(seed: int) -> Options:
    return Options(ignore_checksums=seed % 5 == 1, headers_only=seed % 5 == 2)


def check(engine: Execution | None, program: Program, packets: Sequence[Packet], options: Options) -> str | None:
    """What is wrong with a program and packets, or None.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` when the engine does not take the program.
    """
    try:
        reference = run_reference(program, packets, options)
    except Exception:  # any exception of the reference is the finding
        return f"the reference raised: {traceback.format_exc(limit=-3)}"
    if engine is None:
        return None
    try:
        return difference(reference, engine(program, packets, options))
    except CoraError as error:
        if error.diagnostics[0].kind == Kind.ENGINE_LIMIT and "sanitize" not in str(error):
            raise
        return f"the engine failed: {error}"


def fails(engine: Execution | None, program: Program, packets: Sequence[Packet], options: Options) -> bool:
    """Whether a smaller case still shows a defect; one that the engine refuses shows none."""
    try:
        return check(engine, program, packets, options) is not None
    except CoraError:
        return False


def one(seed: int, budget: int, engine: Execution | None, tally: Tally) -> str | None:
    """Run one seed; the report of a failure."""
    try:
        case = generate(seed)
        program = case.program
    except CoraError as error:
        return f"the program does not load: {error.diagnostics[0].render()}"
    if parse_program(print_program(program)) != program:
        return f"the IR text does not read back:\n{case}"
    options = options_of(seed)
    try:
        packets = exercising_packets(program, seed, budget, options)
        taken = coverage_of(program, packets, options).fraction
    except Exception:  # the reference runs inside the search
        return f"the reference raised: {traceback.format_exc(limit=-3)}\n{case}"
    tally.programs += 1
    tally.blocks += len(program.blocks)
    tally.packets += len(packets)
    tally.coverage += taken
    try:
        found = check(engine, program, packets, options)
    except CoraError as error:
        tally.refused[error.diagnostics[0].message] += 1
        return None
    return None if found is None else report(case, packets, engine, options)


def report(case: Generated, packets: Sequence[Packet], engine: Execution | None, options: Options) -> str:
    """The failure made small, as text that can be pasted into a test."""
    text, left = shrink(case.text, packets, lambda p, kept: fails(engine, p, kept, options))
    from cora.frontends import nf

    lines = [f"{options}", f"{check(engine, nf.loads(text), left, options)}", text]
    return "\n".join([*lines, *(f"Packet({p.port}, {p.time_ns}, bytes.fromhex({p.frame.hex()!r}), {p.wirelen})"
                                for p in left)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:200", help="first:past, default 0:200")
    parser.add_argument("--packets", type=int, default=800, help="packets for each program, default 800")
    parser.add_argument("--engine", choices=ENGINES, default="native")
    arguments = parser.parse_args()
    first, past = map(int, arguments.seeds.split(":"))
    tally = Tally()
    start = time.monotonic()
    for seed in range(first, past):
        found = one(seed, arguments.packets, ENGINES[arguments.engine], tally)
        if found is not None:
            tally.failures += 1
            print(f"--- seed {seed}: {found}\n", flush=True)
    programs = max(1, tally.programs)
    print(f"{tally.programs} programs, {tally.blocks / programs:.0f} blocks each; {tally.packets} packets; "
          f"{100 * tally.coverage / programs:.1f} % of outcomes taken; {time.monotonic() - start:.0f} s")
    for message, count in tally.refused.most_common(5):
        print(f"refused {count}x: {message}")
    print(f"{tally.failures} failures")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
