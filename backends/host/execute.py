"""Runs the host program of a plan on this machine, without a card: by records in virtual time, or capture to capture.

*By records* the program reads packets and their time stamps from a file and tells what became of each: everything is
compared, on one core or on several that hand packets over. With several, a packet begins when the one before it is done
(lockstep), so that the outcome is one that can be predicted. *Capture to capture* it polls DPDK's pcap devices, as it
would a card, by the machine's clock: that shows receiving, sending and the order on each port.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cora.backends.host.emit import FLAGS, OPTIMISE, PLACE, program_text
from cora.build.backend import Executed, Job, Launch
from cora.build.request import BuildRequest, file_stem
from cora.build.tools import require_tools
from cora.build.tree import PRODUCTS
from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_program
from cora.engine.native import Records, decode_events, file_name_of, option_bits, sections_of, summary_of
from cora.engine.results import Event, Options
from cora.engine.rows import dump_of_rows
from cora.engine.split import Statistics
from cora.errors import Kind, fail
from cora.ir.nodes import Program, reasons_of

BUILD_TOOLS = ("cc", "pkg-config", "libdpdk", "jansson")
# Cores of the program, by seed: one, and those that divide state.
_MOST_CORES = 3
_SECONDS = 120.0
_LEAST_FRAME, _MOST_FRAME = 2048, 60000
# struct cora_worker_counts of dpdk/worker.h.
_COUNTS = ("received", "received_octets", "handed_over", "alone", "unsent", "no_buffer", "too_long",
           "cpu_ns")


@dataclass(frozen=True)
class CoreCounts:
    """What one core did; packets."""

    received: int
    received_octets: int
    handed_over: int
    alone: int
    unsent: int
    no_buffer: int
    too_long: int
    cpu_ns: int


def compiled(program: Program, config: Mapping[str, int], plan: str = "", *, more_flags: Sequence[str] = ()) -> Path:
    """The host program, from the cache where it was compiled before. ``plan``: digest of the plan it is of.

    Raises:
        CoraError: `Kind.MISSING_TOOL`, `Kind.COMPILER_FAILED`, `Kind.NO_COMPILER`, `Kind.CACHE_UNWRITABLE`.
    """
    require_tools(BUILD_TOOLS, "run the host program")
    stem = file_name_of(program)
    _, text = program_text(program, config, plan, stem)
    flags = [*FLAGS.split(), *OPTIMISE.split(), *more_flags, *_packages("--cflags"), "-pthread", *_packages("--libs")]
    return build_program(f"{stem}-host", {f"{stem}.c": text}, flags, include_dirs=[RUNTIME])


def _packages(what: str) -> list[str]:
    said = subprocess.run(["pkg-config", what, "libdpdk", "jansson"], capture_output=True, text=True, check=True)
    return said.stdout.split()


def execute_records(request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
    """The executor of `cora verify --on host`: on 1, 2 or 3 cores, by the seed."""
    binary = compiled(request.program, request.config, request.plan.digest())
    return run_records(request.program, binary, batches, options, cores=1 + seed % _MOST_CORES)[0]


def run_records(program: Program, binary: Path, batches: Sequence[Records], options: Options, *, cores: int,
                ) -> tuple[Executed, list[CoreCounts]]:
    """Run the program by records, and tell what each of its cores did.

    Raises:
        CoraError: `Kind.RUN_FAILED` where the program does not end as it should, or refuses.
    """
    with tempfile.TemporaryDirectory(prefix="cora-host-") as folder:
        inputs, outputs = Path(folder, "in"), Path(folder, "out")
        longest = _write_records(inputs, batches, options)
        arguments = ["--records", str(inputs), "--output", str(outputs), "--frame-bytes",
                     str(min(_MOST_FRAME, max(_LEAST_FRAME, longest))), *(["--lockstep"] if cores > 1 else [])]
        run_program(binary, cores, [], [*arguments, "--buffers", "1023"], Path(folder))
        sections = list(sections_of(outputs.read_bytes()))
    states = len(program.states)
    totals = list(struct.unpack(f"={len(sections[0]) // 8}Q", sections[0]))
    events: list[Event] = []
    for part in sections[1:1 + cores]:
        events += decode_events(part, reasons_of(program))
    state = dump_of_rows(program, sections[1 + cores:1 + cores + states])
    counts = [CoreCounts(*struct.unpack(f"={len(_COUNTS)}Q", s)) for s in sections[1 + cores + states:]]
    handed = sum(c.handed_over for c in counts)
    return Executed(events, summary_of(program, totals), state, True, Statistics(punted=handed)), counts


def _write_records(path: Path, batches: Sequence[Records], options: Options) -> int:
    """Write the packets as the program reads them; returns the length of the longest frame."""
    from cora.frontends.traffic.capture import RECORD, packets_of  # loads a native library

    longest = 0
    with path.open("wb") as file:
        file.write(struct.pack("=I", option_bits(options)))
        for p in packets_of(b.view(RECORD) for b in batches):
            size = len(p.frame)
            longest = max(longest, size)
            file.write(struct.pack("=QIIHHI", p.time_ns, size, p.wirelen, p.port, 0, size) + p.frame)
    return longest


@dataclass(frozen=True)
class PortFiles:
    """Captures of one port; what leaves it is written to ``leaves`` as the pcap device writes it."""

    arrives: Path
    leaves: Path


def run_captures(program: Program, binary: Path, ports: Mapping[str, PortFiles], *, cores: int = 1,
                 options: Sequence[str] = ()) -> dict[str, Any]:
    """Run the program capture to capture until nothing more comes; returns the totals it prints.

    Raises:
        CoraError: as `run_records`.
    """
    devices, named = [], []
    for i, port in enumerate(program.ports):
        files = ports[port.name]
        devices.append(f"--vdev=net_pcap{i},rx_pcap={files.arrives},tx_pcap={files.leaves}")
        named += ["--port", f"{port.name}=net_pcap{i}"]
    with tempfile.TemporaryDirectory(prefix="cora-host-") as folder:
        said = run_program(binary, cores, devices, [*named, "--idle-ms", "300", *options], Path(folder))
    totals: dict[str, Any] = json.loads(said)
    return totals


def run_program(binary: Path, cores: int, devices: Sequence[str], arguments: Sequence[str], folder: Path) -> str:
    """Run the program on software devices, without huge pages; returns what it printed.

    Raises:
        CoraError: `Kind.RUN_FAILED`.
    """
    command = [str(binary), *environment_options(cores, binary.name), *devices, "--", *arguments]
    environment = {**os.environ, "RTE_EAL_RUNTIME_DIR": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS,
                              env=environment, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise fail(Kind.RUN_FAILED, f"the host program did not end within {_SECONDS:.0f} s", where=str(binary),
                   hint="run it by hand with these arguments: " + " ".join(arguments)) from error
    if done.returncode != 0:
        said = done.stderr.strip()[-2000:]
        raise fail(Kind.RUN_FAILED, f"the host program ended with code {done.returncode}:\n{said}",
                   where=str(binary), hint="its own message says what it lacks; a signal is a fault of the program")
    return done.stdout


def environment_options(cores: int, name: str) -> list[str]:
    """Options of DPDK's environment layer for software devices: cores share processors where there are too few."""
    there = sorted(os.sched_getaffinity(0))
    lcores = ",".join(f"{i}@{there[i % len(there)]}" for i in range(cores))
    return [f"--lcores={lcores}", "--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--log-level=3",
            f"--file-prefix={name[:40]}-{os.getpid()}"]


def launch(job: Job) -> Launch:
    """The program on interfaces of this machine, by DPDK's packet-socket device, on one core."""
    stem = file_stem(job.request)
    binary = job.tree / PLACE / PRODUCTS / f"{stem}-host"
    devices, named = [], []
    for i, port in enumerate(job.request.program.ports):
        devices.append(f"--vdev=net_af_packet{i},iface={job.ports[port.name]},blocksz=65536,framesz=2048,framecnt=1024")
        named += ["--port", f"{port.name}=net_af_packet{i}"]
    return Launch([str(binary), *environment_options(1, job.name), *devices, "--", *named,
                   "--socket", str(job.control)])
