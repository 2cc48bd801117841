"""How well the curves of the models predict points they were not given.

Each inner point of the host's curve of look-up cost (flows) and of the switch's curve of look-up rate (rules) is left
out in turn: its parameter is replaced by what its neighbours interpolate to, by the law the model uses between points,
and the published rows at that point are predicted with bands. Rows at the ports' limit are left out: they say nothing.

    python benchmarks/leave_one_out.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from cora.backends.bluefield.target import LOOKUPS
from cora.models import registry
from cora.models.calibration_rows import CalibrationRow, calibration_file, load_rows
from cora.models.cpu import CURVE, interpolate
from cora.models.parameters import Model
from cora.models.target import Target
from cora.models.validation import ValidationRow, bands, predict, summarise, wire_limit


def left_out(model: Model, curve: Sequence[tuple[int, str]], number: int, logarithmic: bool) -> Model:
    """The model with one point of a curve replaced by its neighbours'; its band moves along."""
    def value(name: str) -> float:
        return math.log(model[name]) if logarithmic else model[name]

    around = [(k, value(name)) for k, name in (curve[number - 1], curve[number + 1])]
    found = interpolate(around, curve[number][0])
    return model.rescaled({curve[number][1]: math.exp(found) if logarithmic else found})


def rows_at(rows: Sequence[CalibrationRow], thousands: int) -> Iterator[CalibrationRow]:
    """Rows of a table of so many thousand flows or rules."""
    for row in rows:
        if any(a.entries == 1000 * thousands for a in row.accesses) or f"lookup_{thousands}" in row.operations:
            yield row


def validated(target: Target, model: Model, row: CalibrationRow) -> ValidationRow | None:
    """The prediction for a row, None at the ports' limit."""
    own = model.at_instance(row.instance).pinned(row.values)
    made = type(target)(own)
    predicted, found = predict(made, row)
    if min(predicted, row.published) >= (1 - row.reading) * wire_limit(made, row):
        return None
    low, high = bands(type(target), own, row)
    return ValidationRow(target.name, row.name, row.group, row.unit, row.published, predicted, low, high,
                         found.binding or "", row.source, False, row.reading)


def main() -> None:
    """Print every prediction and the summary."""
    found: list[ValidationRow] = []
    for nic, curve, logarithmic in (("host", CURVE, False), ("bluefield2", LOOKUPS, True)):
        target, rows = registry.get(nic), load_rows(calibration_file(nic))
        for number in range(1, len(curve) - 1):
            model = left_out(target.model, curve, number, logarithmic)
            done = (validated(target, model, row) for row in rows_at(rows, curve[number][0]))
            found += [row for row in done if row is not None]
    width = max(len(r.name) for r in found)
    print(f"{'row':<{width}}  published  predicted   error  P10 to P90")
    for r in found:
        band = f"{r.low:.1f} to {r.high:.1f}{'' if r.covered else ' !'}"
        print(f"{r.name:<{width}}  {r.published:>9.2f}  {r.predicted:>9.2f}  {r.error:>+6.1%}  {band}")
    for nic in dict.fromkeys(r.target for r in found):
        s = summarise([r for r in found if r.target == nic])
        print(f"{nic}: {s.rows} rows, median error {s.median:.1%}, at most {s.largest_over:.1%} over and "
              f"{s.largest_under:.1%} under, {s.covered:.0%} inside the band")


if __name__ == "__main__":
    main()
