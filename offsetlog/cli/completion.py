"""``offsetlog completion``: the script with which a shell completes commands and topics."""

from __future__ import annotations

import click

from offsetlog.cli.base import Command
from offsetlog.cli.output import print_text

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    cls=Command,
    examples="""
    $ offsetlog completion bash > /tmp/offsetlog.bash
    $ offsetlog completion fish > /tmp/offsetlog.fish
    """,
)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    bash: add  eval "$(offsetlog completion bash)"  to ~/.bashrc. zsh: the same, to ~/.zshrc.
    fish: write it to ~/.config/fish/completions/offsetlog.fish.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from offsetlog.cli.main import COMPLETE_VARIABLE, PROGRAM

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(ctx.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE)
    # The bash class would start a bash to ask for its version; the script is the same.
    print_text(f"{ShellComplete.source(script)}\n")
