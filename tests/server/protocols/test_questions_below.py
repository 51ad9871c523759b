"""Clients of every protocol see and answer what sub-agents and background tasks ask."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import pytest
from mcp import Client

from agent_runtime.delegation import background
from agent_runtime.server.protocols import asked, parts
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.openai_chat import ANSWERED
from agent_runtime.server.protocols.turns import ClientTurns, UserTurns
from tests.server.protocols.delegating import ERASED, Boss, boss, erased


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "POLL_SECONDS", 0.02)


async def events(world: Boss, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a stream that a request begins."""
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", world.url + path, json=body) as response,
    ):
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                yield orjson.loads(line.removeprefix("data: "))


def ui(text: str, *more: dict[str, Any]) -> dict[str, Any]:
    """Return what the AI SDK's transport sends."""
    user = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "t", "trigger": "submit-message", "messages": [user, *more]}


async def test_ai_sdk_a_background_tasks_approval_is_one_of_the_message(tmp_path: Path) -> None:
    async with boss(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:
        first = [one async for one in events(world, "/ai-sdk/boss", ui("background"))]
        question = await world.asked("t")
        # It may have come after the turn: then a client that comes back sees it.
        again = (await http.get("/ai-sdk/boss/t/stream")).text
        assert f'"approvalId":"{question.id}"' in again and '"messageId"' not in again
        assert first[-1]["type"] == "finish"
        asks = {"type": "dynamic-tool", "toolName": "erase", "toolCallId": question.id}
        given = {"id": question.id, "approved": True}
        answer = {**asks, "state": "approval-responded", "approval": given}
        message = {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}, answer]}
        with anyio.fail_after(60):
            sent = ui("background", message)
            after = [one async for one in events(world, "/ai-sdk/boss", sent)]
        kinds = [one["type"] for one in after]
        assert kinds == ["start", "tool-input-available", "tool-output-available", "finish"]
        assert after[2]["toolCallId"] == question.id
        await erased()
        assert (await http.get("/ai-sdk/boss/t/stream")).status_code == 204


async def test_ag_ui_a_question_comes_while_the_run_works_and_is_answered_then(
    tmp_path: Path,
) -> None:
    async with boss(tmp_path) as world:
        body: dict[str, Any] = {"threadId": "t", "runId": "1", "state": {}, "forwardedProps": {}}
        body |= {"tools": [], "context": []}
        said = {"id": "u", "role": "user", "content": "background, hold"}
        shown: list[dict[str, Any]] = []
        began = 0
        async for event in events(world, "/ag-ui/boss", {**body, "messages": [said]}):
            shown.append(event)
            if event["type"] == "CUSTOM" and event["name"] == "question":
                assert event["value"]["metadata"]["question"]["tool"] == "erase" and not ERASED
                chosen = {"interruptId": event["value"]["id"], "status": "resolved"}
                resume = [{**chosen, "payload": {"allow": True}}]
                again = {**body, "runId": "2", "messages": [said], "resume": resume}
                async for other in events(world, "/ag-ui/boss", again):
                    # The answer's turn is the rest of the run that works.
                    world.gate.set()
                    shown.append(other)
                    began += other["type"] == "RUN_STARTED"
                    # Its client takes nothing before.
                    assert began
        ends = [one["outcome"] for one in shown if one["type"] == "RUN_FINISHED"]
        assert ends == [{"type": "success"}] * 2 and began == 1
        await erased()


async def test_openai_a_background_task_asks_with_the_answer(tmp_path: Path) -> None:
    async with boss(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=60) as http:

        async def send(message: dict[str, Any]) -> dict[str, Any]:
            body = {"model": "boss", "metadata": {"thread": "t"}, "messages": [message]}
            done = await http.post("/v1/chat/completions", json=body)
            assert done.status_code == 200, done.text
            return done.json()["choices"][0]

        await send({"role": "user", "content": "background"})
        question = await world.asked("t")
        choice = await send({"role": "user", "content": "And?"})
        assert choice["message"]["content"] == "Yes." and choice["finish_reason"] == "tool_calls"
        [call] = choice["message"]["tool_calls"]
        assert call["id"] == question.id and call["function"]["name"] == "approve"
        answer = {"role": "tool", "tool_call_id": call["id"], "content": "no"}
        choice = await send(answer)
        assert choice["message"]["content"] == ANSWERED and choice["finish_reason"] == "stop"
        assert await world.runtime.questions(thread="t", user="ada") == [] and not ERASED


async def test_mcp_a_result_is_not_waited_for_while_a_person_is_asked(tmp_path: Path) -> None:
    async with (
        boss(tmp_path) as world,
        Client(f"{world.url}/mcp") as client,
    ):

        async def call(name: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result
            return result.structured_content or {}

        run = await call("start_task", task="background, hold", thread="t")
        with anyio.fail_after(60):
            waiting = await call("task_result", run_id=run["run_id"], wait_seconds=3000)
        assert waiting["status"] == "running"
        [question] = waiting["questions"]
        assert (question["tool"], question["task_key"]) == ("erase", "k")
        world.gate.set()
        with anyio.fail_after(60):
            ended = await call("task_result", run_id=run["run_id"], wait_seconds=3000)
        assert ended["status"] == "succeeded" and len(ended["questions"]) == 1
        await world.asked("t")
        answered = await call("answer_question", question_id=question["id"], answer=True)
        assert answered["run_id"] == run["run_id"] and answered["questions"] == []
        await erased()


async def a2a(world: Boss, *content: dict[str, Any], **names: str) -> dict[str, Any]:
    """Send a message to the agent; return the task, or the error."""
    key = str(orjson.dumps([content, names]))
    message = {"messageId": key, "role": "ROLE_USER", "parts": [*content], **names}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with httpx.AsyncClient(base_url=world.url, timeout=60) as http:
        given = (await http.post("/a2a/boss", json=body)).json()
    return given["result"]["task"] if "result" in given else given["error"]


async def test_a2a_a_task_that_is_over_shows_and_takes_what_its_background_asks(
    tmp_path: Path,
) -> None:
    async with boss(tmp_path) as world:
        task = await a2a(world, {"text": "background"}, contextId="t")
        question = await world.asked("t")
        refused = await a2a(world, {"text": "yes"}, taskId=task["id"])
        assert "takes no message" in refused["message"] and not ERASED
        stale = {"data": {"answers": {question.id: True}, "digests": {question.id: "0" * 64}}}
        refused = await a2a(world, stale, taskId=task["id"])
        assert "shown otherwise" in refused["message"] and not ERASED
        # As a task of its own the background run waits for an answer.
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": question.run_id}}
        async with httpx.AsyncClient(base_url=world.url, timeout=None) as http:
            own = (await http.post("/a2a/boss", json=body)).json()["result"]
        assert own["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        named = {
            "data": {"answers": {question.id: True}, "digests": {question.id: question.digest}}
        }
        done = await a2a(world, named, taskId=task["id"])
        assert done["id"] == task["id"] and done["status"]["state"] == "TASK_STATE_COMPLETED"
        await erased()


async def test_a2a_a_late_yes_approves_nothing_that_its_sender_has_not_seen(
    tmp_path: Path,
) -> None:
    async with boss(tmp_path) as world:
        task = await a2a(world, {"text": "wait"}, contextId="t")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        question = await world.asked("t")
        for unnamed in ({"text": "yes"}, {"data": True}, {"data": {"allow": True}},
                        {"text": f"#{'0' * 8} yes"}):  # fmt: skip
            refused = await a2a(world, unnamed, taskId=task["id"])
            assert "does not name the question" in refused["message"], unnamed
        assert not ERASED and await world.runtime.questions(thread="t", user="ada") == [question]
        # A plain text repeats the code that was shown with the question.
        shown = task["status"]["message"]["parts"][0]["text"]
        code = shown.rpartition(" ")[2]
        done = await a2a(world, {"text": f"{code} yes"}, taskId=task["id"])
        assert done["status"]["state"] == "TASK_STATE_COMPLETED" and ERASED == ["/a"]
        # The same answer once more is about a question that is closed.
        again = await a2a(world, {"text": f"{code}  yes"}, taskId=task["id"])
        assert "takes no message" in again["message"]


async def test_an_answer_continues_a_task_whose_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with boss(tmp_path) as world:
        await a2a(world, {"text": "background"}, contextId="t")
        question = await world.asked("t")
    # In this test both processes are one, so only time shows that the first is gone.
    monkeypatch.setattr(background, "LEFT_SECONDS", 0.0)
    async with boss(tmp_path) as world:
        message = {"data": {"answers": {question.id: True}}}
        task = (await world.runtime.store_of("ada").runs.get(question.run_id)).root_run_id
        assert (await a2a(world, message, taskId=task))["id"] == task
        await erased()


async def test_an_answer_of_a_sub_agent_sent_again_is_the_turn_that_it_began(
    tmp_path: Path,
) -> None:
    async with boss(tmp_path) as world:
        assert world.agent is not None
        mine = UserTurns(ClientTurns({"boss": world.agent}), world.runtime, "ada")
        async with mine.parts(await mine.begin("boss", Message("wait"), "t")) as given:
            first = [one async for one in given]
        assert isinstance(first[-1], parts.Suspended)
        [question] = first[-1].questions
        kinds: list[list[type[parts.Part]]] = []
        for _ in range(2):
            turn = await mine.answer("t", {question.id: True})
            async with mine.parts(turn) as given:
                found = [one async for one in given]
            kinds.append([type(one) for one in found if not isinstance(one, parts.Other)])
        [began, again] = kinds
        assert began[0] is again[0] is parts.Begun and began[-1] is again[-1] is parts.Over
        # Nothing of what came before the answer: the call that delegated is not given again.
        assert parts.Called not in began + again
        assert again.count(parts.Returned) == 1
        await erased()
