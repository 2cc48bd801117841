"""What the kernel half puts off, so that user space sees packets as they arrived."""

from __future__ import annotations

import pytest
from kernel_kit import lending_all
from xdp_cases import example

from cora.analysis.parts import PlacedNode, split_of
from cora.backends.xdp.arrived import with_originals
from cora.errors import CoraError, Kind
from cora.frontends import nf
from cora.ir.nodes import Forward, Hold, Lookup, Program, Punt, Reject, Store, TrackFragment, successors
from cora.ir.parts import Part, Split

# The kernel counts the TTL down before it looks a flow up; a flow that is not there goes on, and may be refused.
TEXT = """nf x { port a: wire; port b: host;
  map m { entry { k: ipv4, n: u8 } key fwd = k; timeout 9s; capacity 8; full reject; }
  fragments drop; unparsed drop;
  on a(p: eth/ipv4/udp) {
    %s
    lookup m.fwd[p.ip.src] {
      hit e { %s forward b; }
      miss {
        insert m { k: p.ip.src, n: 0 } {
          ok e { forward b; }
          full { reject "full" with icmp(3, 1) from 10.0.0.1; }
        }
      }
    }
  }
  on b(p: eth/ipv4/udp) { drop "not that way"; }
}"""


def cut(program: Program) -> Split:
    """The kernel runs up to the look-up and what follows a hit; all else is in user space. Nothing is lent."""
    index = {b.label: i for i, b in enumerate(program.blocks)}
    misses = {t for b in program.blocks if isinstance(b.terminator, Lookup) for o, t in successors(b.terminator)
              if o == "miss"}
    behind: set[str] = set()
    for block in program.blocks:
        if block.label in misses or block.label in behind:
            behind |= {block.label, *(t for _, t in successors(block.terminator))}
    nodes = [PlacedNode(b, 0, True, int(b.label in behind), tuple((o, index[t]) for o, t in successors(b.terminator)))
             for b in program.blocks]
    return split_of(program, ("kernel", "user"), nodes, {"m": {0: "copy", 1: "whole"}}, [])


def stores(part: Part) -> list[tuple[str, str]]:
    """(header.field, what the block ends in) of every store, in order."""
    return [(f"{i.header}.{i.field}", type(b.terminator).__name__) for b in part.program.blocks
            for i in b.instructions if isinstance(i, Store)]


def test_a_store_moves_to_where_the_packet_is_forwarded_and_to_user_space() -> None:
    before = cut(nf.loads(TEXT % ("p.ip.ttl = p.ip.ttl - 1;", "")))
    assert ("ipv4.ttl", "Lookup") in stores(before.parts[0]) and not stores(before.parts[1])
    after = with_originals(before)
    assert {end for _, end in stores(after.parts[0])} == {"Forward"}
    assert stores(after.parts[1]) == [("ipv4.ttl", "Jump")]
    punt = next(b.terminator for b in after.parts[0].program.blocks if isinstance(b.terminator, Punt) and
                b.terminator.values)
    door = next(b for b in after.parts[1].program.blocks if any(isinstance(i, Store) for i in b.instructions))
    store = next(i for i in door.instructions if isinstance(i, Store))
    assert store.value in punt.values == door.params
    assert with_originals(after) is after


def test_stores_keep_their_order_and_later_ones_wait_too() -> None:
    after = with_originals(cut(nf.loads(TEXT % ("p.ip.ttl = 9; p.ip.dscp = 3;", "p.udp.sport = 7;"))))
    forwards = [b for b in after.parts[0].program.blocks if isinstance(b.terminator, Forward)]
    for block in forwards:
        assert [i.field for i in block.instructions if isinstance(i, Store)] == ["ttl", "dscp", "sport"]
    assert [name for name, _ in stores(after.parts[1])] == ["ipv4.ttl", "ipv4.dscp"]


def test_a_field_that_was_put_off_is_read_from_the_store() -> None:
    after = with_originals(cut(nf.loads(TEXT % ("p.ip.ttl = p.ip.ttl - 1; if p.ip.ttl == 5 { drop \"five\"; }", ""))))
    assert {end for _, end in stores(after.parts[0])} == {"Forward"}


def test_a_checksum_read_behind_a_store_is_refused_with_the_line() -> None:
    text = TEXT % ("p.ip.ttl = 9; if p.ip.checksum == 5 { drop \"five\"; }", "")
    with pytest.raises(CoraError) as caught:
        with_originals(cut(nf.loads(text)))
    assert caught.value.diagnostics[0].kind is Kind.NOT_BUILDABLE and "ipv4.checksum is read" in str(caught.value)


def test_where_nobody_asks_nothing_changes() -> None:
    text = (TEXT % ("p.ip.ttl = 9;", "")).replace('reject "full" with icmp(3, 1) from 10.0.0.1', 'drop "full"')
    split = cut(nf.loads(text))
    assert with_originals(split) is split


def leading(part: Part, ends: set[str]) -> set[str]:
    """Labels from which one of some blocks is reached."""
    found = set(ends)
    for block in reversed(part.program.blocks):
        if any(t in found for _, t in successors(block.terminator)):
            found.add(block.label)
    return found


def rewritten_for_somebody(split: Split) -> list[str]:
    """Kernel blocks that write into packets which may come to a block that asks for them as they arrived."""
    kernel, user = split.parts
    asking = leading(user, {b.label for b in user.program.blocks
                            if isinstance(b.terminator, Reject | TrackFragment | Hold)})
    numbers = {e.number for e in user.entries if e.label in asking}
    handing = leading(kernel, {b.label for b in kernel.program.blocks
                               if isinstance(b.terminator, Punt) and b.terminator.entry in numbers})
    return [b.label for b in kernel.program.blocks if b.label in handing
            and any(isinstance(i, Store) for i in b.instructions)]


def test_the_nat_counts_down_for_packets_that_nobody_asks_for() -> None:
    before = lending_all(example("nat"))
    assert rewritten_for_somebody(before) and not rewritten_for_somebody(with_originals(before))
