"""The kernel half compiled and loaded: its object file, and the verifier's messages on the program's own lines."""

from __future__ import annotations

import platform
import re
from functools import lru_cache
from pathlib import Path

from cora.backends.xdp.arrived import with_originals
from cora.backends.xdp.capabilities import part_refusals
from cora.emit.bpf import KERNEL, emit_kernel, file_stem
from cora.emit.c import RUNTIME
from cora.emit.cbuild import build_bpf
from cora.errors import CoraError, Kind, fail
from cora.ir.parts import Split
from cora.ir.span import Span

# Machines that keep loads in order.
STRONG_ORDER = "-DCORA_STRONG_ORDER"
FLAGS = ("-O2", "-g", "-mcpu=v3", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
# What a message of the verifier is worth showing: its last lines say what it did not like.
_SHOWN_LINES = 12
_C_LINE = re.compile(r"@ (\S+\.bpf\.c):(\d+)")
_SOURCE_LINE = re.compile(r"/\* (\S+):(\d+) \*/")


def compile_kernel(split: Split) -> Path:
    """The kernel half as an object file; compiled, or found compiled.

    Raises:
        CoraError: `Kind.NO_COMPILER`, `Kind.COMPILER_FAILED`, `Kind.CACHE_UNWRITABLE`, `Kind.NOT_BUILDABLE` for what
            the kernel cannot run.
    """
    sources = emit_kernel(checked(split))
    flags = (*FLAGS, *([STRONG_ORDER] if platform.machine() == "x86_64" else []))
    return build_bpf(f"{file_stem(split)}-kernel", sources, flags, include_dirs=[RUNTIME, *system_headers()])


def checked(split: Split) -> Split:
    """The split as both halves are built, when the kernel can hold and run its part.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE`; planning asks before, so the plan was made otherwise.
    """
    found = next(part_refusals(split.parts[KERNEL]), None)
    if found is None:
        return with_originals(split)
    raise fail(Kind.NOT_BUILDABLE, f"'{found.subject}' cannot be in the kernel: {found.reason}", span=found.span,
               hint="plan again with this version of cora")


@lru_cache(maxsize=1)
def system_headers() -> tuple[Path, ...]:
    """Folders of the kernel's own headers that a compiler for BPF does not look into by itself (Debian's multiarch)."""
    found = Path(f"/usr/include/{platform.machine()}-linux-gnu")
    return (found,) if found.is_dir() else ()


def verifier_error(split: Split, log: str) -> CoraError:
    """What the kernel said when it refused the program, with the line of the source that it was at."""
    lines = [line for line in log.splitlines() if line.strip()]
    said = [line for line in lines if not re.match(r"(verification time|stack depth|processed \d+)", line)]
    span = source_line(split, log)
    shown = "\n".join(said[-_SHOWN_LINES:]) or "no message"
    hint = ("the kernel half is larger than the verifier follows: keep more of the program in user space"
            if "too large" in log or "too many states" in log or "combined stack" in log else
            "load it as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN" if "not permitted" in log else
            "keep this part in user space, and please report it: planning should have refused it")
    return fail(Kind.VERIFIER, f"the kernel refuses {split.program.name}:\n{shown}", span=span or split.program.span,
                hint=hint)


def source_line(split: Split, log: str) -> Span | None:
    """The program's line that the verifier looked at last: the last comment with a line before the C line it names."""
    places = _C_LINE.findall(log)
    text = emit_kernel(split)[f"{file_stem(split)}.bpf.c"].splitlines()
    for _, number in reversed(places):
        for line in reversed(text[:int(number)]):
            found = _SOURCE_LINE.findall(line)
            if found:
                at = int(found[-1][1])
                return Span(split.program.span.file, at, 1, at, 1)
            if line.startswith("}"):
                break
    return None
