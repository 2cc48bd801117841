"""Runs random programs as DPDK host programs on several cores, against the reference interpreter; not a test.

    python benchmarks/fuzz_host.py [--seeds 0:50] [--packets 800] [--cores 1,2,3]

For every seed: a random program and packets that were searched to take its branches, some of them over and over. On
every number of cores the host program must give the events, totals and state of the reference; with several cores a
packet begins when the one before it is done. Told are the packets that were handed over and those that ran alone. The
exit code is 1 when something differs; what the engine refuses (a stated limit) is counted and shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from fuzz_splits import options_of, packets_of

from cora.backends.host.execute import CoreCounts
from cora.backends.host.random_runs import run_host
from cora.errors import CoraError, Kind
from cora.testing import difference, exercising_packets, generate, run_reference
from cora.testing.compare import Outcome
from cora.testing.splits import by_packet


def one(seed: int, count: int, cores: list[int], seen: Counter[str]) -> str | None:
    """Run one seed; the report of a failure."""
    case, options = generate(seed), options_of(seed)
    packets = packets_of(seed, exercising_packets(case.program, seed, count // 2, options), count)
    found = run_reference(case.program, packets, options)
    wanted = Outcome(by_packet(found.events), found.summary, found.state)
    for number in cores:
        run = run_host(case.program, packets, options, cores=number)
        seen += _work(run.cores)
        unequal = difference(wanted, run.outcome)
        if unequal is not None:
            return f"seed {seed}, {number} cores: {unequal}\n{case.text}"
    return None


def _work(cores: list[CoreCounts]) -> Counter[str]:
    return Counter({"packets": sum(c.received for c in cores), "handed over": sum(c.handed_over for c in cores),
                    "ran alone": sum(c.alone for c in cores)})


def main() -> int:
    """Run all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:50", help="first:last, the last not included")
    parser.add_argument("--packets", type=int, default=800)
    parser.add_argument("--cores", default="1,2,3")
    arguments = parser.parse_args()
    first, last = (int(n) for n in arguments.seeds.split(":"))
    cores = [int(n) for n in arguments.cores.split(",")]
    seen: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failures, started = 0, time.monotonic()
    for seed in range(first, last):
        try:
            report = one(seed, arguments.packets, cores, seen)
        except CoraError as error:
            diagnostic = error.diagnostics[0]
            expected = diagnostic.kind == Kind.ENGINE_LIMIT or "runs on one core" in diagnostic.message
            refused[diagnostic.message[:160]] += 1
            report = None if expected else f"seed {seed}: {error}"
        if report is not None:
            failures += 1
            print(report, flush=True)
    print(f"{last - first} programs, {failures} failures, in {time.monotonic() - started:.0f} s: "
          + ", ".join(f"{n:,} {what}" for what, n in seen.items()))
    for message, times in refused.most_common():
        print(f"  refused {times} times: {message}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
