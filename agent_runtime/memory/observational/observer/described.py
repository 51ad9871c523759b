"""How notes name a call: by its arguments, without contents that say little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from agent_runtime.memory.observational.observer.sentences import words
from agent_runtime.memory.observational.observer.slots.changes import script_of
from agent_runtime.messages import ToolCall
from agent_runtime.prompt.text import one_line, shorten

# Arguments that hold contents, which a line about the call leaves out.
_TEXT_KEYS = words(
    "content new_string old_string new_str old_str new old file_text text body patch todos edits"
)


def values(value: object) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value in order, at any depth."""
    # Not recursive: arguments of a model may be nested deeper than Python allows.
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            # Reversed, because the stack gives back the last one first.
            stack += reversed(list(cast("dict[str, object]", one).values()))
        elif isinstance(one, list | tuple):
            stack += reversed(cast("Sequence[object]", one))
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)


def described(call: ToolCall) -> tuple[str, str]:
    """Return a call's arguments, shortened and whole."""
    if call.raw is not None:
        return shorten(one_line(call.raw), 400), call.raw
    short: list[str] = []
    # What a shell runs says it; what a model adds, such as a description, says it again.
    if script := script_of(call.name, call.arguments):
        return one_line(script[:800])[:400], "\n".join(values(call.arguments))
    for key, value in call.arguments.items():
        if isinstance(value, str) and (key not in _TEXT_KEYS or len(call.arguments) == 1):
            short.append(one_line(value.split("\n", 1)[0])[:400])
        elif isinstance(value, int | float) and not isinstance(value, bool) and key.endswith("id"):
            short.append(str(value))
    whole = "\n".join(values(call.arguments))
    return " ".join(filter(None, short)) or shorten(one_line(whole), 160), whole
