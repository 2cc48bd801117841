"""The plan document of a chosen placement: where everything is, why, and what else there would be."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cora.analysis.accesses import STATE_KINDS
from cora.analysis.order import OrderedEnds, order_clause, ordered_ends
from cora.analysis.prefixes import lent_name
from cora.analysis.sharding import align, sharding_of
from cora.ir.nodes import MapState, MeterState, State, successors
from cora.models.latency import latency
from cora.partition import refusing
from cora.partition.baselines import Aim
from cora.partition.choosing import Chooser, Chosen, alike
from cora.partition.copies import copied_states
from cora.partition.costs import costs_of
from cora.partition.digests import model_digest
from cora.partition.evaluate import DEFAULT_HOST_CORES
from cora.partition.instance import Instance
from cora.partition.integer import Limits, Setting
from cora.partition.optimise import OutOfTime
from cora.partition.optimise import Stage as Evidenced
from cora.partition.placement import Placement, rates_of_resources
from cora.partition.problem import Problem
from cora.partition.solver import version_of
from cora.partition.uncertainty import FEW_SAMPLES, SAMPLES, Sampled, Sampler, band, load_of
from cora.partition.variants import Lend, Split
from cora.plan.document import (
    Alternative,
    BlockPlacement,
    Copy,
    Crossing,
    Evidence,
    Figure,
    FrontPoint,
    Lent,
    Move,
    PathClass,
    Plan,
    Point,
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
SAME = 1e-3
# Share of the throughput at which latency is told where no rate was asked for.
_BUSY = 0.9
# Host cores of the Pareto front: beyond those of the plan, and at most.
_MORE_CORES, _MOST_CORES = 2, 8
# Reasons told why packets are not on the fast path.
_REASONS = 3


@dataclass(frozen=True)
class Told:
    """What the plan is of: its placement and cores, the rate it is for, and the packets/s that were checked.

    ``why``: why this placement was taken, where it is not as the best.
    """

    chosen: Chosen
    rate: int
    throughput: int
    why: str = ""

    @property
    def placement(self) -> Placement:
        return self.chosen.placement

    @property
    def cores(self) -> int:
        return self.chosen.cores


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


class Teller:
    """Makes the document."""

    def __init__(self, chooser: Chooser, request: Request, told: Told, profile_digest: str) -> None:
        self.profile_digest = profile_digest
        self.chooser, self.request, self.told = chooser, request, told
        self.prices = chooser.prices
        self.placement = told.placement
        self.instance: Instance = told.placement.instance
        self.target = self.instance.target
        self.whole = chooser.whole
        self.sampler = Sampler(self.whole.instance)
        self.moved: dict[tuple[str, int], tuple[list[Placement], bool]] = {}

    @property
    def aim(self) -> Aim:
        return self.chooser.aim

    @property
    def split(self) -> Split | None:
        return self.instance.variant.split

    def document(self, front: bool = False) -> Plan:
        instance, target, placement = self.instance, self.target, self.placement
        resources = self.resources()
        rows = self.sampler.sampled(placement)
        classes = self.classes()
        steering = tuple(self.steering())
        states = tuple(self.state(s) for s in instance.program.states)
        profile = instance.profile
        refusals = tuple(RefusedAt(r.subject, r.place, r.reason, source_of(r.span) if r.span else None)
                         for r in self.prices.refusals.values())
        return Plan(
            program=instance.program.name,
            program_hash=profile.program_hash,
            target=target.name,
            model_version=target.model.version,
            model_digest=model_digest(target.model),
            card=target.model.card,
            host_model=target.model.host,
            profile_digest=self.profile_digest,
            profile_packets=profile.packets,
            mean_frame=_rounded(profile.mean_frame),
            request=self.request,
            places=tuple(p.name for p in target.places),
            cores=self.told.cores,
            throughput_pps=self.told.throughput,
            figures=self.figures(rows),
            samples=len(rows),
            samples_met=self.met(rows),
            binding=max(resources, key=lambda r: r.utilisation).name if resources else "",
            states=states,
            steering=steering,
            classes=classes,
            costs=costs_of(placement, classes),
            crossings=self.crossings(),
            blocks=self.blocks(),
            resources=resources,
            alternatives=tuple(self.alternative(name, p) for name, p in self.others),
            pareto=tuple(self.pareto()) if front else (),
            refusals=refusals,
            evidence=self.evidence(),
        )

    def name(self, place: int) -> str:
        return self.target.places[place].name

    def resources(self) -> tuple[ResourceUse, ...]:
        cores, rate = self.told.cores, self.told.rate
        loads = self.placement.utilisation(cores, rate)
        rates = rates_of_resources(self.instance, cores)
        return tuple(ResourceUse(r.name, r.place, r.unit, _rounded(d), _rounded(available), _rounded(load))
                     for r, d, available, load in zip(self.prices.resources, self.placement.demand, rates, loads,
                                                      strict=False))

    # Code and packets.

    def blocks(self) -> tuple[BlockPlacement, ...]:
        graph, count = self.instance.graph, len(self.target.places)
        return tuple(
            BlockPlacement(n.label, n.piece.part, n.piece.start, n.piece.block.span.line, n.history, n.via, n.lent,
                           self.name(place), int(virtual >= count), _rounded(n.packets / graph.packets))
            for n, place, virtual in zip(graph.nodes, self.placement.nodes, self.placement.assignment.places,
                                         strict=True))

    def classes(self) -> tuple[PathClass, ...]:
        """Histories and verdicts, the most frequent first; ends that differ only in the way in are added up."""
        graph = self.instance.graph
        shares: dict[tuple[tuple[str, ...], str, str], int] = {}
        for node, place in zip(graph.nodes, self.placement.nodes, strict=True):
            terminator = node.piece.block.terminator
            if node.packets and node.piece.last and node.history is not None and not successors(terminator):
                key = (node.history, verdict_of(terminator), self.name(place))
                shares[key] = shares.get(key, 0) + node.packets
        rows = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        start = self.name(self.placement.nodes[0])
        return tuple(PathClass(history, verdict, _rounded(packets / graph.packets), start, end)
                     for (history, verdict, end), packets in rows)

    def crossings(self) -> tuple[Crossing, ...]:
        found = []
        graph, places = self.instance.graph, self.placement.assignment.places
        for edge in graph.edges:
            if places[edge.source] == places[edge.target]:
                continue
            source = graph.nodes[edge.source]
            start, stop = self.placement.nodes[edge.source], self.placement.nodes[edge.target]
            found.append(Crossing(source.label, graph.nodes[edge.target].label, edge.outcome, source.history,
                                  self.name(start), self.name(stop), _rounded(edge.packets / graph.packets),
                                  tuple(v.name for v in edge.live), edge.live_bytes))
        return tuple(sorted(found, key=lambda c: -c.share))

    # States.

    def state(self, state: State) -> StatePlacement:
        placement, name = self.placement, state.name
        rates = self.instance.rates[name]
        copies = self.copies(name)
        if copies:
            first = copies[0]
            place, tier, amount, unit = first.place, first.tier, first.amount, first.unit
        else:
            option = placement.option(name)
            store = placement.store(option)
            place, tier, amount, unit = self.name(option.place), store.name, option.amount, store.unit
        lent = self.lent(name)
        counts: dict[str, float] = defaultdict(float)
        for (table, kind), n in self.instance.access_counts.items():
            if table in (name, lent_name(name)) and n:
                counts[kind] += n
        kept = copies if len(copies) > 1 else ()
        decision = "split" if lent is not None else copied_states(self.instance.program)[name] if kept else "whole"
        moves = self.moves(name) if not copies else ()
        return StatePlacement(
            name, STATE_KINDS[type(state)], decision, place, tier, amount, unit, lent, kept, rates.entry_bytes,
            rates.entries, rates.working_set, _rounded(rates.hottest), {k: _rounded(n) for k, n in counts.items()},
            _rounded(sum(counts.values())), _rounded(rates.updates),
            self.copy_reason(name) if copies else self.reason(name, moves) + self.order_note(state), moves,
            source_of(state.span),
        )

    def copies(self, name: str) -> tuple[Copy, ...]:
        if name not in self.placement.copies:
            return ()
        stores = [(o, self.placement.store(o)) for o in self.placement.copy_options(name)]
        return (*self.in_rules(name), *(Copy(self.name(o.place), s.name, o.amount, s.unit) for o, s in stores))

    def in_rules(self, name: str) -> tuple[Copy, ...]:
        """The part of a copied state that rules of decided flows keep: they count, or were made by what it says."""
        split = self.split
        if split is None or split.mode != "restart":
            return ()
        used = any(state == name for n in self.instance.graph.nodes if n.lent for state, _ in n.piece.accesses)
        store = self.placement.store(self.placement.option(lent_name(split.lends[0].anchored)))
        return (Copy(self.name(split.near), store.name, 0, store.unit),) if used else ()

    def lend_of(self, name: str) -> Lend | None:
        lends = self.split.lends if self.split is not None else ()
        found = next((lend for lend in lends if name in lend.states), None)
        return found if lent_name(name) in self.placement.states else None

    def lent(self, name: str) -> Lent | None:
        lend = self.lend_of(name)
        if lend is None or self.split is None:
            return None
        option = self.placement.option(lent_name(name))
        store = self.placement.store(option)
        return Lent(self.name(option.place), store.name, lend.capacity, lend.threshold, option.amount, store.unit,
                    self.split.mode, _rounded(self.fast_share(self.split)), _rounded(lend.installs),
                    _rounded(lend.recalls))

    def fast_share(self, split: Split) -> float:
        """Share of packets that run to their end at the near place with their entry lent."""
        return sum(f.packets for f in split.paths.values() if f.owner_from is None) / self.instance.graph.packets

    def copy_reason(self, name: str) -> str:
        kind = copied_states(self.instance.program)[name]
        why = "packets only read it" if kind == "replicated" else "packets only add to it, the total is the sum"
        places = [c.place for c in self.copies(name)]
        if len(places) > 1:
            return f"{why}: a copy at each place that uses it, {', '.join(places)}"
        return f"used at {places[0]} alone; {why}, so that it goes where the code that uses it is"

    def reason(self, name: str, moves: Sequence[Move]) -> str:
        possible = [m for m in moves if m.possible]
        elsewhere = "; ".join(f"if it were at {m.where}, {m.reason}" for m in possible)
        if self.lend_of(name) is not None:
            return "; ".join(x for x in (self.split_reason(name), elsewhere) if x)
        if not possible and moves:
            return "the only place that can keep it: " + "; ".join(f"{m.place}: {m.reason}" for m in moves)
        return elsewhere if moves else "the target has one place only"

    def order_note(self, state: State) -> str:
        """What its declaration of order means here; empty where it changes nothing."""
        if not isinstance(state, MapState | MeterState):
            return ""
        program, prices = self.instance.program, self.instance.prices
        groups = prices.ordered if state.strict_order else ordered_ends(program, weak=True)
        ends = [self.ends_of(g) for g in groups if state.name in g.states]
        if state.strict_order:
            told = " or ".join(self.name(p) for p in sorted(set().union(*ends)))
            return f"; {order_clause([state])}: packets of a flow are forwarded at one place, {told}" if told else ""
        apart = next((e for e in ends if len(e) > 1), None)
        if apart is None:
            return ""
        places = " and ".join(self.name(p) for p in sorted(apart))
        return f"; `order weak`: packets of a flow are forwarded at {places} and may overtake each other"

    def ends_of(self, group: OrderedEnds) -> set[int]:
        """Where packets of a flow are forwarded, but for lent entries whose packets wait for those handed on."""
        split = self.split
        waits = split is not None and split.mode == "resume" and not group.passed & set(split.components)
        return {place for place, n in zip(self.placement.nodes, self.instance.graph.nodes, strict=True)
                if n.piece.last and n.label in group.blocks and not (
                    waits and n.lent and split is not None and place == split.near)}

    def split_reason(self, name: str) -> str:
        """Which packets stay near the wire and why the others do not."""
        lend, split = self.lend_of(name), self.split
        assert lend is not None and split is not None, "it is split"
        shares: dict[str, int] = defaultdict(int)
        for path in self.instance.profile.paths:
            fast = split.paths.get(path.id)
            found = align(self.instance.program, lend.component, path.blocks, path.outcomes)
            served = fast.packets if fast is not None and fast.owner_from is None else 0
            if found.owner_from is not None:
                shares[found.reason] += path.packets
            elif found.anchor is not None and path.packets > served:
                shares["their flow is not lent yet, or no longer"] += path.packets - served
        total = self.instance.graph.packets
        ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        reasons = [f"{_percent(n / total)} because {why}" for why, n in ranked[:_REASONS]]
        rest = sum(n for _, n in ranked[_REASONS:])
        reasons += [f"{_percent(rest / total)} for other reasons"] if rest else []
        share = _percent(self.fast_share(split))
        stay = f"{share} of packets find their entry lent and stay at {self.name(split.near)}"
        owner = f"{_percent(sum(shares.values()) / total)} need {self.name(split.owner)}"
        return stay + (f"; {owner}: {', '.join(reasons)}" if reasons else "")

    def moves(self, name: str) -> tuple[Move, ...]:
        here = self.placement.states[name][0]
        return tuple(self.move(name, p) for p in range(self.instance.last + 1) if p != here)

    def move(self, name: str, place: int) -> Move:
        """The best there is with a state elsewhere: of the search for it, and of every placement at hand."""
        found, in_time = self.elsewhere(name, place)
        near = self.whole.rules.moved(self.plain, name, place) if self.plain is not None else None
        at_hand = [*found, *(p for p in self.whole.baselines.values() if p), *([near] if near else [])]
        there = [p for p in at_hand if p.states[name][0] == place]
        if not there:
            return Move(self.name(place), False, (), None, None, self.why_not(name, place, in_time))
        cores = self.given
        reached = [self.reach(p, cores) for p in there]
        reach = max(reached)
        along = [self.along(name, p) for p in there]
        # Of those that are as good, the one that changes least.
        numbers = range(len(there))
        fastest = min((i for i in numbers if reached[i] >= reach * (1 - SAME)), key=lambda i: len(along[i]))
        best = fastest
        if self.request.rate_pps is not None:
            keys = [self.aim.key(p) for p in there]
            best = min(numbers, key=lambda i: (keys[i][0], _rounded(keys[i][1]), len(along[i])))
        needed = self.needed(there[best])
        told = fastest if needed is None else best
        limit = max(p.throughput(self.aim.most) for p in there)
        return Move(self.name(place), True, along[told], needed, finite(reach),
                    self.cost(_Cost(there[best], needed, reach, limit, "at most ")))

    def why_not(self, name: str, place: int, in_time: bool) -> str:
        """Why a state cannot be at a place: what the user asked for, or what the target says."""
        asked = refusing.kept_away(self.chooser, name, place)
        if asked:
            return asked
        return refusing.why_not(self.whole.instance, self.whole.units, name, place) if in_time \
            else "not found within the time limit"

    @cached_property
    def plain(self) -> Placement | None:
        """The plan itself where it has no split, else the best without one."""
        if self.instance.variant == self.whole.instance.variant:
            return self.placement
        best = self.chooser.without_split()
        return None if best is None else best.placement

    def along(self, name: str, placement: Placement) -> tuple[str, ...]:
        """The states, besides one, that a placement keeps at other places than the plan does."""
        return tuple(s.name for s in self.instance.program.states
                     if s.name != name and placement.places_of(s.name) != self.placement.places_of(s.name))

    def elsewhere(self, name: str, place: int) -> tuple[list[Placement], bool]:
        """The best placements with a state at a place, and whether there was time to look for all of them."""
        case = self.told.chosen.case
        cases = [self.whole, case] if case is not self.whole else [self.whole]
        key = (",".join(map(str, sorted({c.units.of_state.get(name, -1) for c in cases}))), place)
        if key not in self.moved:
            problems = [refusing.pinned(c.units.problem, name, place) for c in cases]
            self.moved[key] = self.searched(problems)
        return self.moved[key]

    def searched(self, problems: Sequence[Problem]) -> tuple[list[Placement], bool]:
        case = self.told.chosen.case
        cases = [self.whole, case][: len(problems)]
        possible = [i for i, p in enumerate(problems) if p.allowed.any(axis=1).all()]
        if not possible:
            return [], True
        if self.chooser.asked.rest <= 0:
            return [], False
        cases, problems = [cases[i] for i in possible], [problems[i] for i in possible]
        search = self.chooser.optimiser_of(cases, problems)
        found: list[Placement] = []
        aim, scale = self.aim, self.chooser.scale
        try:
            if aim.rate is not None and (least := search.least_host(aim.rate, aim.most)) is not None:
                found.append(cases[least.variant].placement(least.assignment))
                if least.cores != self.given:
                    return found, True  # what it costs is cores; its throughput does not matter
            for count in dict.fromkeys([self.given] if found or aim.rate is None else [self.given, aim.most]):
                most = search.best("load", Setting(scale, count), Limits(), "throughput")
                if most is not None:
                    found.append(cases[most.variant].placement(most.assignment))
        except OutOfTime:
            return found, False
        return found, True

    @property
    def given(self) -> int:
        """Host cores that placements are compared with: the plan's, or those given where no rate was asked for."""
        return self.told.cores if self.request.rate_pps is not None else self.aim.most

    def needed(self, placement: Placement) -> int | None:
        rate = self.request.rate_pps
        return None if rate is None else placement.cores_needed(rate, self.aim.most, self.aim.room)

    def reach(self, placement: Placement, cores: int) -> float:
        return placement.throughput(max(cores, int(placement.uses_host))) * self.aim.room

    def cost(self, other: _Cost) -> str:
        """What another placement costs, as a sentence."""
        rate, placement, told = self.request.rate_pps, other.placement, self.told
        if rate is not None and other.cores is None:
            return f"the rate would be out of reach: at most {mpps(other.limit)} with {host_cores(self.aim.most)}"
        if rate is not None and other.cores is not None and other.cores != told.cores:
            return f"it would take {host_cores(other.cores)} instead of {told.cores}"
        same = math.isclose(other.reach, told.throughput, rel_tol=SAME)
        now, then = (p.host_work(told.rate) for p in (self.placement, placement))
        if (rate is not None or same) and round(then, 2) > round(now, 2):
            return f"the host would do {then:.2f} instead of {now:.2f} cores' work"
        if same and rate is None and told.cores == 0 and placement.uses_host:
            return "it would carry as much, but need a host core"
        if same:
            return "it would do as well, as far as the model can tell"
        return f"the plan would carry {other.most}{mpps(other.reach)} instead of {mpps(told.throughput)}"

    # Splits.

    def steering(self) -> Iterator[Steering]:
        """Every way to split, with its budgets, in the order they were looked at."""
        ways: dict[tuple[object, ...], list[tuple[int, Split]]] = {}
        for number, split in enumerate(self.chooser.splits):
            ways.setdefault((split.components, split.near, split.owner, split.mode), []).append((number, split))
        for found in ways.values():
            first = found[0][1]
            chosen = next((i for i, (_, split) in enumerate(found) if alike(split, self.split)), None)
            yield Steering(first.components, self.name(first.near), self.name(first.owner), first.mode,
                           tuple(self.keys(first)), tuple(sorted(first.anchors)),
                           tuple(self.point(*pair) for pair in found), chosen)

    def keys(self, split: Split) -> Iterator[str]:
        shardings = sharding_of(self.instance.program)
        for component in split.components:
            for anchor in shardings[component].anchors:
                key = f"{anchor.state}.{anchor.key}" if anchor.key else anchor.state
                if anchor.block in split.anchors:
                    yield f"{', '.join(anchor.ports)}: {', '.join(map(str, anchor.parts))} -> {key}"

    def point(self, number: int, split: Split) -> Point:
        value = self.chooser.reached.get(number)
        rate = self.request.rate_pps
        return Point(tuple(lend.capacity for lend in split.lends), tuple(lend.threshold for lend in split.lends),
                     _rounded(self.fast_share(split)), _rounded(sum(lend.installs for lend in split.lends)),
                     _rounded(sum(lend.recalls for lend in split.lends)),
                     None if rate is None else finite(value), None if rate is not None else finite(value))

    # Figures.

    def figures(self, rows: Sequence[Sampled]) -> tuple[Figure, ...]:
        told, placement, scales = self.told, self.placement, self.scales
        reach = [reach_of(s, scales, told.cores) * self.aim.room for s in rows]
        made = [_figure("throughput", float(told.throughput), reach, "packets/s"),
                _figure("host work", placement.host_work(told.rate), [_host(s, scales, told.rate) for s in rows],
                        "cores"),
                _figure("unloaded latency", float(placement.demand[-1]), [float(s.demand[-1]) for s in rows], "ns"),
                self.latency(rows, reach)]
        if self.request.rate_pps is not None:
            least = int(placement.uses_host)
            made.insert(0, _figure("host cores", float(told.cores),
                                   [_cores(s, scales, least, told.rate / self.aim.room) for s in rows], "cores"))
        return tuple(made)

    def latency(self, rows: Sequence[Sampled], reach: Sequence[float]) -> Figure:
        """At the asked rate; else at a share of the throughput, each sample's own: at all of it queues are full."""
        told = self.told
        if self.request.rate_pps is not None:
            name, rates = "latency at the asked rate", [float(told.rate)] * len(rows)
            rate = float(told.rate)
        elif self.request.max_latency_ns is not None:
            name, rates, rate = "latency at the throughput", [float(told.rate)] * len(rows), float(told.rate)
        else:
            name, rates = f"latency at {100 * _BUSY:.0f} % of the throughput", [_BUSY * x for x in reach]
            rate = _BUSY * told.throughput
        return _figure(name, self.placement.latency(told.cores, rate).total,
                       [_latency(self.instance, s, told.cores, x) for s, x in zip(rows, rates, strict=True)], "ns")

    @cached_property
    def scales(self) -> list[bool]:
        return [r.scales for r in self.prices.resources]

    def met(self, rows: Sequence[Sampled]) -> int | None:
        """In how many samples the plan carries the asked rate with its cores."""
        if self.request.rate_pps is None:
            return None
        return sum(load_of(s, self.scales, self.told.cores, self.told.rate) <= self.aim.room for s in rows)

    # What else there would be.

    @cached_property
    def others(self) -> list[tuple[str, Placement | None]]:
        """The alternatives by name; needs the moves of all states."""
        found: list[tuple[str, Placement | None]] = list(self.whole.baselines.items())
        if self.split is not None:
            found.append(("no split", self.plain))
        second = self.second()
        return [*found, *([("second best", second)] if second is not None else [])]

    def second(self) -> Placement | None:
        """The best that keeps at least one state at another place, of all that was found."""
        moved = [p for placements, _ in self.moved.values() for p in placements]
        other = [p for p in moved if any(p.places_of(s.name) != self.placement.places_of(s.name)
                                         for s in self.instance.program.states)]
        return min(other, key=self.aim.key, default=None)

    def alternative(self, name: str, placement: Placement | None) -> Alternative:
        if placement is None:
            return Alternative(name, False, None, None, None, None, None, None, None, None, None, {},
                               f"not possible on {self.target.name}")
        cores = self.needed(placement)
        given = max(self.given, int(placement.uses_host))
        reach = self.reach(placement, given)
        rows = self.sampler.sampled(placement, FEW_SAMPLES)
        reached = [reach_of(s, self.scales, given) * self.aim.room for s in rows]
        low, high = band(reached)
        few, many = self.cores_band(rows, int(placement.uses_host))
        worse, better = self.ratio_band(reached)
        same = placement.is_same(self.placement)
        note = "the plan itself" if same else self.cost(
            _Cost(placement, cores, reach, placement.throughput(self.aim.most)))
        return Alternative(name, True, cores, few, many, finite(placement.host_work(self.told.rate)), finite(reach),
                           finite(low), finite(high), worse, better, placement.kept, note)

    def cores_band(self, rows: Sequence[Sampled], least: int) -> tuple[float | None, float | None]:
        """P10 and P90 of the cores that carry the asked rate; None where it is out of reach or none was asked for."""
        if self.request.rate_pps is None:
            return None, None
        low, high = band([_cores(s, self.scales, least, self.told.rate / self.aim.room) for s in rows])
        return finite(low), finite(high)

    def ratio_band(self, reached: Sequence[float]) -> tuple[float | None, float | None]:
        """P10 and P90 of the plan's throughput, with its cores, divided by another one's, sample by sample."""
        cores = max(self.given, int(self.placement.uses_host))
        own = [reach_of(s, self.scales, cores) * self.aim.room
               for s in self.sampler.sampled(self.placement, FEW_SAMPLES)]
        pairs = [(a, b) for a, b in zip(own, reached, strict=True) if b > 0 and not math.isinf(a) and not math.isinf(b)]
        if not pairs:
            return None, None
        low, high = band([a / b for a, b in pairs])
        return finite(low), finite(high)

    def pareto(self) -> Iterator[FrontPoint]:
        """Plans that no other one beats: host cores up to those given, or two more than the plan needs."""
        given = self.request.cores
        most = min(given if given is not None else self.told.cores + _MORE_CORES, _MOST_CORES)
        found, cases = self.chooser.front(range(most + 1), self.told.chosen)
        for point in found.points:
            placement = cases[point.variant].placement(point.assignment)
            yield FrontPoint(point.cores, math.floor(point.throughput * (1 - 1e-9)), finite(point.latency),
                             point.memory, point.proven and found.complete, placement.kept, *self.code_of(placement))

    def code_of(self, placement: Placement) -> tuple[dict[str, int], dict[str, float]]:
        """Per place the blocks that run there, and the share of packets that end there."""
        nodes = placement.instance.graph.nodes
        blocks: dict[str, set[str]] = defaultdict(set)
        ends: dict[str, int] = defaultdict(int)
        for place, node in zip(placement.nodes, nodes, strict=True):
            if not node.packets:
                continue
            blocks[self.name(place)].add(node.label)
            if node.piece.last and not successors(node.piece.block.terminator):
                ends[self.name(place)] += node.packets
        order = [p.name for p in self.target.places]
        total = placement.instance.graph.packets
        return ({p: len(blocks[p]) for p in order if blocks[p]},
                {p: _rounded(ends[p] / total) for p in order if blocks[p]})

    # Evidence.

    def evidence(self) -> Evidence:
        chooser = self.chooser
        stages = tuple(Stage(s.goal, s.status, _rounded(s.objective), finite(s.bound), finite(s.gap),
                             round(s.seconds, 4), s.solves) for s in chooser.stages)
        first = self.headline()
        return Evidence(version_of(self.request.solver), first.status, first.goal, first.objective, first.bound,
                        first.gap, round(sum((s.seconds for s in stages), 0.0), 4), chooser.variables, chooser.rows,
                        chooser.compared, len(chooser.reached) + 1, stages, "passed")

    def headline(self) -> Stage:
        """The first goal in the user's terms: cores, or packets a second (where a bound is from above)."""
        told, stages = self.told, self.chooser.stages
        seconds = sum((s.seconds for s in stages), 0.0)
        if not stages or not told.chosen.proven:
            goal = "throughput" if self.request.rate_pps is None else "host cores"
            value = float(told.throughput if self.request.rate_pps is None else told.cores)
            bound = self.bound(stages)
            gap = None if bound is None else abs(value - bound) / max(abs(value), 1e-12)
            why = "found by the fast search" if self.request.search == "fast" else "the time limit ended the search"
            why = told.why or why
            return Stage(goal, f"feasible: {why}", value, bound, finite(gap), seconds, 0)
        if self.request.rate_pps is not None:
            cores = float(told.cores)
            return Stage("host cores", "optimal", cores, cores, 0.0, seconds, 0)
        bound = self.bound(stages)
        gap = None if bound is None else max(0.0, bound - told.throughput) / told.throughput
        return Stage("throughput", "optimal", float(told.throughput), finite(bound), finite(gap), seconds, 0)

    def bound(self, stages: Sequence[Evidenced]) -> float | None:
        """Of the first goal, in the user's terms: packets a second from above, cores from below."""
        if not stages or stages[0].bound is None:
            return None
        if self.request.rate_pps is not None:
            return float(max(0, math.ceil(stages[0].bound - 1e-6)))
        return self.chooser.scale / stages[0].bound * self.aim.room if stages[0].bound else None


def _rounded(value: float) -> float:
    """Six significant digits: what a model can at most stand for, and no noise in diffs."""
    return float(f"{value:.6g}")


def finite(value: float | None) -> float | None:
    """A figure of the document, None where there is none."""
    return None if value is None or not math.isfinite(value) else _rounded(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def reach_of(sample: Sampled, scales: Sequence[bool], cores: int) -> float:
    """Packets a second under a sample."""
    load = load_of(sample, scales, cores, 1.0)
    return 1.0 / load if load else math.inf


def _figure(name: str, value: float, values: Sequence[float], unit: str) -> Figure:
    assert len(values) == SAMPLES
    low, high = band(values)
    return Figure(name, finite(value), finite(low), finite(high), unit, "predicted")


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
    rows = [replace(r, rate=float(x)) for r, x in zip(instance.problem.resources, sample.rates, strict=True)]
    used: Mapping[str, float] = {r.name: float(d) for r, d in zip(rows, sample.demand, strict=False)}
    return latency(float(sample.demand[-1]), used, rows, rate, cores).total
