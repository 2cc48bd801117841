"""Split programs do what the unsplit ones do, whatever the scheduler does."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from test_agreement import both_sides

import cora
from cora.engine.split import Statistics, run_sanitized
from cora.frontends import nf
from cora.ir.nodes import Forward, Program
from cora.ir.parts import Split
from cora.plan.parts import parts_of
from cora.testing import Packet, difference, exercising_packets, generate, run_native
from cora.testing.choices import RandomChoices
from cora.testing.compare import Outcome
from cora.testing.placements import random_rules, random_split
from cora.testing.splits import by_packet, run_split

ROOT = Path(__file__).resolve().parent.parent.parent
OFFICE = ROOT / "examples" / "captures" / "office.pcap"

pytestmark = pytest.mark.needs("gcc")


@lru_cache(maxsize=1)
def office() -> tuple[Packet, ...]:
    return tuple(both_sides(OFFICE))


def unsplit(program: Program, packets: tuple[Packet, ...]) -> Outcome:
    found = run_native(program, packets)
    return Outcome(by_packet(found.events), found.summary, found.state)


def assert_same(split: Split, packets: tuple[Packet, ...], chances: range = range(3)) -> Statistics:
    wanted, total = unsplit(split.program, packets), Statistics()
    for chance in chances:
        found = run_split(split, packets, chance=chance)
        assert difference(wanted, found.outcome) is None, (chance, found.statistics)
        assert found.statistics.left == found.statistics.stray == 0
        total = total.plus(found.statistics)
    return total


@pytest.mark.parametrize(("name", "nic"), [("firewall", "bluefield2"), ("nat", "bluefield2"), ("policer", "agilio-cx")])
def test_plans_run_as_their_places(name: str, nic: str) -> None:
    program = cora.load(ROOT / "examples" / f"{name}.nf")
    plan = cora.plan(program, cora.profile(program, OFFICE), nic, cores=4)
    assert_same(parts_of(plan, program), office(), range(2))


@pytest.mark.parametrize(("name", "seed"), [("firewall", 0), ("nat", 1), ("policer", 5), ("firewall.ref", 3),
                                            ("nat.ref", 0), ("policer.ref", 5)])
def test_examples_under_random_placements(name: str, seed: int) -> None:
    split = random_split(cora.load(ROOT / "examples" / f"{name}.nf"), RandomChoices(seed), 2 + seed % 2)
    assert split.lendings
    assert assert_same(split, office()).used > 0


@pytest.mark.parametrize(("name", "seed"), [("firewall.ref", 0), ("nat.ref", 1), ("firewall", 0)])
def test_rules_serve_decided_paths_and_all_else_starts_anew(name: str, seed: int) -> None:
    split = random_rules(cora.load(ROOT / "examples" / f"{name}.nf"), RandomChoices(seed), 2 + seed)
    assert split is not None
    assert any(e.anew for e in split.parts[1].entries)
    found = assert_same(split, office())
    assert found.fast > 500 and found.recalled > 0


# Random programs whose random split lends entries, both ways.
@pytest.mark.parametrize("seed", [6, 9, 12, 13])
def test_random_programs_under_random_placements(seed: int) -> None:
    case, choices = generate(seed), RandomChoices(seed)
    ruled = random_rules(case.program, choices, 2) if seed % 3 == 0 else None
    packets = exercising_packets(case.program, seed, 400)
    assert_same(ruled or random_split(case.program, choices, 3), (*packets, *(
        Packet(p.port, packets[-1].time_ns + 1000 * i, p.frame, p.wirelen) for i, p in enumerate(packets))))


TWO_WAYS = """nf x { port a: wire; port b: host;
  map m { entry { k: ipv4, n: u32 } key = k; timeout { long 9s, short 2s }; capacity 4; full reject; }
  counter c;
  on a(p: eth/ipv4) {
    lookup m[p.ip.src] {
      hit e { count c; e.n = e.n + 1; if e.n % 4 == 3 { touch e as short; } else { touch e as long; }
              p.ip.ttl = 7; forward b; }
      miss { insert m { k: p.ip.src, n: 0 } as long { ok e { forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth/ipv4) {
    lookup m[p.ip.dst] { hit e { delete e; forward a; } miss { drop "unknown"; } }
  }
}"""


def test_an_entry_lent_is_used_near_the_wire_and_comes_back() -> None:
    """A hand-made flow: three packets before the entry is lent, then all at the near place, then a delete."""
    program = nf.loads(TWO_WAYS)
    split = next(s for s in (random_split(program, RandomChoices(i), 2) for i in range(200))
                 if s.parts[0].roles.get("m") == "lent" and any(
                     b.terminator == program.block(b.label.rsplit(".", 1)[0]).terminator
                     for b in s.parts[0].program.blocks if isinstance(b.terminator, Forward)))
    ip = bytes.fromhex("4500001400000000400166e70a0000010a000002")
    frame = bytes(12) + b"\x08\x00" + ip + bytes(26)
    back = bytes(12) + b"\x08\x00" + ip[:12] + ip[16:] + ip[12:16] + bytes(26)
    packets = tuple(Packet(i % 100 == 99, i * 10_000_000, back if i % 100 == 99 else frame, 60) for i in range(1000))
    statistics = assert_same(split, packets, range(6))
    assert statistics.fast > 1000 and statistics.recalled > 10


@pytest.mark.needs("sanitizers")
@pytest.mark.parametrize(("name", "ruled"), [("nat", False), ("firewall.ref", True)])
def test_splits_are_clean_under_sanitizers(name: str, ruled: bool) -> None:
    program = cora.load(ROOT / "examples" / f"{name}.nf")
    split = (random_rules if ruled else random_split)(program, RandomChoices(1), 3)
    assert split is not None
    wanted = unsplit(program, office())
    found = run_sanitized(split, [(p.port, p.time_ns, p.frame, p.wirelen) for p in office()], chance=1)
    assert difference(wanted, Outcome(by_packet(found.events), found.summary, found.state)) is None
    assert found.statistics.used > 0
