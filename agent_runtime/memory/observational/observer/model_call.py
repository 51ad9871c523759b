"""Model calls of memory: instructions in the system role, data as the only user message."""

from __future__ import annotations

from dataclasses import replace

from agent_runtime.errors import AgentRuntimeError, ModelError, ModelProtocolError, ModelRejected
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import Model, ModelAnswer, ModelRequest, ModelSettings, Retrying
from agent_runtime.models.tokens import count_message
from agent_runtime.models.wire.rules.switch import check_if_asked
from agent_runtime.prompt.incomplete_answers import CUT


async def call_memory_model(
    model: Model,
    system: str,
    text: str,
    max_output: int,
    *,
    calls: list[MemoryCall],
    counted: int | None = None,
    temperature: float | None = None,
    session: str = "",
) -> ModelAnswer:
    """Call the model once and return its answer.

    A model that refuses the request is asked again without a temperature, which some do not take.

    Args:
        calls: gets every attempt that was or may be billed, even if the call fails or is
            cancelled; an attempt that died without reporting usage gets an answer without usage.
        counted: our count of the prompt, or a little more, if it is known.

    Raises:
        ModelRejected: the answer was refused, filtered or unfinished; a truncated one is returned.
        ModelError: the model failed, after its own retries.
    """
    messages = (PromptMessage("system", system), PromptMessage("user", text))
    request = ModelRequest(messages, max_output=max_output, session=session)
    if counted is None:
        counted = sum(map(count_message, messages))
    try:
        settings = ModelSettings(temperature=temperature)
        answer = await _ask(model, replace(request, settings=settings), calls, counted)
    except ModelRejected:
        if temperature is None:
            raise
        answer = await _ask(model, request, calls, counted)
    if answer.finish in ("stop", "tool_calls", *CUT):
        return answer
    raise ModelRejected(
        f"{model.name} gave no whole answer ({answer.word or answer.finish}).",
        cure="Use another model for memory.",
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
        async with model.stream(request) as events:
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
            calls.append(MemoryCall(died, counted))
