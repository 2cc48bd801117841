"""The manifest of a built tree: what it was built from, what it needs, and its files with their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cora.documents import Garbled, decode, read_json, read_text
from cora.errors import CoraError, Kind, fail

MANIFEST = "manifest.json"
FORMAT = "cora-build"
VERSION = 1


@dataclass(frozen=True)
class BuiltFile:
    """A file of the tree: path from the tree's folder, SHA-256 in hex, bytes. The manifest itself is not listed."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class BuiltPlace:
    """A place of the plan and what it does. ``folder``: its own in the tree; empty where nothing is built for it.

    ``entries``: numbers under which packets that an earlier place hands on can arrive, without the start.
    """

    name: str
    folder: str
    entries: int


@dataclass(frozen=True)
class BuiltState:
    """A state: ``row_bytes`` of an entry as `cora state dump` reads it, None where it has no entries of its own.

    ``places``: its role at each place that has it, as ``kernel: lent``.
    """

    name: str
    kind: str
    capacity: int | None
    row_bytes: int | None
    places: tuple[str, ...]


@dataclass(frozen=True)
class BuiltTool:
    """A tool that the tree needs: ``version`` the least one that was tried, ``purpose`` what for."""

    name: str
    version: str
    purpose: str
    install: str


@dataclass(frozen=True)
class Manifest:
    """All that is known of a tree without reading its sources. Ports stand in the order of their numbers, from 0.

    ``config``: the values that were built in.
    """

    program: str
    program_hash: str
    plan_digest: str
    target: str
    model_version: str
    ports: tuple[str, ...]
    config: Mapping[str, int]
    places: tuple[BuiltPlace, ...]
    states: tuple[BuiltState, ...]
    tools: tuple[BuiltTool, ...]
    files: tuple[BuiltFile, ...]

    def to_json(self) -> str:
        """The document, one row a line, in a stable order."""
        body: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(self)}
        lines = []
        for name, value in body.items():
            if isinstance(value, tuple) and value and isinstance(value[0], dict):
                rows = ",\n".join(f"  {json.dumps(row)}" for row in value)
                lines.append(f' "{name}": [\n{rows}\n ]')
            else:
                lines.append(f' "{name}": {json.dumps(value)}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def load_manifest(path: Path) -> Manifest:
    """Read the manifest of a tree.

    Raises:
        CoraError: `Kind.BAD_BUILD` where it cannot be read or is none.
    """
    try:
        body = read_json(read_text(path))
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise Garbled("this is no manifest of a built plan")
        if body.pop("version", None) != VERSION:
            raise Garbled("it is of another version of cora")
        return decode(Manifest, body)
    except json.JSONDecodeError as error:
        raise _bad(path, f"this is no JSON: {error}") from error
    except Garbled as error:
        raise _bad(path, str(error)) from error
    except OSError as error:
        raise _bad(path, f"cannot read: {error.strerror}") from error


def _bad(path: Path, message: str) -> CoraError:
    return fail(Kind.BAD_BUILD, message, where=str(path), hint="build the plan again with `cora build PLAN -o FOLDER`")
