"""Linux XDP: the kernel half of a program on the interfaces, the user half behind AF_XDP sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

# Imported at once: the import binds the submodule's name, which the function's must replace for good.
from cora.backends.xdp.target import target

if TYPE_CHECKING:
    from cora.build.backend import Executed, Executor, Job, Launch, Needs
    from cora.build.request import BuildRequest
    from cora.build.tree import SourceTree
    from cora.engine.native import Records
    from cora.engine.results import Options
    from cora.engine.split import SplitEngine
    from cora.models.calibration import HostCalibration

DESCRIPTION = "Linux XDP on this machine: a BPF program in the kernel, the rest in user space behind AF_XDP sockets"

__all__ = ["CALIBRATION_STEPS", "DESCRIPTION", "ENGINES", "EXECUTORS", "TOOLS", "build", "calibrate", "halves",
           "launch", "target"]

TOOLS = {"build": ("make", "cc", "pkg-config", "clang", "libbpf", "jansson"),
         "run": ("bpf", "net-admin", "bpffs", "af-xdp", "bpf-jit"),
         "xdp": ("cc", "clang", "libbpf", "bpf", "net-admin"),
         "veth": ("make", "cc", "pkg-config", "clang", "libbpf", "jansson", "bpf", "net-admin", "net-raw", "af-xdp",
                  "iproute2")}


def kernel_engine() -> type[SplitEngine]:
    """The kernel half in this machine's kernel, packet by packet; the user half in this process."""
    from cora.backends.xdp.execute import KernelEngine

    return KernelEngine


ENGINES = {"xdp": kernel_engine}


# Steps that `calibrate` tells of: its probes, and one more.
CALIBRATION_STEPS = 8


def calibrate(progress: Callable[[int], None] | None = None) -> HostCalibration:
    """Figures of packets between the halves on this machine (cora/models/registry.py, `calibrator`)."""
    from cora.backends.xdp.measuring import figures

    return figures.calibrate(progress)


class _Veth:
    """Both halves on interfaces made for it; imported when it is called."""

    @property
    def needs(self) -> Needs:
        from cora.backends.xdp.veth import Veth

        return Veth.needs

    def __call__(self, request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
        from cora.backends.xdp.veth import Veth

        return Veth()(request, batches, options, seed)


EXECUTORS: Mapping[str, Executor] = {"veth": _Veth()}


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
