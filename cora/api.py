"""The Python API: the command line's main commands as functions. Import the names from `cora` itself."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cora.engine.results import Options
from cora.ir.nodes import Program

if TYPE_CHECKING:
    from cora.analysis.profile import Profile
    from cora.frontends.traffic.synthetic import TrafficSpec
    from cora.models.calibration import HostCalibration
    from cora.plan.document import Plan
    from cora.runtime.replay import Engine, ReplayResult
    from cora.runtime.tracing import PacketTrace
    from cora.runtime.verify import Verification

PathLike = str | os.PathLike[str]
Progress = Callable[[int], None]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cycle collector: compiling and planning make many small objects that all live on."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def load(path: PathLike, settings: Mapping[str, str] | None = None) -> Program:
    """Load an NF program: check it, lower it, and run the standard passes.

    Args:
        path: an ``.nf`` file.
        settings: config values by name, written as in the program: ``{"ext_first": "198.51.100.7"}``.

    Raises:
        CoraError: everything that is wrong with the program.
    """
    from cora.compile import compile_file

    with _uncollected():
        return compile_file(Path(path), settings or {})


def traffic(spec: TrafficSpec | Mapping[str, object], path: PathLike, progress: Progress | None = None) -> None:
    """Write synthetic traffic as a capture. The same specification gives the same bytes on every machine.

    Args:
        spec: a `TrafficSpec`, or its values by name as `cora traffic` takes them: ``{"flows": "100k", "size": "64"}``.

    Raises:
        CoraError: a value is wrong, or the file cannot be written.
    """
    from cora.frontends.traffic.synthetic import TrafficSpec, write

    write(spec if isinstance(spec, TrafficSpec) else TrafficSpec.parse(spec), Path(path), progress)


def profile(program: Program, traffic: PathLike, *, port_map: Sequence[str] = (), captured_at: str | None = None,
            options: Options | None = None, window_ns: int | None = None, progress: Progress | None = None) -> Profile:
    """Run a program on traffic and describe what happens (docs/profile.md).

    Args:
        traffic: a capture, or a ``*.traffic.json`` specification.
        port_map: which packets arrive on which port, as ``--port-map`` takes it; default: the initiator's side is the
            first port.
        captured_at: the port whose link the capture was taken on, so that what arrives on other ports is translated as
            the program translates; default: packets are taken as they are.
        window_ns: length of the windows; default: chosen so that there are about 100.

    Raises:
        CoraError: everything that is wrong with the input.
    """
    from cora.runtime.profiling import make_profile

    return make_profile(program, traffic, port_map=port_map, captured_at=captured_at, options=options,
                        window_ns=window_ns, progress=progress)


def plan(program: Program, profile: Profile, nic: str, *, rate: str | float | None = None, cores: int | None = None,
         solver: str = "highs", time_limit: float = 10.0, instance: str | None = None, reserved: Sequence[str] = (),
         host_model: str | None = None, pin: Sequence[str] = (), forbid: Sequence[str] = (),
         max_latency: str | None = None, max_nic_memory: str | None = None, headroom: str | None = None,
         window: str | None = None, search: str = "exact", warm: Plan | None = None, robust: bool = False,
         pareto: bool = False) -> Plan:
    """Decide what runs where.

    Args:
        nic: a name from `cora nics`.
        rate: ``"10Mpps"``, packets per second, or ``"40Gbps"`` on the line (with preamble, check sequence and gap): the
            fewest host cores for this rate.
        cores: host cores: the highest rate for these; with ``rate``, at most these.
        solver: ``"highs"`` or ``"cbc"``; time_limit: seconds.
        instance: one card of the family (a name, or a file as docs/models.md says), None for its standard one.
        reserved: what others on the card use, such as ``"emem=512MiB"``.
        host_model: ``"published"`` or ``"measured"`` figures of host cores, or a file of `calibrate`; None: those
            measured on this machine when there are any, else the published ones.
        pin, forbid: states that have to be, or must not be, somewhere: ``"conns=host"``, ``"conns=nic/emem"``.
        max_latency: of the mean packet: ``"50us"``. max_nic_memory: of all states on the card: ``"2MB"``.
        headroom: share of every resource that stays free: ``"20%"``.
        window: ``"P99"``: plan for the window whose load 99 % of the windows do not exceed.
        search: ``"exact"``, or ``"fast"`` for programs that are too large for the exact one.
        warm: a plan made before, to begin the search with.
        robust: take the placement that is least to regret under other figures and traffic (docs/robust.md), not the
            best one for exactly these.
        pareto: also tell the plans that no other one beats in cores, throughput, latency and memory of the card.

    Raises:
        CoraError: the NIC is unknown, the profile is of another program, or no plan meets the request.
    """
    from cora.analysis.profile import at_window
    from cora.models.registry import get
    from cora.partition import plan as make
    from cora.runtime.requests import asked_rate, terms_of

    terms = terms_of(pin=pin, forbid=forbid, max_latency=max_latency, max_nic_memory=max_nic_memory,
                     headroom=headroom, window=window, search=search)
    asked = asked_rate(rate, profile if terms.window is None else at_window(profile, terms.window))
    target = get(nic, instance, reserved, host_model)
    with _uncollected():
        best = make(program, profile, target, rate_pps=None if asked is None else asked.pps,
                    line_bps=None if asked is None else asked.line_bps, cores=cores, solver=solver,
                    time_limit=time_limit, warm=warm, pareto=pareto, **asdict(terms))
        if not robust:
            return best
        from cora.partition.robust import least_regret

        return least_regret(best, program, profile, target)


def calibrate(path: PathLike | None = None, *, nic: str = "host", keep: bool = True,
              progress: Progress | None = None) -> HostCalibration:
    """Measure what packet work costs on this machine (about half a minute).

    Args:
        path: where to write the calibration; default: where `plan` finds it. keep: whether to write it.
        nic: ``"host"``, or a target with figures of its own that can be measured here (``"xdp"``).

    Raises:
        CoraError: nothing of the target can be measured here, a tool or right is missing, too little memory, or the
            file cannot be written.
    """
    from cora.models.calibration import store
    from cora.models.registry import calibrator

    found = calibrator(nic)(progress)
    if keep:
        store(found, None if path is None else Path(path), "" if nic == "host" else nic)
    return found


def replay(program: Program, traffic: PathLike, *, engine: Engine = "native", port_map: Sequence[str] = (),
           captured_at: str | None = None, options: Options | None = None, write: PathLike | None = None,
           progress: Progress | None = None) -> ReplayResult:
    """Run a program on a capture; see `cora.runtime.replay.replay`."""
    from cora.runtime.replay import replay as run

    return run(program, traffic, engine=engine, port_map=port_map, captured_at=captured_at, options=options,
               write=write, progress=progress)


def trace(program: Program, traffic: PathLike, packet: int, *, port_map: Sequence[str] = (),
          captured_at: str | None = None, options: Options | None = None, progress: Progress | None = None
          ) -> PacketTrace:
    """Follow one packet through a program; see `cora.runtime.tracing.trace`."""
    from cora.runtime.tracing import trace as run

    return run(program, traffic, packet, port_map=port_map, captured_at=captured_at, options=options, progress=progress)


def verify(plan: Plan, program: Program, traffic: Sequence[PathLike] = (), *, port_map: Sequence[str] = (),
           captured_at: str | None = None, options: Options | None = None, seeds: int = 4, packets: int = 20_000,
           time_limit: float = 120.0, seed: int = 0, progress: Callable[[str], None] | None = None,
           on: str = "split") -> Verification:
    """Run the parts of a plan's places and compare them with the unsplit program (docs/splitting.md).

    Args:
        traffic: captures to compare on, before the packets that cover the program and ``packets`` of random traffic.
        seeds: schedules per traffic; ``seed``: the first of them. time_limit: seconds.
        port_map, captured_at, options: as for `replay`.
        on: what runs: ``split``, all parts in this process; or the plan's own programs, as its target can run them here
            (docs/build.md).

    Raises:
        CoraError: the plan is of another program or cannot be run, or something is wrong with the traffic; a tool is
            missing.
    """
    from contextlib import ExitStack

    from cora.runtime.execution import verifier
    from cora.runtime.verify import captured

    run = verifier(plan, program, on, seeds=range(seed, seed + seeds), time_limit=time_limit, options=options)
    warnings: list[str] = []
    with ExitStack() as stack:
        found = []
        for path in traffic:
            item, said = captured(program, path, stack, port_map=port_map, captured_at=captured_at, options=options)
            found.append(item)
            warnings += said
        return run.all(found, packets=packets, seed=seed, on=on, warnings=warnings, progress=progress)
