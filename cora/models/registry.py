"""The targets that are installed. Backends register through the entry-point group ``cora.backends``.

A backend is a module with ``target(instance: str | None = None) -> Target`` and a one-line ``DESCRIPTION``. The core
imports none of them before one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from cora.errors import Kind, fail
from cora.models import calibration, cards
from cora.models.calibration import HostCalibration
from cora.models.parameters import Card, unknown_name
from cora.models.target import Target

GROUP = "cora.backends"


@lru_cache(maxsize=1)
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {e.name: e for e in metadata.entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """The names of all registered targets, sorted; loads none of them."""
    return tuple(sorted(_entry_points()))


def module(name: str) -> ModuleType:
    """The module of a backend.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` listing the known ones, `Kind.BAD_TARGET` when its module does not load or has
            another shape.
    """
    entries = _entry_points()
    if name not in entries:
        raise unknown_name("NIC", name, entries)
    try:
        loaded = entries[name].load()
    except (ImportError, AttributeError) as error:
        raise fail(Kind.BAD_TARGET, f"the backend '{name}' does not load: {error}", where=entries[name].value,
                   hint="reinstall the package that provides it") from error
    if not isinstance(loaded, ModuleType) or not callable(getattr(loaded, "target", None)) \
            or not isinstance(getattr(loaded, "DESCRIPTION", None), str):
        raise fail(Kind.BAD_TARGET, f"the backend '{name}' is no module with target() and DESCRIPTION",
                   where=entries[name].value)
    return loaded


def description(name: str) -> str:
    """The one-line description of a target."""
    text: str = module(name).DESCRIPTION
    return text


def calibrator(name: str) -> Callable[[Callable[[int], None] | None], HostCalibration]:
    """What measures a target's own figures on this machine, told how far it is: ``calibrate`` of its module.

    Raises:
        CoraError: as `module`; `Kind.BAD_FLAG` where nothing of the target can be measured here.
    """
    found: Callable[[Callable[[int], None] | None], HostCalibration] | None = getattr(module(name), "calibrate", None)
    if found is not None:
        return found
    able = [n for n in names() if hasattr(module(n), "calibrate")]
    raise fail(Kind.BAD_FLAG, f"nothing of {name} can be measured on this machine: its figures are those of the card",
               where="--nic", hint=f"{' and '.join(able)} can be: `cora calibrate --nic {able[-1]}`")


def get(name: str, instance: str | None = None, reserved: Sequence[str] = (),
        host_model: str | None = "published") -> Target:
    """The target of that name.

    Args:
        instance: one card of the family: a name of the model's, or a file of your own (`cora.models.cards`).
        reserved: what others on the card use, as ``WHAT=AMOUNT``.
        host_model: whose figures of host cores (`cora.models.calibration.with_host_model`).

    Raises:
        CoraError: as `module`; `Kind.UNKNOWN_NIC` for an unknown instance; `Kind.BAD_MODEL` for a broken model or
            instance file; `Kind.BAD_FLAG` for a reservation that makes no sense; `Kind.BAD_CALIBRATION`.
    """
    if instance is None or not instance.endswith(cards.SUFFIX):
        made: Target = module(name).target(instance)
        model = made.model
    else:
        made = module(name).target(None)
        model, kept = cards.from_file(made.model, Path(instance))
        model = cards.reserve(model, type(made)(model).places, kept, where=instance)
    if reserved:
        model = cards.reserve(model, type(made)(model).places, reserved)
    model = calibration.with_host_model(model, host_model)
    if instance is None and model is made.model:
        return made
    return type(made)(replace(model, card=Card(instance, tuple(reserved))))
