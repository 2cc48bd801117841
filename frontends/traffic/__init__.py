"""Traffic: captures, synthetic traffic, and which packets arrive on which port of a program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cora.frontends.traffic.capture import Capture


def open_traffic(path: str | os.PathLike[str]) -> Capture:
    """A capture file, or the capture that a ``*.traffic.json`` specification stands for.

    Raises:
        CoraError: the file cannot be read, is no capture, or the specification is wrong.
    """
    from cora.frontends.traffic.capture import Capture
    from cora.frontends.traffic.synthetic import is_spec_file, materialise

    place = Path(path)
    return Capture.open(materialise(place) if is_spec_file(place) else place)
