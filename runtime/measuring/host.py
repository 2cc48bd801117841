"""What packet work costs on this machine: medians over repeats of the kernels, and whole programs as a check.

The repeats go round over all kernels, so that a disturbance of a second falls on one repeat of each and not on all of
one.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cora.errors import Kind, fail
from cora.models.calibration import ASSUMED_GHZ, NOT_MEASURED, PUBLISHED_GHZ, Check, HostCalibration, Measured, machine
from cora.models.cpu import CURVE
from cora.models.parameters import Model
from cora.models.validation import quantile
from cora.runtime.measuring.kernels import SIMPLE, TABLE, Kernels

REPEATS = 9
# Of tables whose cost nothing but the core decides.
CACHED_FLOWS = 2_000
CHANGED_FLOWS = 64_000
FURTHER_FLOWS = 512_000
# Repetitions of one run, so that each takes some ten milliseconds.
_SIMPLE_RUN, _TABLE_RUN, _CHANGES, _WRITES = 4_000_000, 100_000, 20_000, 2_000_000
SIZES = sorted({CACHED_FLOWS, CHANGED_FLOWS, FURTHER_FLOWS, *(1000 * k for k, _ in CURVE)})
_MOST_FLOWS = 1000 * CURVE[-1][0]
# Memory of the largest table: entries and index, and entries again for further records.
NEEDED_BYTES = _MOST_FLOWS * (2 * 64 + 64)

Progress = Callable[[int], None]
Samples = dict[str, list[float]]


def measure(model: Model, command: str, repeats: int = REPEATS, progress: Progress | None = None,
            checks: Callable[[HostCalibration], Sequence[Check]] | None = None) -> HostCalibration:
    """Measure this machine.

    Args:
        model: the host model; figures get the units of its parameters.
        repeats: at least 3.
        progress: told the rounds done, of ``repeats`` and the tables.
        checks: what to hold the figures against; it is given the calibration without checks.

    Raises:
        CoraError: `Kind.NO_COMPILER` and what else compiling raises; `Kind.ENGINE_LIMIT` when the machine has not the
            memory for the tables.
    """
    if repeats < 3:
        raise ValueError("need at least 3 repeats")
    here = machine()
    if here.memory_bytes < 2 * NEEDED_BYTES:
        raise fail(Kind.ENGINE_LIMIT, f"measuring needs {NEEDED_BYTES >> 20} MiB for its largest table, more than half "
                                      f"of this machine's {here.memory_bytes >> 20} MiB",
                   hint="calibrate a larger machine, or plan with `--host-model published`")
    start, load = time.monotonic(), os.getloadavg()[0] / here.cores
    kernels = Kernels()
    samples = _simple(kernels, repeats) | _tables(kernels, repeats, progress)
    figures, ghz = _figures(model, samples)
    made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    alone = () if any(f.name == "shared_state_ratio" for f in figures) else (
        "state shared by cores: no second thread could be started",)
    found = HostCalibration(here, made, command, round(time.monotonic() - start, 1), repeats, _digits(load),
                            _digits(ghz), figures, (), (*NOT_MEASURED, *alone))
    return replace(found, checks=tuple(checks(found))) if checks else found


def calibrate(progress: Progress | None = None, repeats: int = REPEATS) -> HostCalibration:
    """Measure this machine and hold the figures against whole programs; as `measure`."""
    from cora.models import registry
    from cora.models.calibration import apply
    from cora.runtime.measuring.programs import checks

    host = registry.get("host")
    return measure(host.model, "cora calibrate", repeats, progress,
                   lambda found: checks(type(host)(apply(host.model, found))))


def _simple(kernels: Kernels, repeats: int) -> Samples:
    samples: Samples = {name: [] for name in (*SIMPLE, "own", "shared")}
    for _ in range(repeats):
        for name in SIMPLE:
            samples[name].append(kernels.simple(name, _SIMPLE_RUN // (20 if name == "copy" else 1)))
        for name, shared in (("own", False), ("shared", True)):
            samples[name].append(kernels.shared_write(_WRITES, shared))
    return samples


def _tables(kernels: Kernels, repeats: int, progress: Progress | None) -> Samples:
    """Samples of accesses to tables of every size, net of drawing a flow: ``lookup 16000``, ``changes 64000``."""
    samples: Samples = {}
    for done, flows in enumerate(SIZES, start=1):
        try:
            with kernels.table(flows) as table:
                for _ in range(repeats):
                    one = {name: table.access(name, _TABLE_RUN) for name in TABLE}
                    for name in TABLE[1:]:
                        samples.setdefault(f"{name} {flows}", []).append(max(0.0, one[name] - one["draw"]))
                    if flows == CHANGED_FLOWS:
                        inserted, deleted = table.changes(_CHANGES)
                        samples.setdefault("insert", []).append(inserted)
                        samples.setdefault("delete", []).append(deleted)
        except MemoryError as error:
            raise fail(Kind.ENGINE_LIMIT, str(error),
                       hint="close other programs, or calibrate a larger machine") from None
        if progress:
            progress(done)
    return samples


def _figures(model: Model, samples: Mapping[str, Sequence[float]]) -> tuple[tuple[Measured, ...], float]:
    """The host model's figures, and the clock in GHz."""
    def of(name: str) -> Sequence[float]:
        return samples[name]

    def less(name: str, other: str) -> list[float]:
        return [max(0.0, a - b) for a, b in zip(of(name), of(other), strict=True)]

    cached = f"lookup {CACHED_FLOWS}"
    found: dict[str, Sequence[float]] = {f"{name}_ns": of(name) for name in
                                         ("word", "branch", "multiply", "divide", "field_read", "field_write",
                                          "checksum", "sum_word", "hash")}
    found["probe_ns"] = less(cached, "hash")
    # A store that nothing waits for is hidden behind the next look-up; it takes a store's slot at least.
    found["record_ns"] = [max(n, m) for n, m in zip(less(f"record {CACHED_FLOWS}", cached), of("field_write"),
                                                    strict=True)]
    found["insert_ns"], found["delete_ns"] = of("insert"), of("delete")
    for thousands, name in CURVE:
        found[name] = less(f"lookup {1000 * thousands}", cached)
    found["further_record_ns"] = less(f"further {FURTHER_FLOWS}", f"record {FURTHER_FLOWS}")
    figures = [_measured(model, name, values) for name, values in found.items()]
    ghz = 1 / statistics.median(of("cycle"))
    return (*_rising(figures), *_shared(model, samples, figures, ghz)), ghz


# A kernel may take no time beside another; a cost of nothing at all would hide that it is done.
_LEAST = 1e-3


def _measured(model: Model, name: str, values: Sequence[float]) -> Measured:
    ordered = sorted(values)
    low, middle, high = (max(_LEAST, _digits(quantile(ordered, q))) for q in (0.1, 0.5, 0.9))
    return Measured(name, middle, low, high, model.parameters[name].unit, tuple(_digits(n) for n in values))


def _digits(number: float) -> float:
    return float(f"{number:.4g}")


def _rising(figures: Sequence[Measured]) -> Iterator[Measured]:
    """The points of the miss curve never fall with the number of flows: where noise makes one fall it stays level."""
    names = [name for _, name in CURVE]
    value = low = high = 0.0
    for f in figures:
        if f.name not in names:
            yield f
            continue
        value, low, high = max(value, f.value), max(low, f.low), max(high, f.high)
        yield Measured(f.name, value, low, high, f.unit, f.samples)


def _shared(model: Model, samples: Mapping[str, Sequence[float]], figures: Sequence[Measured],
            ghz: float) -> Iterator[Measured]:
    """Throughput with state shared by the cores over sharded state: the price of a write to a line of another core.

    The forwarding of one flow's packet that it relates to is the sum of its measured parts and of input and output.
    """
    if min(samples["shared"]) < 0 or min(samples["own"]) < 0:
        return
    value = {f.name: f.value for f in figures}
    carried = (model["rx_ns"] + model["tx_ns"]) * PUBLISHED_GHZ / ghz + 3 * model["header_ns"] * ASSUMED_GHZ / ghz
    parts = {"field_read_ns": 5, "word_ns": 10, "branch_ns": 4, "hash_ns": 1, "probe_ns": 1, "record_ns": 1}
    flow = carried + sum(n * value[name] for name, n in parts.items())
    yield _measured(model, "flow_packet_ns", [flow] * len(samples["own"]))
    extra = [max(0.0, a - b) for a, b in zip(samples["shared"], samples["own"], strict=True)]
    yield _measured(model, "shared_state_ratio", [flow / (flow + e) for e in extra])
