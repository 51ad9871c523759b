"""Rules of the settings for the tool calls that a person has to allow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOOL = re.compile(r"[a-zA-Z0-9_*?-]+")


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """The calls of a tool whose arguments all match.

    Attributes:
        tool: its name, or a pattern of names (`*`, `?`).
        arguments: by argument, the pattern that its value has to match; none matches every call.
    """

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])


def approval_rules(text: str) -> tuple[ApprovalRule, ...]:
    """Return the rules of `shell,write_file:path=/etc/*;mode=w`: commas between, `;` within.

    Raises:
        ValueError: it says which rule cannot be read, by its place.
    """
    rules = [one.strip() for one in text.split(",")]
    return tuple(_rule(one, place) for place, one in enumerate(rules, 1) if one)


def _rule(text: str, place: int) -> ApprovalRule:
    tool, colon, rest = text.partition(":")
    if not _TOOL.fullmatch(tool):
        raise ValueError(f"has no tool's name in rule {place}")
    arguments: dict[str, str] = {}
    for one in rest.split(";") if colon else ():
        name, equals, pattern = one.partition("=")
        if not name.strip() or not equals or not pattern:
            raise ValueError(f"has a rule {place} that is not tool:argument=pattern")
        if name.strip() in arguments:
            # Neither one of two patterns may ask about what the other names.
            raise ValueError(f"names the argument {name.strip()!r} twice in rule {place}")
        arguments[name.strip()] = pattern
    return ApprovalRule(tool, arguments)
