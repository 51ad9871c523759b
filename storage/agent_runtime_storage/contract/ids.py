"""Ids that are unique everywhere."""

from __future__ import annotations

import uuid_utils


def new_id() -> str:
    """Return a UUIDv7: it begins with the time, so ids sort by age."""
    return str(uuid_utils.uuid7())
