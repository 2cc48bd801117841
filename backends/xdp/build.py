"""From a plan to two folders, and from these to two running programs."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cora.backends.xdp.kernel_tree import kernel_folder
from cora.backends.xdp.user.tree import user_folder
from cora.build.backend import Job, Launch
from cora.build.request import BuildRequest
from cora.build.tools import BPF_FILE_SYSTEM
from cora.build.tree import PRODUCTS, SourceTree
from cora.emit.bpf import file_stem

KERNEL, USER = "kernel", "user"
TOOLS: Mapping[str, tuple[str, ...]] = {
    "build": ("make", "cc", "pkg-config", "clang", "libbpf", "jansson"),
    "run": ("bpf", "net-admin", "af-xdp", "bpffs", "bpf-jit"),
    "xdp": ("cc", "clang", "libbpf", "bpf", "net-admin"),
}
# Linux: struct bpf_link_info: type, id, prog_id, and for XDP the interface's number (0: it is gone).
_LINK_INFO = struct.Struct("=IIII48x")
_LINK_IFINDEX = 12


def build(request: BuildRequest) -> SourceTree:
    """The folders ``kernel/`` and ``user/``.

    Raises:
        CoraError: `Kind.ENGINE_LIMIT` or `Kind.NOT_BUILDABLE` for what a half does not take.
    """
    split = request.split
    user = user_folder(split, request.config, request.plan.digest(), file_stem(split))
    return SourceTree(kernel_folder(split)).under(KERNEL).plus(SourceTree(user).under(USER))


def pins_of(name: str) -> Path:
    """Where the maps of a run are pinned."""
    return BPF_FILE_SYSTEM / "cora" / name


def launch(job: Job) -> Launch:
    """The user half, which loads the kernel half."""
    stem = file_stem(job.request.split)
    if job.fresh:
        shutil.rmtree(pins_of(job.name), ignore_errors=True)
    ports = [f"--port={port}={interface}" for port, interface in job.ports.items()]
    return Launch((str(job.tree / USER / PRODUCTS / f"{stem}-user"),
                   "--kernel", str(job.tree / KERNEL / PRODUCTS / f"{stem}.bpf.o"),
                   "--pins", str(pins_of(job.name)), "--socket", str(job.control), *ports))


def halves(job: Job) -> Mapping[str, str]:
    """Whether the kernel half is on the interface of every port; told by its pinned links."""
    gone = [f"port {port}: {wrong}" for port, wrong in _detached(job)]
    return {KERNEL: f"is not attached ({'; '.join(gone)})" if gone else ""}


def _detached(job: Job) -> Iterator[tuple[str, str]]:
    for port, interface in job.ports.items():
        ifindex = _linked(pins_of(job.name) / f"link_{port}")
        if ifindex is None:
            yield port, "no link is pinned"
        elif ifindex == 0:
            yield port, f"it was detached from {interface}, or the interface is gone"


def _linked(pin: Path) -> int | None:
    """The number of the interface that a pinned XDP link holds; 0 where it holds none; None without a link."""
    with suppress(OSError):
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        link = library.bpf_obj_get(os.fsencode(pin))
        if link < 0:
            return None
        info, size = ctypes.create_string_buffer(_LINK_INFO.size), ctypes.c_uint32(_LINK_INFO.size)
        failed = library.bpf_obj_get_info_by_fd(link, info, ctypes.byref(size))
        os.close(link)
        return None if failed else int(struct.unpack_from("=I", info.raw, _LINK_IFINDEX)[0])
    return None
