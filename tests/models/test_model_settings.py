"""What `ModelSettings` become on each transport, and what of them is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime import Agent, Event, ModelSettings, Runtime, Settings, model_from_name
from agent_runtime.models.base import SettingIgnored
from agent_runtime.testing.model_server import OpenAIServer, Reply
from tests.models.conftest import READ, Play, request


async def test_they_are_sent_in_the_providers_form(play: Play) -> None:
    settings = ModelSettings(
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("END",),
        reasoning="low",
        tool_choice="read",
        parallel_calls=False,
        extra_headers={"x-team": "blue"},
        extra_body={"min_p": 0.1},
    )
    async with play([Reply(text="Yes.")]) as talk:
        events = await talk.events(request(tools=(READ,), settings=settings))
    sent = talk.server.requests[0]
    assert {key: sent.json.get(key) for key in ("temperature", "top_p", "seed", "min_p")} == {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "min_p": 0.1,
    }
    assert sent.json["stop"] == ["END"]
    assert sent.json["reasoning_effort"] == "low"
    assert sent.json["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert sent.json["parallel_tool_calls"] is False
    assert sent.headers["x-team"] == "blue"
    assert [event for event in events if isinstance(event, SettingIgnored)] == []


async def test_a_choice_of_tools_needs_tools(play: Play) -> None:
    async with play([Reply(text="Yes.")]) as talk:
        await talk.answer(request(settings=ModelSettings(tool_choice="required")))
    assert "tool_choice" not in talk.server.requests[0].json


async def test_a_model_that_reasons_is_sent_no_temperature(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_RUNTIME_FORBID_REAL_MODELS", raising=False)
    async with play([Reply(text="Yes.")], name="openai/o3", base_url=None) as talk:
        # So the server counts as OpenAI's own.
        monkeypatch.setenv("OPENAI_BASE_URL", talk.server.base_url)
        events = await talk.events(request(settings=ModelSettings(temperature=0.5)))
    assert "temperature" not in talk.server.requests[0].json
    ignored = [event for event in events if isinstance(event, SettingIgnored)]
    assert ignored == [SettingIgnored("temperature")]


async def test_the_environment_and_the_agent_set_them_and_a_run_reports_the_ignored_once(
    tmp_path: Path,
) -> None:
    def script(asked: dict[str, Any], n: int) -> Reply:
        return Reply(text="Done.") if n else Reply(calls=(("plan", {"action": "read_plan"}),))

    events: list[Event] = []
    async with OpenAIServer(script) as server:
        settings = Settings(
            database_url=f"file:{tmp_path / 'runs.db'}",
            model_settings='{"temperature": 1.5, "seed": 3, "cache_ttl": "1h"}',
        )
        model = model_from_name("openai/test", base_url=server.base_url, api_key="sk-unused-here")
        agent = Agent(model, planning=True, model_settings=ModelSettings(temperature=0.1))
        async with Runtime.open(settings) as runtime:
            result = await runtime.run(agent, "Plan.", on_event=events.append)
    assert result.ok
    assert [(sent.json["temperature"], sent.json["seed"]) for sent in server.requests] == [
        (0.1, 3)
    ] * len(server.requests)
    ignored = [event.data for event in events if event.kind == "setting-ignored"]
    assert ignored == [{"setting": "cache_ttl"}]
