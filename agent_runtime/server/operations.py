"""Declare the operations of the API: from a handler's types come its checks and its description."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_type_hints

import anyio.to_thread
import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.server.access import runtime_of, user_of
from agent_runtime.server.problems import ServiceError
from agent_runtime_storage.contract.names import name_problem

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Handler = Callable[..., Awaitable[BaseModel | Response | None]]
B = TypeVar("B", bound=BaseModel)

KEY_HEADER = "Idempotency-Key"
# How long the answer to a key is kept, as the description promises; and how long a request that
# died keeps its key from others.
_KEPT_SECONDS = 86_400.0
_CLAIM_SECONDS = 60.0
# Bytes of a body above which a thread validates it.
_IN_THREAD = 100_000
# Problems that an answer names: a list of a thousand wrong items has one cause.
_MOST_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the API.

    Attributes:
        path: below `/api`, with the names of its parameters in braces.
        status: of its answer.
        produces: the media type of its answer.
        consumes: the media type of its body, if that is not JSON.
        parameters: the types of the path's parameters.
        public: whether it needs no user.
    """

    method: Method
    path: str
    handler: Handler
    tag: str
    status: int = 200
    produces: str = "application/json"
    consumes: str = "application/json"
    parameters: Mapping[str, type] = field(default_factory=dict[str, type])
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    public: bool = False

    @property
    def name(self) -> str:
        """Its handler's name."""
        return getattr(self.handler, "__name__", "operation")

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0].rstrip(".")

    @property
    def description(self) -> str:
        """The rest of what its handler's docstring says."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @property
    def repeatable(self) -> bool:
        """Whether the operation takes an idempotency key."""
        return self.method == "POST" and not self.public

    def route(self) -> Route:
        """Return the route that serves the operation."""
        return Route(f"/api{self.path}", self.serve, methods=[self.method])

    async def serve(self, request: Request) -> Response:
        """Check the request, and answer it."""
        values: dict[str, Any] = {}
        for name, kind in self.parameters.items():
            values[name] = _parameter(name, request.path_params[name], kind)
        if self.query is not None:
            values["query"] = _checked(self.query, dict(request.query_params), "query")
        if self.body is not None:
            values["body"] = await _body(self.body, request)
        if (key := request.headers.get(KEY_HEADER)) is not None and self.repeatable:
            return await _once(request, key, functools.partial(self._answer, request, values))
        return await self._answer(request, values)

    async def _answer(self, request: Request, values: Mapping[str, Any]) -> Response:
        answer = await self.handler(request, **values)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return Response(answer.model_dump_json(), self.status, media_type="application/json")


def operation(
    method: Method,
    path: str,
    *,
    tag: str,
    status: int | None = None,
    produces: str = "application/json",
    consumes: str = "application/json",
    public: bool = False,
) -> Callable[[Handler], Operation]:
    """Make an operation of a handler, which takes the request, and by name what its types say.

    `query` and `body` are models; the parameters of the path are texts or numbers.
    """

    def declare(handler: Handler) -> Operation:
        hints = get_type_hints(handler)
        answer = hints.get("return")
        model = answer if isinstance(answer, type) and issubclass(answer, BaseModel) else None
        known = ("request", "query", "body", "return")
        return Operation(
            method,
            path,
            handler,
            tag,
            status or (200 if model or answer is Response else 204),
            produces,
            consumes,
            {name: kind for name, kind in hints.items() if name not in known},
            hints.get("query"),
            hints.get("body"),
            model,
            public,
        )

    return declare


def made_id(request: Request) -> str | None:
    """Return the id for what the request creates, the same for each attempt under its key."""
    return getattr(request.state, "made_id", None)


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """Return the routes of operations."""
    return [one.route() for one in operations]


def _parameter(name: str, text: str, kind: type) -> str | int:
    if kind is int:
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise ServiceError(404, "not-found", f"The {name} {text[:40]!r} is no number.")
        return int(text)
    if problem := name_problem(text):
        raise ServiceError(404, "not-found", f"The {name} {problem}.")
    return text


def _checked(model: type[B], values: Any, where: str) -> B:
    try:
        if where != "body":
            return model.model_validate(values)
        # Stricter than pydantic, which takes NaN and infinities, and no database does.
        orjson.loads(values)
        return model.model_validate_json(values)
    except orjson.JSONDecodeError as error:
        raise ServiceError(
            422, "invalid-request", f"The body of the request is no JSON: {error}.",
            cure="Send JSON in UTF-8; it has no NaN and no infinity.",
        ) from None  # fmt: skip
    except ValidationError as error:
        raise _invalid(error, where) from None


async def _body(model: type[B], request: Request) -> B:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await request.body()
    if content and media_type != "application/json":
        # Also what keeps a page of another origin from sending one without being asked for.
        raise ServiceError(
            415,
            "unsupported-media-type",
            "The body is not declared as JSON.",
            cure="Send `Content-Type: application/json`.",
        )
    if len(content) > _IN_THREAD:
        return await anyio.to_thread.run_sync(_checked, model, content, "body")
    return _checked(model, content or b"{}", "body")


def _invalid(error: ValidationError, where: str) -> ServiceError:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    named = [
        {"at": ".".join(map(str, one["loc"]))[:200], "problem": one["msg"][:500]}
        for one in found[:_MOST_PROBLEMS]
    ]
    said = "; ".join(
        f"{one['at']}: {one['problem']}" if one["at"] else one["problem"] for one in named
    )
    return ServiceError(
        422,
        "invalid-request",
        f"The {where} of the request is not valid: {said}.",
        cure="The service's /api/openapi.json describes what it takes.",
        more={"errors": named},
    )


async def _once(request: Request, key: str, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer a request under a key once; sent again, it gets the same answer.

    Only successes are kept: after an error nothing was done, and the key can be used again.
    """
    if not key.isprintable() or not 0 < len(key) <= 255:
        raise ServiceError(
            422, "invalid-key", "The idempotency key is empty, too long, or not printable.",
            cure="Send a UUID.",
        )  # fmt: skip
    store, user = runtime_of(request).store.service, user_of(request)
    digest = hashlib.sha256(
        f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    ).digest()
    found = await store.claim_request(user, key, digest, seconds=_CLAIM_SECONDS, keep=_KEPT_SECONDS)
    if not found.same:
        raise ServiceError(
            422, "key-reused", "The idempotency key was used for another request.",
            cure="Choose a new key for each request.",
        )  # fmt: skip
    if found.status is not None:
        return Response(
            found.body or b"", found.status, {"Idempotency-Replayed": "true"}, "application/json"
        )
    if not found.claim:
        raise ServiceError(
            409, "in-progress", "A request with this idempotency key is in progress.",
            cure="Send it again later.", retry_after=2,
        )  # fmt: skip
    request.state.made_id = found.made_id
    try:
        response = await answer()
    except Exception:
        # Nothing was made, so the same key may try again.
        await store.drop_request(user, key, found.claim)
        raise
    body = cast("bytes", response.body)
    await store.answer_request(user, key, found.claim, response.status_code, body)
    return response
