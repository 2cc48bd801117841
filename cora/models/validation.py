"""Predictions against published measurements, row by row, with bands (the rows: `cora.models.calibration_rows`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cora.analysis.accesses import AccessRates, entry_bytes
from cora.errors import Kind, fail
from cora.ir.nodes import FieldDecl, KeyDecl, MapState, Program
from cora.ir.span import Span
from cora.ir.types import U8, U16, U32, U64
from cora.models import registry
from cora.models.calibration_rows import CalibrationRow, calibration_file, load_rows
from cora.models.operations import Operations
from cora.models.parameters import Model, samples
from cora.models.softmin import Throughput, softmin, total
from cora.models.target import Demand, Refusal, Target

SAMPLES = 200
SEED = 20_241_029


@runtime_checkable
class Priced(Protocol):
    """A target that prices operations by name, as calibration rows need; it names those of each place."""

    def operation_names(self, place: int) -> tuple[str, ...]:
        """Operations that a place has."""

    def operations(self, place: int, counts: Operations) -> Demand:
        """Demand of operations at a place; KeyError for one it does not have."""


@runtime_checkable
class Inserting(Protocol):
    """A target whose forwarding suffers from rule insertions on the same core."""

    def forwarding_share(self, insertions: float, root: bool = False) -> float:
        """Share (0..1) of its rate a core keeps at so many insertions a second."""


def priced_operations(target: Target) -> dict[str, dict[str, Demand]]:
    """Per place its operations, each with what one of them demands."""
    if not isinstance(target, Priced):
        return {}
    return {place.name: {name: target.operations(i, {name: 1.0}) for name in target.operation_names(i)}
            for i, place in enumerate(target.places)}


@dataclass(frozen=True)
class ValidationRow:
    """Predicted against published, in ``unit``; ``low`` and ``high`` are P10 and P90 over the parameter box.

    ``at_limit``: both figures are what the ports let through, so the row says nothing about the band.
    """

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
    at_limit: bool = False

    @property
    def error(self) -> float:
        """Relative error, positive when the model promises too much."""
        return self.predicted / self.published - 1

    @property
    def covered(self) -> bool:
        """Whether the published figure, as precisely as it is known, lies in the band."""
        slack = self.reading * self.published
        return self.low - slack <= self.published <= self.high + slack


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
    return _in_unit(target, row, rate), found


def _demands(target: Target, row: CalibrationRow) -> Iterable[Demand]:
    place = next((i for i, p in enumerate(target.places) if p.name == row.place), None)
    if place is None:
        raise KeyError(f"place {row.place}")
    if not isinstance(target, Priced):
        raise KeyError("operations")
    if row.unit != "k/s":
        yield target.wire(row.frame)
    if row.base and row.unit != "k/s":
        yield target.per_packet(place)
    yield target.operations(place, row.operations)
    for access in row.accesses:
        state = flow_table(access.entries)
        tier = access.tier or target.places[place].tiers[0].name
        size = entry_bytes(state)
        hottest = access.hottest or 1 / access.entries
        use = AccessRates(size, access.entries, size * access.entries, hottest, 0.0)
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


def validate(name: str | None, rows_file: Path | None = None, *, count: int = SAMPLES, seed: int = SEED,
             ) -> list[ValidationRow]:
    """Predict every calibration row of a backend, or of a file of rows, with bands.

    Args:
        name: the NIC; rows of other NICs are left out. None: the rows of a file name theirs.

    Raises:
        CoraError: unknown backend, broken model or calibration file; `Kind.BAD_MODEL` when no row is of the NIC, or a
            row names none.
        ValueError: neither a name nor a file.
    """
    if rows_file is None and name is None:
        raise ValueError("need a NIC or a file of rows")
    path = rows_file or calibration_file(name or "")
    wanted = [(row.nic or name, row) for row in load_rows(path) if name is None or row.nic in (None, name)]
    if not wanted:
        raise fail(Kind.BAD_MODEL, f"no row is of {name}", where=str(path))
    nameless = next((row for nic, row in wanted if nic is None), None)
    if nameless:
        raise fail(Kind.BAD_MODEL, f"row '{nameless.name}' says nothing about its NIC", where=str(path),
                   hint="give the row a nic = \"...\", or name one NIC for all: `cora nics NIC --validate --rows FILE`")
    targets = {nic: registry.get(nic) for nic, _ in wanted if nic is not None}
    return [validated(targets[nic], row, path, count, seed) for nic, row in wanted if nic is not None]


def validated(target: Target, row: CalibrationRow, path: Path, count: int = SAMPLES,
              seed: int = SEED) -> ValidationRow:
    """A row of a file as a target predicts it, with its band."""
    model = in_setup(target.model, row, path)
    made = type(target)(model)
    predicted, found = predict(made, row, str(path))
    low, high = bands(type(target), model, row, count, seed)
    most = (1 - row.reading) * wire_limit(made, row)
    return ValidationRow(target.name, row.name, row.group, row.unit, row.published, predicted, min(low, predicted),
                         max(high, predicted), found.binding or "", row.source, row.fitted, row.reading,
                         at_limit=min(predicted, row.published) >= most)


def wire_limit(target: Target, row: CalibrationRow) -> float:
    """What the ports alone let through of a row's frames, in the row's unit; infinite where it is not about frames."""
    if row.unit == "k/s":
        return math.inf
    ports = {r.name: r.rate for r in target.resources(row.frame) if not r.scales}
    limits = [ports[name] / n for name, n in target.wire(row.frame).items() if name in ports and n > 0]
    return _in_unit(target, row, min(limits))


def _in_unit(target: Target, row: CalibrationRow, rate: float) -> float:
    if row.unit in ("Mpps", "k/s"):
        return rate / (1e6 if row.unit == "Mpps" else 1e3)
    # Frames with preamble, FCS and gap, as line rates are counted.
    return rate * 8 * (row.frame + target.model["frame_overhead"]) / 1e9


def in_setup(model: Model, row: CalibrationRow, path: Path) -> Model:
    """A model in the set-up of a row.

    Raises:
        CoraError: `Kind.BAD_MODEL` where the row pins what is no parameter.
    """
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
    """Errors of a group of rows: medians and extremes are relative.

    ``banded``: the rows that are not at the ports' limit; ``covered``: the share of them inside their bands, None when
    there are none.
    """

    rows: int
    median: float
    largest_over: float
    largest_under: float
    banded: int
    covered: float | None


def summarise(rows: Sequence[ValidationRow]) -> Summary:
    """The summary of some rows.

    Raises:
        ValueError: there are none.
    """
    if not rows:
        raise ValueError("no rows")
    errors = [r.error for r in rows]
    banded = [r for r in rows if not r.at_limit]
    covered = sum(r.covered for r in banded) / len(banded) if banded else None
    return Summary(len(rows), statistics.median(abs(e) for e in errors), max(0.0, *errors), abs(min(0.0, *errors)),
                   len(banded), covered)


def document(rows: Sequence[ValidationRow], left_out: Sequence[ValidationRow] = ()) -> dict[str, Any]:
    """The rows with their errors, those left out in turn, and the summary of each NIC, as JSON's own types."""
    nics = dict.fromkeys(r.target for r in rows)

    def plain(some: Sequence[ValidationRow]) -> list[dict[str, Any]]:
        return [{**asdict(r), "error": r.error, "covered": r.covered} for r in some]

    return {"rows": plain(rows), "left_out": plain(left_out),
            "summary": {nic: asdict(summarise([r for r in rows if r.target == nic])) for nic in nics}}


def render(rows: Sequence[ValidationRow], left_out: Sequence[ValidationRow] = ()) -> str:
    """The rows as a table, then per target a line per group, one each for fitted and held-out rows, one for all, and
    one for the fitted rows each ``left_out`` in turn.
    """
    width = max((len(r.name) for r in rows), default=4)
    out = [f"{'row':<{width}}  unit  published  predicted  P10 to P90 (predicted)  error  binds"]
    for r in rows:
        band = f"{r.low:.1f} to {r.high:.1f}{'' if r.covered else ' !'}"
        out.append(f"{r.name:<{width}}  {r.unit:<4}  {r.published:>9.2f}  {r.predicted:>9.2f}  {band:<22}  "
                   f"{r.error:>+6.1%}  {r.binding}{'' if r.fitted else '  (not fitted)'}")
    out += ["", "!: the published figure, as precisely as it is known, lies outside the band",
            "(not fitted): a held-out row, which no parameter was fitted on",
            "inside the band: of the rows where the ports alone do not decide", ""]
    for target in dict.fromkeys(r.target for r in rows):
        own = [r for r in rows if r.target == target]
        groups = {g: [r for r in own if r.group == g] for g in dict.fromkeys(r.group for r in own)}
        kinds = {"fitted rows": [r for r in own if r.fitted], "held-out rows": [r for r in own if not r.fitted],
                 "all rows": own}
        out += [_summary_line(f"{target}, {label}", group) for label, group in [*groups.items(), *kinds.items()]]
        again = [r for r in left_out if r.target == target]
        if again:
            out.append(_summary_line(f"{target}, each fitted row left out in turn", again))
    return "\n".join(out) + "\n"


def _summary_line(label: str, rows: Sequence[ValidationRow]) -> str:
    if not rows:
        return f"{label}: none"
    s = summarise(rows)
    covered = "" if s.covered is None else f", {s.covered:.0%} of {s.banded} inside the band"
    return (f"{label}: {s.rows} {'row' if s.rows == 1 else 'rows'}, median error {s.median:.1%}, at most "
            f"{s.largest_over:.1%} over and {s.largest_under:.1%} under{covered}")
