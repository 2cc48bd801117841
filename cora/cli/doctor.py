"""``cora doctor``: whether this machine has what building and running plans needs."""

from __future__ import annotations

import click

from cora.cli.common import complete_nic, json_option, print_json, table

EXIT_MISSING = 1


@click.command("doctor")
@click.option("--nic", default=None, metavar="NAME", shell_complete=complete_nic,
              help="Only what plans for this target need; default: all targets that plans can be built for.")
@json_option
def command(nic: str | None, as_json: bool) -> None:
    """Look for compilers, libraries and rights that building and running plans needs; tell how to get what is missing.

    Exit code 1: something is missing.
    """
    from cora.build.backend import Purpose, buildable, require_builder, tools_of
    from cora.build.tools import OPTIONAL, TOOLS
    from cora.runtime.interfaces import interfaces, is_up

    if nic is not None:
        require_builder(nic, "--nic")
    uses: dict[str, list[str]] = {}
    purposes: tuple[Purpose, ...] = ("build", "run")
    for target in (nic,) if nic is not None else buildable():
        for purpose in purposes:
            for name in tools_of(target, purpose):
                uses.setdefault(name, []).append(f"{purpose} {target}")
    found = {name: TOOLS[name].find() for name in uses}
    missing = [name for name, f in found.items() if f.missing]
    if as_json:
        print_json({"tools": [{"name": n, "what": TOOLS[n].what, "found": f.version, "missing": f.missing or None,
                               "optional": n in OPTIONAL, "command": TOOLS[n].command if f.missing else None,
                               "needed_to": uses[n]} for n, f in found.items()],
                    "interfaces": [{"name": i, "up": is_up(i)} for i in interfaces()]})
    else:
        click.echo(table([[n, f.version if not f.missing else "MISSING" if n not in OPTIONAL else "missing, optional",
                           ", ".join(uses[n])] for n, f in found.items()], ["tool", "found", "needed to"]))
        for name in missing:
            click.echo(f"{name}: {found[name].missing}\n  {TOOLS[name].command}")
        there = [f"{i}{'' if is_up(i) else ' (down)'}" for i in interfaces()]
        click.echo(f"interfaces: {', '.join(there) or 'none besides lo'}")
    if any(name not in OPTIONAL for name in missing):
        raise click.exceptions.Exit(EXIT_MISSING)
