"""Several programs on one card, planned together: they share its engines, memories, code store and the host's cores.

Every tenant has its own traffic and rate. The joint problem (`cora.partition.combine`) is solved for every combination
of a few variants of each: no split, and the splits that looked best when the tenant had the card for itself. So the
proof covers these combinations.

A cache that all tables share is not in the problem: where the tables of a plan need more than it has, each tenant is
given its part of the cache, the others' parts being reserved on its card, and the plan is made again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cora.analysis.profile import Profile
from cora.errors import CoraError, Diagnostic, Kind, fail
from cora.ir.nodes import Program
from cora.models import cards
from cora.models.target import Cache, Target
from cora.partition.choosing import Case, Chosen
from cora.partition.combine import Tenant, combine, exact_norm_power, joined, split
from cora.partition.evaluate import DEFAULT_HOST_CORES, amounts, host_cycles, rates_of
from cora.partition.exact import broken_rules
from cora.partition.optimise import Found, Optimiser, OutOfTime
from cora.partition.placement import Placement
from cora.partition.planner import Planner, plan_with, settled
from cora.plan.document import Plan, Request, ResourceUse

# Splits of a tenant that are tried together with the others' variants, and combinations at most.
_SPLITS = 2
_COMBINATIONS = 64


@dataclass(frozen=True)
class Asked:
    """A tenant: its program, its traffic, and the packets a second that have to be carried."""

    program: Program
    profile: Profile
    request: Request


@dataclass(frozen=True)
class Together:
    """Plans of tenants that were made together, each for its own rate, and what they use in all.

    ``cores``: host cores that all of them share. ``shared``: of each cache whose tables need more than there is its
    name, its bytes, and per tenant the bytes that its tables use and the part of the cache they are taken to have.
    ``combinations``: of the tenants' variants that were compared.
    ``gap``: relative distance from the host work to its bound.
    """

    plans: tuple[Plan, ...]
    cores: int
    host_work: float
    resources: tuple[ResourceUse, ...]
    memories: tuple[tuple[str, int, int, str], ...]
    proven: bool
    gap: float | None
    combinations: int
    seconds: float
    shared: tuple[Shared, ...] = ()


def plan_together(tenants: Sequence[Asked], target: Target, *, cores: int | None = None, solver: str = "highs",
                  time_limit: float = 10.0) -> Together:
    """Plan tenants for one card: the fewest host cores (at most ``cores``) for all rates, then least host work.

    Raises:
        CoraError: `Kind.NO_PLAN` when they do not fit together; as `cora.partition.plan` for each alone.
    """
    most = DEFAULT_HOST_CORES if cores is None else cores
    started = time.perf_counter()
    shared: tuple[Shared, ...] = ()
    for _ in range(_ROUNDS):
        found = _Joint(tenants, target, most, solver, started, time_limit, shared).planned()
        # Tables are priced with the part of a cache that the others leave; which that is, the plan says.
        again = shared_caches(found.placements, target)
        if alike(shared, again):
            break
        shared = again
    return found.together


# Plans that are made at most until the parts of shared caches are those of the plan.
_ROUNDS = 3
# Parts that differ by a smaller share of the cache are the same.
_SAME_PART = 0.02


@dataclass(frozen=True)
class Shared:
    """A cache whose tenants' tables need more than there is: per tenant the bytes used, and the part of the cache."""

    name: str
    capacity: int
    used: tuple[int, ...]
    parts: tuple[int, ...]


def shared_caches(placements: Sequence[Placement], target: Target) -> tuple[Shared, ...]:
    """How tenants share the caches of a card: each has as much of it as its tables are a part of all that use it.

    With one least-recently-used cache in front of tables of W bytes in all, of which C fit, every table used alike has
    C / W of itself in it.
    """
    found = []
    for cache in target.caches():
        used = tuple(_working_sets(placement, cache) for placement in placements)
        if sum(used) > cache.capacity and sum(1 for u in used if u) > 1:
            parts = tuple(cache.capacity * u // sum(used) for u in used)
            found.append(Shared(cache.name, cache.capacity, used, parts))
    return tuple(found)


def _working_sets(placement: Placement, cache: Cache) -> int:
    """Bytes that a program's tables behind a cache use within a window."""
    there = cache.place, cache.tier
    tables = [name for name, spot in placement.states.items() if spot == there]
    tables += [name for name, copies in placement.copies.items() if copies.get(cache.place) == cache.tier]
    return sum(placement.instance.rates[name].working_set for name in tables)


def alike(one: Sequence[Shared], other: Sequence[Shared]) -> bool:
    """Whether tenants have about the same parts of the same caches."""
    return [s.name for s in one] == [s.name for s in other] and all(
        abs(a - b) <= _SAME_PART * s.capacity for s, t in zip(one, other, strict=True)
        for a, b in zip(s.parts, t.parts, strict=True))


def with_part(target: Target, shared: Sequence[Shared], tenant: int) -> Target:
    """The card as a tenant has it, the others' parts of shared caches reserved."""
    taken = {s.name: s.capacity - s.parts[tenant] for s in shared if s.parts[tenant]}
    if not taken:
        return target
    model = cards.reserve(target.model, target.places, [f"{name}={amount}" for name, amount in taken.items()])
    return type(target)(replace(model, card=cards.with_reserved(target.model.card, taken)))


@dataclass(frozen=True)
class _Planned:
    together: Together
    placements: tuple[Placement, ...]


class _Joint:
    def __init__(self, tenants: Sequence[Asked], target: Target, most: int, solver: str, started: float,
                 time_limit: float, shared: Sequence[Shared]) -> None:
        self.tenants, self.target, self.most, self.solver = tenants, target, most, solver
        self.started, self.shared = started, tuple(shared)
        self.deadline = self.started + time_limit
        self.planners = [Planner(t.program, t.profile, with_part(target, shared, i), t.request)
                         for i, t in enumerate(tenants)]
        self.names = names_of([t.program.name for t in tenants])
        self.alone = [self.chosen_alone(i) for i in range(len(tenants))]

    def planned(self) -> _Planned:
        combinations = list(itertools.islice(itertools.product(*(self.cases(i) for i in range(len(self.tenants)))),
                                             _COMBINATIONS))
        joint = [combine(self.parts(cases)) for cases in combinations]
        known = [(i, joined([c.units.gathered(p.assignment) for c, p in zip(cases, placements, strict=True)]))
                 for i, cases in enumerate(combinations) if (placements := self.known(cases)) is not None]
        rest = max(self.deadline - time.perf_counter(), 0.1)
        search = Optimiser([problem for problem, _ in joint], self.solver, rest, known=known)
        rate = joint[0][1]
        try:
            found = search.for_rate(rate, self.most)
        except OutOfTime:
            raise fail(Kind.SOLVER, "the time limit ended the search before any plan for all programs was found",
                       where="--time-limit", hint="give it more time") from None
        if found is None:
            raise self.too_much(search, rate)
        cases = combinations[found.variant]
        return self.told(cases, found, search.stages[0].gap, len(combinations))

    def chosen_alone(self, number: int) -> Chosen:
        """The plan of a tenant with the card to itself."""
        try:
            return self.planners[number].chosen()
        except CoraError as error:
            note = (f"this is of {self.names[number]}, before the others have taken anything", None)
            raise CoraError([replace(d, notes=(*d.notes, note)) for d in error.diagnostics]) from error

    def cases(self, number: int) -> list[Case]:
        """The variants of a tenant: no split, and what was best alone."""
        chooser, alone = self.planners[number].chooser, self.alone[number]
        found = [chooser.whole]
        found += [alone.case] if alone.case is not chooser.whole else []
        best = sorted(chooser.reached, key=lambda i: chooser.reached[i])
        for split_number in best[:_SPLITS]:
            case = next((c for c in chooser.others if c.split is chooser.splits[split_number]), None)
            if case is not None and case not in found:
                found.append(case)
        # All have to count places alike, so that no tenant may come back from the host.
        return [case for case in found if not case.instance.variant.returns]

    def parts(self, cases: Sequence[Case]) -> list[Tenant]:
        return [Tenant(name, case.units.problem, float(t.request.rate_pps or 0))
                for name, case, t in zip(self.names, cases, self.tenants, strict=True)]

    def known(self, cases: Sequence[Case]) -> list[Placement] | None:
        """Every tenant as it would be alone, where these are its variants."""
        if all(case is alone.case for case, alone in zip(cases, self.alone, strict=True)):
            return [alone.placement for alone in self.alone]
        return None

    def told(self, cases: Sequence[Case], found: Found, gap: float | None, combinations: int) -> _Planned:
        parts = split(self.parts(cases), found.assignment)
        placements = [settled(case.placement(part)) for case, part in zip(cases, parts, strict=True)]
        self.check(placements, found.cores)
        plans = []
        for tenant, name, placement in zip(self.tenants, self.names, placements, strict=True):
            others = ", ".join(n for n in self.names if n != name)
            request = replace(tenant.request, cores=found.cores)
            plans.append(plan_with(tenant.profile, request, placement, f"placed together with {others}"))
        total = combine([Tenant(n, p.instance.problem, float(t.request.rate_pps or 0))
                         for n, p, t in zip(self.names, placements, self.tenants, strict=True)])
        whole = joined([p.assignment for p in placements])
        demand = found.demand
        rates = rates_of(total[0].resources, found.cores)
        resources = tuple(
            ResourceUse(r.name, r.place, r.unit, float(f"{d:.6g}"), float(f"{have:.6g}"),
                        float(f"{d * total[1] / have if d else 0.0:.6g}"))
            for r, d, have in zip(total[0].resources, demand, rates, strict=False))
        filled = zip(total[0].stores, amounts(total[0], whole), strict=True)
        memories = tuple((f"{self.target.places[s.place].name}/{s.name}", used, s.capacity, s.unit)
                         for s, used in filled if used)
        made = Together(tuple(plans), found.cores, float(host_cycles(total[0], demand, total[1])), resources, memories,
                        found.proven, gap, combinations, time.perf_counter() - self.started, self.shared)
        return _Planned(made, tuple(placements))

    def check(self, placements: Sequence[Placement], cores: int) -> None:
        """The exact check of all together, node by node: rooms they share, and the soft maximum of all loads.

        Raises:
            CoraError: `Kind.PLAN_CHECK`.
        """
        tenants = [Tenant(n, p.instance.problem, float(t.request.rate_pps or 0))
                   for n, p, t in zip(self.names, placements, self.tenants, strict=True)]
        found = broken_rules(combine(tenants)[0], joined([p.assignment for p in placements]))
        load = exact_norm_power(tenants, [p.assignment for p in placements], cores)
        if load is None or load > 1:
            found.append(f"with {cores} host cores the programs together need more capacity than there is")
        if cores == 0 and any(p.uses_host for p in placements):
            found.append("the plan has no host core, but something is at the host")
        if found:
            raise CoraError([Diagnostic(Kind.PLAN_CHECK, message, hint="this plan cannot be used: make it again")
                             for message in dict.fromkeys(found)])

    def too_much(self, search: Optimiser, rate: float) -> CoraError:
        """Why they do not fit together: the share of all the rates that would."""
        best = search.for_cores(max(self.most, 1), rate)
        programs = ", ".join(self.names)
        if best is None:
            return fail(Kind.NO_PLAN, f"{programs} do not fit into {self.target.name} together",
                        hint="each fits alone: declare smaller capacities, or give one of them another card")
        problem = search.problems[best.variant]
        loads = best.demand[:-1] * rate / rates_of(problem.resources, max(self.most, 1))
        worst = problem.resources[int(loads.argmax())]
        power = float((loads**problem.exponent).sum()) ** (1 / problem.exponent)
        return fail(Kind.NO_PLAN, f"{self.target.name} cannot carry {programs} together at these rates with "
                                  f"{self.most} host cores: at most {100 / power:.1f} % of them",
                    notes=[(f"what runs out is {worst.name}", None)], hint="ask for less of one of them")


def names_of(names: Sequence[str]) -> list[str]:
    """Names of programs as tenants: numbered where two are of one name."""
    return [n if names.count(n) == 1 else f"{n}-{names[:i].count(n) + 1}" for i, n in enumerate(names)]
