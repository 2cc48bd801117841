"""Options and output that commands share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cora import documents
from cora.errors import Kind, fail

if TYPE_CHECKING:
    from cora.analysis.profile import Profile
    from cora.build.request import BuildRequest
    from cora.engine.results import Options
    from cora.explain.subject import Subject
    from cora.ir.nodes import Program
    from cora.plan.document import Plan

F = TypeVar("F", bound=Callable[..., Any])

# Below this many packets a progress bar only flickers.
PROGRESS_FROM = 500_000


def nf_argument(function: F) -> F:
    """The NF program and the values of its configs."""
    function = click.option("--set", "settings", multiple=True, metavar="CONFIG=VALUE",
                            help="Give a config of the program another value. Repeatable.")(function)
    return click.argument("nf", metavar="NF", type=click.Path())(function)


def traffic_options(function: F) -> F:
    """How packets of a capture are assigned to ports, and how strictly they are read."""
    for option in (
        click.option("--headers-only", is_flag=True,
                     help="Believe length fields of packets whose payload the capture cut away."),
        click.option("--ignore-checksums", is_flag=True,
                     help="Take IPv4 header checksums as right (captures taken before checksum offload)."),
        click.option("--captured-at", "captured_at", default=None, metavar="PORT",
                     help="The capture was taken on the link of PORT: what arrives on other ports is first translated "
                          "as the program translates. Default: packets are taken as they are."),
        click.option("--port-map", "port_map", multiple=True, metavar="PORT=RULE[,RULE]",
                     help="Packets that arrive on PORT: a source subnet, to:SUBNET, mac:ADDRESS, if:NAME, or * for the "
                          "rest; or 'initiator'. Repeatable. Default: the initiator's side is the first port."),
    ):
        function = option(function)
    return function


def inputs_options(function: F) -> F:
    """What a plan was made from, for questions that its document alone does not answer."""
    for option in (
        click.option("--set", "settings", multiple=True, metavar="CONFIG=VALUE",
                     help="The config values the plan was made with. Repeatable."),
        click.option("--program", "nf", type=click.Path(), metavar="NF",
                     help="The program of the plan; default: the file the plan names."),
        click.option("--profile", "profile_file", type=click.Path(), metavar="FILE",
                     help="The profile the plan was made from."),
    ):
        function = option(function)
    return function


def plan_program_options(function: F) -> F:
    """The program of a plan, where it is not the file that the plan names."""
    for option in (
        click.option("--set", "settings", multiple=True, metavar="CONFIG=VALUE",
                     help="The config values the plan was made with. Repeatable."),
        click.option("--program", "nf", type=click.Path(), metavar="NF",
                     help="The program of the plan; default: the file the plan names."),
    ):
        function = option(function)
    return function


def build_request(plan: str, nf: str | None, settings: tuple[str, ...]) -> BuildRequest:
    """What the programs of a plan file are built from. Refuses first where nothing can be built for its target.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE`; all that is wrong with the plan or the program.
    """
    import cora
    from cora.build.backend import require_builder
    from cora.build.request import request_of
    from cora.plan.document import load_plan

    found = load_plan(Path(plan))
    require_builder(found.target, plan)
    file = program_of(found, nf)
    check_inputs(file)
    return request_of(found, cora.load(file, settings_of(settings)))


def json_option(function: F) -> F:
    """``--json``: machine-readable output on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def complete_nic(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of NICs, for shells."""
    from cora.models import registry

    return [name for name in registry.names() if name.startswith(incomplete)]


def complete_solver(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of solvers, for shells."""
    return [name for name in ("highs", "cbc") if name.startswith(incomplete)]


def settings_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """``--set`` values by config name.

    Raises:
        CoraError: `Kind.BAD_FLAG` for a pair without a name or value, or a name given twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals or not value.strip():
            raise fail(Kind.BAD_FLAG, f"'{pair}' does not set a config", where="--set",
                       hint="write for example --set ext_first=198.51.100.7")
        if name.strip() in found:
            raise fail(Kind.BAD_FLAG, f"config '{name.strip()}' is set twice", where="--set")
        found[name.strip()] = value.strip()
    return found


def print_json(data: Any) -> None:
    """JSON in a stable order."""
    click.echo(json.dumps(data, indent=1))


def note(text: str) -> None:
    """A remark on standard error, so that standard output stays clean."""
    click.echo(text, err=True)


def keep_inputs(outputs: Mapping[str, str | None], inputs: Iterable[str | None]) -> None:
    """Refuse to write over what is read, before any work is done. ``outputs`` are paths by the flag that gave them.

    Raises:
        CoraError: `Kind.CANNOT_WRITE` when an output is an input or another output.
    """
    read = [i for i in inputs if i is not None]
    written: list[str] = []
    for flag, path in outputs.items():
        if path is None or path == "-":
            continue
        for other, what in [*((i, "the command reads") for i in read), *((o, "is written twice") for o in written)]:
            if _same_file(path, other):
                raise fail(Kind.CANNOT_WRITE, f"this is a file that {what}", where=f"{flag} {path}",
                           hint="choose another name")
        written.append(path)


def _same_file(left: str, right: str) -> bool:
    try:
        return os.path.samefile(left, right) and os.path.isfile(left)
    except (OSError, ValueError):
        return os.path.abspath(left) == os.path.abspath(right)


def write_text(path: str, text: str) -> None:
    """Write a file under a temporary name and rename it, so that it is never half there; ``-`` is the screen.

    Raises:
        CoraError: `Kind.CANNOT_WRITE`.
    """
    if path == "-":
        click.echo(text, nl=False)
        return
    try:
        documents.write_text(Path(path), text)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise fail(Kind.CANNOT_WRITE, f"cannot write: {why}", where=path,
                   hint="give the path of a file; does the folder exist, and may you write there?") from error


def check_inputs(nf: str, traffic: str | None = None) -> None:
    """Say so when a file is of another kind than the command takes.

    Raises:
        CoraError: `Kind.BAD_FLAG` for the program, `Kind.NOT_A_CAPTURE` for the traffic.
    """
    kind = kind_of_file(nf)
    if kind != "":
        raise fail(Kind.BAD_FLAG, f"this is a {kind}, not a program", where=nf,
                   hint="the program (an .nf file) comes first, then what it runs on")
    kind = "" if traffic is None else kind_of_file(traffic)
    if kind in ("profile", "plan"):
        raise fail(Kind.NOT_A_CAPTURE, f"this is a {kind}, not a capture", where=str(traffic),
                   hint="plan for it with `cora plan NF --profile FILE`" if kind == "profile" else
                        "`cora show FILE` prints it")


def program_of(plan: Plan, nf: str | None) -> str:
    """The file of a plan's program: the one given, else the one the plan names.

    Raises:
        CoraError: `Kind.BAD_FLAG` where the plan names none, `Kind.FILE_UNREADABLE` where it is not there any more.
    """
    file = nf or next((s.source.file for s in plan.states), None)
    if file is None:
        raise fail(Kind.BAD_FLAG, "the plan has no state and so names no program", where="--program",
                   hint="give the program: --program NF")
    if nf is None and not os.path.exists(file):
        raise fail(Kind.FILE_UNREADABLE, "the program that the plan names is not there", where=file,
                   hint="say where it is now: --program NF")
    return file


def check_profile(path: str) -> None:
    """Say so when a file that should be a profile is a capture or a plan.

    Raises:
        CoraError: `Kind.BAD_PROFILE`.
    """
    kind = kind_of_file(path)
    if kind in ("capture", "plan"):
        raise fail(Kind.BAD_PROFILE, f"this is a {kind}, not a profile", where=path,
                   hint="use --trace for a capture" if kind == "capture" else "`cora show FILE` prints it")


# How captures begin: pcap and nanosecond pcap in both byte orders, pcapng.
_MAGIC = tuple(map(bytes.fromhex, ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")))


def kind_of_file(path: str) -> str:
    """``capture``, ``profile`` or ``plan`` by how a file begins; empty for anything else, unreadable files included."""
    try:
        if not Path(path).is_file():  # a pipe can be read only once
            return ""
        with open(path, "rb") as file:
            head = file.read(200)
    except (OSError, ValueError):
        return ""
    if head[:4] in _MAGIC:
        return "capture"
    return next((kind for kind in ("profile", "plan") if f'"format": "cora-{kind}"'.encode() in head), "")


def assumption(program: Program, port_map: tuple[str, ...]) -> str | None:
    """A line on how packets get their ports where the user did not say (all of) it, and how to say it."""
    from cora.frontends.traffic.portmap import PortMap

    mapping = PortMap.parse(port_map, [p.name for p in program.ports])
    if not mapping.assumed:
        return None
    if mapping.initiator is not None:
        first, second = mapping.ports[mapping.initiator], mapping.ports[1 - mapping.initiator]
        return f"assumed: initiators on {first}, answers on {second} (to say so: --port-map initiator)"
    port = mapping.ports[mapping.rules[-1].port]
    rest = "all other packets" if len(mapping.rules) > 1 else "all packets"
    return f"assumed: {rest} on {port} (to say so: --port-map '{port}=*')"


@contextmanager
def progress(label: str, total: int | None, least: int = PROGRESS_FROM) -> Iterator[Callable[[int], None]]:
    """A progress bar on long work, on a terminal only; yields a function that takes how far the work is.

    ``least``: below this much work the bar only flickers.
    """
    if not sys.stderr.isatty() or (total is not None and total < least):
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.completed:,}"), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def plural(count: int, one: str, many: str) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many}"


def table(rows: list[list[str]], header: list[str]) -> str:
    """Columns aligned by width; numbers to the right."""
    lines = [header, *rows]
    widths = [max(len(r[i]) for r in lines) for i in range(len(header))]
    numeric = [all(_is_number(r[i]) for r in rows) and bool(rows) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        padded = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(cells, widths, numeric, strict=True)]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *(line(r) for r in rows)])


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").replace("-", "").strip().isdigit() or not text


def profile_of(program: Program, traffic: str | None, profile_file: str | None, port_map: tuple[str, ...],
               captured_at: str | None, options: Options) -> Profile:
    """The traffic of a command: a profile from a file, or made from a capture now.

    Raises:
        CoraError: `Kind.BAD_FLAG` when not exactly one of the two is given, and all that is wrong with it.
    """
    import cora
    from cora.analysis.profile import load_profile

    if (traffic is None) == (profile_file is None):
        raise fail(Kind.BAD_FLAG, "give the traffic once: as a capture, or as a profile", where="--trace, --profile",
                   hint="--trace capture.pcap, or --profile profile.json made by `cora profile`")
    if profile_file is not None:
        if port_map or captured_at:
            raise fail(Kind.BAD_FLAG, "a profile has its packets already assigned", where="--port-map, --captured-at",
                       hint="give these to `cora profile`")
        check_profile(profile_file)
        return load_profile(Path(profile_file))
    assert traffic is not None, "one of the two is given"
    with progress("packets", None) as tell:
        profile = cora.profile(program, traffic, port_map=port_map, captured_at=captured_at, options=options,
                               progress=tell)
    for warning in profile.source["warnings"]:
        note(f"warning: {warning}")
    if (assumed := assumption(program, port_map)) is not None:
        note(assumed)
    return profile


def subject_of_plan(found: Plan, nf: str | None, settings: tuple[str, ...], profile_file: str) -> Subject:
    """A plan with the program and profile it was made from.

    Raises:
        CoraError: `Kind.BAD_FLAG` when the plan names no program; `Kind.PLAN_INPUTS` when these are other ones; all
            that is wrong with the files.
    """
    import cora
    from cora.analysis.profile import load_profile
    from cora.explain.subject import subject_of

    file = program_of(found, nf)
    check_inputs(file)
    check_profile(profile_file)
    return subject_of(found, cora.load(file, settings_of(settings)), load_profile(Path(profile_file)))
