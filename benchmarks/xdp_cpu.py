"""Processor time per packet of plans for XDP, split against everything in user space, beside the planner's prediction.

    cora calibrate && cora calibrate --nic xdp          once, on an idle machine
    .venv/bin/python benchmarks/xdp_cpu.py [--repeats 7] [--zipf 0 --zipf 1.2] [--program firewall.ref] [--memory 16kB]

Runs the built programs between veth pairs in namespaces of its own (root). The same frames go through three plans of
the same program: all state in user space, split with few entries lent to the kernel, and as the planner likes it best.
Their runs take turns. User, system (both of the user half) and softirq (the kernel half) are measured here; the total
stands beside what the plan predicts with the figures of this machine. Packets arrive in bursts, and the prediction is
for as many packets per wake-up of the user half as a burst has for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cora
from cora.analysis.profile import Profile
from cora.backends.xdp.measuring.wire import BURST, RATE, Cost, Wire
from cora.build.compose import build
from cora.build.make import make
from cora.build.request import request_of
from cora.build.tree import write_tree
from cora.errors import CoraError
from cora.frontends.traffic.synthetic import TrafficSpec, write
from cora.ir.nodes import MapState, MeterState, Program
from cora.models import calibration
from cora.plan.document import Plan

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Packets of a capture and of one run over its beginning: new flows are rare in both.
PACKETS, SENT = 400_000, 100_000
FLOWS = 1_000
HEADER = (f"{'':11}{'user':>7}{'system':>8}{'softirq':>9}{'total':>7}{'P10':>7}{'P90':>7}   "
          f"predicted{'':16}error   ratio")


@dataclass(frozen=True)
class Kind:
    """A plan of a program, by what it was asked to do."""

    name: str
    plan: Plan

    @property
    def predicted(self) -> tuple[float, float, float]:
        """Processor nanoseconds per packet, and P10 and P90 of them."""
        work = next(f for f in self.plan.figures if f.name == "host work")
        rate = self.plan.request.rate_pps
        assert rate and work.value is not None and work.low is not None and work.high is not None
        return 1e9 * work.value / rate, 1e9 * work.low / rate, 1e9 * work.high / rate

    @property
    def lent(self) -> str:
        """Lent entries and the predicted share of packets that they serve."""
        told = [f"{s.lent.entries} entries of {s.name} lent, {s.lent.share:.1%} of packets" for s in self.plan.states
                if s.lent is not None]
        return ", ".join(told) or "nothing lent"


def plans(program: Program, profile: Profile, memory: str, folder: Path) -> list[Kind]:
    """The three plans; ``memory`` limits what the split one may put into the kernel."""
    tables = [s.name for s in program.states if isinstance(s, MapState | MeterState)]
    own = [f"{t}=user" for t in tables]
    user = planned(program, profile, folder, BURST, forbid=[f"{t}=kernel" for t in tables])
    split = planned(program, profile, folder, BURST, pin=own, max_nic_memory=memory)
    share = max((s.lent.share for s in split.states if s.lent is not None), default=0.0)
    split = planned(program, profile, folder, max(1.0, BURST * (1 - share)), pin=own, max_nic_memory=memory)
    return [Kind("user", user), Kind("split", split), Kind("free", planned(program, profile, folder, BURST))]


def planned(program: Program, profile: Profile, folder: Path, batch: float, **asked: Any) -> Plan:
    """A plan where the user half finds ``batch`` packets when it wakes up."""
    file = folder / f"burst-{batch:.0f}.toml"
    file.write_text(f'description = "packets in bursts"\n[values]\nwake_batch = {batch:.1f}\n', encoding="utf-8")
    return cora.plan(program, profile, "xdp", rate=RATE, instance=str(file), **asked)


def prepared(name: str, zipf: str, folder: Path) -> tuple[Program, Profile, Path]:
    """A program with its profile on its traffic, all of it from the inside."""
    capture = folder / "in.pcap"
    write(TrafficSpec.parse({"packets": str(PACKETS), "flows": str(FLOWS), "zipf": zipf, "replies": "0", "udp": "1",
                             "size": "64", "rate": f"{RATE}pps"}), capture)
    program = cora.load(EXAMPLES / f"{name}.nf")
    inside = program.ports[0].name
    return program, cora.profile(program, capture, port_map=[f"{inside}=*"]), capture


def measured(kinds: list[Kind], program: Program, capture: Path, folder: Path, repeats: int) -> list[list[Cost]]:
    """Costs by plan; their runs take turns, the first of each is left out."""
    with ExitStack() as stack:
        wires = []
        for number, kind in enumerate(kinds):
            tree = folder / kind.name
            write_tree(build(request_of(kind.plan, program)), tree)
            make(tree, "xdp")
            wires.append(stack.enter_context(Wire(tree, tuple(p.name for p in program.ports), str(number))))
        for wire in wires:
            wire.measure(capture, PACKETS)
        rounds = [[wire.measure(capture, SENT) for wire in wires] for _ in range(repeats)]
    return [list(costs) for costs in zip(*rounds, strict=True)]


def shown(kind: Kind, costs: list[Cost], base: list[Cost]) -> str:
    """A line: medians, the prediction with its band, the error of the total, and the total against user space."""
    def middle(of: str, among: list[Cost] = costs) -> float:
        return statistics.median(getattr(c, of) for c in among)

    totals = sorted(c.total for c in costs)
    low, high = totals[len(totals) // 10], totals[-1 - len(totals) // 10]
    value, least, most = kind.predicted
    lost = 1 - statistics.median(c.forwarded for c in costs)
    return (f"{kind.name:11}{middle('user'):7.0f}{middle('system'):8.0f}{middle('softirq'):9.0f}{middle('total'):7.0f}"
            f"{low:7.0f}{high:7.0f}{value:8.0f} ({least:.0f} to {most:.0f}){'':8}{value / middle('total') - 1:+7.1%}"
            f"{middle('total') / middle('total', base):8.2f}  {kind.lent}{f'; {lost:.2%} lost' if lost > 1e-4 else ''}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--zipf", action="append", default=[])
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--memory", default="16kB")
    asked = parser.parse_args()
    if asked.repeats < 3:
        sys.exit("--repeats: medians need at least 3 runs")
    try:
        if calibration.stored("xdp") is None:
            print("not calibrated: predictions are of published and assumed figures, not of this machine's",
                  file=sys.stderr)
        for name in asked.program or ["firewall.ref", "nat.ref"]:
            for zipf in asked.zipf or ["0", "0.6", "1.2"]:
                with tempfile.TemporaryDirectory(prefix="cora-xdp-cpu-") as folder:
                    program, profile, capture = prepared(name, zipf, Path(folder))
                    kinds = plans(program, profile, asked.memory, Path(folder))
                    found = measured(kinds, program, capture, Path(folder), asked.repeats)
                print(f"\n{name}, zipf {zipf}, {FLOWS} flows, {RATE / 1000:.0f} kpps: processor ns a packet, measured\n"
                      f"{HEADER}")
                for kind, costs in zip(kinds, found, strict=True):
                    print(shown(kind, costs, found[0]), flush=True)
    except CoraError as error:
        sys.exit(error.render())


if __name__ == "__main__":
    main()
