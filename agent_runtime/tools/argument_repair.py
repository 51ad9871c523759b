"""Repair arguments that are not valid where a model can have meant only one thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from pydantic import ValidationError

_LISTS = frozenset({"list_type", "tuple_type", "set_type", "frozen_set_type"})
_OBJECTS = frozenset(
    {"dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"}
)


def repaired(arguments: Mapping[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """Return a repaired copy of the arguments, which may still be invalid; None without a repair.

    Leaves out a null, as of an argument that need not be given. Where a list or an object is
    wanted, parses a text that is JSON, and puts a single object into a list.

    Args:
        error: why the arguments are not valid.
    """
    made = deepcopy(dict(arguments))
    changed = False
    for one in error.errors(include_url=False):
        holder = _holder(made, one["loc"])
        if holder is not None:
            changed = _repair(holder, one["loc"][-1], one["type"]) or changed
    return made if changed else None


def _holder(made: dict[str, Any], loc: tuple[int | str, ...]) -> dict[Any, Any] | None:
    """Return the object that holds the value at a place; None if there is no such object."""
    value: Any = made
    for key in loc[:-1]:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            # The place of one form of several names that form too.
            return None
    return cast("dict[Any, Any]", value) if isinstance(value, dict) and loc else None


def _repair(holder: dict[Any, Any], name: Any, problem: str) -> bool:
    """Repair a value; return whether it changed."""
    if name not in holder:
        return False
    value = holder[name]
    if value is None:
        del holder[name]
        return True
    if problem not in _LISTS and problem not in _OBJECTS:
        return False
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    if problem in _LISTS and isinstance(value, dict):
        value = [cast("Any", value)]
    if not isinstance(value, list if problem in _LISTS else dict):
        return False
    holder[name] = value
    return True
