"""Netronome Agilio CX (NFP-4000): flow-processing micro-engines programmed in Micro-C."""

from __future__ import annotations

from cora.models.target import Target

DESCRIPTION = "Netronome Agilio CX 2x40 GbE: 50 micro-engines in Micro-C, memories from 4 KiB to 2 GiB, PCIe Gen3 x8"


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    from cora.backends.agilio.target import AgilioTarget, agilio_model

    return AgilioTarget(agilio_model().at_instance(instance))
