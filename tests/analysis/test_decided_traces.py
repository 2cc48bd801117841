"""Rules of decided flows against the reference: on every packet that a rule serves, it does what the program does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from sharding_kit import approximate, both_sides, office, random_program, shipped
from sharding_oracle import Passage, Watched

from cora.analysis.decided import Entry, RuleTemplate, decide, evaluate, holds
from cora.analysis.sharding import sharding_of
from cora.engine.reference.packet import Packet as Arrived
from cora.engine.reference.tables import Entry as Held
from cora.engine.results import Dropped, Options, Output
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.ir.types import bits_of
from cora.testing import Packet, covering_packets, exercising_packets

FIN, SYN, RST = 1, 2, 4


@dataclass
class Rules:
    """The rules of one component that packets gave cause for, and how often each was compared."""

    program: Program
    component: str
    by_path: dict[tuple[tuple[str, ...], tuple[str, ...]], RuleTemplate | None] = field(default_factory=dict)
    compared: Counter[str] = field(default_factory=Counter)

    def of(self, passage: Passage) -> RuleTemplate | None:
        """The rule of the path of a packet."""
        path = tuple(passage.blocks), tuple(passage.outcomes)
        if path not in self.by_path:
            found = decide(self.program, self.component, *path)
            self.by_path[path] = found if isinstance(found, RuleTemplate) else None
        return self.by_path[path]


def verdict_of(program: Program, passage: Passage, index: int) -> tuple[str, str, bytes]:
    """Port, drop reason and bytes of what became of a packet."""
    (event,) = [e for e in passage.events if e.index == index]
    if isinstance(event, Output):
        return program.ports[event.port].name, "", event.frame
    assert isinstance(event, Dropped)
    return "", event.reason, b""


def check(program: Program, component: str, packets: Sequence[Packet], planting: int | None,
          options: Options = Options(), rules: Rules | None = None) -> Rules:  # noqa: B008 (immutable)
    """Run packets; wherever an entry is met, every rule of the component that serves the packet has to be right."""
    rules = rules or Rules(program, component)
    watched = Watched(program, options, planting)
    for number, packet in enumerate(packets):
        counters = {n: [tuple(v) for v in c.values] for n, c in watched.engine._states.counters.items()}
        for passage in watched.process(packet):
            met = [a for a in passage.accesses if a.component == component and a.entry is not None]
            if passage.follower or not met or met[0].kind not in ("lookup", "police"):
                continue
            own = rules.of(passage)
            entry = Entry(met[0].fields, met[0].timeout)
            counted = _counted(counters, watched)
            for template in {id(t): t for t in rules.by_path.values() if t is not None}.values():
                served = _compare(program, template, entry, passage, number, options, counted)
                if served:
                    rules.compared["served"] += 1
                    _unchanged(watched, passage, met[0].entry)
                if template is own and not served:
                    rules.compared["of the path, not served"] += 1
                    assert template.narrowed or not holds(program, template, entry)
    return rules


Totals = Counter[tuple[str, int, str]]


def _counted(before: dict[str, list[tuple[int, ...]]], watched: Watched) -> Totals:
    """What a packet added to the counters, packets and octets."""
    found: Totals = Counter()
    for name, counter in watched.engine._states.counters.items():
        for i, (was, now) in enumerate(zip(before[name], counter.values, strict=True)):
            found[name, i, "packets"] += now[0] - was[0]
            found[name, i, "octets"] += now[1] - was[1]
    return +found


def _counted_by(program: Program, counts: Sequence[tuple[str, int, int]]) -> Totals:
    """The same of a rule; an index beyond the counter counts nothing."""
    found: Totals = Counter()
    for name, index, octets in counts:
        state = program.state(name)
        assert isinstance(state, nodes.CounterState)
        if index < state.size:
            found[name, index, "packets"] += 1
            found[name, index, "octets"] += octets
    return +found


def _compare(program: Program, template: RuleTemplate, entry: Entry, passage: Passage, number: int, options: Options,
             counted: Totals) -> bool:
    packet = passage.packet
    view = Arrived(packet.frame, packet.wirelen, options)
    served = evaluate(program, template, entry, view, packet.port, packet.wirelen)
    if served is None:
        assert bytes(view.data) == packet.frame
        return False
    if template.meter is not None and template.outcomes[template.blocks.index(template.anchor.block)] \
            != passage.outcomes[passage.blocks.index(template.anchor.block)]:
        return False
    port, reason, frame = verdict_of(program, passage, number)
    assert (served.port, served.reason) == (port, reason)
    if port:
        assert bytes(view.data) == frame
    assert _counted_by(program, served.counts) == counted
    return True


def _unchanged(watched: Watched, passage: Passage, identity: tuple[str, int] | None) -> None:
    """What a rule served must have left the entry as it was but for its last use."""
    first = next(a for a in passage.accesses if a.entry == identity)
    for held, number in watched.given.values():
        if identity is not None and identity[0] in watched.engine._states.maps and number == identity[1]:
            assert getattr(held, "alive")  # noqa: B009 (entries are kept as objects)
            assert getattr(held, "values") == first.fields  # noqa: B009
            assert getattr(held, "timeout") == first.timeout  # noqa: B009


def traffic(program: Program, seed: int) -> list[Packet]:
    return [*covering_packets(program, seed, 700).packets, *exercising_packets(program, seed, 400)]


@pytest.mark.parametrize(("name", "component", "rules", "least"), [
    ("nat", "conns", 8, 100), ("firewall", "conns4", 6, 60), ("firewall", "conns6", 6, 60)])
def test_rules_do_what_the_program_does(name: str, component: str, rules: int, least: int) -> None:
    found = check(shipped(name), component, traffic(shipped(name), 1), planting=1)
    assert found.compared["served"] >= least
    assert sum(t is not None for t in found.by_path.values()) >= rules


@pytest.mark.parametrize(("name", "component", "rules"), [
    ("nat.ref", "conns", 2), ("firewall.ref", "conns", 2), ("policer", "limits4", 2), ("policer", "limits6", 2)])
def test_rules_of_programs_that_allow_what_hardware_does(name: str, component: str, rules: int) -> None:
    program = approximate(name)
    found = check(program, component, traffic(program, 2), planting=2)
    assert found.compared["served"] >= 20
    assert sum(t is not None for t in found.by_path.values()) >= rules


@pytest.mark.parametrize("seed", range(500, 530))
def test_rules_of_random_programs(seed: int) -> None:
    program = random_program(seed)
    packets = exercising_packets(program, seed, 250)
    for name, sharding in sharding_of(program).items():
        if sharding.splittable:
            check(program, name, packets, planting=seed)


def test_random_programs_have_rules() -> None:
    """The test above compares something: of its programs and packets some are served by rules."""
    served = 0
    for seed in range(500, 512):
        program = random_program(seed)
        packets = exercising_packets(program, seed, 250)
        for name, sharding in sharding_of(program).items():
            if sharding.splittable:
                served += check(program, name, packets, planting=seed).compared["served"]
    assert served >= 10


@pytest.mark.parametrize(("name", "component", "least"), [("nat", "conns", 2000), ("firewall", "conns4", 2000)])
def test_rules_on_the_shipped_capture(name: str, component: str, least: int) -> None:
    found = check(shipped(name), component, office(name, 3000), planting=None)
    assert found.compared["served"] >= least


@pytest.mark.needs("traces")
@pytest.mark.parametrize("capture", ["snort_100conn.pcap", "ndpi_reddit_v6.pcap", "ndpi_gnutella.pcap"])
@pytest.mark.parametrize(("name", "component"), [("nat", "conns"), ("firewall", "conns4"), ("firewall", "conns6")])
def test_rules_on_public_captures(name: str, component: str, capture: str, traces: Path) -> None:
    packets = both_sides(traces / capture)[:1500]
    check(shipped(name), component, packets, planting=3,
          options=Options(ignore_checksums=True, headers_only=True))


def test_entry_changes_that_a_rule_outlives_do_not_matter() -> None:
    """Fields that do not invalidate a rule may have any value: the rule is there still and does the same."""
    program = shipped("nat")
    state = program.state("conns")
    assert isinstance(state, nodes.MapState)
    rules = check(program, "conns", traffic(program, 4), planting=4)
    random = Random(4)
    lasting = {f for k in state.keys for f in k.fields} | {f for a in state.allocs for f in a.fields}
    tried = 0
    for template in [t for t in rules.by_path.values() if t is not None]:
        free = [f for f in state.fields if f.name not in lasting | template.invalidated_by]
        timeout = template.touches[0][1] if template.touches else state.timeouts[0].name
        for _ in range(40):
            fields = {f.name: random.getrandbits(bits_of(f.type)) for f in state.fields}
            fields["flow.proto"] = random.choice((1, 6, 17))
            before = holds(program, template, Entry(fields, timeout))
            for f in free:
                fields[f.name] = random.getrandbits(bits_of(f.type))
                tried += 1
            assert holds(program, template, Entry(fields, timeout)) == before
    assert tried > 100


@dataclass(frozen=True)
class Case:
    """A TCP packet with these flags that met an entry in this state, and whether that left the entry as it was."""

    passage: Passage
    entry: Entry
    kept: bool
    verdict: tuple[str, str, bytes]


def tcp_cases(name: str, port: int) -> list[Case]:
    """All combinations of SYN, ACK, FIN and RST with all values of `seen` (of 7 bits) and two time-out classes."""
    program = shipped(name)
    component = {"nat": "conns", "firewall": "conns4"}[name]
    state = program.state(component)
    assert isinstance(state, nodes.MapState)
    flow = {"flow.src": 0x0A000001, "flow.sp": 1111, "flow.dst": 0xC6336401, "flow.dp": 80, "flow.proto": 6,
            "x.addr": 0xCB007101, "x.port": 2222}
    inner = (flow["flow.src"], flow["flow.sp"]) if port == 0 or name == "firewall" else (flow["x.addr"], flow["x.port"])
    outer = (flow["flow.dst"], flow["flow.dp"])
    ends = (*inner, *outer) if port == 0 else (*outer, *inner)
    watched = Watched(program, Options())
    table = watched.engine._states.maps[component]
    cases = []
    for flags in (bits for bits in range(32) if not bits & 8):
        packet = Packet(port, 1000, tcp_frame(ends, flags), len(tcp_frame(ends, flags)))
        for seen, timeout in product(range(128), [t.name for t in state.timeouts[:2]]):
            fields = {f.name: flow.get(f.name, seen) for f in state.fields}
            held = Held(dict(fields))
            table.attach(held, timeout, 500)
            (passage,) = watched.process(packet)
            kept = held.alive and held.values == fields and held.timeout == timeout
            verdict = verdict_of(program, passage, watched.engine.summary().packets - 1)
            cases.append(Case(passage, Entry(fields, timeout), kept, verdict))
            table.remove(held)
    return cases


def tcp_frame(ends: tuple[int, int, int, int], flags: int) -> bytes:
    source, sport, destination, dport = ends
    ip = IP(src=source_text(source), dst=source_text(destination), ttl=9)
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip
                 / TCP(sport=sport, dport=dport, flags=flags) / b"data")


def source_text(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


@pytest.mark.parametrize("port", [0, 1])
@pytest.mark.parametrize(("name", "component"), [("nat", "conns"), ("firewall", "conns4")])
def test_tcp_rules_serve_exactly_the_packets_that_leave_the_entry_alone(name: str, component: str, port: int) -> None:
    program = shipped(name)
    cases = tcp_cases(name, port)
    rules = Rules(program, component)
    templates = {id(t): t for t in (rules.of(c.passage) for c in cases) if t is not None}.values()
    assert templates
    for case in cases:
        serving = [t for t in templates if serves(program, t, case)]
        assert len(serving) <= 1
        # Packets that open or close a connection may be left to the program, also where they change nothing.
        if case.kept and not case.passage.packet.frame[14 + 20 + 13] & (FIN | SYN | RST):
            assert serving, (case.entry, case.passage.outcomes)


def serves(program: Program, template: RuleTemplate, case: Case) -> bool:
    """Whether a rule serves a packet, and then what it does with it is right."""
    packet = case.passage.packet
    view = Arrived(packet.frame, packet.wirelen, Options())
    served = evaluate(program, template, case.entry, view, packet.port, packet.wirelen)
    if served is None:
        return False
    assert case.kept
    assert (served.port, served.reason) == case.verdict[:2]
    assert not served.port or bytes(view.data) == case.verdict[2]
    return True


def test_a_rule_without_one_of_its_guards_is_found_out() -> None:
    """What the comparison is worth: rules that lack the guard on what TCP has seen, or a match, do something else."""
    program = shipped("nat")
    cases = tcp_cases("nat", 0)
    whole = Rules(program, "conns")
    for case in cases:
        whole.of(case.passage)
    established = next(t for t in whole.by_path.values() if t is not None and ("conns", "established") in t.touches)
    seen = [g for g in established.guards if any(leaf.detail[2] == "seen" for leaf in g.condition.leaves)]
    assert seen
    faulty = [replace(established, guards=tuple(g for g in established.guards if g not in seen)),
              *(replace(established, matches=tuple(m for m in established.matches if m is not gone))
                for gone in established.matches if gone.field in ("fin", "rst"))]
    assert len(faulty) == 3
    for template in faulty:
        with pytest.raises(AssertionError):
            for case in cases:
                serves(program, template, case)
