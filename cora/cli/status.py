"""``cora status``: what running programs have done so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cora.cli.common import json_option, note, print_json, table
from cora.cli.live import only_run, print_status
from cora.errors import CoraError

if TYPE_CHECKING:
    from cora.runtime.runs import Run

EXIT_KILLED = 1


@click.command("status")
@click.argument("name", metavar="[NAME|SOCKET]", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """Print counters, tables, pools and queues of a run, and which of its halves are alive.

    Without a name: of the only run there is, or a list of all. Exit code 1: a half is dead.
    """
    from cora.runtime.control import Control
    from cora.runtime.runs import runs

    if name is not None and "/" in name:
        from pathlib import Path

        with Control(Path(name)) as control:
            _show(control.status(), as_json)
        return
    if name is None and len(found := runs()) != 1:
        _list(found, as_json)
        return
    run = only_run(name)
    places = _places(run)
    try:
        with Control(_path(run)) as control:
            told = control.status()
    except CoraError:
        if not any(places.values()):  # nothing that is wrong with a half explains it
            raise
        told = {}
    rest = {k: v for k, v in told.items() if k not in ("places", "ports")}
    _show({"name": run.name, "ports": dict(run.ports), "places": {p: _place(w) for p, w in places.items()}, **rest},
          as_json)
    if any(places.values()):
        raise click.exceptions.Exit(EXIT_KILLED)


def _place(wrong: str) -> dict[str, Any]:
    return {"alive": False, "trouble": wrong} if wrong else {"alive": True}


def _path(run: Run) -> Any:
    from pathlib import Path

    return Path(run.control)


def _places(run: Run) -> dict[str, str]:
    """What is wrong with each place of a run; that of the process we know of its record."""
    from cora.runtime.running import halves
    from cora.runtime.runs import is_alive, job_of

    job = job_of(run)
    places = [p.place for p in job.request.split.parts]
    found = {**dict.fromkeys(places, ""), **halves(job)}
    if not is_alive(run.process):
        found[places[-1]] = f"its process {run.process} is gone"
    return found


def _show(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    print_status(told)
    for place, said in told.get("places", {}).items():
        if isinstance(said, dict) and said.get("trouble"):
            note(f"warning: {place}: {said['trouble']}")


def _list(found: tuple[Run, ...], as_json: bool) -> None:
    from cora.runtime.runs import is_alive

    if as_json:
        print_json({"runs": [{"name": r.name, "program": r.program, "target": r.target, "ports": dict(r.ports),
                              "control": r.control, "alive": is_alive(r.process)} for r in found]})
        return
    if not found:
        click.echo("nothing runs here")
        return
    click.echo(table([[r.name, r.program, r.target, ", ".join(f"{p}={i}" for p, i in r.ports.items()),
                       "yes" if is_alive(r.process) else "no"] for r in found],
                     ["name", "program", "target", "ports", "alive"]))
