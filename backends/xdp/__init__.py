"""Linux XDP: the kernel half of a program on the interfaces, the user half behind AF_XDP sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cora.build.backend import Job, Launch
    from cora.build.request import BuildRequest
    from cora.build.tree import SourceTree

TOOLS = {"build": ("make", "cc", "pkg-config", "clang", "libbpf", "jansson"),
         "run": ("bpf", "net-admin", "bpffs", "af-xdp", "bpf-jit")}


def build(request: BuildRequest) -> SourceTree:
    """The source tree of a plan (cora/build/backend.py)."""
    from cora.backends.xdp import tree

    return tree.build(request)


def launch(job: Job) -> Launch:
    """What `cora run` starts (cora/build/backend.py)."""
    from cora.backends.xdp import running

    return running.launch(job)


def halves(job: Job) -> Mapping[str, str]:
    """Which halves are alive (cora/build/backend.py)."""
    from cora.backends.xdp import running

    return running.halves(job)
