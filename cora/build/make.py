"""Running `make` in a built tree."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cora.build.backend import tools_of
from cora.build.tools import require_tools
from cora.errors import Kind, fail

# Lines of what make printed that a message quotes.
_QUOTED = 20


def make(tree: Path, target: str, goal: str = "all") -> None:
    """Make a goal of a tree that was built for a target.

    Raises:
        CoraError: `Kind.MISSING_TOOL`; `Kind.MAKE_FAILED` with the end of what was printed.
    """
    require_tools(tools_of(target, "build"), f"build a plan for {target}")
    # Options of a make that started us are not meant for this one.
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    try:
        done = subprocess.run(["make", "-C", str(tree), goal], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", env=environment, check=False)
    except OSError as error:
        raise fail(Kind.MAKE_FAILED, f"make cannot be started: {error.strerror}", where=str(tree)) from error
    if done.returncode == 0:
        return
    lines = done.stdout.strip().splitlines()
    raise fail(Kind.MAKE_FAILED, f"`make {goal}` failed:\n" + "\n".join(f"  {line}" for line in lines[-_QUOTED:]),
               where=str(tree), hint=f"`make -C {tree} {goal}` prints all of it; the README there names the versions "
                                     "that were tried")
