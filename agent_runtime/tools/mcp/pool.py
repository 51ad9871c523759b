"""The connections of a runtime: one for each server and owner."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from agent_runtime.concurrency import DetachedTasks, finished
from agent_runtime.errors import ConfigError
from agent_runtime.tools.base import Tool
from agent_runtime.tools.mcp.finding import loaded_lazily
from agent_runtime.tools.mcp.server import McpServer
from agent_runtime.tools.mcp.tool import McpResourceTool, McpTool

if TYPE_CHECKING:
    from agent_runtime.tools.mcp.connection import McpConnection

# More than a program has to end by itself (`LEAVE_SECONDS`).
CLOSE_SECONDS = 5.0


class McpConnections:
    """Starts servers for runs, and ends them.

    Args:
        schema_bytes: above it the tools of an agent's servers are found and called by two tools.
    """

    def __init__(self, schema_bytes: int) -> None:
        self._schema_bytes = schema_bytes
        self._tasks = DetachedTasks()
        self._connections: dict[tuple[str, str], McpConnection] = {}

    async def tools_of(
        self, given: Iterable[Tool | Callable[..., Any] | McpServer], user_id: str
    ) -> list[Tool | Callable[..., Any]]:
        """Return an agent's tools, with those of its servers instead of the servers.

        Raises:
            ConfigError: two servers have the same name, or the SDK is not installed.
            McpServerFailed: a server cannot be used.
        """
        parts = list(given)
        servers = [one for one in parts if isinstance(one, McpServer)]
        rest = [one for one in parts if not isinstance(one, McpServer)]
        if not servers:
            return rest
        names = [one.name.lower() for one in servers]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(
                f"Two MCP servers are called {twice!r}.", cure="Give each its own name."
            )
        found: list[list[Tool]] = [[] for _ in servers]

        async def connect(place: int) -> None:
            found[place] = await self._tools(servers[place], user_id)

        await load_sdk()
        failures: list[Exception] = []
        async with anyio.create_task_group() as group:
            for place in range(len(servers)):
                group.start_soon(_gathering, connect, place, failures)
        if failures:
            # After all have been tried, so that none of them is cancelled in the middle of its
            # start.
            raise failures[0]
        tools = [tool for some in found for tool in some]
        return [*rest, *loaded_lazily(tools, self._schema_bytes)]

    async def _tools(self, server: McpServer, user_id: str) -> list[Tool]:
        connection = self._connection(server, user_id)
        listing = await connection.started()
        # Nobody may hold it in the end: then it is idle from now on.
        connection.hold()
        connection.release()
        tools: list[Tool] = [McpTool(server, connection, one) for one in listing.tools]
        if listing.resources:
            reading = McpResourceTool(server, connection)
            if reading.name not in {tool.name for tool in tools} and server.offers(reading.tool):
                tools.append(reading)
        return tools

    def _connection(self, server: McpServer, user_id: str) -> McpConnection:
        from agent_runtime.tools.mcp.connection import McpConnection

        # A server may keep what one owner did: no other one may find it there.
        key = server.key, user_id
        if key not in self._connections:
            self._connections[key] = McpConnection(
                server, self._tasks, idle=lambda: self._forget(key)
            )
        return self._connections[key]

    def _forget(self, key: tuple[str, str]) -> None:
        self._connections.pop(key, None)

    async def close(self) -> None:
        """End all servers."""
        for connection in self._connections.values():
            connection.stop()
        await _ended(self._tasks)


@asynccontextmanager
async def connected(server: McpServer, login: Any = None) -> AsyncGenerator[McpConnection]:
    """Give a connection of its own to a server, which ends with the context.

    Args:
        login: authorizes HTTP requests instead of the stored login.
    """
    await load_sdk()
    from agent_runtime.tools.mcp.connection import McpConnection

    tasks = DetachedTasks()
    connection = McpConnection(server, tasks, login)
    try:
        yield connection
    finally:
        connection.stop()
        # Whatever cancels the caller, a program must not be left behind.
        await finished(_ended(tasks))


async def _ended(tasks: DetachedTasks) -> None:
    with anyio.move_on_after(CLOSE_SECONDS):
        await tasks.wait()
    await tasks.close()


async def load_sdk() -> None:
    """Import the SDK, in a thread since that takes a while.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        await anyio.to_thread.run_sync(
            importlib.import_module, "agent_runtime.tools.mcp.connection"
        )
    except ModuleNotFoundError as error:
        # A missing module of ours is a bug, which must not read as "install a package".
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigError(
            "MCP servers need the package `mcp`, which is not installed.",
            cure="pip install 'agent-runtime-om[mcp]'",
        ) from None


@contextmanager
def holding(tools: Iterable[Tool]) -> Generator[None]:
    """Keep the connections of a run's tools open."""
    found = {
        id(one.connection): one.connection
        for one in tools
        if isinstance(one, McpTool | McpResourceTool)
    }
    for connection in found.values():
        connection.hold()
    try:
        yield
    finally:
        for connection in found.values():
            connection.release()


async def _gathering(connect: Callable[[int], Any], place: int, failures: list[Exception]) -> None:
    try:
        await connect(place)
    except Exception as error:
        failures.append(error)
