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
    name = instance.target.places[place].name
    own = [r.reason for r in instance.refusals if r.subject == state and r.place == name]
    if own and all(o.place != place for o in instance.options[state]):
        return own[0]
    unit = units.of_state[state]
    others = [s for s, u in units.of_state.items() if u == unit and s != state]
    labels = {n.label for n, u in zip(instance.graph.nodes, units.of_node, strict=True) if u == unit}
    for r in instance.refusals:
        if r.place != name:
            continue
        if r.subject in others and all(o.place != place for o in instance.options[r.subject]):
            return f"it has to be where {r.subject} is, and there: {r.reason}"
        if r.subject in labels and not units.allowed[unit, place]:
            return f"code that uses it cannot run there: {r.reason}"
    return "code before or after it would have to go back towards the wire, or a memory or code store is too small"


def no_plan(search: Search, aim: Aim, scale: float) -> CoraError:
    """The error for an aim that no placement meets: what is short, and what would be met instead."""
    try:
        return _short_of_rate(search, aim, scale) or _short_of_room(search, aim, scale)
    except OutOfTime:
        return fail(Kind.NO_PLAN, "there is no plan, and the time limit ended the search for what there is instead",
                    hint="raise --time-limit to learn more")


def _short_of_rate(search: Search, aim: Aim, scale: float) -> CoraError | None:
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
    hint = f"ask for --rate {_whole(reach)}pps or less" + (f", or give it {more} cores: --cores {more}" if more else "")
    return fail(Kind.NO_PLAN,
                f"{instance.target.name} with {found.cores} host cores cannot carry {aim.rate / 1e6:.3g} Mpps of this "
                f"traffic; the most is {reach / 1e6:.3g} Mpps",
                notes=[(f"what runs out is {binding.name}: {have:.4g} {binding.unit}/s, a packet takes {use:.4g}",
                        None)],
                hint=hint)


def _whole(rate: float) -> str:
    return f"{int(rate / 1e4) / 100:g}M" if rate >= 1e5 else f"{int(rate)}"


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
    roomy = search.formulation(scale, stores=False)
    if search.best(roomy, "host", max(aim.most, 1), Limits(), "room") is not None:
        sizes = [f"{s.name} needs {min(o.amount for o in instance.options[s.name])}" for s in instance.program.states]
        return fail(Kind.NO_PLAN,
                    f"states and code do not fit into {instance.target.name} together: {'; '.join(sizes)}",
                    span=instance.program.span, hint="declare smaller capacities")
    return fail(Kind.NO_PLAN, f"no placement on {instance.target.name} lets every packet run its program without going "
                              "back towards the wire", span=instance.program.span,
                notes=_notes(instance, _subjects(instance)))


def _subjects(instance: Instance) -> set[str]:
    return {r.subject for r in instance.refusals}
