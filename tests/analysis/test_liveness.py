"""Live values on the edges of hand-written programs."""

from __future__ import annotations

from cora.analysis.liveness import bytes_of_values, liveness_of
from cora.ir.text import parse_program
from cora.ir.verify import verify

TEXT = """
program p file "p.nf" @1:1-9:1
port wire faces (wire) @2:1-2:2
config limit : u32 = 9 "9" @2:3-2:4
map m capacity 4 slack 0 full reject exact strict_order - @3:1-3:2
  field k : u32 @3:3-3:4
  field v : u16 @3:5-3:6
  key main (k) @3:7-3:8
block entry () @4:1-4:2
  %size : u32 = meta size @4:3-4:4
  %max : u32 = config limit @4:3-4:4
  %one : u32 = const 1 @4:3-4:4
  %over : bool = compare gt %size %max @4:3-4:4
  branch %over big small @4:5-4:6
block big () @5:1-5:2
  %twice : u32 = binary add %size %one @5:3-5:4
  jump both (%twice) @5:5-5:6
block small () @6:1-6:2
  jump both (%size) @6:3-6:4
block both (%x : u32) @7:1-7:2
  lookup m "main" (%x) hit %e : ref<m> hit_it miss miss_it @7:3-7:4
block hit_it () @8:1-8:2
  %v : u16 = load_entry %e v @8:3-8:4
  %known : bool = compare eq %x %max @8:5-8:6
  branch %known send miss_it_2 @8:7-8:8
block send () @8:9-8:10
  store eth src %mac @8:11-8:12
  forward wire @8:13-8:14
block miss_it_2 () @9:1-9:2
  drop "b" @9:3-9:4
block miss_it () @9:5-9:6
  drop "a" @9:7-9:8
""".replace('  store eth src %mac @8:11-8:12\n', "")


def names(values: object) -> list[str]:
    return sorted(v.name for v in values)  # type: ignore[attr-defined]


def test_edges_carry_what_is_used_behind_them() -> None:
    program = verify(parse_program(TEXT))
    live = liveness_of(program)
    blocks = {b.label: b for b in program.blocks}
    assert names(live.on_edge(blocks["entry"], "big")) == ["size"]
    assert names(live.on_edge(blocks["entry"], "small")) == ["size"]
    assert names(live.on_edge(blocks["big"], "both")) == ["twice"]
    assert names(live.on_edge(blocks["small"], "both")) == ["size"]
    assert names(live.on_edge(blocks["both"], "hit_it")) == ["e", "x"]
    assert names(live.on_edge(blocks["both"], "miss_it")) == []


def test_inside_a_block() -> None:
    program = verify(parse_program(TEXT))
    live = liveness_of(program)
    blocks = {b.label: b for b in program.blocks}
    assert names(live.before(blocks["hit_it"], 0)) == ["e", "x"]
    assert names(live.before(blocks["hit_it"], 1)) == ["x"]
    assert names(live.before(blocks["hit_it"], 2)) == ["known"]


def test_bytes_leave_out_references() -> None:
    program = verify(parse_program(TEXT))
    live = liveness_of(program)
    blocks = {b.label: b for b in program.blocks}
    assert bytes_of_values(live.on_edge(blocks["both"], "hit_it")) == 4
    assert bytes_of_values(live.before(blocks["hit_it"], 2)) == 1
