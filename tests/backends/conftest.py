"""Tests of targets share the states and blocks of tests/models/state_zoo.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models"))
