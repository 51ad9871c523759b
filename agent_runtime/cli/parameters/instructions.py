"""The user's standing instructions for an agent, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agent_runtime_config import Settings

MOST_BYTES = 64 << 10
"""The most bytes of the file: it is a part of every prompt."""

instructions_option = click.option(
    "--instructions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Standing instructions of yours for the agent; stored with the run.",
)


def read_instructions(given: Path | None, settings: Settings) -> str:
    """Return the text of the file that the option, or else the setting, names; empty without one.

    Raises:
        click.UsageError: it cannot be read, or is no text, or too long.
    """
    if given is None and not settings.instructions_file:
        return ""
    path = given or Path(settings.instructions_file).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"The file of instructions {path}: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise click.UsageError(
            f"The file of instructions {path} has more than {MOST_BYTES // 1024} KiB, which every "
            "prompt would carry. Put what is needed now and then into files that the agent reads."
        )
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise click.UsageError(f"The file of instructions {path} is not UTF-8 text.") from None
