"""Gemini's wire: what is sent for each message and setting; a strict provider checks it."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from agent_runtime.messages import FileKind, FileRef, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import FilePart, Json, ModelRequest
from agent_runtime.models.wire.base import Target
from agent_runtime.models.wire.gemini import GeminiWire
from agent_runtime.models.wire.gemini_schema import reduced
from agent_runtime.testing.providers.gemini import SKIP, Gemini
from agent_runtime.testing.providers.server import Call, Say, Turn
from tests.models.wire.gemini_talk import (
    LOOK,
    SYSTEM,
    USER,
    answer,
    asked,
    body,
    call,
    checked,
    read,
    result,
    wire,
)

DATA = base64.b64encode(b"content").decode()
FLASH = "gemini-2.5-flash"


def shown(kind: FileKind, media_type: str, name: str = "it", **options: Any) -> FilePart:
    """Return a file with its content."""
    return FilePart(FileRef(kind, "upload:1", media_type, name), DATA, **options)


IMAGE = shown("image", "image/png", "cat.png")


def steps(*turns: Turn, provider: Gemini) -> list[PromptMessage]:
    """Return messages in which the provider's model made these answers."""
    messages = [SYSTEM, USER]
    for n, turn in enumerate(turns):
        made = read(*provider.stream(turn, n))
        calls = tuple(
            ToolCall(f"c{n * 10 + i:08d}", one.name, {"n": n}) for i, one in enumerate(made.calls)
        )
        data = made.opaque.data if made.opaque else None
        messages.append(answer(made.text, *calls, data=data))
        messages += [PromptMessage("tool", "seen", call_id=one.id, name=one.name) for one in calls]
    return messages


# Messages


def test_a_conversation_has_its_instructions_apart_and_results_in_a_content_of_their_own() -> None:
    sent = body(
        SYSTEM,
        USER,
        PromptMessage("user", "Look at both."),
        answer("I look.", call(1, at="a"), call(2, at="b")),
        result("it is a", 1),
        result("no such thing", 2, outcome="error"),
        PromptMessage("user", "Well?"),
    )
    assert sent["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    calls = [
        {"id": "c00000001", "name": "look", "args": {"at": "a"}},
        {"id": "c00000002", "name": "look", "args": {"at": "b"}},
    ]
    answers = [{"output": "it is a"}, {"error": "no such thing"}]
    results = [
        {"id": one["id"], "name": "look", "response": given}
        for one, given in zip(calls, answers, strict=True)
    ]
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Hello."}, {"text": "Look at both."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"functionCall": calls[0], "thoughtSignature": SKIP},
                {"functionCall": calls[1]},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": one} for one in results]},
        {"role": "user", "parts": [{"text": "Well?"}]},
    ]


@pytest.mark.parametrize("outcome", ["refused", "interrupted", "cancelled"])
def test_a_result_of_a_call_that_did_not_end_well_is_an_error(outcome: Any) -> None:
    sent = body(SYSTEM, USER, answer("", call()), result("no", outcome=outcome))
    assert sent["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "no"}


def test_empty_texts_are_left_out() -> None:
    sent = body(
        PromptMessage("system", ""),
        USER,
        PromptMessage("user", ""),
        answer(""),
        answer(" \n", call()),
        result(""),
        PromptMessage("user", ""),
    )
    assert "systemInstruction" not in sent
    roles = [(one["role"], len(one["parts"])) for one in sent["contents"]]
    assert roles == [("user", 1), ("model", 1), ("user", 1)]


@pytest.mark.parametrize(
    "messages", [(SYSTEM,), (SYSTEM, answer("Hi.")), (answer("Hi."), USER), (USER, answer("Hi."))]
)
def test_a_prompt_begins_and_ends_with_the_user(messages: tuple[PromptMessage, ...]) -> None:
    contents = body(*messages)["contents"]
    assert contents[0]["role"] == contents[-1]["role"] == "user"


def test_names_that_a_model_invented_are_made_sendable() -> None:
    one = ToolCall("c00000001", "look at/that!", {})
    named = PromptMessage("tool", "unknown", call_id=one.id, name=one.name)
    others = [ToolCall(f"c{n:08d}", name, {}) for n, name in enumerate(["", "3d", "é" * 99], 2)]
    results = [PromptMessage("tool", "no", call_id=call.id, name=call.name) for call in others]
    sent = body(USER, answer("", one, *others), named, *results)
    names = [part["functionCall"]["name"] for part in sent["contents"][1]["parts"]]
    assert names == ["look_at_that_", "_", "_3d", "_" * 64]


def test_instructions_are_the_users_where_the_model_takes_none() -> None:
    sent = body(SYSTEM, USER, entry={"supports_system_messages": False}, model="gemma-3-27b-it")
    assert "systemInstruction" not in sent
    assert sent["contents"][0]["parts"] == [{"text": "Be brief."}, {"text": "Hello."}]


def test_a_message_always_gives_the_same_bytes() -> None:
    message = answer("I look.", call(at="a"), data={"signatures": ["c2ln"]})
    pieces = [wire().piece(message, (), mark=mark) for mark in (False, True)]
    assert pieces[0] == pieces[1]


# Signatures


def test_signatures_go_back_where_they_were() -> None:
    provider = Gemini()
    both: Turn = (Say("Both."), Call("look", {"n": 1}), Call("look", {"n": 1}))
    messages = steps((Call("look", {"n": 0}),), both, (Say("Done."),), provider=provider)
    sent = checked(asked(*messages, USER), provider)
    models = [one["parts"] for one in sent["contents"] if one["role"] == "model"]
    signatures = [[part.get("thoughtSignature", "") != "" for part in one] for one in models]
    assert signatures == [[True], [False, True, False], [False, True]]
    assert models[2][0] == {"text": "Done."}
    assert models[2][1]["text"] == ""


def test_signatures_that_came_through_litellm_go_back() -> None:
    provider = Gemini()
    provider.stream((Call("look", {}), Call("look", {})), 0)
    [signature] = provider.signatures.values()
    data: Json = {"signatures": [signature, None]}
    made = answer("Both.", call(1), call(2), data=data)
    sent = checked(asked(USER, made, result(n=1), result(n=2)), provider)
    parts = sent["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, signature, None]


def test_no_signature_of_another_model_is_sent() -> None:
    data: Json = {"signatures": ["c2ln"], "parts": [["text", 5, "c2ln"], ["call"]]}
    made = answer("Look.", call(), data=data, model="gemini/gemini-2.5-pro")
    parts = body(USER, made, result())["contents"][1]["parts"]
    assert parts[0] == {"text": "Look."}
    assert parts[1]["thoughtSignature"] == SKIP
    old = body(USER, made, result(), model=FLASH)["contents"][1]["parts"]
    assert "thoughtSignature" not in old[1]


def test_the_order_of_texts_and_calls_is_kept() -> None:
    order = [["text", 3, ""], ["call"], ["thought", "Hm.", "c2ln"], ["text", 4, "c2ln"]]
    sent = asked(USER, answer("One.two", call(), data={"parts": order}), result())
    parts = orjson.loads(sent.body)["contents"][1]["parts"]
    called: Json = {"id": "c00000001", "name": "look", "args": {}}
    assert parts == [
        {"text": "One"},
        {"functionCall": called, "thoughtSignature": SKIP},
        {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"},
        {"text": ".two", "thoughtSignature": "c2ln"},
    ]


@pytest.mark.parametrize("text", ["Other words.", ""])
def test_the_order_is_void_if_the_text_is_not_the_models_own(text: str) -> None:
    data: Json = {"parts": [["text", 3, "c2ln"], ["call"]]}
    parts = body(USER, answer(text, call(), data=data), result())["contents"][1]["parts"]
    assert [part.get("text") for part in parts] == ([text] if text else []) + [None]


def test_the_order_is_void_if_calls_are_missing() -> None:
    data: Json = {"parts": [["text", 3, "c2ln"], ["call"], ["call"]], "signatures": [None, "c2ln"]}
    parts = body(USER, answer("One", call(), data=data), result())["contents"][1]["parts"]
    assert parts[0] == {"text": "One"}
    assert len(parts) == 2


# Files


def test_files_are_parts_and_others_are_named() -> None:
    files = [
        IMAGE,
        shown("audio", "audio/mpeg"),
        shown("document", "application/pdf"),
        shown("video", "video/mp4"),
        shown("image", "image/gif", "moves.gif"),
        shown("document", "text/plain", "notes.txt", text="a note"),
        shown("image", "image/png", "gone.png", problem="it is gone"),
        FilePart(FileRef("image", "https://example.com/dog.png", "image/png", "dog.png")),
        FilePart(FileRef("image", f"data:image/webp;base64,{DATA}", "image/webp")),
    ]
    message = PromptMessage("user", "Look.", files=tuple(one.file for one in files))
    [content] = body(message, files={0: files})["contents"]
    text, *parts = content["parts"]
    types = ["image/png", "audio/mp3", "application/pdf", "video/mp4", "image/webp"]
    assert [part["inlineData"]["mimeType"] for part in parts] == types
    assert {part["inlineData"]["data"] for part in parts} == {DATA}
    lines = text["text"].splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "Look.",
        "[file: moves.gif",
        "[file: notes.txt",
        "a note",
        "[end of file]",
        "[file: gone.png",
        "[file: dog.png",
    ]


def test_kinds_that_the_model_does_not_take_are_named() -> None:
    message = PromptMessage("user", "", files=(IMAGE.file,))
    of = wire(takes=frozenset())
    sent = checked(asked(message, of=of, files={0: [IMAGE]}), Gemini())
    assert sent["contents"][0]["parts"][0]["text"].startswith("[file: cat.png (image")
    unread = checked(asked(message), Gemini())
    assert unread["contents"] == sent["contents"]


def test_results_hold_the_files_that_they_may_hold() -> None:
    files = [IMAGE, shown("video", "video/mp4")]
    given = result("drawn", files=tuple(one.file for one in files))
    messages = (USER, answer("", call(1), call(2)), given, result("seen", 2))
    _, _, results, after = body(*messages, files={2: files})["contents"]
    blob = {"inlineData": {"mimeType": "image/png", "data": DATA}}
    assert results["parts"][0]["functionResponse"]["parts"] == [blob]
    film = {"inlineData": {"mimeType": "video/mp4", "data": DATA}}
    assert after["parts"] == [{"text": "The files of the tool results above:"}, film]
    _, _, results, after = body(*messages, files={2: files}, model=FLASH)["contents"]
    assert "parts" not in results["parts"][0]["functionResponse"]
    assert after["parts"][1:] == [blob, film]


def test_files_that_the_model_made_are_named_before_its_calls() -> None:
    made = PromptMessage("assistant", "Drawn.", calls=(call(),), files=(IMAGE.file,))
    parts = body(USER, made, result(), files={1: [IMAGE]})["contents"][1]["parts"]
    assert [part.get("text", "")[:6] for part in parts] == ["Drawn.", "[file:", ""]


def test_an_image_may_have_a_resolution() -> None:
    detailed = shown("image", "image/png", detail="low")
    message = PromptMessage("user", "Look.", files=(detailed.file,))
    part = body(message, files={0: [detailed]})["contents"][0]["parts"][1]
    assert part["mediaResolution"] == {"level": "MEDIA_RESOLUTION_LOW"}
    old = body(message, files={0: [detailed]}, model=FLASH)["contents"][0]["parts"][1]
    assert "mediaResolution" not in old


# Requests


def test_the_address_and_the_key() -> None:
    request = asked(extra_headers={"x-team": "a"})
    assert request.url == (
        "https://host/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
    )
    assert request.headers["x-goog-api-key"] == "key"
    assert request.headers["x-team"] == "a"
    tuned = GeminiWire(Target("gemini/t", "gemini", "tunedModels/t", "https://host/v1beta"))
    request = asked(of=tuned)
    assert request.url.startswith("https://host/v1beta/tunedModels/t:")
    assert "x-goog-api-key" not in request.headers


def test_the_key_is_in_no_representation() -> None:
    assert "sk-secret" not in repr(asked(of=wire(key="sk-secret")))


def test_settings_in_geminis_form() -> None:
    request = asked(
        of=wire(FLASH),
        temperature=0.0,
        top_p=0.5,
        seed=7,
        stop=("a", "b"),
        service_tier="flex",
    )
    sent = checked(request, Gemini(FLASH))
    assert sent["generationConfig"] == {
        "maxOutputTokens": 4096,
        "temperature": 0.0,
        "topP": 0.5,
        "seed": 7,
        "stopSequences": ["a", "b"],
        "thinkingConfig": {"includeThoughts": True},
    }
    assert sent["serviceTier"] == "flex"
    assert request.ignored == ()


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("gemini-2.0-flash", True),
        ("gemini-3-flash-preview", True),
        ("gemini-3.5-flash", True),
        ("gemini-3.5-flash-lite", False),
        ("gemini-3.8-flash", False),
        ("gemini-4-argon", False),
        ("gemini-flash-latest", False),
        ("gemma-3-27b-it", True),
    ],
)
def test_newer_models_take_no_sampling_parameters(model: str, taken: bool) -> None:
    request = asked(of=wire(model), temperature=0.5, top_p=0.5)
    config = checked(request, Gemini(model))["generationConfig"]
    assert ("temperature" in config, "topP" in config) == (taken, taken)
    assert request.ignored == (() if taken else ("temperature", "top_p"))


def test_the_table_of_models_knows_better() -> None:
    entry = {"supports_sampling_params": False, "supports_reasoning": False}
    request = asked(of=wire("gemini-3.1-x", entry=entry), temperature=0.5, reasoning="low")
    assert request.ignored == ("temperature", "reasoning")


def test_what_gemini_does_not_have_is_ignored() -> None:
    request = asked(
        stop=tuple("abcdef"),
        parallel_calls=False,
        verbosity="low",
        cache_ttl="1h",
        tool_choice="unknown",
    )
    ignored = ("tool_choice", "stop", "parallel_calls", "verbosity", "cache_ttl")
    assert request.ignored == ignored
    sent = checked(request, Gemini())
    assert sent["generationConfig"]["stopSequences"] == list("abcde")


def test_an_answer_is_never_longer_than_the_model_allows() -> None:
    request = asked(of=wire(max_output=100), max_output=4096)
    assert checked(request, Gemini())["generationConfig"]["maxOutputTokens"] == 100


@pytest.mark.parametrize(
    ("model", "reasoning", "config"),
    [
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.5-flash-lite", "minimal", {"thinkingBudget": 512}),
        ("gemini-2.5-flash-lite", 100, {"thinkingBudget": 512}),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768}),
        ("gemini-2.5-pro", 5000, {"thinkingBudget": 5000}),
        ("gemini-2.0-flash", "high", None),
        ("gemma-4-31b-it", "high", None),
        ("gemini-2.5-flash-image", "high", None),
        ("gemini-3-flash-preview", "none", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash-preview", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "LOW"}),
        ("gemini-3.1-pro-preview", "minimal", {"thinkingLevel": "LOW"}),
        ("gemini-3.8-flash", "none", {"thinkingLevel": "LOW"}),
        ("gemini-4-argon", 500, {"thinkingLevel": "LOW"}),
        ("gemini-4-argon", 5000, {"thinkingLevel": "MEDIUM"}),
        ("gemini-4-argon", "xhigh", {"thinkingLevel": "HIGH"}),
        ("gemini-flash-latest", "minimal", {"thinkingLevel": "LOW"}),
    ],
)
def test_reasoning_by_generation(model: str, reasoning: Any, config: Json | None) -> None:
    request = asked(of=wire(model), max_output=80_000, reasoning=reasoning)
    sent = checked(request, Gemini(model))["generationConfig"]
    if config is None:
        assert "thinkingConfig" not in sent
        assert request.ignored == ("reasoning",)
        return
    assert sent["thinkingConfig"] == {"includeThoughts": reasoning != "none", **config}
    assert request.ignored == ()


def test_a_budget_leaves_room_for_the_answer() -> None:
    sent = body(model=FLASH, max_output=8000, reasoning="high")
    assert sent["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 4000


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", None),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        ("look", {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_the_choice_of_tools(choice: str, config: Json | None) -> None:
    sent = body(tool_choice=choice)
    expected = config and {"functionCallingConfig": config}
    assert sent.get("toolConfig") == expected
    without = body(tools=(), tool_choice=choice)
    assert "tools" not in without
    assert "toolConfig" not in without


def test_the_users_own_body_wins() -> None:
    extra = {
        "generationConfig": {"topK": 3, "maxOutputTokens": 5},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    }
    sent = body(temperature=0.5, extra_body=extra)
    config = {"maxOutputTokens": 5, "temperature": 0.5, "topK": 3}
    assert sent["generationConfig"] == config | {"thinkingConfig": {"includeThoughts": True}}
    assert sent["safetySettings"] == extra["safetySettings"]


# Tools


def test_tools_are_declared() -> None:
    bare = ToolSpec("now", "Tells the time.")
    sent = body(tools=(LOOK, bare))
    [tools] = sent["tools"]
    assert tools["functionDeclarations"] == [
        {"name": "look", "description": "Looks.", "parametersJsonSchema": LOOK.parameters},
        {"name": "now", "description": "Tells the time."},
    ]


def test_schemas_lose_what_gemini_refuses() -> None:
    schema: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Arguments",
        "type": "object",
        "properties": {
            "title": {"title": "Title", "type": "string", "format": "date", "description": "When."},
            "format": {"type": ["string", "null"], "format": "uri"},
            "const": {"anyOf": [{"const": "a"}, {"const": 1}, {"const": True}, {"const": None}]},
            "count": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10},
            "share": {"type": "number", "exclusiveMinimum": 0, "examples": [0.5]},
            "many": {"type": "array", "items": {"$ref": "#/$defs/One"}, "default": []},
            "map": {"type": "object", "additionalProperties": {"title": "X", "type": "integer"}},
            "any": True,
        },
        "required": ["title"],
        "additionalProperties": False,
        "$defs": {"One": {"title": "One", "type": "object", "properties": {"n": {"const": 2}}}},
    }
    before = repr(schema)
    body(tools=(ToolSpec("look", "Looks.", schema),))
    assert repr(schema) == before
    assert reduced(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "When. (format: date)"},
            "format": {"type": ["string", "null"], "description": "format: uri"},
            "const": {
                "anyOf": [
                    {"enum": ["a"], "type": "string"},
                    {"enum": [1], "type": "integer"},
                    {"enum": [True], "type": "boolean"},
                    {"type": "null"},
                ]
            },
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "share": {"type": "number", "description": "more than 0"},
            "many": {"type": "array", "items": {"$ref": "#/$defs/One"}, "default": []},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": True,
        },
        "required": ["title"],
        "additionalProperties": False,
        "$defs": {"One": {"type": "object", "properties": {"n": {"enum": [2], "type": "integer"}}}},
    }


def test_tools_always_give_the_same_bytes() -> None:
    request = ModelRequest((USER,), tools=(LOOK,))
    assert wire().tools(request) == wire().tools(request)
