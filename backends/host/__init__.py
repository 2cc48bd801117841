"""The host CPU alone: what a plan without a SmartNIC needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

# Imported at once: the import binds the submodule's name, which the function's must replace for good.
from cora.backends.host.target import target

if TYPE_CHECKING:
    from cora.build.backend import Executed, Job, Launch
    from cora.build.request import BuildRequest
    from cora.build.tree import SourceTree
    from cora.engine.native import Records
    from cora.engine.results import Options
    from cora.models.calibration import HostCalibration

DESCRIPTION = "host CPU alone (DPDK-style polling cores), for host-only comparisons"

TOOLS = {"build": ("make", "cc", "pkg-config", "libdpdk", "jansson"), "run": ("net-raw",),
         "host": ("cc", "pkg-config", "libdpdk", "jansson")}


# Rounds that `calibrate` tells of: sizes of tables.
CALIBRATION_STEPS = 10


def calibrate(progress: Callable[[int], None] | None = None) -> HostCalibration:
    """Figures of this machine's cores (cora/models/registry.py, `calibrator`)."""
    from cora.runtime.measuring import host

    return host.calibrate(progress)


def build(request: BuildRequest) -> SourceTree:
    """The source tree of a plan (cora/build/backend.py)."""
    from cora.backends.host import emit

    return emit.build(request)


def launch(job: Job) -> Launch:
    """What `cora run` starts (cora/build/backend.py)."""
    from cora.backends.host import execute

    return execute.launch(job)


def _execute(request: BuildRequest, batches: Sequence[Records], options: Options, seed: int) -> Executed:
    from cora.backends.host import execute

    return execute.execute_records(request, batches, options, seed)


EXECUTORS: dict[str, Callable[[BuildRequest, Sequence[Records], Options, int], Executed]] = {"host": _execute}

__all__ = ["CALIBRATION_STEPS", "DESCRIPTION", "EXECUTORS", "TOOLS", "build", "calibrate", "launch", "target"]
