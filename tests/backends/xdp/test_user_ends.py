"""How the user half starts, is looked into, is killed, starts again, runs over, and ends."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kernel_kit import lending_all
from xdp_cases import all_in_user_space, example, user_half
from xdp_lab import CLIENT, SERVER, Half, Lab, run, start_half, wait_for

from cora.backends.xdp.kernel_build import compile_kernel
from cora.backends.xdp.trials import whole
from cora.emit.layout import map_row
from cora.errors import CoraError
from cora.ir.nodes import MapState, Program
from cora.ir.parts import Split
from cora.runtime.control import Control
from cora.testing.frames import internet_checksum

pytestmark = pytest.mark.needs("live-xdp")

PEER = str(Path(__file__).with_name("xdp_peer.py"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def started(lab: Lab, split: Split, *extra: str) -> Half:
    return start_half(lab, user_half(split), compile_kernel(split), *extra)


def ask(half: Half, do: str, **more: Any) -> dict[str, Any]:
    """One request on a connection of its own."""
    with Control(half.socket) as control:
        return control.ask(do, **more)


def ping(lab: Lab, *options: str) -> bool:
    done = lab.within(lab.client, "ping", "-n", "-c", "1", "-W", "1", *options, SERVER, check=False)
    return done.returncode == 0


def echo(lab: Lab, port: int, count: int, to: str = SERVER) -> list[str]:
    """Datagrams that came back; each call is a flow of its own."""
    done = lab.within(lab.client, sys.executable, PEER, "client", to, str(port), str(count), "64")
    seen: list[str] = json.loads(done.stdout)
    return seen


def serve_udp(lab: Lab, port: int) -> None:
    lab.start(lab.server, sys.executable, PEER, "server", SERVER, str(port))
    lab.listening(lab.server, port, "udp")


def entries(split: Split, name: str, answer: dict[str, Any]) -> list[dict[str, int]]:
    state = split.program.state(name)
    assert isinstance(state, MapState)
    row, data = map_row(state), base64.b64decode(answer["rows"])
    return [row.unpack(data, at) for at in range(0, len(data), row.size)]


def test_a_killed_user_half_is_noticed_and_the_next_one_says_what_is_lost(lab: Lab) -> None:
    split = all_in_user_space(example("nat"))
    first = started(lab, split)
    serve_udp(lab, 5353)
    assert len(echo(lab, 5353, 5)) == 5 and ping(lab)
    before = ask(first, "status")
    wait_for(lambda: ask(first, "status")["uptime_ns"] > before["uptime_ns"] + 10**8, "its ledger")
    first.kill()
    look = json.loads(run(*lab.inside(lab.function), *command(first, split), "--look").stdout)
    assert look["places"]["kernel"] == "" and "does not answer" in look["places"]["user"]
    # The kernel half is still there, and has nobody to hand packets on to.
    assert not ping(lab)
    second = started(lab, split)
    said = second.said()
    assert "goes on with the kernel half of a user half that was killed" in said
    assert "lost: 2 of 2 entries of conns" in said and "lost: 2 of 2 values in use of ext" in said
    assert "lost: what translated_out counted in user space" in said
    status = ask(second, "status")
    assert "2 of 2 entries of conns" in status["lost"]
    assert status["forwarded"] == before["forwarded"] and status["arrived"] > before["arrived"]
    assert ping(lab) and len(echo(lab, 5353, 5)) == 5
    totals = second.stop()
    assert totals["halves"]["kernel_faults"]["no user half"] == totals["arrived"] - sum(
        totals["forwarded"].values()) - sum(totals["dropped"].values()) > 0


def command(half: Half, split: Split) -> tuple[str, ...]:
    return (str(user_half(split)), "--port", "inside=inside", "--port", "outside=outside", "--pins", str(half.pins),
            "--socket", str(half.socket))


def test_entries_lent_to_the_kernel_outlive_the_user_half(lab: Lab) -> None:
    split = lending_all(example("nat.ref"))
    first = started(lab, split)
    serve_udp(lab, 5353)
    client = lab.start(lab.client, sys.executable, "-c", STEADY, SERVER, "5353")
    wait_for(lambda: client.out.read_text().count("\n") > 20, "a flow that lasts")
    assert ask(first, "status")["lending"]["fast"] > 10
    first.kill()
    # Without a user half the lent flow still passes.
    so_far = client.out.read_text().count("\n")
    wait_for(lambda: client.out.read_text().count("\n") > so_far + 20, "the flow without a user half")
    second = started(lab, split)
    assert "1 lent entries came back from the kernel half" in second.said()
    assert "lost" not in second.said()
    so_far = client.out.read_text().count("\n")
    wait_for(lambda: client.out.read_text().count("\n") > so_far + 20, "the flow after the restart")
    client.process.kill()
    ports = set(client.out.read_text().split())
    assert len(ports) == 1, "the flow kept its translation"
    assert second.stop()["lending"]["stray"] == 0


def test_no_packet_overtakes_another_one_of_its_flow(lab: Lab) -> None:
    """Entries are lent while packets of their flow wait for a user half that stands still again and again."""
    half = started(lab, lending_all(example("nat.ref")))
    server = lab.start(lab.server, sys.executable, PEER, "order", SERVER, "5353")
    lab.listening(lab.server, 5353, "udp")
    stream = lab.start(lab.client, sys.executable, PEER, "stream", SERVER, "5353", "80", "200")
    while stream.process.poll() is None:
        for number in (signal.SIGSTOP, signal.SIGCONT):
            half.started.process.send_signal(number)
            time.sleep(0.002)
    assert server.process.wait(30) == 0
    flows = json.loads(server.out.read_text())
    totals = half.stop()
    assert len(flows) == 80 and [late for _, late in flows] == [0] * 80
    # An interface may drop what it forwards when the machine is busy; that is its driver's count.
    assert 8000 < sum(came for came, _ in flows) <= 80 * 200 - lost_between(totals)
    assert totals["lending"]["fast"] > 1000 and totals["lending"]["waited"] > 50


def test_every_receive_queue_is_served() -> None:
    """Flows are spread over two queues of each interface, and packets of both halves keep their order."""
    with Lab(queues=2) as lab:
        half = started(lab, lending_all(example("nat.ref")))
        assert ask(half, "status")["ports"] == {"inside": "inside", "outside": "outside"}
        serve_udp(lab, 5353)
        assert [len(echo(lab, 5353, 5)) for _ in range(8)] == [5] * 8
        lab.start(lab.server, sys.executable, PEER, "sink", SERVER, "7000")
        lab.listening(lab.server, 7000)
        for size in (1, 1 << 20, 1 << 21):
            lab.within(lab.client, sys.executable, PEER, "pour", SERVER, "7000", str(size))
        totals = half.stop()
        halves = totals["halves"]["user_ports"].values()
        assert totals["halves"]["punted"] == sum(p["received"] + p["punt_queue_full"] for p in halves)
        assert totals["lending"]["fast"] > 1000 and totals["lending"]["stray"] == 0


def lost_between(totals: dict[str, Any]) -> int:
    """Packets that one half could not give to the other, or to an interface."""
    counts = ("punt_queue_full", "transmit_queue_full", "refused_by_driver")
    return sum(port[c] for port in totals["halves"]["user_ports"].values() for c in counts)


# One flow for as long as it runs; prints what the server saw of it each time.
STEADY = """
import socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(1)
for number in range(100000):
    end.sendto(b"steady", (sys.argv[1], int(sys.argv[2])))
    try:
        print(end.recvfrom(2000)[0].split()[0].decode(), flush=True)
    except TimeoutError:
        pass
    time.sleep(0.01)
"""


def test_whole_kernel_state_outlives_the_user_half(lab: Lab) -> None:
    split = whole(example("firewall.ref"))
    first = started(lab, split)
    serve_udp(lab, 5353)
    assert echo(lab, 5353, 3) == [CLIENT] * 3
    rows = entries(split, "conns", ask(first, "dump", state="conns"))
    assert len(rows) == 1
    first.kill()
    assert echo(lab, 5353, 3) == [CLIENT] * 3, "the kernel half needs no user half"
    second = started(lab, split)
    assert "lost" not in second.said()
    after = entries(split, "conns", ask(second, "dump", state="conns"))
    assert len(after) == 2 and all(any(r["flow.sp"] == a["flow.sp"] for a in after) for r in rows)
    totals = second.stop()
    assert totals["arrived"] == sum(totals["forwarded"].values()) + sum(totals["dropped"].values()) == 12


def test_pins_of_another_plan_are_refused_and_fresh_removes_them(lab: Lab) -> None:
    first = started(lab, all_in_user_space(example("nat")))
    first.kill()
    other = all_in_user_space(example("firewall"))
    done = lab.within(lab.function, *command(first, other), "--kernel", str(compile_kernel(other)), check=False)
    assert done.returncode == 2 and "--fresh removes" in done.stderr
    assert started(lab, other, "--fresh").stop()["arrived"] == 0


def test_a_detached_kernel_half_ends_the_user_half(lab: Lab) -> None:
    half = started(lab, all_in_user_space(example("nat")))
    assert ping(lab)
    lab.within(lab.function, "ip", "link", "del", "outside")
    assert half.started.process.wait(20) == 1
    assert "is gone from outside" in half.said() and half.totals()["arrived"] == 2
    assert not half.pins.exists()


def test_what_the_user_half_cannot_take_is_counted(lab: Lab) -> None:
    """It stands still while more packets come than the queue holds."""
    split = all_in_user_space(example("firewall.ref"))
    half = started(lab, split, "--ring", "64")
    half.started.process.send_signal(signal.SIGSTOP)
    lab.within(lab.client, "ping", "-q", "-f", "-c", "300", "-W", "1", "-s", "8", SERVER, check=False)
    half.started.process.send_signal(signal.SIGCONT)
    wait_for(lambda: ask(half, "status")["halves"]["user_ports"]["inside"]["received"] >= 64, "rounds")
    totals = half.stop()
    inside = totals["halves"]["user_ports"]["inside"]
    assert inside["punt_queue_full"] > 100
    assert inside["received"] + inside["punt_queue_full"] == totals["arrived"] >= 300
    assert sum(totals["dropped"].values()) + sum(totals["forwarded"].values()) == inside["received"]


def test_a_full_table_is_counted(lab: Lab) -> None:
    small = example("nat", (("capacity", "3"),))
    half = started(lab, all_in_user_space(small))
    serve_udp(lab, 5353)
    answered = [len(echo(lab, 5353, 1)) for _ in range(5)]
    table = ask(half, "status")["tables"]["conns"]
    assert sum(answered) == 3 and table["entries"] == table["capacity"] == 3
    assert table["refused"] == 2
    assert sum(half.stop()["dropped"].values()) == 2


@pytest.mark.parametrize("place", [all_in_user_space, lending_all])
def test_an_icmp_error_quotes_the_packet_as_it_arrived(lab: Lab, place: Callable[[Program], Split]) -> None:
    """The kernel half would have counted its TTL down by then."""
    half = started(lab, place(example("nat", (("capacity", "1"),))))
    serve_udp(lab, 5353)
    assert len(echo(lab, 5353, 1)) == 1
    done = lab.within(lab.client, sys.executable, PEER, "quote", SERVER, "5353")
    quoted = bytes.fromhex(done.stdout)
    assert quoted[8] == 64 and internet_checksum(quoted[:20]) == 0
    assert quoted[12:16] == bytes([10, 0, 0, 2]) and quoted.endswith(b"a datagram")
    assert half.stop()["errors_sent"] == 1


def test_the_control_socket(lab: Lab) -> None:
    split = all_in_user_space(example("nat"))
    half = started(lab, split)
    serve_udp(lab, 5353)
    assert len(echo(lab, 5353, 2)) == 2
    assert half.socket.stat().st_mode & 0o777 == 0o600
    with Control(half.socket) as control:
        status = control.ask("status")
        assert status["ports"] == {"inside": "inside", "outside": "outside"}
        assert status["pid"] == half.started.process.pid
        assert status["places"] == {"kernel": {"alive": True}, "user": {"alive": True}}
        rows = entries(split, "conns", control.ask("dump", state="conns"))
        assert [(r["flow.dst"], r["flow.dp"]) for r in rows] == [(0xC6336402, 5353)]
        pool, conns = (control.ask("dump", state=s)["rows"] for s in ("ext", "conns"))
    with Control(half.socket) as control, Control(half.socket) as other:
        control.ask("begin")
        assert refused(other, "begin") == "no transaction can begin"
        assert refused(other, "commit") == "nothing is changed"
        assert control.ask("load", state="conns", rows="")["rows"] == 0
        control.ask("commit")
        assert control.ask("status")["tables"]["conns"]["entries"] == 0
        assert control.ask("status")["tables"]["ext"]["entries"] == 0, "the pool follows its map"
        control.ask("begin")
        assert control.ask("load", state="conns", rows=conns)["rows"] == 1
        control.ask("load", state="ext", rows=pool)
        control.ask("commit")
        assert control.ask("dump", state="conns")["rows"] == conns and control.ask("dump", state="ext")["rows"] == pool
        # A row twice does not fit, and then nothing is changed.
        control.ask("begin")
        control.ask("load", state="ext", rows=base64.b64encode(bytes(len(base64.b64decode(pool)))).decode())
        twice = base64.b64encode(base64.b64decode(conns) * 2).decode()
        control.ask("load", state="conns", rows=twice)
        assert refused(control, "commit") == "nothing was loaded"
        assert control.ask("dump", state="conns")["rows"] == conns and control.ask("dump", state="ext")["rows"] == pool
        control.ask("begin")
        assert refused(control, "load", state="conns", rows="AAAA") == "the rows are not taken"
        assert refused(control, "load", state="conns", rows="?") == "the rows are not taken"
        assert refused(control, "load", state="nothing", rows="") == "there is no such state"
    with Control(half.socket) as control:
        control.ask("begin")  # the connection that had begun is closed
        control.ask("abort")
        assert refused(control, "nonsense") == "there is no such request"
        assert refused(control, "config", values={}) == "the configuration stays as it is"
        assert refused(control, "trace", packets=0) == "no packets are followed"
    with Control(half.socket) as control:
        control.ask("stop")
    assert half.started.process.wait(20) == 0


def refused(control: Control, do: str, **more: Any) -> str:
    """What a request is refused for."""
    with pytest.raises(CoraError) as caught:
        control.ask(do, **more)
    return caught.value.diagnostics[0].message.partition(":")[0]


def test_states_of_the_kernel_half_are_replaced(lab: Lab) -> None:
    """A translation is moved to a run that never saw its flow, and serves the flow's answers there."""
    split = whole(example("nat.ref"))
    first = started(lab, split)
    serve_udp(lab, 5353)
    client = lab.start(lab.client, sys.executable, "-c", STEADY, SERVER, "5353")
    wait_for(lambda: client.out.read_text().count("\n") > 5, "a flow")
    conns, pool = (ask(first, "dump", state=s)["rows"] for s in ("conns", "ports"))
    assert len(entries(split, "conns", {"rows": conns})) == 1
    first.stop()
    second = started(lab, split)
    with Control(second.socket) as control:
        control.ask("begin")
        control.ask("load", state="conns", rows=conns)
        assert refused(control, "commit") == "nothing was loaded"  # without its pool
        control.ask("begin")
        control.ask("load", state="conns", rows=base64.b64encode(base64.b64decode(conns) * 2).decode())
        control.ask("load", state="ports", rows=pool)
        assert refused(control, "commit") == "nothing was loaded"  # a key twice
        control.ask("begin")
        control.ask("load", state="conns", rows=conns)
        control.ask("load", state="ports", rows=pool)
        control.ask("commit")
        assert control.ask("dump", state="ports")["rows"] == pool
    found, = entries(split, "conns", ask(second, "dump", state="conns"))
    was, = entries(split, "conns", {"rows": conns})
    assert {n: v for n, v in found.items() if n != "#last"} == {n: v for n, v in was.items() if n != "#last"}
    so_far = client.out.read_text().count("\n")
    wait_for(lambda: client.out.read_text().count("\n") > so_far + 5, "the flow in the second run")
    client.process.kill()
    totals = second.stop()
    assert totals["arrived"] == sum(totals["forwarded"].values()) + sum(totals["dropped"].values())
    assert totals["tables"]["conns"]["entries"] == 1


def test_broken_requests_are_answered(lab: Lab) -> None:
    half = started(lab, all_in_user_space(example("nat")))
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(half.socket))
        end.sendall(b'nonsense\n[]\n{"do": 5}\n{"a": 1, "a": 2}\n\n' + b'{"do": "status"}\n')
        lines = end.makefile("rb")
        answers = [json.loads(lines.readline()) for _ in range(6)]
    assert [a.get("error", {}).get("what", "") for a in answers[:5]] == [
        "the request is no JSON", "the request does not say what to do", "the request does not say what to do",
        "the request is no JSON", "the request is no JSON"]
    assert answers[5]["program"] == "nat"
    # Clients that hang up in the middle, and too many of them, disturb nobody.
    ends = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for end in ends:
        end.connect(str(half.socket))
        with contextlib.suppress(OSError):  # there is no room for so many
            end.send(b'{"do": "sta')
    for end in ends:
        end.close()
    wait_for(lambda: ask(half, "status")["arrived"] == 0, "an answer after that")
    half.stop()


@pytest.mark.parametrize(("options", "message"), [
    (("--port", "inside=inside"), "the port 'outside' has no interface: --port outside=INTERFACE"),
    (("--port", "inside=nothing", "--port", "outside=outside"), "there is no interface 'nothing'"),
    (("--port", "inside=lo", "--port", "outside=outside"), "the interface lo is down: ip link set dev lo up"),
    (("--port", "inside=inside", "--port", "outside=inside"), "the interface is already that of port 'inside'"),
    (("--port", "middle=inside",), "the program has no port 'middle'"),
    (("--port", "inside",), "write NAME=INTERFACE"),
    (("--port", "inside=inside", "--port", "outside=outside", "--ring", "100"), "--ring 100: give a power of two"),
    (("--port", "inside=inside", "--port", "outside=outside", "--pins", "/proc/nf"), "mount -t bpf bpf"),
    (("--port", "inside=inside", "--port", "outside=outside", "--pins", "/dev/shm"), "mount -t bpf bpf"),
    (("--port", "inside=inside", "--port", "outside=outside", "more"), "'more' is no option"),
    (("--port", "inside=inside", "--port", "outside=outside", "--kernel", "/nowhere.o"), "cannot be read"),
])
def test_a_start_that_cannot_be_is_refused_with_what_to_do(lab: Lab, options: tuple[str, ...], message: str) -> None:
    split = all_in_user_space(example("nat"))
    given = [*options]
    if "--pins" not in given:
        given += ["--pins", str(lab.folder / "bpf" / "x")]
    if "--kernel" not in given:
        given += ["--kernel", str(compile_kernel(split))]
    done = lab.within(lab.function, str(user_half(split)), *given, "--socket", str(lab.folder / "s"), check=False)
    assert done.returncode == 2 and message in done.stderr and done.stderr.startswith("cora: "), done.stderr
    assert not (lab.folder / "s").exists() and not (lab.folder / "bpf" / "x").exists()


def test_another_xdp_program_on_the_interface_is_told(lab: Lab) -> None:
    split = all_in_user_space(example("nat"))
    first = started(lab, split)
    done = lab.within(lab.function, str(user_half(split)), "--port", "inside=inside", "--port", "outside=outside",
                      "--pins", str(lab.folder / "bpf" / "other"), "--socket", str(lab.folder / "other.sock"),
                      "--kernel", str(compile_kernel(split)), check=False)
    assert (done.returncode == 2 and "another XDP program may be there" in done.stderr) or "cannot bind" in done.stderr
    assert not (lab.folder / "bpf" / "other").exists()
    assert ping(lab)
    first.stop()
