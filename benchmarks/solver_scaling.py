"""How the solvers grow with the blocks of a problem: the integer program to a 1 % gap, and the fast search.

Problems are the synthetic chains of `chains.py` (3 places, 6 memories, tight capacities). Per size and solver: median
wall and processor seconds over the seeds, and the gap: for the integer program to its proven bound, for the fast search
to the integer program's value and to a bound of its own. Written as a table and as a picture with logarithmic axes.

    python benchmarks/solver_scaling.py [--sizes 10,50,...] [--seeds 3] [--limit 10] [--svg FILE.svg]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chains import RATE, chain_problem

from cora.partition.evaluate import demand_of, load_of
from cora.partition.fast import Task, quick
from cora.partition.integer import Limits, Setting
from cora.partition.optimise import Optimiser, OutOfTime
from cora.partition.problem import Problem

CORES = 64
# Seconds the fast search is given, by the size it is for and above.
_GIVEN = ((0, 0.4), (2000, 3.0))
_TASK = Task(Setting(RATE, CORES), "host", Limits(load=1.0))


@dataclass(frozen=True)
class Run:
    """One problem solved: seconds by the wall clock and of the processor, host cores' worth of work, proven bound."""

    wall: float
    processor: float
    value: float
    bound: float | None

    @property
    def gap(self) -> float:
        return math.nan if self.bound is None or math.isinf(self.value) else max(0.0, 1 - self.bound / self.value)


def by_program(problem: Problem, limit: float) -> Run:
    """The integer program to 1 % within ``limit`` seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    search = Optimiser([problem], "highs", limit, gap=0.01)
    value, bound = math.inf, None
    try:
        if search.best("host", _TASK.setting, _TASK.limits, "host") is not None:
            value, bound = search.stages[-1].objective, search.stages[-1].bound
    except OutOfTime:
        pass
    return Run(time.perf_counter() - wall, time.process_time() - processor, value, bound)


def by_fast_search(problem: Problem) -> Run:
    """The fast search; its bound is worked out afterwards and not timed."""
    given = [seconds for blocks, seconds in _GIVEN if len(problem.units) >= blocks][-1]
    wall, processor = time.perf_counter(), time.process_time()
    found = quick(problem, _TASK, given, bounded=False)
    spent = time.perf_counter() - wall, time.process_time() - processor
    if found.assignment is not None:
        assert load_of(problem, demand_of(problem, found.assignment), CORES, RATE) <= 1
    return Run(*spent, found.value, quick(problem, _TASK, given).bound)


def median(values: Sequence[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return statistics.median(known) if known else math.nan


def main() -> None:
    """Print the table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10,50,100,200,500,1000,2000,5000")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for the integer program")
    parser.add_argument("--largest", type=int, default=1000, help="blocks up to which the integer program is tried")
    parser.add_argument("--svg", type=Path)
    given = parser.parse_args()
    lines: dict[str, list[tuple[int, float]]] = {"integer program": [], "fast search": []}
    print(f"{'blocks':>6} {'states':>6}   {'ILP s':>7} {'cpu s':>7} {'gap':>7}   {'fast s':>7} {'cpu s':>7} "
          f"{'to ILP':>7} {'bound':>7}")
    for size in map(int, given.sizes.split(",")):
        problems = [chain_problem(size, seed) for seed in range(1, given.seeds + 1)]
        fast = [by_fast_search(p) for p in problems]
        exact = [by_program(p, given.limit) for p in problems] if size <= given.largest else []
        lines["fast search"].append((size, median([r.wall for r in fast])))
        if exact:
            lines["integer program"].append((size, median([r.wall for r in exact])))
        to_exact = median([f.value / e.value - 1 for f, e in zip(fast, exact, strict=False)])
        print(f"{size:>6} {len(problems[0].whole):>6}   {seconds(exact, 'wall')} {seconds(exact, 'processor')} "
              f"{100 * median([r.gap for r in exact]):>6.2f}%   {seconds(fast, 'wall')} {seconds(fast, 'processor')} "
              f"{100 * to_exact:>6.2f}% {100 * median([r.gap for r in fast]):>6.2f}%", flush=True)
    if given.svg:
        given.svg.write_text(picture(lines), encoding="utf-8")


def seconds(runs: Sequence[Run], which: str) -> str:
    found = median([getattr(r, which) for r in runs])
    return f"{found:>7.3f}" if math.isfinite(found) else f"{'-':>7}"


def picture(lines: dict[str, list[tuple[int, float]]]) -> str:
    """Seconds by blocks, both logarithmic."""
    width, height, left, bottom = 640, 400, 70, 50
    points = [p for line in lines.values() for p in line]
    across = (math.log10(min(p[0] for p in points)), math.log10(max(p[0] for p in points)) + 0.05)
    up = (math.floor(math.log10(min(p[1] for p in points))), math.ceil(math.log10(max(p[1] for p in points))))

    def at(blocks: float, time_taken: float) -> tuple[float, float]:
        x = left + (math.log10(blocks) - across[0]) / max(across[1] - across[0], 1e-9) * (width - left - 20)
        y = height - bottom - (math.log10(time_taken) - up[0]) / max(up[1] - up[0], 1) * (height - bottom - 30)
        return round(x, 1), round(y, 1)

    drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="12">', '<title>Seconds to solve a placement problem by its blocks</title>',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for power in range(up[0], up[1] + 1):
        _, y = at(10 ** across[0], 10**power)
        drawn.append(f'<path d="M{left} {y}H{width - 20}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{10**power:g} s</text>')
    for blocks in dict.fromkeys(p[0] for p in points):
        x, _ = at(blocks, 10 ** up[0])
        drawn.append(f'<text x="{x}" y="{height - bottom + 18}" text-anchor="middle">{blocks}</text>')
    drawn.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">blocks</text>')
    for (name, line), (colour, dash) in zip(lines.items(), (("#1b5e9c", ""), ("#b4511a", "6 3")), strict=True):
        if not line:
            continue
        places = [at(*p) for p in line]
        path = "M" + "L".join(f"{x} {y}" for x, y in places)
        drawn.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        drawn += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        drawn.append(f'<text x="{x}" y="{y - 10}" text-anchor="end" fill="{colour}">{name}</text>')
    return "\n".join([*drawn, "</svg>", ""])


if __name__ == "__main__":
    main()
