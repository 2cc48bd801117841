"""Mixed integer programs as arrays, and sessions with a solver that can be given more rows and run again.

HiGHS takes the arrays as they are: building a program through PuLP takes longer than solving it, and a session keeps
the basis for the next run. CBC, and HiGHS through PuLP, stay in `cora.partition.solver`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cora.errors import Kind, fail
from cora.partition.solver import Outcome, Program, Status, silence
from cora.partition.solver import solve as solve_by_pulp

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
# Proven within this relative gap counts as optimal; far below the 0.1 % of the tangent cuts.
GAP = 1e-7
_ROUNDING = 1e-9


@dataclass(frozen=True)
class MixedProgram:
    """Rows ``row_lower <= A x <= row_upper`` by compressed rows, columns ``lower <= x <= upper``.

    Attributes:
        integer: which columns are whole numbers.
        start, index, value: row i has the entries start[i] to start[i + 1].
    """

    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]
    row_lower: Floats
    row_upper: Floats
    start: Ints
    index: Ints
    value: Floats

    @property
    def impossible(self) -> bool:
        """Whether a row without columns cannot hold."""
        empty = self.start[1:] == self.start[:-1]
        return bool((empty & ((self.row_lower > _ROUNDING) | (self.row_upper < -_ROUNDING))).any())


def only_rows(program: MixedProgram, rows: Ints) -> MixedProgram:
    """The program with these of its rows."""
    lengths = program.start[rows + 1] - program.start[rows]
    start = np.concatenate([np.zeros(1, np.intp), np.cumsum(lengths)])
    entries = np.repeat(program.start[rows] - start[:-1], lengths) + np.arange(start[-1])
    return MixedProgram(program.lower, program.upper, program.integer, program.row_lower[rows],
                        program.row_upper[rows], start, program.index[entries], program.value[entries])


class Builder:
    """Collects columns and rows in bulk, after those of a program ``before`` where there is one."""

    def __init__(self, before: MixedProgram | None = None) -> None:
        self.before = before
        self.first = 0 if before is None else len(before.row_lower)
        self.columns = 0 if before is None else len(before.lower)
        self.rows = self.first
        self._bounds: list[tuple[Floats, Floats, NDArray[np.bool_]]] = []
        self._limits: list[tuple[Floats, Floats]] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._constants: list[tuple[Ints, Floats]] = []

    def add_columns(self, count: int, upper: float = 1.0, integer: bool = False) -> Ints:
        """Numbers of new columns from 0 to ``upper``."""
        self._bounds.append((np.zeros(count), np.full(count, upper), np.full(count, integer)))
        self.columns += count
        return np.arange(self.columns - count, self.columns)

    def add_rows(self, low: Floats, high: Floats) -> Ints:
        """Numbers of new rows."""
        self._limits.append((np.asarray(low, float), np.asarray(high, float)))
        self.rows += len(low)
        return np.arange(self.rows - len(low), self.rows)

    def add_entries(self, rows: Ints, columns: Ints, values: Floats) -> None:
        """Coefficients; several for one row and column add up."""
        self._entries.append((rows, columns, np.asarray(values, float)))

    def add_constants(self, rows: Ints, values: Floats) -> None:
        """Add a constant to the middle of rows (none of ``before``)."""
        self._constants.append((rows, values))

    def program(self) -> MixedProgram:
        """All of it."""
        rows, columns, values = (np.concatenate([e[i] for e in self._entries] or [np.zeros(0)]) for i in range(3))
        key = rows.astype(np.int64) * max(self.columns, 1) + columns.astype(np.int64)
        unique, where = np.unique(key, return_inverse=True)
        summed = np.bincount(where, weights=values, minlength=len(unique))
        kept = summed != 0
        unique, summed = unique[kept], summed[kept]
        row = unique // max(self.columns, 1)
        low, high = (np.concatenate([x[i] for x in self._limits] or [np.zeros(0)]) for i in range(2))
        for which, constants in self._constants:
            np.subtract.at(low, which - self.first, constants)
            np.subtract.at(high, which - self.first, constants)
        start = np.searchsorted(row, np.arange(self.first, self.rows + 1))
        lower, upper, integer = (np.concatenate([b[i] for b in self._bounds] or [np.zeros(0)]) for i in range(3))
        made = MixedProgram(lower, upper, integer.astype(np.bool_), low, high, start.astype(np.intp),
                            (unique % max(self.columns, 1)).astype(np.intp), summed)
        return made if self.before is None else _joined(self.before, made)


def _joined(one: MixedProgram, more: MixedProgram) -> MixedProgram:
    """A program with the columns and rows of another one after its own."""
    start = np.concatenate([one.start, one.start[-1] + more.start[1:]])
    pairs = ((getattr(one, name), getattr(more, name)) for name in
             ("lower", "upper", "integer", "row_lower", "row_upper", "index", "value"))
    lower, upper, integer, row_lower, row_upper, index, value = (np.concatenate(pair) for pair in pairs)
    return MixedProgram(lower, upper, integer, row_lower, row_upper, start, index, value)


class Session(ABC):
    """A program loaded into a solver."""

    @abstractmethod
    def add_row(self, index: Ints, value: Floats, low: float, high: float) -> None:
        """Add a row."""

    @abstractmethod
    def bound_columns(self, index: Ints, lower: Floats, upper: Floats) -> None:
        """Change bounds of columns."""

    @abstractmethod
    def bound_row(self, row: int, low: float, high: float) -> None:
        """Change the limits of a row."""

    @abstractmethod
    def run(self, objective: Floats, seconds: float, relaxed: bool = False, start: Floats | None = None,
            gap: float = GAP) -> Outcome:
        """Minimise. ``relaxed``: whole numbers need not be whole. ``start``: a solution to begin with. ``gap``:
        relative, at which to stop.

        Raises:
            CoraError: `Kind.SOLVER` when the solver breaks.
        """


def session(program: MixedProgram, solver: str) -> Session:
    """A session with ``highs`` or ``cbc``.

    Raises:
        CoraError: `Kind.SOLVER` when the solver is not there.
    """
    return Highs(program) if solver == "highs" else _Pulp(program, solver)


class Highs(Session):
    """A session with HiGHS, which also tells duals and lets rows be taken out."""

    def __init__(self, program: MixedProgram) -> None:
        try:
            import highspy
        except ImportError as error:
            raise fail(Kind.SOLVER, "the solver highs is not installed", where="--solver",
                       hint="pip install highspy, or use the other one: --solver cbc") from error
        self.highspy: Any = highspy
        with silence():  # it prints a banner at first use
            self.highs: Any = self.highspy.Highs()
            self.highs.silent()
        self.highs.setOptionValue("threads", 1)
        self.integer = program.integer
        self.whole = np.flatnonzero(program.integer).astype(np.int32)
        self.is_integer = False
        count = len(program.lower)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count, len(program.row_lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.zeros(count), program.lower, program.upper
        lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = program.start.astype(np.int32)
        lp.a_matrix_.index_ = program.index.astype(np.int32)
        lp.a_matrix_.value_ = program.value
        self.highs.passModel(lp)
        self.columns = np.arange(count, dtype=np.int32)

    def add_row(self, index: Ints, value: Floats, low: float, high: float) -> None:
        self.highs.addRow(low, high, len(index), index.astype(np.int32), np.asarray(value, float))

    def bound_columns(self, index: Ints, lower: Floats, upper: Floats) -> None:
        self.highs.changeColsBounds(len(index), index.astype(np.int32), np.asarray(lower, float),
                                    np.asarray(upper, float))

    def bound_row(self, row: int, low: float, high: float) -> None:
        self.highs.changeRowBounds(row, low, high)

    def run(self, objective: Floats, seconds: float, relaxed: bool = False, start: Floats | None = None,
            gap: float = GAP) -> Outcome:
        began = time.perf_counter()
        highs, names = self.highs, self.highspy
        self._relax(relaxed)
        highs.changeColsCost(len(self.columns), self.columns, objective)
        highs.setOptionValue("time_limit", highs.getRunTime() + max(seconds, 0.01))
        highs.setOptionValue("mip_rel_gap", gap)
        if start is not None:
            given = names.HighsSolution()
            given.col_value = list(start)
            highs.setSolution(given)
        highs.run()
        unclear = (names.HighsModelStatus.kUnknown, names.HighsModelStatus.kNotset, names.HighsModelStatus.kSolveError)
        optimal = highs.getModelStatus() == names.HighsModelStatus.kOptimal
        shown = highs.getInfo().primal_solution_status == names.SolutionStatus.kSolutionStatusFeasible
        if highs.getModelStatus() in unclear or (optimal and not shown):
            highs.clearSolver()  # a basis from before may be what it stumbled over
            highs.run()
        if highs.getModelStatus() == names.HighsModelStatus.kSolveError:
            # Presolve may fix a column within the tolerance of a row and then find its bound violated by more.
            highs.clearSolver()
            highs.setOptionValue("presolve", "off")
            highs.run()
            highs.setOptionValue("presolve", "choose")
        status, info = highs.getModelStatus(), highs.getInfo()
        has = info.primal_solution_status == names.SolutionStatus.kSolutionStatusFeasible
        values: Sequence[float] = highs.getSolution().col_value if has else []
        value = float(np.dot(objective, np.asarray(values))) if has else float("inf")
        bound = float(info.mip_dual_bound) if self.is_integer else None
        found: Status = "feasible" if has else "unknown"
        if status == names.HighsModelStatus.kOptimal:
            found = "optimal"
            bound = value if bound is None else bound
        elif status in (names.HighsModelStatus.kInfeasible, names.HighsModelStatus.kUnboundedOrInfeasible):
            found, values, bound = "infeasible", [], None
        elif status not in (names.HighsModelStatus.kTimeLimit, names.HighsModelStatus.kIterationLimit):
            raise fail(Kind.SOLVER, f"the solver highs failed: {highs.modelStatusToString(status)}", where="--solver",
                       hint="try the other one: --solver cbc")
        if bound is not None and not np.isfinite(bound):
            bound = None
        return Outcome(found, values, value, bound, time.perf_counter() - began)

    def prices(self) -> tuple[Floats, Floats]:
        """Duals of the rows and reduced costs of the columns of the last relaxed run."""
        found = self.highs.getSolution()
        return np.asarray(found.row_dual), np.asarray(found.col_dual)

    def resume_quickly(self) -> None:
        """Make runs after small changes cheap: do not work out exact weights of edges first."""
        self.highs.setOptionValue("simplex_dual_edge_weight_strategy", 1)

    def _relax(self, relaxed: bool) -> None:
        wanted = not relaxed and len(self.whole) > 0
        if wanted == self.is_integer:
            return
        kind = self.highspy.HighsVarType.kInteger if wanted else self.highspy.HighsVarType.kContinuous
        self.highs.changeColsIntegrality(len(self.whole), self.whole, np.full(len(self.whole), int(kind), np.uint8))
        self.is_integer = wanted


class _Pulp(Session):
    """One-shot runs through PuLP; nothing is kept between them but the program."""

    def __init__(self, program: MixedProgram, solver: str) -> None:
        self.solver = solver
        self.lower, self.upper = program.lower.copy(), program.upper.copy()
        self.integer = program.integer
        ends = list(zip(program.start[:-1], program.start[1:], strict=True))
        self.rows = [(program.index[a:b], program.value[a:b]) for a, b in ends]
        self.limits = list(zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True))

    def add_row(self, index: Ints, value: Floats, low: float, high: float) -> None:
        self.rows.append((index, value))
        self.limits.append((low, high))

    def bound_columns(self, index: Ints, lower: Floats, upper: Floats) -> None:
        self.lower[index], self.upper[index] = lower, upper

    def bound_row(self, row: int, low: float, high: float) -> None:
        self.limits[row] = (low, high)

    def run(self, objective: Floats, seconds: float, relaxed: bool = False, start: Floats | None = None,
            gap: float = GAP) -> Outcome:
        integer = [False] * len(self.lower) if relaxed else self.integer.tolist()
        program = Program(self.lower.tolist(), [_some(x) for x in self.upper], integer)
        for (index, value), (low, high) in zip(self.rows, self.limits, strict=True):
            if len(index):
                program.row(dict(zip(index.tolist(), value.tolist(), strict=True)), _some(low), _some(high))
        program.objective = {int(i): float(objective[i]) for i in objective.nonzero()[0]}
        return solve_by_pulp(program, self.solver, seconds, gap)


def _some(limit: float) -> float | None:
    return float(limit) if np.isfinite(limit) else None
