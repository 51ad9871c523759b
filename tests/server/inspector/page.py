"""A page's view of the inspector: its routes in a small application, and a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from agent_runtime import Runtime
from agent_runtime.server.inspector import inspector_routes
from agent_runtime.server.inspector.columns import decode_tables

Tables = dict[str, dict[str, list[int]]]


class _Named(BaseHTTPMiddleware):
    """Names the user whom a header gives, as an authentication would."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        runtime: Runtime = request.app.state.runtime
        request.state.user = request.headers.get("x-user", runtime.settings.user)
        return await call_next(request)


@dataclass(frozen=True)
class Page:
    """Reads the inspector's routes as the page does."""

    client: httpx.AsyncClient

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a route below `/api/inspector`."""
        response = await self.client.get(path, params=query)
        assert response.status_code == 200, response.text
        return response.json()

    async def steps(self, thread: str, **query: Any) -> tuple[dict[str, Any], Tables]:
        """Return the header and the tables of a thread's steps."""
        return await self.tables(thread, "steps", **query)

    async def tables(self, thread: str, rest: str, **query: Any) -> tuple[dict[str, Any], Tables]:
        """Return the header and the tables of a route of a thread."""
        response = await self.client.get(f"threads/{quote(thread, safe='')}/{rest}", params=query)
        assert response.status_code == 200, response.text
        return decode_tables(response.content)


@asynccontextmanager
async def page_of(runtime: Runtime, user: str | None = None) -> AsyncGenerator[Page]:
    """Yield a page over a runtime, as one of its users sees it."""
    app = Starlette(routes=inspector_routes())
    app.add_middleware(_Named)
    app.state.runtime = runtime
    transport = httpx.ASGITransport(app)
    headers = {} if user is None else {"x-user": user}
    base = "http://inspector/api/inspector/"
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
        yield Page(client)
