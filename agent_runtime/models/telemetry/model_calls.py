"""The span and the metrics of a model call, by the conventions for chat and embeddings."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from agent_runtime.models.base import (
    Model,
    ModelAnswer,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Retrying,
    TextDelta,
    Waiting,
)
from agent_runtime.models.pricing.usage import TokenUsage
from agent_runtime.models.retrieval.embedding import Embeddings
from agent_runtime.models.telemetry import conventions as names
from agent_runtime.models.telemetry.contents import answer_contents, request_contents
from agent_runtime.models.telemetry.metrics import Instruments, instruments
from agent_runtime.models.telemetry.spans import fail, shows_contents, span, tracer
from agent_runtime.models.telemetry.tally import NANO

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def chat(
    model: Model, request: ModelRequest
) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
    """Call a model as `Model.stream` does, in a span `chat` that covers all of its retries."""
    if tracer() is None and instruments() is None:
        return model.stream(request)
    return _traced(model, request)


@asynccontextmanager
async def _traced(model: Model, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
    common = _common("chat", model.name)
    with span(
        f"chat {common[names.REQUEST_MODEL]}", _asked(common, request), kind="client"
    ) as current:
        if current is not None and shows_contents():
            current.set_attributes(request_contents(request.messages))
        with _ChatCall(current, common).measured() as call:
            async with model.stream(request) as events, aclosing(call.watched(events)) as watched:
                yield watched


class _ChatCall:
    """What is seen of a call while its answer arrives."""

    def __init__(self, current: Span | None, common: dict[str, str]) -> None:
        self.current, self.common = current, common
        self.began = time.perf_counter()
        self.first: float | None = None
        self.answer: ModelAnswer | None = None

    async def watched(self, events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent]:
        """Pass the events on."""
        async for event in events:
            match event:
                case TextDelta() | ReasoningDelta() if self.first is None:
                    self.first = time.perf_counter() - self.began
                case ModelAnswer():
                    self.answer = event
                case Retrying(_, attempt, wait) if self.current is not None:
                    data = {"attempt": attempt, "wait": wait}
                    self.current.add_event("agent_runtime.retry", data)
                case Waiting(_, wait) if self.current is not None:
                    self.current.add_event("agent_runtime.rate_limit", {"wait": wait})
                case _:
                    pass
            yield event

    @contextmanager
    def measured(self) -> Generator[_ChatCall]:
        """Record the call's end."""
        kind = ""
        try:
            yield self
        except BaseException as error:
            kind = type(error).__name__
            raise
        finally:
            answer = self.answer
            if answer is None and not kind:
                kind = "ModelProtocolError"
            if answer is not None:
                self.common[names.RESPONSE_MODEL] = names.provider_and_model(answer.model)[1]
            if self.current is not None:
                self._describe(self.current, answer, kind)
            if (meters := instruments()) is not None:
                self._measure(meters, answer, kind)

    def _describe(self, current: Span, answer: ModelAnswer | None, kind: str) -> None:
        if self.first is not None:
            current.set_attribute(names.FIRST_CHUNK, self.first)
        if answer is None:
            if kind == "ModelProtocolError":
                fail(current, kind)
            return
        current.set_attribute(names.RESPONSE_MODEL, self.common[names.RESPONSE_MODEL])
        current.set_attribute(names.FINISH_REASONS, [answer.word or answer.finish])
        if answer.usage is not None:
            current.set_attributes(_usage(answer.usage))
        if answer.cost is not None:
            current.set_attribute(names.COST, answer.cost / NANO)
        if shows_contents():
            current.set_attributes(answer_contents(answer))

    def _measure(self, meters: Instruments, answer: ModelAnswer | None, kind: str) -> None:
        labels = self.common | ({names.ERROR_TYPE: kind} if answer is None else {})
        meters.called(labels, time.perf_counter() - self.began, self.first)
        if answer is not None and (usage := answer.usage) is not None:
            meters.used(self.common, prompt=usage.prompt, completion=usage.completion)


@contextmanager
def embedding(name: str) -> Generator[list[Embeddings]]:
    """Make the span of a call of an embedder; the caller appends its answer to what this yields."""
    common, began = _common("embeddings", name), time.perf_counter()
    answers: list[Embeddings] = []
    kind = ""
    with span(f"embeddings {common[names.REQUEST_MODEL]}", common, kind="client") as current:
        try:
            yield answers
        except BaseException as error:
            kind = type(error).__name__
            raise
        finally:
            tokens = answers[0].tokens if answers else None
            if current is not None and tokens is not None:
                current.set_attribute(names.INPUT_TOKENS, tokens)
            if current is not None and answers and answers[0].vectors:
                current.set_attribute(names.DIMENSIONS, len(answers[0].vectors[0]))
            if (meters := instruments()) is not None:
                labels = common | ({names.ERROR_TYPE: kind} if kind else {})
                meters.called(labels, time.perf_counter() - began)
                if tokens is not None:
                    meters.used(common, prompt=tokens)


def _common(operation: str, name: str) -> dict[str, str]:
    provider, model = names.provider_and_model(name)
    return {names.OPERATION: operation, names.PROVIDER: provider, names.REQUEST_MODEL: model}


def _asked(common: dict[str, str], request: ModelRequest) -> dict[str, Any]:
    asked: dict[str, Any] = {
        **common,
        names.REQUEST_MAX_TOKENS: request.max_output,
        names.REQUEST_STREAM: True,
        names.CONVERSATION_ID: request.session,
    }
    if request.settings.temperature is not None:
        asked[names.REQUEST_TEMPERATURE] = request.settings.temperature
    return asked


def _usage(usage: TokenUsage) -> dict[str, int]:
    return {
        names.INPUT_TOKENS: usage.prompt,
        names.OUTPUT_TOKENS: usage.completion,
        names.CACHE_READ_TOKENS: usage.cached,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
        names.REASONING_TOKENS: usage.reasoning,
    }
