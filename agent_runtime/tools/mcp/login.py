"""Log in to a server in a browser: its answer comes to a port of this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import anyio.to_thread

from agent_runtime.concurrency import single_error
from agent_runtime.errors import ConfigError, McpServerFailed
from agent_runtime.tools.mcp.pool import connected, load_sdk
from agent_runtime.tools.mcp.server import McpServer, is_web_page

LOGIN_SECONDS = 300.0
"""How long the browser may take."""
_MAX_REQUEST = 16_384
_PAGE = b"You can close this page and return to the terminal.\n"


async def log_in(server: McpServer, show: Callable[[str], None]) -> None:
    """Log in, and store the tokens.

    Args:
        show: called in a thread, with the address that a browser has to open.

    Raises:
        ConfigError: the SDK is not installed.
        McpServerFailed: the server asks for no login, or does not accept it.
    """
    await load_sdk()
    from mcp.shared.auth import AuthorizationCodeResult

    from agent_runtime.tools.mcp.oauth import new_login

    send, answers = anyio.create_memory_object_stream[dict[str, list[str]]](1)
    # Any free port, and only for this machine, as RFC 8252 advises for native programs.
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
    asked = False

    async def open_browser(url: str) -> None:
        nonlocal asked
        _check_page(server, url)
        asked = True
        # In a thread: a browser of the terminal keeps its caller until it is left, and meanwhile
        # has to be answered here.
        await anyio.to_thread.run_sync(show, url, abandon_on_cancel=True)

    async def answer() -> AuthorizationCodeResult:
        with anyio.move_on_after(LOGIN_SECONDS):
            found = await answers.receive()
            if code := found.get("code"):
                state, iss = found.get("state", [None]), found.get("iss", [None])
                return AuthorizationCodeResult(code=code[0], state=state[0], iss=iss[0])
        raise McpServerFailed(
            f"Nobody logged in to the MCP server {server.name}.", cure="Try it again."
        )

    async def serve(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            with anyio.move_on_after(10):
                if (found := await _query(stream)) is not None:
                    # Only the first answer counts.
                    with suppress(anyio.WouldBlock):
                        send.send_nowait(found)

    login = await new_login(server, f"http://127.0.0.1:{port}/callback", open_browser, answer)
    patient = _with_time(server)
    async with single_error(), listener, send, answers, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        async with connected(patient, login) as connection:
            await connection.started()
        # The listener would wait for requests for ever.
        group.cancel_scope.cancel()
    if not asked:
        raise ConfigError(
            f"The MCP server {server.name} asks for no login.", cure="Use it without one."
        )


def _check_page(server: McpServer, url: str) -> None:
    """Raise `McpServerFailed` for an address that a browser must not be given."""
    if not is_web_page(url):
        raise McpServerFailed(
            f"The MCP server {server.name} wants to log you in at something else than a web page.",
            cure="Ask whoever runs it.",
        )


async def _query(stream: anyio.abc.ByteStream) -> dict[str, list[str]] | None:
    """Answer a browser's request; return what its address says, if it is the callback."""
    data = b""
    try:
        while b"\r\n\r\n" not in data and len(data) < _MAX_REQUEST:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return None
    target = data.split(b" ", 2)[1:2] or [b""]
    parts = urlsplit(target[0].decode("ascii", "replace"))
    known = parts.path == "/callback"
    # A browser asks for a page's icon as well.
    status = b"200 OK" if known else b"404 Not Found"
    await stream.send(
        b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%b" % (status, len(_PAGE), _PAGE)
    )
    return parse_qs(parts.query) if known else None


def _with_time(server: McpServer) -> McpServer:
    from dataclasses import replace

    return replace(server, start_timeout=server.start_timeout + LOGIN_SECONDS)
