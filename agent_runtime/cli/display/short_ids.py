"""Ids as people read and copy them."""

from __future__ import annotations

import re

from agent_runtime.cli.terminal import is_terminal

SHORT = 8
"""The characters of a short id: the end of a UUIDv7, which begins with the time."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Return whether a text is a whole UUID."""
    return _UUID.fullmatch(text) is not None


def short_id(name: str) -> str:
    """Return the end of a UUID, which commands accept; any other id as it is."""
    return name[-SHORT:] if is_uuid(name) else name


def said_id(name: str) -> str:
    """Return an id as stderr shows it: short at a terminal, where a command with it fits a row."""
    return short_id(name) if is_terminal() else name
