"""The answer of the loopback server's embeddings route, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from agent_runtime.models.retrieval.embedding import hashed
from agent_runtime.models.tokens import count_text

DIMENSIONS = 64


def texts_of(request: Mapping[str, Any]) -> list[str]:
    """Return the texts that a request wants to embed."""
    asked: Any = request.get("input")
    return [asked] if isinstance(asked, str) else cast("list[str]", asked or [])


def vectors_by_words(request: Mapping[str, Any]) -> list[list[float]]:
    """Return vectors of the texts; texts with common words have similar vectors."""
    return [hashed(text, DIMENSIONS) for text in texts_of(request)]


class Vectors:
    """The body of an answer with vectors, or `body`, if it is given, of an error."""

    streamed = False

    def __init__(
        self,
        request: Mapping[str, Any],
        vectors: Sequence[Sequence[float | None]],
        *,
        usage: bool,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        data = [
            {"object": "embedding", "index": index, "embedding": list(vector)}
            for index, vector in enumerate(vectors)
        ]
        frame: dict[str, Any] = {"object": "list", "data": data, "model": request.get("model")}
        if usage:
            tokens = sum(map(count_text, texts_of(request)))
            frame["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        self._body = orjson.dumps(frame if body is None else body)

    def whole(self) -> bytes:
        """Return the body."""
        return self._body

    def chunks(self) -> list[bytes]:
        """Return nothing: vectors are never streamed."""
        return []
