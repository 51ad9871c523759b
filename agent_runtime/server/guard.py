"""What every request passes before its handler: host, origin, user, rate, size."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_runtime.server.limits import UserLimits
from agent_runtime.server.problems import ServiceError, problem_response
from agent_runtime.server.users import COOKIE, Authenticate
from agent_runtime_config import Settings

SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """Passes on requests that name a user and keep the limits, and turns errors into problems.

    Args:
        authenticate: says whose request it is; None where the service is for this machine alone:
            then the user is that of the settings, and the host must be this machine's.
        public: paths that need no user, and what is below those that end in `/`.
        upload: ends of the paths that take files.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        limits: UserLimits,
        authenticate: Authenticate | None,
        public: Collection[str],
        upload: str,
    ) -> None:
        self._app = app
        self._settings = settings
        self._limits = limits
        self._authenticate = authenticate
        self._public = tuple(public)
        self._upload = upload
        self._origins = set(settings.service_origins.split(",")) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                named = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name, value) for name, value in _HEADERS if name not in named]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            connection = HTTPConnection(scope)
            self._check_host(connection)
            self._check_origin(connection)
            body = _LimitedBody(receive, self._most_bytes(scope), connection)
            await self._name_user(connection)
            await self._app(scope, body, sending)
        except Exception as error:
            if begun:
                # The status is sent: the connection breaks, so that nobody takes a part for all.
                raise
            await problem_response(error)(scope, receive, sending)

    def _check_host(self, connection: HTTPConnection) -> None:
        # A page of a stranger whose name leads here (DNS rebinding) sends that name.
        if self._authenticate is None and not is_loopback(connection.url.hostname or ""):
            raise ServiceError(
                421,
                "wrong-host",
                "This service is for this machine alone, and the request names another host.",
                cure="Call it by http://127.0.0.1 or http://localhost, or serve with tokens.",
            )

    def _check_origin(self, connection: HTTPConnection) -> None:
        if connection.scope["method"] in SAFE:
            return
        headers = connection.headers
        origin = headers.get("origin")
        by_cookie = COOKIE in connection.cookies and "authorization" not in headers
        if origin is None and not by_cookie and headers.get("sec-fetch-site") != "cross-site":
            return
        url = connection.url
        if origin is None or origin.lower() not in {f"{url.scheme}://{url.netloc}", *self._origins}:
            raise ServiceError(
                403,
                "wrong-origin",
                "The request comes from a page of another origin.",
                cure="Name the page's origin in AGENT_RUNTIME_SERVICE_ORIGINS.",
            )

    async def _name_user(self, connection: HTTPConnection) -> None:
        path, method = connection.url.path, connection.scope["method"]
        path = path.removeprefix(connection.scope.get("root_path", ""))
        if method == "OPTIONS" or any(
            path.startswith(one) if one.endswith("/") and one != "/" else path == one
            for one in self._public
        ):
            return
        user = self._settings.user
        if self._authenticate is not None:
            found = await self._authenticate(connection)
            if not found:
                self._limits.requests.take(f"address {connection.client and connection.client[0]}")
                raise ServiceError(
                    401,
                    "unauthenticated",
                    "The request has no valid token: it is missing, wrong, expired or revoked.",
                    cure="Send `Authorization: Bearer TOKEN`; `agent-runtime tokens make` makes "
                    "one.",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            user = found
        self._limits.requests.take(f"user {user}")
        connection.state.user = user

    def _most_bytes(self, scope: Scope) -> int:
        upload = scope["method"] == "POST" and scope["path"].endswith(self._upload)
        settings = self._settings
        return settings.max_file_bytes if upload else settings.service_max_body_bytes


class _LimitedBody:
    """The body of a request, up to a size."""

    def __init__(self, receive: Receive, most: int, connection: HTTPConnection) -> None:
        self._receive = receive
        self._most = most
        self._got = 0
        length = connection.headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > most:
            raise _too_large(most)

    async def __call__(self) -> Message:
        message = await self._receive()
        self._got += len(message.get("body", b""))
        if self._got > self._most:
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> ServiceError:
    return ServiceError(
        413,
        "too-large",
        f"The body has more than {most:,} bytes.",
        cure="Send less, or upload it as a file; AGENT_RUNTIME_SERVICE_MAX_BODY_BYTES and "
        "AGENT_RUNTIME_MAX_FILE_BYTES are the limits.",
        headers={"Connection": "close"},
    )


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
