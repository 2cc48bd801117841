"""Why there is no plan, and which one there would be: every refusal in the user's own terms."""

from __future__ import annotations

from cora.errors import CoraError, Kind, fail
from cora.ir.span import Span
from cora.partition.baselines import Aim
from cora.partition.formulation import Limits
from cora.partition.instance import Instance
from cora.partition.placement import (
    DEFAULT_HOST_CORES,
    demand_of,
    norm,
    rates_of_resources,
    utilisation,
)
from cora.partition.search import OutOfTime, Search
from cora.partition.units import Units
from cora.plan.quantities import available, cores, line_rate, mpps, number, used
from cora.units import LINE_OCTETS

_SHOWN = 6


def refuse_what_fits_nowhere(instance: Instance, units: Units) -> None:
    """Refuse a program with a state or code that no place takes.

    Raises:
        CoraError: `Kind.NO_PLAN` with the target's reasons as notes.
    """
    for state in instance.program.states:
        if not instance.options[state.name]:
            raise fail(Kind.NO_PLAN, f"no place of {instance.target.name} can keep {state.name}", span=state.span,
                       notes=_notes(instance, {state.name}))
    for unit, allowed in enumerate(units.allowed):
        if allowed.any():
            continue
        states = [s for s, u in units.of_state.items() if u == unit]
        nodes = [n for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit]
        labels = {n.label for n in nodes}
        what = f"{', '.join(states)} and the code that uses them" if states else f"block {nodes[0].label}"
        span: Span = nodes[0].piece.block.span if nodes else instance.program.state(states[0]).span
        raise fail(Kind.NO_PLAN, f"no place of {instance.target.name} can take {what} together", span=span,
                   notes=_notes(instance, labels | set(states)))


def _notes(instance: Instance, subjects: set[str]) -> list[tuple[str, Span | None]]:
    found = [(f"{r.place}: {r.reason}", r.span) for r in instance.refusals if r.subject in subjects]
    return found[:_SHOWN]


def why_not(instance: Instance, units: Units, state: str, place: int) -> str:
    """Why a state cannot be at a place, in one sentence."""
    unit = units.of_state[state]
    own = _refused(instance, units, unit, place, first=state)
    if own is not None:
        subject, reason = own
        return reason if subject == state else f"it has to be where '{subject}' is, and there: {reason}"
    for before in sorted(_ancestors(units, unit)):
        if not units.allowed[before, : place + 1].any():
            found = _refused(instance, units, before, place)
            if found is not None:
                return (f"packets reach it after '{found[0]}', which cannot be there, and do not come back: {found[1]}")
    return "its memory or the code store of the place is too small for everything that would have to be there with it"


def _refused(instance: Instance, units: Units, unit: int, place: int, first: str = "") -> tuple[str, str] | None:
    """What of a unit a place refuses and why; ``first`` is asked before the others."""
    if units.allowed[unit, place]:
        return None
    name = instance.target.places[place].name
    states = sorted((s for s, u in units.of_state.items() if u == unit), key=lambda s: (s != first, s))
    labels = [n.label for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit]
    for subject in (*states, *labels):
        for r in instance.refusals:
            if r.subject == subject and r.place == name:
                return subject, r.reason
    return None


def _ancestors(units: Units, unit: int) -> set[int]:
    found: set[int] = set()
    waiting = [unit]
    while waiting:
        here = waiting.pop()
        new = {e.source for e in units.edges if e.target == here} - found
        found |= new
        waiting += new
    return found - {unit}


def no_plan(search: Search, aim: Aim, scale: float, line_bps: int | None = None) -> CoraError:
    """The error for an aim that no placement meets: what is short, and what would be met instead.

    ``line_bps``: the rate as it was asked, where that was in bits/s on the line; answers are then given in both units.
    """
    try:
        return _short_of_rate(search, aim, scale, line_bps) or _short_of_room(search, aim, scale)
    except OutOfTime:
        return fail(Kind.NO_PLAN, "there is no plan, and the time limit ended the search for what there is instead",
                    hint="raise --time-limit to learn more")


def _short_of_rate(search: Search, aim: Aim, scale: float, line_bps: int | None) -> CoraError | None:
    instance = search.instance
    found = search.for_cores(aim.most, scale)
    if found is None or aim.rate is None:
        return None
    loads = utilisation(instance, found.demand, found.cores, aim.rate)
    reach = aim.rate / norm(instance, loads)
    binding = instance.resources[int(loads.argmax())]
    have = rates_of_resources(instance, found.cores)[int(loads.argmax())]
    use = demand_of(instance, found.placement)[int(loads.argmax())]
    more = _more_cores(search, aim)
    within = f"{_whole(reach)}pps"
    if line_bps is not None:
        within = f"{_whole(reach * 8 * (instance.profile.mean_frame + LINE_OCTETS))}bps"
    hint = f"ask for --rate {within} or less" + (f", or give it {more} cores: --cores {more}" if more else "")
    asked, most = mpps(aim.rate), mpps(reach)
    if line_bps is not None:
        frame = instance.profile.mean_frame
        asked, most = (f"{line_rate(x, frame)} on the line ({mpps(x)})" for x in (aim.rate, reach))
    even = "even with" if aim.most >= DEFAULT_HOST_CORES else "with"
    return fail(Kind.NO_PLAN,
                f"{instance.target.name} cannot carry {asked} of this traffic {even} {cores(aim.most)}; the most is "
                f"{most}",
                notes=[(f"what runs out is {binding.name}: a packet takes {used(use, binding.unit)}, available: "
                        f"{available(binding.name, have, binding.unit)}", None)],
                hint=hint)


def _whole(rate: float) -> str:
    """A rate rounded down to what can be asked for."""
    if rate >= 1e9:
        return f"{int(rate / 1e7) / 100:.10g}G"
    return f"{int(rate / 1e4) / 100:.10g}M" if rate >= 1e5 else f"{int(rate)}"


def _more_cores(search: Search, aim: Aim) -> int | None:
    if aim.most >= DEFAULT_HOST_CORES or aim.rate is None:
        return None
    found = search.for_rate(aim.rate, DEFAULT_HOST_CORES)
    return None if found is None else found.cores


def _short_of_room(search: Search, aim: Aim, scale: float) -> CoraError:
    instance = search.instance
    if aim.most == 0:
        with_host = search.for_cores(1, scale)
        if with_host is not None:
            return fail(Kind.NO_PLAN, f"without a host core there is no plan: part of the program cannot run on the "
                                      f"card of {instance.target.name}", notes=_notes(instance, _subjects(instance)),
                        hint="give it one: --cores 1")
    roomy = search.formulation(scale, aim.most, stores=False)
    if search.best(roomy, "host", max(aim.most, 1), Limits(), "room") is not None:
        sizes = [f"{s.name} needs {number(min(o.amount for o in instance.options[s.name]))}"
                 for s in instance.program.states]
        return fail(Kind.NO_PLAN,
                    f"states and code do not fit into {instance.target.name} together: {'; '.join(sizes)}",
                    span=instance.program.span, hint="declare smaller capacities")
    return fail(Kind.NO_PLAN, f"no placement on {instance.target.name} lets every packet run its program without going "
                              "back towards the wire", span=instance.program.span,
                notes=_notes(instance, _subjects(instance)))


def _subjects(instance: Instance) -> set[str]:
    return {r.subject for r in instance.refusals}
