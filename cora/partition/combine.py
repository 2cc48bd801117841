"""Several tenants' problems on one card as one problem: shared resources, memories and code stores, their own traffic.

A packet of the combined problem is one of all the tenants' packets: tenant i's with the probability rate_i / sum of
rates. So the demand of a combined packet is the mean of theirs, and utilisations at the sum of rates are their sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cora.models.target import Resource
from cora.partition.exact import exact_demand
from cora.partition.problem import (
    Assignment,
    CodeStore,
    CopiedState,
    CopyOption,
    Edge,
    Option,
    Order,
    Problem,
    Vector,
    WholeState,
)


@dataclass(frozen=True)
class Tenant:
    """A problem with its packets a second; ``name`` is put before the names of its states and units."""

    name: str
    problem: Problem
    rate: float


def combine(tenants: Sequence[Tenant]) -> tuple[Problem, float]:
    """One problem for all tenants, and the packets a second of all together.

    Resources are matched by name: where rates differ (a port's depends on the frames), uses are scaled to the first
    tenant's rate. Stores, ceilings and code stores of a place are shared.

    Raises:
        ValueError: the tenants' places, stores, ceilings or exponents are not those of one card.
    """
    first = tenants[0].problem
    for tenant in tenants[1:]:
        other = tenant.problem
        if (other.places, other.physical, other.stores, other.ceilings, other.exponent) != (
                first.places, first.physical, first.stores, first.ceilings, first.exponent):
            raise ValueError(f"{tenant.name} is not planned for the same card as {tenants[0].name}")
    total = sum(t.rate for t in tenants)
    resources = _resources(tenants)
    parts = [_moved(t, resources, t.rate / total, sum(len(s.problem.units) for s in tenants[:i]),
                    sum(len(s.problem.whole) for s in tenants[:i])) for i, t in enumerate(tenants)]
    combined = replace(
        first, resources=resources, base=np.sum([p.base for p in parts], axis=0),
        allowed=np.concatenate([p.allowed for p in parts]), cost=np.concatenate([p.cost for p in parts]),
        edges=tuple(e for p in parts for e in p.edges), whole=tuple(s for p in parts for s in p.whole),
        copied=tuple(s for p in parts for s in p.copied), orders=tuple(o for p in parts for o in p.orders),
        code=_code(parts), units=tuple(u for p in parts for u in p.units),
        together=tuple(t for p in parts for t in p.together),
    )
    return combined, total


def _resources(tenants: Sequence[Tenant]) -> tuple[Resource, ...]:
    found: dict[str, Resource] = {}
    for tenant in tenants:
        for resource in tenant.problem.resources:
            found.setdefault(resource.name, resource)
    return tuple(found.values())


def _moved(tenant: Tenant, resources: Sequence[Resource], share: float, units: int, states: int) -> Problem:
    """A tenant's problem in the columns of all, weighted with its share of packets, its units and states renumbered."""
    problem = tenant.problem
    column = {r.name: i for i, r in enumerate(resources)}
    matrix = np.zeros((len(problem.base), len(resources) + 1))
    for i, resource in enumerate(problem.resources):
        # What is used of a resource with another rate takes the same share of it.
        known = resources[column[resource.name]].rate
        same = known == resource.rate or not resource.rate
        matrix[i, column[resource.name]] = share if same else share * known / resource.rate
    matrix[-1, -1] = share

    def scaled(row: Vector) -> Vector:
        found: Vector = row @ matrix
        return found

    return replace(
        problem, resources=tuple(resources), base=scaled(problem.base), cost=scaled(problem.cost),
        units=tuple(f"{tenant.name}: {u}" for u in problem.units),
        edges=tuple(Edge(e.source + units, e.target + units, scaled(e.cross), e.crossable, scaled(e.visit))
                    for e in problem.edges),
        whole=tuple(WholeState(f"{tenant.name}: {s.name}", tuple(u + units for u in s.units),
                               tuple(Option(o.place, o.store, o.amount, scaled(o.cost)) for o in s.options))
                    for s in problem.whole),
        copied=tuple(CopiedState(f"{tenant.name}: {s.name}", tuple(u + units for u in s.users),
                                 tuple(CopyOption(o.place, o.store, o.amount, scaled(o.cost)) for o in s.options))
                     for s in problem.copied),
        orders=tuple(Order(o.near + states, o.far + states) for o in problem.orders),
        code=tuple(CodeStore(c.place, c.capacity, tuple((frozenset(u + units for u in members), size)
                                                        for members, size in c.pieces)) for c in problem.code),
        together=tuple(replace(t, units=tuple(u + units for u in t.units), lent=tuple(u + units for u in t.lent),
                               reason=f"{tenant.name}: {t.reason}") for t in problem.together),
    )


def _code(parts: Sequence[Problem]) -> tuple[CodeStore, ...]:
    """One code store a place for all."""
    stores: dict[int, CodeStore] = {}
    for part in parts:
        for code in part.code:
            known = stores.get(code.place)
            if known is not None and known.capacity != code.capacity:
                raise ValueError(f"two sizes of the code store of {part.places[code.place]}")
            pieces = code.pieces if known is None else known.pieces + code.pieces
            stores[code.place] = CodeStore(code.place, code.capacity, pieces)
    return tuple(stores.values())


def split(tenants: Sequence[Tenant], assignment: Assignment) -> list[Assignment]:
    """Each tenant's part of an assignment of the combined problem."""
    found = []
    units = whole = copied = 0
    for tenant in tenants:
        problem = tenant.problem
        found.append(Assignment(assignment.places[units : units + len(problem.units)],
                                assignment.whole[whole : whole + len(problem.whole)],
                                assignment.copies[copied : copied + len(problem.copied)]))
        units += len(problem.units)
        whole += len(problem.whole)
        copied += len(problem.copied)
    return found


def joined(parts: Sequence[Assignment]) -> Assignment:
    """The assignment of the combined problem that consists of these of the tenants."""
    return Assignment(tuple(p for part in parts for p in part.places), tuple(o for part in parts for o in part.whole),
                      tuple(c for part in parts for c in part.copies))


def exact_norm_power(tenants: Sequence[Tenant], parts: Sequence[Assignment], cores: int) -> Fraction | None:
    """sum_r (sum_i X_i D_ir / R_ir)^s of all tenants at their own rates as a rational, from their own problems.

    None when something is used of which there is nothing. At most 1: the card carries all of them.
    """
    loads: dict[str, Fraction] = {}
    for tenant, part in zip(tenants, parts, strict=True):
        for used, resource in zip(exact_demand(tenant.problem, part), tenant.problem.resources, strict=False):
            available = Fraction(resource.rate) * (cores if resource.scales else 1)
            if used and not available:
                return None
            share = Fraction(tenant.rate) * used / available if used else Fraction(0)
            loads[resource.name] = loads.get(resource.name, Fraction(0)) + share
    return sum((load ** int(tenants[0].problem.exponent) for load in loads.values()), Fraction(0))
