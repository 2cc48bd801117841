"""The evaluation's matrix: read from its file and expanded into traffics and rows."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("matrix.toml")
WEAK = " with order weak"


@dataclass(frozen=True)
class Traffic:
    """One synthetic traffic; ``axis`` is ``factorial`` or what a slice varies."""

    axis: str
    zipf: str
    churn: str
    size: str
    flows: int
    packets: int
    rate: str
    udp: str
    replies: str
    seed: int

    @property
    def name(self) -> str:
        """A name that tells it from all others of the matrix."""
        return f"zipf {self.zipf}, churn {self.churn}/s, {self.size}, {self.flows} flows"

    def spec(self) -> Mapping[str, object]:
        """The values that `cora traffic` takes."""
        return {"packets": self.packets, "flows": self.flows, "size": self.size, "zipf": self.zipf,
                "churn": self.churn, "rate": self.rate, "udp": self.udp, "replies": self.replies, "seed": self.seed}


@dataclass(frozen=True)
class Request:
    """The fewest cores at a ``rate`` on the line, or the most throughput with ``cores``."""

    rate: str | None
    cores: int | None

    @property
    def name(self) -> str:
        return f"rate {self.rate}" if self.rate is not None else f"cores {self.cores}"


@dataclass(frozen=True)
class Matrix:
    """Everything the file says."""

    edition: int
    programs: tuple[str, ...]
    nics: tuple[str, ...]
    baselines: tuple[str, ...]
    requests: tuple[Request, ...]
    traffics: tuple[Traffic, ...]
    tenants: tuple[tuple[str, ...], ...]
    published: Mapping[str, str]
    weak_programs: tuple[str, ...] = ()
    weak_nics: tuple[str, ...] = ()

    def tasks(self) -> Iterator[tuple[Traffic, str]]:
        """(Traffic, program): what shares one profile."""
        yield from itertools.product(self.traffics, (*self.programs, *(p + WEAK for p in self.weak_programs)))

    def nics_of(self, program: str) -> tuple[str, ...]:
        """The cards of a program's rows."""
        return self.weak_nics if program.endswith(WEAK) else self.nics

    @property
    def rows(self) -> int:
        """How many rows there are, tenants included."""
        each = len(self.nics) * len(self.requests)
        alone = sum(len(self.nics_of(program)) for _, program in self.tasks())
        return len(self.requests) * alone + each * len(self.tenants)

    @property
    def middle(self) -> Traffic:
        """The traffic in the middle of the factorial, around which the slices lie."""
        factorial = [t for t in self.traffics if t.axis == "factorial"]
        zipfs, churns = (list(dict.fromkeys(getattr(t, axis) for t in factorial)) for axis in ("zipf", "churn"))
        return next(t for t in factorial if (t.zipf, t.churn) == (zipfs[len(zipfs) // 2], churns[len(churns) // 2]))


def load(file: Path = FILE, *, subset: bool = False) -> Matrix:
    """Read the matrix, or the small part of it that the tests run."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    chosen = data["subset"] if subset else data
    usual = {**data["traffic"], "packets": chosen.get("packets", data["traffic"]["packets"])}
    axes = chosen if subset else data["factorial"]
    traffics = [_traffic("factorial", usual, {"zipf": z, "churn": c})
                for z, c in itertools.product(axes["zipf"], axes["churn"])]
    for part in () if subset else data["slice"]:
        fixed = {"zipf": part["zipf"], "churn": part["churn"]}
        traffics += [_traffic(part["vary"], usual, {**fixed, part["vary"]: value}) for value in part["values"]]
    requests = [Request(r, None) for r in chosen["rates"]] + [Request(None, c) for c in chosen["cores"]]
    weak = chosen["weak"] if subset else data["weak"]["programs"]
    return Matrix(
        data["edition"], tuple(chosen["programs"]), tuple(chosen["nics"]), tuple(data["baselines"]), tuple(requests),
        tuple(traffics), () if subset else tuple(tuple(t["programs"]) for t in data["tenants"]), data["published"],
        tuple(weak), tuple(data["weak"]["nics"]))


def _traffic(axis: str, usual: Mapping[str, Any], changed: Mapping[str, Any]) -> Traffic:
    values = {**usual, **changed}
    return Traffic(axis, str(values["zipf"]), str(values["churn"]), str(values["size"]), int(values["flows"]),
                   int(values["packets"]), str(values["rate"]), str(values["udp"]), str(values["replies"]),
                   int(values["seed"]))


def chosen(matrix: Matrix, programs: Sequence[str], nics: Sequence[str], traffic: str) -> Matrix:
    """A part of the matrix: some programs and NICs (none: all), traffics whose name contains a text."""
    from dataclasses import replace

    return replace(
        matrix, programs=tuple(p for p in matrix.programs if not programs or p in programs),
        nics=tuple(n for n in matrix.nics if not nics or n in nics),
        weak_programs=tuple(p for p in matrix.weak_programs if not programs or p + WEAK in programs),
        weak_nics=tuple(n for n in matrix.weak_nics if not nics or n in nics),
        traffics=tuple(t for t in matrix.traffics if traffic in t.name),
        tenants=() if programs else matrix.tenants)
