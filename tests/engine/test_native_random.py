"""Random IR programs: the native engine does what the reference interpreter does, also under the sanitizers.

These programs are built from IR nodes, so they reach what the language does not write: odd widths, two pools in one
entry, two trackers on one path, references to entries that are gone.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from random_ir import random_packets, random_program

from cora.engine.results import Options
from cora.ir import nodes
from cora.ir.verify import verify
from cora.testing import difference, run_native, run_reference, run_sanitized

PACKETS = 1500
OPTIONS = (Options(), Options(ignore_checksums=True, headers_only=True))


def test_programs_are_valid_and_use_every_node() -> None:
    programs = [verify(random_program(seed)) for seed in range(12)]
    used = {type(x) for p in programs for b in p.blocks for x in (*b.instructions, b.terminator)}
    declared = {type(s) for p in programs for s in p.states}
    # A punt stands in the parts of split programs only.
    assert used >= (set(nodes.Instruction.__args__) | set(nodes.Terminator.__args__)) - {nodes.Punt}
    assert declared == set(nodes.State.__args__)


def test_packets_reach_the_odd_cases() -> None:
    packets = random_packets(1, PACKETS)
    assert any(a.time_ns > b.time_ns for a, b in pairwise(packets)), "time never steps back"
    assert any(len(p.frame) < p.wirelen for p in packets), "nothing is truncated"
    events = run_reference(random_program(0), packets).events
    assert {type(e).__name__ for e in events} == {"Output", "Dropped", "Held"}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("seed", range(4))
def test_native_equals_reference(seed: int) -> None:
    program, packets = random_program(seed), random_packets(seed, PACKETS)
    for options in OPTIONS:
        assert difference(run_reference(program, packets, options), run_native(program, packets, options)) is None


@pytest.mark.needs("sanitizers")
@pytest.mark.parametrize("seed", [100, 101])
def test_sanitized_equals_reference(seed: int) -> None:
    program, packets = random_program(seed), random_packets(seed, PACKETS)
    assert difference(run_reference(program, packets), run_sanitized(program, packets)) is None
