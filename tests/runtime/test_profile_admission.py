"""The admission points of a whole profile, against the plain policy on what the reference interpreter does."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest
from slow_admission import Move, Packet, Point

import cora
from cora.analysis.decided import RuleTemplate, decide
from cora.analysis.paths import number_paths
from cora.analysis.profile import WINDOW_QUANTILES, AdmissionPoint, Profile, at_window
from cora.analysis.sharding import align, sharding_of
from cora.engine.reference import Reference, TraceStep
from cora.engine.reference.tables import Entry, MapTable
from cora.errors import CoraError
from cora.frontends.traffic import open_traffic
from cora.frontends.traffic.portmap import PortMap
from cora.frontends.traffic.synthetic import TrafficSpec, generate
from cora.ir import nodes
from cora.ir.nodes import Program, successors
from cora.ir.types import EntryRef

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
INSIDE = "inside=10.0.0.0/24,2001:db8:1::/64"


class Recorder:
    """Notes what happens to the entries of maps while the interpreter runs; numbers of entries gone are used again."""

    def __init__(self, components: dict[str, int], patch: pytest.MonkeyPatch) -> None:
        self.components, self.moves = components, list[Move]()
        self.numbers: dict[Entry, int] = {}
        self.free: dict[str, list[int]] = {name: [] for name in components}
        self.used = dict.fromkeys(components, 0)
        lookup, insert, remove, touch = MapTable.lookup, MapTable.insert, MapTable.remove, MapTable.touch

        def looked_up(table: MapTable, *args: Any) -> Entry | None:
            entry = lookup(table, *args)
            if entry is not None:
                self.note("use", table, entry)
            return entry

        def inserted(table: MapTable, *args: Any) -> Entry | None:
            entry = insert(table, *args)
            if entry is not None:
                self.number(table.decl.name, entry)
                self.note("make", table, entry)
            return entry

        def removed(table: MapTable, entry: Entry) -> None:
            if entry.alive:
                self.note("end", table, entry)
                self.free[table.decl.name].append(self.numbers.pop(entry))
            remove(table, entry)

        def touched(table: MapTable, entry: Entry, timeout: str, now: int) -> None:
            if entry.timeout != timeout:
                self.note("change", table, entry)
            touch(table, entry, timeout, now)

        for name, function in (("lookup", looked_up), ("insert", inserted), ("remove", removed), ("touch", touched)):
            patch.setattr(MapTable, name, function)

    def number(self, table: str, entry: Entry) -> None:
        if not self.free[table]:
            self.free[table].append(self.used[table])
            self.used[table] += 1
        self.numbers[entry] = self.free[table].pop()

    def note(self, kind: str, table: MapTable, entry: Entry) -> None:
        self.moves.append(Move(kind, self.components[table.decl.name], self.numbers[entry]))


def path_number(program: Program, steps: list[TraceStep]) -> int:
    increments, total = number_paths(program).increments, 0
    for step in steps:
        edges = successors(step.node) if isinstance(step.node, nodes.Terminator) else ()
        if edges:
            outcome = step.outcome or edges[0][0]
            total += increments[step.block][[name for name, _ in edges].index(outcome)]
    return total


def packets_of(program: Program, recorder: Recorder) -> Iterator[Packet]:
    engine, mapping = Reference(program), PortMap.parse([INSIDE], [p.name for p in program.ports])
    with open_traffic(OFFICE) as capture:
        for packet in mapping.assign(capture).packets():
            steps: list[TraceStep] = []
            engine.process(packet.port, packet.time_ns, packet.frame, packet.wirelen, steps)
            ends = [i for i, s in enumerate(steps) if isinstance(s.node, nodes.Forward | nodes.Drop | nodes.Reject |
                                                                 nodes.Hold)]
            moves, recorder.moves = recorder.moves, []
            for step in steps:
                if isinstance(step.node, nodes.StoreEntry) and step.detail["old"] != step.detail["new"]:
                    assert isinstance(step.node.entry.type, EntryRef)
                    moves.append(Move("change", recorder.components[step.node.entry.type.state], 0))
            # Fragments that are released behind a packet touch no entries in this capture.
            for start, end in zip([0, *(e + 1 for e in ends)], ends, strict=False):
                yield Packet(path_number(program, steps[start:end + 1]), engine.now, tuple(moves))
                moves = []


def is_aligned(path: int, program: Program, component: str, mode: str, profile: Profile) -> bool:
    way = next(p for p in profile.paths if p.id == path)
    if mode == "resume":
        return align(program, component, way.blocks, way.outcomes).aligned
    return isinstance(decide(program, component, way.blocks, way.outcomes), RuleTemplate)


@pytest.mark.needs("gcc")
def test_admission_is_what_the_policy_does_to_the_packets_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    program = cora.load(ROOT / "examples" / "firewall.nf")
    profile = cora.profile(program, OFFICE, port_map=[INSIDE])
    names = [name for name, found in sharding_of(program).items() if found.splittable]
    assert names == ["conns4", "conns6"]
    packets = list(packets_of(program, Recorder({n: i for i, n in enumerate(names)}, monkeypatch)))
    assert [a.mode for a in profile.admission] == ["resume", "restart"]
    assert all(len(a.points) > 10 for a in profile.admission)
    for admission in profile.admission:
        together: list[AdmissionPoint] = []
        single = {(name, b): p for p in admission.points if len(p.budgets) == 1 for name, b in p.budgets.items()}
        known: dict[tuple[int, str], bool] = {}
        for path in profile.paths:
            for name in names:
                known[path.id, name] = is_aligned(path.id, program, name, admission.mode, profile)
        for point in admission.points:
            if len(point.budgets) > 1:
                together.append(point)
                continue
            (component, budget), = point.budgets.items()
            slow = Point(names.index(component), budget.capacity, budget.threshold,
                         {path: yes for (path, name), yes in known.items() if name == component}.__getitem__,
                         admission.mode == "restart", partial(window_of, profile=profile))
            slow.run(packets)
            assert dict(point.lent) == slow.whole.served
            assert (point.installs, point.removals, point.recalls, point.peak) == (
                slow.whole.installs, slow.whole.removals, slow.whole.recalls, slow.whole.peak)
            assert point.mean == slow.area / profile.duration_ns
            assert point.busiest == max(t.installs for t in slow.windows.values())
            for window in point.windows:
                tally = slow.windows[window.window]
                assert (dict(window.lent), window.installs, window.removals, window.recalls, window.peak) == (
                    tally.served, tally.installs, tally.removals, tally.recalls, tally.peak)


        # No packet is of both IP versions: what is lent of both tables adds up.
        by_threshold = Counter((name, b.threshold) for name, b in single)
        assert len(together) == sum(max(by_threshold[name, t] for name in names) for t in (1, 2, 4, 8))
        for point in together:
            parts = [single[item] for item in point.budgets.items()]
            assert list(point.budgets) == names
            assert dict(point.lent) == dict(pair for part in parts for pair in part.lent)
            assert (point.installs, point.removals, point.recalls) == tuple(
                sum(figures) for figures in zip(*((p.installs, p.removals, p.recalls) for p in parts), strict=True))
            assert [w.installs for w in point.windows] == [
                sum(v.installs for p in parts for v in p.windows if v.window == w.window) for w in point.windows]


def window_of(time: int, profile: Profile) -> int:
    return (time - profile.first_ns) // profile.window_ns


@lru_cache(maxsize=1)
def firewall_profile() -> Profile:
    program = cora.load(ROOT / "examples" / "firewall.nf")
    return cora.profile(program, OFFICE, port_map=[INSIDE], window_ns=20 * 10**9)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("quantile", WINDOW_QUANTILES)
def test_the_profile_of_a_window(quantile: float) -> None:
    whole = firewall_profile()
    one = at_window(whole, quantile)
    loads = [w.packets for w in whole.windows]
    assert sum(load <= one.packets for load in loads) >= quantile * len(loads)
    assert sum(load < one.packets for load in loads) < quantile * len(loads)
    number = one.source["window"]["number"]
    window = whole.windows[number]
    assert one.windows == (window,) and one.octets == window.octets
    assert one.first_ns == whole.first_ns + number * whole.window_ns
    assert tuple((p.id, p.packets) for p in one.paths) == window.paths
    assert sum(u.inserts[0] for u in one.states.values()) == window.inserts
    assert sum(u.expiries for u in one.states.values()) == window.expiries
    for before, after in zip(whole.admission, one.admission, strict=True):
        for whole_point, point in zip(before.points, after.points, strict=True):
            assert whole_point.budgets == point.budgets
            assert [w.lent for w in whole_point.windows if w.window == number] == [point.lent]
            assert sum(n for _, n in point.lent) <= one.packets


@pytest.mark.needs("gcc")
def test_a_window_can_be_planned_for() -> None:
    profile = at_window(firewall_profile(), 0.99)
    plan = cora.plan(cora.load(ROOT / "examples" / "firewall.nf"), profile, "agilio-cx", cores=1)
    assert plan.profile_packets == profile.packets


@pytest.mark.needs("gcc")
def test_windows_add_up_to_the_whole_and_others_are_refused() -> None:
    profile = firewall_profile()
    for path in profile.paths:
        assert sum(n for w in profile.windows for number, n in w.paths if number == path.id) == path.packets
    for use in profile.states.values():
        assert use.inserts[0] == sum(use.window_inserts)
        assert (use.deletes, use.expiries) == (sum(use.window_deletes), sum(use.window_expiries))
        assert max(use.window_peaks, default=0) == (use.entries_peak if use.window_peaks else 0)
    with pytest.raises(CoraError, match="nothing about the window at P95 of load"):
        at_window(profile, 0.95)


def syn(number: int) -> bytes:
    """The frame of a connection's first packet; every number another inside host and port."""
    source = (10 << 24 | 9 << 16 | number % 60000).to_bytes(4)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, number & 0xFFFF, 0, 64, 6, 0, source, bytes([198, 51, 100, 1]))
    checksum = 0xFFFF - sum(struct.unpack("!10H", head)) % 0xFFFF  # one's complement: a sum modulo 2^16 - 1
    head = head[:10] + struct.pack("!H", checksum) + head[12:]
    return bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]) + head + struct.pack(
        "!HHIIBBHHH", 2000 + number % 50000, 80, 0, 0, 5 << 4, 2, 8192, 0, 0)


def captured(spec: TrafficSpec, flood: int) -> bytes:
    """A capture of the traffic with ``flood`` one-packet flows behind each of its packets."""
    whole = b"".join(generate(spec))
    out, at, number = [whole[:24]], 24, 0
    while at < len(whole):
        seconds, nanos, kept, _ = struct.unpack_from("<IIII", whole, at)
        out.append(whole[at:at + 16 + kept])
        at += 16 + kept
        for _ in range(flood):
            frame = syn(number)
            out.append(struct.pack("<IIII", seconds, nanos, len(frame), len(frame)) + frame)
            number += 1
    return b"".join(out)


@pytest.mark.needs("gcc")
def test_a_flood_of_one_packet_flows_does_not_push_out_useful_ones(tmp_path: Path) -> None:
    program = cora.load(ROOT / "examples" / "nat.nf")
    spec = TrafficSpec.parse({"packets": "20000", "flows": "400", "zipf": "1.1", "churn": "1000", "size": "64"})
    served: dict[int, dict[tuple[int, int], tuple[int, int]]] = {}
    for flood in (0, 2):
        trace = tmp_path / f"{flood}.pcap"
        trace.write_bytes(captured(spec, flood))
        profile = cora.profile(program, trace, captured_at="inside", port_map=["inside=10.0.0.0/8"])
        assert profile.states["conns"].inserts == (spec.flows + spec.new_flows + 20000 * flood, 0)
        served[flood] = {}
        for point in profile.admission[0].points:
            budget = point.budgets["conns"]
            served[flood][budget.capacity, budget.threshold] = sum(n for _, n in point.lent), point.installs
    for capacity, threshold in ((16, 1), (64, 1), (256, 1), (16, 2), (64, 2), (256, 4)):
        quiet, flooded = (served[flood][capacity, threshold] for flood in (0, 2))
        # None of the attack's packets is on the fast path: these are packets of the others.
        assert flooded[0] > 0.98 * quiet[0]
        if threshold > 1:
            assert flooded == quiet  # the attack is not even noticed
        else:
            assert flooded[1] < 2 * (quiet[1] + capacity)
