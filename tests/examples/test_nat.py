"""The NAT against `nf-behaviour` section 3 (rfc reading) and the rules common to all; packets expected are scapy's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_kit import (
    AS_CAPTURED,
    ENGINES,
    ICMP,
    IP,
    SECOND,
    TCP,
    UDP,
    Box,
    IPOption,
    IPOption_LSRR,
    IPOption_NOP,
    IPOption_RR,
    Packet,
    Raw,
    arp,
    capture,
    changed,
    cut,
    echo,
    echo_reply,
    icmp_error,
    ip_bytes,
    joined,
    ones_sum,
    raw,
    reasons,
    sums_are_right,
    tcp,
    udp,
    wire,
)
from scapy.layers.inet import IPOption_Router_Alert, IPOption_SSRR

from cora.engine.results import Options

A, B = "10.0.0.5", "10.0.0.6"
E, ROUTER = "203.0.113.1", "10.0.0.1"
S, S2 = "198.51.100.7", "198.51.100.8"

Start = Callable[..., Box]


@pytest.fixture(params=ENGINES)
def nat(request: pytest.FixtureRequest) -> Start:
    """Starts a NAT on each engine: ``nat(**config)``."""

    def start(options: Options = AS_CAPTURED, text: str = "", **config: str) -> Box:
        return Box(request.param, "nat.nf", config, options, text)

    return start


def external_port(frame: bytes) -> int:
    """Source port (or identifier) of a translated packet: any free one is right where no rule names it."""
    upper = IP(ip_bytes(frame)).payload
    found = upper.id if ICMP in upper else upper.sport
    assert isinstance(found, int)
    return found


def connect(box: Box, at: int = 0, port: int = 2000) -> None:
    """A handshake from A:port to S:80, which keeps its port."""
    box.send("inside", tcp(A, port, S, 80, "S"), at).out("outside")
    box.send("outside", tcp(S, 80, E, port, "SA"), at).out("inside")
    box.send("inside", tcp(A, port, S, 80, "A"), at).out("outside")


def answered(box: Box, port: int = 2000, at: int | None = None) -> bool:
    """Whether a segment from S:80 still reaches A (which refreshes the mapping)."""
    result = box.send("outside", tcp(S, 80, E, port, "A"), at)
    if result.drops():
        assert result.reason() == "no mapping"
        return False
    result.out("inside")
    return True


# --- translation and checksums ---


@pytest.mark.parametrize("make", [udp, tcp], ids=["udp", "tcp"])
def test_outbound_source_and_inbound_destination_are_rewritten(nat: Start, make: Callable[..., Packet]) -> None:
    box = nat()
    flags = {"flags": "S"} if make is tcp else {}
    out = box.send("inside", make(A, 2000, S, 80, **flags)).out("outside")
    assert out == wire(make(E, 2000, S, 80, ttl=63, **flags))
    assert box.send("outside", make(S, 80, E, 2000)).out("inside") == wire(make(S, 80, A, 2000, ttl=63))
    assert box.counter("translated_out")[0] == box.counter("translated_in")[0] == 1


def test_icmp_echo_identifier_is_the_port(nat: Start) -> None:
    box = nat()
    assert box.send("inside", echo(A, 2000, S)).out("outside") == wire(echo(E, 2000, S, ttl=63))
    assert box.send("inside", echo(B, 2000, S)).out("outside") == wire(echo(E, 2002, S, ttl=63))
    assert box.send("inside", echo(B, 2000, S)).out("outside") == wire(echo(E, 2002, S, ttl=63))
    assert box.send("outside", echo_reply(S, 2002, E)).out("inside") == wire(echo_reply(S, 2000, B, ttl=63))
    assert (box.counter("translated_out")[0], box.counter("translated_in")[0]) == (3, 1)


def test_icmp_time_stamp_is_translated(nat: Start) -> None:
    box = nat()
    ask = IP(src=A, dst=S) / ICMP(type=13, id=5000, ts_ori=1)
    told = IP(src=E, dst=S, ttl=63) / ICMP(type=13, id=5000, ts_ori=1)
    assert box.send("inside", ask).out("outside") == wire(told)
    answer = IP(src=S, dst=E) / ICMP(type=14, id=5000, ts_ori=1, ts_rx=2, ts_tx=3)
    assert box.send("outside", answer).out("inside") == wire(
        IP(src=S, dst=A, ttl=63) / ICMP(type=14, id=5000, ts_ori=1, ts_rx=2, ts_tx=3))


@pytest.mark.parametrize("kind", [0, 5, 9, 10, 14, 15, 17, 40])
def test_other_icmp_from_inside_is_dropped(nat: Start, kind: int) -> None:
    box = nat()
    # A redirect (5) is an ICMP error: what it quotes decides.
    quoted = raw(udp(S, 53, A, 2000))
    packet = IP(src=A, dst=S) / ICMP(type=kind) / Raw(quoted)
    wanted = "ICMP error without mapping" if kind == 5 else "ICMP type not translated"
    assert box.send("inside", packet).reason() == wanted


def test_unsolicited_echo_request_from_outside_is_dropped(nat: Start) -> None:
    assert nat().send("outside", echo(S, 7, E)).reason() == "ICMP type not translated"


def test_B01_udp_checksum_zero_stays_zero_both_ways(nat: Start) -> None:
    box = nat()
    out = box.send("inside", udp(A, 2000, S, 53, zero=True)).out("outside")
    assert out == wire(udp(E, 2000, S, 53, ttl=63, zero=True))
    back = box.send("outside", udp(S, 53, E, 2000, zero=True)).out("inside")
    assert back == wire(udp(S, 53, A, 2000, ttl=63, zero=True))


def payload_for(packet: Packet, wanted: int) -> bytes:
    """Two octets of UDP data that make the checksum of the finished packet ``wanted`` (0xffff stands for 0)."""
    packet[UDP].payload = Raw(b"\0\0")
    plain = IP(raw(packet))[UDP].chksum
    # ~sum is the checksum of zero data; the data word moves the sum to ~wanted.
    word = ((~wanted & 0xFFFF) - (~plain & 0xFFFF)) % 0xFFFF
    return int(word).to_bytes(2, "big")


def test_udp_checksum_that_becomes_zero_is_sent_as_ffff(nat: Start) -> None:
    data = payload_for(udp(E, 2000, S, 53, ttl=63), 0xFFFF)
    expected = wire(udp(E, 2000, S, 53, data, ttl=63))
    assert expected[40:42] == b"\xff\xff"
    assert nat().send("inside", udp(A, 2000, S, 53, data)).out("outside") == expected


def test_received_udp_checksum_ffff_is_a_real_checksum(nat: Start) -> None:
    data = payload_for(udp(A, 2000, S, 53), 0xFFFF)
    packet = udp(A, 2000, S, 53, data)
    assert raw(packet)[26:28] == b"\xff\xff"
    out = nat().send("inside", packet).out("outside")
    assert out == wire(udp(E, 2000, S, 53, data, ttl=63))
    assert out[40:42] != b"\0\0"


@pytest.mark.parametrize("make", [udp, tcp, echo], ids=["udp", "tcp", "icmp"])
def test_wrong_l4_checksum_stays_wrong_by_the_same_amount(nat: Start, make: Callable[..., Packet]) -> None:
    good = {udp: udp(A, 2000, S, 53), tcp: tcp(A, 2000, S, 53, "S"), echo: echo(A, 2000, S)}[make]
    place = {udp: 26, tcp: 36, echo: 22}[make]
    data = bytearray(raw(good))
    right = int.from_bytes(data[place:place + 2], "big")
    data[place:place + 2] = ((right + 77) % 0xFFFF or 1).to_bytes(2, "big")
    amount = int.from_bytes(data[place:place + 2], "big") - right
    out = ip_bytes(nat().send("inside", wire(bytes(data))).out("outside"))
    assert not sums_are_right(out)
    expected = {udp: udp(E, 2000, S, 53, ttl=63), tcp: tcp(E, 2000, S, 53, "S", ttl=63),
                echo: echo(E, 2000, S, ttl=63)}[make]
    wanted = int.from_bytes(raw(expected)[place:place + 2], "big")
    assert (int.from_bytes(out[place:place + 2], "big") - wanted - amount) % 0xFFFF == 0


def test_two_hosts_with_the_same_port_and_peer_get_two_external_ports(nat: Start) -> None:
    box = nat()
    first = external_port(box.send("inside", udp(A, 2000, S, 53)).out("outside"))
    second = external_port(box.send("inside", udp(B, 2000, S, 53)).out("outside"))
    assert first != second
    assert box.send("outside", udp(S, 53, E, second)).out("inside") == wire(udp(S, 53, B, 2000, ttl=63))
    assert box.send("outside", udp(S, 53, E, first)).out("inside") == wire(udp(S, 53, A, 2000, ttl=63))


def test_one_socket_to_two_peers_has_two_mappings(nat: Start) -> None:
    box = nat()
    first = external_port(box.send("inside", udp(A, 2000, S, 53)).out("outside"))
    second = external_port(box.send("inside", udp(A, 2000, S2, 53)).out("outside"))
    assert first != second


def test_frames_keep_ethernet_addresses_tags_and_padding(nat: Start) -> None:
    box = nat()
    out = box.send("inside", wire(udp(A, 2000, S, 53, b""), (7, 9), padding=18)).out("outside")
    assert out == wire(udp(E, 2000, S, 53, b"", ttl=63), (7, 9), padding=18)


# --- options, TTL ---


@pytest.mark.parametrize("options", [
    [IPOption_NOP(), IPOption_NOP(), IPOption_NOP(), IPOption_NOP()],
    [IPOption_RR(routers=["0.0.0.0"] * 9)],
    [IPOption_Router_Alert()],
    [IPOption(b"\x44\x08\x05\x00\x00\x00\x00\x00")],
], ids=["nop", "record-route", "router-alert", "timestamp"])
def test_ip_options_are_skipped(nat: Start, options: list[Any]) -> None:
    box = nat()
    out = box.send("inside", udp(A, 2000, S, 53, options=options)).out("outside")
    assert out == wire(udp(E, 2000, S, 53, ttl=63, options=options))
    back = box.send("outside", udp(S, 53, E, 2000, options=options)).out("inside")
    assert back == wire(udp(S, 53, A, 2000, ttl=63, options=options))


@pytest.mark.parametrize("option", [IPOption_LSRR, IPOption_SSRR], ids=["LSRR", "SSRR"])
@pytest.mark.parametrize("pad", [0, 2])
def test_source_routes_are_dropped(nat: Start, option: Any, pad: int) -> None:
    options = [IPOption_NOP()] * pad + [option(routers=[S2])]
    box = nat()
    assert box.send("inside", udp(A, 2000, S, 53, options=options)).reason() == "source route"
    assert box.send("outside", udp(S, 53, E, 2000, options=options)).reason() == "source route"
    assert box.entries("conns") == []


def time_exceeded(quoted: Packet, source: str, target: str) -> bytes:
    """ICMP 11/0 as a router sends it, quoting at most what keeps it within 576 octets (RFC 1812 4.3.2.3)."""
    head = IP(tos=0xC0, id=0, flags="DF", ttl=64, src=source, dst=target)
    frame = wire(head / ICMP(type=11, code=0) / Raw(raw(quoted)[:548]))
    return frame[6:12] + frame[:6] + frame[12:]


@pytest.mark.parametrize("ttl", [0, 1])
def test_ttl_1_from_inside_gets_time_exceeded_quoting_the_original(nat: Start, ttl: int) -> None:
    box = nat()
    packet = udp(A, 2000, S, 53, ttl=ttl)
    assert box.send("inside", packet).refused("inside") == ("TTL expired", time_exceeded(packet, ROUTER, A))
    assert box.entries("conns") == []


def test_ttl_1_from_outside_gets_time_exceeded_from_the_external_address(nat: Start) -> None:
    box = nat()
    box.send("inside", udp(A, 2000, S, 53)).out("outside")
    packet = udp(S, 53, E, 2000, ttl=1)
    assert box.send("outside", packet).refused("outside") == ("TTL expired", time_exceeded(packet, E, S))


def test_ttl_1_of_a_long_packet_with_options_and_tags(nat: Start) -> None:
    packet = tcp(A, 2000, S, 80, "S", bytes(range(256)) * 5, ttl=1, options=[IPOption_NOP()] * 4)
    reason, error = nat().send("inside", wire(packet, (5,), padding=3)).refused("inside")
    assert reason == "TTL expired"
    expected = time_exceeded(packet, ROUTER, A)
    assert len(expected) == 14 + 576
    assert error == expected[:12] + b"\x81\x00\x00\x05" + expected[12:]


def test_ttl_1_echo_request_is_answered_but_an_icmp_error_is_not(nat: Start) -> None:
    box = nat()
    packet = echo(A, 9, S, ttl=1)
    assert box.send("inside", packet).refused("inside")[1] == time_exceeded(packet, ROUTER, A)
    assert box.send("inside", icmp_error(A, S, udp(S, 53, A, 2000), ttl=1)).reason() == "TTL expired"


def test_ttl_1_of_a_later_fragment_gets_no_error(nat: Start) -> None:
    box = nat()
    first, second = cut(udp(A, 2000, S, 53, bytes(100)), 64)
    box.send("inside", first).out("outside")
    second.ttl = 1
    assert box.send("inside", second).reason() == "TTL expired"


def test_ttl_expired_packet_does_not_refresh(nat: Start) -> None:
    box = nat()
    box.send("inside", udp(A, 2000, S, 53), 0).out("outside")
    box.send("inside", udp(A, 2000, S, 53, ttl=1), 200 * SECOND)
    assert box.send("outside", udp(S, 53, E, 2000), 300 * SECOND + 1).reason() == "no mapping"


def test_ttl_2_passes_as_1(nat: Start) -> None:
    assert nat().send("inside", udp(A, 2000, S, 53, ttl=2)).out("outside") == wire(udp(E, 2000, S, 53, ttl=1))


# --- ports: preservation, parity, range, exhaustion ---


def test_port_is_preserved_when_free(nat: Start) -> None:
    box = nat()
    for port in (1024, 1025, 40000, 65535):
        assert external_port(box.send("inside", udp(A, port, S, 53)).out("outside")) == port


@pytest.mark.parametrize("port", [2000, 2001, 65534, 65535])
def test_taken_port_gives_way_to_one_of_equal_parity(nat: Start, port: int) -> None:
    box = nat()
    seen = {external_port(box.send("inside", udp(f"10.0.0.{i}", port, S, 53)).out("outside")) for i in range(5, 25)}
    assert len(seen) == 20
    assert {p % 2 for p in seen} == {port % 2}
    assert min(seen) >= 1024


@pytest.mark.parametrize("port", [500, 501, 1, 0])
def test_port_below_the_external_range_keeps_its_parity_and_is_never_0(nat: Start, port: int) -> None:
    found = external_port(nat().send("inside", udp(A, port, S, 53)).out("outside"))
    assert found >= 1024
    assert found % 2 == port % 2


def test_port_0_is_never_given_even_when_the_range_starts_there(nat: Start) -> None:
    box = nat(first_port="0", last_port="2")
    found = {external_port(box.send("inside", udp(A, 0, S, 53 + i)).out("outside")) for i in range(2)}
    assert found == {1, 2}
    assert box.send("inside", udp(A, 0, S, 80)).refused("inside")[0] == "no free mapping"


@pytest.mark.parametrize("port", [9000, 9001])
def test_port_above_the_external_range_keeps_its_parity(nat: Start, port: int) -> None:
    found = external_port(nat(last_port="2000").send("inside", udp(A, port, S, 53)).out("outside"))
    assert 1024 <= found <= 2000
    assert found % 2 == port % 2


def test_low_ports_stay_low_and_high_ports_high(nat: Start) -> None:
    box = nat(first_port="1018", last_port="1029")
    low = [external_port(box.send("inside", udp(f"10.0.0.{i}", 1020, S, 53)).out("outside")) for i in range(5, 11)]
    # 1018, 1020 and 1022 are of equal parity, then 1019, 1021 and 1023 of the same range.
    assert low[0] == 1020
    assert set(low[:3]) == {1018, 1020, 1022}
    assert set(low[3:]) == {1019, 1021, 1023}
    high = [external_port(box.send("inside", udp(f"10.0.0.{i}", 1029, S, 53)).out("outside")) for i in range(5, 11)]
    assert high[0] == 1029
    assert set(high[:3]) == {1025, 1027, 1029}
    assert set(high[3:]) == {1024, 1026, 1028}


def test_every_port_is_found_in_any_order(nat: Start) -> None:
    """A free port is always found: eight ports, wanted in a bad order, the range wrapped around."""
    box = nat(first_port="4000", last_port="4007")
    found = [external_port(box.send("inside", udp(f"10.0.1.{i}", wanted, S, 53)).out("outside"))
             for i, wanted in enumerate((4007, 4007, 4006, 4007, 4006, 80, 65535, 4000))]
    assert sorted(found) == list(range(4000, 4008))
    assert box.send("inside", udp(A, 4003, S, 53)).refused("inside")[0] == "no free mapping"


def test_several_external_addresses_one_host_keeps_its_address(nat: Start) -> None:
    box = nat(ext_first="203.0.113.8", ext_last="203.0.113.11", first_port="3000", last_port="3003")
    sources: dict[str, set[str]] = {}
    pairs = set()
    for host in (A, B):
        for port in (3000, 3001, 3002, 3003):
            frame = box.send("inside", udp(host, port, S, 53)).out("outside")
            source = IP(ip_bytes(frame)).src
            sources.setdefault(host, set()).add(source)
            pairs.add((source, external_port(frame)))
            back = box.send("outside", udp(S, 53, source, external_port(frame))).out("inside")
            assert back == wire(udp(S, 53, host, port, ttl=63))
    assert len(sources[A]) == len(sources[B]) == 1
    assert len(pairs) == 8
    # The host's own address is full: another one serves it.
    frame = box.send("inside", udp(A, 3000, S2, 53)).out("outside")
    assert IP(ip_bytes(frame)).src in {f"203.0.113.{i}" for i in range(8, 12)} - sources[A]


def exhausted(packet: Packet) -> bytes:
    head = IP(tos=0xC0, id=0, flags="DF", ttl=64, src=ROUTER, dst=packet.src)
    frame = wire(head / ICMP(type=3, code=13) / Raw(raw(packet)[:548]))
    return frame[6:12] + frame[:6] + frame[12:]


@pytest.mark.parametrize("make", [udp, tcp, echo], ids=["udp", "tcp", "icmp"])
def test_table_full_drops_new_keeps_old_and_says_so(nat: Start, make: Callable[..., Packet]) -> None:
    box = nat(capacity="2")
    box.send("inside", udp(A, 2000, S, 53)).out("outside")
    box.send("inside", udp(A, 2001, S, 53)).out("outside")
    third = {udp: udp(B, 2002, S, 53), tcp: tcp(B, 2002, S, 53, "S"), echo: echo(B, 2002, S)}[make]
    # The error quotes the packet as it came, with its own TTL.
    assert box.send("inside", third).refused("inside") == ("no free mapping", exhausted(third))
    for port in (2000, 2001):
        assert box.send("outside", udp(S, 53, E, port)).out("inside") == wire(udp(S, 53, A, port, ttl=63))
    assert len(box.entries("conns")) == 2


def test_B03_port_exhaustion_script(nat: Start) -> None:
    """100 external ports; 99 flows, 50 of them closed by FIN both ways, 50 new ones, filled to 100, one more."""
    box = nat(first_port="5000", last_port="5099")
    ports = {}
    for i in range(99):
        ports[i] = external_port(box.send("inside", tcp(A, 20000 + i, S, 80, "S")).out("outside"))
        box.send("outside", tcp(S, 80, E, ports[i], "SA")).out("inside")
        box.send("inside", tcp(A, 20000 + i, S, 80, "A")).out("outside")
    assert len(set(ports.values())) == 99
    for i in range(50):
        box.send("inside", tcp(A, 20000 + i, S, 80, "FA"), SECOND).out("outside")
        box.send("outside", tcp(S, 80, E, ports[i], "FA"), SECOND).out("inside")
        box.send("inside", tcp(A, 20000 + i, S, 80, "A"), SECOND).out("outside")
    past = SECOND + 240 * SECOND + 1
    again = [external_port(box.send("inside", tcp(A, 30000 + i, S, 80, "S"), past).out("outside")) for i in range(50)]
    assert len(set(again) | {ports[i] for i in range(50, 99)}) == 99
    box.send("inside", tcp(B, 40000, S, 80, "S")).out("outside")
    assert len(box.entries("conns")) == 100
    one_more = tcp(B, 40001, S, 80, "S")
    assert box.send("inside", one_more).refused("inside") == ("no free mapping", exhausted(one_more))
    for i in range(50, 99):
        back = box.send("outside", tcp(S, 80, E, ports[i], "A")).out("inside")
        assert back == wire(tcp(S, 80, A, 20000 + i, "A", ttl=63))
    assert len(box.entries("conns")) == 100


def test_port_is_free_again_after_expiry_also_when_all_were_taken(nat: Start) -> None:
    box = nat(first_port="5000", last_port="5001")
    box.send("inside", udp(A, 5000, S, 53), 0).out("outside")
    box.send("inside", udp(A, 5001, S, 53), 0).out("outside")
    assert box.send("inside", udp(B, 5000, S, 53), 300 * SECOND).refused("inside")[0] == "no free mapping"
    assert external_port(box.send("inside", udp(B, 5000, S, 53), 300 * SECOND + 1).out("outside")) == 5000


# --- time ---


def idle_udp(box: Box) -> None:
    box.send("inside", udp(A, 2000, S, 80), 0).out("outside")


def idle_icmp(box: Box) -> None:
    box.send("inside", echo(A, 2000, S), 0).out("outside")


def idle_syn(box: Box) -> None:
    box.send("inside", tcp(A, 2000, S, 80, "S"), 0).out("outside")


def idle_established(box: Box) -> None:
    connect(box)


def idle_fin_one_way(box: Box) -> None:
    connect(box)
    box.send("inside", tcp(A, 2000, S, 80, "FA")).out("outside")


def idle_fin_both_ways(box: Box) -> None:
    connect(box)
    box.send("inside", tcp(A, 2000, S, 80, "FA")).out("outside")
    box.send("outside", tcp(S, 80, E, 2000, "FA")).out("inside")


def idle_reset_out(box: Box) -> None:
    connect(box)
    box.send("inside", tcp(A, 2000, S, 80, "R")).out("outside")


def idle_reset_in(box: Box) -> None:
    connect(box)
    box.send("outside", tcp(S, 80, E, 2000, "R")).out("inside")


@pytest.mark.parametrize(("prepare", "seconds"), [
    (idle_udp, 300), (idle_icmp, 60), (idle_syn, 240), (idle_established, 7440), (idle_fin_one_way, 7440),
    (idle_fin_both_ways, 240), (idle_reset_out, 240), (idle_reset_in, 240),
], ids=["udp", "icmp", "syn", "established", "fin-one-way", "fin-both-ways", "reset-out", "reset-in"])
def test_expiry_alive_at_exactly_T_gone_one_nanosecond_later(
        nat: Start, prepare: Callable[[Box], None], seconds: int) -> None:
    reply = tcp(S, 80, E, 2000, "A")
    if prepare is idle_udp:
        reply = udp(S, 80, E, 2000)
    if prepare is idle_icmp:
        reply = echo_reply(S, 2000, E)
    alive = nat()
    prepare(alive)
    alive.send("outside", reply, seconds * SECOND).out("inside")
    gone = nat()
    prepare(gone)
    assert gone.send("outside", reply, seconds * SECOND + 1).reason() == "no mapping"
    assert gone.entries("conns") == []


def test_nothing_expires_before_the_time_out_fits_into_the_clock(nat: Start) -> None:
    """The clock starts at 0: a subtraction now - T would be negative."""
    box = nat()
    idle_udp(box)
    box.send("outside", udp(S, 80, E, 2000), 1).out("inside")


def test_all_due_entries_go_at_once(nat: Start) -> None:
    box = nat()
    for port in range(2000, 2010):
        box.send("inside", udp(A, port, S, 53), 0).out("outside")
    box.send("inside", udp(B, 3000, S, 53), 300 * SECOND + 1).out("outside")
    assert len(box.entries("conns")) == 1


def test_time_going_back_is_clamped(nat: Start) -> None:
    box = nat()
    box.send("inside", udp(A, 2000, S, 53), 1000 * SECOND).out("outside")
    # Stamped 990 s earlier: processed, and refreshed at 1000 s.
    box.send("outside", udp(S, 53, E, 2000), 10 * SECOND).out("inside")
    box.send("outside", udp(S, 53, E, 2000), 1300 * SECOND).out("inside")
    assert box.send("outside", udp(S, 53, E, 2000), 1600 * SECOND + 1).reason() == "no mapping"


def test_nanosecond_epoch_times_are_exact(nat: Start) -> None:
    start = 1_700_000_000 * SECOND + 1
    for late, kept in ((0, True), (1, False)):
        box = nat()
        box.send("inside", udp(A, 2000, S, 53), start).out("outside")
        result = box.send("outside", udp(S, 53, E, 2000), start + 300 * SECOND + late)
        assert bool(result.sent()) is kept


def test_outbound_refreshes(nat: Start) -> None:
    box = nat()
    idle_udp(box)
    box.send("inside", udp(A, 2000, S, 80), 200 * SECOND).out("outside")
    box.send("outside", udp(S, 80, E, 2000), 500 * SECOND).out("inside")


@pytest.mark.parametrize("refresh", [True, False])
def test_inbound_may_refresh_by_configuration(nat: Start, refresh: bool) -> None:
    box = nat(inbound_refresh=str(refresh).lower())
    idle_udp(box)
    box.send("inside", echo(A, 2000, S), 300 * SECOND).out("outside")
    box = nat(inbound_refresh=str(refresh).lower())
    idle_udp(box)
    box.send("outside", udp(S, 80, E, 2000), 200 * SECOND).out("inside")
    assert bool(box.send("outside", udp(S, 80, E, 2000), 301 * SECOND).sent()) is refresh


def test_dropped_inbound_packet_never_refreshes(nat: Start) -> None:
    box = nat()
    idle_udp(box)
    assert box.send("outside", udp(S2, 80, E, 2000), 299 * SECOND).reason() == "filtered"
    assert box.send("outside", udp(S, 80, E, 2000), 300 * SECOND + 1).reason() == "no mapping"


# --- TCP state ---


def test_strict_only_a_syn_opens(nat: Start) -> None:
    box = nat()
    for flags in ("A", "SA", "PA", "FA", "R", "RA", ""):
        assert box.send("inside", tcp(A, 2000, S, 80, flags)).reason() == "TCP without mapping"
    assert box.entries("conns") == []
    box.send("inside", tcp(A, 2000, S, 80, "S")).out("outside")


def test_loose_picks_up_the_middle_of_a_connection(nat: Start) -> None:
    box = nat(strict_tcp="false")
    assert box.send("inside", tcp(A, 2000, S, 80, "PA", b"x"), 0).out("outside") == wire(
        tcp(E, 2000, S, 80, "PA", b"x", ttl=63))
    assert answered(box, at=200 * SECOND)
    # Traffic both ways: as good as established.
    assert answered(box, at=7600 * SECOND)


def test_B04_reset_without_mapping_changes_nothing(nat: Start) -> None:
    for strict in ("true", "false"):
        box = nat(strict_tcp=strict)
        assert box.send("inside", tcp(A, 2000, S, 80, "R")).reason() == "TCP without mapping"
        assert box.send("outside", tcp(S, 80, E, 2000, "R")).reason() == "no mapping"
        assert box.entries("conns") == []


def test_B04_reset_frees_the_port_after_the_transitory_time(nat: Start) -> None:
    box = nat(first_port="5000", last_port="5000")
    connect(box, port=5000)
    box.send("outside", tcp(S, 80, E, 5000, "R"), 10 * SECOND).out("inside")
    assert box.send("inside", tcp(B, 5000, S, 80, "S"), 250 * SECOND).refused("inside")[0] == "no free mapping"
    box.send("inside", tcp(B, 5000, S, 80, "S"), 250 * SECOND + 1).out("outside")


@pytest.mark.parametrize("end", [idle_fin_both_ways, idle_reset_out, idle_reset_in])
def test_closed_mapping_still_passes_late_segments(nat: Start, end: Callable[[Box], None]) -> None:
    """RFC 7857: not removed at once, the last segments still travel."""
    box = nat()
    end(box)
    assert answered(box, at=SECOND)


def test_fin_both_ways_stays_transitory_under_late_segments(nat: Start) -> None:
    box = nat()
    idle_fin_both_ways(box)
    box.send("inside", tcp(A, 2000, S, 80, "A"), 100 * SECOND).out("outside")
    assert not answered(box, at=340 * SECOND + 1)


@pytest.mark.parametrize(("from_outside"), [True, False])
def test_B04_reset_its_receiver_ignored_does_not_close(nat: Start, from_outside: bool) -> None:
    """A forged reset (RFC 5961): the side it was sent to goes on, so the connection keeps the established time."""
    box = nat()
    (idle_reset_in if from_outside else idle_reset_out)(box)
    if from_outside:
        box.send("inside", tcp(A, 2000, S, 80, "PA", b"go on"), SECOND).out("outside")
    else:
        box.send("outside", tcp(S, 80, E, 2000, "PA", b"go on"), SECOND).out("inside")
    assert answered(box, at=7441 * SECOND)


@pytest.mark.parametrize("from_outside", [True, False])
def test_B04_segments_of_the_side_that_reset_do_not_reopen(nat: Start, from_outside: bool) -> None:
    box = nat()
    (idle_reset_in if from_outside else idle_reset_out)(box)
    if from_outside:
        box.send("outside", tcp(S, 80, E, 2000, "PA", b"x"), SECOND).out("inside")
    else:
        box.send("inside", tcp(A, 2000, S, 80, "PA", b"x"), SECOND).out("outside")
    assert not answered(box, at=241 * SECOND + 1)


@pytest.mark.parametrize("end", [idle_fin_both_ways, idle_reset_out, idle_reset_in])
def test_syn_reopens_a_closed_mapping_with_the_same_port(nat: Start, end: Callable[[Box], None]) -> None:
    box = nat()
    end(box)
    assert external_port(box.send("inside", tcp(A, 2000, S, 80, "S"), SECOND).out("outside")) == 2000
    box.send("outside", tcp(S, 80, E, 2000, "SA"), SECOND).out("inside")
    assert answered(box, at=7441 * SECOND)


def test_reopening_forgets_the_old_handshake(nat: Start) -> None:
    """The new SYN alone does not make the mapping established."""
    box = nat()
    idle_fin_both_ways(box)
    box.send("inside", tcp(A, 2000, S, 80, "S"), SECOND).out("outside")
    assert not answered(box, at=241 * SECOND + 1)


def test_syn_with_ack_does_not_reopen(nat: Start) -> None:
    box = nat()
    idle_fin_both_ways(box)
    box.send("inside", tcp(A, 2000, S, 80, "SA"), SECOND).out("outside")
    box.send("outside", tcp(S, 80, E, 2000, "SA"), SECOND).out("inside")
    assert not answered(box, at=241 * SECOND + 1)


def test_unsolicited_inbound_syn_is_dropped_silently(nat: Start) -> None:
    assert nat().send("outside", tcp(S, 80, E, 2000, "S")).reason() == "no mapping"


def test_simultaneous_open_passes(nat: Start) -> None:
    """RFC 5382 REQ-2: SYN out, SYN in for the same mapping."""
    box = nat()
    box.send("inside", tcp(A, 2000, S, 80, "S")).out("outside")
    assert box.send("outside", tcp(S, 80, E, 2000, "S")).out("inside") == wire(tcp(S, 80, A, 2000, "S", ttl=63))
    assert answered(box, at=7440 * SECOND)


# --- filtering ---


@pytest.mark.parametrize(("address", "port", "passes"), [
    (True, True, ()), (True, False, ("port",)), (False, True, ("address",)),
    (False, False, ("port", "address", "both")),
], ids=["address-and-port", "address", "port", "independent"])
def test_filtering_by_configuration(nat: Start, address: bool, port: bool, passes: tuple[str, ...]) -> None:
    box = nat(filter_address=str(address).lower(), filter_port=str(port).lower())
    idle_udp(box)
    senders = {"port": (S, 81), "address": (S2, 80), "both": (S2, 81)}
    for name, (host, number) in senders.items():
        result = box.send("outside", udp(host, number, E, 2000))
        if name in passes:
            assert result.out("inside") == wire(udp(host, number, A, 2000, ttl=63))
        else:
            assert result.reason() == "filtered"
    box.send("outside", udp(S, 80, E, 2000)).out("inside")


@pytest.mark.parametrize("address", [True, False])
def test_echo_reply_of_another_host_is_filtered_by_address(nat: Start, address: bool) -> None:
    box = nat(filter_address=str(address).lower())
    idle_icmp(box)
    result = box.send("outside", echo_reply(S2, 2000, E))
    assert bool(result.sent()) is not address


def test_other_protocol_on_the_same_port_is_filtered(nat: Start) -> None:
    box = nat(filter_address="false", filter_port="false")
    idle_udp(box)
    assert box.send("outside", tcp(S, 80, E, 2000, "SA")).reason() == "filtered"
    assert box.send("outside", echo_reply(S, 2000, E)).reason() == "filtered"


def test_inbound_to_a_port_without_mapping_or_another_address_is_dropped(nat: Start) -> None:
    box = nat()
    idle_udp(box)
    assert box.send("outside", udp(S, 80, E, 2001)).reason() == "no mapping"
    assert box.send("outside", udp(S, 80, E, 80)).reason() == "no mapping"
    assert box.send("outside", udp(S, 80, "203.0.113.2", 2000)).reason() == "no mapping"
    assert box.send("outside", echo_reply(S, 9, E)).reason() == "no mapping"


# --- what is refused ---


def test_roce_v2_is_refused(nat: Start) -> None:
    box = nat()
    assert box.send("inside", udp(A, 49152, S, 4791, bytes(24))).reason() == "RoCEv2 cannot be translated"
    assert box.entries("conns") == []


@pytest.mark.parametrize("proto", [2, 33, 47, 50, 51, 132, 136])
def test_other_protocols_are_dropped(nat: Start, proto: int) -> None:
    box = nat()
    assert box.send("inside", IP(src=A, dst=S, proto=proto) / Raw(bytes(40))).reason() == "protocol not translated"
    assert box.send("outside", IP(src=S, dst=E, proto=proto) / Raw(bytes(40))).reason() == "protocol not translated"


def test_ipv6_and_arp_and_other_ethertypes_are_dropped(nat: Start) -> None:
    box = nat()
    v6 = udp("2001:db8::5", 2000, "2001:db8::7", 53)
    for port in ("inside", "outside"):
        assert box.send(port, wire(v6)).reason() == "not IPv4"
        assert box.send(port, arp()).reason() == "not IPv4"
        assert box.send(port, wire(bytes(50), kind=0x88CC)).reason() == "not IPv4"


def changed_ip(packet: Packet, **fields: Any) -> bytes:
    """A frame whose IP header says something wrong, with a header checksum that is right for it."""
    again = IP(raw(packet))
    del again.chksum
    for name, value in fields.items():
        setattr(again, name, value)
    return wire(again)


MALFORMED = {
    "P2 version 5": lambda p: changed_ip(p, version=5),
    "P2 IHL 4": lambda p: changed_ip(p, ihl=4),
    "P2 IHL over total length": lambda p: changed_ip(p, ihl=15, len=40),
    "P2 total length over frame": lambda p: changed_ip(p, len=len(p) + 1),
    "P2 total length below header": lambda p: changed_ip(p, len=19),
    "P2 frame ends in the IP header": lambda p: wire(p)[:33],
    "frame shorter than Ethernet": lambda p: wire(p)[:13],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_ip_is_dropped(nat: Start, name: str) -> None:
    box = nat()
    assert box.send("inside", MALFORMED[name](udp(A, 2000, S, 53, bytes(40)))).reason() == "malformed"
    assert box.send("outside", MALFORMED[name](udp(S, 53, E, 2000, bytes(40)))).reason() == "malformed"
    assert box.entries("conns") == []


def body(proto: int, data: bytes) -> Packet:
    return IP(src=A, dst=S, proto=proto) / Raw(data)


MALFORMED_L4 = {
    "P7 TCP of 19 octets": body(6, raw(TCP(sport=1, dport=2, flags="S"))[:19]),
    "P7 TCP data offset 4": IP(src=A, dst=S) / TCP(flags="S", dataofs=4) / Raw(bytes(20)),
    "P7 TCP data offset past the end": IP(src=A, dst=S) / TCP(flags="S", dataofs=6),
    "P7 UDP of 7 octets": body(17, bytes(7)),
    "P7 UDP length 7": IP(src=A, dst=S) / UDP(len=7) / Raw(bytes(8)),
    "P7 UDP length over the IP payload": IP(src=A, dst=S) / UDP(len=17) / Raw(bytes(8)),
    "ICMP of 7 octets": body(1, b"\x08" + bytes(6)),
}


@pytest.mark.parametrize("name", MALFORMED_L4)
def test_malformed_l4_is_dropped(nat: Start, name: str) -> None:
    # Link padding never counts as payload.
    assert nat().send("inside", wire(MALFORMED_L4[name], padding=30)).reason() == "malformed"


def test_udp_length_below_the_ip_payload_passes(nat: Start) -> None:
    packet = IP(src=A, dst=S, proto=17) / Raw(raw(IP(src=A, dst=S) / UDP(sport=2000, dport=53) / Raw(b"1234"))[20:]
                                               + b"surplus!")
    expected = IP(src=E, dst=S, ttl=63, proto=17) / Raw(
        raw(IP(src=E, dst=S) / UDP(sport=2000, dport=53) / Raw(b"1234"))[20:] + b"surplus!")
    assert nat().send("inside", packet).out("outside") == wire(expected)


def test_bad_ip_checksum_is_dropped_unless_replay_ignores_it(nat: Start) -> None:
    data = bytearray(wire(udp(A, 2000, S, 53)))
    data[24] ^= 0x40
    assert nat().send("inside", bytes(data)).reason() == "bad IPv4 checksum"
    out = nat(Options(ignore_checksums=True)).send("inside", bytes(data)).out("outside")
    # A wrong header checksum stays wrong; the UDP checksum is right.
    assert ones_sum(ip_bytes(out)[:20]) != 0xFFFF
    assert out[34:] == wire(udp(E, 2000, S, 53, ttl=63))[34:]


@pytest.mark.parametrize("kept", [14, 20, 33, 34, 41, 53])
def test_P3_truncated_before_a_needed_field_is_unparsed(nat: Start, kept: int) -> None:
    frame = wire(tcp(A, 2000, S, 80, "S", bytes(100)))
    box = nat()
    assert box.send("inside", frame[:kept], wirelen=len(frame)).reason() == "unparsed"
    assert box.entries("conns") == []


def test_P3_truncated_behind_the_headers_is_translated_with_its_original_length(nat: Start) -> None:
    box = nat()
    packet = udp(A, 2000, S, 53, bytes(range(200)))
    frame = wire(packet)
    result = box.send("inside", frame[:68], wirelen=len(frame))
    assert result.out("outside") == wire(udp(E, 2000, S, 53, bytes(range(200)), ttl=63))[:68]
    (event,) = result.events
    assert event.wirelen == len(frame)  # type: ignore[union-attr]


def test_P3_length_fields_are_checked_against_the_original_length(nat: Start) -> None:
    frame = wire(udp(A, 2000, S, 53, bytes(200)))
    assert nat().send("inside", frame[:68], wirelen=100).reason() == "malformed"
    nat(Options(headers_only=True)).send("inside", frame[:68], wirelen=68).out("outside")


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_B09_vlan_depth(nat: Start, count: int) -> None:
    tags = tuple(range(10, 10 + count))
    result = nat().send("inside", wire(udp(A, 2000, S, 53), tags))
    if count <= 2:
        assert result.out("outside") == wire(udp(E, 2000, S, 53, ttl=63), tags)
    else:
        assert result.reason() == "unparsed"


def test_B09_three_tags_can_be_configured(nat: Start) -> None:
    text = changed("nat.nf", ("  unparsed drop;\n", "  unparsed drop;\n  limit vlan_tags 3;\n"))
    box = nat(text=text)
    out = box.send("inside", wire(udp(A, 2000, S, 53), (1, 2, 3))).out("outside")
    assert out == wire(udp(E, 2000, S, 53, ttl=63), (1, 2, 3))
    assert box.send("inside", wire(udp(A, 2000, S, 53), (1, 2, 3, 4))).reason() == "unparsed"


# --- fragments ---


def long_udp(src: str = A, dst: str = S, ttl: int = 64, sport: int = 2000, dport: int = 53, **ip: Any) -> Packet:
    return udp(src, sport, dst, dport, bytes(i * 7 % 256 for i in range(792)), ttl, **ip)


@pytest.mark.parametrize("zero", [False, True], ids=["", "zero-checksum"])
def test_fragments_in_order(nat: Start, zero: bool) -> None:
    box = nat()
    pieces = cut(long_udp(zero=zero), 200, 400, 600)
    out = [box.send("inside", p).out("outside") for p in pieces]
    assert joined(out) == raw(long_udp(E, ttl=63, zero=zero))
    assert out == [wire(p) for p in cut(long_udp(E, ttl=63, zero=zero), 200, 400, 600)]
    back = [box.send("outside", p).out("inside") for p in cut(long_udp(S, E, sport=53, dport=2000), 400)]
    assert joined(back) == raw(long_udp(S, A, ttl=63, sport=53, dport=2000))


def test_fragments_out_of_order_up_to_three_are_held(nat: Start) -> None:
    box = nat()
    pieces = cut(long_udp(), 200, 400, 600)
    for p in (pieces[3], pieces[1], pieces[2]):
        assert box.send("inside", p).is_held()
    result = box.send("inside", pieces[0])
    out = result.sent()
    assert [port for port, _ in out] == ["outside"] * 4
    # First fragment first, then the held ones as they came.
    expected = [wire(p) for p in cut(long_udp(E, ttl=63), 200, 400, 600)]
    assert [frame for _, frame in out] == [expected[0], expected[3], expected[1], expected[2]]
    assert [e.index for e in result.events] == [3, 0, 1, 2]
    assert box.summary().held == 0


def test_fragments_mixed_order_inbound(nat: Start) -> None:
    box = nat()
    box.send("inside", udp(A, 2000, S, 53)).out("outside")
    pieces = cut(long_udp(S, E, sport=53, dport=2000), 200, 400, 600)
    assert box.send("outside", pieces[1]).is_held()
    out = [f for _, f in box.send("outside", pieces[0]).sent()]
    out += [box.send("outside", p).out("inside") for p in (pieces[3], pieces[2])]
    assert joined(out) == raw(long_udp(S, A, ttl=63, sport=53, dport=2000))


def test_fourth_fragment_before_the_first_drops_the_whole_datagram(nat: Start) -> None:
    box = nat()
    pieces = cut(long_udp(), 160, 320, 480, 640)
    for p in pieces[1:4]:
        assert box.send("inside", p, 0).is_held()
    result = box.send("inside", pieces[4], 0)
    assert sorted(index for index, _ in result.drops()) == [0, 1, 2, 3]
    assert result.drops()[-1] == (3, "too many fragments held")
    # And everything that still comes, until the time-out.
    assert box.send("inside", pieces[0], 0).reason() == "fragment of a condemned datagram"
    assert box.send("inside", pieces[0], 30 * SECOND).reason() == "fragment of a condemned datagram"
    assert box.entries("conns") == []
    box.send("inside", pieces[0], 30 * SECOND + 1).out("outside")


def test_held_fragments_time_out(nat: Start) -> None:
    box = nat()
    pieces = cut(long_udp(), 400)
    assert box.send("inside", pieces[1], 0).is_held()
    box.send("inside", echo(A, 9, S), 30 * SECOND).out("outside")
    result = box.send("inside", echo(A, 9, S), 30 * SECOND + 1)
    assert result.drops() == [(0, "fragment time-out")]
    assert len(result.sent()) == 1
    box.send("inside", pieces[0]).out("outside")


def test_fragments_of_another_datagram_do_not_follow(nat: Start) -> None:
    box = nat()
    first, _ = cut(long_udp(), 400)
    box.send("inside", first).out("outside")
    for other in ({"id": 0x9999}, {"dst": S2}, {"src": B}, {"proto": 6}):
        _, later = cut(long_udp(), 400)
        for name, value in other.items():
            setattr(later, name, value)
        assert box.send("inside", later).is_held()


def test_identification_can_be_used_again_after_the_last_fragment(nat: Start) -> None:
    box = nat()
    for port in (2000, 3000):
        out = [box.send("inside", p).out("outside") for p in cut(long_udp(sport=port), 400)]
        assert joined(out) == raw(long_udp(E, ttl=63, sport=port))
    assert box.send("inside", cut(long_udp(sport=4000), 400)[1]).is_held()


def test_tiny_first_fragment_is_dropped(nat: Start) -> None:
    box = nat()
    first, later = cut(tcp(A, 2000, S, 80, "S", bytes(40)), 8)
    assert box.send("inside", first).reason() == "tiny fragment"
    assert box.send("inside", later).reason() == "tiny fragment"
    assert box.entries("conns") == []


def test_tcp_first_fragment_that_holds_the_flags_passes(nat: Start) -> None:
    """16 octets: without urgent pointer, but with the flags; RFC 1858 asks no more."""
    box = nat(strict_tcp="true")
    packet, expected = tcp(A, 2000, S, 80, "S", bytes(40)), tcp(E, 2000, S, 80, "S", bytes(40), ttl=63)
    first, later = cut(packet, 24)
    out = [box.send("inside", p).out("outside") for p in (first, later)]
    assert joined(out) == raw(expected)


@pytest.mark.parametrize(("offset", "length"), [(192, 16), (208, 8), (0, 216), (392, 16)])
def test_overlapping_fragment_condemns_the_datagram(nat: Start, offset: int, length: int) -> None:
    box = nat()
    pieces = cut(long_udp(), 200, 400)
    box.send("inside", pieces[0]).out("outside")
    box.send("inside", pieces[1]).out("outside")
    data = raw(long_udp())[20:]
    bad = IP(src=A, dst=S, id=0x1234, proto=17, frag=offset // 8, flags="MF") / Raw(data[offset:offset + length])
    assert box.send("inside", bad).reason() == "overlapping fragment"
    assert box.send("inside", pieces[2]).reason() == "fragment of a condemned datagram"


def test_duplicate_fragment_is_dropped_alone(nat: Start) -> None:
    box = nat()
    pieces = cut(long_udp(), 200, 400)
    box.send("inside", pieces[0]).out("outside")
    box.send("inside", pieces[1]).out("outside")
    assert box.send("inside", pieces[1]).reason() == "duplicate fragment"
    box.send("inside", pieces[2]).out("outside")


def test_fragments_of_a_dropped_first_are_dropped(nat: Start) -> None:
    box = nat()
    pieces = cut(tcp(A, 2000, S, 80, "A", bytes(600)), 200, 400)
    assert box.send("inside", pieces[2]).is_held()
    result = box.send("inside", pieces[0])
    assert result.drops() == [(1, "TCP without mapping"), (0, "first fragment was dropped")]
    assert box.send("inside", pieces[1]).reason() == "fragment of a condemned datagram"


def test_fragments_of_an_inbound_datagram_without_mapping_are_dropped(nat: Start) -> None:
    box = nat()
    first, later = cut(long_udp(S, E, sport=53, dport=2000), 400)
    assert box.send("outside", first).reason() == "no mapping"
    assert box.send("outside", later).reason() == "fragment of a condemned datagram"


def test_malformed_fragments_are_dropped(nat: Start) -> None:
    box = nat()
    empty = IP(src=A, dst=S, proto=17, flags="MF", frag=10)
    odd = IP(src=A, dst=S, proto=17, flags="MF", frag=10) / Raw(bytes(20))
    too_far = IP(src=A, dst=S, proto=17, frag=8189) / Raw(bytes(24))
    for packet in (empty, odd, too_far):
        assert box.send("inside", packet).reason() == "malformed fragment"


def test_B02_icmp_fragments_with_a_last_one_smaller_than_an_icmp_header(nat: Start) -> None:
    box = nat()
    data = bytes(1476)
    packet, expected = echo(A, 7000, S, data), echo(E, 7000, S, data, ttl=63)
    assert len(raw(packet)) - 20 == 1484
    pieces = cut(packet, 1480)
    assert len(pieces[1].payload) == 4
    out = [box.send("inside", p).out("outside") for p in pieces]
    assert joined(out) == raw(expected)
    pieces = cut(echo_reply(S, 7000, E, data), 1480)
    assert box.send("outside", pieces[1]).is_held()
    back = [f for _, f in box.send("outside", pieces[0]).sent()]
    assert joined(back) == raw(echo_reply(S, 7000, A, data, ttl=63))


def test_later_fragment_payload_is_never_read_as_ports(nat: Start) -> None:
    """The payload of the second fragment spells the RoCEv2 port where a header would have it."""
    box = nat()
    data = bytes(92) + b"\x12\xb7\x12\xb7" * 20
    pieces = cut(udp(A, 2000, S, 53, data), 96)
    box.send("inside", pieces[0]).out("outside")
    assert box.send("inside", pieces[1]).out("outside") == wire(cut(udp(E, 2000, S, 53, data, ttl=63), 96)[1])


# --- ICMP errors ---


def quoted_udp(src: str, sport: int, ttl: int = 60, **ip: Any) -> Packet:
    return udp(src, sport, S, 53, b"question", ttl, **ip)


@pytest.mark.parametrize(("kind", "code"), [(3, 1), (3, 3), (3, 4), (11, 0), (11, 1), (12, 0)])
def test_icmp_error_inbound_is_led_by_the_quoted_packet(nat: Start, kind: int, code: int) -> None:
    box = nat()
    crowd(box)
    port = external_port(box.send("inside", quoted_udp(A, 2000)).out("outside"))
    assert port != 2000
    error = icmp_error(S2, E, quoted_udp(E, port), kind, code)
    assert box.send("outside", error).out("inside") == wire(icmp_error(S2, A, quoted_udp(A, 2000), kind, code, ttl=63))


def test_icmp_error_keeps_the_next_hop_mtu(nat: Start) -> None:
    box = nat()
    box.send("inside", quoted_udp(A, 2000)).out("outside")

    def too_big(src: str, dst: str, quoted: Packet, ttl: int) -> Packet:
        return IP(src=src, dst=dst, ttl=ttl) / ICMP(type=3, code=4, nexthopmtu=1400) / Raw(raw(quoted))

    out = box.send("outside", too_big(S2, E, quoted_udp(E, 2000), 64)).out("inside")
    assert out == wire(too_big(S2, A, quoted_udp(A, 2000), 63))


@pytest.mark.parametrize("octets", [8, 20, 28])
def test_icmp_error_inbound_quoting_only_part_of_tcp(nat: Start, octets: int) -> None:
    """RFC 792: as little as 8 octets of L4, in which there is no TCP checksum."""
    box = nat()
    sent = tcp(A, 2000, S, 80, "S", b"syn data")
    box.send("inside", sent).out("outside")
    wide = tcp(E, 2000, S, 80, "S", b"syn data", ttl=63)
    error = icmp_error(S2, E, raw(wide)[:20 + octets], 11, 0)
    narrow = tcp(A, 2000, S, 80, "S", b"syn data", ttl=63)
    assert box.send("outside", error).out("inside") == wire(icmp_error(S2, A, raw(narrow)[:20 + octets], 11, 0, ttl=63))


def test_icmp_error_quoting_udp_without_checksum(nat: Start) -> None:
    box = nat()
    box.send("inside", quoted_udp(A, 2000, zero=True)).out("outside")
    error = icmp_error(S2, E, quoted_udp(E, 2000, zero=True))
    assert box.send("outside", error).out("inside") == wire(icmp_error(S2, A, quoted_udp(A, 2000, zero=True), ttl=63))


def test_icmp_error_quoting_a_packet_with_options(nat: Start) -> None:
    box = nat()
    box.send("inside", quoted_udp(A, 2000)).out("outside")
    options = [IPOption_RR(routers=["192.0.2.9"] * 3)]
    error = icmp_error(S2, E, raw(quoted_udp(E, 2000, options=options)), options=[IPOption_NOP()] * 4)
    expected = icmp_error(S2, A, raw(quoted_udp(A, 2000, options=options)), ttl=63, options=[IPOption_NOP()] * 4)
    assert box.send("outside", error).out("inside") == wire(expected)


def test_icmp_error_quoted_total_length_and_checksum_may_be_wrong(nat: Start) -> None:
    """Some stacks quote the packet as they changed it: only differences move into the quoted checksums."""
    box = nat()
    box.send("inside", quoted_udp(A, 2000)).out("outside")
    wide, narrow = bytearray(raw(quoted_udp(E, 2000))), bytearray(raw(quoted_udp(A, 2000)))
    for data in (wide, narrow):
        data[8] -= 1  # TTL without its checksum
        data[2:4] = (9000).to_bytes(2, "big")
    out = ip_bytes(box.send("outside", icmp_error(S2, E, bytes(wide))).out("inside"))
    assert out == raw(icmp_error(S2, A, bytes(narrow), ttl=63))


def test_B13_time_exceeded_for_an_echo(nat: Start) -> None:
    box = nat()
    other = echo(B, 7, S)
    box.send("inside", other).out("outside")
    sent = echo(A, 7, S, b"traceroute")
    wide = box.send("inside", sent).out("outside")
    ident = external_port(wide)
    assert ident != 7
    error = icmp_error(S2, E, echo(E, ident, S, b"traceroute", ttl=1), 11, 0)
    assert box.send("outside", error).out("inside") == wire(
        icmp_error(S2, A, echo(A, 7, S, b"traceroute", ttl=1), 11, 0, ttl=63))
    short = icmp_error(S2, E, raw(echo(E, ident, S, b"traceroute", ttl=1))[:28], 11, 0)
    assert box.send("outside", short).out("inside") == wire(
        icmp_error(S2, A, raw(echo(A, 7, S, b"traceroute", ttl=1))[:28], 11, 0, ttl=63))


@pytest.mark.parametrize("quoted", [
    udp(E, 2001, S, 53), udp(E, 2000, S, 54), udp(E, 2000, S2, 53), udp("203.0.113.2", 2000, S, 53),
    tcp(E, 2000, S, 53, "S"), echo(E, 2000, S),
], ids=["port", "peer-port", "peer", "address", "protocol", "icmp"])
def test_icmp_error_inbound_without_mapping_is_dropped(nat: Start, quoted: Packet) -> None:
    box = nat()
    box.send("inside", quoted_udp(A, 2000)).out("outside")
    assert box.send("outside", icmp_error(S2, E, quoted)).reason() == "ICMP error without mapping"


def test_icmp_error_neither_refreshes_nor_deletes(nat: Start) -> None:
    box = nat()
    idle_udp(box)
    error = icmp_error(S, E, udp(E, 2000, S, 80))
    box.send("outside", error, 299 * SECOND).out("inside")
    box.send("inside", icmp_error(A, S, udp(S, 80, A, 2000)), 299 * SECOND).out("outside")
    box.send("outside", error, 300 * SECOND).out("inside")
    assert box.send("outside", error, 300 * SECOND + 1).reason() == "ICMP error without mapping"


def test_icmp_error_outbound(nat: Start) -> None:
    box = nat()
    crowd(box)
    port = external_port(box.send("inside", udp(A, 2000, S, 53)).out("outside"))
    assert port != 2000
    out = box.send("inside", icmp_error(A, S, udp(S, 53, A, 2000, b"answer"))).out("outside")
    assert out == wire(icmp_error(E, S, udp(S, 53, E, port, b"answer"), ttl=63))


def test_icmp_error_outbound_from_a_router_inside(nat: Start) -> None:
    box = nat()
    box.send("inside", tcp(A, 2000, S, 80, "S")).out("outside")
    quoted = raw(tcp(S, 80, A, 2000, "SA", ttl=1))[:28]
    out = box.send("inside", icmp_error("10.0.9.9", S, quoted, 11, 0)).out("outside")
    assert out == wire(icmp_error(E, S, raw(tcp(S, 80, E, 2000, "SA", ttl=1))[:28], 11, 0, ttl=63))


def test_icmp_error_outbound_about_an_echo_reply(nat: Start) -> None:
    box = nat()
    box.send("inside", echo(B, 7000, S)).out("outside")
    ident = external_port(box.send("inside", echo(A, 7000, S)).out("outside"))
    out = box.send("inside", icmp_error(A, S, echo_reply(S, 7000, A))).out("outside")
    assert out == wire(icmp_error(E, S, echo_reply(S, ident, E), ttl=63))


def test_icmp_error_outbound_without_mapping_is_dropped(nat: Start) -> None:
    box = nat()
    assert box.send("inside", icmp_error(A, S, udp(S, 53, A, 2000))).reason() == "ICMP error without mapping"
    assert box.send("inside", icmp_error(A, S, echo_reply(S, 7, A))).reason() == "ICMP error without mapping"


QUOTE = quoted_udp(E, 2000)
BAD_QUOTES = {
    "IPv6 in the quote": (b"\x60" + raw(QUOTE)[1:], "malformed"),
    "quoted IHL 4": (b"\x44" + raw(QUOTE)[1:], "malformed"),
    "quoted IHL past the end": (b"\x4f" + raw(QUOTE)[1:28], "malformed"),
    "19 octets": (raw(QUOTE)[:19], "malformed"),
    "7 octets of L4": (raw(QUOTE)[:27], "malformed"),
    "a later fragment": (raw(IP(src=E, dst=S, proto=17, frag=5) / Raw(bytes(16))), "malformed"),
}


@pytest.mark.parametrize("name", BAD_QUOTES)
def test_icmp_error_with_a_bad_quote_is_dropped(nat: Start, name: str) -> None:
    quoted, reason = BAD_QUOTES[name]
    box = nat()
    box.send("inside", quoted_udp(A, 2000)).out("outside")
    assert box.send("outside", icmp_error(S2, E, quoted)).reason() == reason


def test_icmp_error_about_another_protocol_is_dropped(nat: Start) -> None:
    gre = IP(src=E, dst=S, proto=47) / Raw(bytes(20))
    result = nat().send("outside", icmp_error(S2, E, gre))
    assert result.drops()
    assert not result.sent()


def test_icmp_error_fragmented_is_not_translated_by_guess(nat: Start) -> None:
    """Its later fragment has no quoted header: the error of the first is translated, the rest follows or is dropped."""
    box = nat()
    box.send("inside", long_udp()).out("outside")
    pieces = cut(icmp_error(S2, E, long_udp(E, ttl=63)), 400)
    expected = cut(icmp_error(S2, A, long_udp(A, ttl=63), ttl=63), 400)
    assert box.send("outside", pieces[0]).out("inside") == wire(expected[0])
    assert box.send("outside", pieces[1]).reason() == "unparsed"


# --- hairpin ---


def crowd(box: Box) -> None:
    """Takes the external ports that A and B would keep, so that every port changes."""
    for port in (2000, 4000):
        box.send("inside", udp("10.0.0.9", port, S2, 53), 0).out("outside")


def hairpin_pair(box: Box) -> tuple[int, int]:
    """B's external port (towards S) and the port A gets when it writes to it."""
    crowd(box)
    owned = external_port(box.send("inside", udp(B, 4000, S, 53), 0).out("outside"))
    own = external_port(box.send("inside", udp(A, 2000, E, owned, b"hello"), 0).out("inside"))
    assert len({owned, own, 2000, 4000}) == 4
    return owned, own


def test_hairpin_loops_back_with_both_addresses_rewritten(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    out = box.send("inside", udp(A, 2000, E, owned, b"hello")).out("inside")
    assert out == wire(udp(E, own, B, 4000, b"hello", ttl=63))
    assert box.counter("hairpinned")[0] == 2


def test_hairpin_answer_comes_from_the_endpoint_written_to(nat: Start) -> None:
    """RFC 4787 REQ-9: A wrote to E:owned, so the answer of B must come from there."""
    box = nat()
    owned, own = hairpin_pair(box)
    out = box.send("inside", udp(B, 4000, E, own, b"answer")).out("inside")
    assert out == wire(udp(E, owned, A, 2000, b"answer", ttl=63))
    # The crowd's two, A's and B's: the answer needed none of its own.
    assert len(box.entries("conns")) == 4


def test_hairpin_without_checksum_stays_without(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    out = box.send("inside", udp(A, 2000, E, owned, zero=True)).out("inside")
    assert out == wire(udp(E, own, B, 4000, ttl=63, zero=True))


def test_hairpin_tcp_handshake_and_data(nat: Start) -> None:
    """RFC 5382 REQ-8, in strict mode: SYN, SYN+ACK and data cross, the mapping gets the established time."""
    box = nat()
    connect(box, port=4000)
    steps = [(B, 2000, "S", 2000, 4000), (A, 4000, "SA", 4000, 2000), (B, 2000, "A", 2000, 4000)]
    # A:4000 owns E:4000; B is the client here.
    for src, sport, flags, wide, target in steps:
        dport = 4000 if src == B else 2000
        dst = A if src == B else B
        out = box.send("inside", tcp(src, sport, E, dport, flags)).out("inside")
        assert out == wire(tcp(E, wide, dst, target, flags, ttl=63))
    at = 7440 * SECOND
    assert box.send("inside", tcp(B, 2000, E, 4000, "PA", b"x"), at).out("inside") == wire(
        tcp(E, 2000, A, 4000, "PA", b"x", ttl=63))


@pytest.mark.parametrize(("first", "seconds"), [("S", 240), ("", 300)], ids=["syn", "udp"])
def test_hairpin_mapping_has_the_time_out_of_its_class(nat: Start, first: str, seconds: int) -> None:
    """The initiator's mapping is that of an unanswered SYN, or UDP; the owner's lives on by its own traffic."""
    def packet(src: str, sport: int, dst: str, dport: int, flags: str = "A") -> Packet:
        return tcp(src, sport, dst, dport, flags) if first else udp(src, sport, dst, dport)

    for late in (0, 1):
        box = nat()
        box.send("inside", packet(B, 4000, S, 80, "S"), 0).out("outside")
        own = external_port(box.send("inside", packet(A, 2000, E, 4000, "S"), 0).out("inside"))
        box.send("outside", packet(S, 80, E, 4000), seconds * SECOND // 2).out("inside")
        result = box.send("inside", packet(B, 4000, E, own, "SA"), seconds * SECOND + late)
        if late:
            assert result.reason() == "hairpin without mapping"
        else:
            result.out("inside")


def test_hairpin_does_not_close_the_owners_own_connection(nat: Start) -> None:
    box = nat()
    connect(box, port=4000)
    box.send("inside", tcp(B, 2000, E, 4000, "S")).out("inside")
    box.send("inside", tcp(B, 2000, E, 4000, "R")).out("inside")
    assert answered(box, port=4000, at=7440 * SECOND)


def test_hairpin_refreshes_both_mappings(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    box.send("inside", udp(A, 2000, E, owned), 200 * SECOND).out("inside")
    box.send("inside", udp(B, 4000, E, own), 500 * SECOND).out("inside")
    box.send("outside", udp(S, 53, E, owned), 800 * SECOND).out("inside")
    box.send("inside", udp(A, 2000, E, owned), 800 * SECOND).out("inside")


def test_hairpin_without_mapping_is_dropped(nat: Start) -> None:
    box = nat()
    hairpin_pair(box)
    assert box.send("inside", udp(A, 2000, E, 9999)).reason() == "hairpin without mapping"
    assert box.send("inside", tcp(A, 2000, E, 4000, "S")).reason() == "hairpin without mapping"


@pytest.mark.parametrize("make", [udp, tcp], ids=["udp", "tcp"])
def test_hairpin_when_full_is_refused(nat: Start, make: Callable[..., Packet]) -> None:
    flags = {"flags": "S"} if make is tcp else {}
    box = nat(capacity="1")
    owned = external_port(box.send("inside", make(B, 4000, S, 53, **flags)).out("outside"))
    packet = make(A, 2000, E, owned, **flags)
    assert box.send("inside", packet).refused("inside") == ("no free mapping", exhausted(packet))


def test_hairpin_to_oneself(nat: Start) -> None:
    box = nat()
    owned = external_port(box.send("inside", udp(A, 4000, S, 53)).out("outside"))
    out = box.send("inside", udp(A, 4000, E, owned, b"me")).out("inside")
    other = external_port(out)
    assert out == wire(udp(E, other, A, 4000, b"me", ttl=63))
    assert box.send("inside", udp(A, 4000, E, other, b"me too")).out("inside") == wire(
        udp(E, owned, A, 4000, b"me too", ttl=63))


def test_hairpin_fragments(nat: Start) -> None:
    box = nat()
    owned = external_port(box.send("inside", udp(B, 4000, S, 53)).out("outside"))
    pieces = cut(long_udp(A, E, sport=2000, dport=owned), 200, 400)
    assert box.send("inside", pieces[2]).is_held()
    out = [f for _, f in box.send("inside", pieces[0]).sent()] + [box.send("inside", pieces[1]).out("inside")]
    assert joined(out) == raw(long_udp(E, B, ttl=63, sport=2000, dport=4000))


def test_icmp_error_of_a_hairpin_by_the_one_written_to(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    error = icmp_error(B, E, udp(E, own, B, 4000, b"hello", ttl=63))
    assert box.send("inside", error).out("inside") == wire(
        icmp_error(E, A, udp(A, 2000, E, owned, b"hello", ttl=63), ttl=63))


def test_icmp_error_of_a_hairpin_by_the_one_who_began(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    box.send("inside", udp(B, 4000, E, own, b"answer")).out("inside")
    error = icmp_error(A, E, udp(E, owned, A, 2000, b"answer", ttl=63))
    assert box.send("inside", error).out("inside") == wire(
        icmp_error(E, B, udp(B, 4000, E, own, b"answer", ttl=63), ttl=63))


def test_icmp_error_of_a_hairpin_without_mapping_is_dropped(nat: Start) -> None:
    box = nat()
    owned, own = hairpin_pair(box)
    for quoted in (udp(E, 9999, B, 4000), udp(E, own, B, 4001), tcp(E, own, B, 4000), udp(E, owned, A, 2001)):
        assert box.send("inside", icmp_error(B, E, quoted)).reason() == "ICMP error without mapping"


# --- public captures ---


def by_initiator(path: Path) -> list[tuple[str, int, bytes, int]]:
    """Records as (port, time, bytes, original length): whoever wrote first between two addresses is inside."""
    found = []
    first: dict[frozenset[bytes], bytes] = {}
    for time, data, length in capture(path):
        source, target = data[26:30], data[30:34]
        side = "inside" if first.setdefault(frozenset((source, target)), source) == source else "outside"
        found.append((side, time, data, length))
    return found


def rewritten(data: bytes, ports: dict[int, int], *, outbound: bool, inside: dict[int, str]) -> bytes:
    """What an untagged TCP or UDP frame must become, by scapy: ``ports`` maps inside ports to external ones."""
    packet = IP(ip_bytes(data))
    upper = packet[TCP] if TCP in packet else packet[UDP]
    if outbound:
        packet.src, upper.sport = E, ports[upper.sport]
    else:
        packet.dst, upper.dport = inside[upper.dport], {x: p for p, x in ports.items()}[upper.dport]
    packet.ttl -= 1
    del packet.chksum
    if not (UDP in packet and upper.chksum == 0):
        del upper.chksum
    built = raw(packet)
    return data[:14] + built + data[14 + len(built):]


@pytest.mark.needs("traces")
def test_trace_ipsec_natt_305_udp_packets_without_checksum_stay_without(nat: Start, traces: Path) -> None:
    box = nat()
    seen = kept = 0
    for time, data, length in capture(traces / "ndpi_ipsec_natt.pcap"):
        is_udp = data[12:14] == b"\x08\x00" and data[23] == 17
        zero = is_udp and not int.from_bytes(data[20:22], "big") & 0x1FFF and data[40:42] == b"\0\0"
        result = box.send("inside", data, time, length)
        if zero:
            seen += 1
            kept += result.out("outside")[40:42] == b"\0\0"
    assert seen == kept == 305


@pytest.mark.needs("traces")
def test_trace_snort_100_connections_100_mappings_every_packet(nat: Start, traces: Path) -> None:
    """Inside ports are unique in this capture, so every external port is the inside one: all packets are known."""
    box = nat()
    records = by_initiator(traces / "snort_100conn.pcap")
    sockets = {(d[26:30], d[34:36]) for side, _, d, _ in records if side == "inside"}
    assert len(sockets) == 100
    assert len({port for _, port in sockets}) == 100
    ports = {int.from_bytes(p, "big"): int.from_bytes(p, "big") for _, p in sockets}
    inside = {int.from_bytes(p, "big"): ".".join(map(str, a)) for a, p in sockets}
    opened = 0
    for side, time, data, length in records:
        outbound = side == "inside"
        if not outbound:
            data = data[:30] + bytes(map(int, E.split("."))) + data[34:]
            packet = IP(ip_bytes(data))
            del packet.chksum, packet[TCP].chksum
            data = data[:14] + raw(packet) + data[14 + packet.len:]
        opened += outbound and data[47] & 0x12 == 2
        frame = box.send(side, data, time, length).out("outside" if outbound else "inside")
        assert frame == rewritten(data, ports, outbound=outbound, inside=inside)
    assert opened == 100
    assert len(box.entries("conns")) == 100
    assert box.summary().dropped == {}


@pytest.mark.needs("traces")
@pytest.mark.parametrize("name", ["roce_v2_send_32qp.pcap", "roce_v2_nvmeof_cm.pcap"])
def test_trace_roce_v2_is_refused(nat: Start, traces: Path, name: str) -> None:
    box = nat()
    offered = refused = 0
    for time, data, length in capture(traces / name):
        is_roce = data[12:14] == b"\x08\x00" and data[23] == 17 and data[36:38] == b"\x12\xb7"
        result = box.send("inside", data, time, length)
        offered += is_roce
        refused += is_roce and result.reason() == "RoCEv2 cannot be translated"
    assert offered == refused
    assert offered > 50


@pytest.mark.needs("traces")
def test_trace_synscan_every_syn_gets_its_own_port(nat: Start, traces: Path) -> None:
    box = nat()
    results = []
    for side, time, data, length in by_initiator(traces / "ndpi_synscan.pcap"):
        if side == "inside" and data[47] & 2:
            results.append(box.send(side, data, time, length))
    ports = {external_port(r.out("outside")) for r in results}
    assert len(results) == len(ports) == 1994
    assert len(box.entries("conns")) == 1994


@pytest.mark.needs("traces")
def test_trace_midflow_strict_drops_all_loose_takes_all(nat: Start, traces: Path) -> None:
    for strict, forwarded in (("true", 0), ("false", 797)):
        box = nat(strict_tcp=strict)
        results = [box.send("inside", data, time, length)
                   for time, data, length in capture(traces / "ndpi_midflow_797.pcap")]
        assert sum(bool(r.sent()) for r in results) == forwarded
        assert reasons(results) == ({} if forwarded else {"TCP without mapping": 797})


@pytest.mark.needs("traces")
def test_trace_castan_has_ttl_0_and_no_source_so_nothing_leaves(nat: Start, traces: Path) -> None:
    """50 synthetic packets with TTL 0 from 0.0.0.0: a router drops them, and an error would have no addressee."""
    box = nat()
    results = [box.send("inside", data, time, length) for time, data, length in
               capture(traces / "castan_nat_tree_worst.pcap")]
    assert reasons(results) == {"TTL expired": 50}
    assert not any(r.sent() for r in results)
    assert box.entries("conns") == []


def flow_of(packet: Packet) -> tuple[str, int, str, int, int]:
    upper = packet.payload
    return packet.src, upper.sport, packet.dst, upper.dport, packet.proto


@pytest.mark.needs("traces")
@pytest.mark.parametrize(("name", "least"), [("nfstream_skype.pcap", 2500), ("ndpi_webex_jumbo.pcap", 1000),
                                             ("strato_ssh_bruteforce.pcap", 1000)])
def test_trace_both_ways_every_packet_is_what_scapy_builds(
        nat: Start, traces: Path, name: str, least: int) -> None:
    """Whole TCP and UDP packets of real sessions, jumbo frames too.

    Outbound: the packet with E, the port chosen (any, one to one) and TTL - 1. Inbound: the answer as the outside
    sends it, to E and that port, must come back as the capture has it.
    """
    box = nat()
    chosen: dict[tuple[str, int, str, int, int], int] = {}
    used: dict[int, tuple[str, int, str, int, int]] = {}
    last: dict[int, int] = {}
    checked = 0
    for time, data, length in capture(traces / name):
        if data[12:14] != b"\x08\x00" or data[23] not in (6, 17) or len(data) < length:
            continue
        packet = IP(ip_bytes(data))
        if packet.flags.MF or packet.frag or packet.ttl < 2 or packet.payload.layers()[0] not in (TCP, UDP):
            continue
        del packet.chksum, packet.payload.chksum
        packet = IP(raw(packet))
        flow = flow_of(packet)
        back = (flow[2], flow[3], flow[0], flow[1], flow[4])
        if back in chosen:
            port = chosen[back]
            told = IP(raw(packet))
            told.dst, told.payload.dport = E, port
            del told.chksum, told.payload.chksum
            packet.ttl -= 1
            del packet.chksum
            result = box.send("outside", wire(told), time)
            if time - last[port] <= 240 * SECOND:
                assert result.out("inside") == wire(packet)
                last[port] = time
                checked += 1
            continue
        opens = UDP in packet or (packet[TCP].flags.S and not packet[TCP].flags.A)
        if flow not in chosen and not opens:
            assert box.send("inside", wire(packet), time).reason() == "TCP without mapping"
            continue
        if flow[3] == 4791 or (flow in chosen and time - last[chosen[flow]] > 240 * SECOND):
            continue
        frame = box.send("inside", wire(packet), time).out("outside")
        port = external_port(frame)
        assert chosen.setdefault(flow, port) == port
        assert used.setdefault(port, flow) == flow or time - last[port] > 240 * SECOND
        packet.src, packet.payload.sport = E, port
        packet.ttl -= 1
        del packet.chksum, packet.payload.chksum
        assert frame == wire(packet)
        last[port] = time
        checked += 1
    assert checked >= least


@pytest.mark.needs("traces")
def test_trace_afs_fragments_join_to_the_translated_datagrams(nat: Start, traces: Path) -> None:
    """Every datagram of which all fragments were captured: joined at the far side it is the whole one translated."""
    box = nat()
    before: dict[tuple[bytes, bytes, int], list[bytes]] = {}
    after: dict[tuple[bytes, bytes, int], list[bytes]] = {}
    for time, data, length in capture(traces / "tcpdump_afs_frags.pcap"):
        if data[12:14] != b"\x08\x00" or not int.from_bytes(data[20:22], "big") & 0x3FFF:
            continue
        key = (data[26:30], data[30:34], int.from_bytes(data[18:20], "big"))
        before.setdefault(key, []).append(data)
        for _, frame in box.send("inside", data, time, length).sent():
            after.setdefault((data[26:30], frame[30:34], int.from_bytes(frame[18:20], "big")), []).append(frame)
    compared = 0
    for key, frames in before.items():
        parts = [IP(ip_bytes(f)) for f in frames]
        if min(p.frag for p in parts) or all(p.flags.MF for p in parts):
            continue
        whole, translated = IP(joined(frames)), IP(joined(after[key]))
        assert translated.src == E
        assert sums_are_right(raw(whole)) == sums_are_right(raw(translated))
        assert raw(translated)[22:26] == raw(whole)[22:26]
        assert raw(translated)[28:] == raw(whole)[28:]
        compared += 1
    assert compared >= 50
