"""Count messages and trim them to a model's window, for programs with their own message list.

Runs do not need this: they build prompts with `build` and `window`.  It offers the same counting
and windows for messages outside of a log, as `PromptMessage`s or dicts in OpenAI's form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import orjson

from agent_runtime.errors import ConfigError, PromptTooLarge
from agent_runtime.messages import FileKind, FileRef, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import default_reserve
from agent_runtime.models.catalog import full_name, model_info
from agent_runtime.models.tokens import Calibration, count_message, count_tools
from agent_runtime.prompt.normalise import parse_object

Message: TypeAlias = PromptMessage | Mapping[str, Any]
M = TypeVar("M", PromptMessage, Mapping[str, Any], dict[str, Any], Message)

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_FILES: dict[str, FileKind] = {
    "image_url": "image",
    "input_audio": "audio",
    "video_url": "video",
    "file": "document",
}


def count_message_tokens(message: Message) -> int:
    """Return our count of a message's tokens: its text or parts, tool calls and files.

    Raises:
        ConfigError: it is not a message.
    """
    return count_message(_prompt_message(message))


def count_messages_tokens(messages: Iterable[Message]) -> int:
    """Return our count of several messages; raises like `count_message_tokens`."""
    return sum(map(count_message_tokens, messages))


def get_context_window(model: str, override: int | None = None) -> int:
    """Return a model's context window in tokens: the override, the known one, or 128,000.

    An unknown name gets the window of the longest known name that it begins with, part by part:
    `gpt-4.1-mini-2030` is a `gpt-4.1-mini`, never a `gpt-4`.

    Raises:
        ConfigError: the override is not above 0.
    """
    if override is not None and override <= 0:
        raise ConfigError(
            f"The context window is given as {override} tokens.", cure="Give a number above 0."
        )
    return model_info(full_name(model), window=override).window


def trim_messages(
    messages: Sequence[M],
    model: str,
    *,
    system: Sequence[Message] = (),
    tools: Iterable[ToolSpec] = (),
    response_reserve: int | None = None,
    context_window: int | None = None,
) -> list[M]:
    """Return the newest messages that fit the model's window, in order and unchanged.

    The window also has to hold the response reserve, `system`, and the tools' schemas.  System
    messages and the user's last message always stay.  An assistant message with calls stays or
    leaves together with all its results.  The result begins with a user message, if there is one
    (system messages aside).  The model's count is estimated from ours by a safe ratio.

    Args:
        system: messages that are sent before these; they are not returned.
        response_reserve: tokens for the answer; None for the smaller of 8,192 and a quarter of the
            window.
        context_window: the window, instead of the known one.

    Raises:
        PromptTooLarge: the user's last message and the newest exchange do not fit.
        ConfigError: a call has no result, a result no call, or an item is not a message.
    """
    window = get_context_window(model, context_window)
    reserve = default_reserve(window) if response_reserve is None else response_reserve
    if not 0 <= reserve < window:
        raise ConfigError(
            f"The response reserve of {reserve:,} tokens does not fit the window of {window:,}.",
            cure="Give one between 0 and the window.",
        )
    blocks = _blocks([_prompt_message(one) for one in messages])
    always = [one for one in blocks if one.role == "system"]
    rest = [one for one in blocks if one.role != "system"]
    outside = count_messages_tokens(system) + count_tools(tools)
    fixed = outside + sum(one.tokens for one in always)
    calibration = Calibration(model_info(full_name(model)).start_ratio)

    def fits(tokens: int) -> bool:
        return calibration.estimate(fixed + tokens) <= window - reserve

    newest = _newest(rest, fits)
    if newest is None:
        parts = [(one.tokens, f"a message of the {one.role}") for one in blocks]
        tokens, longest = max([*parts, (outside, "what comes before all messages")])
        estimate = calibration.estimate(tokens)
        raise PromptTooLarge(
            f"The window of {model} is {window:,} tokens, of which {reserve:,} are reserved for "
            "the answer: the system prompt, the tools, the user's last message and the newest "
            f"exchange do not fit. The longest part is {longest} with about {estimate:,}.",
            cure="Shorten it, or use a model with a larger window.",
        )
    indices = sorted(index for one in (*always, *newest) for index in one.indices)
    return [messages[index] for index in indices]


@dataclass(slots=True)
class _Block:
    """Messages that stay or leave together: a single one, or an exchange."""

    role: str
    indices: list[int]
    tokens: int
    waiting: list[str] = field(default_factory=list[str])


def _blocks(messages: Sequence[PromptMessage]) -> list[_Block]:
    blocks: list[_Block] = []
    for index, message in enumerate(messages):
        last = blocks[-1] if blocks else None
        if message.role == "tool":
            if last is None or message.call_id not in last.waiting:
                raise ConfigError(
                    f"Message {index} is the result of the call {message.call_id!r}, which is not "
                    "in the message before its results.",
                    cure="Give complete exchanges.",
                )
            last.waiting.remove(message.call_id)
            last.indices.append(index)
            last.tokens += count_message(message)
            continue
        _closed(last)
        calls = [call.id for call in message.calls]
        blocks.append(_Block(message.role, [index], count_message(message), calls))
    _closed(blocks[-1] if blocks else None)
    return blocks


def _closed(block: _Block | None) -> None:
    if block is not None and block.waiting:
        raise ConfigError(
            f"The call {block.waiting[0]!r} of message {block.indices[0]} has no result.",
            cure="Give complete exchanges.",
        )


def _newest(blocks: Sequence[_Block], fits: Callable[[int], bool]) -> list[_Block] | None:
    """Return the newest blocks that fit, with the user's last; None if not even those two fit."""
    users = [index for index, one in enumerate(blocks) if one.role == "user"]
    pinned = users[-1] if users else len(blocks)
    # The user's last message is paid for first, wherever it stands.
    tokens = blocks[pinned].tokens if users else 0
    first = len(blocks)
    for index in reversed(range(len(blocks))):
        tokens += blocks[index].tokens if index != pinned else 0
        if not fits(tokens):
            break
        first = index
    if first == len(blocks) and (blocks or not fits(0)):
        return None
    if first > pinned:
        return [blocks[pinned], *blocks[first:]]
    # Several providers want a user message first, so what comes before one leaves, too.
    return list(blocks[next((one for one in users if one >= first), first) :])


# OpenAI's form


def _prompt_message(message: Message) -> PromptMessage:
    if isinstance(message, PromptMessage):
        return message
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise ConfigError(
            f"A message has the role {message.get('role')!r}.",
            cure=f"Use one of: {', '.join(_ROLES)}.",
        )
    text, files = _content(message.get("content"))
    calls = cast("Sequence[Mapping[str, Any]]", message.get("tool_calls") or ())
    return PromptMessage(
        cast("Any", role),
        text,
        calls=tuple(map(_call, calls)),
        call_id=str(message.get("tool_call_id") or ""),
        files=tuple(files),
    )


def _content(content: Any) -> tuple[str, list[FileRef]]:
    if content is None or isinstance(content, str):
        return content or "", []
    texts: list[str] = []
    files: list[FileRef] = []
    for part in cast("Sequence[Any]", content):
        if isinstance(part, str):
            texts.append(part)
            continue
        shown = cast("Mapping[str, Any]", part)
        kind = str(shown.get("type"))
        if "text" in shown:
            texts.append(str(shown["text"]))
        elif kind in _FILES:
            inner: Any = shown.get(kind)
            files.append(FileRef(_FILES[kind], _address(inner)))
        else:
            # An unknown kind of part: its JSON is about as long as what is sent.
            texts.append(orjson.dumps(shown, default=str).decode())
    return "\n".join(texts), files


def _address(inner: Any) -> str:
    if isinstance(inner, str):
        return inner
    known = cast("Mapping[str, Any]", inner or {})
    return str(next((known[key] for key in ("url", "file_id", "file_data") if key in known), ""))


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = cast("Mapping[str, Any]", call.get("function") or {})
    given: Any = function.get("arguments") or ""
    arguments = parse_object(given) if isinstance(given, str) else dict(given)
    # Invalid JSON is counted as text.
    return ToolCall(
        str(call.get("id") or ""),
        str(function.get("name") or ""),
        {"": given} if arguments is None else arguments,
    )
