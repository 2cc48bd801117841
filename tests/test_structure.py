"""The structure that docs/architecture.md promises: which room may know which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = [f for f in (ROOT / "cora").iterdir() if not f.is_symlink()]

# Rooms of the core, and rooms that none of their modules may import.
FORBIDDEN = {
    "ir": ("cora.analysis", "cora.engine", "cora.emit", "cora.models", "cora.partition", "cora.plan", "cora.cli",
           "cora.frontends", "cora.backends", "cora.runtime"),
    "analysis": ("cora.models", "cora.partition", "cora.plan", "cora.cli", "cora.backends", "cora.runtime",
                 "cora.emit"),
    "models": ("cora.partition", "cora.plan", "cora.cli", "cora.backends", "cora.runtime", "cora.emit"),
    "emit": ("cora.models", "cora.partition", "cora.plan", "cora.cli", "cora.backends", "cora.runtime"),
    "engine": ("cora.models", "cora.partition", "cora.plan", "cora.cli", "cora.backends", "cora.runtime"),
    "partition": ("cora.cli", "cora.backends", "cora.runtime", "cora.emit", "cora.engine"),
    "report": ("cora.cli", "cora.backends", "cora.runtime", "cora.emit", "cora.engine"),
    "explain": ("cora.cli", "cora.backends", "cora.runtime", "cora.emit", "cora.engine"),
    "build": ("cora.cli", "cora.backends", "cora.runtime"),
    "plan": ("cora.cli", "cora.backends", "cora.runtime", "cora.emit", "cora.engine"),
}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules(folder: Path) -> Iterator[Path]:
    return folder.rglob("*.py")


@pytest.mark.parametrize("room", sorted(FORBIDDEN))
def test_a_room_knows_only_what_it_may(room: str) -> None:
    for file in modules(ROOT / "cora" / room):
        for name in imported(file):
            assert not name.startswith(FORBIDDEN[room]), f"{file.relative_to(ROOT)} imports {name}"


def test_the_core_names_no_backend() -> None:
    files = [f for place in CORE for f in (modules(place) if place.is_dir() else [place]) if f.suffix == ".py"]
    assert len(files) > 80
    for file in files:
        assert not any(name.startswith("cora.backends.") for name in imported(file)), file


def test_links_lead_to_the_top_level_folders() -> None:
    for name in ("frontends", "backends", "runtime"):
        link = ROOT / "cora" / name
        assert link.is_symlink() and link.readlink() == Path("..") / name


@pytest.mark.parametrize("name", ["host", "agilio", "bluefield"])
def test_a_backend_has_the_shape_of_all(name: str) -> None:
    folder = ROOT / "backends" / name
    assert {"__init__.py", "target.py", "model.toml"} <= {f.name for f in folder.iterdir()}
