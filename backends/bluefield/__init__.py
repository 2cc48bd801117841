"""NVIDIA BlueField-2: a match-action switch, eight Arm cores, and the host behind them."""

from __future__ import annotations

# Imported at once: the import binds the submodule's name, which the function's must replace for good.
from cora.backends.bluefield.target import target

DESCRIPTION = "NVIDIA BlueField-2 2x100 GbE: switch rules (eSwitch), 7 Arm cores for the network function, PCIe Gen4"

__all__ = ["DESCRIPTION", "target"]
