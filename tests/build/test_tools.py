"""A missing tool is named with the command that provides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cora.build.backend import require_builder
from cora.build.tools import OPTIONAL, TOOLS, require_tools
from cora.errors import CoraError, Kind


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_all_that_is_missing_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CoraError) as refused:
        require_tools(["make", "clang", "libbpf", "bpf-jit"], "build a plan for xdp")
    found = refused.value.diagnostics
    assert [d.kind for d in found] == [Kind.MISSING_TOOL] * 3
    assert [(d.where, d.hint) for d in found] == [
        ("make", "apt-get install make"), ("clang", "apt-get install clang"), ("libbpf", "apt-get install libbpf-dev")]
    assert found[0].message == "there is no make on PATH; it is needed to build a plan for xdp (runs the build)"


@pytest.mark.parametrize(("version", "says"), [("0.8.1", "too old"), ("1.0.0", ""), ("1.10", ""), ("", "finds no")])
def test_a_library_is_old_absent_or_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str,
                                          says: str) -> None:
    script(tmp_path, "pkg-config", f"echo {version}" if version else "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    found = TOOLS["libbpf"].find()
    assert says in found.missing if says else found.missing == ""
    assert found.version == version


@pytest.mark.parametrize(("said", "old"), [
    ("Debian clang version 14.0.6", False), ("clang version 9.0.1-16", True), ("clang, of whatever age", False)])
def test_a_program_is_asked_for_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str,
                                            old: bool) -> None:
    script(tmp_path, "clang", f"echo '{said}'\necho 'Target: x86'")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = TOOLS["clang"].find()
    assert bool(found.missing) == old and found.version == said


def test_every_tool_says_what_it_is_and_how_to_get_it() -> None:
    assert TOOLS.keys() >= OPTIONAL
    for tool in TOOLS.values():
        assert tool.what and tool.command
        tool.find()  # whatever this machine has


@pytest.mark.parametrize("target", ["agilio-cx", "bluefield2"])
def test_a_card_that_cannot_be_built_for_is_refused(target: str) -> None:
    with pytest.raises(CoraError) as refused:
        require_builder(target)
    (found,) = refused.value.diagnostics
    assert found.kind is Kind.NOT_BUILDABLE and target in found.message
