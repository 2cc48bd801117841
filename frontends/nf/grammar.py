"""The parser that Lark builds from grammar.lark, kept in the user's cache because building it takes long."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
from functools import lru_cache
from pathlib import Path

import lark
from lark import Lark

from cora.cache import read_blob, write_blob


@lru_cache(maxsize=1)
def lark_parser() -> Lark:
    """The parser, from the cache when it was built before from the same grammar by the same Lark and Python."""
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    versions = f"{lark.__version__} {sys.version_info[:2]}"
    name = f"grammar/nf-{hashlib.sha256(f'{versions}{grammar}'.encode()).hexdigest()[:24]}.lark"
    stored = read_blob(name)
    if stored is not None:
        # Whatever a cached parser does wrong, building it again is right.
        with contextlib.suppress(Exception):
            return Lark.load(io.BytesIO(stored))
    built = Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)
    buffer = io.BytesIO()
    built.save(buffer)
    write_blob(name, buffer.getvalue())
    return built
