"""The host CPU alone: what a plan without a SmartNIC needs."""

from __future__ import annotations

from cora.models.target import Target

DESCRIPTION = "host CPU alone (DPDK-style polling cores), for host-only comparisons"


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    from cora.backends.host.target import HostTarget, host_model

    return HostTarget(host_model().at_instance(instance))
