"""What the parts of a JSON schema refer to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

KEYS = ("$ref", "$dynamicRef", "$recursiveRef")


def references(schema: Any) -> Iterator[str]:
    """Yield the references in a schema, and in all that it holds."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            part = cast("dict[str, Any]", one)
            for key in KEYS:
                if isinstance(part.get(key), str):
                    yield part[key]
        waiting += values_of(one)


def values_of(value: Any) -> Sequence[Any]:
    """Return the values that an object or a list holds; nothing for any other value."""
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else ()
