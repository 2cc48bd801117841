"""Differential testing of engines and backends: random programs, packets that reach their branches, comparison.

`programs` writes well-typed NF programs, `packets` writes traffic for a program, `coverage` searches packets that take
its branches, `compare` runs several executions and finds the first difference, `shrink` makes a failure small.
Everything works from a seed; strategies for hypothesis need that library (``pip install 'cora-nf[test]'``).
"""

from cora.testing.compare import Outcome, difference, run_native, run_reference, run_sanitized
from cora.testing.coverage import Coverage, Covering, coverage_of, covering_packets, exercising_packets
from cora.testing.frames import Packet
from cora.testing.packets import packet_sequences, random_packets
from cora.testing.programs import Generated, generate, nf_programs, nf_texts
from cora.testing.shrink import shrink

__all__ = [
    "Coverage", "Covering", "Generated", "Outcome", "Packet", "coverage_of", "covering_packets", "difference",
    "exercising_packets", "generate", "nf_programs", "nf_texts", "packet_sequences", "random_packets",
    "run_native", "run_reference", "run_sanitized", "shrink",
]
