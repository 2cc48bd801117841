"""Path-prefix nodes of hand-written and random programs."""

from __future__ import annotations

import random

import pytest
from planning_fakes import SPAN, nat_like, nat_profile, profile_of, random_profile, random_program

from cora.analysis.accesses import accesses_of, capacity_of, components_of, entry_bytes
from cora.analysis.prefixes import expand, pieces_of
from cora.errors import CoraError, Kind
from cora.ir import nodes
from cora.ir.nodes import successors
from cora.ir.text import parse_program
from cora.ir.types import EntryRef


def test_classes_of_a_small_nat() -> None:
    program = nat_like()
    graph = expand(program, nat_profile(program))
    found = [(n.label, n.piece.part, n.history, n.packets) for n in graph.nodes]
    hit, miss, known = "conns.main hit", "conns.main miss", "peers.main hit"
    assert found == [
        ("entry", 0, (), 100),
        ("known", 0, (hit,), 90),
        ("known", 1, (hit,), 90),
        ("fresh", 0, (miss,), 10),
        ("allow", 0, (miss, known), 8),
        ("done", 0, (miss, known, "conns ok"), 8),
        ("deny", 0, (miss, "peers.main miss"), 2),
        ("deny", 0, None, 0),
    ]


def test_a_block_is_cut_where_it_turns_to_another_state() -> None:
    pieces = pieces_of(nat_like())["known"]
    assert [(p.part, p.start, p.last, p.component) for p in pieces] == [(0, 0, False, "conns"), (1, 2, True, "hits")]
    assert [type(i) for i in pieces[0].block.instructions] == [nodes.Touch, nodes.Const]
    assert [type(i) for i in pieces[1].block.instructions] == [nodes.Count]
    assert sum(len(p.block.instructions) for p in pieces) == len(nat_like().block("known").instructions)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_cover_every_edge_and_keep_every_packet(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng)
    graph = expand(program, random_profile(rng, program))
    assert all(e.source < e.target for e in graph.edges)
    incoming = [0] * len(graph.nodes)
    outgoing = [0] * len(graph.nodes)
    for e in graph.edges:
        incoming[e.target] += e.packets
        outgoing[e.source] += e.packets
    incoming[0] = graph.packets
    for i, node in enumerate(graph.nodes):
        assert incoming[i] == node.packets
        leaves = node.piece.last and not successors(node.piece.block.terminator)
        assert outgoing[i] == (0 if leaves else node.packets)
        reached = {(e.outcome, graph.nodes[e.target].label) for e in graph.edges if e.source == i}
        expected = set(successors(node.piece.block.terminator)) if node.piece.last else {("next", node.label)}
        assert reached == expected
    assert {n.label for n in graph.nodes} == {b.label for b in program.blocks}


def test_a_profile_of_another_program_is_refused() -> None:
    program = nat_like()
    profile = profile_of(program, {("entry", "known"): 1})
    other = parse_program(
        'program small file "x.nf" @1:1-1:2\nport wire faces (wire) @1:1-1:2\nblock entry () @1:1-1:2\n'
        '  drop "no" @1:1-1:2\n')
    with pytest.raises(CoraError, match="path 0 of the profile is no path of this program") as caught:
        expand(other, profile)
    assert caught.value.diagnostics[0].kind is Kind.PROFILE_MISMATCH


def test_too_many_classes_name_the_block() -> None:
    program = nat_like()
    with pytest.raises(CoraError, match="more than 5 classes") as caught:
        expand(program, nat_profile(program), bound=5)
    assert caught.value.diagnostics[0].kind is Kind.TOO_MANY_PATHS
    assert caught.value.diagnostics[0].span is not None


POOLED = """
program p file "p.nf" @1:1-9:1
port wire faces (wire) @2:1-2:2
pool ports - - @3:1-3:2
  range port : u16 1024 2047 @3:3-3:4
map conns capacity 64 slack 0 full reject exact strict_order - @4:1-4:2
  field src : u32 @4:3-4:4
  field x : u16 @4:5-4:6
  key fwd (src) @4:7-4:8
  key rev (x) @4:9-4:10
  alloc ports (x) @4:11-4:12
counter c size 3 @5:1-5:2
block entry () @6:1-6:2
  drop "no" @6:3-6:4
"""


def test_a_map_and_its_pool_are_one_component() -> None:
    program = parse_program(POOLED)
    components = components_of(program)
    assert components["ports"] == components["conns"] != components["c"]


def test_an_insert_takes_from_the_pool_and_a_delete_gives_back() -> None:
    program = parse_program(POOLED)
    entry = nodes.Value("e", EntryRef("conns"))
    insert = nodes.Insert("conns", (), ((),), "", entry, "a", "b", SPAN)
    assert accesses_of(program, insert) == (("conns", "insert"), ("ports", "insert"))
    assert accesses_of(program, nodes.Delete(entry, SPAN)) == (("conns", "delete"), ("ports", "delete"))
    assert accesses_of(program, nodes.Touch(entry, "", SPAN)) == (("conns", "touch"),)
    assert accesses_of(program, nodes.Count("c", None, None, SPAN)) == (("c", "count"),)


def test_sizes_of_entries() -> None:
    program = parse_program(POOLED)
    # src 4 + x 2, the reverse key x again 2, last use 8.
    assert entry_bytes(program.state("conns")) == 16
    assert capacity_of(program.state("ports")) == 1024
    assert capacity_of(program.state("c")) == 3
