"""The service itself: its health, its description, and sessions of browsers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response

from agent_runtime.server.access import runtime_of
from agent_runtime.server.api.schemas import Input
from agent_runtime.server.operations import operation
from agent_runtime.server.problems import ServiceError
from agent_runtime.server.state import service_of
from agent_runtime.server.users import COOKIE

# The cookie's life; the token behind it may expire or be revoked sooner.
_SESSION_SECONDS = 30 * 86_400


class NewSession(Input):
    """The token that a browser is to keep."""

    # What a header and a cookie can hold.
    token: Annotated[str, Field(min_length=1, max_length=8000, pattern=r"^[!-~]+$")]


@operation("POST", "/session", tag="service", status=204, public=True)
async def begin_session(request: Request, body: NewSession) -> Response:
    """Keep a token as a cookie that scripts cannot read, for pages of this origin."""
    response = Response(status_code=204)
    service = service_of(request)
    if service.authenticate is not None:
        headers = [one for one in request.scope["headers"] if one[0] != b"authorization"]
        bearer = f"Bearer {body.token}".encode("ascii")
        asked = {**request.scope, "headers": [*headers, (b"authorization", bearer)]}
        # Before the token is checked, so that guessing costs as much as being right.
        service.limits.requests.take(f"session {request.client and request.client.host}")
        if not await service.authenticate(HTTPConnection(asked)):
            raise ServiceError(
                401, "unauthenticated", "The token is wrong, expired or revoked.",
                cure="Make one: `agent-runtime tokens make`.",
            )  # fmt: skip
    response.set_cookie(
        COOKIE, body.token, max_age=_SESSION_SECONDS, path=_path_of(request), httponly=True,
        samesite="strict", secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


@operation("DELETE", "/session", tag="service", status=204, public=True)
async def end_session(request: Request) -> Response:
    """Forget the token that the browser keeps."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path=_path_of(request), httponly=True, samesite="strict")
    return response


def _path_of(request: Request) -> str:
    """Return the path of the cookie: other applications of the host do not get the token."""
    return f"{request.scope.get('root_path', '')}/"


async def health(request: Request) -> Response:
    """Say that the process answers."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Say whether the service takes requests: the database answers, and nothing closes."""
    service = service_of(request)
    runtime = runtime_of(request)
    if service.closing.is_set() or runtime.health().closing:
        return JSONResponse({"status": "closing"}, 503)
    # The smallest query that reaches the database.
    await runtime.store.service.any_token()
    return JSONResponse({"status": "ok"})


OPERATIONS = (begin_session, end_session)
"""The operations of this module."""
