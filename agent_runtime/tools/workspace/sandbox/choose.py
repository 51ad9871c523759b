"""Which sandbox commands run in: the settings, and what a program chooses instead."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.errors import ConfigError
from agent_runtime.tools.workspace.sandbox.base import Sandbox
from agent_runtime.tools.workspace.sandbox.bubblewrap import Bubblewrap
from agent_runtime.tools.workspace.sandbox.docker import Docker
from agent_runtime_config import Settings
from agent_runtime_config.sandbox import NONE, parse_sandbox

_checked: set[tuple[Sandbox, Path]] = set()
"""The sandboxes that were tried in this process, with their folders."""


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The settings for the commands of a run.

    Attributes:
        sandbox: its name.
        network: whether commands in it may use the network.
        read: what they may read in addition.
        variables: the names of variables that commands get in addition.
    """

    sandbox: str = NONE
    network: bool = False
    read: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> CommandSettings:
        """Return what a runtime's settings say."""
        return cls(
            settings.sandbox,
            settings.sandbox_network,
            tuple(one for one in settings.sandbox_read.split(os.pathsep) if one),
            tuple(one for one in settings.command_environment.split(",") if one),
        )


def sandbox_of(name: str, network: bool = False, read: Iterable[str] = ()) -> Sandbox | None:
    """Return the sandbox of a name; None for `none`.

    Raises:
        ConfigError: the name is not one of a sandbox, or what it should read is not there.
    """
    try:
        kind, image = parse_sandbox(name)
    except ValueError as error:
        raise ConfigError(
            f"The sandbox {name!r} {error}.", cure="Correct its name; see AGENT_RUNTIME_SANDBOX."
        ) from None
    if kind == "none":
        return None
    # Links are kept: commands name the paths as the setting does.
    places = tuple(Path(os.path.abspath(Path(one).expanduser())) for one in read)  # noqa: PTH100
    for one in places:
        if not one.exists() or one.resolve() == Path("/"):
            raise ConfigError(
                f"Commands in a sandbox cannot be shown {one}.",
                cure="Name files and folders that exist in AGENT_RUNTIME_SANDBOX_READ.",
            )
    if kind == "bwrap":
        return Bubblewrap(network, places)
    return Docker(network, places, image)


def check_sandbox(sandbox: Sandbox, folder: Path) -> None:
    """Try a sandbox for a folder, once in this process; blocks.

    Raises:
        ConfigError: it cannot be used.
    """
    if (sandbox, folder) not in _checked:
        sandbox.check(folder)
        # Only a success, so that a sandbox that was installed meanwhile is tried again.
        _checked.add((sandbox, folder))
