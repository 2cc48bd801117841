"""Plans that the planner made are cut into parts that do what the program does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cora
from cora.cli.verify import with_evidence
from cora.engine.results import Options
from cora.errors import CoraError
from cora.frontends.nf import loads
from cora.frontends.traffic.writer import write_pcap
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import STANDARD, run_pipeline
from cora.models import registry
from cora.partition.planner import Planner, plan_with
from cora.plan.document import Plan, Request
from cora.plan.parts import parts_of
from cora.runtime.verify import Run, random_traffic, traffic_of
from cora.testing.frames import IPV6, Packet, Spec, build

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

# Which entry was used longest ago is known to one place only, so that this is never split.
WHOLE = JOINED.replace("full reject; order weak", "full evict_lru; exact")


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
    # Two accounts of one policy: the parts with every message at once, and the simulation in the profile.
    first = found.compared[0]
    assert first.prompt is not None
    assert first.prompt.fast / first.packets == pytest.approx(lent.share, rel=1e-5)
    installs = first.prompt.lent - first.prompt.refused
    assert installs / first.packets == pytest.approx(lent.installs_per_packet, rel=1e-5)
    assert first.prompt.recalled / first.packets == pytest.approx(lent.recalls_per_packet, rel=1e-5)


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Plan]:
    """A program whose flows the switch forwards by rules."""
    program = run_pipeline(loads(JOINED, "joined.nf"), STANDARD)
    capture = tmp_path_factory.mktemp("ruled") / "made.pcap"
    cora.traffic({"packets": "20k", "flows": "200", "zipf": "1.1", "replies": "0"}, capture)
    return program, cora.plan(program, cora.profile(program, capture), "bluefield2", rate="40Mpps")


def test_rules_in_gaps_let_packets_overtake_and_are_equal_to_an_order_of_them(ruled: tuple[Program, Plan]) -> None:
    program, plan = ruled
    found = cora.verify(plan, program, seeds=4, packets=20_000)
    assert found.difference is None and found.gaps is not None
    overtaken, packets = found.gaps
    # Where rules wait for counts nothing is overtaken, and where they do not, something is.
    assert found.statistics.overtaken == 0 < overtaken < packets == found.packets
    (evidence,) = with_evidence(plan, found).evidence.verified
    assert (evidence.overtaken, evidence.in_gaps) == (overtaken, packets)


def test_faults_are_found_with_rules_in_gaps(ruled: tuple[Program, Plan]) -> None:
    program, plan = ruled
    split = parts_of(plan, program)
    assert split.in_gaps is not None
    for fault in ("no recall", "shared writer", "stale entry"):
        run = Run(split, Options(), range(6), time.monotonic() + 60, fault)
        run.in_gaps(random_traffic(program, 0, 8000, ()))
        assert run.difference is not None, fault


@pytest.mark.parametrize(("place", "passing"), [("host", 2), ("arm", 1)])
def test_a_plan_that_runs_nothing_at_the_wire_runs(tmp_path: Path, place: str, passing: int) -> None:
    program = run_pipeline(loads(WHOLE, "whole.nf"), STANDARD)
    capture = tmp_path / "made.pcap"
    cora.traffic({"packets": "2k", "flows": "50"}, capture)
    made = cora.plan(program, cora.profile(program, capture), "bluefield2", cores=2, pin=[f"seen={place}"])
    moved = replace(made, blocks=tuple(replace(b, place=place) for b in made.blocks), states=tuple(
        replace(s, place=place, tier="dram", decision="whole", copies=()) for s in made.states))
    split = parts_of(moved, program)
    assert [bool(p.program.blocks) for p in split.parts].index(True) == 0
    assert len(split.parts[passing].program.blocks) > 5 > len(split.parts[0].program.blocks)
    assert cora.verify(moved, program, [capture], seeds=2, packets=500).difference is None


# Packets with extension headers need the host, all others do not.
LONGER = """nf longer {
  port a: wire; port b: wire;
  map slow { entry { src: ipv6 } key k = src; timeout 60s; capacity 3000; full pass; order weak; }
  fragments drop; unparsed drop;
  on a(p: eth/ipv6/udp) {
    if p.ipv6.next == 60 {
      lookup slow.k[p.ip.src] {
        hit e { touch e; }
        miss { insert slow { src: p.ip.src } { ok e { } full { } } }
      }
    }
    forward b;
  }
  on b(p: eth) { forward a; }
}"""


def test_extension_headers_do_not_make_another_flow(tmp_path: Path) -> None:
    program = run_pipeline(loads(LONGER, "longer.nf"), STANDARD)
    frames = [build(Spec(ethertype=IPV6, fields={("udp", "sport"): 5 + n % 2}, payload=b"1234",
                         extensions=((60, bytes(6)),) if n % 5 == 0 else ()))[0] for n in range(600)]
    packets = [Packet(0, 1000 * n, frame, len(frame)) for n, frame in enumerate(frames)]
    capture = tmp_path / "made.pcap"
    write_pcap(capture, [(p.time_ns, p.frame, None) for p in packets])
    plan = cora.plan(program, cora.profile(program, capture, port_map=["a=*"]), "agilio-cx", cores=2,
                     pin=["slow=host"])
    run = Run(parts_of(plan, program), Options(), range(4), time.monotonic() + 60, "sound")
    run.compare(traffic_of("two flows", packets))
    assert run.difference is None and run.compared[0].statistics.punted == 4 * 120
    # Those without extension headers end at the card, and may overtake those of their flow that have some.
    assert run.compared[0].statistics.overtaken > 0


# Fragments of a flow whose entry is lent.
PIECES = """nf pieces {
  port a: wire; port b: wire;
  map conns {
    entry { src: ipv4, sport: u16 } key k = (src, sport); timeout 60s; capacity 3000; full reject; order ORDER;
  }
  fragments track; unparsed drop;
  on a(p: eth/ipv4/udp) {
    lookup conns.k[(p.ip.src, p.l4.sport)] {
      hit e { touch e; forward b; }
      miss { insert conns { src: p.ip.src, sport: p.l4.sport } { ok e { forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth) { forward a; }
}"""


def pieces(flows: int) -> Iterator[Packet]:
    """Whole datagrams of a few flows, a tenth of them in two fragments."""
    rng = random.Random(1)
    for number in range(4000):
        flow = rng.randrange(flows)
        spec = Spec(fields={("l4", "sport"): 1000 + flow, ("ipv4", "src"): 0x0A000001 + flow}, payload=bytes(64))
        made = [spec] if rng.random() > 0.1 else [
            replace(spec, fragment=(0, True, number)), replace(spec, fragment=(72, False, number), raw=bytes(40))]
        for item in made:
            frame, wirelen = build(item)
            yield Packet(0, 1000 * number, frame, wirelen)


@pytest.mark.parametrize("nic", ["agilio-cx", "bluefield2"])
@pytest.mark.parametrize("order", ["strict", "weak"])
def test_a_first_fragment_is_overtaken_only_where_order_is_weak(tmp_path: Path, order: str, nic: str) -> None:
    """Its tracker is at the host, so that it passes the lent entry of its flow without a look at it."""
    program = run_pipeline(loads(PIECES.replace("ORDER", order), "pieces.nf"), STANDARD)
    packets = list(pieces(6))
    capture = tmp_path / "pieces.pcap"
    write_pcap(capture, [(p.time_ns, p.frame, None) for p in packets])
    profile = cora.profile(program, capture, port_map=["a=*"])
    request = Request(None, None, 4, "highs", 10.0, pins=("conns=host", "fragments=host"))
    planner = Planner(program, profile, registry.get(nic), request)
    case = next(c for c in planner.chooser.others if c.split is not None and c.split.mode == "resume")
    assert case.nearest is not None
    split = parts_of(plan_with(profile, request, case.nearest, "as near as it may be"), program)
    run = Run(split, Options(), range(6), time.monotonic() + 60, "sound")
    run.compare(traffic_of("pieces", packets))
    found = run.compared[0].statistics
    assert run.difference is None and found.fast > 3000
    assert (found.overtaken > 0) == (order == "weak")


# Two tables after each other, the first one pinned to the host and the second one to the card.
TWO = """nf two {
  port inside: wire; port outside: wire;
  map first { entry { src: ipv4 } key k = (src); timeout 60s; capacity 300; full reject; order weak; }
  pool ports: u16 in 2000..2100;
  map second {
    entry { src: ipv4, at: u16 = alloc ports } key k = (src); timeout 60s; capacity 80; full reject; order weak;
  }
  counter all;
  fragments drop; unparsed drop;
  on inside(p: eth/ipv4/udp) {
    count all;
    lookup first.k[(p.ip.src)] {
      hit e { touch e; }
      miss { insert first { src: p.ip.src } { ok e { } full { drop "first full"; } } }
    }
    lookup second.k[(p.ip.src)] {
      hit e { touch e; count all; p.l4.sport = e.at; forward outside; }
      miss { insert second { src: p.ip.src } { ok e { p.l4.sport = e.at; forward outside; } full { drop "full"; } } }
    }
  }
  on outside(p: eth/ipv4/udp) { forward inside; }
}"""


def test_packets_that_come_back_from_the_host_are_verified(tmp_path: Path) -> None:
    program = run_pipeline(loads(TWO, "two.nf"), STANDARD)
    capture = tmp_path / "made.pcap"
    cora.traffic({"packets": "3k", "flows": "150", "replies": "0"}, capture)
    plan = cora.plan(program, cora.profile(program, capture), "agilio-cx", cores=2,
                     pin=["first=host", "second=nic"])
    back = [b for b in plan.blocks if b.leg]
    assert back and {b.place for b in back} == {"nic"}
    split = parts_of(plan, program, returning=True)
    assert [(p.place, p.roles.get("first"), p.roles.get("second"), p.roles.get("ports")) for p in split.parts] == [
        ("nic", None, None, None), ("host", "whole", None, None), ("nic again", None, "whole", "whole")]
    found = cora.verify(plan, program, [capture], seeds=3, packets=2000)
    assert found.difference is None
    assert found.statistics.punted > 3000
    with pytest.raises(CoraError, match="come back to nic from the host"):
        parts_of(plan, program)


def test_a_table_on_both_sides_of_the_host_is_no_plan(tmp_path: Path) -> None:
    program = run_pipeline(loads(TWO, "two.nf"), STANDARD)
    capture = tmp_path / "made.pcap"
    cora.traffic({"packets": "1k", "flows": "50", "replies": "0"}, capture)
    plan = cora.plan(program, cora.profile(program, capture), "agilio-cx", cores=2,
                     pin=["first=host", "second=nic"])
    using = {b.label for b in program.blocks if getattr(b.terminator, "state", "") == "first"}
    card = next(s for s in plan.states if s.name == "second")
    states = tuple(replace(s, place=card.place, tier=card.tier) for s in plan.states)
    first = min(using)
    broken = replace(plan, states=states, blocks=tuple(replace(b, place="nic", leg=int(b.block != first))
                                                       for b in plan.blocks))
    with pytest.raises(CoraError, match="both before and after the host"):
        parts_of(broken, program, returning=True)
