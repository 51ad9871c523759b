"""How a process connects to the store that its settings name."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from agent_runtime_config import Settings
from agent_runtime_storage import Store, open_store


def store_connector(settings: Settings) -> partial[Awaitable[Store]]:
    """Return what opens the store; `migrate=False` leaves its schema as it is."""
    token = settings.database_auth_token
    return partial(
        open_store,
        settings.database_url,
        synchronous=settings.synchronous,
        auth_token=token.get_secret_value() if token else None,
        objects=settings.object_store_url,
        connections=settings.database_connections,
        max_title_chars=settings.max_title_chars,
    )
