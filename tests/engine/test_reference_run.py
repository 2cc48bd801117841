"""Section 1 of docs/semantics.md and the interface of `Reference`: events, totals, instructions, traces, dumps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_kit import chain, loads, program, stores
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from cora.engine.reference import Reference, Sum, TraceStep
from cora.engine.results import Dropped, Held, Options, Output, RunSummary
from cora.errors import CoraError, Kind
from cora.ir import nodes
from cora.ir.nodes import Program, reasons_of

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


def packet(src: str = "192.0.2.1", sport: int = 1000, **ip: Any) -> bytes:
    return bytes(ETH / IP(src=src, dst="198.51.100.2", **ip) / UDP(sport=sport, dport=53) / Raw(b"data"))


class TestTime:
    def test_never_back(self) -> None:
        nf = Reference(chain(body=" %t : u64 = meta time\n forward out"))
        assert nf.now == 0
        seen = []
        for stamp in (5, 3, 9, 9, 0):
            steps: list[TraceStep] = []
            nf.process(0, stamp, b"", None, steps)
            seen.append((nf.now, steps[0].detail["result"]))
        assert seen == [(5, 5), (5, 5), (9, 9), (9, 9), (9, 9)]

    def test_meta(self) -> None:
        steps: list[TraceStep] = []
        prog = chain(body=" %s : u32 = meta size\n %p : u16 = meta port\n forward out")
        Reference(prog).process(1, 0, b"ab", 99, steps)
        assert [s.detail.get("result") for s in steps] == [99, 1, None]


class TestResults:
    def test_captured_bytes_and_wirelen_are_kept(self) -> None:
        assert Reference(chain()).process(0, 0, b"abc", 77) == [Output(0, 1, b"abc", 77)]

    def test_index_counts_every_packet(self) -> None:
        nf = Reference(chain("eth 2"))
        assert [nf.process(0, 0, f)[0] for f in (b"", bytes(14), b"")] == [
            Dropped(0, "eth malformed"), Output(1, 1, bytes(14), 14), Dropped(2, "eth malformed")]

    def test_summary(self) -> None:
        nf = Reference(chain("eth 2", "ipv4"))
        for size, frame in ((None, packet()), (900, packet()), (None, b"x"), (60, bytes(14)), (None, bytes(34))):
            nf.process(0, 0, frame, size)
        whole = len(packet())
        assert nf.summary() == RunSummary(
            packets=5, octets=whole + 900 + 1 + 60 + 34, forwarded={"out": (2, whole + 900)}, errors_sent=0,
            dropped={"eth malformed": 1, "ipv4 unparsed": 1, "ipv4 malformed": 1}, held=0)
        assert set(nf.summary().dropped) <= set(reasons_of(nf.program))

    def test_impossible_arrivals_are_refused(self) -> None:
        nf = Reference(chain())
        with pytest.raises(ValueError, match="port 2 of a program with 2 ports"):
            nf.process(2, 0, b"")
        with pytest.raises(ValueError, match="3 bytes captured of a frame of 2"):
            nf.process(0, 0, b"abc", 2)
        assert nf.summary().packets == 0


OPS: dict[str, Callable[[int, int, int], int]] = {
       "add": lambda a, b, m: (a + b) % m, "sub": lambda a, b, m: (a - b) % m, "mul": lambda a, b, m: a * b % m,
       "div": lambda a, b, m: a // b if b else 0, "mod": lambda a, b, m: a % b if b else a,
       "and": lambda a, b, m: a & b, "or": lambda a, b, m: a | b, "xor": lambda a, b, m: a ^ b,
       "shl": lambda a, b, m: a * 2**b % m if b < 128 else 0, "shr": lambda a, b, m: a // 2**b if b < 128 else 0,
       "min": lambda a, b, m: sorted((a, b))[0], "max": lambda a, b, m: sorted((a, b))[1]}
COMPARES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def evaluate(body: str) -> Any:
    """The value of %r after the body's lines."""
    steps: list[TraceStep] = []
    Reference(chain(body=body + "\n forward out")).process(0, 0, b"", None, steps)
    return next(s.detail["result"] for s in steps if getattr(getattr(s.node, "result", None), "name", "") == "r")


class TestInstructions:
    @settings(max_examples=60, deadline=None)
    @given(bits=st.sampled_from([1, 7, 8, 16, 33, 64, 128]), data=st.data(), op=st.sampled_from(sorted(OPS)))
    def test_arithmetic(self, bits: int, data: st.DataObject, op: str) -> None:
        number = st.integers(0, 2**bits - 1) | st.integers(0, min(2**bits - 1, 140))
        a, b = data.draw(number), data.draw(number)
        body = f" %a : u{bits} = const {a}\n %b : u{bits} = const {b}\n %r : u{bits} = binary {op} %a %b"
        assert evaluate(body) == OPS[op](a, b, 2**bits)

    @pytest.mark.parametrize("op", sorted(COMPARES))
    @pytest.mark.parametrize(("a", "b"), [(1, 2), (2, 2), (2**127, 3)])
    def test_compare(self, op: str, a: int, b: int) -> None:
        body = f" %a : u128 = const {a}\n %b : u128 = const {b}\n %r : bool = compare {op} %a %b"
        assert evaluate(body) == int(eval(f"{a} {COMPARES[op]} {b}"))

    @pytest.mark.parametrize(("from_", "to", "value", "expected"), [
        ("u16", "u8", 0x1234, 0x34), ("u8", "u64", 255, 255), ("bool", "u8", 1, 1), ("u16", "bool", 256, 1),
        ("u16", "bool", 0, 0), ("bool", "bool", 1, 1)])
    def test_cast(self, from_: str, to: str, value: int, expected: int) -> None:
        assert evaluate(f" %a : {from_} = const {value}\n %r : {to} = cast %a") == expected

    @pytest.mark.parametrize(("type_", "op", "value", "expected"), [
        ("bool", "not", 0, 1), ("bool", "not", 1, 0), ("u8", "invert", 0xF0, 0x0F), ("u12", "invert", 0, 0xFFF)])
    def test_unary(self, type_: str, op: str, value: int, expected: int) -> None:
        assert evaluate(f" %a : {type_} = const {value}\n %r : {type_} = unary {op} %a") == expected

    @pytest.mark.parametrize(("op", "expected"), [("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]), ("xor", [0, 1, 1, 0])])
    def test_bools(self, op: str, expected: list[int]) -> None:
        got = [evaluate(f" %a : bool = const {a}\n %b : bool = const {b}\n %r : bool = binary {op} %a %b")
               for a in (0, 1) for b in (0, 1)]
        assert got == expected

    def test_select(self) -> None:
        for chosen, expected in ((1, 10), (0, 20)):
            assert evaluate(f" %c : bool = const {chosen}\n %a : u8 = const 10\n %b : u8 = const 20\n"
                            " %r : u8 = select %c %a %b") == expected

    def test_config_and_switch_and_parameters(self) -> None:
        prog = program("""config c : u8 = 7 "7"
block start ()
 %r : u8 = config c
 switch %r {6 -> six, 7 -> seven} else other
block six ()
 drop "six"
block seven ()
 %one : u8 = const 1
 jump end (%one, %r)
block other ()
 drop "other"
block end (%x : u8, %y : u8)
 %s : u8 = binary sub %x %y
 switch %s {250 -> good} else bad
block good ()
 forward out
block bad ()
 drop "bad"
""")
        assert Reference(prog).process(0, 0, b"") == [Output(0, 1, b"", 0)]


NAT = """pool ports preserve -
 range port : u16 1024 65535
map conns capacity 100 slack 0 full reject exact strict_order -
 field src : u32
 field sport : u16
 field xport : u16
 key fwd (src, sport)
 key rev (xport)
 alloc ports (xport)
 timeout idle 1000
meter limit srtcm capacity 10 rate 1000 burst 5000 excess 100 peak 0 0 timeout 100000 slack 0 full reject exact - -
 field src : u32
counter seen size 2
fragments frags capacity 8 timeout 50 held 3
"""
BODY = """ %s : u32 = load ipv4 src
 %p : u16 = load udp sport
 %z : u32 = meta size
 police limit (%s) size %z green pass yellow pass red over full over
block pass ()
 lookup conns "fwd" (%s, %p) hit %e : ref<conns> known miss new
block known ()
 touch %e "idle"
 %x : u16 = load_entry %e xport
 jump send (%x)
block new ()
 insert conns (%s, %p) [(%p)] "idle" ok %n : ref<conns> made full none
block made ()
 %y : u16 = load_entry %n xport
 jump send (%y)
block send (%port : u16)
 %ext : u32 = const 3405803777
 store ipv4 src %ext
 store udp sport %port
 count seen - -
 forward out
block over ()
 drop "over"
block none ()
 drop "none"
"""


def nat_program() -> Program:
    return chain("eth 2", "ipv4 verify", "track frags ipv4", "udp", states=NAT, body=BODY)


class TestTrace:
    def test_steps(self) -> None:
        nf = Reference(nat_program())
        steps: list[TraceStep] = []
        nf.process(0, 7, packet(), None, steps)
        events = [(s.block, s.node.mnemonic, s.outcome) for s in steps if isinstance(s.node, nodes.Terminator)]
        assert events == [("b0", "extract", "ok"), ("b1", "extract", "ok"), ("b2", "track_fragment", "ok"),
                          ("b3", "extract", "ok"), ("b4", "police", "green"), ("pass", "lookup", "miss"),
                          ("new", "insert", "ok"), ("made", "jump", "next"), ("send", "forward", "")]
        assert all(s.span.file == "test.nf" and s.index == 0 for s in steps)
        by_name = {s.node.mnemonic: s.detail for s in steps}
        assert by_name["insert"] == {"values": (0xC0000201, 1000), "prefer": ((1000,),),
                                     "entry": {"src": 0xC0000201, "sport": 1000, "xport": 1024}}
        assert by_name["lookup"] == {"key": (0xC0000201, 1000), "entry": None}
        assert by_name["police"]["key"] == (0xC0000201,)
        first, second = (s.detail for s in steps if isinstance(s.node, nodes.Store))
        assert (first["old"], first["new"]) == (0xC0000201, 3405803777)
        assert [c.name for c in first["checksums"]] == ["ipv4.checksum", "upper checksum"]  # type: ignore[attr-defined]
        assert second["checksums"] and all(isinstance(c, Sum) for c in second["checksums"])  # type: ignore[attr-defined]

    def test_tracing_changes_nothing(self) -> None:
        plain, traced = Reference(nat_program()), Reference(nat_program())
        for i in range(40):
            frame = packet(f"192.0.2.{i % 7}", 1000 + i % 3)
            assert plain.process(0, i * 300, frame) == traced.process(0, i * 300, frame, None, [])
        assert plain.state() == traced.state() and plain.summary() == traced.summary()

    def test_released_fragments_are_traced_under_their_own_index(self) -> None:
        nf = Reference(chain("eth 2", "ipv4", "track frags ipv4", states="fragments frags capacity 2 timeout 9 held 3"))
        data = bytes(range(48))
        later = bytes(ETH / IP(src="192.0.2.1", dst="198.51.100.2", proto=17, frag=1) / Raw(data[8:]))
        first = bytes(ETH / IP(src="192.0.2.1", dst="198.51.100.2", proto=17, flags="MF") / Raw(data[:8]))
        assert nf.process(0, 0, later) == [Held(0)]
        steps: list[TraceStep] = []
        nf.process(0, 0, first, None, steps)
        assert [s.index for s in steps if isinstance(s.node, nodes.Forward)] == [1, 0]


class TestDumps:
    def filled(self) -> Reference:
        nf = Reference(nat_program())
        for i in range(60):
            nf.process(0, i * 40, packet(f"192.0.2.{i % 7}", 1000 + i % 30))
        return nf

    def test_restoring_goes_on_the_same(self) -> None:
        first, second = self.filled(), Reference(nat_program())
        dump = json.loads(json.dumps(first.state()))
        second.load_state(dump)
        assert second.state() == first.state() == dump
        assert second.now == first.now
        for i in range(60, 120):
            frame = packet(f"192.0.2.{i % 9}", 1000 + i % 30)
            got, want = second.process(0, i * 40, frame), first.process(0, i * 40, frame)
            assert [getattr(e, "frame", e.__class__) for e in got] == [getattr(e, "frame", e.__class__) for e in want]
        assert second.state() == first.state()

    @pytest.mark.parametrize(("place", "value", "message"), [
        (("conns",), None, "missing or unknown: conns"),
        (("conns", "kind"), "pool", "kind is 'pool', the program has a map"),
        (("conns", "entries", 0, "fields"), {}, "fields must be src, sport, xport"),
        (("conns", "entries", 0, "fields", "src"), 2**32, "4294967296 is no integer from 0 to 4294967295"),
        (("conns", "entries", 0, "fields", "src"), True, "True is no integer"),
        (("conns", "entries", 0, "fields", "xport"), 1023, "1023 is no value of pool ports"),
        (("conns", "entries", 0, "fields", "xport"), 2000, "is used but held by 0 entries"),
        (("conns", "entries", 0, "timeout"), "", "there is no time-out class ''"),
        (("conns", "entries", 0, "last"), -1, "-1 is no integer"),
        (("conns", "entries", 0), 5, "an object is expected"),
        (("conns", "entries"), [], "is used but held by 0 entries"),
        (("ports", "used"), [0, 0], "a value is named twice"),
        (("ports", "used"), [], "is held by an entry but not used"),
        (("ports", "next"), 64512, "64512 is no integer from 0 to 64511"),
        (("limit", "entries", 0, "credits"), [1], "a list of 2 is expected"),
        (("limit", "entries", 0, "credits", 1), 101 * 10**9, "is no integer from 0 to 100000000000"),
        (("seen", "values"), [[0, 0]], "a list of 2 is expected"),
        (("frags", "datagrams"), [{"key": [4, 1, 2, 17, 9], "state": "open", "made": 0, "ranges": [], "end": -1,
                                   "held": []}], "only datagrams that hold no fragment and are not open"),
        (("frags", "datagrams"), [{"key": [5, 1, 2, 17, 9], "state": "waiting", "made": 0, "ranges": [], "end": -1,
                                   "held": []}], "5 is no integer from 4 to 4"),
        (("frags", "datagrams"), [{"key": [4, 1, 2, 17, 9], "state": "waiting", "made": 0, "ranges": [[0, 8], [8, 16]],
                                   "end": -1, "held": []}], "ranges must be merged and ascending"),
    ])
    def test_nonsense_is_refused_and_changes_nothing(self, place: tuple[Any, ...], value: Any, message: str) -> None:
        nf = self.filled()
        before = nf.state()
        dump: Any = json.loads(json.dumps(before))
        inner = dump
        for step in place[:-1]:
            inner = inner[step]
        if value is None:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        with pytest.raises(CoraError) as caught:
            nf.load_state(dump)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.kind is Kind.BAD_STATE and message in diagnostic.message
        assert nf.state() == before

    def test_a_key_twice(self) -> None:
        nf = self.filled()
        dump: Any = json.loads(json.dumps(nf.state()))
        dump["conns"]["entries"][1]["fields"] = dump["conns"]["entries"][0]["fields"]
        with pytest.raises(CoraError, match="key fwd is there twice"):
            nf.load_state(dump)

    def test_condemned_datagrams_stay_condemned(self) -> None:
        prog = chain("eth 2", "ipv4", "track frags ipv4", states="fragments frags capacity 2 timeout 9 held 0")
        piece = bytes(ETH / IP(src="192.0.2.1", dst="198.51.100.2", proto=17, frag=1) / Raw(bytes(8)))
        nf, other = Reference(prog), Reference(prog)
        nf.process(0, 5, piece)
        other.load_state(nf.state())
        assert other.process(0, 6, piece) == [Dropped(0, "track dead")]
        assert other.state() == nf.state() and other.now == 6


TRACKER = "fragments f capacity 2 timeout 9 held 1"
READS = ("eth.type:u16", "ipv4.src:u32")
EVERYTHING = [
    chain("eth 2", "ipv4 verify source_route", "track f ipv4", "tcp", states=TRACKER,
          body=stores("ipv4.src:u32=1", "tcp.window:u16=9", "l4.sport:u16=1")),
    chain("eth 5", "ipv4", "udp", body=stores("ipv4.dst:u32=1", "udp.sport:u16=9")),
    chain("eth 5", "vlan", body=stores("vlan.vid:u12=1")),
    chain("eth 5", "arp", body=stores("arp.spa:u32=1")),
    chain("eth 5", "ipv4", body=loads(*READS)),
    chain("eth 5", "ipv4", "icmp", "quoted.ipv4", "quoted.tcp", body=stores(
        "quoted.ipv4.src:u32=1", "quoted.tcp.sport:u16=1", "icmp.rest:u32=7")),
    chain("eth 2", "ipv6 8", "track f ipv6", "icmp6", "quoted.ipv6 3", "quoted.udp", states=TRACKER, body=stores(
        "ipv6.src:u128=1", "quoted.ipv6.dst:u128=1", "quoted.l4.sport:u16=1", "icmp6.id:u16=3")),
    chain("eth 2", "ipv4", body=' %s : u32 = const 1\n reject "r" ipv4 type 3 code 1 from %s'),
    chain("eth 2", "ipv6 9", body=' %s : u128 = const 1\n reject "r" ipv6 type 1 code 1 from %s'),
]
HEADS = [bytes(12) + kind for kind in (b"\x08\0", b"\x86\xdd", b"\x08\x06", b"\x81\0\0\1\x08\0")]
STARTS = [b"\x45\0\0\x30\0\1\0\0\x40" + bytes((p,)) + bytes(10) for p in (1, 6, 17)] + [
    b"\x46\0\0\x30\0\1\x20\0\x40\x11" + bytes(10), b"\x60\0\0\0\0\x10" + b"\x2c\x40" + bytes(32),
    b"\x60\0\0\0\0\x40\x3a\x40" + bytes(32) + b"\1\0\0\0\0\0\0\0\x60\0\0\0\0\0\x3c\0", b""]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EVERYTHING), st.sampled_from(HEADS), st.sampled_from(STARTS),
       st.lists(st.tuples(st.binary(max_size=90), st.integers(0, 60), st.integers(0, 100)), max_size=4),
       st.booleans(), st.booleans())
def test_no_frame_makes_it_raise(prog: Program, head: bytes, start: bytes, rest: list[tuple[bytes, int, int]],
                                 ignore: bool, headers_only: bool) -> None:
    nf = Reference(prog, Options(ignore, headers_only))
    ended = 0
    for i, (data, extra, cut) in enumerate(rest):
        frame = (head + start + data)[:cut + 20]
        events = nf.process(0, i, frame, len(frame) + extra)
        ended += sum(not isinstance(e, Held) and not getattr(e, "is_error", False) for e in events)
        own = [e for e in events if isinstance(e, Output) and e.index == i and not e.is_error]
        assert all(len(e.frame) == len(frame) for e in own)
    assert ended + nf.summary().held == len(rest)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120))
def test_random_bytes(frame: bytes) -> None:
    for prog in EVERYTHING:
        Reference(prog).process(0, 0, frame)


def test_tcp_is_not_confused_with_udp() -> None:
    """A NAT for UDP drops TCP as what it is read as, and touches nothing."""
    nf = Reference(nat_program())
    frame = bytes(ETH / IP(src="192.0.2.1", dst="198.51.100.2") / TCP(seq=0))
    assert nf.process(0, 0, frame) == [Dropped(0, "udp malformed")]
    assert nf.state()["conns"]["entries"] == []
