"""Calibration rows: published figures with the micro-programs they are of, as TOML files.

A row is a micro-program as counts of operations and table accesses, the set-up it ran in, and the published figure. It
is priced by the same code as programs are. Fields of a ``[[row]]``:

    name, group, published, unit, source, place: required. Units are "Mpps", "Gb/s" on the line, and "k/s": how often a
        second (in thousands) the operations can be done by themselves, without packets
    nic: the card, where a file has rows of several
    frame: frame length in bytes without FCS, 60 by default; cores: host cores, 1 by default
    operations: counts per packet (`cora nics NAME --operations` lists them)
    accesses: [{kind, entries, tier, hottest}] to a table of flows with 5-tuple keys; all are used alike unless
        ``hottest`` says what share of the accesses goes to the most used one
    instance: card instance; values: parameters pinned to the set-up of the measurement
    base: whether the place's per-packet cost is paid, true by default
    fitted: whether the model was fitted on the row, true by default
    insertions: rules inserted per second by the forwarding core (root: into the root table)
    reading: how precisely the published figure is known (relative), half a per cent by default
    note: free text
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cora.errors import CoraError, Kind, fail
from cora.models import registry
from cora.models.parameters import read_toml

# Packets, bits on the line, or operations of one kind.
UNITS = ("Mpps", "Gb/s", "k/s")
_REQUIRED = {"name": str, "group": str, "published": (int, float), "unit": str, "source": str, "place": str}
_OPTIONAL = {"nic": str, "frame": (int, float), "cores": int, "operations": dict, "accesses": list, "instance": str,
             "values": dict, "base": bool, "fitted": bool, "insertions": (int, float), "root": bool,
             "reading": (int, float), "note": str}


@dataclass(frozen=True)
class Access:
    """An access to a table of ``entries`` flows; ``hottest``: share of the most used one, all alike by default."""

    kind: str
    entries: int
    tier: str = ""
    hottest: float | None = None


@dataclass(frozen=True)
class CalibrationRow:
    """One published figure and the micro-program it is of."""

    name: str
    group: str
    published: float
    unit: str
    source: str
    place: str
    nic: str | None = None
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
        raise wrong(f"needs a unit of {', '.join(UNITS[:-1])} or {UNITS[-1]} and a published figure above 0")
    for key in ("operations", "values"):
        if not all(isinstance(n, int | float) for n in row.get(key, {}).values()):
            raise wrong(f"has a number missing in {key}")
    low = {"frame": 1, "cores": 1, "insertions": 0, "reading": 0}
    below = [k for k, least in low.items() if row.get(k, least) < least]
    below += [k for k, n in row.get("operations", {}).items() if n < 0]
    if below:
        raise wrong(f"has a {below[0]} that is too small")
    return CalibrationRow(**{**row, "accesses": tuple(_access(a, wrong) for a in row.get("accesses", []))})


def _access(item: object, wrong: Callable[[str], CoraError]) -> Access:
    if not isinstance(item, dict) or not isinstance(item.get("kind"), str) or not _count(item.get("entries")):
        raise wrong("has an access without kind or entries")
    strange = sorted(set(item) - {"kind", "entries", "tier", "hottest"})
    if strange:
        raise wrong(f"has an access with the unknown field {strange[0]}")
    hottest = item.get("hottest")
    if hottest is not None and not (isinstance(hottest, int | float) and 0 < hottest <= 1):
        raise wrong("has an access whose hottest share is not above 0 and at most 1")
    return Access(item["kind"], item["entries"], str(item.get("tier", "")), hottest)


def _count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0
