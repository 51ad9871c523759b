"""Messages in the providers' form, and chunks back into answers."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from agent_runtime.errors import ModelProtocolError
from agent_runtime.messages import FileRef, Opaque, PromptMessage, ToolCall
from agent_runtime.models.base import ModelAnswer, ModelRequest, ReasoningDelta, TextDelta
from agent_runtime.models.litellm import load_litellm
from agent_runtime.models.openai_format import Collector, Dialect, messages_of, tools_of
from agent_runtime.prompt.normalise import normalise_answer
from tests.models.conftest import READ

CLAUDE = Dialect(
    "anthropic/claude-sonnet-4-5", "anthropic", frozenset({"image", "document"}), marks=True
)
PLAIN = Dialect("openai/test", "openai")
CALL = ToolCall("c00000001", "read", {"path": "a"})
MARK = {"type": "ephemeral"}


def sent(*messages: PromptMessage, dialect: Dialect = PLAIN, marks: tuple[int, ...] = ()) -> Any:
    """Return the messages as they are sent."""
    return messages_of(ModelRequest(messages, marks=marks), dialect)


def exchange(opaque: Opaque | None = None) -> tuple[PromptMessage, ...]:
    return (
        PromptMessage("system", "Be brief."),
        PromptMessage("user", "Read a."),
        PromptMessage("assistant", "", calls=(CALL,), opaque=opaque),
        PromptMessage("tool", "text", call_id=CALL.id, name="read"),
    )


def marked(messages: list[dict[str, Any]]) -> list[int]:
    """Return the indices of the messages that carry a cache breakpoint."""
    return [index for index, message in enumerate(messages) if "cache_control" in str(message)]


def test_cache_breakpoints_go_where_they_are_asked_for() -> None:
    messages = sent(*exchange(), dialect=CLAUDE, marks=(0, 3))
    assert messages[0]["content"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert messages[3]["cache_control"] == MARK
    assert marked(messages) == [0, 3]


def test_at_most_four_breakpoints_are_sent_the_last_ones() -> None:
    messages = [PromptMessage("user", f"{n}") for n in range(8)]
    assert marked(sent(*messages, dialect=CLAUDE, marks=tuple(range(8)))) == [4, 5, 6, 7]


def test_other_models_get_no_breakpoint() -> None:
    assert marked(sent(*exchange(), marks=(0, 3))) == []


def test_an_empty_text_gets_no_breakpoint_because_anthropic_refuses_it() -> None:
    assert marked(sent(PromptMessage("user", ""), dialect=CLAUDE, marks=(0,))) == []


def test_a_blank_text_gets_no_breakpoint_and_is_not_sent_beside_calls() -> None:
    assert marked(sent(PromptMessage("user", " \n"), dialect=CLAUDE, marks=(0,))) == []
    (message,) = sent(PromptMessage("assistant", "\n\n", calls=(CALL,)), dialect=CLAUDE, marks=(0,))
    assert message["content"] is None
    assert message["tool_calls"]


def test_a_breakpoint_does_not_change_the_other_messages() -> None:
    grown = (*exchange(), PromptMessage("assistant", "Done."), PromptMessage("user", "More."))
    assert sent(*grown, dialect=CLAUDE)[:4] == sent(*exchange(), dialect=CLAUDE)


async def test_litellm_makes_of_it_what_anthropic_takes() -> None:
    litellm = await load_litellm()
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]
    opaque = Opaque(CLAUDE.model, {"thinking_blocks": blocks})
    body = litellm.AnthropicConfig().transform_request(
        model="claude-sonnet-4-5",
        messages=sent(*exchange(opaque), dialect=CLAUDE, marks=(0, 3)),
        optional_params={"max_tokens": 100},
        litellm_params={},
        headers={},
    )
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert body["messages"][1] == {
        "role": "assistant",
        "content": [
            *blocks,
            {"type": "tool_use", "id": CALL.id, "name": "read", "input": {"path": "a"}},
        ],
    }
    result = body["messages"][2]["content"][0]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", CALL.id)
    assert result["cache_control"] == MARK


async def test_a_gemini_signature_comes_back_at_its_call() -> None:
    await load_litellm()
    gemini: Any = importlib.import_module("litellm.llms.vertex_ai.gemini.transformation")
    dialect = Dialect("gemini/gemini-2.5-flash", "gemini")
    opaque = Opaque(dialect.model, {"signatures": ["c2ln"]})
    contents = gemini._gemini_convert_messages_with_history(
        messages=sent(*exchange(opaque)[1:], dialect=dialect), model="gemini-2.5-flash"
    )
    assert contents[1]["parts"][0]["thoughtSignature"] == "c2ln"


def test_opaque_data_of_another_model_is_not_sent() -> None:
    data = {"thinking_blocks": [{"type": "thinking", "thinking": "x"}], "signatures": ["s"]}
    other = sent(*exchange(Opaque("gemini/other", data)), dialect=CLAUDE)
    assert other == sent(*exchange(), dialect=CLAUDE)


@pytest.mark.parametrize(
    ("provider", "host", "given", "none"),
    [
        ("deepseek", "", "Hm.", ""),
        ("moonshot", "", "Hm.", ""),
        ("zai", "", "Hm.", None),
        ("openai", "127.0.0.1", "Hm.", None),
        ("openai", "api.groq.com", None, None),
        ("groq", "", None, None),
        ("gemini", "", None, None),
    ],
)
def test_reasoning_text_goes_back_only_to_who_wants_it(
    provider: str, host: str, given: str | None, none: str | None
) -> None:
    dialect = Dialect("m", provider, host=host)
    opaque = Opaque("m", {"reasoning_content": "Hm."})
    assert sent(*exchange(opaque), dialect=dialect)[2].get("reasoning_content") == given
    assert sent(*exchange(), dialect=dialect)[2].get("reasoning_content") == none
    # A text without calls needs none where none was given.
    assert "reasoning_content" not in sent(PromptMessage("assistant", "Hi."), dialect=dialect)[0]


def test_what_a_model_is_never_sent_back_is_not_kept() -> None:
    """It would be counted in every prompt."""
    collector = Collector("gemini/g", Dialect("gemini/g", "gemini").returns)
    thought = [{"type": "thinking", "thinking": "Hm."}]
    list(collector.add(chunk(reasoning_content="Hm.", thinking_blocks=thought)))
    list(collector.add(chunk("stop", content="Done.")))
    assert collector.answer("stop", reported=True).opaque is None


def test_images_are_sent_where_the_model_takes_them_and_named_where_not() -> None:
    image = FileRef("image", "https://example.com/cat.png", "image/png", "cat.png")
    stored = FileRef("image", "object:1234", "image/png", "dog.png")
    message = PromptMessage("user", "Look.", files=(image, stored))
    assert sent(message, dialect=CLAUDE) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look.\n[file: dog.png (image, image/png) object:1234]"},
                {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
            ],
        }
    ]
    assert sent(message)[0]["content"].splitlines() == [
        "Look.",
        "[file: cat.png (image, image/png) https://example.com/cat.png]",
        "[file: dog.png (image, image/png) object:1234]",
    ]


def test_a_tool_without_parameters_gets_an_empty_object() -> None:
    tool = type(READ)("now", "Tells the time.")
    [wire] = tools_of([tool])
    assert wire["function"]["parameters"] == {"type": "object", "properties": {}}


def test_what_litellm_changes_is_not_ours() -> None:
    data: dict[str, Any] = {"thinking_blocks": [{"type": "thinking"}], "signatures": []}
    opaque = Opaque(CLAUDE.model, data)
    message = sent(*exchange(opaque), dialect=CLAUDE)[2]
    message["thinking_blocks"][0]["type"] = "changed"
    tools_of([READ])[0]["function"]["parameters"]["properties"].clear()
    assert data == {"thinking_blocks": [{"type": "thinking"}], "signatures": []}
    assert READ.parameters["properties"]


# Chunks


def chunk(finish: str | None = None, **delta: Any) -> SimpleNamespace:
    """Return a chunk as litellm gives it."""
    full = SimpleNamespace(**({"content": None, "tool_calls": None} | delta))
    return SimpleNamespace(
        model="m-2025", choices=[SimpleNamespace(delta=full, finish_reason=finish)]
    )


def fragment(index: int, arguments: str, **fields: Any) -> SimpleNamespace:
    function = SimpleNamespace(name=fields.pop("name", None), arguments=arguments)
    return SimpleNamespace(**({"index": index, "id": None, "function": function} | fields))


def collect(*chunks: SimpleNamespace, model: str = "m") -> ModelAnswer:
    collector = Collector(model)
    word = "stop"
    for piece in chunks:
        list(collector.add(piece))
        word = next((one.finish_reason for one in piece.choices), None) or word
    return collector.answer(word, reported=True)


def test_interleaved_fragments_find_their_calls() -> None:
    answer = collect(
        chunk(tool_calls=[fragment(0, "", name="a", id="1"), fragment(1, "", name="b", id="2")]),
        chunk(tool_calls=[fragment(1, '{"y":')]),
        chunk(tool_calls=[fragment(0, "{}"), fragment(1, "2}")]),
        chunk("tool_calls"),
    )
    assert [(call.name, call.arguments) for call in answer.calls] == [("a", "{}"), ("b", '{"y":2}')]


def test_a_character_in_two_pieces_is_told_whole_and_half_of_one_is_replaced() -> None:
    collector = Collector("m")
    pieces = ["hi \ud83d", "\ude00 \ude00", " \ud83d"]
    deltas = [one for piece in pieces for one in collector.add(chunk(content=piece))]
    deltas += collector.add(chunk("stop", content=None, reasoning_content="\ud83d"))
    assert deltas == [TextDelta("hi "), TextDelta("\U0001f600 \ufffd"), TextDelta(" ")]
    answer = collector.answer("stop", reported=True)
    assert answer.text == "hi \U0001f600 \ufffd \ufffd"
    assert answer.reasoning == "\ufffd"


def test_thinking_is_put_together_block_by_block() -> None:
    def piece(**fields: Any) -> SimpleNamespace:
        return chunk(thinking_blocks=[{"type": "thinking", **fields}])

    answer = collect(
        piece(thinking="One "),
        piece(thinking="two."),
        # litellm's piece with the signature has the text of the whole block, on Bedrock none.
        piece(thinking="One two.", signature="s1"),
        chunk(thinking_blocks=[{"type": "redacted_thinking", "data": "x"}]),
        piece(thinking="Three."),
        piece(thinking="", signature="s2"),
        piece(thinking="", signature="s3"),
        chunk("stop", content="Done."),
    )
    assert answer.opaque == Opaque(
        "m",
        {
            "thinking_blocks": [
                {"type": "thinking", "thinking": "One two.", "signature": "s1"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "thinking", "thinking": "Three.", "signature": "s2"},
                {"type": "thinking", "thinking": "", "signature": "s3"},
            ]
        },
    )


async def test_interleaved_thinking_goes_back_where_it_came() -> None:
    """Anthropic checks where a block stands, redacted ones too."""
    litellm = await load_litellm()
    one = {"type": "thinking", "thinking": "One.", "signature": "s1"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    two = {"type": "thinking", "thinking": "Two.", "signature": "s2"}
    answer = collect(
        chunk(thinking_blocks=[one]),
        chunk(content="I look "),
        chunk(content="first."),
        chunk(thinking_blocks=[hidden]),
        chunk(tool_calls=[fragment(0, '{"path":"a"}', name="read", id="1")]),
        chunk(thinking_blocks=[two]),
        chunk(content="And then."),
        chunk("tool_calls", tool_calls=[fragment(1, '{"path":"b"}', name="read", id="2")]),
        model=CLAUDE.model,
    )
    message = normalise_answer(answer, 7)
    said = PromptMessage("assistant", message.text, calls=message.calls, opaque=message.opaque)
    results = [PromptMessage("tool", "ok", call_id=call.id) for call in message.calls]
    body = litellm.AnthropicConfig().transform_request(
        model="claude-sonnet-4-5",
        messages=sent(*exchange()[:2], said, *results, dialect=CLAUDE, marks=(2,)),
        optional_params={"max_tokens": 100},
        litellm_params={},
        headers={},
    )
    first, second = message.calls
    use = {"type": "tool_use", "name": "read"}
    assert body["messages"][1]["content"] == [
        one,
        {"type": "text", "text": "I look first."},
        hidden,
        {**use, "id": first.id, "input": {"path": "a"}},
        two,
        {"type": "text", "text": "And then.", "cache_control": MARK},
        {**use, "id": second.id, "input": {"path": "b"}},
    ]
    assert [one["tool_use_id"] for one in body["messages"][2]["content"]] == [first.id, second.id]


@pytest.mark.parametrize(
    "fields",
    [
        {"provider_specific_fields": {"thought_signature": "sig"}},
        {"id": "call_1__thought__sig"},
    ],
    ids=["as a field", "inside the id"],
)
def test_a_gemini_signature_is_kept_with_its_call(fields: dict[str, Any]) -> None:
    call = fragment(1, "{}", name="b", **fields)
    answer = collect(chunk(tool_calls=[fragment(0, "{}", name="a"), call]), chunk("tool_calls"))
    assert answer.opaque == Opaque("m", {"signatures": [None, "sig"]})


def test_usage_includes_what_anthropic_read_and_wrote_in_its_cache() -> None:
    usage = SimpleNamespace(
        prompt_tokens=100,
        completion_tokens=5,
        cache_read_input_tokens=60,
        cache_creation_input_tokens=30,
    )
    last = SimpleNamespace(model="m", choices=[], usage=usage)
    answer = collect(chunk("stop", content="Hi."), last)
    assert answer.usage is not None
    assert (answer.usage.prompt, answer.usage.cached, answer.usage.cache_write) == (100, 60, 30)


def test_a_stream_that_just_ends_is_no_answer() -> None:
    collector = Collector("m")
    assert list(collector.add(chunk(reasoning_content="Hm."))) == [ReasoningDelta("Hm.")]
    with pytest.raises(ModelProtocolError, match="broke off"):
        collector.answer("", reported=False)


def test_a_withheld_answer_is_empty_and_says_why() -> None:
    assert collect(chunk("content_filter")).finish == "content_filter"
