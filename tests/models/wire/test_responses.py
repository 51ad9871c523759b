"""What is sent to OpenAI's Responses API; the strict provider refuses what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from agent_runtime.messages import FileRef, Opaque, PromptMessage, ToolCall, ToolSpec
from agent_runtime.models.base import FilePart, Json, ModelAnswer, ModelRequest
from agent_runtime.models.reasoning_replay import is_bound
from agent_runtime.models.wire.base import Target
from agent_runtime.models.wire.responses import ResponsesWire
from agent_runtime.models.wire.sse import SseParser
from agent_runtime.prompt.normalise import normalise_answer
from agent_runtime.testing.providers.responses import Responses
from agent_runtime.testing.providers.server import Call, Provider, Say, Think, Turn

GPT = Target(
    name="openai/gpt-5.6",
    provider="openai",
    model="gpt-5.6",
    base_url="https://api.openai.com/v1",
    key="sk-test-0123456789",
    takes=frozenset({"image", "document"}),
    max_output=128_000,
    entry={"supports_reasoning": True},
)
OLD = replace(GPT, name="openai/gpt-4o", model="gpt-4o", entry={})
GROK = replace(GPT, name="xai/grok-4.7", model="grok-4.7", provider="xai")
READ = ToolSpec(
    "read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)
SYSTEM = PromptMessage("system", "Be brief.")
HELLO = PromptMessage("user", "Hello.")
PNG = FileRef("image", "upload:1", "image/png", "a.png", 3)
PDF = FileRef("document", "upload:2", "application/pdf", "a.pdf", 3)
WAV = FileRef("audio", "upload:3", "audio/wav", "a.wav", 3)


def send(
    asked: ModelRequest, target: Target = GPT, provider: Provider | None = None
) -> tuple[Json, tuple[str, ...]]:
    """Return the body of a request that the provider does not refuse, and the ignored settings."""
    wire = ResponsesWire(target)
    pieces = [
        wire.piece(one, asked.files.get(n, ()), mark=n in asked.marks)
        for n, one in enumerate(asked.messages)
    ]
    sent = wire.request(asked, pieces, wire.tools(asked))
    body = orjson.loads(sent.body)
    (provider or _provider(target)).check(body, sent.headers)
    return body, sent.ignored


def _provider(target: Target) -> Responses:
    provider = Responses(phased=False)
    if target is OLD:
        provider = Responses((), phased=False)
    elif target is GROK:
        provider = Responses(("none",), phased=False, plain_results=True)
    elif target is GPT:
        provider = Responses()
    provider.foreign = True
    return provider


def items(*messages: PromptMessage, target: Target = GPT, **options: Any) -> list[Json]:
    """Return the input items of a request."""
    return send(ModelRequest((*messages,), **options), target)[0]["input"]


@dataclass
class Talk:
    """A conversation with the strict provider, as the runtime has it."""

    provider: Responses
    target: Target = GPT
    prompt: list[PromptMessage] = field(default_factory=lambda: [SYSTEM, HELLO])
    sent: Json = field(default_factory=dict[str, Any])

    def turn(self, *parts: Any) -> ModelAnswer:
        """Send the prompt; add the answer and the results of its calls."""
        answer = self.ask(parts)
        message = normalise_answer(answer, len(self.prompt))
        self.prompt.append(
            PromptMessage("assistant", message.text, message.calls, opaque=message.opaque)
        )
        for call in message.calls:
            self.prompt.append(PromptMessage("tool", "Done.", call_id=call.id, name=call.name))
        return answer

    def ask(self, turn: Turn) -> ModelAnswer:
        """Send the prompt; return the answer."""
        asked = ModelRequest((*self.prompt,), (READ,), session="thread-1")
        self.sent = send(asked, self.target, self.provider)[0]
        decoder = ResponsesWire(self.target).decoder()
        events = SseParser()
        for chunk in self.provider.stream(turn, len(self.prompt)):
            for event in events.feed(chunk):
                list(decoder.feed(event))
        assert decoder.finished
        return decoder.answer()

    def forget(self) -> None:
        """Remove what the model needs back, as an activation does."""
        self.prompt = [replace(one, opaque=None) for one in self.prompt]


MIXED = (
    Think("One."),
    Say("First."),
    Think("hidden", hidden=True),
    Call("read", {"path": "a"}),
    Think("Then."),
    Call("read", {"path": "b"}),
)
TWO_THOUGHTS = (Think("h", hidden=True), Think("Shown."), Call("read", {}), Call("read", {"n": 1}))


def test_a_request_has_what_the_api_asks_for() -> None:
    asked = ModelRequest((SYSTEM, HELLO), (READ,), max_output=2000, session="thread-1")
    body, ignored = send(asked)
    assert ignored == ()
    assert body.pop("prompt_cache_key") not in ("", "thread-1")
    text = {"type": "input_text", "text": "Hello."}
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    assert body == {
        "model": "gpt-5.6",
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "read",
                "description": "Reads a file.",
                "parameters": parameters,
                "strict": False,
            }
        ],
        "input": [{"type": "message", "role": "user", "content": [text]}],
        "stream": True,
        "store": False,
        "max_output_tokens": 2000,
        "include": ["reasoning.encrypted_content"],
    }


def test_reasoning_comes_back_where_it_was() -> None:
    talk = Talk(Responses())
    for turn in (MIXED, TWO_THOUGHTS, (Call("read", {"path": "c"}),), (Think("4"), Say("Four."))):
        talk.turn(*turn)
    talk.prompt.append(PromptMessage("user", "And now?"))
    talk.turn(Say("Nothing."))
    made = [one for whole in talk.provider.issued.values() for one in whole]
    own = {"reasoning", "function_call", "message"}
    back = [one for one in talk.sent["input"] if one["type"] in own and one.get("role") != "user"]
    assert [(one["type"], one["id"]) for one in back] == [
        (one["type"], one["id"]) for one in made[:-1]
    ]
    assert talk.provider.returned == talk.provider.reasoned


def test_prompts_only_grow() -> None:
    talk = Talk(Responses())
    before: list[Json] = []
    for turn in (MIXED, TWO_THOUGHTS, (Think("x"), Say("Hm."), Call("read", {}))):
        talk.turn(*turn)
        assert talk.sent["input"][: len(before)] == before
        before = talk.sent["input"]


def test_after_an_activation_no_reasoning_and_no_ids_are_sent() -> None:
    talk = Talk(Responses())
    talk.turn(*MIXED)
    talk.turn(*TWO_THOUGHTS)
    talk.forget()
    talk.turn(Say("Fine."))
    sent = talk.sent["input"]
    assert not [one for one in sent if one["type"] == "reasoning" or "id" in one]
    assert [one["phase"] for one in sent if one.get("role") == "assistant"] == ["commentary"]


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        ("openai/gpt-5.6", True),
        ("gpt-5", True),
        ("openai/responses/o3", True),
        ("xai/grok-4.7", True),
        ("openai/gpt-4o", False),
        ("openai/gpt-oss-120b", False),
        ("groq/llama-3.3", False),
    ],
)
def test_an_activation_voids_reasoning_that_is_items(model: str, bound: bool) -> None:
    assert is_bound(model) is bound


def test_another_models_reasoning_is_never_sent() -> None:
    talk = Talk(Responses())
    talk.turn(*MIXED)
    talk.target = replace(GPT, name="openai/gpt-6-sol", model="gpt-6-sol")
    talk.turn(Say("Fine."))
    assert not [one for one in talk.sent["input"] if one["type"] == "reasoning" or "id" in one]


@pytest.mark.parametrize("phases", [True, False])
def test_phases_come_back_as_they_were(phases: bool) -> None:
    target = GPT if phases else replace(GPT, name="openai/gpt-5", model="gpt-5")
    talk = Talk(Responses(phased=phases), target)
    talk.turn(Think("One."), Say("I look."), Call("read", {}))
    talk.turn(Say("Done."))
    talk.prompt.append(HELLO)
    talk.turn(Say("Bye."))
    answers = [one for one in talk.sent["input"] if one.get("role") == "assistant"]
    given = ["commentary", "final_answer"] if phases else [None, None]
    assert [one.get("phase") for one in answers] == given


def test_a_masked_text_takes_the_place_of_the_models_own() -> None:
    talk = Talk(Responses())
    talk.turn(*MIXED)
    masked = replace(talk.prompt[2], text="Masked.")
    piece = ResponsesWire(GPT).piece(masked, (), mark=False)
    made = orjson.loads(b"[" + piece.data + b"]")
    assert [one["type"] for one in made[:4]] == [
        "reasoning",
        "message",
        "reasoning",
        "function_call",
    ]
    assert made[1]["content"][0]["text"] == "Masked."


def _litellms(talk: Talk) -> None:
    """Replace what the wire keeps by what litellm keeps."""
    for n, one in enumerate(talk.prompt):
        if one.opaque is not None:
            kept = {"reasoning_items": one.opaque.data["reasoning_items"], "reasoning_content": "x"}
            talk.prompt[n] = replace(one, opaque=Opaque(one.opaque.model, kept))


def test_reasoning_kept_by_litellm_is_sent_first() -> None:
    talk = Talk(Responses())
    talk.turn(Think("One."), Say("First."), Call("read", {}), Call("read", {"path": "b"}))
    _litellms(talk)
    talk.turn(Say("Fine."))
    kinds = [one["type"] for one in talk.sent["input"][1:5]]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    assert talk.provider.returned == talk.provider.reasoned


def test_reasoning_kept_by_litellm_is_not_sent_where_its_order_is_unknown() -> None:
    talk = Talk(Responses())
    talk.turn(*MIXED)
    _litellms(talk)
    talk.turn(Say("Fine."))
    assert not talk.provider.returned


UNFIT: list[Json] = [
    {"reasoning_items": [{"id": "rs_1", "encrypted_content": None, "summary": []}]},
    {"items": [["reasoning", 0, "rs_1"], ["call", 0, "fc_1"]]},
    {"items": [["text", "Bye.", "msg_1", None], ["text", "Bye.", "msg_2", None]]},
    {"thinking_blocks": [{"type": "thinking"}]},
    {"reasoning_items": []},
]


@pytest.mark.parametrize("kept", UNFIT)
def test_data_that_does_not_fit_is_not_sent(kept: Json) -> None:
    opaque = Opaque(GPT.name, kept)
    made = items(HELLO, PromptMessage("assistant", "Hi.", opaque=opaque), HELLO)
    assert [one["type"] for one in made] == ["message"] * 3
    assert "id" not in made[1]


def test_reasoning_that_led_to_nothing_is_not_sent() -> None:
    kept: Json = {"reasoning_items": [{"id": "rs_1", "encrypted_content": "g", "summary": []}]}
    cut = PromptMessage("assistant", "", opaque=Opaque(GPT.name, kept))
    assert len(items(HELLO, cut, HELLO)) == 2


def test_ids_that_the_provider_refuses_are_not_sent() -> None:
    long = "rs_" + "x" * 62
    kept = {"reasoning_items": [{"id": long, "encrypted_content": "g", "summary": None}]}
    piece = ResponsesWire(GPT).piece(
        PromptMessage("assistant", "Hi.", opaque=Opaque(GPT.name, kept)), (), mark=False
    )
    reasoning, _ = orjson.loads(b"[" + piece.data + b"]")
    assert reasoning == {"type": "reasoning", "summary": [], "encrypted_content": "g"}


# Messages of all kinds


def test_empty_messages_are_left_out() -> None:
    call = ToolCall("c00000001", "read", {})
    made = items(
        PromptMessage("user", ""),
        PromptMessage("assistant", ""),
        HELLO,
        PromptMessage("assistant", "", (call,)),
        PromptMessage("tool", "", call_id=call.id),
    )
    assert [one["type"] for one in made] == ["message", "function_call", "function_call_output"]
    assert made[2]["output"] == ""


def test_a_prompt_of_only_a_system_message_has_an_input() -> None:
    body, _ = send(ModelRequest((SYSTEM,)))
    assert body["input"] == [{"type": "message", "role": "developer", "content": "Be brief."}]
    assert "instructions" not in body


def test_a_later_system_message_stays_where_it_is() -> None:
    made = items(SYSTEM, HELLO, PromptMessage("system", 'Say "no".'), HELLO)
    assert made[1] == {"type": "message", "role": "developer", "content": 'Say "no".'}


def test_files_are_parts_of_messages_and_of_results() -> None:
    call = ToolCall("c00000001", "look", {})
    files = {
        0: [FilePart(PNG, "AAAA", detail="high"), FilePart(PDF, "AAAA"), FilePart(WAV, "AAAA")],
        2: [FilePart(PNG, "AAAA"), FilePart(PDF, problem="it is not there")],
    }
    user, _, result = items(
        PromptMessage("user", "See.", files=(PNG, PDF, WAV)),
        PromptMessage("assistant", "", (call,)),
        PromptMessage("tool", "", call_id=call.id, files=(PNG, PDF)),
        files=files,
    )
    url = "data:image/png;base64,AAAA"
    assert user["content"] == [
        {"type": "input_text", "text": "See.\n[file: a.wav (audio, audio/wav, 3 bytes) upload:3]"},
        {"type": "input_image", "image_url": url, "detail": "high"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,AAAA",
        },
    ]
    assert result["output"] == [
        {
            "type": "input_text",
            "text": "[file: a.pdf (document, application/pdf, 3 bytes) upload:2; not shown: it is "
            "not there]",
        },
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]


def test_text_documents_are_quoted() -> None:
    text = FileRef("document", "upload:4", "text/plain", "a.txt", 3)
    (made,) = items(PromptMessage("user", "", files=(text,)), files={0: [FilePart(text, text="x")]})
    assert made["content"][0]["text"].endswith("upload:4]\nx\n[end of file]")


def test_xai_gets_the_files_of_results_after_all_results_of_the_answer() -> None:
    calls = (ToolCall("c00000001", "look", {}), ToolCall("c00000002", "look", {}))
    results = [PromptMessage("tool", "Seen.", call_id=one.id, files=(PNG,)) for one in calls]
    prompt = (HELLO, PromptMessage("assistant", "", calls), *results)
    files = {2: [FilePart(PNG, "AAAA")], 3: [FilePart(PNG, "BBBB")]}
    for more in ((), (HELLO,)):
        made = items(*prompt, *more, target=GROK, files=files)
        assert [one["output"] for one in made[3:5]] == ["Seen.", "Seen."]
        assert [part["type"] for part in made[5]["content"]] == [
            "input_text",
            "input_image",
            "input_image",
        ]


def test_files_that_a_model_made_are_only_named() -> None:
    kept: Json = {"reasoning_items": [{"id": "rs_1", "encrypted_content": "g", "summary": []}]}
    opaque = Opaque(GPT.name, kept)
    made = items(HELLO, PromptMessage("assistant", "", files=(PNG,), opaque=opaque), HELLO)
    assert made[1]["content"][0]["text"].startswith("[file: a.png")


def test_schemas_that_the_provider_refuses_are_made_to_fit() -> None:
    odd = ToolSpec("odd", "", {"anyOf": [{"required": ["a"]}], "description": "x"})
    body, _ = send(ModelRequest((HELLO,), (odd, ToolSpec("none", "Nothing."))))
    empty: Json = {"type": "object", "properties": {}}
    assert [one["parameters"] for one in body["tools"]] == [{**empty, "description": "x"}, empty]


# Caching


def test_a_piece_is_always_the_same_bytes_and_marks_change_only_themselves() -> None:
    target = replace(GPT, marks=True, entry={"supports_prompt_cache_breakpoint": True})
    wire = ResponsesWire(target)
    call = ToolCall("c00000001", "read", {"b": 1, "a": [2]})
    messages = (HELLO, PromptMessage("tool", "Done.", call_id=call.id))
    for one in messages:
        plain, again = (wire.piece(one, (), mark=False) for _ in range(2))
        marked = orjson.loads(wire.piece(one, (), mark=True).data)
        assert plain == again
        part = (marked.get("content") or marked["output"])[-1]
        assert part.pop("prompt_cache_breakpoint") == {"mode": "explicit"}
        assert marked == orjson.loads(plain.data)
    unmarked = ResponsesWire(GPT).piece(HELLO, (), mark=True)
    assert b"breakpoint" not in unmarked.data


def test_the_cache_key_is_the_same_for_a_thread_and_does_not_name_it() -> None:
    keys = [send(ModelRequest((HELLO,), session=one))[0]["prompt_cache_key"] for one in "aab"]
    assert keys[0] == keys[1] != keys[2]
    assert len(keys[0]) == 32
    assert "prompt_cache_key" not in send(ModelRequest((HELLO,)))[0]
    other = replace(GPT, base_url="http://127.0.0.1:1/v1", own_host=False)
    assert "prompt_cache_key" not in send(ModelRequest((HELLO,), session="a"), other)[0]
