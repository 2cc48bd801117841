"""Running the programs of a plan on interfaces: building, starting, watching, ending."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cora.build.backend import Job, halves_of, launcher_of, tools_of
from cora.build.compose import build
from cora.build.make import make
from cora.build.request import BuildRequest
from cora.build.tools import require_tools
from cora.build.tree import PRODUCTS, write_tree
from cora.cache import cache_dir
from cora.errors import CoraError, Kind, fail
from cora.runtime.control import Control
from cora.runtime.interfaces import require_interfaces
from cora.runtime.runs import MAX_SOCKET, Claim, Run, socket_of

# Seconds until the programs have to answer, and until they have to end after they were asked to.
START, END = 30.0, 15.0
_POLL = 0.05
# Last lines of what a program said that a message quotes.
_QUOTED = 10
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``totals``: what the program told at its end; None where it did not come to that.

    ``killed``: what is wrong, where it did not end because it was asked to.
    """

    totals: Mapping[str, Any] | None
    killed: str = ""


@dataclass
class Running:
    """Programs of a plan that run. Made by `start`."""

    job: Job
    process: subprocess.Popen[bytes]
    claim: Claim
    said: deque[str] = field(default_factory=lambda: deque(maxlen=200))
    _tell: Callable[[str], None] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _out: list[bytes] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _asked: bool = False
    _ended: Ended | None = None

    def listen(self, stream: IO[bytes]) -> None:
        """Keep what the program says on standard error, and pass it on once somebody listens."""
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            with self._lock:
                self.said.append(line)
                if self._tell is not None:
                    self._tell(line)

    def tell_to(self, tell: Callable[[str], None]) -> None:
        """Pass on what was said so far, and all that comes."""
        with self._lock:
            for line in self.said:
                tell(line)
            self._tell = tell

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; whether the program has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def stop(self) -> None:
        """Ask the program to end; `finish` waits for it."""
        self._asked = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def finish(self) -> Ended:
        """Wait until the program has ended, and tell how. One that does not end when it was asked is killed."""
        if self._ended is None:
            self.end()
            self._ended = Ended(self._totals(), self._killed())
            # What is left of a killed run is told by its record.
            self.claim.release(forget=not self._ended.killed)
        return self._ended

    def end(self) -> None:
        """The process ends, and its streams: by itself within `END` seconds, or killed."""
        if not self.wait(END):
            self.process.kill()
            self.process.wait()
        for thread in self._threads:
            thread.join(END)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _killed(self) -> str:
        code = self.process.returncode
        if self._asked and code == 0:
            return ""
        last = _last_of(self.job)
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            if self._asked and code == -signal.SIGKILL:
                how = f"did not end within {END:.0f} s and was killed"
        else:
            how = f"ended by itself with exit code {code}" if not self._asked else f"ended with exit code {code}"
        rest = [f"{place} {wrong or 'is alive'}" for place, wrong in halves(self.job).items()
                if place != last]
        return "; ".join([f"the program at {last} {how}", *rest])

    def _totals(self) -> Mapping[str, Any] | None:
        with suppress(ValueError):
            told = json.loads(b"".join(self._out) or b"null")
            return told if isinstance(told, dict) else None
        return None


def halves(job: Job) -> Mapping[str, str]:
    """By name of the place: empty when it is alive, else what is wrong with it, as far as can be told from outside."""
    ask = halves_of(job.request.plan.target)
    return {} if ask is None else ask(job)


def _last_of(job: Job) -> str:
    return job.request.split.parts[-1].place


def compiled(request: BuildRequest) -> Path:
    """The built tree of a plan, compiled; kept in the cache by its content.

    Raises:
        CoraError: as `build` and `make`; `Kind.CACHE_UNWRITABLE`.
    """
    require_tools(tools_of(request.plan.target, "build"), f"build a plan for {request.plan.target}")
    tree = build(request)
    folder = cache_dir() / "built" / tree.digest()[:32]
    done = folder / PRODUCTS / "made"
    with _only_one(folder.with_suffix(".lock")):
        if done.is_file():
            return folder
        write_tree(tree, folder)
        make(folder, request.plan.target)
        done.parent.mkdir(exist_ok=True)
        done.write_text("all\n", encoding="ascii")
    return folder


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """One process at a time holds a lock file."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = lock.open("a", encoding="ascii")
    except OSError as error:
        raise fail(Kind.CACHE_UNWRITABLE, f"cannot write to the cache: {error.strerror}", where=str(lock.parent),
                   hint="set CORA_CACHE_DIR to a folder of your own") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def start(request: BuildRequest, ports: Mapping[str, str], *, name: str, control: Path | None = None,
          fresh: bool = False, tell: Callable[[str], None] | None = None) -> Running:
    """Build a plan, start its programs on interfaces, and return when they serve packets.

    Args:
        ports: interface by port. name: of the run. control: path of the control socket; None: in the run's folder.
        fresh: forget the state that an earlier, killed run of this name left.
        tell: takes what the programs say, line by line; default: standard error.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE`; `Kind.MISSING_TOOL`; `Kind.BAD_INTERFACE`; `Kind.MAKE_FAILED`;
            `Kind.RUN_FAILED` where they do not start, in their own words.
    """
    target = request.plan.target
    launcher = launcher_of(target)
    if launcher is None:
        raise fail(Kind.NOT_BUILDABLE, f"a plan for {target} cannot be run on interfaces yet", where="PLAN",
                   hint="`cora build` writes its sources" if target else None)
    require_interfaces(ports)
    require_tools(tools_of(target, "run"), f"run a plan for {target}")
    socket = (control or socket_of(name)).absolute()
    if len(os.fsencode(socket)) > MAX_SOCKET:
        raise fail(Kind.BAD_FLAG, f"the path of the control socket is longer than {MAX_SOCKET} bytes",
                   where="--control", hint="give a shorter one: --control /run/NAME.sock")
    tree = compiled(request)
    claim = Claim(name)
    try:
        job = Job(request, tree, ports, name, socket, fresh)
        command = launcher(job)
        running = Running(job, _started(command.command, command.environment), claim)
    except BaseException:
        claim.release(forget=not (claim.folder / "run.json").exists())
        raise
    return _when_ready(running, tell or _to_stderr)


def _started(command: Any, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        # A session of its own: a terminal's Ctrl-C comes to this process alone, which then ends the program.
        return subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True, env={**os.environ, **environment},
                                preexec_fn=_end_with_parent)
    except OSError as error:
        raise fail(Kind.RUN_FAILED, f"the program cannot be started: {error.strerror}",
                   where=str(command[0])) from error


def _end_with_parent() -> None:
    """The program ends as on SIGTERM when this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _when_ready(running: Running, tell: Callable[[str], None]) -> Running:
    process, job = running.process, running.job
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout, process.stderr
    running._threads += [threading.Thread(target=running.listen, args=(err,), daemon=True),
                         threading.Thread(target=lambda: running._out.append(out.read()), daemon=True)]
    for thread in running._threads:
        thread.start()
    try:
        _await(running)
        request = job.request
        running.claim.record(Run(job.name, request.program.name, request.plan.target, request.plan.digest(), job.ports,
                                 str(job.tree), str(job.control), os.getpid(), process.pid), request)
    except BaseException:
        running.stop()
        running.end()
        running.claim.release(forget=not (running.claim.folder / "run.json").exists())
        raise
    running.tell_to(tell)
    return running


def _await(running: Running) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        if running.wait(_POLL):
            running._threads[0].join(END)
            raise _failed(running, f"exit code {running.process.returncode}")
        with suppress(CoraError), Control(running.job.control, START) as control:
            control.status()
            return
    raise _failed(running, f"no answer within {START:.0f} s")


def _failed(running: Running, how: str) -> CoraError:
    lines = [line.removeprefix("cora: ") for line in running.said][-_QUOTED:]
    return fail(Kind.RUN_FAILED, "\n".join(lines) or "the program did not start, and did not say why",
                where=_last_of(running.job), hint=None if lines else f"it ended with {how}")
