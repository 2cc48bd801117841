"""The firewall against `nf-behaviour` sections 4 and 11 (rfc reading) and the rules common to all.

A firewall changes nothing: what it forwards must be the frame that came, to the last octet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
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
    IPOption_LSRR,
    IPOption_NOP,
    IPOption_RR,
    IPv6,
    Packet,
    Raw,
    arp,
    capture,
    changed,
    cut,
    echo,
    echo_reply,
    icmp_error,
    raw,
    reasons,
    tcp,
    udp,
    wire,
)
from scapy.layers.inet import IPOption_SSRR
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6MLReport,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)

from cora.engine.results import Options

Start = Callable[..., Box]


@dataclass(frozen=True)
class Family:
    """Addresses of one IP version: inside hosts a and b, outside hosts s and t; the tables' names."""

    version: int
    a: str
    b: str
    s: str
    t: str

    @property
    def table(self) -> str:
        return f"conns{self.version}"

    def echo(self, src: str, ident: int, dst: str) -> Packet:
        if self.version == 4:
            return echo(src, ident, dst)
        return IPv6(src=src, dst=dst) / ICMPv6EchoRequest(id=ident, data=b"ping")

    def reply(self, src: str, ident: int, dst: str) -> Packet:
        if self.version == 4:
            return echo_reply(src, ident, dst)
        return IPv6(src=src, dst=dst) / ICMPv6EchoReply(id=ident, data=b"ping")

    def error(self, src: str, dst: str, quoted: Packet | bytes) -> Packet:
        if self.version == 4:
            return icmp_error(src, dst, quoted)
        return IPv6(src=src, dst=dst) / ICMPv6DestUnreach(code=4) / Raw(raw(quoted))


V4 = Family(4, "10.0.0.5", "10.0.0.6", "198.51.100.7", "198.51.100.8")
V6 = Family(6, "2001:db8::5", "2001:db8::6", "2001:db8:ff::7", "2001:db8:ff::8")
families = pytest.mark.parametrize("ip", [V4, V6], ids=["ipv4", "ipv6"])


@pytest.fixture(params=ENGINES)
def firewall(request: pytest.FixtureRequest) -> Start:
    """Starts a firewall on each engine: ``firewall(**config)``."""

    def start(options: Options = AS_CAPTURED, text: str = "", **config: str) -> Box:
        return Box(request.param, "firewall.nf", config, options, text)

    return start


def passes(box: Box, port: str, packet: Packet | bytes, at: int | None = None) -> None:
    """The frame leaves by the other port as it came."""
    frame = packet if isinstance(packet, bytes) else wire(packet)
    other = "outside" if port == "inside" else "inside"
    assert box.send(port, frame, at).out(other) == frame


def stopped(box: Box, port: str, packet: Packet | bytes, at: int | None = None) -> str:
    return box.send(port, packet, at).reason()


NOT_OPENED = "not opened from inside"


# --- opening and answering ---


@families
@pytest.mark.parametrize("kind", ["udp", "tcp", "echo"])
def test_what_the_inside_opens_is_answered_and_nothing_else(firewall: Start, ip: Family, kind: str) -> None:
    make: dict[str, Callable[[str, int, str, int], Packet]] = {
        "udp": udp, "tcp": tcp, "echo": lambda s, p, d, q: ip.echo(s, p if s == ip.a else q, d)}
    ask = make[kind]
    answer = (lambda s, p, d, q: ip.reply(s, q, d)) if kind == "echo" else ask
    box = firewall()
    assert stopped(box, "outside", answer(ip.s, 80, ip.a, 2000)) == NOT_OPENED
    passes(box, "inside", ask(ip.a, 2000, ip.s, 80))
    passes(box, "outside", answer(ip.s, 80, ip.a, 2000))
    for wrong in (answer(ip.t, 80, ip.a, 2000), answer(ip.s, 80, ip.b, 2000), answer(ip.s, 80, ip.a, 2001)):
        assert stopped(box, "outside", wrong) == NOT_OPENED
    if kind != "echo":
        assert stopped(box, "outside", answer(ip.s, 81, ip.a, 2000)) == NOT_OPENED
    assert box.counter("opened")[0] == 1


@families
def test_protocols_do_not_answer_for_each_other(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", udp(ip.a, 2000, ip.s, 80))
    assert stopped(box, "outside", tcp(ip.s, 80, ip.a, 2000, "SA")) == NOT_OPENED
    assert stopped(box, "outside", ip.reply(ip.s, 2000, ip.a)) == NOT_OPENED


@families
def test_echo_request_from_outside_and_unasked_reply_from_inside_are_dropped(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", ip.echo(ip.a, 7, ip.s))
    assert stopped(box, "outside", ip.echo(ip.s, 7, ip.a)) == "ICMP type not tracked"
    assert stopped(box, "inside", ip.reply(ip.a, 7, ip.s)) == "ICMP type not tracked"


@families
def test_inbound_syn_for_an_open_tuple_passes(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", tcp(ip.a, 2000, ip.s, 80, "S"))
    passes(box, "outside", tcp(ip.s, 80, ip.a, 2000, "S"))


@families
def test_tcp_from_the_middle_opens_as_established(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", tcp(ip.a, 2000, ip.s, 80, "PA", b"x"), 0)
    passes(box, "outside", tcp(ip.s, 80, ip.a, 2000, "A"), 21600 * SECOND)


def test_families_have_tables_of_their_own(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    passes(box, "inside", udp(V6.a, 2000, V6.s, 80))
    assert len(box.entries("conns4")) == len(box.entries("conns6")) == 1


@families
@pytest.mark.parametrize("kind", ["udp", "syn", "data", "echo"])
def test_table_full_passes_untracked(firewall: Start, ip: Family, kind: str) -> None:
    box = firewall(capacity="1")
    passes(box, "inside", udp(ip.a, 2000, ip.s, 80))
    second = {"udp": udp(ip.b, 2000, ip.s, 80), "syn": tcp(ip.b, 2000, ip.s, 80, "S"),
              "data": tcp(ip.b, 2000, ip.s, 80, "A"), "echo": ip.echo(ip.b, 2000, ip.s)}[kind]
    back = {"udp": udp(ip.s, 80, ip.b, 2000), "echo": ip.reply(ip.s, 2000, ip.b)}.get(
        kind, tcp(ip.s, 80, ip.b, 2000, "SA"))
    passes(box, "inside", second)
    assert stopped(box, "outside", back) == NOT_OPENED
    passes(box, "outside", udp(ip.s, 80, ip.a, 2000))
    assert box.counter("untracked")[0] == 1
    assert len(box.entries(ip.table)) == 1


def test_fragments_pass_untracked_too_when_the_table_is_full(firewall: Start) -> None:
    box = firewall(capacity="1")
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    for piece in cut(udp(V4.b, 2000, V4.s, 80, bytes(800)), 400):
        passes(box, "inside", piece)


# --- time ---


def prepare(box: Box, ip: Family, name: str) -> Packet:
    """Brings a connection into a state at time 0; returns a packet from outside that tests whether it is there."""
    if name == "udp":
        passes(box, "inside", udp(ip.a, 2000, ip.s, 80), 0)
        return udp(ip.s, 80, ip.a, 2000)
    if name == "echo":
        passes(box, "inside", ip.echo(ip.a, 2000, ip.s), 0)
        return ip.reply(ip.s, 2000, ip.a)
    script = {"syn": ">S", "syn-ack": ">S <SA", "established": ">S <SA >A", "fin-one-way": ">S <SA >A >FA",
              "fin-both-ways": ">S <SA >A >FA <FA >A", "reset-in": ">S <SA >A <R", "reset-out": ">S <SA >A >R",
              "refused": ">S <RA", "given-up": ">S >R"}[name]
    play(box, ip, script, 0)
    return tcp(ip.s, 80, ip.a, 2000, "A")


def play(box: Box, ip: Family, script: str, at: int | None = None) -> None:
    """Segments by direction and flags, all of which must pass: ``>S <SA >A``."""
    for word in script.split():
        if word[0] == ">":
            passes(box, "inside", tcp(ip.a, 2000, ip.s, 80, word[1:]), at)
        else:
            passes(box, "outside", tcp(ip.s, 80, ip.a, 2000, word[1:]), at)


@families
@pytest.mark.parametrize(("name", "seconds"), [
    ("udp", 60), ("echo", 60), ("syn", 60), ("syn-ack", 60), ("established", 21600), ("fin-one-way", 21600),
    ("fin-both-ways", 10), ("reset-in", 10), ("reset-out", 10), ("refused", 10), ("given-up", 10)])
def test_expiry_alive_at_exactly_T_gone_one_nanosecond_later(
        firewall: Start, ip: Family, name: str, seconds: int) -> None:
    box = firewall()
    passes(box, "outside", prepare(box, ip, name), seconds * SECOND)
    box = firewall()
    assert stopped(box, "outside", prepare(box, ip, name), seconds * SECOND + 1) == NOT_OPENED
    assert box.entries(ip.table) == []


@families
@pytest.mark.parametrize("port", ["inside", "outside"])
def test_both_directions_refresh(firewall: Start, ip: Family, port: str) -> None:
    box = firewall()
    answer = prepare(box, ip, "udp")
    passes(box, port, udp(ip.a, 2000, ip.s, 80) if port == "inside" else answer, 40 * SECOND)
    passes(box, "outside", answer, 100 * SECOND)


@families
def test_packet_that_is_dropped_refreshes_nothing(firewall: Start, ip: Family) -> None:
    box = firewall()
    answer = prepare(box, ip, "udp")
    assert stopped(box, "outside", udp(ip.s, 81, ip.a, 2000), 50 * SECOND) == NOT_OPENED
    assert stopped(box, "outside", answer, 60 * SECOND + 1) == NOT_OPENED


def test_time_going_back_is_clamped(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80), 1000 * SECOND)
    passes(box, "outside", udp(V4.s, 80, V4.a, 2000), 5 * SECOND)
    passes(box, "outside", udp(V4.s, 80, V4.a, 2000), 1060 * SECOND)
    assert stopped(box, "outside", udp(V4.s, 80, V4.a, 2000), 1120 * SECOND + 1) == NOT_OPENED


@families
@pytest.mark.parametrize("end", ["fin-both-ways", "reset-in", "refused"])
def test_closed_connection_is_not_renewed(firewall: Start, ip: Family, end: str) -> None:
    box = firewall()
    late = prepare(box, ip, end)
    passes(box, "outside", late, 9 * SECOND)
    assert stopped(box, "outside", late, 10 * SECOND + 1) == NOT_OPENED


@families
@pytest.mark.parametrize("end", ["fin-both-ways", "reset-in", "reset-out", "refused"])
def test_syn_without_ack_reopens(firewall: Start, ip: Family, end: str) -> None:
    box = firewall()
    prepare(box, ip, end)
    play(box, ip, ">S", 5 * SECOND)
    passes(box, "outside", tcp(ip.s, 80, ip.a, 2000, "SA"), 65 * SECOND)
    play(box, ip, ">A")
    passes(box, "outside", tcp(ip.s, 80, ip.a, 2000, "A"), 21665 * SECOND)


@families
def test_reopening_forgets_that_data_was_seen(firewall: Start, ip: Family) -> None:
    """Every field of the old connection is reset: the new SYN has the opening time, not the established one."""
    box = firewall()
    prepare(box, ip, "fin-both-ways")
    play(box, ip, ">S", 5 * SECOND)
    assert stopped(box, "outside", tcp(ip.s, 80, ip.a, 2000, "SA"), 65 * SECOND + 1) == NOT_OPENED


@families
@pytest.mark.parametrize("end", ["fin-both-ways", "refused"])
def test_syn_with_ack_does_not_reopen(firewall: Start, ip: Family, end: str) -> None:
    box = firewall()
    late = prepare(box, ip, end)
    play(box, ip, "<SA >SA", 5 * SECOND)
    assert stopped(box, "outside", late, 10 * SECOND + 1) == NOT_OPENED


@families
@pytest.mark.parametrize(("name", "script"), [("reset-in", ">PA"), ("reset-out", "<PA")])
def test_B04_reset_its_receiver_ignored_does_not_close(
        firewall: Start, ip: Family, name: str, script: str) -> None:
    """An out-of-window reset (RFC 5961): the side it was sent to goes on as if nothing had been."""
    box = firewall()
    late = prepare(box, ip, name)
    play(box, ip, script, 5 * SECOND)
    passes(box, "outside", late, 21605 * SECOND)


@families
@pytest.mark.parametrize(("name", "script"), [("reset-in", "<PA"), ("reset-out", ">PA")])
def test_B04_segments_of_the_side_that_reset_do_not_revive(
        firewall: Start, ip: Family, name: str, script: str) -> None:
    box = firewall()
    late = prepare(box, ip, name)
    play(box, ip, script, 5 * SECOND)
    assert stopped(box, "outside", late, 10 * SECOND + 1) == NOT_OPENED


@families
def test_B04_reset_of_an_unfinished_handshake_closes_for_good(firewall: Start, ip: Family) -> None:
    """Not both SYNs were seen (the repeated one counts once): the reset closes both ways, only a SYN re-opens."""
    box = firewall()
    play(box, ip, ">S >S <RA", 0)
    play(box, ip, ">A", 5 * SECOND)
    assert stopped(box, "outside", tcp(ip.s, 80, ip.a, 2000, "A"), 10 * SECOND + 1) == NOT_OPENED


@families
@pytest.mark.parametrize(("script", "seconds"), [(">FA <FA", 10), (">A <FA", 21600), (">FA <A", 21600)])
def test_connection_found_in_its_middle_closes_by_both_fins(
        firewall: Start, ip: Family, script: str, seconds: int) -> None:
    for late in (0, 1):
        box = firewall()
        play(box, ip, script, 0)
        result = box.send("outside", tcp(ip.s, 80, ip.a, 2000, "A"), seconds * SECOND + late)
        assert bool(result.sent()) is (late == 0)


@families
def test_B04_reset_for_no_entry_changes_nothing(firewall: Start, ip: Family) -> None:
    box = firewall()
    assert stopped(box, "outside", tcp(ip.s, 80, ip.a, 2000, "R")) == NOT_OPENED
    passes(box, "inside", tcp(ip.a, 2000, ip.s, 80, "R"))
    passes(box, "inside", tcp(ip.a, 2000, ip.s, 80, "RA"))
    assert box.entries(ip.table) == []


# --- what a packet looks like does not matter where it must not ---


@pytest.mark.parametrize("ttl", [0, 1])
def test_ttl_is_not_the_firewalls_business(firewall: Start, ttl: int) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80, ttl=ttl))
    passes(box, "outside", udp(V4.s, 80, V4.a, 2000, ttl=ttl))
    passes(box, "inside", udp(V6.a, 2000, V6.s, 80, ttl=ttl))


def test_udp_checksum_zero_passes_as_it_is(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80, zero=True))
    passes(box, "outside", udp(V4.s, 80, V4.a, 2000, zero=True))


def test_udp_checksum_zero_over_ipv6_is_malformed(firewall: Start) -> None:
    """K3: RFC 8200 8.1."""
    assert stopped(firewall(), "inside", udp(V6.a, 2000, V6.s, 80, zero=True)) == "malformed"


def test_wrong_l4_checksum_is_not_the_firewalls_business(firewall: Start) -> None:
    data = bytearray(wire(tcp(V4.a, 2000, V4.s, 80, "S")))
    data[50] ^= 0x55
    passes(firewall(), "inside", bytes(data))


def test_padding_and_tags_are_kept(firewall: Start) -> None:
    passes(firewall(), "inside", wire(udp(V4.a, 2000, V4.s, 80, b""), (7, 9), padding=10))


@pytest.mark.parametrize("options", [[IPOption_NOP()] * 4, [IPOption_RR(routers=["0.0.0.0"] * 9)]])
def test_ip_options_are_skipped(firewall: Start, options: list[Any]) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80, options=options))
    # The connection is the same without options: the ports were read behind them.
    passes(box, "outside", udp(V4.s, 80, V4.a, 2000))
    assert len(box.entries("conns4")) == 1
    assert stopped(box, "inside", udp(V4.a, 2000, V4.s, 19, options=options)) == "denied by rule"


@pytest.mark.parametrize("option", [IPOption_LSRR, IPOption_SSRR], ids=["LSRR", "SSRR"])
def test_source_routes_are_dropped(firewall: Start, option: Any) -> None:
    options = [option(routers=["198.51.100.9"])]
    box = firewall()
    assert stopped(box, "inside", udp(V4.a, 2000, V4.s, 80, options=options)) == "source route"
    assert stopped(box, "outside", udp(V4.s, 80, V4.a, 2000, options=options)) == "source route"


def test_bad_ip_checksum_is_dropped_unless_replay_ignores_it(firewall: Start) -> None:
    data = bytearray(wire(udp(V4.a, 2000, V4.s, 80)))
    data[25] ^= 1
    assert stopped(firewall(), "inside", bytes(data)) == "bad IPv4 checksum"
    passes(firewall(Options(ignore_checksums=True)), "inside", bytes(data))


def v4_with(**fields: Any) -> bytes:
    packet = IP(raw(udp(V4.a, 2000, V4.s, 80, bytes(40))))
    del packet.chksum
    for name, value in fields.items():
        setattr(packet, name, value)
    return wire(packet)


def v6_raw(next_header: int, body: bytes, length: int | None = None, version: int = 6) -> bytes:
    """An IPv6 frame from a to s around any octets; the length field is that of the body if not given."""
    packet = IPv6(src=V6.a, dst=V6.s, nh=next_header, plen=len(body) if length is None else length, version=version)
    return wire(raw(packet / Raw(body)), kind=0x86DD)


def l4(packet: Packet, head: int = 40) -> bytes:
    return raw(packet)[head:]


MALFORMED = {
    "P2 version 6": v4_with(version=6),
    "P2 IHL 4": v4_with(ihl=4),
    "P2 IHL over total length": v4_with(ihl=15, len=40),
    "P2 total length over frame": v4_with(len=69),
    "P2 total length 0": v4_with(len=0),
    "P2 frame ends in the IP header": v4_with()[:33],
    "frame shorter than Ethernet": bytes(13),
    "IPv6 version 4": v6_raw(17, l4(udp(V6.a, 1, V6.s, 2)), version=4),
    "IPv6 length over frame": v6_raw(17, l4(udp(V6.a, 1, V6.s, 2)), length=13),
    "IPv6 frame ends in the header": v6_raw(17, b"")[:53],
    "P7 TCP of 19 octets": wire(IP(src=V4.a, dst=V4.s, proto=6) / Raw(l4(tcp(V4.a, 1, V4.s, 2), 20)[:19])),
    "P7 TCP data offset 4": wire(IP(src=V4.a, dst=V4.s) / TCP(dataofs=4) / Raw(bytes(20))),
    "P7 TCP data offset past the end": wire(IP(src=V4.a, dst=V4.s) / TCP(dataofs=6)),
    "P7 UDP of 7 octets": wire(IP(src=V4.a, dst=V4.s, proto=17) / Raw(bytes(7)), padding=20),
    "P7 UDP length 7": wire(IP(src=V4.a, dst=V4.s) / UDP(len=7) / Raw(bytes(8))),
    "P7 UDP length over the IP payload": wire(IP(src=V4.a, dst=V4.s) / UDP(len=17) / Raw(bytes(8))),
    "P7 IPv6 TCP of 19 octets": v6_raw(6, l4(tcp(V6.a, 1, V6.s, 2))[:19]),
    "P7 IPv6 UDP of 7 octets": v6_raw(17, bytes(7)),
    "ICMP of 7 octets": wire(IP(src=V4.a, dst=V4.s, proto=1) / Raw(b"\x08" + bytes(6))),
    "ICMPv6 of 7 octets": v6_raw(58, b"\x80" + bytes(6)),
    "ARP of 27 octets": arp()[:41],
}


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("port", ["inside", "outside"])
def test_malformed_is_dropped(firewall: Start, name: str, port: str) -> None:
    box = firewall()
    assert stopped(box, port, MALFORMED[name]) == "malformed"
    assert box.entries("conns4") == box.entries("conns6") == []


@families
def test_P3_truncated_before_a_needed_field_is_unparsed(firewall: Start, ip: Family) -> None:
    frame = wire(tcp(ip.a, 2000, ip.s, 80, "S", bytes(100)))
    head = 14 + (20 if ip is V4 else 40)
    for kept in (14, head - 1, head, head + 7, head + 19):
        box = firewall()
        assert box.send("inside", frame[:kept], wirelen=len(frame)).reason() == "unparsed"
        assert box.entries(ip.table) == []
    assert firewall().send("inside", frame[:head + 20], wirelen=len(frame)).out("outside") == frame[:head + 20]


# --- B09: VLAN depth ---


DENIED = "denied by rule"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("depth", [2, 3])
def test_B09_denied_at_every_depth_never_passed_unseen(firewall: Start, count: int, depth: int) -> None:
    text = changed("firewall.nf", ("(any, any, 17, 19 .. 19)", "(any, any, 17, 53 .. 53)"),
                   ("  unparsed drop;\n", f"  unparsed drop;\n  limit vlan_tags {depth};\n"))
    tags = tuple(range(20, 20 + count))
    box = firewall(text=text)
    wanted = DENIED if count <= depth else "unparsed"
    assert stopped(box, "inside", wire(udp(V4.a, 2000, V4.s, 53), tags)) == wanted
    if count <= depth:
        passes(box, "inside", wire(udp(V4.a, 2000, V4.s, 54), tags))


@pytest.mark.parametrize("tpid", [0x8100, 0x88A8, 0x9100])
def test_B09_every_tag_type(firewall: Start, tpid: int) -> None:
    frame = wire(udp(V4.a, 2000, V4.s, 19))
    tagged = frame[:12] + tpid.to_bytes(2, "big") + b"\0\7" + frame[12:]
    assert stopped(firewall(), "inside", tagged) == DENIED


@pytest.mark.needs("traces")
def test_B09_trace_vlan_collisions_denied_at_every_depth(firewall: Start, traces: Path) -> None:
    """One connection three times: untagged, one tag, two tags. A rule for its port stops all of the client's side."""
    text = changed("firewall.nf", ("(any, any, 6, 25 .. 25)", "(any, any, 6, 80 .. 80)"))
    box = firewall(text=text)
    client = bytes((141, 142, 228, 5))
    results, depths = [], Counter[int]()
    for time, data, length in capture(traces / "zeek_vlan_collisions.pcap"):
        tags = 0
        while data[12 + 4 * tags:14 + 4 * tags] == b"\x81\x00":
            tags += 1
        depths[tags] += 1
        side = "inside" if data[26 + 4 * tags:30 + 4 * tags] == client else "outside"
        results.append(box.send(side, data, time, length))
    assert depths == {0: 14, 1: 14, 2: 14}
    assert not any(r.sent() for r in results)
    assert set(reasons(results)) == {DENIED, NOT_OPENED}


@pytest.mark.needs("traces")
def test_B09_trace_pppoe_qinq_inner_packets_are_not_read_as_ip(firewall: Start, traces: Path) -> None:
    box = firewall()
    wanted: Counter[str] = Counter()
    results = []
    for time, data, length in capture(traces / "mercury_pppoe_qinq.pcap"):
        kind = data[20:22]
        wanted["not IP"] += kind in (b"\x88\x63", b"\x88\x64")
        results.append(box.send("inside", data, time, length))
    assert wanted["not IP"] == 40
    assert reasons(results)["not IP"] == 40
    assert reasons(results)["unparsed"] == 0


# --- B10: IPv6 extension headers ---


def hop_by_hop(after: int, units: int = 0) -> bytes:
    """Any extension header of the common shape, filled with one PadN option."""
    size = 8 * units + 4
    return bytes((after, units, 1, size)) + bytes(size)


def tcp6(flags: str = "S", dport: int = 80) -> bytes:
    return l4(tcp(V6.a, 2000, V6.s, dport, flags))


CHAINS = {
    "hop-by-hop": (0, hop_by_hop(6)),
    "destination options": (60, hop_by_hop(6, 3)),
    "routing": (43, bytes((6, 0, 3, 0, 0, 0, 0, 0))),
    "mobility": (135, hop_by_hop(6)),
    "HIP": (139, hop_by_hop(6, 4)),
    "shim6": (140, hop_by_hop(6)),
    # AH counts in words of 4 octets and excludes 2 of them: 24 octets (RFC 4302).
    "AH": (51, bytes((6, 4)) + bytes(22)),
    "hop-by-hop, routing, destination": (0, hop_by_hop(43) + bytes((60, 0, 3, 0, 0, 0, 0, 0)) + hop_by_hop(6)),
    "8 destination options": (60, hop_by_hop(60) * 7 + hop_by_hop(6)),
    "atomic fragment": (44, bytes((6, 0, 0, 0, 0, 0, 0, 9))),
}


@pytest.mark.parametrize("name", CHAINS)
def test_B10_tcp_behind_extension_headers_is_tracked_as_tcp(firewall: Start, name: str) -> None:
    first, chain = CHAINS[name]
    box = firewall()
    passes(box, "inside", v6_raw(first, chain + tcp6()))
    passes(box, "outside", tcp(V6.s, 80, V6.a, 2000, "SA"))
    (entry,) = box.entries("conns6")
    assert entry["fields"]["flow.proto"] == 6
    assert entry["fields"]["flow.sp"] == 2000


WALKS = {
    "9 chained destination options": (60, hop_by_hop(60) * 8 + hop_by_hop(6) + tcp6(), "unparsed"),
    "a header that runs past the packet": (60, bytes((6, 3)) + bytes(6) + tcp6()[:8], "unparsed"),
    "a header cut in its first octets": (60, bytes((6, 0, 1)), "unparsed"),
    "the longest header": (60, bytes((6, 255)) + bytes(6) + tcp6(), "unparsed"),
    "AH that runs past the packet": (51, bytes((6, 255)) + bytes(22) + tcp6(), "unparsed"),
    "no next header": (59, b"", "protocol not tracked"),
    "no next header after options": (60, hop_by_hop(59), "protocol not tracked"),
    "ESP": (50, bytes(40), "protocol not tracked"),
    "SCTP": (132, bytes(40), "protocol not tracked"),
    "ICMPv4 inside IPv6": (1, b"\x08" + bytes(20), "protocol not tracked"),
}


@pytest.mark.parametrize("name", WALKS)
def test_B10_other_chains_are_dropped_with_the_right_reason(firewall: Start, name: str) -> None:
    first, body, reason = WALKS[name]
    box = firewall()
    assert stopped(box, "inside", v6_raw(first, body)) == reason
    assert stopped(box, "outside", v6_raw(first, body)) == reason
    assert box.entries("conns6") == []


def test_B10_scapys_own_chain(firewall: Start) -> None:
    """Headers built by scapy, not by this test."""
    chain = IPv6(src=V6.a, dst=V6.s) / IPv6ExtHdrHopByHop() / IPv6ExtHdrRouting(addresses=[]) / IPv6ExtHdrDestOpt()
    box = firewall()
    passes(box, "inside", chain / TCP(sport=2000, dport=80, flags="S"))
    passes(box, "outside", tcp(V6.s, 80, V6.a, 2000, "SA"))


@pytest.mark.needs("traces")
def test_B10_trace_v6_atomic_fragments_and_extension_headers(firewall: Start, traces: Path) -> None:
    """4 connections, the client's packets behind destination options, atomic fragment, hop-by-hop and routing header.

    The record of the first connection's SYN+ACK stands before that of its SYN in the file.
    """
    box = firewall()
    results = []
    client = "2001:db8:1::2"
    for time, data, length in capture(traces / "zeek_v6_atomic_frag.pcap"):
        side = "inside" if IPv6(data[14:]).src == client else "outside"
        results.append(box.send(side, data, time, length))
    assert reasons(results) == {NOT_OPENED: 1}
    assert [r.index for r in results if r.drops()] == [2]
    assert {e["fields"]["flow.sp"] for e in box.entries("conns6") if e["fields"]["flow.proto"] == 6} == {
        36951, 59694, 27393, 45805}


# --- fragments ---


def cut6(packet: Packet, *at: int, ident: int = 77) -> list[bytes]:
    """An IPv6 packet (without extension headers) as fragments, cut at octets of its payload."""
    whole = IPv6(raw(packet))
    data = raw(packet)[40:]
    bounds = [0, *at, len(data)]
    head = IPv6(src=whole.src, dst=whole.dst)
    return [wire(head / IPv6ExtHdrFragment(nh=whole.nh, offset=first // 8, m=int(past < len(data)), id=ident)
                 / Raw(data[first:past])) for first, past in pairwise(bounds)]


def pieces_of(ip: Family, packet: Packet, *at: int) -> list[bytes]:
    return cut6(packet, *at) if ip is V6 else [wire(p) for p in cut(packet, *at)]


@families
def test_fragments_in_order_both_ways(firewall: Start, ip: Family) -> None:
    box = firewall()
    for piece in pieces_of(ip, udp(ip.a, 2000, ip.s, 53, bytes(800)), 200, 400, 600):
        passes(box, "inside", piece)
    for piece in pieces_of(ip, udp(ip.s, 53, ip.a, 2000, bytes(800)), 400):
        passes(box, "outside", piece)
    assert len(box.entries(ip.table)) == 1


@families
def test_fragments_out_of_order_up_to_three_are_held(firewall: Start, ip: Family) -> None:
    box = firewall()
    first, *later = pieces_of(ip, udp(ip.a, 2000, ip.s, 53, bytes(800)), 200, 400, 600)
    for piece in (later[2], later[0], later[1]):
        assert box.send("inside", piece).is_held()
    assert box.send("inside", first).sent() == [
        ("outside", first), ("outside", later[2]), ("outside", later[0]), ("outside", later[1])]


@families
def test_fourth_fragment_before_the_first_drops_the_whole_datagram(firewall: Start, ip: Family) -> None:
    box = firewall()
    first, *later = pieces_of(ip, udp(ip.a, 2000, ip.s, 53, bytes(800)), 160, 320, 480, 640)
    for piece in later[:3]:
        assert box.send("inside", piece, 0).is_held()
    result = box.send("inside", later[3], 0)
    assert sorted(i for i, _ in result.drops()) == [0, 1, 2, 3]
    assert not result.sent()
    assert stopped(box, "inside", first, 30 * SECOND) == "fragment of a condemned datagram"
    passes(box, "inside", first, 30 * SECOND + 1)


@families
def test_fragments_of_a_dropped_first_are_dropped(firewall: Start, ip: Family) -> None:
    box = firewall()
    first, second, third = pieces_of(ip, udp(ip.s, 53, ip.a, 2000, bytes(800)), 200, 400)
    assert box.send("outside", second).is_held()
    assert box.send("outside", first).drops() == [(1, NOT_OPENED), (0, "first fragment was dropped")]
    assert stopped(box, "outside", third) == "fragment of a condemned datagram"


def test_fragments_of_a_denied_datagram_are_dropped(firewall: Start) -> None:
    box = firewall()
    first, second = cut(udp(V4.a, 2000, V4.s, 19, bytes(800)), 400)
    assert stopped(box, "inside", first) == DENIED
    assert stopped(box, "inside", second) == "fragment of a condemned datagram"


@families
def test_tiny_fragments_are_dropped(firewall: Start, ip: Family) -> None:
    """RFC 1858 and 3128; RFC 7112 for IPv6."""
    box = firewall()
    first, second, third = pieces_of(ip, tcp(ip.a, 2000, ip.s, 80, "S", bytes(40)), 8, 24)
    assert stopped(box, "inside", first) == "tiny fragment"
    assert stopped(box, "inside", second) == "tiny fragment"
    assert box.send("inside", third).is_held()


def test_ipv6_first_fragment_that_ends_in_the_header_chain_is_dropped(firewall: Start) -> None:
    chain = hop_by_hop(60, 3) + hop_by_hop(6, 3) + tcp6()
    fragment = raw(IPv6ExtHdrFragment(nh=60, offset=0, m=1, id=5))
    assert stopped(firewall(), "inside", v6_raw(44, fragment + chain[:40])) == "unparsed"


@families
def test_overlapping_fragments_condemn_the_datagram(firewall: Start, ip: Family) -> None:
    box = firewall()
    packet = udp(ip.a, 2000, ip.s, 53, bytes(800))
    first, second, _ = pieces_of(ip, packet, 400, 600)
    overlapping = pieces_of(ip, packet, 392, 608)[1]
    passes(box, "inside", first)
    assert stopped(box, "inside", overlapping) == "overlapping fragment"
    assert stopped(box, "inside", second) == "fragment of a condemned datagram"


@families
def test_duplicate_fragment_is_dropped_alone(firewall: Start, ip: Family) -> None:
    box = firewall()
    first, second, third = pieces_of(ip, udp(ip.a, 2000, ip.s, 53, bytes(800)), 400, 600)
    passes(box, "inside", first)
    passes(box, "inside", second)
    assert stopped(box, "inside", second) == "duplicate fragment"
    passes(box, "inside", third)


def test_atomic_fragment_is_independent_of_fragments_with_its_id(firewall: Start) -> None:
    """RFC 6946."""
    box = firewall()
    _, later = cut6(udp(V6.a, 2000, V6.s, 53, bytes(800)), 400)
    assert box.send("inside", later).is_held()
    passes(box, "inside", v6_raw(44, bytes((6, 0, 0, 0, 0, 0, 0, 77)) + tcp6()))
    assert box.summary().held == 1


def test_families_never_share_a_fragment_key(firewall: Start) -> None:
    """The IPv4 addresses mapped into IPv6, the same identification: two datagrams."""
    box = firewall()
    v4 = cut(udp("10.0.0.5", 2000, "198.51.100.7", 53, bytes(800), id=77), 400)
    v6 = cut6(udp("::10.0.0.5", 2000, "::198.51.100.7", 53, bytes(800)), 400)
    passes(box, "inside", v4[0])
    assert box.send("inside", v6[1]).is_held()


@families
def test_B02_icmp_fragments_with_a_last_one_smaller_than_an_icmp_header(firewall: Start, ip: Family) -> None:
    packet = echo(ip.a, 7, ip.s, bytes(1484 - 8)) if ip is V4 else (
        IPv6(src=ip.a, dst=ip.s) / ICMPv6EchoRequest(id=7, data=bytes(1484 - 8)))
    for order in ((0, 1), (1, 0)):
        box = firewall()
        pieces = pieces_of(ip, packet, 1480)
        events = [e for i in order for e in box.send("inside", pieces[i]).sent()]
        assert sorted(events) == sorted(("outside", p) for p in pieces)
    passes(box, "outside", ip.reply(ip.s, 7, ip.a))


@pytest.mark.needs("traces")
def test_trace_ipv6_fragments_no_guess(firewall: Start, traces: Path) -> None:
    """36 fragments of datagrams whose first fragments come first: all pass from inside, none opens from outside."""
    records = list(capture(traces / "pcpp_ip6_fragments.pcap"))
    box = firewall()
    results = [box.send("inside", data, time, length) for time, data, length in records]
    sent = [frame for r in results for _, frame in r.sent()]
    held = box.summary().held
    assert len(sent) + held + sum(reasons(results).values()) == 36
    assert set(sent) <= {data for _, data, _ in records}
    box = firewall()
    assert not any(box.send("outside", data, time, length).sent() for time, data, length in records)


# --- ICMP errors ---


RELATED_MISS = "ICMP error about nothing tracked"


@families
@pytest.mark.parametrize("kind", ["udp", "tcp", "echo"])
def test_related_error_inbound_passes(firewall: Start, ip: Family, kind: str) -> None:
    box = firewall()
    sent = {"udp": udp(ip.a, 2000, ip.s, 80), "tcp": tcp(ip.a, 2000, ip.s, 80, "S"),
            "echo": ip.echo(ip.a, 2000, ip.s)}[kind]
    error = ip.error(ip.t, ip.a, sent)
    assert stopped(box, "outside", error) == RELATED_MISS
    passes(box, "inside", sent)
    passes(box, "outside", error)
    # 8 octets of L4 are enough.
    head = 20 if ip is V4 else 40
    passes(box, "outside", ip.error(ip.t, ip.a, raw(sent)[:head + 8]))
    assert stopped(box, "outside", ip.error(ip.t, ip.a, raw(sent)[:head + 7])) == "malformed"
    assert box.counter("related")[0] == 2


@families
@pytest.mark.parametrize("kind", ["udp", "tcp", "echo"])
def test_related_error_outbound_passes(firewall: Start, ip: Family, kind: str) -> None:
    box = firewall()
    asked = {"udp": udp(ip.a, 2000, ip.s, 80), "tcp": tcp(ip.a, 2000, ip.s, 80, "S"),
             "echo": ip.echo(ip.a, 2000, ip.s)}[kind]
    answer = {"udp": udp(ip.s, 80, ip.a, 2000), "tcp": tcp(ip.s, 80, ip.a, 2000, "SA"),
              "echo": ip.reply(ip.s, 2000, ip.a)}[kind]
    assert stopped(box, "inside", ip.error(ip.a, ip.s, answer)) == RELATED_MISS
    passes(box, "inside", asked)
    passes(box, "inside", ip.error(ip.a, ip.s, answer))


@families
def test_related_error_must_quote_the_whole_key(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", udp(ip.a, 2000, ip.s, 80))
    for quoted in (udp(ip.b, 2000, ip.s, 80), udp(ip.a, 2001, ip.s, 80), udp(ip.a, 2000, ip.t, 80),
                   udp(ip.a, 2000, ip.s, 81), tcp(ip.a, 2000, ip.s, 80), udp(ip.s, 80, ip.a, 2000)):
        assert stopped(box, "outside", ip.error(ip.t, ip.a, quoted)) == RELATED_MISS


@families
def test_related_error_does_not_refresh(firewall: Start, ip: Family) -> None:
    box = firewall()
    passes(box, "inside", udp(ip.a, 2000, ip.s, 80), 0)
    error = ip.error(ip.t, ip.a, udp(ip.a, 2000, ip.s, 80))
    passes(box, "outside", error, 59 * SECOND)
    passes(box, "inside", ip.error(ip.a, ip.s, udp(ip.s, 80, ip.a, 2000)), 59 * SECOND)
    passes(box, "outside", error, 60 * SECOND)
    assert stopped(box, "outside", error, 60 * SECOND + 1) == RELATED_MISS


@pytest.mark.parametrize(("kind", "code"), [(3, 0), (3, 4), (4, 0), (5, 1), (11, 0), (11, 1), (12, 0)])
def test_every_icmp_error_type_is_related(firewall: Start, kind: int, code: int) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    passes(box, "outside", icmp_error(V4.t, V4.a, udp(V4.a, 2000, V4.s, 80), kind, code))


@pytest.mark.parametrize("error", [ICMPv6PacketTooBig(mtu=1280), ICMPv6TimeExceeded(), ICMPv6DestUnreach()])
def test_every_icmpv6_error_type_is_related(firewall: Start, error: Any) -> None:
    box = firewall()
    passes(box, "inside", udp(V6.a, 2000, V6.s, 80))
    passes(box, "outside", IPv6(src=V6.t, dst=V6.a) / error / Raw(raw(udp(V6.a, 2000, V6.s, 80))))


def test_related_error_quoting_options_and_extension_headers(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    quoted = udp(V4.a, 2000, V4.s, 80, options=[IPOption_RR(routers=["192.0.2.9"] * 3)])
    passes(box, "outside", icmp_error(V4.t, V4.a, quoted))
    passes(box, "inside", tcp(V6.a, 2000, V6.s, 80, "S"))
    chain = IPv6(src=V6.a, dst=V6.s) / IPv6ExtHdrHopByHop() / TCP(sport=2000, dport=80, flags="S")
    passes(box, "outside", V6.error(V6.t, V6.a, chain))


def test_icmp_error_about_another_protocol_or_an_error_is_dropped(firewall: Start) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    gre = IP(src=V4.a, dst=V4.s, proto=47) / Raw(bytes(20))
    about_error = icmp_error(V4.a, V4.s, udp(V4.s, 80, V4.a, 2000))
    for quoted in (gre, about_error):
        assert not box.send("outside", icmp_error(V4.t, V4.a, quoted)).sent()


def test_error_from_inside_obeys_the_rules(firewall: Start) -> None:
    """A tracked quote does not open a way to a denied network."""
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 80))
    assert stopped(box, "inside", icmp_error(V4.a, "192.0.2.1", udp(V4.s, 80, V4.a, 2000))) == DENIED


# --- rules ---


def test_rules_stop_the_inside(firewall: Start) -> None:
    box = firewall()
    for packet in (udp(V4.a, 2000, "192.0.2.1", 80), tcp(V4.a, 2000, "192.0.2.255", 80, "S"),
                   echo(V4.a, 7, "192.0.2.9"), udp(V4.a, 2000, V4.s, 19), tcp(V4.a, 2000, V4.s, 25, "S")):
        assert stopped(box, "inside", packet) == DENIED
    for packet in (udp(V4.a, 2000, "192.0.3.0", 80), udp(V4.a, 2000, V4.s, 25), tcp(V4.a, 2000, V4.s, 19, "S"),
                   udp(V4.a, 19, V4.s, 20), udp(V4.a, 25, V4.s, 18)):
        passes(box, "inside", packet)


RULES = """      (any, 192.0.2.0/24, any, any) -> { permit: false };            // TEST-NET-1
      (any, any, 17, 19 .. 19) -> { permit: false };                 // chargen
      (any, any, 6, 25 .. 25) -> { permit: false };                  // mail leaves by the relay only
"""


def with_rules(*rules: str) -> str:
    return changed("firewall.nf", (RULES, "".join(f"      {r};\n" for r in rules)))


def test_first_matching_rule_decides(firewall: Start) -> None:
    box = firewall(text=with_rules(
        "(10.0.0.5, any, any, any) -> { permit: true }", "(any, any, 17, 100 .. 200) -> { permit: false }",
        "(any, any, any, 150 .. 160) -> { permit: true }"))
    passes(box, "inside", udp(V4.a, 2000, V4.s, 150))
    assert stopped(box, "inside", udp(V4.b, 2000, V4.s, 150)) == DENIED
    passes(box, "inside", tcp(V4.b, 2000, V4.s, 150, "S"))
    for port, passed in ((99, True), (100, False), (200, False), (201, True)):
        assert bool(box.send("inside", udp(V4.b, 2000, V4.s, port)).sent()) is passed


def test_B08_priorities_that_are_given_decide_whatever_the_order(firewall: Start) -> None:
    rules = ("(any, any, 17, any) -> { permit: false } priority 1",
             "(any, any, any, 53 .. 53) -> { permit: true } priority 9")
    for text in (with_rules(*rules), with_rules(*reversed(rules))):
        box = firewall(text=text)
        passes(box, "inside", udp(V4.a, 2000, V4.s, 53))
        assert stopped(box, "inside", udp(V4.a, 2000, V4.s, 54)) == DENIED


@pytest.mark.parametrize(("rules", "says"), [
    (("(any, any, 17, any) -> { permit: false }", "(any, any, any, 53 .. 53) -> { permit: true } priority 9"),
     "this one has none"),
    (("(any, any, 17, any) -> { permit: false } priority 3",
      "(any, any, any, 53 .. 53) -> { permit: true } priority 3"),
     "match the same packet"),
], ids=["one without", "equal, overlapping, different"])
def test_B08_unclear_priorities_are_refused(rules: tuple[str, ...], says: str) -> None:
    from cora.errors import CoraError

    with pytest.raises(CoraError, match=says):
        Box("reference", "firewall.nf", text=with_rules(*rules))


def test_rule_also_stops_a_connection_that_is_open(firewall: Start) -> None:
    """Rules are looked up for every packet from inside, not only for the first."""
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, V4.s, 18))
    assert stopped(box, "inside", udp(V4.a, 2000, V4.s, 19)) == DENIED
    assert len(box.entries("conns4")) == 1


@pytest.mark.parametrize("source", ["0.0.0.1", "127.0.0.1", "240.0.0.1", "255.255.255.255"])
def test_blocked_sources_may_not_even_answer(firewall: Start, source: str) -> None:
    box = firewall()
    passes(box, "inside", udp(V4.a, 2000, source, 80))
    assert stopped(box, "outside", udp(source, 80, V4.a, 2000)) == "blocked source"
    assert stopped(box, "outside", icmp_error(source, V4.a, udp(V4.a, 2000, source, 80))) == "blocked source"
    assert stopped(box, "outside", icmp_error(source, V4.a, echo(V4.a, 7, source))) == "blocked source"
    assert stopped(box, "outside", echo_reply(source, 7, V4.a)) == "blocked source"


def test_blocked_ipv6_sources(firewall: Start) -> None:
    box = firewall()
    for source in ("::1", "ff02::1"):
        passes(box, "inside", udp(V6.a, 2000, V6.s, 80))
        passes(box, "inside", V6.echo(V6.a, 7, V6.s))
        for packet in (udp(source, 80, V6.a, 2000), V6.reply(source, 7, V6.a),
                       V6.error(source, V6.a, udp(V6.a, 2000, V6.s, 80)),
                       V6.error(source, V6.a, V6.echo(V6.a, 7, V6.s))):
            assert stopped(box, "outside", packet) == "blocked source"
    assert stopped(box, "outside", udp("::2", 80, V6.a, 2000)) == NOT_OPENED


def test_longest_prefix_decides(firewall: Start) -> None:
    text = changed("firewall.nf", ("      240.0.0.0/4 -> { listed: true };\n", """
      198.51.0.0/16 -> { listed: true };
      198.51.100.0/24 -> { listed: false };
      198.51.100.8/32 -> { listed: true };
"""))
    box = firewall(text=text)
    for host, wanted in (("198.51.99.1", "blocked source"), ("198.51.100.7", NOT_OPENED),
                         ("198.51.100.8", "blocked source"), ("198.52.0.1", NOT_OPENED)):
        assert stopped(box, "outside", udp(host, 80, V4.a, 2000)) == wanted


# --- the rest ---


@pytest.mark.parametrize("on", [True, False])
def test_arp_by_configuration(firewall: Start, on: bool) -> None:
    box = firewall(pass_arp=str(on).lower())
    for port in ("inside", "outside"):
        if on:
            passes(box, port, arp())
        else:
            assert stopped(box, port, arp()) == "ARP"


@pytest.mark.parametrize("message", [
    ICMPv6ND_NS(tgt=V6.s), ICMPv6ND_NA(tgt=V6.s), ICMPv6ND_RS(), ICMPv6ND_RA(), ICMPv6ND_Redirect(tgt=V6.s)],
    ids=["NS", "NA", "RS", "RA", "redirect"])
@pytest.mark.parametrize("on", [True, False])
def test_neighbour_discovery_by_configuration(firewall: Start, message: Any, on: bool) -> None:
    box = firewall(pass_discovery=str(on).lower())
    packet = IPv6(src="fe80::1", dst="ff02::1", hlim=255) / message
    for port in ("inside", "outside"):
        if on:
            passes(box, port, packet)
        else:
            assert stopped(box, port, packet) == "neighbour discovery"


@pytest.mark.parametrize("port", ["inside", "outside"])
def test_other_icmp_protocols_and_ethertypes_are_dropped(firewall: Start, port: str) -> None:
    box = firewall()
    src, dst = (V4.a, V4.s) if port == "inside" else (V4.s, V4.a)
    assert stopped(box, port, IP(src=src, dst=dst) / ICMP(type=13)) == "ICMP type not tracked"
    assert stopped(box, port, IPv6(src="fe80::1", dst="ff02::2") / ICMPv6MLReport()) == "ICMP type not tracked"
    for proto in (2, 47, 50, 51, 132):
        assert stopped(box, port, IP(src=src, dst=dst, proto=proto) / Raw(bytes(40))) == "protocol not tracked"
    assert stopped(box, port, wire(bytes(60), kind=0x88CC)) == "not IP"
    assert stopped(box, port, wire(bytes(60), kind=0x8847)) == "not IP"


# --- public captures against a model of section 11 ---


@dataclass
class Connection:
    """One TCP connection of the model: expiry as an absolute time, the bits section 11 names."""

    ends: int
    syn: set[str] = field(default_factory=set)
    fin: set[str] = field(default_factory=set)
    reset: set[str] = field(default_factory=set)
    dead: bool = False
    data: bool = False

    @property
    def closed(self) -> bool:
        return self.dead or self.fin == {"in", "out"} or bool(self.reset)


class Model:
    """TCP over untagged IPv6 or IPv4 without options, as sections 4, 11 and B04 say; written apart from the example."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Connection] = {}

    def passes(self, way: str, key: tuple[Any, ...], flags: int, now: int) -> bool:
        syn, fin, rst, ack = flags & 2, flags & 1, flags & 4, flags & 16
        self.known = {k: c for k, c in self.known.items() if c.ends >= now}
        entry = self.known.get(key)
        if entry is None:
            if way == "in":
                return False
            if rst:
                return True
            entry = self.known[key] = Connection(0)
        if entry.closed and syn and not ack:
            entry.syn, entry.fin, entry.reset, entry.dead, entry.data = set(), set(), set(), False, False
        before = entry.closed
        if not rst:
            entry.reset.discard("in" if way == "out" else "out")
        elif len(entry.syn) == 2:
            entry.reset.add(way)
        else:
            entry.dead = True
        if syn:
            entry.syn.add(way)
        else:
            entry.data = True
        if fin:
            entry.fin.add(way)
        if not entry.closed:
            entry.ends = now + (21600 if entry.data else 60) * SECOND
        elif not before:
            entry.ends = now + 10 * SECOND
        return True


@pytest.mark.needs("traces")
@pytest.mark.parametrize(("name", "resets"), [("ndpi_reddit_v6.pcap", 72), ("snort_100conn.pcap", 0),
                                              ("strato_ssh_bruteforce.pcap", None)])
def test_B04_trace_tcp_against_the_model(firewall: Start, traces: Path, name: str, resets: int | None) -> None:
    box, model = firewall(), Model()
    first: dict[frozenset[tuple[bytes, bytes]], tuple[bytes, bytes]] = {}
    seen = compared = now = 0
    for time, data, length in capture(traces / name):
        v6 = data[12:14] == b"\x86\xdd"
        place, size, upper = (22, 16, 54) if v6 else (26, 4, 34)
        if (data[20] if v6 else data[23]) != 6 or not (v6 or data[14] == 0x45):
            continue
        source = (data[place:place + size], data[upper:upper + 2])
        target = (data[place + size:place + 2 * size], data[upper + 2:upper + 4])
        owner = first.setdefault(frozenset((source, target)), source)
        way = "out" if owner == source else "in"
        now = max(now, time)
        flags = data[upper + 13]
        key = (source, target) if way == "out" else (target, source)
        expected = model.passes(way, key, flags, now)
        result = box.send("inside" if way == "out" else "outside", data, time, length)
        assert bool(result.sent()) is expected, compared
        seen += bool(flags & 4)
        compared += 1
    assert compared > 500
    if resets is not None:
        assert seen == resets
    table = box.entries("conns6" if name == "ndpi_reddit_v6.pcap" else "conns4")
    assert len(table) == sum(c.ends >= now for c in model.known.values())


@pytest.mark.needs("traces")
def test_B11_trace_snaplen_68_flows_are_right(firewall: Start, traces: Path) -> None:
    """24 packets cut at 68 octets: ports are there, so all belong to flows; octets count by original length."""
    # It is a mail session, which the example's own rules deny.
    box = firewall(text=changed("firewall.nf", ("(any, any, 6, 25 .. 25)", "(any, any, 6, 26 .. 26)")))
    octets = 0
    client: bytes | None = None
    for time, data, length in capture(traces / "zeek_snaplen68.pcap"):
        client = client or data[26:30]
        assert len(data) <= 68
        octets += length
        side = "inside" if data[26:30] == client else "outside"
        assert len(box.send(side, data, time, length).sent()) == 1
    assert box.summary().octets == octets == 1993
    assert box.summary().packets == 24
    assert len(box.entries("conns4")) == 1


@pytest.mark.needs("traces")
def test_B11_trace_cut_at_40_octets_is_unparsed(firewall: Start, traces: Path) -> None:
    """The same capture cut before the end of the TCP header."""
    box = firewall()
    results = [box.send("inside", data[:40], time, length)
               for time, data, length in capture(traces / "zeek_snaplen68.pcap")]
    assert reasons(results) == {"unparsed": 24}
