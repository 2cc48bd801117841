"""Pieces of the host dialect that all kinds of tables share: entry structures, key hashes, look-ups, packed rows."""

from __future__ import annotations

from collections.abc import Sequence

from cora.emit.layout import Row
from cora.emit.names import value_type
from cora.errors import Kind, fail
from cora.ir.nodes import FieldDecl, MapState, MeterState
from cora.ir.types import Type, bits_of

Lines = list[str]

# A key's words must have seeds of their own (CORA_SEED_WORDS in core.h, less the two of the final mixing).
_KEY_WORDS = 62
MAX_ENTRIES = 2**31 - 1


def check_capacity(state: MapState | MeterState) -> None:
    """Entries are numbered with 32 bits.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT`.
    """
    if not 1 <= state.capacity <= MAX_ENTRIES:
        raise fail(Kind.ENGINE_LIMIT,
                   f"{state.name} has capacity {state.capacity}, the native engine takes 1 to {MAX_ENTRIES}",
                   span=state.span, hint="lower the capacity")


def parameters(fields: Sequence[tuple[str, Type]]) -> str:
    """A C parameter list."""
    return ", ".join(f"{value_type(t)} {name}" for name, t in fields)


def arguments(items: Sequence[str]) -> str:
    """What follows a first argument."""
    return "".join(f", {i}" for i in items)


def struct_members(members: Sequence[tuple[int, str]]) -> Lines:
    """Members of a structure given as (bytes, declaration), widest first so that there are no holes."""
    return [f"    {text}" for _, text in sorted(members, key=lambda m: -m[0])]


def alignment(members: Sequence[tuple[int, str]]) -> int:
    """An entry of up to 64 bytes never straddles cache lines, a larger one starts on one."""
    used = sum(size for size, _ in members)
    return next((a for a in (16, 32, 64) if used <= a), 64)


def key_words(fields: Sequence[tuple[str, Type]], where: MapState | MeterState) -> list[str]:
    """The key as 64-bit words (C expressions), an even number of them: what is hashed.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` for a key with too many bits.
    """
    words: list[tuple[int, list[str]]] = []
    for name, bits in _chunks(fields):
        at = next((i for i, (used, _) in enumerate(words) if used + bits <= 64), None)
        if at is None:
            words.append((0, []))
            at = len(words) - 1
        used, parts = words[at]
        parts.append(f"(uint64_t){name} << {used}" if used else f"(uint64_t){name}")
        words[at] = used + bits, parts
    if len(words) > _KEY_WORDS:
        raise fail(Kind.ENGINE_LIMIT, f"a key of {where.name} has more than {64 * _KEY_WORDS} bits", span=where.span)
    texts = [" | ".join(parts) for _, parts in words]
    return texts + ["0"] * (len(texts) % 2)


def _chunks(fields: Sequence[tuple[str, Type]]) -> list[tuple[str, int]]:
    """Pieces of at most 64 bits, widest first."""
    out: list[tuple[str, int]] = []
    for name, type_ in fields:
        bits = bits_of(type_)
        if bits > 64:
            out += [(f"({name} >> 64)", bits - 64), (name, 64)]
        else:
            out.append((name, bits))
    return sorted(out, key=lambda c: -c[1])


def hash_function(name: str, fields: Sequence[tuple[str, Type]], where: MapState | MeterState) -> Lines:
    """``name(E, key fields)``: the keyed hash."""
    words = key_words(fields, where)
    pairs = [f"cora_nh(seed, {i // 2}, {words[i]}, {words[i + 1]})" for i in range(0, len(words), 2)]
    total = " +\n        ".join(pairs)
    return [
        f"static inline uint64_t {name}(const struct cora_engine *E, {parameters(fields)})",
        "{",
        "    const uint64_t *seed = E->core.seed;",
        f"    return cora_mix(seed, {total});",
        "}",
    ]


def find_function(name: str, table: str, index: str, fields: Sequence[tuple[str, Type]]) -> Lines:
    """``name(E, hash, key fields)``: the entry with this key, or CORA_NONE."""
    equal = " && ".join(f"e->{n} == {n}" for n, _ in fields)
    return [
        f"static inline uint32_t {name}(const struct cora_engine *E, uint64_t hash, {parameters(fields)})",
        "{",
        f"    struct cora_probe probe = cora_index_probe(&E->{table}.{index}, hash);",
        "    uint32_t at;",
        f"    while ((at = cora_index_next(&E->{table}.{index}, &probe)) != CORA_NONE) {{",
        f"        const struct {table}_entry *e = &E->{table}.entries[at];",
        f"        if (CORA_LIKELY({equal}))",
        "            break;",
        "    }",
        "    return at;",
        "}",
    ]


def grow_function(name: str, table: str, index: str, hash_call: str) -> Lines:
    """``name(E)``: twice the buckets; ``hash_call`` hashes the entry ``e``."""
    return [
        f"CORA_COLD void {name}(struct cora_engine *E)",
        "{",
        f"    struct cora_index old = E->{table}.{index};",
        f"    cora_index_init(&E->{table}.{index}, 2 * (old.mask + 1));",
        f"    for (uint32_t at = 0; at < E->{table}.slots.top; at++) {{",
        f"        const struct {table}_entry *e = &E->{table}.entries[at];",
        "        if (e->live)",
        f"            cora_index_add(&E->{table}.{index}, {hash_call}, at);",
        "    }",
        "    cora_index_close(&old);",
        "}",
    ]


def typed(fields: Sequence[FieldDecl], name: dict[str, str]) -> list[tuple[str, Type]]:
    """(C name, type) of declared fields."""
    return [(name[f.name], f.type) for f in fields]


def copies_out(row: Row, source: dict[str, str]) -> Lines:
    """Copies of an entry's members to the row at ``out``; ``source`` gives the C lvalue of each row field."""
    return [f"memcpy(out + {f.offset}, &{source[f.name]}, {f.size});" for f in row.fields]


def copies_in(row: Row, target: dict[str, str]) -> Lines:
    """The opposite of `copies_out`: from the row at ``row``."""
    return [f"memcpy(&{target[f.name]}, row + {f.offset}, {f.size});" for f in row.fields]
