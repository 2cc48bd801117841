"""`cora run` with a plan for XDP on real interfaces: started, looked into, killed, started again, ended."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdp_lab import SERVER, Lab, Started, run, wait_for

pytestmark = pytest.mark.needs("live-xdp")

ROOT = Path(__file__).resolve().parents[3]
CORA = (sys.executable, "-m", "cora")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The firewall that the kernel half runs alone."""
    made = tmp_path_factory.mktemp("plan") / "plan.json"
    run(*CORA, "plan", str(ROOT / "examples" / "firewall.ref.nf"), "--nic", "xdp", "--trace",
        str(ROOT / "examples" / "captures" / "office.pcap"), "--rate", "100kpps", "-o", str(made))
    return made


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


class Machine:
    """The function's namespace with a BPF file system where machines have it, and a folder for runs of its own."""

    def __init__(self, lab: Lab, plan: Path) -> None:
        self.lab, self.plan = lab, plan
        keeper = lab.start(lab.function, "unshare", "-m", "sh", "-c",
                           "mount -t bpf bpf /sys/fs/bpf && echo mounted && exec sleep 1000")
        wait_for(lambda: "mounted" in keeper.out.read_text(), "the BPF file system")
        self.enter = ("env", f"XDG_RUNTIME_DIR={lab.folder}", "nsenter", f"--mount=/proc/{keeper.process.pid}/ns/mnt",
                      "--")

    def start(self) -> Started:
        started = self.lab.start(self.lab.function, *self.enter, *CORA, "run", str(self.plan), "--ports",
                                 "inside=inside,outside=outside", "--name", self.lab.name, "--json")
        wait_for(lambda: started.process.poll() is not None or self.status() is not None, "the run")
        assert started.process.poll() is None, started.errors.read_text()
        return started

    def cora(self, *arguments: str) -> Any:
        done = self.lab.within(self.lab.function, *self.enter, *CORA, *arguments, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def status(self) -> Any:
        return self.cora("status", self.lab.name, "--json")


def ended(started: Started) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(started.out.read_text())
    return found


def fetched(lab: Lab) -> bool:
    return lab.within(lab.client, "curl", "-sS", "-m", "5", "-o", "/dev/null", f"http://{SERVER}:8000/",
                      check=False).returncode == 0


def test_a_plan_runs_is_killed_and_goes_on(lab: Lab, plan: Path) -> None:
    machine = Machine(lab, plan)
    first = machine.start()
    lab.start(lab.server, sys.executable, "-m", "http.server", "8000", "--directory", str(ROOT / "docs"))
    lab.listening(lab.server, 8000)
    assert fetched(lab)
    status = machine.status()
    assert all(place["alive"] for place in status["places"].values()) and set(status["places"]) == {"kernel", "user"}
    assert status["forwarded"]["outside"] > 3 and status["tables"]["conns"]["entries"] == 1
    dump = machine.cora("state", "dump", lab.name, "conns")
    assert "198.51.100.2" in json.dumps(dump) or str(0xC6336402) in json.dumps(dump)
    os.kill(status["pid"], signal.SIGKILL)
    assert first.process.wait(20) == 1
    assert "was killed by SIGKILL" in ended(first)["killed"] and "kernel is alive" in ended(first)["killed"]
    # The kernel half runs on without it.
    assert fetched(lab)
    second = machine.start()
    assert "goes on with the kernel half" in second.errors.read_text()
    assert machine.status()["arrived"] > status["arrived"]
    assert fetched(lab) and second.end(signal.SIGTERM, 30) == 0
    totals = ended(second)["totals"]
    assert totals["arrived"] == sum(totals["forwarded"].values()) + sum(totals["dropped"].values())
    assert not fetched(lab), "nothing bridges the interfaces any more"
