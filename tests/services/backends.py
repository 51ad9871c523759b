"""The databases that the store runs on."""

from __future__ import annotations

from agent_runtime_storage.urls import Backend

BACKENDS: tuple[Backend, ...] = ("file", "libsql-http", "libsql-ws", "postgres")
