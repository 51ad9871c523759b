"""How memory asks a model: instructions in the system role, data as the one user message."""

from __future__ import annotations

from agent_runtime.errors import ModelError, ModelProtocolError, ModelRejected
from agent_runtime.memory.observational.observer.base import MemoryCall
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import Model, ModelAnswer, ModelRequest, Retrying
from agent_runtime.models.tokens import count_message
from agent_runtime.prompt.incomplete_answers import CUT


async def call_memory_model(
    model: Model,
    system: str,
    text: str,
    max_output: int,
    *,
    calls: list[MemoryCall],
    temperature: float | None = None,
    session: str = "",
) -> ModelAnswer:
    """Call the model once and return its answer.

    A model that refuses the request is asked again without a temperature: some take none.

    Args:
        calls: gets what was, or may be, billed; also where the call fails or is cancelled.  What
            died without a report of its usage has an answer without usage.

    Raises:
        ModelRejected: the answer was refused, filtered or not finished; one that was cut is given.
        ModelError: the model's own retries are used up, or it has nothing to retry.
    """
    answer = await _warm(model, system, text, max_output, calls, temperature, session)
    if answer.finish in ("stop", "tool_calls", *CUT):
        return answer
    raise ModelRejected(
        f"{model.name} gave no whole answer ({answer.word or answer.finish}).",
        cure="Use another model for memory.",
    )


async def _warm(
    model: Model,
    system: str,
    text: str,
    max_output: int,
    calls: list[MemoryCall],
    temperature: float | None,
    session: str,
) -> ModelAnswer:
    messages = (PromptMessage("system", system), PromptMessage("user", text))
    request = ModelRequest(messages, max_output=max_output, session=session)
    if temperature is None:
        return await _ask(model, request, calls)
    warm = ModelRequest(messages, max_output=max_output, session=session, temperature=temperature)
    try:
        return await _ask(model, warm, calls)
    except ModelRejected:
        return await _ask(model, request, calls)


async def _ask(model: Model, request: ModelRequest, calls: list[MemoryCall]) -> ModelAnswer:
    counted = sum(map(count_message, request.messages))
    # Until something else is known, the attempt under way may be billed.
    lost = 1
    try:
        async with model.stream(request) as events:
            async for event in events:
                if isinstance(event, ModelAnswer):
                    lost = 0
                    calls.append(MemoryCall(event, counted))
                    return event
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
