"""The inspector for one person at this machine: no set-up, and nobody else gets in.

The person acts on runs by the database: whichever process works on a run heeds it.
"""

from __future__ import annotations

import gc
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_runtime.errors import AgentRuntimeError, NotFound
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.runtime import Runtime
from agent_runtime.server.access import store_of
from agent_runtime.server.api.memory import search
from agent_runtime.server.api.questions import answer_question
from agent_runtime.server.api.runs import (
    cancel_run,
    follow_run,
    list_agents,
    pause_run,
    steer_run,
)
from agent_runtime.server.api.threads import edit_thread, follow_thread, fork_thread
from agent_runtime.server.guard import Guard
from agent_runtime.server.inspector.opening import opening_of
from agent_runtime.server.inspector.pages import packed_files
from agent_runtime.server.inspector.routes import inspector_routes
from agent_runtime.server.limits import UserLimits
from agent_runtime.server.operations import operation, routes_of
from agent_runtime.server.problems import ServiceError
from agent_runtime.server.process import ServiceServer
from agent_runtime.server.state import ServiceState
from agent_runtime_storage import Run

HOST = "127.0.0.1"
_BROWSER_SECONDS = 1.0
"""A browser that has to start takes longer to come."""
_REFUSED = "Run `agent-runtime view` again: its address opens once, in one browser."


@dataclass(slots=True)
class LocalAccess:
    """Who may read: the browser that opened the address first, with this machine's name for it.

    Attributes:
        token: opens the page once.
        session: what the browser shows from then on.
        port: where the page is served.
        entered: set once it was opened.
    """

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    entered: anyio.Event = field(default_factory=anyio.Event, repr=False)

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
            self.entered.set()
        return right


class _OneBrowser:
    """Refuses all requests but those that a `LocalAccess` admits, and the one that enters."""

    def __init__(self, app: ASGIApp, access: LocalAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entering = str(scope.get("path", "")).startswith("/enter/")
        if (
            scope["type"] == "http"
            and not entering
            and not self._access.admits(HTTPConnection(scope))
        ):
            await PlainTextResponse(_REFUSED, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class _NoAgents:
    """What the page can run: nothing, since a run needs its own program."""

    program = ""
    names: Sequence[str] = ()
    versions: Sequence[str] = ()

    def named(self, name: str | None) -> NoReturn:
        raise NotFound("This page runs no agents.", cure="Use `agent-runtime run`.")

    def spec(self, name: str | None) -> Mapping[str, Any]:
        return {}

    def of_run(self, run: Run) -> None:
        return None


@operation("POST", "/runs/{run_id}/resume", tag="runs")
async def _resume_elsewhere(request: Request, run_id: str) -> None:
    run = await store_of(request).runs.get(run_id)
    raise ServiceError(
        409,
        "runs-elsewhere",
        "This page steers runs, and runs none itself.",
        cure=f"Continue it in its program; on the command line: agent-runtime resume {run.id}",
    )


ACTIONS = (
    list_agents, search, answer_question, steer_run, pause_run, cancel_run, _resume_elsewhere,
    fork_thread, edit_thread, follow_run, follow_thread,
)  # fmt: skip
"""The operations of the service that the page uses here."""


def local_app(runtime: Runtime, access: LocalAccess) -> Starlette:
    """Return the application of one person's page."""

    async def enter(request: Request) -> Response:
        known = request.headers.get("host") in access.hosts
        if not known or not access.enter(str(request.path_params["token"])):
            return PlainTextResponse(_REFUSED, 403)
        thread = request.query_params.get("thread")
        place = "/" if thread is None else f"/#/threads/{quote(thread, safe='')}"
        response = RedirectResponse(place, 303, headers={"referrer-policy": "no-referrer"})
        response.set_cookie(access.cookie, access.session, httponly=True, samesite="strict")
        return response

    async def owner(connection: HTTPConnection) -> str:
        return runtime.settings.user

    settings = runtime.settings
    # One person's tabs are not a crowd.
    limits = UserLimits(settings.model_copy(update={"service_rate": 0.0}))
    routes: list[BaseRoute] = [
        Route("/enter/{token}", enter, methods=["GET"]),
        *routes_of(ACTIONS),
        *inspector_routes(),
    ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(_OneBrowser, access=access),
            Middleware(
                Guard,
                settings=settings,
                limits=limits,
                authenticate=owner,
                public=("/enter/",),
                upload="/files",
            ),
        ],
    )
    app.state.runtime = runtime
    app.state.service = ServiceState(_NoAgents(), settings, limits, owner)
    return app


async def _vocabulary(access: LocalAccess) -> None:
    """Load the vocabulary while the browser starts; where it was quicker, the page comes first.

    What counts tokens loads it by itself.
    """
    with anyio.move_on_after(_BROWSER_SECONDS):
        await access.entered.wait()
        return
    await load_vocabulary()


async def _read_ahead(runtime: Runtime, thread_id: str) -> None:
    """Read what the page asks for first while the browser starts; what was read is kept."""
    with suppress(AgentRuntimeError):
        # The page itself shows what is wrong.
        await opening_of(runtime.store_of(), thread_id)


async def serve_page(
    runtime: Runtime,
    opened: Callable[[LocalAccess], None],
    *,
    port: int = 0,
    thread_id: str | None = None,
) -> None:
    """Serve one person's page on this machine until the program is interrupted.

    Args:
        opened: is called once the page can be opened.
        port: 0 takes a free one.
        thread_id: the thread that is opened first.

    Raises:
        OSError: the port is taken.
    """
    # What was imported stays: collections would look at it again while ten thousand rows are read.
    gc.freeze()
    with socket.socket() as listener:
        listener.bind((HOST, port))
        access = LocalAccess(listener.getsockname()[1])
        async with anyio.create_task_group() as group:
            group.start_soon(_vocabulary, access)
            if thread_id is not None:
                group.start_soon(_read_ahead, runtime, thread_id)
            # The database reads while the page's files are packed and the application is made.
            await anyio.to_thread.run_sync(packed_files)
            app = local_app(runtime, access)
            # Addresses hold the token, so requests are not logged.
            config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
            server = ServiceServer(config, app, lambda _: opened(access))
            await server.serve(sockets=[listener])
