"""The figures of the XDP model, measured: small built programs between veth pairs, and one system call."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cora.analysis.profile import Profile
from cora.backends.xdp.kernel_build import system_headers
from cora.backends.xdp.measuring.wire import BURST, Cost, Wire
from cora.build.compose import build
from cora.build.make import make
from cora.build.request import request_of
from cora.build.tools import require_tools
from cora.build.tree import write_tree
from cora.emit.cbuild import build_bpf, build_program
from cora.errors import Kind, fail
from cora.frontends.nf import loads
from cora.frontends.traffic.synthetic import TrafficSpec, write
from cora.ir.nodes import Program
from cora.models.calibration import HostCalibration, Measured, machine
from cora.models.parameters import Model
from cora.models.validation import quantile
from cora.runtime.measuring.programs import SOURCE as FLOW_COUNTER

REPEATS = 9
PACKETS = 60_000
# Frames without their check sequence; the larger one still fits the smallest chunk of an AF_XDP socket.
SMALL, LARGE = 64, 1400
# Frames of a short burst: the user half wakes up more often.
FEW = 16
# A message to the kernel half of a mapping with a few fields.
_MESSAGE_BYTES, _CALLS = 400, 50_000
_TOOLS = ("make", "cc", "clang", "libbpf", "jansson", "bpf", "net-admin", "net-raw", "af-xdp")
_HERE = Path(__file__).parent

_ENDS = """\
nf {name} {{
  port inside: wire;
  port outside: wire;
  counter seen;
  unparsed pass;
  fragments ignore;
  verify none;
  on inside(p: eth) {{ count seen; {end}; }}
  on outside(p: eth) {{ count seen; {end}; }}
}}
"""
Progress = Callable[[int], None]


@dataclass(frozen=True)
class _Probe:
    """A program with all of it at one place, and the frames it is sent."""

    name: str
    source: str
    state: str
    place: str
    size: int = SMALL
    burst: int = BURST


PROBES = (
    _Probe("kernel drop", _ENDS.format(name="probe_drop", end='drop "probe"'), "seen", "kernel"),
    _Probe("kernel forward", _ENDS.format(name="probe_forward", end="forward outside"), "seen", "kernel"),
    _Probe("user drop", _ENDS.format(name="probe_drop", end='drop "probe"'), "seen", "user"),
    _Probe("user forward", _ENDS.format(name="probe_forward", end="forward outside"), "seen", "user"),
    _Probe("user forward large", _ENDS.format(name="probe_forward", end="forward outside"), "seen", "user", LARGE),
    _Probe("user forward few", _ENDS.format(name="probe_forward", end="forward outside"), "seen", "user", SMALL, FEW),
    _Probe("kernel flows", FLOW_COUNTER, "flows", "kernel"),
)


def calibrate(progress: Progress | None = None, repeats: int = REPEATS) -> HostCalibration:
    """Measure what packets cost between the halves on this machine.

    Args:
        progress: told the probes done, of `PROBES` and one more.
        repeats: at least 3, each of `PACKETS` packets; the rounds go over all probes, so that a disturbance of a second
            falls on one repeat of each and not on all of one.

    Raises:
        CoraError: `Kind.MISSING_TOOL`; `Kind.RUN_FAILED` where namespaces cannot be made or packets were lost.
    """
    from cora.models import registry

    require_tools(_TOOLS, "measure packets between the halves")
    start, here = time.monotonic(), machine()
    load = float(f"{os.getloadavg()[0] / here.cores:.3g}")
    target = registry.get("xdp", host_model=None)
    if target.model.host.kind == "published":
        raise fail(Kind.BAD_CALIBRATION, "this machine's cores were not calibrated, and the kernel half's speed is "
                                         "told beside theirs", hint="measure them first with `cora calibrate`")
    with tempfile.TemporaryDirectory(prefix="cora-calibrate-") as folder:
        costs: dict[str, list[Cost]] = {}
        generated = 0.0
        for number, probe in enumerate(PROBES, 1):
            program, profile, capture = _prepared(probe, Path(folder, str(number)))
            tree = _tree(program, profile, probe, Path(folder, str(number), "tree"))
            costs[probe.name] = _costs(tree, capture, repeats, probe.burst)
            if probe.name == "kernel flows":
                generated = _modelled(program, profile, target.model)
            if progress:
                progress(number)
        told = _told(repeats)
    if progress:
        progress(len(PROBES) + 1)
    figures = _figures(target.model, costs, told, generated)
    made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds = round(time.monotonic() - start, 1)
    return HostCalibration(here, made, "cora calibrate --nic xdp", seconds, repeats, load, 0.0, figures,
                           (), ("latencies: the assumed ones", "the lock of an entry: the assumed one",
                                "interfaces of a card: veth pairs stand for them"))


def _prepared(probe: _Probe, folder: Path) -> tuple[Program, Profile, Path]:
    from cora.runtime.profiling import make_profile

    folder.mkdir()
    capture = folder / "in.pcap"
    write(TrafficSpec.parse({"packets": "20000", "flows": "1000", "zipf": "0", "replies": "0", "udp": "1",
                             "size": str(probe.size)}), capture)
    program = loads(probe.source, f"{probe.name.replace(' ', '_')}.nf")
    return program, make_profile(program, capture, port_map=("inside=*",)), capture


def _tree(program: Program, profile: Profile, probe: _Probe, folder: Path) -> Path:
    from cora import api

    plan = api.plan(program, profile, "xdp", rate="0.1Mpps", pin=(f"{probe.state}={probe.place}",),
                    host_model="published")
    write_tree(build(request_of(plan, program)), folder)
    make(folder, "xdp")
    return folder


def _costs(tree: Path, capture: Path, repeats: int, burst: int) -> list[Cost]:
    with Wire(tree) as wire:
        wire.measure(capture, PACKETS, burst)
        return [wire.measure(capture, PACKETS, burst) for _ in range(repeats)]


def _told(repeats: int) -> list[float]:
    include = system_headers()
    program = build_bpf("cora-told", {"told.c": (_HERE / "told.bpf.c").read_text(encoding="utf-8")}, ("-O2", "-g"),
                        include_dirs=include)
    caller = build_program("cora-caller", {"told.c": (_HERE / "told.c").read_text(encoding="utf-8")},
                           ("-O2", "-lbpf"))
    found = []
    for _ in range(repeats):
        done = subprocess.run([str(caller), str(program), str(_MESSAGE_BYTES), str(_CALLS)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            raise fail(Kind.RUN_FAILED, f"a BPF program cannot be called: {done.stderr.strip()}",
                       hint="run it as root, or with CAP_BPF")
        found.append(float(done.stdout))
    return found


def _modelled(program: Program, profile: Profile, model: Model) -> float:
    """What the model says of the kernel half's own work, were it as fast as the host's C: nanoseconds a packet."""
    from cora.backends.host.target import CORES
    from cora.backends.xdp.target import KERNEL, XdpTarget
    from cora.partition.baselines import Aim, Rules
    from cora.partition.instance import build as instance
    from cora.partition.units import units_of

    plain = XdpTarget(model.with_values({"bpf_work_ratio": 1.0, "entry_lock_ns": 0.0}))
    found = instance(program, profile, plain)
    placement = Rules(found, units_of(found), Aim(None, 1, 1)).host_only()
    assert placement is not None, "user space alone runs every program"
    column = next(i for i, r in enumerate(found.resources) if r.name == CORES)
    crossing = sum(plain.crossing(a, b, profile.mean_frame, 0)[CORES] for a, b in ((KERNEL, 1), (1, KERNEL)))
    io = plain.wire(profile.mean_frame)[CORES] + plain.per_packet(1)[CORES] + crossing
    return float(placement.demand[column]) - io


def _figures(model: Model, costs: Mapping[str, Sequence[Cost]], told: Sequence[float],
             generated: float) -> tuple[Measured, ...]:
    """Differences of costs, pair by pair in the order in which they were measured."""
    def softirq(name: str) -> list[float]:
        return [c.softirq for c in costs[name]]

    def half(name: str) -> list[float]:
        return [c.user + c.system for c in costs[name]]

    copies = 2 * (LARGE - SMALL)
    large = [b.total - a.total for a, b in zip(costs["user forward"], costs["user forward large"], strict=True)]
    per_byte = max(0.0, statistics.median(large) / copies)
    at_small = per_byte * SMALL
    more_wakes = 1 / FEW - 1 / BURST
    wake = _less(half("user forward few"), half("user forward"))
    woken = statistics.median(wake) / more_wakes / BURST
    found: dict[str, Sequence[float]] = {
        "kernel_rx_ns": softirq("kernel drop"),
        "kernel_tx_ns": _less(softirq("kernel forward"), softirq("kernel drop")),
        "punt_ns": [max(0.0, n - at_small) for n in _less(softirq("user drop"), softirq("kernel drop"))],
        "xsk_rx_ns": [max(1.0, n - woken) for n in half("user drop")],
        "wake_ns": [n / more_wakes for n in wake],
        "xsk_tx_ns": [max(0.0, n - at_small) for n in _less(half("user forward"), half("user drop"))],
        "copy_byte_ns": [max(0.0, n / copies) for n in large],
        "told_ns": told,
    }
    work = [n for n in _less(softirq("kernel flows"), softirq("kernel forward")) if n > 0]
    if work and generated > 0:
        found["bpf_work_ratio"] = [min(1.0, generated / n) for n in work]
    return tuple(_measured(model, name, values) for name, values in found.items())


def _less(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Each figure less the median of the other ones: they were not measured at one time."""
    base = statistics.median(other)
    return [max(0.0, n - base) for n in one]


def _measured(model: Model, name: str, values: Sequence[float]) -> Measured:
    ordered = sorted(values)
    low, middle, high = (float(f"{quantile(ordered, q):.4g}") for q in (0.1, 0.5, 0.9))
    return Measured(name, middle, low, high, model.parameters[name].unit, tuple(float(f"{v:.4g}") for v in values))

