"""Source trees: text files by relative path, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cora.build.manifest import MANIFEST, Manifest, load_manifest
from cora.documents import write_text
from cora.errors import CoraError, Kind, fail

# What `make` makes goes here, in the folder of each place; it is no part of the tree.
PRODUCTS = "build"


@dataclass(frozen=True)
class SourceTree:
    """Texts by relative POSIX path, sorted by path; each ends in one newline.

    ``files`` may be given in any order; the tree keeps its own sorted copy.
    """

    files: Mapping[str, str]

    def __post_init__(self) -> None:
        """A path that leaves the tree, or a text without its last newline, is a defect of a backend."""
        for path, text in self.files.items():
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or str(pure) != path or "\\" in path:
                raise ValueError(f"'{path}' is no path inside a source tree")
            if not text.endswith("\n") or text.endswith("\n\n") or "\r" in text or "\0" in text:
                raise ValueError(f"{path}: a text file has lines, of which the last one ends too")
        object.__setattr__(self, "files", dict(sorted(self.files.items())))

    def under(self, folder: str) -> SourceTree:
        """The same files in a folder."""
        return SourceTree({f"{folder}/{path}": text for path, text in self.files.items()})

    def plus(self, *others: SourceTree) -> SourceTree:
        """All files of several trees; no path may stand in two of them."""
        files = dict(self.files)
        for other in others:
            twice = files.keys() & other.files.keys()
            if twice:
                raise ValueError(f"{', '.join(sorted(twice))} stands in two trees")
            files.update(other.files)
        return SourceTree(files)

    def digest(self) -> str:
        """SHA-256 of paths and texts, in hex."""
        found = hashlib.sha256()
        for path, text in self.files.items():
            data = encoded(text)
            found.update(f"{path}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
            found.update(data)
        return found.hexdigest()


def encoded(text: str) -> bytes:
    """The bytes of a file of a tree; names of a program's source that are no UTF-8 stay as they are."""
    return text.encode("utf-8", "surrogateescape")


def write_tree(tree: SourceTree, out: Path, *, force: bool = False) -> None:
    """Write a tree with its manifest as the folder ``out``: all of it, or nothing.

    A folder that an earlier build made is replaced, together with what `make` made in it. ``force``: also where files
    of it were changed since, and where there are other files, which stay; then file by file, the manifest last.

    Raises:
        CoraError: `Kind.CANNOT_WRITE` where the folder has other files or changed ones in it, or cannot be written.
    """
    try:
        folder = out.resolve() if out.is_symlink() else out
        if folder.exists() and not folder.is_dir():
            raise fail(Kind.CANNOT_WRITE, "this is no folder", where=str(out), hint="give the name of a folder")
        before = _before(folder)
        reasons = list(_in_the_way(folder, before))
        if reasons and not force:
            raise _refused(out, reasons)
        if reasons:
            _write_into(tree, folder, before)
        else:
            _replace(tree, folder)
    except (OSError, ValueError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise fail(Kind.CANNOT_WRITE, f"cannot write: {why}", where=str(out),
                   hint="does the folder above it exist, and may you write there?") from error


def _before(folder: Path) -> Manifest | None:
    """The manifest of an earlier build; None where there is none that can be read."""
    if not (folder / MANIFEST).is_file():
        return None
    with suppress(CoraError):
        return load_manifest(folder / MANIFEST)
    return None


def _in_the_way(folder: Path, before: Manifest | None) -> Iterator[str]:
    """Files that replacing the folder would lose, each with the reason."""
    known = {} if before is None else {f.path: f.sha256 for f in before.files}
    for path in _files_of(folder):
        if path == MANIFEST and before is not None:
            continue
        if path not in known:
            if before is None or PRODUCTS not in PurePosixPath(path).parts[:-1]:
                yield f"{path} is no file of a build"
        elif hashlib.sha256((folder / path).read_bytes()).hexdigest() != known[path]:
            yield f"{path} was changed after it was built"


def _files_of(folder: Path) -> Iterator[str]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        links = [name for name in folders if Path(root, name).is_symlink()]
        yield from (Path(root, name).relative_to(folder).as_posix() for name in sorted([*names, *links]))


def _refused(out: Path, reasons: list[str]) -> CoraError:
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return fail(Kind.CANNOT_WRITE, f"the folder is in use: {reasons[0]}{more}", where=str(out),
                hint="choose a new or an empty folder; or --force, which writes over the files of a build and leaves "
                     "all others")


def _replace(tree: SourceTree, folder: Path) -> None:
    """The new folder is made beside the old one and takes its name."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.parent / f".{folder.name[:100]}.{os.getpid()}.new"
    stale = folder.parent / f".{folder.name[:100]}.{os.getpid()}.old"
    try:
        _write_files(tree.files.items(), fresh)
        if folder.exists():
            folder.rename(stale)
        fresh.rename(folder)
    except BaseException:  # an interrupt too leaves nothing behind
        if stale.exists() and not folder.exists():
            stale.rename(folder)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if folder.exists():
            shutil.rmtree(stale, ignore_errors=True)


def _write_files(files: Iterable[tuple[str, str]], folder: Path) -> None:
    for path, text in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(encoded(text))


def _write_into(tree: SourceTree, folder: Path, before: Manifest | None) -> None:
    """The files of the earlier build go, those of the new one come; the manifest is the last."""
    for item in () if before is None else before.files:
        if item.path not in tree.files:
            (folder / item.path).unlink(missing_ok=True)
    for path, text in sorted(tree.files.items(), key=lambda item: item[0] == MANIFEST):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():
            target.unlink()
        write_text(target, text)
