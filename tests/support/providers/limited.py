"""A loopback server that enforces rate limits by key, as Anthropic and OpenAI do.

async with LimitedServer(OPENAI, Bucket(requests=2, tokens=5000), script) as server:
    ...  # a model on server.url

What is used up comes back at once, at a time that the server announces.  It announces no time that
is too early, so a client that waits for it is never refused, however slow the machine is.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

import orjson

from agent_runtime.testing.loopback import Answer, Json, LoopbackServer
from tests.support.providers.scripted_server import Call, anthropic, openai_chat

Form: TypeAlias = Literal["anthropic", "openai"]
Said: TypeAlias = tuple[str, tuple[Call, ...]]
"""A text and calls."""
Script: TypeAlias = Callable[[Json], Said | Awaitable[Said]]
"""From a request to the answer."""

_CHARS_A_TOKEN = 12
"""A provider whose tokens are three times as long as usual never counts more than its client."""
_OUTPUT = 7


@dataclass(frozen=True, slots=True)
class Bucket:
    """What a key may use between two resets.

    Attributes:
        tokens: of prompts; in OpenAI's form, also as many as the requests allow for answers.
        output: tokens of answers, in Anthropic's form.
        seconds: from a reset to the next.
    """

    requests: int = 10**6
    tokens: int = 10**9
    output: int = 10**9
    seconds: float = 0.03


@dataclass(slots=True)
class _Left:
    requests: int
    tokens: int
    output: int
    until: float


@dataclass(frozen=True, slots=True)
class Served:
    """A request: its key, the name of its task (`run-7`), and whether it was refused."""

    key: str
    task: str
    refused: bool


def task_of(text: str) -> str:
    """Return the name of the task in a prompt."""
    found = re.search(r"run-\d+", text)
    return found[0] if found else ""


class LimitedServer(LoopbackServer):
    """A server with rate limits.

    Attributes:
        bucket: what each key may use; may be replaced, and then counts from the next reset.
        served: every request in the order in which they arrived.
        silent: whether responses say nothing about limits; refusals say when to come back.
    """

    def __init__(self, form: Form, bucket: Bucket, script: Script) -> None:
        super().__init__()
        self.bucket = bucket
        self.served: list[Served] = []
        self.silent = False
        self._form: Form = form
        self._script = script
        self._left: dict[str, _Left] = {}

    @property
    def refusals(self) -> int:
        """How many requests were refused."""
        return sum(one.refused for one in self.served)

    def tasks(self) -> list[str]:
        """Return the tasks of all requests, in order."""
        return [one.task for one in self.served]

    async def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Answer:
        """Answer the request, or refuse it if too little is left for it."""
        key = headers.get("x-api-key") or headers.get("authorization") or ""
        text = orjson.dumps(body).decode()
        left = self._window(key)
        tokens = len(text) // _CHARS_A_TOKEN
        if self._form == "openai":
            tokens += int(body.get("max_completion_tokens") or body.get("max_tokens") or 0)
        fits = left.requests >= 1 and left.tokens >= tokens and left.output >= _OUTPUT
        self.served.append(Served(key, task_of(text), not fits))
        if not fits:
            wait = {"retry-after-ms": f"{self._milliseconds(left)}"}
            error = {"type": "rate_limit_error", "message": "Too much."}
            refusal = {"type": "error", "error": error}
            about = wait if self.silent else {**wait, **self._headers(left)}
            return 429, "application/json", [orjson.dumps(refusal)], about
        left.requests -= 1
        left.tokens -= tokens
        about = {} if self.silent else self._headers(left)
        # The output is produced after the headers are sent.
        left.output -= _OUTPUT
        said = self._script(body)
        said, calls = await said if isinstance(said, Awaitable) else said
        prompt = len(text) // 4
        if self._form == "openai":
            pieces = openai_chat(
                said, *calls, end="tool_calls" if calls else "stop", prompt=prompt, output=_OUTPUT
            )
        else:
            end = "tool_use" if calls else "end_turn"
            pieces = anthropic(said, *calls, end=end, prompt=prompt, output=_OUTPUT)
        return 200, "text/event-stream", pieces, about

    def _window(self, key: str) -> _Left:
        now = asyncio.get_running_loop().time()
        left = self._left.get(key)
        if left is None or now >= left.until:
            given = self.bucket
            left = _Left(given.requests, given.tokens, given.output, now + given.seconds)
            self._left[key] = left
        return left

    def _milliseconds(self, left: _Left) -> int:
        return math.ceil((left.until - asyncio.get_running_loop().time()) * 1000) + 1

    def _headers(self, left: _Left) -> dict[str, str]:
        wait = self._milliseconds(left)
        most = self.bucket
        if self._form == "openai":
            return {
                "x-ratelimit-limit-requests": f"{max(most.requests, left.requests)}",
                "x-ratelimit-remaining-requests": f"{left.requests}",
                "x-ratelimit-reset-requests": f"{wait}ms",
                "x-ratelimit-limit-tokens": f"{max(most.tokens, left.tokens)}",
                "x-ratelimit-remaining-tokens": f"{left.tokens}",
                "x-ratelimit-reset-tokens": f"{wait}ms",
            }
        reset = (datetime.now(UTC) + timedelta(milliseconds=wait)).isoformat()
        headers: dict[str, str] = {}
        for name, whole, now in (
            ("requests", most.requests, left.requests),
            ("input-tokens", most.tokens, left.tokens),
            ("output-tokens", most.output, max(0, left.output)),
        ):
            begin = f"anthropic-ratelimit-{name}"
            headers[f"{begin}-limit"] = f"{max(whole, now)}"
            headers[f"{begin}-remaining"] = f"{now}"
            headers[f"{begin}-reset"] = reset
        return headers
