"""Netronome Agilio CX (NFP-4000): flow-processing micro-engines programmed in Micro-C."""

from __future__ import annotations

# Imported at once: the import binds the submodule's name, which the function's must replace for good.
from cora.backends.agilio.target import target

DESCRIPTION = "Netronome Agilio CX 2x40 GbE: 50 micro-engines in Micro-C, memories from 4 KiB to 2 GiB, PCIe Gen3 x8"

__all__ = ["DESCRIPTION", "target"]
