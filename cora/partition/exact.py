"""The exact check: an assignment against every rule of its problem in rational arithmetic.

It shares no arithmetic with the search or with an integer program. No plan leaves Cora without having passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cora.errors import CoraError, Diagnostic, Kind
from cora.partition.evaluate import amounts, copy_costs, demand_of, latency_of, uses_host
from cora.partition.problem import Assignment, Problem, Vector

# Latencies are floats of a queueing formula; they are held to their limit but for rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Promise:
    """What a plan is held to.

    Attributes:
        rate: packets a second carried with ``cores`` host cores.
        headroom: share of every resource, in the sense of the soft maximum, that stays free (0 <= headroom < 1).
        latency: nanoseconds that the mean packet takes at most at ``latency_rate`` packets a second; None: no limit.
    """

    rate: Fraction
    cores: int
    headroom: Fraction = Fraction(0)
    latency: float | None = None
    latency_rate: float = 0.0


def check(problem: Problem, assignment: Assignment, promise: Promise) -> None:
    """Check legality, monotony, capacities, code stores, order, the soft minimum and the latency.

    Raises:
        CoraError: `Kind.PLAN_CHECK`, one diagnostic per broken rule.
    """
    found = broken_rules(problem, assignment)
    if not found:
        found = _promise(problem, assignment, promise)
    if found:
        raise CoraError([Diagnostic(Kind.PLAN_CHECK, message, hint="this plan cannot be used: make it again")
                         for message in dict.fromkeys(found)])


def broken_rules(problem: Problem, assignment: Assignment) -> list[str]:
    """What an assignment breaks at any rate, in words; empty when it is legal."""
    found = _shape(problem, assignment)
    if found:
        return found
    return [*_units(problem, assignment), *_edges(problem, assignment), *_together(problem, assignment),
            *_whole(problem, assignment),
            *_copies(problem, assignment), *_stores(problem, assignment), *_code(problem, assignment)]


def _shape(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    for what, have, need in (("units of code", assignment.places, problem.units),
                             ("states", assignment.whole, problem.whole),
                             ("copied states", assignment.copies, problem.copied)):
        if len(have) != len(need):
            found.append(f"{len(have)} {what} have a place, the problem has {len(need)}")
    if any(not 0 <= p < len(problem.physical) for p in assignment.places):
        found.append("a unit of code is at a place the target does not have")
    if any(not 0 <= o < len(s.options) for s, o in zip(problem.whole, assignment.whole, strict=False)):
        found.append("a state is kept in a way the target does not have")
    return found


def _units(problem: Problem, assignment: Assignment) -> list[str]:
    return [f"{problem.units[u]} may not run at {problem.places[problem.physical[p]]}"
            for u, p in enumerate(assignment.places) if not problem.allowed[u, p]]


def _edges(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    for number, (source, target) in enumerate(problem.ends.T.tolist()):
        start, stop = assignment.places[source], assignment.places[target]
        if start == stop:
            continue
        names = f"{problem.units[source]} to {problem.units[target]}"
        if stop < start:
            found.append(f"from {names} a packet would go back from {_name(problem, start)} to "
                         f"{_name(problem, stop)} in the middle of the program")
        found += [f"from {names} no packet can move on to {_name(problem, p)}"
                  for p in range(start + 1, stop + 1) if not problem.crossable[number, p]]
    return found


def _together(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    for group in problem.together:
        first, *others = group.units
        there = assignment.places[first]
        apart = [u for u in others if assignment.places[u] != there]
        apart += [u for u in group.lent if assignment.places[u] not in (there, group.near)]
        found += [f"{group.reason}: {problem.units[first]} ends at {_name(problem, there)}, {problem.units[u]} at "
                  f"{_name(problem, assignment.places[u])}" for u in apart]
    return found


def _name(problem: Problem, virtual: int) -> str:
    return problem.places[problem.physical[virtual]]


def _whole(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    kept = [s.options[o].place for s, o in zip(problem.whole, assignment.whole, strict=True)]
    for state, place in zip(problem.whole, kept, strict=True):
        found += [f"{problem.units[u]} runs at {_name(problem, assignment.places[u])} and uses {state.name}, which is "
                  f"at {problem.places[place]}"
                  for u in state.units if problem.physical[assignment.places[u]] != place]
    found += [f"{problem.whole[o.near].name} is at {problem.places[kept[o.near]]}, not nearer to the wire than "
              f"{problem.whole[o.far].name} at {problem.places[kept[o.far]]}"
              for o in problem.orders if kept[o.near] >= kept[o.far]]
    return found


def _copies(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    for state, chosen in zip(problem.copied, assignment.copies, strict=True):
        needed = {problem.physical[assignment.places[u]] for u in state.users}
        found += [f"{state.name} has no copy at {problem.places[p]}, where it is used" for p in needed - set(chosen)]
        found += [f"{state.name} has a copy at {problem.places[p]}, where it is not used"
                  for p in set(chosen) - needed]
        found += [f"the copy of {state.name} at {problem.places[p]} is kept in a way the target does not have"
                  for p, o in chosen.items() if not (0 <= o < len(state.options) and state.options[o].place == p)]
    return found


def _stores(problem: Problem, assignment: Assignment) -> list[str]:
    if any(not 0 <= o < len(s.options) for s, c in zip(problem.copied, assignment.copies, strict=True)
           for o in c.values()):
        return []
    used = amounts(problem, assignment)
    found = [f"{store.name} of {problem.places[store.place]} would hold {amount} {store.unit}, it has {store.capacity}"
             for store, amount in zip(problem.stores, used, strict=True) if amount > store.capacity]
    for ceiling in problem.ceilings:
        together = sum(used[i] for i in ceiling.stores)
        if together > ceiling.capacity:
            found.append(f"{ceiling.name} would hold {together} {problem.stores[ceiling.stores[0]].unit}, it may hold "
                         f"{ceiling.capacity}")
    return found


def code_used(problem: Problem, assignment: Assignment, number: int) -> int:
    """Code in a code store: each piece once, whatever the number of units that run it there."""
    store = problem.code[number]
    there = {u for u, p in enumerate(assignment.places) if problem.physical[p] == store.place}
    return sum(size for units, size in store.pieces if units & there)


def _code(problem: Problem, assignment: Assignment) -> list[str]:
    found = []
    for number, store in enumerate(problem.code):
        used = code_used(problem, assignment, number)
        if used > store.capacity:
            found.append(f"the code at {problem.places[store.place]} takes {used} instructions, its store has "
                         f"{store.capacity}")
    return found


def _promise(problem: Problem, assignment: Assignment, promise: Promise) -> list[str]:
    if promise.cores == 0 and uses_host(problem, assignment):
        return ["the plan has no host core, but something is at the host"]
    found = []
    total = exact_norm_power(problem, exact_demand(problem, assignment), promise.rate, promise.cores)
    exponent = int(problem.exponent)
    if total is None or total > (1 - promise.headroom) ** exponent:
        shown = "no" if total is None else f"{_root(total, exponent) / float(1 - promise.headroom):.4f} times the"
        found.append(f"at {float(promise.rate):.6g} packets/s with {promise.cores} host cores the plan needs {shown} "
                     "capacity there is")
    if promise.latency is None or found:
        return found
    reached = latency_of(problem, demand_of(problem, assignment), promise.cores, promise.latency_rate).total
    if not reached <= promise.latency * (1 + _ROUNDING):
        found.append(f"at {promise.latency_rate:.6g} packets/s a packet takes {reached:.6g} ns, it may take "
                     f"{promise.latency:.6g} ns")
    return found


def _root(value: Fraction, exponent: int) -> float:
    """A root of a rational whose float may be out of range."""
    scale = max(value.numerator.bit_length() - value.denominator.bit_length(), 0) // exponent
    return float(float(value / 2 ** (scale * exponent)) ** (1 / exponent) * 2.0**scale)


def exact_demand(problem: Problem, assignment: Assignment) -> list[Fraction]:
    """[K + 1] what `demand_of` gives, without rounding."""
    rows: list[Vector] = [problem.base]
    rows += [problem.cost[u, p] for u, p in enumerate(assignment.places)]
    for edge in problem.edges:
        start, stop = assignment.places[edge.source], assignment.places[edge.target]
        rows += [edge.cross[p] for p in range(start + 1, stop + 1)]
        rows += [edge.visit[stop]] if stop > start else []
    rows += [s.options[o].cost for s, o in zip(problem.whole, assignment.whole, strict=True)]
    rows += copy_costs(problem, assignment)
    return _sum(rows, len(problem.base))


def _sum(rows: Iterable[Vector], width: int) -> list[Fraction]:
    total = [Fraction(0)] * width
    for row in rows:
        for column in row.nonzero()[0]:
            total[column] += Fraction(float(row[column]))
    return total


def exact_norm_power(problem: Problem, demand: Sequence[Fraction], rate: Fraction, cores: int) -> Fraction | None:
    """sum_r (X D_r / R_r)^s as a rational, or None when something is used of which there is nothing.

    An exponent that is no integer is taken down to one: that never understates the soft maximum.
    """
    total = Fraction(0)
    for used, resource in zip(demand, problem.resources, strict=False):
        if used == 0:
            continue
        available = Fraction(resource.rate) * (cores if resource.scales else 1)
        if available == 0:
            return None
        total += (rate * used / available) ** int(problem.exponent)
    return total
