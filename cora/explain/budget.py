"""The cost of each path as a budget file that continuous integration checks new plans against.

A path's cost is what the model predicts for one packet of it: nanoseconds of host and Arm cores, cycles of
micro-engines, accesses of memories, each under its resource's name. It does not depend on how many packets take the
path, so a check tells a change of the program (or of its placement) from a change of the traffic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cora.documents import Garbled, decode, read_json, read_text
from cora.errors import Kind, fail
from cora.plan.costs import amounts_of, mean_amounts, of_class
from cora.plan.document import LATENCY, Plan
from cora.plan.quantities import plural, used

FORMAT = "cora-budget"
VERSION = 1
# A difference below this share of the whole is noise of six-digit documents.
_NOISE = 1e-5
_FROM_BEFORE = "make the budget again from a plan of the state you compare with"
_AGAIN = "make one with `cora budget PLAN -o budget.json`"


@dataclass(frozen=True)
class Unit:
    """Where a resource is and what it is counted in."""

    place: str
    unit: str


@dataclass(frozen=True)
class LineCost:
    """What a source line costs one packet of a path, with its accesses; ``text`` is the line."""

    file: str
    line: int
    text: str
    costs: Mapping[str, float]


@dataclass(frozen=True)
class PathBudget:
    """One packet of a path: what it uses, and its source lines, the most expensive first."""

    history: tuple[str, ...]
    verdict: str
    ends: str
    share: float
    costs: Mapping[str, float]
    lines: tuple[LineCost, ...]

    @property
    def key(self) -> tuple[tuple[str, ...], str]:
        """What the same path has in another plan."""
        return self.history, self.verdict

    @property
    def name(self) -> str:
        return "; ".join((*self.history, self.verdict))


@dataclass(frozen=True)
class Budget:
    """All paths of a plan, most packets first, and the mean packet. ``units``: of every resource in the costs."""

    program: str
    target: str
    model_version: str
    model_digest: str
    kind: str
    units: Mapping[str, Unit]
    mean: Mapping[str, float]
    paths: tuple[PathBudget, ...]

    def times(self) -> list[str]:
        """The resources that are time (nanoseconds or cycles) and are used at all, and the latency."""
        return [n for n, u in self.units.items()
                if n == LATENCY or (u.unit.endswith(("ns", "cycle")) and self.mean.get(n))]

    def to_json(self) -> str:
        """The document: a path a line, a trailing newline."""
        data = asdict(self)
        paths = ",\n".join("  " + json.dumps(p, ensure_ascii=False) for p in data.pop("paths"))
        head = "\n".join(f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)},"
                         for k, v in {"format": FORMAT, "version": VERSION, **data}.items())
        return f'{{\n{head}\n "paths": [\n{paths}\n ]\n}}\n'


def budget_of(plan: Plan) -> Budget:
    """The budget of a plan. Paths that differ only in the place where they end are one."""
    units = {r.name: Unit(r.place, r.unit) for r in plan.resources}
    units[LATENCY] = Unit("", "ns")
    rows: dict[tuple[tuple[str, ...], str], list[int]] = {}
    for number, path in enumerate(plan.classes):
        rows.setdefault((path.history, path.verdict), []).append(number)
    paths = [_path(plan, numbers) for numbers in rows.values()]
    return Budget(plan.program, plan.target, plan.model_version, plan.model_digest, "predicted", units,
                  _rounded(mean_amounts(plan)), tuple(sorted(paths, key=lambda p: -p.share)))


def _rounded(amounts: Mapping[str, float]) -> dict[str, float]:
    return {n: float(f"{a:.6g}") for n, a in amounts.items()}


def _path(plan: Plan, numbers: list[int]) -> PathBudget:
    share = sum(plan.classes[n].share for n in numbers)
    weights = {n: plan.classes[n].share / share if share else 1 / len(numbers) for n in numbers}
    costs: dict[str, float] = {}
    lines: dict[tuple[str, int, str], dict[str, float]] = {}
    for number, weight in weights.items():
        rows = of_class(plan, number)
        _add(costs, amounts_of(rows), weight)
        for row in rows:
            if row.source is not None:
                key = (row.source.file, row.source.line, row.source.text)
                _add(lines.setdefault(key, {}), row.amounts, weight)
    first = plan.classes[numbers[0]]
    ends = " or ".join(dict.fromkeys(plan.classes[n].ends for n in numbers))
    return PathBudget(first.history, first.verdict, ends, float(f"{share:.6g}"), _rounded(costs),
                      tuple(_heaviest(plan, lines)))


def _add(into: dict[str, float], amounts: Mapping[str, float], weight: float) -> None:
    for name, amount in amounts.items():
        into[name] = into.get(name, 0.0) + weight * amount


def _heaviest(plan: Plan, lines: Mapping[tuple[str, int, str], Mapping[str, float]]) -> Iterator[LineCost]:
    """The lines, first those that use most of any resource as a share of what there is of it a second."""
    rates = {r.name: r.rate for r in plan.resources}

    def weight(costs: Mapping[str, float]) -> float:
        return max((a / rates[n] for n, a in costs.items() if rates.get(n)), default=0.0)

    order = sorted(lines.items(), key=lambda row: (-weight(row[1]), row[0]))
    for (file, line, text), costs in order:
        yield LineCost(file, line, text, _rounded(costs))


def load_budget(path: Path) -> Budget:
    """Read a budget file.

    Raises:
        CoraError: `Kind.BAD_BUDGET` naming the field and what is wrong with it.
    """
    try:
        data = read_json(read_text(path))
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise Garbled(f"this is no budget: its format is not '{FORMAT}'")
        if data.get("version") != VERSION or isinstance(data.get("version"), bool):
            raise Garbled(f"the budget's format is version {data.get('version')!r}, this program reads {VERSION}")
        return decode(Budget, {k: v for k, v in data.items() if k not in ("format", "version")})
    except OSError as error:
        raise fail(Kind.BAD_BUDGET, f"cannot read the budget: {error.strerror}", where=str(path),
                   hint=_AGAIN) from error
    except json.JSONDecodeError as error:
        raise fail(Kind.BAD_BUDGET, f"this is no JSON: {error.msg}", where=f"{path}:{error.lineno}:{error.colno}",
                   hint=_AGAIN) from error
    except Garbled as error:
        raise fail(Kind.BAD_BUDGET, str(error), where=str(path), hint=_AGAIN) from error


@dataclass(frozen=True)
class Overrun:
    """A cost that changed; ``path`` None is the mean packet. ``lines``: (place, text, by how much), largest first."""

    path: str | None
    resource: str
    place: str
    unit: str
    before: float
    after: float
    over: bool
    lines: tuple[tuple[str, str, float], ...]

    @property
    def added(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Checked:
    """What differs from a budget; ``new`` and ``gone``: names of paths that only one side has."""

    changes: tuple[Overrun, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def over(self) -> bool:
        return any(c.over for c in self.changes)


def check_budget(budget: Budget, now: Budget, tolerance: float) -> Checked:
    """Hold the budget of a new plan against an older one; ``tolerance`` is the share a cost may grow by.

    A cost is over when it grows by more than that share, or where there was none before. The mean packet is reported
    beside its paths; it is over only for a resource of which no path is.

    Raises:
        CoraError: `Kind.BAD_BUDGET` when the two are of different programs, targets or models.
    """
    for what, a, b in (("program", budget.program, now.program), ("target", budget.target, now.target)):
        if a != b:
            raise fail(Kind.BAD_BUDGET, f"the budget is for the {what} {a}, the plan for {b}", hint=_FROM_BEFORE)
    if budget.model_digest != now.model_digest:
        raise fail(Kind.BAD_BUDGET, "the budget was made with other figures of the model than the plan",
                   hint=_FROM_BEFORE)
    before = {p.key: p for p in budget.paths}
    after = {p.key: p for p in now.paths}
    changes = [c for key, path in after.items() if key in before
               for c in _changes(before[key], path, {**budget.units, **now.units}, tolerance)]
    changes += _mean(budget, now, tolerance, {c.resource for c in changes if c.over})
    changes.sort(key=lambda c: (not c.over, c.path is None, -abs(c.added) / max(c.before, 1e-12)))
    return Checked(tuple(changes), tuple(p.name for k, p in after.items() if k not in before),
                   tuple(p.name for k, p in before.items() if k not in after))


def _changes(before: PathBudget, after: PathBudget, units: Mapping[str, Unit], tolerance: float) -> Iterator[Overrun]:
    for name in dict.fromkeys((*before.costs, *after.costs)):
        a, b = before.costs.get(name, 0.0), after.costs.get(name, 0.0)
        if abs(b - a) > _NOISE * max(a, b):
            yield Overrun(after.name, name, units[name].place, units[name].unit, a, b, b > a * (1 + tolerance),
                          tuple(_lines(before, after, name)))


def _lines(before: PathBudget, after: PathBudget, resource: str) -> Iterator[tuple[str, str, float]]:
    """The lines whose cost differs, told apart by their text: lines move when others are written above them."""
    old, new = _by_text(before, resource), _by_text(after, resource)
    found = []
    for key in dict.fromkeys((*new, *old)):
        line = (new.get(key) or old[key])[1]
        added = (new[key][0] if key in new else 0.0) - (old[key][0] if key in old else 0.0)
        if abs(added) > _NOISE * after.costs.get(resource, 0.0):
            gone = "" if key in new else " (no longer there)"
            found.append((f"{line.file}:{line.line}", f"{line.text}{gone}", added))
    yield from sorted(found, key=lambda row: -abs(row[2]))[:3]


def _by_text(path: PathBudget, resource: str) -> dict[tuple[str, str], tuple[float, LineCost]]:
    """Per text (the number where the text is not known) what its lines cost, and the first of them."""
    found: dict[tuple[str, str], tuple[float, LineCost]] = {}
    for line in path.lines:
        key = (line.file, line.text or str(line.line))
        cost, first = found.get(key, (0.0, line))
        found[key] = (cost + line.costs.get(resource, 0.0), first)
    return found


def _mean(budget: Budget, now: Budget, tolerance: float, told: set[str]) -> Iterator[Overrun]:
    for name in dict.fromkeys((*budget.mean, *now.mean)):
        a, b = budget.mean.get(name, 0.0), now.mean.get(name, 0.0)
        if abs(b - a) > _NOISE * max(a, b):
            unit = now.units.get(name) or budget.units[name]
            yield Overrun(None, name, unit.place, unit.unit, a, b, name not in told and b > a * (1 + tolerance), ())


def report(checked: Checked, tolerance: float) -> str:
    """The check as text, what is over first."""
    lines = []
    for c in checked.changes:
        if c.over:
            lines += _told(c)
    rest = [c for c in checked.changes if not c.over]
    if rest:
        lines.append("within the tolerance:" if lines else "nothing is over the budget; what changed:")
        lines += [f"  {_sentence(c)}" for c in rest]
    lines += [f"new path, no budget yet: {name}" for name in checked.new]
    lines += [f"path no longer taken: {name}" for name in checked.gone]
    if not lines:
        return "costs are those of the budget\n"
    if checked.over:
        over = sum(c.over for c in checked.changes)
        lines.append(f"{over} {plural('cost', over)} grew by more than {100 * tolerance:g} %")
    return "\n".join(lines) + "\n"


def _told(c: Overrun) -> list[str]:
    return [f"over: {_sentence(c)}",
            *(f"    {where}: {text}  {'+' if added > 0 else '-'}{used(abs(added), c.unit)}"
              for where, text, added in c.lines)]


def _sentence(c: Overrun) -> str:
    """``this change adds 12 ns of host-cores at host to the path ...: 120 ns to 132 ns (+10.0 %)``."""
    verb = "adds" if c.added > 0 else "saves"
    what = f"{used(abs(c.added), c.unit)} of {c.resource}{f' at {c.place}' if c.place else ''}"
    where = "a mean packet (paths and their shares)" if c.path is None else f"the path '{c.path}'"
    link = "to" if c.added > 0 else "from"
    share = f" ({100 * c.added / c.before:+.1f} %)" if c.before else " (it used none)"
    return (f"this change {verb} {what} {link} {where}: {used(c.before, c.unit)} to {used(c.after, c.unit)}{share}")


def summary(budget: Budget) -> str:
    """The budget as a table: per path what it uses of the resources that are time."""
    from cora.plan.render import columns

    names = budget.times()
    head = ("share", "path", *(f"{n} ({budget.units[n].unit})" for n in names))
    rows = [(f"{100 * p.share:.1f} %", p.name, *(_number(p.costs.get(n)) for n in names)) for p in budget.paths]
    rows.append(("", "mean packet", *(_number(budget.mean.get(n)) for n in names)))
    title = f"what one packet takes of {budget.target}, predicted by the model {budget.model_version}"
    return "\n".join([title, *columns(head, rows)]) + "\n"


def _number(value: float | None) -> str:
    return "-" if not value else f"{value:,.1f}"

