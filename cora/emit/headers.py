"""C for loads and stores of header fields, with the checksum updates of docs/semantics.md section 3."""

from __future__ import annotations

from collections.abc import Mapping

from cora.errors import Kind, fail
from cora.ir.headers import QUOTED, HeaderField, field_of
from cora.ir.nodes import Load, Store

# Where a header begins, as a C pointer.
HOST_BASES: Mapping[str, str] = {
    "eth": "p->data", "vlan": "p->data + 14", "arp": "p->data + p->l3", "ipv4": "p->data + p->l3",
    "ipv6": "p->data + p->l3", "tcp": "p->l4_header", "udp": "p->l4_header", "icmp": "p->l4_header",
    "icmp6": "p->l4_header", "l4": "p->l4_header",
    **dict.fromkeys(("quoted.ipv4", "quoted.ipv6"), "p->data + p->quoted"),
    **dict.fromkeys(("quoted.tcp", "quoted.udp", "quoted.icmp", "quoted.icmp6", "quoted.l4"), "p->data + p->quoted_l4")}
_COMPUTED = {("eth", "type"): "p->eth_type", ("eth", "tags"): "p->tags", ("ipv6", "proto"): "p->upper",
             ("quoted.ipv6", "proto"): "p->quoted_upper"}
# Offset of the checksum in an upper-layer header, and whether the UDP rule applies.
_UPPER_SUMS = {"tcp": "16, false", "udp": "6, true", "icmp": "2, false", "icmp6": "2, false"}


def present_flag(header: str) -> str:
    """The CORA_HAS_* macro of a header instance."""
    return "CORA_HAS_" + header.replace(".", "_").upper()


def extract_call(header: str, limit: int, *, verify: bool, source_route: bool) -> str:
    """The call that extracts a header and gives a cora_outcome."""
    arguments = {"eth": f", {limit}", "ipv6": f", {limit}", "quoted.ipv6": f", {limit}",
                 "ipv4": f", {str(verify).lower()}, {str(source_route).lower()}"}
    return f"cora_extract_{header.replace('.', '_')}(p{arguments.get(header, '')})"


def load_expression(node: Load, bases: Mapping[str, str] = HOST_BASES) -> str:
    """The value of a header field; the header lies inside the captured bytes because its extraction checked it."""
    computed = _COMPUTED.get((node.header, node.field))
    if computed is not None:
        return computed
    field = _field(node)
    first, lead = divmod(field.bit, 8)
    if lead == 0 and field.bits in (8, 16, 32, 48, 64, 128):
        return f"cora_get{field.bits}({_at(bases, node.header, first)})"
    size = next(s for s in (8, 16, 32) if lead + field.bits <= s)
    shift = size - lead - field.bits
    word = f"cora_get{size}({_at(bases, node.header, first)})"
    shifted = f"{word} >> {shift}" if shift else word
    return f"{shifted} & {(1 << field.bits) - 1:#x}"


def store_statements(node: Store, value: str, bases: Mapping[str, str] = HOST_BASES) -> list[str]:
    """Statements that write a field and bring every checksum over it up to date."""
    store = _store_call(node, value, bases)
    update = _updates(node)
    if not update:
        return [f"{store};"]
    return ["{", f"    uint64_t change = {store};", *(f"    {u}" for u in update), "}"]


def store_change(node: Store, value: str, bases: Mapping[str, str] = HOST_BASES) -> str:
    """The call that writes a field and gives the change of its words, for a checksum that is updated later."""
    return _store_call(node, value, bases)


def _field(node: Load | Store) -> HeaderField:
    field = field_of(node.header, node.field)
    if field is None:
        raise fail(Kind.IR_INVALID, f"{node.header} has no field {node.field}", span=node.span)
    return field


def _at(bases: Mapping[str, str], header: str, offset: int) -> str:
    return f"{bases[header]} + {offset}" if offset else bases[header]


def _store_call(node: Store, value: str, bases: Mapping[str, str]) -> str:
    """Writes over the 16-bit words the field lies in and gives their change."""
    field = _field(node)
    word, lead = divmod(field.bit, 16)
    at = _at(bases, node.header, 2 * word)
    if lead == 0 and field.bits == 48:
        return f"cora_put48({at}, {value})"
    if lead == 0 and field.bits in (16, 32, 128):
        return f"cora_store{field.bits}({at}, {value})"
    size = 16 if lead + field.bits <= 16 else 32
    return f"cora_store_bits{size}({at}, {value}, {size - lead - field.bits}, {(1 << field.bits) - 1:#x})"


def _updates(node: Store) -> list[str]:
    header, address = node.header, node.field in ("src", "dst")
    if header == "ipv4":
        return ["cora_stored_ipv4(p, change);"] + (["cora_stored_address(p, change, false);"] if address else [])
    if header == "ipv6":
        return ["cora_stored_address(p, change, true);"] if address else []
    if header in ("quoted.ipv4", "quoted.ipv6"):
        v6 = str(header == "quoted.ipv6").lower()
        return [f"cora_stored_quoted_ip(p, change, {v6}, {str(address).lower()});"]
    if header == "l4":
        return ["cora_stored_l4(p, change);"]
    if header == "quoted.l4":
        return ["cora_stored_quoted_l4(p, change);"]
    sum_ = _UPPER_SUMS.get(header.removeprefix(QUOTED))
    if sum_ is None:
        return []
    call = "cora_stored_quoted_upper" if header.startswith(QUOTED) else "cora_stored_upper"
    return [f"{call}(p, change, {sum_});"]
