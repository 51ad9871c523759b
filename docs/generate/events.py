"""The schema of events, from the docstring of `agent_runtime.Event`."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import get_args

from agent_runtime import Event
from agent_runtime.events import EventKind
from docs.generate.page import table

_KIND = re.compile(r"- `([\w-]+)`( \(live\))?: (.+)")
_FIELDS = re.compile(r" +- ((?:`\w+`(?:, )?)+) \((.*?)\): (.+)")


@dataclass(slots=True)
class Schema:
    """What is documented of one kind of event.

    Attributes:
        live: whether it is never recorded.
        fields: name, type and meaning of each field of its `data`, in order.
        optional: the names of those that may be missing.
    """

    kind: str
    live: bool
    meaning: str
    fields: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    optional: set[str] = field(default_factory=set[str])


def schemas() -> list[Schema]:
    """Return the schema of each kind, in the order of `EventKind`.

    Raises:
        ValueError: a kind is not documented, or one is that does not exist.
    """
    text = (inspect.getdoc(Event) or "").partition("Attributes:")[0]
    # A line that begins neither an item nor a paragraph belongs to the one before.
    joined = re.sub(r"\n +(?!- )(?=\S)", " ", text)
    found: list[Schema] = []
    for line in joined.splitlines():
        if kind := _KIND.fullmatch(line):
            found.append(Schema(kind[1], bool(kind[2]), kind[3]))
        elif fields := _FIELDS.fullmatch(line):
            _add(found[-1], re.findall(r"\w+", fields[1]), fields[2], fields[3])
        elif line.lstrip().startswith("- "):
            raise ValueError(f"the docstring of Event has a line of another form: {line}")
    if [one.kind for one in found] != list(get_args(EventKind)):
        raise ValueError("the docstring of Event does not list the kinds of EventKind in order")
    return found


def _add(schema: Schema, names: list[str], types: str, meaning: str) -> None:
    kind, optional, _ = types.partition("optional")
    for name in names:
        schema.fields.append((name, kind.rstrip(", "), meaning))
        if optional:
            schema.optional.add(name)


def page() -> str:
    """Return a section with a table for each kind of event."""
    parts: list[str] = []
    for one in schemas():
        live = " Live only: it is not recorded, and its `id` is 0." if one.live else ""
        parts.append(f"## `{one.kind}`\n\n{one.meaning[0].upper()}{one.meaning[1:]}{live}\n\n")
        rows = [
            (f"`{name}`", kind or "see `answer`", "no" if name in one.optional else "yes", meaning)
            for name, kind, meaning in one.fields
        ]
        parts.append(table(("field", "type", "always", "meaning"), rows) + "\n")
    return "".join(parts)
