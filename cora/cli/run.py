"""``cora run``: the programs of a plan on interfaces of this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from cora.cli.common import build_request, json_option, note, plan_program_options, print_json
from cora.cli.live import print_status

if TYPE_CHECKING:
    from cora.runtime.running import Ended, Running

EXIT_KILLED = 1
# Seconds between two looks at the halves.
_WATCH = 1.0


@click.command("run")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("--ports", required=True, multiple=True, metavar="PORT=INTERFACE,...",
              help="The interface of every port of the program. Repeatable.")
@click.option("--name", default=None, metavar="NAME", help="Of this run, for `cora status`; default: the program's.")
@click.option("--control", type=click.Path(), default=None, metavar="PATH",
              help="The control socket; default: one in the folder of the run.")
@click.option("--fresh", is_flag=True, help="Forget the state that a killed run of this name left.")
@plan_program_options
@json_option
def command(plan: str, ports: tuple[str, ...], name: str | None, control: str | None, fresh: bool,
            settings: tuple[str, ...], nf: str | None, as_json: bool) -> None:
    """Build PLAN, start its programs on these interfaces, and stay until a signal (Ctrl-C, SIGTERM) ends them cleanly.

    Totals are printed at the end. Meanwhile `cora status`, `cora state` and `cora trace --live` look inside. Exit code
    1: a program was killed, or ended by itself; what is left runs on as it can, and starting it again goes on from
    there.
    """
    from cora.build.request import file_stem
    from cora.runtime.interfaces import parse_ports
    from cora.runtime.running import start

    request = build_request(plan, nf, settings)
    interfaces = parse_ports(ports, [p.name for p in request.program.ports])
    asked: list[int] = []
    running = start(request, interfaces, name=name or file_stem(request),
                    control=None if control is None else Path(control), fresh=fresh)
    with _signals(asked):
        if not as_json:
            note(f"{request.program.name} runs as {running.job.name} on "
                 f"{', '.join(f'{p}={i}' for p, i in interfaces.items())}; Ctrl-C ends it, `cora status "
                 f"{running.job.name}` looks inside")
        ended = _attend(running, asked)
    if as_json:
        print_json({"totals": ended.totals, "killed": ended.killed or None})
    else:
        _print(ended)
    if ended.killed:
        raise click.exceptions.Exit(EXIT_KILLED)


class _signals:
    """SIGINT and SIGTERM are noted in a list while this is entered."""

    def __init__(self, asked: list[int]) -> None:
        self.asked = asked

    def __enter__(self) -> None:
        self.before = {s: signal.signal(s, self.note) for s in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.asked.append(number)


def _attend(running: Running, asked: list[int]) -> Ended:
    """Stay until the program ends, or until a signal asks for its end; say when a half is found dead."""
    from cora.runtime.running import halves

    known: set[str] = set()
    while not asked and not running.wait(_WATCH):
        for place, wrong in halves(running.job).items():
            if wrong and place not in known:
                known.add(place)
                note(f"warning: {place} {wrong}")
    if asked:
        running.stop()
    return running.finish()


def _print(ended: Ended) -> None:
    if ended.killed:
        note(f"error: {ended.killed}")
        note("help: start it again with the same command: it goes on from what is left, and says what was lost")
    if ended.totals is not None:
        print_status(ended.totals)
