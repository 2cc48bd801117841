"""A plan for the host runs between interfaces: packets, status, state out and in, a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cora as api
from cora.build.request import request_of
from cora.runtime.running import compiled

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "backends" / "xdp"))

from xdp_lab import EXTERNAL, SERVER, Lab, wait_for  # noqa: E402

pytestmark = [pytest.mark.needs("live-xdp"), pytest.mark.needs("dpdk")]
NAT, OFFICE = ROOT / "examples" / "nat.nf", ROOT / "examples" / "captures" / "office.pcap"
PEER = str(ROOT / "tests" / "backends" / "xdp" / "xdp_peer.py")


def test_a_host_plan_runs_is_looked_into_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = api.load(NAT)
    plan = api.plan(program, api.profile(program, OFFICE, captured_at="inside"), "host", cores=1)
    file, state = tmp_path / "plan.json", tmp_path / "state.json"
    file.write_text(plan.to_json())
    compiled(request_of(plan, program))
    with Lab() as lab:
        monkeypatch.setenv("CORA_RUN_DIR", str(lab.folder / "run"))

        def cora(*arguments: str) -> str:
            done = lab.within(lab.function, sys.executable, "-m", "cora", *arguments, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def asks(count: int) -> None:
            seen = lab.within(lab.client, sys.executable, PEER, "client", SERVER, "5353", str(count), "64").stdout
            assert json.loads(seen) == [EXTERNAL] * count

        started = lab.start(lab.function, sys.executable, "-m", "cora", "run", str(file), "--ports",
                            "inside=inside,outside=outside", "--json")
        record = Path(os.environ["CORA_RUN_DIR"], "nat", "run.json")
        wait_for(lambda: record.exists() or started.process.poll() is not None, "the run")
        assert started.process.poll() is None, started.errors.read_text()
        lab.start(lab.server, sys.executable, PEER, "server", SERVER, "5353")
        lab.listening(lab.server, 5353, "udp")
        asks(20)
        told = json.loads(cora("status", "--json"))
        assert told["counters"]["forwarded"] == {"inside": 20, "outside": 20}
        assert told["places"] == {"host": {"alive": True}} and told["tables"]["conns"]["entries"] == 1

        cora("state", "dump", "nat", "-o", str(state))
        (entry,) = json.loads(state.read_text())["states"]["conns"]["entries"]
        assert cora("state", "load", "nat", str(state), "conns", "ext") == "loaded: ext, conns\n"
        (again,) = json.loads(cora("state", "dump", "nat", "conns"))["states"]["conns"]["entries"]
        assert again["fields"] == entry["fields"] and again["last"] >= entry["last"]
        asks(20)

        assert started.end(signal.SIGTERM) == 0, started.errors.read_text()
        ended = json.loads(started.out.read_text())
        assert ended["killed"] is None and ended["totals"]["counters"]["forwarded"] == {"inside": 40, "outside": 40}
        assert not record.exists()
        assert subprocess.run(["pgrep", "-f", str(lab.folder)], capture_output=True, check=False).stdout == b""
