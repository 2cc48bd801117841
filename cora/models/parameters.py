"""Model parameters: every number of a performance model with its unit, source, kind and uncertainty.

A ``model.toml`` has a name, a version, a ``[sources]`` index (key = full reference), ``[parameter.NAME]`` tables and
``[instance.NAME]`` tables, which replace some values for one card of the family.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cora.errors import CoraError, Kind, fail

FigureKind = Literal["measured", "published", "specified", "derived", "assumed"]
_KINDS = ("measured", "published", "specified", "derived", "assumed")
_COLUMNS = ("value", "unit", "low", "high", "kind", "source")
# The 90 % point of the standard normal distribution: low and high are P10 and P90.
Z90 = 1.2815515655446004
# Draws further out than this many standard deviations say more about the normal law than about the card.
_Z_LIMIT = 2.5


@dataclass(frozen=True)
class Parameter:
    """One figure of a model.

    Attributes:
        value: in ``unit``; low, high: its P10 and P90, ``low <= value <= high``.
        kind: measured (by us), published (a paper's measurement), specified (vendor or source code), derived (computed
            by us from published data), assumed (our inference, not published).
        source: a key of the model's source index, a colon, and what was read there (``KRU: overhead of ...``).
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    kind: FigureKind
    source: str
    note: str = ""


@dataclass(frozen=True)
class Instance:
    """One card of a family: the parameters whose values differ from the default card's.

    ``bounds``: P10 and P90 where they are known otherwise than in proportion to the default card's.
    """

    name: str
    description: str
    values: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostModel:
    """Whose figures of host cores a model has: published ones, or those a command measured at a time on a machine."""

    kind: Literal["published", "measured"] = "published"
    machine: str = ""
    made: str = ""
    command: str = ""


@dataclass(frozen=True)
class Card:
    """Which card of a family a model is of: an instance's name or file, and what others on the card use."""

    instance: str | None = None
    reserved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """The parameters of one target, by name.

    Attributes:
        sources: a source's key to its full reference.
        drawn: values that stand in for the parameters' own, as in a sample of the box.
    """

    name: str
    version: str
    parameters: Mapping[str, Parameter]
    sources: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    drawn: Mapping[str, float] = field(default_factory=dict)
    host: HostModel = HostModel()
    card: Card = Card()

    def __getitem__(self, name: str) -> float:
        """The value of a parameter.

        Raises:
            KeyError: the model has no such parameter (a defect of the backend, not of the user's input).
        """
        drawn = self.drawn.get(name)
        return self.parameters[name].value if drawn is None else drawn

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def reference(self, parameter: Parameter) -> str:
        """The source of a parameter with its key spelled out, as ``what (paper or repository)``."""
        key, _, what = parameter.source.partition(":")
        return f"{what.strip()} ({self.sources.get(key, key)})"

    def with_values(self, values: Mapping[str, float]) -> Model:
        """A copy that gives these values; the parameters keep their own value, bounds and source.

        Raises:
            KeyError: the model has no such parameter.
        """
        for name in values:
            self.parameters[name]
        return replace(self, drawn={**self.drawn, **values})

    def pinned(self, values: Mapping[str, float]) -> Model:
        """A copy in which these figures are exact: P10 = value = P90.

        Raises:
            KeyError: the model has no such parameter.
        """
        changed = {n: replace(self.parameters[n], value=v, low=v, high=v) for n, v in values.items()}
        return replace(self, parameters={**self.parameters, **changed})

    def rescaled(self, values: Mapping[str, float]) -> Model:
        """A copy with these values, P10 and P90 moved along in proportion (exact where the old value was 0).

        Raises:
            KeyError: the model has no such parameter.
        """
        changed = {n: _rescale(self.parameters[n], v) for n, v in values.items()}
        return replace(self, parameters={**self.parameters, **changed})

    def at_instance(self, name: str | None) -> Model:
        """The model of one card instance; None is the default card.

        Raises:
            CoraError: `Kind.UNKNOWN_NIC` naming the instances there are.
        """
        if name is None:
            return self
        if name not in self.instances:
            raise unknown_name("card instance", name, self.instances, self.name)
        return self.with_instance(self.instances[name])

    def with_instance(self, instance: Instance) -> Model:
        """The model of a card that differs from this one."""
        scaled = self.rescaled(instance.values)
        changed = {n: replace(scaled.parameters[n], low=low, high=high) for n, (low, high) in instance.bounds.items()}
        return replace(scaled, parameters={**scaled.parameters, **changed})

    def joined(self, other: Model, prefix: str) -> Model:
        """This model with another's parameters added under ``prefix`` (a card and the host it sits in)."""
        moved = {prefix + n: replace(p, name=prefix + n) for n, p in other.parameters.items()}
        return replace(self, parameters={**self.parameters, **moved}, sources={**other.sources, **self.sources})


def unknown_name(what: str, name: str, known: Mapping[str, object], where: str | None = None) -> CoraError:
    """The error for a name that is none of ``known``, with the nearest one as a suggestion."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    listed = ", ".join(sorted(known)) or "none"
    hint = f"did you mean '{near[0]}'?" if near else None
    return fail(Kind.UNKNOWN_NIC, f"unknown {what} '{name}'; known: {listed}", where=where, hint=hint)


def _rescale(parameter: Parameter, value: float) -> Parameter:
    if parameter.value == 0:
        return replace(parameter, value=value, low=value, high=value)
    factor = value / parameter.value
    return replace(parameter, value=value, low=parameter.low * factor, high=parameter.high * factor)


def samples(model: Model, count: int, seed: int) -> Iterator[Model]:
    """``count`` models drawn from the parameter box, the same ones for the same seed.

    Each parameter is drawn by itself from a split log-normal law: its median is the value, its P10 and P90 are low and
    high (a split normal law where a bound is not positive). Draws are cut at 2.5 standard deviations.
    """
    uncertain = [p for p in model if p.low < p.high]
    generator = np.random.default_rng(seed)
    for row in generator.standard_normal((count, len(uncertain))):
        draws = np.clip(row, -_Z_LIMIT, _Z_LIMIT)
        yield model.with_values({p.name: _draw(p, float(z)) for p, z in zip(uncertain, draws, strict=True)})


def _draw(parameter: Parameter, z: float) -> float:
    bound = parameter.high if z > 0 else parameter.low
    steps = abs(z) / Z90
    if parameter.value > 0 and bound > 0:
        return parameter.value * math.pow(bound / parameter.value, steps)
    return parameter.value + (bound - parameter.value) * steps


def load_model(path: Path) -> Model:
    """Read a ``model.toml``.

    Raises:
        CoraError: `Kind.BAD_MODEL` with the parameter's name when the file cannot be read or a figure lacks something.
    """
    data = read_toml(path)
    rows = data.get("parameter")
    if not isinstance(rows, dict) or not isinstance(data.get("name"), str):
        raise fail(Kind.BAD_MODEL, "a model needs a name and [parameter.NAME] tables", where=str(path))
    sources = _sources(data.get("sources", {}), path)
    parameters = {name: _parameter(name, row, sources, path) for name, row in rows.items()}
    instances = {name: instance_of(name, row, parameters, path) for name, row in _table(data, "instance", path).items()}
    return Model(data["name"], str(data.get("version", "0")), parameters, sources, instances)


def read_toml(path: Path) -> dict[str, Any]:
    """The parsed file.

    Raises:
        CoraError: `Kind.BAD_MODEL` when it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise fail(Kind.BAD_MODEL, f"cannot read the model: {error}", where=str(path)) from error


def _table(data: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    found = data.get(name, {})
    if not isinstance(found, dict):
        raise fail(Kind.BAD_MODEL, f"{name} is no table", where=str(path))
    return found


def _sources(rows: object, path: Path) -> Mapping[str, str]:
    if not isinstance(rows, dict) or not all(isinstance(v, str) and v for v in rows.values()):
        raise fail(Kind.BAD_MODEL, "[sources] must map keys to references", where=str(path))
    return rows


def _parameter(name: str, row: object, sources: Mapping[str, str], path: Path) -> Parameter:
    if not isinstance(row, dict):
        raise fail(Kind.BAD_MODEL, f"parameter {name} is no table", where=str(path))
    missing = [k for k in _COLUMNS if k not in row]
    if missing:
        raise fail(Kind.BAD_MODEL, f"parameter {name} lacks {', '.join(missing)}", where=str(path))
    strange = sorted(set(row) - {*_COLUMNS, "note"})
    if strange:
        raise fail(Kind.BAD_MODEL, f"parameter {name} has the unknown column {strange[0]}", where=str(path))
    if row["kind"] not in _KINDS:
        raise fail(Kind.BAD_MODEL, f"parameter {name}: kind {row['kind']!r} is none of {', '.join(_KINDS)}",
                   where=str(path))
    key, _, what = str(row["source"]).partition(":")
    if key not in sources or not what.strip():
        raise fail(Kind.BAD_MODEL, f"parameter {name}: source {row['source']!r} is no 'KEY: what' with a key of "
                                   "[sources]", where=str(path))
    low, value, high = _numbers(name, row, path)
    return Parameter(name, value, str(row["unit"]), low, high, row["kind"], str(row["source"]),
                     str(row.get("note", "")))


def _numbers(name: str, row: Mapping[str, Any], path: Path) -> tuple[float, float, float]:
    numbers = [row[k] for k in ("low", "value", "high")]
    if not all(isinstance(n, int | float) and not isinstance(n, bool) and math.isfinite(n) for n in numbers) \
            or not numbers[0] <= numbers[1] <= numbers[2]:
        raise fail(Kind.BAD_MODEL, f"parameter {name}: need numbers low <= value <= high", where=str(path))
    return float(numbers[0]), float(numbers[1]), float(numbers[2])


def instance_of(name: str, row: object, parameters: Mapping[str, Parameter], path: Path) -> Instance:
    """One instance from its table in a file.

    Raises:
        CoraError: `Kind.BAD_MODEL` naming what is wrong.
    """
    if not isinstance(row, dict) or not isinstance(row.get("description"), str) \
            or not isinstance(row.get("values"), dict) or not isinstance(row.get("bounds", {}), dict):
        raise fail(Kind.BAD_MODEL, f"instance {name} needs a description and [instance.{name}.values]",
                   where=str(path))
    bounds = row.get("bounds", {})
    for parameter in (*row["values"], *bounds):
        if parameter not in parameters:
            raise fail(Kind.BAD_MODEL, f"instance {name} sets the unknown parameter {parameter}", where=str(path))
    for parameter, value in row["values"].items():
        if not isinstance(value, int | float):
            raise fail(Kind.BAD_MODEL, f"instance {name}: {parameter} is no number", where=str(path))
    values = {k: float(v) for k, v in row["values"].items()}
    for parameter, pair in bounds.items():
        value = values.get(parameter, parameters[parameter].value)
        if not _is_band(pair, value):
            raise fail(Kind.BAD_MODEL, f"instance {name}: the bounds of {parameter} must be two numbers around "
                                       f"{value:g}", where=str(path))
    return Instance(name, row["description"], values, {k: (float(v[0]), float(v[1])) for k, v in bounds.items()})


def _is_band(pair: object, value: float) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(n, int | float) for n in pair) \
        and bool(pair[0] <= value <= pair[1])
