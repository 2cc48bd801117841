"""Runs both halves on real interfaces, packet by packet in virtual time: what `cora verify --on veth` does.

A process of its own makes a network namespace with a veth pair for every port, starts the programs as `cora run` would,
sends packets into the far ends and takes what comes out of them. One packet is on its way at a time: the next one is
sent when the kernel has counted the last one, the user half has served what was handed on, and what left has arrived.
The namespace, the interfaces and the pins end with the process.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cora.build.backend import Executed, Needs
from cora.build.request import BuildRequest
from cora.build.tools import BPF_FILE_SYSTEM
from cora.build.tree import PRODUCTS
from cora.emit.bpf import INTERFACE, file_stem, interface
from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_shared
from cora.engine.native import Records
from cora.engine.results import Options, Output, RunSummary, StateDump
from cora.engine.rows import dump_of_rows, rows_of_dump
from cora.engine.split import STATISTICS, Statistics
from cora.errors import Kind, fail
from cora.ir.nodes import FragmentState, Program

# A veth with an XDP program takes frames that fit a page beside head and tail room.
SHORTEST, LONGEST = 14, 3400
# The halves begin with the machine's clock, and time does not go back: packets come later than any uptime.
EARLIEST_NS = 10**18
# The user half removes entries that are due when its clock is this much later (CORA_MARGIN of run.h), at its next tick.
_MARGIN_NS, _TICKS = 1_000_000, 0.1
_PATIENCE = 10.0  # seconds for one packet
_PINS = BPF_FILE_SYSTEM / "cora" / "veth"
_PACKET = struct.Struct("=HQI")  # port, time, bytes; the frame follows
_SENT = struct.Struct("=HI")
# Linux: if_packet.h, sockios.h, ethtool.h.
_SOL_PACKET, _AUXDATA, _IGNORE_OUTGOING, _VLAN_VALID = 263, 8, 23, 1 << 4
_AUX = struct.Struct("=IIIHHHH")
_ETH_P_ALL, _SIOCETHTOOL, _SET_GRO = 3, 0x8946, 0x2C

_LOOK = """\
/* Reads what the halves share: packets on their way, and what the kernel half has counted. */
#include "kernel_interface.h"
#include "bpf/abi.h"
#include <stddef.h>

const size_t look_shared_size = sizeof(struct cora_shared), look_counts_size = sizeof(struct cora_counts);

void look_clock(struct cora_shared *shared, uint64_t now)
{
    __atomic_store_n(&shared->virtual_now, now, __ATOMIC_SEQ_CST);
}

/* Packets that were handed on and are not through. */
uint64_t look_pending(struct cora_shared *shared)
{
    uint64_t pending = 0;
    for (int q = 0; q < CORA_QUEUES; q++)
        pending += __atomic_load_n(&shared->punted[q], __ATOMIC_ACQUIRE) -
                   __atomic_load_n(&shared->done[q], __ATOMIC_ACQUIRE);
    return pending;
}

/* Packets that arrived and that the kernel half forwarded, over all CPUs. */
void look_counted(const uint8_t *values, uint32_t cpus, uint64_t *arrived, uint64_t *forwarded)
{
    size_t step = (sizeof(struct cora_counts) + 7) / 8 * 8;
    *arrived = *forwarded = 0;
    for (uint32_t cpu = 0; cpu < cpus; cpu++) {
        const struct cora_counts *counts = (const void *)(values + cpu * step);
        *arrived += counts->arrived.packets;
        for (int port = 0; port < CORA_PORTS; port++)
            *forwarded += counts->forwarded[port].packets;
    }
}
"""


class Veth:
    """An executor (`cora.build.backend.Executor`)."""

    needs = Needs(whole=True, shortest=SHORTEST, longest=LONGEST, earliest_ns=EARLIEST_NS)

    def __call__(self, request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
        """Raises CoraError as `compiled`; `Kind.RUN_FAILED` where the programs do not start or packets get lost."""
        from cora.runtime.running import compiled

        if options != Options():
            raise fail(Kind.BAD_FLAG, "programs on interfaces read packets as they come",
                       where="--ignore-checksums, --headers-only", hint="verify with --on split")
        tree, stem = compiled(request), file_stem(request.split)
        sources = {"look.c": _LOOK, INTERFACE: interface(request.split, request.config)}
        look = build_shared(f"{stem}-look", sources, ["-O1"], include_dirs=[RUNTIME])
        with tempfile.TemporaryDirectory(prefix="cora-veth-") as folder:
            packets = _written(Path(folder, "packets"), batches)
            job = {"program": str(tree / "user" / PRODUCTS / f"{stem}-user"),
                   "kernel": str(tree / "kernel" / PRODUCTS / f"{stem}.bpf.o"), "look": str(look), "packets": packets,
                   "ports": [p.name for p in request.program.ports],
                   "states": [s.name for s in request.program.states if not isinstance(s, FragmentState)]}
            Path(folder, "job.json").write_text(json.dumps(job))
            command = ["unshare", "--net", "--mount", sys.executable, "-m", "cora.backends.xdp.veth", folder]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode:
                raise fail(Kind.RUN_FAILED, done.stderr.strip() or "the programs ended, and did not say why",
                           where="veth")
            return _executed(request.program, Path(folder))


def _written(path: Path, batches: Sequence[Records]) -> int:
    from cora.frontends.traffic.capture import packets_of

    count = 0
    with path.open("wb") as file:
        for packet in packets_of(iter(batches)):
            file.write(_PACKET.pack(packet.port, packet.time_ns, len(packet.frame)) + packet.frame)
            count += 1
    return count


def _executed(program: Program, folder: Path) -> Executed:
    events, data, at = [], (folder / "sent").read_bytes(), 0
    while at < len(data):
        port, size = _SENT.unpack_from(data, at)
        at += _SENT.size
        events.append(Output(0, port, data[at:at + size], size))
        at += size
    told = json.loads((folder / "told.json").read_text())
    totals = told["totals"]
    sent = {port: (n, totals["forwarded_octets"][port]) for port, n in totals["forwarded"].items() if n}
    summary = RunSummary(totals["arrived"], totals["arrived_octets"], sent, totals["errors_sent"], totals["dropped"],
                         totals["held"])
    statistics = Statistics(**{n: totals.get("lending", {}).get(n, 0) for n in STATISTICS})
    return Executed(events, summary, _state(program, told["rows"]), False, statistics,
                    frozenset(s.name for s in program.states if isinstance(s, FragmentState)))


def _state(program: Program, rows: Mapping[str, str]) -> StateDump:
    empty = rows_of_dump(program, {})
    data = [bytes.fromhex(rows[s.name]) if s.name in rows else none
            for s, none in zip(program.states, empty, strict=True)]
    found = dump_of_rows(program, data)
    return {name: found[name] for name in rows if name in found}


# In the namespace.


@dataclass
class _Site:
    """The interfaces, the sockets at their far ends, the programs, and what they share."""

    folder: Path
    job: Mapping[str, Any]
    ends: list[socket.socket]
    process: subprocess.Popen[bytes]
    look: ctypes.CDLL
    bpf: ctypes.CDLL
    shared: Any
    counts: int
    values: Any
    cpus: int
    sent: int = 0
    came: int = 0

    def counted(self) -> tuple[int, int]:
        """Packets that the kernel half has counted as arrived, and as forwarded by itself."""
        key, arrived, forwarded = ctypes.c_uint32(0), ctypes.c_uint64(), ctypes.c_uint64()
        if self.bpf.bpf_map_lookup_elem(self.counts, ctypes.byref(key), self.values):
            raise SystemExit("the kernel half's counts cannot be read")
        self.look.look_counted(self.values, self.cpus, ctypes.byref(arrived), ctypes.byref(forwarded))
        return arrived.value, forwarded.value

    def drain(self, file: Any) -> None:
        for port, end in enumerate(self.ends):
            while (frame := _received(end)) is not None:
                file.write(_SENT.pack(port, len(frame)) + frame)
                self.came += 1


def main(folder: Path) -> None:
    """Run the packets of a folder; writes what left and what the programs told."""
    job = json.loads((folder / "job.json").read_text())
    subprocess.run(["mount", "-t", "bpf", "bpf", str(BPF_FILE_SYSTEM)], check=True)
    ends = [_pair(number) for number in range(len(job["ports"]))]
    site = _started(folder, job, ends)
    try:
        last = _run(site)
        rows = _rows(site, last)
    finally:
        site.process.send_signal(signal.SIGTERM)
        out, _ = site.process.communicate(timeout=30)
    (folder / "told.json").write_text(json.dumps({"rows": rows, "totals": json.loads(out)}))


def _pair(number: int) -> socket.socket:
    """A veth pair; the socket of its far end takes what comes out of the port."""
    port, end = f"port{number}", f"end{number}"
    for name in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1\n", encoding="ascii")
    subprocess.run(["ip", "link", "add", port, "mtu", str(LONGEST), "type", "veth", "peer", "name", end, "mtu",
                    str(LONGEST)], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # A veth takes redirected frames where its peer polls.
        value = (ctypes.c_uint32 * 2)(_SET_GRO, 1)
        request = struct.pack("@16sP16x", end.encode(), ctypes.addressof(value))
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
    for name in (port, end):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    found.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    found.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    found.bind((end, _ETH_P_ALL))
    found.setblocking(False)
    return found


def _received(end: socket.socket) -> bytes | None:
    """The next frame that came out, with the VLAN tag that the kernel has taken off; None: no frame is there."""
    try:
        frame, ancillary, _, _ = end.recvmsg(LONGEST + 100, 256)
    except BlockingIOError:
        return None
    for level, kind, data in ancillary:
        if (level, kind) == (_SOL_PACKET, _AUXDATA):
            status, _, _, _, _, tag, protocol = _AUX.unpack_from(data)
            if status & _VLAN_VALID:
                return frame[:12] + struct.pack("!HH", protocol, tag) + frame[12:]
    return frame


def _started(folder: Path, job: Mapping[str, Any], ends: list[socket.socket]) -> _Site:
    ports = [f"--port={name}=port{i}" for i, name in enumerate(job["ports"])]
    errors = folder / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen([job["program"], *ports, f"--kernel={job['kernel']}", f"--pins={_PINS}",
                                    f"--socket={folder / 'control.sock'}"], stdout=subprocess.PIPE, stderr=file)
    until = time.monotonic() + 3 * _PATIENCE
    while " runs on " not in errors.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(errors.read_text(errors="replace").removeprefix("cora: ") or "the programs do not start")
        time.sleep(0.01)
    look, bpf = ctypes.CDLL(job["look"]), ctypes.CDLL("libbpf.so.1", use_errno=True)
    look.look_pending.restype = ctypes.c_uint64
    look.look_clock.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    shared_fd = bpf.bpf_obj_get(os.fsencode(_PINS / "data_shared"))
    counts = bpf.bpf_obj_get(os.fsencode(_PINS / "cora_counts"))
    if shared_fd < 0 or counts < 0:
        raise SystemExit(f"the maps of the kernel half are not pinned in {_PINS}")
    page = mmap.PAGESIZE
    size = (ctypes.c_size_t.in_dll(look, "look_shared_size").value + page - 1) // page * page
    memory = mmap.mmap(shared_fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    cpus = bpf.libbpf_num_possible_cpus()
    step = (ctypes.c_size_t.in_dll(look, "look_counts_size").value + 7) // 8 * 8
    return _Site(folder, job, ends, process, look, bpf, (ctypes.c_uint8 * size).from_buffer(memory), counts,
                 (ctypes.c_uint8 * (step * cpus))(), cpus)


def _run(site: _Site) -> int:
    """Send all packets; returns the time of the last one."""
    now = EARLIEST_NS
    with (site.folder / "packets").open("rb") as packets, (site.folder / "sent").open("wb") as sent:
        while head := packets.read(_PACKET.size):
            port, time_ns, size = _PACKET.unpack(head)
            now = max(now, time_ns)
            site.look.look_clock(site.shared, now)
            _, before = site.counted()
            came = site.came
            site.ends[port].send(packets.read(size))
            site.sent += 1
            _wait(site, sent, before, came)
        time.sleep(_TICKS)
        site.drain(sent)
    return now


def _wait(site: _Site, sent: Any, before: int, came: int) -> None:
    """Until the packet that was sent last, and all that it caused, is through."""
    until = time.monotonic() + _PATIENCE
    while True:
        arrived, forwarded = site.counted()
        through = arrived >= site.sent and not site.look.look_pending(site.shared)
        site.drain(sent)
        if through and site.came - came >= forwarded - before:
            return
        if time.monotonic() > until:
            raise SystemExit(f"packet {site.sent - 1} is not through after {_PATIENCE:.0f} s: {arrived} packets of "
                             f"{site.sent} arrived, {site.look.look_pending(site.shared)} wait for the user half, "
                             f"{site.came} came out")


def _rows(site: _Site, last: int) -> dict[str, str]:
    """The state when the last packet is through, without what is due."""
    from cora.runtime.control import Control

    site.look.look_clock(site.shared, last + _MARGIN_NS)
    time.sleep(_TICKS)
    site.look.look_clock(site.shared, last)
    with Control(site.folder / "control.sock") as control:
        return {name: control.dump(name)[0].hex() for name in site.job["states"] if _dumps(control, name)}


def _dumps(control: Any, name: str) -> bool:
    """Tables that packets do not change are not told."""
    kind = control.status()["tables"].get(name, {}).get("kind")
    return kind not in (None, "acl", "lpm")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
