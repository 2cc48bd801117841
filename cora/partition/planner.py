"""Planning: from a program, a profile and a target to a checked plan document."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from cora.analysis.demand import check_profile
from cora.analysis.profile import Profile, at_window
from cora.errors import CoraError, Kind, fail
from cora.ir.nodes import Program
from cora.models.target import Target
from cora.partition import refusing
from cora.partition.baselines import Aim
from cora.partition.choosing import Asked, Case, Chooser, Chosen
from cora.partition.digests import digest_of, model_digest
from cora.partition.evaluate import DEFAULT_HOST_CORES
from cora.partition.exact import Promise, broken_rules
from cora.partition.instance import Instance, build
from cora.partition.optimise import OutOfTime
from cora.partition.options import Restrictions, contradiction, wish_of
from cora.partition.placement import Placement, check, class_of
from cora.partition.prices import Prices
from cora.partition.problem import Assignment, CopyOption, Option, Together
from cora.partition.solver import SOLVERS
from cora.partition.telling import Teller, Told, reach_of
from cora.partition.uncertainty import Sampler
from cora.partition.variants import WHOLE, Split, Variant
from cora.plan.document import Plan, Request, StatePlacement


def plan(program: Program, profile: Profile, target: Target, *, rate_pps: float | None = None,
         line_bps: int | None = None, cores: int | None = None, solver: str = "highs",
         time_limit: float = 10.0, pins: Sequence[str] = (), forbids: Sequence[str] = (),
         max_latency_ns: float | None = None, max_nic_memory: int | None = None, headroom: float = 0.0,
         window: float | None = None, search: Literal["exact", "fast"] = "exact", warm: Plan | None = None,
         pareto: bool = False) -> Plan:
    """The best plan of a program for the traffic of a profile on a target.

    With ``rate_pps``: the fewest host cores that carry it (at most ``cores`` when given too), then the least host
    work, the most headroom, the least latency. With ``cores`` alone: the largest rate, then the same. ``line_bps`` is
    how the rate was asked, for messages: bits/s on the line. The other options are those of `Request`; ``warm`` is a
    plan of this program and target to begin the search with. ``pareto``: also the front of plans over cores,
    throughput, latency and memory of the card.

    Raises:
        CoraError: `Kind.NO_PLAN` saying what cannot be met and what could be, `Kind.PROFILE_MISMATCH`,
            `Kind.BAD_FLAG` for a request that makes no sense, `Kind.SOLVER`, `Kind.PLAN_CHECK` (a defect of ours).
    """
    check_request(rate_pps, cores, solver, time_limit)
    rate = None if rate_pps is None else math.ceil(rate_pps)
    # Whole numbers of seconds or shares would be read back as other values than were written.
    request = Request(rate, line_bps, cores, solver, float(time_limit), search, tuple(pins), tuple(forbids),
                      None if max_latency_ns is None else float(max_latency_ns), max_nic_memory, float(headroom),
                      None if window is None else float(window))
    return Planner(program, profile, target, request, warm, pareto).plan()


def plan_with(profile: Profile, request: Request, placement: Placement, why: str) -> Plan:
    """The plan document of a placement that was chosen otherwise than as the best: exact check, bands and all.

    ``profile``: the one that was given; the placement's instance is made from it. ``why``: why it was chosen.

    Raises:
        CoraError: as `plan`; `Kind.NO_PLAN` when it does not carry the asked rate.
    """
    instance = placement.instance
    planner = Planner(instance.program, profile, instance.target, request)
    return planner.given(placement, why)


@dataclass(frozen=True)
class Outcome:
    """What the best placement reaches, without the document.

    Attributes:
        throughput: packets/s with ``cores``, those it was given, or needs for the asked rate.
        reach: the same placement's under each sample of the model's parameter box, in the order of the samples.
        host_work: host cores' worth of work at the asked rate, else at the throughput.
    """

    throughput: float
    cores: int
    reach: tuple[float, ...]
    host_work: float


class Asking:
    """Outcomes asked again and again with little different: what stays the same is made once."""

    def __init__(self) -> None:
        self.planners: list[tuple[Program, Profile, Target, Planner]] = []
        # Of the first one.
        self.sampler: Sampler | None = None

    def outcome(self, program: Program, profile: Profile, target: Target, request: Request, warm: Plan | None = None,
                rates_of: Target | None = None) -> Outcome:
        """What `plan` would reach; a fraction of its work, for questions that plan many times.

        ``warm``: a plan for almost the same question, to begin with. ``rates_of``: a target that differs in the rates
        of its resources alone, and was asked about before.

        Raises:
            CoraError: as `plan`.
        """
        like = self._like(program, profile, target if rates_of is None else rates_of)
        planner = Planner(program, profile, target, request, warm, like=like)
        if like is None:
            # The first one is what the others are compared with.
            del self.planners[1:]
            self.planners.append((program, profile, target, planner))
        chosen = planner.chosen()
        placement, cores = chosen.placement, chosen.cores
        reached = placement.throughput(cores)
        rate = reached if request.rate_pps is None else float(request.rate_pps)
        scales = [r.scales for r in planner.prices.resources]
        first = like is not None and like is self.planners[0][3]
        sampler = Sampler(placement.instance, like=self.sampler if first else None)
        self.sampler = self.sampler or sampler
        rows = sampler.sampled(placement)
        return Outcome(reached, cores, tuple(reach_of(s, scales, cores) for s in rows), placement.host_work(rate))

    def _like(self, program: Program, profile: Profile, target: Target) -> Planner | None:
        return next((planner for a, b, c, planner in self.planners if a is program and b is profile and c is target),
                    None)


def verify_plan(plan: Plan, program: Program, profile: Profile, target: Target) -> None:
    """Check a plan document, wherever it came from, against the program, profile and target it says it is for.

    Raises:
        CoraError: `Kind.PLAN_CHECK` naming every broken rule, `Kind.PROFILE_MISMATCH`.
    """
    for what, said, true in (("program", plan.program_hash, profile.program_hash),
                             ("profile", plan.profile_digest, digest_of(profile)),
                             ("target", plan.target, target.name),
                             ("model", plan.model_digest, model_digest(target.model))):
        if said != true:
            raise fail(Kind.PLAN_CHECK, f"the plan is for another {what}", hint=_AGAIN)
    placement = placement_of(plan, instance_of(plan, program, profile, target))
    check(placement, promise_of(plan))
    loads = placement.utilisation(plan.cores, planned_rate(plan))
    for row, load in zip(plan.resources, loads, strict=False):
        if not math.isclose(row.utilisation, float(load), rel_tol=1e-4, abs_tol=1e-9):
            raise fail(Kind.PLAN_CHECK, f"the plan says {row.utilisation:.4g} of {row.name} is used, it is {load:.4g}",
                       hint=_AGAIN)
    if plan.request.rate_pps is not None and plan.throughput_pps < plan.request.rate_pps:
        raise fail(Kind.PLAN_CHECK, f"the plan reaches {plan.throughput_pps} packets/s, asked were "
                                    f"{plan.request.rate_pps}", hint=_AGAIN)


_AGAIN = "make the plan again"


def promise_of(plan: Plan) -> Promise:
    """What a plan document says it keeps."""
    request = plan.request
    return Promise(Fraction(plan.throughput_pps), plan.cores, Fraction(request.headroom), request.max_latency_ns,
                   float(planned_rate(plan)))


def planned_rate(plan: Plan) -> int:
    """Packets a second that a plan is for."""
    return plan.throughput_pps if plan.request.rate_pps is None else plan.request.rate_pps


def instance_of(plan: Plan, program: Program, profile: Profile, target: Target) -> Instance:
    """The variant a plan document is of, with what it restricts.

    Raises:
        CoraError: `Kind.PLAN_CHECK` when the profile has no such split; as `build`.
    """
    check_profile(program, profile)
    prices = Prices(program, windowed(profile, plan.request), target)
    variant = Variant(_split_of(plan, prices), any(b.leg for b in plan.blocks))
    asked = plan.request
    given = restrictions_of(asked.pins, asked.forbids, asked.max_nic_memory, program, target)
    return given.applied(build(program, profile, target, variant, prices))


def windowed(profile: Profile, request: Request) -> Profile:
    """The part of a profile that a request is for."""
    return profile if request.window is None else at_window(profile, request.window)


def _split_of(plan: Plan, prices: Prices) -> Split | None:
    chosen = [s for s in plan.steering if s.chosen is not None]
    if not chosen:
        return None
    way = chosen[0]
    assert way.chosen is not None
    if len(chosen) > 1 or not 0 <= way.chosen < len(way.points):
        raise fail(Kind.PLAN_CHECK, "the plan's steering does not say how its states are split", hint=_AGAIN)
    point = way.points[way.chosen]
    for split in prices.splits:
        places = prices.name(split.near), prices.name(split.owner)
        budgets = tuple((lend.capacity, lend.threshold) for lend in split.lends)
        if (split.components, places, split.mode, budgets) == (
                way.components, (way.near, way.owner), way.mode,
                tuple(zip(point.capacities, point.thresholds, strict=True))):
            return split
    raise fail(Kind.PLAN_CHECK, f"the profile has no admission point that lends {' and '.join(way.components)} as the "
                                "plan does", hint=_AGAIN)


def placement_of(plan: Plan, instance: Instance) -> Placement:
    """The placement a document stands for.

    Raises:
        CoraError: `Kind.PLAN_CHECK` when its blocks or states are not those of the instance.
    """
    if plan.places != tuple(p.name for p in instance.target.places):
        raise fail(Kind.PLAN_CHECK, f"the plan's places are {', '.join(plan.places)}, not those of {plan.target}")
    known = {class_of(n): i for i, n in enumerate(instance.graph.nodes)}
    places = {name: i for i, name in enumerate(plan.places)}
    nodes = [-1] * len(known)
    for b in plan.blocks:
        number = known.get((b.block, b.part, b.history, b.via, b.lent))
        if number is None:
            raise fail(Kind.PLAN_CHECK, f"the plan places block {b.block} in a class the program does not have")
        # The second stretch of a packet's way lies behind the host.
        nodes[number] = len(plan.places) if b.leg else places[b.place]
    kept = {s.name: s for s in plan.states}
    whole = tuple(_option_of(instance, kept, s.name, s.options) for s in instance.problem.whole)
    copies = tuple(_copies_of(instance, kept, s.name, s.options) for s in instance.problem.copied)
    return Placement(instance, Assignment(tuple(nodes), whole, copies))


def _option_of(instance: Instance, kept: dict[str, StatePlacement], table: str, options: Sequence[Option]) -> int:
    name = table.removesuffix(" lent")
    if name not in kept:
        raise fail(Kind.PLAN_CHECK, f"state {name} has no place")
    state = kept[name]
    place, tier = state.place, state.tier
    if table != name:
        if state.lent is None:
            raise fail(Kind.PLAN_CHECK, f"the plan does not say where the lent entries of {name} are")
        place, tier = state.lent.place, state.lent.tier
    return _number(instance, [(o.place, o.store) for o in options], table, place, tier)


def _copies_of(instance: Instance, kept: dict[str, StatePlacement], name: str,
               options: Sequence[CopyOption]) -> dict[int, int]:
    if name not in kept:
        raise fail(Kind.PLAN_CHECK, f"state {name} has no place")
    state = kept[name]
    split = instance.variant.split
    rules = instance.target.places[split.near].name if split is not None and split.mode == "restart" else ""
    spots = [(c.place, c.tier) for c in state.copies if c.place != rules] or [(state.place, state.tier)]
    ways = [(o.place, o.store) for o in options]
    numbers = [_number(instance, ways, name, *spot) for spot in spots]
    return {options[n].place: n for n in numbers}


def _number(instance: Instance, ways: Sequence[tuple[int, int]], table: str, place: str, tier: str) -> int:
    """The number of the option, given as (place, store), that is a tier of a place."""
    for number, (where, store) in enumerate(ways):
        if (instance.target.places[where].name, instance.problem.stores[store].name) == (place, tier):
            return number
    raise fail(Kind.PLAN_CHECK, f"state {table} cannot be kept in {tier} of {place}", hint=_AGAIN)


def restrictions_of(pins: Sequence[str], forbids: Sequence[str], nic_memory: int | None, program: Program,
                    target: Target) -> Restrictions:
    """What a request rules out.

    Raises:
        CoraError: `Kind.BAD_FLAG` for a name that is none, and for pins that contradict each other.
    """
    given = Restrictions(tuple(wish_of(p, "--pin", program, target) for p in pins),
                         tuple(wish_of(p, "--forbid", program, target) for p in forbids), nic_memory)
    contradiction(given)
    return given


def check_request(rate: float | None, cores: int | None, solver: str, time_limit: float) -> None:
    """Refuse a request that makes no sense for any traffic (rate in packets/s).

    Raises:
        CoraError: `Kind.BAD_FLAG`.
    """
    if rate is None and cores is None:
        raise fail(Kind.BAD_FLAG, "a plan needs a rate to reach or a number of host cores", where="--rate, --cores",
                   hint="ask for --rate 10Mpps, --rate 40Gbps or --cores 2")
    if rate is not None and not (0 < rate < math.inf):
        raise fail(Kind.BAD_FLAG, f"the rate {rate} is not a positive number of packets a second", where="--rate")
    if cores is not None and not 0 <= cores <= 1024:
        raise fail(Kind.BAD_FLAG, f"{cores} host cores: give a number from 0 to 1024", where="--cores")
    if solver not in SOLVERS:
        raise fail(Kind.BAD_FLAG, f"unknown solver '{solver}'", where="--solver", hint=f"one of {', '.join(SOLVERS)}")
    if not 0 < time_limit < math.inf:
        raise fail(Kind.BAD_FLAG, f"the time limit {time_limit} is not a positive number of seconds",
                   where="--time-limit")


class Planner:
    """One request for one program on one target."""

    def __init__(self, program: Program, profile: Profile, target: Target, request: Request,
                 warm: Plan | None = None, front: bool = False, like: Planner | None = None) -> None:
        """``like``: another one of this program and profile, for a target that differs in rates alone."""
        check_profile(program, profile)
        self.request = request
        self.profile = profile
        if like is None:
            self.prices = Prices(program, windowed(profile, request), target)
        else:
            self.prices = like.prices if like.prices.target is target else like.prices.at_rates_of(target)
        most = request.cores if request.cores is not None else DEFAULT_HOST_CORES
        aim = Aim(request.rate_pps, request.cores, most, 1 - request.headroom)
        deadline = time.perf_counter() + request.time_limit_s
        given = restrictions_of(request.pins, request.forbids, request.max_nic_memory, program, target)
        self.asked = Asked(aim, request.solver, deadline, given, request.headroom, request.max_latency_ns)
        self.chooser = Chooser(self.prices, self.asked)
        free = build(program, self.prices.profile, target, WHOLE, self.prices) if given.said else self.whole.instance
        refusing.refuse_pins(free, given)
        refusing.refuse_what_fits_nowhere(self.whole.instance, self.whole.units, free, given)
        if like is not None:
            self.chooser.shared = like.chooser.shared
        self.chooser.scale = self.scale() if like is None else like.chooser.scale
        self.front = front
        if warm is not None:
            self.chooser.warm = self.warmed(warm)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.profile)

    @property
    def whole(self) -> Case:
        return self.chooser.whole

    def warmed(self, plan: Plan) -> Placement | None:
        """The placement of a plan made before, on today's graph; None where that is not as it was then.

        Raises:
            CoraError: `Kind.BAD_FLAG` where it is another program's or target's.
        """
        prices = self.prices
        for what, said, true in (("program", plan.program, prices.program.name),
                                 ("NIC", plan.target, prices.target.name)):
            if said != true:
                raise fail(Kind.BAD_FLAG, f"the search cannot begin with a plan of another {what}: it is of {said}, "
                                          f"not of {true}", where="--warm", hint=f"give a plan of {true}, or none")
        try:
            case = self.chooser.case_of(Variant(_split_of(plan, prices), any(b.leg for b in plan.blocks)))
            return placement_of(plan, case.instance) if case is not None else None
        except CoraError:
            return None

    def plan(self) -> Plan:
        return self.finished(self.chosen())

    def given(self, placement: Placement, why: str) -> Plan:
        """The plan of a placement at hand, with as few cores as the request allows."""
        aim = self.asked.aim
        cores = aim.most if aim.rate is None else placement.cores_needed(aim.rate, aim.most, aim.room)
        if cores is None:
            raise refusing.no_plan(self.chooser, self.request.line_bps)
        self.chooser.unsplit = None
        case = Case(self.prices, placement.instance.variant, self.asked)
        return self.finished(Chosen(case, placement, cores, False), why)

    def finished(self, chosen: Chosen, why: str = "") -> Plan:
        """The checked document of what was chosen; ``why``: where it was not taken as the best."""
        placement, cores = chosen.placement, chosen.cores
        carried = max(self.carried(chosen), self.request.rate_pps or 0)
        if carried < 1:
            raise fail(Kind.NO_PLAN, "no plan carries a packet a second", hint="give the plan host cores: --cores 1")
        if self.request.rate_pps is None:
            needed = placement.cores_needed(carried, max(cores, int(placement.uses_host)), self.asked.aim.room)
            cores = cores if needed is None else needed
        rate = carried if self.request.rate_pps is None else self.request.rate_pps
        promise = Promise(Fraction(carried), cores, Fraction(self.request.headroom), self.request.max_latency_ns,
                          float(rate))
        check(placement, promise)
        told = Told(replace(chosen, cores=cores), rate, carried, why)
        return Teller(self.chooser, self.request, told, self.digest).document(self.front)

    def carried(self, chosen: Chosen) -> int:
        """Packets a second that are promised: whole ones, so that the exact check has no rounding to forgive."""
        placement, cores, room = chosen.placement, chosen.cores, self.asked.aim.room
        reached = placement.throughput(cores) * room
        if self.asked.latency is not None and self.request.rate_pps is None:
            reached = _within_latency(placement, cores, reached, self.asked.latency)
        return math.floor(min(reached * (1 - 1e-12), 1e15))

    def chosen(self) -> Chosen:
        try:
            found = self.chooser.quickly() if self.request.search == "fast" else self.chooser.best()
        except OutOfTime:
            found = self.fallback()
        if found is None:
            raise refusing.no_plan(self.chooser, self.request.line_bps)
        return replace(found, placement=settled(found.placement))

    def scale(self) -> float:
        """About the throughput to expect, so that the solver sees utilisations around 1."""
        cores = max(self.asked.aim.most, 1)
        rates = [p.throughput(cores) for p in self.whole.baselines.values() if p]
        return max((r for r in rates if 0 < r < math.inf), default=1e6)

    def fallback(self) -> Chosen:
        """The best of the simple placements, when the solver had no time to find any."""
        aim = self.asked.aim
        legal = [p for p in self.whole.baselines.values() if p is not None]
        best = min(legal, key=aim.key, default=None)
        if best is None or math.isinf(aim.key(best)[0]):
            raise fail(Kind.SOLVER, f"{self.request.solver} found no plan within {self.request.time_limit_s:g} s, and "
                                    "the simple placements do not reach what was asked",
                       hint="give it more time with --time-limit, or try the other --solver")
        cores = aim.most if aim.rate is None else best.cores_needed(aim.rate, aim.most, aim.room) or 0
        return Chosen(self.whole, best, cores, False)


def _within_latency(placement: Placement, cores: int, reached: float, limit: float) -> float:
    """The highest rate up to ``reached`` at which the mean packet takes at most ``limit`` ns."""
    low, high = 0.0, reached
    if placement.latency(cores, high).total <= limit:
        return high
    while low < high * (1 - 1e-9):
        middle = (low + high) / 2
        low, high = (middle, high) if placement.latency(cores, middle).total <= limit else (low, middle)
    return low


def settled(placement: Placement) -> Placement:
    """With code that was never seen to run where the code before it runs, if it may: the same choice every time.

    Ends of one flow stay together: all move if none was seen to run, else none.
    """
    instance, places = placement.instance, list(placement.assignment.places)
    allowed = instance.problem.allowed
    tied = {u for group in instance.problem.together for u in (*group.units, *group.lent)}
    before: dict[int, list[int]] = {}
    for edge in instance.graph.edges:
        before.setdefault(edge.target, []).append(edge.source)
    for number, node in enumerate(instance.graph.nodes):
        if node.packets or node.home is not None or node.accesses or number not in before or number in tied:
            continue
        reached = max(places[s] for s in before[number])
        places[number] = next((p for p in range(reached, len(instance.problem.physical)) if allowed[number, p]),
                              places[number])
    for group in instance.problem.together:
        _settle(instance, group, places, before)
    moved = replace(placement.assignment, places=tuple(places))
    if broken_rules(instance.problem, moved):
        return placement
    return Placement(instance, moved)


def _settle(instance: Instance, group: Together, places: list[int], before: Mapping[int, Sequence[int]]) -> None:
    """Move ends of one flow, none of which was seen to run, as near to the code before them as all of them may be."""
    nodes, allowed = instance.graph.nodes, instance.problem.allowed
    if any(nodes[u].packets or nodes[u].home is not None or nodes[u].accesses for u in group.units):
        return
    reached = max((places[s] for u in group.units for s in before.get(u, ())), default=0)
    there = next((p for p in range(reached, allowed.shape[1]) if allowed[list(group.units), p].all()), None)
    lent = {places[u] for u in group.lent} - {group.near}
    if there is None or lent - {there}:
        return
    for unit in group.units:
        places[unit] = there


__all__ = ["Asking", "Outcome", "digest_of", "instance_of", "model_digest", "placement_of", "plan", "verify_plan"]
