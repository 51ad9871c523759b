"""Decode libpq's results to rows of the same types as SQLite's."""

from __future__ import annotations

import asyncio

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Loader, Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from agent_runtime_storage.drivers.protocol import Row

# Rows to decode before the event loop gets a turn.
_SLICE = 1000


class _Flag(Loader):
    """A boolean as 0 or 1."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return data[0]


class _Json(Loader):
    """JSON as its text."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _Jsonb(Loader):
    """JSON as its text, after the byte with the format's version."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()


class _Context:
    """The context of a psycopg transformer."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("bool", _Flag)
        self.adapters.register_loader("json", _Json)
        self.adapters.register_loader("jsonb", _Jsonb)


class Rows:
    """A decoder of results; one per driver."""

    def __init__(self) -> None:
        self._transformer = Transformer(_Context())

    async def load(self, result: PGresult) -> list[Row]:
        """Return the rows of a result; yields to the event loop if there are many."""
        count = result.ntuples
        rows: list[Row] = []
        for first in range(0, count, _SLICE):
            if first:
                await asyncio.sleep(0)
            # Another task may have used the transformer meanwhile.
            self._transformer.set_pgresult(result)
            last = min(first + _SLICE, count)
            rows += self._transformer.load_rows(first, last, tuple)
        return rows
