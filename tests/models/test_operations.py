"""Operation counts of nodes, against counts made by hand."""

from __future__ import annotations

import pytest
from state_zoo import ENTRY, FLAG, SPAN, A, B, block

from cora.ir import nodes
from cora.ir.nodes import Instruction, Terminator, Value
from cora.ir.types import U64, U128
from cora.models.operations import NODE_OPERATIONS, OPERATIONS, block_operations, checksums_of, node_operations

WIDE = Value("w", U128)
LONG = Value("l", U64)

CASES: tuple[tuple[Instruction | Terminator, int, dict[str, int]], ...] = (
    (nodes.Compare(FLAG, "eq", WIDE, WIDE, SPAN), 32, {"word": 5}),
    (nodes.Compare(FLAG, "eq", WIDE, WIDE, SPAN), 64, {"word": 3}),
    (nodes.Binary(WIDE, "xor", WIDE, WIDE, SPAN), 32, {"word": 4}),
    (nodes.Binary(A, "mod", A, B, SPAN), 32, {"divide": 1}),
    (nodes.Binary(LONG, "div", LONG, LONG, SPAN), 32, {"divide": 4}),
    (nodes.Binary(LONG, "mul", LONG, LONG, SPAN), 32, {"multiply": 3, "word": 1}),
    (nodes.Binary(LONG, "mul", LONG, LONG, SPAN), 64, {"multiply": 1}),
    (nodes.Load(A, "ipv4", "src", SPAN), 32, {"field_read": 1}),
    (nodes.Load(A, "vlan", "vid", SPAN), 32, {"field_read": 1, "word": 2}),
    # Two 16-bit words under the header checksum and the transport checksum.
    (nodes.Store("ipv4", "src", A, SPAN), 32, {"field_write": 1, "checksum": 4}),
    (nodes.Extract("ipv4", 0, True, False, (), SPAN), 32, {"header": 1, "branch": 1, "sum_word": 10}),
    # Resume point and port, and an address and a long value on words of 32 bits.
    (nodes.Punt("host", 0, (A, LONG), SPAN), 32, {"word": 5}),
    (nodes.Lookup("flows", "fwd", (A, LONG), ENTRY, "hit", "miss", SPAN), 32, {"word": 3, "branch": 1}),
)


@pytest.mark.parametrize(("node", "bits", "expected"), CASES, ids=[f"{c[0].mnemonic}-{i}" for i, c in enumerate(CASES)])
def test_counts(node: Instruction | Terminator, bits: int, expected: dict[str, int]) -> None:
    assert {k: n for k, n in node_operations(node, bits).items() if n} == expected


def test_every_node_of_the_ir_has_a_row() -> None:
    assert set(NODE_OPERATIONS) == {*Instruction.__args__, *Terminator.__args__}


def test_a_block_is_the_sum_of_its_nodes() -> None:
    made = block(nodes.Load(A, "ipv4", "src", SPAN), nodes.Store("ipv4", "dst", A, SPAN))
    assert dict(block_operations(made, 32)) == {"field_read": 1, "word": 2, "field_write": 1, "checksum": 4}
    assert set(block_operations(made, 32)) <= set(OPERATIONS)


@pytest.mark.parametrize(("header", "name", "count"), [
    ("eth", "dst", 0), ("ipv4", "ttl", 1), ("ipv4", "dst", 2), ("ipv6", "src", 1), ("ipv6", "hop_limit", 0),
    ("udp", "sport", 1), ("quoted.ipv4", "src", 3), ("quoted.udp", "sport", 2), ("icmp", "id", 1)])
def test_checksums_that_a_store_updates(header: str, name: str, count: int) -> None:
    assert checksums_of(header, name) == count
