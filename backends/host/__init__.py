"""The host CPU alone: what a plan without a SmartNIC needs."""

from __future__ import annotations

# Imported at once: the import binds the submodule's name, which the function's must replace for good.
from cora.backends.host.target import target

DESCRIPTION = "host CPU alone (DPDK-style polling cores), for host-only comparisons"

__all__ = ["DESCRIPTION", "target"]
