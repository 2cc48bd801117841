"""Source trees are written whole or not at all, and never over somebody's files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cora.build.manifest import MANIFEST, BuiltFile, Manifest, load_manifest
from cora.build.tree import SourceTree, write_tree
from cora.errors import CoraError, Kind


def built(**files: str) -> SourceTree:
    """A tree of the files (``__`` stands for ``/`` in names) with a manifest that lists them."""
    texts = {name.replace("__", "/"): text for name, text in files.items()}
    rows = tuple(BuiltFile(p, hashlib.sha256(t.encode()).hexdigest(), len(t)) for p, t in sorted(texts.items()))
    manifest = Manifest("p", "0" * 64, "1" * 64, "xdp", "1", ("a", "b"), {"limit": 3}, (), (), (), rows)
    return SourceTree({**texts, MANIFEST: manifest.to_json()})


def content(folder: Path) -> dict[str, str]:
    return {f.relative_to(folder).as_posix(): f.read_text() for f in folder.rglob("*") if f.is_file()}


def test_a_tree_is_written_as_it_is(tmp_path: Path) -> None:
    tree = built(Makefile="all:\n", host__main="int x;\n", host__runtime__a="\n")
    write_tree(tree, tmp_path / "new" / "out")
    assert content(tmp_path / "new" / "out") == dict(tree.files)
    assert [f.name for f in (tmp_path / "new").iterdir()] == ["out"], "nothing is left beside it"


def test_the_order_of_files_is_no_matter() -> None:
    one, other = SourceTree({"a": "1\n", "b": "2\n"}), SourceTree({"b": "2\n", "a": "1\n"})
    assert list(one.files) == list(other.files) == ["a", "b"]
    assert one.digest() == other.digest() != SourceTree({"a": "1\n", "b": "3\n"}).digest()


@pytest.mark.parametrize(("path", "text"), [
    ("/etc/x", "a\n"), ("../x", "a\n"), ("a/../../x", "a\n"), ("a//b", "a\n"), ("a\\b", "a\n"),
    ("a", "no end"), ("a", "two ends\n\n"), ("a", ""), ("a", "carriage\r\n"), ("a", "nul\0\n"),
])
def test_a_tree_takes_only_text_files_inside_it(path: str, text: str) -> None:
    with pytest.raises(ValueError):
        SourceTree({path: text})


def test_trees_are_joined_only_where_they_do_not_meet() -> None:
    one = SourceTree({"a": "1\n"})
    assert list(one.plus(one.under("x"), one.under("y")).files) == ["a", "x/a", "y/a"]
    with pytest.raises(ValueError, match="a stands in two trees"):
        one.plus(SourceTree({"a": "2\n"}))


def test_a_build_is_replaced_with_what_make_made_in_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tree(built(Makefile="all:\n", host__old="x\n"), out)
    (out / "host" / "build").mkdir()
    (out / "host" / "build" / "program").write_bytes(b"\177ELF")
    write_tree(built(Makefile="all: new\n"), out)
    assert content(out).keys() == {"Makefile", MANIFEST}
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("spoil", ["edited", "added", "foreign", "link"])
def test_files_of_others_stay(tmp_path: Path, spoil: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if spoil != "foreign":
        write_tree(built(Makefile="all:\n", host__old="x\n"), out)
    name = {"edited": "Makefile", "added": "notes", "foreign": "thesis", "link": "away"}[spoil]
    if spoil == "link":
        (out / name).symlink_to(tmp_path)
    else:
        (out / name).write_text("mine\n")
    before = sorted(p for p in out.rglob("*"))
    with pytest.raises(CoraError) as refused:
        write_tree(built(Makefile="all: new\n"), out)
    (found,) = refused.value.diagnostics
    assert found.kind is Kind.CANNOT_WRITE and name in found.message and "--force" in str(found.hint)
    assert sorted(p for p in out.rglob("*")) == before

    write_tree(built(Makefile="all: new\n"), out, force=True)
    assert (out / "Makefile").read_text() == "all: new\n"
    assert not (out / "host" / "old").exists(), "files of the earlier build go"
    if spoil in ("added", "foreign"):
        assert (out / name).read_text() == "mine\n"
    assert spoil != "link" or (out / name).is_symlink()


def test_a_file_or_a_place_without_rights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("n" * 300)):
        with pytest.raises(CoraError) as refused:
            write_tree(built(Makefile="all:\n"), out)
        assert refused.value.diagnostics[0].kind is Kind.CANNOT_WRITE
    assert [f.name for f in tmp_path.iterdir()] == ["file"]


def test_a_write_that_breaks_leaves_the_old_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write_tree(built(Makefile="all:\n"), out)
    before, write = content(out), Path.write_bytes

    def broken(path: Path, data: bytes) -> int:
        if path.name == "main":
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(CoraError, match="No space left"):
        write_tree(built(Makefile="all: new\n", host__main="x\n"), out)
    assert content(out) == before and [f.name for f in tmp_path.iterdir()] == ["out"]


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    tree = built(Makefile="all:\n", host__main="x\n")
    write_tree(tree, tmp_path / "out")
    found = load_manifest(tmp_path / "out" / MANIFEST)
    assert found.to_json() == tree.files[MANIFEST]
    assert [f.path for f in found.files] == ["Makefile", "host/main"]


@pytest.mark.parametrize(("text", "says"), [
    ("", "no JSON"), ("[]", "no manifest"), ('{"format": "cora-plan"}', "no manifest"),
    ('{"format": "cora-build", "version": 99}', "another version"),
    ('{"format": "cora-build", "version": 1}', "program is missing"), (None, "cannot read"),
])
def test_a_broken_manifest_is_told(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / MANIFEST
    if text is not None:
        path.write_text(text)
    with pytest.raises(CoraError) as refused:
        load_manifest(path)
    (found,) = refused.value.diagnostics
    assert found.kind is Kind.BAD_BUILD and says in found.message


def test_the_manifest_has_one_row_a_line() -> None:
    text = built(Makefile="all:\n", host__main="x\n").files[MANIFEST]
    assert sum('"sha256"' in line for line in text.splitlines()) == 2
    assert json.loads(text)["config"] == {"limit": 3}
