"""Tools, libraries and rights that building and running plans needs: how each is found, what command provides it.

Commands are those of Debian and Ubuntu.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cora.errors import CoraError, Diagnostic, Kind

# Kernel: include/uapi/linux/capability.h.
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_IPC_LOCK": 14, "CAP_SYS_ADMIN": 21, "CAP_BPF": 39}
BPF_FILE_SYSTEM = Path("/sys/fs/bpf")
_AF_XDP = 44


@dataclass(frozen=True)
class Finding:
    """What was found of a tool: ``version`` in its own words; ``missing``: what is wrong, empty where nothing is."""

    version: str
    missing: str = ""


@dataclass(frozen=True)
class Tool:
    """A tool that something needs. ``tried``: the least version that was tried; ``command`` provides or enables it."""

    name: str
    what: str
    tried: str
    command: str
    find: Callable[[], Finding]


def _said(*command: str) -> str | None:
    """What a command prints; None where there is no such command, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(n) for n in found.group().split(".")) if found else ()


def _program(*names: str, least: str = "") -> Callable[[], Finding]:
    """Looks for the first of some programs on PATH."""
    def find() -> Finding:
        name = next((n for n in names if shutil.which(n)), None)
        if name is None:
            return Finding("", f"there is no {' or '.join(names)} on PATH")
        said = (_said(name, "--version") or "").partition("\n")[0]
        if least and _numbers(said) and _numbers(said) < _numbers(least):
            return Finding(said, f"{name} is too old: {said}, and {least} is needed")
        return Finding(said or name)
    return find


def _library(name: str, least: str) -> Callable[[], Finding]:
    """Looks for the development files of a library with pkg-config."""
    def find() -> Finding:
        if not shutil.which("pkg-config"):
            return Finding("", f"there is no pkg-config on PATH to look for {name} with")
        version = _said("pkg-config", "--modversion", name)
        if version is None:
            return Finding("", f"pkg-config finds no {name}")
        if _numbers(version) < _numbers(least):
            return Finding(version, f"{name} is too old: {version}, and {least} is needed")
        return Finding(version)
    return find


def _may(*names: str) -> Callable[[], Finding]:
    """Looks whether this process has a capability; ``names``: any of them will do."""
    def find() -> Finding:
        mask = 0
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("CapEff:"):
                mask = int(line.split()[1], 16)
        has = [n for n in names if mask >> _CAPABILITIES[n] & 1]
        return Finding(has[0]) if has else Finding("", f"this process does not have {' or '.join(names)}")
    return find


def _bpf_file_system() -> Finding:
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Finding("", f"the mounts cannot be read: {error.strerror}")
    held = any(line.split()[1:3] == [str(BPF_FILE_SYSTEM), "bpf"] for line in mounts)
    return Finding(str(BPF_FILE_SYSTEM)) if held else Finding("", f"no BPF file system is mounted at {BPF_FILE_SYSTEM}")


def _xdp_sockets() -> Finding:
    try:
        socket.socket(_AF_XDP, socket.SOCK_RAW).close()
    except OSError as error:
        return Finding("", f"no AF_XDP socket can be made: {error.strerror}")
    return Finding("AF_XDP")


def _jit() -> Finding:
    try:
        on = Path("/proc/sys/net/core/bpf_jit_enable").read_text(encoding="ascii").strip() != "0"
    except OSError as error:
        return Finding("", f"this kernel has no BPF compiler: {error.strerror}")
    return Finding("on") if on else Finding("", "BPF programs are interpreted, about ten times slower than compiled")


_ROOT = "run the command as root: sudo"

TOOLS = {t.name: t for t in (
    Tool("make", "runs the build", "4.3", "apt-get install make", _program("make")),
    Tool("cc", "compiles C", "12.2", "apt-get install gcc libc6-dev", _program("cc", "gcc")),
    Tool("pkg-config", "finds libraries", "1.8", "apt-get install pkg-config", _program("pkg-config")),
    Tool("clang", "compiles C to BPF", "14", "apt-get install clang", _program("clang", least="11")),
    Tool("libbpf", "loads BPF programs", "1.1", "apt-get install libbpf-dev", _library("libbpf", "1.0")),
    Tool("libxdp", "XDP sockets", "1.3", "apt-get install libxdp-dev", _library("libxdp", "1.2")),
    Tool("jansson", "JSON on the control socket", "2.14", "apt-get install libjansson-dev",
         _library("jansson", "2.10")),
    Tool("libdpdk", "packet input and output of host programs", "22.11",
         "apt-get install --no-install-recommends libdpdk-dev", _library("libdpdk", "22.11")),
    Tool("iproute2", "makes interfaces", "6.1", "apt-get install iproute2", _program("ip")),
    Tool("bpf", "may load BPF programs", "", _ROOT, _may("CAP_BPF", "CAP_SYS_ADMIN")),
    Tool("net-admin", "may attach programs to interfaces", "", _ROOT, _may("CAP_NET_ADMIN")),
    Tool("net-raw", "may open packet sockets", "", _ROOT, _may("CAP_NET_RAW")),
    Tool("bpffs", "keeps maps when the user half ends", "", f"mount -t bpf bpf {BPF_FILE_SYSTEM}", _bpf_file_system),
    Tool("af-xdp", "packets to user space", "", "boot a kernel with CONFIG_XDP_SOCKETS=y", _xdp_sockets),
    Tool("bpf-jit", "compiles BPF to machine code", "", "sysctl -w net.core.bpf_jit_enable=1", _jit),
)}

# Without these all works, slower.
OPTIONAL = frozenset({"bpf-jit"})


def require_tools(names: Iterable[str], purpose: str) -> None:
    """Refuse when something is missing.

    Args:
        names: of `TOOLS`. purpose: what they are needed for, as ``build a plan for xdp``.

    Raises:
        CoraError: `Kind.MISSING_TOOL`, one message for each tool, with the command that provides it.
    """
    missing = [(TOOLS[name], found) for name in names if name not in OPTIONAL
               and (found := TOOLS[name].find()).missing]
    if missing:
        raise CoraError(Diagnostic(Kind.MISSING_TOOL, f"{found.missing}; it is needed to {purpose} ({tool.what})",
                                   where=tool.name, hint=tool.command) for tool, found in missing)
