"""The pipeline: one list, which can be shown, shortened, replaced and watched."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import Program
from cora.ir.passes.base import Pass
from cora.ir.passes.fold import FoldConstants, FoldHeaders
from cora.ir.passes.share import ShareLoads
from cora.ir.passes.thread import ThreadJumps
from cora.ir.passes.unused import RemoveUnused
from cora.ir.verify import verify as check_ir

STANDARD: tuple[Pass, ...] = (
    FoldHeaders(),
    FoldConstants(),
    ThreadJumps(),
    ShareLoads(),
    FoldConstants(),
    RemoveUnused(),
    ThreadJumps(),
)

PASSES: dict[str, type[Any]] = {
    p.name: p for p in (FoldConstants, FoldHeaders, ThreadJumps, ShareLoads, RemoveUnused)
}

Observer = Callable[[Pass, Program], None]
_PASS = re.compile(r"\s*([a-z0-9-]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")


def run_pipeline(program: Program, passes: Sequence[Pass] = STANDARD, stop_after: str | None = None,
                 verify: bool = False, observe: Observer | None = None) -> Program:
    """Apply passes one after the other.

    Args:
        program: valid IR.
        passes: what to do.
        stop_after: stop behind the last pass of this name.
        verify: check the IR behind every pass.
        observe: called behind every pass with it and what it gave.

    Raises:
        CoraError: `Kind.BAD_PASS` when ``stop_after`` is no pass of the list; `Kind.IR_INVALID` when a pass broke the
            program, which is our fault and is reported with the pass's name.
    """
    for step in _until(passes, stop_after):
        program = step.apply(program)
        if verify:
            _verified(program, step)
        if observe is not None:
            observe(step, program)
    return program


def _until(passes: Sequence[Pass], stop_after: str | None) -> Sequence[Pass]:
    if stop_after is None:
        return passes
    names = [p.name for p in passes]
    if stop_after not in names:
        raise _unknown(stop_after, names, "in this pipeline")
    return passes[: len(names) - names[::-1].index(stop_after)]


def _verified(program: Program, step: Pass) -> None:
    try:
        check_ir(program)
    except CoraError as error:
        first = error.diagnostics[0]
        raise fail(Kind.IR_INVALID, f"pass {step.name} made invalid IR: {first.message}", span=first.span,
                   hint=f"please report this; until it is mended, leave {step.name} out with --passes") from error


def _unknown(name: str, known: Sequence[str], where: str = "") -> CoraError:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(dict.fromkeys(known))}"
    return fail(Kind.BAD_PASS, f"there is no pass '{name}' {where}".rstrip(), hint=hint)


def parse_pipeline(text: str) -> tuple[Pass, ...]:
    """Read ``name,name{option=value,...}``; an empty text is no pass.

    Raises:
        CoraError: `Kind.BAD_PASS` for an unknown pass or option, or a text of another form.
    """
    found: list[Pass] = []
    at = 0
    while at < len(text.rstrip()):
        match = _PASS.match(text, at)
        if match is None or not match[1]:
            raise fail(Kind.BAD_PASS, f"cannot read the pass list from '{text[at:at + 30]}'",
                       hint="write fold-constants,share-loads{across=no}")
        if match[1] not in PASSES:
            raise _unknown(match[1], list(PASSES))
        found.append(_made(PASSES[match[1]], match[2] or ""))
        at = match.end()
    return tuple(found)


def _made(kind: type[Any], options: str) -> Pass:
    choices = {name: get_args(type_) for name, type_ in get_type_hints(kind).items() if get_args(type_)}
    options_of = {f.name: choices[f.name] for f in fields(kind)}
    given: dict[str, str] = {}
    for option in filter(None, (o.strip() for o in options.split(","))):
        name, _, value = (part.strip() for part in option.partition("="))
        if name not in options_of:
            known = ", ".join(options_of) or "none"
            raise fail(Kind.BAD_PASS, f"pass {kind.name} has no option '{name}'", hint=f"its options: {known}")
        if value not in options_of[name]:
            raise fail(Kind.BAD_PASS, f"'{value}' is no value of option {name} of pass {kind.name}",
                       hint=f"one of {', '.join(options_of[name])}")
        given[name] = value
    made: Pass = kind(**given)
    return made


def list_passes(passes: Sequence[Pass] = STANDARD) -> str:
    """The pipeline, one pass a line with its options and what it does, then the passes that are not in it."""
    used = {p.name for p in passes}
    lines = [f"{i}. {_shown(p)}: {_summary(type(p))}" for i, p in enumerate(passes, 1)]
    others = [f"   {name}: {_summary(kind)}" for name, kind in PASSES.items() if name not in used]
    return "\n".join([*lines, *(["not in this pipeline:"] if others else []), *others])


def show_pipeline(passes: Sequence[Pass]) -> str:
    """The text that `parse_pipeline` reads back."""
    return ",".join(map(_shown, passes))


def _shown(step: Pass) -> str:
    options = ",".join(f"{f.name}={getattr(step, f.name)}" for f in fields(step))
    return f"{step.name}{{{options}}}" if options else step.name


def _summary(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0].rstrip(".").replace("``", "'")
