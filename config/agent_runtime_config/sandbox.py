"""The settings that name the sandbox of commands, and the variables that they get."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

NONE = "none"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name of an environment variable."""
_DOCKER = "docker:"
_IMAGE = re.compile(r"[a-zA-Z0-9][\w.:/@-]{0,254}", re.ASCII)


class SandboxSetting(NamedTuple):
    """A sandbox by its kind; `image` is that of a container."""

    kind: Literal["none", "bwrap", "docker"]
    image: str = ""


def parse_sandbox(text: str) -> SandboxSetting:
    """Return what `none`, `bwrap` or `docker:IMAGE` names.

    Raises:
        ValueError: it names no sandbox.
    """
    if text in (NONE, "bwrap"):
        return SandboxSetting("bwrap" if text == "bwrap" else "none")
    # The first character is checked, so that an image is never taken for an option.
    if text.startswith(_DOCKER) and _IMAGE.fullmatch(image := text.removeprefix(_DOCKER)):
        return SandboxSetting("docker", image)
    raise ValueError("must be `none`, `bwrap` or `docker:IMAGE`")
