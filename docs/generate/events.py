"""The schema of events, from the types of `agent_runtime.events`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints

from agent_runtime.events import LIVE_KINDS, AnyEvent, EventKind
from docs.generate.page import table

_FIELDS = re.compile(r"^ +(\w+(?:, \w+)*): (.+)$", re.MULTILINE)


@dataclass(slots=True)
class Schema:
    """What is documented of one kind of event.

    Attributes:
        live: whether it is never recorded.
        type: the `TypedDict` of its `data`.
        fields: name, type and meaning of each field of its `data`, in order.
        optional: the names of those that may be missing.
    """

    kind: str
    live: bool
    meaning: str
    type: Any
    fields: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    optional: set[str] = field(default_factory=set[str])


def schemas() -> list[Schema]:
    """Return the schema of each kind, in the order of `EventKind`.

    Raises:
        ValueError: a kind or a field is not documented, or one is that does not exist.
    """
    found = [_schema(*get_args(one)) for one in get_args(AnyEvent)]
    if [one.kind for one in found] != list(get_args(EventKind)):
        raise ValueError("AnyEvent does not list the kinds of EventKind in order")
    return found


def _schema(kind: Any, data: Any) -> Schema:
    meaning, _, attributes = (inspect.getdoc(data) or "").partition("\nAttributes:\n")
    # A line that is indented further belongs to the one before.
    joined = re.sub(r"\n {8,}", " ", attributes)
    described = {
        name: text for names, text in _FIELDS.findall(joined) for name in names.split(", ")
    }
    hints = get_type_hints(data, include_extras=True)
    if set(described) != set(hints):
        raise ValueError(f"the docstring of {data.__name__} does not list the fields that it has")
    name = get_args(kind)[0]
    made = Schema(name, name in LIVE_KINDS, " ".join(meaning.split()), data)
    for field_name, text in described.items():
        hint = hints[field_name]
        if get_origin(hint) is NotRequired:
            made.optional.add(field_name)
            hint = get_args(hint)[0]
        made.fields.append((field_name, _shown(hint), text))
    return made


def _shown(hint: Any) -> str:
    """Return a type as the page names it: by its JSON form."""
    origin = get_origin(hint)
    if origin is UnionType:
        return " or ".join(_shown(one) for one in get_args(hint))
    if origin is Literal:
        return "str"
    if origin is Sequence:
        return f"list of {_shown(get_args(hint)[0])}"
    if origin is Mapping or hasattr(hint, "__required_keys__"):
        return "dict"
    return "None" if hint is NoneType else hint.__name__


def page() -> str:
    """Return a section with a table for each kind of event."""
    parts: list[str] = []
    for one in schemas():
        live = " Live only: it is not recorded, and its `id` is 0." if one.live else ""
        parts.append(f"## `{one.kind}`\n\n{one.meaning}{live}\n\n")
        rows = [
            (f"`{name}`", kind, "no" if name in one.optional else "yes", meaning)
            for name, kind, meaning in one.fields
        ]
        parts.append(table(("field", "type", "always", "meaning"), rows) + "\n")
    return "".join(parts)
