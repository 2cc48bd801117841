"""What a user does: profile, plan for XDP, build, verify, run between interfaces, look inside, kill, go on, end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cora as api
from cora.build.request import BuildRequest, request_of
from cora.cli.verify import with_evidence
from cora.ir.nodes import Program
from cora.plan.document import Plan, load_plan, save
from cora.runtime import execution
from cora.runtime.running import compiled

ROOT = Path(__file__).resolve().parents[2]
# The namespaces are those of the backend's own tests.
sys.path.insert(0, str(ROOT / "tests" / "backends" / "xdp"))

from xdp_lab import EXTERNAL, SERVER, Lab, Started, wait_for  # noqa: E402

pytestmark = pytest.mark.needs("live-xdp")

POLICER = str(ROOT / "examples" / "policer.nf")
NAT, OFFICE = str(ROOT / "examples" / "nat.nf"), str(ROOT / "examples" / "captures" / "office.pcap")
CAPTURED = ("--port-map", "inside=10.0.0.0/24,2001:db8:1::/64", "--port-map", "outside=*", "--captured-at", "inside")
PEER = str(ROOT / "tests" / "backends" / "xdp" / "xdp_peer.py")


def cora(*arguments: str, inside: int | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command as installed; ``inside``: with the network and mounts of this process."""
    space = () if inside is None else ("nsenter", f"--target={inside}", "--mount", "--net")
    done = subprocess.run([*space, sys.executable, "-m", "cora", *arguments], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of the NAT for the office's traffic, which splits its table; its programs are in the cache."""
    folder = tmp_path_factory.mktemp("plan")
    profile, out = folder / "profile.json", folder / "plan.json"
    cora("profile", NAT, OFFICE, *CAPTURED, "-o", str(profile))
    said = cora("plan", NAT, "--profile", str(profile), "--nic", "xdp", "--rate", "1Mpps", "-o", str(out)).stdout
    assert "split: user/dram, lent to kernel/maps" in said
    compiled(request_of(load_plan(out), api.load(NAT)))
    return out


class Site:
    """The namespaces, and what runs between them."""

    def __init__(self, lab: Lab, plan: Path) -> None:
        self.lab, self.plan = lab, plan
        self.record = lab.folder / "run" / "e2e" / "run.json"
        # Namespaces share one file system of pins, as a machine does.
        self.keeper = lab.start(lab.function, "unshare", "-m", "sh", "-c",
                                "mount -t bpf bpf /sys/fs/bpf && exec sleep 600")
        wait_for(lambda: self.pins.is_dir() and os.path.ismount(self.pins), "the BPF file system")

    @property
    def pins(self) -> Path:
        return Path(f"/proc/{self.keeper.process.pid}/root/sys/fs/bpf")

    @property
    def within(self) -> tuple[str, ...]:
        return "nsenter", f"--target={self.keeper.process.pid}", "--mount", "--net"

    def cora(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return cora(*arguments, inside=self.keeper.process.pid, code=code)

    def run(self, *more: str) -> Started:
        """Starts the plan and waits until it serves."""
        before = self.record.read_bytes() if self.record.exists() else b""
        command = (*self.within, sys.executable, "-m", "cora", "run", str(self.plan), "--ports",
                   "inside=inside,outside=outside", "--name", "e2e", *more)
        started = self.lab.start(self.lab.function, *command)
        wait_for(lambda: (self.record.exists() and self.record.read_bytes() != before)
                 or started.process.poll() is not None, "the run")
        assert started.process.poll() is None, started.errors.read_text()
        return started

    def status(self, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cora("status", "e2e", "--json", code=code).stdout)
        return found

    def asks(self, port: int, count: int) -> None:
        """So many questions and answers by UDP, from client to server."""
        done = self.lab.within(self.lab.client, sys.executable, PEER, "client", SERVER, str(port), str(count), "64")
        assert json.loads(done.stdout) == [EXTERNAL] * count


@pytest.fixture
def site(plan: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Lab() as lab:
        monkeypatch.setenv("CORA_RUN_DIR", str(lab.folder / "run"))
        site = Site(lab, plan)
        lab.start(lab.server, sys.executable, PEER, "server", SERVER, "5353")
        lab.listening(lab.server, 5353, "udp")
        yield site


def test_a_plan_runs_is_looked_into_and_ends(site: Site) -> None:
    started = site.run()
    site.asks(5353, 50)
    told = site.status()
    assert {p: s["alive"] for p, s in told["places"].items()} == {"kernel": True, "user": True}
    assert told["ports"] == {"inside": "inside", "outside": "outside"}
    # 50 questions and answers; most of them by the kernel alone.
    assert told["forwarded"]["inside"] == 50 <= told["forwarded"]["outside"]
    assert told["lending"]["fast"] > 50 and told["tables"]["conns"]["entries"] == 1
    text = site.cora("status").stdout
    assert "ports: inside=inside, outside=outside" in text and "conns" in text

    (entry,) = json.loads(site.cora("state", "dump", "e2e", "conns").stdout)["states"]["conns"]["entries"]
    fields = entry["fields"]
    assert (fields["flow.src"], fields["flow.dst"], fields["flow.dp"]) == (0x0A000002, 0xC6336402, 5353)

    trace = site.lab.start(site.lab.function, *site.within, sys.executable, "-m", "cora", "trace", "--live", "e2e",
                           "-n", "1", "--json")
    while trace.process.poll() is None:
        site.asks(5353, 1)  # each from a port of its own, so its first packet comes to user space
    events = json.loads(trace.out.read_text())
    assert [e["what"] for e in events][:1] == ["arrived"] and events[0]["port"] in ("inside", "outside")

    assert started.end(signal.SIGTERM) == 0, started.errors.read_text()
    assert "forwarded" in started.out.read_text() and not site.record.exists()
    assert not (site.pins / "cora" / "e2e").exists() and site.cora("status").stdout == "nothing runs here\n"


# Answers the first datagram, and goes on sending to where it came from.
CALLER = """import socket, time
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("", 5400))
_, who = s.recvfrom(99)
while True:
    s.sendto(b"again", who)
    time.sleep(0.1)
"""
# Sends one datagram, and tells of every one that comes.
CALLED = f"""import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.sendto(b"call me", ("{SERVER}", 5400))
while True:
    print(s.recv(99).decode(), flush=True)
"""


def test_state_moves_to_another_run(site: Site, tmp_path: Path) -> None:
    """A session that was opened through one run goes on through the next one, though only the outside side speaks."""
    lab, file = site.lab, tmp_path / "state.json"
    first = site.run()
    lab.start(lab.server, sys.executable, "-c", CALLER)
    lab.listening(lab.server, 5400, "udp")
    called = lab.start(lab.client, sys.executable, "-c", CALLED)
    wait_for(lambda: called.out.read_text().count("again") > 2, "the first calls")
    site.cora("state", "dump", "e2e", "-o", str(file))
    assert first.end(signal.SIGINT) == 0

    second = site.run("--json")
    wait_for(lambda: sum(site.status()["dropped"].values()) > 2, "packets that no mapping takes")
    before = called.out.read_text()
    assert site.status()["tables"]["conns"]["entries"] == 0
    site.cora("state", "load", "e2e", str(file))
    wait_for(lambda: len(called.out.read_text()) > len(before), "the session to go on")
    assert second.end(signal.SIGTERM) == 0
    assert json.loads(second.out.read_text())["killed"] is None


def test_a_killed_half_is_noticed_and_a_new_one_goes_on(site: Site) -> None:
    started = site.run()
    site.asks(5353, 20)
    os.kill(site.status()["pid"], signal.SIGKILL)
    assert started.process.wait(20) == 1
    said = started.errors.read_text()
    assert "the program at user was killed by SIGKILL; kernel is alive" in said
    told = site.status(code=1)
    assert told["places"]["kernel"] == {"alive": True} and "is gone" in told["places"]["user"]["trouble"]

    again = site.run()
    assert "entries came back from the kernel half" in again.errors.read_text()
    site.asks(5353, 20)
    told = site.status()
    # What was counted before goes on; the flow of the first questions is still there.
    assert told["forwarded"]["inside"] == 40 and told["tables"]["conns"]["entries"] == 2

    site.cora("run", str(site.plan), "--ports", "inside=inside,outside=outside", "--name", "e2e", code=2)
    subprocess.run(["nsenter", f"--target={site.keeper.process.pid}", "--net", "ip", "link", "del", "outside"],
                   check=True)
    assert again.process.wait(20) == 1
    assert "the kernel half of nat is gone from outside" in again.errors.read_text()


def test_the_kernels_program_is_verified_and_that_is_written_down(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "verified.json"
    cora("plan", POLICER, "--trace", OFFICE, "--captured-at", "lan", "--nic", "xdp", "--cores", "1", "-o", str(plan))
    done = cora("verify", str(plan), OFFICE, "--captured-at", "lan", "--on", "xdp", "--seeds", "1", "--packets",
                "500", "-o", str(out))
    assert "equal: what leaves" in done.stdout and "office.pcap: 6,630 packets, 1 schedule" in done.stdout
    assert "frames were cut when they were captured" in done.stderr
    assert "the programs on xdp equal to the unsplit program" in cora("show", str(out)).stdout


def test_both_halves_are_verified_between_interfaces(plan: Path, tmp_path: Path) -> None:
    """The office's packets through both halves; the share on the fast path is that which the plan predicts."""
    out = tmp_path / "verified.json"
    found = api.verify(load_plan(plan), api.load(NAT), [OFFICE], captured_at="inside", on="veth", seeds=1, packets=300)
    assert found.difference is None and found.on == "veth"
    office = found.compared[0]
    (lent,) = (s.lent for s in load_plan(plan).states if s.lent is not None)
    assert office.packets == 6630 and office.statistics.overtaken == 0
    assert office.statistics.fast / office.packets == pytest.approx(lent.share, abs=0.001)
    save(with_evidence(load_plan(plan), found), out)
    assert "the programs on veth equal to the unsplit program" in cora("show", str(out)).stdout


LIMITED = """nf limited {
  port a: wire | host; port b: wire;
  config most: u16 = 9;
  map hosts {
    entry { src: ipv4, packets: u16 } key by = (src);
    timeout 60s slack 10s; capacity 1000; full reject;
  }
  fragments drop; unparsed drop;
  on a(p: eth/ipv4) {
    lookup hosts.by[p.ip.src] {
      hit e { if e.packets >= most { drop "enough"; } touch e; e.packets = e.packets + 1; forward b; }
      miss { insert hosts { src: p.ip.src, packets: 1 } { ok e { forward b; } full { drop "full"; } } }
    }
  }
  on b(p: eth) { forward a; }
}
"""


def test_programs_that_do_something_else_are_found_between_interfaces(tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """The halves are built with another config value than the program has."""
    trace = tmp_path / "made.pcap"
    (tmp_path / "limited.nf").write_text(LIMITED)
    api.traffic({"packets": "2k", "flows": "50"}, trace)
    program = api.load(tmp_path / "limited.nf")
    plan = api.plan(program, api.profile(program, trace), "xdp", cores=1)
    assert api.verify(plan, program, [trace], on="veth", seeds=1, packets=300).difference is None

    def spoiled(plan: Plan, program: Program) -> BuildRequest:
        return replace(request_of(plan, program), config={"most": 10})

    monkeypatch.setattr(execution, "request_of", spoiled)
    found = api.verify(plan, program, [trace], on="veth", seeds=1, packets=0).difference
    assert found is not None and found.what == "what leaves port 1"


def test_a_built_tree_tells_the_line_of_every_statement(plan: Path, tmp_path: Path) -> None:
    """Lines of the source with a statement that does something stand in the C of a place that can run it."""
    cora("build", str(plan), "-o", str(tmp_path / "out"))
    text = "".join(p.read_text() for p in (tmp_path / "out").glob("*/nat*.c"))
    does = re.compile(r"\s*((forward|drop|reject|count|touch|delete|insert|lookup) |[pe]\.[\w.]+ = )")
    wanted = {n for n, line in enumerate(Path(NAT).read_text().splitlines(), 1) if does.match(line)}
    assert len(wanted) > 60
    missing = {n for n in wanted if f"nat.nf:{n} */" not in text}
    assert not missing, sorted(missing)
