"""Following one packet: the packets before may run natively, and values are shown by what they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cora
from cora.errors import CoraError, Kind
from cora.frontends.traffic.writer import PcapngWriter, PcapWriter
from cora.runtime import tracing
from cora.runtime.showing import Shower, credits_shown, duration, value
from cora.runtime.tracing import first_dropped, trace

ROOT = Path(__file__).resolve().parents[2]
OFFICE = ROOT / "examples" / "captures" / "office.pcap"
MAP = ["inside=10.0.0.0/24,2001:db8:1::/64"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("program", "packet"), [("nat.nf", 1300), ("policer.nf", 4000), ("firewall.nf", 3001)])
def test_native_and_interpreted_packets_before_give_the_same_trace(program: str, packet: int,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    built = cora.load(ROOT / "examples" / program)
    slow = trace(built, OFFICE, packet)
    monkeypatch.setattr(tracing, "NATIVE_FROM", 0)
    monkeypatch.setattr(tracing, "_interpreted", lambda *_: pytest.fail("the state at this packet is complete"))
    assert trace(built, OFFICE, packet) == slow


@pytest.mark.needs("gcc")
def test_datagrams_under_way_make_it_interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    built = cora.load(ROOT / "examples" / "nat.nf")
    monkeypatch.setattr(tracing, "NATIVE_FROM", 0)
    monkeypatch.setattr(tracing, "_complete", lambda *_: False)
    assert trace(built, OFFICE, 100).packet.index == 100


def test_completeness_of_a_state() -> None:
    built = cora.load(ROOT / "examples" / "nat.nf")
    assert tracing._complete(built, {"fragments": {"kind": "fragment", "datagrams": []}})
    for state, complete in (("open", False), ("waiting", False), ("condemned", True)):
        assert tracing._complete(built, {"fragments": {"datagrams": [{"state": state}]}}) is complete


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("engine", ["native", "reference"])
def test_first_drops_are_those_of_a_plain_count(engine: str) -> None:
    built = cora.load(ROOT / "examples" / "nat.nf")
    found = cora.replay(built, OFFICE, engine=engine, port_map=MAP)  # type: ignore[arg-type]
    assert set(found.first_dropped) == set(found.summary.dropped)
    for reason, (packet, frame) in found.first_dropped.items():
        assert frame == packet + 1, "every frame of the capture reaches the program"
        assert first_dropped(built, OFFICE, reason, port_map=MAP) == packet
    packet = found.first_dropped["no mapping"][0]
    followed = trace(built, OFFICE, packet, port_map=MAP)
    assert getattr(followed.events[0], "reason", "") == "no mapping"


@pytest.mark.needs("gcc")
def test_frame_numbers_count_packets_that_no_rule_matches(tmp_path: Path) -> None:
    built = cora.load(ROOT / "examples" / "policer.nf")
    path = tmp_path / "two.pcap"
    with PcapWriter(path) as writer:
        for i in range(6):
            writer.write(10**18 + i, bytes(6) + bytes((2, 0, 0, 0, 0, i % 2)) + b"\x08\x06" + bytes(46))
    rules = ["wan=mac:02:00:00:00:00:01"]
    found = cora.replay(built, path, port_map=[*rules, "lan=10.0.0.0/8"])
    assert found.summary.packets == 3 and found.first_dropped == {"not IP": (0, 2)}
    assert trace(built, path, 2, port_map=[*rules, "lan=10.0.0.0/8"]).frame_number == 6


@pytest.mark.needs("gcc")
def test_reasons_that_are_not_there_are_refused() -> None:
    built = cora.load(ROOT / "examples" / "policer.nf")
    for reason, kind, word in (("ovr the rate", Kind.BAD_FLAG, "over the rate"),
                               ("policer table full", Kind.NO_SUCH_PACKET, "over the rate")):
        with pytest.raises(CoraError) as caught:
            first_dropped(built, OFFICE, reason)
        (told,) = caught.value.diagnostics
        assert told.kind is kind and word in (told.hint or "")


def test_steps_name_the_key_and_show_values_by_their_type() -> None:
    built = cora.load(ROOT / "examples" / "nat.nf")
    found = trace(built, OFFICE, 300, port_map=MAP)
    shower = Shower(built)
    texts = [shower.step(s) for s in found.steps]
    assert any("look up conns.fwd (src 10.0.0.11, sp 47760, dst 198.51.100.30, dp 80, proto tcp): hit" in t
               for t in texts)
    assert any(t.startswith("ipv4.src: 10.0.0.11 to 203.0.113.1 (") for t in texts)
    assert shower.headers(s for s in found.steps if shower.parses(s)) == "eth, ipv4, tcp: read"


@pytest.mark.parametrize(("number", "kind", "text"), [
    (0xC0000201, "ipv4", "192.0.2.1"), (1, "ipv6", "::1"), (0x020000000001, "mac", "02:00:00:00:00:01"),
    (1, "bool", "true"), (0, "bool", "false"), (6, "protocol", "tcp"), (132, "protocol", "132"),
    (0x0800, "ethertype", "ipv4"), (0x88CC, "ethertype", "0x88cc"), (70000, "u32", "70000"),
    (7440 * 10**9, "duration", "124 min"), (1500, "octets", "1,500 octets")])
def test_values_in_words(number: int, kind: str, text: str) -> None:
    assert value(number, kind) == text


def test_durations_and_credits_are_exact() -> None:
    assert [duration(n) for n in (999, 1000, 1_500_000, 3600 * 10**9, 1_000_000_001)] == [
        "999 ns", "1 us", "1500 us", "1 h", "1.000000001 s"]
    assert credits_shown(1_434_500_000_000) == "1,434.500 octets"


def test_a_pcapng_has_an_interface_per_port_and_reads_back(tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    from cora.frontends.traffic.capture import Capture

    path = tmp_path / "out.pcapng"
    frames = [(10**18 + 1, bytes(range(60)), 60, 0), (10**18 + 7, bytes(61), 1514, 1), (3, b"", 0, 1)]
    with PcapngWriter(path, ["lan", "wan"]) as writer:
        for time_ns, frame, wirelen, interface in frames:
            writer.write(time_ns, frame, wirelen, interface)
    with RawPcapNgReader(str(path)) as reader:
        read: list[Any] = list(reader)
    assert [(((m.tshigh << 32) | m.tslow), data, m.wirelen, m.ifname) for data, m in read] == [
        (t, f, w, (b"lan", b"wan")[i]) for t, f, w, i in frames]
    with Capture.open(path) as capture:
        own = [(p.time_ns, p.frame, p.wirelen) for p in capture.packets()]
        assert own == [f[:3] for f in frames if f[1]] or own == [f[:3] for f in frames]
        assert [link.name for link in capture.links] == ["lan", "wan"]
