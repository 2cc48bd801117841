"""Several programs on one card, planned together: they share its engines, memories, code store and the host's cores.

Every tenant has its own traffic and rate. The joint problem (`cora.partition.combine`) is solved for every combination
of a few variants of each: no split, and the splits that looked best when the tenant had the card for itself. So the
proof covers these combinations.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cora.analysis.profile import Profile
from cora.errors import CoraError, Diagnostic, Kind, fail
from cora.ir.nodes import Program
from cora.models.target import Target
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

    ``cores``: host cores that all of them share. ``combinations``: of the tenants' variants that were compared.
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


def plan_together(tenants: Sequence[Asked], target: Target, *, cores: int | None = None, solver: str = "highs",
                  time_limit: float = 10.0) -> Together:
    """Plan tenants for one card: the fewest host cores (at most ``cores``) for all rates, then least host work.

    Raises:
        CoraError: `Kind.NO_PLAN` when they do not fit together; as `cora.partition.plan` for each alone.
    """
    return _Joint(tenants, target, DEFAULT_HOST_CORES if cores is None else cores, solver, time_limit).planned()


class _Joint:
    def __init__(self, tenants: Sequence[Asked], target: Target, most: int, solver: str, time_limit: float) -> None:
        self.tenants, self.target, self.most, self.solver = tenants, target, most, solver
        self.started = time.perf_counter()
        self.deadline = self.started + time_limit
        self.planners = [Planner(t.program, t.profile, target, t.request) for t in tenants]
        self.names = names_of([t.program.name for t in tenants])
        self.alone = [self.chosen_alone(i) for i in range(len(tenants))]

    def planned(self) -> Together:
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

    def told(self, cases: Sequence[Case], found: Found, gap: float | None, combinations: int) -> Together:
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
        return Together(tuple(plans), found.cores, float(host_cycles(total[0], demand, total[1])), resources, memories,
                        found.proven, gap, combinations, time.perf_counter() - self.started)

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
