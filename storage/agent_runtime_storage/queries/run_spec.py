"""A run's spec as its row keeps it: the caller's part and the engine's, apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

SPEC_FORMAT = 2
"""Rows of earlier versions have both parts in one object, without a format."""


def whole_spec(spec: Mapping[str, Any], internal: Mapping[str, Any]) -> dict[str, Any]:
    """Return both parts as the one object of the row."""
    return {"format": SPEC_FORMAT, "internal": dict(internal), "spec": dict(spec)}


def decode_spec(text: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the caller's part and the engine's; None for that of an earlier version's row."""
    whole: dict[str, Any] = orjson.loads(text)
    spec, internal = whole.get("spec"), whole.get("internal")
    known = whole.keys() == {"format", "internal", "spec"} and whole["format"] == SPEC_FORMAT
    if known and isinstance(spec, dict) and isinstance(internal, dict):
        return cast("dict[str, Any]", spec), cast("dict[str, Any]", internal)
    return whole, None
