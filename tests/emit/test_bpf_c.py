"""The kernel half's C text: a golden file, the same bytes every time, lines that fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cora.backends.xdp.trials import lending, whole
from cora.emit.bpf import INTERFACE, emit_kernel, punt_meta, sweep_every
from cora.emit.bpf_again import looks_again
from cora.emit.wrapping import WIDTH, wrapped
from cora.frontends.nf import loads
from cora.ir.nodes import Program
from cora.ir.passes.pipeline import STANDARD, run_pipeline

# A pair map with a pool, a counter and a table; a punt where it is split.
SMALL = """
nf small {
  port a: wire;  port b: wire;
  config ext: ipv4 = 203.0.113.1;
  pool numbers: u16 in 1024 .. 2047;
  pair map conns {
    entry { source: ipv4, sport: u16, number: u16 = alloc numbers }
    key fwd = (source, sport);
    key rev = number;
    timeout 60s slack 2s;
    capacity 512;
    full reject;
  }
  counter opened;
  fragments ignore;  unparsed drop;  verify none;
  on a(p: eth/ipv4/udp) {
    lookup conns.fwd[(p.ip.src, p.l4.sport)] {
      hit e { touch e; p.ip.src = ext; p.l4.sport = e.number; forward b; }
      miss {
        insert conns { source: p.ip.src, sport: p.l4.sport } {
          ok e { count opened; p.ip.src = ext; p.l4.sport = e.number; forward b; }
          full { drop "full"; }
        }
      }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}
"""


def small(text: str = SMALL) -> Program:
    return run_pipeline(loads(text, "small.nf"), STANDARD)


def test_the_emitted_kernel_half(golden: Callable[[str, str], None]) -> None:
    for name, text in emit_kernel(whole(small())).items():
        golden(name, text)


def test_the_emitted_near_place(golden: Callable[[str, str], None]) -> None:
    split = next(s for seed in range(40) if (s := lending(small(), seed, entries=100, threshold=2)).lendings)
    for name, text in emit_kernel(split).items():
        golden(f"near_{name}", text)


def test_the_same_program_is_the_same_text_and_no_line_is_too_long() -> None:
    first, second = (emit_kernel(whole(small())) for _ in range(2))
    assert first == second
    assert max(len(line) for text in first.values() for line in text.splitlines()) <= WIDTH


def test_the_interface_tells_both_halves_the_same() -> None:
    split = whole(small())
    text = emit_kernel(split, {"ext": 7})[INTERFACE]
    assert "#define CORA_CONFIG_VALUES {7u}" in text
    assert f"#define CORA_PUNT_META {punt_meta(split)}\n" in text and punt_meta(split) % 4 == 0
    # Half of the slack of two seconds.
    assert sweep_every(split) == 10**9 and "#define CORA_SWEEP_EVERY UINT64_C(1000000000)\n" in text


def test_an_insert_looks_again_only_where_nothing_was_changed() -> None:
    program = small()
    assert len(looks_again(program)) == 1
    assert not looks_again(small(SMALL.replace("      miss {\n", "      miss {\n        p.ip.ttl = 9;\n")))
    assert not looks_again(small(SMALL.replace("source: p.ip.src, sport: p.l4.sport }",
                                               "source: p.ip.dst, sport: p.l4.sport }")))


@pytest.mark.parametrize(("line", "pieces"), [
    ("short", ["short"]),
    ("    if (" + " && ".join(f"condition_{i}" for i in range(12)) + ")",
     ["    if (" + " && ".join(f"condition_{i}" for i in range(7)) + " &&",
      "        " + " && ".join(f"condition_{i}" for i in range(7, 12)) + ")"]),
    ("/* " + "word, " * 40 + "*/", ["/* " + "word, " * 40 + "*/"]),
    ("x" * 150, ["x" * 150]),
])
def test_long_lines_are_broken_behind_separators(line: str, pieces: list[str]) -> None:
    assert list(wrapped(line)) == pieces
