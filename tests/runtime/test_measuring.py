"""Measuring the host: the arithmetic on made-up samples, and that the kernels do what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cora.errors import CoraError, Kind
from cora.models import calibration, registry
from cora.models.cpu import CURVE
from cora.runtime.measuring import host, programs
from cora.runtime.measuring.kernels import SIMPLE, TABLE, Kernels

HOST = registry.get("host")


class FakeTable:
    """Accesses cost as much as a formula of the table's size says; every third sample is disturbed."""

    def __init__(self, flows: int) -> None:
        self.flows, self.count = flows, 0

    def access(self, name: str, repetitions: int) -> float:
        self.count += 1
        disturbed = 50.0 if self.count % (3 * len(TABLE)) == 0 else 0.0
        miss = 10 * math.log2(self.flows / host.CACHED_FLOWS)
        return disturbed + {"draw": 2.0, "lookup": 22.0 + miss, "record": 25.0 + miss, "further": 65.0 + miss}[name]

    def changes(self, flows: int) -> tuple[float, float]:
        return 40.0, 30.0


class FakeKernels:
    """Every simple kernel takes half a nanosecond; a cycle of 2 GHz."""

    threads = True

    def simple(self, name: str, repetitions: int) -> float:
        return 5.0 if name == "hash" else 0.5

    def shared_write(self, repetitions: int, shared: bool) -> float:
        if not self.threads:
            return -1.0
        return 12.0 if shared else 2.0

    @contextmanager
    def table(self, flows: int) -> Iterator[FakeTable]:
        yield FakeTable(flows)


class OneThread(FakeKernels):
    threads = False


def measured(monkeypatch: pytest.MonkeyPatch, kernels: type = FakeKernels) -> calibration.HostCalibration:
    monkeypatch.setattr(host, "Kernels", kernels)
    return host.measure(HOST.model, "a test", repeats=7)


def test_figures_are_medians_net_of_what_is_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch)
    value = {f.name: f.value for f in found.figures}
    assert found.clock_ghz == 2.0
    # A look-up of 22 without drawing (2) and hashing (5); a record's 3 more; a further line's 40 more.
    assert (value["hash_ns"], value["probe_ns"], value["record_ns"], value["further_record_ns"]) == (5, 15, 3, 40)
    assert (value["insert_ns"], value["delete_ns"], value["word_ns"]) == (40, 30, 0.5)
    for thousands, name in CURVE:
        assert value[name] == pytest.approx(10 * math.log2(thousands * 1000 / host.CACHED_FLOWS), rel=1e-3)
    assert all(len(f.samples) == 7 and f.low <= f.value <= f.high for f in found.figures)
    assert {f.name for f in found.figures} <= set(HOST.model.parameters)


def test_shared_writes_are_a_share_of_a_flows_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {f.name: f.value for f in measured(monkeypatch).figures}
    # Published input and output at 3.6 GHz and three headers at 3 GHz on a clock of 2 GHz; 5 fields, 10 words and 4
    # branches of half a nanosecond; hash, probe, record.
    flow = (22.9 + 11.3) * 1.8 + 3 * 1.5 * 1.5 + 19 * 0.5 + 5 + 15 + 3
    assert value["flow_packet_ns"] == pytest.approx(flow, rel=1e-3)
    assert value["shared_state_ratio"] == pytest.approx(flow / (flow + 10), rel=1e-3)


def test_one_thread_measures_no_sharing_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(monkeypatch, OneThread)
    assert "shared_state_ratio" not in {f.name for f in found.figures}
    assert any("state shared by cores" in what for what in found.not_measured)


def test_a_calibration_makes_a_model_that_prices_its_own_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    model = calibration.apply(HOST.model, measured(monkeypatch))
    target = type(HOST)(model)
    found = target.operations(0, {"hash": 1, "probe": 1, "record": 1})  # type: ignore[attr-defined]
    assert found == {"host-cores": pytest.approx(23.0)}


def test_a_small_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "machine", lambda: calibration.Machine("i", "c", 1, 0, 1 << 30, "s"))
    with pytest.raises(CoraError) as caught:
        measured(monkeypatch)
    assert caught.value.diagnostics[0].kind is Kind.ENGINE_LIMIT and "--host-model published" in caught.value.render()
    with pytest.raises(ValueError, match="at least 3"):
        host.measure(HOST.model, "a test", repeats=2)


@pytest.mark.needs("gcc")
def test_kernels_take_some_time() -> None:
    kernels = Kernels()
    for name in SIMPLE:
        assert 0 < kernels.simple(name, 80_000) < 1e6
    with kernels.table(1000) as table:
        assert all(0 < table.access(name, 5_000) < 1e6 for name in TABLE)
        assert all(n > 0 for n in table.changes(500))
        # What was inserted and removed leaves the table as it was.
        assert 0 < table.access("lookup", 5_000) < 1e6
    assert kernels.shared_write(10_000, shared=True) > 0


@pytest.mark.needs("gcc")
def test_whole_programs_are_timed_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PACKETS", 4_000)
    monkeypatch.setattr(programs, "FLOWS", (100, 1_000))
    few, many = programs.checks(HOST)
    assert (few.program, few.flows, many.flows) == ("flow_counter", 100, 1_000)
    assert all(0 < c.low <= c.measured <= c.high for c in (few, many))
    # A look-up, a store, a touch, headers and branches: tens of nanoseconds, and no more than a packet of the sweep.
    assert 20 < few.predicted < 80
