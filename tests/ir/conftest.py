"""The reference interpreter's test kit and its generator of IR programs are used here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "engine"))
