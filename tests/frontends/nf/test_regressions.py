"""Defects of the front end that random programs found, each as its smallest input."""

from __future__ import annotations

import pytest

from cora.errors import CoraError, Kind
from cora.frontends.nf import loads
from cora.ir import nodes


def test_shifts_are_no_comparisons() -> None:
    # '<<' was read as two '<'.
    program = loads('nf x { port a: wire; on a(p: eth/ipv4) { if p.ipv4.id << 1 == p.ipv4.id >> 1 { drop "x"; } '
                    "forward a; } }")
    ops = [i.op for b in program.blocks for i in b.instructions if isinstance(i, nodes.Binary)]
    assert ops == ["shl", "shr"]


@pytest.mark.parametrize("expression", ["min(p.tcp.syn, p.tcp.ack)", "max(true, p.tcp.syn)", "min(true, false)"])
def test_min_and_max_do_not_take_bools(expression: str) -> None:
    # They passed the type check and the IR verifier refused what came of it.
    with pytest.raises(CoraError) as caught:
        loads(f'nf x {{ port a: wire; fragments ignore; on a(p: eth/ipv4/tcp) {{ if {expression} {{ drop "x"; }} '
              "forward a; } }")
    assert caught.value.diagnostics[0].kind == Kind.TYPE_MISMATCH


def test_a_meter_takes_one_time_out() -> None:
    # The first class was taken and the others were ignored.
    with pytest.raises(CoraError) as caught:
        loads("nf x { port a: wire; meter m { key k: u8; rate 10; burst 10; capacity 4; timeout { x 1s, y 2s } } "
              "on a(p: eth) { forward a; } }")
    assert caught.value.diagnostics[0].kind == Kind.BAD_DECLARATION
    assert caught.value.diagnostics[0].span is not None


def test_a_reason_with_control_characters_is_refused() -> None:
    with pytest.raises(CoraError) as caught:
        loads('nf x { port a: wire; on a(p: eth) { drop "\x1b[2Jgone"; } }')
    assert caught.value.diagnostics[0].kind is Kind.BAD_DECLARATION
