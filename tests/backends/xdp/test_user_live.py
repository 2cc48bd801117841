"""Real programs talk through the function between interfaces: TCP, UDP, ICMP, both ways, fragments, path-MTU discovery.

Everything in user space, everything in the kernel, and split with entries lent to the kernel. Totals have to add up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from kernel_kit import lending_all
from xdp_cases import all_in_user_space, example, user_half
from xdp_lab import CLIENT, EXTERNAL, FAR, FAR_MTU, INNER_ROUTER, SERVER, Half, Lab, start_half

from cora.backends.xdp.kernel_build import compile_kernel
from cora.backends.xdp.trials import whole
from cora.ir.parts import Split

pytestmark = pytest.mark.needs("live-xdp")

PEER = str(Path(__file__).with_name("xdp_peer.py"))
PAYLOAD = Path(__file__).resolve().parents[3] / "docs"
# How the parts lie, and the program: all features only where user space has the fragments.
CASES = ("user nat", "user firewall", "lent nat", "lent firewall", "kernel nat.ref", "kernel firewall.ref",
         "lent nat.ref")


@lru_cache(maxsize=1)
def split_named(case: str) -> Split:
    place, _, name = case.partition(" ")
    program = example(name)
    if place == "user":
        return all_in_user_space(program)
    return lending_all(program) if place == "lent" else whole(program)


class Session:
    """A running function between client and server."""

    def __init__(self, case: str, lab: Lab) -> None:
        self.case, self.lab = case, lab
        self.nat = "nat" in case
        split = split_named(case)
        self.half: Half = start_half(lab, user_half(split), compile_kernel(split))
        self.totals: dict[str, Any] = {}

    @property
    def seen(self) -> str:
        """The client's address as the server sees it."""
        return EXTERNAL if self.nat else CLIENT

    def from_client(self, *command: str, check: bool = True) -> str:
        done = self.lab.within(self.lab.client, *command, check=check)
        return done.stdout + done.stderr

    def ping(self, *options: str, to: str = SERVER, check: bool = True) -> str:
        return self.from_client("ping", "-n", "-i", "0.05", "-W", "2", *options, to, check=check)


every = pytest.mark.parametrize("session", CASES, indirect=True, scope="module")
# The programs that take ICMP and fragments.
full = pytest.mark.parametrize("session", [c for c in CASES if "ref" not in c], indirect=True, scope="module")
nat = pytest.mark.parametrize("session", [c for c in CASES if c.endswith(" nat")], indirect=True, scope="module")


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Lab() as lab:
        made = Session(request.param, lab)
        yield made
        if not made.totals:
            made.totals = made.half.stop()
        balanced(made.totals)


def balanced(totals: dict[str, Any]) -> None:
    """Every packet that arrived is accounted for, and between the halves nothing got lost or was wrong."""
    halves = totals["halves"]
    lost = sum(halves["kernel_faults"].values()) + sum(p["stray"] + p["punt_queue_full"] for p in
                                                      halves["user_ports"].values())
    ends = sum(totals["forwarded"].values()) + sum(totals["dropped"].values()) + totals["held"] + lost
    assert totals["arrived"] == ends
    assert halves["punted"] == sum(p["received"] + p["punt_queue_full"] for p in halves["user_ports"].values())
    assert sum(p["stray"] for p in halves["user_ports"].values()) == 0
    lending_ = totals.get("lending", {})
    assert [lending_.get(fault, 0) for fault in ("stray", "overtaken", "left")] == [0, 0, 0]


@every
def test_tcp_fetches_a_file(session: Session, tmp_path: Path) -> None:
    lab = session.lab
    server = lab.start(lab.server, sys.executable, "-m", "http.server", "8000", "--directory", str(PAYLOAD))
    lab.listening(lab.server, 8000)
    for name in ("semantics.md", "language.md"):
        session.from_client("curl", "-sS", "-m", "20", "-o", str(tmp_path / name), f"http://{SERVER}:8000/{name}")
        assert (tmp_path / name).read_bytes() == (PAYLOAD / name).read_bytes()
    assert server.errors.read_text().count(f"{session.seen} - - [") == 2


@every
def test_tcp_carries_megabytes_both_ways(session: Session) -> None:
    lab = session.lab
    lab.start(lab.server, sys.executable, PEER, "sink", SERVER, "7000")
    lab.listening(lab.server, 7000)
    for _ in range(2):
        session.from_client(sys.executable, PEER, "pour", SERVER, "7000", str(8 << 20))


@every
def test_iperf_runs_both_ways(session: Session) -> None:
    lab = session.lab
    lab.start(lab.server, "iperf3", "-s", "-4")
    lab.listening(lab.server, 5201)
    for way in ((), ("-R",)):
        report = json.loads(session.from_client("iperf3", "-c", SERVER, "-n", "10M", "-J", *way))
        assert "error" not in report and report["end"]["sum_sent"]["bytes"] >= 10 << 20, report


@every
def test_udp_questions_get_their_answers(session: Session) -> None:
    lab = session.lab
    lab.start(lab.server, sys.executable, PEER, "server", SERVER, "5353")
    lab.listening(lab.server, 5353, "udp")
    for size in (8, 64, 1400):
        seen = json.loads(session.from_client(sys.executable, PEER, "client", SERVER, "5353", "30", str(size)))
        assert seen == [session.seen] * 30


@every
def test_nobody_outside_opens_a_session(session: Session) -> None:
    lab = session.lab
    lab.start(lab.client, sys.executable, "-m", "http.server", "8080", "--directory", str(PAYLOAD))
    lab.listening(lab.client, 8080)
    done = lab.within(lab.server, "curl", "-sS", "-m", "1", f"http://{session.seen}:8080/", check=False)
    assert done.returncode in (7, 28), done.stdout


@full
def test_icmp_echo_and_its_fragments(session: Session) -> None:
    assert " 0% packet loss" in session.ping("-c", "5")
    # Three fragments each way.
    assert " 0% packet loss" in session.ping("-c", "5", "-s", "3000")


@full
def test_udp_datagrams_of_several_fragments(session: Session) -> None:
    lab = session.lab
    lab.start(lab.server, sys.executable, PEER, "server", SERVER, "5454")
    lab.listening(lab.server, 5454, "udp")
    seen = json.loads(session.from_client(sys.executable, PEER, "client", SERVER, "5454", "10", "6000"))
    assert seen == [session.seen] * 10


@full
def test_a_path_with_a_smaller_mtu_is_discovered(session: Session) -> None:
    """The router behind the server says so by ICMP about the packet it saw, which the client has to understand."""
    lab = session.lab
    said = session.ping("-c", "3", "-M", "do", "-s", "1400", to=FAR, check=False)
    assert f"mtu = {FAR_MTU}" in said or f"mtu={FAR_MTU}" in said, said
    assert f"mtu {FAR_MTU}" in session.from_client("ip", "route", "get", FAR)
    session.from_client("ip", "route", "flush", "cache")
    lab.start(lab.far, sys.executable, PEER, "sink", FAR, "7000")
    lab.listening(lab.far, 7000)
    session.from_client(sys.executable, PEER, "pour", FAR, "7000", str(1 << 20))


@nat
def test_a_packet_that_expires_at_the_function_is_answered(session: Session) -> None:
    said = session.ping("-c", "1", "-t", "1", check=False)
    assert f"From {INNER_ROUTER} icmp_seq=1 Time to live exceeded" in said


@every
def test_totals_at_the_end(session: Session) -> None:
    session.totals = totals = session.half.stop()
    balanced(totals)
    assert min(totals["forwarded"].values()) > 1000
    assert sum(totals["dropped"].values()) > 0
    if "kernel" in session.case:
        assert totals["halves"]["punted"] == 0
    if "user" in session.case:
        assert totals["halves"]["punted"] == totals["arrived"]
    if "lent" in session.case:
        assert totals["lending"]["fast"] > 0 and totals["lending"]["lent"] > 0
    # Nothing stays: no program on the interfaces, nothing pinned, no socket.
    shown = session.lab.within(session.lab.function, "ip", "-d", "link", "show").stdout
    assert "xdp" not in shown
    assert not session.half.pins.exists() and not session.half.socket.exists()
