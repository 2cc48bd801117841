"""Section 6 of docs/semantics.md: the ICMP errors of `Reject`, checked by building the expected frame with scapy."""

from __future__ import annotations

from typing import Any

import pytest
from reference_kit import chain, program
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6ND_RS,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from cora.engine.reference import Reference
from cora.engine.results import Dropped, Output

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
BACK = Ether(dst="02:00:00:00:00:01", src="02:00:00:00:00:02")
FROM, FROM6 = "203.0.113.1", "2001:db8::fe"


def ip(src: str = "192.0.2.1", dst: str = "198.51.100.2", **given: Any) -> IP:
    return IP(src=src, dst=dst, **given)


def ip6(src: str = "2001:db8::1", dst: str = "2001:db8::2", **given: Any) -> IPv6:
    return IPv6(src=src, dst=dst, **given)


REJECT4 = chain("eth 5", "ipv4", body=' %n : u8 = const 1\n store ipv4 ttl %n\n %s : u32 = const 3405803777\n'
                                      ' reject "no" ipv4 type 3 code 13 from %s')
REJECT6 = chain("eth 5", "ipv6 8", body=f' %n : u8 = const 1\n store ipv6 hop_limit %n\n %s : u128 = const '
                                        f'{0x20010DB8 << 96 | 0xFE}\n reject "no" ipv6 type 1 code 1 from %s')


def error(frame: bytes, wirelen: int | None = None, port: int = 1) -> bytes | None:
    """The ICMP error sent about a frame, or None; checks everything around it."""
    nf = Reference(REJECT6 if frame[12:14] == b"\x86\xdd" else REJECT4)
    dropped, *sent = nf.process(port, 0, frame, wirelen)
    assert dropped == Dropped(0, "no")
    assert nf.summary().errors_sent == len(sent) and nf.summary().forwarded == {}
    if not sent:
        return None
    (out,) = sent
    assert isinstance(out, Output)
    assert (out.index, out.port, out.is_error, out.wirelen) == (0, port, True, len(out.frame))
    return out.frame


def want4(quote: bytes, before: Packet = BACK) -> bytes:
    return bytes(before / IP(src=FROM, dst="192.0.2.1", tos=0xC0, id=0, flags="DF", ttl=64)
                 / ICMP(type=3, code=13) / Raw(quote))


def want6(quote: bytes) -> bytes:
    message = bytes((1, 1)) + bytes(6) + quote
    packet = BACK / IPv6(src=FROM6, dst="2001:db8::1", tc=0xC0, fl=0, hlim=64) / ICMPv6DestUnreach(message)
    packet[ICMPv6DestUnreach].cksum = None
    return bytes(packet)


class TestContent:
    def test_ipv4_quotes_the_datagram_as_it_arrived(self) -> None:
        datagram = bytes(ip(ttl=9) / UDP(sport=1, dport=2) / Raw(b"odd"))
        assert error(bytes(ETH / Raw()) [:12] + b"\x08\0" + datagram) == want4(datagram)

    def test_link_padding_is_not_quoted(self) -> None:
        frame = bytes(ETH / ip() / UDP())
        assert error(frame + bytes(18)) == want4(frame[14:])

    def test_vlan_tags_stay(self) -> None:
        tags = Dot1Q(vlan=5, prio=3) / Dot1Q(vlan=6)
        frame = bytes(ETH / tags / ip() / UDP())
        assert error(frame) == want4(frame[22:], BACK / tags)

    @pytest.mark.parametrize(("size", "quoted"), [(548, 548), (549, 548), (1480, 548)])
    def test_ipv4_within_576_octets(self, size: int, quoted: int) -> None:
        frame = bytes(ETH / ip() / UDP() / Raw(bytes(i % 251 for i in range(size - 28))))
        got = error(frame)
        assert got == want4(frame[14:14 + quoted])
        assert got is not None and len(got) - 14 == 28 + quoted <= 576

    def test_ipv6(self) -> None:
        datagram = bytes(ip6() / TCP() / Raw(b"odd"))
        assert error(bytes(ETH / ip6() / TCP())[:14] + datagram) == want6(datagram)

    @pytest.mark.parametrize("size", [1232, 1233, 1460])
    def test_ipv6_within_1280_octets(self, size: int) -> None:
        frame = bytes(ETH / ip6() / UDP() / Raw(bytes(i % 251 for i in range(size - 48))))
        got = error(frame)
        assert got == want6(frame[14:14 + 1232])
        assert got is not None and len(got) - 14 <= 1280

    def test_only_captured_bytes_are_quoted(self) -> None:
        frame = bytes(ETH / ip() / UDP() / Raw(bytes(400)))
        assert error(frame[:50], len(frame)) == want4(frame[14:50])


class TestSilence:
    @pytest.mark.parametrize("src", ["0.0.0.0", "224.0.0.1", "239.1.1.1", "127.0.0.1", "127.9.9.9", "240.0.0.1",
                                     "255.255.255.255"])
    def test_ipv4_sources(self, src: str) -> None:
        assert error(bytes(ETH / ip(src) / UDP())) is None

    @pytest.mark.parametrize("dst", ["224.0.0.1", "239.255.255.255", "255.255.255.255"])
    def test_ipv4_destinations(self, dst: str) -> None:
        assert error(bytes(ETH / ip(dst=dst) / UDP())) is None

    @pytest.mark.parametrize(("src", "dst"), [
        ("::", "2001:db8::2"), ("ff02::1", "2001:db8::2"), ("::1", "2001:db8::2"), ("2001:db8::1", "ff02::1")])
    def test_ipv6_addresses(self, src: str, dst: str) -> None:
        assert error(bytes(ETH / ip6(src, dst) / UDP())) is None

    @pytest.mark.parametrize("mac", ["ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"])
    def test_group_mac(self, mac: str) -> None:
        assert error(bytes(Ether(dst=mac, src="02:00:00:00:00:01") / ip() / UDP())) is None

    def test_fragments(self) -> None:
        for offset, answered in ((0, True), (1, False)):
            assert (error(bytes(ETH / ip(flags="MF", frag=offset) / UDP())) is not None) is answered
            frame = bytes(ETH / ip6() / IPv6ExtHdrFragment(offset=offset, m=1) / UDP())
            assert (error(frame) is not None) is answered

    def test_icmp_errors(self) -> None:
        answered = {t for t in range(256) if error(bytes(ETH / ip(proto=1) / Raw(bytes((t,)) + bytes(7)))) is not None}
        assert answered == {0, 8, 13, 14, 15, 16, 17, 18}

    def test_icmpv6_errors(self) -> None:
        for upper, answered in ((ICMPv6EchoRequest(), True), (ICMPv6ND_RS(), True), (ICMPv6DestUnreach(), False),
                                (ICMPv6TimeExceeded(), False)):
            assert (error(bytes(ETH / ip6() / upper)) is not None) is answered
            assert (error(bytes(ETH / ip6() / IPv6ExtHdrDestOpt() / upper)) is not None) is answered

    def test_a_type_that_cannot_be_read(self) -> None:
        frame = bytes(ETH / ip() / ICMP())
        assert error(frame[:34], len(frame)) is None
        assert error(frame[:35], len(frame)) is not None
        assert error(bytes(ETH / ip(proto=1)) + b"\x08") is None  # link padding is no type

    def test_a_store_does_not_change_who_is_answered(self) -> None:
        prog = program("""block start ()
 extract eth limit 0 - - {ok -> four, malformed -> bad, unparsed -> bad}
block four ()
 extract ipv4 limit 0 - - {ok -> go, malformed -> bad, unparsed -> bad}
block go ()
 %s : u32 = const 3405803777
 store ipv4 src %s
 reject "no" ipv4 type 3 code 13 from %s
block bad ()
 drop "bad"
""")
        frame = bytes(ETH / ip() / UDP())
        _, out = Reference(prog).process(0, 0, frame)
        assert isinstance(out, Output) and out.frame == want4(frame[14:])
