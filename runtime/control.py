"""The control socket of running programs: requests and answers are JSON objects, one a line.

``{"do": "status"}`` and the like; an answer with ``error`` says what, why and what to change. docs/build.md lists them.
"""

from __future__ import annotations

import base64
import binascii
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cora.errors import CoraError, Kind, fail

# Seconds without an answer after which a program counts as stuck.
PATIENCE = 10.0
# Bytes of an answer; a table of a million entries is about a hundred megabytes.
_LONGEST = 1 << 30


class Control:
    """A connection to a running program. Used as a context manager; any number may be open."""

    def __init__(self, path: Path, patience: float = PATIENCE) -> None:
        """Connect.

        Raises:
            CoraError: `Kind.NO_SUCH_RUN` where nothing listens there.
        """
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(patience)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise fail(Kind.NO_SUCH_RUN, f"no program answers on this control socket: {error.strerror or error}",
                       where=str(path), hint="`cora status` lists what runs; `cora run PLAN --ports ...` starts it"
                       ) from error
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; what was begun and not committed is undone by the program."""
        self._lines.close()
        self._socket.close()

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            CoraError: `Kind.RUN_REFUSED` with the program's own words; `Kind.NO_SUCH_RUN` where it does not answer.
        """
        try:
            self._socket.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            line = self._lines.readline(_LONGEST)
        except OSError as error:
            raise self._silent(f"does not answer: {error}") from error
        if not line.endswith(b"\n"):
            raise self._silent("ended the connection")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise self._silent(f"answers no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise self._silent("answers no JSON object")
        if "error" in answer:
            raise self._refusal(answer["error"])
        return answer

    def _silent(self, what: str) -> CoraError:
        return fail(Kind.NO_SUCH_RUN, f"the program {what}", where=str(self.path),
                    hint="is it still running? `cora status` tells")

    def _refusal(self, said: Any) -> CoraError:
        words = said if isinstance(said, Mapping) else {"what": str(said)}
        what, why, change = (str(words.get(k, "")) for k in ("what", "why", "change"))
        return fail(Kind.RUN_REFUSED, ": ".join(w for w in (what, why) if w) or "the program refuses",
                    where=str(self.path), hint=change or None)

    def status(self) -> dict[str, Any]:
        """Counters, tables, pools, queues, places."""
        return self.ask("status")

    def dump(self, state: str) -> tuple[bytes, int]:
        """The packed rows of a state (cora/emit/layout.py), of all places together, and the time of the dump in ns."""
        answer = self.ask("dump", state=state)
        try:
            return base64.b64decode(str(answer["rows"]), validate=True), int(answer.get("time_ns", 0))
        except (KeyError, binascii.Error, ValueError) as error:
            raise self._silent(f"dumps no rows: {error}") from error

    def load(self, state: str, rows: bytes) -> None:
        """Replace a state by packed rows, when the transaction is committed."""
        self.ask("load", state=state, rows=base64.b64encode(rows).decode("ascii"))

    @contextmanager
    def transaction(self) -> Iterator[Control]:
        """All loads inside take effect at once, between two packets, or none does."""
        self.ask("begin")
        try:
            yield self
        except BaseException:
            with suppress(CoraError):
                self.ask("abort")
            raise
        self.ask("commit")

    def trace(self, packets: int, wait_ms: int = 500) -> list[dict[str, Any]]:
        """What became of at most so many packets that came within a time."""
        events = self.ask("trace", packets=packets, wait_ms=wait_ms).get("events", [])
        return [e for e in events if isinstance(e, dict)]

    def stop(self) -> None:
        """Let the program end as a signal would."""
        self.ask("stop")
