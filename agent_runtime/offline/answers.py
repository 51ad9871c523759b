"""The offline model's answers: its calls, and the state that it carries in their text.

Old messages leave the prompt, so each answer repeats all that the next one needs.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from agent_runtime.messages import PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer, RawCall
from agent_runtime.models.scripted import calls, raw_call

T = TypeVar("T")

STATE = "state: "
"""What the line with the state begins with."""
_MARK = f"\n{STATE}"


def answer(words: str, state: object, *made: RawCall) -> ModelAnswer:
    """Return an answer: words for people, the state, and calls."""
    text = _adapter(type(state)).dump_json(state, exclude_defaults=True)
    # A paragraph of its own: a plan shows only the first one of a sub-agent's answer.
    return calls(*made, text=f"{words}\n{_MARK}{text.decode()}")


def read_state(text: str, kind: type[T]) -> T | None:
    """Return the state that an answer's text carries; None if it carries none of this kind."""
    _, _, state = text.rpartition(_MARK)
    try:
        return _adapter(kind).validate_json(state.partition("\n")[0])
    except ValidationError:
        return None


def repeat(call: ToolCall) -> RawCall:
    """Return the same call again."""
    return raw_call(call.name, **call.arguments)


def was_stopped(result: PromptMessage) -> bool:
    """Return whether a call did not run to its end."""
    return result.outcome in ("cancelled", "interrupted")


@functools.cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
