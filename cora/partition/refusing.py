"""Why there is no plan, and which one there would be: every refusal in the user's own terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cora.errors import CoraError, Kind, fail
from cora.ir.span import Span
from cora.partition.baselines import Aim, ancestors
from cora.partition.choosing import Case, Chooser, Chosen
from cora.partition.evaluate import DEFAULT_HOST_CORES
from cora.partition.instance import Instance
from cora.partition.integer import Limits, Setting
from cora.partition.optimise import OutOfTime
from cora.partition.options import Restrictions
from cora.partition.placement import rates_of_resources
from cora.partition.problem import Problem
from cora.partition.units import Units, units_of
from cora.partition.variants import WHOLE
from cora.plan.quantities import available, cores, line_rate, mpps, number, used
from cora.units import LINE_OCTETS

_SHOWN = 6


def refuse_what_fits_nowhere(instance: Instance, units: Units, free: Instance, restrictions: Restrictions) -> None:
    """Refuse a program with a state or code that no place takes; ``free`` is the instance without restrictions.

    Raises:
        CoraError: `Kind.NO_PLAN` with the restrictions that do it, or the target's reasons as notes.
    """
    if _has_a_place(instance, units):
        return
    blamed = restrictions.blamed(lambda some: _is_placeable(some.applied(free)))
    if blamed:
        raise _contradicting(instance, units, blamed)
    kept = {s.name for s in instance.problem.whole if s.options}
    kept |= {s.name for s in instance.problem.copied if s.options}
    for state in instance.program.states:
        if state.name not in kept:
            raise fail(Kind.NO_PLAN, f"no place of {instance.target.name} can keep {state.name}", span=state.span,
                       notes=_notes(instance, {state.name}))
    for unit, allowed in enumerate(units.problem.allowed):
        if allowed.any():
            continue
        states = [s.name for s in units.problem.whole if unit in s.units]
        states += [s.name for s in units.problem.copied if unit in s.users]
        nodes = [n for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit]
        labels = {n.label for n in nodes}
        what = f"{', '.join(states)} and the code that uses them" if states else f"block {nodes[0].label}"
        raise fail(Kind.NO_PLAN, f"no place of {instance.target.name} can take {what} together",
                   span=nodes[0].piece.block.span, notes=_notes(instance, labels | set(states)))


def _is_placeable(instance: Instance) -> bool:
    return _has_a_place(instance, units_of(instance))


def _has_a_place(instance: Instance, units: Units) -> bool:
    """Whether every state and every piece of code may be somewhere."""
    problem = instance.problem
    kept = all(s.options for s in problem.whole) and all(s.options for s in problem.copied)
    return kept and bool(units.problem.allowed.any(axis=1).all())


def _contradicting(instance: Instance, units: Units, blamed: Sequence[str]) -> CoraError:
    """Restrictions that leave a state, or states that have to be together, no place."""
    problem = instance.problem
    lost = [*(s.name for s in problem.whole if not s.options), *(s.name for s in problem.copied if not s.options)]
    if lost:
        leave = "leave" if len(blamed) > 1 else "leaves"
        return fail(Kind.NO_PLAN, f"{_and(blamed)} {leave} {lost[0]} no place of {instance.target.name}",
                    span=instance.program.state(lost[0]).span, hint="drop one of them")
    unit = next(u for u, allowed in enumerate(units.problem.allowed) if not allowed.any())
    states = [s.name for s in units.problem.whole if unit in s.units]
    states += [s.name for s in units.problem.copied if unit in s.users]
    node = next(n for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit)
    return fail(Kind.NO_PLAN, f"{_and(blamed)} contradict each other: {', '.join(states)} are used by code that is at "
                              "one place", span=node.piece.block.span, hint="drop one of them")


def _and(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def refuse_pins(free: Instance, restrictions: Restrictions) -> None:
    """Refuse pins that the target cannot keep; ``free`` is the instance without restrictions.

    Raises:
        CoraError: `Kind.NO_PLAN` saying which, and why with the target's reasons.
    """
    spots: dict[str, set[tuple[int, str]]] = {s.name: {(o.place, free.problem.stores[o.store].name) for o in s.options}
                                              for s in free.problem.whole}
    spots |= {s.name: {(o.place, free.problem.stores[o.store].name) for o in s.options} for s in free.problem.copied}
    for pin in restrictions.pins:
        if any(pin.covers(*spot) for spot in spots[pin.state]):
            continue
        place = free.target.places[pin.place].name
        where = {place, f"{place}/{pin.tier}"} if pin.tier else {place, *(f"{place}/{t.name}" for t in
                                                                          free.target.places[pin.place].tiers)}
        notes = [(f"{r.place}: {r.reason}", r.span) for r in free.refusals if r.subject == pin.state
                 and r.place in where]
        raise fail(Kind.NO_PLAN, f"{pin.state} cannot be pinned to {pin.text.partition('=')[2]}", where="--pin",
                   span=free.program.state(pin.state).span, notes=notes[:_SHOWN], hint="drop this pin")


def _notes(instance: Instance, subjects: set[str]) -> list[tuple[str, Span | None]]:
    found = [(f"{r.place}: {r.reason}", r.span) for r in instance.refusals if r.subject in subjects]
    return found[:_SHOWN]


def why_not(instance: Instance, units: Units, state: str, place: int) -> str:
    """Why a state cannot be at a place, in one sentence."""
    unit = units.of_state.get(state)
    if unit is None:
        own = _first(instance, [state], instance.target.places[place].name)
        return own[1] if own is not None else "its memory or the code store of the place is too small"
    own = _refused(instance, units, unit, place, first=state)
    if own is not None:
        subject, reason = own
        return reason if subject == state else f"it has to be where '{subject}' is, and there: {reason}"
    last = max(v for v, p in enumerate(units.problem.physical) if p == place)
    for before in sorted(ancestors(units.problem, unit)):
        if not units.problem.allowed[before, : last + 1].any():
            found = _refused(instance, units, before, place)
            if found is not None:
                return (f"packets reach it after '{found[0]}', which cannot be there, and do not come back: {found[1]}")
    return "its memory or the code store of the place is too small for everything that would have to be there with it"


def _refused(instance: Instance, units: Units, unit: int, place: int, first: str = "") -> tuple[str, str] | None:
    """What of a unit a place refuses and why; ``first`` is asked before the others."""
    if any(units.problem.allowed[unit, v] for v, p in enumerate(units.problem.physical) if p == place):
        return None
    states = sorted((s.name for s in (*units.problem.whole,) if unit in s.units), key=lambda s: (s != first, s))
    states += [s.name for s in units.problem.copied if unit in s.users]
    labels = [n.label for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit]
    return _first(instance, [*states, *labels], instance.target.places[place].name)


def _first(instance: Instance, subjects: Sequence[str], place: str) -> tuple[str, str] | None:
    return next(((subject, r.reason) for subject in subjects for r in instance.refusals
                 if r.subject == subject and r.place == place), None)


def no_plan(chooser: Chooser, line_bps: int | None = None) -> CoraError:
    """The error for an aim that no placement meets: what is short, and what would be met instead.

    ``line_bps``: the rate as it was asked, where that was in bits/s on the line; answers are then given in both units.
    """
    try:
        return _short_of_time(chooser) or _short_of_rate(chooser, line_bps) or _short_of_room(chooser)
    except OutOfTime:
        return fail(Kind.NO_PLAN, "there is no plan, and the time limit ended the search for what there is instead",
                    hint="raise --time-limit to learn more")


def _for(chooser: Chooser, aim: Aim) -> Chosen | None:
    """The best plan for another aim, with all variants."""
    other = Chooser(chooser.prices, replace(chooser.asked, aim=aim), chooser.scale)
    return other.best()


def _short_of_time(chooser: Chooser) -> CoraError | None:
    """Where the limit of latency is what fails: the least there is."""
    asked, aim = chooser.asked, chooser.aim
    if asked.latency is None:
        return None
    free = Chooser(chooser.prices, replace(asked, latency=None), chooser.scale)
    found = free.best()
    if found is None:
        return None
    rate = aim.rate if aim.rate is not None else 1.0
    cases = [free.whole, *free.others]
    search = free.optimiser_of(cases, [c.units.problem for c in cases])
    least = search.best("latency", Setting(rate, max(aim.most, 1), rate), Limits(aim.room), "latency")
    if least is None:
        return None
    placement = cases[least.variant].placement(least.assignment)
    reached = placement.latency(max(aim.most, int(placement.uses_host)), rate)
    at = f"at {mpps(rate)}" if aim.rate is not None else "however few packets come"
    return fail(Kind.NO_PLAN, f"a packet cannot be through {chooser.prices.target.name} in {asked.latency / 1000:g} us "
                              f"{at}: the least for the mean packet is {reached.total / 1000:.2f} us",
                notes=[(f"{reached.unloaded / 1000:.2f} us of it is the way to and from where the program runs, "
                        f"{(reached.service + reached.queueing) / 1000:.2f} us work and waiting", None)],
                hint=f"ask for --max-latency {math.ceil(reached.total / 100) / 10:g}us or more")


def _short_of_rate(chooser: Chooser, line_bps: int | None) -> CoraError | None:
    aim, prices = chooser.aim, chooser.prices
    found = None if aim.rate is None else _for(chooser, replace(aim, rate=None, cores=aim.most))
    if found is None or aim.rate is None:
        return None
    instance = found.placement.instance
    loads = found.placement.utilisation(found.cores, aim.rate)
    reach = aim.rate / found.placement.load(found.cores, aim.rate) * aim.room
    binding = prices.resources[int(loads.argmax())]
    have = rates_of_resources(instance, found.cores)[int(loads.argmax())]
    use = found.placement.demand[int(loads.argmax())]
    more = _more_cores(chooser)
    within = f"{_whole(reach)}pps"
    if line_bps is not None:
        within = f"{_whole(reach * 8 * (prices.frame + LINE_OCTETS))}bps"
    hint = f"ask for --rate {within} or less" + (f", or give it {more} cores: --cores {more}" if more else "")
    asked, most = mpps(aim.rate), mpps(reach)
    if line_bps is not None:
        asked, most = (f"{line_rate(x, prices.frame)} on the line ({mpps(x)})" for x in (aim.rate, reach))
    even = "even with" if aim.most >= DEFAULT_HOST_CORES else "with"
    return fail(Kind.NO_PLAN,
                f"{prices.target.name} cannot carry {asked} of this traffic {even} {cores(aim.most)}; the most is "
                f"{most}",
                notes=[(f"what runs out is {binding.name}: a packet takes {used(use, binding.unit)}, available: "
                        f"{available(binding.name, have, binding.unit)}", None)],
                hint=hint)


def _whole(rate: float) -> str:
    """A rate rounded down to what can be asked for."""
    if rate >= 1e9:
        return f"{int(rate / 1e7) / 100:.10g}G"
    return f"{int(rate / 1e4) / 100:.10g}M" if rate >= 1e5 else f"{int(rate)}"


def _more_cores(chooser: Chooser) -> int | None:
    aim = chooser.aim
    if aim.most >= DEFAULT_HOST_CORES or aim.rate is None:
        return None
    found = _for(chooser, replace(aim, cores=None, most=DEFAULT_HOST_CORES))
    return None if found is None else found.cores


def _short_of_room(chooser: Chooser) -> CoraError:
    instance, aim, target = chooser.whole.instance, chooser.aim, chooser.prices.target
    if aim.most == 0 and _for(chooser, Aim(None, 1, 1, aim.room)) is not None:
        return fail(Kind.NO_PLAN, "without a host core there is no plan: part of the program cannot run on the card of "
                                  f"{target.name}", notes=_notes(instance, _subjects(instance)),
                    hint="give it one: --cores 1")
    case = chooser.whole
    blamed = chooser.asked.restrictions.blamed(lambda some: may_be_placed(chooser, some))
    if blamed:
        leave = "leave" if len(blamed) > 1 else "leaves"
        return fail(Kind.NO_PLAN, f"{_and(blamed)} {leave} no plan of {instance.program.name} on {target.name}",
                    span=instance.program.span, hint="drop one of them" if len(blamed) > 1 else "drop it, or weaken it")
    roomy = chooser.optimiser_of([case], [case.units.problem])
    if roomy.best("host", Setting(chooser.scale, max(aim.most, 1), memory=False), Limits(), "room") is not None:
        amounts = {s.name: [o.amount for o in s.options] for s in instance.problem.whole}
        amounts |= {s.name: [o.amount for o in s.options] for s in instance.problem.copied}
        sizes = [f"{s.name} needs {number(min(amounts[s.name]))}" for s in instance.program.states]
        return fail(Kind.NO_PLAN, f"states and code do not fit into {target.name} together: {'; '.join(sizes)}",
                    span=instance.program.span, hint="declare smaller capacities")
    return fail(Kind.NO_PLAN, f"no placement on {target.name} lets every packet run its program without going back "
                              "towards the wire", span=instance.program.span,
                notes=_notes(instance, _subjects(instance)))


def may_be_placed(chooser: Chooser, restrictions: Restrictions, state: str = "", place: int = 0) -> bool:
    """Whether some plan without a split is legal under restrictions, with ``state`` at ``place`` where one is given.

    Raises:
        OutOfTime: there is no time to find out.
    """
    case = Case(chooser.prices, WHOLE, replace(chooser.asked, restrictions=restrictions))
    if not case.is_possible:
        return False
    problem = pinned(case.units.problem, state, place) if state else case.units.problem
    if not problem.allowed.any(axis=1).all():
        return False
    search = chooser.optimiser_of([case], [problem])
    return search.best("host", Setting(chooser.scale, max(chooser.aim.most, 1)), Limits(), "any") is not None


def pinned(problem: Problem, name: str, place: int) -> Problem:
    """The problem with a state kept whole at a physical place."""
    state = next(s for s in problem.whole if s.name == name)
    allowed = problem.allowed.copy()
    allowed[list(state.units)] &= [p == place for p in problem.physical]
    return replace(problem, allowed=allowed)


def kept_away(chooser: Chooser, state: str, place: int) -> str:
    """Which restrictions keep a state from a place; empty where it is not them, or no time is left to find out."""
    given = chooser.asked.restrictions
    own = given.away(state, place)
    if own is not None:
        return f"{own} keeps it away"
    try:
        blamed = given.blamed(lambda some: may_be_placed(chooser, some, state, place))
    except OutOfTime:
        return ""
    return f"{_and(blamed)} {'keep' if len(blamed) > 1 else 'keeps'} it away" if blamed else ""


def _subjects(instance: Instance) -> set[str]:
    return {r.subject for r in instance.refusals}
