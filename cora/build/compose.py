"""The whole tree of a plan: the folders a backend made, with Makefile, README, plan and manifest around them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cora.build.backend import Purpose, launcher_of, require_builder, tools_of
from cora.build.manifest import MANIFEST, BuiltFile, BuiltPlace, BuiltState, BuiltTool, Manifest
from cora.build.request import BuildRequest
from cora.build.tools import TOOLS
from cora.build.tree import PRODUCTS, SourceTree, encoded
from cora.emit.layout import map_row, meter_row
from cora.errors import Kind, fail
from cora.ir.nodes import FragmentState, MapState, MeterState, PoolState, State
from cora.ir.parts import Part

PLAN = "plan.json"


def build(request: BuildRequest) -> SourceTree:
    """The source tree of a plan. The same plan gives the same bytes, on any machine.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE` where nothing can be built for the plan's target yet; what its backend refuses.
    """
    target = request.plan.target
    places = require_builder(target)(request)
    known = {p.place for p in request.split.parts}
    strange = sorted({path.partition("/")[0] for path in places.files} - known)
    if strange:
        raise fail(Kind.BAD_TARGET, f"the backend '{target}' built {', '.join(strange)}, which is no place of the plan",
                   where=target)
    folders = [p.place for p in request.split.parts if f"{p.place}/Makefile" in places.files]
    tools = tuple(_tools(target))
    plan = request.plan.to_json()
    tree = places.plus(SourceTree({"Makefile": _makefile(folders), "README.md": _readme(request, folders, tools),
                                   PLAN: plan if plan.endswith("\n") else plan + "\n"}))
    return tree.plus(SourceTree({MANIFEST: _manifest(request, tree, folders, tools).to_json()}))


def _tools(target: str) -> Iterator[BuiltTool]:
    purposes: tuple[Purpose, ...] = ("build", "run")
    for purpose in purposes:
        for name in tools_of(target, purpose):
            yield BuiltTool(name, TOOLS[name].tried, purpose, TOOLS[name].command)


def _manifest(request: BuildRequest, tree: SourceTree, folders: Iterable[str],
              tools: tuple[BuiltTool, ...]) -> Manifest:
    plan, program, split = request.plan, request.program, request.split
    files = tuple(BuiltFile(path, hashlib.sha256(data).hexdigest(), len(data))
                  for path, text in tree.files.items() for data in (encoded(text),))
    places = tuple(BuiltPlace(p.place, p.place if p.place in folders else "", len(p.entries)) for p in split.parts)
    return Manifest(program.name, plan.program_hash, plan.digest(), plan.target, plan.model_version,
                    tuple(p.name for p in program.ports), dict(sorted(request.config.items())), places,
                    _states(request), tools, files)


def _states(request: BuildRequest) -> tuple[BuiltState, ...]:
    kinds = {s.name: s.kind for s in request.plan.states}
    return tuple(BuiltState(s.name, kinds[s.name], *_sizes(s),
                            tuple(f"{p.place}: {p.roles[s.name]}" for p in request.split.parts if s.name in p.roles))
                 for s in request.program.states)


def _sizes(state: State) -> tuple[int | None, int | None]:
    """Capacity, and bytes of a row."""
    match state:
        case MapState():
            return state.capacity, map_row(state).size
        case MeterState():
            return state.capacity, meter_row(state).size
        case PoolState():
            return state.size, None
        case FragmentState():
            return state.capacity, None
    return None, None


_MAKEFILE = """\
# all: everything that runs; check: compile and look over, make nothing; clean: remove what was made.
# Places in order from the wire: a later one may use what an earlier one made.
PLACES := {places}

.PHONY: all check clean
all check clean:
	@set -e; for place in $(PLACES); do $(MAKE) --no-print-directory -C $$place $@; done
"""


def _makefile(folders: Iterable[str]) -> str:
    return _MAKEFILE.format(places=" ".join(folders))


@dataclass(frozen=True)
class _Table:
    """A table in Markdown."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _readme(request: BuildRequest, folders: list[str], tools: tuple[BuiltTool, ...]) -> str:
    plan, program = request.plan, request.program
    return "\n\n".join([
        f"# {program.name} on {plan.target}",
        f"Built from the plan in [`{PLAN}`]({PLAN}) (digest `{plan.digest()[:16]}`) of the program `{program.name}` "
        f"(hash `{plan.program_hash[:16]}`). The tree needs nothing but the tools below: copy it anywhere and run "
        f"`make`. What `make` makes is in `{PRODUCTS}/` of each folder.",
        *_whereabouts(request, folders),
        "## Build", "```sh\nmake check\nmake\n```",
        str(_Table(("tool", "what for", "tried with", "how to get it"), tuple(
            (t.name, f"to {t.purpose}: {TOOLS[t.name].what}", t.version, f"`{t.install}`") for t in tools))),
        "## Run", *_running(request),
        "Each folder's README says how its program is started without Cora, how its tables are filled and read, and "
        "how it is ended.",
        f"[`{MANIFEST}`]({MANIFEST}) lists every file with its SHA-256.",
    ]) + "\n"


def _whereabouts(request: BuildRequest, folders: list[str]) -> Iterator[str]:
    parts = request.split.parts
    yield str(_Table(("place", "what it does", "folder"), tuple(
        (p.place, _does(p), f"[`{p.place}/`]({p.place}/README.md)" if p.place in folders else "nothing is built for it")
        for p in parts)))
    for item in request.split.lendings:
        yield (f"Of `{item.state}`, owned at {parts[item.owner].place}, at most {item.entries:,} entries at a time are "
               f"lent to {parts[item.near].place}, each after {item.threshold} packets of its flow.")
    yield "## State"
    yield str(_Table(("state", "kind", "capacity", "where"), tuple(
        (s.name, s.kind, "" if s.capacity is None else f"{s.capacity:,}", ", ".join(s.places) or "not used")
        for s in _states(request))))


def _running(request: BuildRequest) -> Iterator[str]:
    if launcher_of(request.plan.target) is None:
        return
    ports = ",".join(f"{p.name}=INTERFACE" for p in request.program.ports)
    yield "With Cora on the machine, in the foreground until a signal comes:"
    yield f"```sh\ncora run {PLAN} --ports {ports}\ncora status {request.program.name}\n```"


def _does(part: Part) -> str:
    blocks = len(part.program.blocks)
    if not blocks:
        return "passes packets on"
    entered = f", entered at {len(part.entries)} points" if part.entries else ""
    return f"runs {blocks} blocks{entered}"
