"""The console blocks of the documents are what the commands print.

In a block, a line of three dots stands for any lines, and an ellipsis sign inside a line for any text (times differ).
`pytest --update-golden` rewrites the blocks that show output, keeping those two marks where the text still fits.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cora.cli import main

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Shown:
    command: str
    output: tuple[str, ...]


def commands_of(document: Path) -> Iterator[Shown]:
    for block in BLOCK.findall(document.read_text(encoding="utf-8")):
        command = ""
        output: list[str] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield Shown(command, tuple(output))
                command, output = line[2:], []
            else:
                output.append(line)
        yield Shown(command, tuple(output))


def fits(shown: str, printed: str) -> bool:
    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", shown.rstrip()))
    return re.fullmatch(pattern, printed.rstrip()) is not None


def first_misfit(shown: tuple[str, ...], printed: list[str]) -> str | None:
    """The first shown line that the printed lines do not have in its place, or None."""
    at, skipping = 0, False
    for line in shown:
        if line.strip() == "...":
            skipping = True
            continue
        while skipping and at < len(printed) and not fits(line, printed[at]):
            at += 1
        if at >= len(printed) or not fits(line, printed[at]):
            return f"shown: {line}\nprinted: {printed[at] if at < len(printed) else '(the end)'}"
        at, skipping = at + 1, False
    return None if skipping or at >= len(printed) or not shown else f"not shown: {printed[at]}"


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_console_blocks_show_what_is_printed(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    shown = list(commands_of(document))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {**os.environ, "COLUMNS": "110"})
    for item in shown:
        words = shlex.split(item.command)
        assert words[0] == "cora", f"{document.name} shows another program: {item.command}"
        with pytest.raises(SystemExit) if _leaves(words) else _nothing():
            main(words[1:])
        captured = capsys.readouterr()
        printed = (captured.out + captured.err).splitlines()
        if item.output:
            misfit = first_misfit(item.output, printed)
            assert misfit is None, f"{document.name}: $ {item.command}\n{misfit}"


def _leaves(words: list[str]) -> bool:
    return "--help" in words


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_the_readme_shows_real_output() -> None:
    assert sum(bool(item.output) for item in commands_of(ROOT / "README.md")) >= 3


def test_the_readme_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    for code in found:
        exec(compile(code, "README.md", "exec"), {})


def test_a_misfit_is_found() -> None:
    assert first_misfit(("a", "...", "c…"), ["a", "b", "cde"]) is None
    assert first_misfit(("a", "c"), ["a", "b"]) is not None
    assert first_misfit(("a",), ["a", "b"]) is not None
    assert first_misfit(("a", "..."), ["a", "b"]) is None
