"""``cora completion``: the shell completion script."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  cora completion bash > ~/.local/share/bash-completion/completions/cora
    zsh:   cora completion zsh > "${fpath[1]}/_cora"
    fish:  cora completion fish > ~/.config/fish/completions/cora.fish
    """
    from click.shell_completion import get_completion_class

    from cora.cli import app

    kind = get_completion_class(shell)
    assert kind is not None, "the choices are those click supports"
    click.echo(kind(app, {}, "cora", "_CORA_COMPLETE").source())
