"""The loopback server itself, which other tests rely on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import httpx
import pytest

from agent_runtime.testing.model_server import (
    OpenAIServer,
    Reply,
    call_then_answer,
    example,
    rate_limited,
)
from agent_runtime.testing.prompt_meter import PromptMeter

TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
            "required": ["path", "line"],
        },
    },
}


def body(*texts: str, **more: Any) -> dict[str, Any]:
    """Return a request's JSON."""
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, **more}


async def test_one_connection_serves_plain_and_streamed_requests() -> None:
    replies = [Reply(text="One."), Reply(text="Two."), rate_limited("3")]
    async with (
        OpenAIServer(lambda _, n: replies[n]) as server,
        httpx.AsyncClient(base_url=server.base_url) as client,
    ):
        whole = (await client.post("/chat/completions", json=body("a"))).json()
        lines = (await client.post("/chat/completions", json=body("a", stream=True))).text
        limited = await client.post("/chat/completions", json=body("a"))
        assert server.open_connections == 1
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "One."}
    assert whole["usage"]["total_tokens"] > 0
    assert lines.endswith("data: [DONE]\n\n")
    assert "".join(re.findall(r'"content":"([^"]*)"', lines)) == "Two."
    assert "usage" not in lines
    assert (limited.status_code, limited.headers["retry-after"]) == (429, "3")
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    assert [recorded.json["messages"][0]["content"] for recorded in server.requests] == ["a"] * 3
    assert server.busy_seconds > 0


def test_the_cached_part_is_the_longest_common_prefix_of_the_same_model() -> None:
    meter = PromptMeter(factor=2.0)
    long = "one two three " * 500
    first = meter.measure(body(long))
    grown = meter.measure(body(long, "more"))
    changed = meter.measure(body("x" + long))
    other = meter.measure(body(long) | {"model": "other"})
    assert first.cached == changed.cached == other.cached == 0
    assert 0.9 * first.prompt < grown.cached <= first.prompt < grown.prompt
    assert first.prompt == other.prompt == pytest.approx(3000, rel=0.05)


def test_an_older_branch_of_a_prompt_is_still_cached() -> None:
    meter = PromptMeter(factor=1.0)
    long = "one two three " * 500
    meter.measure(body(long, "left " * 500))
    meter.measure(body(long, "right " * 500))
    again = meter.measure(body(long, "left " * 500, "more"))
    assert again.cached > 0.9 * (again.prompt - 10)


def test_a_cache_mark_is_not_counted() -> None:
    meter = PromptMeter(factor=1.0)
    text = "one two three " * 500
    plain = meter.measure(body(text))
    part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    marked = meter.measure({"model": "m", "messages": [{"role": "user", "content": [part]}]})
    assert marked.prompt == plain.prompt
    assert marked.cached > 0.9 * plain.prompt


def test_the_default_script_calls_the_first_tool_and_then_answers() -> None:
    script = call_then_answer(2)
    request = body("Go.", tools=[TOOL])
    first, second, third, fourth = (script(request, n) for n in range(4))
    assert first.calls == (("read", {"path": "path 0", "line": 0}),)
    assert second.calls == (("read", {"path": "path 1", "line": 1}),)
    assert (third.text, third.calls) == ("Done.", ())
    assert fourth.calls
    assert script(body("Go."), 0).text == "Done."


def test_an_example_has_the_required_properties_only() -> None:
    schema = {"properties": {"a": {"type": "boolean"}, "b": {}}, "required": ["a"]}
    assert example(schema, 1) == {"a": False}
    assert example({}, 1) == {}


def test_the_server_runs_as_a_program() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "agent_runtime.testing", "--steps", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            base_url = process.stdout.readline().strip()
            answer = httpx.post(f"{base_url}/chat/completions", json=body("Hi."), timeout=30)
        finally:
            process.terminate()
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
