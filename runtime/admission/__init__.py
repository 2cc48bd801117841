"""Admission points of a profile: which entries would have been lent, by simulation on the packets of a profile run.

The policy is described in docs/profile.md, "Lending entries". `Watch` listens to a native profile run and has the
simulator (`cora.runtime.admission.native`) run through what happened.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from threading import Thread
from typing import TYPE_CHECKING, Literal

from cora.analysis.accesses import accesses_of, components_of
from cora.analysis.paths import number_paths, path_of
from cora.analysis.profile import (
    WINDOW_QUANTILES,
    Admission,
    AdmissionPoint,
    AdmissionWindow,
    Budget,
    window_at,
)
from cora.analysis.sharding import align, sharding_of
from cora.cache import code_identity, read_blob, write_blob
from cora.ir.hashing import program_hash
from cora.ir.nodes import MapState, MeterState, Program
from cora.runtime.admission.native import Point, Simulator, Totals

if TYPE_CHECKING:
    from cora.engine.native import NativeEngine

Mode = Literal["resume", "restart"]
MODES: tuple[Mode, ...] = ("resume", "restart")
# A rule of a decided flow is there only while the entry stays as it is.
_UNCHANGING = (MODES.index("restart"),)


class Alignments:
    """Which paths of a program are aligned to their end, by component and mode; what is found out is cached.

    In mode ``resume`` a path is if `cora.analysis.sharding.align` says so, in ``restart`` if it has a rule
    (`cora.analysis.decided.decide`).
    """

    def __init__(self, program: Program, components: Sequence[str]) -> None:
        """``components``: those that can be split."""
        from pathlib import Path

        import cora.analysis
        import cora.ir

        self.program, self.components, self._numbering = program, components, number_paths(program)
        code = code_identity(Path(cora.analysis.__file__).parent, Path(cora.ir.__file__).parent)
        key = hashlib.sha256(f"{program_hash(program)} {code}".encode()).hexdigest()
        self._name = f"aligned/{key}"
        blob = read_blob(self._name)
        self._known: dict[str, list[bool]] = json.loads(blob) if blob is not None else {}
        self._fresh = False

    def __call__(self, number: int) -> list[bool]:
        """By component and then mode."""
        known = self._known.get(str(number))
        if known is None:
            known = self._known[str(number)] = self._find(number)
            self._fresh = True
        return known

    def _find(self, number: int) -> list[bool]:
        from cora.analysis.decided import RuleTemplate, decide

        path = path_of(self.program, self._numbering, number)
        found = []
        for component in self.components:
            resume = align(self.program, component, path.blocks, path.outcomes).aligned
            restart = resume and isinstance(decide(self.program, component, path.blocks, path.outcomes), RuleTemplate)
            found += [resume, restart]
        return found

    def keep(self) -> None:
        """Store what was found out."""
        if self._fresh:
            write_blob(self._name, json.dumps(self._known).encode())


class Watch:
    """Listens to a profile run; `admission` and `paths` are the answers when it is over."""

    def __init__(self, program: Program, engine: NativeEngine, windows: tuple[int, int, int]) -> None:
        """Before the engine runs. ``windows``: start, length and number."""
        shardings = sharding_of(program)
        self.components = [name for name, sharding in shardings.items() if sharding.splittable]
        tables = {s.name for s in program.states if isinstance(s, MapState | MeterState)}
        engine.follow([[s for s in shardings[c].states if s in tables] for c in self.components])
        self._program, self._alignments = program, Alignments(program, self.components)
        self._simulator = Simulator(len(self.components), windows, self._alignments, unchanging=_UNCHANGING)
        self._running: Thread | None = None
        self._failure: Exception | None = None

    def feed(self, address: int, count: int) -> None:
        """The moves of a batch: they are simulated while the engine runs the next one."""
        self._wait()
        self._running = Thread(target=self._simulate, args=(address, count))
        self._running.start()

    def _simulate(self, address: int, count: int) -> None:
        try:
            self._simulator.feed(address, count)
        except Exception as failure:  # whatever it is, the thread that waits for it tells it
            self._failure = failure

    def _wait(self) -> None:
        if self._running is not None:
            self._running.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Give the memory back, when what runs has ended."""
        if self._running is not None:
            self._running.join()
        self._simulator.close()

    def finish(self) -> None:
        """The run is over."""
        self._wait()
        self._simulator.finish()
        self._alignments.keep()

    def paths(self) -> Mapping[int, tuple[tuple[int, int], ...]]:
        """(path, packets) by window."""
        rows = self._simulator.taken().tolist()
        return {window: tuple((path, packets) for _, path, packets in group)
                for window, group in groupby(rows, key=lambda row: row[0])}

    def admission(self, loads: Sequence[int], duration_ns: int) -> tuple[Admission, ...]:
        """Points in the order of components, thresholds and capacities. ``loads``: packets by window."""
        chosen = sorted({window_at(loads, q) for q in WINDOW_QUANTILES})
        found = []
        for way, mode in enumerate(MODES):
            tables = [self._points(number, way, component, chosen, duration_ns)
                      for number, component in enumerate(self.components)]
            points = [point for table in tables for _, point in sorted(table.items())]
            if self._apart():
                points += together([t for t in tables if t])
            if points:
                found.append(Admission(mode, tuple(points)))
        return tuple(found)

    def _points(self, number: int, way: int, component: str, chosen: Sequence[int],
                duration_ns: int) -> dict[Limits, AdmissionPoint]:
        windows = {w: self._simulator.window(number, way, w) for w in chosen}
        return {
            (point.threshold, UNBOUNDED if point.capacity is None else point.capacity):
            _point(component, point, [(w, totals[i]) for w, totals in windows.items() if totals], duration_ns)
            for i, point in enumerate(self._simulator.points(number, way)) if point.whole.peak}

    def _apart(self) -> bool:
        """Whether no packet has used entries of two components, so that what is lent of them adds up."""
        component_of = components_of(self._program)
        used = {b.label: {component_of[state] for node in (*b.instructions, b.terminator)
                          for state, _ in accesses_of(self._program, node)} for b in self._program.blocks}
        numbering = number_paths(self._program)
        paths = {int(number) for number in self._simulator.taken()["path"]}
        for number in paths:
            touched = set().union(*(used[label] for label in path_of(self._program, numbering, number).blocks))
            if len(touched & set(self.components)) > 1:
                return False
        return True


# A threshold, and a capacity or UNBOUNDED.
Limits = tuple[int, float]
UNBOUNDED = math.inf


def together(tables: Sequence[Mapping[Limits, AdmissionPoint]]) -> list[AdmissionPoint]:
    """Points of several components lent together, each by points of the same threshold and capacity.

    Where a component never had so many entries lent at once, its point without a bound does the same. ``tables``: per
    component; no packet uses entries of two.
    """
    found = []
    for threshold, capacity in sorted({limits for table in tables for limits in table}) if len(tables) > 1 else ():
        points = [point for table in tables
                  if (point := table.get((threshold, capacity), table.get((threshold, UNBOUNDED)))) is not None]
        if len(points) > 1:
            found.append(_sum(points))
    return found


def _sum(points: Sequence[AdmissionPoint]) -> AdmissionPoint:
    windows = {w.window: [v for p in points for v in p.windows if v.window == w.window]
               for p in points for w in p.windows}
    return AdmissionPoint(
        {name: budget for p in points for name, budget in p.budgets.items()}, _merged(p.lent for p in points),
        sum(p.installs for p in points), sum(p.removals for p in points), sum(p.recalls for p in points),
        sum(p.peak for p in points), sum(p.mean for p in points), sum(p.busiest for p in points),
        tuple(AdmissionWindow(number, _merged(v.lent for v in same), sum(v.installs for v in same),
                              sum(v.removals for v in same), sum(v.recalls for v in same), sum(v.peak for v in same))
              for number, same in sorted(windows.items())))


def _merged(lent: Iterable[tuple[tuple[int, int], ...]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(pair for pairs in lent for pair in pairs))


def _point(component: str, point: Point, windows: Sequence[tuple[int, Totals]], duration_ns: int) -> AdmissionPoint:
    whole = point.whole
    # Without a bound, as many entries as were lent at most would have done.
    budget = Budget(whole.peak if point.capacity is None else point.capacity, point.threshold)
    return AdmissionPoint(
        {component: budget}, tuple(whole.served.items()), whole.installs, whole.removals, whole.recalls, whole.peak,
        point.area / duration_ns if duration_ns else float(point.lent), point.busiest,
        tuple(AdmissionWindow(w, tuple(t.served.items()), t.installs, t.removals, t.recalls, t.peak)
              for w, t in windows))
