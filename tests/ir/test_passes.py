"""Passes: valid IR in, valid IR out, the same packets and state; each does what its name says, and no more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import random_ir
from reference_kit import chain, program

from cora.compile import compile_file
from cora.engine.reference import interpreter as reference
from cora.engine.reference.packet import Packet as ReferencePacket
from cora.engine.results import Options, Output
from cora.errors import CoraError, Kind
from cora.frontends.nf import load
from cora.frontends.traffic.capture import Capture
from cora.ir import nodes
from cora.ir.headers import HEADERS, QUOTED, field_of
from cora.ir.nodes import Program
from cora.ir.passes import arithmetic
from cora.ir.passes.base import Pass
from cora.ir.passes.fold import FoldConstants, FoldHeaders
from cora.ir.passes.pipeline import PASSES, STANDARD, list_passes, parse_pipeline, run_pipeline, show_pipeline
from cora.ir.passes.share import ShareLoads, may_change
from cora.ir.passes.thread import ThreadJumps
from cora.ir.passes.unused import RemoveUnused
from cora.ir.span import Span
from cora.ir.text import print_program
from cora.ir.types import U16, EntryRef, UInt
from cora.ir.verify import verify
from cora.testing import Packet, covering_packets, difference, generate, random_packets, run_reference
from cora.testing.frames import Spec, build

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.nf"))
CHOICES: list[tuple[Pass, ...]] = [STANDARD, *((kind(),) for kind in PASSES.values()), (ShareLoads("no"),)]


def assert_same(raw: Program, passes: Sequence[Pass], packets: Sequence[Packet]) -> Program:
    """The program behind the passes, valid behind each, and the same as before on these packets."""
    made = run_pipeline(raw, passes, verify=True)
    found = difference(run_reference(raw, packets), run_reference(made, packets))
    assert found is None, f"{show_pipeline(passes)}: {found}"
    return made


# Equivalence.


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_stay_the_same(seed: int) -> None:
    raw = generate(seed).program
    packets = random_packets(raw, seed, 30)
    for passes in CHOICES:
        assert_same(raw, passes, packets)


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_random_ir_stays_the_same(seed: int) -> None:
    raw = random_ir.random_program(seed)
    packets = [Packet(p.port, p.time_ns, p.frame, len(p.frame) if p.wirelen is None else p.wirelen)
               for p in random_ir.random_packets(seed, 40)]
    for passes in CHOICES:
        assert_same(raw, passes, packets)
    shuffled = [PASSES[name]() for name in random.Random(seed).choices(sorted(PASSES), k=8)]
    assert_same(raw, shuffled, packets)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_stay_the_same(path: Path) -> None:
    raw = load(path)
    covering = covering_packets(raw, 1, 150)
    made = assert_same(raw, STANDARD, covering.packets)
    assert run_pipeline(made) == made, "what is left to do is done by a second run of the same list"
    assert len(made.blocks) <= len(raw.blocks)


@pytest.mark.needs("traces")
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_stay_the_same_on_public_traces(path: Path, traces: Path) -> None:
    raw = load(path)
    packets: list[Packet] = []
    for name in sorted(p for p in traces.iterdir() if "pcap" in p.name and p.stat().st_size < 3_000_000):
        capture = Capture.open(name)
        for found in itertools.islice(capture.packets(), 40):
            packets.append(Packet(len(packets) % len(raw.ports), len(packets) * 10**6, found.frame, found.wirelen))
        capture.close()
    assert len(packets) > 100
    assert_same(raw, STANDARD, packets)


# Arithmetic, against the interpreter's own.


@pytest.mark.parametrize("bits", [1, 8, 12, 32, 128])
def test_arithmetic_is_that_of_the_interpreter(bits: int) -> None:
    choose = random.Random(bits)
    type_ = UInt(bits)
    top = (1 << bits) - 1
    numbers = [0, 1, top, top // 2, min(bits, top), *(choose.randint(0, top) for _ in range(12))]
    for a, b in itertools.product(numbers, repeat=2):
        for op, compute in reference._BINARY.items():
            assert arithmetic.binary(op, a, b, type_) == compute(a, b, bits) & top, (op, a, b)
        for op, test in reference._COMPARE.items():
            assert arithmetic.compare(op, a, b) == test(a, b), (op, a, b)
        assert arithmetic.invert(a, type_) == a ^ top


# Which stores change which fields, against the interpreter's packets.

IP4 = Spec(upper=6, tags=((0x8100, 5),), payload=b"abcdefgh" * 3)
STACKS: list[tuple[Spec, tuple[str, ...]]] = [
    (IP4, ("eth", "vlan", "ipv4", "tcp")),
    (Spec(upper=17, payload=b"abcdefgh" * 3), ("eth", "ipv4", "udp", "l4")),
    (Spec(ethertype=0x86DD, upper=6, payload=b"xyz"), ("eth", "ipv6", "tcp")),
    (Spec(ethertype=0x86DD, upper=17, payload=b"xyz"), ("eth", "ipv6", "udp")),
    (Spec(ethertype=0x0806), ("eth", "arp")),
    (Spec(upper=1, fields={("icmp", "type"): 3}, quoted=Spec(upper=6, payload=b"12345678")),
     ("eth", "ipv4", "icmp", "quoted.ipv4", "quoted.tcp")),
    (Spec(upper=1, fields={("icmp", "type"): 3}, quoted=Spec(upper=17, payload=b"12345678")),
     ("eth", "ipv4", "icmp", "quoted.ipv4", "quoted.udp")),
    (Spec(upper=1, fields={("icmp", "type"): 3}, quoted=Spec(upper=1, payload=b"12345678")),
     ("eth", "ipv4", "icmp", "quoted.ipv4", "quoted.icmp")),
    (Spec(ethertype=0x86DD, upper=58, fields={("icmp6", "type"): 1},
          quoted=Spec(ethertype=0x86DD, upper=58, payload=b"12345678")),
     ("eth", "ipv6", "icmp6", "quoted.ipv6", "quoted.icmp6")),
]


@pytest.mark.parametrize(("spec", "headers"), STACKS, ids=lambda x: "/".join(x) if isinstance(x, tuple) else "")
def test_fields_said_to_keep_their_value_keep_it(spec: Spec, headers: tuple[str, ...]) -> None:
    frame, wirelen = build(spec)
    limits = {"eth": 2, "ipv6": 8, "quoted.ipv6": 8}
    span = Span("t", 1, 1, 1, 2)

    def fresh() -> ReferencePacket:
        packet = ReferencePacket(frame, wirelen, Options())
        for header in headers:
            if header in ("l4", "quoted.l4"):
                continue
            assert packet.extract(nodes.Extract(header, limits.get(header, 0), False, False, (), span)) == "ok", header
        return packet

    present = sorted(fresh().at)
    fields = [(h, f.name) for h in present for f in HEADERS[h.removeprefix(QUOTED)].fields if field_of(h, f.name)]
    choose = random.Random(1)
    for header, name in fields:
        declared = field_of(header, name)
        assert declared is not None
        if not declared.writable:
            continue
        packet = fresh()
        before = {place: packet.load(*place) for place in fields}
        packet.store(header, name, before[header, name] ^ choose.randint(1, (1 << declared.bits) - 1))
        changed = {place for place in fields if packet.load(*place) != before[place]}
        assert (header, name) in changed
        for place in changed:
            assert may_change(header, name, *place), (header, name, place)


def test_a_store_to_one_field_leaves_most_others_known() -> None:
    """The answer is not simply yes."""
    assert not may_change("ipv4", "ttl", "ipv4", "src")
    assert not may_change("ipv4", "src", "tcp", "sport")
    assert not may_change("tcp", "sport", "tcp", "dport")
    assert not may_change("eth", "dst", "ipv4", "dst")
    assert not may_change("quoted.ipv4", "src", "ipv4", "src")
    assert may_change("tcp", "sport", "l4", "sport")
    assert may_change("tcp", "flags", "tcp", "syn")
    assert may_change("ipv4", "ttl", "ipv4", "checksum")
    assert may_change("quoted.tcp", "sport", "icmp", "checksum")


# What must be read again: each program sends what it read second out in a field.

MAP = ("map m capacity 4 slack 0 full {full} exact strict_order -\n  field k : u16\n  field n : u16\n"
       "  key key (k)\n")
REREAD = {
    "store to the same field": (
        "", " %a : u16 = load tcp sport\n %b : u16 = binary add %a %a\n store tcp sport %b\n"
            " %c : u16 = load tcp sport\n %d : u16 = binary add %a %c\n store tcp dport %d\n forward out"),
    "store under another name": (
        "", " %a : u16 = load l4 sport\n %b : u16 = binary add %a %a\n store tcp sport %b\n"
            " %c : u16 = load l4 sport\n store tcp dport %c\n store tcp urgent %a\n forward out"),
    "store to an overlapping field": (
        "", " %a : bool = load tcp syn\n %t : u8 = load tcp flags\n %i : u8 = unary invert %t\n store tcp flags %i\n"
            " %c : bool = load tcp syn\n %d : u16 = cast %c\n store tcp urgent %d\n %e : u16 = cast %a\n"
            " store tcp dport %e\n forward out"),
    "checksum": (
        "", " %a : u16 = load tcp checksum\n %b : u16 = load ipv4 checksum\n %s : u32 = load ipv4 dst\n"
            " store ipv4 src %s\n %c : u16 = load tcp checksum\n %d : u16 = load ipv4 checksum\n store tcp sport %c\n"
            " store tcp dport %d\n store tcp urgent %a\n store ipv4 id %b\n forward out"),
    "entry field": (
        MAP, " %k : u16 = load tcp sport\n insert m (%k, %k) [] \"\" ok %e : ref<m> in full no\nblock in ()\n"
             " %a : u16 = load_entry %e n\n %b : u16 = binary add %a %a\n store_entry %e n %b\n"
             " %c : u16 = load_entry %e n\n store tcp dport %c\n store tcp urgent %a\n forward out\n"
             "block no ()\n drop \"full\""),
    "entry field through another reference": (
        MAP, " %k : u16 = load tcp sport\n insert m (%k, %k) [] \"\" ok %e : ref<m> in full no\nblock in ()\n"
             " %a : u16 = load_entry %e n\n lookup m \"key\" (%k) hit %f : ref<m> yes miss no2\nblock yes ()\n"
             " %b : u16 = binary add %a %a\n store_entry %f n %b\n %c : u16 = load_entry %e n\n store tcp dport %c\n"
             " forward out\nblock no ()\n drop \"full\"\nblock no2 ()\n drop \"lost\""),
    "entry deleted through another reference": (
        MAP, " %k : u16 = load tcp sport\n insert m (%k, %k) [] \"\" ok %e : ref<m> in full no\nblock in ()\n"
             " %a : u16 = load_entry %e n\n lookup m \"key\" (%k) hit %f : ref<m> yes miss no2\nblock yes ()\n"
             " delete %f\n %c : u16 = load_entry %e n\n store tcp dport %c\n store tcp urgent %a\n forward out\n"
             "block no ()\n drop \"full\"\nblock no2 ()\n drop \"lost\""),
    "entry evicted": (
        MAP.replace("capacity 4", "capacity 1").replace("{full}", "evict_lru"),
        " %k : u16 = load tcp sport\n insert m (%k, %k) [] \"\" ok %e : ref<m> in full no\nblock in ()\n"
        " %a : u16 = load_entry %e n\n %l : u16 = load tcp dport\n"
        " insert m (%l, %l) [] \"\" ok %f : ref<m> yes full no2\nblock yes ()\n"
        " %c : u16 = load_entry %e n\n store tcp dport %c\n store tcp urgent %a\n forward out\n"
        "block no ()\n drop \"full\"\nblock no2 ()\n drop \"full twice\""),
    "store on one way here": (
        "", " %z : u16 = const 7\n %a : u16 = load tcp sport\n %s : bool = load tcp syn\n branch %s set join\n"
            "block set ()\n store tcp sport %z\n jump join ()\nblock join ()\n %c : u16 = load tcp sport\n"
            " store tcp dport %c\n store tcp urgent %a\n forward out"),
}


@pytest.mark.parametrize("name", REREAD)
def test_what_may_have_changed_is_read_again(name: str) -> None:
    states, body = REREAD[name]
    raw = chain("eth 2", "ipv4", "tcp", states=states.replace("{full}", "reject"), body=body)
    packets = []
    for i, flags in enumerate((0x02, 0x10, 0x12)):
        fields = {("tcp", "flags"): flags, ("tcp", "sport"): 1000 + i, ("tcp", "dport"): 2000 + i}
        frame, wirelen = build(Spec(upper=6, fields=fields))
        packets.append(Packet(0, i, frame, wirelen))
    for passes in CHOICES:
        assert_same(raw, passes, packets)
    assert {e.__class__.__name__ for e in run_reference(raw, packets).events} == {"Output"}


# What each pass does.


def count_of(made: Program, kind: type) -> int:
    return sum(isinstance(n, kind) for b in made.blocks for n in (*b.instructions, b.terminator))


def test_fold_constants() -> None:
    raw = chain("eth 2", "ipv4", body="""
 %a : u8 = const 200
 %b : u8 = const 100
 %c : u8 = binary add %a %b
 %t : u8 = load ipv4 ttl
 %z : u8 = const 0
 %d : u8 = binary add %t %z
 %e : u8 = binary and %d %z
 %f : bool = compare eq %c %e
 branch %f then else
block then ()
 drop "never"
block else ()
 %g : bool = compare eq %d %t
 branch %g yes no
block yes ()
 store ipv4 ttl %c
 forward out
block no ()
 drop "never either\"""")
    made = verify(FoldConstants().apply(raw))
    assert count_of(made, nodes.Branch) == 0
    assert count_of(made, nodes.Drop) == 2 + 2, "only the outcomes of the extractions are left"
    consts = {n.result.name: n.value for b in made.blocks for n in b.instructions if isinstance(n, nodes.Const)}
    assert consts == {"a": 200, "b": 100, "c": 44, "z": 0, "e": 0, "f": 0, "g": 1}
    assert count_of(made, nodes.Binary) == 0


def test_a_condition_is_known_below_its_branch() -> None:
    raw = chain("eth 2", "ipv4", "tcp", body="""
 %s : bool = load tcp syn
 %p : u16 = load tcp dport
 branch %s then else
block then ()
 branch %s yes no
block else ()
 switch %p {80 -> web, 81 -> other} else other
block web ()
 switch %p {80 -> yes2, 81 -> no2} else no2
block other ()
 branch %s yes3 no3
block yes ()
 forward out
block no ()
 drop "never 1"
block yes2 ()
 forward out
block no2 ()
 drop "never 2"
block yes3 ()
 drop "never 3"
block no3 ()
 forward out""")
    made = verify(FoldConstants().apply(raw))
    reasons = {b.terminator.reason for b in made.blocks if isinstance(b.terminator, nodes.Drop)}
    assert not [r for r in reasons if r.startswith("never")]
    assert count_of(made, nodes.Branch) == 1
    assert [b.terminator.cases for b in made.blocks if isinstance(b.terminator, nodes.Switch)] == [((80, "web"),)]


def test_what_one_way_says_is_not_known_behind_the_join() -> None:
    raw = chain("eth 2", "ipv4", "tcp", body="""
 %s : bool = load tcp syn
 %p : u16 = load tcp dport
 branch %s then else
block then ()
 jump join ()
block else ()
 jump join ()
block join ()
 branch %s first second
block first ()
 switch %p {80 -> web, 81 -> web} else other
block second ()
 drop "no syn"
block web ()
 switch %p {80 -> eighty} else more
block eighty ()
 forward out
block more ()
 drop "81"
block other ()
 drop "other\"""")
    packets = []
    for syn, port in itertools.product((0, 2), (80, 81, 82)):
        frame, wirelen = build(Spec(upper=6, fields={("tcp", "flags"): syn, ("tcp", "dport"): port}))
        packets.append(Packet(0, 0, frame, wirelen))
    made = assert_same(raw, (FoldConstants(),), packets)
    assert count_of(made, nodes.Branch) == 2
    assert count_of(made, nodes.Switch) == 2
    assert run_reference(made, packets).summary.dropped == {"no syn": 3, "81": 1, "other": 1}


def test_a_follower_reads_its_ports_again() -> None:
    """What a tracker lets pass has the ports of the first fragment, not those its own bytes spell."""
    states = "fragments f capacity 4 timeout 1000 held 3"
    raw = chain("eth 2", "ipv4", "udp", "track f ipv4", states=states, body=" forward out")
    first, last = raw.block("b3"), raw.block("b4")
    span = raw.span
    port, again = nodes.Value("port", U16), nodes.Value("again", U16)
    with_loads = {
        "b3": replace(first, instructions=(nodes.Load(port, "udp", "sport", span),)),
        "b4": replace(last, instructions=(nodes.Load(again, "udp", "sport", span),
                                          nodes.Store("ipv4", "id", again, span))),
    }
    raw = verify(replace(raw, blocks=tuple(with_loads.get(b.label, b) for b in raw.blocks)))
    packets = []
    for offset, more, payload in ((0, True, bytes([0, 50, 0, 60, 0, 24, 0, 0]) + b"x" * 8), (16, False, b"\1\1" * 4)):
        frame, wirelen = build(Spec(upper=17, raw=payload, fragment=(offset, more, 9)))
        packets.append(Packet(0, 0, frame, wirelen))
    assert run_reference(raw, packets).summary.forwarded == {"out": (2, sum(p.wirelen for p in packets))}
    sent = [e.frame for e in run_reference(raw, packets).events if isinstance(e, Output)]
    assert [f[18:20] for f in sent] == [b"\0\x32"] * 2, "both say the first fragment's port"
    for passes in CHOICES:
        assert_same(raw, passes, packets)


def test_parameters_that_are_one_value_are_none() -> None:
    raw = chain("eth 2", "ipv4", "tcp", body="""
 %s : bool = load tcp syn
 %p : u16 = load tcp dport
 %x : u16 = const 7
 branch %s then else
block then ()
 %y : u16 = const 7
 jump join (%p, %y, %p)
block else ()
 jump join (%p, %x, %x)
block join (%a : u16, %b : u16, %c : u16)
 store tcp dport %b
 store tcp sport %a
 store tcp urgent %c
 forward out""")
    made = verify(FoldConstants().apply(raw))
    join = made.block("join")
    assert [p.name for p in join.params] == ["c"]
    assert [n.value.name for n in join.instructions if isinstance(n, nodes.Store)] == ["b", "p", "c"]
    assert isinstance(join.instructions[0], nodes.Const)
    assert join.instructions[0].value == 7


def test_fold_headers() -> None:
    raw = chain("eth 2", "ipv4", body="""
 %q : u8 = load ipv4 proto
 switch %q {6 -> t, 17 -> u} else none
block t ()
 extract tcp limit 0 - - {ok -> both, malformed -> bad, unparsed -> bad}
block u ()
 extract udp limit 0 - - {ok -> both, malformed -> bad, unparsed -> bad}
block none ()
 has tcp yes no
block both ()
 has l4 yes2 no2
block yes2 ()
 has tcp yes3 no3
block yes3 ()
 has ipv4 yes4 no4
block no3 ()
 has icmp yes4 no4
block yes4 ()
 forward out
block no4 ()
 forward out
block yes ()
 drop "never"
block no ()
 forward out
block no2 ()
 drop "never"
block bad ()
 drop "bad\"""")
    made = verify(FoldHeaders().apply(raw))
    assert [n.terminator.header for n in made.blocks if isinstance(n.terminator, nodes.HasHeader)] == ["tcp"]
    assert not any(isinstance(b.terminator, nodes.Drop) and b.terminator.reason == "never" for b in made.blocks)


def test_thread_jumps() -> None:
    raw = chain("eth 2", "ipv4", "tcp", body="""
 %s : bool = load tcp syn
 %p : u16 = load tcp dport
 branch %s then else
block then ()
 jump a ()
block else ()
 jump b (%p)
block a ()
 jump b (%p)
block b (%x : u16)
 jump c (%x)
block c (%y : u16)
 store tcp sport %y
 jump d ()
block d ()
 forward out""")
    made = verify(ThreadJumps().apply(raw))
    # The branch passes no values, so both its arms still have a block of their own.
    assert [b.label for b in made.blocks if not b.label.startswith("leaf")] == ["b0", "b1", "b2", "b3", "then", "else",
                                                                               "c"]
    assert count_of(made, nodes.Jump) == 2


def test_entry_arms_keep_one_predecessor() -> None:
    raw = chain("eth 2", "ipv4", "tcp", states=MAP.replace("{full}", "reject"), body="""
 %k : u16 = load tcp sport
 lookup m "key" (%k) hit %e : ref<m> hit miss miss
block hit ()
 jump out ()
block miss ()
 insert m (%k, %k) [] "" ok %f : ref<m> ok full full
block ok ()
 jump out ()
block full ()
 jump out ()
block out ()
 forward out""")
    made = verify(ThreadJumps().apply(raw))
    assert {b.label for b in made.blocks} >= {"hit", "ok"}
    assert made.block("miss").terminator == nodes.Insert(
        "m", (nodes.Value("k", U16),) * 2, (), "", nodes.Value("f", EntryRef("m")), "ok", "out",
        made.block("miss").terminator.span)


def test_share_loads() -> None:
    raw = chain("eth 2", "ipv4", "tcp", body="""
 %a : u16 = load tcp sport
 %b : u16 = load tcp sport
 %s : bool = load tcp syn
 %c : u16 = binary add %a %b
 branch %s then else
block then ()
 %d : u16 = binary add %b %a
 store tcp sport %d
 %e : u16 = load tcp sport
 store tcp dport %e
 forward out
block else ()
 %f : u16 = load tcp sport
 store tcp dport %f
 %g : u16 = load tcp sport
 store tcp urgent %g
 forward out""")
    made = verify(ShareLoads().apply(raw))
    assert count_of(made, nodes.Load) == 2
    assert count_of(made, nodes.Binary) == 1
    stores = [(n.field, n.value.name) for b in made.blocks for n in b.instructions if isinstance(n, nodes.Store)]
    assert stores == [("sport", "c"), ("dport", "c"), ("dport", "a"), ("urgent", "a")]
    inside = verify(ShareLoads("no").apply(raw))
    assert count_of(inside, nodes.Load) == 3
    assert count_of(inside, nodes.Binary) == 2


def test_remove_unused() -> None:
    raw = chain("eth 2", "ipv4", "tcp", states="counter c size 1", body="""
 %a : u16 = load tcp sport
 %b : u16 = binary add %a %a
 %s : bool = load tcp syn
 %t : u64 = meta time
 count c - -
 branch %s then else
block then ()
 jump join (%a, %b)
block else ()
 jump join (%b, %b)
block join (%x : u16, %y : u16)
 %z : u16 = binary add %y %y
 store tcp sport %x
 forward out""")
    made = verify(RemoveUnused().apply(raw))
    assert [p.name for p in made.block("join").params] == ["x"]
    assert count_of(made, nodes.Meta) == 0
    assert count_of(made, nodes.Count) == 1
    assert count_of(made, nodes.Binary) == 1
    assert made.states == raw.states


def test_every_pass_keeps_declarations_and_spans() -> None:
    raw = load(EXAMPLES[0])
    spans = {n.span for b in raw.blocks for n in (b, *b.instructions, b.terminator)}
    for passes in CHOICES:
        made = run_pipeline(raw, passes)
        assert (made.ports, made.configs, made.states, made.span) == (raw.ports, raw.configs, raw.states, raw.span)
        assert {n.span for b in made.blocks for n in (b, *b.instructions, b.terminator)} <= spans


# The pipeline.


def test_pipeline_text_is_read_back() -> None:
    for passes in CHOICES:
        assert parse_pipeline(show_pipeline(passes)) == passes
    assert parse_pipeline("") == ()
    assert parse_pipeline(" fold-constants , share-loads{ across = no },remove-unused ") == (
        FoldConstants(), ShareLoads("no"), RemoveUnused())
    assert parse_pipeline("share-loads{}") == (ShareLoads(),)


BAD_PIPELINES = ["fold-constant", "zzz", "Fold", "fold-constants,,remove-unused", "fold-constants;remove-unused",
                 "share-loads{across=maybe}", "share-loads{acros=no}", "fold-constants{x=1}", "share-loads{across",
                 "share-loads{across=no", ",", "share-loads across", "fold-constants{" + "x" * 1000]


def test_bad_pipelines(golden: Callable[[str, str], None]) -> None:
    shown = []
    for text in BAD_PIPELINES:
        with pytest.raises(CoraError) as caught:
            parse_pipeline(text)
        assert [d.kind for d in caught.value.diagnostics] == [Kind.BAD_PASS]
        shown.append(f"{text[:40]}\n{caught.value.render()}\n")
    golden("bad_pipelines.txt", "\n".join(shown))


def test_stop_after_and_observe() -> None:
    raw = load(EXAMPLES[0])
    seen: list[str] = []
    made = run_pipeline(raw, stop_after="fold-constants", observe=lambda step, _: seen.append(step.name))
    assert seen == [p.name for p in STANDARD[:5]], "behind the last pass of that name"
    assert made == run_pipeline(raw, STANDARD[:5])
    with pytest.raises(CoraError) as caught:
        run_pipeline(raw, stop_after="remove-unuse")
    assert caught.value.render() == ("error[E123 unknown-pass]: there is no pass 'remove-unuse' in this pipeline\n"
                                     "help: did you mean 'remove-unused'?")


def test_a_pass_that_breaks_a_program_is_named() -> None:
    class Breaks(RemoveUnused):
        name = "breaks"

        def apply(self, program: Program) -> Program:
            return nodes.Program(program.name, program.ports, (), (), program.blocks, program.span)

    raw = chain("eth 2", body=" count c - -\n forward out", states="counter c size 1")
    run_pipeline(raw, (Breaks(),))
    with pytest.raises(CoraError) as caught:
        run_pipeline(raw, (Breaks(),), verify=True)
    assert caught.value.diagnostics[0].kind == Kind.IR_INVALID
    assert "pass breaks made invalid IR" in caught.value.render()


def test_passes_are_listed(golden: Callable[[str, str], None]) -> None:
    golden("list_passes.txt", list_passes() + "\n\n" + list_passes((ShareLoads("no"),)) + "\n")


def test_compile_file_runs_the_standard_pipeline() -> None:
    path = EXAMPLES[0]
    assert compile_file(path, {}) == run_pipeline(load(path))
    assert compile_file(path, {}, ()) == load(path)


def test_small_program_by_hand(golden: Callable[[str, str], None]) -> None:
    """The whole pipeline on a program one can read."""
    raw = program("""
config limit : u8 = 3 ""
counter c size 1
block start ()
 extract eth limit 2 - - {ok -> l3, malformed -> bad, unparsed -> bad}
block l3 ()
 extract ipv4 limit 0 - - {ok -> on, malformed -> bad, unparsed -> bad}
block on ()
 %one : u8 = const 1
 %two : u8 = binary add %one %one
 %ttl : u8 = load ipv4 ttl
 %again : u8 = load ipv4 ttl
 %limit : u8 = config limit
 %low : bool = compare lt %again %limit
 branch %low then else
block then ()
 jump join (%two)
block else ()
 has ipv4 has none
block has ()
 %less : u8 = binary sub %ttl %one
 jump join (%less)
block none ()
 drop "never"
block join (%new : u8)
 store ipv4 ttl %new
 count c - -
 jump end ()
block end ()
 forward out
block bad ()
 drop "bad\"""")
    golden("small.ir", print_program(run_pipeline(raw, verify=True)))
