"""The option `--env-file`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from agent_runtime_config.names import ENV_FILE


def _use(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is not None:
        # A full path: whoever types the option chooses the file, so that it may set everything.
        os.environ[ENV_FILE] = str(path)


env_file_option = click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_use,
    help="Read settings and providers' keys from a file too; the environment wins.",
)
