"""Port maps: parsing and its errors, rules, and the initiator against a slow second implementation."""

from __future__ import annotations

import ipaddress
import random
import struct
from pathlib import Path

import pytest
from capture_files import enhanced, interface, pcap, section
from slow_portmap import SlowInitiator
from test_capture import manifest

from cora.errors import CoraError, Kind
from cora.frontends.traffic.capture import Capture
from cora.frontends.traffic.portmap import Assigned, PortMap

NAMES = ("inside", "outside")

pytestmark = pytest.mark.needs("gcc")


def mac(number: int) -> bytes:
    return b"\x02\0\0\0\0" + bytes([number])


def ethernet(payload: bytes, kind: int, *, source: int = 1, target: int = 2, tags: tuple[int, ...] = ()) -> bytes:
    head = mac(target) + mac(source) + b"".join(struct.pack(">HH", tag, 5) for tag in tags)
    return head + struct.pack(">H", kind) + payload


def ipv4(source: str, target: str, proto: int, payload: bytes, *, ident: int = 0, fragment: int = 0,
         options: bytes = b"") -> bytes:
    header = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), ident,
                         fragment, 64, proto, 0, ipaddress.IPv4Address(source).packed,
                         ipaddress.IPv4Address(target).packed)
    return header + options + payload


def ipv6(source: str, target: str, proto: int, payload: bytes) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(payload), proto, 64) + ipaddress.IPv6Address(
        source).packed + ipaddress.IPv6Address(target).packed + payload


def tcp(source: int, target: int, flags: int) -> bytes:
    return struct.pack(">HHIIBBHHH", source, target, 1, 1, 0x50, flags, 1000, 0, 0)


def udp(source: int, target: int, data: bytes = b"") -> bytes:
    return struct.pack(">HHHH", source, target, 8 + len(data), 0) + data


def echo(kind: int, identifier: int) -> bytes:
    return struct.pack(">BBHHH", kind, 0, 0, identifier, 1)


SYN, SYN_ACK, ACK, RST = 2, 18, 16, 4
A, B, C = "10.0.0.1", "198.51.100.7", "203.0.113.9"
A6, B6 = "2001:db8::1", "2001:db8:ffff::7"


def v4(source: str, target: str, proto: int, payload: bytes, *, ident: int = 0, fragment: int = 0) -> bytes:
    return ethernet(ipv4(source, target, proto, payload, ident=ident, fragment=fragment), 0x0800)


def v6(source: str, target: str, proto: int, payload: bytes) -> bytes:
    return ethernet(ipv6(source, target, proto, payload), 0x86DD)


def assigned(specs: list[str], frames: list[bytes], ports: tuple[str, ...] = NAMES) -> tuple[list[int], Assigned]:
    """Ports of the frames that stay, and the finished pass."""
    with Capture.from_bytes(pcap(frames)) as capture:
        source = PortMap.parse(specs, ports).assign(capture)
        return [packet.port for packet in source.packets()], source


def sides(*frames: bytes) -> list[int]:
    slow = SlowInitiator()
    expected = [slow.side(frame) for frame in frames]
    got, _ = assigned([], list(frames))
    assert got == expected
    return got


# ---- initiator: the rules one by one ----


def test_syn_tells_the_initiator() -> None:
    assert sides(v4(A, B, 6, tcp(1000, 80, SYN)), v4(B, A, 6, tcp(80, 1000, SYN_ACK)), v4(A, B, 6, tcp(1000, 80, ACK)),
                 v4(B, A, 6, tcp(80, 1000, ACK))) == [0, 1, 0, 1]


def test_syn_ack_first_tells_its_receiver() -> None:
    assert sides(v4(B, A, 6, tcp(80, 1000, SYN_ACK)), v4(A, B, 6, tcp(1000, 80, ACK))) == [1, 0]


def test_first_packet_otherwise() -> None:
    assert sides(v4(B, A, 6, tcp(80, 1000, ACK)), v4(A, B, 6, tcp(1000, 80, ACK)), v4(B, A, 17, udp(53, 9)),
                 v4(A, B, 17, udp(9, 53))) == [0, 1, 0, 1]


def test_a_later_handshake_corrects_a_guess_once() -> None:
    assert sides(v4(B, A, 6, tcp(80, 1000, RST)), v4(A, B, 6, tcp(1000, 80, SYN)), v4(B, A, 6, tcp(80, 1000, ACK)),
                 v4(B, A, 6, tcp(80, 1000, SYN)), v4(A, B, 6, tcp(1000, 80, ACK))) == [0, 0, 1, 1, 0]


def test_echo_by_identifier() -> None:
    assert sides(v4(B, A, 1, echo(0, 7)), v4(A, B, 1, echo(8, 7)), v4(B, A, 1, echo(8, 8)), v4(A, B, 1, echo(0, 8)),
                 v6(A6, B6, 58, echo(128, 7)), v6(B6, A6, 58, echo(129, 7))) == [1, 0, 0, 1, 0, 1]


@pytest.mark.parametrize("kind", [3, 4, 5, 11, 12])
def test_icmp_error_goes_against_the_packet_it_quotes(kind: int) -> None:
    sent = ipv4(A, B, 17, udp(1000, 53, b"question"))
    answer = ipv4(B, A, 17, udp(53, 1000, b"answer"))
    error = bytes([kind]) + bytes(7)
    assert sides(ethernet(sent, 0x0800), v4(C, A, 1, error + sent[:28]), v4(C, B, 1, error + answer[:28]),
                 v4(C, A, 1, error)) == [0, 1, 0, 0]


def test_icmp_error_quoting_options_echo_fragments_and_nothing_known() -> None:
    with_options = ipv4(A, B, 6, tcp(5, 6, ACK), options=b"\x01" * 8)
    error = bytes([11]) + bytes(7)
    assert sides(v4(B, A, 6, tcp(6, 5, SYN)), v4(C, A, 1, error + with_options[:36])) == [0, 0]
    assert sides(v4(A, B, 1, echo(8, 9)), v4(C, A, 1, error + ipv4(A, B, 1, echo(8, 9)))) == [0, 1]
    assert sides(v4(C, A, 1, error + ipv4(A, B, 17, udp(1, 2)))) == [1]
    first, later = (ipv4(B, A, 17, udp(1, 2, bytes(8)), ident=3, fragment=f) for f in (0x2000, 2))
    assert sides(v4(A, B, 17, udp(2, 1)), ethernet(first, 0x0800), v4(C, B, 1, error + later)) == [0, 1, 0]
    nested = ipv4(C, A, 1, error + ipv4(A, B, 17, udp(1, 2)))
    assert sides(v4(A, C, 17, udp(1, 2)), v4(B, C, 1, error + nested)) == [0, 0]


def test_icmpv6_error() -> None:
    sent = ipv6(A6, B6, 17, udp(1000, 53, b"question"))
    assert sides(ethernet(sent, 0x86DD), v6("2001:db8::9", A6, 58, b"\x02" + bytes(7) + sent)) == [0, 1]


def test_fragments_follow_their_first_else_the_addresses() -> None:
    first = v4(B, A, 17, udp(53, 1000, bytes(8)), ident=77, fragment=0x2000)
    later = v4(B, A, 17, bytes(16), ident=77, fragment=2)
    other = v4(B, A, 17, bytes(16), ident=78, fragment=2)
    question = v4(A, B, 17, udp(1000, 53))
    assert sides(question, first, later, other) == [0, 1, 1, 1]
    assert sides(later, first, question, later) == [0, 0, 1, 0]
    # The other direction starts later on these two addresses: unknown fragments follow the first flow.
    assert sides(v4(B, A, 17, udp(9, 9)), question, other) == [0, 0, 0]


def test_ipv6_fragments_atomic_and_extension_headers() -> None:
    def fragment(offset: int, more: int, ident: int, payload: bytes, *, follows: int = 17) -> bytes:
        return struct.pack(">BBHI", follows, 0, offset << 3 | more, ident) + payload

    question, answer = v6(A6, B6, 17, udp(7, 8)), udp(8, 7, bytes(8))
    assert sides(question, v6(B6, A6, 44, fragment(0, 1, 5, answer)), v6(B6, A6, 44, fragment(2, 0, 5, bytes(8))),
                 v6(B6, A6, 44, fragment(0, 0, 6, answer))) == [0, 1, 1, 1]
    chain = b"\x3c\0" + bytes(6) + b"\x33\0" + bytes(6) + b"\x06\x01" + bytes(10)
    assert sides(v6(B6, A6, 0, chain + tcp(80, 9, SYN_ACK)), v6(A6, B6, 6, tcp(9, 80, ACK))) == [1, 0]


def test_extension_headers_are_followed_to_a_depth() -> None:
    def answer(headers: int) -> bytes:
        # Destination options all the way; the answer of a flow that the other side's packet would start.
        chain = (b"\x3c\0" + bytes(6)) * (headers - 1) + b"\x06\0" + bytes(6)
        return v6(B6, A6, 60, chain + tcp(80, 9, SYN_ACK))

    assert sides(answer(8), v6(A6, B6, 6, tcp(9, 80, ACK))) == [1, 0]
    assert sides(answer(9), v6(A6, B6, 6, tcp(9, 80, ACK))) == [0, 0]


def test_tags_are_skipped_to_a_depth() -> None:
    request, reply = ipv4(A, B, 17, udp(1, 2)), ipv4(B, A, 17, udp(2, 1))
    assert sides(ethernet(request, 0x0800, tags=(0x88A8, 0x8100)), ethernet(reply, 0x0800, tags=(0x9100,)),
                 ethernet(reply, 0x0800)) == [0, 1, 1]
    nine = (0x8100,) * 9
    # Too deep to be read: only the MAC addresses count, and they are the same both times.
    assert sides(ethernet(request, 0x0800, tags=nine), ethernet(reply, 0x0800, tags=nine)) == [0, 0]


def test_other_frames_by_mac_pair_and_arp_by_addresses() -> None:
    assert sides(ethernet(b"x" * 40, 0x88CC), ethernet(b"y" * 40, 0x88CC, source=2, target=1)) == [0, 1]

    def arp(operation: int, source: str, target: str) -> bytes:
        return struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, operation, mac(1), ipaddress.IPv4Address(source).packed,
                           mac(0), ipaddress.IPv4Address(target).packed)

    assert sides(v4(A, B, 17, udp(1, 2)), ethernet(arp(1, B, A), 0x806, source=2, target=255),
                 ethernet(arp(2, A, B), 0x806)) == [0, 1, 0]


def test_padding_is_not_read_as_ports() -> None:
    # Read as ports, 5 and 6 would be a flow that B starts.
    padding = udp(5, 6) + bytes(20)
    assert sides(v4(A, B, 17, udp(2, 1)), ethernet(ipv4(B, A, 17, b""), 0x0800) + padding) == [0, 1]
    assert sides(v6(A6, B6, 17, udp(2, 1)), ethernet(ipv6(B6, A6, 0, b"\x11\0" + bytes(6)), 0x86DD) + padding) == [0, 1]


def test_initiator_port_can_be_named() -> None:
    frames = [v4(A, B, 17, udp(1, 2)), v4(B, A, 17, udp(2, 1))]
    assert assigned(["initiator"], frames)[0] == [0, 1]
    assert assigned(["initiator=outside"], frames)[0] == [1, 0]


# ---- initiator: against the oracle ----


@pytest.mark.needs("traces")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
def test_initiator_on_public_captures(row: dict[str, str], traces: Path) -> None:
    slow = SlowInitiator()
    with Capture.open(traces / row["file"]) as capture:
        source = PortMap.parse([], NAMES).assign(capture)
        got = [(packet.port, packet.frame) for packet in source.packets()]
    assert [port for port, _ in got] == [slow.side(frame) for _, frame in got]
    assert source.counts == [sum(port == number for port, _ in got) for number in (0, 1)]


def random_frame(rng: random.Random, hosts: int) -> bytes:
    """A frame between few hosts and ports, so that flows meet; sometimes cut or changed."""
    six = rng.random() < 0.3
    base = "2001:db8::%x" if six else "10.0.0.%d"
    source, target = base % rng.randint(1, hosts), base % rng.randint(1, hosts)
    proto = rng.choice([6, 6, 6, 17, 17, 132, 47, 58 if six else 1])
    payload = {
        6: lambda: tcp(rng.randint(1, 3), rng.randint(1, 3), rng.choice([SYN, SYN_ACK, ACK, ACK, RST])),
        1: lambda: echo(rng.choice([0, 8, 13, 14]), rng.randint(1, 3)),
        58: lambda: echo(rng.choice([128, 129, 135]), rng.randint(1, 3)),
    }.get(proto, lambda: udp(rng.randint(1, 3), rng.randint(1, 3)))()
    make = ipv6 if six else ipv4
    packet = make(source, target, proto, payload)
    if rng.random() < 0.2:
        kind = rng.choice([1, 2, 3, 4]) if six else rng.choice([3, 5, 11, 12])
        packet = make(base % rng.randint(1, hosts), source, 58 if six else 1, bytes([kind]) + bytes(7) + packet)
    elif rng.random() < 0.2:
        offset, ident = rng.choice([0, 2]), rng.randint(1, 4)
        if six:
            packet = ipv6(source, target, 44, struct.pack(">BBHI", proto, 0, offset << 3 | 1, ident) + payload)
        else:
            packet = ipv4(source, target, proto, payload, ident=ident, fragment=0x2000 | offset)
    frame = bytearray(ethernet(packet, 0x86DD if six else 0x0800, source=rng.randint(1, 3), target=rng.randint(1, 3),
                               tags=(0x8100,) * rng.choice([0, 0, 0, 1, 2])))
    if rng.random() < 0.1:
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    return bytes(frame[:rng.randrange(len(frame) + 1)] if rng.random() < 0.1 else frame)


@pytest.mark.parametrize(("seed", "hosts"), [(1, 2), (2, 3), (3, 6), (4, 40)])
def test_initiator_on_random_frames(seed: int, hosts: int) -> None:
    rng = random.Random(seed)
    sides(*(random_frame(rng, hosts) for _ in range(4000)))


def test_many_flows_grow_the_table() -> None:
    frames = []
    for i in range(20_000):
        host = f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"
        frames += [v4(host, B, 17, udp(1, 2)), v4(B, host, 17, udp(2, 1))]
    assert sides(*frames) == [0, 1] * 20_000


def test_full_memory_is_told_and_syn_still_decides() -> None:
    frames = [v4(A, B, 17, udp(port, 53)) for port in range(1, 50)]
    frames += [v4(B, A, 6, tcp(80, 9, SYN_ACK)), v4(A, B, 6, tcp(9, 80, SYN)), v4(B, A, 17, udp(53, 1))]
    with Capture.from_bytes(pcap(frames)) as capture:
        source = PortMap.parse([], NAMES).assign(capture, max_entries=10)
        got = [packet.port for packet in source.packets()]
    # Nine flows and their address pair are remembered; 40 more flows and the handshake are not.
    assert got == [0] * 49 + [1, 0, 1]
    assert source.warnings == ["port map: memory is full at 10 flows (limit 10); 42 packets of later flows were "
                               "assigned by themselves"]


# ---- rules ----

FROM_A, FROM_B = v4(A, B, 17, udp(1, 2)), v4(B, A, 17, udp(2, 1))
FROM_A6, FROM_B6 = v6(A6, B6, 17, udp(1, 2)), v6(B6, A6, 17, udp(2, 1))
OTHER = ethernet(b"z" * 40, 0x88CC, source=3)
MIXED = [FROM_A, FROM_B, FROM_A6, FROM_B6, OTHER]


@pytest.mark.parametrize(("specs", "expected"), [
    (["inside=10.0.0.0/8,2001:db8::/64"], [0, 1, 0, 1, 1]),
    (["inside=10.0.0.0/8", "inside=2001:db8::1"], [0, 1, 0, 1, 1]),
    (["inside=10.0.0.1", "outside=*"], [0, 1, 1, 1, 1]),
    (["outside=*", "inside=10.0.0.1"], [0, 1, 1, 1, 1]),
    (["outside=198.51.100.0/24"], [0, 1, 0, 0, 0]),
    (["outside=to:10.0.0.0/8,to:2001:db8::/64"], [0, 1, 0, 1, 0]),
    (["inside=mac:02:00:00:00:00:03"], [1, 1, 1, 1, 0]),
    (["inside=mac:02-00-00-00-00-03", "outside=*"], [1, 1, 1, 1, 0]),
    (["inside=0.0.0.0/0"], [0, 0, 1, 1, 1]),
    (["inside=::/0"], [1, 1, 0, 0, 1]),
    # First match: the MAC rule comes before the subnet that would say otherwise.
    (["inside=mac:02:00:00:00:00:01", "outside=10.0.0.0/8"], [0, 0, 0, 0]),
    (["outside=10.0.0.0/8", "inside=mac:02:00:00:00:00:01"], [1, 0, 0, 0]),
    # The wider range of the same port comes first, the narrower keeps its place.
    (["inside=10.0.0.0/8,10.0.0.1,10.0.0.0/30", "outside=*"], [0, 1, 1, 1, 1]),
])
def test_rules(specs: list[str], expected: list[int]) -> None:
    got, source = assigned(specs, MIXED)
    assert got == expected
    unmatched = len(MIXED) - len(expected)
    assert source.counts == [got.count(0), got.count(1)]
    assert bool(source.warnings) == bool(unmatched)
    if unmatched:
        assert f"{unmatched} packets match no rule and are left out" in source.warnings[0]


def test_unmatched_packets_leave_the_others_in_order() -> None:
    frames = [OTHER, FROM_A, OTHER, OTHER, FROM_B, FROM_A]
    got, source = assigned(["inside=10.0.0.0/8", "outside=198.51.100.0/24"], frames)
    assert got == [0, 1, 0]
    assert "3 packets match no rule" in source.warnings[0]


def test_three_ports() -> None:
    got, _ = assigned(["a=10.0.0.0/8", "c=198.51.100.0/24"], MIXED, ("a", "b", "c"))
    assert got == [0, 2, 1, 1, 1]


def test_one_port_needs_no_map() -> None:
    assert assigned([], MIXED, ("wire",))[0] == [0] * 5


def random_ranges(rng: random.Random) -> list[ipaddress.IPv4Network]:
    texts = (f"{rng.randrange(16) * 16}.{rng.randrange(256)}.0.0/{rng.choice([4, 8, 12, 16])}"
             for _ in range(rng.randint(1, 12)))
    return [ipaddress.IPv4Network(text, strict=False) for text in texts]


def test_random_subnets_against_plain_search() -> None:
    rng = random.Random(5)
    for _ in range(60):
        inside = random_ranges(rng)
        outside = [net for net in random_ranges(rng) if not any(net.overlaps(other) for other in inside)]
        hosts = [ipaddress.IPv4Address(rng.randrange(1 << 32)) for _ in range(40)]
        hosts += [address for net in inside + outside for address in (net[0], net[-1])]
        specs = [f"inside={net}" for net in inside] + [f"outside={net}" for net in outside] + ["outside=*"]
        got, _ = assigned(specs, [v4(str(host), A, 17, udp(1, 2)) for host in hosts])
        assert got == [0 if any(host in net for net in inside) else 1 for host in hosts]


def test_interfaces_by_number_and_name() -> None:
    data = (section() + interface(options=[(2, b"lan0")]) + interface(options=[(2, b"wan0")]) + enhanced(FROM_A)
            + enhanced(FROM_B, iface=1) + interface(options=[(2, b"lan0")]) + enhanced(FROM_B, iface=2))
    for specs, expected in ((["inside=if:0"], [0, 1, 1]), (["inside=if:lan0"], [0, 1, 0]),
                            (["outside=if:wan0,if:2"], [0, 1, 1])):
        with Capture.from_bytes(data) as capture:
            source = PortMap.parse(specs, NAMES).assign(capture)
            # One packet a batch: an interface may be described after the first packets.
            assert [port for batch in source.batches(1) for port in batch["port"].tolist()] == expected


def test_unknown_interface_is_an_error_that_lists_the_known_ones() -> None:
    with Capture.from_bytes(section() + interface(options=[(2, b"lan0")]) + enhanced(FROM_A)) as capture:
        source = PortMap.parse(["inside=if:eth7"], NAMES).assign(capture)
        with pytest.raises(CoraError) as caught:
            list(source.batches())
    text = caught.value.render()
    assert caught.value.diagnostics[0].kind is Kind.PORT_MAP
    assert "no interface 'eth7'; it has 0 (lan0)" in text


# ---- words ----


@pytest.mark.parametrize(("specs", "ports", "assumed", "words"), [
    ([], NAMES, True,
     "the initiator of each flow is behind port inside, answers arrive on port outside (initiator: who "
     "sent the TCP SYN or the echo request, else the first packet seen)"),
    ([], ("wire",), True, "all packets arrive on port wire"),
    (["inside=10.0.0.0/8"], NAMES, True,
     "packets arrive by the first match: from 10.0.0.0/8 on port inside, all others on port outside"),
    (["outside=*", "inside=to:10.0.0.1,if:eth0,mac:02:00:00:00:00:01"], NAMES, False,
     "packets arrive by the first match: to 10.0.0.1/32 on port inside, of interface eth0 on port inside, sent by "
     "02:00:00:00:00:01 on port inside, all others on port outside"),
])
def test_description(specs: list[str], ports: tuple[str, ...], assumed: bool, words: str) -> None:
    portmap = PortMap.parse(specs, ports)
    assert (portmap.describe(), portmap.assumed) == (words, assumed)


@pytest.mark.parametrize(("specs", "ports", "words"), [
    (["lan=10.0.0.0/8"], NAMES, "no port 'lan'; its ports are inside, outside"),
    (["inside=10.0.0.0/33"], NAMES, "'10.0.0.0/33' is not an IPv4 or IPv6 address or subnet"),
    (["inside=10.0.0.1/8"], NAMES, "10.0.0.1/8 has host bits set; the subnet is 10.0.0.0/8"),
    (["inside=to:"], NAMES, "'' is not an IPv4 or IPv6 address or subnet"),
    (["inside=10.0.0.0/8,"], NAMES, "'' is not an IPv4 or IPv6 address or subnet"),
    (["inside=mac:02:00:00:00:00"], NAMES, "is not a MAC address"),
    (["inside=mac:02:00-0:00:00:00:01"], NAMES, "is not a MAC address"),
    (["inside=if:"], NAMES, "'if:' needs the number or name"),
    (["inside"], NAMES, "expected PORT=ITEM"),
    (["inside="], NAMES, "expected PORT=ITEM"),
    (["inside=10.0.0.0/8", "outside=10.1.0.0/16"], NAMES,
     "10.0.0.0/8 (port inside) and 10.1.0.0/16 (port outside) overlap"),
    (["inside=10.0.0.0/8,10.0.0.0/24", "outside=10.255.0.0/16"], NAMES, "overlap"),
    (["inside=mac:02:00:00:00:00:01", "outside=mac:02:00:00:00:00:01"], NAMES, "overlap"),
    (["inside=if:0", "outside=if:0"], NAMES, "overlap"),
    (["inside=*", "outside=*"], NAMES, "'*' (all other packets) is given to two ports"),
    (["initiator", "inside=10.0.0.0/8"], NAMES, "cannot be combined"),
    (["initiator=lan"], NAMES, "no port 'lan'"),
    (["initiator"], ("a", "b", "c"), "needs a program with two ports, this one has 3"),
    ([], ("a", "b", "c"), "the program has 3 ports (a, b, c): which packets arrive on which cannot be guessed"),
])
def test_wrong_maps_are_refused_with_an_example(specs: list[str], ports: tuple[str, ...], words: str) -> None:
    with pytest.raises(CoraError) as caught:
        PortMap.parse(specs, ports)
    text = caught.value.render()
    assert caught.value.diagnostics[0].kind is Kind.PORT_MAP
    assert words in text
    assert f"for example: --port-map {ports[0]}=10.0.0.0/8" in text
