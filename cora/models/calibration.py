"""The calibration document: what was measured on a machine, when and by what, and the host model made of it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cora.documents import Garbled, decode, read_json, read_text, write_text
from cora.errors import CoraError, Kind, fail
from cora.models.parameters import HostModel, Model, Parameter

FORMAT = "cora-host-calibration"
VERSION = 1
SOURCE = "HERE"
# Clocks that the published and assumed figures of the host model belong to (its ``rx_ns`` and ``word_ns``).
PUBLISHED_GHZ = 3.6
ASSUMED_GHZ = 3.0
# Input and output of another card, driver and core generation.
_IO_SPREAD = 1.25
# What a figure varies by at least: other work in the caches, other pages, other temperatures.
_SPREAD = 1.03
# Cached costs that no kernel measures; the assumed ones are carried over by the clock.
_BY_CLOCK = ("header_ns", "icmp_error_ns", "fragment_ns", "allocate_ns", "police_ns", "acl_ns", "acl_doubling_ns",
             "lpm_ns", "relink_ns")
_PUBLISHED = ("rx_ns", "tx_ns", "xdp_rx_ns", "xdp_redirect_ns")

NOT_MEASURED = ("receive and transmit need a network card and DPDK: the published figures, carried over by the clock",
                "ports and PCIe of the card: the published figures",
                "policing, classification, prefixes, fragments and ICMP errors: the assumed figures, carried over by "
                "the clock")


@dataclass(frozen=True)
class Machine:
    """Where it was measured. ``identity`` tells machines apart; sizes in bytes."""

    identity: str
    cpu: str
    cores: int
    llc_bytes: int
    memory_bytes: int
    system: str


@dataclass(frozen=True)
class Measured:
    """A figure of the host model: the median of the samples with their P10 and P90."""

    name: str
    value: float
    low: float
    high: float
    unit: str
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Check:
    """A whole program on the native engine: measured nanoseconds per packet, and what the figures add up to."""

    program: str
    flows: int
    measured: float
    low: float
    high: float
    predicted: float


@dataclass(frozen=True)
class HostCalibration:
    """Everything that was measured. ``made`` is the time in UTC.

    ``clock_ghz`` follows from the length of a cycle; 0 where it was not measured, since the figures are a target's own.
    ``load``: programs that wanted to run before it began, per core: above about 0.5 the figures are those of a busy
    machine.
    """

    machine: Machine
    made: str
    command: str
    seconds: float
    repeats: int
    load: float
    clock_ghz: float
    figures: tuple[Measured, ...]
    checks: tuple[Check, ...]
    not_measured: tuple[str, ...]

    def figure(self, name: str) -> Measured:
        """The figure of that name.

        Raises:
            KeyError: there is none.
        """
        for found in self.figures:
            if found.name == name:
                return found
        raise KeyError(name)

    def to_json(self) -> str:
        """The document, in a stable order, one trailing newline."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"


def data_dir() -> Path:
    """The folder of calibrations: ``CORA_DATA_DIR``, else the user's data folder. It may not exist yet."""
    chosen = os.environ.get("CORA_DATA_DIR")
    if chosen:
        return Path(chosen).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("cora"))


def machine() -> Machine:
    """This machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cpu, llc = _cpu_name(), last_level_cache(Path("/sys/devices/system/cpu/cpu0/cache"))
    name = os.uname()
    told = "\n".join((name.nodename, name.machine, cpu, str(os.cpu_count()), str(llc)))
    return Machine(hashlib.sha256(told.encode()).hexdigest()[:16], cpu, cores, llc, memory,
                   f"{name.sysname} {name.release} {name.machine}")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return told or platform.processor() or platform.machine()


def last_level_cache(folder: Path) -> int:
    """Bytes of the cache of the highest level that the system tells of; 0 when it tells nothing."""
    best = (0, 0)
    for index in folder.glob("index*"):
        try:
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
            best = max(best, (level, int(size.rstrip("KM")) << (20 if size.endswith("M") else 10)))
        except (OSError, ValueError):
            continue
    return best[1]


def stored_path(identity: str, own_of: str = "") -> Path:
    """Where the calibration of a machine is kept; ``own_of``: of a target's own figures, those beyond the host's."""
    return data_dir() / "calibrations" / f"{identity}{own_of and f'-{own_of}'}.json"


def store(calibration: HostCalibration, path: Path | None = None, own_of: str = "") -> Path:
    """Keep a calibration; returns where. ``own_of``: as `stored_path`.

    Raises:
        CoraError: `Kind.CANNOT_WRITE`.
    """
    target = path or stored_path(calibration.machine.identity, own_of)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, calibration.to_json())
    except OSError as error:
        raise fail(Kind.CANNOT_WRITE, f"cannot keep the calibration: {error.strerror or error}", where=str(target),
                   hint="name another folder in the environment variable CORA_DATA_DIR") from error
    return target


def stored(own_of: str = "") -> HostCalibration | None:
    """The calibration kept for this machine, None when there is none. ``own_of``: as `stored_path`.

    Raises:
        CoraError: `Kind.BAD_CALIBRATION`.
    """
    path = stored_path(machine().identity, own_of)
    return load(path) if path.is_file() else None


def load(path: Path) -> HostCalibration:
    """Read a calibration document.

    Raises:
        CoraError: `Kind.BAD_CALIBRATION` naming the file and what is wrong with it.
    """
    def wrong(what: str) -> CoraError:
        return fail(Kind.BAD_CALIBRATION, what, where=str(path), hint="make it again with `cora calibrate`")

    try:
        data = read_json(read_text(path))
    except OSError as error:
        raise wrong(f"cannot read the calibration: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise wrong(f"this is no calibration, nor JSON at all: {error.msg}") from error
    except Garbled as error:
        raise wrong(f"cannot read the calibration: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise wrong(f"this is no calibration: its format is not {FORMAT!r}, version {VERSION}")
    try:
        found = decode(HostCalibration, {k: v for k, v in data.items() if k not in ("format", "version")})
        _check(found)
    except Garbled as error:
        raise wrong(str(error)) from error
    return found


def _check(calibration: HostCalibration) -> None:
    if not (calibration.clock_ghz == 0 or 0.1 <= calibration.clock_ghz <= 20) or calibration.machine.llc_bytes < 0:
        raise Garbled("clock_ghz or llc_bytes is out of range")
    for figure in calibration.figures:
        if not (all(math.isfinite(n) for n in (figure.low, figure.value, figure.high))
                and 0 <= figure.low <= figure.value <= figure.high):
            raise Garbled(f"figures: {figure.name} needs 0 <= low <= value <= high")


def apply(model: Model, calibration: HostCalibration, prefix: str = "") -> Model:
    """A host model (or a card's with its host under ``prefix``) with the figures of a calibration.

    Measured figures replace the model's; published input and output and assumed cached costs are carried over by the
    clock. Bounds are P10 and P90 of the samples, at least 3 % apart from the value.

    Raises:
        CoraError: `Kind.BAD_CALIBRATION` for a figure the model does not have.
    """
    if not calibration.clock_ghz:
        raise fail(Kind.BAD_CALIBRATION, f"these are no figures of host cores: `{calibration.command}` made them",
                   hint="measure the cores with `cora calibrate`")
    told = _told(calibration)
    changed = _measured(model, calibration, prefix, "host")
    for name in _BY_CLOCK:
        changed[prefix + name] = _carried(model.parameters[prefix + name], ASSUMED_GHZ / calibration.clock_ghz, 1.0)
    for name in _PUBLISHED:
        found = model.parameters[prefix + name]
        changed[prefix + name] = _carried(found, PUBLISHED_GHZ / calibration.clock_ghz, _IO_SPREAD)
    exact: Mapping[str, float] = {"clock_ratio": 1.0, **_cache(calibration)}
    for name, value in exact.items():
        changed[prefix + name] = replace(model.parameters[prefix + name], value=value, low=value, high=value,
                                         kind="measured", source=told)
    sources = {**model.sources, SOURCE: "cora calibrate on this machine (docs/models.md)"}
    host = HostModel("measured", calibration.machine.cpu, calibration.made, calibration.command)
    return replace(model, parameters={**model.parameters, **changed}, sources=sources, host=host)


def apply_own(model: Model, calibration: HostCalibration) -> Model:
    """A target's model with measured figures of its own, those beyond the host's.

    Raises:
        CoraError: `Kind.BAD_CALIBRATION` for a figure the model does not have.
    """
    changed = _measured(model, calibration, "", model.name)
    host = model.host
    commands = [c for c in (host.command, calibration.command) if c]
    told = HostModel("measured", calibration.machine.cpu, calibration.made, "` and `".join(commands))
    sources = {**model.sources, SOURCE: "cora calibrate on this machine (docs/models.md)"}
    return replace(model, parameters={**model.parameters, **changed}, sources=sources, host=told)


def _told(calibration: HostCalibration) -> str:
    return f"{SOURCE}: {calibration.command} of {calibration.made} on {calibration.machine.cpu}"


def _measured(model: Model, calibration: HostCalibration, prefix: str, whose: str) -> dict[str, Parameter]:
    """Parameters with the measured values; bounds are P10 and P90, at least 3 % apart from the value."""
    changed: dict[str, Parameter] = {}
    for figure in calibration.figures:
        name = prefix + figure.name
        if name not in model.parameters:
            raise fail(Kind.BAD_CALIBRATION, f"the {whose} model has no figure '{figure.name}'",
                       hint=f"make the calibration again with this version: `{calibration.command}`")
        changed[name] = replace(model.parameters[name], value=figure.value, low=min(figure.low, figure.value / _SPREAD),
                                high=max(figure.high, figure.value * _SPREAD), kind="measured",
                                source=_told(calibration))
    return changed


HOST_PREFIX = "host."


def with_host_model(model: Model, which: str | None) -> Model:
    """A target's model with the host figures asked for, and its own figures as they are kept for this machine.

    Args:
        which: ``published``; ``measured``: those kept for this machine; a file that `store` wrote; None: the measured
            ones when there are any, else the published ones. A file of a target's own figures leaves the host's.

    Raises:
        CoraError: `Kind.BAD_CALIBRATION` when there is no calibration or it makes no sense.
    """
    if which == "published":
        return model
    kept = which in (None, "measured")
    found = stored() if kept else load(Path(which or ""))
    if found is None and which is not None:
        raise fail(Kind.BAD_CALIBRATION, "this machine was not calibrated", where="--host-model measured",
                   hint="measure it with `cora calibrate`, or plan with `--host-model published`")
    prefix = HOST_PREFIX if HOST_PREFIX + "rx_ns" in model.parameters else ""
    if found is not None and not kept and prefix and all(f.name in model.parameters for f in found.figures):
        return apply_own(model, found)
    made = model if found is None else apply(model, found, prefix)
    own = stored(model.name) if kept else None
    return made if own is None else apply_own(made, own)


def _cache(calibration: HostCalibration) -> dict[str, float]:
    """The measured curve belongs to the machine's own cache, whatever its size; unknown sizes stay."""
    size = float(calibration.machine.llc_bytes)
    return {"llc_bytes": size, "reference_llc_bytes": size} if size else {}


def _carried(parameter: Parameter, factor: float, spread: float) -> Parameter:
    return replace(parameter, value=parameter.value * factor, low=parameter.low * factor / spread,
                   high=parameter.high * factor * spread,
                   note=f"carried over to the clock of this machine, x {factor:.3g}. {parameter.note}".strip())
