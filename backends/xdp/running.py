"""Starting the programs of a plan on interfaces, and looking at them from outside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cora.build.backend import Job, Launch
from cora.build.tools import BPF_FILE_SYSTEM
from cora.build.tree import PRODUCTS
from cora.emit.bpf import file_stem

# Maps of a run are pinned in a folder of its name here.
PINS = BPF_FILE_SYSTEM / "cora"
_PATIENCE = 20  # seconds


def launch(job: Job) -> Launch:
    """The user half, which loads the kernel half, attaches it, and ends it."""
    return Launch((*_command(job), *(["--fresh"] if job.fresh else [])))


def halves(job: Job) -> Mapping[str, str]:
    """By place what is wrong with it, empty where it is alive.

    Links and maps are looked at where they are pinned, so a user half that was killed can be asked about, too.
    """
    try:
        done = subprocess.run([*_command(job), "--look"], capture_output=True, text=True, timeout=_PATIENCE,
                              check=False)
        found: dict[str, str] = json.loads(done.stdout)["places"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return {"user": "cannot be asked: its program in the built tree does not run"}
    return found


def _command(job: Job) -> list[str]:
    stem = file_stem(job.request.split)
    ports = [f"--port={port}={interface}" for port, interface in job.ports.items()]
    return [str(job.tree / "user" / PRODUCTS / f"{stem}-user"), *ports, f"--kernel={_kernel(job.tree, stem)}",
            f"--pins={PINS / job.name}", f"--socket={job.control}"]


def _kernel(tree: Path, stem: str) -> Path:
    return tree / "kernel" / PRODUCTS / f"{stem}.bpf.o"
