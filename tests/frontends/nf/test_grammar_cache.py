"""The built parser is kept in the cache, and a bad cache is never worse than none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cora.cache import read_blob
from cora.frontends.nf import grammar

TEXT = "nf t { port a: wire; on a(p: eth) { forward a; } }"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CORA_CACHE_DIR", str(tmp_path / "cache"))
    grammar.lark_parser.cache_clear()
    yield tmp_path / "cache"
    grammar.lark_parser.cache_clear()


def stored(cache: Path) -> Path:
    (path,) = (cache / "grammar").iterdir()
    return path


def test_parser_is_kept_and_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = grammar.lark_parser().parse(TEXT)
    content = stored(cache).read_bytes()
    grammar.lark_parser.cache_clear()

    def built(*_args: object, **_options: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(grammar, "write_blob", built)
    assert grammar.lark_parser().parse(TEXT) == tree
    assert stored(cache).read_bytes() == content


@pytest.mark.parametrize("damage", [
    lambda raw: b"", lambda raw: raw[:-1], lambda raw: raw[:40], lambda raw: raw[:1000] + b"\xff" + raw[1001:],
    lambda raw: b"cos\nsystem\n(S'false'\ntR." + raw, lambda raw: raw + b"x",
])
def test_damaged_cache_is_built_again(cache: Path, damage: object) -> None:
    grammar.lark_parser()
    path = stored(cache)
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert read_blob(f"grammar/{path.name}") is None
    grammar.lark_parser.cache_clear()
    assert grammar.lark_parser().parse(TEXT).data == "start"
    assert read_blob(f"grammar/{path.name}") is not None


def test_cache_that_cannot_be_written_is_done_without(cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    assert grammar.lark_parser().parse(TEXT).data == "start"
    assert cache.is_file()


def test_many_processes_at_once(cache: Path) -> None:
    code = f"from cora.frontends.nf import loads; print(loads({TEXT!r}).name)"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in running] == ["t\n"] * 4
    assert stored(cache).suffix == ".lark"
