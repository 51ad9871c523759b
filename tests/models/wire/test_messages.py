"""Requests of Anthropic's Messages API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from agent_runtime.messages import FileRef, Opaque, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import FilePart, ModelRequest, ModelSettings
from agent_runtime.models.wire.base import Piece, Target, WireRequest
from agent_runtime.models.wire.messages import MessagesWire
from agent_runtime.models.wire.rules.messages import check_request
from tests.models.conftest import READ

SONNET = Target(
    "anthropic/claude-sonnet-4-5",
    "anthropic",
    "claude-sonnet-4-5",
    "https://api.anthropic.com",
    key="sk-ant-api03-test",
    takes=frozenset({"image", "document"}),
    marks=True,
    max_output=64_000,
)
CALL = ToolCall("c00000001", "read", {"path": "a"})
OTHER = ToolCall("c00000002", "read", {})
SYSTEM = PromptMessage("system", "Be brief.")
ASKED = PromptMessage("user", "Read a.")
RESULT = PromptMessage("tool", "text", call_id=CALL.id, name="read")
OTHER_RESULT = replace(RESULT, call_id=OTHER.id)
MARK = {"type": "ephemeral"}
PNG = FileRef("image", "upload:1", "image/png", "a.png")
PDF = FileRef("document", "upload:2", "application/pdf", "a.pdf")


def of(model: str) -> Target:
    """Return a model of Anthropic's."""
    return replace(SONNET, name=f"anthropic/{model}", model=model, max_output=128_000)


def called(*calls: ToolCall, text: str = "", opaque: Any = None) -> PromptMessage:
    """Return an answer of the model."""
    made = None if opaque is None else Opaque(SONNET.name, opaque)
    return PromptMessage("assistant", text, calls=calls, opaque=made)


def wired(request: ModelRequest, target: Target = SONNET) -> tuple[WireRequest, Any]:
    """Return a request, and its body, which the provider takes."""
    wire = MessagesWire(target)
    pieces = [
        wire.piece(message, request.files.get(n, ()), mark=target.marks and n in request.marks)
        for n, message in enumerate(request.messages)
    ]
    assert pieces == [
        wire.piece(message, request.files.get(n, ()), mark=target.marks and n in request.marks)
        for n, message in enumerate(request.messages)
    ]
    made = wire.request(request, pieces, wire.tools(request))
    body = orjson.loads(made.body)
    if target.model.startswith("claude"):
        check_request(body)
    return made, body


def sent(*messages: PromptMessage, target: Target = SONNET, **options: Any) -> Any:
    """Return the body of a request."""
    return wired(ModelRequest(messages, **options), target)[1]


def asked(target: Target, *, output: int = 8192, **settings: Any) -> tuple[Any, tuple[str, ...]]:
    """Return the body of a request with settings, and those that were left out."""
    request = ModelRequest(
        (SYSTEM, ASKED), (READ,), max_output=output, settings=ModelSettings(**settings)
    )
    made, body = wired(request, target)
    return body, made.ignored


def test_a_request_has_everything_in_its_place() -> None:
    request = ModelRequest((SYSTEM, ASKED), (READ,), max_output=1000)
    made, body = wired(request)
    assert made.url == "https://api.anthropic.com/v1/messages"
    assert made.headers == {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-api-key": "sk-ant-api03-test",
    }
    assert body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Read a."}]}],
        "tools": [
            {"name": "read", "description": "Reads a file.", "input_schema": READ.parameters}
        ],
    }
    assert "sk-ant" not in repr(made)


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/messages"]
)
def test_a_base_url_may_end_with_the_version(base: str) -> None:
    made, _ = wired(ModelRequest((ASKED,)), replace(SONNET, base_url=base))
    assert made.url == "http://127.0.0.1:1/v1/messages"


def test_keys_and_tokens_go_where_they_belong() -> None:
    token = replace(SONNET, key="sk-ant-oat01-x")
    headers = wired(ModelRequest((ASKED,)), token)[0].headers
    assert headers["authorization"] == "Bearer sk-ant-oat01-x"
    assert headers["anthropic-beta"] == "oauth-2025-04-20"
    assert "x-api-key" not in headers
    headers = wired(ModelRequest((ASKED,)), replace(SONNET, key="abc"))[0].headers
    assert (headers.get("x-api-key"), headers["authorization"]) == (None, "Bearer abc")
    gateway = replace(SONNET, base_url="https://gateway.test", own_host=False)
    headers = wired(ModelRequest((ASKED,)), replace(gateway, key="abc"))[0].headers
    assert (headers["x-api-key"], headers["authorization"]) == ("abc", "Bearer abc")
    assert "authorization" not in wired(ModelRequest((ASKED,)), gateway)[0].headers
    local = replace(SONNET, model="local", base_url="http://127.0.0.1:1", own_host=False, key="")
    assert not {"x-api-key", "authorization"} & set(wired(ModelRequest((ASKED,)), local)[0].headers)


def test_neighbours_of_a_role_become_one_message_and_results_come_first() -> None:
    note = PromptMessage("user", "A note.")
    second = replace(RESULT, text="more", call_id=OTHER.id)
    body = sent(SYSTEM, ASKED, note, called(CALL, OTHER), RESULT, second, note, tools=(READ,))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][2]["content"]] == [
        "tool_result",
        "tool_result",
        "text",
    ]
    assert body["messages"][1]["content"] == [
        {"type": "tool_use", "id": CALL.id, "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": OTHER.id, "name": "read", "input": {}},
    ]


def test_a_failed_result_says_so() -> None:
    failed = replace(RESULT, outcome="error")
    (result,) = sent(ASKED, called(CALL), failed, tools=(READ,))["messages"][2]["content"]
    assert result == {
        "type": "tool_result",
        "tool_use_id": CALL.id,
        "content": "text",
        "is_error": True,
    }
    (good,) = sent(ASKED, called(CALL), RESULT, tools=(READ,))["messages"][2]["content"]
    assert "is_error" not in good


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_an_empty_result_is_taken(outcome: Any) -> None:
    blank = replace(RESULT, text=" \n", outcome=outcome)
    (result,) = sent(ASKED, called(CALL), blank, tools=(READ,))["messages"][2]["content"]
    assert result.get("content") == (None if outcome == "ok" else "[empty]")


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_files_of_a_result_are_inside_it(outcome: Any) -> None:
    files = {2: (FilePart(PNG, "aGk="), FilePart(PDF, "aGk="))}
    result = replace(RESULT, outcome=outcome, files=(PNG, PDF))
    body = sent(ASKED, called(CALL), result, tools=(READ,), files=files)
    (block,) = body["messages"][2]["content"]
    source = {"type": "base64", "data": "aGk="}
    assert block["content"] == [
        {"type": "text", "text": "text"},
        {"type": "image", "source": {**source, "media_type": "image/png"}},
        {"type": "document", "source": {**source, "media_type": "application/pdf"}},
    ]
    # Only texts may say that they are an error.
    assert "is_error" not in block


def test_files_that_cannot_be_shown_are_named() -> None:
    text = FileRef("document", "upload:3", "text/plain", "b.txt")
    video = FileRef("video", "upload:4", "video/mp4", "c.mp4")
    large = FilePart(replace(PNG, name="large.png"), problem="too large")
    shown = (FilePart(text, text="hello"), FilePart(video, "aGk="), large, FilePart(PNG, "aGk="))
    body = sent(PromptMessage("user", "Look.", files=(PNG,)), files={0: shown})
    said, image = body["messages"][0]["content"]
    assert image["type"] == "image"
    assert said["text"].splitlines() == [
        "Look.",
        "[file: b.txt (document, text/plain) upload:3]",
        "hello",
        "[end of file]",
        "[file: c.mp4 (video, video/mp4) upload:4]",
        "[file: large.png (image, image/png) upload:1; not shown: too large]",
    ]


def test_urls_are_sent_if_they_are_safe() -> None:
    def image(uri: str) -> Any:
        file = FileRef("image", uri, "image/png")
        return sent(PromptMessage("user", "", files=(file,)))["messages"][0]["content"][0]

    assert image("https://a.test/b.png")["source"] == {"type": "url", "url": "https://a.test/b.png"}
    assert image("data:image/png;base64,aGk=")["source"]["data"] == "aGk="
    for uri in ("http://a.test/b.png", "data:image/svg+xml;base64,aGk=", "data:image/png,hi"):
        assert image(uri)["type"] == "text"


def test_files_that_the_model_made_are_named_in_its_answer() -> None:
    answer = PromptMessage("assistant", "", files=(PNG,))
    body = sent(ASKED, answer, ASKED, files={1: (FilePart(PNG, "aGk="),)})
    (block,) = body["messages"][1]["content"]
    assert (block["type"], "a.png" in block["text"]) == ("text", True)


def test_blank_texts_are_never_sent() -> None:
    blank = PromptMessage("user", " \n")
    body = sent(PromptMessage("system", ""), blank, called(CALL, text="\n"), RESULT, tools=(READ,))
    assert "system" not in body
    assert body["messages"][0]["content"] == [{"type": "text", "text": "[empty]"}]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
    body = sent(ASKED, PromptMessage("assistant", ""), ASKED)
    assert len(body["messages"]) == 1


def test_a_prompt_begins_with_the_user() -> None:
    body = sent(SYSTEM, PromptMessage("assistant", "Hello."), ASKED)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert sent(SYSTEM)["messages"][0]["role"] == "user"


def test_halves_of_characters_are_replaced() -> None:
    body = sent(PromptMessage("user", "\ud83d\ude00 \ud83d"))
    assert body["messages"][0]["content"][0]["text"] == "\U0001f600 \ufffd"


# Thinking

ONE = {"type": "thinking", "thinking": "One.", "signature": "s1"}
TWO = {"type": "thinking", "thinking": "", "signature": "s2"}
HIDDEN = {"type": "redacted_thinking", "data": "x"}


def test_thinking_goes_back_first_and_unchanged() -> None:
    answer = called(CALL, text="I look.", opaque={"thinking_blocks": [ONE, HIDDEN, TWO]})
    content = sent(ASKED, answer, RESULT, tools=(READ,))["messages"][1]["content"]
    assert content[:3] == [ONE, HIDDEN, TWO]
    assert [block["type"] for block in content[3:]] == ["text", "tool_use"]


def test_interleaved_thinking_goes_back_where_it_came() -> None:
    order = [["thinking", 0], ["text", "So. "], ["call", 0], ["thinking", 1], ["text", "\n"]]
    order += [["call", 1]]
    opaque = {"thinking_blocks": [ONE, TWO], "order": order}
    answer = called(CALL, OTHER, text="So. \n", opaque=opaque)
    content = sent(ASKED, answer, RESULT, OTHER_RESULT, tools=(READ,))["messages"][1]["content"]
    assert [block["type"] for block in content] == [
        "thinking",
        "text",
        "tool_use",
        "thinking",
        "tool_use",
    ]
    assert (content[0], content[1]["text"], content[3]) == (ONE, "So. ", TWO)


def test_a_changed_text_does_not_lose_calls() -> None:
    order = [["thinking", 0], ["text", "So."], ["call", 0], ["text", "And."], ["call", 1]]
    answer = called(CALL, OTHER, text="New.", opaque={"thinking_blocks": [ONE], "order": order})
    content = sent(ASKED, answer, RESULT, OTHER_RESULT, tools=(READ,))["messages"][1]["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert content[1]["text"] == "New."


def test_thinking_of_another_model_is_never_sent() -> None:
    other = replace(called(CALL, opaque={}), opaque=Opaque("x/y", {"thinking_blocks": [ONE]}))
    content = sent(ASKED, other, RESULT, tools=(READ,))["messages"][1]["content"]
    assert [block["type"] for block in content] == ["tool_use"]


def test_an_answer_that_only_thought_is_left_out() -> None:
    body = sent(ASKED, called(opaque={"thinking_blocks": [ONE, HIDDEN]}), ASKED)
    assert [message["role"] for message in body["messages"]] == ["user"]


# Cache breakpoints


def marked(body: Any) -> list[Any]:
    """Return what carries a breakpoint."""
    blocks = [*body.get("system", [])]
    for message in body["messages"]:
        blocks += message["content"]
    return [block for block in blocks if "cache_control" in block]


def test_breakpoints_are_on_the_last_block() -> None:
    answer = called(CALL, text="I look.", opaque={"thinking_blocks": [ONE]})
    files = {1: (FilePart(PNG, "aGk="),)}
    options: Any = {"tools": (READ,), "files": files}
    body = sent(SYSTEM, ASKED, answer, RESULT, marks=(0, 1, 2, 3), **options)
    assert [block["type"] for block in marked(body)] == ["text", "image", "tool_use", "tool_result"]
    assert all(block["cache_control"] == MARK for block in marked(body))
    plain = sent(SYSTEM, ASKED, answer, RESULT, **options)
    for block in marked(body):
        del block["cache_control"]
    assert body == plain


def test_at_most_four_breakpoints_are_sent_the_last_ones() -> None:
    messages = [PromptMessage("user", f"{n}") for n in range(8)]
    body = sent(*messages, marks=tuple(range(8)))
    assert [block["text"] for block in marked(body)] == ["4", "5", "6", "7"]


def test_a_cache_may_last_an_hour() -> None:
    tricky = ToolCall("c1", "read", {"a": 1, "cache_control": {"type": "ephemeral"}})
    settings = ModelSettings(cache_ttl="1h")
    answer, result = called(tricky), replace(RESULT, call_id="c1")
    body = sent(SYSTEM, ASKED, answer, result, marks=(0, 2), settings=settings, tools=(READ,))
    assert [block["cache_control"] for block in marked(body)] == [{**MARK, "ttl": "1h"}] * 2
    assert body["messages"][1]["content"][0]["input"] == tricky.arguments


def test_servers_without_breakpoints_get_none() -> None:
    settings = ModelSettings(cache_ttl="1h")
    request = ModelRequest((SYSTEM, ASKED), marks=(0, 1), settings=settings)
    made, body = wired(request, replace(SONNET, marks=False))
    assert (marked(body), made.ignored) == ([], ("cache_ttl",))


# Tools


def test_schemas_are_objects_without_alternatives_at_the_top() -> None:
    odd = ToolSpec("odd", "", {"anyOf": [{"required": ["a"]}], "properties": {"a": {}}})
    bare = ToolSpec("bare", "\ud83d")
    tools = sent(ASKED, tools=(odd, bare))["tools"]
    assert tools[0]["input_schema"] == {"type": "object", "properties": {"a": {}}}
    assert tools[1]["input_schema"] == {"type": "object", "properties": {}}


def test_many_requests_share_their_pieces() -> None:
    wire = MessagesWire(SONNET)
    request = ModelRequest((SYSTEM, ASKED))
    pieces = [wire.piece(message, (), mark=False) for message in request.messages]
    before = list(pieces)
    wire.request(
        replace(request, marks=(0, 1), settings=ModelSettings(cache_ttl="1h")), pieces, b""
    )
    assert pieces == before
    assert pieces[1] == Piece("user", b'{"type":"text","text":"Read a."}')


def test_what_the_body_is_given_wins() -> None:
    extra = {"max_tokens": 5, "metadata": {"user_id": "u"}, "messages": [ASKED_RAW]}
    headers = {"Anthropic-Beta": "x-1", "X-API-Key": "other"}
    settings = ModelSettings(temperature=0.5, extra_body=extra, extra_headers=headers)
    made, body = wired(ModelRequest((SYSTEM, ASKED), settings=settings))
    assert body["max_tokens"] == 5
    assert (body["metadata"], body["messages"]) == ({"user_id": "u"}, [ASKED_RAW])
    assert (made.headers["anthropic-beta"], made.headers["x-api-key"]) == ("x-1", "other")


ASKED_RAW = {"role": "user", "content": "Hi."}


# Settings


def test_an_answer_is_never_longer_than_the_model_can() -> None:
    assert asked(SONNET, output=100_000)[0]["max_tokens"] == 64_000
    assert asked(replace(SONNET, max_output=0), output=100)[0]["max_tokens"] == 100


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort"),
    [
        ("claude-sonnet-4-5", "high", {"type": "enabled", "budget_tokens": 16_384}, None),
        ("claude-sonnet-4-5", 3000, {"type": "enabled", "budget_tokens": 3000}, None),
        ("claude-haiku-4-5-20251001", 7, {"type": "enabled", "budget_tokens": 1024}, None),
        ("claude-opus-4-20250514", "max", {"type": "enabled", "budget_tokens": 24_000}, None),
        ("claude-sonnet-4-5", "none", None, None),
        ("claude-sonnet-4-6", 3000, {"type": "enabled", "budget_tokens": 3000}, None),
        ("claude-sonnet-4-6", "xhigh", {"type": "adaptive"}, "high"),
        ("claude-sonnet-4-6", "max", {"type": "adaptive"}, "max"),
        ("claude-opus-4-7", "xhigh", {"type": "adaptive"}, "xhigh"),
        ("claude-opus-4-7", "minimal", {"type": "adaptive"}, "low"),
        ("claude-opus-4-7", "none", None, None),
        ("claude-sonnet-5", 1000, {"type": "adaptive"}, "low"),
        ("claude-sonnet-5", 8000, {"type": "adaptive"}, "medium"),
        ("claude-opus-5", 30_000, {"type": "adaptive"}, "high"),
        ("claude-opus-5", "none", {"type": "disabled"}, None),
        ("claude-haiku-5-5", 0, {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-opus-5-5", "none", {"type": "adaptive"}, "low"),
        ("claude-fable-5-1", "none", {"type": "adaptive"}, "low"),
    ],
)
def test_each_generation_thinks_in_its_own_way(
    model: str, reasoning: Any, thinking: Any, effort: str | None
) -> None:
    body, ignored = asked(of(model), output=32_000, reasoning=reasoning)
    assert (body.get("thinking"), ignored) == (thinking, ())
    assert body.get("output_config", {}).get("effort") == effort


def test_thinking_is_left_out_where_it_is_impossible() -> None:
    assert asked(of("claude-3-5-haiku-latest"), reasoning="high")[1] == ("reasoning",)
    body, ignored = asked(SONNET, output=1024, reasoning="high")
    assert ("thinking" in body, ignored) == (False, ("reasoning",))
    assert asked(SONNET, output=1025, reasoning=1)[0]["thinking"]["budget_tokens"] == 1024


def test_a_loop_that_another_model_began_is_finished_without_a_budget() -> None:
    settings = ModelSettings(reasoning="high")
    own = called(CALL, opaque={"thinking_blocks": [ONE]})
    done = PromptMessage("assistant", "Done.")
    options: Any = {"tools": (READ,), "settings": settings}
    assert "thinking" not in sent(ASKED, called(CALL), RESULT, **options)
    assert "thinking" not in sent(ASKED, called(CALL), RESULT, own, RESULT, **options)
    assert "thinking" in sent(ASKED, own, RESULT, called(OTHER), OTHER_RESULT, **options)
    assert "thinking" in sent(ASKED, called(CALL), RESULT, done, ASKED, own, RESULT, **options)


@pytest.mark.parametrize(
    ("model", "settings", "kept", "ignored"),
    [
        ("claude-sonnet-4-5", {"temperature": 0.0}, {"temperature": 0.0}, ()),
        ("claude-sonnet-4-5", {"temperature": 1.5}, {}, ("temperature",)),
        (
            "claude-sonnet-4-5",
            {"temperature": 0.5, "top_p": 0.9},
            {"temperature": 0.5},
            ("top_p",),
        ),
        (
            "claude-sonnet-4-5",
            {"temperature": 0.5, "top_p": 0.9, "reasoning": "low"},
            {},
            ("temperature", "top_p"),
        ),
        ("claude-sonnet-4-6", {"top_p": 0.97, "reasoning": "low"}, {"top_p": 0.97}, ()),
        ("claude-opus-4-7", {"temperature": 1, "top_p": 1}, {}, ("temperature", "top_p")),
        ("claude-sonnet-4-5", {"seed": 1, "verbosity": "low"}, {}, ("seed", "verbosity")),
        ("claude-sonnet-4-5", {"stop": ("a", " ")}, {"stop_sequences": ["a"]}, ("stop",)),
        ("claude-opus-5", {"stop": ("a",)}, {"stop_sequences": ["a"]}, ()),
        ("claude-opus-5", {"service_tier": "auto"}, {"service_tier": "auto"}, ()),
        ("claude-opus-5", {"tool_choice": "auto"}, {}, ()),
        ("claude-opus-5", {"tool_choice": "required"}, {"tool_choice": {"type": "any"}}, ()),
        ("claude-opus-5", {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}, ()),
        (
            "claude-haiku-5-5",
            {"tool_choice": "read", "parallel_calls": False, "reasoning": "low"},
            {
                "tool_choice": {
                    "type": "tool",
                    "name": "read",
                    "disable_parallel_tool_use": True,
                }
            },
            (),
        ),
        (
            "claude-opus-5-5",
            {"tool_choice": "required", "parallel_calls": False},
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            ("tool_choice",),
        ),
        ("claude-sonnet-4-5", {"tool_choice": "read", "reasoning": 2000}, {}, ("tool_choice",)),
    ],
)
def test_what_a_model_refuses_is_left_out(
    model: str, settings: Any, kept: Any, ignored: tuple[str, ...]
) -> None:
    body, left_out = asked(of(model), **settings)
    plain, _ = asked(of(model))
    own = {name: value for name, value in body.items() if name not in plain}
    own = {name: value for name, value in own.items() if name not in ("thinking", "output_config")}
    assert (own, left_out) == (kept, ignored)


def test_other_providers_models_take_what_they_take() -> None:
    other = replace(SONNET, model="glm-4.6", own_host=False, base_url="https://z.test/anthropic")
    body, ignored = asked(other, temperature=1.5, top_p=0.5, tool_choice="required")
    assert (body["temperature"], body["top_p"], ignored) == (1.5, 0.5, ())
    assert asked(other, reasoning="none")[0]["thinking"] == {"type": "disabled"}
    assert asked(other, reasoning="low")[0]["thinking"]["type"] == "enabled"
