"""How long a user waits: `cora --help`, planning the NAT from a capture, and the planner on every shipped function.

Each figure is a median of RUNS, measured here.

* Whole processes, interleaved: the NAT from a 10,000-packet capture for both NICs. Cold: an empty cache folder, so the
  C compiler runs. Warm: the engine is found compiled. Ratios are to a Python process that does nothing.
* The planner, in one process: every function, NIC and form of request (fewest cores at a rate, most throughput with
  given cores), from a profile at hand. ``search``: until the optimum is proven, all goals; ``warm``: the same search
  begun with that plan; ``again``: all of planning anew from the profile and that plan but for the document, so with the
  graph and prices of every variant; ``plan``: with bands, moves and alternatives. Wall seconds, those of ``again`` also
  of the processor.

    python benchmarks/planning.py [--runs 7] [--only-planner]
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


def planner_seconds(runs: int, cache: Path) -> list[dict[str, float | str]]:
    """Per function, NIC and form: median seconds of the search and of the whole plan, and the gap that was proven."""
    code = """
import json, statistics, sys, time, cora
from cora.models import registry
from cora.partition.planner import Planner
folder, runs = sys.argv[1], int(sys.argv[2])
found = []
for name in ("nat", "firewall", "policer", "nat.ref", "firewall.ref", "policer.ref"):
    program = cora.load(f"{folder}/{name}.nf")
    port = program.ports[0].name
    flags = [f"{port}=10.0.0.0/24,2001:db8:1::/64", f"{program.ports[1].name}=*"]
    profile = cora.profile(program, f"{folder}/captures/office.pcap", port_map=flags, captured_at=port)
    for nic in ("agilio-cx", "bluefield2"):
        for form in ({"cores": 2}, {"rate": "10Mpps"}, {"rate": "25Gbps"}):
            searched, whole, warm, again, spent = [], [], [], [], []
            for _ in range(runs):
                start = time.perf_counter()
                plan = cora.plan(program, profile, nic, time_limit=60, **form)
                whole.append(time.perf_counter() - start)
                searched.append(plan.evidence.seconds)
                start, processor = time.perf_counter(), time.process_time()
                planner = Planner(program, profile, registry.get(nic), plan.request, plan)
                planner.chosen()
                again.append(time.perf_counter() - start)
                spent.append(time.process_time() - processor)
                warm.append(sum(stage.seconds for stage in planner.chooser.stages))
            shown = " ".join(f"{k} {v}" for k, v in form.items())
            found.append({"what": f"{name} on {nic}, {shown}", "search": statistics.median(searched),
                          "plan": statistics.median(whole), "warm": statistics.median(warm),
                          "again": statistics.median(again), "processor": statistics.median(spent),
                          "gap": plan.evidence.gap, "status": plan.evidence.status})
print(json.dumps(found))
"""
    _, out = timed([sys.executable, "-c", code, str(ROOT / "examples"), str(runs)], cache)
    rows: list[dict[str, float | str]] = json.loads(out)
    return rows


def print_planner(rows: list[dict[str, float | str]], runs: int) -> None:
    """The planner's table: every case, then the typical and the worst one."""
    print(f"\nplanning from a profile at hand: seconds, medians of {runs} (measured here)")
    print(f"{'case':44} {'search':>8} {'warm':>8} {'again':>8} {'(cpu)':>8} {'plan':>8}  proven")
    for row in rows:
        gap = "no" if row["gap"] is None else f"{row['status']}, gap {100 * float(row['gap']):.3f} %"
        print(f"{row['what']:44} {row['search']:8.4f} {row['warm']:8.4f} {row['again']:8.4f} {row['processor']:8.4f} "
              f"{row['plan']:8.4f}  {gap}")
    for kind in ("search", "warm", "again", "processor", "plan"):
        values = [float(r[kind]) for r in rows]
        print(f"{kind}: typical (median of cases) {statistics.median(values):.4f} s, worst {max(values):.4f} s")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only-planner", action="store_true")
    asked = parser.parse_args()
    runs: int = asked.runs
    if asked.only_planner:
        with tempfile.TemporaryDirectory() as folder:
            print_planner(planner_seconds(runs, Path(folder)), runs)
        return
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
        print_planner(planner_seconds(runs, warm), runs)


if __name__ == "__main__":
    main()
