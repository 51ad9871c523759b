"""Gemini's wire: what streams become, whole, broken, or of a form that nobody expects."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agent_runtime.errors import ModelProtocolError
from agent_runtime.models.base import ReasoningDelta, TextDelta, TokenUsage
from agent_runtime.models.wire.base import HoppingDecoder, ServerEvent, StreamFailedError
from agent_runtime.models.wire.sse import SseParser
from tests.models.wire.gemini_talk import (
    MODEL,
    NAME,
    SIGNED,
    asked,
    chunk,
    event,
    feed,
    read,
    text_of,
    wire,
)

CALL = {"functionCall": {"name": "look", "args": {"at": "a"}, "id": "x1"}}
SIGNED_CALL = CALL | {"thoughtSignature": SIGNED}
USED = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 3,
    "toolUsePromptTokenCount": 5,
}
WHOLE = (
    chunk({"text": "I think.", "thought": True}, usageMetadata={"promptTokenCount": 100}),
    chunk({"text": "Hel"}, usageMetadata={"promptTokenCount": 100, "candidatesTokenCount": 2}),
    chunk({"text": "lo \u2713"}),
    chunk(SIGNED_CALL),
    chunk({"functionCall": {"name": "look", "args": {"at": "b"}}}, word="STOP", usageMetadata=USED),
)


def test_a_whole_answer() -> None:
    decoder = wire().decoder()
    deltas = feed(decoder, *WHOLE)
    assert text_of(deltas, ReasoningDelta) == "I think."
    assert text_of(deltas, TextDelta) == "Hello \u2713"
    answer = decoder.answer()
    assert (answer.text, answer.reasoning) == ("Hello \u2713", "I think.")
    assert [(one.name, one.arguments) for one in answer.calls] == [
        ("look", '{"at":"a"}'),
        ("look", '{"at":"b"}'),
    ]
    assert (answer.finish, answer.word, answer.model) == ("tool_calls", "STOP", NAME)
    assert answer.usage == TokenUsage(prompt=105, completion=10, cached=60, reasoning=3)
    assert answer.opaque is not None
    assert answer.opaque.data == {"signatures": [SIGNED, None]}
    assert answer.extra == {"reported_model": MODEL}


def test_a_stream_may_be_split_anywhere() -> None:
    sent, whole = b"".join(WHOLE), read(*WHOLE)
    for size in (1, 7, 100):
        assert read(*[sent[at : at + size] for at in range(0, len(sent), size)]) == whole
    for at in range(len(sent)):
        assert read(sent[:at], sent[at:]) == whole


def test_an_answer_is_broken_at_every_event_but_the_last() -> None:
    for number in range(len(WHOLE)):
        decoder = wire().decoder()
        feed(decoder, *WHOLE[:number])
        with pytest.raises(ModelProtocolError, match="broke off"):
            decoder.answer()


def test_chunks_after_the_finish_reason_still_count() -> None:
    late = event({"usageMetadata": USED, "modelVersion": MODEL})
    answer = read(chunk({"text": "Hi."}, word="STOP"), late)
    assert answer.usage == TokenUsage(prompt=105, completion=10, cached=60, reasoning=3)
    assert not wire().decoder().finished


# What goes back


@pytest.mark.parametrize(
    ("parts", "data"),
    [
        ([{"text": "a"}, {"text": "b"}], None),
        ([{"text": "a"}, CALL], None),
        ([{"text": "a"}, {"text": "b"}, CALL, SIGNED_CALL], {"signatures": [None, SIGNED]}),
        (
            [{"text": "a"}, {"text": "b"}, {"text": "", "thoughtSignature": SIGNED}],
            {"parts": [["text", 2, ""], ["text", 0, SIGNED]]},
        ),
        (
            [{"text": "a", "thoughtSignature": SIGNED}, {"text": "b"}, {"text": ""}, {"text": "c"}],
            {"parts": [["text", 1, SIGNED], ["text", 2, ""]]},
        ),
        (
            [{"text": "a"}, CALL, {"text": "b"}],
            {"parts": [["text", 1, ""], ["call"], ["text", 1, ""]]},
        ),
        (
            [{"text": "t", "thought": True, "thoughtSignature": SIGNED}, {"text": "a"}],
            {"parts": [["thought", "t", SIGNED], ["text", 1, ""]]},
        ),
        ([{"text": "a"}, {"text": "t", "thought": True}, {"text": "b"}], None),
        ([{"text": "a"}, {"thoughtSignature": SIGNED}], None),
    ],
)
def test_what_goes_back_with_an_answer(parts: list[Any], data: Any) -> None:
    answer = read(*[chunk(part) for part in parts], chunk(word="STOP"))
    assert (answer.opaque.data if answer.opaque else None) == data
    assert read(chunk(*parts, word="STOP")).opaque == answer.opaque


def test_images_of_the_model_are_files() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": SIGNED}
    draft = {"inlineData": {"mimeType": "image/png", "data": "bm8="}, "thought": True}
    answer = read(chunk(draft), chunk(image, word="STOP"))
    assert answer.files == ("data:image/png;base64,aGk=",)
    assert (answer.text, answer.finish) == ("", "stop")


# Ends


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "malformed"),
        ("MALFORMED_RESPONSE", "malformed"),
        ("UNEXPECTED_TOOL_CALL", "malformed"),
        ("SOMETHING_NEW", "unknown"),
        ("CONTINUATION", "length"),
    ],
)
def test_finish_reasons(word: str, finish: str) -> None:
    answer = read(chunk({"text": "Hi."}, word=word))
    assert (answer.finish, answer.word) == (finish, word)


def test_an_unspecified_finish_reason_is_none() -> None:
    with pytest.raises(ModelProtocolError):
        read(chunk({"text": "Hi."}, word="FINISH_REASON_UNSPECIFIED"))


def test_a_blocked_prompt() -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USED}
    answer = read(event(blocked))
    assert (answer.finish, answer.text) == ("content_filter", "")
    assert answer.word == "content_filter: PROHIBITED_CONTENT"
    harmless = event({"promptFeedback": {"safetyRatings": []}})
    assert read(harmless, chunk({"text": "Hi."}, word="STOP")).finish == "stop"


def test_an_answer_without_anything_is_none() -> None:
    with pytest.raises(ModelProtocolError, match="answered nothing"):
        read(chunk({"text": "Hm.", "thought": True}), chunk({"text": ""}, word="STOP"))
    with pytest.raises(ModelProtocolError, match="answered nothing"):
        read(event({"candidates": [{"finishReason": "STOP"}]}))


# Adversity


@pytest.mark.parametrize("usage", [None, {}, [1], {"promptTokenCount": None}, {"other": 1}])
def test_usage_may_be_missing(usage: Any) -> None:
    assert read(chunk({"text": "Hi."}, word="STOP", usageMetadata=usage)).usage is None


def test_a_chunk_without_usage_keeps_the_last() -> None:
    answer = read(chunk({"text": "Hi."}, usageMetadata=USED), chunk(word="STOP"))
    assert answer.usage == TokenUsage(prompt=105, completion=10, cached=60, reasoning=3)


def test_what_is_unknown_is_passed_over() -> None:
    answer = read(
        b": a comment\n\n",
        b"event: ping\ndata: {}\n\n",
        chunk({"executableCode": {"code": "1"}}, {"text": "H", "new": [1]}, {"toolCall": {}}),
        event({"candidates": [], "new": {"a": 1}}),
        event({"candidates": [{"content": None}]}),
        event({"candidates": [{"content": {"role": "model"}}]}),
        chunk({"text": "i"}, word="STOP", candidate={"groundingMetadata": {}}, responseId="r"),
        event({"candidates": [{"index": 0, "groundingMetadata": {}}]}),
    )
    assert (answer.text, answer.finish) == ("Hi", "stop")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "{}"),
        (None, "{}"),
        ([1, 2], "[1,2]"),
        ("text", '"text"'),
        ({"a": "\u2713" * 100_000}, '{"a":"' + "\u2713" * 100_000 + '"}'),
    ],
)
def test_arguments_of_any_form(arguments: Any, text: str) -> None:
    part = {"functionCall": {"name": "look", "args": arguments}}
    [one] = read(chunk(part, word="STOP")).calls
    assert one.arguments == text
    [bare] = read(chunk({"functionCall": {"name": "look"}}, word="STOP")).calls
    assert bare.arguments == "{}"


def test_characters_in_two_halves() -> None:
    halves = [chunk({"text": text}) for text in ("a@", "@b")]
    pieces = [half.replace(b"@", code) for half, code in zip(halves, _CODES, strict=True)]
    decoder = wire().decoder()
    deltas = feed(decoder, *pieces, chunk({"text": "", "thoughtSignature": SIGNED}, word="STOP"))
    assert text_of(deltas, TextDelta) == "a\U0001f600b"
    answer = decoder.answer()
    assert answer.text == "a\U0001f600b"
    assert answer.opaque is not None
    assert answer.opaque.data == {"parts": [["text", 3, ""], ["text", 0, SIGNED]]}


_CODES = (b"\\ud83d", b"\\ude00")


def test_lone_halves_are_replaced() -> None:
    text = chunk({"text": "a@"}).replace(b"@", _CODES[0])
    called = chunk({"functionCall": {"name": "look", "args": {"a": "@"}}}, word="STOP")
    answer = read(text, called.replace(b"@", _CODES[1]))
    assert answer.text == "a\ufffd"
    assert answer.calls[0].arguments == '{"a": "\ufffd"}'


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"candidates": [}',
        b'{"a": "\\ud83d"',
        b'["\\ud83d' + b'",[' * 100_000,
        b"[1]",
        b"1",
        b"null",
        b'"text"',
        b'{"candidates": 1}',
        b'{"candidates": {"content": {}}}',
        b'{"candidates": [1]}',
        b'{"candidates": [{"content": {"parts": "text"}}]}',
        b'{"candidates": [{"content": {"parts": [{"text": 1}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"text": ["a"]}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"functionCall": "look"}]}}]}',
        b'{"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "a/b"}}]}}]}',
        b'{"promptFeedback": "no"}',
    ],
)
def test_events_of_another_form_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(wire().decoder().feed(ServerEvent("", data)))


def test_a_server_that_does_not_stream_sends_an_array() -> None:
    chunks = [orjson.loads(one.removeprefix(b"data: ")) for one in WHOLE]
    decoder = wire().decoder()
    deltas = list(decoder.feed(ServerEvent("", orjson.dumps(chunks))))
    assert text_of(deltas, TextDelta) == "Hello \u2713"
    assert decoder.answer() == read(*WHOLE)


# Errors

ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
PRETTY = orjson.dumps(ERROR, option=orjson.OPT_INDENT_2)


@pytest.mark.parametrize(
    "sent",
    [
        event(ERROR),
        event([ERROR]),
        b"event: error\r\n" + event(ERROR),
        orjson.dumps(ERROR) + b"\n",
        PRETTY,
        PRETTY.replace(b"\n", b"\r\n") + b"\r\n\r\n",
        b"[" + PRETTY + b"\n]\n",
    ],
)
def test_an_error_in_mid_stream(sent: bytes) -> None:
    for pieces in ([sent], [sent[at : at + 1] for at in range(len(sent))]):
        decoder = wire().decoder()
        with pytest.raises(StreamFailedError) as failed:
            feed(decoder, chunk({"text": "Hel"}), *pieces)
        assert failed.value.body == ERROR
        with pytest.raises(ModelProtocolError):
            decoder.answer()


def test_bare_json_ends_at_an_empty_line() -> None:
    stream = SseParser()
    events = [*stream.feed(PRETTY + b"\n\ndata: 1\n\n"), *stream.close()]
    assert [orjson.loads(one.data) for one in events] == [ERROR, 1]


# Answers in several requests


def test_an_answer_is_continued_with_its_token() -> None:
    request = asked(max_output=200_000)
    decoder = wire().decoder()
    assert isinstance(decoder, HoppingDecoder)
    hop = {"promptTokenCount": 10, "candidatesTokenCount": 4}
    feed(decoder, chunk({"text": "Hm.", "thought": True}, candidate={"continuationToken": "t0"}))
    last = {"continuationToken": "t1"}
    feed(decoder, chunk({"text": "On"}, word="CONTINUATION", candidate=last, usageMetadata=hop))
    second = decoder.next_request(request)
    assert second is not None
    body = orjson.loads(second.body)
    assert body.pop("continuationToken") == "t1"
    assert body == orjson.loads(request.body)
    assert second.url == request.url
    feed(decoder, chunk({"text": "ce"}, word="CONTINUATION", candidate={"continuationToken": "t2"}))
    third = decoder.next_request(request)
    assert third is not None
    assert orjson.loads(third.body)["continuationToken"] == "t2"
    feed(decoder, chunk({"text": " more"}), chunk(CALL, word="STOP", usageMetadata=hop))
    assert decoder.next_request(request) is None
    answer = decoder.answer()
    assert (answer.text, answer.finish, len(answer.calls)) == ("Once more", "tool_calls", 1)
    assert answer.usage == TokenUsage(prompt=20, completion=8)


def test_an_answer_that_is_continued_without_end_is_not() -> None:
    decoder = wire().decoder()
    same = chunk({"text": "On"}, word="CONTINUATION", candidate={"continuationToken": "t1"})
    feed(decoder, same)
    assert decoder.next_request(asked()) is not None
    with pytest.raises(ModelProtocolError, match="broke off"):
        decoder.answer()
    feed(decoder, same)
    assert decoder.next_request(asked()) is None
    assert decoder.answer().finish == "length"


def test_a_broken_stream_is_continued_only_from_its_last_token() -> None:
    saved = chunk({"text": "On"}, candidate={"continuationToken": "t1"})
    decoder = wire().decoder()
    feed(decoder, saved)
    assert decoder.next_request(asked()) is not None
    with pytest.raises(ModelProtocolError, match="broke off"):
        decoder.answer()
    decoder = wire().decoder()
    feed(decoder, saved, chunk({"text": "ce"}))
    assert decoder.next_request(asked()) is None
    decoder = wire().decoder()
    feed(decoder, chunk({"text": "On"}))
    assert decoder.next_request(asked()) is None


@pytest.mark.parametrize("word", ["STOP", "MAX_TOKENS", "SAFETY"])
def test_an_answer_at_its_end_is_not_continued(word: str) -> None:
    decoder = wire().decoder()
    feed(decoder, chunk({"text": "On"}, word=word, candidate={"continuationToken": "t1"}))
    assert decoder.next_request(asked()) is None
