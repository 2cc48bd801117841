"""``cora report``: a plan as one HTML page that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cora.cli.common import inputs_options, keep_inputs, progress, subject_of_plan, write_text
from cora.errors import CoraError, Kind, fail

if TYPE_CHECKING:
    from cora.explain.subject import Subject
    from cora.plan.document import Plan
    from cora.report.page import Beside


@click.command("report")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FILE", help="The page to write (HTML).")
@inputs_options
def command(plan: str, output: str, nf: str | None, settings: tuple[str, ...], profile_file: str | None) -> None:
    """Write the plan PLAN as one HTML page: places and memories, packet paths, what binds, comparisons, refusals.

    With --profile also popularity, the front of host cores against throughput, and what more of a resource or a change
    of the program would bring; for these, plans are made anew.
    """
    from cora.plan.document import load_plan
    from cora.report.page import page

    keep_inputs({"-o": output}, [plan, nf, profile_file])
    found = load_plan(Path(plan))
    if profile_file is None and (nf or settings):
        raise fail(Kind.BAD_FLAG, "the program alone adds nothing to the report", where="--program, --set",
                   hint="give the profile too: --profile FILE")
    if profile_file is None:
        text = page(found, _plain(found))
    else:
        text = page(found, _beside(subject_of_plan(found, nf, settings, profile_file)))
    write_text(output, text)
    if output != "-":
        click.echo(f"written: {output}")


def _plain(plan: Plan) -> Beside:
    """The sizes of memories, where the card is one this version knows."""
    from cora.explain.subject import target_of
    from cora.report.page import Beside

    try:
        return Beside(target_of(plan).places)
    except CoraError:
        return Beside()


def _beside(subject: Subject) -> Beside:
    from cora.explain import changes, front, sensitivity
    from cora.explain.questions import Questions
    from cora.explain.sizing import sizes
    from cora.plan.render import planned_rate
    from cora.report.page import Beside

    questions = Questions(subject)
    steps = front.MOST
    many = steps + sensitivity.count(questions)
    with progress("plans", many + changes.count(questions), least=1) as tell:
        points = front.front(subject, tell)
        more = sensitivity.sensitivity(questions, lambda n: tell(steps + n))
        helpful = changes.changes_of(questions, lambda n: tell(many + n))
    full = sizes(subject.program, subject.profile, planned_rate(subject.plan))
    return Beside(subject.target.places, subject.profile, points, full, more, helpful)
