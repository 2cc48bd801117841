"""Whole programs on the native engine, as a check of a calibration: what a packet takes, and what the model says."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cora.analysis.profile import Profile
from cora.frontends.nf import loads
from cora.frontends.traffic.synthetic import TrafficSpec, write
from cora.ir.nodes import Program
from cora.models.calibration import Check
from cora.models.target import Target
from cora.models.validation import quantile

FLOWS = (1_000, 50_000)
PACKETS = 200_000
REPEATS = 7

# A counter of each flow's packets, as the published flow sweeps have it.
SOURCE = """\
nf flow_counter {
  port inside: wire;
  port outside: wire;
  fragments drop;
  map flows {
    entry { src: ipv4, dst: ipv4, sport: u16, dport: u16, packets: u64 }
    key = (src, dst, sport, dport);
    capacity 131072;
    timeout 300s slack 1s;
  }
  on inside(p: eth/ipv4/(tcp|udp)) {
    lookup flows[(p.ipv4.src, p.ipv4.dst, p.l4.sport, p.l4.dport)] {
      hit e { e.packets = e.packets + 1; touch e; forward outside; }
      miss {
        insert flows { src: p.ipv4.src, dst: p.ipv4.dst, sport: p.l4.sport, dport: p.l4.dport, packets: 1 } {
          ok e { forward outside; }
          full { drop "full"; }
        }
      }
    }
  }
  on outside(p: eth/ipv4/(tcp|udp)) { forward inside; }
}
"""


def checks(target: Target) -> Sequence[Check]:
    """The flow counter with few and with many flows. ``target``: the host with the calibration's figures.

    Raises:
        CoraError: no compiler, or no place for the traffic.
    """
    program = loads(SOURCE, "flow_counter.nf")
    with tempfile.TemporaryDirectory(prefix="cora-calibrate-") as folder:
        return [_check(program, target, flows, Path(folder, f"{flows}.pcap")) for flows in FLOWS]


def _check(program: Program, target: Target, flows: int, capture: Path) -> Check:
    from cora.runtime.profiling import make_profile

    write(TrafficSpec.parse({"packets": str(PACKETS), "flows": str(flows), "zipf": "0", "replies": "0", "udp": "1",
                             "size": "64"}), capture)
    profile = make_profile(program, capture, port_map=("inside=*",))
    samples = _times(program, capture)
    low, middle, high = (quantile(sorted(samples), q) for q in (0.1, 0.5, 0.9))
    return Check(program.name, flows, *(float(f"{n:.4g}") for n in (middle, low, high, _predicted(program, profile,
                                                                                                  target))))


def _times(program: Program, capture: Path) -> list[float]:
    """Processor time per packet of some runs over the same packets; the first run fills caches and is left out."""
    from cora.engine.native import NativeEngine
    from cora.frontends.traffic import open_traffic
    from cora.frontends.traffic.portmap import PortMap

    mapping = PortMap.parse(("inside=*",), [p.name for p in program.ports])
    found = []
    with open_traffic(capture) as source:
        batches = [batch.copy() for batch in mapping.assign(source).batches()]
        packets = sum(len(b) for b in batches)
        with NativeEngine(program) as engine:
            for _ in range(REPEATS + 1):
                start = time.process_time_ns()
                engine.run(batches)
                found.append((time.process_time_ns() - start) / packets)
    return found[1:]


def _predicted(program: Program, profile: Profile, target: Target) -> float:
    """Nanoseconds of a packet's code and table accesses on a host core, without receiving and sending it."""
    from cora.partition.baselines import Aim, Rules
    from cora.partition.instance import build
    from cora.partition.units import units_of

    found = build(program, profile, target)
    placement = Rules(found, units_of(found), Aim(None, 1, 1)).host_only()
    assert placement is not None, "a host alone runs every program"
    column = next(i for i, r in enumerate(found.resources) if r.scales)
    return float(placement.demand[column] - found.prices.visit(found.last)[column])
