"""Servers for tests: a raw one with tools of one's choice, and one made with the SDK."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from agent_runtime import McpServer
from agent_runtime.tools.base import Tool
from agent_runtime.tools.mcp.pool import McpConnections
from tests.tools.mcp import raw_server

SDK_SERVER = Path(__file__).with_name("sdk_server.py")
"""The program, which is not imported here: the SDK takes long."""
ANYTHING: dict[str, Any] = {"type": "object"}


def described(name: str, description: str = "", **schema: Any) -> dict[str, Any]:
    """Return a tool as a server describes it."""
    return {"name": name, "description": description, "inputSchema": schema or ANYTHING}


def raw(folder: Path, *tools: str | dict[str, Any], how: str = "", **options: Any) -> McpServer:
    """Return a server that has these tools."""
    offered = [described(one) if isinstance(one, str) else one for one in tools]
    (folder / "tools.json").write_text(json.dumps(offered))
    (folder / "how").write_text(how)
    options.setdefault("name", "raw")
    return McpServer(
        command=sys.executable, args=["-I", "-S", raw_server.__file__, str(folder)], **options
    )


@asynccontextmanager
async def opened(server: McpServer, most: int = 1 << 20) -> AsyncGenerator[dict[str, Tool]]:
    """Give a server's tools, by name."""
    connections = McpConnections(most)
    try:
        found = await connections.tools_of([server], "user")
        yield {tool.name: tool for tool in found if isinstance(tool, Tool)}
    finally:
        await connections.close()


def noted(folder: Path, name: str) -> list[str]:
    """Return the lines that a server has noted."""
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def sums() -> McpServer:
    """Return the server made with the SDK, on stdio."""
    return McpServer("sums", sys.executable, [str(SDK_SERVER)])


@asynccontextmanager
async def sums_over_http() -> AsyncGenerator[str]:
    """Run the server made with the SDK over HTTP in another process; give its address."""
    async with served(SDK_SERVER) as url:
        yield url


@asynccontextmanager
async def served(program: Path, *arguments: str) -> AsyncGenerator[str]:
    """Run a program that serves on the port that it is given; give the address of its server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(program), str(port), *arguments]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            with anyio.fail_after(60):
                while True:
                    try:
                        async with await anyio.connect_tcp("127.0.0.1", port):
                            break
                    except OSError:
                        await anyio.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
