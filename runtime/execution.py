"""What `cora verify --on` runs: the parts of a plan in this process, or the programs of its target."""

from __future__ import annotations

import time

from cora.build.backend import SPLIT, engines_of, executions_of, executors_of, tools_of
from cora.build.request import request_of
from cora.build.tools import require_tools
from cora.engine.results import Options
from cora.errors import Kind, fail
from cora.ir.nodes import Program
from cora.plan.document import Plan
from cora.plan.parts import parts_of
from cora.runtime.executed import ProgramRun
from cora.runtime.verify import Run


def verifier(plan: Plan, program: Program, on: str, *, seeds: range, time_limit: float,
             options: Options | None = None) -> Run:
    """A verification of a plan on an execution of that name, which has not compared anything yet.

    Args:
        seeds: of the schedules. time_limit: seconds from now after which no further run is begun.

    Raises:
        CoraError: `Kind.BAD_FLAG` where plans for the target cannot be run so; `Kind.MISSING_TOOL`; `Kind.BAD_PLAN`.
    """
    target = plan.target
    until, taken = time.monotonic() + time_limit, options or Options()
    if on == SPLIT:
        return Run(parts_of(plan, program, returning=True), taken, seeds, until, "sound")
    known = executions_of(target)
    if on not in known:
        raise fail(Kind.BAD_FLAG, f"a plan for {target} does not run on {on}", where="--on",
                   hint=f"it runs on {', '.join(known)}")
    require_tools(tools_of(target, on), f"run a plan for {target} on {on}")
    request = request_of(plan, program)
    if on in executors_of(target):
        return ProgramRun(request, executors_of(target)[on], taken, seeds, until)
    return Run(request.split, taken, seeds, until, "sound", engines_of(target)[on]())
