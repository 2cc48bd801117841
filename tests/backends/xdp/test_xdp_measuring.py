"""Measuring packets between the halves: figures from costs, one real measurement, and calibrations kept by target."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cora import api
from cora.backends.xdp.measuring import figures
from cora.backends.xdp.measuring.wire import BURST, Cost, Wire
from cora.backends.xdp.target import xdp_model
from cora.errors import CoraError, Kind
from cora.models import calibration, registry
from cora.models.calibration import HostCalibration, Machine, Measured

MACHINE = Machine("0123456789abcdef", "Test CPU", 4, 8 << 20, 16 << 30, "Linux 1.0 x86_64")
OWN = HostCalibration(MACHINE, "2026-01-02T03:04:05Z", "cora calibrate --nic xdp", 25.0, 9, 0.1, 0.0,
                      (Measured("kernel_rx_ns", 200.0, 190.0, 230.0, "ns/packet", (200.0,)),), (), ())


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORA_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_figures_are_differences_of_costs() -> None:
    few = 12.0 * (1 / figures.FEW - 1 / BURST)  # a wake-up of 12 ns, more often
    copies = 2 * (figures.LARGE - figures.SMALL)
    costs = {"kernel drop": Cost(0, 0, 100, 0), "kernel forward": Cost(0, 0, 130, 1), "user drop": Cost(10, 20, 150, 0),
             "user forward": Cost(20, 90, 150, 1), "user forward large": Cost(20, 90, 150 + copies * 0.125, 1),
             "user forward few": Cost(20, 90 + few, 150, 1), "kernel flows": Cost(0, 0, 180, 1)}
    found = figures._figures(xdp_model(), {k: [v] * 3 for k, v in costs.items()}, [300.0] * 3, 40.0)
    copied = 0.125 * figures.SMALL
    assert {f.name: f.value for f in found} == pytest.approx({
        "kernel_rx_ns": 100, "kernel_tx_ns": 30, "punt_ns": 50 - copied, "xsk_rx_ns": 30 - 12 / BURST, "wake_ns": 12,
        "xsk_tx_ns": 80 - copied, "copy_byte_ns": 0.125, "told_ns": 300, "bpf_work_ratio": 40 / 50}, rel=1e-3)
    assert all(f.low <= f.value <= f.high and f.unit == xdp_model().parameters[f.name].unit for f in found)


def test_figures_of_a_target_are_kept_beside_those_of_the_host(data: Path) -> None:
    assert registry.get("xdp", host_model=None).model["kernel_rx_ns"] == 41.6
    mine = replace(OWN, machine=replace(MACHINE, identity=calibration.machine().identity))
    file = calibration.store(mine, None, "xdp")
    assert calibration.stored() is None and calibration.stored("xdp") == mine
    found = registry.get("xdp", host_model=None).model
    assert (found["kernel_rx_ns"], found.parameters["kernel_rx_ns"].kind) == (200.0, "measured")
    assert found.host.kind == "measured" and found.host.command == "cora calibrate --nic xdp"
    assert registry.get("xdp").model["kernel_rx_ns"] == 41.6, "published figures were asked for"
    assert registry.get("xdp", host_model=str(file)).model["kernel_rx_ns"] == 200.0
    assert registry.get("host", host_model=None).model.host.kind == "published"


def test_figures_of_a_target_are_no_figures_of_cores() -> None:
    file = calibration.store(OWN, None, "xdp")
    with pytest.raises(CoraError, match="no figures of host cores") as caught:
        registry.get("host", host_model=str(file))
    assert caught.value.diagnostics[0].kind is Kind.BAD_CALIBRATION


def test_what_cannot_be_measured_here_is_said_with_what_can() -> None:
    with pytest.raises(CoraError, match="nothing of agilio-cx can be measured") as caught:
        api.calibrate(nic="agilio-cx")
    assert "host and xdp" in caught.value.render()
    with pytest.raises(CoraError, match="this machine's cores were not calibrated"):
        figures.calibrate()


@pytest.mark.needs("gcc")
def test_the_sender_refuses_what_makes_no_sense(tmp_path: Path) -> None:
    sender = tmp_path / "sender"
    source = Path(figures.__file__).with_name("blast.c")
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-o", str(sender), str(source)], check=True)
    capture = tmp_path / "bad.pcap"
    capture.write_bytes(b"x" * 30)
    for arguments, message in (((), "usage"), (("lo", "none", "1", "1", "0"), "burst"),
                               (("lo", "none", "1", "1", "999"), "burst"),
                               (("lo", "none", "1", "1", "1"), "No such file"),
                               (("lo", str(capture), "1", "1", "1"), "no frames")):
        done = subprocess.run([str(sender), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode in (1, 2) and message in done.stderr


@pytest.mark.needs("gcc", "live-xdp")
def test_processor_time_is_told_apart_between_real_interfaces(tmp_path: Path) -> None:
    probe = next(p for p in figures.PROBES if p.name == "user forward")
    program, profile, capture = figures._prepared(probe, tmp_path / "probe")
    tree = figures._tree(program, profile, probe, tmp_path / "tree")
    with Wire(tree) as wire:
        wire.measure(capture, 2_000)
        cost = wire.measure(capture, 20_000)
        counted = wire.status()
    assert 0.9 < cost.forwarded <= 1.0
    # More than nothing and less than all the time there was.
    assert 0 < cost.softirq < 1e5 and 0 < cost.user + cost.system < 1e5
    assert counted["halves"]["punted"] >= 20_000
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(space in left for space in wire._spaces.values())
