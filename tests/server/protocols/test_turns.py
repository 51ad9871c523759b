"""Turns: live pieces and the log make one stream, whatever fails, breaks off or comes twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
import pytest

from agent_runtime import Agent, Delegation, Event, Runtime, ScriptedModel, Settings, tool
from agent_runtime.errors import InvalidAnswer, InvalidFile, NotFound, ThreadBusy
from agent_runtime.human.questions import Decision, Question
from agent_runtime.models.base import ModelRequest
from agent_runtime.models.scripted import Scripted, call, say
from agent_runtime.server.protocols import following, parts
from agent_runtime.server.protocols.answers import answer_of
from agent_runtime.server.protocols.client_message import Message
from agent_runtime.server.protocols.live import LiveEvents
from agent_runtime.server.protocols.turn_parts import Turn, turn_parts
from agent_runtime.server.protocols.turns import ClientTurns, UserTurns
from tests.server.protocols.serving import desk

USER = "ada"


@asynccontextmanager
async def turns(folder: Path, *agents: Agent, model: Any = None) -> AsyncGenerator[UserTurns]:
    settings = Settings(database_url=f"file:{folder / 'store.db'}", sweep=0)
    async with Runtime.open(settings, model=model or ScriptedModel([say("Yes.")] * 9)) as runtime:
        yield UserTurns(ClientTurns({one.name: one for one in agents}), runtime, USER)


async def all_parts(mine: UserTurns, turn: Turn) -> list[parts.Part]:
    async with mine.parts(turn) as given:
        return [one async for one in given]


def text_of(found: list[parts.Part]) -> str:
    return "".join(one.text for one in found if isinstance(one, parts.TextPiece))


async def live_and_log(mine: UserTurns, turn: Turn) -> tuple[list[parts.Part], list[parts.Part]]:
    """Return a turn's parts as they came, and as the log alone has them."""
    live = await all_parts(mine, turn)
    async with turn_parts(mine.runtime, LiveEvents(), turn) as given:
        return live, [one async for one in given]


async def test_live_pieces_and_the_log_tell_the_same(tmp_path: Path) -> None:
    async with turns(tmp_path, Agent(), model=ScriptedModel([say("One.\nTwo.\n")])) as mine:
        live, recorded = await live_and_log(mine, await mine.begin("agent", Message("Go"), "t"))
        assert text_of(live) == text_of(recorded) == "One.\nTwo.\n"
        assert isinstance(live[0], parts.Begun) and isinstance(live[-1], parts.Over)
        kinds = [type(one) for one in live if not isinstance(one, parts.TextPiece | parts.Other)]
        assert kinds == [
            type(one) for one in recorded if not isinstance(one, parts.TextPiece | parts.Other)
        ]


async def test_a_client_that_is_too_slow_gets_the_answer_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "WAITING", 1)
    lines = "".join(f"{number}\n" for number in range(200))
    async with turns(tmp_path, Agent(), model=ScriptedModel([say(lines)])) as mine:
        found = await all_parts(mine, await mine.begin("agent", Message("Go"), "t"))
        assert text_of(found) == lines


def test_who_comes_in_the_middle_of_an_answer_gets_its_beginning() -> None:
    live, seen = LiveEvents(), list[str]()
    with closing(live.publisher(USER)) as publish:
        publish(Event("run-queue", "", "r", data={"ahead": 1}))
        publish(Event("text-delta", "t", "r", data={"text": "void"}))
        publish(Event("model-retry", "t", "r", data={"reason": "", "attempt": 1, "wait": 0}))
        publish(Event("text-delta", "t", "r", data={"text": "a"}))
        with live.following((USER, "t"), lambda one: seen.append(one.event.data["text"])):
            publish(Event("text-delta", "t", "r", data={"text": "b"}))
        with live.following(("eve", "t"), lambda one: seen.append("!")):
            publish(Event("text-delta", "t", "r", data={"text": "c"}))
        # One that ended tells nothing more, nor is anything of it kept.
    publish(Event("text-delta", "t", "r", data={"text": "d"}))
    assert seen == ["a", "b"]
    assert not live._threads  # pyright: ignore[reportPrivateUsage]


async def test_text_of_a_call_that_failed_is_void(tmp_path: Path) -> None:
    async with turns(tmp_path, Agent()) as mine:
        turn = await mine.begin("agent", Message("Go"), "t")
        await all_parts(mine, turn)
        live = LiveEvents()

        async def pieces() -> AsyncIterator[parts.Part]:
            async with turn_parts(mine.runtime, live, turn) as given:
                async for one in given:
                    yield one

        with closing(live.publisher(USER)) as publish:
            # Before any event of the log, and of another text than the log will have.
            publish(Event("text-delta", "t", turn.run_id, data={"text": "No"}))
            found = [one async for one in pieces()]
        ended = [one for one in found if isinstance(one, parts.Ended)]
        assert [one.void for one in ended] == [True, False]
        assert ended[0].message != ended[1].message
        assert text_of(found) == "NoYes."


async def test_a_request_that_comes_twice_at_once_is_one_run(tmp_path: Path) -> None:
    async with turns(tmp_path, Agent()) as mine:
        found: list[Turn] = []

        async def begin() -> None:
            found.append(await mine.begin("agent", Message("Go"), "t", request="same"))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(begin)
        assert len(set(found)) == 1
        await all_parts(mine, found[0])
        assert len(await mine.runtime.threads.messages("t", user=USER)) == 2


async def test_a_run_that_cannot_begin_raises_its_error(tmp_path: Path) -> None:
    waiting = anyio.Event()

    async def respond(_request: ModelRequest) -> Scripted:
        await waiting.wait()
        return say("Yes.")

    async with turns(tmp_path, Agent(), model=ScriptedModel(respond)) as mine:
        with pytest.raises(NotFound):
            await mine.begin("nobody", Message("Go"))
        turn = await mine.begin("agent", Message("Go"), "t")
        with pytest.raises(ThreadBusy):
            await mine.begin("agent", Message("Go"), "t")
        waiting.set()
        await all_parts(mine, turn)
    with pytest.raises(InvalidFile):
        Message("Look", ("/etc/passwd",))


async def test_sub_agents_are_shown_while_they_work(tmp_path: Path) -> None:
    def respond(request: ModelRequest) -> Scripted:
        if any(one.role == "tool" for one in request.messages):
            return say("Done.")
        if "Begin." not in request.messages[-1].text:
            return say("Seven.")
        return call("delegate", role="counter", instructions="Count the files.", tools=[])

    agent = Agent(delegation=Delegation())
    async with turns(tmp_path, agent, model=ScriptedModel(respond)) as mine:
        found = await all_parts(mine, await mine.begin("agent", Message("Begin."), "t"))
        kinds = [type(one) for one in found]
        assert parts.ChildBegun in kinds and parts.ChildEnded in kinds, found
        [child] = [one for one in found if isinstance(one, parts.ChildBegun)]
        [made] = [one for one in found if isinstance(one, parts.Called)]
        assert child.call_id == made.call.id and child.parent == ""


async def test_a_call_alone_names_only_what_the_model_asks(tmp_path: Path) -> None:
    """A decision must name the question that was shown, since a call may be asked about again."""

    def respond(request: ModelRequest) -> Scripted:
        if "Done?" in request.messages[-1].text:
            return call("ask_user", question="Which?", kind="text")
        return call("erase") if request.messages[-1].role == "user" else say("Done.")

    @tool(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "erased"

    agent = Agent(tools=[erase], asking=True)
    async with turns(tmp_path, agent, model=ScriptedModel(respond)) as mine:
        for thread, text in (("approval", "Go"), ("question", "Done?")):
            await all_parts(mine, await mine.begin("agent", Message(text), thread))
        [approval] = await mine.runtime.questions(thread="approval", user=USER)
        with pytest.raises(NotFound):
            await mine.answer("approval", {approval.call_id: True})
        with pytest.raises(NotFound):
            await mine.answer("question", {approval.id: True})
        [still] = await mine.runtime.questions(thread="approval", user=USER)
        assert still.status == "open"
        found = await all_parts(mine, await mine.answer("approval", {approval.id: True}))
        assert isinstance(found[-1], parts.Over)
        [asked] = await mine.runtime.questions(thread="question", user=USER)
        found = await all_parts(mine, await mine.answer("question", {asked.call_id: "a"}))
        assert isinstance(found[-1], parts.Over)


QUESTION = Question(
    "q", "t", "r", "approval", "c", "", (), "erase", {}, {}, "", "open", {}, 0.0, 0.0
)


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (True, True), (False, False), ("yes", True), (" NO ", False), ("true", True),
        ({"allow": True}, True), ({"approved": False}, False), ('{"allow": false}', False),
        ("", None), (1, None), (None, None), ({}, None), ({"allow": "yes"}, None), ([True], None),
        ({"allow": 1}, None), ("yes please", None), ({"allow": True, "reason": 3}, None),
        ({"allow": True, "remember": "all"}, None),
    ],
)  # fmt: skip
def test_only_a_plain_yes_allows(value: object, allowed: bool | None) -> None:
    if allowed is None:
        with pytest.raises(InvalidAnswer):
            answer_of(QUESTION, value)
    else:
        answer = answer_of(QUESTION, value)
        assert isinstance(answer, Decision) and answer.allow is allowed


async def test_the_ai_sdk_asks_edits_and_regenerates(tmp_path: Path) -> None:
    async with desk(tmp_path) as world, httpx.AsyncClient(base_url=world.url, timeout=None) as http:

        async def post(*messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
            body = {"id": "chat", "messages": messages, "trigger": "submit-message", **more}
            answer = await http.post("/ai-sdk/desk", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
            lines = [one for one in answer.text.split("\n\n") if one.startswith("data: ")]
            assert lines[-1] == "data: [DONE]"
            return [orjson.loads(one[6:]) for one in lines[:-1]]

        def user(key: str, text: str) -> dict[str, Any]:
            return {"id": key, "role": "user", "parts": [{"type": "text", "text": text}]}

        def text(chunks: list[dict[str, Any]]) -> str:
            return "".join(one["delta"] for one in chunks if one["type"] == "text-delta")

        asked = await post(user("1", "ask"))
        [made] = [one for one in asked if one["type"] == "tool-input-available"]
        answer = {
            "type": "dynamic-tool", "toolName": "ask_user", "toolCallId": made["toolCallId"],
            "state": "output-available", "output": "blue",
        }  # fmt: skip
        assistant = {"id": "2", "role": "assistant", "parts": [{"type": "step-start"}, answer]}
        assert text(await post(user("1", "ask"), assistant)) == "You chose blue."
        assert text(await post(user("3", "say a"))) == "a"
        # The second message is replaced, then answered again.
        edited = [user("1", "ask"), assistant, user("3", "say b")]
        for _ in range(2):
            assert text(await post(*edited, messageId="3")) == "b"
        assert text(await post(*edited, trigger="regenerate-message")) == "b"
        branches = await world.runtime.threads.branches("chat", user=USER)
        assert len(branches) == 3
        for content in ('{"id": "x"}', '{"messages": []}', "[]"):
            headers = {"content-type": "application/json"}
            bad = await http.post("/ai-sdk/desk", content=content, headers=headers)
            assert bad.status_code == 400
        assert (await http.get("/ai-sdk/desk/none/stream")).status_code == 204
