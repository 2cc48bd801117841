"""Failures become small and stay failures."""

from __future__ import annotations

from collections.abc import Sequence

from cora.engine.reference import Reference, TraceStep
from cora.frontends import nf
from cora.ir import nodes
from cora.ir.nodes import Program
from cora.testing import Packet, covering_packets, generate, shrink


def executes_insert(program: Program, packets: Sequence[Packet]) -> bool:
    """The stand-in for a defect: some packet runs an insert that succeeds."""
    engine = Reference(program)
    for p in packets:
        trace: list[TraceStep] = []
        engine.process(p.port, p.time_ns, p.frame, p.wirelen, trace)
        if any(isinstance(s.node, nodes.Insert) and s.outcome == "ok" for s in trace):
            return True
    return False


def test_a_failure_becomes_small() -> None:
    case = generate(2)
    packets = covering_packets(case.program, 2, 60).packets
    text, left = shrink(case.text, packets, executes_insert)
    assert executes_insert(nf.loads(text), left)
    assert len(left) == 1
    assert len(text.splitlines()) < 40 < len(case.text.splitlines())


def test_what_cannot_be_smaller_stays() -> None:
    text = "nf x {\n  port a: wire;\n  on a(p: eth) {\n    forward a;\n  }\n}\n"
    packets = [Packet(0, 0, bytes(60), 60)]
    assert shrink(text, packets, lambda program, kept: len(kept) == 1) == (text, packets)
