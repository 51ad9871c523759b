"""The options that say what commands may see and reach."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_runtime.cli.agents import Spec
from agent_runtime_config.sandbox import NONE, VARIABLE, parse_sandbox

if TYPE_CHECKING:
    from agent_runtime_config import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Confinement:
    """What the options say; None and empty where they were not given."""

    sandbox: str | None = None
    network: bool | None = None
    environment: tuple[str, ...] = ()

    def on(self, spec: Spec, settings: Settings) -> Spec:
        """Return a run's spec with these options, and what the settings say where it says nothing.

        Stored with the run, so that a resume elsewhere does not lift what confined it here.

        Raises:
            click.UsageError: an option has nothing to apply to.
            ConfigError: the sandbox cannot be used on this machine.
        """
        if self != Confinement() and not spec.allow_shell:
            raise click.UsageError(
                "--sandbox, --sandbox-network and --env need --allow-shell or --ask-shell."
            )
        if not spec.allow_shell:
            return spec
        name, network = self.sandbox or spec.sandbox, spec.sandbox_network
        if not spec.sandbox:
            network = settings.sandbox_network
        if not name and settings.sandbox != NONE:
            name = settings.sandbox
        if self.network is not None:
            network = self.network
        # Only where the option was given: that of a setting is without effect there.
        if self.network and name in ("", NONE):
            raise click.UsageError("--sandbox-network needs --sandbox.")
        spec = dataclasses.replace(
            spec,
            sandbox=name,
            sandbox_network=network and name not in ("", NONE),
            environment=tuple(dict.fromkeys((*spec.environment, *self.environment))),
        )
        require_sandbox(spec, settings)
        return spec


def confinement_parameters() -> Sequence[Callable[[Any], Any]]:
    """Return the options."""
    return (
        click.option(
            "--sandbox",
            metavar="none|bwrap|docker:IMAGE",
            callback=_sandbox,
            help="What confines the commands; by default AGENT_RUNTIME_SANDBOX, none.",
        ),
        click.option(
            "--sandbox-network/--no-sandbox-network",
            default=None,
            help="Let commands in a sandbox use the network.",
        ),
        click.option(
            "--env",
            "environment",
            multiple=True,
            metavar="NAME",
            callback=_names,
            help="A variable that commands get in addition. Can be given several times.",
        ),
    )


def require_sandbox(spec: Spec, settings: Settings) -> None:
    """Try the sandbox of a run's commands. Raises `ConfigError` if it cannot be used."""
    from agent_runtime.tools.workspace.sandbox.choose import (
        CommandSettings,
        check_sandbox,
        sandbox_of,
    )

    chosen = CommandSettings.of(settings)
    name = spec.sandbox or settings.sandbox
    network = spec.sandbox_network if spec.sandbox else settings.sandbox_network
    sandbox = sandbox_of(name, network, chosen.read)
    if sandbox is not None and spec.allow_shell and spec.workspace is not None:
        check_sandbox(sandbox, Path(spec.workspace).resolve())


def _sandbox(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            parse_sandbox(value)
        except ValueError as error:
            raise click.BadParameter(f"It {error}.") from None
    return value


def _names(
    context: click.Context, option: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    for name in value:
        if not VARIABLE.fullmatch(name):
            # What was given is not repeated: a pair would show the value, perhaps a secret.
            raise click.BadParameter("Give a variable's name alone, without its value.")
        if name not in os.environ:
            raise click.BadParameter(f"The variable {name} is not set.")
    return value
