"""Show a call to a person in full, so that no text can hide or forge anything."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from agent_runtime_config import Settings

if TYPE_CHECKING:
    import regex

BLANKS = 8
"""From this many in a row, blanks are counted instead of shown."""
SHORTEST = 8
"""Shorter values do not count as secrets."""

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH\b|DATABASE_URL|DSN\b", re.IGNORECASE
)
# Controls, separators, characters without width, letters that look blank, stacked accents.
_UNSEEN = (
    r"(?V1)[[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\U0001D159]--[ ]]|(?<=\p{M}{2})\p{M}"
)
# Many blanks could push the end of a command out of sight.
_BLANKS = re.compile(rf"^ +| +$| {{{BLANKS},}}")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_invisible(text: str) -> str:
    r"""Return a text on one line with every character visible.

    Characters that are invisible or move the cursor are escaped (`\n`, `\u202e`), backslashes are
    doubled.  Blanks at the ends, and many in a row, are counted: `\[2,100 blanks]`.
    """
    return _escaped(text.replace("\\", "\\\\"))


def shown_value(value: Any) -> str:
    """Return a value on one line: text by `escape_invisible`, others as JSON, escaped alike."""
    if isinstance(value, str):
        return escape_invisible(value)
    return _escaped(json.dumps(value, ensure_ascii=False, default=str))


def shown_lines(text: str) -> list[str]:
    """Return the lines of a text, marked so that none looks like the program's own."""
    return [f"  | {escape_invisible(line)}" for line in text.split("\n")]


def _escaped(text: str) -> str:
    # Before escaping, while blanks are still blanks.
    counted = _BLANKS.sub(_count, text)
    if counted.isascii() and counted.isprintable():
        # Mostly so; nothing else needs `regex`.
        return counted
    seen = _unseen().sub(lambda match: _SHORT.get(match[0]) or _code(match[0]), counted)
    # Only what this Python knows as printable; a terminal may drop characters of newer Unicode.
    return seen if seen.isprintable() else "".join(map(_printable, seen))


@functools.cache
def _unseen() -> regex.Pattern[str]:
    # Not above: most runs show no call to a person.
    import regex

    return regex.compile(_UNSEEN)


def _count(match: re.Match[str]) -> str:
    number = len(match[0])
    return f"\\[{number:,} blank{'s' * (number > 1)}]"


def _printable(char: str) -> str:
    return char if char.isprintable() else _code(char)


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"


# Secrets


def known_secrets(settings: Settings) -> frozenset[str]:
    """Return the secrets in this process's settings and environment."""
    fields = [getattr(settings, name) for name in type(settings).model_fields]
    values = [one.get_secret_value() for one in fields if isinstance(one, SecretStr)]
    values += [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    # Others would not be found in a shown text, which is escaped.
    return frozenset(one for one in values if len(one) >= SHORTEST and one == escape_invisible(one))
