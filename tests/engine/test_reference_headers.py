"""Section 2 of docs/semantics.md: finding headers. Packets come from scapy, expected values from the RFC layouts."""

from __future__ import annotations

from typing import Any

import pytest
from reference_kit import chain, fields, loads, outputs, program, run, verdict
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
V4, V6 = ("eth 2", "ipv4"), ("eth 2", "ipv6 8")


def ip(**given: Any) -> IP:
    return IP(src="192.0.2.1", dst="198.51.100.2", **given)


def ip6(**given: Any) -> IPv6:
    return IPv6(src="2001:db8::1", dst="2001:db8::2", **given)


def tags(n: int, kinds: tuple[int, ...] = (0x88A8, 0x8100, 0x9100)) -> Packet:
    """Ethernet with n tags, the first one VLAN 100."""
    frame = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01", type=kinds[0] if n else 0x0800)
    for i in range(n):
        frame /= Dot1Q(vlan=100 + i, prio=5, id=1, type=kinds[(i + 1) % 3] if i + 1 < n else 0x0800)
    return frame


def see(steps: tuple[str, ...], frame: bytes, wirelen: int | None = None, **options: bool) -> str:
    return verdict(run(chain(*steps), frame, wirelen, **options))


class TestEthernet:
    def test_needs_14_bytes(self) -> None:
        assert see(("eth 2",), bytes(14)) == "forward"
        assert see(("eth 2",), bytes(13)) == "eth malformed"
        assert see(("eth 2",), bytes(13), 14) == "eth unparsed"
        assert see(("eth 2",), b"") == "eth malformed"

    @pytest.mark.parametrize("n", range(6))
    @pytest.mark.parametrize("limit", [0, 2, 5])
    def test_tags_up_to_the_limit(self, n: int, limit: int) -> None:
        frame = bytes(tags(n) / ip() / UDP())
        prog = chain(f"eth {limit}", body=loads("eth.type:u16", "eth.tags:u8"))
        if n > limit:
            assert verdict(run(prog, frame)) == "eth unparsed"
        else:
            assert fields(prog, frame) == {"eth.type": 0x0800, "eth.tags": n}

    def test_a_tag_needs_4_more_bytes(self) -> None:
        frame = bytes(12) + b"\x81\x00\x00\x01\x08\x00"
        assert see(("eth 2",), frame) == "forward"
        assert see(("eth 2",), frame[:17]) == "eth malformed"
        assert see(("eth 2",), frame[:17], 18) == "eth unparsed"

    def test_a_tag_too_many_is_seen_before_its_bytes(self) -> None:
        assert see(("eth 0",), bytes(12) + b"\x81\x00") == "eth unparsed"

    def test_l3_is_behind_the_tags(self) -> None:
        prog = chain("eth 5", "ipv4", body=loads("ipv4.src:u32"))
        for n in range(6):
            assert fields(prog, bytes(tags(n) / ip()))["ipv4.src"] == 0xC0000201

    def test_vlan_is_the_first_tag(self) -> None:
        prog = chain("eth 5", "vlan", body=loads("vlan.vid:u12", "vlan.pcp:u3", "vlan.dei:bool"))
        for n in range(1, 6):
            assert fields(prog, bytes(tags(n) / ip())) == {"vlan.vid": 100, "vlan.pcp": 5, "vlan.dei": 1}
        assert verdict(run(prog, bytes(tags(0) / ip()))) == "vlan absent"

    def test_arp(self) -> None:
        frame = bytes(ETH / ARP(op=2, psrc="192.0.2.7", pdst="192.0.2.9", hwsrc="02:00:00:00:00:07"))
        prog = chain("eth 2", "arp", body=loads("arp.op:u16", "arp.spa:u32", "arp.tpa:u32", "arp.sha:u48"))
        assert fields(prog, frame) == {"arp.op": 2, "arp.spa": 0xC0000207, "arp.tpa": 0xC0000209,
                                       "arp.sha": 0x020000000007}
        assert see(("eth 2", "arp"), frame[:41]) == "arp malformed"
        assert see(("eth 2", "arp"), frame[:41], 42) == "arp unparsed"


class TestIPv4:
    def test_fields(self) -> None:
        packet = ETH / ip(id=0x1234, tos=0b10111001, ttl=7, proto=17, flags="DF") / UDP()
        got = fields(chain(*V4, body=loads(
            "ipv4.version:u4", "ipv4.ihl:u4", "ipv4.dscp:u6", "ipv4.ecn:u2", "ipv4.length:u16", "ipv4.id:u16",
            "ipv4.df:bool", "ipv4.mf:bool", "ipv4.offset:u13", "ipv4.ttl:u8", "ipv4.proto:u8", "ipv4.src:u32",
            "ipv4.dst:u32")), bytes(packet))
        assert got == {"ipv4.version": 4, "ipv4.ihl": 5, "ipv4.dscp": 0b101110, "ipv4.ecn": 1, "ipv4.length": 28,
                       "ipv4.id": 0x1234, "ipv4.df": 1, "ipv4.mf": 0, "ipv4.offset": 0, "ipv4.ttl": 7,
                       "ipv4.proto": 17, "ipv4.src": 0xC0000201, "ipv4.dst": 0xC6336402}

    @pytest.mark.parametrize(("cut", "wirelen", "expected"), [
        (34, None, "forward"), (33, None, "ipv4 malformed"), (33, 34, "ipv4 unparsed")])
    def test_needs_20_bytes(self, cut: int, wirelen: int | None, expected: str) -> None:
        assert see(V4, bytes(ETH / ip())[:cut], wirelen) == expected

    @pytest.mark.parametrize("packet", [
        ip(version=5), ip(ihl=4), ip(ihl=6, len=20), ip(len=19), ip(len=21)], ids=repr)
    def test_malformed(self, packet: IP) -> None:
        assert see(V4, bytes(ETH / packet)) == "ipv4 malformed"

    def test_total_length_is_compared_with_the_original_length(self) -> None:
        frame = bytes(ETH / ip() / Raw(bytes(80)))
        assert see(V4, frame[:40], len(frame)) == "forward"
        assert see(V4, frame[:40], len(frame) - 1) == "ipv4 malformed"
        assert see(V4, frame[:40], 40, headers_only=True) == "forward"

    def test_options_must_be_captured(self) -> None:
        frame = bytes(ETH / ip(options=[IPOption_NOP()] * 4))
        assert see(V4, frame) == "forward"
        assert see(V4, frame[:37], 38) == "ipv4 unparsed"
        assert see(V4, frame[:37], 37, headers_only=True) == "ipv4 malformed"

    def test_l4_is_behind_the_options(self) -> None:
        packet = ETH / ip(options=[IPOption_NOP()] * 8) / UDP(sport=4321, dport=53)
        assert fields(chain(*V4, "udp", body=loads("udp.sport:u16", "l4.dport:u16")), bytes(packet)) == {
            "udp.sport": 4321, "l4.dport": 53}

    def test_padding_behind_the_datagram_is_kept(self) -> None:
        frame = bytes(ETH / ip() / UDP()) + b"\xaa" * 20
        (event,) = outputs(run(chain(*V4, "udp"), frame))
        assert event.frame == frame and event.wirelen == len(frame)

    def test_header_checksum(self) -> None:
        good = bytes(ETH / ip(options=[IPOption_NOP()] * 4) / UDP())
        bad = good[:24] + bytes((good[24] ^ 1,)) + good[25:]
        bad_option = good[:35] + b"\x00" + good[36:]
        assert see(("eth 2", "ipv4 verify"), good) == "forward"
        for frame in (bad, bad_option):
            assert see(("eth 2", "ipv4 verify"), frame) == "ipv4 bad_checksum"
            assert see(V4, frame) == "forward"
            assert see(("eth 2", "ipv4 verify"), frame, ignore_checksums=True) == "forward"

    @pytest.mark.parametrize(("options", "expected"), [
        (b"\x83\x07\x04\xc0\x00\x02\x01\x00", "ipv4 source_route"),
        (b"\x89\x07\x04\xc0\x00\x02\x01\x00", "ipv4 source_route"),
        (b"\x01\x01\x83\x03\x04\x00\x00\x00", "ipv4 source_route"),
        (b"\x07\x04\x04\x00\x83\x03\x04\x00", "ipv4 source_route"),  # behind a record route
        (b"\x00\x83\x03\x04\x00\x00\x00\x00", "forward"),  # behind the end of the list
        (b"\x07\x01\x83\x03\x04\x00\x00\x00", "forward"),  # behind a length below 2
        (b"\x07\x09\x83\x03\x04\x00\x00\x00", "forward"),  # behind a length past the header
        (b"\x07\x08\x83\x03\x04\x00\x00\x00", "forward"),  # inside another option
        (b"\x01\x01\x01\x01\x01\x01\x01\x83", "ipv4 source_route"),  # without a length
        (b"\x01\x01\x01\x01\x01\x01\x01\x07", "forward"),
    ])
    def test_source_route(self, options: bytes, expected: str) -> None:
        head = bytes(ip(ihl=7, len=28))
        frame = bytes(ETH / Raw())[:12] + b"\x08\0" + head + options
        assert see(("eth 2", "ipv4 source_route"), frame) == expected
        assert see(V4, frame) == "forward"

    def test_checksum_comes_before_source_route(self) -> None:
        frame = bytes(ETH / ip(options=IPOption(b"\x83\x03\x04\x00"), chksum=1))
        assert see(("eth 2", "ipv4 verify source_route"), frame) == "ipv4 bad_checksum"

    @pytest.mark.parametrize(("given", "expected"), [
        ({}, "whole"), ({"flags": "MF"}, "fragment"), ({"frag": 1}, "fragment"), ({"flags": "DF"}, "whole")])
    def test_is_fragment(self, given: dict[str, Any], expected: str) -> None:
        prog = chain(*V4, body=' is_fragment ipv4 f w\nblock f ()\n drop "fragment"\nblock w ()\n drop "whole"')
        assert verdict(run(prog, bytes(ETH / ip(**given)))) == expected


class TestIPv6:
    def test_fields(self) -> None:
        packet = ETH / ip6(tc=0b10111010, fl=0xABCDE, hlim=9) / UDP()
        got = fields(chain(*V6, body=loads(
            "ipv6.version:u4", "ipv6.dscp:u6", "ipv6.ecn:u2", "ipv6.flow:u20", "ipv6.length:u16", "ipv6.next:u8",
            "ipv6.hop_limit:u8", "ipv6.src:u128", "ipv6.dst:u128", "ipv6.proto:u8")), bytes(packet))
        assert got == {"ipv6.version": 6, "ipv6.dscp": 0b101110, "ipv6.ecn": 2, "ipv6.flow": 0xABCDE, "ipv6.length": 8,
                       "ipv6.next": 17, "ipv6.hop_limit": 9, "ipv6.src": 0x20010DB8 << 96 | 1,
                       "ipv6.dst": 0x20010DB8 << 96 | 2, "ipv6.proto": 17}

    def test_lengths(self) -> None:
        frame = bytes(ETH / ip6() / UDP())
        assert see(V6, frame[:53], 62) == "ipv6 unparsed"
        assert see(V6, frame[:53]) == "ipv6 malformed"
        assert see(V6, frame[:61]) == "ipv6 malformed"
        assert see(V6, frame[:61], headers_only=True) == "forward"
        assert see(V6, frame[:54], 62) == "forward"
        assert see(V6, bytes(ETH / ip6(version=4))) == "ipv6 malformed"

    def test_chain(self) -> None:
        packet = (ETH / ip6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
                  / IPv6ExtHdrRouting(addresses=["2001:db8::9"]) / AH(nh=17, payloadlen=4, icv=bytes(12))
                  / UDP(sport=7, dport=9, chksum=1))
        got = fields(chain(*V6, "udp", body=loads("ipv6.proto:u8", "udp.sport:u16")), bytes(packet))
        assert got == {"ipv6.proto": 17, "udp.sport": 7}

    @pytest.mark.parametrize("kind", [0, 43, 60, 135, 139, 140])
    def test_every_extension_is_walked(self, kind: int) -> None:
        payload = bytes((17, 1)) + bytes(14) + bytes(UDP(sport=7, chksum=1))
        frame = bytes(ETH / ip6(nh=kind) / Raw(payload))
        assert fields(chain(*V6, "udp", body=loads("udp.sport:u16")), frame) == {"udp.sport": 7}

    @pytest.mark.parametrize("kind", [50, 59, 4, 132])
    def test_others_end_the_chain(self, kind: int) -> None:
        frame = bytes(ETH / ip6(nh=kind) / Raw(bytes(8)))
        assert fields(chain(*V6, body=loads("ipv6.proto:u8")), frame) == {"ipv6.proto": kind}

    def test_limit(self) -> None:
        packet = ip6()
        for _ in range(3):
            packet /= IPv6ExtHdrDestOpt()
        frame = bytes(ETH / packet / UDP())
        assert see(("eth 2", "ipv6 3"), frame) == "forward"
        assert see(("eth 2", "ipv6 2"), frame) == "ipv6 unparsed"
        assert see(("eth 2", "ipv6 0"), bytes(ETH / ip6() / UDP())) == "forward"

    def test_a_chain_past_the_packet_is_unparsed(self) -> None:
        long = bytes((17, 255)) + bytes(6)
        assert see(V6, bytes(ETH / ip6(nh=60) / Raw(long))) == "ipv6 unparsed"
        assert see(V6, bytes(ETH / ip6(nh=60) / Raw(bytes(7)))) == "ipv6 unparsed"
        frame = bytes(ETH / ip6() / IPv6ExtHdrDestOpt() / UDP())
        assert see(V6, frame[:61], len(frame)) == "ipv6 unparsed"
        assert see(V6, frame[:62], len(frame)) == "forward"

    def test_fragments(self) -> None:
        prog = chain(*V6, body=' is_fragment ipv6 f w\nblock f ()\n drop "fragment"\nblock w ()\n drop "whole"')
        for offset, more, expected in ((0, 0, "whole"), (0, 1, "fragment"), (4, 0, "fragment"), (4, 1, "fragment")):
            frame = bytes(ETH / ip6() / IPv6ExtHdrFragment(offset=offset, m=more, id=1) / UDP())
            assert verdict(run(prog, frame)) == expected

    def test_the_walk_goes_on_only_in_a_first_fragment(self) -> None:
        inner = bytes(IPv6ExtHdrDestOpt(nh=17)) + bytes(UDP())
        prog = chain(*V6, body=loads("ipv6.proto:u8"))
        for offset, proto in ((0, 17), (1, 60)):
            frame = bytes(ETH / ip6() / IPv6ExtHdrFragment(nh=60, offset=offset, m=1) / Raw(inner))
            assert fields(prog, frame) == {"ipv6.proto": proto}

    def test_a_second_fragment_header_is_unparsed(self) -> None:
        atomic = IPv6ExtHdrFragment(offset=0, m=0)
        assert see(V6, bytes(ETH / ip6() / atomic / UDP())) == "forward"
        assert see(V6, bytes(ETH / ip6() / atomic / atomic / UDP())) == "ipv6 unparsed"


class TestUpperLayer:
    def test_tcp(self) -> None:
        packet = ETH / ip() / TCP(sport=1, dport=2, seq=3, ack=4, flags="SA", window=5, urgptr=6)
        got = fields(chain(*V4, "tcp", body=loads(
            "tcp.sport:u16", "tcp.dport:u16", "tcp.seq:u32", "tcp.ack_seq:u32", "tcp.data_offset:u4", "tcp.flags:u8",
            "tcp.syn:bool", "tcp.ack:bool", "tcp.fin:bool", "tcp.window:u16", "tcp.urgent:u16")), bytes(packet))
        assert got == {"tcp.sport": 1, "tcp.dport": 2, "tcp.seq": 3, "tcp.ack_seq": 4, "tcp.data_offset": 5,
                       "tcp.flags": 0x12, "tcp.syn": 1, "tcp.ack": 1, "tcp.fin": 0, "tcp.window": 5, "tcp.urgent": 6}

    @pytest.mark.parametrize("steps", [V4, V6])
    def test_tcp_lengths(self, steps: tuple[str, ...]) -> None:
        def frame(size: int, offset: int = 5, **given: Any) -> bytes:
            head = ip(proto=6, **given) if steps is V4 else ip6(nh=6)
            return bytes(ETH / head / Raw(bytes(12) + bytes((offset << 4,)) + bytes(size - 13)))

        whole = (*steps, "tcp")
        assert see(whole, frame(20)) == "forward"
        assert see(whole, frame(19)) == "tcp malformed"
        assert see(whole, frame(19) + bytes(10)) == "tcp malformed"  # link padding is no header
        assert see(whole, frame(20)[:-1], len(frame(20))) == "tcp unparsed"
        assert see(whole, frame(20, 4)) == "tcp malformed"
        assert see(whole, frame(20, 6)) == "tcp malformed"
        assert see(whole, frame(24, 6)) == "forward"
        assert see(whole, frame(20, 6), headers_only=True) == "forward"
        if steps is V4:
            assert see(whole, frame(24, 8, flags="MF")) == "forward"

    @pytest.mark.parametrize("steps", [V4, V6])
    def test_udp_lengths(self, steps: tuple[str, ...]) -> None:
        def frame(size: int, length: int, **given: Any) -> bytes:
            head = ip(proto=17, **given) if steps is V4 else ip6(nh=17)
            return bytes(ETH / head / Raw((bytes(4) + length.to_bytes(2, "big") + b"\1\1" + bytes(size))[:size]))

        whole = (*steps, "udp")
        assert see(whole, frame(8, 8)) == "forward"
        assert see(whole, frame(12, 8)) == "forward"
        assert see(whole, frame(7, 8)) == "udp malformed"
        assert see(whole, frame(8, 8)[:-1], len(frame(8, 8))) == "udp unparsed"
        assert see(whole, frame(8, 7)) == "udp malformed"
        assert see(whole, frame(8, 9)) == "udp malformed"
        assert see(whole, frame(8, 9), headers_only=True) == "forward"
        if steps is V4:
            assert see(whole, frame(16, 900, flags="MF")) == "forward"

    def test_udp_checksum_zero_is_malformed_over_ipv6_only(self) -> None:
        assert see((*V4, "udp"), bytes(ETH / ip() / UDP(chksum=0))) == "forward"
        assert see((*V6, "udp"), bytes(ETH / ip6() / UDP(chksum=0))) == "udp malformed"

    def test_icmp(self) -> None:
        frame = bytes(ETH / ip() / ICMP(id=5, seq=6))
        got = fields(chain(*V4, "icmp", body=loads("icmp.type:u8", "icmp.code:u8", "icmp.id:u16", "icmp.seq:u16",
                                                   "icmp.rest:u32")), frame)
        assert got == {"icmp.type": 8, "icmp.code": 0, "icmp.id": 5, "icmp.seq": 6, "icmp.rest": 0x50006}
        assert see((*V4, "icmp"), bytes(ETH / ip(proto=1) / Raw(bytes(7)))) == "icmp malformed"
        assert see((*V4, "icmp"), frame[:-1], len(frame)) == "icmp unparsed"
        frame6 = bytes(ETH / ip6() / ICMPv6EchoRequest(id=5))
        assert fields(chain(*V6, "icmp6", body=loads("icmp6.type:u8", "icmp6.id:u16")), frame6) == {
            "icmp6.type": 128, "icmp6.id": 5}

    def test_has_header(self) -> None:
        end = '\nblock y ()\n drop "yes"\nblock n ()\n drop "no"'
        udp = bytes(ETH / ip() / UDP())
        for asked, expected in (("udp", "yes"), ("l4", "yes"), ("eth", "yes"), ("tcp", "no"), ("ipv6", "no")):
            assert verdict(run(chain(*V4, "udp", body=f" has {asked} y n{end}"), udp)) == expected
        assert verdict(run(chain(*V4, body=f" has l4 y n{end}"), udp)) == "no"


class TestQuoted:
    def error(self, quote: bytes, **given: Any) -> bytes:
        return bytes(ETH / ip(**given) / ICMP(type=3, code=1) / Raw(quote))

    def test_ipv4_with_8_octets(self) -> None:
        quote = bytes(IP(src="203.0.113.5", dst="192.0.2.1", ttl=3, options=[IPOption_NOP()] * 4)
                      / TCP(sport=80, dport=99, seq=0x01020304))[:32]
        got = fields(chain(*V4, "icmp", "quoted.ipv4", "quoted.tcp", body=loads(
            "quoted.ipv4.src:u32", "quoted.ipv4.ttl:u8", "quoted.tcp.sport:u16", "quoted.tcp.seq:u32",
            "quoted.l4.dport:u16")), self.error(quote))
        assert got == {"quoted.ipv4.src": 0xCB007105, "quoted.ipv4.ttl": 3, "quoted.tcp.sport": 80,
                       "quoted.tcp.seq": 0x01020304, "quoted.l4.dport": 99}

    @pytest.mark.parametrize(("quote", "expected"), [
        (IP(len=9000, chksum=1) / Raw(bytes(8)), "forward"),  # neither is checked
        (Raw(bytes(IP())[:19]), "quoted.ipv4 malformed"),
        (IP(version=6), "quoted.ipv4 malformed"),
        (IP(ihl=4) / Raw(bytes(8)), "quoted.ipv4 malformed"),
        (IP(ihl=8) / Raw(bytes(8)), "quoted.ipv4 malformed"),
        (IP(frag=1) / Raw(bytes(8)), "quoted.ipv4 malformed"),
        (IP(flags="MF") / Raw(bytes(8)), "forward"),
        (IP() / Raw(bytes(7)), "quoted.udp malformed"),
    ], ids=repr)
    def test_ipv4_checks(self, quote: Packet, expected: str) -> None:
        assert see((*V4, "icmp", "quoted.ipv4", "quoted.udp"), self.error(bytes(quote))) == expected

    def test_ipv4_not_captured(self) -> None:
        frame = self.error(bytes(IP(options=[IPOption_NOP()] * 4) / Raw(bytes(8))))
        steps = (*V4, "icmp", "quoted.ipv4", "quoted.icmp")
        for cut, expected in ((62, "ipv4"), (65, "ipv4"), (66, "icmp"), (73, "icmp")):
            cut_off = frame[:cut - 1] if cut in (62, 66) else frame[:cut]
            expected = "ipv4" if len(cut_off) < 66 else "icmp"
            assert see(steps, cut_off, len(frame)) == f"quoted.{expected} unparsed"
        assert see(steps, frame[:74], len(frame)) == "forward"

    def test_ipv6(self) -> None:
        steps = (*V6, "icmp6", "quoted.ipv6 2", "quoted.udp")

        def error(quote: Packet) -> bytes:
            return bytes(ETH / ip6() / ICMPv6DestUnreach() / Raw(bytes(quote)))

        ok = IPv6(src="2001:db8::7", plen=9999) / IPv6ExtHdrDestOpt() / UDP(sport=5)
        assert fields(chain(*steps, body=loads("quoted.ipv6.src:u128", "quoted.ipv6.proto:u8", "quoted.udp.sport:u16")),
                      error(ok)) == {"quoted.ipv6.src": 0x20010DB8 << 96 | 7, "quoted.ipv6.proto": 17,
                                     "quoted.udp.sport": 5}
        assert see(steps, error(Raw(bytes(IPv6())[:39]))) == "quoted.ipv6 malformed"
        assert see(steps, error(IPv6(version=4) / UDP())) == "quoted.ipv6 malformed"
        assert see(steps, error(IPv6() / IPv6ExtHdrFragment(offset=1) / UDP())) == "quoted.ipv6 malformed"
        assert see(steps, error(IPv6() / IPv6ExtHdrFragment(offset=0, m=1) / UDP())) == "forward"
        assert see(steps, error(IPv6() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / UDP())
                   ) == "quoted.ipv6 unparsed"
        assert see(steps, error(IPv6(nh=60) / Raw(bytes(7)))) == "quoted.ipv6 unparsed"
        assert see(steps, error(IPv6() / Raw(bytes(UDP())[:7]))) == "quoted.udp malformed"
        frame = error(ok)
        assert see(steps, frame[:100], len(frame)) == "quoted.ipv6 unparsed"


def test_malformed_and_unparsed_leave_the_packet_untouched() -> None:
    """The bytes forwarded from a failing arm are those that came."""
    text = """block start ()
 extract eth limit 2 - - {ok -> four, malformed -> pass, unparsed -> pass}
block four ()
 extract ipv4 limit 0 - - {ok -> pass, malformed -> pass, unparsed -> pass}
block pass ()
 forward out
"""
    for frame in (bytes(ETH / ip(version=5)), bytes(ETH / ip(len=99)), bytes(ETH)[:5], bytes(tags(3) / ip())):
        assert outputs(run(program(text), frame))[0].frame == frame
