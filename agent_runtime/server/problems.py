"""Errors as problem details (RFC 9457), with cause and cure, and never with a secret."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from agent_runtime import errors

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger(__name__)


class ProblemDetails(BaseModel):
    """What went wrong, why, and what to do."""

    model_config = ConfigDict(extra="allow", title="ProblemDetails")

    type: str = Field(description="The kind of problem, for programs.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="The status of the response.")
    detail: str = Field(description="What happened, and why.")
    cure: str = Field(default="", description="What to do about it.")


class ServiceError(Exception):
    """A request that the service refuses; what it says is for the client.

    Args:
        kind: the problem's kind, such as `rate-limited`.
        retry_after: seconds after which the same request may succeed.
        more: further members of the problem.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        cure: str = "",
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after)))


def cursor_of_another_thread() -> ServiceError:
    """Return the error of a cursor that came from another thread, perhaps of the same id."""
    return ServiceError(
        409,
        "cursor-of-another-thread",
        "The cursor is of another thread, which may have had the same id.",
        cure="It was deleted and its id used again: begin at the start, without a cursor.",
    )


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 404),
    (errors.InboxFull, 429),
    (errors.Conflict, 409),
    (errors.InvalidAnswer, 422),
    (errors.InvalidFile, 422),
    (errors.UnsupportedTask, 422),
    (errors.PromptTooLarge, 422),
    (errors.ConfigError, 422),
    (errors.ModelError, 502),
    (errors.McpServerFailed, 502),
    (errors.RuntimeClosed, 503),
    (errors.StoreUnavailable, 503),
)
"""The status of each error; subclasses stand before their bases."""
_RETRY_SECONDS = 5


def problem_of(error: Exception) -> tuple[ProblemDetails, dict[str, str]]:
    """Return the problem of an error, and the headers of its response.

    An unforeseen error gives only a reference; the log has the rest.
    """
    if isinstance(error, ServiceError):
        return _problem(error.status, error.kind, error, error.more), error.headers
    if isinstance(error, errors.AgentRuntimeError) and (status := status_of(error)):
        headers = {"Retry-After": str(_RETRY_SECONDS)} if status == 503 else {}
        more = {
            name: value
            for name in ("run_id", "questions", "budget")
            if (value := getattr(error, name, None)) is not None
        }
        return _problem(status, _kebab(type(error).__name__), error, more), headers
    # The client gets only this number: the error's text may hold anything.
    reference = secrets.token_hex(8)
    _log.error("A request failed (%s).", reference, exc_info=error)
    detail = errors.AgentRuntimeError(
        f"The service failed, and its log says why, under {reference}.", cure="Try again later."
    )
    return _problem(500, "internal-error", detail, {"reference": reference}), {}


def status_of(error: errors.AgentRuntimeError) -> int | None:
    """Return the status of an error; None for one that no request should cause."""
    for known, status in _STATUS:
        if isinstance(error, known):
            return status
    # The store refuses an id or a text by an error of no other kind.
    return 422 if type(error) is errors.StoreError else None


def problem_response(error: Exception) -> Response:
    """Return the response for an error."""
    problem, headers = problem_of(error)
    body = orjson.dumps(problem.model_dump(mode="json"))
    return Response(body, problem.status, headers, MEDIA_TYPE)


def _problem(
    status: int, kind: str, error: errors.AgentRuntimeError | ServiceError, more: Mapping[str, Any]
) -> ProblemDetails:
    title = kind.replace("-", " ").capitalize()
    return ProblemDetails(
        type=f"urn:agent-runtime:{kind}", title=title, status=status, detail=error.message,
        cure=error.cure, **more,
    )  # fmt: skip


def _kebab(name: str) -> str:
    return "".join(f"-{one.lower()}" if one.isupper() else one for one in name).lstrip("-")
