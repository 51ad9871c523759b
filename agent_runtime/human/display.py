"""What a person is shown of a call: all of it, so that nothing hides or forges anything."""

from __future__ import annotations

import json
import os
from typing import Any

import regex
from pydantic import SecretStr

from agent_runtime_config import Settings

BLANKS = 8
"""So many in a row are counted instead of shown."""
SHORTEST = 8
"""Shorter values are no secrets."""

_SECRET_NAME = regex.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH\b|DATABASE_URL|DSN\b", regex.IGNORECASE
)
# Controls, separators, what takes no room, blanks that are letters, and heaps of accents.
_UNSEEN = regex.compile(
    r"(?V1)[[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\U0001D159]--[ ]]|(?<=\p{M}{2})\p{M}"
)
_BLANKS = regex.compile(rf"^ +| +$| {{{BLANKS},}}")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_invisible(text: str) -> str:
    r"""Return a text on one line, in which everything can be seen.

    What cannot be seen, or would move the cursor, is escaped (`\n`, `\u202e`), and a backslash
    doubled.  Blanks at the ends, and many in a row, are counted: `\[2,100 blanks]`.
    """
    return _escaped(text.replace("\\", "\\\\"))


def shown_value(value: Any) -> str:
    """Return a value on one line: text by `escape_invisible`, all else as JSON with the same
    escapes.
    """
    if isinstance(value, str):
        return escape_invisible(value)
    return _escaped(json.dumps(value, ensure_ascii=False, default=str))


def shown_lines(text: str) -> list[str]:
    """Return the lines of a text, each marked, so that none can pass for one of the program's."""
    return [f"  | {escape_invisible(line)}" for line in text.split("\n")]


def _escaped(text: str) -> str:
    counted = _BLANKS.sub(_count, text)
    seen = _UNSEEN.sub(lambda found: _SHORT.get(found[0]) or _code(found[0]), counted)
    # A terminal is sent only what this Python knows as printable; newer letters would be lost.
    return seen if seen.isprintable() else "".join(map(_printable, seen))


def _count(found: regex.Match[str]) -> str:
    number = len(found[0])
    return f"\\[{number:,} blank{'s' * (number > 1)}]"


def _printable(one: str) -> str:
    return one if one.isprintable() else _code(one)


def _code(one: str) -> str:
    return f"\\u{ord(one):04x}" if ord(one) < 1 << 16 else f"\\U{ord(one):08x}"


# Secrets


def known_secrets(settings: Settings) -> frozenset[str]:
    """Return the secrets that this process knows: of its settings, and of its environment."""
    fields = [getattr(settings, name) for name in type(settings).model_fields]
    values = [one.get_secret_value() for one in fields if isinstance(one, SecretStr)]
    values += [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    return frozenset(one for one in values if len(one) >= SHORTEST and one == escape_invisible(one))
