"""How well the models predict rows they were not given: each fitted row left out in turn.

Two ways, by what a row decides:

* A point of a curve (look-up cost by flows, look-up rate by rules): its parameter is replaced by what its neighbours
  interpolate to, by the law the model uses between points. The ends of a curve have one neighbour only.
* Parameters that several rows decide together: the prediction without a row follows from the residual of the whole fit
  and the row's leverage h, as in linear regression, error / (1 - h) (the PRESS statistic: Allen, "The relationship
  between variable selection and data augmentation and a method for prediction", Technometrics 16, 1974). Leverages come
  from the logarithms' derivatives by each parameter, in standard deviations of the parameter box, with a ridge of the
  rows' own scatter.

A row with a parameter of its own (leverage of a half or more, and no curve) cannot be left out: nothing else tells it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cora.models import registry
from cora.models.calibration_rows import CalibrationRow, calibration_file, load_rows
from cora.models.cpu import Curve, interpolate
from cora.models.parameters import Z90, Model
from cora.models.target import Target
from cora.models.validation import ValidationRow, in_setup, predict, validated

# Scatter of rows (as a share) below which none is believed.
_SCATTER = 0.01
_MOST_LEVERAGE = 0.5


@runtime_checkable
class Curved(Protocol):
    """A target with parameters that are points of curves."""

    def curves(self) -> tuple[Curve, ...]:
        """Its curves."""


def left_out(name: str) -> list[ValidationRow]:
    """Every fitted row of a backend that can be left out and is not at the ports' limit, as predicted without it.

    Raises:
        CoraError: as `cora.models.validation.validate`.
    """
    target, path = registry.get(name), calibration_file(name)
    rows = [row for row in load_rows(path) if row.fitted and row.nic in (None, name)]
    found = dict(_by_leverage(target, rows))
    found |= dict(_by_curves(target, rows))
    return [found[row.name] for row in rows if row.name in found and not found[row.name].at_limit]


# Points of curves.


def _by_curves(target: Target, rows: Sequence[CalibrationRow]) -> Iterator[tuple[str, ValidationRow]]:
    path = calibration_file(target.name)
    for curve in target.curves() if isinstance(target, Curved) else ():
        for number in range(1, len(curve.points) - 1):
            made = type(target)(without(target.model, curve, number))
            for row in rows_at(rows, curve.points[number][0]):
                model = in_setup(target.model, row, path)
                given = predict(type(target)(model), row)[0]
                if predict(type(target)(in_setup(made.model, row, path)), row)[0] != given:
                    yield row.name, replace(validated(made, row, path), fitted=False)


def without(model: Model, curve: Curve, number: int) -> Model:
    """The model with an inner point of a curve replaced by its neighbours'; its band moves along."""
    def value(name: str) -> float:
        return math.log(model[name]) if curve.logarithmic else model[name]

    around = [(k, value(name)) for k, name in (curve.points[number - 1], curve.points[number + 1])]
    found = interpolate(around, curve.points[number][0])
    return model.rescaled({curve.points[number][1]: math.exp(found) if curve.logarithmic else found})


def rows_at(rows: Sequence[CalibrationRow], thousands: int) -> Iterator[CalibrationRow]:
    """Rows of a table of so many thousand flows or rules."""
    for row in rows:
        said = {f"lookup_{thousands}", f"update_{thousands}"} & row.operations.keys()
        if said or any(a.entries == 1000 * thousands for a in row.accesses):
            yield row


# Parameters that several rows decide.


def _by_leverage(target: Target, rows: Sequence[CalibrationRow]) -> Iterator[tuple[str, ValidationRow]]:
    path = calibration_file(target.name)
    whole = [validated(target, row, path) for row in rows]
    telling = [i for i, r in enumerate(whole) if not r.at_limit]
    residuals = np.array([math.log(whole[i].published / whole[i].predicted) for i in telling])
    if not telling:
        return
    scatter = max(float(np.sqrt((residuals**2).mean())), _SCATTER)
    leverages = leverages_of(jacobian(target, [rows[i] for i in telling]), scatter)
    for i, residual, leverage in zip(telling, residuals, leverages, strict=True):
        if leverage < _MOST_LEVERAGE:
            yield rows[i].name, _moved(whole[i], math.exp(residual - residual / (1 - leverage)))


def _moved(row: ValidationRow, factor: float) -> ValidationRow:
    """The row predicted as so many times as much, its band along with it."""
    return replace(row, predicted=row.predicted * factor, low=row.low * factor, high=row.high * factor, fitted=False)


def jacobian(target: Target, rows: Sequence[CalibrationRow]) -> NDArray[np.float64]:
    """[rows, parameters] derivatives of the logarithm of each prediction by the uncertain parameters, each in standard
    deviations of its band.
    """
    names = [p.name for p in target.model if p.value > 0 and 0 < p.low < p.high]
    found = np.zeros((len(rows), len(names)))
    for i, row in enumerate(rows):
        model = in_setup(target.model, row, calibration_file(target.name))
        for k, name in enumerate(names):
            parameter = model.parameters[name]
            if parameter.low >= parameter.high:
                continue
            step = math.log(parameter.high / parameter.low) / (2 * Z90) / 2
            more, less = (predict(type(target)(model.rescaled({name: parameter.value * math.exp(s)})), row)[0]
                          for s in (step, -step))
            found[i, k] = math.log(more / less)
    return found


def leverages_of(derivatives: NDArray[np.float64], scatter: float) -> NDArray[np.float64]:
    """[rows] how much each row's own value decides its prediction, from 0 to 1, in a fit with a ridge."""
    normal = derivatives.T @ derivatives + scatter**2 * np.eye(derivatives.shape[1])
    hat: NDArray[np.float64] = derivatives @ np.linalg.solve(normal, derivatives.T)
    return np.diag(hat)
