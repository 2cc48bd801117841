"""Planning: from a program, a profile and a target to a checked plan document."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from cora.analysis.accesses import STATE_KINDS
from cora.analysis.prefixes import Node
from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.nodes import Program
from cora.ir.span import Span
from cora.ir.text import print_node
from cora.models.parameters import Model
from cora.models.target import Target
from cora.partition import refusing
from cora.partition.baselines import NAMES, Aim, Rules, baseline
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
from cora.partition.uncertainty import SAMPLES, Sampled, band, load_of, sampled
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
    Source,
    Stage,
    StatePlacement,
    Steering,
)

# Throughputs that differ by less are the same: the tangent cuts promise no more.
_SAME = 1e-3


def plan(program: Program, profile: Profile, target: Target, *, rate_pps: float | None = None,
         cores: int | None = None, solver: str = "highs", time_limit: float = 10.0) -> Plan:
    """The best plan of a program for the traffic of a profile on a target.

    With ``rate_pps``: the fewest host cores that carry it (at most ``cores`` when given too), then the least host
    work, the most headroom, the least latency. With ``cores`` alone: the largest rate, then the same.

    Raises:
        CoraError: `Kind.NO_PLAN` saying what cannot be met and what could be, `Kind.PROFILE_MISMATCH`,
            `Kind.BAD_FLAG` for a request that makes no sense, `Kind.SOLVER`, `Kind.PLAN_CHECK` (a defect of ours).
    """
    check_request(rate_pps, cores, solver, time_limit)
    instance = build(program, profile, target)
    rate = None if rate_pps is None else math.ceil(rate_pps)
    request = Request(rate, cores, solver, time_limit)
    return _Planner(instance, request).plan()


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
    known = {(n.label, n.piece.part, n.history, n.via): i for i, n in enumerate(instance.graph.nodes)}
    places = {name: i for i, name in enumerate(plan.places)}
    nodes = [-1] * len(known)
    for b in plan.blocks:
        number = known.get((b.block, b.part, b.history, b.via))
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


@lru_cache(maxsize=16)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def source_of(span: Span) -> Source:
    """A span with the text of its line, empty where the file cannot be read."""
    lines = _lines(span.file)
    text = lines[span.line - 1].strip() if 1 <= span.line <= len(lines) else ""
    return Source(span.file, span.line, span.column, text)


@dataclass(frozen=True)
class _Chosen:
    """The placement a plan is made of, with what the search can say for it."""

    found: Found
    stages: tuple[Evidenced, ...]
    rate: int
    throughput: int


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
            raise refusing.no_plan(self.search, self.aim, self.scale())
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
        refusals = tuple(RefusedAt(r.subject, r.place, r.reason, source_of(r.span) if r.span else None)
                         for r in instance.refusals)
        return Plan(
            program=instance.program.name,
            program_hash=instance.profile.program_hash,
            target=target.name,
            model_version=target.model.version,
            model_digest=model_digest(target.model),
            profile_digest=digest_of(instance.profile),
            profile_packets=instance.profile.packets,
            mean_frame=_rounded(instance.profile.mean_frame),
            request=self.request,
            places=tuple(p.name for p in target.places),
            cores=chosen.found.cores,
            throughput_pps=chosen.throughput,
            figures=self.figures(chosen),
            binding=max(resources, key=lambda r: r.utilisation).name if resources else "",
            states=tuple(self.state(name, chosen) for name in instance.options),
            steering=(Steering("all", (), (0.0, 1.0), float(placement.nodes[0] < max(instance.last, 1))),),
            classes=self.classes(placement),
            crossings=self.crossings(placement),
            blocks=tuple(self.block(n, p) for n, p in zip(instance.graph.nodes, placement.nodes, strict=True)),
            resources=resources,
            alternatives=self.alternatives(chosen),
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
        return BlockPlacement(node.label, node.piece.part, node.piece.start, node.history, node.via, self.name(place),
                              _rounded(node.packets / self.instance.graph.packets))

    def classes(self, placement: Placement) -> tuple[PathClass, ...]:
        """Histories and verdicts, the most frequent first; ends that differ only in the way in are added up."""
        shares: dict[tuple[tuple[str, ...], str, str], int] = {}
        for node, place in zip(self.instance.graph.nodes, placement.nodes, strict=True):
            if node.packets and node.piece.last and node.history is not None and _leaves(node):
                key = (node.history, print_node(node.piece.block.terminator), self.name(place))
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
            name, STATE_KINDS[type(state)], self.name(place), tier, option.amount,
            next(t.unit for t in instance.target.places[place].tiers if t.name == tier),
            rates.entry_bytes, rates.entries, rates.working_set, _rounded(rates.hottest),
            _rounded(self.rules.accesses(name)), _rounded(rates.updates), self.reason(moves, chosen), moves,
            source_of(state.span),
        )

    def move(self, name: str, place: int, chosen: _Chosen) -> Move:
        instance = self.instance
        moved = self.rules.moved(chosen.found.placement, name, place)
        if moved is None:
            return Move(self.name(place), False, None, None, refusing.why_not(instance, self.units, name, place))
        demand = demand_of(instance, moved)
        cores = self.needed(moved, demand)
        reach = self.reach(moved, demand, chosen.found.cores)
        others = [s for s, kept in moved.states.items() if s != name and kept[0] != chosen.found.placement.states[s][0]]
        along = f"together with {', '.join(others)} " if others else ""
        return Move(self.name(place), True, cores, _finite(reach), along + self.cost(cores, reach, demand, chosen))

    def needed(self, placement: Placement, demand: Vector) -> int | None:
        if self.request.rate_pps is None:
            return None
        least = int(placement.uses(self.instance.last))
        return cores_needed(self.instance, demand, self.request.rate_pps, least, self.aim.most)

    def reach(self, placement: Placement, demand: Vector, cores: int) -> float:
        return throughput(self.instance, demand, max(cores, int(placement.uses(self.instance.last))))

    def cost(self, cores: int | None, reach: float, demand: Vector, chosen: _Chosen) -> str:
        """What a change costs, as the end of "there ..."."""
        rate = self.request.rate_pps
        if rate is not None and cores is None:
            return f"the rate would be out of reach: at most {_mpps(self.limit(demand))}"
        if rate is not None and cores is not None and cores != chosen.found.cores:
            return f"it would take {cores} host core{'' if cores == 1 else 's'} instead of {chosen.found.cores}"
        if rate is not None:
            now = host_cycles(self.instance, chosen.found.demand, rate)
            then = host_cycles(self.instance, demand, rate)
            if then > now * 1.001 + 1e-6:
                return f"the host would do {then:.2f} instead of {now:.2f} cores' work"
        if math.isclose(reach, chosen.throughput, rel_tol=_SAME):
            return "it would do as well, as far as the model can tell"
        return f"the plan would carry {_mpps(reach)} instead of {_mpps(chosen.throughput)}"

    def limit(self, demand: Vector) -> float:
        return throughput(self.instance, demand, self.aim.most)

    def reason(self, moves: Sequence[Move], chosen: _Chosen) -> str:
        possible = [m for m in moves if m.possible]
        if not possible and moves:
            return "the only place that can keep it: " + "; ".join(f"{m.place}: {m.reason}" for m in moves)
        if not moves:
            return "the target has one place only"
        return "; ".join(f"at {m.place} {m.reason}" for m in possible)

    def figures(self, chosen: _Chosen) -> tuple[Figure, ...]:
        instance, found = self.instance, chosen.found
        scales = [r.scales for r in instance.resources]
        rows = sampled(instance, found.placement)
        reach = [1.0 / load if (load := load_of(s, scales, found.cores, 1.0)) else math.inf for s in rows]
        latency = latency_of(instance, found.demand, found.cores, chosen.rate)
        made = [_figure("throughput", float(chosen.throughput), reach, "packets/s"),
                _figure("host work", host_cycles(instance, found.demand, chosen.rate),
                        [_host(s, scales, chosen.rate) for s in rows], "cores"),
                _figure("unloaded latency", float(found.demand[-1]), [float(s.demand[-1]) for s in rows], "ns"),
                _figure("latency", latency.total,
                        [_latency(instance, s, found.cores, chosen.rate) for s in rows], "ns")]
        if self.request.rate_pps is not None:
            least = int(found.placement.uses(instance.last))
            made.insert(0, _figure("host cores", float(found.cores),
                                   [_cores(s, scales, least, chosen.rate) for s in rows], "cores"))
        return tuple(made)

    def alternatives(self, chosen: _Chosen) -> tuple[Alternative, ...]:
        found = [self.alternative(name, placement, chosen) for name, placement in self.baselines.items()]
        second = self.second(chosen)
        return (*found, *([self.alternative("second best", second, chosen)] if second else []))

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
            return Alternative(name, False, None, None, None, {}, f"not possible on {self.instance.target.name}")
        demand = demand_of(self.instance, placement)
        cores = self.needed(placement, demand)
        reach = self.reach(placement, demand, chosen.found.cores)
        same = placement.states == chosen.found.placement.states and placement.nodes == chosen.found.placement.nodes
        note = "the plan itself" if same else self.cost(cores, reach, demand, chosen)
        kept = {s: f"{self.name(p)}/{t}" for s, (p, t) in placement.states.items()}
        return Alternative(name, True, cores, _finite(host_cycles(self.instance, demand, chosen.rate)), _finite(reach),
                           kept, note)

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
    from cora.ir.nodes import successors

    return not successors(node.piece.block.terminator)


def _mpps(rate: float) -> str:
    return f"{rate / 1e6:.2f} Mpps" if math.isfinite(rate) else "any rate"


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
    from dataclasses import replace

    from cora.models.latency import latency

    rows = [replace(r, rate=float(x)) for r, x in zip(instance.resources, sample.rates, strict=True)]
    used: Mapping[str, float] = {r.name: float(d) for r, d in zip(rows, sample.demand, strict=False)}
    return latency(float(sample.demand[-1]), used, rows, rate, cores).total
