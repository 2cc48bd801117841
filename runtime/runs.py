"""What runs on this machine: a folder for each run, with its plan, its program, and its control socket.

The folders are in ``/run/cora``, or in ``CORA_RUN_DIR`` where that is set. A folder outlives a run that was killed, so
that what is left of it can be told; a run that ends cleanly removes its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cora.build.backend import Job
from cora.build.request import BuildRequest, request_of
from cora.documents import Garbled, decode, read_json, read_text, write_text
from cora.errors import CoraError, Kind, fail
from cora.ir.text import parse_program, print_program
from cora.plan.document import load_plan

_RECORD, _PLAN, _PROGRAM, _SOCKET, _LOCK = "run.json", "plan.json", "program.ir", "control.sock", "lock"
# A socket's path has at most this many bytes (sun_path).
MAX_SOCKET = 107
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True)
class Run:
    """A run as its record tells it: process ids of `cora run` and of the program, interface by port."""

    name: str
    program: str
    target: str
    plan_digest: str
    ports: Mapping[str, str]
    tree: str
    control: str
    keeper: int
    process: int


def run_dir() -> Path:
    """The folder of all runs; it may not exist yet."""
    return Path(os.environ.get("CORA_RUN_DIR") or "/run/cora").absolute()


def folder_of(name: str) -> Path:
    """The folder of a run.

    Raises:
        CoraError: `Kind.BAD_FLAG` for a name that cannot be one.
    """
    if not _NAME.fullmatch(name):
        raise fail(Kind.BAD_FLAG, f"'{name}' is no name for a run", where="--name",
                   hint="up to 40 letters, digits, points, dashes and underscores, with a letter or digit first")
    return run_dir() / name


def socket_of(name: str) -> Path:
    """The control socket of a run, where none was chosen."""
    return folder_of(name) / _SOCKET


class Claim:
    """A name for as long as a run has it: the lock on its folder is held by this process."""

    def __init__(self, name: str) -> None:
        """Take the name.

        Raises:
            CoraError: `Kind.RUN_FAILED` where a run of this name is there, `Kind.CANNOT_WRITE`.
        """
        self.folder = folder_of(name)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = open(self.folder / _LOCK, "a", encoding="ascii")  # noqa: SIM115 - held as long as the run
        except OSError as error:
            raise fail(Kind.CANNOT_WRITE, f"the run's folder cannot be made: {error.strerror}", where=str(self.folder),
                       hint="run as root, or set CORA_RUN_DIR to a folder of your own") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise fail(Kind.RUN_FAILED, f"a run named {name} is there already", where=name,
                       hint="stop it, or give this one another name with --name") from error

    def record(self, run: Run, request: BuildRequest) -> None:
        """Write down what runs."""
        write_text(self.folder / _PLAN, request.plan.to_json())
        write_text(self.folder / _PROGRAM, print_program(request.program))
        write_text(self.folder / _RECORD, json.dumps(asdict(run), indent=1) + "\n")

    def release(self, *, forget: bool) -> None:
        """Give the name back; ``forget``: nothing is left of the run, and its folder goes."""
        if forget:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                self.folder.parent.rmdir()
        self._lock.close()


def runs() -> tuple[Run, ...]:
    """All runs that have a record, also those that were killed, by name."""
    found = []
    with suppress(OSError):
        for folder in sorted(run_dir().iterdir()):
            with suppress(CoraError):
                found.append(_read(folder))
    return tuple(found)


def find_run(name: str) -> Run:
    """The run of a name.

    Raises:
        CoraError: `Kind.NO_SUCH_RUN` with the names there are.
    """
    folder = folder_of(name)
    if not (folder / _RECORD).is_file():
        names = [r.name for r in runs()]
        raise fail(Kind.NO_SUCH_RUN, f"nothing runs under the name {name}", where=name,
                   hint=f"these run here: {', '.join(names)}" if names else
                        "nothing runs here; `cora run PLAN --ports ...` starts a plan")
    return _read(folder)


def _read(folder: Path) -> Run:
    path = folder / _RECORD
    try:
        return decode(Run, read_json(read_text(path)))
    except (OSError, ValueError, Garbled) as error:
        raise fail(Kind.NO_SUCH_RUN, f"the record of the run cannot be read: {error}", where=str(path),
                   hint="stop the run and start it again") from error


def job_of(run: Run) -> Job:
    """The job of a recorded run, from the copies of its plan and program.

    Raises:
        CoraError: they cannot be read.
    """
    folder = folder_of(run.name)
    program = parse_program(read_text(folder / _PROGRAM), str(folder / _PROGRAM))
    request = request_of(load_plan(folder / _PLAN), program)
    return Job(request, Path(run.tree), run.ports, run.name, Path(run.control))


def is_alive(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        told = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return told.rpartition(")")[2].split()[:1] not in (["Z"], ["X"])
