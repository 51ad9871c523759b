"""The inspector for one person at this machine: no set-up, and nobody else gets in."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_runtime.runtime import Runtime
from agent_runtime.server.inspector.routes import inspector_routes

HOST = "127.0.0.1"
_REFUSED = "Run `agent-runtime view` again: its address opens once, in one browser."


@dataclass(slots=True)
class LocalAccess:
    """Who may read: the browser that opened the address first, with this machine's name for it.

    Attributes:
        token: opens the page once.
        session: what the browser shows from then on.
        port: where the page is served.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name; cookies of one host are shared by all its ports."""
        return f"agent_runtime_view_{self.port}"

    def address(self, thread_id: str | None = None) -> str:
        """Return the address to open, at a thread if one is named."""
        thread = "" if thread_id is None else f"?thread={quote(thread_id, safe='')}"
        return f"http://{HOST}:{self.port}/enter/{self.token}{thread}"

    def admits(self, connection: HTTPConnection) -> bool:
        """Return whether a request comes from that browser and was meant for this page."""
        if connection.headers.get("host") not in self.hosts:
            # A page of a stranger whose name leads here (DNS rebinding) sends that name.
            return False
        origin = connection.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return False
        shown = connection.cookies.get(self.cookie, "")
        return secrets.compare_digest(shown.encode(), self.session.encode())

    @property
    def hosts(self) -> frozenset[str]:
        """The names by which the page is reached."""
        return frozenset({f"{HOST}:{self.port}", f"localhost:{self.port}"})

    def enter(self, token: str) -> bool:
        """Return whether a token opens the page; it does once."""
        right = bool(self.token) and secrets.compare_digest(token.encode(), self.token.encode())
        if right:
            self.token = ""
        return right


class _Guard:
    """Refuses all requests but those that a `LocalAccess` admits, and the one that enters."""

    def __init__(self, app: ASGIApp, access: LocalAccess, user: str) -> None:
        self._app, self._access, self._user = app, access, user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        entering = str(scope["path"]).startswith("/enter/")
        if not entering and not self._access.admits(HTTPConnection(scope)):
            await PlainTextResponse(_REFUSED, 403)(scope, receive, send)
            return
        scope.setdefault("state", {})["user"] = self._user
        await self._app(scope, receive, send)


def local_app(runtime: Runtime, access: LocalAccess, actions: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Return the application of one person's page.

    Args:
        actions: the routes by which the page acts on runs, from the service.
    """

    async def enter(request: Request) -> Response:
        known = request.headers.get("host") in access.hosts
        if not known or not access.enter(str(request.path_params["token"])):
            return PlainTextResponse(_REFUSED, 403)
        thread = request.query_params.get("thread")
        place = "/" if thread is None else f"/#/threads/{quote(thread, safe='')}"
        response = RedirectResponse(place, 303, headers={"referrer-policy": "no-referrer"})
        response.set_cookie(access.cookie, access.session, httponly=True, samesite="strict")
        return response

    routes: list[BaseRoute] = [
        Route("/enter/{token}", enter, methods=["GET"]),
        *actions,
        *inspector_routes(),
    ]
    app = Starlette(routes=routes)
    app.state.runtime = runtime
    return _Guard(app, access, runtime.settings.user)


async def serve_page(
    runtime: Runtime, opened: Callable[[LocalAccess], None], *, port: int = 0
) -> None:
    """Serve one person's page on this machine until the program is interrupted.

    Args:
        opened: is called once the page can be opened.
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """
    with socket.socket() as listener:
        listener.bind((HOST, port))
        listener.listen()
        access = LocalAccess(listener.getsockname()[1])
        # Addresses hold the token, so requests are not logged.
        config = uvicorn.Config(
            local_app(runtime, access), log_level="warning", access_log=False, lifespan="off"
        )
        opened(access)
        await uvicorn.Server(config).serve(sockets=[listener])
