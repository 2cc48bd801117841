"""Runs: started, looked into, ended, killed; with a program that serves the control socket and no packets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from build_kit import install, launch_fake
from command_kit import Run

import cora as api
from cora.build.request import BuildRequest, request_of
from cora.errors import CoraError, Kind
from cora.plan.document import load_plan
from cora.runtime import running
from cora.runtime.control import Control
from cora.runtime.interfaces import parse_ports, require_interfaces
from cora.runtime.runs import job_of, runs

pytestmark = pytest.mark.needs("gcc")
PORTS = {"a": "eth8", "b": "eth9"}


@pytest.fixture
def request_(little: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildRequest:
    """A request to build `LITTLE` for a host whose programs are fakes."""
    install(monkeypatch, "host", launch=launch_fake)
    monkeypatch.setenv("CORA_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(running, "require_interfaces", lambda _ports: None)
    nf, plan = little
    return request_of(load_plan(plan), api.load(nf))


@contextmanager
def started(request: BuildRequest, name: str = "one") -> Iterator[running.Running]:
    """A run that is ended at the end, whatever happens."""
    found = running.start(request, PORTS, name=name)
    try:
        yield found
    finally:
        found.stop()
        found.finish()


def test_a_run_starts_answers_and_ends(request_: BuildRequest) -> None:
    with started(request_) as run:
        (recorded,) = runs()
        assert (recorded.name, recorded.ports, recorded.target) == ("one", PORTS, "host")
        assert job_of(recorded).request.split == request_.split
        with Control(run.job.control) as control:
            assert control.status()["counters"]["arrived"] == 12345
        run.stop()
        ended = run.finish()
        assert list(run.said) == ["cora: fake runs"]
        assert ended.killed == "" and ended.totals is not None and ended.totals["program"] == "fake"
    assert runs() == ()
    assert not run.claim.folder.exists(), "a run that ends cleanly leaves nothing behind"


def test_a_second_run_of_a_name_is_refused(request_: BuildRequest) -> None:
    with started(request_), pytest.raises(CoraError) as refused:
        running.start(request_, PORTS, name="one")
    (found,) = refused.value.diagnostics
    assert found.kind is Kind.RUN_FAILED and "--name" in str(found.hint)


def test_runs_of_other_names_are_side_by_side(request_: BuildRequest) -> None:
    with started(request_, "one"), started(request_, "two"):
        assert [r.name for r in runs()] == ["one", "two"]


def test_a_program_that_refuses_to_start_says_why(request_: BuildRequest, tmp_path: Path) -> None:
    (tmp_path / "run" / "one").mkdir(parents=True)
    (tmp_path / "run" / "one" / "MODE").write_text("refuse")
    with pytest.raises(CoraError) as refused:
        running.start(request_, PORTS, name="one")
    (found,) = refused.value.diagnostics
    assert found.kind is Kind.RUN_FAILED and found.message == "the card is on fire"


def test_a_killed_program_is_noticed_and_its_record_stays(request_: BuildRequest, cora: Run) -> None:
    with started(request_) as run:
        run.process.send_signal(signal.SIGKILL)
        assert run.wait(10)
        ended = run.finish()
        assert ended.killed == "the program at host was killed by SIGKILL" and ended.totals is None
        done = cora("status", "one")
        assert done.code == 1 and f"process {run.process.pid} is gone" in done.err
    with started(request_) as again:  # the name is free again
        assert again.process.pid != run.process.pid


def test_what_became_of_the_other_half_is_told_with_it(request_: BuildRequest,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "halves", lambda _job: {"kernel": "is not loaded", "card": "", "host": "is gone"})
    with started(request_) as run:
        run.process.send_signal(signal.SIGKILL)
        assert run.wait(10)
        assert run.finish().killed == "the program at host was killed by SIGKILL; kernel is not loaded; card is alive"


def test_a_program_that_does_not_end_is_killed(request_: BuildRequest, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run" / "one").mkdir(parents=True)
    (tmp_path / "run" / "one" / "MODE").write_text("linger")
    monkeypatch.setattr(running, "END", 0.3)
    with started(request_) as run:
        run.stop()
        assert "did not end within" in run.finish().killed


def test_the_program_ends_with_the_one_that_started_it(request_: BuildRequest, little: tuple[Path, Path],
                                                       tmp_path: Path) -> None:
    script = ("import os, signal, sys, time\nfrom cora.runtime.running import _started\n"
              "p = _started([sys.executable, '-c', 'import time; time.sleep(60)'], {})\n"
              "print(p.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    process = int(done.stdout)
    until = time.monotonic() + 10
    while Path(f"/proc/{process}/cmdline").exists() and Path(f"/proc/{process}/cmdline").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_command_runs_until_a_signal(request_: BuildRequest, little: tuple[Path, Path], cora: Run) -> None:
    def interrupt() -> None:
        while not runs():
            time.sleep(0.05)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = cora("run", str(little[1]), "--ports", "a=eth8,b=eth9", "--json")
    thread.join()
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["killed"] is None and told["totals"]["counters"]["arrived"] == 12345


def test_the_command_tells_of_a_program_that_was_killed(request_: BuildRequest, little: tuple[Path, Path],
                                                        cora: Run) -> None:
    def kill() -> None:
        while not runs():
            time.sleep(0.05)
        os.kill(runs()[0].process, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    done = cora("run", str(little[1]), "--ports", "a=eth8", "--ports", "b=eth9", "--name", "mine")
    thread.join()
    assert done.code == 1 and "was killed by SIGKILL" in done.err
    assert "little runs as mine on a=eth8, b=eth9" in done.err


def test_status_is_told_as_text_and_as_data(request_: BuildRequest, cora: Run) -> None:
    assert cora("status").out == "nothing runs here\n"
    with started(request_, "one"):
        text = cora("status").out
        assert "12,345  arrived" in text and "up" not in text.split() and "little" not in text
        rows = [line.split() for line in text.splitlines() if line.strip().startswith("host")]
        assert rows == [["host", "yes"], ["hosts", "map", "0"]]
        told = json.loads(cora("status", "one", "--json").out)
        assert told["places"] == {"host": {"alive": True}} and told["ports"] == PORTS
        socket_path = str(runs()[0].control)
        assert json.loads(cora("status", socket_path, "--json").out)["counters"]["dropped"] == {"full": 7}
        with started(request_, "two"):
            listed = json.loads(cora("status", "--json").out)["runs"]
            assert [(r["name"], r["alive"]) for r in listed] == [("one", True), ("two", True)]
            assert "two" in cora("status").out


def test_state_goes_out_and_comes_back(request_: BuildRequest, cora: Run, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    entry = {"fields": {"src": 0x0A000001, "packets": 3}, "timeout": "idle", "last": 7_000_000_000}
    with started(request_):
        document = json.loads(cora("state", "dump", "one").out)
        assert document["states"]["hosts"]["entries"] == [] and document["time_ns"] == 5_000_000_000
        document["states"]["hosts"]["entries"] = [entry]
        document["time_ns"] = 8_000_000_000
        file.write_text(json.dumps(document))
        assert cora("state", "load", "one", str(file)).out == "loaded: hosts, seen\n"
        back = json.loads(cora("state", "dump", "one", "hosts").out)
        assert list(back["states"]) == ["hosts"]
        # The program's clock stands at 5 s: used 1 s before the dump is used at 4 s.
        assert back["states"]["hosts"]["entries"] == [{**entry, "last": 4_000_000_000}]
        # A dump of `cora replay --state`, which tells no time: its last packet is now.
        file.write_text(json.dumps({"hosts": {"kind": "map", "entries": [entry]}}))
        assert json.loads(cora("state", "load", "one", str(file), "hosts", "--json").out) == {"loaded": ["hosts"]}
        back = json.loads(cora("state", "dump", "one", "hosts").out)
        assert back["states"]["hosts"]["entries"] == [{**entry, "last": 5_000_000_000}]
        written = cora("state", "dump", "one", "-o", str(tmp_path / "out.json"))
        assert written.out == f"written: {tmp_path / 'out.json'} (2 states)\n"


@pytest.mark.parametrize(("spoil", "says"), [
    ("json", "no JSON"), ("list", "no dump of states"), ("program", "another program"), ("time", "time_ns"),
    ("field", "does not fit"), ("refused", "dead beef"), ("unknown", "E701"), ("absent", "the file has no seen"),
])
def test_a_load_that_does_not_fit_changes_nothing(request_: BuildRequest, cora: Run, tmp_path: Path, spoil: str,
                                                  says: str) -> None:
    file, entry = tmp_path / "state.json", {"fields": {"src": 1, "packets": 3}, "timeout": "idle", "last": 1}
    with started(request_):
        document = json.loads(cora("state", "dump", "one").out)
        document["states"]["hosts"]["entries"] = [entry]
        file.write_text(json.dumps(document))
        assert cora("state", "load", "one", str(file)).code == 0
        names: list[str] = []
        if spoil == "program":
            document["program"] = "0" * 64
        if spoil == "time":
            del document["time_ns"]
        if spoil == "field":
            entry["fields"] = {"src": 1, "packets": 1 << 16}
        if spoil == "refused":
            entry["fields"] = {"src": int.from_bytes(b"\xde\xad\xbe\xef", sys.byteorder), "packets": 3}
        if spoil == "unknown":
            names = ["nobody"]
        if spoil == "absent":
            del document["states"]["seen"]
            names = ["hosts", "seen"]
        before = cora("state", "dump", "one").out
        file.write_text({"json": "{", "list": "[]"}.get(spoil, json.dumps(document)))
        done = cora("state", "load", "one", str(file), *names)
        assert done.code == 2 and says in done.err, done.err
        assert cora("state", "dump", "one").out == before


def test_nothing_of_that_name_is_told_with_what_there_is(request_: BuildRequest, cora: Run, tmp_path: Path) -> None:
    assert "E611" in cora("status", "one").err and "nothing runs here" in cora("state", "dump", "one").err
    with started(request_, "two"):
        assert "these run here: two" in cora("state", "dump", "one").err
    assert "E611" in cora("status", str(tmp_path / "no.sock")).err
    assert "E701" in cora("status", "--", "-x").err


@pytest.mark.parametrize(("answer", "says"), [
    (b"", "ended the connection"), (b"{", "ended the connection"), (b"what?\n", "no JSON"), (b"[]\n", "no JSON object"),
    (b'{"error": "no"}\n', "no"), (None, "does not answer"),
])
def test_a_program_that_talks_nonsense_is_told(tmp_path: Path, answer: bytes | None, says: str) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                if answer is None:
                    connection.recv(1000)  # until the other side gives up
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with Control(path, patience=0.3) as control, pytest.raises(CoraError) as refused:
            control.status()
        thread.join()
    (found,) = refused.value.diagnostics
    assert found.kind in (Kind.NO_SUCH_RUN, Kind.RUN_REFUSED) and says in found.message


@pytest.mark.parametrize(("texts", "says"), [
    (["a=eth0"], "port b has no interface"), (["a=eth0,b=eth0"], "given to two ports"), (["c=eth0"], "no port c"),
    (["a=eth0,a=eth1"], "port a is given twice"), (["a"], "gives no port"), (["=eth0"], "no port "),
    ([], "port a has no"),
])
def test_ports_need_an_interface_each(texts: list[str], says: str) -> None:
    with pytest.raises(CoraError) as refused:
        parse_ports(texts, ["a", "b"])
    assert refused.value.diagnostics[0].kind is Kind.BAD_FLAG and says in refused.value.diagnostics[0].message


def test_ports_are_read_in_the_programs_order() -> None:
    assert list(parse_ports(["b=x , a=y"], ["a", "b"]).items()) == [("a", "y"), ("b", "x")]


def test_an_interface_that_is_not_there_is_told() -> None:
    with pytest.raises(CoraError) as refused:
        require_interfaces({"a": "no such one"})
    assert refused.value.diagnostics[0].kind is Kind.BAD_INTERFACE


@pytest.mark.needs("netns")
def test_interfaces_that_are_not_there_or_down_are_told() -> None:
    script = ("from cora.runtime.interfaces import *\nfrom cora.errors import CoraError\n"
              "print(interfaces(), is_up('corat0'), is_up('corat1'), is_up('nope'))\n"
              "for name in ('nope', 'corat1', 'corat0'):\n"
              "    try:\n        require_interfaces({'a': name})\n        print('fine')\n"
              "    except CoraError as e:\n        print(e.diagnostics[0].kind.number, e.diagnostics[0].message, '|', "
              "e.diagnostics[0].hint)\n")
    shell = f"ip link add corat0 type veth peer name corat1 && ip link set corat0 up && exec {sys.executable} -"
    done = subprocess.run(["unshare", "-n", "sh", "-c", shell], input=script, capture_output=True, text=True,
                          check=True)
    assert done.stdout.splitlines() == [
        "('corat0', 'corat1') True False False",
        "609 there is no interface nope for port a | these are here: corat0, corat1",
        "609 the interface corat1 of port a is down | ip link set dev corat1 up",
        "fine",
    ]


def test_the_doctor_tells_what_is_missing_and_how_to_get_it(cora: Run, monkeypatch: pytest.MonkeyPatch,
                                                            tmp_path: Path) -> None:
    install(monkeypatch, "host", TOOLS={"build": ("make", "cc")})
    done = cora("doctor", "--nic", "host")
    assert done.code == 0 and "make" in done.out and "MISSING" not in done.out
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cora("doctor", "--nic", "host")
    assert done.code == 1 and "apt-get install make" in done.out and "apt-get install gcc libc6-dev" in done.out
    told = {t["name"]: t for t in json.loads(cora("doctor", "--nic", "host", "--json").out)["tools"]}
    assert told["cc"]["missing"] and told["cc"]["needed_to"] == ["build host"]
    assert "E505" in cora("doctor", "--nic", "bluefield2").err and "E402" in cora("doctor", "--nic", "toaster").err
