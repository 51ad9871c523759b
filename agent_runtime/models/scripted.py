"""A model that answers by a script, for tests, examples, and work without a language model.

    model = ScriptedModel([call("read_file", path="notes.md"), say("Done.")])

It streams, reports usage and may fail, as a real model does.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import anyio
import orjson

from agent_runtime.errors import ModelError, ModelProtocolError
from agent_runtime.models.base import (
    ModelAnswer,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    Price,
    RawCall,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
)
from agent_runtime.models.pricing.charge import cost_of
from agent_runtime.models.tokens import count_message, count_text, count_tools

Scripted: TypeAlias = str | RawCall | Iterable[RawCall] | ModelAnswer | ModelError
"""An answer of a script: text, one call or several, a whole answer, or an error to raise."""

ScriptFunction: TypeAlias = Callable[[ModelRequest], Scripted | Awaitable[Scripted]]

FREE = Price(input=0, output=0, cache_read=0, cache_write=0)


def say(text: str) -> ModelAnswer:
    """Return an answer of text, which ends a run."""
    return _answer(text, ())


def call(tool: str, /, **arguments: Any) -> ModelAnswer:
    """Return an answer that calls one tool."""
    return calls(raw_call(tool, **arguments))


def calls(*made: RawCall, text: str = "") -> ModelAnswer:
    """Return an answer that calls several tools, after a text if there is one."""
    return _answer(text, made)


def raw_call(tool: str, /, **arguments: Any) -> RawCall:
    """Return a call for `calls`."""
    return RawCall(tool, orjson.dumps(arguments).decode())


class ScriptedModel:
    """A model that answers by a script.

    Usage is counted by `models.tokens`; messages that the session's previous call began with too
    are reported as cached.

    Args:
        script: answers in order, one for each call; or a function, sync or async, from the
            request to the answer.  A call fails when the answers are used up.
        delay: seconds to wait before each answer.

    Attributes:
        requests: every request, in order.
    """

    def __init__(
        self,
        script: Iterable[Scripted] | ScriptFunction,
        *,
        name: str = "scripted",
        window: int = 128_000,
        max_output: int = 8_192,
        delay: float = 0.0,
        price: Price | None = FREE,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._before: dict[str, ModelRequest] = {}
        self._respond = script if callable(script) else _in_order(script)
        self._info = ModelInfo(name, window, max_output, price, start_ratio=1.0)
        self._delay = delay

    @property
    def name(self) -> str:
        """The name given."""
        return self._info.name

    async def info(self) -> ModelInfo:
        """Return the figures given; the price is zero unless another was given."""
        return self._info

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        """Answer by the script.

        Raises (from the iterator):
            ModelError: given by the script.
            ModelProtocolError: the answers are used up.
        """
        async with aclosing(self._events(request)) as events:
            yield events

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        before = self._before.get(request.session)
        self._before[request.session] = request
        self.requests.append(request)
        # Even without a delay, let other tasks run, as a real model does.
        await anyio.sleep(self._delay)
        scripted = self._respond(request)
        if inspect.isawaitable(scripted):
            scripted = await scripted
        if isinstance(scripted, ModelError):
            raise scripted
        answer = _whole(scripted)
        if answer.reasoning:
            yield ReasoningDelta(answer.reasoning)
        for line in answer.text.splitlines(keepends=True):
            yield TextDelta(line)
        usage = answer.usage or _usage(request, before, answer)
        cost = cost_of(self._info.price, usage, request.settings.service)
        yield replace(answer, model=self.name, usage=usage, cost=cost)


def _in_order(script: Iterable[Scripted]) -> ScriptFunction:
    answers = iter(script)

    def respond(request: ModelRequest) -> Scripted:
        for answer in answers:
            return answer
        raise ModelProtocolError(
            "The script has no more answers.",
            cure="Give it one answer for each call, or a function.",
        )

    return respond


def _answer(text: str, made: tuple[RawCall, ...]) -> ModelAnswer:
    return ModelAnswer(text, made, "tool_calls" if made else "stop", model="scripted")


def _whole(scripted: str | RawCall | Iterable[RawCall] | ModelAnswer) -> ModelAnswer:
    if isinstance(scripted, ModelAnswer):
        return scripted
    if isinstance(scripted, str):
        return say(scripted)
    if isinstance(scripted, RawCall):
        return calls(scripted)
    return calls(*scripted)


def _usage(request: ModelRequest, before: ModelRequest | None, answer: ModelAnswer) -> TokenUsage:
    counts = [count_message(message) for message in request.messages]
    tools = count_tools(request.tools)
    cached = 0
    if before is not None and before.tools == request.tools:
        common = 0
        for old, new in zip(before.messages, request.messages, strict=False):
            # As a provider's cache works: what is equal from the beginning on is read from it.
            if old != new:
                break
            common += 1
        cached = tools + sum(counts[:common]) if common else 0
    texts = [answer.text, answer.reasoning]
    texts += [part for made in answer.calls for part in (made.name, made.arguments)]
    return TokenUsage(
        prompt=tools + sum(counts), completion=sum(map(count_text, texts)), cached=cached
    )
