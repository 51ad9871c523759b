"""The clients that others wrote, from npm: a whole run with a tool, a reconnect, an approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_runtime.messages import AssistantMessage, UserMessage
from tests.server.protocols.delegating import boss, erased
from tests.server.protocols.serving import Desk, desk, run_client
from tests.services.fixtures import missing
from tests.services.process import MissingPart


async def client(name: str, folder: Path, url: str) -> dict[str, Any]:
    """Run a client against a server; the test is skipped if its packages are missing."""
    try:
        return await run_client(name, folder, url)
    except MissingPart as error:
        missing(error)


async def whole_run(name: str, folder: Path) -> tuple[dict[str, Any], Desk]:
    """Run a client against the application; check what the store and the tools saw."""
    async with desk(folder) as world:
        said = await client(name, folder, world.url)
        [thread] = await world.runtime.threads.list(user="ada")
        messages = await world.runtime.threads.messages(thread.id, user="ada")
        assert [one.text for one in messages if isinstance(one.message, UserMessage)] == ["Go"]
        assert world.erased == ["notes.md"]
        assert len(await world.runtime.store_of("ada").runs.list(thread_id=thread.id)) == 1
        last = messages[-1].message
        assert isinstance(last, AssistantMessage) and last.text.startswith("Done: 8.")
    return said, world


@pytest.mark.slow
async def test_ag_ui(tmp_path: Path) -> None:
    said, _ = await whole_run("ag_ui.mjs", tmp_path)
    assert said["broken"]
    [interrupt] = said["interrupts"]
    assert interrupt["reason"] == "approval" and interrupt["responseSchema"]["required"] == [
        "allow"
    ]
    assert said["finished"]["outcome"] == {"type": "success"}
    assert said["finished"]["result"] == "Done: 8.\nThe notes are gone."
    messages = said["messages"]
    results = {one["toolCallId"]: one["content"] for one in messages if one["role"] == "tool"}
    called = {
        made["function"]["name"]: results[made["id"]]
        for one in messages
        for made in one.get("toolCalls", [])
    }
    assert called == {"double": "8", "hold": "held", "erase": "erased notes.md"}
    texts = [
        one["content"] for one in messages if one["role"] == "assistant" and one.get("content")
    ]
    assert texts == ["I begin.\nFirst I double.", "Done: 8.\nThe notes are gone."]
    assert {"STEP_STARTED", "STEP_FINISHED", "TEXT_MESSAGE_CONTENT"} <= set(said["kinds"])


async def test_ai_sdk(tmp_path: Path) -> None:
    said, _ = await whole_run("ai_sdk.mjs", tmp_path)
    message = said["message"]
    assert said["broken"] == message["id"] == message["metadata"]["runId"]
    assert said["asked"]["state"] == "approval-requested"
    assert said["idle"] is None
    outputs = {one["toolName"]: one.get("output") for one in message["parts"] if "toolName" in one}
    assert outputs == {"double": "8", "hold": "held", "erase": "erased notes.md"}
    texts = [one["text"] for one in message["parts"] if one["type"] == "text"]
    assert texts == ["I begin.\nFirst I double.", "Done: 8.\nThe notes are gone."]


@pytest.mark.slow
async def test_ag_ui_with_a_background_task(tmp_path: Path) -> None:
    async with boss(tmp_path) as world:
        said = await client("ag_ui_below.mjs", tmp_path, world.url)
        assert said["error"] == "" and said["finished"] == ["success", "success"]
        assert said["asked"]["metadata"]["question"]["task_key"] == "k"
        await erased()


@pytest.mark.slow
async def test_ai_sdk_with_a_background_task(tmp_path: Path) -> None:
    async with boss(tmp_path) as world:
        said = await client("ai_sdk_below.mjs", tmp_path, world.url)
        assert said["said"] == ["It is on its way."]
        assert said["asked"]["state"] == "approval-requested"
        assert said["asked"]["toolName"] == "erase" and said["asked"]["input"] == {"path": "/a"}
        assert said["settled"]["state"] == "output-available"
        await erased()


async def test_mcp(tmp_path: Path) -> None:
    said, _ = await whole_run("mcp.mjs", tmp_path)
    assert said["tools"] == [
        "start_task", "task_status", "task_result", "steer_task", "cancel_task", "answer_question",
    ]  # fmt: skip
    assert said["asking"]["status"] == "suspended"
    assert said["asking"]["questions"][0]["arguments"] == {"path": "notes.md"}
    assert any("calls erase" in one["message"] for one in said["progress"])
    assert said["ended"]["status"] == "succeeded"
    assert said["ended"]["output"] == "Done: 8.\nThe notes are gone."
