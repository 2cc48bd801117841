"""The comparison NAT (ref reading of `nf-behaviour` section 3): what Vigor and Maestro do, quirks included."""

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
    ip_bytes,
    raw,
    tcp,
    udp,
    wire,
)

A, B, E, S, S2 = "10.0.0.5", "10.0.0.6", "203.0.113.1", "198.51.100.7", "198.51.100.8"
T = 60 * SECOND

Start = Callable[..., Box]


@pytest.fixture(params=ENGINES)
def nat(request: pytest.FixtureRequest) -> Start:
    def start(**config: str) -> Box:
        return Box(request.param, "nat.ref.nf", config)

    return start


def port_of(frame: bytes) -> int:
    """Which index an allocator takes is free (rule B1); only the mapping must be one to one."""
    found = IP(ip_bytes(frame)).payload.sport
    assert isinstance(found, int)
    return found


def opened(box: Box, packet: Packet, at: int | None = None) -> int:
    return port_of(box.send("inside", packet, at).out("outside"))


@pytest.mark.parametrize("make", [udp, tcp], ids=["udp", "tcp"])
def test_rewrites_both_ways_without_touching_the_ttl(nat: Start, make: Callable[..., Packet]) -> None:
    box = nat()
    out = box.send("inside", make(A, 2000, S, 80, ttl=1)).out("outside")
    port = port_of(out)
    assert out == wire(make(E, port, S, 80, ttl=1))
    assert box.send("outside", make(S, 80, E, port, ttl=1)).out("inside") == wire(make(S, 80, A, 2000, ttl=1))


def test_ports_come_from_the_range_one_to_one(nat: Start) -> None:
    box = nat(first_port="100", last_port="109")
    ports = [opened(box, udp(A, 2000 + i, S, 80)) for i in range(10)]
    assert sorted(ports) == list(range(100, 110))
    assert opened(box, udp(A, 2003, S, 80)) == ports[3]


def test_a_range_from_0_uses_port_0(nat: Start) -> None:
    box = nat(first_port="0", last_port="1")
    assert {opened(box, udp(A, 2000 + i, S, 80)) for i in range(2)} == {0, 1}


def test_two_hosts_same_port_same_peer_get_two_indices(nat: Start) -> None:
    box = nat()
    assert opened(box, udp(A, 2000, S, 80)) != opened(box, udp(B, 2000, S, 80))


def test_table_full_drops_new_silently_and_keeps_old(nat: Start) -> None:
    box = nat(first_port="100", last_port="101")
    ports = [opened(box, udp(A, 2000 + i, S, 80)) for i in range(2)]
    assert box.send("inside", udp(B, 1, S, 80)).reason() == "table full"
    for i, port in enumerate(ports):
        assert box.send("outside", udp(S, 80, E, port)).out("inside") == wire(udp(S, 80, A, 2000 + i))


@pytest.mark.parametrize("way", ["out", "in"])
def test_one_time_out_for_all_refreshed_both_ways(nat: Start, way: str) -> None:
    box = nat()
    port = opened(box, tcp(A, 2000, S, 80, "S"), 0)
    if way == "out":
        opened(box, tcp(A, 2000, S, 80, "A"), T)
    else:
        box.send("outside", tcp(S, 80, E, port, "A"), T).out("inside")
    box.send("outside", tcp(S, 80, E, port, "A"), 2 * T).out("inside")
    assert box.send("outside", tcp(S, 80, E, port, "A"), 3 * T + 1).reason() == "no mapping"


def test_spoofed_inbound_packet_refreshes_before_it_is_dropped(nat: Start) -> None:
    box = nat()
    port = opened(box, udp(A, 2000, S, 80), 0)
    for wrong in (udp(S2, 80, E, port), udp(S, 81, E, port), tcp(S, 80, E, port)):
        assert box.send("outside", wrong, box.time + T).reason() == "filtered"
    box.send("outside", udp(S, 80, E, port), 4 * T).out("inside")


def test_tcp_state_is_ignored(nat: Start) -> None:
    """Any segment opens; FIN and RST change nothing."""
    box = nat()
    port = opened(box, tcp(A, 2000, S, 80, "R"), 0)
    box.send("outside", tcp(S, 80, E, port, "FA"), T).out("inside")
    box.send("outside", tcp(S, 80, E, port, "R"), 2 * T).out("inside")
    box.send("outside", tcp(S, 80, E, port, "S"), 3 * T).out("inside")


def test_external_address_is_not_looked_at(nat: Start) -> None:
    """The index is the destination port alone."""
    box = nat()
    port = opened(box, udp(A, 2000, S, 80))
    assert box.send("outside", udp(S, 80, "203.0.113.77", port)).out("inside") == wire(udp(S, 80, A, 2000))


def test_hairpin_is_a_new_flow_to_the_outside(nat: Start) -> None:
    box = nat()
    owned = opened(box, udp(B, 4000, S, 53))
    own = opened(box, udp(A, 2000, E, owned))
    assert box.send("inside", udp(A, 2000, E, owned)).out("outside") == wire(udp(E, own, E, owned))


def test_icmp_arp_ipv6_and_others_are_dropped(nat: Start) -> None:
    box = nat()
    for packet in (wire(echo(A, 7, S)), wire(icmp_error(A, S, udp(S, 80, A, 2000))), arp(),
                   wire(udp("2001:db8::1", 1, "2001:db8::2", 2)), wire(IP(src=A, dst=S, proto=47) / Raw(bytes(40)))):
        assert box.send("inside", packet).drops()
        assert box.send("outside", packet).drops()
    assert box.entries("conns") == []


def test_wrong_ip_checksum_is_not_noticed(nat: Start) -> None:
    data = bytearray(wire(udp(A, 2000, S, 80)))
    data[24] ^= 0xFF
    box = nat()
    box.send("inside", bytes(data)).out("outside")


@pytest.mark.parametrize("options", [[IPOption_NOP()] * 4, [IPOption_LSRR(routers=[S2])]], ids=["nop", "source-route"])
def test_options_are_skipped_source_routes_pass(nat: Start, options: list[object]) -> None:
    box = nat()
    out = box.send("inside", udp(A, 2000, S, 80, options=options)).out("outside")
    assert out == wire(udp(E, port_of(out), S, 80, options=options))


def test_later_fragment_has_its_payload_read_as_ports(nat: Start) -> None:
    """The quirk that rule F3 forbids: the fragment opens a mapping of its own and its payload is changed."""
    box = nat()
    data = bytes(88) + b"\x11\x11\x22\x22\x00\x20\x00\x00" + bytes(24)
    first, later = cut(udp(A, 2000, S, 80, data), 96)
    box.send("inside", first).out("outside")
    out = ip_bytes(box.send("inside", later).out("outside"))
    assert len(box.entries("conns")) == 2
    assert out[20:22] != b"\x11\x11"
    assert out[22:] == raw(later)[22:]


def test_udp_checksum_zero_stays_zero_here(nat: Start) -> None:
    """The one stated difference to the implementations, which make a checksum up (B01)."""
    box = nat()
    out = box.send("inside", udp(A, 2000, S, 80, zero=True)).out("outside")
    assert out == wire(udp(E, port_of(out), S, 80, zero=True))


def test_time_going_back_is_clamped(nat: Start) -> None:
    box = nat()
    port = opened(box, udp(A, 2000, S, 80), 1000 * SECOND)
    box.send("outside", udp(S, 80, E, port), 1).out("inside")
    assert box.send("outside", udp(S, 80, E, port), 1000 * SECOND + T + 1).reason() == "no mapping"


@pytest.mark.needs("traces")
def test_trace_castan_50_flows_take_50_ports(nat: Start, traces: Path) -> None:
    box = nat()
    ports = [port_of(box.send("inside", data, time, length).out("outside"))
             for time, data, length in capture(traces / "castan_nat_tree_worst.pcap")]
    assert len(set(ports)) == len(box.entries("conns")) == 50


@pytest.mark.needs("traces")
def test_trace_bolt_10000_flows_of_one_packet(nat: Start, traces: Path) -> None:
    box = nat()
    frames = [box.send("inside", data, time, length).out("outside")
              for time, data, length in capture(traces / "bolt_unirand10000.pcap")]
    flows = {data[23:24] + data[26:38] for _, data, _ in capture(traces / "bolt_unirand10000.pcap")}
    assert len({port_of(f) for f in frames}) == len(flows) == 10000


@pytest.mark.needs("traces")
def test_trace_synscan_tcp_only(nat: Start, traces: Path) -> None:
    """Every TCP packet from inside passes whatever its flags; nothing else does."""
    box = nat()
    for time, data, length in capture(traces / "ndpi_synscan.pcap"):
        result = box.send("inside", data, time, length)
        assert bool(result.sent()) is (data[12:14] == b"\x08\x00" and data[23] in (6, 17))
