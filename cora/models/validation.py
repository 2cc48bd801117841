"""Predictions against published measurements, row by row, with bands.

A ``calibration.toml`` lists rows: a micro-program as counts of operations and table accesses, the set-up it ran in, and
the published figure. It is priced by the same code as programs are. Fields of a ``[[row]]``:

    name, group, published, unit ("Mpps" or "Gb/s"), source, place: required
    frame: frame length in bytes without FCS, 60 by default; cores: host cores, 1 by default
    operations: counts per packet
    accesses: [{kind, entries, tier}] to a table of flows with 5-tuple keys, all used alike
    instance: card instance; values: parameters pinned to the set-up of the measurement
    base: whether the place's per-packet cost is paid, true by default
    fitted: whether the model was fitted on the row, true by default
    insertions: rules inserted per second by the forwarding core (root: into the root table)
    reading: how precisely the published figure is known (relative), half a per cent by default
    note: free text
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import FieldDecl, KeyDecl, MapState, Program
from cora.ir.span import Span
from cora.ir.types import U8, U16, U32, U64
from cora.models import registry
from cora.models.operations import Operations
from cora.models.parameters import Model, read_toml, samples
from cora.models.softmin import Throughput, softmin, total
from cora.models.target import Demand, Refusal, Target

SAMPLES = 200
SEED = 20_241_029
UNITS = ("Mpps", "Gb/s")
_REQUIRED = {"name": str, "group": str, "published": (int, float), "unit": str, "source": str, "place": str}
_OPTIONAL = {"frame": (int, float), "cores": int, "operations": dict, "accesses": list, "instance": str, "values": dict,
             "base": bool, "fitted": bool, "insertions": (int, float), "root": bool, "reading": (int, float),
             "note": str}


@runtime_checkable
class Priced(Protocol):
    """A target that prices operations by name, as calibration rows need."""

    def operations(self, place: int, counts: Operations) -> Demand:
        """Demand of operations at a place; KeyError for one it does not have."""


@runtime_checkable
class Inserting(Protocol):
    """A target whose forwarding suffers from rule insertions on the same core."""

    def forwarding_share(self, insertions: float, root: bool = False) -> float:
        """Share (0..1) of its rate a core keeps at so many insertions a second."""


@dataclass(frozen=True)
class Access:
    """An access of a calibration row to a table of ``entries`` flows, all used alike."""

    kind: str
    entries: int
    tier: str


@dataclass(frozen=True)
class CalibrationRow:
    """One published figure and the micro-program it is of."""

    name: str
    group: str
    published: float
    unit: str
    source: str
    place: str
    frame: float = 60.0
    cores: int = 1
    operations: Mapping[str, float] = field(default_factory=dict)
    accesses: tuple[Access, ...] = ()
    instance: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    base: bool = True
    fitted: bool = True
    insertions: float = 0.0
    root: bool = False
    reading: float = 0.005
    note: str = ""


@dataclass(frozen=True)
class ValidationRow:
    """Predicted against published, in ``unit``; ``low`` and ``high`` are P10 and P90 over the parameter box."""

    target: str
    name: str
    group: str
    unit: str
    published: float
    predicted: float
    low: float
    high: float
    binding: str
    source: str
    fitted: bool
    reading: float

    @property
    def error(self) -> float:
        """Relative error, positive when the model promises too much."""
        return self.predicted / self.published - 1

    @property
    def covered(self) -> bool:
        """Whether the published figure, as precisely as it is known, lies in the band."""
        slack = self.reading * self.published
        return self.low - slack <= self.published <= self.high + slack


def calibration_file(name: str) -> Path:
    """The calibration rows a backend ships.

    Raises:
        CoraError: as `registry.module`.
    """
    return Path(registry.module(name).__file__ or "").with_name("calibration.toml")


def load_rows(path: Path) -> tuple[CalibrationRow, ...]:
    """Read calibration rows.

    Raises:
        CoraError: `Kind.BAD_MODEL` naming the row and the field.
    """
    rows = read_toml(path).get("row")
    if not isinstance(rows, list) or not rows:
        raise fail(Kind.BAD_MODEL, "a calibration file needs [[row]] tables", where=str(path))
    return tuple(_row(i, row, path) for i, row in enumerate(rows, start=1))


def _row(number: int, row: Any, path: Path) -> CalibrationRow:
    label = f"row {number}" + (f" ({row['name']})" if isinstance(row, dict) and "name" in row else "")

    def wrong(message: str) -> CoraError:
        return fail(Kind.BAD_MODEL, f"{label} {message}", where=str(path))

    if not isinstance(row, dict):
        raise wrong("is no table")
    missing = [k for k in _REQUIRED if k not in row]
    if missing:
        raise wrong(f"lacks {', '.join(missing)}")
    known = {**_REQUIRED, **_OPTIONAL}
    for key, value in row.items():
        if key not in known:
            raise wrong(f"has the unknown field {key}")
        if not isinstance(value, known[key]):  # type: ignore[arg-type]
            raise wrong(f"has a {key} of the wrong type: {value!r}")
    if row["unit"] not in UNITS or row["published"] <= 0:
        raise wrong(f"needs a unit of {' or '.join(UNITS)} and a published figure above 0")
    for key in ("operations", "values"):
        if not all(isinstance(n, int | float) for n in row.get(key, {}).values()):
            raise wrong(f"has a number missing in {key}")
    try:
        accesses = tuple(Access(str(a["kind"]), int(a["entries"]), str(a.get("tier", ""))) for a in
                         row.get("accesses", []))
    except (KeyError, TypeError, ValueError) as error:
        raise wrong("has an access without kind or entries") from error
    return CalibrationRow(**{**row, "accesses": accesses})


def predict(target: Target, row: CalibrationRow, where: str = "") -> tuple[float, Throughput]:
    """The model's figure for a row, in the row's unit, and what it is made of. ``target`` is in the row's set-up.

    Raises:
        CoraError: `Kind.BAD_MODEL` when the row asks for a place, an operation or an access the target does not have.
    """
    try:
        demand = total([(1.0, d) for d in _demands(target, row)])
    except (KeyError, StopIteration) as error:
        raise fail(Kind.BAD_MODEL, f"row '{row.name}': {target.name} has no {error or row.place}",
                   where=where or None) from error
    rates = {r.name: r.rate * (row.cores if r.scales else 1) for r in target.resources(row.frame)}
    found = softmin(demand, rates, target.exponent)
    rate = found.rate * (target.forwarding_share(row.insertions, row.root) if isinstance(target, Inserting) else 1.0)
    if row.unit == "Mpps":
        return rate / 1e6, found
    # Frames with preamble, FCS and gap, as line rates are counted.
    return rate * 8 * (row.frame + target.model["frame_overhead"]) / 1e9, found


def _demands(target: Target, row: CalibrationRow) -> Iterable[Demand]:
    place = next((i for i, p in enumerate(target.places) if p.name == row.place), None)
    if place is None:
        raise KeyError(f"place {row.place}")
    if not isinstance(target, Priced):
        raise KeyError("operations")
    yield target.wire(row.frame)
    if row.base:
        yield target.per_packet(place)
    yield target.operations(place, row.operations)
    for access in row.accesses:
        state = flow_table(access.entries)
        tier = access.tier or target.places[place].tiers[0].name
        size = entry_bytes(state)
        use = AccessRates(size, access.entries, size * access.entries, 1 / access.entries, 0.0)
        cost = target.access(_no_program(state), state, access.kind, place, tier, use)
        if isinstance(cost, Refusal):
            raise KeyError(f"{access.kind}: {cost.reason}")
        yield cost


_NOWHERE = Span("<calibration>", 1, 1, 1, 1)


def flow_table(entries: int) -> MapState:
    """A table of 5-tuples with one counter each."""
    key = tuple(FieldDecl(n, t, _NOWHERE) for n, t in
                (("src", U32), ("dst", U32), ("sport", U16), ("dport", U16), ("proto", U8)))
    fields = (*key, FieldDecl("packets", U64, _NOWHERE))
    return MapState("flows", fields, (KeyDecl("key", tuple(f.name for f in key), _NOWHERE),), (), entries, (), 0,
                    "reject", True, True, False, _NOWHERE)


def _no_program(state: MapState) -> Program:
    return Program("calibration", (), (), (state,), (), _NOWHERE)


def validate(name: str, rows_file: Path | None = None, *, count: int = SAMPLES, seed: int = SEED,
             ) -> list[ValidationRow]:
    """Predict every calibration row of a backend (or of another file of the same form), with bands.

    Raises:
        CoraError: unknown backend, broken model or calibration file.
    """
    path = rows_file or calibration_file(name)
    target = registry.get(name)
    return [_validated(target, row, count, seed, path) for row in load_rows(path)]


def _validated(target: Target, row: CalibrationRow, count: int, seed: int, path: Path) -> ValidationRow:
    model = _in_setup(target.model, row, path)
    predicted, found = predict(type(target)(model), row, str(path))
    low, high = bands(type(target), model, row, count, seed)
    return ValidationRow(target.name, row.name, row.group, row.unit, row.published, predicted, min(low, predicted),
                         max(high, predicted), found.binding or "", row.source, row.fitted, row.reading)


def _in_setup(model: Model, row: CalibrationRow, path: Path) -> Model:
    try:
        return model.at_instance(row.instance).pinned(row.values)
    except KeyError as error:
        raise fail(Kind.BAD_MODEL, f"row '{row.name}' pins the unknown parameter {error}", where=str(path)) from error


def bands(make: type[Target], model: Model, row: CalibrationRow, count: int = SAMPLES, seed: int = SEED,
          ) -> tuple[float, float]:
    """P10 and P90 of a row's prediction over ``count`` samples of the parameter box; pinned parameters stay."""
    drawn = sorted(predict(make(m), row)[0] for m in samples(model, count, seed))
    return quantile(drawn, 0.1), quantile(drawn, 0.9)


def quantile(ordered: Sequence[float], q: float) -> float:
    """A quantile by linear interpolation between the order statistics.

    Raises:
        ValueError: no values.
    """
    if not ordered:
        raise ValueError("no values")
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


@dataclass(frozen=True)
class Summary:
    """Errors of a group of rows: medians and extremes are relative; ``covered`` is a share of the rows."""

    rows: int
    median: float
    largest_over: float
    largest_under: float
    covered: float


def summarise(rows: Sequence[ValidationRow]) -> Summary:
    """The summary of some rows.

    Raises:
        ValueError: there are none.
    """
    if not rows:
        raise ValueError("no rows")
    errors = [r.error for r in rows]
    return Summary(len(rows), statistics.median(abs(e) for e in errors), max(0.0, *errors), abs(min(0.0, *errors)),
                   sum(r.covered for r in rows) / len(rows))


def render(rows: Sequence[ValidationRow]) -> str:
    """The rows as a table, then per target a line per group and one each for fitted and held-out rows."""
    width = max((len(r.name) for r in rows), default=4)
    out = [f"{'row':<{width}}  unit  published  predicted  P10-P90 (predicted)   error  binds"]
    for r in rows:
        band = f"{r.low:.1f}-{r.high:.1f}{'' if r.covered else ' !'}"
        out.append(f"{r.name:<{width}}  {r.unit:<4}  {r.published:>9.2f}  {r.predicted:>9.2f}  {band:<19}  "
                   f"{r.error:>+6.1%}  {r.binding}{'' if r.fitted else '  (not fitted)'}")
    out += ["", "!: the published figure, as precisely as it is known, lies outside the band",
            "(not fitted): a held-out row, which no parameter was fitted on", ""]
    for target in dict.fromkeys(r.target for r in rows):
        own = [r for r in rows if r.target == target]
        groups = {g: [r for r in own if r.group == g] for g in dict.fromkeys(r.group for r in own)}
        kinds = {"fitted rows": [r for r in own if r.fitted], "held-out rows": [r for r in own if not r.fitted]}
        out += [_summary_line(f"{target}, {label}", group) for label, group in [*groups.items(), *kinds.items()]]
    return "\n".join(out) + "\n"


def _summary_line(label: str, rows: Sequence[ValidationRow]) -> str:
    if not rows:
        return f"{label}: none"
    s = summarise(rows)
    return (f"{label}: {s.rows} {'row' if s.rows == 1 else 'rows'}, median error {s.median:.1%}, at most "
            f"{s.largest_over:.1%} over and {s.largest_under:.1%} under, {s.covered:.0%} inside the band")
