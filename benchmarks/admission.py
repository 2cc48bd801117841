"""What the admission simulation costs a profile run, and how good the policy is.

Traffic: PACKETS 64-byte packets of FLOWS flows through the NAT, Zipf 0 to 1.3, CHURN new flows per million packets.
Per capacity: the share of packets on the fast path, against the share of the most used entries of the whole run (the
best fixed choice, made with hindsight), and installs per 1,000 packets. All figures are measured here.

    python benchmarks/admission.py [--packets 2M] [--flows 60000] [--churn 10000] [--runs 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import cora
from cora.analysis.profile import Profile
from cora.engine.native import NativeEngine
from cora.frontends.traffic.synthetic import TrafficSpec
from cora.frontends.traffic.synthetic_blocks import chunks
from cora.ir.nodes import Program
from cora.runtime.admission.native import Simulator

NAT = Path(__file__).resolve().parent.parent / "examples" / "nat.nf"
# Room for all flows: 8 external addresses.
OVERRIDES = {"ext_last": "203.0.113.8", "capacity": "500000"}


def seconds(program: Program, trace: Path, *, simulate: bool) -> tuple[float, float]:
    """Wall and processor seconds of a profile run; without the simulation, nothing is written down for it either."""
    with ExitStack() as stack:
        for place, name in () if simulate else ((Simulator, "feed"), (NativeEngine, "follow")):
            stack.enter_context(mock.patch.object(place, name, lambda *_: None))
        wall, processor = time.perf_counter(), time.process_time()
        cora.profile(program, trace, captured_at="inside")
        return time.perf_counter() - wall, time.process_time() - processor


def quality(profile: Profile) -> None:
    """The table of points of the connections, in mode resume."""
    curve = profile.states["conns"].popularity
    entries = profile.states["conns"].sampled_entries
    print("  capacity threshold  fast path  most used  installs/1000  recalls/1000")
    for point in profile.admission[0].points:
        budget = point.budgets["conns"]
        share = sum(n for _, n in point.lent) / profile.packets
        # The curve has few points: the largest one that does not exceed the capacity is a lower bound.
        best = max((mass for part, mass in curve if part * entries <= budget.capacity), default=0.0)
        rate = 1000 / profile.packets
        print(f"  {budget.capacity:8,} {budget.threshold:9} {100 * share:9.1f}% {100 * best:9.1f}% "
              f"{point.installs * rate:14.3f} {point.recalls * rate:13.3f}")


def main() -> None:
    """Print cost and quality for each popularity."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", default="2M")
    parser.add_argument("--flows", default="60000")
    parser.add_argument("--churn", default="10000")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    program = cora.load(NAT, OVERRIDES)
    with tempfile.TemporaryDirectory() as folder:
        for zipf in ("0", "0.8", "1.0", "1.3"):
            spec = TrafficSpec.parse({"packets": options.packets, "flows": options.flows, "churn": options.churn,
                                      "zipf": zipf, "size": "64", "rate": "1Mpps"})
            trace = Path(folder, "t.pcap")
            with trace.open("wb") as file:
                file.writelines(chunks(spec))
            with_it, without = ([seconds(program, trace, simulate=s) for _ in range(options.runs)]
                                for s in (True, False))
            wall, processor = (statistics.median(w[i] for w in with_it) / statistics.median(w[i] for w in without)
                               for i in range(2))
            print(f"Zipf {zipf}: the profile run takes {wall:.2f} times as long as without the simulation, "
                  f"{processor:.2f} times as much processor time")
            quality(cora.profile(program, trace, captured_at="inside"))


if __name__ == "__main__":
    main()
