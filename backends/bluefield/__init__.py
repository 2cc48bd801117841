"""NVIDIA BlueField-2: a match-action switch, eight Arm cores, and the host behind them."""

from __future__ import annotations

from cora.models.target import Target

DESCRIPTION = "NVIDIA BlueField-2 2x100 GbE: switch rules (eSwitch), 7 Arm cores for the network function, PCIe Gen4"


def target(instance: str | None = None) -> Target:
    """The target; ``instance`` picks one of the model's instances.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC` for an unknown instance, `Kind.BAD_MODEL` for a broken model file.
    """
    from cora.backends.bluefield.target import BluefieldTarget, bluefield_model

    return BluefieldTarget(bluefield_model().at_instance(instance))
