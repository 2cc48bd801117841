"""How long a user waits: `cora --help`, and planning the NAT from a 10,000-packet capture for both NICs.

Each figure is the wall time of whole processes, medians of RUNS, interleaved. Cold: an empty cache folder, so the C
compiler runs. Warm: the engine is found compiled. Ratios are to a Python process that does nothing.

    python benchmarks/planning.py [--runs 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAT = str(ROOT / "examples" / "nat.nf")
PLAN_BOTH = """
import sys, cora
program = cora.load(sys.argv[1])
profile = cora.profile(program, sys.argv[2], captured_at="inside")
for nic in ("agilio-cx", "bluefield2"):
    plan = cora.plan(program, profile, nic, rate="10Mpps")
    print(plan.evidence.seconds)
"""


def timed(command: list[str], cache: Path) -> tuple[float, str]:
    """Wall seconds of a process, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CORA_CACHE_DIR": str(cache)},
                          check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(done.stderr)
    return seconds, done.stdout


def solver_seconds(names: list[str], cache: Path) -> dict[str, float]:
    """Seconds in the solver for each shipped program and NIC."""
    code = ("import sys, json, cora\nfound = {}\nfor name in sys.argv[2:]:\n"
            "    program = cora.load(f'{sys.argv[1]}/{name}.nf')\n"
            "    flags = [f'{program.ports[0].name}=10.0.0.0/24,2001:db8:1::/64']\n"
            "    profile = cora.profile(program, f'{sys.argv[1]}/captures/office.pcap', port_map=flags)\n"
            "    for nic in ('agilio-cx', 'bluefield2'):\n"
            "        found[f'{name} on {nic}'] = cora.plan(program, profile, nic, cores=2).evidence.seconds\n"
            "print(json.dumps(found))")
    _, out = timed([sys.executable, "-c", code, str(ROOT / "examples"), *names], cache)
    found: dict[str, float] = json.loads(out)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "t.pcap")
        warm = Path(folder, "warm")
        timed([sys.executable, "-m", "cora", "traffic", "--packets", "10000", "-o", str(trace)], warm)
        plan = [sys.executable, "-c", PLAN_BOTH, NAT, str(trace)]
        timed(plan, warm)
        jobs = {
            "python, doing nothing": [sys.executable, "-c", "pass"],
            "cora --help": [sys.executable, "-m", "cora", "--help"],
            "plan NAT for both NICs, warm": plan,
            "plan NAT for both NICs, cold": plan,
        }
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for run in range(runs):
            for name, command in jobs.items():
                cache = Path(folder, f"cold{run}") if name.endswith("cold") else warm
                seconds[name].append(timed(command, cache)[0])
        base = statistics.median(seconds["python, doing nothing"])
        print(f"measured here: wall seconds of whole processes, median of {runs} (least to most), ratio to row 1")
        for name, values in seconds.items():
            median = statistics.median(values)
            print(f"{name:32} {median:7.3f}  ({min(values):.3f} to {max(values):.3f})  {median / base:6.1f}x")
        print("\nseconds in the solver, all stages of one plan (measured here)")
        for name, value in solver_seconds(["nat", "firewall", "policer", "nat.ref", "firewall.ref", "policer.ref"],
                                          warm).items():
            print(f"{name:32} {value:7.4f}")


if __name__ == "__main__":
    main()
