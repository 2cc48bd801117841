"""The native engine's own interface: batches, verdicts, outputs, state, profile, refusals."""

from __future__ import annotations

import io
import random
import resource
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import dpkt
import numpy as np
import pytest
from native_kit import SECOND, flows, packet, udp
from random_ir import random_packets, random_program

from cora.engine import native
from cora.engine.native import NativeEngine
from cora.engine.reference import Reference
from cora.engine.results import Dropped, Event, Held, Output, StateDump
from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.ir.nodes import MapState, Program
from cora.testing import Packet, difference, run_native, run_reference
from cora.testing.compare import batch_of

pytestmark = pytest.mark.needs("gcc")


def churn(seed: int, count: int, hosts: int) -> list[Packet]:
    """Packets of ``hosts`` flows in random order, time moving on slowly, a few seconds at once now and then."""
    choose, now, out = random.Random(seed), 10 * SECOND, []
    for _ in range(count):
        now += choose.choice([0, 1000, SECOND // 100]) if choose.random() < 0.98 else 3 * SECOND
        host = choose.randrange(hosts)
        out.append(packet(now, udp(0x0A000000 + host // 4, 1000 + host % 4, choose.randrange(4))))
    return out


# --- running ---


def test_batches_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    program, packets = random_program(3), random_packets(3, 700)
    whole = run_native(program, packets)
    monkeypatch.setattr(native, "_OUTPUT_LIMIT", 1)
    records, store = batch_of(packets)
    starts = [0, 1, 2, 5, 36, 68, 132, 133, 400, len(records)]
    pieces = [records[a:b] for a, b in pairwise(starts)]
    with NativeEngine(program) as engine:
        assert list(engine.run_events(pieces)) == whole.events
        assert (engine.summary(), engine.state()) == (whole.summary, whole.state)
    assert store


def test_one_packet_at_a_time_gives_the_same() -> None:
    program, packets = random_program(5), random_packets(5, 300)
    with NativeEngine(program) as engine:
        events = [e for p in packets for e in engine.process(p.port, p.time_ns, p.frame, p.wirelen)]
    assert events == run_reference(program, packets).events


def test_verdicts_are_the_last_event_of_each_packet() -> None:
    program, packets = random_program(2), random_packets(2, 1200)
    records, store = batch_of(packets)
    events = run_native(program, packets).events
    assert any(isinstance(e, Held) for e in events)
    with NativeEngine(program) as engine:
        engine.run([records[:500], records[500:]], keep_verdicts=True)
        reasons = engine._reasons
        got = engine.verdicts
    last: dict[int, Event] = {e.index: e for e in events if not (isinstance(e, Output) and e.is_error)}
    for index, verdict in enumerate(got):
        event = last[index]
        if isinstance(event, Output):
            assert verdict == event.port
        elif isinstance(event, Dropped):
            assert reasons[verdict & 0x7FFF] == event.reason and verdict & 0x8000
        else:
            assert verdict == 0xFFFF
    assert store


def test_synthesised_ethernet_header() -> None:
    frame = udp(0x0A000001, 7, 9, b"data")
    store = bytearray(frame)
    at = np.frombuffer(store, np.uint8).ctypes.data
    record = struct.pack("=QQIIIHHHHI", SECOND, at + 14, len(frame), len(frame), len(frame), 0, 0x0800, 0, 0, 0)
    with NativeEngine(nf.loads(flows())) as engine:
        (event,) = engine.run_events([np.frombuffer(record, np.dtype((np.void, 40)))])
    assert event == Output(0, 1, frame, len(frame))


def test_pcap_output_is_what_left_by_the_port() -> None:
    packets = churn(1, 200, 20)
    records, store = batch_of(packets)
    program = nf.loads(flows())
    sent = [e for e in run_reference(program, packets).events if isinstance(e, Output)]
    with NativeEngine(program) as engine:
        body = b"".join(engine.run_pcap([records], port=1))
    with NativeEngine(program) as engine:
        assert b"".join(engine.run_pcap([records], port=0)) == b""
    file = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1) + body
    read = list(dpkt.pcap.Reader(io.BytesIO(file)))
    assert [bytes(f) for _, f in read] == [e.frame for e in sent]
    assert [round(float(t), 3) for t, _ in read] == [round(p.time_ns / SECOND, 3) for p in packets]
    assert store


def test_frames_larger_than_the_frame_buffer() -> None:
    packets = [packet(SECOND * i, udp(1, i, 2, bytes(60_000))) for i in range(1, 40)]
    packets.append(packet(99 * SECOND, packets[0].frame + bytes(300_000)))
    program = nf.loads(flows())
    assert difference(run_reference(program, packets), run_native(program, packets)) is None


# --- tables at a size where indices grow, heaps are compacted and pools are searched over many words ---


@pytest.mark.parametrize("full", ["reject", "evict_lru"])
def test_many_flows_come_and_go(full: str) -> None:
    program, packets = nf.loads(flows(700, full)), churn(2, 20_000, 1500)
    found = run_native(program, packets)
    assert difference(run_reference(program, packets), found) is None
    assert found.state["known"]["values"] != [[0, 0]] * 4


POOLED = """
nf pooled {
  port a: wire;
  port b: wire;
  struct Endpoint { addr: ipv4, port: u16 }
  pool ext { addr: ipv4 in 203.0.113.1 .. 203.0.113.3; port: u16 in 900 .. 1700; PRESERVE }
  pair map conns {
    entry { src: ipv4, sport: u16, x: Endpoint = alloc ext }
    key fwd = (src, sport);
    key rev = x;
    timeout 20s;
    capacity 3000;
    full reject;
    exact;
    order strict;
  }
  fragments ignore;
  unparsed drop;
  verify none;
  on a(p: eth/ipv4/udp) {
    lookup conns.fwd[(p.ip.src, p.udp.sport)] {
      hit e { touch e; p.ip.src = e.x.addr; p.udp.sport = e.x.port; forward b; }
      miss {
        insert conns { src: p.ip.src, sport: p.udp.sport } PREFER {
          ok e { p.ip.src = e.x.addr; p.udp.sport = e.x.port; forward b; }
          full { drop "no port"; }
        }
      }
    }
  }
  on b(p: eth) { drop "wrong side"; }
}
"""


def churned_ports(count: int) -> list[Packet]:
    """More flows than the pool has values, crowded on a few source ports on both sides of 1024."""
    choose, now, out = random.Random(9), SECOND, []
    for _ in range(count):
        now += SECOND // 200
        sport = choose.choice([901, 902, 1023, 1024, 1500])
        out.append(packet(now, udp(0x0A000000 + choose.randrange(900), sport, 53)))
    return out


@pytest.mark.parametrize("preserve", ["preserve;", ""])
@pytest.mark.parametrize("prefer", ["prefer addr = 203.0.113.2, port = p.udp.sport", ""])
def test_crowded_pools(preserve: str, prefer: str) -> None:
    program = nf.loads(POOLED.replace("PRESERVE", preserve).replace("PREFER", prefer))
    packets = churned_ports(7000)
    expected = run_reference(program, packets)
    assert expected.summary.dropped["no port"] > 0, "the pool never ran dry"
    assert difference(expected, run_native(program, packets)) is None


# --- state ---


def test_a_run_can_be_cut_in_two_by_dump_and_load() -> None:
    program = nf.loads(flows(60))
    packets = churn(4, 3000, 90)
    whole = run_reference(program, packets)
    with NativeEngine(program) as first, NativeEngine(program) as second:
        early, store_1 = batch_of(packets[:1500])
        late, store_2 = batch_of(packets[1500:])
        events = list(first.run_events([early]))
        second.load_state(first.state())
        assert second.state() == first.state()
        events += second.run_events([late])
        assert second.state() == whole.state
    expected = [type(e) for e in whole.events]
    assert [type(e) for e in events] == expected
    assert store_1 and store_2


def test_dump_of_the_reference_loads() -> None:
    program, packets = random_program(6), random_packets(6, 2500)
    reference = Reference(program)
    for p in packets:
        reference.process(p.port, p.time_ns, p.frame, p.wirelen)
    dump: StateDump = {k: {"kind": "fragment", "datagrams": []} if v["kind"] == "fragment" else v
                       for k, v in reference.state().items()}
    assert any(v.get("entries") for v in dump.values())
    with NativeEngine(program) as engine:
        engine.load_state(dump)
        assert engine.state() == dump


FIELDS = {"src": 1, "sport": 1, "packets": 1}


@pytest.mark.parametrize("broken", [
    {"nothing": {"kind": "map", "entries": []}},
    {"seen": {"kind": "map", "entries": [{"fields": {"src": 1}, "timeout": "long", "last": 0}]}},
    {"seen": {"kind": "map", "entries": [{"fields": FIELDS, "timeout": "x", "last": 0}]}},
    {"seen": {"kind": "map", "entries": [{"fields": {**FIELDS, "packets": -1}, "timeout": "long", "last": 0}]}},
    {"seen": {"kind": "map", "entries": [{"fields": FIELDS, "timeout": "long", "last": 0}] * 2}},
    {"known": {"kind": "counter", "values": [[0, 0]]}},
    {"seen": {"kind": "map", "entries": [{"fields": {**FIELDS, "packets": "x"}, "timeout": "long", "last": 0}]}},
    {"seen": {"kind": "map", "entries": [{"fields": FIELDS, "timeout": "long", "last": 1 << 63}]}},
    {"seen": {"kind": "counter", "entries": []}},
])
def test_a_dump_that_does_not_fit_is_refused(broken: dict[str, dict[str, object]]) -> None:
    with NativeEngine(nf.loads(flows())) as engine:
        empty = engine.state()
        with pytest.raises(CoraError) as caught:
            engine.load_state({**empty, **broken})
        assert caught.value.diagnostics[0].kind is Kind.BAD_STATE
        assert engine.state() == empty


# --- the profile, against a model that keeps its own books ---


def test_profile_counts() -> None:
    packets = churn(7, 4000, 120)
    last: dict[bytes, int] = {}
    uses: Counter[bytes] = Counter()
    expected: Counter[str] = Counter()
    lives: list[int] = []
    windows = [Counter[str]() for _ in range(10)]
    distinct: list[set[bytes]] = [set() for _ in range(10)]
    start, length = packets[0].time_ns, (packets[-1].time_ns - packets[0].time_ns) // 10 + 1
    limit: dict[bytes, int] = {}
    for p in packets:
        window = (p.time_ns - start) // length
        for key in [k for k in last if last[k] + limit[k] < p.time_ns]:
            del last[key]
            lives.append(uses.pop(key))
            expected["expired"] += 1
            windows[window]["expiries"] += 1
        key, dport = p.frame[26:30] + p.frame[34:36], p.frame[37]
        distinct[window].add(key)
        if key in last:
            expected["hit_0"] += 1
            if dport in (1, 2):
                expected["touched"] += 1
                last[key], limit[key] = p.time_ns, 2 * SECOND if dport == 1 else 10 * SECOND
            expected["stored"] += 1
        else:
            expected["miss_0"] += 1
            expected["inserted"] += 1
            windows[window]["inserts"] += 1
            last[key], limit[key] = p.time_ns, 10 * SECOND
        uses[key] += 1
        expected["peak"] = max(expected["peak"], len(last))
    expected["entries"] = len(last)
    records, store = batch_of(packets)
    with NativeEngine(nf.loads(flows(1000)), profile=True) as engine:
        engine.set_windows(start, length, 10)
        engine.run([records])
        got = engine.profile()
    table = got.tables["seen"]
    assert {k: v for k, v in table.events.items() if v} == dict(expected)
    assert sorted(table.uses["accesses"].tolist()) == sorted(lives + list(uses.values()))
    assert int(table.uses["alive"].sum()) == len(last)
    assert table.windows["inserts"].tolist() == [w["inserts"] for w in windows]
    assert table.windows["expiries"].tolist() == [w["expiries"] for w in windows]
    # An entry that dies and comes back within a window is counted again.
    assert all(a >= len(b) for a, b in zip(table.windows["distinct"].tolist(), distinct, strict=True))
    assert got.paths["packets"].sum() == len(packets) and got.windows["packets"].sum() == len(packets)
    assert got.sizes[len(packets[0].frame)] == len(packets)
    assert store


def test_a_profiling_engine_does_what_a_plain_one_does() -> None:
    program, packets = random_program(8), random_packets(8, 800)
    records, store = batch_of(packets)
    with NativeEngine(program, profile=True) as engine:
        assert list(engine.run_events([records])) == run_reference(program, packets).events
        raw = engine.profile()
    released = sum(isinstance(e, Held) for e in run_reference(program, packets).events)
    assert len(packets) <= raw.paths["packets"].sum() <= len(packets) + released
    assert store


# --- refusals ---


def refusal(text: str, **options: object) -> CoraError:
    with pytest.raises(CoraError) as caught:
        NativeEngine(nf.loads(text), **options)  # type: ignore[arg-type]
    return caught.value


def with_capacity(capacity: int) -> Program:
    program = nf.loads(flows())
    states = tuple(replace(s, capacity=capacity) if isinstance(s, MapState) else s for s in program.states)
    return replace(program, states=states)


def test_capacity_beyond_the_engine() -> None:
    with pytest.raises(CoraError) as caught:
        NativeEngine(with_capacity(1 << 31))
    assert caught.value.diagnostics[0].kind is Kind.ENGINE_LIMIT
    assert "2147483648" in caught.value.render() and "2147483647" in caught.value.render()


def test_capacity_beyond_the_memory_of_this_process() -> None:
    """Memory that cannot be had is an error of the caller's program, not the end of this process."""
    program, (_, hard) = with_capacity((1 << 31) - 1), resource.getrlimit(resource.RLIMIT_AS)
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, hard))
    try:
        with pytest.raises(CoraError, match="no memory"):
            NativeEngine(program)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_unknown_config_value() -> None:
    assert refusal(flows(), config={"speed": 3}).diagnostics[0].kind is Kind.BAD_OVERRIDE


def test_config_value_that_does_not_fit() -> None:
    text = flows().replace("port b: wire;", "port b: wire; config limit: u8 = 3;")
    assert refusal(text, config={"limit": 256}).diagnostics[0].kind is Kind.BAD_OVERRIDE


def test_closed_engine() -> None:
    engine = NativeEngine(nf.loads(flows()))
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.summary()


def test_numbers_out_of_range() -> None:
    with NativeEngine(nf.loads(flows())) as engine:
        for port, time_ns, wirelen in ((-1, 0, 60), (0, -1, 60), (0, 1 << 64, 60), (0, 0, 3)):
            with pytest.raises(ValueError, match="out of range"):
                engine.process(port, time_ns, bytes(60), wirelen)
        with pytest.raises(ValueError, match="profile"):
            engine.profile()
