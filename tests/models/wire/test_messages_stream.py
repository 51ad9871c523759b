"""Streams of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from agent_runtime.errors import ModelProtocolError
from agent_runtime.messages import PromptMessage
from agent_runtime.models.base import (
    ModelAnswer,
    ModelRequest,
    RawCall,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
)
from agent_runtime.models.wire.base import ServerEvent, StreamFailedError, Target
from agent_runtime.models.wire.messages import MessagesDecoder, MessagesWire
from agent_runtime.models.wire.sse import SseParser
from agent_runtime.prompt.normalise import normalise_answer
from agent_runtime.testing.providers.anthropic import Anthropic
from agent_runtime.testing.providers.server import Call, Say, Think
from tests.models.wire.test_messages import SONNET

Json = dict[str, Any]


def start(usage: Any = None, **fields: Any) -> Json:
    message: Json = {"model": "claude-sonnet-4-5-20250929", "usage": usage, **fields}
    return {"type": "message_start", "message": message}


def begin(index: int, kind: str, **fields: Any) -> Json:
    block = {"type": kind, **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def end(word: str | None, usage: Any = None, **fields: Any) -> list[Json]:
    last = {"type": "message_delta", "delta": {"stop_reason": word, **fields}, "usage": usage}
    return [last, {"type": "message_stop"}]


def text(index: int, *pieces: str) -> list[Json]:
    deltas = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [begin(index, "text", text=""), *deltas, stop(index)]


def thought(index: int, thinking: str, signature: str | None) -> list[Json]:
    events = [begin(index, "thinking", thinking="", signature="")]
    events += [delta(index, "thinking_delta", thinking=thinking)] if thinking else []
    if signature is not None:
        events.append(delta(index, "signature_delta", signature=signature))
    return [*events, stop(index)]


def call(index: int, name: str, *pieces: str) -> list[Json]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    used = begin(index, "tool_use", id=f"toolu_{index}", name=name, input={})
    return [used, *deltas, stop(index)]


def fed(events: Sequence[Json], decoder: MessagesDecoder | None = None) -> list[Any]:
    """Feed events; return their deltas."""
    reader = decoder or MessagesDecoder("m")
    return [
        one
        for event in events
        for one in reader.feed(ServerEvent(str(event.get("type") or ""), orjson.dumps(event)))
    ]


def read(*events: Json) -> ModelAnswer:
    """Return the answer that events bring."""
    decoder = MessagesDecoder("m")
    fed(events, decoder)
    assert decoder.finished
    answer = decoder.answer()
    assert decoder.answer() == answer
    return answer


def test_an_answer_is_read_block_by_block() -> None:
    answer = read(
        start({"input_tokens": 9, "output_tokens": 1}),
        {"type": "ping"},
        *thought(0, "Hm.", "s1"),
        *text(1, "I ", "", "look."),
        *call(2, "read", "", '{"path"', ': "a"}'),
        *call(3, "read", '{"path": "b"}'),
        *end("tool_use", {"output_tokens": 89}),
    )
    assert (answer.text, answer.reasoning) == ("I look.", "Hm.")
    assert (answer.finish, answer.word) == ("tool_calls", "tool_use")
    assert answer.calls == (RawCall("read", '{"path": "a"}'), RawCall("read", '{"path": "b"}'))
    assert answer.usage == TokenUsage(prompt=9, completion=89)
    assert answer.extra == {"reported_model": "claude-sonnet-4-5-20250929"}
    assert answer.opaque is not None
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
    assert answer.opaque.data == {"thinking_blocks": [block]}


def test_deltas_come_as_they_arrive() -> None:
    said = fed([*thought(0, "Hm.", "s1"), *text(1, "I ", "", "x")])
    assert said == [ReasoningDelta("Hm."), TextDelta("I "), TextDelta("x")]


def test_every_split_of_the_bytes_gives_the_same() -> None:
    provider = Anthropic(thinking=True)
    turn = (
        Think("hidden", hidden=True),
        Think("Step: \u2713 {}"),
        Say("Two \U0001f600 at once."),
        Call("look", {"a": '"{}"', "b": [1, {"c": "\u00e4"}]}),
        Think("Then."),
        Call("look", {}),
    )
    whole = b"".join(provider.stream(turn, 1)).replace(b"\n", b"\r\n")

    def answer(step: int) -> ModelAnswer:
        decoder, stream = MessagesDecoder("m"), SseParser()
        for at in range(0, len(whole), step):
            for event in stream.feed(whole[at : at + step]):
                list(decoder.feed(event))
        return decoder.answer()

    read = answer(len(whole))
    assert [answer(step) for step in (1, 2, 3, 7, 100)] == [read] * 5
    assert read.text == "Two \U0001f600 at once."
    assert read.opaque is not None
    assert [kind for kind, _ in read.opaque.data["order"]] == [
        "thinking",
        "thinking",
        "text",
        "call",
        "thinking",
        "call",
    ]


def test_what_was_read_goes_back_as_it_came() -> None:
    provider = Anthropic(thinking=True)
    turn = (Think("a", hidden=True), Say("One. "), Think("b"), Call("look", {}), Say("Two."))
    decoder, stream = MessagesDecoder(SONNET.name), SseParser()
    for piece in provider.stream(turn, 1):
        for event in stream.feed(piece):
            list(decoder.feed(event))
    message = normalise_answer(decoder.answer(), 7)
    said = PromptMessage("assistant", message.text, calls=message.calls, opaque=message.opaque)
    wire = MessagesWire(SONNET)
    messages = (
        PromptMessage("user", "Go."),
        said,
        PromptMessage("tool", "ok", call_id=message.calls[0].id),
    )
    pieces = [wire.piece(one, (), mark=False) for one in messages]
    made = wire.request(ModelRequest(messages), pieces, b"[]")
    provider.check(orjson.loads(made.body), made.headers)


@pytest.mark.parametrize("until", range(13))
def test_a_stream_that_ends_too_early_is_no_answer(until: int) -> None:
    events = [
        start({"input_tokens": 9, "output_tokens": 1}),
        *thought(0, "Hm.", "s1"),
        *text(1, "I look."),
        *call(2, "read", "{}"),
        *end("tool_use", {"output_tokens": 9}),
    ]
    assert len(events) == 13
    decoder = MessagesDecoder("m")
    fed(events[:until], decoder)
    assert not decoder.finished
    with pytest.raises(ModelProtocolError, match="broke off"):
        decoder.answer()


def test_blocks_may_be_interleaved() -> None:
    answer = read(
        start(),
        begin(0, "tool_use", id="a", name="one", input={}),
        begin(1, "tool_use", id="b", name="two", input={}),
        delta(1, "input_json_delta", partial_json='{"b":'),
        delta(0, "input_json_delta", partial_json='{"a":1}'),
        delta(1, "input_json_delta", partial_json="2}"),
        stop(1),
        stop(0),
        *end("tool_use"),
    )
    assert answer.calls == (RawCall("one", '{"a":1}'), RawCall("two", '{"b":2}'))
    assert answer.usage is None


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("pause_turn", "pause"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "window"),
        ("something_new", "unknown"),
    ],
)
def test_the_reason_is_the_providers_own(word: str, finish: str) -> None:
    answer = read(start(), *text(0, "So."), *end(word))
    assert (answer.text, answer.word, answer.finish) == ("So.", word, finish)


def test_an_answer_without_a_reason_is_broken() -> None:
    for word in (None, ""):
        with pytest.raises(ModelProtocolError, match="broke off"):
            read(start(), *text(0, "So."), *end(word))


def test_a_refusal_is_explained() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    answer = read(start(), *end("refusal", stop_details=details))
    assert (answer.text, answer.finish) == ("Not this.", "refusal")
    answer = read(start(), *text(0, "Half"), *end("refusal", stop_details=None))
    assert (answer.text, answer.finish) == ("Half", "refusal")


def test_an_empty_answer_is_an_error() -> None:
    with pytest.raises(ModelProtocolError, match="nothing"):
        read(start(), *end("end_turn"))
    with pytest.raises(ModelProtocolError, match="nothing"):
        read(start(), *text(0, "\n"), *end("pause_turn"))


# Answers that were cut off


@pytest.mark.parametrize("pieces", [[], [""], ['{"path": "a', "b"]], ids=["none", "empty", "half"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("word", ["max_tokens", "model_context_window_exceeded"])
def test_a_call_that_was_cut_off_is_not_made(pieces: list[str], closed: bool, word: str) -> None:
    cut = call(1, "read", *pieces)
    answer = read(start(), *text(0, "So."), *(cut if closed else cut[:-1]), *end(word))
    message = normalise_answer(answer, 7, cut="It was cut.")
    assert [one.cut for one in message.calls] == ["It was cut."]


def test_open_calls_are_not_made_and_closed_ones_are() -> None:
    events = [*call(0, "none"), *call(1, "open")[:-1], *call(2, "whole", '{"a": 1}')]
    message = normalise_answer(read(start(), *events, *end("max_tokens")), 7, cut="Cut.")
    assert [(one.name, one.cut) for one in message.calls] == [
        ("none", None),
        ("open", "Cut."),
        ("whole", None),
    ]


def test_thinking_that_was_cut_off_is_dropped() -> None:
    whole, half = thought(0, "One.", "s1"), thought(1, "Tw", None)
    answer = read(start(), *whole, *half[:-1], *end("max_tokens"))
    assert answer.reasoning == "One.Tw"
    assert answer.opaque is not None
    assert [one["signature"] for one in answer.opaque.data["thinking_blocks"]] == ["s1"]
    assert read(start(), *half[:-1], *end("max_tokens")).opaque is None


def test_unsigned_thinking_of_other_providers_is_kept() -> None:
    events = [begin(0, "thinking", thinking="A"), delta(0, "thinking_delta", thinking="B"), stop(0)]
    answer = read(start(), *events, *text(1, "So."), *end("end_turn"))
    assert answer.reasoning == "AB"
    assert answer.opaque is not None
    assert answer.opaque.data == {"thinking_blocks": [{"type": "thinking", "thinking": "AB"}]}


def test_empty_thinking_is_kept_too() -> None:
    answer = read(start(), *thought(0, "", "s1"), *text(1, "So."), *end("end_turn"))
    assert answer.opaque is not None
    block = {"type": "thinking", "thinking": "", "signature": "s1"}
    assert answer.opaque.data == {"thinking_blocks": [block]}


def test_two_texts_are_kept_apart_if_there_is_thinking() -> None:
    texts = [*text(1, "One. "), *text(2, "Two.")]
    answer = read(start(), *thought(0, "", "s1"), *texts, *end("end_turn"))
    assert answer.text == "One. Two."
    assert answer.opaque is not None
    order = [["thinking", 0], ["text", "One. "], ["text", "Two."]]
    assert answer.opaque.data["order"] == order
    assert read(start(), *texts, *end("end_turn")).opaque is None


# Usage


def usage_of(first: Any, last: Any) -> TokenUsage | None:
    return read(start(first), *text(0, "So."), *end("end_turn", last)).usage


def test_usage_includes_what_was_read_and_written_in_the_cache() -> None:
    first = {
        "input_tokens": 9,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 60,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "output_tokens": 1,
        "service_tier": "standard",
        "server_tool_use": None,
    }
    usage = usage_of(first, {"output_tokens": 89})
    assert usage == TokenUsage(
        prompt=99, completion=89, cached=60, cache_write=30, cache_write_hour=20
    )
    del first["cache_creation_input_tokens"]
    assert usage_of(first, {"output_tokens": 89}) == usage


@pytest.mark.parametrize(
    ("first", "last", "usage"),
    [
        (None, None, None),
        ({}, {}, None),
        (None, {"input_tokens": 9, "output_tokens": 8}, TokenUsage(9, 8)),
        ({"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 9}, TokenUsage(9, 0)),
        ({"input_tokens": 9}, {"input_tokens": 0, "output_tokens": 8}, TokenUsage(9, 8)),
        ({"input_tokens": 9, "output_tokens": None}, {"output_tokens": 8}, TokenUsage(9, 8)),
        ({"input_tokens": 9}, None, TokenUsage(9, 0)),
        ("?", [], None),
    ],
)
def test_usage_is_cumulative_and_may_be_missing(first: Any, last: Any, usage: Any) -> None:
    assert usage_of(first, last) == usage


# What the API may add, and what servers get wrong


def test_what_is_unknown_is_ignored() -> None:
    server = begin(0, "server_tool_use", id="srvtoolu_1", name="web_search", input={})
    answer = read(
        start(diagnostics=None),
        {"type": "something_new", "index": 9},
        server,
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        stop(0),
        begin(1, "text", text="", citations=None),
        delta(1, "citations_delta", citation={"type": "page_location"}),
        delta(1, "text_delta", text="So.", extra=1),
        stop(1),
        stop(7),
        *end("end_turn", container=None),
    )
    assert (answer.text, answer.calls, answer.opaque) == ("So.", (), None)


def test_whole_blocks_may_come_with_their_beginning() -> None:
    answer = read(
        start(),
        begin(0, "thinking", thinking="Hm.", signature="s1"),
        begin(1, "text", text="So."),
        begin(2, "tool_use", id="a", name="read", input={"a": [1]}),
        *end("tool_use"),
    )
    assert (answer.text, answer.reasoning) == ("So.", "Hm.")
    assert answer.calls == (RawCall("read", '{"a":[1]}'),)


def test_servers_that_do_not_stream_send_the_whole_message() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
    used = {"type": "tool_use", "id": "a", "name": "read", "input": {"a": 1}}
    message = {
        "type": "message",
        "model": "claude",
        "content": [block, {"type": "text", "text": "So."}, used],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 8},
    }
    answer = read(message)
    assert (answer.text, answer.finish, answer.usage) == ("So.", "tool_calls", TokenUsage(9, 8))
    assert answer.calls == (RawCall("read", '{"a":1}'),)
    assert answer.opaque is not None
    assert answer.opaque.data == {"thinking_blocks": [block]}
    assert fed([message]) == [ReasoningDelta("Hm."), TextDelta("So.")]


@pytest.mark.parametrize("pieces", [['["a"]'], ["nul", "l"], ['"a'], ['{"a": 1}{"b": 2}']])
def test_arguments_that_are_no_object_fail(pieces: list[str]) -> None:
    answer = read(start(), *call(0, "read", *pieces), *end("tool_use"))
    (made,) = normalise_answer(answer, 7).calls
    assert (made.arguments, made.raw) == ({}, "".join(pieces))


def test_huge_arguments_are_joined_once() -> None:
    pieces = ['{"text": "', *["x" * 1000] * 2000, '"}']
    answer = read(start(), *call(0, "write", *pieces), *end("tool_use"))
    assert len(answer.calls[0].arguments) == 2_000_012


def test_a_character_in_two_deltas_is_told_whole_and_half_of_one_is_replaced() -> None:
    decoder = MessagesDecoder("m")
    events = [start(), begin(0, "text", text="")]
    fed(events, decoder)
    deltas: list[Any] = []
    for half in (rb"a \ud83d", rb"\ude00", rb" \ud83d"):
        body = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%b"}}'
        deltas += decoder.feed(ServerEvent("content_block_delta", body % half))
    fed([stop(0), *end("end_turn")], decoder)
    assert deltas == [TextDelta("a "), TextDelta("\U0001f600"), TextDelta(" ")]
    assert decoder.answer().text == "a \U0001f600 \ufffd"


def test_an_error_in_mid_stream_ends_it() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    for sent in (error, {"error": error["error"]}):
        decoder = MessagesDecoder("m")
        fed([start(), begin(0, "text", text="So.")], decoder)
        with pytest.raises(StreamFailedError) as failed:
            fed([sent], decoder)
        assert failed.value.body == sent
        with pytest.raises(ModelProtocolError, match="broke off"):
            decoder.answer()
    with pytest.raises(StreamFailedError):
        list(MessagesDecoder("m").feed(ServerEvent("error", b'{"message": "no"}')))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[DONE]",
        b"[]",
        b"null",
        b'{"type": "message_start"}',
        b'{"type": "message_start", "message": null}',
        b'{"type": "message_delta", "delta": 5}',
        b'{"type": "message", "content": 5}',
        b'{"type": "content_block_start", "index": 0}',
        b'{"type": "content_block_start", "index": [], "content_block": {"type": "text"}}',
        b'{"type": "content_block_start", "index": 1, '
        b'"content_block": {"type": "text", "text": 5}}',
        b'{"type": "content_block_delta", "index": 0, "delta": {}}',
        b'{"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": ""}}',
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}',
        b'{"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta"}}',
        b'{"type": "content_block_delta", "index": 0, '
        b'"delta": {"type": "input_json_delta", "partial_json": ""}}',
        b'{"type": "content_block_stop"}',
        b'\xff{"type": "ping"}',
    ],
)
def test_what_the_api_does_not_define_is_an_error(data: bytes) -> None:
    decoder = MessagesDecoder("m")
    fed([start(), begin(0, "text", text="")], decoder)
    with pytest.raises(ValueError):
        list(decoder.feed(ServerEvent("message", data)))


def test_each_answer_has_a_decoder_of_its_own() -> None:
    wire = MessagesWire(Target("m", "anthropic", "claude-sonnet-4-5", "http://127.0.0.1:1"))
    one, other = wire.decoder(), wire.decoder()
    list(one.feed(ServerEvent("", orjson.dumps({"type": "message_stop"}))))
    assert (one.finished, other.finished) == (True, False)
