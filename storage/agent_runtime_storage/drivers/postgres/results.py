"""From libpq's results to rows with the types that SQLite's rows have."""

from __future__ import annotations

import asyncio

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Loader, Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult

from agent_runtime_storage.drivers.protocol import Row

# So many rows at a time are decoded without letting the event loop go on.
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
    """JSON as its text, after the byte that tells the format's version."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()


class _Context:
    """What a transformer needs to know."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("bool", _Flag)
        self.adapters.register_loader("json", _Json)
        self.adapters.register_loader("jsonb", _Jsonb)


class Rows:
    """Decodes results; one for a driver."""

    def __init__(self) -> None:
        self._transformer = Transformer(_Context())

    async def load(self, result: PGresult) -> list[Row]:
        """Return the rows of a result; lets others run now and then if there are many."""
        count = result.ntuples
        rows: list[Row] = []
        for first in range(0, count, _SLICE):
            if first:
                await asyncio.sleep(0)
            # Somebody else may have used the transformer meanwhile.
            self._transformer.set_pgresult(result)
            last = min(first + _SLICE, count)
            rows += self._transformer.load_rows(first, last, tuple)
        return rows
