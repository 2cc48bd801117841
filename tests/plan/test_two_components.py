"""Two components lent at once: plans run as they say, by code and by rules; what is not lent together is told."""

from __future__ import annotations

from pathlib import Path

import pytest

import cora
from cora.analysis.profile import Profile
from cora.frontends.nf import loads
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import STANDARD, run_pipeline
from cora.models import registry
from cora.partition.choosing import Case
from cora.partition.planner import Planner, plan_with
from cora.plan.document import Request

pytestmark = pytest.mark.needs("gcc")

# Connections of TCP and flows of UDP have a table each. The last segment of a connection is its owner's business.
APART = """nf apart {
  port inside: wire; port outside: wire;
  map tcp_flows {
    entry { src: ipv4, sport: u16, dst: ipv4, dport: u16 } key k = (src, sport, dst, dport);
    timeout 60s slack 10s; capacity 2000; full reject; order ORDER;
  }
  map udp_flows {
    entry { src: ipv4, sport: u16, dst: ipv4, dport: u16 } key k = (src, sport, dst, dport);
    timeout 30s slack 10s; capacity 500; full reject; order ORDER;
  }
  counter sent;
  fragments drop; unparsed drop;
  on inside(p: eth/ipv4/tcp) {
    lookup tcp_flows.k[(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport)] {
      hit e { if p.tcp.fin || p.tcp.rst { delete e; forward outside; } touch e; count sent; forward outside; }
      miss {
        insert tcp_flows { src: p.ip.src, sport: p.l4.sport, dst: p.ip.dst, dport: p.l4.dport } {
          ok e { forward outside; } full { drop "full"; } } } } }
  on inside(p: eth/ipv4/udp) {
    lookup udp_flows.k[(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport)] {
      hit e { touch e; count sent; forward outside; }
      miss {
        insert udp_flows { src: p.ip.src, sport: p.l4.sport, dst: p.ip.dst, dport: p.l4.dport } {
          ok e { forward outside; } full { drop "full"; } } } } }
  on outside(p: eth) { forward inside; }
}"""

# Every datagram of UDP is looked for among the connections first.
MIXED = APART.replace("    lookup udp_flows.k[", """
    lookup tcp_flows.k[(p.ip.src, p.l4.sport, p.ip.dst, p.l4.dport)] { hit e { drop "both"; } }
    lookup udp_flows.k[""")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("two") / "made.pcap"
    cora.traffic({"packets": "10k", "flows": "150", "zipf": "1.1", "udp": "0.5", "replies": "0"}, path)
    return path


def made(text: str, capture: Path) -> tuple[Program, Profile]:
    program = run_pipeline(loads(text, "two.nf"), STANDARD)
    return program, cora.profile(program, capture)


def joint(program: Program, profile: Profile, nic: str, mode: str) -> tuple[Request, Case]:
    """A split of both, by its smallest budgets, with everything as near to the wire as it may be."""
    request = Request(None, None, 4, "highs", 10.0)
    planner = Planner(program, profile, registry.get(nic), request)
    return request, next(c for c in planner.chooser.others if c.split is not None and len(c.split.lends) == 2
                         and c.split.mode == mode and c.nearest is not None)


@pytest.mark.parametrize(("nic", "order", "mode"), [("agilio-cx", "strict", "resume"),
                                                    ("bluefield2", "weak", "restart")])
def test_both_are_lent_and_the_parts_are_equal(capture: Path, nic: str, order: str, mode: str) -> None:
    program, profile = made(APART.replace("ORDER", order), capture)
    request, case = joint(program, profile, nic, mode)
    assert case.nearest is not None
    plan = plan_with(profile, request, case.nearest, "both lent")
    lent = [s.lent for s in plan.states if s.lent is not None]
    assert len(lent) == 2 and {x.mode for x in lent} == {mode}
    found = cora.verify(plan, program, [capture], seeds=3, packets=3000)
    assert found.difference is None
    # Two accounts of one policy: every message at once, and the sum of what the admission simulation says of each.
    first = found.compared[0]
    assert first.prompt is not None and first.prompt.fast > 3000
    assert first.prompt.fast / first.packets == pytest.approx(lent[0].share, rel=1e-5)
    assert (first.prompt.lent - first.prompt.refused) / first.packets == pytest.approx(
        sum(x.installs_per_packet for x in lent), rel=1e-5)
    assert (found.gaps is not None) == (mode == "restart")


def test_what_is_not_lent_together_is_told(capture: Path) -> None:
    program, profile = made(MIXED.replace("ORDER", "weak"), capture)
    plan = cora.plan(program, profile, "agilio-cx", cores=2, pin=["tcp_flows=host", "udp_flows=host"])
    assert {c for a in profile.admission for p in a.points for c in p.budgets} == {"tcp_flows", "udp_flows"}
    assert sum(s.lent is not None for s in plan.states) == 1
    (said,) = [r for r in plan.refusals if r.subject == "tcp_flows and udp_flows"]
    assert said.place == "nic by flow" and "only one is lent at a time" in said.reason
