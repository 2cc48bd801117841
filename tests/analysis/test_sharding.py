"""What the analysis of splitting finds, against what a reader of the sources finds."""

from __future__ import annotations

import pytest
from sharding_kit import EXAMPLES, SHIPPED, shipped, written

from cora.analysis.decided import decide
from cora.analysis.paths import Path, number_paths, path_of
from cora.analysis.sharding import Alignment, Reason, Sharding, align, copyable, sharding_of
from cora.ir import nodes
from cora.ir.nodes import Program

FORWARD = ("ipv4.src", "l4.sport", "ipv4.dst", "l4.dport", "ipv4.proto")
BACKWARD = ("ipv4.dst", "l4.dport", "ipv4.src", "l4.sport", "ipv4.proto")
QUOTED = tuple(f"quoted.{f}" for f in FORWARD)
QUOTED_BACK = tuple(f"quoted.{f}" for f in BACKWARD)

SMALL = """nf small {
  port inside: wire;
  port outside: wire;
  config here: ipv4 = 192.0.2.1;
  lpm tenants { key a: ipv4; value { tenant: u32 } entries { 10.0.0.0/8 -> { tenant: 7 }; } capacity 8; }
  map other { entry { a: ipv4, next: ipv4 } key = a; capacity 10; }
  map conns { entry { a: ipv4, n: u32 } key = a; capacity 10; ATTRIBUTES }
  meter rates { key (a: ipv4, port: u16); rate 1000; burst 2000B; capacity 10; }
  fragments FRAGMENTS;
  on inside(p: eth/ipv4/(tcp|udp)) { INSIDE }
  on outside(p: eth/ipv4/(tcp|udp)) { OUTSIDE }
}
"""


def small(inside: str, outside: str = "forward inside;", attributes: str = "", fragments: str = "ignore") -> Program:
    text = SMALL.replace("INSIDE", inside).replace("OUTSIDE", outside)
    return written(text.replace("ATTRIBUTES", attributes).replace("FRAGMENTS", fragments))


def conns(program: Program) -> Sharding:
    return sharding_of(program)["conns"]


def parts_of(found: Sharding) -> list[tuple[str, ...]]:
    return [tuple(str(p) for p in a.parts) for a in found.anchors]


def paths(program: Program) -> list[Path]:
    numbering = number_paths(program)
    return [path_of(program, numbering, i) for i in range(numbering.count)]


def aligned(program: Program, component: str) -> list[tuple[Path, Alignment]]:
    return [(p, align(program, component, p.blocks, p.outcomes)) for p in paths(program)]


# --- the shipped programs ---


def anchors(name: str, component: str) -> set[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    found = sharding_of(shipped(name))[component].anchors
    return {(a.key, a.ports, tuple(str(p) for p in a.parts)) for a in found}


def test_nat_meets_its_connections_by_both_keys() -> None:
    assert anchors("nat", "conns") == {
        ("fwd", ("inside",), FORWARD),
        ("fwd", ("inside",), ("ipv4.src", "icmp.id", "ipv4.dst", "0", "1")),
        ("fwd", ("inside",), QUOTED_BACK),
        ("fwd", ("inside",), ("quoted.ipv4.dst", "quoted.icmp.id", "quoted.ipv4.src", "0", "1")),
        ("rev", ("outside",), ("ipv4.dst", "l4.dport")),
        ("rev", ("outside",), ("ipv4.dst", "icmp.id")),
        ("rev", ("outside",), ("quoted.ipv4.src", "quoted.l4.sport")),
        ("rev", ("outside",), ("quoted.ipv4.src", "quoted.icmp.id")),
    }


def test_firewall_reads_its_key_the_other_way_round_from_outside() -> None:
    found = anchors("firewall.ref", "conns")
    assert found == {("key", ("inside",), FORWARD), ("key", ("outside",), BACKWARD)}
    assert {("key", ("outside",), QUOTED), ("key", ("inside",), QUOTED_BACK)} < anchors("firewall", "conns4")


def test_policer_meets_its_buckets_by_the_destination() -> None:
    assert anchors("policer", "limits4") == {("", ("wan",), ("ipv4.dst",))}
    assert anchors("policer.ref", "buckets") == {("key", ("wan",), ("ipv4.dst",))}


@pytest.mark.parametrize(("name", "splittable"), [
    ("nat", {"conns"}), ("nat.ref", {"conns"}), ("firewall", {"conns4", "conns6"}), ("firewall.ref", {"conns"}),
    ("policer", {"limits4", "limits6"}), ("policer.ref", {"buckets"})])
def test_what_of_the_shipped_programs_can_be_split(name: str, splittable: set[str]) -> None:
    assert {n for n, s in sharding_of(shipped(name)).items() if s.splittable} == splittable


def test_every_refusal_and_reason_names_a_line_of_the_program() -> None:
    for name in SHIPPED:
        lines = (EXAMPLES / f"{name}.nf").read_text().count("\n")
        for sharding in sharding_of(shipped(name)).values():
            for span in (*(r.span for r in sharding.refusals), *(o.span for o in sharding.owner_only)):
                assert 1 <= span.line <= lines
                assert span.file == shipped(name).span.file


def test_hairpins_run_at_the_owner_from_their_first_look_up() -> None:
    """Lines of examples/nat.nf: 166 looks up the target, 170 and 179 the sender, 315 to 322 an error's hairpin."""
    lines = {o.span.line for o in sharding_of(shipped("nat"))["conns"].owner_only if o.kind == "lookup"}
    assert lines == {166, 170, 179, 315, 319, 322}


def test_inserts_of_nat_run_at_the_owner() -> None:
    lines = [o.span.line for o in sharding_of(shipped("nat"))["conns"].owner_only if o.kind == "insert"]
    assert sorted(lines) == [151, 156, 188, 193, 243]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_path_is_aligned_or_says_why_not(name: str) -> None:
    program = shipped(name)
    blocks = {b.label: b for b in program.blocks}
    for component in (n for n, s in sharding_of(program).items() if s.splittable):
        for path, found in aligned(program, component)[::7]:
            assert (found.owner_from is None) == (not found.reason)
            if found.owner_from is not None:
                position, index = found.owner_from
                assert index <= len(blocks[path.blocks[position]].instructions)
                assert found.anchor is None or found.anchor <= position


def test_fragments_of_nat_need_the_owner_and_whole_packets_do_not() -> None:
    program = shipped("nat")
    hit = [(p, a) for p, a in aligned(program, "conns") if "conns_hit_4" in p.blocks]
    assert hit
    for path, found in hit:
        assert found.aligned == ("track" not in path.blocks)


# --- keys ---


def test_a_key_may_be_anything_known_from_the_packet() -> None:
    program = small("lookup conns[ipv4(u32(p.ip.src) & 0xffffff00)] { hit e { e.n = 1; } } forward outside;",
                    "lookup conns[here] { hit e { e.n = 2; } } forward inside;")
    found = conns(program)
    assert parts_of(found) == [("(ipv4.src & 4294967040)",), ("3221225985",)]
    assert [a.plain for a in found.anchors] == [False, True]


def test_a_read_only_table_may_give_a_key() -> None:
    program = small("var t: u32 = 0; lookup tenants[p.ip.src] { hit r { t = r.tenant; } }"
                    "lookup conns[ipv4(t)] { hit e { e.n = 1; } } forward outside;")
    assert conns(program).splittable


def test_a_key_of_a_rewritten_field_is_what_was_written() -> None:
    program = small("p.ip.src = here; lookup conns[p.ip.src] { hit e { e.n = 1; } } forward outside;")
    assert parts_of(conns(program)) == [("3221225985",)]
    program = small("p.ip.src = p.ip.dst; lookup conns[p.ip.src] { hit e { e.n = 1; } } forward outside;")
    assert parts_of(conns(program)) == [("ipv4.dst",)]


def test_a_checksum_is_no_field_as_it_arrived_once_something_was_stored() -> None:
    """The smallest form of what a random program showed: stores change checksums beside their own field."""
    program = small("p.ip.ttl = 9; lookup conns[ipv4(u32(p.ip.checksum))] { hit e { e.n = 1; } } forward outside;")
    (parts,) = parts_of(conns(program))
    assert parts != ("ipv4.checksum",)
    program = small("lookup conns[ipv4(u32(p.ip.checksum))] { hit e { e.n = 1; } } forward outside;")
    assert parts_of(conns(program)) == [("ipv4.checksum",)]


def test_a_key_out_of_an_entry_is_no_anchor() -> None:
    program = small("lookup other[p.ip.src] { hit o { lookup conns[o.next] { hit e { e.n = 1; } } } } forward outside;")
    found = conns(program)
    assert not found.splittable
    assert "'next' of an entry of 'other'" in found.refusals[0].text


def test_a_field_written_from_an_entry_is_no_anchor() -> None:
    program = small("lookup other[p.ip.src] { hit o { p.ip.dst = o.next; } }"
                    "lookup conns[p.ip.dst] { hit e { e.n = 1; } } forward outside;", attributes="timeout 5s;")
    found = conns(program)
    assert [a.always for a in found.anchors] == [False]
    for path, alignment in aligned(program, "conns"):
        written_before = any(isinstance(program.block(b).terminator, nodes.Lookup) and o == "hit"
                             and getattr(program.block(b).terminator, "state", "") == "other"
                             for b, o in zip(path.blocks, path.outcomes, strict=False))
        if written_before and alignment.owner_from is not None:
            assert "'next'" in alignment.reason
        assert not (written_before and alignment.anchor is not None)


def test_looking_up_the_same_key_again_means_the_same_entry() -> None:
    again = ("lookup conns[p.ip.src] { hit e { e.n = 1; lookup conns[p.ip.KEY] { hit f { f.n = 2; } } } } "
             "forward outside;")
    assert len(conns(small(again.replace("KEY", "src"))).anchors) == 1
    found = conns(small(again.replace("KEY", "dst")))
    assert not found.anchors
    assert "another entry" in found.refusals[0].text


def test_ports_of_followers_come_from_the_tracker() -> None:
    """A key of addresses needs no first fragment, one with ports does."""
    program = small("police rates[(p.ip.src, p.l4.sport)] { green { } red { drop \"r\"; } full { drop \"f\"; } }"
                    "lookup conns[p.ip.src] { hit e { e.n = 1; } } forward outside;", fragments="track")
    tracked = [p for p in paths(program) if any(isinstance(program.block(b).terminator, nodes.TrackFragment)
                                                for b in p.blocks)]
    hits = [p for p in tracked if "conns_hit" in p.blocks]
    assert hits
    for path in hits:
        assert align(program, "conns", path.blocks, path.outcomes).aligned
        found = align(program, "rates", path.blocks, path.outcomes)
        assert found.anchor is None
        assert "fragment" in found.reason


def test_values_computed_from_each_other_do_not_multiply() -> None:
    """Each of sixty values has the one before it twice; a walk over the tree would never end."""
    lines = ("var k: u32 = u32(p.ip.src); var b: bool = p.ip.ttl > 3;"
             + "k = k * k + k; b = b && (b || p.ip.ttl > 9);" * 60)
    program = small(lines + "lookup conns[ipv4(k)] { hit e { if b { e.n = 1; } } } forward outside;")
    assert parts_of(conns(program)) == [("a value computed from ipv4.src",)]
    for path, found in aligned(program, "conns"):
        if found.aligned:
            assert isinstance(decide(program, "conns", path.blocks, path.outcomes), Reason)


# --- refusals ---


def test_an_exact_table_that_evicts_the_oldest_is_never_split() -> None:
    use = ("lookup conns[p.ip.src] { hit e { touch e; } miss { insert conns { a: p.ip.src, n: 1 } "
           '{ ok { } full { drop "full"; } } } } forward outside;')
    exact = conns(small(use, attributes="timeout 5s; full evict_lru;"))
    assert not exact.splittable
    assert "evict" in exact.refusals[0].text
    assert exact.refusals[0].span.line == 7
    assert conns(small(use, attributes="timeout 5s; full evict_lru; approx;")).splittable


def test_tables_used_in_both_orders_are_not_split() -> None:
    one = "lookup conns[p.ip.src] { hit e { e.n = 1; lookup other[p.ip.dst] { hit o { o.next = p.ip.src; } } } }"
    other = "lookup other[p.ip.src] { hit o { o.next = p.ip.dst; lookup conns[p.ip.dst] { hit e { e.n = 2; } } } }"
    both = sharding_of(small(f"{one} forward outside;", f"{other} forward inside;"))
    assert not both["conns"].splittable
    assert not both["other"].splittable
    assert "same order" in both["conns"].refusals[0].text
    same = sharding_of(small(f"{one} forward outside;", f"{one} forward inside;"))
    assert same["conns"].splittable


def test_a_component_nobody_looks_up_says_so() -> None:
    found = conns(small("insert conns { a: p.ip.src, n: 1 } { ok { } full { drop \"full\"; } } forward outside;"))
    assert [r.text for r in found.refusals] == ["no packet looks anything up in 'conns'"]


def test_attributes_are_told() -> None:
    use = "lookup conns[p.ip.src] { hit e { e.n = 1; } } forward outside;"
    found = conns(small(use, attributes="approx; order weak; per_shard;"))
    assert (found.exact, found.strict_order, found.per_shard) == (False, False, True)
    found = conns(small(use))
    assert (found.exact, found.strict_order, found.per_shard) == (True, True, False)


# --- copies ---


def test_copies() -> None:
    program = shipped("firewall")
    assert copyable(program, "rules4") == "replicated"
    assert copyable(program, "blocked6") == "replicated"
    assert copyable(program, "opened") == "partial"
    for name in ("conns4", "fragments"):
        assert isinstance(copyable(program, name), Reason)
    assert isinstance(copyable(shipped("nat"), "ext"), Reason)
    assert isinstance(copyable(shipped("policer"), "limits4"), Reason)


def test_a_map_that_packets_only_read_is_copied() -> None:
    program = small("lookup other[p.ip.src] { hit o { p.ip.dst = o.next; } }"
                    "lookup conns[p.ip.src] { hit e { e.n = e.n + 1; } } forward outside;")
    assert copyable(program, "other") == "replicated"
    changed = copyable(program, "conns")
    assert isinstance(changed, Reason)
    assert changed.span.line == 10
