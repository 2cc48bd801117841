"""The plan document: what runs where, why, what it is predicted to reach, and the evidence. Fields: docs/plan.md.

A plan is immutable. It is written in a stable order with one row a line, so that any diff compares two plans.
"""

from __future__ import annotations

import hashlib
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cora.documents import Garbled, decode, read_json, read_text, write_text
from cora.errors import Kind, fail
from cora.models.parameters import Card, HostModel

FORMAT = "cora-plan"
VERSION = 3


@dataclass(frozen=True)
class Request:
    """What was asked for: a rate (packets/s, host cores as few as possible, at most ``cores``) or only cores.

    ``line_bps``: the rate as it was asked, in bits/s on the line; None where it was asked in packets/s. ``pins`` and
    ``forbids``: states that have to be, or must not be, somewhere (``STATE=PLACE`` or ``STATE=PLACE/TIER``).
    ``max_latency_ns``: of the mean packet; ``max_nic_memory``: bytes at all places but the host together;
    ``headroom``: share of every resource that stays free. ``window``: the windows' load, as a quantile, that the plan
    is for; None: the whole traffic.
    """

    rate_pps: int | None
    line_bps: int | None
    cores: int | None
    solver: str
    time_limit_s: float
    search: Literal["exact", "fast"] = "exact"
    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    max_latency_ns: float | None = None
    max_nic_memory: int | None = None
    headroom: float = 0.0
    window: float | None = None


@dataclass(frozen=True)
class Source:
    """A place in the user's program, ``text`` its line where the file could be read."""

    file: str
    line: int
    column: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Move:
    """The best there would be with one state at another place, everything else placed anew.

    ``throughput_pps``: the most with the plan's cores (those given where no rate was asked for; at least one where the
    host is used). ``along``: states that are elsewhere then too. ``cores``: the fewest for the asked rate; None when it
    is out of reach or none was asked for.
    """

    place: str
    possible: bool
    along: tuple[str, ...]
    cores: int | None
    throughput_pps: float | None
    reason: str

    @property
    def where(self) -> str:
        """The place, with the states that move along: ``host (with ext, hits)``."""
        return f"{self.place} (with {', '.join(self.along)})" if self.along else self.place


@dataclass(frozen=True)
class Copy:
    """One copy of a replicated or partial state: ``amount`` of the tier in ``unit``."""

    place: str
    tier: str
    amount: int
    unit: str


@dataclass(frozen=True)
class Lent:
    """The part of a split state that is lent to a place nearer to the wire than its owner.

    ``entries``: how many may be lent at once; ``threshold``: packets of a flow that the owner sees before it lends.
    ``mode``: ``resume``, where the near place runs code and hands packets over in the middle of the program;
    ``restart``, where it runs decided rules alone. ``share``: packets on the fast path, of all; the rates are per
    packet of the profile: entries lent, and lent entries taken back because a packet needs them at the owner.
    """

    place: str
    tier: str
    entries: int
    threshold: int
    amount: int
    unit: str
    mode: Literal["resume", "restart"]
    share: float
    installs_per_packet: float
    recalls_per_packet: float


Decision = Literal["whole", "split", "replicated", "partial"]


@dataclass(frozen=True)
class StatePlacement:
    """Where a state is kept. ``amount`` of the tier in ``unit``; sizes in bytes; rates per packet of the profile.

    ``decision``: whole at ``place``; split between ``place``, its owner, and the place in ``lent``; replicated or
    partial with all ``copies``, of which the one nearest to the wire stands in ``place``.
    ``accesses``: per kind of access (docs/plan.md), ``accesses_per_packet`` their sum; ``updates_per_packet``: entries
    made or removed.
    """

    name: str
    kind: str
    decision: Decision
    place: str
    tier: str
    amount: int
    unit: str
    lent: Lent | None
    copies: tuple[Copy, ...]
    entry_bytes: int
    entries: int
    working_set_bytes: int
    hottest: float
    accesses: Mapping[str, float]
    accesses_per_packet: float
    updates_per_packet: float
    reason: str
    moves: tuple[Move, ...]
    source: Source


@dataclass(frozen=True)
class BlockPlacement:
    """Where a class of a block runs: ``history`` are the state outcomes before it, None where no packet was seen.

    ``part`` counts the parts of a block that is cut between states, ``first`` is the part's first instruction.
    ``line``: of the block in the program's file. ``via`` tells ends of packets apart by the way in. ``lent``: the class
    of packets whose flow's entry was found at the near place. ``leg``: 1 where packets run it after they came back from
    the host, else 0.
    """

    block: str
    part: int
    first: int
    line: int
    history: tuple[str, ...] | None
    via: str
    lent: bool
    place: str
    leg: int
    share: float


@dataclass(frozen=True)
class PathClass:
    """Packets with one history and one verdict: their share, and the places their program starts and ends at."""

    history: tuple[str, ...]
    verdict: str
    share: float
    starts: str
    ends: str


# `Cost.amounts` have the unloaded latency in nanoseconds under this name, beside the resources.
LATENCY = "latency"
Spending = Literal["wire", "arrival", "code", "access", "hand-over", "departure", "ageing", "lending"]


@dataclass(frozen=True)
class Cost:
    """What packets of a class use at one spot: ``amounts`` of resources, per packet of the class.

    ``path``: the class's number in `Plan.classes`; None: charged to all packets alike, per packet of all. ``what``:
    ``code`` of a source line or an ``access`` of one to the state ``subject``; moving packets (``wire``, ``arrival``,
    ``hand-over`` and ``departure`` from the place ``subject`` to ``place``); entries of ``subject`` that die of age,
    or are lent to ``place`` and taken back.
    """

    path: int | None
    what: Spending
    subject: str
    place: str
    source: Source | None
    amounts: Mapping[str, float]


@dataclass(frozen=True)
class Crossing:
    """Where packets change their place in the middle of the program, and the values that travel with them."""

    before: str
    after: str
    outcome: str
    history: tuple[str, ...] | None
    from_place: str
    to_place: str
    share: float
    values: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class Point:
    """A budget for lent entries: ``capacities`` and ``thresholds`` per component in order, and what it would give.

    ``share``: packets on the fast path, of all; the rates are per packet of the profile. ``host_work``: the least found
    at the asked rate, ``throughput_pps``: the most found with the given cores, whichever was asked for; None where a
    bound had shown that it cannot be better than the plan.
    """

    capacities: tuple[int, ...]
    thresholds: tuple[int, ...]
    share: float
    installs_per_packet: float
    recalls_per_packet: float
    host_work: float | None
    throughput_pps: float | None


@dataclass(frozen=True)
class Steering:
    """One way to split a component by flow, whether the plan does so or not.

    Entries of ``components`` are lent from ``owner`` to ``near``. ``keys``: per arrival port what leads a packet to its
    entry, as ``outside: ipv4.dst, l4.dport -> conns.rev``. ``anchors``: labels of the blocks with these look-ups.
    ``points``: the budgets that were considered; ``chosen``: the number of the plan's own, None where it does not
    split so.
    """

    components: tuple[str, ...]
    near: str
    owner: str
    mode: Literal["resume", "restart"]
    keys: tuple[str, ...]
    anchors: tuple[str, ...]
    points: tuple[Point, ...]
    chosen: int | None


@dataclass(frozen=True)
class Figure:
    """A figure with its band: P10 ``low`` and P90 ``high`` over the model's parameter box. None: out of reach."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    kind: Literal["predicted"]


@dataclass(frozen=True)
class ResourceUse:
    """What the plan uses of a resource: per packet, of ``rate`` a second, as a share at the planned rate."""

    name: str
    place: str
    unit: str
    per_packet: float
    rate: float
    utilisation: float


@dataclass(frozen=True)
class Alternative:
    """Another placement under the same model. ``cores``: needed for the asked rate, None when out of reach.

    ``throughput_pps`` is as in `Move`, ``low`` and ``high`` its P10 and P90; None where it is not legal; ``cores_low``
    and ``cores_high`` are those of the cores. ``ratio_low`` and ``ratio_high``: P10 and P90 of the plan's throughput
    divided by this one's, both under the same samples. ``states``: per state its place and tier.
    """

    name: str
    legal: bool
    cores: int | None
    cores_low: float | None
    cores_high: float | None
    host_work: float | None
    throughput_pps: float | None
    low: float | None
    high: float | None
    ratio_low: float | None
    ratio_high: float | None
    states: Mapping[str, str]
    note: str


@dataclass(frozen=True)
class FrontPoint:
    """A plan of the Pareto front: no other has fewer cores, more throughput, less latency and less memory at once.

    ``throughput_pps``: the most with its cores; ``latency_ns``: of the mean packet at the asked rate, None where that
    is not carried, or without queueing where no rate was asked for; ``nic_memory``: bytes of states on the card.
    ``states``: per state where it is kept; ``blocks``: per place the blocks that run there, and ``ends``: the share of
    packets whose program ends there. ``proven``: whether it is proven to be the best for its limits.
    """

    cores: int
    throughput_pps: int
    latency_ns: float | None
    nic_memory: int
    proven: bool
    states: Mapping[str, str]
    blocks: Mapping[str, int]
    ends: Mapping[str, float]


@dataclass(frozen=True)
class RefusedAt:
    """Why a block or state cannot be at a place, in the user's own source."""

    subject: str
    place: str
    reason: str
    source: Source | None


@dataclass(frozen=True)
class Stage:
    """One goal of the search: the value reached and the bound proven for it, in the goal's own unit."""

    goal: str
    status: str
    objective: float
    bound: float | None
    gap: float | None
    seconds: float
    solves: int


@dataclass(frozen=True)
class Verified:
    """What `cora verify` compared and found equal: packets over all traffic and seeds of the scheduler.

    ``digest``: of the parts that ran and of what became of the traffic. ``coverage``: share of the program's outcomes
    taken by the packets that were searched for them. ``fast``: packets on the fast path; ``punted``: hand-overs between
    places; ``recalled``: entries taken back. ``overtaken``: packets that left after a later one of their flow, of
    ``in_gaps`` packets in runs in which rules were installed in gaps; None where packets wait for those before them.
    All are counts of runs, none is a prediction.

    ``on``: what ran: ``split``, the parts in one process; else the programs of the plan, by the name of the execution
    (docs/build.md).
    """

    on: str
    digest: str
    traffic: tuple[str, ...]
    packets: int
    seeds: int
    coverage: float
    fast: int
    punted: int
    recalled: int
    overtaken: int | None
    in_gaps: int | None


@dataclass(frozen=True)
class Evidence:
    """Why this is the model's best plan: solver; status, objective, bound and gap of the first goal; then all goals.

    ``verified``: what was compared with the unsplit program, by what ran; empty before `cora verify`.
    ``variants``: ways to split or not that were compared; ``solved``: of these, those that no bound had ruled out.
    """

    solver: str
    status: str
    goal: str
    objective: float
    bound: float | None
    gap: float | None
    seconds: float
    variables: int
    rows: int
    variants: int
    solved: int
    stages: tuple[Stage, ...]
    exact_check: Literal["passed"]
    verified: tuple[Verified, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A partition plan. Places are in order from the wire; ``throughput_pps`` and ``cores`` are what was checked.

    ``cores``: those the plan needs, which may be fewer than the request gives it. ``samples``: of the model's parameter
    box; ``samples_met``: those in which the plan carries the asked rate with its cores, None where none was asked for.
    """

    program: str
    program_hash: str
    target: str
    model_version: str
    model_digest: str
    card: Card
    host_model: HostModel
    profile_digest: str
    profile_packets: int
    mean_frame: float
    request: Request
    places: tuple[str, ...]
    cores: int
    throughput_pps: int
    figures: tuple[Figure, ...]
    samples: int
    samples_met: int | None
    binding: str
    states: tuple[StatePlacement, ...]
    steering: tuple[Steering, ...]
    classes: tuple[PathClass, ...]
    costs: tuple[Cost, ...]
    crossings: tuple[Crossing, ...]
    blocks: tuple[BlockPlacement, ...]
    resources: tuple[ResourceUse, ...]
    alternatives: tuple[Alternative, ...]
    pareto: tuple[FrontPoint, ...]
    refusals: tuple[RefusedAt, ...]
    evidence: Evidence

    def figure(self, name: str) -> Figure:
        """The figure of that name.

        Raises:
            KeyError: there is none.
        """
        for f in self.figures:
            if f.name == name:
                return f
        raise KeyError(name)

    def state(self, name: str) -> StatePlacement:
        """The placement of a state.

        Raises:
            KeyError: the plan has no such state.
        """
        for s in self.states:
            if s.name == name:
                return s
        raise KeyError(name)

    def to_json(self) -> str:
        """The document: one field a line, one row of a list a line, a trailing newline; its digest at the end."""
        rows = self._rows()
        return "{\n" + ",\n".join([*rows, f' "digest": "{_digest(rows)}"']) + "\n}\n"

    def digest(self) -> str:
        """SHA-256 of the document's fields as they are written, without the digest itself."""
        return _digest(self._rows())

    def _rows(self) -> list[str]:
        return [f' "format": "{FORMAT}"', f' "version": {VERSION}',
                *(f' "{f.name}": {_text(plain(getattr(self, f.name)))}' for f in fields(self))]


def _digest(rows: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def plain(item: Any) -> Any:
    """A part of a plan as JSON's own types."""
    if is_dataclass(item):
        return {f.name: plain(getattr(item, f.name)) for f in fields(item)}
    if isinstance(item, tuple):
        return [plain(i) for i in item]
    if isinstance(item, Mapping):
        return {k: plain(v) for k, v in item.items()}
    return item


def _text(item: Any) -> str:
    if isinstance(item, list) and any(isinstance(i, dict) for i in item):
        return "[\n" + ",\n".join("  " + json.dumps(i, allow_nan=False, ensure_ascii=False) for i in item) + "\n ]"
    return json.dumps(item, allow_nan=False, ensure_ascii=False)


def save(plan: Plan, path: Path) -> None:
    """Write a plan; a reader sees the old file or the whole new one, never a part.

    Raises:
        CoraError: `Kind.CANNOT_WRITE`.
    """
    try:
        write_text(path, plan.to_json())
    except OSError as error:
        raise fail(Kind.CANNOT_WRITE, f"cannot write the plan: {error.strerror or error}", where=str(path)) from error


def load_plan(path: Path) -> Plan:
    """Read a plan document.

    Raises:
        CoraError: `Kind.BAD_PLAN` naming the field and what is wrong with it, `Kind.PLAN_VERSION`.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise fail(Kind.BAD_PLAN, f"cannot read the plan: {error.strerror}", where=str(path), hint=_AGAIN) from error
    except Garbled as error:
        raise fail(Kind.BAD_PLAN, f"cannot read the plan: {error}", where=str(path), hint=_AGAIN) from error
    return plan_from_json(text, str(path))


def plan_from_json(text: str, where: str = "<plan>") -> Plan:
    """Parse and check the text of a plan document.

    Raises:
        CoraError: as `load_plan`.
    """
    try:
        data = read_json(text)
    except Garbled as error:
        raise fail(Kind.BAD_PLAN, str(error), where=where, hint=_AGAIN) from error
    except json.JSONDecodeError as error:
        raise fail(Kind.BAD_PLAN, f"this is no JSON: {error.msg}", where=f"{where}:{error.lineno}:{error.colno}",
                   hint=_AGAIN) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise fail(Kind.BAD_PLAN, f"this is no plan: its format is not '{FORMAT}'", where=where, hint=_AGAIN)
    version = data.get("version")
    if version != VERSION or isinstance(version, bool):
        raise fail(Kind.PLAN_VERSION, f"the plan's format is version {version!r}, this program reads version {VERSION}",
                   where=where, hint="make the plan again with this version of cora")
    body = {k: v for k, v in data.items() if k not in ("format", "version", "digest")}
    try:
        plan = decode(Plan, body)
        _consistent(plan)
        _unchanged(plan, data.get("digest"))
    except Garbled as error:
        raise fail(Kind.BAD_PLAN, str(error), where=where, hint=_AGAIN) from error
    return plan


_AGAIN = "make it again with `cora plan NF --trace TRACE --nic NIC -o plan.json`"


def _consistent(plan: Plan) -> None:
    """What a reader may rely on without knowing the program or the target."""
    if not plan.places:
        raise Garbled("places: a plan needs at least one")
    named = [(f"states[{i}].place", s.place) for i, s in enumerate(plan.states)]
    named += [(f"blocks[{i}].place", b.place) for i, b in enumerate(plan.blocks)]
    named += [(f"costs[{i}].place", c.place) for i, c in enumerate(plan.costs)]
    named += [(f"crossings[{i}].{end}", p) for i, c in enumerate(plan.crossings)
              for end, p in (("from_place", c.from_place), ("to_place", c.to_place))]
    for where, place in named:
        if place not in plan.places:
            raise Garbled(f"{where}: '{place}' is none of the plan's places {', '.join(plan.places)}")
    for what, names in (("state", [s.name for s in plan.states]), ("figure", [f.name for f in plan.figures])):
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise Garbled(f"{what} {min(twice)} stands twice in the plan")
    for i, cost in enumerate(plan.costs):
        if cost.path is not None and not 0 <= cost.path < len(plan.classes):
            raise Garbled(f"costs[{i}].path: {cost.path} is the number of no path class")
    for name, count in (("cores", plan.cores), ("throughput_pps", plan.throughput_pps)):
        if count < 0:
            raise Garbled(f"{name}: {count} is less than 0")
    _figures_consistent(plan)


def _figures_consistent(plan: Plan) -> None:
    for what, value in (("throughput", plan.throughput_pps), ("host cores", plan.cores)):
        figure = next((f.value for f in plan.figures if f.name == what), None)
        if figure is None and (what == "throughput" or plan.request.rate_pps is not None):
            raise Garbled(f"figures: there is no '{what}'")
        # Figures have six digits.
        if figure is not None and not math.isclose(figure, value, rel_tol=1e-5):
            raise Garbled(f"figures: {what} is {figure:g}, elsewhere in the plan it is {value}")
    if all(f.name != "host work" for f in plan.figures):
        raise Garbled("figures: there is no 'host work'")
    if plan.resources and plan.binding not in {r.name for r in plan.resources}:
        raise Garbled(f"binding: '{plan.binding}' is none of the plan's resources")
    if plan.samples_met is not None and not 0 <= plan.samples_met <= plan.samples:
        raise Garbled(f"samples_met: {plan.samples_met} is not between 0 and the {plan.samples} samples")


def _unchanged(plan: Plan, digest: object) -> None:
    if not isinstance(digest, str):
        raise Garbled("digest is missing or no text")
    if digest != plan.digest():
        raise Garbled("the plan was changed after it was made: its digest is not that of its content")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document (draft 2020-12), made from the classes above; shipped as schema.json."""
    definitions: dict[str, Any] = {}
    body = _schema(Plan, definitions)
    plan = definitions.pop(body["$ref"].rsplit("/", 1)[1])
    plan["properties"] = {"format": {"const": FORMAT}, "version": {"const": VERSION}, **plan["properties"],
                          "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
    plan["required"] = ["format", "version", *plan["required"], "digest"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Cora plan", **plan,
            "$defs": dict(sorted(definitions.items()))}


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = next(a for a in get_args(hint) if a is not type(None))
        return {"anyOf": [_schema(inner, definitions), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0], definitions)}
    if origin is not None:
        return {"type": "object", "additionalProperties": _schema(get_args(hint)[1], definitions)}
    if not is_dataclass(hint):
        return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}
    name: str = getattr(hint, "__name__", "")
    if name not in definitions:
        hints = get_type_hints(hint)
        definitions[name] = {
            "type": "object", "description": (hint.__doc__ or "").split("\n\n")[0],
            "properties": {f.name: _schema(hints[f.name], definitions) for f in fields(hint)},
            "required": [f.name for f in fields(hint)], "additionalProperties": False,
        }
    return {"$ref": f"#/$defs/{name}"}
