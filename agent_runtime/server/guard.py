"""What every request passes before its handler: host, origin, user, rate, size."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

import anyio
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_runtime.server.limits import UserLimits
from agent_runtime.server.problems import ServiceError, problem_response
from agent_runtime.server.users import COOKIE, Authenticate
from agent_runtime_config import Settings

SAFE = ("GET", "HEAD", "OPTIONS")
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that proxies add: behind one, everybody seems to come from this machine."""
BODY_SECONDS = 30.0
"""How long a client may pause while it sends a body."""
_PUBLIC_BODY = 16_384
"""The most bytes of a body that comes without a user: a token fits."""
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
        if self._authenticate is not None:
            return
        headers, client = connection.headers, connection.client
        if any(name in headers for name in FORWARDED) or (
            client is not None and not is_loopback(client.host)
        ):
            raise ServiceError(
                403,
                "not-this-machine",
                "This service is for this machine alone, and the request comes from elsewhere.",
                cure="Serve with tokens: `agent-runtime tokens make USER`, then start it again.",
            )
        # A page of a stranger whose name leads here (DNS rebinding) sends that name.
        if not is_loopback(_host_of(headers.get("host", ""))):
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
        # Browsers send cookies with requests of any page, and this header only if a page of ours
        # sets it.
        by_cookie = COOKIE in connection.cookies and "authorization" not in headers
        # No browser: other programs name no origin.
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
        if connection.scope["method"] == "OPTIONS" or self._is_public(connection.scope):
            return
        user = self._settings.user
        if self._authenticate is not None:
            found = await self._authenticate(connection)
            if not found:
                # By address, because the request names no user.
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

    def _is_public(self, scope: Scope) -> bool:
        # The path that the router matches; the URL is made with the request's `Host` as well.
        path, root = str(scope["path"]), str(scope.get("root_path", ""))
        if root and path.startswith(f"{root}/"):
            path = path.removeprefix(root)
        return any(
            path.startswith(one) if one.endswith("/") and one != "/" else path == one
            for one in self._public
        )

    def _most_bytes(self, scope: Scope) -> int:
        if self._is_public(scope):
            return min(_PUBLIC_BODY, self._settings.service_max_body_bytes)
        upload = scope["method"] == "POST" and scope["path"].endswith(self._upload)
        settings = self._settings
        return settings.max_file_bytes if upload else settings.service_max_body_bytes


class _LimitedBody:
    """The body of a request, up to a size, and without long pauses."""

    def __init__(self, receive: Receive, most: int, connection: HTTPConnection) -> None:
        self._receive = receive
        self._most = most
        self._got = 0
        self._whole = False
        length = connection.headers.get("content-length", "0")
        # Twenty digits, since reading thousands takes long.  What the header hides is counted as
        # it comes.
        if not length.isascii() or not length.isdigit() or int(length[:20]) > most:
            raise _too_large(most)

    async def __call__(self) -> Message:
        if self._whole:
            # What comes now is that the client has left, at any time.
            return await self._receive()
        try:
            with anyio.fail_after(BODY_SECONDS):
                message = await self._receive()
        except TimeoutError:
            raise ServiceError(
                408, "too-slow", f"Nothing of the body came for {BODY_SECONDS:g} seconds.",
                cure="Send it without pauses.", headers={"Connection": "close"},
            ) from None  # fmt: skip
        self._whole = not message.get("more_body", False)
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


def _host_of(header: str) -> str:
    """Return the host that a `Host` header names, without the port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    host, _, port = header.partition(":")
    return host if not port or port.isdigit() else ""


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
