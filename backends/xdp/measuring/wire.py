"""A built plan between two veth pairs, and the processor time that it takes: user, system, and softirq.

Packets come from a sender in a namespace of its own and end in another. The receive side of the function's interfaces
runs in kernel threads (threaded NAPI), so that its processor time is the scheduler's own figure, apart from that of
sender and receiver. How many packets a thread finds when it wakes decides what a packet costs, so sender, threads and
user half share one core and take turns: a burst is sent, then received, then served in user space.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cora.build.tree import PRODUCTS
from cora.emit.cbuild import build_program
from cora.errors import Kind, fail

# Packets a second: few enough that nothing is lost where every packet goes through user space on a core of its own.
RATE = 150_000
# Frames in a burst: most that a veth holds (256), and some room.
BURST = 192
_SENDER = Path(__file__).with_name("blast.c")
_PATIENCE = 20.0  # seconds to start or end
_SETTLE = 0.2  # seconds until the last packets are through
# The user half's turn comes when the burst has been received, as if it were busy with the one before.
_LAST = 19
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Processor nanoseconds per packet that was sent, and the share of packets that came through.

    ``user`` and ``system`` are of the user half, which counts them in ticks; their sum is exact. ``softirq`` is the
    receive side of the function's interfaces, in which the kernel half runs and forwards.
    """

    user: float
    system: float
    softirq: float
    forwarded: float

    @property
    def total(self) -> float:
        """All processor time of both halves."""
        return self.user + self.system + self.softirq


class Wire:
    """Namespaces and a running plan; use it in a ``with`` statement.

    Args:
        tree: a built plan for XDP, compiled. ports: the two of its program; packets are sent to the first.
        tag: tells wires apart that a process has open at a time.

    Raises:
        CoraError: `Kind.RUN_FAILED` when namespaces cannot be made or the halves do not start.
    """

    def __init__(self, tree: Path, ports: tuple[str, str] = ("inside", "outside"), tag: str = "") -> None:
        self._tree, self._ports = tree, ports
        unique = f"{os.getpid() % 100_000}{tag}"
        self._spaces = {where: f"cora-{where}-{unique}" for where in ("from", "nf", "to")}
        self._devices = {port: f"x{side}{unique}" for port, side in zip(ports, "io", strict=True)}
        self._half: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="cora-wire-"))
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._close()

    def measure(self, capture: Path, packets: int, burst: int = BURST) -> Cost:
        """Send the frames of a capture round and round, at `RATE` in bursts; what it takes per packet.

        The first call should be thrown away: tables and caches are cold.
        """
        assert self._half is not None, "the halves run inside the with statement"
        before, passed = self._spent(), self._arrived()
        done = self._run("from", str(self._sender), "eth0", str(capture), str(RATE), str(packets), str(burst))
        time.sleep(_SETTLE)
        after, through = self._spent(), self._arrived()
        sent = int(json.loads(done)["sent"])
        spent = {name: after[name] - before[name] for name in after}
        ticks = spent["user ticks"] + spent["system ticks"]
        user = spent["user ticks"] / ticks if ticks else 0.5
        return Cost(user * spent["half"] / sent, (1 - user) * spent["half"] / sent, spent["softirq"] / sent,
                    (through - passed) / sent)

    def status(self) -> Mapping[str, Any]:
        """The counters of the running halves."""
        from cora.runtime.control import Control

        with Control(self._folder / "control") as control:
            return control.ask("status")

    def _open(self) -> None:
        self._sender = build_program("cora-sender", {"blast.c": _SENDER.read_text(encoding="utf-8")}, ("-O2",))
        bpf = self._folder / "bpf"
        bpf.mkdir()
        self._host("mount", "-t", "bpf", "bpf", str(bpf))
        for space in self._spaces.values():
            self._host("ip", "netns", "add", space)
        for far, port in zip(("from", "to"), self._ports, strict=True):
            self._host("ip", "link", "add", "eth0", "netns", self._spaces[far], "type", "veth", "peer", "name",
                       self._devices[port], "netns", self._spaces["nf"])
            for where, device in ((far, "eth0"), ("nf", self._devices[port])):
                self._run(where, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
                self._run(where, "ip", "link", "set", device, "up", "promisc", "on")
            self._run(far, "ethtool", "-K", "eth0", "gro", "on")
        self._start(bpf)
        self._threads = self._receivers()
        self._pin()

    def _start(self, bpf: Path) -> None:
        stem = next(self._tree.glob(f"kernel/{PRODUCTS}/*.bpf.o")).name.removesuffix(".bpf.o")
        command = [str(self._tree / "user" / PRODUCTS / f"{stem}-user"),
                   *(f"--port={port}={device}" for port, device in self._devices.items()),
                   f"--kernel={self._tree / 'kernel' / PRODUCTS / f'{stem}.bpf.o'}", f"--pins={bpf / 'nf'}",
                   f"--socket={self._folder / 'control'}"]
        self._said = (self._folder / "said").open("w+", encoding="utf-8")
        self._half = subprocess.Popen([*self._inside("nf"), *command], stdout=subprocess.DEVNULL, stderr=self._said,
                                      text=True)
        end = time.monotonic() + _PATIENCE
        while " runs on " not in (told := (self._folder / "said").read_text(encoding="utf-8")):
            if self._half.poll() is not None or time.monotonic() > end:
                raise fail(Kind.RUN_FAILED, f"the halves do not start: {told.strip() or 'nothing was said'}",
                           where=str(self._tree))
            time.sleep(0.02)

    def _receivers(self) -> dict[str, list[int]]:
        """Kernel threads that receive for the function's interfaces, and for the receiver behind it."""
        for where, device in (*(("nf", d) for d in self._devices.values()), ("to", "eth0")):
            # The files of a namespace's interfaces are seen in a mount of its own.
            switch = f"mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{device}/threaded"
            self._run(where, "unshare", "-m", "sh", "-c", switch)
        found: dict[str, list[int]] = {"nf": [], "to": []}
        for folder in Path("/proc").iterdir():
            name = _name_of(folder) if folder.name.isdigit() else ""
            if name.startswith(tuple(f"napi/{d}-" for d in self._devices.values())):
                found["nf"].append(int(folder.name))
        if not found["nf"]:
            raise fail(Kind.RUN_FAILED, "this kernel receives in no threads of their own (threaded NAPI)",
                       hint="processor time can be told apart from Linux 5.12 on")
        return found

    def _pin(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        assert self._half is not None
        for thread in (*self._threads["nf"], self._half.pid):
            os.sched_setaffinity(thread, {cores[-1]})
        os.setpriority(os.PRIO_PROCESS, self._half.pid, _LAST)
        self._core = str(cores[-1])

    def _spent(self) -> dict[str, int]:
        """Nanoseconds, and for the user half its ticks of both kinds in nanoseconds."""
        assert self._half is not None
        fields = Path(f"/proc/{self._half.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return {"half": _scheduled(self._half.pid), "softirq": sum(_scheduled(t) for t in self._threads["nf"]),
                "user ticks": int(fields[11]) * _TICK_NS, "system ticks": int(fields[12]) * _TICK_NS}

    def _arrived(self) -> int:
        """Packets that came out of the function."""
        shown = json.loads(self._run("to", "ip", "-j", "-s", "link", "show", "eth0"))
        return int(shown[0]["stats64"]["rx"]["packets"])

    def _inside(self, where: str) -> Sequence[str]:
        pinned = ("taskset", "-c", self._core) if where == "from" and hasattr(self, "_core") else ()
        return ("nsenter", f"--net=/run/netns/{self._spaces[where]}", *pinned)

    def _run(self, where: str, *command: str) -> str:
        return self._host(*self._inside(where), *command)

    @staticmethod
    def _host(*command: str) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        except FileNotFoundError as error:
            raise fail(Kind.MISSING_TOOL, f"{error.filename} is not installed",
                       hint="apt-get install iproute2 ethtool util-linux procps") from error
        if done.returncode:
            raise fail(Kind.RUN_FAILED, f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()}",
                       hint="namespaces, veth pairs and BPF need root (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF)")
        return done.stdout

    def _close(self) -> None:
        if self._half is not None:
            self._half.send_signal(signal.SIGTERM)
            try:
                self._half.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._half.kill()
                self._half.wait()
            self._said.close()
        for command in (*(("ip", "netns", "del", s) for s in self._spaces.values()),
                        ("umount", str(self._folder / "bpf"))):
            with contextlib.suppress(OSError):
                subprocess.run(command, capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)


def _scheduled(thread: int) -> int:
    """Nanoseconds that a thread has run (the first field of its schedstat)."""
    return int(Path(f"/proc/{thread}/schedstat").read_text(encoding="utf-8").split()[0])


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
