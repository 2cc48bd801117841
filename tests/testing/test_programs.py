"""Generated programs load, read back, and use the whole language."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from kit import steady

from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.ir import nodes
from cora.ir.text import parse_program, print_program
from cora.ir.types import bits_of
from cora.testing import Generated, generate, nf_programs, nf_texts
from cora.testing.choices import RandomChoices
from cora.testing.programs import PATTERNS, headers_of, paths_of, write_program

SEEDS = range(100)


@pytest.fixture(scope="module")
def programs() -> list[Generated]:
    return [generate(seed) for seed in SEEDS]


def test_programs_survive_printing_and_parsing(programs: list[Generated]) -> None:
    for case in programs:
        assert parse_program(print_program(case.program)) == case.program


@given(nf_programs())
@steady(15)
def test_programs_that_hypothesis_draws_load(case: Generated) -> None:
    assert parse_program(print_program(case.program)) == case.program


def test_a_seed_always_gives_the_same_text() -> None:
    for seed in (0, 7, 1 << 40):
        assert write_program(RandomChoices(seed)) == write_program(RandomChoices(seed))


def test_every_kind_of_node_comes_up(programs: list[Generated]) -> None:
    seen: set[type] = {type(node) for case in programs for block in case.program.blocks
            for node in (*block.instructions, block.terminator)}
    seen |= {type(state) for case in programs for state in case.program.states}
    wanted = {*nodes.Instruction.__args__, *nodes.Terminator.__args__, *nodes.State.__args__}
    # A punt stands in the parts of split programs only.
    assert wanted - {nodes.Punt} <= seen


def test_every_operator_table_feature_and_field_comes_up(programs: list[Generated]) -> None:
    found = [n for case in programs for b in case.program.blocks for n in (*b.instructions, b.terminator)]
    assert {n.op for n in found if isinstance(n, nodes.Binary)} == {
        "add", "sub", "mul", "div", "mod", "and", "or", "xor", "shl", "shr", "min", "max"}
    assert {n.op for n in found if isinstance(n, nodes.Compare)} == {"eq", "ne", "lt", "le", "gt", "ge"}
    assert {bits_of(n.result.type) for n in found if isinstance(n, nodes.Binary)} >= {1, 8, 16, 32, 48, 64, 65, 128}
    states = [s for case in programs for s in case.program.states]
    maps = [s for s in states if isinstance(s, nodes.MapState)]
    assert {m.full for m in maps} == {"reject", "pass", "evict_lru"}
    assert {len(m.keys) for m in maps} == {1, 2}
    assert {len(m.allocs) for m in maps} >= {0, 1, 2}
    assert {len(m.timeouts) for m in maps} == {0, 1, 2, 3}
    assert {s.algorithm for s in states if isinstance(s, nodes.MeterState)} == {"token_bucket", "srtcm", "trtcm"}
    assert {(s.preserve, len(s.ranges)) for s in states if isinstance(s, nodes.PoolState)} >= {
        (False, 1), (True, 1), (False, 2), (True, 2)}
    assert {k for s in states if isinstance(s, nodes.AclState) for k in s.kinds} == {"exact", "ternary", "range"}
    stored = {(n.header, n.field) for n in found if isinstance(n, nodes.Store)}
    assert {h for h, _ in stored} >= {"eth", "vlan", "arp", "ipv4", "ipv6", "tcp", "udp", "l4", "icmp", "icmp6",
                                      "quoted.ipv4", "quoted.ipv6", "quoted.l4", "quoted.icmp"}


def test_every_header_pattern_comes_up_and_is_accepted() -> None:
    for pattern in PATTERNS:
        nf.loads(f"nf x {{ port a: wire; fragments ignore; on a(p: {pattern}) {{ drop \"x\"; }} }}")
    texts = "\n".join(write_program(RandomChoices(seed)) for seed in range(300))
    assert [p for p in PATTERNS if f": {p})" not in texts] == []


def test_headers_of_a_pattern_are_those_of_all_its_paths() -> None:
    assert paths_of("eth/(ipv4|ipv6)/(tcp|udp)") == [
        ("eth", "ipv4", "tcp"), ("eth", "ipv4", "udp"), ("eth", "ipv6", "tcp"), ("eth", "ipv6", "udp")]
    assert headers_of("eth/(ipv4|ipv6)/(tcp|udp)") == {"eth", "l4"}
    assert headers_of("eth/ipv4/icmp/quoted/ipv4/udp") == {
        "eth", "ipv4", "icmp", "quoted.ipv4", "quoted.udp", "quoted.l4"}


def test_without_hypothesis_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(CoraError) as caught:
        nf_texts()
    assert caught.value.diagnostics[0].kind == Kind.MISSING_LIBRARY
    assert "cora-nf[test]" in caught.value.render()
    # Everything that works from a seed does without it.
    assert generate(3).text
