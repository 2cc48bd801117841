"""``cora state``: the state of running programs, out and in."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cora.cli.common import json_option, plural, print_json, write_text
from cora.cli.live import only_run


@click.group("state")
def command() -> None:
    """Read and replace the state of running programs."""


@command.command("dump")
@click.argument("name", metavar="NAME")
@click.argument("states", metavar="[STATE]...", nargs=-1)
@click.option("-o", "--output", default="-", show_default=True, type=click.Path(), metavar="FILE",
              help="Write it there; - is the screen.")
@json_option
def dump(name: str, states: tuple[str, ...], output: str, as_json: bool) -> None:
    """Write the state of the run NAME as JSON: all states, or those named."""
    from cora.runtime.control import Control
    from cora.runtime.runs import job_of
    from cora.runtime.states import dumped

    run = only_run(name)
    with Control(Path(run.control)) as control:
        document = dumped(control, job_of(run).request.program, states)
    write_text(output, json.dumps(document, indent=1) + "\n")
    if output != "-" and as_json:
        print_json({"written": output, "states": list(document["states"])})
    elif output != "-":
        click.echo(f"written: {output} ({plural(len(document['states']), 'state', 'states')})")


@command.command("load")
@click.argument("name", metavar="NAME")
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("states", metavar="[STATE]...", nargs=-1)
@json_option
def load(name: str, file: str, states: tuple[str, ...], as_json: bool) -> None:
    """Replace states of the run NAME by those in FILE, all at once or not at all.

    FILE was written by `cora state dump`, or by `cora replay --state`. Times are moved, so that an entry that was used
    ten seconds before the dump counts as used ten seconds ago.
    """
    from cora.runtime.control import Control
    from cora.runtime.runs import job_of
    from cora.runtime.states import loaded, read_states

    run = only_run(name)
    program = job_of(run).request.program
    document = read_states(Path(file), program)
    with Control(Path(run.control)) as control:
        names = loaded(control, program, document, states)
    if as_json:
        print_json({"loaded": names})
    else:
        click.echo(f"loaded: {', '.join(names)}")
