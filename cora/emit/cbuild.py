"""Compiles C with the system compiler into the user's cache, once for every different input.

A result is named by the hash of everything that decides its bytes: sources, headers, flags, the compiler and its
version, and the processor when the flags ask for the native one. Results appear by rename, so any number of processes
may build the same thing at once; a finished result is found without starting the compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from cora.cache import cache_dir as cache_dir
from cora.errors import CoraError, Kind, fail

_SHOWN_LINES = 20
_SEAL = hashlib.sha256().digest_size
_INSTALL_HINT = (
    "install a C compiler (Debian and Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc), "
    "or name one in the environment variable CC"
)



def build_shared(name: str, sources: Mapping[str, str], flags: Sequence[str], *,
                 include_dirs: Sequence[Path] = ()) -> Path:
    """Compile ``sources`` (file name to text; ``.c`` files are compiled, others can be included) to a shared library.

    ``flags`` come after ``-shared -fPIC``. Raises CoraError: NO_COMPILER, COMPILER_FAILED or CACHE_UNWRITABLE.
    """
    return _build(name, ".so", sources, ("-shared", "-fPIC", *flags), include_dirs)


def build_program(name: str, sources: Mapping[str, str], flags: Sequence[str], *,
                  include_dirs: Sequence[Path] = ()) -> Path:
    """Like build_shared, for an executable."""
    return _build(name, ".bin", sources, tuple(flags), include_dirs)


def build_bpf(name: str, sources: Mapping[str, str], flags: Sequence[str], *,
              include_dirs: Sequence[Path] = ()) -> Path:
    """Like build_shared, for a BPF object of one ``.c`` file, compiled by clang."""
    return _build(name, ".bpf.o", sources, ("-target", "bpf", "-c", *flags), include_dirs, _clang())


def load_shared(path: Path) -> ctypes.CDLL:
    """Load a library that build_shared made; raises CoraError CACHE_UNWRITABLE when the system refuses it."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise fail(
            Kind.CACHE_UNWRITABLE, f"the compiled library cannot be loaded: {error}", where=str(path),
            hint="the cache must be on a file system that allows execution: delete this file, or set CORA_CACHE_DIR "
                 "to another folder",
        ) from None


def _build(name: str, suffix: str, sources: Mapping[str, str], flags: tuple[str, ...],
           include_dirs: Sequence[Path], compiler: tuple[tuple[str, ...], str] | None = None) -> Path:
    command, version = compiler or _compiler()
    key = _digest(name, suffix, sources, flags, include_dirs, command, version)
    target = cache_dir() / "native" / f"{name}-{key}{suffix}"
    if _is_whole(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(target.parent)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
            for file, text in sources.items():
                # A file name that is no UTF-8 stands in comments as the bytes it is.
                Path(folder, file).write_text(text, encoding="utf-8", errors="surrogateescape")
            made = Path(folder, "result" + suffix)
            _compile(name, command, flags, include_dirs, sources, Path(folder), made)
            _seal(made)
            made.replace(target)
    except OSError as error:
        raise _unwritable(target.parent, error) from None
    return target


def _sweep(folder: Path) -> None:
    """Remove what builds that were killed left behind more than an hour ago."""
    for left in folder.glob(".build-*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > 3600:
                shutil.rmtree(left, ignore_errors=True)


def _seal(made: Path) -> None:
    """Append the digest of the file to it; loaders ignore what follows an ELF image."""
    with made.open("r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())


def _is_whole(path: Path) -> bool:
    """Whether a sealed file is there as it was made: loading half a library kills the process (SIGBUS)."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return len(data) > _SEAL and hashlib.sha256(data[:-_SEAL]).digest() == data[-_SEAL:]


def _compile(name: str, command: tuple[str, ...], flags: tuple[str, ...], include_dirs: Sequence[Path],
             sources: Mapping[str, str], folder: Path, made: Path) -> None:
    units = [file for file in sources if file.endswith(".c")]
    includes = [f"-I{Path(d).absolute()}" for d in include_dirs]
    # Libraries (-l...) resolve left to right, so they must follow the units that need them.
    libraries = [f for f in flags if f.startswith("-l")]
    others = [f for f in flags if not f.startswith("-l")]
    line = [*command, *others, *includes, "-o", str(made), *units, *libraries]
    run = subprocess.run(line, cwd=folder, capture_output=True, text=True, errors="replace", check=False,
                         env={**os.environ, "LC_ALL": "C"})
    if run.returncode == 0 and made.exists():
        return
    said = (run.stderr or run.stdout).strip().splitlines() or [f"no message, exit code {run.returncode}"]
    more = [f"... {len(said) - _SHOWN_LINES} more lines"] if len(said) > _SHOWN_LINES else []
    raise fail(
        Kind.COMPILER_FAILED, f"the C compiler could not build {name}:\n" + "\n".join(said[:_SHOWN_LINES] + more),
        where=shlex.join([*command, *others]),
        hint="check the compiler with a small program, or name another one in the environment variable CC",
    )


def _clang() -> tuple[tuple[str, ...], str]:
    """The command of clang, which alone builds BPF programs as libbpf loads them, and its version."""
    found = shutil.which("clang")
    if found is None:
        raise fail(Kind.NO_COMPILER, "no clang was found on PATH, which builds the kernel half",
                   hint="install it (Debian and Ubuntu: apt-get install clang llvm libbpf-dev)")
    return (found,), _version(found, cache_dir())


def _compiler() -> tuple[tuple[str, ...], str]:
    """The compiler's command and the first line of its version."""
    return _find_compiler(os.environ.get("CC"), os.environ.get("PATH"), cache_dir())


@lru_cache(maxsize=8)
def _find_compiler(chosen: str | None, _path: str | None, cache: Path) -> tuple[tuple[str, ...], str]:
    words = _split_cc(chosen) if chosen else []
    candidates = [words] if words else [["cc"], ["gcc"], ["clang"]]
    for program, *arguments in candidates:
        found = shutil.which(program)
        if found:
            return (found, *arguments), _version(found, cache)
    if words:
        raise fail(Kind.NO_COMPILER, f"the compiler {words[0]!r} was not found", where="environment variable CC",
                   hint=_INSTALL_HINT)
    raise fail(Kind.NO_COMPILER, "no C compiler was found (looked for cc, gcc and clang on PATH)", hint=_INSTALL_HINT)


def _split_cc(chosen: str) -> list[str]:
    try:
        return shlex.split(chosen)
    except ValueError as error:
        raise fail(Kind.NO_COMPILER, f"{chosen!r} is not a command: {error}", where="environment variable CC",
                   hint=_INSTALL_HINT) from None


def _version(program: str, cache: Path) -> str:
    """First line of ``program --version``, remembered on disk by the program's path, time and size."""
    real = os.path.realpath(program)
    try:
        status = os.stat(real)
    except OSError as error:
        raise fail(Kind.NO_COMPILER, f"the compiler cannot be examined: {error}", where=program,
                   hint=_INSTALL_HINT) from None
    key = _hash([program, real, str(status.st_mtime_ns), str(status.st_size)])
    note = cache / "compilers" / f"{key}.txt"
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        version = _ask_version(program)
    _remember(note, version)
    return version


def _ask_version(program: str) -> str:
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, errors="replace", check=False,
                             env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise fail(Kind.NO_COMPILER, f"the compiler cannot be started: {error}", where=program,
                   hint=_INSTALL_HINT) from None
    lines = run.stdout.splitlines()
    return lines[0] if lines else "unknown"


def _remember(note: Path, version: str) -> None:
    """Best effort: without the note the next process asks the compiler again."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False, encoding="utf-8") as file:
            file.write(version)
        os.replace(file.name, note)
    except OSError:
        return


def _digest(name: str, suffix: str, sources: Mapping[str, str], flags: tuple[str, ...],
            include_dirs: Sequence[Path], command: tuple[str, ...], version: str) -> str:
    parts = ["1", name, suffix, version, *command, *flags]
    for file in sorted(sources):
        parts += [file, sources[file]]
    for folder in include_dirs:
        parts += _headers(Path(folder))
    if any(flag in ("-march=native", "-mcpu=native", "-mtune=native") for flag in flags):
        parts.append(cpu_model())
    return _hash(parts)


def _headers(folder: Path) -> Iterator[str]:
    for header in sorted(folder.rglob("*.h")):
        yield str(header.relative_to(folder))
        yield header.read_text(encoding="utf-8", errors="replace")


def _hash(parts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """What this processor can do, as text: instruction sets and model where the system tells them."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.machine() + platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    lines = {line for line in info.splitlines() if line.startswith(wanted)}
    return platform.machine() + "\n".join(sorted(lines))


def _unwritable(folder: Path, error: OSError) -> CoraError:
    return fail(Kind.CACHE_UNWRITABLE, f"the cache of compiled code cannot be written: {error.strerror or error}",
                where=str(folder), hint="make the folder writable, or set CORA_CACHE_DIR to one that is")
