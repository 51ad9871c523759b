"""Cursors of lists that continue after a place of several values."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from agent_runtime.server.problems import ServiceError


def encode_cursor(*values: Any) -> str:
    """Return the cursor of a place."""
    return base64.urlsafe_b64encode(orjson.dumps(values)).decode()


def decode_cursor(cursor: str) -> Any:
    """Return the values of a place.  Raises `ServiceError` (422) if it is no cursor of ours."""
    try:
        return orjson.loads(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError as error:
        raise invalid_cursor() from error


def invalid_cursor() -> ServiceError:
    """Return the error of a cursor that no list has given."""
    return ServiceError(
        422, "invalid-cursor", "The cursor is not one of this list.", cure="Send `next_cursor`."
    )
