"""`cora trace --live`: packets of a running program as they come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from build_kit import install, launch_fake
from command_kit import Run
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

import cora as api
from cora.build.request import request_of
from cora.plan.document import load_plan
from cora.runtime import running
from cora.runtime.live import event_lines, frame_text


@pytest.mark.needs("gcc")
def test_so_many_packets_are_followed(little: tuple[Path, Path], cora: Run, monkeypatch: pytest.MonkeyPatch,
                                      tmp_path: Path) -> None:
    install(monkeypatch, "host", launch=launch_fake)
    monkeypatch.setenv("CORA_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(running, "require_interfaces", lambda _ports: None)
    nf, plan = little
    run = running.start(request_of(load_plan(plan), api.load(nf)), {"a": "eth8", "b": "eth9"}, name="one")
    try:
        # The program tells of two packets at a time.
        lines = cora("trace", "--live", "one", "-n", "3").out.splitlines()
        assert [line for line in lines if line.startswith("packet")] == [
            f"packet {n}: 60 octets arrive on a at 5.00000000{n}" for n in range(3)]
        assert lines.count("=> out of b, 60 octets") == 3
        told = [json.loads(line) for line in cora("trace", "--live", "one", "-n", "1", "--json").out.splitlines()]
        assert [[e["what"] for e in events] for events in told] == [["arrived", "left"]]
    finally:
        run.stop()
        run.finish()
    assert "E611" in cora("trace", "--live", "one").err


def test_a_live_trace_takes_no_program_and_a_trace_needs_one(cora: Run) -> None:
    assert "a live trace has its program" in cora("trace", "x.nf", "--live", "one").err
    assert "say which program" in cora("trace").err and "say which program" in cora("trace", "x.nf").err


@pytest.mark.parametrize(("packet", "text"), [
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1234, dport=80, flags="SA"),
     "10.0.0.1 > 10.0.0.2 tcp 1234 > 80 SA"),
    (Ether() / Dot1Q(vlan=7) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=53, dport=99),
     "vlan 7 10.0.0.1 > 10.0.0.2 udp 53 > 99"),
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(type=3, code=4), "10.0.0.1 > 10.0.0.2 icmp type 3 code 4"),
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", frag=185, flags="MF", proto=17) / Raw(b"12345678"),
     "10.0.0.1 > 10.0.0.2 udp fragment at 1480"),
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", frag=185, proto=17) / Raw(b"12345678"),
     "10.0.0.1 > 10.0.0.2 udp fragment at 1480, the last"),
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2", proto=47), "10.0.0.1 > 10.0.0.2 protocol 47"),
    (Ether() / IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=1, dport=2),
     "2001:db8::1 > 2001:db8::2 udp 1 > 2"),
    (Ether() / ARP(), "arp"),
    (Ether(type=0x88CC) / Raw(b"x"), "type 0x88cc"),
])
def test_frames_are_told_by_addresses_and_ports(packet: Packet, text: str) -> None:
    frame = bytes(packet)
    assert frame_text(frame) == text
    for size in range(len(frame)):
        frame_text(frame[:size])  # however little of it there is


def test_ends_are_told() -> None:
    head = {"packet": 4, "place": "user", "time_ns": 2_000_000_003}
    lines = list(event_lines([{**head, "what": "arrived", "port": "a", "length": 60, "bytes": "", "entry": "hosts_hit"},
                              {**head, "what": "forwarded", "port": "b"}, {**head, "what": "dropped", "reason": "full"},
                              {**head, "what": "held"}]))
    assert lines == ["packet 4: 60 octets arrive on a at 2.000000003", "  type 0x0000", "  user goes on at hosts_hit",
                     "  user decides: forward b", "=> dropped: full",
                     "=> held until the first fragment of its datagram arrives"]
