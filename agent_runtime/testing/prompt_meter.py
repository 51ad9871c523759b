"""Count a prompt as a provider would, and how much of it the prompt cache would hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from agent_runtime.models.tokens import count_text

BLOCK = 256
"""Bytes of the prompt's JSON in one block of the prompt cache."""


@dataclass(frozen=True, slots=True)
class MeteredUsage:
    """The tokens of a prompt, as the provider counts them."""

    prompt: int
    cached: int


class PromptMeter:
    """Counts prompts as a provider with another tokenizer and a prompt cache would.

    A prompt's tokens are ours times `factor`.  Its cached part is its longest common prefix, in
    blocks of `BLOCK` bytes, with any earlier prompt of the same model.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self._counts: dict[bytes, int] = {}
        self._seen: dict[str, set[int]] = {}

    def measure(self, request: Mapping[str, Any]) -> MeteredUsage:
        """Return the usage of a prompt, and cache it for later ones."""
        pieces = [orjson.dumps(request.get("tools") or [])]
        pieces += [orjson.dumps(_without_marks(message)) for message in request["messages"]]
        total = sum(map(self._count, pieces))
        prompt = b"\n".join(pieces)
        share = self._common_prefix(str(request.get("model")), prompt) / len(prompt)
        return MeteredUsage(
            prompt=int(total * self.factor), cached=int(total * self.factor * share)
        )

    def _count(self, piece: bytes) -> int:
        count = self._counts.get(piece)
        if count is None:
            count = self._counts[piece] = 4 + sum(map(count_text, _texts(piece)))
        return count

    def _common_prefix(self, model: str, prompt: bytes) -> int:
        """Return how many bytes of the prompt are cached, and cache all of it."""
        seen = self._seen.setdefault(model, set())
        chain, common, hit = 0, 0, True
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            # With all blocks before it: a block is cached only as the continuation of the same
            # beginning.
            chain = hash((chain, prompt[end - BLOCK : end]))
            hit = hit and chain in seen
            if hit:
                common = end
            else:
                seen.add(chain)
        return common


def _without_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message without cache marks, which are not part of the prompt."""
    content = message.get("content")
    if not isinstance(content, list):
        return {key: value for key, value in message.items() if key != "cache_control"}
    parts = [
        {key: value for key, value in part.items() if key != "cache_control"}
        for part in cast("list[dict[str, Any]]", content)
    ]
    if len(parts) == 1 and parts[0].get("type") == "text":
        return {**message, "content": parts[0]["text"]}
    return {**message, "content": parts}


def _texts(piece: bytes) -> Iterable[str]:
    """Yield every text of a message or tool list, without JSON's quotes and escapes."""
    stack: list[Any] = [orjson.loads(piece)]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack.extend(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            stack.extend(cast("list[Any]", value))
