"""Section 3 of docs/semantics.md: stores and checksums.

The oracle for correctly summed packets is a full recomputation by scapy of the packet with the new values; the corner
cases that recomputation cannot see are worked out by hand beside the test.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_kit import chain, forwarded, run, stores
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
V4, V6 = ("eth 2", "ipv4"), ("eth 2", "ipv6 8")
SRC, DST, NEW = "192.0.2.1", "198.51.100.2", "203.0.113.77"
SRC6, DST6, NEW6 = "2001:db8::1", "2001:db8::2", "2001:db8:ffff::77"
NEW_INT, NEW6_INT = 0xCB00714D, 0x20010DB8FFFF << 80 | 0x77


def rewrite(frame: bytes, *steps_and_stores: str, wirelen: int | None = None) -> bytes:
    """The frame forwarded after the steps (without ``=``) and the stores (with it)."""
    steps = [s for s in steps_and_stores if "=" not in s]
    return forwarded(run(chain(*steps, body=stores(*(s for s in steps_and_stores if "=" in s))), frame, wirelen))


def udp4(**ip: Any) -> Packet:
    return ETH / IP(src=SRC, dst=DST, **ip) / UDP(sport=1000, dport=53) / Raw(b"odd")


@pytest.mark.parametrize(("item", "given"), [
    ("ipv4.src:u32=0xcb00714d", {"src": NEW}), ("ipv4.dst:u32=0xcb00714d", {"dst": NEW}),
    ("ipv4.ttl:u8=63", {"ttl": 63}), ("ipv4.id:u16=0xffff", {"id": 0xFFFF}), ("ipv4.dscp:u6=0x2e", {"tos": 0xB8}),
    ("ipv4.ecn:u2=3", {"tos": 3}), ("ipv4.df:bool=1", {"flags": "DF"})])
@pytest.mark.parametrize("upper", [TCP(sport=1, dport=2), UDP(sport=1, dport=2), ICMP(id=3)], ids=lambda u: u.name)
def test_ipv4_fields(item: str, given: dict[str, Any], upper: Packet) -> None:
    before = ETH / IP(src=SRC, dst=DST, options=[IPOption_NOP()] * 4) / upper / Raw(b"payload")
    after = before.copy()
    for name, value in given.items():
        setattr(after[IP], name, value)
    assert rewrite(bytes(before), *V4, item) == bytes(after)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 65535), st.integers(0, 65535),
       st.binary(max_size=20), st.sampled_from(["tcp", "udp"]))
def test_nat_equals_recomputation(src: int, new: int, sport: int, new_port: int, data: bytes, kind: str) -> None:
    def packet(address: int, port: int) -> bytes:
        upper = TCP(sport=port, dport=2) if kind == "tcp" else UDP(sport=port, dport=2)
        return bytes(ETH / IP(src=".".join(map(str, address.to_bytes(4, "big"))), dst=DST) / upper / Raw(data))

    got = rewrite(packet(src, sport), *V4, kind, f"ipv4.src:u32={new}", f"l4.sport:u16={new_port}")
    assert got == packet(new, new_port)


@pytest.mark.parametrize(("item", "given"), [
    ("tcp.sport:u16=9", {"sport": 9}), ("tcp.dport:u16=9", {"dport": 9}),
    ("tcp.seq:u32=0xfffefdfc", {"seq": 0xFFFEFDFC}),
    ("tcp.ack_seq:u32=7", {"ack": 7}), ("tcp.flags:u8=0x11", {"flags": "FA"}), ("tcp.syn:bool=1", {"flags": "SR"}),
    ("tcp.window:u16=1", {"window": 1}), ("tcp.urgent:u16=5", {"urgptr": 5}), ("l4.dport:u16=9", {"dport": 9})])
def test_tcp_fields(item: str, given: dict[str, Any]) -> None:
    before = ETH / IP(src=SRC, dst=DST) / TCP(sport=1, dport=2, seq=3, flags="R") / Raw(b"x")
    after = before.copy()
    for name, value in given.items():
        setattr(after[TCP], name, value)
    assert rewrite(bytes(before), *V4, "tcp", item) == bytes(after)


@pytest.mark.parametrize("upper", [TCP(sport=1), UDP(sport=1), ICMPv6EchoRequest(id=3)], ids=lambda u: u.name)
@pytest.mark.parametrize("options", [0, 2])
def test_ipv6_addresses(upper: Packet, options: int) -> None:
    packet = ETH / IPv6(src=SRC6, dst=DST6)
    for _ in range(options):
        packet /= IPv6ExtHdrDestOpt()
    packet /= upper / Raw(b"odd")
    after = packet.copy()
    after[IPv6].src, after[IPv6].hlim, after[IPv6].fl, after[IPv6].tc = NEW6, 1, 0xFFFFF, 0xBB
    assert rewrite(bytes(packet), *V6, f"ipv6.src:u128={NEW6_INT}", "ipv6.hop_limit:u8=1", "ipv6.flow:u20=0xfffff",
                   "ipv6.dscp:u6=0x2e", "ipv6.ecn:u2=3") == bytes(after)


@pytest.mark.parametrize("item", ["icmp.id:u16=9", "icmp.seq:u16=9", "icmp.type:u8=0", "icmp.code:u8=1",
                                  "icmp.rest:u32=0x00090001"])
def test_icmp_fields(item: str) -> None:
    before = ETH / IP(src=SRC, dst=DST) / ICMP(id=0x1234, seq=1) / Raw(b"odd")
    after = before.copy()
    name, value = item.split(".")[1].split(":")[0], int(item.split("=")[1], 0)
    for field, new in ({"id": 9, "seq": 1} if name == "rest" else {name: value}).items():
        setattr(after[ICMP], field, new)
    assert rewrite(bytes(before), *V4, "icmp", item) == bytes(after)


def test_icmp6_has_a_pseudo_header() -> None:
    before = ETH / IPv6(src=SRC6, dst=DST6) / ICMPv6EchoRequest(id=1)
    after = ETH / IPv6(src=SRC6, dst=NEW6) / ICMPv6EchoRequest(id=2)
    assert rewrite(bytes(before), *V6, "icmp6", f"ipv6.dst:u128={NEW6_INT}", "icmp6.id:u16=2") == bytes(after)


@pytest.mark.parametrize("tags", range(6))
def test_ethernet_and_vlan_touch_no_checksum(tags: int) -> None:
    packet = ETH
    for _ in range(tags):
        packet /= Dot1Q(vlan=5, prio=1)
    frame = bytes(packet / IP(src=SRC, dst=DST) / UDP())
    items = ["eth.dst:u48=0x0a0b0c0d0e0f", "eth.src:u48=0x010203040506"]
    want = bytes.fromhex("0a0b0c0d0e0f010203040506") + frame[12:]
    if tags:
        items += ["vlan.vid:u12=0xfff", "vlan.dei:bool=1"]
        want = want[:14] + b"\x3f\xff" + want[16:]
    assert rewrite(frame, "eth 5", *(["vlan"] if tags else []), *items) == want


class TestUdpZero:
    def test_none_stays_none(self) -> None:
        before = ETH / IP(src=SRC, dst=DST) / UDP(sport=1, dport=2, chksum=0)
        after = ETH / IP(src=NEW, dst=DST) / UDP(sport=9, dport=2, chksum=0)
        assert rewrite(bytes(before), *V4, "udp", f"ipv4.src:u32={NEW_INT}", "udp.sport:u16=9") == bytes(after)

    def test_a_computed_zero_becomes_ffff(self) -> None:
        # 0x0005 stored, and a word that grows by 5: ~5 + ~0 + 5 folds to 0xffff, its complement is 0.
        before = ETH / IP(src=SRC, dst=DST) / UDP(sport=0, dport=2, chksum=5)
        after = ETH / IP(src=SRC, dst=DST) / UDP(sport=5, dport=2, chksum=0xFFFF)
        assert rewrite(bytes(before), *V4, "udp", "udp.sport:u16=5") == bytes(after)

    def test_tcp_keeps_a_computed_zero(self) -> None:
        before = ETH / IP(src=SRC, dst=DST) / TCP(sport=0, dport=2, chksum=5)
        after = ETH / IP(src=SRC, dst=DST) / TCP(sport=5, dport=2, chksum=0)
        assert rewrite(bytes(before), *V4, "tcp", "tcp.sport:u16=5") == bytes(after)

    def test_ffff_is_a_valid_sum(self) -> None:
        # 0xffff stands for 0: growing by 5 gives ~5.
        before = ETH / IP(src=SRC, dst=DST) / UDP(sport=0, dport=2, chksum=0xFFFF)
        after = ETH / IP(src=SRC, dst=DST) / UDP(sport=5, dport=2, chksum=0xFFFA)
        assert rewrite(bytes(before), *V4, "udp", "udp.sport:u16=5") == bytes(after)

    def test_storing_the_same_value_is_an_update_too(self) -> None:
        # ~0xffff + (~m + m) = 0xffff, complement 0: sent as 0xffff by UDP, as 0 by TCP.
        for layer, name, sent in ((UDP, "udp", 0xFFFF), (TCP, "tcp", 0)):
            before = ETH / IP(src=SRC, dst=DST) / layer(sport=7, dport=2, chksum=0xFFFF)
            after = ETH / IP(src=SRC, dst=DST) / layer(sport=7, dport=2, chksum=sent)
            assert rewrite(bytes(before), *V4, name, f"{name}.sport:u16=7") == bytes(after)


def test_a_wrong_checksum_stays_wrong_by_the_same_amount() -> None:
    good = bytes(udp4())
    bad = good[:40] + bytes((good[40] ^ 0x10,)) + good[41:]
    out_good = rewrite(good, *V4, f"ipv4.src:u32={NEW_INT}")
    out_bad = rewrite(bad, *V4, f"ipv4.src:u32={NEW_INT}")
    difference = (int.from_bytes(bad[40:42], "big") - int.from_bytes(good[40:42], "big")) % 0xFFFF
    assert (int.from_bytes(out_bad[40:42], "big") - int.from_bytes(out_good[40:42], "big")) % 0xFFFF == difference


@pytest.mark.parametrize(("proto", "place"), [(6, 16), (17, 6), (33, 6), (136, 6), (132, None), (47, None), (1, None)])
def test_address_updates_by_protocol(proto: int, place: int | None) -> None:
    payload = bytes(range(1, 25))
    before = bytes(ETH / IP(src=SRC, dst=DST, proto=proto) / Raw(payload))
    after = bytes(ETH / IP(src=NEW, dst=DST, proto=proto) / Raw(payload))
    got = rewrite(before, *V4, f"ipv4.src:u32={NEW_INT}")
    changed = [i for i in range(len(after)) if got[i] != after[i]]
    assert changed == ([] if place is None else [34 + place, 35 + place])


def test_zero_means_none_for_udp_only() -> None:
    for proto, stays in ((17, True), (136, False), (33, False)):
        got = rewrite(bytes(ETH / IP(src=SRC, dst=DST, proto=proto) / Raw(bytes(8))), *V4, f"ipv4.src:u32={NEW_INT}")
        assert (got[40:42] == b"\0\0") is stays


class TestPartOfThePacket:
    def test_only_a_first_fragment_has_an_upper_checksum(self) -> None:
        for offset, changed in ((0, True), (1, False)):
            frame = bytes(ETH / IP(src=SRC, dst=DST, proto=17, flags="MF", frag=offset) / Raw(bytes(range(1, 17))))
            got = rewrite(frame, *V4, f"ipv4.src:u32={NEW_INT}")
            assert (got[34:] != frame[34:]) is changed
        for offset, changed in ((0, True), (1, False)):
            frame = bytes(ETH / IPv6(src=SRC6, dst=DST6, nh=44) / IPv6ExtHdrFragment(nh=17, offset=offset, m=1)
                          / Raw(bytes(range(1, 17))))
            got = rewrite(frame, *V6, f"ipv6.src:u128={NEW6_INT}")
            assert (got[54:] != frame[54:]) is changed

    @pytest.mark.parametrize(("kept", "changed"), [(50, False), (51, False), (52, True)])
    def test_a_checksum_must_be_captured(self, kept: int, changed: bool) -> None:
        frame = bytes(ETH / IP(src=SRC, dst=DST) / TCP())
        got = rewrite(frame[:kept], *V4, f"ipv4.src:u32={NEW_INT}", wirelen=54)
        assert (got[34:] != frame[34:kept]) is changed

    @pytest.mark.parametrize(("size", "changed"), [(16, False), (17, False), (18, True)])
    def test_a_checksum_must_lie_in_the_datagram(self, size: int, changed: bool) -> None:
        frame = bytes(ETH / IP(src=SRC, dst=DST, proto=6) / Raw(bytes(size))) + bytes(30)
        got = rewrite(frame, *V4, f"ipv4.src:u32={NEW_INT}")
        assert (got[34:] != frame[34:]) is changed


class TestQuoted:
    """Inner and outer checksums after rewriting the packet that an ICMP error quotes."""

    def error4(self, src: str, sport: int, upper: Any, **given: Any) -> bytes:
        return bytes(ETH / IP(src="192.0.2.254", dst="192.0.2.1") / ICMP(type=3, code=1)
                     / IP(src=src, dst=DST, **given) / upper(sport=sport, dport=2) / Raw(b"12345678"))

    @pytest.mark.parametrize(("upper", "name"), [(TCP, "tcp"), (UDP, "udp")])
    def test_ipv4(self, upper: Any, name: str) -> None:
        before = self.error4(SRC, 1000, upper, options=[IPOption_NOP()] * 4)
        after = self.error4(NEW, 77, upper, options=[IPOption_NOP()] * 4)
        got = rewrite(before, *V4, "icmp", "quoted.ipv4", f"quoted.{name}", f"quoted.ipv4.src:u32={NEW_INT}",
                      f"quoted.{name}.sport:u16=77")
        assert got == after
        assert rewrite(before, *V4, "icmp", "quoted.ipv4", f"quoted.{name}", f"quoted.ipv4.src:u32={NEW_INT}",
                       "quoted.l4.sport:u16=77") == after

    def test_ipv4_field_without_upper_checksum(self) -> None:
        before = self.error4(SRC, 1000, UDP, ttl=9)
        assert rewrite(before, *V4, "icmp", "quoted.ipv4", "quoted.ipv4.ttl:u8=4") == self.error4(SRC, 1000, UDP, ttl=4)

    def test_quoted_icmp(self) -> None:
        def error(ident: int, address: str) -> bytes:
            return bytes(ETH / IP(src="192.0.2.254", dst="192.0.2.1") / ICMP(type=11)
                         / IP(src=address, dst=DST) / ICMP(id=ident, seq=1))

        assert rewrite(error(5, SRC), *V4, "icmp", "quoted.ipv4", "quoted.icmp", f"quoted.ipv4.src:u32={NEW_INT}",
                       "quoted.icmp.id:u16=9") == error(9, NEW)

    @pytest.mark.parametrize(("inner", "name"), [(TCP(sport=5), "tcp"), (UDP(sport=5), "udp")])
    def test_ipv6(self, inner: Packet, name: str) -> None:
        def error(address: str, port: int) -> bytes:
            upper = inner.copy()
            upper.sport = port
            return bytes(ETH / IPv6(src="2001:db8::fe", dst=SRC6) / ICMPv6DestUnreach()
                         / IPv6(src=address, dst=DST6) / IPv6ExtHdrDestOpt() / upper)

        got = rewrite(error(SRC6, 5), *V6, "icmp6", "quoted.ipv6 4", f"quoted.{name}",
                      f"quoted.ipv6.src:u128={NEW6_INT}", f"quoted.{name}.sport:u16=77")
        assert got == error(NEW6, 77)

    def test_icmp6_inside(self) -> None:
        def error(address: str, ident: int) -> bytes:
            return bytes(ETH / IPv6(src="2001:db8::fe", dst=SRC6) / ICMPv6DestUnreach()
                         / IPv6(src=address, dst=DST6) / ICMPv6EchoRequest(id=ident))

        assert rewrite(error(SRC6, 5), *V6, "icmp6", "quoted.ipv6 4", "quoted.icmp6",
                       f"quoted.ipv6.src:u128={NEW6_INT}", "quoted.icmp6.id:u16=9") == error(NEW6, 9)

    def test_eight_octets_hold_no_tcp_checksum(self) -> None:
        def error(src: str, sport: int) -> bytes:
            quote = bytes(IP(src=src, dst=DST, len=60) / TCP(sport=sport, dport=2))[:28]
            return bytes(ETH / IP(src="192.0.2.254", dst="192.0.2.1") / ICMP(type=3) / Raw(quote))

        got = rewrite(error(SRC, 1000), *V4, "icmp", "quoted.ipv4", "quoted.tcp", f"quoted.ipv4.src:u32={NEW_INT}",
                      "quoted.tcp.sport:u16=77")
        assert got == error(NEW, 77)

    def test_quoted_udp_zero_stays(self) -> None:
        def error(src: str, sport: int) -> bytes:
            return bytes(ETH / IP(src="192.0.2.254", dst="192.0.2.1") / ICMP(type=3)
                         / IP(src=src, dst=DST) / UDP(sport=sport, dport=2, chksum=0))

        got = rewrite(error(SRC, 1000), *V4, "icmp", "quoted.ipv4", "quoted.udp", f"quoted.ipv4.src:u32={NEW_INT}",
                      "quoted.udp.sport:u16=77")
        assert got == error(NEW, 77)
