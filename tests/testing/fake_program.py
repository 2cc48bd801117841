"""A program that serves a control socket and no packets: ``fake_program.py SOCKET IR-FILE [PORT=INTERFACE]...``.

A file ``MODE`` beside the socket chooses what it does: ``refuse`` to start, ``linger`` when it is asked to end.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from cora.engine.rows import rows_of_dump
from cora.ir.text import parse_program

NOW = 5_000_000_000


class Program:
    def __init__(self, ir: str, ports: list[str]) -> None:
        program = parse_program(Path(ir).read_text(), ir)
        self.rows = dict(zip([s.name for s in program.states], rows_of_dump(program, {}), strict=True))
        self.ports = dict(p.split("=") for p in ports)
        self.pending: dict[str, bytes] | None = None
        self.traced = 0

    def status(self) -> dict[str, Any]:
        return {"program": "fake", "plan": "0" * 64, "uptime_ns": 1_500_000_000, "now_ns": NOW, "pid": os.getpid(),
                "counters": {"arrived": 12345, "dropped": {"full": 7}},
                "tables": {n: {"kind": "map", "entries": len(r)} for n, r in self.rows.items()}}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what, state = request["do"], request.get("state", "")
        if what in ("dump", "load") and state not in self.rows:
            return {"error": {"what": f"no state {state}", "why": "the program has none", "change": "name another"}}
        if what == "dump":
            return {"rows": base64.b64encode(self.rows[state]).decode(), "time_ns": NOW}
        if what == "load":
            assert self.pending is not None
            data = base64.b64decode(request["rows"])
            if b"\xde\xad\xbe\xef" in data:
                return {"error": {"what": f"row 0 of {state} does not fit", "why": "it is dead beef", "change": ""}}
            self.pending[state] = data
        if what == "begin":
            self.pending = {}
        if what == "commit":
            self.rows.update(self.pending or {})
        if what == "trace":
            first, self.traced = self.traced, self.traced + min(2, request["packets"])
            return {"events": [e for n in range(first, self.traced) for e in self.events(n)]}
        if what == "stop":
            os.kill(os.getpid(), signal.SIGTERM)
        return self.status() if what == "status" else {}

    def events(self, number: int) -> list[dict[str, Any]]:
        head = {"packet": number, "place": "host", "time_ns": NOW + number}
        return [{**head, "what": "arrived", "port": "a", "length": 60, "bytes": "00" * 20},
                {**head, "what": "left", "port": "b", "length": 60, "bytes": "00" * 12 + "11" * 8}]


def serve(program: Program, connection: socket.socket) -> None:
    with connection, connection.makefile("rwb") as stream:
        for line in stream:
            stream.write(json.dumps(program.answer(json.loads(line))).encode() + b"\n")
            stream.flush()


def main() -> None:
    path, ir, *ports = sys.argv[1:]
    mode = Path(path).with_name("MODE")
    mode_text = mode.read_text() if mode.exists() else ""
    if mode_text == "refuse":
        print("cora: the card is on fire", file=sys.stderr)
        sys.exit(2)
    program = Program(ir, ports)
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        print("cora: fake runs", file=sys.stderr, flush=True)
        threading.Thread(target=lambda: accept(program, listener), daemon=True).start()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        if mode_text == "linger":
            signal.sigwait({signal.SIGUSR1})
        print(json.dumps(program.status()))


def accept(program: Program, listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(program, connection), daemon=True).start()


if __name__ == "__main__":
    main()
