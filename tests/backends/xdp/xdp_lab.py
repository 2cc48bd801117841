"""Three network namespaces in a row, client - function - server, for programs that really run between interfaces.

The function is a bump in the wire: it changes no Ethernet addresses. So the client's gateway is the server's interface
and the other way round, with neighbour entries that never age. Checksum and segmentation offloads of the client and the
server are off: what a veth carries must be a finished frame (the emitted README says so to the user).
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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CLIENT, SERVER, EXTERNAL, INNER_ROUTER = "10.0.0.2", "198.51.100.2", "203.0.113.1", "10.0.0.1"
# Behind the server, over a link with a smaller MTU.
FAR, FAR_MTU = "198.18.0.2", 1200
PATIENCE = 20.0  # seconds; nothing is measured by it


def run(*command: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """A command with its output; what it said is in the error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done


@dataclass
class Started:
    """A process in a namespace; what it writes goes to files, so that it never waits for a reader."""

    process: subprocess.Popen[bytes]
    out: Path
    errors: Path

    def end(self, number: int, within: float = PATIENCE) -> int:
        """Sends it a signal and waits; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(within)


@dataclass
class Lab:
    """The namespaces and interfaces; use it in a ``with`` statement."""

    mtu: int = 1500
    queues: int = 1
    name: str = field(default_factory=lambda: f"cx{os.getpid() % 100000}")
    started: list[Started] = field(default_factory=list)

    @property
    def client(self) -> str:
        return f"{self.name}-c"

    @property
    def function(self) -> str:
        return f"{self.name}-f"

    @property
    def server(self) -> str:
        return f"{self.name}-s"

    @property
    def far(self) -> str:
        return f"{self.name}-r"

    @property
    def spaces(self) -> tuple[str, ...]:
        return self.client, self.function, self.server, self.far

    def __enter__(self) -> Self:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _make(self) -> None:
        bpf = self.folder / "bpf"
        bpf.mkdir()
        run("mount", "-t", "bpf", "bpf", str(bpf))
        for space in self.spaces:
            run("ip", "netns", "add", space)
        like = ("mtu", str(self.mtu), "numrxqueues", str(self.queues), "numtxqueues", str(self.queues))
        for far, near in ((self.client, "inside"), (self.server, "outside")):
            run("ip", "link", "add", "eth0", "netns", far, *like, "type", "veth", "peer", "name", near, "netns",
                self.function, *like)
            for space, device in ((far, "eth0"), (self.function, near)):
                self.within(space, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
                self.within(space, "ip", "link", "set", device, "up")
            self.within(far, "ip", "link", "set", "lo", "up")
            self.within(far, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "on")
        self._address(self.client, CLIENT, INNER_ROUTER, self.mac(self.server))
        self._address(self.server, SERVER, "198.51.100.1", self.mac(self.client))
        self._beyond()

    def _beyond(self) -> None:
        run("ip", "link", "add", "eth1", "netns", self.server, "mtu", str(FAR_MTU), "type", "veth", "peer", "name",
            "eth0", "netns", self.far, "mtu", str(FAR_MTU))
        for space, device, address in ((self.server, "eth1", "198.18.0.1"), (self.far, "eth0", FAR)):
            self.within(space, "ip", "addr", "add", f"{address}/24", "dev", device)
            self.within(space, "ip", "link", "set", device, "up")
        self.within(self.far, "ip", "route", "add", "default", "via", "198.18.0.1")
        self.within(self.server, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def _address(self, space: str, address: str, gateway: str, mac: str) -> None:
        self.within(space, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        self.within(space, "ip", "neigh", "add", gateway, "lladdr", mac, "dev", "eth0", "nud", "permanent")
        self.within(space, "ip", "route", "add", "default", "via", gateway, "dev", "eth0")

    def mac(self, space: str) -> str:
        shown = self.within(space, "ip", "-j", "link", "show", "eth0").stdout
        return str(json.loads(shown)[0]["address"])

    def close(self) -> None:
        """Ends everything that was started here, whatever state it is in."""
        for one in self.started:
            with contextlib.suppress(ProcessLookupError):
                one.process.kill()
            one.process.wait()
        for space in self.spaces:
            run("ip", "netns", "del", space, check=False)
        run("umount", str(self.folder / "bpf"), check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, space: str) -> tuple[str, ...]:
        """The start of a command that runs in a namespace, with the mounts of this process."""
        return ("nsenter", f"--net=/run/netns/{space}")

    def within(self, space: str, *command: str, check: bool = True, timeout: float = 60,
               ) -> subprocess.CompletedProcess[str]:
        return run(*self.inside(space), *command, check=check, timeout=timeout)

    def start(self, space: str, *command: str) -> Started:
        """A process that is ended with the lab."""
        out, errors = (self.folder / f"{len(self.started)}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as to_out, errors.open("wb") as to_errors:
            process = subprocess.Popen([*self.inside(space), *command], stdin=subprocess.DEVNULL, stdout=to_out,
                                       stderr=to_errors)
        self.started.append(Started(process, out, errors))
        return self.started[-1]

    def listening(self, space: str, port: int, protocol: str = "tcp") -> None:
        """Waits until something in a namespace listens on a port."""
        state = "0A" if protocol == "tcp" else "07"

        def there() -> bool:
            tables = self.within(space, "cat", f"/proc/net/{protocol}", f"/proc/net/{protocol}6").stdout
            rows = [line.split() for line in tables.splitlines() if ":" in line]
            return any(int(r[1].rpartition(":")[2], 16) == port and r[3] == state for r in rows)

        wait_for(there, f"port {port} in {space}")


def wait_for(condition: Any, what: str) -> None:
    """Until it holds; fails when it does not."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.02)


@dataclass
class Half:
    """A running user half."""

    lab: Lab
    started: Started
    pins: Path
    socket: Path

    def said(self) -> str:
        """What it has written to its error output."""
        return self.started.errors.read_text()

    def stop(self, number: int = signal.SIGTERM) -> dict[str, Any]:
        """Ends it and gives its totals."""
        assert self.started.end(number) == 0, self.said()
        return self.totals()

    def totals(self) -> dict[str, Any]:
        """What it told at its end."""
        found: dict[str, Any] = json.loads(self.started.out.read_text())
        return found

    def kill(self) -> None:
        self.started.end(signal.SIGKILL)


def start_half(lab: Lab, program: Path, kernel: Path, *extra: str, name: str = "nf") -> Half:
    """Starts a user half between the interfaces and waits until it serves."""
    pins, path = lab.folder / "bpf" / name, lab.folder / f"{name}.sock"
    started = lab.start(lab.function, str(program), "--port", "inside=inside", "--port", "outside=outside", "--kernel",
                        str(kernel), "--pins", str(pins), "--socket", str(path), *extra)
    half = Half(lab, started, pins, path)
    wait_for(lambda: " runs on " in half.said() or started.process.poll() is not None, "the user half")
    assert started.process.poll() is None, half.said()
    return half
