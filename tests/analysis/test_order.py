"""`order strict`: which ends packets of one flow can reach."""

from __future__ import annotations

from pathlib import Path

from cora.analysis.order import ordered_ends
from cora.frontends.nf import load
from cora.ir.nodes import Forward

SOURCE = """nf t {
  port inside: wire;
  port outside: wire;
  map seen {
    entry { src: ipv4, packets: u32 }
    key k = src;
    timeout 60s slack 1s;
    capacity 100;
    full reject;
    exact;
    order ORDER;
  }
  on inside(p: eth/ipv4) {
    lookup seen.k[p.ip.src] {
      hit e { forward outside; }
      miss {
        insert seen { src: p.ip.src, packets: 0 } {
          ok e { forward outside; }
          full { drop "full"; }
        }
      }
    }
  }
  on inside(p: eth) { forward outside; }
  on outside(p: eth) { forward inside; }
  unparsed drop;
}
"""


def ends(tmp_path: Path, order: str) -> list[set[str]]:
    path = tmp_path / "t.nf"
    path.write_text(SOURCE.replace("ORDER", order))
    program = load(path)
    forwards = {b.label for b in program.blocks if isinstance(b.terminator, Forward)}
    groups = [set(g.blocks) for g in ordered_ends(program)]
    assert all(g <= forwards for g in groups), "only blocks that forward count"
    return groups


def test_packets_that_make_an_entry_and_those_that_find_it_end_together(tmp_path: Path) -> None:
    groups = ends(tmp_path, "strict")
    assert len(groups) == 1
    # The packets that are no IPv4, and those from the other side, never meet an entry.
    program = load(tmp_path / "t.nf")
    lines = {b.terminator.span.line for b in program.blocks if b.label in groups[0]}
    assert lines == {15, 18}


def test_weak_order_ties_nothing(tmp_path: Path) -> None:
    assert ends(tmp_path, "weak") == []
