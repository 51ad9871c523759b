"""Patterns over a call's arguments, and what of the arguments a person is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import orjson

from agent_runtime.models.failures import scrub

MAX_VALUE = 2000
"""How many characters of a value are shown."""
_SEPARATORS = re.compile(r"[/\\]")
_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase)?$|secret|token|api_?key|access_?key|private_?key|credential|auth",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"((?:password|passwd|secret|token|api_?key|access_?key)\w*\s*[=:]\s*[\"']?)[^\s\"']+"
    r"|(\w+://[^\s:/@]*:)[^\s@/]+(?=@)",
    re.IGNORECASE,
)


def text_of(value: Any) -> str:
    """Return a value as patterns see it: text as it is, the rest as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def matches(patterns: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    """Return whether every named argument is there and matches its pattern (`*`, `?`, `[…]`)."""
    return all(
        name in arguments and fnmatchcase(text_of(arguments[name]), pattern)
        for name, pattern in patterns.items()
    )


def may_match(patterns: Mapping[str, str], arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments match, or could: a path that goes up in folders may lead there."""
    return all(
        name in arguments and (climbs(arguments[name]) or matches({name: pattern}, arguments))
        for name, pattern in patterns.items()
    )


def climbs(value: Any) -> bool:
    """Return whether a value goes up in folders as paths do, so that it may lead out of one."""
    return isinstance(value, str) and ".." in _SEPARATORS.split(value)


def shown_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as a person is shown them: shortened, without what looks like a secret."""
    return {name: _shown(name, value) for name, value in arguments.items()}


def _shown(name: str, value: Any) -> Any:
    if _SECRET_NAME.search(name) and value not in (None, "", False, True):
        return "***"
    if isinstance(value, str):
        text = scrub(_SECRET_TEXT.sub(lambda found: f"{found[1] or found[2]}***", value))
        cut = len(text) - MAX_VALUE
        return text if cut <= 0 else f"{text[:MAX_VALUE]} [... {cut:,} more characters ...]"
    if isinstance(value, dict):
        return shown_arguments(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_shown("", one) for one in cast("list[Any]", value)]
    return value
