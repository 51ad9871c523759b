"""A server on loopback with the rerank APIs of Cohere and Jina, as strict as these are.

It scores a text by the share of the query's words in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
import orjson

from agent_runtime.testing.loopback import Answer, Json, LoopbackServer

KEY = "co-0123456789abcdef"
FIELDS = {
    "/v1/rerank": {
        "model",
        "query",
        "documents",
        "top_n",
        "return_documents",
        "max_chunks_per_doc",
    },
    "/v2/rerank": {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"},
}
_WORD = re.compile(r"\w+")


class RerankServer(LoopbackServer):
    """Answers rerank requests.

    Attributes:
        requests: the bodies of all requests.
        reply: called with each request's number, from 0; a status, or a body that replaces the
            right one, or None for the right one.
        delay: seconds before each answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Json] = []
        self.reply: Callable[[int], int | Json | None] = lambda number: None
        self.delay = 0.0

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Answer a request."""
        number = len(self.requests)
        self.requests.append(body)
        await anyio.sleep(self.delay)
        if headers.get("authorization") != f"Bearer {KEY}":
            return _error(401, "invalid api token")
        if wrong := _wrong(path, body):
            return _error(400, wrong)
        chosen = self.reply(number)
        if isinstance(chosen, int):
            return _error(chosen, "the server is unwell")
        return 200, "application/json", [orjson.dumps(chosen or _right(body))]


def _wrong(path: str, body: Json) -> str:
    """Return what is wrong with a request; empty if nothing is."""
    if path not in FIELDS:
        return f"no such path: {path}"
    if unknown := body.keys() - FIELDS[path]:
        return f"unknown fields: {sorted(unknown)}"
    if not isinstance(body.get("model"), str) or "/" in body["model"]:
        return f"unknown model: {body.get('model')}"
    if not isinstance(body.get("query"), str) or not body["query"].strip():
        return "query must not be empty"
    if not isinstance(body.get("documents"), list):
        return "documents must be a list"
    texts = cast("list[Any]", body["documents"])
    if not 1 <= len(texts) <= 1000:
        return "documents must be 1 to 1000 texts"
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return "documents must not be empty"
    top = body.get("top_n")
    return "" if top is None or 1 <= top <= len(texts) else "top_n is out of range"


def _right(body: Json) -> Json:
    words = set(_WORD.findall(body["query"].lower()))
    scores = [
        len(words & set(_WORD.findall(text.lower()))) / max(1, len(words))
        for text in body["documents"]
    ]
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    results = [{"index": place, "relevance_score": scores[place]} for place in order]
    results = results[: body.get("top_n")]
    if body["model"].startswith("jina"):
        tokens = sum(map(len, body["documents"])) // 4 + 1
        usage = {"total_tokens": tokens}
        return {"model": body["model"], "object": "list", "usage": usage, "results": results}
    units = -(-len(scores) // 100)
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": units}}
    return {"id": "1f2e", "results": results, "meta": meta}


def _error(status: int, message: str) -> Answer:
    return status, "application/json", [orjson.dumps({"message": message})]
