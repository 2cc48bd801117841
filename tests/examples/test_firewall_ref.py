"""The comparison firewall (ref reading of `nf-behaviour` section 4): one time-out, TCP state ignored, IPv4 only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from example_kit import (
    ENGINES,
    IP,
    SECOND,
    Box,
    IPOption_LSRR,
    IPOption_NOP,
    Packet,
    Raw,
    arp,
    capture,
    cut,
    echo,
    icmp_error,
    tcp,
    udp,
    wire,
)

A, B, S, S2 = "10.0.0.5", "10.0.0.6", "198.51.100.7", "198.51.100.8"
T = 60 * SECOND
NOT_OPENED = "not opened from inside"

Start = Callable[..., Box]


@pytest.fixture(params=ENGINES)
def firewall(request: pytest.FixtureRequest) -> Start:
    def start(**config: str) -> Box:
        return Box(request.param, "firewall.ref.nf", config)

    return start


def passes(box: Box, port: str, packet: Packet, at: int | None = None) -> None:
    frame = wire(packet)
    assert box.send(port, frame, at).out("outside" if port == "inside" else "inside") == frame


@pytest.mark.parametrize("make", [udp, tcp], ids=["udp", "tcp"])
def test_inside_opens_for_the_reversed_tuple_only(firewall: Start, make: Callable[..., Packet]) -> None:
    box = firewall()
    assert box.send("outside", make(S, 80, A, 2000)).reason() == NOT_OPENED
    passes(box, "inside", make(A, 2000, S, 80))
    passes(box, "outside", make(S, 80, A, 2000))
    for wrong in (make(S2, 80, A, 2000), make(S, 81, A, 2000), make(S, 80, B, 2000), make(S, 80, A, 2001),
                  (tcp if make is udp else udp)(S, 80, A, 2000)):
        assert box.send("outside", wrong).reason() == NOT_OPENED


def test_table_full_passes_untracked(firewall: Start) -> None:
    box = firewall(capacity="1")
    passes(box, "inside", udp(A, 2000, S, 80))
    passes(box, "inside", udp(B, 2000, S, 80))
    assert box.send("outside", udp(S, 80, B, 2000)).reason() == NOT_OPENED
    passes(box, "outside", udp(S, 80, A, 2000))


@pytest.mark.parametrize("way", ["inside", "outside"])
def test_expiry_and_refresh(firewall: Start, way: str) -> None:
    box = firewall()
    passes(box, "inside", udp(A, 2000, S, 80), 0)
    passes(box, way, udp(A, 2000, S, 80) if way == "inside" else udp(S, 80, A, 2000), T)
    passes(box, "outside", udp(S, 80, A, 2000), 2 * T)
    assert box.send("outside", udp(S, 80, A, 2000), 3 * T + 1).reason() == NOT_OPENED


def test_time_going_back_is_clamped(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(A, 2000, S, 80), 1000 * SECOND)
    passes(box, "outside", udp(S, 80, A, 2000), 1)
    assert box.send("outside", udp(S, 80, A, 2000), 1000 * SECOND + T + 1).reason() == NOT_OPENED


def test_fin_and_reset_are_ignored(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", tcp(A, 2000, S, 80, "R"), 0)
    passes(box, "outside", tcp(S, 80, A, 2000, "FA"), 1)
    passes(box, "inside", tcp(A, 2000, S, 80, "FA"), 2)
    passes(box, "outside", tcp(S, 80, A, 2000, "R"), 3)
    passes(box, "outside", tcp(S, 80, A, 2000, "S"), T + 3)


def test_icmp_arp_ipv6_and_others_are_dropped(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(A, 2000, S, 80))
    for packet in (wire(echo(A, 7, S)), wire(icmp_error(S2, A, udp(A, 2000, S, 80))), arp(),
                   wire(udp("2001:db8::1", 1, "2001:db8::2", 2)), wire(IP(src=A, dst=S, proto=47) / Raw(bytes(40)))):
        assert box.send("inside", packet).drops()
        assert box.send("outside", packet).drops()
    assert len(box.entries("conns")) == 1


def test_wrong_checksums_options_and_source_routes_pass(firewall: Start) -> None:
    box = firewall()
    for options in ([IPOption_NOP()] * 4, [IPOption_LSRR(routers=[S2])]):
        passes(box, "inside", udp(A, 2000, S, 80, options=options))
    assert len(box.entries("conns")) == 1
    data = bytearray(wire(udp(A, 2000, S, 80)))
    data[24] ^= 0xFF
    assert box.send("inside", bytes(data)).out("outside") == bytes(data)


def test_later_fragment_has_its_payload_read_as_ports(firewall: Start) -> None:
    box = firewall()
    data = bytes(88) + b"\x11\x11\x22\x22\x00\x20\x00\x00" + bytes(24)
    first, later = cut(udp(A, 2000, S, 80, data), 96)
    passes(box, "inside", first)
    passes(box, "inside", later)
    assert {(e["fields"]["flow.sp"], e["fields"]["flow.dp"]) for e in box.entries("conns")} == {
        (2000, 80), (0x1111, 0x2222)}


@pytest.mark.needs("traces")
def test_trace_snort_100_connections_pass_unchanged(firewall: Start, traces: Path) -> None:
    box = firewall()
    first: dict[frozenset[bytes], bytes] = {}
    for time, data, length in capture(traces / "snort_100conn.pcap"):
        source, target = data[26:30], data[30:34]
        inside = first.setdefault(frozenset((source, target)), source) == source
        assert box.send("inside" if inside else "outside", data, time, length).out(
            "outside" if inside else "inside") == data
    # One time-out of 60 s: every connection of the 10 s capture is still there.
    assert len(box.entries("conns")) == 100
