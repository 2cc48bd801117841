"""What IR nodes are made of: the operations every processor's cost table prices.

One table, `NODE_OPERATIONS`, says for each node how many of which operation it takes on a machine with words of a given
width; a target prices the operations from its ``model.toml``. Micro-programs of calibration files are written in the
same operations, so they are priced by the same code.

Operations:
    word: one ALU instruction on one machine word (also a constant, a move, a mask).
    branch: one taken branch.
    multiply, divide: of two one-word numbers; a divide that is no shift is a library routine on small cores.
    field_read, field_write: one header field (per word of it).
    checksum: one RFC 1624 update by one 16-bit word.
    header: checks and locates one header.
    sum_word: one 16-bit word of a checksum computed in full.
    icmp_error: builds and sends one ICMP error.
    fragment: one packet through the fragment tracker's own logic.

Table accesses are priced by `Target.access`; a block only pays for gathering the key and for its branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from cora.ir.headers import QUOTED, field_of
from cora.ir.nodes import (
    Binary,
    Block,
    Branch,
    Cast,
    Compare,
    Const,
    Count,
    Delete,
    Drop,
    Extract,
    Forward,
    HasHeader,
    Hold,
    Insert,
    Instruction,
    IsFragment,
    Jump,
    Load,
    LoadConfig,
    LoadEntry,
    Lookup,
    Meta,
    Police,
    Punt,
    Reject,
    Select,
    Store,
    StoreEntry,
    Switch,
    Terminator,
    Touch,
    TrackFragment,
    Unary,
    operands_of,
)
from cora.ir.types import EntryRef, Type, bits_of

Operations = Mapping[str, float]

OPERATIONS = ("word", "branch", "multiply", "divide", "field_read", "field_write", "checksum", "header", "sum_word",
              "icmp_error", "fragment")

IPV4_HEADER_WORDS = 10


def words(type_: Type, word_bits: int) -> int:
    """Machine words that hold a value; a reference is one."""
    return 1 if isinstance(type_, EntryRef) else -(-bits_of(type_) // word_bits)


# Blocks by identity: hashing a block by its contents costs more than counting it. The block is kept so that its
# identity stays its own.
_counted: dict[tuple[int, int], tuple[Block, Operations]] = {}
_COUNTED_LIMIT = 20_000


def block_operations(block: Block, word_bits: int) -> Operations:
    """Operations of a block: its instructions and its terminator."""
    key = (id(block), word_bits)
    if key not in _counted:
        total: Counter[str] = Counter()
        for node in (*block.instructions, block.terminator):
            total.update(node_operations(node, word_bits))
        if len(_counted) >= _COUNTED_LIMIT:
            _counted.clear()
        _counted[key] = (block, total)
    return _counted[key][1]


def node_operations(node: Instruction | Terminator, word_bits: int) -> dict[str, int]:
    """Operations of one node on words of ``word_bits`` bits."""
    return NODE_OPERATIONS[type(node)](node, word_bits)


# Instructions per word of each binary operator; multiplication and division are operations of their own.
_BINARY_WORDS = {"add": 1, "sub": 1, "and": 1, "or": 1, "xor": 1, "min": 3, "max": 3}


def _binary(node: Binary, bits: int) -> dict[str, int]:
    n = words(node.result.type, bits)
    if node.op == "mul":
        return {"multiply": n * (n + 1) // 2, "word": n - 1}
    if node.op in ("div", "mod"):
        return {"divide": n * n}
    if node.op in ("shl", "shr"):
        return {"word": 1 if n == 1 else 3 * n}
    return {"word": _BINARY_WORDS[node.op] * n}


def _load(node: Load, bits: int) -> dict[str, int]:
    found = field_of(node.header, node.field)
    aligned = found is None or (found.bit % 8 == 0 and found.bits % 8 == 0)
    return {"field_read": words(node.result.type, bits), "word": 0 if aligned else 2}


def _store(node: Store, bits: int) -> dict[str, int]:
    size = bits_of(node.value.type)
    return {"field_write": words(node.value.type, bits),
            "checksum": checksums_of(node.header, node.field) * -(-size // 16)}


def checksums_of(header: str, field: str) -> int:
    """Checksums that a store to a field updates at most (section 3 of the semantics)."""
    kind = header.removeprefix(QUOTED)
    outer = 1 if header.startswith(QUOTED) else 0
    address = field in ("src", "dst")
    own = {"eth": 0, "vlan": 0, "arp": 0, "ipv4": 1 + address, "ipv6": int(address)}.get(kind, 1)
    return own + outer


def _extract(node: Extract, bits: int) -> dict[str, int]:
    return {"header": 1, "branch": 1, "sum_word": IPV4_HEADER_WORDS * node.verify, "word": 2 * node.source_route}


def _gather(node: Lookup | Insert | Police, bits: int) -> dict[str, int]:
    return {"word": sum(words(v.type, bits) for v in operands_of(node)), "branch": 1}


# The table. Where a count depends on data the likelier or the dearer way is taken, as the comment says.
NODE_OPERATIONS: dict[type, Callable[[Any, int], dict[str, int]]] = {
    Const: lambda n, b: {"word": words(n.result.type, b)},
    Unary: lambda n, b: {"word": words(n.result.type, b)},
    Binary: _binary,
    Compare: lambda n, b: {"word": 1 + words(n.left.type, b)},
    Cast: lambda n, b: {"word": words(n.result.type, b)},
    Select: lambda n, b: {"word": 1 + 2 * words(n.result.type, b)},
    LoadConfig: lambda n, b: {"word": words(n.result.type, b)},
    Meta: lambda n, b: {"word": words(n.result.type, b)},
    Load: _load,
    Store: _store,
    # Priced as accesses.
    LoadEntry: lambda n, b: {},
    StoreEntry: lambda n, b: {},
    Touch: lambda n, b: {},
    Delete: lambda n, b: {},
    Count: lambda n, b: {"word": 1},
    Jump: lambda n, b: {"branch": 1, "word": sum(words(v.type, b) for v in n.args)},
    # Taken, the dearer outcome.
    Branch: lambda n, b: {"word": 1, "branch": 1},
    # A comparison chain, left half-way on average.
    Switch: lambda n, b: {"word": (1 + len(n.cases)) // 2 * words(n.value.type, b), "branch": 1},
    HasHeader: lambda n, b: {"word": 1, "branch": 1},
    Extract: _extract,
    IsFragment: lambda n, b: {"word": 2, "branch": 1},
    TrackFragment: lambda n, b: {"fragment": 1, "branch": 1},
    Lookup: _gather,
    Insert: _gather,
    Police: _gather,
    Forward: lambda n, b: {"word": 2},
    # The reason's counter is part of the packet's base cost.
    Drop: lambda n, b: {"word": 1},
    Reject: lambda n, b: {"icmp_error": 1},
    Hold: lambda n, b: {"word": 1},
    # The values go into the header that travels along; the crossing itself is the target's to price.
    Punt: lambda n, b: {"word": 2 + sum(words(v.type, b) for v in n.values)},
}
