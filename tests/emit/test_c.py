"""The emitted C: what it looks like, that the compiler has nothing to say about it, and tables computed beforehand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cora.emit.c import RUNTIME, emit_host
from cora.emit.host_common import key_words
from cora.emit.host_static import lpm_ranges
from cora.emit.layout import row_of
from cora.emit.names import literal
from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.ir.nodes import FieldDecl, LpmEntry, LpmState, MapState, PoolRange, PoolState
from cora.ir.span import Span
from cora.ir.types import BOOL, U8, U16, U32, U64, U128, Type, UInt, bits_of
from cora.testing import generate

AT = Span("test.nf", 1, 1, 1, 2)
EXAMPLES = sorted((Path(__file__).resolve().parent.parent.parent / "examples").glob("*.nf"))
BUILDS: tuple[list[str], ...] = ([], ["-DCORA_PROFILE"], ["-DCORA_MAIN", "-DCORA_EXACT_FRAMES"])

LITTLE = """nf little {
  port a: wire;
  port b: wire;
  config limit: u16 = 3;
  map hosts {
    entry { src: ipv4, packets: u16 }
    key k = src;
    timeout 5s;
    capacity 10;
    full reject;
    exact;
    order strict;
  }
  fragments ignore;
  unparsed drop;
  verify ipv4.checksum;
  on a(p: eth/ipv4) {
    lookup hosts.k[p.ip.src] {
      hit e {
        if e.packets >= limit { drop "enough"; }
        e.packets = e.packets + 1;
        touch e;
        p.ip.ttl = p.ip.ttl - 1;
        forward b;
      }
      miss { insert hosts { src: p.ip.src, packets: 1 } { ok { forward b; } full { drop "full"; } } }
    }
  }
  on a(p: eth) { drop "not IPv4"; }
  on b(p: eth) { forward a; }
}
"""


def test_emitted_file(golden: Callable[[str, str], None]) -> None:
    golden("little.c", emit_host(nf.loads(LITTLE, "little.nf")))


def test_file_depends_on_neither_place_nor_configuration() -> None:
    here = emit_host(nf.loads(LITTLE, "little.nf"))
    assert emit_host(nf.loads(LITTLE, "/somewhere/else/little.nf")) == here
    assert emit_host(nf.loads(LITTLE, "little.nf", {"limit": "9"})) == here


def warnings_of(text: str, flags: list[str], folder: Path) -> str:
    source = folder / "program.c"
    source.write_text(text)
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-c", "-fPIC", f"-I{RUNTIME}", *flags, str(source),
               "-o", str(folder / "program.o")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stderr if run.returncode == 0 else f"failed:\n{run.stderr}"


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_examples_compile_without_warnings(example: Path, tmp_path: Path) -> None:
    text = emit_host(nf.load(example))
    for flags in BUILDS if "." in example.stem else BUILDS[:1]:
        assert warnings_of(text, list(flags), tmp_path) == ""


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_compile_without_warnings(seed: int, tmp_path: Path) -> None:
    assert warnings_of(emit_host(generate(seed).program), list(BUILDS[seed % 3]), tmp_path) == ""


def test_names_that_are_c_words_or_end_a_comment(tmp_path: Path) -> None:
    text = LITTLE.replace("packets", "register").replace("hosts", "int").replace("limit", "struct")
    text = text.replace('"enough"', '"*/ enough /*"')
    emitted = emit_host(nf.loads(text, "*/x.nf"))
    assert "*/ enough" not in emitted and "*/x" not in emitted


@pytest.mark.needs("gcc")
def test_a_reason_that_ends_a_comment_compiles(tmp_path: Path) -> None:
    text = LITTLE.replace('"enough"', '"*/ #error /*"').replace("packets", "register").replace("hosts", "int")
    assert warnings_of(emit_host(nf.loads(text, "*/x.nf")), [], tmp_path) == ""


def test_a_pool_beyond_the_engine_is_refused() -> None:
    program = nf.loads(LITTLE)
    pool = PoolState("big", (PoolRange("a", U32, 0, 2**32 - 1, AT), PoolRange("p", U16, 0, 9, AT)), False, False, AT)
    with pytest.raises(CoraError) as caught:
        emit_host(replace(program, states=(*program.states, pool)))
    assert caught.value.diagnostics[0].kind is Kind.ENGINE_LIMIT


# --- pieces ---


def test_longest_prefix_ranges_against_a_search() -> None:
    entries = tuple(LpmEntry(v, n, (i,), AT) for i, (v, n) in enumerate(
        [(0, 0), (0x80, 1), (0x80, 3), (0x88, 5), (0x88, 8), (0xFF, 8), (0, 8), (0x40, 2), (0x7F, 8)]))
    for chosen in (entries, entries[1:], entries[::-1], entries[3:4], ()):
        state = LpmState("t", FieldDecl("k", U8, AT), (FieldDecl("v", U8, AT),), tuple(chosen), 16, AT)
        ranges = lpm_ranges(state)
        assert ranges[0].first == 0 and [r.first for r in ranges] == sorted({r.first for r in ranges})
        for key in range(256):
            matching = [i for i, e in enumerate(chosen) if key >> 8 - e.length == e.value >> 8 - e.length]
            best = max(matching, key=lambda i: chosen[i].length, default=None)
            assert [r.entry for r in ranges if r.first <= key][-1] == best, key


def test_a_key_is_hashed_with_all_its_bits() -> None:
    program = nf.loads(LITTLE)
    state = next(s for s in program.states if isinstance(s, MapState))
    fields: list[tuple[str, Type]] = [("a", U16), ("b", U128), ("c", BOOL), ("d", UInt(100)), ("e", U32), ("f", U64)]
    words = key_words(fields, state)
    assert len(words) % 2 == 0

    def hashed(values: dict[str, int]) -> list[int]:
        expressions = [w.replace("(uint64_t)", "M&") for w in words]
        return [eval(e, {"M": 2**64 - 1, **values}) for e in expressions]

    base = {name: 0 for name, _ in fields}
    for name, type_ in fields:
        for bit in range(bits_of(type_)):
            assert hashed({**base, name: 1 << bit}) != hashed(base), (name, bit)
            assert sum(w.bit_count() for w in hashed({**base, name: 1 << bit})) == 1


def test_literals_keep_their_value() -> None:
    assert [literal(v, t) for v, t in ((1, BOOL), (7, U8), (70000, U32), (70000, U64), (5, U128))] == [
        "true", "7u", "0x11170u", "0x11170ull", "(cora_u128)5u"]
    assert literal(2**100 + 3, U128) == "((cora_u128)0x1000000000u << 64 | 0x3u)"


def test_rows_pack_and_unpack() -> None:
    row = row_of([("a", 1), ("b", 8), ("c", 16)])
    values = {"a": 255, "b": 2**64 - 1, "c": 2**127 + 1}
    data = row.pack(values)
    assert (len(data), row.size) == (25, 25) and row.unpack(b"xx" + data, 2) == values
    assert int.from_bytes(data[1:9], sys.byteorder) == values["b"]
    with pytest.raises(OverflowError):
        row.pack({**values, "a": 256})


def test_a_pool_of_wide_values_is_refused_for_its_width() -> None:
    text = ("nf x { port a: wire; pool w: u100 in 1 .. 9; "
            "map m { entry { k: u8, v: u100 = alloc w } key = k; capacity 4; } "
            'on a(p: eth) { insert m { k: 1 } { ok { forward a; } full { drop "full"; } } } }')
    with pytest.raises(CoraError, match="values of type u100"):
        emit_host(nf.loads(text))
