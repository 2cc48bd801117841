"""Planning: from a program, a profile and a target to a checked plan document."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from cora.analysis.accesses import STATE_KINDS
from cora.analysis.prefixes import Node
from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.nodes import Program, successors
from cora.models.parameters import Model
from cora.models.target import Target
from cora.partition import refusing
from cora.partition.baselines import NAMES, Aim, Rules, baseline
from cora.partition.costs import costs_of
from cora.partition.instance import Instance, Vector, build
from cora.partition.placement import (
    DEFAULT_HOST_CORES,
    Demands,
    Placement,
    check,
    cores_needed,
    demand_of,
    host_cycles,
    latency_of,
    rates_of_resources,
    throughput,
    utilisation,
)
from cora.partition.search import Found, OutOfTime, Search, settle
from cora.partition.search import Stage as Evidenced
from cora.partition.solver import SOLVERS, version_of
from cora.partition.uncertainty import FEW_SAMPLES, SAMPLES, Sampled, Sampler, band, load_of
from cora.partition.units import Units, units_of
from cora.plan.document import (
    Alternative,
    BlockPlacement,
    Crossing,
    Evidence,
    Figure,
    Move,
    PathClass,
    Plan,
    RefusedAt,
    Request,
    ResourceUse,
    Stage,
    StatePlacement,
    Steering,
)
from cora.plan.quantities import cores as host_cores
from cora.plan.quantities import mpps
from cora.plan.sources import source_of, verdict_of

# Throughputs that differ by less are the same: the tangent cuts promise no more.
_SAME = 1e-3
# Share of the throughput at which latency is told where no rate was asked for.
_BUSY = 0.9


def plan(program: Program, profile: Profile, target: Target, *, rate_pps: float | None = None,
         line_bps: int | None = None, cores: int | None = None, solver: str = "highs",
         time_limit: float = 10.0) -> Plan:
    """The best plan of a program for the traffic of a profile on a target.

    With ``rate_pps``: the fewest host cores that carry it (at most ``cores`` when given too), then the least host
    work, the most headroom, the least latency. With ``cores`` alone: the largest rate, then the same. ``line_bps`` is
    how the rate was asked, for messages: bits/s on the line.

    Raises:
        CoraError: `Kind.NO_PLAN` saying what cannot be met and what could be, `Kind.PROFILE_MISMATCH`,
            `Kind.BAD_FLAG` for a request that makes no sense, `Kind.SOLVER`, `Kind.PLAN_CHECK` (a defect of ours).
    """
    check_request(rate_pps, cores, solver, time_limit)
    instance = build(program, profile, target)
    rate = None if rate_pps is None else math.ceil(rate_pps)
    request = Request(rate, line_bps, cores, solver, time_limit)
    return _Planner(instance, request).plan()


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


def outcome(program: Program, profile: Profile, target: Target, request: Request) -> Outcome:
    """What `plan` would reach; a fraction of its work, for questions that plan many times.

    Raises:
        CoraError: as `plan`.
    """
    planner = _Planner(build(program, profile, target), request)
    found = settle(planner.instance, planner.found())
    reached = throughput(planner.instance, found.demand, found.cores)
    rate = reached if request.rate_pps is None else float(request.rate_pps)
    rows = planner.sampler.sampled(found.placement)
    return Outcome(reached, found.cores, tuple(_reach(s, planner.scales, found.cores) for s in rows),
                   host_cycles(planner.instance, found.demand, rate))


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
            raise fail(Kind.PLAN_CHECK, f"the plan is for another {what}", hint="make the plan again")
    instance = build(program, profile, target)
    placement = placement_of(plan, instance)
    check(instance, placement, Demands(Fraction(plan.throughput_pps), plan.cores))
    loads = utilisation(instance, demand_of(instance, placement), plan.cores, _planned_rate(plan.request, plan))
    for row, load in zip(plan.resources, loads, strict=False):
        if not math.isclose(row.utilisation, float(load), rel_tol=1e-4, abs_tol=1e-9):
            raise fail(Kind.PLAN_CHECK, f"the plan says {row.utilisation:.4g} of {row.name} is used, it is {load:.4g}",
                       hint="make the plan again")
    if plan.request.rate_pps is not None and plan.throughput_pps < plan.request.rate_pps:
        raise fail(Kind.PLAN_CHECK, f"the plan reaches {plan.throughput_pps} packets/s, asked were "
                                    f"{plan.request.rate_pps}", hint="make the plan again")


def placement_of(plan: Plan, instance: Instance) -> Placement:
    """The placement a document stands for.

    Raises:
        CoraError: `Kind.PLAN_CHECK` when its blocks are not those of the instance.
    """
    known = {(n.label, n.piece.part, n.history, n.via, n.lent): i for i, n in enumerate(instance.graph.nodes)}
    places = {name: i for i, name in enumerate(plan.places)}
    nodes = [-1] * len(known)
    for b in plan.blocks:
        number = known.get((b.block, b.part, b.history, b.via, b.lent))
        if number is None:
            raise fail(Kind.PLAN_CHECK, f"the plan places block {b.block} in a class the program does not have")
        nodes[number] = places[b.place]
    if plan.places != tuple(p.name for p in instance.target.places):
        raise fail(Kind.PLAN_CHECK, f"the plan's places are {', '.join(plan.places)}, not those of {plan.target}")
    return Placement({s.name: (places[s.place], s.tier) for s in plan.states}, tuple(nodes))


def _planned_rate(request: Request, plan: Plan) -> int:
    return plan.throughput_pps if request.rate_pps is None else request.rate_pps


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


def digest_of(profile: Profile) -> str:
    """SHA-256 of a profile document."""
    return hashlib.sha256(profile.to_json().encode()).hexdigest()


def model_digest(model: Model) -> str:
    """SHA-256 over every parameter's value and band: a plan made with other figures is another plan."""
    rows = "\n".join(f"{p.name} {p.value!r} {p.low!r} {p.high!r}" for p in sorted(model, key=lambda p: p.name))
    return hashlib.sha256(rows.encode()).hexdigest()


def _rounded(value: float) -> float:
    """Six significant digits: what a model can at most stand for, and no noise in diffs."""
    return float(f"{value:.6g}")


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else _rounded(value)


@dataclass(frozen=True)
class _Chosen:
    """The placement a plan is made of, with what the search can say for it."""

    found: Found
    stages: tuple[Evidenced, ...]
    rate: int
    throughput: int


@dataclass(frozen=True)
class _Cost:
    """Another placement with the cores it takes, what it carries with the cores compared with, and what with the most.

    ``most``: words before the throughput, where others may carry less.
    """

    placement: Placement
    cores: int | None
    reach: float
    limit: float
    most: str = ""


class _Planner:
    def __init__(self, instance: Instance, request: Request) -> None:
        self.instance = instance
        self.request = request
        self.units: Units = units_of(instance)
        most = request.cores if request.cores is not None else DEFAULT_HOST_CORES
        self.aim = Aim(request.rate_pps, request.cores, most)
        self.rules = Rules(instance, self.units, self.aim)
        refusing.refuse_what_fits_nowhere(instance, self.units)
        self.baselines = {name: baseline(self.rules, name) for name in NAMES}
        self.sampler = Sampler(instance)
        self.others: list[Placement] = []
        self.moved: dict[tuple[int, int], tuple[list[Placement], bool]] = {}
        known = [demand_of(instance, p) for p in self.baselines.values() if p is not None]
        self.search = Search(instance, self.units, request.solver, request.time_limit_s, known=known)

    def plan(self) -> Plan:
        found = self.found()
        found = settle(self.instance, found)
        reached = throughput(self.instance, found.demand, found.cores)
        # Whole packets, so that the exact check has no rounding to forgive.
        carried = max(math.floor(min(reached * (1 - 1e-12), 1e15)), self.request.rate_pps or 0)
        if carried < 1:
            raise fail(Kind.NO_PLAN, "no plan carries a packet a second", hint="give the plan host cores: --cores 1")
        rate = carried if self.request.rate_pps is None else self.request.rate_pps
        if self.request.rate_pps is None:
            least = int(found.placement.uses(self.instance.last))
            needed = cores_needed(self.instance, found.demand, carried, least, max(found.cores, least))
            found = replace(found, cores=found.cores if needed is None else needed)
        check(self.instance, found.placement, Demands(Fraction(carried), found.cores))
        return self.document(_Chosen(found, tuple(self.search.stages), rate, carried))

    def found(self) -> Found:
        request = self.request
        try:
            if request.rate_pps is not None:
                found = self.search.for_rate(request.rate_pps, self.aim.most)
            else:
                found = self.search.for_cores(self.aim.most, self.scale())
        except OutOfTime:
            return self.fallback()
        if found is None:
            raise refusing.no_plan(self.search, self.aim, self.scale(), self.request.line_bps)
        return found

    def scale(self) -> float:
        """About the throughput to expect, so that the solver sees utilisations around 1."""
        cores = max(self.aim.most, 1)
        rates = [throughput(self.instance, demand_of(self.instance, p), cores) for p in self.baselines.values() if p]
        return max((r for r in rates if 0 < r < math.inf), default=1e6)

    def fallback(self) -> Found:
        """The best of the simple placements, when the solver had no time to find any."""
        legal = [p for p in self.baselines.values() if p is not None]
        best = min(legal, key=self.rules.key, default=None)
        if best is None or math.isinf(self.rules.key(best)[0]):
            raise fail(Kind.SOLVER, f"{self.request.solver} found no plan within {self.request.time_limit_s:g} s, and "
                                    "the simple placements do not reach what was asked",
                       hint="give it more time with --time-limit, or try the other --solver")
        demand = demand_of(self.instance, best)
        cores = self.aim.most
        if self.aim.rate is not None:
            least = int(best.uses(self.instance.last))
            cores = cores_needed(self.instance, demand, self.aim.rate, least, self.aim.most) or 0
        return Found(best, demand, cores, False)

    # The document.

    def document(self, chosen: _Chosen) -> Plan:
        instance, target, placement = self.instance, self.instance.target, chosen.found.placement
        resources = self.resources(chosen)
        second = self.second(chosen)
        others = [*self.baselines.items(), *([("second best", second)] if second else [])]
        self.others = [p for _, p in others if p is not None]
        rows = self.sampler.sampled(placement)
        classes = self.classes(placement)
        refusals = tuple(RefusedAt(r.subject, r.place, r.reason, source_of(r.span) if r.span else None)
                         for r in instance.refusals)
        return Plan(
            program=instance.program.name,
            program_hash=instance.profile.program_hash,
            target=target.name,
            model_version=target.model.version,
            model_digest=model_digest(target.model),
            card=target.model.card,
            host_model=target.model.host,
            profile_digest=digest_of(instance.profile),
            profile_packets=instance.profile.packets,
            mean_frame=_rounded(instance.profile.mean_frame),
            request=self.request,
            places=tuple(p.name for p in target.places),
            cores=chosen.found.cores,
            throughput_pps=chosen.throughput,
            figures=self.figures(chosen, rows),
            samples=len(rows),
            samples_met=self.met(rows, chosen),
            binding=max(resources, key=lambda r: r.utilisation).name if resources else "",
            states=tuple(self.state(name, chosen) for name in instance.options),
            steering=(Steering("all", (), (0.0, 1.0), float(placement.nodes[0] < max(instance.last, 1))),),
            classes=classes,
            costs=costs_of(instance, placement, classes),
            crossings=self.crossings(placement),
            blocks=tuple(self.block(n, p) for n, p in zip(instance.graph.nodes, placement.nodes, strict=True)),
            resources=resources,
            alternatives=tuple(self.alternative(name, p, chosen) for name, p in others),
            refusals=refusals,
            evidence=self.evidence(chosen),
        )

    def name(self, place: int) -> str:
        return self.instance.target.places[place].name

    def resources(self, chosen: _Chosen) -> tuple[ResourceUse, ...]:
        instance, found = self.instance, chosen.found
        loads = utilisation(instance, found.demand, found.cores, chosen.rate)
        rates = rates_of_resources(instance, found.cores)
        return tuple(ResourceUse(r.name, r.place, r.unit, _rounded(d), _rounded(rate), _rounded(load))
                     for r, d, rate, load in zip(instance.resources, found.demand, rates, loads, strict=False))

    def block(self, node: Node, place: int) -> BlockPlacement:
        share = _rounded(node.packets / self.instance.graph.packets)
        return BlockPlacement(node.label, node.piece.part, node.piece.start, node.piece.block.span.line, node.history,
                              node.via, node.lent, self.name(place), share)

    def classes(self, placement: Placement) -> tuple[PathClass, ...]:
        """Histories and verdicts, the most frequent first; ends that differ only in the way in are added up."""
        shares: dict[tuple[tuple[str, ...], str, str], int] = {}
        for node, place in zip(self.instance.graph.nodes, placement.nodes, strict=True):
            if node.packets and node.piece.last and node.history is not None and _leaves(node):
                key = (node.history, verdict_of(node.piece.block.terminator), self.name(place))
                shares[key] = shares.get(key, 0) + node.packets
        rows = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        start = self.name(placement.nodes[0])
        return tuple(PathClass(history, verdict, _rounded(packets / self.instance.graph.packets), start, end)
                     for (history, verdict, end), packets in rows)

    def crossings(self, placement: Placement) -> tuple[Crossing, ...]:
        found = []
        nodes = self.instance.graph.nodes
        for edge in self.instance.graph.edges:
            start, stop = placement.nodes[edge.source], placement.nodes[edge.target]
            if start != stop:
                source = nodes[edge.source]
                found.append(Crossing(source.label, nodes[edge.target].label, edge.outcome, source.history,
                                      self.name(start), self.name(stop),
                                      _rounded(edge.packets / self.instance.graph.packets),
                                      tuple(v.name for v in edge.live), edge.live_bytes))
        return tuple(sorted(found, key=lambda c: -c.share))

    def state(self, name: str, chosen: _Chosen) -> StatePlacement:
        instance, placement = self.instance, chosen.found.placement
        state = instance.program.state(name)
        place, tier = placement.states[name]
        option = instance.option(name, place, tier)
        assert option is not None, "the exact check has passed"
        rates = instance.rates[name]
        moves = tuple(self.move(name, p, chosen) for p in range(instance.last + 1) if p != place)
        return StatePlacement(
            name, STATE_KINDS[type(state)], "whole", self.name(place), tier, option.amount,
            next(t.unit for t in instance.target.places[place].tiers if t.name == tier), None, (),
            rates.entry_bytes, rates.entries, rates.working_set, _rounded(rates.hottest),
            {kind: _rounded(n) for (s, kind), n in instance.access_counts.items() if s == name and n},
            _rounded(self.rules.accesses(name)), _rounded(rates.updates), self.reason(moves), moves,
            source_of(state.span),
        )

    def move(self, name: str, place: int, chosen: _Chosen) -> Move:
        """The best there is with a state elsewhere: of the search for it, and of every placement at hand."""
        instance = self.instance
        found, in_time = self.elsewhere(self.units.of_state[name], place, chosen)
        near = self.rules.moved(chosen.found.placement, name, place)
        there = [p for p in (*found, *self.others, *([near] if near else [])) if p.states[name][0] == place]
        if not there:
            why = refusing.why_not(instance, self.units, name, place) if in_time else "not found within the time limit"
            return Move(self.name(place), False, (), None, None, why)
        cores = self.given(chosen)
        reached = [self.reach(p, demand_of(instance, p), cores) for p in there]
        reach = max(reached)
        along = [self.along(name, p, chosen) for p in there]
        # Of those that are as good, the one that changes least.
        numbers = range(len(there))
        fastest = min((i for i in numbers if reached[i] >= reach * (1 - _SAME)), key=lambda i: len(along[i]))
        best = fastest
        if self.request.rate_pps is not None:
            keys = [self.rules.key(p) for p in there]
            best = min(numbers, key=lambda i: (keys[i][0], _rounded(keys[i][1]), len(along[i])))
        needed = self.needed(there[best], demand_of(instance, there[best]))
        told = fastest if needed is None else best
        limit = max(self.limit(demand_of(instance, p)) for p in there)
        return Move(self.name(place), True, along[told], needed, _finite(reach),
                    self.cost(_Cost(there[best], needed, reach, limit, "at most "), chosen))

    @staticmethod
    def along(name: str, placement: Placement, chosen: _Chosen) -> tuple[str, ...]:
        """The states, besides one, that a placement keeps at another place than the plan does."""
        kept = chosen.found.placement.states
        return tuple(s for s, (place, _) in placement.states.items() if s != name and place != kept[s][0])

    def elsewhere(self, unit: int, place: int, chosen: _Chosen) -> tuple[list[Placement], bool]:
        """The search's best placements with a unit at a place, and whether there was time for it."""
        if not self.units.allowed[unit, place]:
            return [], True
        if (unit, place) not in self.moved:
            self.moved[unit, place] = self.search.elsewhere(unit, place, self.aim, self.given(chosen), self.scale())
        return self.moved[unit, place]

    def given(self, chosen: _Chosen) -> int:
        """Host cores that placements are compared with: the plan's, or those given where no rate was asked for."""
        return chosen.found.cores if self.request.rate_pps is not None else self.aim.most

    def needed(self, placement: Placement, demand: Vector) -> int | None:
        if self.request.rate_pps is None:
            return None
        least = int(placement.uses(self.instance.last))
        return cores_needed(self.instance, demand, self.request.rate_pps, least, self.aim.most)

    def reach(self, placement: Placement, demand: Vector, cores: int) -> float:
        return throughput(self.instance, demand, max(cores, int(placement.uses(self.instance.last))))

    def cost(self, other: _Cost, chosen: _Chosen) -> str:
        """What another placement costs, as a sentence."""
        rate, placement = self.request.rate_pps, other.placement
        demand = demand_of(self.instance, placement)
        if rate is not None and other.cores is None:
            return f"the rate would be out of reach: at most {mpps(other.limit)} with {host_cores(self.aim.most)}"
        if rate is not None and other.cores is not None and other.cores != chosen.found.cores:
            return f"it would take {host_cores(other.cores)} instead of {chosen.found.cores}"
        same = math.isclose(other.reach, chosen.throughput, rel_tol=_SAME)
        now, then = (host_cycles(self.instance, d, chosen.rate) for d in (chosen.found.demand, demand))
        if (rate is not None or same) and round(then, 2) > round(now, 2):
            return f"the host would do {then:.2f} instead of {now:.2f} cores' work"
        if same and rate is None and chosen.found.cores == 0 and placement.uses(self.instance.last):
            return "it would carry as much, but need a host core"
        if same:
            return "it would do as well, as far as the model can tell"
        return f"the plan would carry {other.most}{mpps(other.reach)} instead of {mpps(chosen.throughput)}"

    def limit(self, demand: Vector) -> float:
        return throughput(self.instance, demand, self.aim.most)

    def reason(self, moves: Sequence[Move]) -> str:
        possible = [m for m in moves if m.possible]
        if not possible and moves:
            return "the only place that can keep it: " + "; ".join(f"{m.place}: {m.reason}" for m in moves)
        if not moves:
            return "the target has one place only"
        return "; ".join(f"if it were at {m.where}, {m.reason}" for m in possible)

    def figures(self, chosen: _Chosen, rows: Sequence[Sampled]) -> tuple[Figure, ...]:
        instance, found = self.instance, chosen.found
        scales = self.scales
        reach = [_reach(s, scales, found.cores) for s in rows]
        made = [_figure("throughput", float(chosen.throughput), reach, "packets/s"),
                _figure("host work", host_cycles(instance, found.demand, chosen.rate),
                        [_host(s, scales, chosen.rate) for s in rows], "cores"),
                _figure("unloaded latency", float(found.demand[-1]), [float(s.demand[-1]) for s in rows], "ns"),
                self.latency(chosen, rows, reach)]
        if self.request.rate_pps is not None:
            least = int(found.placement.uses(instance.last))
            made.insert(0, _figure("host cores", float(found.cores),
                                   [_cores(s, scales, least, chosen.rate) for s in rows], "cores"))
        return tuple(made)

    def latency(self, chosen: _Chosen, rows: Sequence[Sampled], reach: Sequence[float]) -> Figure:
        """At the asked rate; else at a share of the throughput, each sample's own: at all of it queues are full."""
        instance, found = self.instance, chosen.found
        if self.request.rate_pps is not None:
            name, rates = "latency at the asked rate", [float(chosen.rate)] * len(rows)
            rate = float(chosen.rate)
        else:
            name, rates = f"latency at {100 * _BUSY:.0f} % of the throughput", [_BUSY * x for x in reach]
            rate = _BUSY * chosen.throughput
        return _figure(name, latency_of(instance, found.demand, found.cores, rate).total,
                       [_latency(instance, s, found.cores, x) for s, x in zip(rows, rates, strict=True)], "ns")

    @cached_property
    def scales(self) -> list[bool]:
        return [r.scales for r in self.instance.resources]

    def met(self, rows: Sequence[Sampled], chosen: _Chosen) -> int | None:
        """In how many samples the plan carries the asked rate with its cores."""
        if self.request.rate_pps is None:
            return None
        return sum(load_of(s, self.scales, chosen.found.cores, chosen.rate) <= 1 for s in rows)

    def second(self, chosen: _Chosen) -> Placement | None:
        """The best plan that keeps at least one state at another place."""
        if not self.instance.options:
            return None
        model = self.search.formulation(chosen.rate, self.aim.most)
        try:
            return self.search.other(model, self.aim, chosen.found.placement)
        except OutOfTime:
            return None

    def alternative(self, name: str, placement: Placement | None, chosen: _Chosen) -> Alternative:
        if placement is None:
            return Alternative(name, False, None, None, None, None, None, None, None, None, None, {},
                               f"not possible on {self.instance.target.name}")
        demand = demand_of(self.instance, placement)
        cores = self.needed(placement, demand)
        least = int(placement.uses(self.instance.last))
        given = max(self.given(chosen), least)
        reach = self.reach(placement, demand, given)
        rows = self.sampler.sampled(placement, FEW_SAMPLES)
        reached = [_reach(s, self.scales, given) for s in rows]
        low, high = band(reached)
        few, many = self.cores_band(rows, least, chosen)
        same = placement.states == chosen.found.placement.states and placement.nodes == chosen.found.placement.nodes
        note = "the plan itself" if same else self.cost(_Cost(placement, cores, reach, self.limit(demand)), chosen)
        kept = {s: f"{self.name(p)}/{t}" for s, (p, t) in placement.states.items()}
        worse, better = self.ratio_band(reached, chosen)
        return Alternative(name, True, cores, few, many, _finite(host_cycles(self.instance, demand, chosen.rate)),
                           _finite(reach), _finite(low), _finite(high), worse, better, kept, note)

    def cores_band(self, rows: Sequence[Sampled], least: int, chosen: _Chosen) -> tuple[float | None, float | None]:
        """P10 and P90 of the cores that carry the asked rate; None where it is out of reach or none was asked for."""
        if self.request.rate_pps is None:
            return None, None
        low, high = band([_cores(s, self.scales, least, chosen.rate) for s in rows])
        return _finite(low), _finite(high)

    def ratio_band(self, reached: Sequence[float], chosen: _Chosen) -> tuple[float | None, float | None]:
        """P10 and P90 of the plan's throughput, with its cores, divided by another one's, sample by sample."""
        found = chosen.found
        cores = max(self.given(chosen), int(found.placement.uses(self.instance.last)))
        own = [_reach(s, self.scales, cores) for s in self.sampler.sampled(found.placement, FEW_SAMPLES)]
        pairs = [(a, b) for a, b in zip(own, reached, strict=True) if b > 0 and not math.isinf(a) and not math.isinf(b)]
        if not pairs:
            return None, None
        low, high = band([a / b for a, b in pairs])
        return _finite(low), _finite(high)

    def evidence(self, chosen: _Chosen) -> Evidence:
        stages = tuple(Stage(s.goal, s.status, _rounded(s.objective), _finite(s.bound), _finite(s.gap),
                             round(s.seconds, 4), s.solves) for s in chosen.stages)
        first = self.headline(chosen)
        return Evidence(version_of(self.request.solver), first.status, first.goal, first.objective, first.bound,
                        first.gap, round(sum(s.seconds for s in stages), 4), self.search.variables, self.search.rows,
                        stages, "passed")

    def headline(self, chosen: _Chosen) -> Stage:
        """The first goal in the user's terms: cores, or packets a second (where a bound is from above)."""
        seconds = sum(s.seconds for s in chosen.stages)
        if not chosen.stages or not chosen.found.proven:
            goal = "throughput" if self.request.rate_pps is None else "host cores"
            value = float(chosen.throughput if self.request.rate_pps is None else chosen.found.cores)
            bound = self.bound(chosen)
            gap = None if bound is None else abs(value - bound) / max(abs(value), 1e-12)
            return Stage(goal, "feasible: the time limit ended the search", value, bound, _finite(gap), seconds, 0)
        if self.request.rate_pps is not None:
            cores = float(chosen.found.cores)
            return Stage("host cores", "optimal", cores, cores, 0.0, seconds, 0)
        bound = self.bound(chosen)
        gap = None if bound is None else max(0.0, bound - chosen.throughput) / chosen.throughput
        return Stage("throughput", "optimal", float(chosen.throughput), _finite(bound), _finite(gap), seconds, 0)

    def bound(self, chosen: _Chosen) -> float | None:
        if self.request.rate_pps is not None or not chosen.stages or not chosen.stages[0].bound:
            return None
        return self.search.scale / chosen.stages[0].bound


def _leaves(node: Node) -> bool:
    return not successors(node.piece.block.terminator)


def _reach(sample: Sampled, scales: Sequence[bool], cores: int) -> float:
    load = load_of(sample, scales, cores, 1.0)
    return 1.0 / load if load else math.inf


def _figure(name: str, value: float, values: Sequence[float], unit: str) -> Figure:
    assert len(values) == SAMPLES
    low, high = band(values)
    return Figure(name, _finite(value), _finite(low), _finite(high), unit, "predicted")


def _host(sample: Sampled, scales: Sequence[bool], rate: float) -> float:
    return max((float(d) * rate / float(r) for d, r, s in zip(sample.demand, sample.rates, scales, strict=False) if s),
               default=0.0)


def _cores(sample: Sampled, scales: Sequence[bool], least: int, rate: float) -> float:
    low, high = least, 2 * DEFAULT_HOST_CORES
    if load_of(sample, scales, high, rate) > 1:
        return math.inf
    while low < high:
        middle = (low + high) // 2
        if load_of(sample, scales, middle, rate) <= 1:
            high = middle
        else:
            low = middle + 1
    return float(low)


def _latency(instance: Instance, sample: Sampled, cores: int, rate: float) -> float:
    from cora.models.latency import latency

    rows = [replace(r, rate=float(x)) for r, x in zip(instance.resources, sample.rates, strict=True)]
    used: Mapping[str, float] = {r.name: float(d) for r, d in zip(rows, sample.demand, strict=False)}
    return latency(float(sample.demand[-1]), used, rows, rate, cores).total
