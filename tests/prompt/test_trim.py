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
    given = [
        PromptMessage("tool", text, call_id=call.id)
        for call, text in zip(calls, results, strict=True)
    ]
    return [PromptMessage("assistant", "", calls=calls), *given]


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
def test_a_dict_counts_as_the_message_that_it_says(content: Any) -> None:
    text = "hello world" if content else ""
    said = {"role": "developer", "content": content}
    assert count_message_tokens(said) == count_message(PromptMessage("system", text))


def test_several_messages_count_as_their_sum() -> None:
    messages = [SYSTEM, user("One."), *exchange("a", "r1", "r2")]
    assert count_messages_tokens(messages) == sum(map(count_message, messages))
    assert count_messages_tokens([]) == 0


def test_an_item_that_is_no_message_is_reported() -> None:
    with pytest.raises(ConfigError, match="the role 'robot'"):
        count_message_tokens({"role": "robot", "content": "Beep."})


def test_the_window_is_that_of_the_longest_matching_name_or_the_one_given() -> None:
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


def test_what_fits_stays_as_it_is() -> None:
    messages = [SYSTEM, user("One."), *exchange("a", "r"), answer("Two."), user("Three.")]
    assert trim_messages(messages, MODEL) == messages
    assert trim_messages([], MODEL) == []


def test_the_oldest_go_and_the_system_prompt_and_the_last_user_message_stay() -> None:
    messages = [
        SYSTEM,
        user(long("old", 400)),
        answer("An old answer."),
        user("The task."),
        *exchange("a", long("first", 400)),
        *exchange("b", long("second", 400)),
    ]
    kept = trim_messages(messages, MODEL, context_window=1_000, response_reserve=200)
    assert kept == [SYSTEM, user("The task."), *messages[-2:]]
    more = trim_messages(messages, MODEL, context_window=1_200, response_reserve=200)
    assert more == [SYSTEM, *messages[3:]]


def test_the_reserve_the_system_prompt_and_the_tools_take_their_room() -> None:
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
    # By default an eighth of a large window, and a quarter of a small one, is kept free.
    assert trim_messages(messages, MODEL, context_window=needed * 5 // 4) == messages[-1:]
    assert count_tools([TOOL]) > 2


def test_it_begins_with_a_message_of_the_user_before_the_last_one() -> None:
    messages = [
        user(long("old", 300)),
        answer("Yes."),
        user("Two."),
        answer("No."),
        user("And?"),
    ]
    kept = trim_messages(messages, MODEL, context_window=300, response_reserve=200)
    assert kept == messages[2:]


def test_what_has_to_stay_and_does_not_fit_is_an_error_that_names_it() -> None:
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


def test_half_an_exchange_is_an_error() -> None:
    whole = exchange("a", "r1", "r2")
    with pytest.raises(ConfigError, match="The call 'a1' of message 0 has no result"):
        trim_messages(whole[:2], MODEL)
    with pytest.raises(ConfigError, match="Message 1 is the result of the call 'a1'"):
        trim_messages([user("Hm."), whole[2]], MODEL)


def test_dicts_come_back_as_they_were() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Careful.", "name": "x"},
        {"role": "user", "content": long("old", 300)},
        {"role": "user", "content": "Task."},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "result"},
    ]
    kept = trim_messages(messages, MODEL, context_window=300, response_reserve=150)
    assert kept == [messages[0], *messages[2:]]
    assert all(any(one is given for given in messages) for one in kept)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.sampled_from("uaest"), st.integers(1, 120)), min_size=1, max_size=20
    ),
    window=st.integers(60, 1500),
)
def test_whatever_is_kept_fits_and_is_a_valid_prompt(
    sizes: list[tuple[str, int]], window: int
) -> None:
    messages: list[PromptMessage] = []
    for index, (kind, size) in enumerate(sizes):
        text = long(str(index), size)
        made = {
            "u": [user(text)],
            "a": [answer(text)],
            "s": [PromptMessage("system", text)],
            "e": exchange(f"c{index}-", text),
            "t": exchange(f"c{index}-", text, "two"),
        }
        messages += made[kind]
    try:
        kept = trim_messages(messages, "scripted", context_window=window, response_reserve=10)
    except PromptTooLarge:
        return
    assert 1.3 * count_messages_tokens(kept) <= window - 10 + 1
    assert [one for one in kept if one.role == "system"] == [
        one for one in messages if one.role == "system"
    ]
    order = [messages.index(one) for one in kept]
    assert order == sorted(order)
    users = [one for one in messages if one.role == "user"]
    assert not users or users[-1] in kept
    # A second time it changes nothing: what is kept is whole.
    assert trim_messages(kept, "scripted", context_window=window, response_reserve=10) == kept
    said = [one for one in kept if one.role != "system"]
    assert not users or not said or said[0].role == "user"
