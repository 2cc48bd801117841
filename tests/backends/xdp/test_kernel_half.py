"""The kernel half in this machine's kernel: every packet, all totals and all state are those of the unsplit program."""

from __future__ import annotations

import pytest
from kernel_kit import example, lending_all, office

from cora.backends.xdp.kernel_build import source_line, verifier_error
from cora.backends.xdp.trials import scattered, try_kernel, usable, whole
from cora.emit.bpf import emit_kernel
from cora.engine.split import PROMPT
from cora.errors import Kind
from cora.frontends.nf import loads
from cora.testing.packets import random_packets

pytestmark = [pytest.mark.needs("gcc"), pytest.mark.needs("bpf")]

WHOLE = ("firewall.ref", "nat.ref", "policer", "policer.ref")
LENT = ("firewall", "firewall.ref", "nat", "nat.ref", "policer", "policer.ref")


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_whole_in_the_kernel_is_the_unsplit_program(name: str) -> None:
    program = example(name)
    packets = [*office(program, 1500), *usable(random_packets(program, 1, 300))]
    ran = try_kernel(whole(program), packets)
    assert ran.difference is None
    assert ran.statistics.punted == 0 and ran.outcome.summary.packets == len(packets)


@pytest.mark.parametrize("name", LENT)
def test_entries_lent_to_the_kernel_are_used_there(name: str) -> None:
    program = example(name)
    split = lending_all(program)
    packets = office(program, 1500)
    fast = 0
    for chance in (PROMPT, 3):
        ran = try_kernel(split, packets, chance)
        assert ran.difference is None
        assert ran.overtaken is None and ran.statistics.stray == 0 and ran.statistics.left == 0
        assert ran.statistics.used and (ran.statistics.recalled + ran.statistics.asked or name.endswith('.ref'))
        fast += ran.statistics.fast
    assert fast > 250


@pytest.mark.parametrize("name", ["firewall", "nat", "policer"])
def test_a_full_table_of_lent_entries_makes_room(name: str) -> None:
    program = example(name)
    ran = try_kernel(lending_all(program, entries=3), office(program, 1500), 1)
    assert ran.difference is None and ran.statistics.peak <= 3
    assert ran.statistics.evicted and ran.statistics.refused


@pytest.mark.parametrize("name", LENT)
def test_random_placements_and_packets(name: str) -> None:
    program = example(name)
    assert try_kernel(scattered(program, 0), usable(random_packets(program, 5, 250)), 2).difference is None


_FULL = """
nf full {
  port a: wire;  port b: wire;
  pool numbers: u16 in 7 .. 10;
  map seen {
    entry { source: ipv4, number: u16 = alloc numbers }
    key = source;
    timeout 1s;
    capacity 3;
    full reject;
  }
  fragments ignore;  unparsed drop;
  on a(p: eth/ipv4) {
    lookup seen[p.ip.src] {
      hit e { p.ip.id = e.number; forward b; }
      miss { insert seen { source: p.ip.src } { ok e { p.ip.id = e.number; forward b; } full { drop "full"; } } }
    }
  }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}
"""


def test_full_tables_and_pools_without_slack_count_no_entry_that_is_due() -> None:
    program = loads(_FULL)
    packets = usable(random_packets(program, 4, 1500))
    ran = try_kernel(whole(program), packets)
    assert ran.difference is None
    assert ran.outcome.summary.dropped["full"] > 20


def test_a_message_of_the_verifier_names_the_line_of_the_program() -> None:
    split = whole(example("nat.ref"))
    text = next(t for n, t in emit_kernel(split).items() if n.endswith(".bpf.c")).splitlines()
    at = next(i for i, line in enumerate(text) if "nat.ref.nf:42" in line) + 1
    log = (f"; something @ nat.bpf.c:{at + 1}\n12: (79) r1 = *(u64 *)(r2 +0)\nR2 invalid mem access 'scalar'\n"
           "processed 9 insns\n")
    span = source_line(split, log)
    assert span is not None and span.line == 42 and span.file.endswith("nat.ref.nf")
    error = verifier_error(split, log)
    assert error.diagnostics[0].kind is Kind.VERIFIER and "invalid mem access" in error.render()
    assert "processed" not in error.render()
