"""Several CPUs in the kernel half at once: no update is lost, no key and no pool value is there twice."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cora.backends.xdp.kernel_build import compile_kernel
from cora.backends.xdp.trials import whole
from cora.emit.bpf import INTERFACE, interface
from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_shared, load_shared
from cora.emit.layout import map_row
from cora.engine.rows import dump_of_rows
from cora.frontends.nf import loads
from cora.ir.nodes import MapState, PoolState, Program, reasons_of

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.needs("bpf")]

SIZE, THREADS = 60, 4
ARRIVED, FORWARDED, DROPPED, FAULTS = range(4)

COUNTING = """
nf counting {
  port a: wire;  port b: wire;
  map seen {
    entry { source: ipv4, packets: u64 }
    key = source;
    timeout 600s;
    capacity 40;
    full reject;
  }
  fragments ignore;  unparsed drop;  verify none;
  on a(p: eth/ipv4) {
    lookup seen[p.ip.src] {
      hit e { e.packets = e.packets + 1; touch e; forward b; }
      miss { insert seen { source: p.ip.src, packets: 1 } { ok { forward b; } full { drop "full"; } } }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}
"""

CHURNING = """
nf churning {
  port a: wire;  port b: wire;
  pool numbers: u16 in 100 .. 139;
  pair map pairs {
    entry { source: ipv4, number: u16 = alloc numbers }
    key fwd = source;
    key rev = number;
    timeout 20us;
    capacity 30;
    full reject;
  }
  fragments ignore;  unparsed drop;  verify none;
  on a(p: eth/ipv4) {
    lookup pairs.fwd[p.ip.src] {
      hit e { touch e; p.ip.id = e.number; forward b; }
      miss { insert pairs { source: p.ip.src } { ok e { p.ip.id = e.number; forward b; } full { drop "full"; } } }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}
"""


class Race:
    """A program in the kernel, and threads that send to it."""

    def __init__(self, program: Program) -> None:
        self.program, split = program, whole(program)
        sources = {"race.c": Path(__file__).with_name("kernel_race.c").read_text(), INTERFACE: interface(split)}
        flags = ("-O1", "-lbpf", "-pthread")
        self.library: Any = load_shared(build_shared("race", sources, flags, include_dirs=[RUNTIME]))
        self.library.race_run.restype = self.library.race_count.restype = ctypes.c_uint64
        assert self.library.race_open(str(compile_kernel(split)).encode()) == 0

    def run(self, sources: int, rounds: int, *, sweeping: bool) -> None:
        """Each thread sends so many frames, of so many sources, each in an order of its own."""
        frames = b"".join(_frame(n) for n in range(sources))
        assert self.library.race_run(frames, SIZE, sources, THREADS, rounds, sweeping) == 0

    def count(self, which: int, number: int = 0) -> int:
        """A total over all CPUs."""
        each = 16 if which == FORWARDED else 8
        return int(self.library.race_count(self.library.race_offset(which) + each * number))

    def rows(self, name: str) -> bytes:
        """All rows of a state, entries that are due included."""
        state = self.program.state(name)
        size = map_row(state).size if isinstance(state, MapState) else 8
        number = [s.name for s in self.program.states].index(name)
        out, at = b"", ctypes.c_uint32(0)
        buffer = ctypes.create_string_buffer(65536)
        while at.value != 0xFFFFFFFF:
            count = self.library.race_dump(number, ctypes.byref(at), buffer)
            out += buffer.raw[:size * count]
        return out

    def state(self) -> Any:
        kept = (MapState, PoolState)
        return dump_of_rows(self.program, [self.rows(s.name) if isinstance(s, kept) else b""
                                           for s in self.program.states])


@contextmanager
def racing(text: str) -> Iterator[Race]:
    race = Race(loads(text))
    try:
        yield race
    finally:
        race.library.race_close()


def _frame(source: int) -> bytes:
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, SIZE - 14, 0, 0, 64, 17, 0, bytes((10, 0, 0, source)), bytes(4))
    return bytes(12) + b"\x08\x00" + ip + bytes(SIZE - 14 - len(ip))


def test_no_update_of_an_entry_is_lost_and_no_entry_made_twice() -> None:
    with racing(COUNTING) as race:
        race.run(40, 20_000, sweeping=True)
        entries = race.state()["seen"]["entries"]
        assert len(entries) == len({e["fields"]["source"] for e in entries}) == 40
        raced = sum(race.count(FAULTS, n) for n in range(5))
        assert race.count(ARRIVED) == THREADS * 20_000
        assert race.count(DROPPED) == 0
        assert sum(e["fields"]["packets"] for e in entries) == race.count(FORWARDED, 1) == THREADS * 20_000 - raced


def test_entries_that_come_and_go_hold_each_pool_value_once() -> None:
    with racing(CHURNING) as race:
        full = reasons_of(race.program).index("full")
        for _ in range(8):
            race.run(60, 4_000, sweeping=True)
            state = race.state()
            entries = state["pairs"]["entries"]
            numbers = [e["fields"]["number"] for e in entries]
            assert len(set(numbers)) == len(numbers) == len({e["fields"]["source"] for e in entries}) <= 30
            assert sorted(n - 100 for n in numbers) == state["numbers"]["used"]
        sent = race.count(FORWARDED, 1) + race.count(DROPPED, full) + sum(race.count(FAULTS, n) for n in range(5))
        assert sent == race.count(ARRIVED) == 8 * THREADS * 4_000
        assert race.count(DROPPED, full) > 0 and race.count(FORWARDED, 1) > 0
