"""Both drivers for libSQL servers, for tests that run on each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from agent_runtime_storage.drivers.libsql.http import HttpDriver
from agent_runtime_storage.drivers.libsql.remote import RemoteDriver
from agent_runtime_storage.drivers.libsql.websocket import WebSocketDriver
from agent_runtime_storage.drivers.protocol import Driver
from tests.storage.items import IDS

Kind = Literal["http", "ws"]
KINDS: tuple[Kind, ...] = ("http", "ws")


OPEN: dict[Kind, Callable[..., Awaitable[RemoteDriver]]] = {
    "http": HttpDriver.open,
    "ws": WebSocketDriver.open,
}


def url_of(kind: Kind, http_url: str) -> str:
    """Return the URL of the same server for this kind of driver."""
    return http_url.replace("http", kind, 1)


@asynccontextmanager
async def connected(kind: Kind, http_url: str, **options: Any) -> AsyncGenerator[RemoteDriver]:
    """Open a driver on a server; close it at the end."""
    driver = await OPEN[kind](url_of(kind, http_url), **options)
    try:
        yield driver
    finally:
        await driver.close()


async def ids(driver: Driver) -> list[int]:
    """Return the ids of all items, ascending."""
    return [row[0] for row in await driver.read(IDS, {}, owner=None)]
