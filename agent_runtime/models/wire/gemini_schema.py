"""Convert JSON schemas into the subset that Gemini takes in `parametersJsonSchema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from agent_runtime.models.base import Json

# Each of them makes Gemini refuse the request, or ignore the property that it describes.
_DROPPED = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "const",
        "discriminator",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "title",
    }
)
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties"})
"""Keywords whose values are schemas by name; such a name is no keyword."""
_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NESTED = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames"})
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def reduced(schema: Mapping[str, Any]) -> Json:
    """Return a schema without the keywords that Gemini refuses.

    Their meaning moves into keywords that it takes, or into the description.
    """
    result: Json = {}
    for key, value in schema.items():
        # A property may be called `title`; then its value is a schema.
        if key in _DROPPED and (key != "title" or isinstance(value, str)):
            continue
        if key in _NAMED and isinstance(value, Mapping):
            named = cast("Mapping[str, Any]", value)
            result[key] = {name: _inner(one) for name, one in named.items()}
        elif key in _LISTED and isinstance(value, list):
            result[key] = list(map(_inner, cast("list[Any]", value)))
        else:
            result[key] = _inner(value) if key in _NESTED else value
    if "const" in schema:
        _replace_const(result, schema["const"])
    _replace_bounds(result, schema)
    if "string" in (result.get("type") or ()) and (form := result.pop("format", None)):
        _describe(result, f"format: {form}")
    return result


def _inner(schema: Any) -> Any:
    return reduced(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else schema


def _replace_const(result: Json, value: Any) -> None:
    if value is None:
        result["type"] = "null"
        return
    result["enum"] = [value]
    if type(value) in _TYPES:
        result.setdefault("type", _TYPES[type(value)])


def _replace_bounds(result: Json, schema: Mapping[str, Any]) -> None:
    """Replace exclusive bounds: of integers by inclusive ones, of others by a description."""
    bounds = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
    for exclusive, inclusive, step in bounds:
        bound = schema.get(exclusive)
        # In old drafts it is a boolean next to the bound.
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            continue
        if schema.get("type") == "integer" and isinstance(bound, int):
            result.setdefault(inclusive, bound + step)
        else:
            _describe(result, f"{'more' if step > 0 else 'less'} than {bound}")


def _describe(result: Json, hint: str) -> None:
    about = result.get("description")
    result["description"] = f"{about} ({hint})" if isinstance(about, str) and about else hint
