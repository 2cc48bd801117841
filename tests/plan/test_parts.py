"""Plans that the planner made are cut into parts that do what the program does."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from cora.frontends.nf import loads
from cora.ir.passes.pipeline import STANDARD, run_pipeline

pytestmark = pytest.mark.needs("gcc")

# The rules of its decided flows pass blocks that end in a plain jump.
JOINED = """nf joined {
  port inside: wire; port outside: wire;
  map seen {
    entry { src: ipv4, dst: ipv4 } key fwd = (src, dst);
    timeout 60s slack 10s; capacity 4000; full reject; order weak;
  }
  counter tcp; counter all;
  fragments drop; unparsed drop;
  on inside(p: eth/ipv4/(tcp|udp)) {
    lookup seen.fwd[(p.ip.src, p.ip.dst)] {
      hit e { touch e; if p.ip.proto == 6 { count tcp; } if p.ip.proto == 6 { count all; } forward outside; }
      miss { insert seen { src: p.ip.src, dst: p.ip.dst } { ok e { forward outside; } full { drop "full"; } } }
    }
  }
  on outside(p: eth/ipv4/(tcp|udp)) { forward inside; }
}"""


def test_rules_that_pass_a_jump_run(tmp_path: Path) -> None:
    program = run_pipeline(loads(JOINED, "joined.nf"), STANDARD)
    capture = tmp_path / "made.pcap"
    cora.traffic({"packets": "20k", "flows": "200", "zipf": "1.1", "replies": "0"}, capture)
    plan = cora.plan(program, cora.profile(program, capture), "bluefield2", rate="40Mpps")
    lent = plan.state("seen").lent
    assert lent is not None and lent.mode == "restart"
    found = cora.verify(plan, program, [capture], seeds=2, packets=2000)
    assert found.difference is None
    assert found.statistics.fast > 0 and found.statistics.recalled > 0
