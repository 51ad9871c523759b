"""The MCP server over streamable HTTP, as the route `/mcp`."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent_runtime.concurrency import single_error
from agent_runtime.server.protocols.mcp_server import task_server
from agent_runtime.server.protocols.streams import MAX_BODY
from agent_runtime.server.protocols.turns import ClientTurns, UserTurns


def mcp_routes(turns: ClientTurns) -> list[Route]:
    """Return the route of MCP; none if there is no agent."""
    if not turns.agents:
        return []

    def turns_of(context: Context[Any, Any]) -> UserTurns:
        request: Any = context.request_context.request
        return turns.of(request)

    server = task_server(turns_of, list(turns.agents))
    # Its application is not used, but only with it the SDK gives its low-level server.
    server.streamable_http_app(stateless_http=True)
    endpoint = _Stateless(server.session_manager.app)
    # A client that listens by GET would hold a stream on which nothing ever comes.
    return [Route("/mcp", endpoint, methods=["POST"])]


class _Stateless:
    """Answers each request by itself, as its own user: no session can be taken over."""

    def __init__(self, server: Any) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A manager of its own for each request, which needs no lifespan of the application.
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=MAX_BODY
        )
        async with single_error(), manager.run():
            await manager.handle_request(scope, receive, send)
