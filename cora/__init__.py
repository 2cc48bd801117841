"""Cora: which code and state of a network function run on a SmartNIC, and which on the host.

The whole job in four calls, the same ones that the command line makes::

    program = cora.load("nat.nf")
    profile = cora.profile(program, "trace.pcap")
    plan = cora.plan(program, profile, nic="agilio-cx", rate="40Gbps")
    result = cora.replay(program, "trace.pcap")

Each raises `cora.errors.CoraError` for anything wrong with its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Imported on first use: `cora --help` and a plain `import cora` stay fast.
_API = ("calibrate", "load", "plan", "profile", "replay", "trace", "traffic", "verify")

__all__ = ["CoraError", "__version__", "calibrate", "load", "plan", "profile", "replay", "trace", "traffic", "verify"]

if TYPE_CHECKING:
    from cora.api import calibrate, load, plan, profile, replay, trace, traffic, verify
    from cora.errors import CoraError


def __getattr__(name: str) -> Any:
    if name in _API:
        from cora import api

        return getattr(api, name)
    if name == "CoraError":
        from cora.errors import CoraError

        return CoraError
    raise AttributeError(f"module 'cora' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
