"""The inspector's routes: what the page reads of one owner's threads, as JSON or as bytes."""

from __future__ import annotations

import gzip
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
import orjson
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agent_runtime.errors import (
    AgentRuntimeError,
    CorruptThread,
    NotFound,
    StoreUnavailable,
)
from agent_runtime.server.access import store_of
from agent_runtime.server.inspector import activations, nodes, observations
from agent_runtime.server.inspector.home import MOST_RECENT, home_of
from agent_runtime.server.inspector.opening import opening_of
from agent_runtime.server.inspector.pages import page_routes
from agent_runtime.server.inspector.places import place_of
from agent_runtime.server.inspector.prompts import prompt_under
from agent_runtime.server.inspector.steps import steps_of
from agent_runtime.server.inspector.threads import thread_of
from agent_runtime_storage.contract.errors import CorruptDocument, StoreError

PREFIX = "/api/inspector"
_SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    # Whole texts are shown by the page only; opened by themselves they run nothing.
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
}
_COMPRESSED_FROM = 1024
_MOST_ID = 2**53

_log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class _Place(Convertor[int]):
    """A number in a path: with more digits it would be none that Python or a database reads."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("place", _Place())


class BadParameter(ValueError):
    """A parameter of a request cannot be used; the text names it and what it takes."""


def inspector_routes() -> list[Route]:
    """Return the page's routes and those below `/api/inspector`, which it reads.

    They take the runtime and the user from the request, as `agent_runtime.server.access` says.
    """
    # Ids of threads may have slashes; so the thread itself comes last, since it matches all paths.
    thread = "/threads/{thread:path}"
    found: dict[str, Handler] = {
        "/home": _home,
        f"{thread}/opening": _opening,
        f"{thread}/steps": _steps,
        f"{thread}/activations": _activations,
        f"{thread}/observations": _observations,
        f"{thread}/nodes": _nodes,
        f"{thread}/nodes/{{node:place}}/text": _text,
        f"{thread}/nodes/{{node:place}}/calls/{{index:place}}": _call,
        f"{thread}/prompt": _prompt,
        f"{thread}/prompt/text": _prompt_text,
        f"{thread}/where": _where,
        thread: _thread,
    }
    return page_routes() + [
        Route(PREFIX + path, _problems(handler), methods=["GET"]) for path, handler in found.items()
    ]


def _problems(handler: Handler) -> Handler:
    async def handled(request: Request) -> Response:
        try:
            return await handler(request)
        except BadParameter as error:
            return problem(400, "A parameter cannot be used", str(error), "Correct it.")
        except NotFound as error:
            return problem(404, "Gone", error.message, error.cure)
        except (CorruptThread, CorruptDocument) as error:
            return problem(409, "The log is damaged", error.message, error.cure)
        except StoreUnavailable as error:
            return problem(503, "The store is unavailable", error.message, error.cure)
        except StoreError as error:
            # Such as an id that no database can hold.
            return problem(404, "Gone", error.message, error.cure)
        except AgentRuntimeError as error:
            _log.exception("The inspector cannot show this.")
            return problem(500, "The inspector cannot show this", error.message, error.cure)

    return handled


def problem(status: int, title: str, detail: str, cure: str) -> Response:
    """Return an error as problem details."""
    body = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "cure": cure,
    }
    return Response(
        orjson.dumps(body), status, headers=_SAFE, media_type="application/problem+json"
    )


async def _answer(
    request: Request, data: bytes | dict[str, Any], kind: str = "application/json"
) -> Response:
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    body, packed = await anyio.to_thread.run_sync(_packed, data, accepts)
    headers = dict(_SAFE)
    if packed:
        headers |= {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(body, headers=headers, media_type=kind)


def _packed(data: bytes | dict[str, Any], accepts: bool) -> tuple[bytes, bool]:
    body = data if isinstance(data, bytes) else orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    if not accepts or len(body) < _COMPRESSED_FROM:
        return body, False
    return gzip.compress(body, 1, mtime=0), True


def _number(request: Request, name: str, default: int | None = None) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > _MOST_ID:
        raise BadParameter(f"`{name}` is not a whole number from 0 to 2^53: {text[:40]!r}.")
    return int(text)


def _needed(request: Request, name: str) -> int:
    value = _number(request, name)
    if value is None:
        raise BadParameter(f"`{name}` is missing; it is a whole number.")
    return value


def _ids(request: Request, most: int) -> list[int] | None:
    text = request.query_params.get("ids")
    if text is None:
        return None
    parts = text.split(",") if text else []
    good = all(one.isascii() and one.isdigit() and len(one) <= 16 for one in parts)
    if not good or len(parts) > most:
        raise BadParameter(f"`ids` is not a list of at most {most} whole numbers, as in 3,4.")
    return [min(int(one), _MOST_ID) for one in parts]


def _thread_id(request: Request) -> str:
    return str(request.path_params["thread"])


async def _home(request: Request) -> Response:
    limit = _number(request, "limit", 50) or 0
    if not 1 <= limit <= MOST_RECENT:
        raise BadParameter(f"`limit` is not a whole number from 1 to {MOST_RECENT}.")
    return await _answer(
        request, await home_of(store_of(request), limit=limit, before=_cursor(request))
    )


def _cursor(request: Request) -> tuple[float, str] | None:
    text = request.query_params.get("before")
    if text is None:
        return None
    at, _, run = text.partition(":")
    try:
        moment = float(at)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment) or not run or len(run) > 200:
        raise BadParameter("`before` is not the `next` of an earlier page.")
    return moment, run


async def _thread(request: Request) -> Response:
    return await _answer(request, await thread_of(store_of(request), _thread_id(request)))


async def _opening(request: Request) -> Response:
    found = await opening_of(store_of(request), _thread_id(request), _number(request, "head"))
    return await _answer(request, found, "application/octet-stream")


async def _steps(request: Request) -> Response:
    after = _number(request, "after", 0) or 0
    tables = await steps_of(
        store_of(request), _thread_id(request), _number(request, "head"), after=after
    )
    return await _answer(request, tables, "application/octet-stream")


async def _activations(request: Request) -> Response:
    store, thread = store_of(request), _thread_id(request)
    if (ids := _ids(request, activations.MOST_WHOLE)) is not None:
        return await _answer(request, await activations.whole_activations(store, thread, ids))
    head, after = _number(request, "head"), _number(request, "after", 0) or 0
    return await _answer(
        request, await activations.activations_of(store, thread, head, after=after)
    )


async def _observations(request: Request) -> Response:
    store, thread = store_of(request), _thread_id(request)
    if (ids := _ids(request, observations.MOST_WHOLE)) is not None:
        return await _answer(request, await observations.whole_observations(store, thread, ids))
    head, after = _number(request, "head"), _number(request, "after", 0) or 0
    return await _answer(
        request, await observations.observations_of(store, thread, head, after=after)
    )


async def _nodes(request: Request) -> Response:
    found = await nodes.nodes_of(
        store_of(request),
        _thread_id(request),
        _needed(request, "from"),
        _needed(request, "to"),
        _number(request, "head"),
    )
    return await _answer(request, found)


async def _text(request: Request) -> Response:
    text = await nodes.text_of(store_of(request), _thread_id(request), request.path_params["node"])
    return _whole(request, text, "text/plain; charset=utf-8")


async def _call(request: Request) -> Response:
    part = request.query_params.get("part", "result")
    if part not in ("result", "arguments"):
        raise BadParameter("`part` is neither `result` nor `arguments`.")
    place = request.path_params
    text = await nodes.call_text(
        store_of(request), _thread_id(request), place["node"], place["index"], part=part
    )
    kind = "application/json" if part == "arguments" else "text/plain; charset=utf-8"
    return _whole(request, text, kind)


async def _prompt(request: Request) -> Response:
    found = await prompt_under(
        store_of(request),
        _thread_id(request),
        _needed(request, "activation"),
        _number(request, "head"),
    )
    return await _answer(request, found.to_json())


async def _prompt_text(request: Request) -> Response:
    index = _needed(request, "part")
    found = await prompt_under(
        store_of(request),
        _thread_id(request),
        _needed(request, "activation"),
        _number(request, "head"),
    )
    if index >= len(found.parts):
        raise NotFound(
            f"The prompt has {len(found.parts)} parts; there is no part {index}.",
            cure="Read the prompt again.",
        )
    return _whole(request, found.parts[index].text.encode(), "text/plain; charset=utf-8")


async def _where(request: Request) -> Response:
    found = await place_of(
        store_of(request),
        _thread_id(request),
        _needed(request, "node"),
        _number(request, "at"),
        _number(request, "head"),
    )
    return await _answer(request, found)


def _whole(request: Request, body: bytes, kind: str) -> Response:
    """Return a whole text, or the range of bytes that was asked for."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_SAFE, "accept-ranges": "bytes", "etag": tag, "content-disposition": "inline"}
    asked = request.headers.get("range", "")
    fresh = request.headers.get("if-range", tag) == tag
    if not asked.startswith("bytes=") or "," in asked or not fresh:
        return Response(body, headers=headers, media_type=kind)
    place = _range(asked.removeprefix("bytes="), len(body))
    if place is None:
        headers["content-range"] = f"bytes */{len(body)}"
        return Response(b"", 416, headers=headers, media_type=kind)
    first, end = place
    headers["content-range"] = f"bytes {first}-{end - 1}/{len(body)}"
    return Response(body[first:end], 206, headers=headers, media_type=kind)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of a range; None if it has none of the body."""
    first, dash, last = text.strip().partition("-")
    digits = all(one.isascii() and (one.isdigit() or not one) for one in (first, last))
    if not dash or not digits or not (first or last) or len(text) > 40:
        return None
    if not first:
        return (max(size - int(last), 0), size) if int(last) and size else None
    end = min(int(last) + 1, size) if last else size
    return (int(first), end) if int(first) < end else None
