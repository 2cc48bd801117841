"""What the solver wrapper promises: proven statuses only, true bounds, silence, and clear failures."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from cora.errors import CoraError, Kind
from cora.partition import solver
from cora.partition.solver import Program, solve


def knapsack(count: int, seed: int = 1) -> Program:
    """Many near-equal items in several tight knapsacks: no solver is done with it at once."""
    rng = random.Random(seed)
    program = Program()
    items = [program.variable(0, 1, True) for _ in range(count)]
    for _ in range(12):
        weights = {i: float(rng.randint(900, 1100)) for i in items}
        program.row(weights, None, sum(weights.values()) / 2.003)
    program.objective = {i: -float(rng.randint(900, 1100)) for i in items}
    return program


@pytest.mark.parametrize("name", solver.SOLVERS)
def test_small_optimum_with_bound(name: str) -> None:
    program = Program()
    x, y, z = program.variable(0, 5, True), program.variable(0, 1, True), program.variable()
    program.row({x: 1.0, y: 2.0}, 3.5, None)
    program.row({z: 1.0, x: -1.0}, 0.0, 0.0)
    program.objective = {x: 1.0, y: 1.0}
    found = solve(program, name, 10)
    assert (found.status, found.objective, found.bound) == ("optimal", 3.0, 3.0)
    assert [round(v) for v in found.values] == [2, 1, 2]


@pytest.mark.parametrize("name", solver.SOLVERS)
def test_infeasible(name: str) -> None:
    program = Program()
    x = program.variable(0, 1, True)
    program.row({x: 2.0}, 3.0, None)
    program.objective = {x: 1.0}
    found = solve(program, name, 10)
    assert (found.status, found.values) == ("infeasible", [])


@pytest.mark.parametrize("name", solver.SOLVERS)
def test_a_time_limit_is_never_called_optimal(name: str) -> None:
    found = solve(knapsack(400), name, 0.3)
    assert found.status in ("feasible", "unknown")
    if found.values and found.bound is not None:
        assert found.bound <= found.objective


def test_a_variable_in_no_row_has_a_value() -> None:
    program = Program()
    x = program.variable(0, 1, True)
    program.variable(0.25, 1)
    program.row({x: 1.0}, 1.0, None)
    program.objective = {x: 1.0}
    assert list(solve(program, "highs", 10).values) == [1.0, 0.25]


def test_nothing_is_printed() -> None:
    code = ("from cora.partition.solver import *\np = Program(); x = p.variable(0, 1, True); p.row({x: 1.0}, 1.0)\n"
            "p.objective = {x: 1.0}\nfor s in SOLVERS: solve(p, s, 5)\nprint('only this')\n")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("only this\n", "")


def test_planning_code_imports_no_solver_before_it_is_used() -> None:
    code = "import sys, cora.partition; print([m for m in ('pulp', 'highspy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import pulp

    monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)
    program = Program()
    program.objective = {program.variable(): 1.0}
    with pytest.raises(CoraError, match="the solver highs is not installed") as caught:
        solve(program, "highs", 1)
    assert caught.value.diagnostics[0].kind is Kind.SOLVER
    assert caught.value.diagnostics[0].hint == "pip install highspy, or use the other one: --solver cbc"


def test_versions_are_evidence() -> None:
    assert solver.version_of("highs").startswith("HiGHS 1.")
    assert "PuLP" in solver.version_of("cbc")
