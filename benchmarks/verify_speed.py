"""How fast splits are verified: packets per second of the parts in one process against the unsplit native engine.

    python benchmarks/verify_speed.py [--packets 2000000]

Synthetic traffic (64-byte frames of 10,000 flows), kept in memory. Per example a random split that lends entries; told
are the unsplit engine with digests, the parts under one schedule, the comparison, and all of it together, measured on
this machine in this run. Compilation is left out and told apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import cora
from cora.engine.native import NativeEngine
from cora.engine.split import SplitEngine
from cora.runtime.verify import Traffic, captured
from cora.testing.choices import RandomChoices
from cora.testing.placements import random_split

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Splits that lend entries to the first place.
CASES = (("firewall.ref", 0), ("nat.ref", 0), ("policer", 0), ("firewall", 0))


def measure(name: str, seed: int, traffic: Traffic) -> str:
    """One line of the table."""
    program = cora.load(EXAMPLES / f"{name}.nf")
    split = random_split(program, RandomChoices(seed), 2)
    started = time.perf_counter()
    with NativeEngine(program) as engine, SplitEngine(split) as parts:
        built = time.perf_counter()
        wanted = engine.run_digests(traffic.batches)
        unsplit = time.perf_counter()
        parts.run(traffic.batches)
        parts.finish()
        both = time.perf_counter()
        equal = bool(np.array_equal(parts.digests(), wanted)) and parts.state() == engine.state()
        done = time.perf_counter()
        found = parts.statistics()
    rates = [traffic.packets / seconds / 1e6 for seconds in (unsplit - built, both - unsplit, done - built)]
    return (f"{name:13} {'equal' if equal else 'DIFFERENT':9} {rates[0]:8.2f} {rates[1]:8.2f} {rates[2]:8.2f}   "
            f"{100 * found.fast / traffic.packets:5.1f} %   {built - started:6.1f} s")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=2_000_000)
    arguments = parser.parse_args()
    print("              outcome    unsplit    parts  together   fast path  compiling   (million packets/s, measured)")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder, "traffic.pcap")
        cora.traffic({"flows": "10k", "packets": str(arguments.packets), "size": "64"}, path)
        for name, seed in CASES:
            program = cora.load(EXAMPLES / f"{name}.nf")
            traffic, _ = captured(program, path, stack)
            print(measure(name, seed, traffic), flush=True)


if __name__ == "__main__":
    main()
