"""States that may have a copy at every place where they are used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cora.analysis.sharding import copyable
from cora.ir.nodes import Program


def copied_states(program: Program) -> Mapping[str, Literal["replicated", "partial"]]:
    """Per state that may be copied how, in program order."""
    found = {s.name: copyable(program, s) for s in program.states}
    return {name: kind for name, kind in found.items() if isinstance(kind, str)}
