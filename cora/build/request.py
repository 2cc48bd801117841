"""What a backend builds from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir.nodes import Program
from cora.ir.parts import Split
from cora.plan.document import Plan
from cora.plan.parts import parts_of


@dataclass(frozen=True)
class BuildRequest:
    """A plan, its program, and the parts of its places (one part where nothing is split).

    ``config``: the value of every config of the program; a running program may get others, of a later epoch.
    """

    plan: Plan
    program: Program
    split: Split
    config: Mapping[str, int]


def request_of(plan: Plan, program: Program) -> BuildRequest:
    """The request to build a plan.

    Raises:
        CoraError: `Kind.BAD_PLAN` where the plan is of another program, or cannot be run.
    """
    return BuildRequest(plan, program, parts_of(plan, program), {c.name: c.value for c in program.configs})


def file_stem(request: BuildRequest) -> str:
    """The program's name as it stands in file names."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in request.program.name)[:40] or "program"
