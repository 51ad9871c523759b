"""Model calls of memory: instructions in the system role, data as the first user message."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import anyio

from agent_runtime.errors import (
    AgentRuntimeError,
    ModelError,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
)
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import (
    Model,
    ModelAnswer,
    ModelInfo,
    ModelRequest,
    ModelSettings,
    Retrying,
)
from agent_runtime.models.telemetry.model_calls import chat
from agent_runtime.models.tokens import count_message
from agent_runtime.models.wire.rules.switch import check_if_asked
from agent_runtime.prompt.incomplete_answers import CUT
from agent_runtime_config.request_settings import NO_SETTINGS, Effort

FLEX = "flex"
"""The service tier with the price of batches: providers answer when they have room."""
FLEX_SHARE = 0.5
"""Share of the time left that such a call may take, so that there is some for another."""

_without_temperature: set[str] = set()
"""Names of models that refused a temperature, for as long as this process lives."""
_without_flex: set[str] = set()
"""Names of models that refused the service tier."""


async def call_memory_model(
    model: Model,
    system: str,
    text: str,
    max_output: int,
    *,
    calls: list[MemoryCall],
    counted: int | None = None,
    temperature: float | None = None,
    reasoning: Effort | None = None,
    session: str = "",
    run: str = "",
    following: Sequence[PromptMessage] = (),
    service: str = "",
) -> ModelAnswer:
    """Call the model once and return its answer.

    A model that refuses the request is asked again without the service tier, then without
    temperature and reasoning, which some do not take; what was refused is not sent again.

    Args:
        service: the service tier to ask for; see `cheaper_service`.
        following: the messages after the first, of which the last is the user's.
        run: see `ModelRequest`.
        calls: gets every attempt that was or may be billed, even if the call fails or is
            cancelled; an attempt that died without reporting usage gets an answer without usage.
        counted: our count of the prompt, or a little more, if it is known.

    Raises:
        ModelRejected: the answer was refused, filtered or unfinished; a truncated one is returned.
        ModelUnavailable: the service tier was too slow.
        ModelError: the model failed, after its own retries.
    """
    messages = (PromptMessage("system", system), PromptMessage("user", text), *following)
    # The instructions are the same in every call; what follows them rarely is.
    marks = (0,) if (await model.info()).cache_marks else ()
    request = ModelRequest(messages, max_output=max_output, marks=marks, session=session, run=run)
    if counted is None:
        counted = sum(map(count_message, messages))
    if model.name in _without_temperature:
        temperature = None
    settings = ModelSettings(temperature=temperature, reasoning=reasoning)
    answer = await _answer_to(model, request, settings, calls, counted, service)
    if answer.finish in ("stop", "tool_calls", *CUT):
        return answer
    raise ModelRejected(
        f"{model.name} gave no whole answer ({answer.word or answer.finish}).",
        cure="Use another model for memory.",
    )


async def _answer_to(
    model: Model,
    request: ModelRequest,
    settings: ModelSettings,
    calls: list[MemoryCall],
    counted: int,
    service: str,
) -> ModelAnswer:
    """Return the answer to a request with as many of these settings as the model takes."""
    try:
        if service and model.name not in _without_flex:
            # The tier itself may be what the model refuses: then it is asked again without.
            with suppress(ModelRejected):
                asked = replace(request, settings=replace(settings, service_tier=service))
                return await _ask_in_time(model, asked, calls, counted)
        answer = await _ask(model, replace(request, settings=settings), calls, counted)
        if service:
            _without_flex.add(model.name)
    except ModelRejected:
        if settings == NO_SETTINGS:
            raise
        answer = await _ask(model, request, calls, counted)
        if settings.reasoning is None:
            _without_temperature.add(model.name)
    return answer


def cheaper_service(info: ModelInfo) -> str:
    """Return the service tier in which a model has the price of batches; empty if it has none."""
    price = info.price
    if price is None:
        return ""
    flex = price.of_service(FLEX)
    return FLEX if flex.input < price.input and flex.output < price.output else ""


async def _ask_in_time(
    model: Model, request: ModelRequest, calls: list[MemoryCall], counted: int
) -> ModelAnswer:
    left = anyio.current_effective_deadline() - anyio.current_time()
    with anyio.move_on_after(left * FLEX_SHARE):
        return await _ask(model, request, calls, counted)
    raise ModelUnavailable(
        f"{model.name} had no room in the service tier {request.settings.service_tier}.",
        cure="Nothing: the usual one is asked instead.",
    )


def failure_reason(error: Exception, model: Model, timeout: float, work: str) -> str:
    """Return why a model's notes are missing.

    Args:
        work: what it had to do, as in "to observe".
    """
    if isinstance(error, TimeoutError):
        return f"{model.name} took longer than {timeout:g} seconds {work}."
    if isinstance(error, AgentRuntimeError):
        return error.message
    # A model that breaks its protocol must not end the run.
    return f"{model.name} failed with {type(error).__name__}."


async def _ask(
    model: Model, request: ModelRequest, calls: list[MemoryCall], counted: int
) -> ModelAnswer:
    check_if_asked(request, model.name)
    # Until the provider says otherwise, the attempt in progress may be billed.
    lost = 1
    try:
        async with chat(model, request) as events:
            async for event in events:
                if isinstance(event, ModelAnswer):
                    lost = 0
                    calls.append(MemoryCall(event, counted))
                    return event
                # Attempts that died before this one may be billed too, and it is in progress
                # itself.
                if isinstance(event, Retrying):
                    lost = event.lost + 1
        raise ModelProtocolError(f"{model.name} ended its stream without an answer.", lost=lost)
    except ModelError as error:
        lost = error.lost
        raise
    finally:
        if lost:
            died = ModelAnswer("", (), "stop", model=model.name, lost=lost - 1)
            # Also for a cancellation: what was sent may be billed, whoever stopped listening.
            calls.append(MemoryCall(died, counted))
