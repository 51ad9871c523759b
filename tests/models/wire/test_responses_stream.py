"""How the streams of OpenAI's Responses API are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from agent_runtime.errors import (
    ModelAuthError,
    ModelOverflow,
    ModelProtocolError,
    ModelRejected,
    ModelUnavailable,
)
from agent_runtime.models.base import (
    Json,
    ModelAnswer,
    ModelEvent,
    RawCall,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
)
from agent_runtime.models.error_bodies import read_response
from agent_runtime.models.error_mapping import AttemptFailure, failure_of_body
from agent_runtime.models.wire.base import ServerEvent, StreamFailedError
from agent_runtime.models.wire.responses_stream import ResponsesDecoder
from agent_runtime.models.wire.sse import SseParser
from agent_runtime.testing.providers.responses import Responses, sse
from agent_runtime.testing.providers.server import Call, Say, Think

TURN = (
    Think("One. \u2713"),
    Say("First \U0001f600."),
    Think("hidden", hidden=True),
    Call("read", {"path": "a\u2713"}),
    Call("read", {}),
)
USAGE: Json = {
    "input_tokens": 90,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 30},
}


def read(chunks: Iterable[bytes]) -> tuple[list[ModelEvent], ResponsesDecoder]:
    """Return the deltas of a stream, and what read it."""
    decoder, events = ResponsesDecoder("openai/gpt"), SseParser()
    deltas: list[ModelEvent] = []
    for chunk in chunks:
        for event in events.feed(chunk):
            deltas += decoder.feed(event)
    for event in events.close():
        deltas += decoder.feed(event)
    return deltas, decoder


def answer_of(*events: Json) -> ModelAnswer:
    """Return the answer of a stream of these events."""
    return read(map(sse, events))[1].answer()


def message(text: str, index: int = 0, **more: Any) -> Json:
    """Return the last event of a message."""
    content = [{"type": "output_text", "text": text}]
    item: Json = {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": content}
    return done({**item, **more}, index)


def call(arguments: Any, index: int = 0, name: str = "read") -> Json:
    """Return the last event of a call."""
    item: Json = {"type": "function_call", "id": f"fc_{index}", "call_id": "call_1", "name": name}
    return done({**item, "arguments": arguments}, index)


def reasoning(index: int = 0, **more: Any) -> Json:
    """Return the last event of an item of reasoning."""
    item: Json = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    return done({**item, "encrypted_content": f"g{index}", **more}, index)


def done(item: Json, index: int) -> Json:
    """Return the last event of an item."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def end(kind: str = "completed", **more: Any) -> Json:
    """Return the last event of an answer."""
    response: Json = {"model": "gpt-5.6-2026", "usage": USAGE, "output": [], **more}
    return {"type": f"response.{kind}", "response": response}


def text(piece: Any, index: int = 0) -> Json:
    """Return a delta of a text."""
    return {"type": "response.output_text.delta", "output_index": index, "delta": piece}


def arguments(piece: str, index: int) -> Json:
    """Return a delta of a call's arguments."""
    kind = "response.function_call_arguments.delta"
    return {"type": kind, "output_index": index, "delta": piece}


def added(item: Json, index: int) -> Json:
    """Return the first event of an item."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def test_an_answer_is_read_as_the_provider_streams_it() -> None:
    provider = Responses()
    deltas, decoder = read(provider.stream(TURN, 1))
    answer = decoder.answer()
    assert decoder.finished
    assert deltas == [
        ReasoningDelta("One"),
        ReasoningDelta(". \u2713"),
        TextDelta("Firs"),
        TextDelta("t \U0001f600."),
    ]
    assert (answer.text, answer.reasoning) == ("First \U0001f600.", "One. \u2713")
    assert answer.calls == (RawCall("read", '{"path":"a\u2713"}'), RawCall("read", "{}"))
    assert (answer.finish, answer.word) == ("tool_calls", "completed")
    assert answer.usage == TokenUsage(prompt=9, completion=7, cached=3, cache_write=2)
    (made,) = provider.issued.values()
    assert answer.opaque is not None
    assert answer.opaque.data == {
        "items": [
            ["reasoning", 0, made[0]["id"]],
            ["text", "", made[1]["id"], "commentary"],
            ["reasoning", 1, made[2]["id"]],
            ["call", 0, made[3]["id"]],
            ["call", 1, made[4]["id"]],
        ],
        "reasoning_items": [made[0], made[2]],
    }


def test_an_answer_is_the_same_however_its_bytes_arrive() -> None:
    whole = b"".join(Responses().stream(TURN, 1))
    expected = read([whole])[1].answer()
    singly = (whole[n : n + 1] for n in range(len(whole)))
    assert read(singly)[1].answer() == expected
    lines = whole.replace(b"\n", b"\r\n")
    assert read(lines[n : n + 7] for n in range(0, len(lines), 7))[1].answer() == expected


def test_a_stream_that_ends_early_is_broken() -> None:
    events = Responses().stream(TURN, 1)
    # The last two are the end of the answer and what follows it.
    for size in range(len(events) - 1):
        _, decoder = read(events[:size])
        assert not decoder.finished
        with pytest.raises(ModelProtocolError, match="broke off"):
            decoder.answer()


def test_what_follows_the_end_is_ignored() -> None:
    chunks = [sse(message("Hi.")), sse(end()), b"data: [DONE]\n\n", sse({"type": "error"})]
    deltas, decoder = read([*chunks, sse(text("more"))])
    assert (deltas, decoder.answer().text) == ([TextDelta("Hi.")], "Hi.")


def test_events_and_fields_of_unknown_kinds_are_ignored() -> None:
    answer = answer_of(
        {"type": "response.new_thing.delta", "delta": 5},
        {"type": "keepalive", "sequence_number": 3},
        {**text("Hi."), "obfuscation": "abc", "logprobs": []},
        {**message("Hi."), "strange": {}},
        end(strange=1),
    )
    assert (answer.text, answer.finish) == ("Hi.", "stop")


def test_items_that_alternate_are_kept_apart() -> None:
    begun: Json = {"type": "function_call", "name": "read", "arguments": ""}
    answer = answer_of(
        added(begun, 1),
        added(begun, 2),
        arguments('{"a"', 1),
        arguments('{"b"', 2),
        text("Hi", 0),
        arguments(":1}", 1),
        arguments(":2}", 2),
        text(".", 0),
        call("", 2),
        call("", 1),
        message("Hi.", 0),
        end(),
    )
    assert answer.text == "Hi."
    assert [one.arguments for one in answer.calls] == ['{"a":1}', '{"b":2}']


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("[1]", "[1]"),
        ("no json", "no json"),
        ("", ""),
        ({"a": 1}, '{"a":1}'),
        (None, ""),
        ('{"a":"' + "x" * 1_000_000 + '"}', '{"a":"' + "x" * 1_000_000 + '"}'),
    ],
    ids=["list", "text", "empty", "object", "null", "huge"],
)
def test_arguments_of_any_kind_are_kept(written: object, kept: str) -> None:
    assert answer_of(call(written), end()).calls == (RawCall("read", kept),)


def test_an_answer_without_deltas_is_read_from_its_items() -> None:
    summary = [{"type": "summary_text", "text": "Hm."}]
    chunks = [sse(reasoning(0, summary=summary)), sse(message("Hi.", 1)), sse(end())]
    deltas, decoder = read(chunks)
    assert deltas == [ReasoningDelta("Hm."), TextDelta("Hi.")]
    assert decoder.answer().text == "Hi."


def test_an_item_that_ends_twice_counts_once() -> None:
    events = [message("Hi."), message("Hi."), call("{}", 1), call("{}", 1), end()]
    deltas, decoder = read(map(sse, events))
    assert (deltas, len(decoder.answer().calls)) == ([TextDelta("Hi.")], 1)


def test_an_answer_without_events_of_its_items_is_read_from_its_end() -> None:
    output = [reasoning()["item"], message("Hi.")["item"], call("{}")["item"]]
    deltas, decoder = read([sse(end(output=output))])
    answer = decoder.answer()
    assert deltas == [TextDelta("Hi.")]
    assert (answer.text, len(answer.calls)) == ("Hi.", 1)
    assert answer.opaque is not None
    assert len(answer.opaque.data["items"]) == 3


def test_an_answer_that_is_not_streamed_is_read() -> None:
    whole = {**end(output=[message("Hi.")["item"]])["response"], "object": "response"}
    for status, finish in (("completed", "stop"), ("incomplete", "length")):
        details = {"reason": "max_output_tokens"} if finish == "length" else None
        sent = orjson.dumps({**whole, "status": status, "incomplete_details": details})
        decoder = ResponsesDecoder("m")
        assert list(decoder.feed(ServerEvent("", sent))) == [TextDelta("Hi.")]
        assert (decoder.finished, decoder.answer().finish) == (True, finish)


def test_paragraphs_of_reasoning_are_kept_apart() -> None:
    kind = "response.reasoning_summary"
    parts: list[Json] = []
    for number in range(2):
        at = {"output_index": 0, "summary_index": number}
        parts.append({"type": f"{kind}_part.added", **at, "part": {}})
        parts.append({"type": f"{kind}_text.delta", **at, "delta": f"Part {number}."})
    summary = [{"type": "summary_text", "text": f"Part {number}."} for number in range(2)]
    answer = answer_of(*parts, reasoning(summary=summary), message("Hi.", 1), end())
    assert answer.reasoning == "Part 0.\n\nPart 1."


def test_a_character_in_two_halves_is_joined() -> None:
    chunks = [
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"a\\ud83d"}\n\n',
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"\\ude00"}\n\n',
        sse(end()),
    ]
    deltas, decoder = read(chunks)
    assert deltas == [TextDelta("a"), TextDelta("\U0001f600")]
    assert decoder.answer().text == "a\U0001f600"


# How answers end


@pytest.mark.parametrize(
    ("last", "finish", "word"),
    [
        (end(), "stop", "completed"),
        (end("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length", None),
        (
            end("incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
            None,
        ),
        (end("incomplete", incomplete_details=None), "unknown", "incomplete"),
    ],
)
def test_the_reason_of_an_end_is_the_providers(last: Json, finish: str, word: str | None) -> None:
    answer = answer_of(message("Hi."), last)
    reason = word or last["response"]["incomplete_details"]["reason"]
    assert (answer.finish, answer.word) == (finish, reason)


def test_a_call_that_was_cut_off_is_kept_as_it_is() -> None:
    begun: Json = {"type": "function_call", "id": "fc_0", "name": "write", "arguments": ""}
    cut = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    answer = answer_of(added(begun, 0), arguments('{"text": "abc', 0), cut)
    assert (answer.finish, answer.calls) == ("length", (RawCall("write", '{"text": "abc'),))


def test_a_refusal_is_no_text_and_needs_no_data() -> None:
    part = {"type": "refusal", "refusal": "I cannot."}
    pieces = [{"type": "response.refusal.delta", "delta": one} for one in ("I ", "cannot.")]
    for events in ([], pieces):
        answer = answer_of(reasoning(), *events, message("", 1, content=[part]), end())
        assert (answer.finish, answer.text, answer.opaque) == ("refusal", "I cannot.", None)


def test_an_answer_of_reasoning_alone_is_empty() -> None:
    with pytest.raises(ModelProtocolError, match="answered nothing"):
        answer_of(reasoning(), end())


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, None),
        ({}, None),
        ({"input_tokens": 5, "output_tokens": 3}, TokenUsage(5, 3)),
        ({"input_tokens": 5, "output_tokens": 0, "input_tokens_details": None}, TokenUsage(5, 0)),
        ({"input_tokens": 5}, None),
        ({"input_tokens": "5", "output_tokens": 3}, None),
        ({**USAGE, "input_tokens_details": {"cached_tokens": None}}, TokenUsage(90, 7)),
        (USAGE, TokenUsage(90, 7, 40, 30)),
    ],
)
def test_usage_is_read_as_far_as_it_is_given(usage: Json | None, read: TokenUsage | None) -> None:
    assert answer_of(message("Hi."), end(usage=usage)).usage == read


# Failures


def failure(event: Json, *, began: bool) -> AttemptFailure:
    """Return what a failure in a stream means."""
    with pytest.raises(StreamFailedError) as failed:
        read([sse(text("Hi")), b"data: " + orjson.dumps(event) + b"\n\n"])
    said = read_response(200, {}, orjson.dumps(failed.value.body).decode())
    return failure_of_body(said, said.message, "m", streaming=began)


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("context_length_exceeded", ModelOverflow),
        ("invalid_encrypted_content", ModelRejected),
        ("insufficient_quota", ModelAuthError),
        ("credit_balance_exhausted", ModelAuthError),
        ("project_spend_limit_exceeded", ModelAuthError),
        ("server_error", None),
        ("rate_limit_exceeded", None),
    ],
)
def test_failures_mean_what_they_would_without_a_stream(
    code: str, kind: type[Exception] | None, began: bool
) -> None:
    error = {"code": code, "message": "Oh."}
    for event in (
        end("failed", error=error),
        {"type": "error", **error, "param": None},
        {"type": "error", "error": {**error, "type": "x"}},
        {"error": error},
    ):
        failed = failure(event, began=began)
        usual = ModelProtocolError if began else ModelUnavailable
        assert isinstance(failed.error, kind or usual)
        assert failed.retry is (kind is None)
        assert failed.error.message.endswith("Oh.")


def test_a_failure_without_reasons_is_one() -> None:
    for event in (end("failed", error=None), {"type": "error"}, {"code": "x", "error": "Oh."}):
        assert failure(event, began=False).retry


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"[DONE]",
        b'{"type":"response.output_text.delta"}',
        b'{"type":"response.output_text.delta","output_index":0,"delta":7}',
        b'{"type":"response.output_item.done","output_index":0,"item":null}',
        b'{"type":"response.output_item.done","output_index":0,"item":{}}',
        b'{"type":"response.completed"}',
        b'{"type":"response.completed","response":{"output":7}}',
        b'{"type":"response.failed"}',
        b'{"type":7,"delta":"\\ud83d"',
        b"\xff\\u",
        b"[" * 100_000 + b'"\\u',
    ],
    ids=range(13),
)
def test_what_the_api_does_not_define_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        list(ResponsesDecoder("m").feed(ServerEvent("", data)))


def test_an_empty_delta_is_none() -> None:
    deltas, decoder = read(map(sse, (text(""), text(None), message("Hi."), end())))
    assert deltas == []
    assert decoder.finished


# What goes back


def kept(*events: Json) -> Json:
    """Return the opaque data of an answer."""
    opaque = answer_of(*events, end()).opaque
    return opaque.data if opaque is not None else {}


def test_reasoning_that_is_not_encrypted_is_not_kept_and_no_ids_are() -> None:
    data = kept(reasoning(0, encrypted_content=None), call("{}", 1))
    assert data == {"items": [["call", 0, None]]}


def test_items_without_ids_or_with_odd_ones_have_none() -> None:
    for odd in (None, "", 7, "x" * 65, "a b"):
        data = kept(reasoning(0), message("Hi.", 1, id=odd, phase="final_answer"))
        assert data["items"] == [["reasoning", 0, None], ["text", "", None, "final_answer"]]


def test_several_texts_keep_their_places() -> None:
    data = kept(message("A", 0), call("{}", 1), message("B", 2))
    assert [one[:2] for one in data["items"]] == [["text", "A"], ["call", 0], ["text", "B"]]


def test_an_empty_message_is_not_kept() -> None:
    data = kept(reasoning(0), message("", 1), call("{}", 2))
    assert data["items"] == [["reasoning", 0, None], ["call", 0, None]]


def test_searches_at_the_provider_go_back_as_they_are() -> None:
    search: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
    data = kept(reasoning(0), done(search, 1), message("Hi.", 2))
    assert data["items"][1] == ["other", search, "ws_1"]


def test_images_that_the_model_made_are_files() -> None:
    image: Json = {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}
    answer = answer_of(reasoning(0), done(image, 1), message("Here.", 2), end())
    assert answer.files == ("data:image/png;base64,AAAA",)
    assert answer.opaque is not None
    assert answer.opaque.data == {"items": [["text", "", None, None]]}


def test_every_order_of_events_gives_the_same_answer() -> None:
    events = [reasoning(0), message("Hi.", 1), call("{}", 2)]
    answers = [answer_of(*order, end()) for order in itertools.permutations(events)]
    assert all(one == answers[0] for one in answers)
