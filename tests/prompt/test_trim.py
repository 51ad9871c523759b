"""Counting and trimming messages that are not in a log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime import (
    count_message_tokens,
    count_messages_tokens,
    get_context_window,
    trim_messages,
)
from agent_runtime.errors import ConfigError, PromptTooLarge
from agent_runtime.messages import PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.tokens import (
    CALL_OVERHEAD,
    IMAGE_TOKENS,
    MESSAGE_OVERHEAD,
    count_message,
    count_text,
    count_tools,
)

MODEL = "openai/gpt-4o"
SYSTEM = PromptMessage("system", "You are careful.")
TOOL = ToolSpec("look", "Look at a thing.", {"type": "object", "properties": {}})


def user(text: str) -> PromptMessage:
    """Return a message of the user."""
    return PromptMessage("user", text)


def answer(text: str) -> PromptMessage:
    """Return an answer."""
    return PromptMessage("assistant", text)


def exchange(name: str, *results: str) -> list[PromptMessage]:
    """Return an answer with calls, and their results."""
    calls = tuple(ToolCall(f"{name}{i}", "look", {"n": i}) for i in range(len(results)))
    result_messages = [
        PromptMessage("tool", text, call_id=call.id)
        for call, text in zip(calls, results, strict=True)
    ]
    return [PromptMessage("assistant", "", calls=calls), *result_messages]


# Counting


def test_text_a_list_of_parts_and_tool_calls_are_counted() -> None:
    assert count_message_tokens(user("hello world")) == 2 + MESSAGE_OVERHEAD
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    parts: list[Any] = [{"type": "text", "text": "hello world"}, image]
    listed = {"role": "user", "content": parts}
    assert count_message_tokens(listed) == 2 + MESSAGE_OVERHEAD + IMAGE_TOKENS
    call = {"id": "c", "function": {"name": "look", "arguments": '{"at": "the moon"}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert count_message_tokens(called) == (
        MESSAGE_OVERHEAD + CALL_OVERHEAD + count_text("look") + count_text('{"at":"the moon"}')
    )
    broken = {**called, "tool_calls": [{"id": "c", "function": {"arguments": "{broken " * 50}}]}
    assert count_message_tokens(broken) > count_text("{broken " * 50)


@pytest.mark.parametrize("content", ["hello world", ["hello world"], None, []])
def test_a_dict_counts_as_its_message(content: Any) -> None:
    text = "hello world" if content else ""
    message = {"role": "developer", "content": content}
    assert count_message_tokens(message) == count_message(PromptMessage("system", text))


def test_several_messages_count_as_their_sum() -> None:
    messages = [SYSTEM, user("One."), *exchange("a", "r1", "r2")]
    assert count_messages_tokens(messages) == sum(map(count_message, messages))
    assert count_messages_tokens([]) == 0


def test_an_unknown_role_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the role 'robot'"):
        count_message_tokens({"role": "robot", "content": "Beep."})


def test_the_window_is_the_override_or_that_of_the_longest_matching_name() -> None:
    assert get_context_window("gpt-4.1") == get_context_window("gpt-4.1-2099-01-01") == 1_047_576
    assert get_context_window("gpt-4") == 8_192
    assert get_context_window("anthropic:claude-sonnet-4-5") == 200_000
    assert get_context_window("nobody/knows-this") == get_context_window("") == 128_000
    assert get_context_window("gpt-4", 32_000) == 32_000
    with pytest.raises(ConfigError, match="0 tokens"):
        get_context_window("gpt-4", 0)


# Trimming


def long(name: str, tokens: int) -> str:
    """Return a text of about `tokens` tokens."""
    return f"{name}" + " word" * (tokens - 1)


def test_messages_that_fit_are_unchanged() -> None:
    messages = [SYSTEM, user("One."), *exchange("a", "r"), answer("Two."), user("Three.")]
    assert trim_messages(messages, MODEL) == messages
    assert trim_messages([], MODEL) == []


def test_the_oldest_leave_and_the_system_prompt_and_the_last_user_message_stay() -> None:
    messages = [
        SYSTEM,
        user(long("old", 400)),
        answer("An old answer."),
        user("The task."),
        *exchange("a", long("first", 400)),
        *exchange("b", long("second", 400)),
    ]
    trimmed = trim_messages(messages, MODEL, context_window=1_000, response_reserve=200)
    assert trimmed == [SYSTEM, user("The task."), *messages[-2:]]
    more = trim_messages(messages, MODEL, context_window=1_200, response_reserve=200)
    assert more == [SYSTEM, *messages[3:]]


def test_reserve_system_prompt_and_tools_reduce_the_room() -> None:
    messages = [user(long("old", 300)), answer("Yes."), user("And?")]
    needed = count_messages_tokens(messages)
    exactly = round(needed * 1.05) + 100
    fits: dict[str, Any] = {"context_window": exactly, "response_reserve": 100}
    assert trim_messages(messages, MODEL, **fits) == messages
    less: dict[str, Any]
    for less in (
        {**fits, "response_reserve": 102},
        {**fits, "system": [SYSTEM]},
        {**fits, "tools": [TOOL]},
        {**fits, "context_window": exactly - 2},
    ):
        assert trim_messages(messages, MODEL, **less) == messages[-1:]
    # By default, an eighth of a large window is reserved, and a quarter of a small one.
    assert trim_messages(messages, MODEL, context_window=needed * 5 // 4) == messages[-1:]
    assert count_tools([TOOL]) > 2


def test_trimmed_messages_begin_with_a_message_of_the_user() -> None:
    messages = [
        user(long("old", 300)),
        answer("Yes."),
        user("Two."),
        answer("No."),
        user("And?"),
    ]
    trimmed = trim_messages(messages, MODEL, context_window=300, response_reserve=200)
    assert trimmed == messages[2:]


def test_a_required_message_that_does_not_fit_is_an_error_that_names_it() -> None:
    messages = [user("Task."), *exchange("a", long("much", 900))]
    with pytest.raises(PromptTooLarge, match=r"1,000 tokens.*200 .*of the assistant") as error:
        trim_messages(messages, MODEL, context_window=1_000, response_reserve=200)
    assert error.value.cure
    with pytest.raises(PromptTooLarge, match="message of the user"):
        trim_messages([user(long("much", 900)), answer("No.")], MODEL, context_window=1_000)
    with pytest.raises(PromptTooLarge, match="message of the system"):
        trim_messages([PromptMessage("system", long("much", 900))], MODEL, context_window=1_000)
    with pytest.raises(PromptTooLarge, match="what comes before"):
        trim_messages([], MODEL, system=[user(long("much", 900))], context_window=1_000)
    with pytest.raises(ConfigError, match="reserve"):
        trim_messages(messages, MODEL, context_window=100, response_reserve=100)


def test_an_incomplete_exchange_is_an_error() -> None:
    whole = exchange("a", "r1", "r2")
    with pytest.raises(ConfigError, match="The call 'a1' of message 0 has no result"):
        trim_messages(whole[:2], MODEL)
    with pytest.raises(ConfigError, match="Message 1 is the result of the call 'a1'"):
        trim_messages([user("Hm."), whole[2]], MODEL)


def test_dicts_are_returned_unchanged() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Careful.", "name": "x"},
        {"role": "user", "content": long("old", 300)},
        {"role": "user", "content": "Task."},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
    ]
    trimmed = trim_messages(messages, MODEL, context_window=300, response_reserve=150)
    assert trimmed == [messages[0], *messages[2:]]
    assert all(any(message is original for original in messages) for message in trimmed)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from("uaest"), st.integers(1, 120)), min_size=1, max_size=20
    ),
    window=st.integers(60, 1500),
)
def test_trimmed_messages_fit_and_are_a_valid_prompt(
    sizes: list[tuple[str, int]], window: int
) -> None:
    messages: list[PromptMessage] = []
    for index, (kind, size) in enumerate(sizes):
        text = long(str(index), size)
        choices = {
            "u": [user(text)],
            "a": [answer(text)],
            "s": [PromptMessage("system", text)],
            "e": exchange(f"c{index}-", text),
            "t": exchange(f"c{index}-", text, "two"),
        }
        messages += choices[kind]
    try:
        trimmed = trim_messages(messages, "scripted", context_window=window, response_reserve=10)
    except PromptTooLarge:
        return
    assert 1.3 * count_messages_tokens(trimmed) <= window - 10 + 1
    assert [message for message in trimmed if message.role == "system"] == [
        message for message in messages if message.role == "system"
    ]
    order = [messages.index(message) for message in trimmed]
    assert order == sorted(order)
    users = [message for message in messages if message.role == "user"]
    assert not users or users[-1] in trimmed
    # Trimming again changes nothing.
    assert trim_messages(trimmed, "scripted", context_window=window, response_reserve=10) == trimmed
    dialogue = [message for message in trimmed if message.role != "system"]
    assert not users or not dialogue or dialogue[0].role == "user"
