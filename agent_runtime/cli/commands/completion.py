"""`agent-runtime completion`: complete commands, options and ids with the Tab key."""

from __future__ import annotations

from typing import cast

import click

from agent_runtime.cli.completion.install import SHELLS, Shell, install, script_of
from agent_runtime.cli.terminal import say, write_output


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option(
    "--install",
    "installing",
    is_flag=True,
    help="Write the script for this user, and let the shell load it when it starts.",
)
def completion(shell: str, installing: bool) -> None:
    """Print the completion script of SHELL, or install it.

    It completes commands, options, and the ids of threads, runs and questions with their titles.

    \b
    Examples:
      agent-runtime completion bash --install
      agent-runtime completion fish > agent-runtime.fish
    """
    chosen = cast("Shell", shell)
    if not installing:
        write_output(script_of(chosen).rstrip("\n"))
        return
    try:
        place = install(chosen)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}.") from None
    say(f"Written: {place.script}")
    if place.start_file is not None:
        say(f"It is loaded by {place.start_file}.")
    say("Open a new shell to use it.")
