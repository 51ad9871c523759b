"""The option `--allow-web`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agent_runtime.cli.agents import Spec
    from agent_runtime_config import Settings

web_option = click.option(
    "--allow-web",
    is_flag=True,
    help="Let the agent read web pages; AGENT_RUNTIME_WEB_DOMAINS says which.",
)


def with_web(spec: Spec, allowed: bool, settings: Settings) -> Spec:
    """Return the spec of a run that may read the web if the option or the setting says so.

    Stored with the run, so that a resume gives the model the same tools.
    """
    return dataclasses.replace(spec, allow_web=allowed or spec.allow_web or settings.allow_web)
