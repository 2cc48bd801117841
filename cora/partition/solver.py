"""Integer programs through PuLP (its 3.3 and 4.x interfaces), with a solver's claims kept apart from what is true.

A status is `optimal` only when the solver proved it: PuLP 3 also says "Optimal" when a time limit stopped it
(coin-or/pulp issue 649). Bounds come from the solver where it tells them (HiGHS); PuLP gives none for CBC, and a proof
of optimality is then the only bound.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from cora.errors import Kind, fail

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
SOLVERS = ("highs", "cbc")
# Proven within this relative gap counts as optimal; far below the 0.1 % of the tangent cuts.
_GAP = 1e-7


@dataclass
class Program:
    """Minimise ``objective`` over variables 0..n-1 under rows ``low <= sum(coefficient * variable) <= high``."""

    lower: list[float] = field(default_factory=list)
    upper: list[float | None] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[tuple[Mapping[int, float], float | None, float | None]] = field(default_factory=list)
    objective: Mapping[int, float] = field(default_factory=dict)

    def variable(self, lower: float = 0.0, upper: float | None = None, integer: bool = False) -> int:
        """Add a variable and return its number."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def row(self, terms: Mapping[int, float], low: float | None = None, high: float | None = None) -> None:
        """Add a constraint; equal ``low`` and ``high`` make an equation."""
        self.rows.append((terms, low, high))


@dataclass(frozen=True)
class Outcome:
    """What a solver said. ``values``: empty without a solution; ``bound``: a proven lower bound, None without one."""

    status: Status
    values: Sequence[float]
    objective: float
    bound: float | None
    seconds: float


def version_of(solver: str) -> str:
    """Names and versions, as evidence in a plan."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "unknown"

    if solver == "highs":
        return f"HiGHS {of('highspy')} through PuLP {of('pulp')}"
    return f"CBC through PuLP {of('pulp')}"


def solve(program: Program, solver: str, time_limit: float, gap: float = _GAP) -> Outcome:
    """Solve with ``highs`` or ``cbc`` within ``time_limit`` seconds, to a relative ``gap``.

    Raises:
        CoraError: `Kind.SOLVER` when the solver is not there or breaks.
    """
    import pulp

    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # PuLP 3.3 announces its own 4.x interface on many calls; nothing a user of Cora can act on.
            warnings.simplefilter("ignore", DeprecationWarning)
            problem, variables = _pulp_problem(pulp, program)
            engine = _engine(pulp, solver, max(time_limit, 0.01), gap)
            with silence():
                result = problem.solve(engine)
            status, bound = _status(problem, result, solver)
            values = _values(program, variables) if status in ("optimal", "feasible") else []
    except (pulp.PulpError, OSError, RuntimeError, TypeError) as error:
        raise fail(Kind.SOLVER, f"the solver {solver} failed: {error}", where="--solver",
                   hint=f"try the other one: --solver {'cbc' if solver == 'highs' else 'highs'}") from error
    objective = sum(c * values[i] for i, c in program.objective.items()) if values else float("inf")
    if status == "optimal" and bound is None:
        bound = objective if gap <= _GAP else objective - gap * abs(objective)
    return Outcome(status, values, objective, bound, time.perf_counter() - started)


def _values(program: Program, variables: Sequence[Any]) -> list[float]:
    """A variable that stands in no row has no value to PuLP; any will do."""
    return [low if v.varValue is None else float(v.varValue) for v, low in zip(variables, program.lower, strict=True)]


def _pulp_problem(pulp: Any, program: Program) -> tuple[Any, list[Any]]:
    problem = pulp.LpProblem("placement", pulp.LpMinimize)
    variables = [
        problem.add_variable(f"v{i}", lower, upper, "Integer" if integer else "Continuous")
        for i, (lower, upper, integer) in enumerate(zip(program.lower, program.upper, program.integer, strict=True))
    ]
    problem += _expression(pulp, variables, program.objective)
    for terms, low, high in program.rows:
        expression = _expression(pulp, variables, terms)
        if low is not None and low == high:
            problem += expression == low
            continue
        if low is not None:
            problem += expression >= low
        if high is not None:
            problem += expression <= high
    return problem, variables


def _expression(pulp: Any, variables: Sequence[Any], terms: Mapping[int, float]) -> Any:
    """A sum from its terms at once: adding them one by one takes longer than solving."""
    pairs = [(variables[i], c) for i, c in terms.items()]
    build = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    return build(pairs)


def _engine(pulp: Any, solver: str, time_limit: float, gap: float) -> Any:
    if solver == "highs":
        engine = pulp.HiGHS(msg=False, timeLimit=time_limit, gapRel=gap, threads=1)
    elif hasattr(pulp, "PULP_CBC_CMD"):
        engine = pulp.PULP_CBC_CMD(msg=False, timeLimit=time_limit, gapRel=gap, threads=1)
    else:
        engine = pulp.COIN_CMD(msg=False, timeLimit=time_limit, gapRel=gap, threads=1)
    if not engine.available():
        package, other = ("highspy", "cbc") if solver == "highs" else ("pulp[cbc]", "highs")
        raise fail(Kind.SOLVER, f"the solver {solver} is not installed", where="--solver",
                   hint=f"pip install {package}, or use the other one: --solver {other}")
    return engine


def _status(problem: Any, result: Any, solver: str) -> tuple[Status, float | None]:
    """The status and the lower bound of a solved problem, on either interface of PuLP."""
    if not isinstance(result, int):
        found = bool(result.has_solution)
        bound = result.best_bound
        texts: Mapping[str, Status] = {"Optimal": "optimal", "Infeasible": "infeasible"}
        return texts.get(result.status_str, "feasible" if found else "unknown"), None if bound is None else float(bound)
    bound = None
    if solver == "highs":
        info = problem.solverModel.getInfo()
        is_mip = any(v.cat == "Integer" for v in problem.variables())
        bound = float(info.mip_dual_bound) if is_mip else float(info.objective_function_value)
    if result == -1:
        return "infeasible", None
    if result == 1 and problem.sol_status == 1:
        return "optimal", bound
    return ("feasible", bound) if problem.sol_status == 2 else ("unknown", bound)


@contextmanager
def silence() -> Iterator[None]:
    """Keep the solver library's own lines (HiGHS prints a banner at first use) off the user's standard output."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed: nothing to keep clean
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
