"""A run's spec as it is stored: the caller's part and the engine's, apart.

Apart, so that no key of a caller's spec is taken for one of the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

SPEC_FORMAT = 2
"""The format of `whole_spec`; rows of earlier versions hold one object for both, without it."""


def whole_spec(spec: Mapping[str, Any], internal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object to store for both parts."""
    return {"format": SPEC_FORMAT, "internal": dict(internal), "spec": dict(spec)}


def decode_spec(text: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the caller's part and the engine's, which is None for a row of an earlier version."""
    whole: dict[str, Any] = orjson.loads(text)
    spec, internal = whole.get("spec"), whole.get("internal")
    # Exactly these keys: a caller's own spec of an earlier version may have had any of them.
    current = whole.keys() == {"format", "internal", "spec"} and whole["format"] == SPEC_FORMAT
    if current and isinstance(spec, dict) and isinstance(internal, dict):
        return cast("dict[str, Any]", spec), cast("dict[str, Any]", internal)
    return whole, None
