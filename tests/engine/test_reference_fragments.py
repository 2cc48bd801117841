"""Section 4 of docs/semantics.md: virtual reassembly."""

from __future__ import annotations

from itertools import permutations

import pytest
from reference_kit import chain, outputs, stores
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from cora.engine.reference import Reference, TraceStep
from cora.engine.results import Dropped, Event, Held, Output
from cora.ir.nodes import Load

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
# UDP source port 5, destination 6, length 48, checksum 0x1111, then data.
DATAGRAM = bytes((0, 5, 0, 6, 0, 48, 0x11, 0x11)) + bytes(range(8, 48))
SECOND = 10**9


def state(capacity: int = 8, timeout: int = 30, held: int = 3) -> str:
    return f"fragments frags capacity {capacity} timeout {timeout * SECOND} held {held}"


def nat(**given: int) -> Reference:
    """Tracks, then rewrites source address and port; drops when the port is not 5."""
    body = """ %p : u16 = load udp sport
 %five : u16 = const 5
 %is : bool = compare eq %p %five
 branch %is yes no
block yes ()
""" + stores("ipv4.src:u32=0xcb00714d", "udp.sport:u16=77") + '\nblock no ()\n drop "not mine"'
    return Reference(chain("eth 2", "ipv4", "track frags ipv4", "udp", states=state(**given), body=body))


def v4(first: int, past: int, *, more: bool | None = None, ident: int = 1, data: bytes = DATAGRAM, proto: int = 17,
       src: str = "192.0.2.1") -> bytes:
    """The fragment holding bytes ``first`` to ``past`` of the datagram; the last one has MF = 0 unless told."""
    flags = "MF" if (past < len(data) if more is None else more) else 0
    return bytes(ETH / IP(src=src, dst="198.51.100.2", id=ident, proto=proto, flags=flags, frag=first // 8)
                 / Raw(data[first:past]))


def v6(first: int, past: int, *, more: bool | None = None, ident: int = 1, data: bytes = DATAGRAM, proto: int = 17,
       before: bytes = b"") -> bytes:
    m = past < len(data) if more is None else more
    return bytes(ETH / IPv6(src="2001:db8::1", dst="2001:db8::2", nh=44)
                 / IPv6ExtHdrFragment(nh=proto, id=ident, m=int(m), offset=first // 8) / Raw(before + data[first:past]))


A, B, C = v4(0, 16), v4(16, 32), v4(32, 48)


def send(nf: Reference, *frames: bytes, at: float = 0) -> list[Event]:
    return [e for frame in frames for e in nf.process(0, int(at * SECOND), frame)]


def short(events: list[Event]) -> list[tuple[int, str]]:
    kinds = {Output: "out", Held: "held"}
    return [(e.index, e.reason if isinstance(e, Dropped) else kinds[type(e)]) for e in events]


def datagrams(nf: Reference) -> list[dict[str, object]]:
    return nf.state()["frags"]["datagrams"]  # type: ignore[return-value]


class TestFollowing:
    def test_in_order(self) -> None:
        nf = nat()
        events = send(nf, A, B, C)
        assert short(events) == [(0, "out"), (1, "out"), (2, "out")]
        assert datagrams(nf) == []

    @pytest.mark.parametrize("order", list(permutations((A, B, C))))
    def test_any_order_gives_the_same_packets(self, order: tuple[bytes, ...]) -> None:
        nf = nat()
        out = [e for e in send(nf, *order) if isinstance(e, Output)]
        assert {e.index for e in out} == {0, 1, 2}
        assert {e.frame for e in out} == {e.frame for e in outputs(send(nat(), A, B, C))}
        assert datagrams(nf) == [] and nf.summary().held == 0

    def test_only_the_first_fragment_changes_in_its_data(self) -> None:
        out = outputs(send(nat(), A, B, C))
        first, second, third = (e.frame for e in out)
        # RFC 1624 by hand: words of the address and of the port, from checksum 0x1111.
        total = 0xEEEE
        for old, new in ((0xC000, 0xCB00), (0x0201, 0x714D), (5, 77)):
            total += (~old & 0xFFFF) + new
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        assert first[34:] == bytes((0, 77, 0, 6, 0, 48)) + (~total & 0xFFFF).to_bytes(2, "big") + DATAGRAM[8:16]
        assert second[34:] == DATAGRAM[16:32] and third[34:] == DATAGRAM[32:48]
        for out_frame, sent in zip((first, second, third), (A, B, C), strict=True):
            assert out_frame[:34] == _with_source(sent)

    def test_release_order_and_index(self) -> None:
        nf = nat()
        assert short(send(nf, C, B)) == [(0, "held"), (1, "held")]
        assert nf.summary().held == 2
        assert short(send(nf, A)) == [(2, "out"), (0, "out"), (1, "out")]

    def test_released_at_the_current_time_with_their_port(self) -> None:
        body = """ %t : u64 = meta time
 %w : u64 = const 8000000000
 %late : bool = compare eq %t %w
 %port : u16 = meta port
 %one : u16 = const 1
 %p : bool = compare eq %port %one
 %both : bool = binary and %late %p
 branch %both y n
block y ()
 forward in
block n ()
 forward out"""
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", body=body, states=state()))
        nf.process(1, 0, C)
        nf.process(0, 0, B)
        assert [e.port for e in outputs(nf.process(0, 8 * SECOND, A))] == [1, 0, 1]

    def test_the_followers_header(self) -> None:
        body = """ %a : u16 = load tcp sport
 %b : u32 = load tcp seq
 %c : u4 = load tcp data_offset
 %d : u8 = load tcp flags
 %e : u16 = load l4 dport
 forward out"""
        data = bytes((0, 5, 0, 6, 1, 2, 3, 4, 9, 9, 9, 9, 0xF0, 0xFF)) + bytes(34)
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", "tcp", body=body, states=state()))
        send(nf, v4(0, 24, data=data, proto=6))
        steps: list[TraceStep] = []
        nf.process(0, 0, v4(24, 32, data=data, proto=6), None, steps)
        got = [s.detail["result"] for s in steps if "result" in s.detail]
        assert got == [5, 0x01020304, 5, 0, 6]

    def test_quotes_of_a_follower_are_unparsed(self) -> None:
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", "icmp", "quoted.ipv4", states=state()))
        data = bytes((3, 0, 0, 0)) + bytes(4) + bytes(IP(len=28)) + bytes(20)
        assert short(send(nf, v4(0, 40, data=data, proto=1), v4(40, 48, data=data, proto=1))) == [
            (0, "out"), (1, "quoted.ipv4 unparsed")]

    def test_header_not_captured_is_zero(self) -> None:
        body = " %a : u16 = load udp sport\n %b : u16 = load udp dport\n forward out"
        prog = chain("eth 2", "ipv4", "track frags ipv4", states=state(), body=" is_fragment ipv4 f w\nblock w ()\n"
                     ' forward out\nblock f ()\n %o : u13 = load ipv4 offset\n %z : u13 = const 0\n'
                     " %first : bool = compare eq %o %z\n branch %first w2 later\nblock w2 ()\n forward out\n"
                     "block later ()\n extract udp limit 0 - - {ok -> y, malformed -> n, unparsed -> n}\n"
                     f'block y ()\n{body}\nblock n ()\n drop "no"')
        nf = Reference(prog)
        nf.process(0, 0, A[:36], len(A))
        steps: list[TraceStep] = []
        nf.process(0, 0, B, None, steps)
        loaded = [s.detail["result"] for s in steps if isinstance(s.node, Load) and s.node.header == "udp"]
        assert loaded == [5, 0]


def _with_source(sent: bytes) -> bytes:
    head = IP(sent[14:34])
    head.src, head.chksum = "203.0.113.77", None
    return sent[:14] + bytes(head)


class TestVerdicts:
    def one(self, frame: bytes, **given: int) -> str:
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", states=state(**given)))
        ((_, outcome),) = short(send(nf, frame))
        return outcome

    def test_whole_packets_pass(self) -> None:
        assert self.one(v4(0, 48)) == "out"

    @pytest.mark.parametrize("frame", [
        v4(16, 16, more=False), v4(16, 30, more=True), v4(65520, 65536, more=False, data=bytes(65536))],
        ids=["empty", "not 8", "too far"])
    def test_malformed(self, frame: bytes) -> None:
        assert self.one(frame) == "track malformed"

    def test_the_last_octet_of_the_largest_datagram(self) -> None:
        assert self.one(v4(65520, 65535, more=False, data=bytes(65535))) == "held"

    @pytest.mark.parametrize(("proto", "size", "outcome"), [
        (6, 8, "tiny"), (6, 16, "out"), (17, 8, "out"), (1, 8, "out"), (47, 8, "out")])
    def test_tiny_first(self, proto: int, size: int, outcome: str) -> None:
        got = self.one(v4(0, size, proto=proto, more=True))
        assert got == ("track tiny" if outcome == "tiny" else outcome)

    def test_tcp_at_offset_8_is_tiny(self) -> None:
        assert self.one(v4(8, 16, proto=6)) == "track tiny"
        assert self.one(v4(8, 16)) == "held"
        assert self.one(v4(16, 24, proto=6)) == "held"

    def test_tiny_and_malformed_make_no_entry(self) -> None:
        nf = nat()
        send(nf, v4(8, 16, proto=6), v4(16, 30, more=True))
        assert datagrams(nf) == []

    def test_ipv6_first_fragments(self) -> None:
        nf = Reference(chain("eth 2", "ipv6 4", "track frags ipv6", states=state()))
        for proto, size, outcome in ((6, 16, "track tiny"), (6, 24, "out"), (17, 8, "out"), (58, 8, "out")):
            assert short(send(nf, v6(0, size, proto=proto, more=True, ident=proto + size)))[0][1] == outcome
        options = bytes(IPv6ExtHdrDestOpt(nh=17))
        assert short(send(nf, v6(0, 0, proto=60, more=True, before=options, ident=99)))[0][1] == "track tiny"
        assert short(send(nf, v6(8, 16, proto=6, ident=98)))[0][1] == "track tiny"

    def test_full(self) -> None:
        nf = nat(capacity=1)
        assert short(send(nf, B, v4(16, 32, ident=2), A, v4(16, 32, ident=2), C, v4(16, 32, ident=2))) == [
            (0, "held"), (1, "track full"), (2, "out"), (0, "out"), (3, "track full"), (4, "out"), (5, "held")]


class TestKeys:
    @pytest.mark.parametrize("other", [{"ident": 2}, {"proto": 47}, {"src": "192.0.2.9"}])
    def test_ipv4(self, other: dict[str, object]) -> None:
        nf = nat()
        send(nf, A)
        assert short(send(nf, v4(16, 32, **other)))[0][1] == "held"  # type: ignore[arg-type]

    def test_ipv6_ignores_the_protocol(self) -> None:
        nf = Reference(chain("eth 2", "ipv6 4", "track frags ipv6", states=state()))
        assert short(send(nf, v6(0, 16), v6(16, 32, proto=60), v6(32, 48, proto=60, ident=2)))[1:] == [
            (1, "out"), (2, "held")]

    def test_atomic_ipv6_fragments_are_independent(self) -> None:
        nf = Reference(chain("eth 2", "ipv6 4", "track frags ipv6", states=state()))
        assert short(send(nf, v6(16, 32), v6(0, 48, more=False), v6(0, 48, more=False))) == [
            (0, "held"), (1, "out"), (2, "out")]

    def test_dump(self) -> None:
        nf = Reference(chain("eth 2", "ipv6 4", "track frags ipv6", states=state()))
        send(nf, v6(32, 48, ident=7), v6(8, 16, ident=7), v6(16, 24, ident=7), at=3)
        base = 0x20010DB8 << 96
        assert datagrams(nf) == [{"key": [6, base | 1, base | 2, 0, 7], "state": "waiting", "made": 3 * SECOND,
                                  "ranges": [[8, 24], [32, 48]], "end": 48, "held": [0, 1, 2]}]


class TestContradictions:
    def test_duplicates(self) -> None:
        nf = nat()
        assert short(send(nf, B, B, A, A, B, C)) == [
            (0, "held"), (1, "track duplicate"), (2, "out"), (0, "out"), (3, "track duplicate"),
            (4, "track duplicate"), (5, "out")]

    def test_equal_range_with_another_more_flag_is_a_duplicate(self) -> None:
        assert short(send(nat(), B, v4(16, 32, more=False))) == [(0, "held"), (1, "track duplicate")]

    @pytest.mark.parametrize("second", [
        v4(24, 40), v4(8, 24), v4(16, 24), v4(8, 40),  # overlap
        v4(8, 16, more=False),  # ends before a received byte
    ])
    def test_overlap_condemns(self, second: bytes) -> None:
        nf = nat()
        assert short(send(nf, B, second, A, C)) == [
            (0, "held"), (0, "fragment of a condemned datagram"), (1, "track overlap"), (2, "track dead"),
            (3, "track dead")]
        assert datagrams(nf)[0]["state"] == "condemned"
        assert datagrams(nf)[0]["ranges"] == [[16, 32]]

    def test_past_the_known_end(self) -> None:
        assert short(send(nat(), v4(24, 32, more=False), C))[-1] == (1, "track overlap")
        assert short(send(nat(), v4(16, 24, more=False), v4(40, 48, more=False)))[-1] == (1, "track overlap")

    def test_an_open_datagram_is_condemned_too(self) -> None:
        nf = nat()
        assert short(send(nf, A, v4(8, 24), C)) == [(0, "out"), (1, "track overlap"), (2, "track dead")]

    def test_a_17th_separate_range(self) -> None:
        nf = nat(held=40)
        data = bytes(400)
        apart = [v4(16 * i, 16 * i + 8, data=data) for i in range(1, 17)]
        assert {kind for _, kind in short(send(nf, *apart))} == {"held"}
        between = send(nf, v4(24, 32, data=data))  # merges two
        assert short(between) == [(16, "held")]
        assert short(send(nf, v4(16 * 17, 16 * 17 + 8, data=data))) == [(17, "held")]
        assert short(send(nf, v4(16 * 19, 16 * 19 + 8, data=data)))[-1] == (18, "track overlap")

    def test_duplicates_are_known_for_16_ranges(self) -> None:
        data = bytes(400)
        pieces = [v4(8 * i, 8 * i + 8, data=data) for i in range(1, 19)]
        nf = nat(held=40)
        send(nf, *pieces[:17])
        assert short(send(nf, pieces[1]))[-1] == (17, "track duplicate")
        assert short(send(nf, pieces[0]))[-1] == (18, "track overlap")


class TestHolding:
    def test_too_many(self) -> None:
        nf = nat(held=1)
        assert short(send(nf, B, C, A)) == [
            (0, "held"), (0, "fragment of a condemned datagram"), (1, "track too_many"), (2, "track dead")]
        assert datagrams(nf)[0]["ranges"] == [[16, 48]]

    def test_none_may_be_held(self) -> None:
        assert short(send(nat(held=0), B)) == [(0, "track too_many")]

    def test_a_dropped_first_fragment_condemns(self) -> None:
        nf = nat()
        other = bytes((0, 4)) + DATAGRAM[2:]
        assert short(send(nf, C, B, v4(0, 16, data=other), B)) == [
            (0, "held"), (1, "held"), (2, "not mine"), (0, "first fragment was dropped"),
            (1, "first fragment was dropped"), (3, "track dead")]
        assert datagrams(nf)[0] == {"key": [4, 0xC0000201, 0xC6336402, 17, 1], "state": "condemned", "made": 0,
                                    "ranges": [[0, 48]], "end": 48, "held": []}

    def test_a_rejected_first_fragment_condemns_after_its_error(self) -> None:
        body = ' %s : u32 = const 1\n reject "no" ipv4 type 3 code 13 from %s'
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", states=state(), body=body))
        events = send(nf, B, A)
        assert short(events) == [(0, "held"), (1, "no"), (1, "out"), (0, "first fragment was dropped")]

    def test_a_dropped_follower_changes_nothing(self) -> None:
        body = """ %o : u13 = load ipv4 offset
 %two : u13 = const 2
 %is : bool = compare eq %o %two
 branch %is no yes
block no ()
 drop "second"
block yes ()
 forward out"""
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", states=state(), body=body))
        assert short(send(nf, A, B, C)) == [(0, "out"), (1, "second"), (2, "out")]
        assert datagrams(nf) == []


def test_two_trackers() -> None:
    """A first fragment is settled with both; a fragment released by one passes the other."""
    states = state() + "\nfragments second capacity 8 timeout 30000000000 held 3"
    nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", "track second ipv4", states=states))
    assert short(send(nf, B, A)) == [(0, "held"), (1, "out"), (0, "out")]
    assert nf.state()["second"]["datagrams"][0]["ranges"] == [[0, 16]]  # type: ignore[index]
    assert datagrams(nf)[0]["ranges"] == [[0, 32]]


class TestTime:
    def test_age_counts_from_the_first_seen_fragment(self) -> None:
        nf = nat()
        send(nf, C)
        send(nf, B, at=20)
        assert short(send(nf, v4(0, 48, ident=9), at=30)) == [(2, "out")]
        events = nf.process(0, 30 * SECOND + 1, v4(0, 48, ident=9))
        assert short(events) == [(0, "fragment time-out"), (1, "fragment time-out"), (3, "out")]
        assert datagrams(nf) == []

    def test_oldest_entry_first(self) -> None:
        nf = nat()
        send(nf, v4(16, 32, ident=5))
        send(nf, v4(16, 32, ident=4), at=1)
        send(nf, v4(32, 48, ident=5), at=2)
        assert short(send(nf, A, at=100)) == [
            (0, "fragment time-out"), (2, "fragment time-out"), (1, "fragment time-out"), (3, "out")]

    def test_condemned_until_the_time_out(self) -> None:
        nf = nat()
        send(nf, B, v4(24, 40))
        assert short(send(nf, A, at=30)) == [(2, "track dead")]
        assert short(send(nf, A, at=31)) == [(3, "out")]

    def test_open_entries_age_too(self) -> None:
        nf = nat()
        send(nf, A)
        assert short(send(nf, B, at=31)) == [(1, "held")]

    def test_totals(self) -> None:
        nf = nat()
        send(nf, B, v4(16, 32, ident=2))
        send(nf, A, at=31)
        total = nf.summary()
        assert (total.packets, total.held, total.dropped) == (3, 0, {"fragment time-out": 2})
        assert total.forwarded == {"out": (1, len(A))}
