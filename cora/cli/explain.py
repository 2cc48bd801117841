"""``cora explain``: why a plan is as it is, and what would change it."""

from __future__ import annotations

from pathlib import Path

import click

from cora.cli.common import inputs_options, json_option, note, print_json, progress, subject_of_plan
from cora.errors import Kind, fail


@click.command("explain")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.argument("state", required=False, metavar="[STATE]")
@inputs_options
@json_option
def command(plan: str, state: str | None, nf: str | None, settings: tuple[str, ...], profile_file: str | None,
            as_json: bool) -> None:
    """Say why the plan PLAN is as it is: what binds and which lines use it, why each state is where it is.

    With --profile also what more of each resource would buy, and the smallest changes that would offload more: each is
    planned anew. With STATE all that is known about one state's place.
    """
    from cora.explain.why import as_json as data
    from cora.explain.why import changes_text, kept_text, more_text, why
    from cora.plan.document import load_plan
    from cora.plan.render import explain, explained

    found = load_plan(Path(plan))
    if state is not None:
        if profile_file or nf or settings:
            raise fail(Kind.BAD_FLAG, "one state's place is explained from the plan alone",
                       where="--profile, --program", hint="leave out the state, or these")
        print_json(explained(found, state)) if as_json else click.echo(explain(found, state), nl=False)
        return
    if profile_file is None:
        if nf or settings:
            raise fail(Kind.BAD_FLAG, "the program alone answers nothing more", where="--program, --set",
                       hint="give the profile too: --profile FILE")
        if as_json:
            print_json(data(found))
            return
        click.echo(why(found), nl=False)
        note("what more of a resource or a change would bring: ask again with --profile FILE")
        return
    from cora.explain import changes, sensitivity
    from cora.explain.kept import kept_at_owner, not_lent
    from cora.explain.questions import Questions

    questions = Questions(subject_of_plan(found, nf, settings, profile_file))
    many = sensitivity.count(questions)
    with progress("plans", many + changes.count(questions), least=1) as tell:
        more = sensitivity.sensitivity(questions, tell)
        helpful = changes.changes_of(questions, lambda n: tell(many + n))
    kept, never = kept_at_owner(questions.subject), not_lent(questions.subject)
    if as_json:
        print_json(data(found, more, helpful, kept, never))
        return
    bought = more_text(more, sensitivity.unasked(questions))
    click.echo("\n".join([why(found), bought, kept_text(kept, never), changes_text(helpful)]), nl=False)
