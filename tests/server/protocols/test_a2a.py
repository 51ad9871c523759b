"""A2A by its SDK's client: a whole task with a tool, a reconnect and an approval; refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest
from a2a.client import ClientConfig
from a2a.client.client import Client
from a2a.client.client_factory import create_client
from a2a.helpers import get_message_text, new_data_part, new_text_message
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.middleware import Middleware

from agent_runtime import Agent, Runtime, ScriptedModel, Settings, tool
from agent_runtime.messages import UserMessage
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, calls, raw_call, say
from agent_runtime.server.protocols.routes import protocol_routes
from tests.delegation.helpers import is_child, step
from tests.server.protocols.serving import Desk, Users, desk
from tests.server.serving import create_app, serving

RPC = {"jsonrpc": "2.0", "id": 7}


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Desk, Client]]:
    """Give the application, and a client that has read its card."""
    async with desk(folder) as world, httpx.AsyncClient(timeout=30) as http:
        config = ClientConfig(httpx_client=http, streaming=True)
        client = await create_client(world.url, client_config=config)
        yield world, client


def asking(text: str, *, key: str = "m1", **names: str) -> pb.SendMessageRequest:
    """Return a request with a message of the user."""
    message = new_text_message(text, role=pb.ROLE_USER, **names)
    message.message_id = key
    return pb.SendMessageRequest(message=message)


def answering(value: Any, task: str) -> pb.SendMessageRequest:
    """Return a request with an answer as data."""
    message = pb.Message(
        message_id=f"answer {value}", task_id=task, role=pb.ROLE_USER, parts=[new_data_part(value)]
    )
    return pb.SendMessageRequest(message=message)


async def test_a_whole_task_with_a_tool_a_reconnect_and_an_approval(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        task = ""
        stream = cast("AsyncGenerator[pb.StreamResponse]", client.send_message(asking("Go")))
        async for update in stream:
            task = update.task.id or task
            if "calls hold" in get_message_text(update.status_update.status.message):
                break
        await stream.aclose()
        assert (await client.get_task(pb.GetTaskRequest(id=task))).status.state == (
            pb.TASK_STATE_WORKING
        )
        # The same message again is the same task.
        updates: list[pb.StreamResponse] = []
        async for update in client.send_message(asking("Go")):
            world.gate.set()
            updates.append(update)
        assert updates[0].task.id == task
        asked = updates[-1].status_update.status
        assert asked.state == pb.TASK_STATE_INPUT_REQUIRED
        shown: Any = json_format.MessageToDict(cast("Any", asked.message.parts[-1].data))
        [question] = shown["questions"]
        assert question["arguments"]["path"] == "notes.md"
        again = [one async for one in client.subscribe(pb.SubscribeToTaskRequest(id=task))]
        assert [one.task.status.state for one in again] == [pb.TASK_STATE_INPUT_REQUIRED]
        unclear = {"answers": {question["id"]: {"allow": "perhaps"}}}
        with pytest.raises(errors.InvalidParamsError, match="is not what it asks for"):
            _ = [one async for one in client.send_message(answering(unclear, task))]
        assert not world.erased
        answer = {"answers": {question["id"]: {"allow": True}}}
        done = [one async for one in client.send_message(answering(answer, task))]
        [output] = [one.artifact_update for one in done if one.HasField("artifact_update")]
        assert output.artifact.parts[0].text == "Done: 8.\nThe notes are gone."
        assert done[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
        assert world.erased == ["notes.md"]
        found = await client.get_task(pb.GetTaskRequest(id=task))
        assert found.status.state == pb.TASK_STATE_COMPLETED and len(found.artifacts) == 1
        messages = await world.runtime.threads.messages(found.context_id, user="ada")
        assert [one.text for one in messages if isinstance(one.message, UserMessage)] == ["Go"]
        with pytest.raises(errors.UnsupportedOperationError, match="is over"):
            _ = [one async for one in client.subscribe(pb.SubscribeToTaskRequest(id=task))]
        with pytest.raises(errors.UnsupportedOperationError, match="takes no message"):
            more = asking("More.", key="m2", task_id=task)
            _ = [one async for one in client.send_message(more)]
        # The conversation goes on as another task of the same context.
        more = asking("say more", key="m3", context_id=found.context_id)
        last = [one async for one in client.send_message(more)][-1]
        assert last.status_update.task_id != task
        assert last.status_update.context_id == found.context_id


async def test_a_working_task_is_steered_and_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path) as (world, client):
        request = asking("Go")
        request.configuration.return_immediately = True
        async with httpx.AsyncClient(timeout=30) as http:
            config = ClientConfig(httpx_client=http, streaming=False)
            plain = await create_client(world.url, client_config=config)
            [begun] = [one async for one in plain.send_message(request)]
            task = begun.task.id
            steered = asking("Be quick.", key="m2", task_id=task)
            steered.configuration.return_immediately = True
            _ = [one async for one in plain.send_message(steered)]
        run = await world.runtime.store_of("ada").runs.get(task)
        # Its step may have taken it meanwhile.
        pending = await world.runtime.store_of("ada").inbox.pending(run.thread_id)
        taken = await world.runtime.threads.messages(run.thread_id, user="ada")
        assert "Be quick." in f"{pending} {taken}"
        done = await client.cancel_task(pb.CancelTaskRequest(id=task))
        assert done.status.state == pb.TASK_STATE_CANCELED
        with pytest.raises(errors.TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=task))


async def test_a_message_to_a_working_task_answers_no_question_that_it_does_not_name(
    tmp_path: Path,
) -> None:
    """A sub-agent asks while another one works: "yes" is for the task, not for the question."""
    gate, erased = anyio.Event(), list[str]()

    @tool
    async def hold() -> str:
        """Wait at the gate."""
        await gate.wait()
        return "held"

    @tool(needs_approval=True)
    def erase(path: str) -> str:
        """Erase a file."""
        erased.append(path)
        return "erased"

    def respond(request: ModelRequest) -> Scripted:
        if not is_child(request):
            orders = [{"role": one, "instructions": one} for one in ("erase", "hold")]
            first = not step(request)
            return (
                calls(*(raw_call("delegate", **one) for one in orders)) if first else say("Done.")
            )
        if step(request):
            return say("Done.")
        asks = "<role>\nerase" in request.messages[0].text
        return call("erase", path="/a") if asks else call("hold")

    boss = Agent(ScriptedModel(respond), tools=[hold, erase], delegation=True)
    app = Starlette(
        routes=protocol_routes({"boss": boss}, a2a=True), middleware=[Middleware(Users)]
    )
    settings = Settings(database_url=f"file:{tmp_path / 'store.db'}", sweep=0)
    async with (
        Runtime.open(settings) as runtime,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http,
    ):
        app.state.runtime = runtime

        async def send(key: str, **more: Any) -> dict[str, Any]:
            message = {"messageId": key, "role": "ROLE_USER", **more}
            params = {"message": message, "configuration": {"returnImmediately": True}}
            body = {**RPC, "method": "SendMessage", "params": params}
            return (await http.post("/a2a/boss", json=body)).json()["result"]["task"]

        task = (await send("m1", parts=[{"text": "Go."}]))["id"]
        with anyio.fail_after(30):
            while not (asked := await runtime.questions(run_id=task, user="ada")):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await send("m2", taskId=task, parts=[{"text": "yes"}])
        assert await runtime.questions(run_id=task, user="ada") == asked and erased == []
        run = await runtime.store_of("ada").runs.get(task)
        pending = await runtime.store_of("ada").inbox.pending(run.thread_id)
        assert [one.body for one in pending] == [b"yes"]
        # By its name it is answered.
        named = {"data": {"answers": {asked[0].id: {"allow": True}}}}
        await send("m3", taskId=task, parts=[named])
        assert await runtime.questions(run_id=task, user="ada") == []
        gate.set()
        with anyio.fail_after(30):
            while not erased:  # noqa: ASYNC110
                await anyio.sleep(0.01)


BAD: list[tuple[dict[str, Any], int]] = [
    ({"method": "GetTask", "params": {"id": "none"}}, -32001),
    ({"method": "CancelTask", "params": {"id": "none"}}, -32001),
    ({"method": "SubscribeToTask", "params": {"id": "none"}}, -32001),
    ({"method": "ListTasks"}, -32004),
    ({"method": "Nothing"}, -32601),
    ({"method": 3}, -32600),
    ({"method": "GetTask", "params": {"id": {}}}, -32602),
    ({"method": "GetTask", "params": []}, -32602),
    ({"method": "SendMessage", "params": {}}, -32602),
    ({"method": "SendMessage", "params": {"message": {
        "messageId": "1", "contextId": "a\0", "parts": [{"text": "Go"}]}}}, -32602),
    ({"method": "SendMessage", "params": {"message": {"messageId": "1", "parts": []}}}, -32602),
    ({"method": "SendMessage", "params": {"message": {
        "messageId": "1", "parts": [{"url": "/etc/passwd"}]}}}, -32602),
]  # fmt: skip


async def test_bad_requests_have_the_codes_of_the_protocol(tmp_path: Path) -> None:
    async with (
        opened(tmp_path) as (world, client),
        httpx.AsyncClient(base_url=world.url, timeout=None) as http,
    ):
        for body, code in BAD:
            error = (await http.post("/a2a/desk", json=RPC | body)).json()
            assert (error["id"], error["error"]["code"]) == (7, code), error
        old = await http.post("/a2a/desk", json=RPC, headers={"A2A-Version": "0.3"})
        assert old.json()["error"]["code"] == -32009
        assert (await http.post("/a2a/desk", content="{}")).status_code == 415
        assert (await http.get("/a2a/nobody/.well-known/agent-card.json")).status_code == 404
        [done] = [one async for one in client.send_message(asking("say x")) if one.HasField("task")]
        body = RPC | {"method": "GetTask", "params": {"id": done.task.id}}
        stranger = await http.post("/a2a/desk", json=body, headers={"x-user": "eve"})
        assert stranger.json()["error"]["code"] == -32001


@pytest.mark.backends("file")
async def test_the_service_serves_it_when_asked_and_with_a_token(database_url: str) -> None:
    card = "/.well-known/agent-card.json"
    async with serving(database_url, lambda request: say("Done."), a2a=True) as service:
        async with httpx.AsyncClient(base_url=service.url, timeout=None) as stranger:
            public = (await stranger.get(card)).json()
            assert public["supportedInterfaces"][0]["url"] == f"{service.url}/a2a/worker"
            assert "token" in public["securitySchemes"]
            for path in ("/a2a/worker", "/a2a/nobody"):
                assert (await stranger.post(path, json=RPC)).status_code == 401
            assert (await stranger.get(f"/a2a/worker{card}")).status_code == 401
        config = ClientConfig(httpx_client=service.client)
        client = await create_client(service.url, client_config=config)
        last = [one async for one in client.send_message(asking("Go"))][-1]
        assert last.status_update.status.state == pb.TASK_STATE_COMPLETED
        paths = {getattr(one, "path", "") for one in create_app(service.app).routes}
        assert not any("a2a" in one for one in paths) and card not in paths
