"""What if: a plan's request asked again with one thing different, and what that would gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cora.analysis.profile import Profile
from cora.errors import CoraError, Kind
from cora.explain.subject import Subject
from cora.ir.nodes import Program
from cora.models.target import Target
from cora.partition.planner import Asking, Outcome
from cora.partition.uncertainty import band
from cora.plan.document import Plan, Request

# Gains below this share are none: tangent cuts and bisection promise no more.
SAME = 1e-3


@dataclass(frozen=True)
class Answer:
    """What the best plan reaches; None where there is none.

    ``most``: the most throughput with so many host cores; ``fewest``: host cores for the asked rate.
    """

    most: Outcome | None
    fewest: int | None


@dataclass(frozen=True)
class Gain:
    """What a change brings, planned anew; every figure is predicted.

    Attributes:
        throughput_pps: the most with the plan's cores (as `ratio` compares); None: no plan any more.
        ratio: of it to what there is now; low, high: P10 and P90 of the ratio over the samples of the model, both
            sides under the same sample.
        cores: the fewest for the asked rate, None where none was asked for or it is out of reach; cores_now: now.
    """

    throughput_pps: float | None
    ratio: float
    low: float
    high: float
    cores: int | None
    cores_now: int | None

    @property
    def nothing(self) -> bool:
        """Whether neither throughput nor cores get better."""
        fewer = self.cores is not None and self.cores_now is not None and self.cores < self.cores_now
        return not fewer and self.ratio < 1 + SAME


class Questions:
    """Asks about one plan; what is compared with, the plan made again from the same inputs, is asked once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.asking = Asking()
        request = subject.plan.request
        # What binds shows only with the cores that are there: those of the plan, or those that were given.
        self.cores = subject.plan.cores if request.rate_pps is not None or request.cores is None else request.cores
        self.now = self.ask(subject.program, subject.profile, subject.target, self.cores)

    def ask(self, program: Program, profile: Profile, target: Target, cores: int, only_rates: bool = False) -> Answer:
        """``only_rates``: the target differs from the plan's in the rates of its resources alone."""
        rates_of = self.subject.target if only_rates else None

        def reached(request: Request) -> Outcome | None:
            return _outcome(self.asking, (program, profile, target), request, self.subject.plan, rates_of)

        most = reached(replace(self.subject.plan.request, rate_pps=None, line_bps=None, cores=cores))
        return Answer(most, self._fewest(reached, most))

    def _fewest(self, reached: Callable[[Request], Outcome | None], most: Outcome | None) -> int | None:
        """Cores for the asked rate; ``most``: what the plan's cores carry."""
        plan = self.subject.plan
        rate = plan.request.rate_pps
        if rate is None:
            return None
        if most is not None and most.throughput >= rate * (1 - SAME):
            # One plan tells whether one core less would do; only then it is worth searching for the fewest.
            less = None if plan.cores == 0 else reached(replace(plan.request, rate_pps=None, line_bps=None,
                                                                cores=plan.cores - 1))
            if less is None or less.throughput < rate:
                return plan.cores
        found = reached(replace(plan.request, cores=None))
        return None if found is None else found.cores

    def gain(self, *, program: Program | None = None, profile: Profile | None = None, target: Target | None = None,
             more_cores: int = 0, only_rates: bool = False) -> Gain:
        """What one or several things different would bring; what is not given stays as it is. ``only_rates``: as for
        `ask`."""
        s = self.subject
        then = self.ask(program or s.program, profile or s.profile, target or s.target, self.cores + more_cores,
                        only_rates)
        if then.most is None or self.now.most is None:
            return Gain(None, 0.0, 0.0, 0.0, then.fewest, self.now.fewest)
        ratios = [b / a for a, b in zip(self.now.most.reach, then.most.reach, strict=True) if a > 0 and b < math.inf]
        low, high = band(ratios) if ratios else (1.0, 1.0)
        ratio = then.most.throughput / self.now.most.throughput
        return Gain(then.most.throughput, ratio, low, high, then.fewest, self.now.fewest)


def most_with(subject: Subject, cores: int) -> Outcome | None:
    """The most a plan's inputs carry with so many host cores."""
    return _outcome(Asking(), (subject.program, subject.profile, subject.target), replace(
        subject.plan.request, rate_pps=None, line_bps=None, cores=cores), subject.plan)


def _outcome(asking: Asking, of: tuple[Program, Profile, Target], request: Request, warm: Plan,
             rates_of: Target | None = None) -> Outcome | None:
    try:
        return asking.outcome(*of, request, warm, rates_of)
    except CoraError as error:
        if all(d.kind in (Kind.NO_PLAN, Kind.SOLVER) for d in error.diagnostics):
            return None
        raise


def told(gain: Gain) -> Mapping[str, object]:
    """A gain as JSON's own types."""
    return {"throughput_pps": gain.throughput_pps, "ratio": gain.ratio, "low": gain.low, "high": gain.high,
            "cores": gain.cores, "cores_now": gain.cores_now, "nothing": gain.nothing, "kind": "predicted"}
