"""What the kernel half refuses, with the line and what to change, and what it does not refuse."""

from __future__ import annotations

import pytest

from cora.backends.xdp.capabilities import block_refusal, lent_refusal, part_refusals, refusal
from cora.frontends.nf import loads
from cora.ir.nodes import Program
from cora.ir.parts import Part

_PROGRAM = """
nf asked {{
  port a: wire;  port b: wire;
  {states}
  fragments {fragments};  unparsed drop;
  on a(p: eth/ipv4) {{ {body} }}
  on a(p: eth) {{ drop "other"; }}
  on b(p: eth) {{ drop "other"; }}
}}
"""
_TABLE = "map {name} {{ entry {{ k: ipv4, n: u32 }} key = k; {more} capacity {capacity}; full {full}; }}"


def program(states: str = "", body: str = "forward b;", fragments: str = "ignore") -> Program:
    return loads(_PROGRAM.format(states=states, body=body, fragments=fragments), "asked.nf")


def table(name: str = "seen", more: str = "", capacity: int = 8, full: str = "reject") -> str:
    return _TABLE.format(name=name, more=more, capacity=capacity, full=full)


def reason(of: Program, name: str) -> str:
    found = refusal(of, of.state(name))
    assert found is not None and found.place == "kernel" and found.span is not None
    return found.reason


def test_a_table_that_evicts_is_refused_whole_and_lent_to_without_concern() -> None:
    found = program(table(full="evict_lru"), "lookup seen[p.ip.src] { hit e { forward b; } }  forward b;")
    assert "'evict_lru' needs the order in which all CPUs used the entries" in reason(found, "seen")
    assert lent_refusal(found, found.state("seen")) is None


@pytest.mark.parametrize(("states", "name", "said"), [
    (table(capacity=(1 << 22) + 1), "seen", "at most 4194304 entries, not 4194305"),
    (table(capacity=(1 << 18) + 1, more="timeout 1s;"), "seen", "more than 262144 entries that gives up"),
    ("pool big: u32 in 0 .. 2097151;", "big", "pools of at most 1048576 values, not 2097152"),
    ("counter many[2000];", "many", "at most 1500 counters, and this program has 2000"),
])
def test_what_is_too_large_is_refused(states: str, name: str, said: str) -> None:
    assert said in reason(program(states), name)


def test_large_tables_with_slack_or_without_time_outs_are_taken() -> None:
    for more in ("timeout 1s slack 1s;", ""):
        found = program(table(capacity=1 << 22, more=more))
        assert refusal(found, found.state("seen")) is None


def test_bursts_beyond_64_bits_of_credit_are_refused() -> None:
    meter = "meter limits {{ key dst: ipv4; rate 1; burst {burst}; excess 9000000000; capacity 4; full reject; }}"
    body = ("police limits[p.ip.dst] by p.size { green { forward b; } yellow { forward b; } red { drop \"r\"; } "
            "full { drop \"f\"; } }")
    at_limit = program(meter.format(burst=223_372_036), body)
    assert refusal(at_limit, at_limit.state("limits")) is None
    beyond = program(meter.format(burst=223_372_037), body)
    assert "bursts together stay below 9223372036 octets" in reason(beyond, "limits")


def test_two_entries_at_a_time_are_refused_where_the_second_is_looked_up() -> None:
    body = ("lookup one[p.ip.src] { hit e { lookup two[p.ip.dst] { hit f { e.n = f.n; forward b; } }  forward b; } }\n"
            " forward b;")
    found = program(table("one") + table("two"), body)
    for name in ("one", "two"):
        refused = refusal(found, found.state(name))
        assert refused is not None and "an entry of" in refused.reason and "holds one lock" in refused.reason
        assert refused.span is not None and refused.span.line == 6
        assert lent_refusal(found, found.state(name)) is not None


def test_an_entry_that_is_not_needed_any_more_may_be_followed_by_another() -> None:
    body = ("var n: u32 = 0; lookup one[p.ip.src] { hit e { n = e.n; } }\n"
            "lookup two[p.ip.dst] { hit f { f.n = n; forward b; } }  forward b;")
    found = program(table("one") + table("two"), body)
    assert refusal(found, found.state("one")) is None and refusal(found, found.state("two")) is None


def test_errors_fragments_and_wide_products_run_in_user_space() -> None:
    found = loads("""
nf asked {
  port a: wire;  port b: wire;
  fragments track { capacity 16; timeout 30s; held 3; }  unparsed drop;
  on a(p: eth/ipv4/udp) {
    if p.ip.ttl == 0 { reject "time" with icmp(11, 0) from 10.0.0.1; }
    if p.udp.dport == 9 { drop "discard"; }
    forward b;
  }
  on a(p: eth/ipv6) { p.ip.src = ipv6(u128(p.ip.src) * u128(p.ip.dst)); forward b; }
  on a(p: eth) { drop "other"; }
  on b(p: eth) { drop "other"; }
}
""")
    reasons = {r.reason for b in found.blocks if (r := block_refusal(found, b)) is not None}
    assert any("ICMP errors are built in user space" in r for r in reasons)
    assert any("fragments are tracked in user space" in r for r in reasons)
    assert any("no 128-bit 'mul'" in r for r in reasons)


def test_a_part_is_asked_for_what_its_place_was_given() -> None:
    found = program(table(full="evict_lru"), "lookup seen[p.ip.src] { hit e { forward b; } }  forward b;")
    whole = Part("kernel", 0, found, (), {"seen": "whole"}, frozenset(), "")
    lent = Part("kernel", 0, found, (), {"seen": "lent"}, frozenset(), "")
    assert [r.subject for r in part_refusals(whole)] == ["seen"] and not list(part_refusals(lent))
