"""OpenAI's SDK over threads: streams, approvals, retries, what is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI

from agent_runtime.messages import UserMessage
from tests.server.protocols.serving import Desk, desk

THREAD = {"metadata": {"thread": "talk"}}
GO: dict[str, Any] = {"role": "user", "content": "Go"}


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Desk, Any]]:
    """Give the application and the SDK's client, whose overloads no test needs."""
    async with (
        desk(folder) as world,
        AsyncOpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield world, client


async def said_by_users(world: Desk, thread: str = "talk") -> list[str]:
    messages = await world.runtime.threads.messages(thread, user="ada")
    return [one.text for one in messages if isinstance(one.message, UserMessage)]


async def test_a_whole_run_in_streams_with_a_reconnect(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        assert [one.id async for one in client.models.list()] == ["desk"]
        request: dict[str, Any] = {
            "model": "desk", "messages": [GO], "extra_body": THREAD, "stream": True,
            "extra_headers": {"Idempotency-Key": "first"},
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        stream = await client.chat.completions.create(**request)
        async for chunk in stream:
            if (chunk.choices[0].delta.content or "").endswith("double."):
                break
        await stream.close()
        # The same request again is the same run.
        stream = await client.chat.completions.create(**request)
        world.gate.set()
        chunks = [chunk async for chunk in stream]
        text = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
        assert text == "I begin.\nFirst I double."
        assert chunks[-1].usage and chunks[-1].usage.completion_tokens > 0
        assert chunks[-2].choices[0].finish_reason == "tool_calls"
        [call] = chunks[-3].choices[0].delta.tool_calls
        assert call.function and call.function.name == "approve" and call.id
        assert '"path":"notes.md"' in (call.function.arguments or "")
        asked = {
            "role": "assistant", "content": text,
            "tool_calls": [{"id": call.id, "type": "function", "function": {
                "name": "approve", "arguments": call.function.arguments}}],
        }  # fmt: skip
        answer = {"role": "tool", "tool_call_id": call.id, "content": '{"allow": true}'}
        messages: list[Any] = [GO, asked, answer]
        for _ in range(2):
            # Sent twice, as after a broken connection, it is one answer.
            done = await client.chat.completions.create(
                model="desk", messages=messages, extra_body=THREAD
            )
            assert done.choices[0].message.content == "Done: 8.\nThe notes are gone."
            assert done.choices[0].finish_reason == "stop"
        assert world.erased == ["notes.md"]
        assert await said_by_users(world) == ["Go"]


async def test_a_history_that_is_sent_again_is_not_doubled(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        history: list[Any] = [{"role": "system", "content": "Be brief."}]
        for number in range(3):
            history.append({"role": "user", "content": f"say {number}"})
            for _ in range(2 if number else 1):
                raw = await client.chat.completions.with_raw_response.create(
                    model="desk", messages=history, extra_body=THREAD
                )
                assert raw.headers["x-thread-id"] == "talk"
                done = raw.parse()
                assert done.choices[0].message.content == str(number)
            history.append({"role": "assistant", "content": str(number)})
        assert await said_by_users(world) == ["say 0", "say 1", "say 2"]


@pytest.mark.parametrize(
    ("content", "words"),
    [("maybe", "is not what it asks for"), ('{"allow": "yes"}', "is not what it asks for")],
)
async def test_an_unclear_answer_allows_nothing(tmp_path: Path, content: str, words: str) -> None:
    async with opened(tmp_path) as (world, client):
        world.gate.set()
        asking = await client.chat.completions.create(
            model="desk", messages=[GO], extra_body=THREAD
        )
        [call] = asking.choices[0].message.tool_calls
        assistant: Any = asking.choices[0].message.model_dump(exclude_none=True)
        answer: Any = {"role": "tool", "tool_call_id": call.id, "content": content}
        with pytest.raises(APIStatusError, match=words) as raised:
            await client.chat.completions.create(
                model="desk", messages=[GO, assistant, answer], extra_body=THREAD
            )
        assert raised.value.status_code == 400
        assert not world.erased
        answer["content"] = "no"
        done = await client.chat.completions.create(
            model="desk", messages=[GO, assistant, answer], extra_body=THREAD
        )
        assert done.choices[0].message.content == "Kept." and not world.erased


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "`messages` is missing"),
    ({"messages": [GO]}, 400, "`model`"),
    ({"model": "nobody", "messages": [GO]}, 404, "Use one of: desk"),
    ({"model": "desk", "messages": ["Go"]}, 400, "no object"),
    ({"model": "desk", "messages": [{"role": "user", "content": 3}]}, 400, "no content"),
    ({"model": "desk", "messages": [GO], "n": 2}, 400, "`n` must be 1"),
    ({"model": "desk", "messages": [GO, {"role": "assistant", "content": "x"}, GO]}, 400,
     "name no thread"),
    ({"model": "desk", "messages": [{"role": "tool", "tool_call_id": "q", "content": "yes"}],
      "metadata": {"thread": "talk"}}, 404, "talk"),
    ({"model": "desk", "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]}, 400, "neither a URL"),
    ({"model": "desk", "messages": [GO], "conversation": 7}, 400, "thread's id is no text"),
]  # fmt: skip


async def test_bad_requests_name_cause_and_cure(tmp_path: Path) -> None:
    async with desk(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:
        path = "/v1/chat/completions"
        for body, status, words in BAD:
            answer = await http.post(path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, words in error["message"]) == (status, True), error
        # A page of another site can send this without being asked.
        forged = await http.post(path, content='{"model": "desk"}')
        assert forged.status_code == 415
        assert (await http.post(path, content="{", headers=JSON)).status_code == 400
        assert (await http.post(path, content=" " * (33 << 20), headers=JSON)).status_code == 413
        assert not await world.runtime.threads.list(user="ada")


JSON = {"content-type": "application/json"}


async def test_another_user_sees_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        world.gate.set()
        asking = await client.chat.completions.create(
            model="desk", messages=[GO], extra_body=THREAD
        )
        [call] = asking.choices[0].message.tool_calls
        answer: Any = {"role": "tool", "tool_call_id": call.id, "content": "yes"}
        with pytest.raises(APIStatusError) as raised:
            await client.chat.completions.create(
                model="desk", messages=[answer], extra_body=THREAD, extra_headers={"x-user": "eve"}
            )
        assert raised.value.status_code == 404 and not world.erased


async def test_a_second_message_while_a_run_works_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        stream = await client.chat.completions.create(
            model="desk", messages=[GO], extra_body=THREAD, stream=True
        )
        with pytest.raises(APIStatusError, match="ThreadBusy") as raised:
            await client.chat.completions.create(
                model="desk", messages=[{"role": "user", "content": "say x"}], extra_body=THREAD
            )
        assert raised.value.status_code == 409
        world.gate.set()
        await stream.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("thread", ["日本語", "x\r\nSet-Cookie: a=b", "50%\u2028é"])
async def test_any_id_of_a_thread_goes_through_the_header(
    tmp_path: Path, thread: str, stream: bool
) -> None:
    async with desk(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:
        path, say = "/v1/chat/completions", {"role": "user", "content": "say a"}
        body = {"model": "desk", "messages": [say], "stream": stream}
        first = await http.post(path, json=body | {"metadata": {"thread": thread}})
        assert first.status_code == 200, first.text
        assert "set-cookie" not in first.headers
        named = {"X-Thread-Id": first.headers["x-thread-id"]}
        assert (await http.post(path, json=body, headers=named)).status_code == 200
        assert await said_by_users(world, thread) == ["say a", "say a"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", '{"model":"desk","messages":[{"role":"assistant","content":@}]}'),
        ("/ai-sdk/desk", '{"id":"t","messages":[{"role":"user","parts":[{"x":@}]}]}'),
        ("/ag-ui/desk", '{"threadId":"t","runId":"r","messages":[],"state":@}'),
    ],
)
async def test_a_body_that_cannot_be_written_again_is_refused(
    tmp_path: Path, path: str, body: str
) -> None:
    async with desk(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:
        deep = body.replace("@", "[" * 300 + "]" * 300)
        headers = {"content-type": "application/json"}
        refused = await http.post(path, content=deep, headers=headers)
        assert refused.status_code == 400
        assert "nested too deeply" in refused.text


async def test_a_key_names_a_first_request_and_never_hides_another_message(tmp_path: Path) -> None:
    async with desk(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:

        async def asked(text: str) -> tuple[str, str]:
            body = {"model": "desk", "messages": [{"role": "user", "content": text}]}
            headers = {"Idempotency-Key": "one"}
            answer = (await http.post("/v1/chat/completions", json=body, headers=headers)).json()
            return answer["id"], answer["choices"][0]["message"]["content"]

        first, again, other = [await asked(text) for text in ("say a", "say a", "say b")]
        # A client whose connection broke sends the same again, and knows no thread yet.
        assert first == again and first[1] == "a"
        assert other[0] != first[0] and other[1] == "b"

        async def run(text: str) -> str:
            said = {"id": "m", "role": "user", "content": text}
            body = {"threadId": "t", "runId": "r#1", "messages": [said], "tools": [], "context": []}
            return (await http.post("/ag-ui/desk", json=body)).text

        await run("say a")
        await run("say a")
        assert '"delta":"b"' in await run("say b")
        # A client may have put the answer so far into what it sends again.
        partly = {"id": "n", "role": "assistant", "content": "b"}
        body = {"threadId": "t", "runId": "r#1", "messages": [partly], "tools": [], "context": []}
        assert '"delta":"b"' in (await http.post("/ag-ui/desk", json=body)).text
        body["runId"] = "r"
        assert (await http.post("/ag-ui/desk", json=body)).status_code == 400
        assert await said_by_users(world, "t") == ["say a", "say b"]
