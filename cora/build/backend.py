"""What the module of a backend may offer besides ``target`` and ``DESCRIPTION``: building, executing, running a plan.

Each is optional and looked up by name in the module (`cora.models.registry.module`)::

    TOOLS = {"build": ("make", "cc"), "run": ("net-admin",), "xdp": ("clang",)}     names of cora/build/tools.py
    def build(request: BuildRequest) -> SourceTree                      one folder a place: ``kernel/Makefile`` ...
    ENGINES = {"xdp": kernel_engine}                                    what `cora verify --on NAME` runs: places in
                                                                        this process, a class for all schedules
    EXECUTORS = {"veth": execute_veth}                                  the same, whole programs on their own
    def launch(job: Job) -> Launch                                      what `cora run` starts
    def halves(job: Job) -> Mapping[str, str]                           which places are alive, asked from outside

Folders of a tree: every place has ``Makefile`` (targets ``all``, ``check``, ``clean``), ``README.md``, its sources, and
``runtime/*.h``, copied in. Products go to ``<place>/build/`` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from cora.build.request import BuildRequest
from cora.build.tree import SourceTree
from cora.errors import Kind, fail
from cora.models import registry

if TYPE_CHECKING:
    from cora.engine.native import Records
    from cora.engine.results import Event, Options, RunSummary, StateDump
    from cora.engine.split import SplitEngine, Statistics

# ``build``, ``run``, or the name of an execution.
Purpose = str
SPLIT = "split"


class Builder(Protocol):
    """Makes the folders of the places from a plan. Deterministic: no dates, no absolute paths."""

    def __call__(self, request: BuildRequest, /) -> SourceTree:
        """Raises CoraError `Kind.ENGINE_LIMIT` for what the programs do not take."""


@dataclass(frozen=True)
class Executed:
    """What programs that really ran did with some packets, in the form of every other execution.

    Attributes:
        events: what became of the packets. ``attributed``: `index` of each is the packet that caused it, and drops and
            waiting packets are among them. Otherwise only what left, in the order in which it left each port.
        statistics: what happened between the places, as far as the programs count it.
        uncompared: states of which the programs do not tell enough.
    """

    events: Sequence[Event]
    summary: RunSummary
    state: StateDump
    attributed: bool
    statistics: Statistics
    uncompared: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Needs:
    """What packets an executor takes; it says so in an attribute ``needs``, where it does not take all.

    Attributes:
        whole: frames have to be whole; shortest, longest: bytes of a frame; earliest_ns: time of the first packet.
    """

    whole: bool = False
    shortest: int = 0
    longest: int = 1 << 16
    earliest_ns: int = 0


class Executor(Protocol):
    """Builds the programs of a plan (cached by content) and runs them on packets, at the time stamps of the packets.

    ``seed`` chooses among the schedules that the programs leave open, where there are any.
    """

    def __call__(self, request: BuildRequest, batches: Sequence[Records], options: Options, seed: int, /) -> Executed:
        """Raises CoraError: a tool is missing (`cora.build.tools`), or a program cannot be built or started."""


@dataclass(frozen=True)
class Job:
    """Programs of a plan to be run on interfaces of this machine.

    Attributes:
        tree: the built tree, compiled (``make all`` has been run in it).
        ports: interface by name of the port; every port of the program has one.
        name: of this run, unique on the machine: file names and pins carry it. control: path of its control socket.
        fresh: forget the state that an earlier run of this name left.
    """

    request: BuildRequest
    tree: Path
    ports: Mapping[str, str]
    name: str
    control: Path
    fresh: bool = False


@dataclass(frozen=True)
class Launch:
    """The program to start: it stays in the foreground, stops cleanly on SIGINT and SIGTERM, and then prints one JSON
    object with its totals on standard output. It listens on the job's control socket as soon as packets are served.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


Launcher = Callable[[Job], Launch]
# By name of the place: empty when it is alive, else what is wrong with it. Asked when the program does not answer too.
Halves = Callable[[Job], Mapping[str, str]]


def builder_of(target: str) -> Builder | None:
    """The builder of a target, None where nothing can be built for it yet. Raises CoraError as `registry.module`."""
    return cast("Builder | None", getattr(registry.module(target), "build", None))


def buildable() -> tuple[str, ...]:
    """The targets that plans can be built for."""
    return tuple(name for name in registry.names() if builder_of(name) is not None)


def require_builder(target: str, asked: str = "the plan") -> Builder:
    """The builder of a target, which ``asked`` (a file, a flag) names.

    Raises:
        CoraError: `Kind.NOT_BUILDABLE`.
    """
    found = builder_of(target)
    if found is not None:
        return found
    described = registry.description(target)
    can = buildable()
    raise fail(Kind.NOT_BUILDABLE, f"the NIC half of a plan for {target} cannot be built yet ({described})",
               where=asked,
               hint=f"plans for {' and '.join(can)} can be built and run: `cora plan NF --nic {can[-1]} ...`"
               if can else "this version builds no plans")


def executors_of(target: str) -> Mapping[str, Executor]:
    """Executors of plans for a target by the name of the execution."""
    return cast("Mapping[str, Executor]", getattr(registry.module(target), "EXECUTORS", {}))


def engines_of(target: str) -> Mapping[str, Callable[[], type[SplitEngine]]]:
    """By the name of the execution what gives the engine class; the class is imported only then."""
    return cast("Mapping[str, Callable[[], type[SplitEngine]]]", getattr(registry.module(target), "ENGINES", {}))


def executions_of(target: str) -> tuple[str, ...]:
    """What a plan for a target can be verified on."""
    return (SPLIT, *engines_of(target), *executors_of(target))


def launcher_of(target: str) -> Launcher | None:
    """What starts a plan's programs, None where they cannot be run on this machine's interfaces."""
    return cast("Launcher | None", getattr(registry.module(target), "launch", None))


def halves_of(target: str) -> Halves | None:
    """What tells from outside which places are alive."""
    return cast("Halves | None", getattr(registry.module(target), "halves", None))


def tools_of(target: str, purpose: Purpose) -> Sequence[str]:
    """Names of the tools that building or running a plan for the target needs."""
    module: ModuleType = registry.module(target)
    tools = cast("Mapping[str, Sequence[str]]", getattr(module, "TOOLS", {}))
    return tuple(tools.get(purpose, ()))
