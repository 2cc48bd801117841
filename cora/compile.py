"""From a file to the program that engines and planner work on.

A program that was compiled before is found in the user's cache, so that a second command on it starts at once. The
key is everything the result depends on: the text and its path (spans name it), the settings, the passes, and the
compiler's own code.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

from cora.cache import code_identity, read_blob, write_blob
from cora.frontends.nf import load, read_source
from cora.ir.nodes import Program
from cora.ir.passes.base import Pass
from cora.ir.passes.pipeline import STANDARD, run_pipeline


def compile_file(path: Path, settings: Mapping[str, str], passes: Sequence[Pass] = STANDARD) -> Program:
    """Load an NF program and run passes over it; without passes it is the program as the language lowers it.

    Raises:
        CoraError: everything that is wrong with the program.
    """
    name = f"programs/{_key(path, settings, passes)}"
    known = read_blob(name)
    if known is not None:
        return _restored(known) or _compiled(path, settings, passes, name)
    return _compiled(path, settings, passes, name)


def _compiled(path: Path, settings: Mapping[str, str], passes: Sequence[Pass], name: str) -> Program:
    program = run_pipeline(load(path, settings), passes)
    write_blob(name, pickle.dumps(program, pickle.HIGHEST_PROTOCOL))
    return program


def _restored(blob: bytes) -> Program | None:
    """The cached program; None when this version of Python or of the nodes cannot read it."""
    try:
        found = pickle.loads(blob)
    except Exception:  # whatever an old pickle does wrong, compiling again is right
        return None
    return found if isinstance(found, Program) else None


def _key(path: Path, settings: Mapping[str, str], passes: Sequence[Pass]) -> str:
    root = Path(__file__).parent
    code = code_identity(root / "ir", root / "ir" / "passes", root / "frontends" / "nf")
    parts = [read_source(path), str(path), repr(sorted(settings.items())), repr(passes), code]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
