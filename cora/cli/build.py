"""``cora build``: a plan as source trees that build anywhere."""

from __future__ import annotations

from pathlib import Path

import click

from cora.cli.common import build_request, json_option, plan_program_options, plural, print_json


@click.command("build")
@click.argument("plan", metavar="PLAN", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FOLDER",
              help="The folder of the tree; one that an earlier build made is replaced.")
@click.option("--force", is_flag=True,
              help="Write over files of an earlier build that were changed since, and beside files that are not of it.")
@click.option("--check", is_flag=True, help="Also compile everything (`make check`).")
@plan_program_options
@json_option
def command(plan: str, output: str, force: bool, check: bool, settings: tuple[str, ...], nf: str | None,
            as_json: bool) -> None:
    """Write the programs of PLAN's places as a source tree: a folder a place, Makefile, README, plan, manifest.

    The tree is complete: it builds with `make` on any machine that has the tools its README names. The same plan gives
    the same bytes.
    """
    from cora.build.backend import launcher_of
    from cora.build.compose import build
    from cora.build.make import make
    from cora.build.tree import write_tree

    request = build_request(plan, nf, settings)
    tree, out = build(request), Path(output)
    write_tree(tree, out, force=force)
    if check:
        make(out, request.plan.target, "check")
    folders = [p.place for p in request.split.parts if f"{p.place}/Makefile" in tree.files]
    if as_json:
        print_json({"folder": output, "digest": tree.digest(), "target": request.plan.target, "places": folders,
                    "files": list(tree.files), "checked": check})
        return
    size = sum(len(text) for text in tree.files.values())
    click.echo(f"written: {output} ({plural(len(tree.files), 'file', 'files')}, {size:,} bytes; "
               f"{', '.join(folders)}{'; compiles' if check else ''})")
    run = "" if launcher_of(request.plan.target) is None else f", or `cora run {plan} --ports PORT=INTERFACE,...`"
    click.echo(f"next: `make -C {output}`{run}; {output}/README.md says more")
