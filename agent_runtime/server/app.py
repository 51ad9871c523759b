"""`create_app`: the service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from agent_runtime.errors import ConfigError
from agent_runtime.models.tokens import load_vocabulary
from agent_runtime.runtime import Runtime
from agent_runtime.server.api import (
    archives,
    files,
    memory,
    questions,
    runs,
    service,
    threads,
)
from agent_runtime.server.guard import Guard
from agent_runtime.server.inspector.routes import inspector_routes
from agent_runtime.server.limits import UserLimits
from agent_runtime.server.metrics import metrics_routes
from agent_runtime.server.openapi import openapi_of
from agent_runtime.server.operations import KEY_HEADER, Operation, routes_of
from agent_runtime.server.prefix import Prefixed
from agent_runtime.server.problems import ServiceError, problem_response
from agent_runtime.server.protocols.live import live_of
from agent_runtime.server.protocols.routes import protocol_routes
from agent_runtime.server.state import ServiceState
from agent_runtime.server.users import Authenticate, by_token
from agent_runtime.workflow.registry import Named, Registry
from agent_runtime_config import Settings, load_settings

OPERATIONS: tuple[Operation, ...] = (
    *runs.OPERATIONS, *threads.OPERATIONS, *archives.OPERATIONS, *files.OPERATIONS,
    *memory.OPERATIONS, *questions.OPERATIONS, *service.OPERATIONS,
)  # fmt: skip
"""Every operation under `/api`."""
PUBLIC: tuple[str, ...] = (
    "/health", "/ready", "/api/session", "/api/openapi.json", "/", "/static/", "/metrics",
)  # fmt: skip
"""Paths that need no user; what is below one that ends in `/` needs none either.

The page holds nothing until it has signed in; the metrics have a token of their own.
"""

CARD = "/.well-known/agent-card.json"
"""The card of the Agent2Agent protocol, which clients read before they have a token."""


def create_app(
    app: Registry,
    *,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    authenticate: Authenticate | Literal["tokens", "local"] = "tokens",
    a2a: bool = False,
) -> Starlette:
    """Return the service of an application, to be served or mounted in one of your own.

        service = create_app(App(agents={"research": agent}))

    Args:
        app: what it runs.
        settings: None for those of the runtime, or of the environment.
        runtime: an open runtime, which the service uses and does not close.  A mounted application
            needs one, since the server starts only the outer one.  Its streams end once
            `service.state.service.closing` is set.
        authenticate: `tokens` for those of `agent-runtime tokens`; a function of your own, which
            returns the user of a request or None; or `local` for no users: whoever reaches the
            service then is the settings' user, if the request names this machine as its host.
        a2a: whether agents of other programs may call these by the Agent2Agent protocol.

    Raises:
        ConfigError: a setting is not usable.
    """
    if runtime is not None:
        _check_program(runtime, app)
    settings = settings or (runtime.settings if runtime is not None else load_settings())
    state = ServiceState(app, settings, UserLimits(settings), _hook(authenticate))

    @asynccontextmanager
    async def lifespan(starlette: Starlette) -> AsyncGenerator[None]:
        if runtime is not None:
            yield
            return
        async with Runtime.open(settings, program=app.program, agents=app.of_run) as opened:
            starlette.state.runtime = opened
            live_of(opened)
            async with _vocabulary():
                try:
                    yield
                finally:
                    # Before the runtime closes, which waits for streams.
                    state.closing.set()

    made = Starlette(
        routes=_routes(app, a2a),
        lifespan=lifespan,
        middleware=[*_prefixed(settings), *_cors(settings), _guard(state, a2a)],
        exception_handlers={HTTPException: _refused},
    )
    # A redirect would name the host and the scheme that a proxy has called it by.
    made.router.redirect_slashes = False
    made.state.service = state
    if runtime is not None:
        made.state.runtime = runtime
        live_of(runtime)
    return made


def _check_program(runtime: Runtime, app: Registry) -> None:
    if runtime.program != app.program:
        raise ConfigError(
            f"The runtime is that of the program {runtime.program!r}, and the application's is "
            f"{app.program!r}: it could not continue its own runs.",
            cure="Open it as `Runtime.open(program=app.program, agents=app.of_run)`.",
        )


@asynccontextmanager
async def _vocabulary() -> AsyncGenerator[None]:
    """Load the vocabulary meanwhile: the first run, or prompt on the page, would wait for it."""
    async with anyio.create_task_group() as group:
        group.start_soon(load_vocabulary)
        yield


def _routes(app: Registry, a2a: bool) -> list[BaseRoute]:
    described = openapi_of(OPERATIONS)

    async def openapi(request: Request) -> Response:
        # Where it is mounted, or shown by a proxy.
        root = str(request.scope.get("root_path", ""))
        return JSONResponse({**described, "servers": [{"url": root or "/"}]})

    return [
        *routes_of(OPERATIONS),
        Route("/api/openapi.json", openapi),
        Route("/health", service.health),
        Route("/ready", service.ready),
        *inspector_routes(),
        *protocol_routes(Named(app), app.spec(None), app.of_run, a2a=a2a),
        *metrics_routes(),
    ]


def _hook(authenticate: Authenticate | str) -> Authenticate | None:
    if authenticate == "tokens":
        return by_token
    if authenticate == "local":
        return None
    if not callable(authenticate):
        raise ConfigError(
            f"{authenticate!r} does not say how requests are authenticated.",
            cure="Give `tokens`, `local`, or an async function.",
        )
    return authenticate


def _guard(state: ServiceState, a2a: bool) -> Middleware:
    return Middleware(
        Guard,
        settings=state.settings,
        limits=state.limits,
        authenticate=state.authenticate,
        public=(*PUBLIC, CARD) if a2a else PUBLIC,
        upload="/files",
    )


def _prefixed(settings: Settings) -> list[Middleware]:
    prefix = settings.service_prefix
    return [Middleware(Prefixed, prefix=prefix)] if prefix else []


def _cors(settings: Settings) -> list[Middleware]:
    origins = [one for one in settings.service_origins.split(",") if one]
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", KEY_HEADER, "Last-Event-ID"],
            expose_headers=["Retry-After", "Idempotency-Replayed", "Content-Range"],
        )
    ]


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what the router refuses: a path that is not there, or another method."""
    assert isinstance(error, HTTPException)
    kinds = {404: "not-found", 405: "method-not-allowed"}
    kind = kinds.get(error.status_code, "refused")
    return problem_response(
        ServiceError(
            error.status_code,
            kind,
            f"{request.method} {request.url.path[:200]}: {error.detail}.",
            cure=f"{request.scope.get('root_path', '')}/api/openapi.json describes what there is.",
            headers=dict(error.headers or {}),
        )
    )
